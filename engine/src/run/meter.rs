//! What a stretch of work costs.

use std::time::Instant;

use bmoe_trace::record::Cost;

use super::process::Counters;
use crate::llama::context::Context;

/// Measures one stretch of work.
pub(super) struct Meter {
    start: Instant,
    counters: Counters,
}

impl Meter {
    pub(super) fn start() -> Self {
        Self { counters: Counters::now(), start: Instant::now() }
    }

    /// What the work cost so far.
    pub(super) fn read(&mut self, context: &mut Context) -> Cost {
        let wall_ns = self.start.elapsed().as_nanos() as u64;
        let counters = Counters::now().since(self.counters);
        let (store, compute_ns) = context.hook().take_costs();
        Cost {
            wall_ns,
            io_wait_ns: store.io_wait_ns,
            compute_ns,
            mgmt_ns: store.mgmt_ns,
            lane_busy_ns: store.lane_busy_ns,
            io_active_ns: store.io_active_ns,
            other_ns: wall_ns.saturating_sub(store.io_wait_ns + compute_ns + store.mgmt_ns),
            expert_read_bytes: store.expert_read_bytes,
            device_read_bytes: store.device_read_bytes,
            reads: store.reads,
            hits: store.hits,
            misses: store.misses,
            speculated: store.speculated,
            speculated_bytes: store.speculated_bytes,
            speculated_hits: store.speculated_hits,
            speculated_wasted: store.speculated_wasted,
            major_faults: counters.major_faults,
            cpu_ns: counters.cpu_ns,
        }
    }
}
