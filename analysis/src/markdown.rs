//! Markdown tables, and text that can stand in them.

use std::fmt::Write as _;

/// A table being written; the first column is left-aligned, numbers stand on the right.
pub(crate) struct Markdown {
    text: String,
    columns: Vec<String>,
    left: Vec<bool>,
    open: bool,
}

impl Markdown {
    pub(crate) fn new(columns: &[&str]) -> Self {
        Self {
            text: String::new(),
            columns: columns.iter().map(|c| (*c).to_owned()).collect(),
            left: (0..columns.len()).map(|column| column == 0).collect(),
            open: false,
        }
    }

    pub(crate) fn left_aligned(&mut self, column: usize) {
        self.left[column] = true;
    }

    pub(crate) fn row(&mut self, cells: &[String]) {
        if !self.open {
            self.open = true;
            let columns = self.columns.clone();
            self.line(&columns);
            self.text.push('|');
            for left in &self.left {
                self.text.push_str(if *left { "---|" } else { "---:|" });
            }
            self.text.push('\n');
        }
        self.line(cells);
    }

    pub(crate) fn finish(self) -> String {
        self.text
    }

    fn line(&mut self, cells: &[String]) {
        self.text.push('|');
        for cell in cells {
            let _ = write!(self.text, " {} |", escape(cell));
        }
        self.text.push('\n');
    }
}

/// Text on one line, without characters that move the cursor or turn the direction of writing.
pub(crate) fn one_line(text: &str) -> String {
    let moves =
        |c: char| c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let plain: String = text.chars().map(|c| if moves(c) { ' ' } else { c }).collect();
    plain.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Text as one line of a table cell or of prose: it ends no cell and opens no HTML. A broken bar stands for
/// a bar, since a backslash before one means one thing to Markdown and another on a terminal.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    let line = one_line(text).replace('|', "¦");
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        if c == '<' && chars.peek().is_some_and(|n| n.is_ascii_alphabetic() || "!/?".contains(*n)) {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}

/// The same for the text of a link or of a picture, which a bracket would end.
pub(crate) fn link_text(text: &str) -> String {
    escape(text).replace('[', "(").replace(']', ")")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_in_their_cell() {
        let mut table = Markdown::new(&["a", "b"]);
        table.row(&["x\r\n| y\u{1b}[2J\0 \\| z".into(), "1 < 2 <!-- <b>\u{202e}".into()]);
        assert_eq!(
            table.finish(),
            "| a | b |\n|---|---:|\n| x ¦ y [2J \\¦ z | 1 < 2 \\<!-- \\<b> |\n"
        );
        assert_eq!(link_text("a]b [c|"), "a)b (c¦");
    }
}
