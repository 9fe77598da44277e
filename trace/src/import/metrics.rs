//! Per-token CSVs: without a preamble, `bmoe_metrics v1` and `v2`.

use std::io::Read;

use super::error::{ImportError, Place, Result, quoted};
use super::fields::{real_64, split, unsigned};
use super::keys::Keys;
use super::lines::{LONGEST_ROW, Line, Lines, too_many_columns};
use super::summary::Tally;
use super::{CHUNK_BYTES, CHUNK_ROWS};

/// What a known column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogColumnKind {
    /// Whole numbers; -1 in the file = not measured.
    Count,
    /// Decimal numbers; -1 in the file = not measured.
    Real,
    /// Anything, kept as it is: a column that no reader knows.
    Text,
}

use LogColumnKind::{Count, Real};

/// The columns of all published generations and our own, by name.
pub const LOG_COLUMNS: [(&str, LogColumnKind); 41] = [
    ("step", Count),
    ("steps", Count),
    ("turn", Count),
    ("wall_ms", Real),
    ("io_ms", Real),
    ("compute_ms", Real),
    ("read_bytes", Count),
    ("cache_hit_pct", Real),
    ("stall_ms", Real),
    ("mgmt_ms", Real),
    ("majflt", Count),
    ("cpu_ms", Real),
    ("dense_resident_frac", Real),
    ("majflt_mib", Real),
    ("cache_budget_mib", Real),
    ("rss_mib", Real),
    ("rss_anon_mib", Real),
    ("rss_file_mib", Real),
    ("swap_mib", Real),
    ("mem_available_mib", Real),
    ("mem_free_mib", Real),
    ("swap_free_mib", Real),
    ("loop_overhead_ms", Real),
    ("mtp_batch", Count),
    ("mtp_draft_ms", Real),
    ("drain_ms", Real),
    ("adopt_ms", Real),
    ("ra_issue_ms", Real),
    ("ra_wd_ms", Real),
    ("io_wait_ms", Real),
    ("lane_busy_ms", Real),
    ("io_active_ms", Real),
    ("other_ms", Real),
    ("reads", Count),
    ("device_read_bytes", Count),
    ("hits", Count),
    ("misses", Count),
    ("speculated", Count),
    ("speculated_bytes", Count),
    ("speculated_hits", Count),
    ("speculated_wasted", Count),
];

/// What a log says about its run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogHeader {
    /// Generation: `None` = without a preamble.
    pub version: Option<u32>,
    /// The preamble, in its own words; values are the resolved ones.
    pub keys: Keys,
    /// The `# summary` line; `None` before it was read, and when there is none: then the run was ended from
    /// outside.
    pub summary: Option<Keys>,
    /// Columns in file order.
    pub columns: Vec<(String, LogColumnKind)>,
}

/// Values of one column.
#[derive(Debug, Clone, PartialEq)]
pub enum LogValues {
    /// Whole numbers; `None` = not measured.
    Count(Vec<Option<u64>>),
    /// Decimal numbers; `None` = not measured.
    Real(Vec<Option<f64>>),
    /// Text.
    Text(Vec<String>),
}

/// Some rows, column by column, in the order of [`LogHeader::columns`].
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LogChunk {
    /// Rows.
    pub rows: usize,
    /// Their values.
    pub columns: Vec<LogValues>,
}

impl LogChunk {
    /// Whether some row of a column is above zero.
    #[must_use]
    pub fn any_positive(&self, header: &LogHeader, column: &str) -> bool {
        let Some(index) = header.columns.iter().position(|(name, _)| name == column) else {
            return false;
        };
        match &self.columns[index] {
            LogValues::Count(values) => values.iter().flatten().any(|v| *v > 0),
            LogValues::Real(values) => values.iter().flatten().any(|v| *v > 0.0),
            LogValues::Text(_) => false,
        }
    }
}

/// Reads the log of one run.
#[derive(Debug)]
pub struct LogReader<R> {
    lines: Lines<R>,
    header: LogHeader,
    /// Where `step`, `turn`, `wall_ms`, `cache_hit_pct` and `mtp_batch` are.
    step: usize,
    turn: Option<usize>,
    wall_ms: usize,
    hit_pct: Option<usize>,
    mtp_batch: Option<usize>,
    /// Turn and step of the row before.
    last: Option<(u64, u64)>,
    tally: Tally,
    summary_line: u64,
    notes: Vec<String>,
    at_end: bool,
}

