//! How long runs take, to say how long the rest will.

use std::collections::HashMap;
use std::time::Duration;

/// What runs took, by cell.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    by_cell: HashMap<String, Duration>,
    sum: Duration,
    count: u32,
}

impl Pace {
    pub(crate) fn record(&mut self, cell: &str, wall_s: f64) {
        let wall = Duration::try_from_secs_f64(wall_s).unwrap_or_default();
        self.by_cell.insert(cell.to_owned(), wall);
        self.sum += wall;
        self.count += 1;
    }

    /// A cell that has run will take what it took; another one what a run took on average.
    pub(crate) fn time_for<'a>(&self, cells: impl Iterator<Item = &'a str>) -> Option<Duration> {
        let mean = self.sum.checked_div(self.count)?;
        Some(cells.map(|cell| self.by_cell.get(cell).copied().unwrap_or(mean)).sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_left_uses_what_a_cell_took_before() {
        let mut pace = Pace::default();
        assert_eq!(pace.time_for(["a", "b"].into_iter()), None);
        pace.record("a", 10.0);
        pace.record("b", 2.0);
        let left = pace.time_for(["a", "b", "c"].into_iter());
        assert_eq!(left, Some(Duration::from_secs(10 + 2 + 6)));
    }
}
