//! The line that is typed.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::Style;
use ratatui::text::Span;

/// A line with a cursor, and the lines before it.
#[derive(Debug, Default)]
pub struct Input {
    text: String,
    /// A byte of the text at which a grapheme begins, or its end.
    cursor: usize,
    /// What was sent, the last one last.
    sent: Vec<String>,
    /// Which of them is shown, counted from the last; 0 = none.
    back: usize,
}

/// Where graphemes end, from 0.
fn ends(text: &str) -> Vec<usize> {
    let mut at = 0;
    let span = Span::raw(text);
    span.styled_graphemes(Style::new())
        .map(|grapheme| {
            at += grapheme.symbol.len();
            at
        })
        .collect()
}

impl Input {
    /// What is typed so far.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    fn set(&mut self, text: String) {
        self.cursor = text.len();
        self.text = text;
    }

    /// Empties the line.
    pub fn clear(&mut self) {
        self.set(String::new());
        self.back = 0;
    }

    /// The line was sent: it is empty, and can be had again.
    pub fn sent(&mut self) {
        let text = std::mem::take(&mut self.text);
        if self.sent.last() != Some(&text) && !text.trim().is_empty() {
            self.sent.push(text);
        }
        self.clear();
    }

    fn before(&self) -> usize {
        ends(&self.text[..self.cursor]).iter().rev().nth(1).copied().unwrap_or(0)
    }

    fn behind(&self) -> usize {
        self.cursor + ends(&self.text[self.cursor..]).first().copied().unwrap_or(0)
    }

    fn recall(&mut self, back: usize) {
        let text = match back {
            0 => Some(String::new()),
            back => self.sent.len().checked_sub(back).map(|index| self.sent[index].clone()),
        };
        if let Some(text) = text {
            self.back = back;
            self.set(text);
        }
    }

    /// A key; whether it was one of the line's own.
    pub fn on_key(&mut self, key: &KeyEvent) -> bool {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            match key.code {
                KeyCode::Char('u') => {
                    self.text.drain(..self.cursor);
                    self.cursor = 0;
                }
                KeyCode::Char('w') => {
                    let word = self.text[..self.cursor].trim_end();
                    let from = word
                        .rfind(char::is_whitespace)
                        .map_or(0, |at| at + word[at..].chars().next().map_or(0, char::len_utf8));
                    self.text.drain(from..self.cursor);
                    self.cursor = from;
                }
                KeyCode::Char('a') => self.cursor = 0,
                KeyCode::Char('e') => self.cursor = self.text.len(),
                _ => return false,
            }
            return true;
        }
        match key.code {
            KeyCode::Char(letter) if !key.modifiers.contains(KeyModifiers::ALT) => {
                self.text.insert(self.cursor, letter);
                self.cursor += letter.len_utf8();
            }
            KeyCode::Backspace => {
                let from = self.before();
                self.text.drain(from..self.cursor);
                self.cursor = from;
            }
            KeyCode::Delete => {
                let to = self.behind();
                self.text.drain(self.cursor..to);
            }
            KeyCode::Left => self.cursor = self.before(),
            KeyCode::Right => self.cursor = self.behind(),
            KeyCode::Home => self.cursor = 0,
            KeyCode::End => self.cursor = self.text.len(),
            KeyCode::Up => self.recall(self.back + 1),
            KeyCode::Down if self.back > 0 => self.recall(self.back - 1),
            KeyCode::Down => {}
            _ => return false,
        }
        true
    }

    /// The part of the line that fits so many cells with the cursor in it, and the cell of the cursor.
    #[must_use]
    pub fn shown(&self, width: u16) -> (&str, u16) {
        // One cell is for the cursor behind the end.
        let room = usize::from(width.max(3)) - 1;
        let before = &self.text[..self.cursor];
        let mut from = 0;
        for end in ends(before) {
            if Span::raw(&before[from..]).width() <= room {
                break;
            }
            from = end;
        }
        let shown = &self.text[from..];
        let mut to = 0;
        for end in ends(shown) {
            if Span::raw(&shown[..end]).width() > room {
                break;
            }
            to = end;
        }
        let cursor = Span::raw(&before[from..]).width();
        (&shown[..to], u16::try_from(cursor).unwrap_or(width))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn press(input: &mut Input, keys: &[KeyCode]) {
        for key in keys {
            assert!(input.on_key(&KeyEvent::from(*key)));
        }
    }

    fn of(text: &str) -> Input {
        let mut input = Input::default();
        text.chars().for_each(|letter| press(&mut input, &[KeyCode::Char(letter)]));
        input
    }

    #[test]
    fn graphemes_are_moved_over_and_removed_whole() {
        let mut input = of("a灯👩‍👩‍👧e\u{301}");
        press(&mut input, &[KeyCode::Backspace]);
        assert_eq!(input.text(), "a灯👩‍👩‍👧");
        press(&mut input, &[KeyCode::Left, KeyCode::Left, KeyCode::Delete]);
        assert_eq!(input.text(), "a👩‍👩‍👧");
        press(&mut input, &[KeyCode::Right, KeyCode::Right, KeyCode::Char('!'), KeyCode::Home]);
        press(&mut input, &[KeyCode::Left, KeyCode::Backspace, KeyCode::Char('>')]);
        assert_eq!(input.text(), ">a👩‍👩‍👧!");
    }

    #[test]
    fn what_was_sent_comes_back() {
        let mut input = of("one");
        input.sent();
        press(&mut input, &[KeyCode::Char('2')]);
        input.sent();
        press(&mut input, &[KeyCode::Up]);
        assert_eq!(input.text(), "2");
        press(&mut input, &[KeyCode::Up, KeyCode::Up]);
        assert_eq!(input.text(), "one");
        press(&mut input, &[KeyCode::Down, KeyCode::Down, KeyCode::Down]);
        assert_eq!(input.text(), "");
    }

    #[test]
    fn control_keys_edit_and_others_are_passed_on() {
        let control = |letter| KeyEvent::new(KeyCode::Char(letter), KeyModifiers::CONTROL);
        let mut input = of("one 灯台 three ");
        assert!(input.on_key(&control('w')));
        assert_eq!(input.text(), "one 灯台 ");
        assert!(input.on_key(&control('w')) && input.on_key(&control('w')));
        assert!(input.on_key(&control('w')));
        assert_eq!(input.text(), "");
        let mut input = of("one two");
        press(&mut input, &[KeyCode::Left, KeyCode::Left, KeyCode::Left]);
        assert!(input.on_key(&control('u')) && input.on_key(&control('e')));
        press(&mut input, &[KeyCode::Char('s')]);
        assert_eq!(input.text(), "twos");
        assert!(!input.on_key(&control('c')) && !input.on_key(&KeyEvent::from(KeyCode::Tab)));
    }

    #[test]
    fn the_cursor_is_always_shown() {
        let mut input = of("灯台守灯台守");
        assert_eq!(input.shown(7), ("灯台守", 6));
        press(&mut input, &[KeyCode::Home]);
        assert_eq!(input.shown(7), ("灯台守", 0));
        assert_eq!(input.shown(80), ("灯台守灯台守", 0));
        assert_eq!(Input::default().shown(0), ("", 0));
    }
}