impl<R: Read> LogReader<R> {
    /// Reads the preamble and the header line.
    ///
    /// # Errors
    /// The input can't be read, or its head is no per-token log's.
    pub fn open(input: R) -> Result<Self> {
        let mut lines = Lines::new(input, LONGEST_ROW);
        let mut header = LogHeader::default();
        let mut last_line = 0;
        loop {
            let expected = "a header line with `step` and `wall_ms`";
            let Some(line) = lines.next()? else {
                return Err(ImportError::line(last_line + 1, "the end of the file", expected));
            };
            last_line = line.number;
            if line.is_blank() {
                continue;
            }
            let text = line.text()?;
            let Some(comment) = text.strip_prefix('#') else {
                header.columns = columns(&line, text)?;
                break;
            };
            if let Some(version) = comment.trim_start().strip_prefix("bmoe_metrics ") {
                header.version = match version.trim() {
                    "v1" => Some(1),
                    "v2" => Some(2),
                    other => {
                        let (format, found, expected) =
                            ("bmoe_metrics", quoted(other.as_bytes()), "v1 or v2");
                        return Err(ImportError::Version {
                            line: line.number,
                            format,
                            found,
                            expected,
                        });
                    }
                };
                continue;
            }
            let words = header.keys.add_line(comment);
            if !words.is_empty() {
                header.keys.push("comment", words.join(" "));
            }
            header.keys.bounded(line.number)?;
        }
        let at = |name: &str| header.columns.iter().position(|(n, _)| n == name);
        let (step, wall_ms) = (at("step").unwrap_or_default(), at("wall_ms").unwrap_or_default());
        let (turn, hit_pct, mtp_batch) = (at("turn"), at("cache_hit_pct"), at("mtp_batch"));
        Ok(Self {
            lines,
            header,
            step,
            turn,
            wall_ms,
            hit_pct,
            mtp_batch,
            last: None,
            tally: Tally::default(),
            summary_line: 0,
            notes: Vec::new(),
            at_end: false,
        })
    }

    /// What the log says about its run; complete when [`Self::next`] has given the last chunk.
    #[must_use]
    pub fn header(&self) -> &LogHeader {
        &self.header
    }

    /// What was left out, and what does not agree, for people; complete at the end.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The next rows, in file order; `None` at the end.
    ///
    /// # Errors
    /// The input can't be read, or a row is damaged.
    #[expect(
        clippy::should_implement_trait,
        reason = "an iterator could not be asked for the header"
    )]
    pub fn next(&mut self) -> Result<Option<LogChunk>> {
        let mut chunk = LogChunk {
            rows: 0,
            columns: self.header.columns.iter().map(|(_, kind)| kind.none()).collect(),
        };
        let mut bytes = 0;
        while !self.at_end && chunk.rows < CHUNK_ROWS / 8 && bytes < CHUNK_BYTES {
            let Some(line) = self.lines.next()? else {
                self.end(None)?;
                break;
            };
            if line.is_blank() {
                continue;
            }
            if !line.ended {
                let number = line.number;
                self.end(Some(number))?;
                break;
            }
            if line.bytes.starts_with(b"#") {
                self.summary_line = line.number;
                comment(&mut self.header, &line)?;
                continue;
            }
            if self.header.summary.is_some() {
                let found = format!("{} behind the summary", quoted(line.bytes));
                return Err(ImportError::line(line.number, found, "nothing behind `# summary`"));
            }
            row(&self.header.columns, &line, &mut chunk.columns)?;
            let number = line.number;
            bytes += line.bytes.len();
            chunk.rows += 1;
            self.check_step(number, &chunk)?;
            self.add(&chunk);
        }
        Ok((chunk.rows > 0).then_some(chunk))
    }

    /// Steps follow each other within a turn, and turns grow.
    fn check_step(&mut self, line: u64, chunk: &LogChunk) -> Result<()> {
        let last = |column: usize| match &chunk.columns[column] {
            LogValues::Count(values) => values.last().copied().flatten(),
            _ => None,
        };
        let turn = self.turn.and_then(last).unwrap_or(0);
        let step = last(self.step).unwrap_or(0);
        // Where tokens are guessed ahead one step may bring several.
        let several = self.mtp_batch.and_then(last).is_some_and(|batch| batch > 1);
        if let Some(before) = self.last {
            let (last_turn, last_step) = before;
            let lost = turn == last_turn && step > last_step + 1 && !several;
            let expected = if (turn, step) <= before {
                format!(
                    "more than step {last_step} of turn {last_turn}, the row before (a repeated or misplaced row)"
                )
            } else {
                format!("step {}, since steps follow each other (a row is lost)", last_step + 1)
            };
            if lost || (turn, step) <= before {
                let place = Place::Column { number: self.step + 1, name: "step".into() };
                let value = format!("`{step}` of turn {turn}");
                return Err(ImportError::Value { line, place, value, expected });
            }
        }
        self.last = Some((turn, step));
        Ok(())
    }

    /// Counts the last row in.
    fn add(&mut self, chunk: &LogChunk) {
        let last = |column: usize| match &chunk.columns[column] {
            LogValues::Real(values) => values.last().copied().flatten(),
            _ => None,
        };
        self.tally.rows += 1;
        self.tally.wall_ms += last(self.wall_ms).unwrap_or(0.0);
        self.tally.hit_pct = self.hit_pct.and_then(last).or(self.tally.hit_pct);
    }

    fn end(&mut self, unfinished_line: Option<u64>) -> Result<()> {
        self.at_end = true;
        if let Some(line) = unfinished_line {
            self.notes.push(format!(
                "line {line}, the last, has no end and was left out: it may have been cut off"
            ));
        }
        match &self.header.summary {
            None => {
                self.notes.push("it has no summary: the run was ended from outside".to_owned());
                Ok(())
            }
            Some(summary) => self.tally.check(self.summary_line, summary),
        }
    }
}

