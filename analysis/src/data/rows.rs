//! The columns of the Parquet files. Field names are column names; a unit is part of the name.
//!
//! Only `stream` mode reads experts itself. The records of the other modes have zeros where nothing was
//! measured; the rows have nulls there, as they have for what an earlier version did not measure.

mod event;
mod run;
mod token;

pub use event::{BudgetRow, ComputeRow, ReadRow, RouteRow, ScoreRow};
pub use run::RunRow;
pub use token::TokenRow;

/// What one run recorded step by step.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RunTables {
    /// Decode steps.
    pub tokens: Vec<TokenRow>,
    /// Routed experts.
    pub routes: Vec<RouteRow>,
    /// The router's best experts, when they were recorded.
    pub scores: Vec<ScoreRow>,
    /// Reads, when they were recorded.
    pub reads: Vec<ReadRow>,
    /// Stretches of computation, when they were recorded.
    pub compute: Vec<ComputeRow>,
    /// Changes of the cache's budget.
    pub budgets: Vec<BudgetRow>,
}
