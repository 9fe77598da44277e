//! What a GGUF file says about itself: shape, expert tensors, splits. Nothing is loaded.

use std::ffi::{CStr, CString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::log;
use super::sys;
use crate::error::ModelError;
use crate::flash::layout::{ExpertLayout, ExpertTensor, LayerLayout, Projection};

/// A model as its files describe it.
#[derive(Debug, Clone)]
pub struct ModelInfo {
    /// `general.architecture`.
    pub arch: String,
    /// `<arch>.block_count` without `<arch>.nextn_predict_layers`: layers for multi-token prediction are
    /// not loaded.
    pub n_layer: u32,
    /// `<arch>.context_length`: what the model was made for; 0 = not said.
    pub context_tokens: u32,
    /// `<arch>.expert_count`; 0 = not a Mixture of Experts.
    pub n_expert: u32,
    /// `<arch>.expert_used_count`.
    pub n_expert_used: u32,
    /// The files, in split order.
    pub files: Vec<PathBuf>,
    /// All of them together.
    pub file_bytes: u64,
    /// Bytes of tensor data outside the routed experts and outside prediction layers.
    pub dense_bytes: u64,
    /// Tensors outside the routed experts. Of prediction layers llama.cpp loads a few.
    pub dense: Vec<DenseTensor>,
    /// Bytes before the tensor data, all files together.
    pub header_bytes: u64,
    /// `tokenizer.chat_template`: how a conversation is written for the model.
    pub chat_template: Option<String>,
    /// The routed experts; no layers when there are none.
    pub experts: ExpertLayout,
}

/// A tensor outside the routed experts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DenseTensor {
    /// Its name in the file.
    pub name: String,
    /// Index into [`ModelInfo::files`].
    pub file: usize,
    /// Where it starts in that file.
    pub offset: u64,
    /// Its length.
    pub bytes: u64,
}

/// One file's header.
struct Header {
    context: *mut sys::gguf_context,
}

impl Drop for Header {
    fn drop(&mut self) {
        // SAFETY: made by `gguf_init_from_file`, freed once.
        unsafe { sys::gguf_free(self.context) };
    }
}

impl Header {
    fn open(path: &Path) -> Result<Self, ModelError> {
        let unreadable = |source| ModelError::Unreadable { path: path.to_owned(), source };
        // Opening a pipe would wait for whoever writes to it.
        if !std::fs::metadata(path).map_err(unreadable)?.is_file() {
            return Err(ModelError::NotGguf { path: path.to_owned() });
        }
        let mut magic = [0; 4];
        let mut file = std::fs::File::open(path).map_err(unreadable)?;
        match std::io::Read::read_exact(&mut file, &mut magic) {
            Ok(()) if magic == *b"GGUF" => {}
            Err(e) if e.kind() != std::io::ErrorKind::UnexpectedEof => return Err(unreadable(e)),
            _ => return Err(ModelError::NotGguf { path: path.to_owned() }),
        }
        let damaged = |message| ModelError::Damaged { path: path.to_owned(), message };
        let name = CString::new(path.as_os_str().as_bytes())
            .map_err(|_| damaged("its name has a NUL byte".into()))?;
        let params = sys::gguf_init_params { no_alloc: true, ctx: std::ptr::null_mut() };
        // SAFETY: a NUL-terminated path; the result is checked.
        let context = unsafe { sys::gguf_init_from_file(name.as_ptr(), params) };
        if context.is_null() {
            let why = log::take_error().unwrap_or_else(|| "its header can't be read".into());
            return Err(damaged(why));
        }
        Ok(Self { context })
    }

    /// An unsigned number under a key, whatever integer type it is stored as. Per-layer arrays give
    /// their largest element.
    fn number(&self, key: &str) -> Option<u64> {
        let key = CString::new(key).ok()?;
        // SAFETY: the context is valid; each accessor is called for the stored type only.
        unsafe {
            let id = sys::gguf_find_key(self.context, key.as_ptr());
            if id < 0 {
                return None;
            }
            match sys::gguf_get_kv_type(self.context, id) {
                sys::GGUF_TYPE_UINT8 => Some(sys::gguf_get_val_u8(self.context, id).into()),
                sys::GGUF_TYPE_UINT16 => Some(sys::gguf_get_val_u16(self.context, id).into()),
                sys::GGUF_TYPE_UINT32 => Some(sys::gguf_get_val_u32(self.context, id).into()),
                sys::GGUF_TYPE_UINT64 => Some(sys::gguf_get_val_u64(self.context, id)),
                sys::GGUF_TYPE_INT32 => u64::try_from(sys::gguf_get_val_i32(self.context, id)).ok(),
                sys::GGUF_TYPE_INT64 => u64::try_from(sys::gguf_get_val_i64(self.context, id)).ok(),
                sys::GGUF_TYPE_ARRAY => {
                    let kind = sys::gguf_get_arr_type(self.context, id);
                    if kind != sys::GGUF_TYPE_UINT32 && kind != sys::GGUF_TYPE_INT32 {
                        return None;
                    }
                    let n = sys::gguf_get_arr_n(self.context, id);
                    let data = sys::gguf_get_arr_data(self.context, id).cast::<u32>();
                    (0..n).map(|i| u64::from(data.add(i).read_unaligned())).max()
                }
                _ => None,
            }
        }
    }

