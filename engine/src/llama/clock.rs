//! Where the graph's time goes, as its thread 0 sees it.

use std::time::Instant;

use bmoe_trace::record::ComputeRecord;

/// One layer's parts, nanoseconds.
#[derive(Debug, Clone, Copy, Default)]
struct Parts {
    dense: u64,
    fetch: u64,
    experts: u64,
    stall: u64,
}

/// Measures from mark to mark: every stretch belongs to one part of one layer.
pub(super) struct Clock {
    mark: Instant,
    /// Computing, stalls included, since it was last taken.
    compute_ns: u64,
    /// Parts of each MoE layer, when they are recorded.
    layers: Option<Vec<Parts>>,
    /// Computing that belongs to no MoE layer.
    rest_ns: u64,
}

impl Clock {
    /// `layers` = MoE layers; their parts are kept when `record`.
    pub(super) fn new(layers: usize, record: bool) -> Self {
        Self {
            mark: Instant::now(),
            compute_ns: 0,
            layers: record.then(|| vec![Parts::default(); layers]),
            rest_ns: 0,
        }
    }

    fn lap(&mut self) -> u64 {
        let now = Instant::now();
        (now - std::mem::replace(&mut self.mark, now)).as_nanos() as u64
    }

    fn layer(&mut self, layer: usize) -> Option<&mut Parts> {
        self.layers.as_mut().map(|layers| &mut layers[layer])
    }

    /// llama.cpp takes over.
    pub(super) fn start(&mut self) {
        self.mark = Instant::now();
    }

    /// llama.cpp computed for a layer.
    pub(super) fn dense(&mut self, layer: usize) {
        let ns = self.lap();
        self.compute_ns += ns;
        if let Some(parts) = self.layer(layer) {
            parts.dense += ns;
        }
    }

    /// The store looked up, made room and asked for reads. It counts that time itself.
    pub(super) fn fetch(&mut self, layer: usize) {
        let ns = self.lap();
        if let Some(parts) = self.layer(layer) {
            parts.fetch += ns;
        }
    }

    /// Experts were multiplied with; `stall_ns` of it this thread waited for slices.
    pub(super) fn experts(&mut self, layer: usize, stall_ns: u64) {
        let ns = self.lap();
        self.compute_ns += ns;
        if let Some(parts) = self.layer(layer) {
            parts.experts += ns.saturating_sub(stall_ns);
            parts.stall += stall_ns;
        }
    }

    /// The graph is done.
    pub(super) fn end(&mut self) {
        let ns = self.lap();
        self.compute_ns += ns;
        self.rest_ns += ns;
    }

    /// Computing since the last call.
    pub(super) fn take_compute_ns(&mut self) -> u64 {
        std::mem::take(&mut self.compute_ns)
    }

    /// The parts since the last call; `model_layers` are the MoE layers' indices in the model.
    pub(super) fn take_records(&mut self, ubatch: u32, model_layers: &[u32]) -> Vec<ComputeRecord> {
        let rest_ns = std::mem::take(&mut self.rest_ns);
        let Some(layers) = &mut self.layers else { return Vec::new() };
        let record = |layer, part: &str, ns| ComputeRecord {
            ubatch,
            layer,
            part: part.to_owned(),
            node: String::new(),
            ns,
        };
        let mut records = Vec::with_capacity(4 * layers.len() + 1);
        for (parts, layer) in layers.iter_mut().zip(model_layers) {
            let Parts { dense, fetch, experts, stall } = std::mem::take(parts);
            for (part, ns) in
                [("dense", dense), ("fetch", fetch), ("experts", experts), ("stall", stall)]
            {
                records.push(record(Some(*layer), part, ns));
            }
        }
        records.push(record(None, "dense", rest_ns));
        records
    }
}
