//! Loading a model, and its vocabulary.

use std::ffi::{CStr, CString, c_void};
use std::os::unix::ffi::OsStrExt;
use std::ptr::NonNull;
use std::time::Instant;

use bmoe_trace::Mode;
use bmoe_trace::config::DenseWeights;

use super::gguf::ModelInfo;
use super::hidden_buffer::HiddenBufferType;
use super::{dense, log, sys};
use crate::error::{EngineError, ModelError};
use crate::flash::mapped::MappedPieces;

/// Name of the experts' buffer type.
const EXPERTS: &CStr = c"bmoe experts";

/// Names of the weights that are streamed; kept in step with `Projection::parse`.
const EXPERT_WEIGHTS: &CStr = c"^blk\\.[0-9]+\\.ffn_(gate|up|gate_up|down)_exps\\.weight$";

/// An expert tensor in llama.cpp's model: its address and where it is in the layout.
#[derive(Debug, Clone, Copy)]
pub(super) struct PlacedTensor {
    pub(super) tensor: NonNull<sys::ggml_tensor>,
    /// Index of the MoE layer.
    pub(super) layer: usize,
    /// Index of the projection within the layer.
    pub(super) projection: usize,
}

/// A loaded model.
pub struct Model {
    model: NonNull<sys::llama_model>,
    vocab: NonNull<sys::llama_vocab>,
    experts: Vec<PlacedTensor>,
    /// Dense weights that are mapped. Dropped after the model that uses them.
    mapped: Option<MappedPieces>,
    /// Dropped after the model that uses them.
    _buffer_types: Vec<HiddenBufferType>,
    dense_read_ns: u64,
}

/// What a progress callback of llama.cpp works on.
struct Progress<'a> {
    first: Option<Instant>,
    cancelled: &'a dyn Fn() -> bool,
}