    fn text(&self, key: &CStr) -> Option<String> {
        // SAFETY: as in `number`.
        unsafe {
            let id = sys::gguf_find_key(self.context, key.as_ptr());
            (id >= 0 && sys::gguf_get_kv_type(self.context, id) == sys::GGUF_TYPE_STRING).then(
                || {
                    CStr::from_ptr(sys::gguf_get_val_str(self.context, id))
                        .to_string_lossy()
                        .into_owned()
                },
            )
        }
    }

    fn tensors(&self) -> Vec<HeaderTensor> {
        // SAFETY: ids run below the count; names are NUL-terminated and owned by the context.
        unsafe {
            let data = sys::gguf_get_data_offset(self.context) as u64;
            (0..sys::gguf_get_n_tensors(self.context))
                .map(|id| {
                    let ne =
                        std::slice::from_raw_parts(sys::gguf_get_tensor_ne(self.context, id), 4);
                    HeaderTensor {
                        name: CStr::from_ptr(sys::gguf_get_tensor_name(self.context, id))
                            .to_string_lossy()
                            .into_owned(),
                        offset: data + sys::gguf_get_tensor_offset(self.context, id) as u64,
                        bytes: sys::gguf_get_tensor_size(self.context, id) as u64,
                        experts: ne[2] as u64,
                    }
                })
                .collect()
        }
    }
}

struct HeaderTensor {
    name: String,
    offset: u64,
    bytes: u64,
    /// Third dimension.
    experts: u64,
}

impl ModelInfo {
    /// Reads the headers of all the model's files and checks that the files hold what they promise.
    ///
    /// # Errors
    /// A file is missing, is no GGUF, or is cut off; the shape contradicts itself.
    pub fn read(path: &Path) -> Result<Self, ModelError> {
        let first = Header::open(path)?;
        let files = split_files(path, first.number("split.count").unwrap_or(1))?;
        let main = if files[0] == path { first } else { Header::open(&files[0])? };

        let missing = |key: String| ModelError::Damaged {
            path: files[0].clone(),
            message: format!("it has no \"{key}\""),
        };
        let arch = main
            .text(c"general.architecture")
            .ok_or_else(|| missing("general.architecture".into()))?;
        let key = |name: &str| format!("{arch}.{name}");
        let n_layer =
            main.number(&key("block_count")).ok_or_else(|| missing(key("block_count")))?;
        let n_predict = main.number(&key("nextn_predict_layers")).unwrap_or(0);
        let n_layer = n_layer.saturating_sub(n_predict);
        let n_expert = main.number(&key("expert_count")).unwrap_or(0);
        let n_expert_used = main.number(&key("expert_used_count")).unwrap_or(0);

        let mut info = Self {
            n_layer: n_layer as u32,
            context_tokens: main.number(&key("context_length")).unwrap_or(0) as u32,
            n_expert: n_expert as u32,
            n_expert_used: n_expert_used as u32,
            file_bytes: 0,
            dense_bytes: 0,
            dense: Vec::new(),
            header_bytes: 0,
            chat_template: main.text(c"tokenizer.chat_template"),
            experts: ExpertLayout {
                files: files.clone(),
                n_expert: n_expert as u32,
                layers: Vec::new(),
            },
            arch,
            files,
        };
        for (file, path) in info.files.clone().iter().enumerate() {
            let other;
            let header = if file == 0 {
                &main
            } else {
                other = Header::open(path)?;
                &other
            };
            info.add_file(file, path, header)?;
        }
        info.experts.layers.sort_by_key(|l| l.layer);
        for layer in &mut info.experts.layers {
            layer.tensors.sort_by_key(|t| t.projection);
        }
        Ok(info)
    }

    fn add_file(&mut self, file: usize, path: &Path, header: &Header) -> Result<(), ModelError> {
        let file_bytes = std::fs::metadata(path)
            .map_err(|source| ModelError::Unreadable { path: path.to_owned(), source })?
            .len();
        self.file_bytes += file_bytes;
        // SAFETY: the context is valid.
        self.header_bytes += unsafe { sys::gguf_get_data_offset(header.context) } as u64;
        for tensor in header.tensors() {
            let end = tensor.offset + tensor.bytes;
            if end > file_bytes {
                return Err(ModelError::Truncated {
                    path: path.to_owned(),
                    tensor: tensor.name,
                    end_bytes: end,
                    file_bytes,
                });
            }
            let predicts = Self::layer_of(&tensor.name).is_some_and(|layer| layer >= self.n_layer);
            match Projection::parse(&tensor.name) {
                Some(_) if predicts => {}
                Some((layer, projection)) if self.n_expert > 0 => {
                    self.add_expert_tensor(file, path, layer, projection, tensor)?;
                }
                _ => {
                    if !predicts {
                        self.dense_bytes += tensor.bytes;
                    }
                    self.dense.push(DenseTensor {
                        name: tensor.name,
                        file,
                        offset: tensor.offset,
                        bytes: tensor.bytes,
                    });
                }
            }
        }
        Ok(())
    }

