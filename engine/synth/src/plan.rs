//! What a model's files will contain, worked out without writing anything.

use std::path::{Path, PathBuf};

use crate::arch;
use crate::fill::Fill;
use crate::gguf::{self, Metadata, Value};
use crate::{Result, Shape, SynthError, WeightType};

/// One tensor of a model.
#[derive(Debug, Clone)]
pub struct TensorInfo {
    /// Name in the file, as in `blk.0.ffn_down_exps.weight`.
    pub name: String,
    /// Dimensions in ggml's order: row length first.
    pub dims: Vec<u64>,
    /// Type of its weights.
    pub weight_type: WeightType,
    /// Size of its data.
    pub bytes: u64,
    /// The layer whose routed experts' weights it holds, if it does.
    pub expert_layer: Option<u32>,
    pub(crate) fill: Fill,
}

impl TensorInfo {
    /// Number of weights.
    pub fn len(&self) -> u64 {
        self.dims.iter().product()
    }

    /// The `ggml_type` number stored in the file.
    pub fn ggml_type(&self) -> u32 {
        const I32: u32 = 26;
        match self.fill {
            Fill::TokenExperts { .. } => I32,
            _ => self.weight_type.ggml_id(),
        }
    }

    /// Whether it has no weights (never, in a plan).
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// One file of a model.
#[derive(Debug, Clone)]
pub(crate) struct FilePlan {
    /// Everything before the first tensor's data.
    pub head: Vec<u8>,
    /// Indices into [`Plan::tensors`].
    pub tensors: std::ops::Range<usize>,
    pub bytes: u64,
}

/// A model's contents and sizes.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Size of all files together.
    pub file_bytes: u64,
    /// Bytes of one routed expert, by layer.
    pub expert_bytes: Vec<u64>,
    /// Every tensor, in file order.
    pub tensors: Vec<TensorInfo>,
    pub(crate) files: Vec<FilePlan>,
}

impl Plan {
    /// Bytes of all routed experts of all layers.
    pub fn total_expert_bytes(&self, shape: &Shape) -> u64 {
        self.expert_bytes.iter().sum::<u64>() * u64::from(shape.dims.experts)
    }
}

/// Plans a model: `layers` shortens it, `split` spreads it over several files.
///
/// # Errors
/// When the shape can't be built, `layers` exceeds it, or there are more parts than tensors.
pub fn plan(shape: &Shape, layers: Option<u32>, split: Option<u32>) -> Result<Plan> {
    let shape = &match layers {
        Some(n) => shape.clone().with_layers(n)?,
        None => shape.clone(),
    };
    shape.validate()?;
    let tensors = arch::tensors(shape);
    let metadata = arch::metadata(shape);
    let files = match split {
        None => vec![file(metadata, &tensors, 0..tensors.len())],
        Some(parts) => split_files(metadata, &tensors, parts)?,
    };
    let experts = u64::from(shape.dims.experts);
    let mut expert_bytes = vec![0; shape.dims.layers as usize];
    for t in &tensors {
        if let Some(layer) = t.expert_layer {
            expert_bytes[layer as usize] += t.bytes / experts;
        }
    }
    Ok(Plan { file_bytes: files.iter().map(|f| f.bytes).sum(), expert_bytes, tensors, files })
}

fn file(metadata: Metadata, all: &[TensorInfo], range: std::ops::Range<usize>) -> FilePlan {
    let tensors = &all[range.clone()];
    let head = gguf::head(&metadata, tensors);
    let data: u64 = tensors.iter().map(|t| gguf::align(t.bytes)).sum();
    FilePlan { bytes: head.len() as u64 + data, head, tensors: range }
}

fn split_files(metadata: Metadata, tensors: &[TensorInfo], parts: u32) -> Result<Vec<FilePlan>> {
    if parts == 0 || parts as usize > tensors.len().min(usize::from(u16::MAX)) {
        return Err(SynthError::Options(format!(
            "split = {parts}, expected 1 to {} parts, the number of tensors",
            tensors.len()
        )));
    }
    let total: u64 = tensors.iter().map(|t| t.bytes).sum();
    let mut metadata = Some(metadata);
    let (mut start, mut before, mut files) = (0, 0, Vec::new());
    for part in 0..parts {
        let left = (parts - part - 1) as usize;
        // Each part takes tensors up to its share of the bytes, leaving at least one for every later part.
        let share = total / u64::from(parts) * u64::from(part + 1);
        let mut end = start + 1;
        before += tensors[start].bytes;
        while end < tensors.len() - left && (left == 0 || before + tensors[end].bytes / 2 <= share)
        {
            before += tensors[end].bytes;
            end += 1;
        }
        let mut meta = metadata.take().unwrap_or_default();
        meta.extend([
            ("split.no".to_owned(), Value::U16(part as u16)),
            ("split.count".to_owned(), Value::U16(parts as u16)),
            ("split.tensors.count".to_owned(), Value::I32(tensors.len() as i32)),
        ]);
        files.push(file(meta, tensors, start..end));
        start = end;
    }
    Ok(files)
}

/// The names of a model's files: `path` itself or, for `n` parts, `stem-00001-of-0000n.gguf` beside it.
///
/// # Errors
/// When `path` has no file name, or for a whole model the name of one part of a split one.
pub fn file_paths(path: &Path, split: Option<u32>) -> Result<Vec<PathBuf>> {
    let no_name =
        || SynthError::Options(format!("{}: expected the name of a file to write", path.display()));
    let name = path.file_name().ok_or_else(no_name)?.to_string_lossy().into_owned();
    let Some(parts) = split else {
        return match part_name(&name) {
            None => Ok(vec![path.to_owned()]),
            Some((stem, parts)) => Err(SynthError::Options(format!(
                "{}: readers take this name for one of {parts} files; choose another, or write {stem}.gguf \
                 with split = {parts}",
                path.display()
            ))),
        };
    };
    if parts == 0 {
        return Err(SynthError::Options("split = 0, expected 1 or more files".to_owned()));
    }
    let stem = name.strip_suffix(".gguf").unwrap_or(&name);
    Ok((1..=parts)
        .map(|i| path.with_file_name(format!("{stem}-{i:05}-of-{parts:05}.gguf")))
        .collect())
}

/// Stem and number of files of `stem-0000i-of-0000n.gguf`.
fn part_name(name: &str) -> Option<(&str, u32)> {
    let (rest, parts) = name.strip_suffix(".gguf")?.rsplit_once("-of-")?;
    let (stem, part) = rest.rsplit_once('-')?;
    let five_digits = |text: &str| text.len() == 5 && text.bytes().all(|b| b.is_ascii_digit());
    (five_digits(part) && five_digits(parts)).then(|| (stem, parts.parse().unwrap_or_default()))
}
