//! Text in lines of a terminal's cells.

use ratatui::style::Style;
use ratatui::text::Span;

/// Breaks a text into lines of `width` cells at most, at blanks where there are any. Wide characters take two cells,
/// marks that belong to a letter none; a grapheme is never torn. Control characters become blanks.
#[must_use]
pub fn wrap(text: &str, width: u16) -> Vec<String> {
    let width = usize::from(width.max(2));
    let mut lines = Vec::new();
    for paragraph in text.split('\n') {
        let clean: String =
            paragraph.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let (mut line, mut cells) = (String::new(), 0);
        // Where the line was last at a blank: its bytes and cells up to behind it.
        let mut blank: Option<(usize, usize)> = None;
        let span = Span::raw(clean);
        for grapheme in span.styled_graphemes(Style::new()) {
            let wide = Span::raw(grapheme.symbol).width();
            if cells + wide > width {
                let (bytes, before) = blank.take().unwrap_or((line.len(), cells));
                let rest = line.split_off(bytes);
                lines.push(std::mem::replace(&mut line, rest).trim_end().to_owned());
                cells -= before;
                if line.is_empty() && grapheme.symbol == " " {
                    continue;
                }
            }
            line.push_str(grapheme.symbol);
            cells += wide;
            if grapheme.symbol == " " {
                blank = Some((line.len(), cells));
            }
        }
        lines.push(line);
    }
    lines
}

/// The last place at or before a byte at which a letter begins or the text ends.
#[must_use]
pub fn char_boundary(text: &str, at: usize) -> usize {
    let at = at.min(text.len());
    (0..=at).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}

/// The last `rows` lines of a text that may be long: only its end is broken.
#[must_use]
pub fn tail(text: &str, width: u16, rows: u16) -> Vec<String> {
    // More than so many bytes would not fit, were every cell a letter of four bytes.
    let most = usize::from(width) * usize::from(rows) * 4;
    let from = char_boundary(text, text.len().saturating_sub(most));
    let mut lines = wrap(&text[from..], width);
    let extra = lines.len().saturating_sub(usize::from(rows));
    lines.drain(..extra);
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_stay_whole_and_wide_letters_take_two_cells() {
        assert_eq!(wrap("one two three", 8), ["one two", "three"]);
        assert_eq!(wrap("abcdefghij", 4), ["abcd", "efgh", "ij"]);
        assert_eq!(wrap("漢字かな", 5), ["漢字", "かな"]);
        assert_eq!(wrap("a\n\nb\tc", 9), ["a", "", "b c"]);
        assert_eq!(wrap("e\u{301}e\u{301}", 2), ["e\u{301}e\u{301}"]);
        assert_eq!(wrap("", 5), [""]);
    }

    #[test]
    fn the_end_of_a_long_text_is_what_is_seen() {
        let text = "word ".repeat(100_000) + "end";
        assert_eq!(tail(&text, 10, 2), ["word word", "end"]);
        assert_eq!(tail("漢字", 2, 1), ["字"]);
    }
}
