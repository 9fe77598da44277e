//! A report's benchmark tables, for a terminal: fewer columns, aligned, and lines that fit.

/// The widest line.
const WIDTH: usize = 100;

/// Verdicts of at most so many characters stand in the row.
const SHORT_VERDICT: usize = 16;

/// Columns that a terminal has room for, by their heading in the report, with the one shown here. The last
/// one, the verdict, gets a line of its own where it doesn't fit.
const COLUMNS: [(&str, &str); 7] = [
    ("configuration", "configuration"),
    ("tok/s mean", "tok/s"),
    ("× baseline", "×"),
    ("hit %", "hit %"),
    ("MiB/token", "MiB/token"),
    ("compute + I/O s/token", "compute + I/O s"),
    ("verdict", ""),
];

/// The tables of token rates among a report's Markdown, one per model, below the model's heading and above
/// the report's remarks on them.
pub(crate) fn benchmark_tables(report: &str) -> String {
    let mut out = String::new();
    let mut heading = "";
    let mut lines = report.lines().peekable();
    while let Some(line) = lines.next() {
        if let Some(text) = line.strip_prefix("## ") {
            heading = text;
        } else if line.starts_with('|') {
            let mut table = vec![line];
            while let Some(row) = lines.next_if(|next| next.starts_with('|')) {
                table.push(row);
            }
            if line.contains("| tok/s mean |") {
                out += &format!("{heading}\n{}", align(&table));
                while let Some(next) =
                    lines.next_if(|next| next.is_empty() || next.starts_with("- "))
                {
                    if let Some(remark) = next.strip_prefix("- ") {
                        out += &indented("note: ", remark, 2);
                    }
                }
            }
        }
    }
    out
}

/// What the report says of measured and published figures as a whole; nothing when none were published.
pub(crate) fn beside_published(report: &str) -> Vec<String> {
    let section = report.lines().skip_while(|line| *line != "## Measured beside published").skip(1);
    let said = section
        .take_while(|line| !line.starts_with("## "))
        .filter_map(|line| line.strip_prefix("- "))
        .map(|line| indented("published: ", line, 0).trim_end().to_owned());
    said.collect()
}

/// A table's row as the terminal shows it.
struct Line {
    cells: Vec<String>,
    verdict: String,
}

/// Pads the cells of a Markdown table: names to the left, numbers to the right.
fn align(table: &[&str]) -> String {
    let cells = |row: &str| -> Vec<String> {
        row.trim_matches('|').split('|').map(|cell| cell.trim().replace("**", "")).collect()
    };
    let Some(headings) = table.first().map(|row| cells(row)) else { return String::new() };
    let places: Vec<(usize, &str)> = COLUMNS
        .iter()
        .filter_map(|(name, short)| Some((headings.iter().position(|h| h == name)?, *short)))
        .collect();
    let line = |row: &[String]| {
        let mut cells: Vec<String> =
            places.iter().map(|(place, _)| row.get(*place).cloned().unwrap_or_default()).collect();
        let verdict = cells.pop().unwrap_or_default();
        // The interval is in the report.
        if let Some(rate) = cells.get_mut(1)
            && let Some((mean, _)) = rate.split_once(" (")
        {
            *rate = mean.to_owned();
        }
        Line { cells, verdict }
    };
    let mut lines = vec![Line {
        cells: places.iter().take(places.len() - 1).map(|(_, short)| (*short).to_owned()).collect(),
        verdict: String::new(),
    }];
    lines.extend(table.iter().skip(2).map(|row| line(&cells(row))));
    let width = |column: usize| {
        lines.iter().map(|l| l.cells[column].chars().count()).max().unwrap_or_default()
    };
    let mut widths: Vec<usize> = (0..places.len() - 1).map(width).collect();
    let numbers: usize = widths.iter().skip(1).map(|width| width + 2).sum();
    // Room for the verdicts that say no more than how many repetitions were valid.
    let short = |line: &Line| Some(line.verdict.chars().count()).filter(|n| *n <= SHORT_VERDICT);
    let verdict = lines.iter().filter_map(short).max().unwrap_or_default() + 2;
    widths[0] = widths[0].min(WIDTH.saturating_sub(2 + numbers + verdict).max(24));
    let mut out = String::new();
    for Line { cells, verdict } in &lines {
        // Long names go on below themselves.
        let mut name = wrapped(&cells[0], widths[0]).into_iter();
        let mut row = format!("  {:<1$}", name.next().unwrap_or_default(), widths[0]);
        for (cell, width) in cells.iter().zip(&widths).skip(1) {
            row += &format!("  {cell:>width$}");
        }
        let fits = row.chars().count() + 2 + verdict.chars().count() <= WIDTH;
        if fits && !verdict.is_empty() {
            row += &format!("  {verdict}");
        }
        out += &format!("{}\n", row.trim_end());
        for rest in name {
            out += &format!("    {rest}\n");
        }
        if !fits {
            out += &indented("", verdict, 6);
        }
    }
    out
}

/// A paragraph below a row.
fn indented(label: &str, text: &str, by: usize) -> String {
    let blank = " ".repeat(by);
    let lines = wrapped(&format!("{label}{text}"), WIDTH - by);
    lines.iter().map(|line| format!("{blank}{line}\n")).collect()
}

/// A text in lines of at most so many characters, broken between words where there are any.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let mut word = word.to_owned();
        if let Some(last) = lines.last_mut()
            && last.chars().count() + 1 + word.chars().count() <= width
        {
            last.push(' ');
            last.push_str(&word);
            continue;
        }
        while word.chars().count() > width {
            let rest =
                word.split_off(word.char_indices().nth(width).map_or(word.len(), |(i, _)| i));
            lines.push(std::mem::replace(&mut word, rest));
        }
        lines.push(word);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = "# r\n\n## one\n\n\
        | configuration | tok/s mean | × baseline | min | hit % | MiB/token | compute + I/O s/token | verdict |\n\
        |---|---:|---:|---:|---:|---:|---:|---|\n\
        | mmap (baseline) | 2.30 (2.10–2.50) | 1 | 1.00 | – | – | 0.430 + – | 2 of 2 valid |\n\
        | stream, cache 1500 MiB, lfu, prefetch 2, 4 lanes, uring, overlap off, dense warm, top-6 | 13.93 \
        (13.00–15.10) | 6.06 | 4.00 | 81.5 | 22.1 | 0.031 + 0.041 | 2 of 2 valid |\n\
        | stream, cache 3 MiB, 4 lanes | – | – | – | – | – | – | **failed**: cache_mib = 3 is too small: one \
        token's 8 experts of the largest layer take 20.3 MiB |\n\n\
        - mmap: the repetitions differ by 19 % (2.10 to 2.50 tok/s); something else than the cell decided, \
        whatever it was.\n\n\
        ### more\n\n| what | value |\n|---|---|\n| kernel | 6 |\n\n- another list\n";

    #[test]
    fn tables_of_rates_are_picked_out_and_fit_a_terminal() {
        let shown = benchmark_tables(REPORT);
        assert!(shown.lines().all(|line| line.chars().count() <= WIDTH), "{shown}");
        insta::assert_snapshot!(shown);
    }

    #[test]
    fn words_longer_than_a_line_are_broken() {
        assert_eq!(wrapped("ab cdefgh i", 3), ["ab", "cde", "fgh", "i"]);
        assert!(wrapped("", 3).is_empty());
    }
}
