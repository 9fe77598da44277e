//! `route_trace v1`: one row per (layer, token, slot).

use std::io::Read;

use super::chunk::RouteChunk;
use super::error::{ImportError, Place as At, Result, quoted};
use super::fields::{real_32, split, unsigned, unsigned_32};
use super::keys::Keys;
use super::lines::{Line, Lines};
use super::order::{Disorder, HIGHEST_EXPERT, LayersSeen, Order, TokenOfLayer};
use super::{CHUNK_ROWS, ImportedLayer, RouteHeader};
use crate::record::{Phase, Residency};

/// What a column of the file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Turn,
    Phase,
    Step,
    Layer,
    Slot,
    Expert,
    Weight,
    Residency,
    ExpertBytes,
    Extra(usize),
}

const ROLES: [(&str, Role); 9] = [
    ("turn", Role::Turn),
    ("phase", Role::Phase),
    ("step", Role::Step),
    ("layer", Role::Layer),
    ("slot", Role::Slot),
    ("expert", Role::Expert),
    ("weight", Role::Weight),
    ("residency", Role::Residency),
    ("expert_bytes", Role::ExpertBytes),
];

const REQUIRED: [&str; 5] = ["phase", "step", "layer", "slot", "expert"];

/// One row as it stands in the file.
#[derive(Debug, Clone, Copy)]
struct Row {
    turn: u32,
    phase: Phase,
    step: u32,
    layer: u32,
    slot: u32,
    expert: u32,
    weight: f32,
    residency: Option<Residency>,
    read_bytes: u64,
}

/// Reads a file row by row.
#[derive(Debug)]
pub(super) struct RouteCsvRows<R> {
    lines: Lines<R>,
    columns: Columns,
    header: RouteHeader,
    /// The header says how many experts a layer has, and how many a token uses.
    top_k: Option<u32>,
    layers: LayersSeen,
    order: Order,
    /// The token whose rows are being read; `None` before the first and behind a whole one of known top-k.
    token: Option<TokenOfLayer>,
    /// Rows of it so far.
    slots: u32,
    rows: RouteChunk,
    notes: Vec<String>,
    at_end: bool,
}

/// The columns in file order.
#[derive(Debug)]
struct Columns {
    roles: Vec<Role>,
    names: Vec<String>,
}

impl Columns {
    fn of(line: &Line<'_>) -> Result<Self> {
        let text = line.text()?;
        let names: Vec<String> = text.split(',').map(|name| name.trim().to_owned()).collect();
        if let Some(missing) = REQUIRED.iter().find(|name| !names.iter().any(|n| n == *name)) {
            let found = format!("{} has no column `{missing}`", quoted(line.bytes));
            let expected = "a header with the columns turn,phase,step,layer,slot,expert,weight,residency,expert_bytes \
                            in any order";
            return Err(ImportError::line(line.number, found, expected));
        }
        let mut extra = 0;
        let mut roles = Vec::with_capacity(names.len());
        for (index, name) in names.iter().enumerate() {
            if names[..index].contains(name) {
                let place = At::Column { number: index + 1, name: name.clone() };
                let value = quoted(name.as_bytes());
                return Err(ImportError::Value {
                    line: line.number,
                    place,
                    value,
                    expected: "each column once".into(),
                });
            }
            roles.push(ROLES.iter().find(|(known, _)| known == name).map_or_else(
                || {
                    extra += 1;
                    Role::Extra(extra - 1)
                },
                |(_, role)| *role,
            ));
        }
        Ok(Self { roles, names })
    }

    fn extra(&self) -> Vec<String> {
        let named = self.roles.iter().zip(&self.names);
        named
            .filter(|(role, _)| matches!(role, Role::Extra(_)))
            .map(|(_, name)| name.clone())
            .collect()
    }

    /// The error of a column's value.
    #[cold]
    fn wrong(
        &self,
        line: u64,
        role: Role,
        value: String,
        expected: impl Into<String>,
    ) -> ImportError {
        let index = self.roles.iter().position(|r| *r == role).unwrap_or_default();
        let place = At::Column { number: index + 1, name: self.names[index].clone() };
        ImportError::Value { line, place, value, expected: expected.into() }
    }

