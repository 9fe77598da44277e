//! Named groups of cells that are compared with each other.

use bmoe_analysis::result_set::{GroupPair, NamedGroup};
use serde::Deserialize;

use super::cells::Cell;
use super::knobs::Overrides;

/// Cells that are compared with others: an A/B table of its own.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Group {
    /// Its name.
    pub name: String,
    /// What the others are compared with: the cells that have these settings.
    pub baseline: Overrides,
    /// Which cells are compared: those that have these settings and are not the baseline; all others when it
    /// is left out.
    #[serde(default)]
    pub members: Overrides,
}

impl Group {
    /// Its baselines and its members.
    #[must_use]
    pub fn split<'a>(&self, cells: &'a [Cell]) -> (Vec<&'a Cell>, Vec<&'a Cell>) {
        let (baselines, others): (Vec<_>, Vec<_>) =
            cells.iter().partition(|cell| self.baseline.matches(&cell.config));
        let members = others.into_iter().filter(|cell| self.members.matches(&cell.config));
        (baselines, members.collect())
    }

    /// Each member with the baseline of its model, that of the same prompt where there are several.
    #[must_use]
    pub fn named(&self, cells: &[Cell]) -> NamedGroup {
        let (baselines, members) = self.split(cells);
        let pair = |member: &Cell| {
            let of_model = || baselines.iter().filter(|b| b.model == member.model);
            let same = of_model().find(|b| b.config.prompt == member.config.prompt);
            let baseline = same.or_else(|| of_model().next())?;
            Some(GroupPair { baseline: baseline.id.clone(), member: member.id.clone() })
        };
        NamedGroup {
            name: self.name.clone(),
            pairs: members.into_iter().filter_map(pair).collect(),
        }
    }
}
