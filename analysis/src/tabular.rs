//! One table, three readers: aligned for a terminal, CSV for programs, or row by row for a test.

/// What one column holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// Its name in CSV: lower case, the unit at the end.
    pub name: &'static str,
    /// Its heading on a terminal.
    pub heading: String,
    /// Text stands on the left, numbers on the right.
    pub text: bool,
}

/// One cell.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Not known, or without a meaning here.
    Missing,
    /// Text.
    Text(String),
    /// A whole number.
    Count(u64),
    /// A number, and how many decimals a person wants of it; CSV has two more.
    Number(f64, usize),
}

/// A table, with what has to be said about it.
#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    /// What it shows, in a line.
    pub title: String,
    /// The columns.
    pub columns: Vec<Column>,
    /// The rows, each as long as there are columns.
    pub rows: Vec<Vec<Value>>,
    /// Sentences below it: sums, definitions, warnings.
    pub notes: Vec<String>,
}

impl Column {
    /// A column of numbers.
    #[must_use]
    pub fn number(name: &'static str, heading: impl Into<String>) -> Self {
        Self { name, heading: heading.into(), text: false }
    }

    /// A column of text.
    #[must_use]
    pub fn text(name: &'static str, heading: impl Into<String>) -> Self {
        Self { name, heading: heading.into(), text: true }
    }
}

impl Value {
    /// A number, or nothing.
    #[must_use]
    pub fn maybe(value: Option<f64>, decimals: usize) -> Self {
        value.filter(|v| v.is_finite()).map_or(Self::Missing, |v| Self::Number(v, decimals))
    }

    /// A share as a percentage with one decimal.
    #[must_use]
    pub fn percent(share: Option<f64>) -> Self {
        Self::maybe(share.map(|s| s * 100.0), 1)
    }

    /// Bytes as MiB with one decimal.
    #[must_use]
    pub fn mib(bytes: Option<f64>) -> Self {
        Self::maybe(bytes.map(|b| b / MIB), 1)
    }

    fn show(&self) -> String {
        match self {
            Self::Missing => "–".to_owned(),
            Self::Text(text) => text.clone(),
            Self::Count(count) => count.to_string(),
            Self::Number(number, decimals) => rounded(*number, *decimals),
        }
    }

    fn csv(&self) -> String {
        match self {
            Self::Missing => String::new(),
            Self::Text(text) if text.contains([',', '"', '\n', '\r']) => {
                format!("\"{}\"", text.replace('"', "\"\""))
            }
            Self::Number(number, decimals) => rounded(*number, decimals + 2),
            other => other.show(),
        }
    }
}

impl From<u64> for Value {
    fn from(count: u64) -> Self {
        Self::Count(count)
    }
}

impl From<u32> for Value {
    fn from(count: u32) -> Self {
        Self::Count(u64::from(count))
    }
}

impl From<usize> for Value {
    fn from(count: usize) -> Self {
        Self::Count(count as u64)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

/// The longest line of a note.
const WIDTH: usize = 110;

/// Bytes of a MiB.
pub const MIB: f64 = 1024.0 * 1024.0;

/// Without a minus before nothing but zeros.
fn rounded(number: f64, decimals: usize) -> String {
    let text = format!("{number:.decimals$}");
    match text.strip_prefix('-') {
        Some(rest) if rest.chars().all(|c| c == '0' || c == '.') => rest.to_owned(),
        _ => text,
    }
}

impl Table {
    /// All rows as CSV, with a line of names.
    #[must_use]
    pub fn csv(&self) -> String {
        let names: Vec<_> = self.columns.iter().map(|c| c.name).collect();
        let mut out = names.join(",") + "\n";
        for row in &self.rows {
            let cells: Vec<_> = row.iter().map(Value::csv).collect();
            out += &(cells.join(",") + "\n");
        }
        out
    }

    /// Title, aligned rows (the first `top` of them; 0 = all) and notes.
    #[must_use]
    pub fn terminal(&self, top: usize) -> String {
        let shown = if top == 0 { self.rows.len() } else { top.min(self.rows.len()) };
        let cells: Vec<Vec<String>> =
            self.rows[..shown].iter().map(|row| row.iter().map(Value::show).collect()).collect();
        let widths: Vec<usize> = self
            .columns
            .iter()
            .enumerate()
            .map(|(i, column)| {
                let of = |text: &String| text.chars().count();
                let widest = cells.iter().filter_map(|row| row.get(i)).map(of).max().unwrap_or(0);
                widest.max(column.heading.chars().count())
            })
            .collect();
        let line = |row: &[String]| {
            let mut out = String::new();
            for ((cell, width), column) in row.iter().zip(&widths).zip(&self.columns) {
                let padded = if column.text {
                    format!("  {cell:<width$}")
                } else {
                    format!("  {cell:>width$}")
                };
                out += &padded;
            }
            out.trim_end().to_owned() + "\n"
        };
        let headings: Vec<_> = self.columns.iter().map(|c| c.heading.clone()).collect();
        let mut out = format!("{}\n{}", self.title, line(&headings));
        for row in &cells {
            out += &line(row);
        }
        if shown < self.rows.len() {
            let more = self.rows.len() - shown;
            out +=
                &format!("  … {more} more rows (--top 0 shows all, --csv and --json have them)\n");
        }
        for note in &self.notes {
            out += &wrapped(note);
        }
        out
    }
}

/// A paragraph in lines of at most [`WIDTH`] characters, those behind the first one indented.
fn wrapped(text: &str) -> String {
    let (mut out, mut width) = (String::new(), 0);
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if width > 0 && width + 1 + length > WIDTH {
            out += "\n  ";
            width = 2;
        } else if width > 0 {
            out.push(' ');
            width += 1;
        }
        out += word;
        width += length;
    }
    out + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_cells_for_people_and_for_programs() {
        let table = Table {
            title: "t".into(),
            columns: vec![Column::text("name", "name"), Column::number("x_pct", "x %")],
            rows: vec![
                vec!["a, \"b\"".into(), Value::percent(Some(0.12345))],
                vec!["c".into(), Value::Missing],
                vec!["d".into(), Value::Number(-0.0001, 1)],
            ],
            notes: vec!["n".into(), "word ".repeat(30)],
        };
        assert_eq!(table.csv(), "name,x_pct\n\"a, \"\"b\"\"\",12.345\nc,\nd,0.000\n");
        assert_eq!(
            table.terminal(2),
            "t\n  name     x %\n  a, \"b\"  12.3\n  c          –\n  … 1 more rows (--top 0 shows all, \
             --csv and --json have them)\nn\n"
                .to_owned()
                + &"word ".repeat(21)
                + "word\n  "
                + &"word ".repeat(7)
                + "word\n"
        );
    }
}
