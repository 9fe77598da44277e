//! Makes tensor data on several threads and hands it on in file order.
//!
//! Chunk number i belongs to thread i modulo the number of threads, and each thread has a short channel of
//! its own: taking turns at the channels gives file order with bounded memory and no lock.

use std::sync::mpsc;

use crate::fill::{self, Model};
use crate::gguf;
use crate::plan::TensorInfo;
use crate::rng;

/// Chunks that a thread may be ahead of the writer.
const AHEAD: usize = 4;

/// The writer's ends of a thread's channels.
struct Worker {
    full: mpsc::Receiver<Vec<u8>>,
    empty: mpsc::Sender<Vec<u8>>,
}

/// Part of a tensor's data.
struct Chunk<'a> {
    tensor: &'a TensorInfo,
    key: u64,
    first_unit: u64,
    bytes: usize,
    padding: usize,
}

impl Chunk<'_> {
    /// Makes the chunk's bytes in `out`, whose old content is dropped.
    fn make(&self, model: &Model, out: &mut Vec<u8>) {
        out.resize(self.bytes + self.padding, 0);
        let (data, padding) = out.split_at_mut(self.bytes);
        let t = self.tensor;
        let row_len = t.dims[0] as usize;
        fill::produce(model, &t.fill, t.weight_type, row_len, self.key, self.first_unit, data);
        padding.fill(0);
    }
}

/// The chunks of `tensors` in file order.
fn chunks(tensors: &[TensorInfo], seed: u64) -> impl Iterator<Item = Chunk<'_>> {
    tensors.iter().flat_map(move |tensor| {
        let (ty, row_len) = (tensor.weight_type, tensor.dims[0]);
        let total = fill::units(&tensor.fill, ty, row_len, tensor.len());
        let step = fill::units_per_chunk(&tensor.fill, ty, row_len);
        let unit_bytes = tensor.bytes / total;
        let key = rng::key(seed, &tensor.name);
        (0..total).step_by(step as usize).map(move |first_unit| {
            let units = step.min(total - first_unit);
            let last = first_unit + units == total;
            let padding = if last { gguf::align(tensor.bytes) - tensor.bytes } else { 0 };
            Chunk {
                tensor,
                key,
                first_unit,
                bytes: (units * unit_bytes) as usize,
                padding: padding as usize,
            }
        })
    })
}

/// Makes the data of `tensors` and passes it to `put` in file order, padding included.
pub(super) fn run(
    model: &Model,
    seed: u64,
    tensors: &[TensorInfo],
    threads: usize,
    put: &mut dyn FnMut(&[u8]) -> std::io::Result<()>,
) -> std::io::Result<()> {
    std::thread::scope(|scope| {
        let workers: Vec<Worker> = (0..threads)
            .map(|worker| {
                let (send, full) = mpsc::sync_channel(AHEAD);
                let (empty, used) = mpsc::channel::<Vec<u8>>();
                scope.spawn(move || {
                    for chunk in chunks(tensors, seed).skip(worker).step_by(threads) {
                        // Fresh memory costs more than filling it: take back what has been written.
                        let mut bytes = used.try_recv().unwrap_or_default();
                        chunk.make(model, &mut bytes);
                        // The writer is gone when a write has failed.
                        if send.send(bytes).is_err() {
                            return;
                        }
                    }
                });
                Worker { full, empty }
            })
            .collect();
        for turn in 0.. {
            let worker = &workers[turn % threads];
            // A thread that has no chunk left means that the ones after it have none either.
            let Ok(bytes) = worker.full.recv() else { break };
            put(&bytes)?;
            // The thread may have made its last chunk and be gone.
            let _ = worker.empty.send(bytes);
        }
        Ok(())
    })
}
