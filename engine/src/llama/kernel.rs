//! Products of an expert's matrix with the rows routed to it, bit for bit what ggml computes.
//!
//! ggml's `MUL_MAT_ID` has two kernels and picks one by the number of rows of *one expert*: a dot
//! product per output below [`TILED_ROWS`] rows, and from there on, for some types, a tiled product
//! that rounds differently. The dot products are called directly, through the CPU's type table. The
//! tiled kernel is not exported; it is reached by running a stock `MUL_MAT_ID` node over this one
//! expert, with the same rows, on the calling thread.

use std::ffi::c_void;
use std::ptr::NonNull;

use super::node::ContextMemory;
use super::sys;

/// Rows of one expert from which on ggml may use its tiled kernel (`ggml_tiled_min_batch`).
pub(super) const TILED_ROWS: usize = 8;

/// A type's dot product, as ggml's own `MUL_MAT_ID` would use it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kernel {
    pub(super) weight_type: sys::ggml_type,
    /// Type that activations are converted to.
    pub(super) activation_type: sys::ggml_type,
    dot:
        unsafe extern "C" fn(i32, *mut f32, usize, *const c_void, usize, *const c_void, usize, i32),
    convert: Option<unsafe extern "C" fn(*const f32, *mut c_void, i64)>,
    /// Elements of a block of the activation type.
    pub(super) activation_block: usize,
}

impl Kernel {
    /// `None` when ggml has no CPU dot product for the type.
    pub(super) fn of(weight_type: sys::ggml_type) -> Option<Self> {
        // SAFETY: the table has an entry for every type; types come from tensors that ggml made.
        unsafe {
            let traits = &*sys::ggml_get_type_traits_cpu(weight_type);
            let activation_type = traits.vec_dot_type;
            Some(Self {
                weight_type,
                activation_type,
                dot: traits.vec_dot?,
                convert: (*sys::ggml_get_type_traits_cpu(activation_type)).from_float,
                activation_block: sys::ggml_blck_size(activation_type) as usize,
            })
        }
    }

    /// Whether activations are used as they are.
    pub(super) fn takes_f32(&self) -> bool {
        self.activation_type == sys::GGML_TYPE_F32
    }

    /// Bytes of `n` activations of the kernel's type.
    pub(super) fn activation_bytes(&self, n: usize) -> usize {
        // SAFETY: a pure function of a valid type.
        unsafe { sys::ggml_row_size(self.activation_type, n as i64) }
    }

    /// Converts `n` activations, whole blocks.
    ///
    /// # Safety
    /// `from` must hold `n` floats, `to` must have room for [`Self::activation_bytes`].
    pub(super) unsafe fn convert(&self, from: *const f32, to: *mut u8, n: usize) {
        let convert = self.convert.expect("types other than F32 have a conversion");
        // SAFETY: the caller's promise.
        unsafe { convert(from, to.cast(), n as i64) };
    }

    /// One output: the dot product of a weight row and a converted activation row of `n` elements.
    ///
    /// # Safety
    /// Both rows must hold `n` elements of their types, `out` one float.
    pub(super) unsafe fn dot(
        &self,
        n: usize,
        out: *mut f32,
        weights: *const u8,
        activations: *const u8,
    ) {
        // SAFETY: the caller's promise; the strides are unused for a single row.
        unsafe { (self.dot)(n as i32, out, 0, weights.cast(), 0, activations.cast(), 0, 1) };
    }
}

/// Whether `GGML_CPU_TILED_MM_FORCE=1` makes ggml use its tiled kernel whatever the number of rows.
pub(super) fn tiled_forced() -> bool {
    std::env::var("GGML_CPU_TILED_MM_FORCE").is_ok_and(|v| v.trim_start().starts_with('1'))
}

/// Runs stock `MUL_MAT_ID` nodes of one expert on the calling thread.
pub(super) struct StockProduct {
    pool: NonNull<sys::ggml_threadpool>,
    /// Space for the node and its graph.
    arena: Vec<ContextMemory>,
    work: Vec<u64>,
    rows: Vec<u64>,
    ids: Vec<i32>,
    out: Vec<f32>,
}