impl Model {
    /// Loads the model: all of it (`resident`), a map of it (`mmap`), or everything but the experts
    /// (`stream`, with the dense weights where `dense` says). `n_expert_used` overrides the file's value when it
    /// is not 0.
    ///
    /// # Errors
    /// llama.cpp refuses the file, the file can't be mapped, or `cancelled` said so.
    pub fn load(
        info: &ModelInfo,
        mode: Mode,
        dense: DenseWeights,
        n_expert_used: u32,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<Self, EngineError> {
        let hidden: &[(&'static CStr, &CStr)] = match (mode, dense) {
            (Mode::Mmap | Mode::Resident, _) => &[],
            (Mode::Stream, DenseWeights::Anon) => &[(EXPERTS, EXPERT_WEIGHTS)],
            (Mode::Stream, DenseWeights::Mmap | DenseWeights::Warm) => {
                &[(EXPERTS, EXPERT_WEIGHTS), (dense::MAPPED, dense::ALL_WEIGHTS)]
            }
        };
        let buffer_types: Vec<_> =
            hidden.iter().map(|(name, _)| HiddenBufferType::new(name)).collect();
        let overrides: Vec<_> = std::iter::zip(hidden, &buffer_types)
            .map(|((_, pattern), buft)| (pattern.as_ptr(), buft.as_ptr()))
            .chain([(std::ptr::null(), std::ptr::null_mut())])
            .map(|(pattern, buft)| sys::llama_model_tensor_buft_override { pattern, buft })
            .collect();
        let key_values = top_k_override(&info.arch, n_expert_used);
        let mut progress = Progress { first: None, cancelled };

        // SAFETY: a plain call; the struct is filled in field by field below.
        let mut params = unsafe { sys::llama_model_default_params() };
        params.n_gpu_layers = 0;
        params.load_mode = match mode {
            Mode::Stream | Mode::Resident => sys::LLAMA_LOAD_MODE_NONE,
            Mode::Mmap => sys::LLAMA_LOAD_MODE_MMAP,
        };
        params.lazy_mode = sys::LLAMA_LAZY_MODE_OFF;
        // Repacked weights have another layout and other rounding: all modes go without, so that they
        // compute the same.
        params.use_extra_bufts = false;
        params.load_mtp = false;
        params.tensor_buft_overrides = overrides.as_ptr();
        if let Some(key_values) = &key_values {
            params.kv_overrides = key_values.as_ptr();
        }
        params.progress_callback = Some(on_progress);
        params.progress_callback_user_data = std::ptr::from_mut(&mut progress).cast::<c_void>();

        let path = CString::new(info.files[0].as_os_str().as_bytes())
            .map_err(|_| EngineError::Config("the model's path has a NUL byte".into()))?;
        let _ = log::take_error();
        // SAFETY: path, overrides and callback data outlive the call, which is all that it asks for;
        // the buffer type lives as long as the model.
        let model = unsafe { sys::llama_model_load_from_file(path.as_ptr(), params) };
        let dense_read_ns = progress.first.map_or(0, |first| first.elapsed().as_nanos() as u64);
        let Some(model) = NonNull::new(model) else {
            let message = log::take_error().unwrap_or_else(|| "it gave no reason".into());
            return Err(ModelError::Llama { path: info.files[0].clone(), message }.into());
        };
        // SAFETY: the model was just loaded.
        let vocab = unsafe { sys::llama_model_get_vocab(model.as_ptr()) };
        let mut this = Self {
            model,
            vocab: NonNull::new(vocab.cast_mut()).expect("a loaded model has a vocabulary"),
            experts: Vec::new(),
            mapped: None,
            _buffer_types: Vec::new(),
            dense_read_ns: if mode == Mode::Mmap { 0 } else { dense_read_ns },
        };
        // The model first: it uses them.
        this._buffer_types = buffer_types;
        if let [experts, mapped @ ..] = this._buffer_types.as_slice() {
            this.experts = match_experts(info, &experts.reveal())?;
            if let [mapped] = mapped {
                let start = Instant::now();
                let maps = dense::map(info, mapped)?;
                let maps = this.mapped.insert(maps);
                if dense == DenseWeights::Warm {
                    maps.warm(cancelled).map_err(|source| ModelError::Unreadable {
                        path: info.files[0].clone(),
                        source,
                    })?;
                }
                this.dense_read_ns = start.elapsed().as_nanos() as u64;
            }
        }
        Ok(this)
    }

    /// Share of the dense weights' pages that is in memory; `None` when they are not mapped by us, or the kernel
    /// doesn't tell.
    #[must_use]
    pub fn dense_resident(&self) -> Option<f64> {
        let maps = self.mapped.as_ref()?;
        Some(maps.resident_bytes()? as f64 / maps.bytes().max(1) as f64)
    }

    /// Time that loading spent reading weights.
    #[must_use]
    pub fn dense_read_ns(&self) -> u64 {
        self.dense_read_ns
    }

    pub(super) fn as_ptr(&self) -> *mut sys::llama_model {
        self.model.as_ptr()
    }

    pub(super) fn experts(&self) -> &[PlacedTensor] {
        &self.experts
    }

    /// Number of tokens in the vocabulary.
    #[must_use]
    pub fn n_vocab(&self) -> usize {
        // SAFETY: the vocabulary is the model's.
        unsafe { sys::llama_vocab_n_tokens(self.vocab.as_ptr()) as usize }
    }

    /// Whether positions can't be removed from the model's state, as it is recurrent in all or some layers.
    #[must_use]
    pub fn has_recurrent_state(&self) -> bool {
        // SAFETY: the model is loaded.
        unsafe {
            sys::llama_model_is_recurrent(self.model.as_ptr())
                || sys::llama_model_is_hybrid(self.model.as_ptr())
        }
    }

    /// Whether a token ends the text.
    #[must_use]
    pub fn ends_text(&self, token: i32) -> bool {
        // SAFETY: the vocabulary is the model's.
        unsafe { sys::llama_vocab_is_eog(self.vocab.as_ptr(), token) }
    }

    /// Whether a token is a mark for the model (`<|im_start|>`), not text.
    #[must_use]
    pub fn is_control(&self, token: i32) -> bool {
        // SAFETY: the vocabulary is the model's.
        unsafe { sys::llama_vocab_is_control(self.vocab.as_ptr(), token) }
    }

    /// Text of the token that begins every text; empty when there is none.
    #[must_use]
    pub fn bos_text(&self) -> String {
        // SAFETY: the vocabulary is the model's.
        self.name(unsafe { sys::llama_vocab_bos(self.vocab.as_ptr()) })
    }

    /// Text of the token that ends a text; empty when there is none.
    #[must_use]
    pub fn eos_text(&self) -> String {
        // SAFETY: the vocabulary is the model's.
        self.name(unsafe { sys::llama_vocab_eos(self.vocab.as_ptr()) })
    }

    fn name(&self, token: i32) -> String {
        if token < 0 {
            return String::new();
        }
        // SAFETY: a token of the vocabulary; its text is NUL-terminated and lives as long as that.
        unsafe { CStr::from_ptr(sys::llama_vocab_get_text(self.vocab.as_ptr(), token)) }
            .to_string_lossy()
            .into_owned()
    }

    /// The tokens of a text; marks such as `<|im_start|>` become their tokens. `whole` puts the special
    /// tokens around it that the model wants around a whole text.
    ///
    /// # Errors
    /// The text is larger than llama.cpp can take.
    pub fn tokenize(&self, text: &str, whole: bool) -> Result<Vec<i32>, EngineError> {
        let too_long =
            || EngineError::Request(format!("a prompt of {} bytes is too long", text.len()));
        let length = i32::try_from(text.len()).map_err(|_| too_long())?;
        let mut tokens = vec![0; text.len() + 16];
        loop {
            let room = i32::try_from(tokens.len()).map_err(|_| too_long())?;
            // SAFETY: pointer and length are those of the buffers.
            let n = unsafe {
                sys::llama_tokenize(
                    self.vocab.as_ptr(),
                    text.as_ptr().cast(),
                    length,
                    tokens.as_mut_ptr(),
                    room,
                    whole,
                    true,
                )
            };
            if n >= 0 {
                tokens.truncate(n as usize);
                return Ok(tokens);
            }
            if n == i32::MIN {
                return Err(too_long());
            }
            tokens.resize(n.unsigned_abs() as usize, 0);
        }
    }

    /// The bytes of a token's text; nothing for a mark.
    #[must_use]
    pub fn piece(&self, token: i32) -> Vec<u8> {
        self.bytes(token, false)
    }

    /// The bytes of a token, marks by their names.
    #[must_use]
    pub fn source(&self, token: i32) -> Vec<u8> {
        self.bytes(token, true)
    }

    fn bytes(&self, token: i32, marks: bool) -> Vec<u8> {
        let mut bytes = vec![0u8; 64];
        loop {
            // SAFETY: pointer and length are the buffer's.
            let n = unsafe {
                sys::llama_token_to_piece(
                    self.vocab.as_ptr(),
                    token,
                    bytes.as_mut_ptr().cast(),
                    bytes.len() as i32,
                    0,
                    marks,
                )
            };
            if n >= 0 {
                bytes.truncate(n as usize);
                return bytes;
            }
            bytes.resize(n.unsigned_abs() as usize, 0);
        }
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        // SAFETY: loaded once, freed once; contexts share the model's ownership, so none is left.
        unsafe { sys::llama_model_free(self.model.as_ptr()) };
    }
}

unsafe extern "C" fn on_progress(_: f32, user_data: *mut c_void) -> bool {
    // SAFETY: the data is `load`'s `Progress`, which outlives the call that makes this one.
    let progress = unsafe { &mut *user_data.cast::<Progress<'_>>() };
    progress.first.get_or_insert_with(Instant::now);
    !(progress.cancelled)()
}

/// The override list for `<arch>.expert_used_count`, with its terminating entry.
fn top_k_override(arch: &str, n: u32) -> Option<[sys::llama_model_kv_override; 2]> {
    if n == 0 {
        return None;
    }
    // SAFETY: all-zero bytes are a valid (terminating) entry.
    let mut entries: [sys::llama_model_kv_override; 2] = unsafe { std::mem::zeroed() };
    for (to, from) in entries[0].key.iter_mut().zip(format!("{arch}.expert_used_count").bytes()) {
        *to = from as std::ffi::c_char;
    }
    entries[0].tag = sys::LLAMA_KV_OVERRIDE_TYPE_INT;
    entries[0].__bindgen_anon_1.val_i64 = i64::from(n);
    Some(entries)
}

/// Finds every tensor of the layout among those that llama.cpp placed on the expert buffer. For some
/// architectures it places prediction layers there, too, which nothing uses.
fn match_experts(
    info: &ModelInfo,
    placed: &[*mut sys::ggml_tensor],
) -> Result<Vec<PlacedTensor>, EngineError> {
    let mut found = Vec::new();
    for &tensor in placed {
        // SAFETY: the loader placed these tensors; they live as long as the model, which is loaded.
        let (name, bytes) = unsafe {
            (CStr::from_ptr((*tensor).name.as_ptr()).to_string_lossy(), sys::ggml_nbytes(tensor))
        };
        if ModelInfo::layer_of(&name).is_some_and(|layer| layer >= info.n_layer) {
            continue;
        }
        let at = info.experts.layers.iter().enumerate().find_map(|(layer, l)| {
            let projection = l.tensors.iter().position(|t| t.name == name)?;
            Some((layer, projection))
        });
        let expected = at.map(|(layer, projection)| {
            info.experts.layers[layer].tensors[projection].slice_bytes * u64::from(info.n_expert)
        });
        match (at, NonNull::new(tensor)) {
            (Some((layer, projection)), Some(tensor)) if expected == Some(bytes as u64) => {
                found.push(PlacedTensor { tensor, layer, projection });
            }
            _ => {
                return Err(EngineError::Graph(format!(
                    "llama.cpp placed {name} ({bytes} bytes) among the experts, the file says \
                     {expected:?}"
                )));
            }
        }
    }
    let expected: usize = info.experts.layers.iter().map(|l| l.tensors.len()).sum();
    if found.len() != expected {
        return Err(EngineError::Graph(format!(
            "llama.cpp placed {} expert tensors, the file has {expected}",
            found.len()
        )));
    }
    Ok(found)
}