    /// Reads the fields of a line; `extra` takes those of unknown columns.
    #[inline]
    fn row(&self, line: &Line<'_>, extra: &mut [Vec<String>]) -> Result<Row> {
        let mut row = Row {
            turn: 0,
            phase: Phase::Decode,
            step: 0,
            layer: 0,
            slot: 0,
            expert: 0,
            weight: f32::NAN,
            residency: None,
            read_bytes: 0,
        };
        let mut rest = Some(line.bytes);
        for role in &self.roles {
            let Some(unread) = rest else { return Err(self.width(line)) };
            let (field, behind) = split(unread);
            rest = behind;
            let wrong = |expected: &str| self.wrong(line.number, *role, quoted(field), expected);
            match role {
                Role::Turn => {
                    row.turn = unsigned_32(field).ok_or_else(|| wrong("a turn from 0"))?
                }
                Role::Phase => {
                    row.phase = match field {
                        b"0" => Phase::Prefill,
                        b"1" => Phase::Decode,
                        _ => return Err(wrong("0 (prefill) or 1 (decode)")),
                    };
                }
                Role::Step => {
                    row.step = unsigned_32(field).ok_or_else(|| wrong("a position from 0"))?
                }
                Role::Layer => {
                    row.layer = unsigned_32(field).ok_or_else(|| wrong("a layer from 0"))?
                }
                Role::Slot => {
                    row.slot = unsigned_32(field).ok_or_else(|| wrong("a slot from 0"))?
                }
                Role::Expert => {
                    row.expert = unsigned_32(field).ok_or_else(|| wrong("an expert from 0"))?
                }
                Role::Weight => {
                    row.weight = real_32(field).ok_or_else(|| wrong("a finite number, or nan"))?
                }
                Role::Residency => {
                    row.residency = match field {
                        b"0" => Some(Residency::Miss),
                        b"1" => Some(Residency::Hit),
                        b"2" => Some(Residency::PrefetchHit),
                        b"-1" => None,
                        _ => {
                            return Err(wrong(
                                "0 (miss), 1 (hit), 2 (first use of a prefetch) or -1 (unknown)",
                            ));
                        }
                    };
                }
                Role::ExpertBytes => {
                    row.read_bytes = unsigned(field).ok_or_else(|| wrong("bytes from 0"))?
                }
                Role::Extra(index) => {
                    let text = Line { bytes: field, ..*line };
                    extra[*index].push(text.text()?.to_owned());
                }
            }
        }
        if rest.is_some() { Err(self.width(line)) } else { Ok(row) }
    }

    #[cold]
    fn width(&self, line: &Line<'_>) -> ImportError {
        let fields = line.bytes.split(|b| *b == b',').count();
        let found = format!("{} has {fields} fields", quoted(line.bytes));
        ImportError::line(
            line.number,
            found,
            format!("{}, as many as the header has columns", self.roles.len()),
        )
    }
}

impl<R: Read> RouteCsvRows<R> {
    /// Reads the preamble and the header line.
    pub(super) fn open(input: R) -> Result<Self> {
        let mut lines = Lines::new(input);
        let mut preamble = Preamble::default();
        let columns = loop {
            let Some(line) = lines.next()? else {
                return Err(ImportError::line(
                    preamble.lines + 1,
                    "the end of the file",
                    "a header line with the columns",
                ));
            };
            preamble.lines = line.number;
            if line.is_blank() {
                continue;
            }
            match line.text()?.strip_prefix('#') {
                Some(text) => preamble.add(line.number, text)?,
                None => break Columns::of(&line)?,
            }
        };
        let (header, top_k) = preamble.header(columns.extra())?;
        let mut rows = RouteChunk {
            extra: vec![Vec::new(); header.extra_columns.len()],
            ..RouteChunk::default()
        };
        rows.reserve(CHUNK_ROWS + 1);
        Ok(Self {
            lines,
            columns,
            layers: LayersSeen::listed(header.layers.iter().map(|l| l.index)),
            header,
            top_k,
            order: Order::default(),
            token: None,
            slots: 0,
            rows,
            notes: Vec::new(),
            at_end: false,
        })
    }

    pub(super) fn header(&self) -> &RouteHeader {
        &self.header
    }

    pub(super) fn notes(&self) -> Vec<String> {
        self.notes.clone()
    }

    pub(super) fn next(&mut self) -> Result<Option<RouteChunk>> {
        if self.at_end {
            return Ok(None);
        }
        loop {
            let Some(line) = self.lines.next()? else {
                self.end(None);
                break;
            };
            if line.bytes.first() == Some(&b'#') {
                let words = self.header.keys.add_line(&line.text()?[1..]);
                if !words.is_empty() {
                    self.header.keys.push("comment", words.join(" "));
                }
                continue;
            }
            if !line.ended {
                let number = line.number;
                self.end(Some(number));
                break;
            }
            if line.bytes.is_empty() {
                continue;
            }
            let row = self.columns.row(&line, &mut self.rows.extra)?;
            let number = line.number;
            let whole = self.rows.len();
            let begins = self.take(number, row)?;
            // A chunk ends where a token does.
            if begins && whole >= CHUNK_ROWS {
                let mut rest = self.rows.split_off(whole);
                rest.reserve(CHUNK_ROWS + 1);
                return Ok(Some(std::mem::replace(&mut self.rows, rest)));
            }
        }
        Ok(Some(std::mem::take(&mut self.rows)))
    }