/// A `#` line behind the header line.
fn comment(header: &mut LogHeader, line: &Line<'_>) -> Result<()> {
    let text = line.text()?[1..].trim_start();
    match text.strip_prefix("summary").filter(|rest| rest.is_empty() || rest.starts_with(' ')) {
        Some(_) if header.summary.is_some() => {
            Err(ImportError::line(line.number, "a second summary", "one log in a file"))
        }
        Some(rest) => {
            let mut summary = Keys::default();
            summary.add_line(rest);
            header.summary = Some(summary);
            Ok(())
        }
        None => {
            let words = header.keys.add_line(text);
            if !words.is_empty() {
                header.keys.push("comment", words.join(" "));
            }
            header.keys.bounded(line.number)
        }
    }
}

fn columns(line: &Line<'_>, text: &str) -> Result<Vec<(String, LogColumnKind)>> {
    let mut columns: Vec<(String, LogColumnKind)> = Vec::new();
    too_many_columns(line)?;
    for (index, name) in text.split(',').map(str::trim).enumerate() {
        if name.is_empty() || columns.iter().any(|(before, _)| before == name) {
            let place = Place::Column { number: index + 1, name: name.to_owned() };
            let expected = "names, each once".to_owned();
            return Err(ImportError::Value {
                line: line.number,
                place,
                value: quoted(name.as_bytes()),
                expected,
            });
        }
        let known = LOG_COLUMNS.iter().find(|(known, _)| *known == name);
        columns.push((name.to_owned(), known.map_or(LogColumnKind::Text, |(_, kind)| *kind)));
    }
    for required in ["step", "wall_ms"] {
        if !columns.iter().any(|(name, _)| name == required) {
            let found = format!("{} has no column `{required}`", quoted(line.bytes));
            return Err(ImportError::line(
                line.number,
                found,
                "a header line with `step` and `wall_ms`",
            ));
        }
    }
    Ok(columns)
}

/// Whole numbers up to this are exact as `f64`.
const HIGHEST_COUNT: u64 = 1 << 53;

/// What a column of decimal numbers can hold, by the unit in its name.
fn highest(name: &str) -> f64 {
    let unit = name.rsplit_once('_').map_or("", |(_, unit)| unit);
    match unit {
        "pct" => 100.0,
        "frac" => 1.0,
        // A week for one step.
        "ms" => 604_800_000.0,
        // A pebibyte.
        "mib" => 1_073_741_824.0,
        _ => f64::MAX,
    }
}

fn row(
    columns: &[(String, LogColumnKind)],
    line: &Line<'_>,
    values: &mut [LogValues],
) -> Result<()> {
    let width = || {
        let fields = line.bytes.split(|b| *b == b',').count();
        let found = format!("{} has {fields} fields", quoted(line.bytes));
        ImportError::line(
            line.number,
            found,
            format!("{}, as many as the header has columns", columns.len()),
        )
    };
    let mut rest = Some(line.bytes);
    for (index, ((name, kind), values)) in columns.iter().zip(values).enumerate() {
        let (field, behind) = split(rest.ok_or_else(width)?);
        rest = behind;
        let required = matches!(name.as_str(), "step" | "wall_ms");
        let wrong = |what: &str| {
            let highest = match kind {
                Count => HIGHEST_COUNT as f64,
                _ => highest(name),
            };
            let expected = match (required, kind) {
                (true, Real) => format!("{what} above 0, at most {highest}"),
                (true, _) => format!("{what}, 0 to {highest}"),
                (false, _) => format!("{what}, 0 to {highest}, or -1 (not measured)"),
            };
            let place = Place::Column { number: index + 1, name: name.clone() };
            ImportError::Value { line: line.number, place, value: quoted(field), expected }
        };
        match values {
            LogValues::Count(values) => values.push(match unsigned(field) {
                Some(count) if count <= HIGHEST_COUNT => Some(count),
                None if !required && real_64(field) == Some(-1.0) => None,
                _ => return Err(wrong("a whole number")),
            }),
            LogValues::Real(values) => values.push(match real_64(field) {
                Some(value)
                    if (0.0..=highest(name)).contains(&value) && !(required && value == 0.0) =>
                {
                    Some(value)
                }
                Some(-1.0) if !required => None,
                _ => return Err(wrong("a number")),
            }),
            LogValues::Text(values) => {
                let text = Line { bytes: field, ..*line };
                values.push(text.text()?.to_owned());
            }
        }
    }
    if rest.is_some() { Err(width()) } else { Ok(()) }
}

impl LogColumnKind {
    const fn none(self) -> LogValues {
        match self {
            Self::Count => LogValues::Count(Vec::new()),
            Self::Real => LogValues::Real(Vec::new()),
            Self::Text => LogValues::Text(Vec::new()),
        }
    }
}
