//! Lossless cells must say what the baseline says.

use crate::matrix::Cell;

/// What a run generated.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Text {
    pub(super) text: String,
    /// Token ids of the decode steps; equal texts can hide different tokens.
    pub(super) tokens: Vec<i32>,
}

/// The first valid text of each group of cells that must agree. Baselines run first, so it is the
/// baseline's unless that failed.
#[derive(Debug, Default)]
pub(super) struct References(Vec<(Cell, Text)>);

impl References {
    /// Compares with the group's text, or makes it the group's text.
    ///
    /// # Errors
    /// Where the two differ, in one line.
    pub(super) fn check(&mut self, cell: &Cell, text: Text) -> Result<(), String> {
        let Some((reference, expected)) = self.0.iter().find(|(other, _)| other.same_text(cell))
        else {
            self.0.push((cell.clone(), text));
            return Ok(());
        };
        if *expected == text {
            return Ok(());
        }
        let equal = expected.tokens.iter().zip(&text.tokens).take_while(|(a, b)| a == b).count();
        let place = if expected.tokens == text.tokens {
            let at = common_prefix(&expected.text, &text.text);
            format!("from character {} on", at + 1)
        } else if equal == expected.tokens.len().min(text.tokens.len()) {
            format!(
                "by its length: {} decode steps, not {}",
                text.tokens.len(),
                expected.tokens.len()
            )
        } else {
            format!("from decode step {} on", equal + 1)
        };
        Err(format!("the text differs from that of \"{}\" {place}", reference.name))
    }
}

fn common_prefix(a: &str, b: &str) -> usize {
    a.chars().zip(b.chars()).take_while(|(a, b)| a == b).count()
}
