//! Declarations of `ggml-backend-impl.h`, which the bindings leave out because it is internal.
//!
//! ggml calls these through pointers that we fill in, so their order and number must be those of the
//! pinned llama.cpp. A test of [`super::hidden_buffer`] makes ggml itself go through the ones that are
//! used, and an allocation fails when the buffer that ggml hands back is not laid out as declared here.

use std::ffi::{c_char, c_void};

use super::sys::{ggml_backend_buffer_t, ggml_backend_buffer_type_t, ggml_status, ggml_tensor};

/// `struct ggml_backend_buffer_type_i`, API version 3.
#[repr(C)]
pub(super) struct BufferTypeInterface {
    pub(super) get_name: unsafe extern "C" fn(ggml_backend_buffer_type_t) -> *const c_char,
    pub(super) alloc_buffer:
        unsafe extern "C" fn(ggml_backend_buffer_type_t, usize) -> ggml_backend_buffer_t,
    pub(super) alloc_buffer_n: Option<
        unsafe extern "C" fn(
            ggml_backend_buffer_type_t,
            *mut *mut ggml_tensor,
            i32,
        ) -> ggml_backend_buffer_t,
    >,
    pub(super) get_alignment: unsafe extern "C" fn(ggml_backend_buffer_type_t) -> usize,
    pub(super) get_max_size: Option<unsafe extern "C" fn(ggml_backend_buffer_type_t) -> usize>,
    pub(super) get_alloc_size:
        Option<unsafe extern "C" fn(ggml_backend_buffer_type_t, *const ggml_tensor) -> usize>,
    pub(super) get_alloc_size_n: Option<
        unsafe extern "C" fn(ggml_backend_buffer_type_t, *mut *mut ggml_tensor, i32) -> usize,
    >,
    pub(super) is_host: Option<unsafe extern "C" fn(ggml_backend_buffer_type_t) -> bool>,
}

/// `struct ggml_backend_buffer_type`.
#[repr(C)]
pub(super) struct BufferType {
    pub(super) interface: BufferTypeInterface,
    pub(super) device: *mut c_void,
    pub(super) context: *mut c_void,
}

/// `struct ggml_backend_buffer_i`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct BufferInterface {
    pub(super) free_buffer: Option<unsafe extern "C" fn(ggml_backend_buffer_t)>,
    pub(super) get_base: unsafe extern "C" fn(ggml_backend_buffer_t) -> *mut c_void,
    pub(super) init_tensor:
        Option<unsafe extern "C" fn(ggml_backend_buffer_t, *mut ggml_tensor) -> ggml_status>,
    pub(super) memset_tensor:
        unsafe extern "C" fn(ggml_backend_buffer_t, *mut ggml_tensor, u8, usize, usize),
    pub(super) set_tensor:
        unsafe extern "C" fn(ggml_backend_buffer_t, *mut ggml_tensor, *const c_void, usize, usize),
    pub(super) get_tensor:
        unsafe extern "C" fn(ggml_backend_buffer_t, *const ggml_tensor, *mut c_void, usize, usize),
    pub(super) set_tensor_2d: Option<unsafe extern "C" fn()>,
    pub(super) get_tensor_2d: Option<unsafe extern "C" fn()>,
    pub(super) cpy_tensor: Option<unsafe extern "C" fn()>,
    pub(super) clear: unsafe extern "C" fn(ggml_backend_buffer_t, u8),
    pub(super) reset: Option<unsafe extern "C" fn(ggml_backend_buffer_t)>,
}

/// `struct ggml_backend_buffer`.
#[repr(C)]
pub(super) struct Buffer {
    pub(super) interface: BufferInterface,
    pub(super) buffer_type: ggml_backend_buffer_type_t,
    pub(super) context: *mut c_void,
    pub(super) size: usize,
    pub(super) usage: i32,
}

unsafe extern "C" {
    /// Wraps a buffer of ours; exported by ggml, declared in its internal header.
    pub(super) fn ggml_backend_buffer_init(
        buffer_type: ggml_backend_buffer_type_t,
        interface: BufferInterface,
        context: *mut c_void,
        size: usize,
    ) -> ggml_backend_buffer_t;
}
