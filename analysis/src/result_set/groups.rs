//! Comparisons that a matrix names.

use serde::{Deserialize, Serialize};

/// Cells that a matrix wants compared, as `DIR/groups.json` lists them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedGroup {
    /// Its name.
    pub name: String,
    /// What is compared with what.
    pub pairs: Vec<GroupPair>,
}

/// Two cells of a group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupPair {
    /// Id of the cell that stands for 100 %.
    pub baseline: String,
    /// Id of the other.
    pub member: String,
}
