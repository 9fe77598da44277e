//! Statistics, on plain numbers.
//!
//! * [`Rates`], [`percentile`]: the figures of the benchmark table.
//! * [`bootstrap`]: intervals for them, and for the ratio of two cells' figures.
//! * [`block_length`]: how many tokens in a row depend on each other.
//! * [`mann_whitney`], [`holm`]: whether the runs of two cells differ by more than chance.
//! * [`Latencies`]: a histogram, for displays only.

mod block;
pub mod bootstrap;
mod holm;
mod latencies;
mod mann_whitney;
mod rates;

pub use block::block_length;
pub use bootstrap::{Interval, Intervals, Runs, Statistic};
pub use holm::holm;
pub use latencies::Latencies;
pub use mann_whitney::{MannWhitney, Method, mann_whitney, smallest_p};
pub use rates::{Rates, mean, percentile};