// SAFETY: the pool has no threads of its own (it is one thread wide), so it is plain data.
unsafe impl Send for StockProduct {}

impl StockProduct {
    pub(super) fn new() -> Self {
        // SAFETY: the parameters are filled in by ggml; a pool for one thread starts none.
        let pool = unsafe {
            let mut params = sys::ggml_threadpool_params_default(1);
            sys::ggml_threadpool_new(&raw mut params)
        };
        // SAFETY: pure functions.
        let bytes = unsafe {
            16 * sys::ggml_tensor_overhead() + sys::ggml_graph_overhead_custom(16, false)
        };
        Self {
            pool: NonNull::new(pool)
                .expect("ggml ends the process itself when it is out of memory"),
            arena: vec![ContextMemory::default(); bytes.div_ceil(size_of::<ContextMemory>())],
            work: Vec::new(),
            rows: Vec::new(),
            ids: Vec::new(),
            out: Vec::new(),
        }
    }

    /// Multiplies `n_out` rows of weights with converted activation rows; returns the products,
    /// `n_out` for each activation row.
    ///
    /// # Safety
    /// `weights` must hold `n_out` rows of `n_in` elements of the kernel's weight type, each pointer
    /// one row of `n_in` converted activations.
    pub(super) unsafe fn run(
        &mut self,
        kernel: &Kernel,
        weights: *const u8,
        n_in: usize,
        n_out: usize,
        activations: impl ExactSizeIterator<Item = *const u8>,
    ) -> &[f32] {
        let n_rows = activations.len();
        let row_bytes = kernel.activation_bytes(n_in);
        self.rows.resize((n_rows * row_bytes).div_ceil(8), 0);
        let rows = self.rows.as_mut_ptr().cast::<u8>();
        for (i, row) in activations.enumerate() {
            // SAFETY: the caller's promise for the source; the destination has room for all rows.
            unsafe { std::ptr::copy_nonoverlapping(row, rows.add(i * row_bytes), row_bytes) };
        }
        self.ids.clear();
        self.ids.resize(n_rows, 0);
        self.out.resize(n_rows * n_out, 0.0);
        let params = sys::ggml_init_params {
            mem_size: size_of_val(&*self.arena),
            mem_buffer: self.arena.as_mut_ptr().cast(),
            no_alloc: true,
        };
        // SAFETY: the context lives in `arena` and is freed before it is used again; every tensor gets
        // a buffer of its size; the plan's work buffer is as large as the plan says.
        unsafe {
            let ctx = sys::ggml_init(params);
            let matrix =
                sys::ggml_new_tensor_3d(ctx, kernel.weight_type, n_in as i64, n_out as i64, 1);
            (*matrix).data = weights.cast_mut().cast();
            let input =
                sys::ggml_new_tensor_3d(ctx, kernel.activation_type, n_in as i64, 1, n_rows as i64);
            (*input).data = rows.cast();
            let ids = sys::ggml_new_tensor_2d(ctx, sys::GGML_TYPE_I32, 1, n_rows as i64);
            (*ids).data = self.ids.as_mut_ptr().cast();
            let product = sys::ggml_mul_mat_id(ctx, matrix, input, ids);
            (*product).data = self.out.as_mut_ptr().cast();
            let graph = sys::ggml_new_graph_custom(ctx, 16, false);
            sys::ggml_build_forward_expand(graph, product);
            let mut plan = sys::ggml_graph_plan(graph, 1, self.pool.as_ptr());
            if self.work.len() * 8 < plan.work_size {
                self.work.resize(plan.work_size.div_ceil(8), 0);
            }
            plan.work_data = self.work.as_mut_ptr().cast();
            let status = sys::ggml_graph_compute(graph, &raw mut plan);
            assert_eq!(
                status,
                sys::GGML_STATUS_SUCCESS,
                "a graph without a callback can't be aborted"
            );
            sys::ggml_free(ctx);
        }
        &self.out
    }
}

impl Drop for StockProduct {
    fn drop(&mut self) {
        // SAFETY: made once, freed once.
        unsafe { sys::ggml_threadpool_free(self.pool.as_ptr()) };
    }
}
