//! Times of single nodes. Each node becomes a graph of its own for it, which costs time too.

use std::ffi::CStr;
use std::time::Instant;

use bmoe_trace::record::ComputeRecord;

use super::sys;

/// Records of nodes in the order in which they ran.
pub(super) struct NodeTrace {
    mark: Instant,
    records: Vec<ComputeRecord>,
}

impl NodeTrace {
    pub(super) fn new() -> Self {
        Self { mark: Instant::now(), records: Vec::new() }
    }

    /// A graph starts.
    pub(super) fn start(&mut self) {
        self.mark = Instant::now();
    }

    /// A node was computed.
    pub(super) fn done(&mut self, node: &sys::ggml_tensor, ubatch: u32) {
        let now = Instant::now();
        let ns = (now - std::mem::replace(&mut self.mark, now)).as_nanos() as u64;
        // SAFETY: ggml terminates names, and its names of operations are static strings.
        let (name, op) = unsafe {
            (
                CStr::from_ptr(node.name.as_ptr()).to_string_lossy(),
                CStr::from_ptr(sys::ggml_op_name(node.op)).to_string_lossy(),
            )
        };
        let part = match node.op {
            sys::GGML_OP_CUSTOM if name.starts_with("ffn_moe_weights") => "fetch".to_owned(),
            sys::GGML_OP_CUSTOM => "experts".to_owned(),
            _ => op.into_owned(),
        };
        let layer = name.rsplit_once('-').and_then(|(_, layer)| layer.parse().ok());
        self.records.push(ComputeRecord { ubatch, layer, part, node: name.into_owned(), ns });
        // What recording took belongs to nobody.
        self.mark = Instant::now();
    }

    /// The records since the last call.
    pub(super) fn take(&mut self) -> Vec<ComputeRecord> {
        std::mem::take(&mut self.records)
    }
}
