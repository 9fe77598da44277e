//! `tokens.parquet`

use bmoe_trace::Mode;
use bmoe_trace::record::{Cost, MemoryState, TokenRecord};

use crate::data::column::row;

row! {
    /// One decode step.
    #[derive(Debug, Clone, PartialEq)]
    pub struct TokenRow {
        /// Turn of a session, from 0; null = one turn, from a version without sessions.
        pub turn: Option<u32>,
        /// Decode step of the turn, from 1.
        pub step: u32,
        /// Absolute position of the token computed.
        pub position: u32,
        /// The token that was computed.
        pub token: i32,
        /// The whole step.
        pub wall_ns: u64,
        /// Blocked on expert reads, or under overlap the stall: computation had nothing to compute; null
        /// outside `stream` mode.
        pub io_wait_ns: Option<u64>,
        /// Computing.
        pub compute_ns: u64,
        /// Cache management; null outside `stream` mode.
        pub mgmt_ns: Option<u64>,
        /// Summed busy time of the read lanes; null outside `stream` mode.
        pub lane_busy_ns: Option<u64>,
        /// At least one read was outstanding; null outside `stream` mode and in version 1.
        pub io_active_ns: Option<u64>,
        /// Residual.
        pub other_ns: u64,
        /// Expert bytes wanted from storage by the layers that needed them; null outside `stream` mode.
        pub expert_read_bytes: Option<u64>,
        /// Bytes transferred, alignment included; null outside `stream` mode.
        pub device_read_bytes: Option<u64>,
        /// Read operations; null outside `stream` mode.
        pub reads: Option<u64>,
        /// Distinct experts found in the cache; null outside `stream` mode.
        pub hits: Option<u64>,
        /// Distinct experts read; null outside `stream` mode.
        pub misses: Option<u64>,
        /// Experts read ahead of need; null outside `stream` mode and in version 1, as the next three.
        pub speculated: Option<u64>,
        /// Bytes of their slices.
        pub speculated_bytes: Option<u64>,
        /// Of `hits`, those that were there because they had been read ahead.
        pub speculated_hits: Option<u64>,
        /// Experts read ahead that left the cache unused.
        pub speculated_wasted: Option<u64>,
        /// Major page faults of the process.
        pub major_faults: u64,
        /// CPU time of all threads.
        pub cpu_ns: u64,
        /// Hits over look-ups since the start of the run, 0 to 1; null before the first look-up.
        pub cumulative_hit_rate: Option<f64>,
        /// Expert bytes in the cache after the step.
        pub cache_resident_bytes: u64,
        /// The cache's budget after the step; null in version 1.
        pub cache_budget_bytes: Option<u64>,
        /// Resident memory after the step.
        pub rss_bytes: u64,
        /// Anonymous part of it; null when the kernel does not tell and in version 1, as those below.
        pub rss_anon_bytes: Option<u64>,
        /// Part of it that maps files.
        pub rss_file_bytes: Option<u64>,
        /// Memory of the process that was swapped out.
        pub swap_bytes: Option<u64>,
        /// MemAvailable of the system.
        pub mem_available_bytes: Option<u64>,
        /// MemFree of the system.
        pub mem_free_bytes: Option<u64>,
        /// SwapFree of the system.
        pub swap_free_bytes: Option<u64>,
        /// Thousandths of mapped dense weights that are in memory; null when they are not mapped.
        pub dense_resident_permille: Option<u32>,
    }
}

impl TokenRow {
    pub(in crate::data) fn new(record: &TokenRecord, turn: u32, mode: &str) -> Self {
        // Taken apart so that a term added to the types cannot be forgotten here.
        let Cost {
            wall_ns,
            io_wait_ns,
            compute_ns,
            mgmt_ns,
            lane_busy_ns,
            io_active_ns,
            other_ns,
            expert_read_bytes,
            device_read_bytes,
            reads,
            hits,
            misses,
            speculated,
            speculated_bytes,
            speculated_hits,
            speculated_wasted,
            major_faults,
            cpu_ns,
        } = record.cost;
        let MemoryState {
            anon_bytes,
            file_bytes,
            swap_bytes,
            available_bytes,
            free_bytes,
            swap_free_bytes,
            dense_resident_permille,
        } = record.memory;
        let row = Self {
            turn: Some(turn),
            step: record.step,
            position: record.position,
            token: record.token,
            wall_ns,
            io_wait_ns: Some(io_wait_ns),
            compute_ns,
            mgmt_ns: Some(mgmt_ns),
            lane_busy_ns: Some(lane_busy_ns),
            io_active_ns: Some(io_active_ns),
            other_ns,
            expert_read_bytes: Some(expert_read_bytes),
            device_read_bytes: Some(device_read_bytes),
            reads: Some(reads),
            hits: Some(hits),
            misses: Some(misses),
            speculated: Some(speculated),
            speculated_bytes: Some(speculated_bytes),
            speculated_hits: Some(speculated_hits),
            speculated_wasted: Some(speculated_wasted),
            major_faults,
            cpu_ns,
            cumulative_hit_rate: Some(record.cumulative_hit_rate).filter(|r| !r.is_nan()),
            cache_resident_bytes: record.cache_resident_bytes,
            cache_budget_bytes: Some(record.cache_budget_bytes),
            rss_bytes: record.rss_bytes,
            rss_anon_bytes: anon_bytes,
            rss_file_bytes: file_bytes,
            swap_bytes,
            mem_available_bytes: available_bytes,
            mem_free_bytes: free_bytes,
            swap_free_bytes,
            dense_resident_permille: dense_resident_permille.map(u32::from),
        };
        row.only_measured(mode)
    }

    /// Nulls in place of what the mode does not measure.
    pub(in crate::data) fn only_measured(self, mode: &str) -> Self {
        if mode == Mode::Stream.as_str() {
            return self;
        }
        Self {
            io_wait_ns: None,
            mgmt_ns: None,
            lane_busy_ns: None,
            io_active_ns: None,
            expert_read_bytes: None,
            device_read_bytes: None,
            reads: None,
            hits: None,
            misses: None,
            speculated: None,
            speculated_bytes: None,
            speculated_hits: None,
            speculated_wasted: None,
            cache_budget_bytes: None,
            ..self
        }
    }
}
