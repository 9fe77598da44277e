//! A buffer type that makes llama.cpp load a model without some of its weights: the experts, and those
//! that are mapped.
//!
//! Tensors on it get addresses in a range that is reserved but not accessible. While loading, their
//! size is hidden: [`init_tensor`] sets the last dimension to 0, so that the loader's
//! `read(address, ggml_nbytes(tensor))` reads nothing; [`HiddenBufferType::reveal`] puts it back
//! before the first graph is built. No byte of them is read, no page of the range ever exists, and the
//! loader is stock (single and split files alike).

use std::ffi::{CStr, c_char, c_void};
use std::sync::{Mutex, PoisonError};

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

use super::abi::{
    Buffer, BufferInterface, BufferType, BufferTypeInterface, ggml_backend_buffer_init,
};
use super::sys::{
    self, ggml_backend_buffer_t, ggml_backend_buffer_type_t, ggml_status, ggml_tensor,
};

/// Data alignment of GGUF files; the loader places tensors at multiples of it.
const ALIGNMENT: usize = 32;

/// Tensors that were placed on the buffer type, with the dimension that is hidden while loading.
struct Placed {
    /// The buffer type's name. llama.cpp tells buffer types apart by it.
    name: &'static CStr,
    tensors: Vec<(*mut ggml_tensor, i64)>,
}

/// The buffer type. It must outlive every model loaded with it.
pub(super) struct HiddenBufferType {
    // Boxed: ggml keeps the address.
    buffer_type: Box<BufferType>,
    placed: Box<Mutex<Placed>>,
}

impl HiddenBufferType {
    pub(super) fn new(name: &'static CStr) -> Self {
        let placed = Box::new(Mutex::new(Placed { name, tensors: Vec::new() }));
        let buffer_type = Box::new(BufferType {
            interface: BufferTypeInterface {
                get_name,
                alloc_buffer: allocate,
                alloc_buffer_n: None,
                get_alignment: alignment,
                get_max_size: None,
                get_alloc_size: None,
                get_alloc_size_n: None,
                is_host: Some(is_host),
            },
            // Like the CPU's own buffer type: no device means the CPU.
            device: std::ptr::null_mut(),
            context: std::ptr::from_ref::<Mutex<Placed>>(&placed).cast_mut().cast(),
        });
        Self { buffer_type, placed }
    }

    /// What llama.cpp's parameters want.
    pub(super) fn as_ptr(&self) -> ggml_backend_buffer_type_t {
        std::ptr::from_ref::<BufferType>(&self.buffer_type).cast_mut().cast()
    }

    /// Gives the placed tensors their full size back and returns them. To be called when loading is
    /// over, before a context is made.
    pub(super) fn reveal(&self) -> Vec<*mut ggml_tensor> {
        let mut placed = self.placed.lock().unwrap_or_else(PoisonError::into_inner);
        placed
            .tensors
            .drain(..)
            .map(|(tensor, dimension)| {
                // SAFETY: the tensor belongs to the model that was just loaded; nothing computes yet.
                unsafe { (*tensor).ne[3] = dimension };
                tensor
            })
            .collect()
    }
}

unsafe extern "C" fn get_name(buffer_type: ggml_backend_buffer_type_t) -> *const c_char {
    // SAFETY: ggml passes a buffer type of ours, whose context lives as long as it.
    let placed = unsafe {
        &*(*buffer_type.cast::<BufferType>()).context.cast_const().cast::<Mutex<Placed>>()
    };
    placed.lock().unwrap_or_else(PoisonError::into_inner).name.as_ptr()
}

unsafe extern "C" fn alignment(_: ggml_backend_buffer_type_t) -> usize {
    ALIGNMENT
}

/// Kernels and the scheduler treat the tensors as the CPU's. No kernel follows the addresses given here:
/// the graph hook replaces what uses experts, and mapped weights get the addresses of their map.
unsafe extern "C" fn is_host(_: ggml_backend_buffer_type_t) -> bool {
    true
}

unsafe extern "C" fn allocate(
    buffer_type: ggml_backend_buffer_type_t,
    size: usize,
) -> ggml_backend_buffer_t {
    let size = size.max(ALIGNMENT);
    // SAFETY: a new mapping at an address of the kernel's choice. PROT_NONE: any access is a fault
    // instead of a silent zero.
    let Ok(base) = (unsafe {
        mmap_anonymous(
            std::ptr::null_mut(),
            size,
            ProtFlags::empty(),
            MapFlags::PRIVATE | MapFlags::NORESERVE,
        )
    }) else {
        return std::ptr::null_mut();
    };
    let interface = BufferInterface {
        free_buffer: Some(free),
        get_base: base_address,
        init_tensor: Some(init_tensor),
        memset_tensor: ignore_memset,
        set_tensor: ignore_set,
        get_tensor: ignore_get,
        set_tensor_2d: None,
        get_tensor_2d: None,
        cpy_tensor: None,
        clear: ignore_clear,
        reset: None,
    };
    // SAFETY: the interface's layout is ggml's (see `abi`); the context is the mapping's address. The
    // fields read back are those that ggml was just given.
    unsafe {
        let buffer = ggml_backend_buffer_init(buffer_type, interface, base, size);
        let laid_out = &*buffer.cast::<Buffer>();
        let as_declared = laid_out.context == base
            && laid_out.size == size
            && laid_out.buffer_type == buffer_type;
        if as_declared { buffer } else { std::ptr::null_mut() }
    }
}

