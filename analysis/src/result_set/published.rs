//! Figures that others have published of a matrix's cells.

use serde::{Deserialize, Serialize};

/// What `DIR/published.json` holds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PublishedSet {
    /// Who published the figures, and where.
    pub source: String,
    /// The device that they are of.
    pub device: String,
    /// The cells, in the order of the publication.
    pub cells: Vec<PublishedCell>,
}

/// The published figures of one cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PublishedCell {
    /// The cell's id.
    pub id: String,
    /// What a person calls it.
    pub name: String,
    /// The model's name within the matrix.
    pub model: String,
    /// The figures.
    pub figures: PublishedFigures,
}

/// Figures as they were published; `None` = not published. Their meaning is that of the report's columns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedFigures {
    /// Tokens over decode seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tok_s: Option<f64>,
    /// Rate of the slowest token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_tok_s: Option<f64>,
    /// Rate of the fastest token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tok_s: Option<f64>,
    /// Median of the tokens' rates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub median_tok_s: Option<f64>,
    /// Their 5th percentile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p5_tok_s: Option<f64>,
    /// Their 95th percentile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p95_tok_s: Option<f64>,
    /// Cumulative hit rate, prompt included, per cent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hit_pct: Option<f64>,
    /// Expert MiB read for an average token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mib_token: Option<f64>,
    /// Computation of an average token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compute_s: Option<f64>,
    /// Time blocked on reads of an average token; with overlap the stall.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub io_s: Option<f64>,
    /// Summed busy time of the read lanes of an average token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lanes_busy_s: Option<f64>,
}
