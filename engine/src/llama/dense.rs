//! Dense weights that are mapped instead of read.
//!
//! llama.cpp's own map would be of the whole file and populated, which reads every expert. So dense weights
//! are loaded like the experts, with their sizes hidden and nothing read, and then get the addresses of
//! a map of ours that covers only them.

use std::ffi::CStr;

use super::gguf::ModelInfo;
use super::hidden_buffer::HiddenBufferType;
use super::sys;
use crate::error::{EngineError, ModelError};
use crate::flash::mapped::{MappedPieces, Piece};

/// Name of the buffer type of mapped weights.
pub(super) const MAPPED: &CStr = c"bmoe mapped weights";

/// Every tensor; llama.cpp takes the first pattern that matches.
pub(super) const ALL_WEIGHTS: &CStr = c".";

/// Gives the tensors on the buffer type their sizes back, and the addresses of a map of their bytes.
///
/// # Errors
/// A tensor is not in the file, or the files can't be mapped.
pub(super) fn map(
    info: &ModelInfo,
    buffer_type: &HiddenBufferType,
) -> Result<MappedPieces, EngineError> {
    let mut placed = Vec::new();
    for tensor in buffer_type.reveal() {
        // SAFETY: the loader placed these tensors; they live as long as the model, which is loaded.
        let (name, bytes) = unsafe {
            (CStr::from_ptr((*tensor).name.as_ptr()).to_string_lossy(), sys::ggml_nbytes(tensor))
        };
        let dense = info.dense.iter().find(|d| d.name == name && d.bytes == bytes as u64);
        let Some(dense) = dense else {
            return Err(EngineError::Graph(format!(
                "llama.cpp placed {name} ({bytes} bytes) among the mapped weights, the file has none of \
                 that name and size"
            )));
        };
        placed.push((tensor, dense));
    }
    let pieces: Vec<Piece> = placed
        .iter()
        .map(|(_, d)| Piece { file: d.file, bytes: d.offset..d.offset + d.bytes })
        .collect();
    let unreadable = |source| ModelError::Unreadable { path: info.files[0].clone(), source };
    let maps = MappedPieces::new(&info.files, &pieces).map_err(unreadable)?;
    for (tensor, dense) in placed {
        let address = maps.at(dense.file, dense.offset).expect("each tensor is one of the pieces");
        // SAFETY: as above; nothing computes yet. The map has all bytes of the tensor, outlives the model,
        // and is as aligned as the file's tensors, since it begins with a page. Weights are never written.
        unsafe { (*tensor).data = address.as_ptr().cast() };
    }
    Ok(maps)
}
