//! Figures that others have published, beside the cells that measure them again.

use bmoe_analysis::result_set::{PublishedCell, PublishedFigures, PublishedSet};
use serde::Deserialize;

use super::cells::Cell;
use super::knobs::Overrides;

/// `[published]` of a matrix.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// Who published the figures, and where.
    pub source: String,
    /// The device that they are of.
    pub device: String,
    /// Each with the cell that measures it again.
    #[serde(rename = "cell")]
    pub cells: Vec<PublishedEntry>,
}

/// `[[published.cell]]`
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedEntry {
    /// The one cell that has these settings.
    pub settings: Overrides,
    /// Its model, where the matrix has several.
    pub model: Option<String>,
    /// The figures.
    pub figures: PublishedFigures,
}

impl PublishedEntry {
    /// The cells that it selects: one, unless the matrix is wrong.
    #[must_use]
    pub fn select<'a>(&self, cells: &'a [Cell]) -> Vec<&'a Cell> {
        let model = |cell: &Cell| self.model.as_ref().is_none_or(|model| *model == cell.model);
        cells.iter().filter(|cell| model(cell) && self.settings.matches(&cell.config)).collect()
    }
}

impl Published {
    /// The figures with the ids of their cells.
    #[must_use]
    pub fn named(&self, cells: &[Cell]) -> PublishedSet {
        let cell = |entry: &PublishedEntry| {
            let cell = *entry.select(cells).first()?;
            Some(PublishedCell {
                id: cell.id.clone(),
                name: cell.name.clone(),
                model: cell.model.clone(),
                figures: entry.figures,
            })
        };
        PublishedSet {
            source: self.source.clone(),
            device: self.device.clone(),
            cells: self.cells.iter().filter_map(cell).collect(),
        }
    }
}
