//! The model that everything runs on.

use std::path::{Path, PathBuf};

use bmoe_synth::{Shape, WriteOptions};
use bmoe_trace::profile::Profile;
use bmoe_trace::record::{LayerShape, ModelShape};
use indicatif::{ProgressBar, ProgressStyle};

use crate::data::{ModelFacts, SliceFacts};
use crate::error::BenchError;

/// What it will be, without making it.
///
/// # Errors
/// There is no such shape, or it has fewer layers.
pub fn facts(shape_name: &str, layers: u32) -> Result<ModelFacts, BenchError> {
    let shape = Shape::builtin(shape_name)?;
    let plan = bmoe_synth::plan(&shape, Some(layers), None)?;
    let mut slices: Vec<SliceFacts> = Vec::new();
    let experts = u64::from(shape.dims.experts);
    for tensor in plan.tensors.iter().filter(|t| t.expert_layer.is_some()) {
        let (bytes, per_token) = (tensor.bytes / experts, u64::from(shape.dims.experts_used));
        match slices.iter_mut().find(|s| s.bytes == bytes) {
            Some(slice) => slice.per_token += per_token,
            None => slices.push(SliceFacts { bytes, per_token }),
        }
    }
    slices.sort_by_key(|s| s.bytes);
    let expert_bytes = plan.total_expert_bytes(&shape);
    let tensor_bytes: u64 = plan.tensors.iter().map(|t| t.bytes).sum();
    Ok(ModelFacts {
        shape: shape.name,
        layers,
        file: format!("{shape_name}-{layers}layers.gguf"),
        file_bytes: plan.file_bytes,
        dense_bytes: tensor_bytes - expert_bytes,
        expert_bytes,
        slices,
    })
}

/// Makes the model in `folder`, unless it is there already: the same shape and layers give the same bytes.
///
/// # Errors
/// Something else of that name is there, or it can't be written.
pub fn make(model: &ModelFacts, folder: &Path) -> Result<PathBuf, BenchError> {
    let path = folder.join(&model.file);
    match std::fs::metadata(&path) {
        Ok(found) if found.len() == model.file_bytes => return Ok(path),
        Ok(found) => {
            return Err(BenchError::Refused(format!(
                "{} has {} bytes, but the model has {}; remove it, or name a folder with --models",
                path.display(),
                found.len(),
                model.file_bytes
            )));
        }
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
        Err(e) => return Err(BenchError::io("look at", &path)(e)),
    }
    std::fs::create_dir_all(folder).map_err(BenchError::io("make", folder))?;
    let bar = ProgressBar::new(model.file_bytes);
    bar.set_style(
        ProgressStyle::with_template("{msg} {wide_bar} {bytes} of {total_bytes}, {eta} left")
            .unwrap_or_else(|_| ProgressStyle::default_bar()),
    );
    bar.set_message(format!("making {}", model.file));
    let shape = Shape::builtin(&model.shape)?;
    let options = WriteOptions { layers: Some(model.layers), ..WriteOptions::new(&path) };
    bmoe_synth::write_model(&shape, &options, &mut |done| bar.set_position(done.written_bytes))?;
    bar.finish_and_clear();
    Ok(path)
}

/// A profile that names every expert of the model.
///
/// # Errors
/// There is no such shape, or it has fewer layers.
pub fn all_experts(shape_name: &str, layers: u32) -> Result<String, BenchError> {
    let shape = Shape::builtin(shape_name)?;
    let plan = bmoe_synth::plan(&shape, Some(layers), None)?;
    let mut of_layer: Vec<u32> = plan.tensors.iter().filter_map(|t| t.expert_layer).collect();
    of_layer.sort_unstable();
    of_layer.dedup();
    let layers_of =
        |(layer, expert_bytes): (u32, &u64)| LayerShape { layer, expert_bytes: *expert_bytes };
    let model = ModelShape {
        arch: shape.arch.name().to_owned(),
        n_layer: layers,
        n_expert: shape.dims.experts,
        n_expert_used: shape.dims.experts_used,
        file_bytes: plan.file_bytes,
        dense_bytes: 0,
        layers: of_layer.into_iter().zip(&plan.expert_bytes).map(layers_of).collect(),
    };
    let mut profile = Profile::new(&model);
    profile.uses.iter_mut().flatten().for_each(|uses| *uses = 1);
    Ok(profile.to_json())
}
