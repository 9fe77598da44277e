//! llama.cpp's log: kept, so that its last error can be part of ours; printed only when asked for.

use std::ffi::{CStr, c_char, c_void};
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, Once, PoisonError};

use super::sys::{self, ggml_log_level};

static VERBOSE: AtomicBool = AtomicBool::new(false);
static LAST_ERROR: Mutex<Option<String>> = Mutex::new(None);

/// Starts llama.cpp, once per process, with its log coming to us.
pub fn start(verbose: bool) {
    static ONCE: Once = Once::new();
    VERBOSE.store(verbose, Ordering::Relaxed);
    ONCE.call_once(|| {
        // SAFETY: the callback is a function without state, valid for the process's life.
        unsafe {
            sys::llama_log_set(Some(receive), std::ptr::null_mut());
            sys::ggml_set_abort_callback(Some(give_up));
            sys::llama_backend_init();
        }
    });
}

/// ggml found its own assumptions broken, most often by a damaged model. There is no way back into the
/// program from there; this replaces a stack trace by one line.
unsafe extern "C" fn give_up(message: *const c_char) {
    // SAFETY: ggml passes a NUL-terminated string.
    let message = unsafe { CStr::from_ptr(message) }.to_string_lossy();
    let message = message.trim();
    let _ = writeln!(
        std::io::stderr(),
        "error: llama.cpp gave up: {message}; the model is damaged or of a kind that it can't run"
    );
    signal_hook::low_level::exit(4);
}

/// The last line that llama.cpp logged as an error since the last call.
pub fn take_error() -> Option<String> {
    LAST_ERROR.lock().unwrap_or_else(PoisonError::into_inner).take()
}

unsafe extern "C" fn receive(level: ggml_log_level, text: *const c_char, _: *mut c_void) {
    if text.is_null() {
        return;
    }
    // SAFETY: ggml passes a NUL-terminated string that lives for the call.
    let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
    if VERBOSE.load(Ordering::Relaxed) {
        let _ = write!(std::io::stderr(), "{text}");
    }
    if level == sys::GGML_LOG_LEVEL_ERROR {
        let line = text.trim();
        if !line.is_empty() && !line.ends_with("failed to load model") {
            *LAST_ERROR.lock().unwrap_or_else(PoisonError::into_inner) = Some(line.to_owned());
        }
    }
}
