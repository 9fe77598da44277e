//! Costs in the words of the published files and lines.

use super::Cost;

/// What the published columns mean, which depends on whether reads overlap with computation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Published {
    /// `io`: blocked on reads when serial; summed busy time of the lanes under overlap.
    pub io_ns: u64,
    /// `stall`: computation waited for reads under overlap; 0 when serial.
    pub stall_ns: u64,
    /// `read`: all expert bytes read, speculation included.
    pub read_bytes: u64,
}

impl Published {
    /// Of a cost; `overlaps` tells how it was read ([`RunConfig::overlaps`](crate::RunConfig::overlaps)).
    #[must_use]
    pub fn of(cost: &Cost, overlaps: bool) -> Self {
        let (io_ns, stall_ns) =
            if overlaps { (cost.lane_busy_ns, cost.io_wait_ns) } else { (cost.io_wait_ns, 0) };
        Self { io_ns, stall_ns, read_bytes: cost.expert_read_bytes + cost.speculated_bytes }
    }
}