unsafe extern "C" fn free(buffer: ggml_backend_buffer_t) {
    let buffer = buffer.cast::<Buffer>();
    // SAFETY: ggml calls this once for a buffer that `allocate` made: context and size are a mapping's.
    let _ = unsafe { munmap((*buffer).context, (*buffer).size) };
}

unsafe extern "C" fn base_address(buffer: ggml_backend_buffer_t) -> *mut c_void {
    // SAFETY: the buffer is one that `allocate` made.
    unsafe { (*buffer.cast::<Buffer>()).context }
}

unsafe extern "C" fn init_tensor(
    buffer: ggml_backend_buffer_t,
    tensor: *mut ggml_tensor,
) -> ggml_status {
    // SAFETY: ggml passes a buffer that `allocate` made, whose type is ours, whose context is the list
    // in `HiddenBufferType`, which outlives the model; the tensor is the model's and only this thread
    // has it while loading.
    unsafe {
        // A view of a loaded tensor, made for a graph, has nothing to hide.
        if !(*tensor).view_src.is_null() {
            return sys::GGML_STATUS_SUCCESS;
        }
        let buffer_type = (*buffer.cast::<Buffer>()).buffer_type.cast::<BufferType>();
        let placed = &*(*buffer_type).context.cast::<Mutex<Placed>>();
        placed
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .tensors
            .push((tensor, (*tensor).ne[3]));
        (*tensor).ne[3] = 0;
    }
    sys::GGML_STATUS_SUCCESS
}

// The loader has no bytes to set once sizes are hidden, and nothing else may write to weights.
unsafe extern "C" fn ignore_memset(
    _: ggml_backend_buffer_t,
    _: *mut ggml_tensor,
    _: u8,
    _: usize,
    _: usize,
) {
}
unsafe extern "C" fn ignore_set(
    _: ggml_backend_buffer_t,
    _: *mut ggml_tensor,
    _: *const c_void,
    _: usize,
    _: usize,
) {
}
unsafe extern "C" fn ignore_get(
    _: ggml_backend_buffer_t,
    _: *const ggml_tensor,
    _: *mut c_void,
    _: usize,
    _: usize,
) {
}
unsafe extern "C" fn ignore_clear(_: ggml_backend_buffer_t, _: u8) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ggml_finds_every_function_where_it_expects_it() {
        let buffer_type = HiddenBufferType::new(c"bmoe experts");
        // SAFETY: ggml's own functions on a buffer type that outlives the buffer; the tensor lives in
        // its context.
        unsafe {
            let buft = buffer_type.as_ptr();
            assert_eq!(CStr::from_ptr(sys::ggml_backend_buft_name(buft)), c"bmoe experts");
            assert_eq!(sys::ggml_backend_buft_get_alignment(buft), ALIGNMENT);
            assert!(sys::ggml_backend_buft_is_host(buft));

            let ctx = sys::ggml_init(sys::ggml_init_params {
                mem_size: 4 * sys::ggml_tensor_overhead(),
                mem_buffer: std::ptr::null_mut(),
                no_alloc: true,
            });
            let tensor = sys::ggml_new_tensor_3d(ctx, sys::GGML_TYPE_F32, 256, 256, 8);
            let bytes = sys::ggml_nbytes(tensor);
            let buffer = sys::ggml_backend_alloc_ctx_tensors_from_buft(ctx, buft);
            assert!(!buffer.is_null());
            assert_eq!(sys::ggml_backend_buffer_get_size(buffer), bytes);
            assert_eq!((*tensor).data, sys::ggml_backend_buffer_get_base(buffer));
            // Hidden while loading, whole afterwards.
            assert_eq!(sys::ggml_nbytes(tensor), 0);
            assert_eq!(buffer_type.reveal(), [tensor]);
            assert_eq!(sys::ggml_nbytes(tensor), bytes);
            sys::ggml_backend_buffer_clear(buffer, 1);
            sys::ggml_backend_buffer_free(buffer);
            sys::ggml_free(ctx);
        }
    }
}