    fn add_expert_tensor(
        &mut self,
        file: usize,
        path: &Path,
        layer: u32,
        projection: Projection,
        tensor: HeaderTensor,
    ) -> Result<(), ModelError> {
        if tensor.experts != u64::from(self.n_expert) {
            return Err(ModelError::Damaged {
                path: path.to_owned(),
                message: format!(
                    "{} holds {} experts, but the model says {}",
                    tensor.name, tensor.experts, self.n_expert
                ),
            });
        }
        let layers = &mut self.experts.layers;
        let at = layers.iter().position(|l| l.layer == layer).unwrap_or_else(|| {
            layers.push(LayerLayout { layer, tensors: Vec::new() });
            layers.len() - 1
        });
        layers[at].tensors.push(ExpertTensor {
            name: tensor.name,
            projection,
            file,
            offset: tensor.offset,
            slice_bytes: tensor.bytes / tensor.experts,
        });
        Ok(())
    }

    /// The layer that a tensor's name gives, `blk.<layer>.…`.
    pub(super) fn layer_of(tensor_name: &str) -> Option<u32> {
        tensor_name.strip_prefix("blk.")?.split_once('.')?.0.parse().ok()
    }

    /// What buffered reads of the loader may transfer beyond headers and dense weights: a stdio block
    /// at either end of every tensor and header.
    #[must_use]
    pub fn stdio_slack_bytes(&self) -> u64 {
        const STDIO_BLOCK_BYTES: u64 = 4096;
        2 * STDIO_BLOCK_BYTES * (self.dense.len() as u64 + 2 * self.files.len() as u64)
    }

    /// Checks that the experts can be streamed.
    ///
    /// # Errors
    /// The model has no experts, or keeps them in a way that is not understood.
    pub fn check_streamable(&self) -> Result<(), ModelError> {
        let refuse =
            |message| Err(ModelError::NotStreamable { path: self.files[0].clone(), message });
        if self.n_expert == 0 {
            return refuse(format!(
                "it is not a Mixture-of-Experts model (\"{}.expert_count\" is absent or 0); \
                 run it with --mode mmap or --mode resident",
                self.arch
            ));
        }
        if self.n_expert_used == 0 || self.n_expert_used > self.n_expert {
            return refuse(format!(
                "it uses {} of {} experts per token",
                self.n_expert_used, self.n_expert
            ));
        }
        if self.experts.layers.is_empty() {
            return refuse(format!(
                "none of its tensors is named like routed experts (blk.N.ffn_{{gate,up,gate_up,down}}\
                 _exps.weight), although it says it has {} experts",
                self.n_expert
            ));
        }
        for layer in &self.experts.layers {
            let kinds: Vec<Projection> = layer.tensors.iter().map(|t| t.projection).collect();
            let understood = matches!(
                kinds.as_slice(),
                [Projection::Gate, Projection::Up, Projection::Down]
                    | [Projection::GateUp, Projection::Down]
                    | [Projection::Up, Projection::Down]
            );
            if !understood {
                return refuse(format!(
                    "layer {} has the expert tensors {kinds:?}; gate, up and down, or fused gate-up \
                     and down, are understood",
                    layer.layer
                ));
            }
        }
        Ok(())
    }
}

/// All files of a split model, from the path of any one of them.
fn split_files(path: &Path, count: u64) -> Result<Vec<PathBuf>, ModelError> {
    if count <= 1 {
        return Ok(vec![path.to_owned()]);
    }
    let bad_name = || ModelError::Damaged {
        path: path.to_owned(),
        message: format!(
            "it is one of {count} parts, but is not named <name>-0000I-of-{count:05}.gguf, \
             so the others can't be found"
        ),
    };
    let name = path.file_name().and_then(|n| n.to_str()).ok_or_else(bad_name)?;
    let stem = name.strip_suffix(&format!("-of-{count:05}.gguf")).ok_or_else(bad_name)?;
    let (prefix, number) = stem.rsplit_once('-').ok_or_else(bad_name)?;
    if number.len() != 5 || !number.bytes().all(|b| b.is_ascii_digit()) {
        return Err(bad_name());
    }
    (1..=count)
        .map(|i| {
            let part = path.with_file_name(format!("{prefix}-{i:05}-of-{count:05}.gguf"));
            if part.exists() {
                Ok(part)
            } else {
                Err(ModelError::MissingPart { part, number: i, count })
            }
        })
        .collect()
}