    /// Adds a row; `true` when it begins a token.
    #[inline]
    fn take(&mut self, line: u64, row: Row) -> Result<bool> {
        let token =
            TokenOfLayer { turn: row.turn, phase: row.phase, layer: row.layer, position: row.step };
        let begins = self.token != Some(token);
        if begins {
            if self.layers.note(row.layer) == Err(()) {
                let expected = self.layers.expected();
                return Err(self.columns.wrong(
                    line,
                    Role::Layer,
                    quoted(row.layer.to_string().as_bytes()),
                    expected,
                ));
            }
            if let Some(top_k) =
                self.top_k.filter(|top_k| self.token.is_some() && self.slots != *top_k)
            {
                return Err(self.too_few(line, top_k));
            }
            if self.token.is_some() && self.top_k.is_none() {
                self.top_k = Some(self.slots);
                self.header.top_k = self.slots;
            }
            let place =
                self.order.next(token).map_err(|disorder| self.disorder(line, token, disorder))?;
            self.slots = 0;
            self.token = Some(token);
            self.rows.event.push(place.event);
            self.rows.ubatch.push(place.ubatch);
        } else {
            // The token's own, which its first row has brought.
            let (event, ubatch) =
                (self.rows.event.last().copied(), self.rows.ubatch.last().copied());
            self.rows.event.push(event.unwrap_or_default());
            self.rows.ubatch.push(ubatch.unwrap_or_default());
        }
        if row.slot != self.slots || self.top_k.is_some_and(|top_k| row.slot >= top_k) {
            return Err(self.wrong_slot(line, row.slot));
        }
        let before = self.rows.len() - self.slots as usize;
        if row.expert >= self.header.n_expert {
            self.note_expert(line, row.expert)?;
        }
        if self.rows.expert[before..].contains(&row.expert) {
            let expected = "an expert that no other slot of the token has";
            return Err(self.columns.wrong(
                line,
                Role::Expert,
                quoted(row.expert.to_string().as_bytes()),
                expected,
            ));
        }
        self.slots += 1;
        let rows = &mut self.rows;
        rows.turn.push(row.turn);
        rows.phase.push(row.phase);
        rows.layer.push(row.layer);
        rows.position.push(row.step);
        rows.slot.push(row.slot);
        rows.expert.push(row.expert);
        rows.weight.push(row.weight);
        rows.residency.push(row.residency);
        rows.read_bytes.push(row.read_bytes);
        Ok(begins)
    }

    /// An expert beyond those known of: wrong when the header says how many there are.
    #[cold]
    fn note_expert(&mut self, line: u64, expert: u32) -> Result<()> {
        let expected = if self.header.n_expert_known {
            format!("an expert, 0 to {}", self.header.n_expert.saturating_sub(1))
        } else if expert > HIGHEST_EXPERT {
            format!("an expert, 0 to {HIGHEST_EXPERT}")
        } else {
            self.header.n_expert = expert + 1;
            return Ok(());
        };
        Err(self.columns.wrong(line, Role::Expert, quoted(expert.to_string().as_bytes()), expected))
    }

    #[cold]
    fn too_few(&self, line: u64, top_k: u32) -> ImportError {
        let token = self
            .token
            .map_or(String::new(), |t| format!("token {} of layer {}", t.position, t.layer));
        let found = format!("{token} ends before this line with {} slots", self.slots);
        ImportError::line(line, found, format!("{top_k} rows for each token of a layer"))
    }

    #[cold]
    fn wrong_slot(&self, line: u64, slot: u32) -> ImportError {
        let expected = match self.top_k {
            Some(top_k) if self.slots >= top_k => {
                format!("another token, since each has {top_k} slots (a repeated row?)")
            }
            _ => format!(
                "slot {}, since the slots of a token follow each other (a row is lost or repeated)",
                self.slots
            ),
        };
        self.columns.wrong(line, Role::Slot, quoted(slot.to_string().as_bytes()), expected)
    }

    #[cold]
    fn disorder(&self, line: u64, token: TokenOfLayer, disorder: Disorder) -> ImportError {
        let (role, value) = match disorder {
            Disorder::Turn { .. } => (Role::Turn, token.turn),
            Disorder::Phase => (Role::Phase, 0),
            Disorder::Position { .. } | Disorder::TooMany => (Role::Step, token.position),
        };
        self.columns.wrong(
            line,
            role,
            quoted(value.to_string().as_bytes()),
            disorder.expected(token),
        )
    }

