//! How often the run uses each expert.

use super::accesses::Accesses;

/// Uses of every entry in the whole run, an event counting once.
#[derive(Debug, Clone)]
pub struct Heat {
    uses: Vec<u32>,
    n_expert: usize,
}

impl Heat {
    /// Of the events that are replayed.
    #[must_use]
    pub fn new(accesses: &Accesses) -> Self {
        let n_expert = accesses.n_expert() as usize;
        let entries = accesses.layers().len() * n_expert;
        let (mut uses, mut last) = (vec![0; entries], vec![usize::MAX; entries]);
        for (number, event) in accesses.events().enumerate() {
            for &expert in event.experts {
                let key = event.layer * n_expert + usize::from(expert);
                uses[key] += u32::from(std::mem::replace(&mut last[key], number) != number);
            }
        }
        Self { uses, n_expert }
    }

    /// Experts of a layer that are used at all, the most used first; among equals the smallest number.
    #[must_use]
    pub fn hottest_of(&self, layer: usize) -> Vec<u16> {
        let uses = &self.uses[layer * self.n_expert..(layer + 1) * self.n_expert];
        ranked(uses).map(|expert| expert as u16).collect()
    }

    /// Entries that are used at all, the most used first; among equals the smallest key.
    #[must_use]
    pub fn hottest(&self) -> Vec<u32> {
        ranked(&self.uses).map(|key| key as u32).collect()
    }
}

fn ranked(uses: &[u32]) -> impl Iterator<Item = usize> {
    let mut used: Vec<usize> = (0..uses.len()).filter(|at| uses[*at] > 0).collect();
    used.sort_by_key(|at| std::cmp::Reverse(uses[*at]));
    used.into_iter()
}
