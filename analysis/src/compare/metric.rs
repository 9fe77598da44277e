//! What cells are compared by.

use serde::{Deserialize, Serialize};

use crate::data::{RunRow, TokenRow};
use crate::stats::{Runs, Statistic};

const MIB: f64 = 1024.0 * 1024.0;

/// A figure of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Mean rate: tokens over decode seconds.
    TokS,
    /// Median rate of single tokens.
    MedianTokS,
    /// 5th percentile of the rates of single tokens.
    P5TokS,
    /// 95th percentile of the rates of single tokens.
    P95TokS,
    /// Seconds from the start of the process to the first token.
    FirstTokenS,
    /// MiB of experts fetched for an average token.
    MibToken,
}

impl Metric {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::TokS,
        Self::MedianTokS,
        Self::P5TokS,
        Self::P95TokS,
        Self::FirstTokenS,
        Self::MibToken,
    ];

    /// The name on the command line and in JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::TokS => "tok_s",
            Self::MedianTokS => "median_tok_s",
            Self::P5TokS => "p5_tok_s",
            Self::P95TokS => "p95_tok_s",
            Self::FirstTokenS => "first_token_s",
            Self::MibToken => "mib_token",
        }
    }

    /// The heading of a column of it.
    #[must_use]
    pub const fn heading(self) -> &'static str {
        match self {
            Self::TokS => "tok/s",
            Self::MedianTokS => "median tok/s",
            Self::P5TokS => "p5 tok/s",
            Self::P95TokS => "p95 tok/s",
            Self::FirstTokenS => "first token s",
            Self::MibToken => "MiB/token",
        }
    }

    /// What it is, for a line above the table.
    #[must_use]
    pub const fn about(self) -> &'static str {
        match self {
            Self::TokS => "mean rate (tokens over decode seconds)",
            Self::MedianTokS => "median rate of single tokens",
            Self::P5TokS => "5th percentile of the rates of single tokens",
            Self::P95TokS => "95th percentile of the rates of single tokens",
            Self::FirstTokenS => "time to the first token, loading included",
            Self::MibToken => "expert MiB fetched per token, those read ahead included",
        }
    }

    /// Whether more of it is better.
    #[must_use]
    pub const fn more_is_better(self) -> bool {
        !matches!(self, Self::FirstTokenS | Self::MibToken)
    }

    /// The words for `B is N % …`, when B has more of it and when it has less.
    pub(super) const fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::TokS | Self::MedianTokS | Self::P5TokS | Self::P95TokS => ("faster", "slower"),
            Self::FirstTokenS => ("later with its first token", "earlier with its first token"),
            Self::MibToken => ("up in MiB per token", "down in MiB per token"),
        }
    }

    pub(super) const fn statistic(self) -> Statistic {
        match self {
            Self::TokS => Statistic::MeanRate,
            Self::MedianTokS => Statistic::RatePercentile(0.5),
            Self::P5TokS => Statistic::RatePercentile(0.05),
            Self::P95TokS => Statistic::RatePercentile(0.95),
            Self::FirstTokenS | Self::MibToken => Statistic::Mean,
        }
    }

    /// Whether its values are those of tokens, so that runs over the same tokens can be paired.
    pub(super) const fn of_tokens(self) -> bool {
        !matches!(self, Self::FirstTokenS)
    }

    /// The values of some runs; `None` when one of them has none.
    pub(super) fn values(self, runs: &[(&RunRow, &[TokenRow])]) -> Option<Runs> {
        let of_run = |(row, tokens): &(&RunRow, &[TokenRow])| -> Option<Vec<f64>> {
            let values: Vec<f64> = match self {
                Self::FirstTokenS => vec![row.time_to_first_token_ns? as f64 / 1e9],
                Self::MibToken => tokens
                    .iter()
                    .map(|t| {
                        let ahead = t.speculated_bytes.unwrap_or(0);
                        Some((t.expert_read_bytes? + ahead) as f64 / MIB)
                    })
                    .collect::<Option<_>>()?,
                _ => tokens
                    .iter()
                    .filter(|t| t.wall_ns > 0)
                    .map(|t| t.wall_ns as f64 / 1e9)
                    .collect(),
            };
            Some(values)
        };
        Runs::new(runs.iter().map(of_run).collect::<Option<Vec<_>>>()?)
    }
}

impl std::fmt::Display for Metric {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::str::FromStr for Metric {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|metric| metric.as_str() == text).ok_or_else(|| {
            let names = Self::ALL.map(Self::as_str).join(", ");
            format!("{text:?} is not a metric; expected one of {names}")
        })
    }
}