    /// The end of the file: what a writer that was ended has left unfinished is left out, and told.
    fn end(&mut self, unfinished_line: Option<u64>) {
        self.at_end = true;
        if let Some(line) = unfinished_line {
            self.notes.push(format!(
                "line {line}, the last, has no end and was left out: it may have been cut off"
            ));
        }
        let whole = self.top_k.is_none_or(|top_k| self.slots == top_k);
        // Without a top-k the only token is whole unless the file was cut off in it.
        if let Some(token) =
            self.token.filter(|_| !whole || (self.top_k.is_none() && unfinished_line.is_some()))
        {
            let at = self.rows.len() - self.slots as usize;
            self.rows.split_off(at);
            self.notes.push(format!(
                "the last token (position {}, layer {}) has only {} slots and was left out",
                token.position, token.layer, self.slots
            ));
        } else if self.top_k.is_none() {
            self.header.top_k = self.slots;
        }
        if self.header.layers.is_empty() {
            let layer = |index| ImportedLayer { index, expert_bytes: None };
            self.header.layers = self.layers.all().map(layer).collect();
        }
    }
}

/// The `#` lines before the header.
#[derive(Debug, Default)]
struct Preamble {
    lines: u64,
    keys: Keys,
    layers: Vec<ImportedLayer>,
    model: Vec<(u64, Keys)>,
}

impl Preamble {
    fn add(&mut self, number: u64, text: &str) -> Result<()> {
        if let Some(version) = text.trim_start().strip_prefix("route_trace ") {
            let version = version.trim();
            if version != "v1" {
                let (format, found, expected) = ("route_trace", version.to_owned(), "v1");
                return Err(ImportError::Version { line: number, format, found, expected });
            }
            return Ok(());
        }
        let mut keys = Keys::default();
        let words = keys.add_line(text);
        if !words.is_empty() {
            self.keys.push("comment", words.join(" "));
        }
        if keys.get("layer").is_some() {
            self.add_layer(number, &keys)?;
        } else {
            self.model.push((number, keys.clone()));
        }
        self.keys.0.extend(keys.0);
        Ok(())
    }

    fn add_layer(&mut self, number: u64, keys: &Keys) -> Result<()> {
        let text = keys.get("layer").unwrap_or_default();
        let index =
            unsigned_32(text.as_bytes()).filter(|layer| *layer <= super::order::HIGHEST_LAYER);
        let index =
            index.ok_or_else(|| ImportError::key(number, "layer", text, "a layer, 0 to 65535"))?;
        if self.layers.iter().any(|l| l.index == index) {
            return Err(ImportError::key(number, "layer", text, "each layer once"));
        }
        let expert_bytes = match keys.get("expert_bytes") {
            None => None,
            Some(text) => {
                let bytes = unsigned(text.as_bytes()).filter(|bytes| *bytes <= 1 << 48);
                let expected = "bytes of one expert, 0 = not known, at most 2^48";
                let bytes = bytes
                    .ok_or_else(|| ImportError::key(number, "expert_bytes", text, expected))?;
                Some(bytes).filter(|bytes| *bytes > 0)
            }
        };
        self.layers.push(ImportedLayer { index, expert_bytes });
        Ok(())
    }

    fn number(&self, key: &str, highest: u32) -> Result<Option<u32>> {
        let found = self.model.iter().find_map(|(line, keys)| Some((*line, keys.get(key)?)));
        let Some((line, text)) = found else { return Ok(None) };
        match unsigned_32(text.as_bytes()).filter(|n| *n <= highest) {
            Some(number) => Ok(Some(number).filter(|n| *n > 0)),
            None => Err(ImportError::key(
                line,
                key,
                text,
                format!("a number, 0 to {highest} (0 = not known)"),
            )),
        }
    }

    /// What it says, and the top-k when it says that.
    fn header(mut self, extra_columns: Vec<String>) -> Result<(RouteHeader, Option<u32>)> {
        let n_expert = self.number("n_expert", HIGHEST_EXPERT + 1)?;
        let top_k = self.number("n_expert_used", HIGHEST_EXPERT + 1)?;
        self.layers.sort_by_key(|l| l.index);
        let word = |key: &str| self.keys.get(key).filter(|v| !v.is_empty()).map(str::to_owned);
        let header = RouteHeader {
            run_id: word("run_id"),
            model: word("model"),
            arch: word("arch"),
            n_expert: n_expert.unwrap_or(0),
            n_expert_known: n_expert.is_some(),
            top_k: top_k.unwrap_or(0),
            layers: std::mem::take(&mut self.layers),
            keys: self.keys.clone(),
            extra_columns,
        };
        Ok((header, top_k))
    }
}
