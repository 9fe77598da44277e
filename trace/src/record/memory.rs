//! Where memory went.

use serde::{Deserialize, Serialize};

/// Memory of the process and of the system, as the kernel counts it; `None` = it does not tell.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryState {
    /// Resident anonymous memory of the process (`RssAnon`).
    pub anon_bytes: Option<u64>,
    /// Resident pages of files that the process has mapped (`RssFile`).
    pub file_bytes: Option<u64>,
    /// Memory of the process that was swapped out (`VmSwap`).
    pub swap_bytes: Option<u64>,
    /// What new programs could get without swapping (`MemAvailable`).
    pub available_bytes: Option<u64>,
    /// Memory that nothing uses (`MemFree`).
    pub free_bytes: Option<u64>,
    /// Swap space that nothing uses (`SwapFree`).
    pub swap_free_bytes: Option<u64>,
    /// Thousandths of the pages of mapped dense weights that are in memory (`dense_weights` = `mmap` or
    /// `warm`), looked at a few times a second.
    pub dense_resident_permille: Option<u16>,
}
