//! How much memory a budget takes.

use super::layout::{ExpertLayout, ExpertTensor, LayerLayout};
use super::regions::Regions;

/// Memory that a store takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryPlan {
    /// Expert bytes that may stay between events.
    pub budget_bytes: u64,
    /// Everything else: frames of the experts being used now, alignment, and the frames that stay
    /// unused because sizes differ.
    pub event_room_bytes: u64,
    /// Experts per token that it was made for.
    pub top_k: u32,
}

impl MemoryPlan {
    /// For a budget (never more than the whole expert set) and a number of experts per token.
    #[must_use]
    pub fn new(layout: &ExpertLayout, budget_bytes: u64, top_k: u32) -> Self {
        let budget_bytes = budget_bytes.min(layout.total_bytes());
        let n_expert = u64::from(layout.n_expert);
        let all_frames: u64 = layout.layers.iter().map(|l| l.frame_bytes() * n_expert).sum();
        // Frames are a little longer than slices, most so in the layer with the smallest experts.
        let with_windows = layout
            .layers
            .iter()
            .map(|l| {
                (u128::from(budget_bytes) * u128::from(l.frame_bytes()))
                    .div_ceil(u128::from(l.expert_bytes().max(1))) as u64
            })
            .max()
            .unwrap_or(0)
            .min(all_frames);
        let top_k_frames = layout.layers.iter().map(LayerLayout::frame_bytes).max().unwrap_or(0)
            * u64::from(top_k);
        let arena_bytes = with_windows.max(budget_bytes)
            + top_k_frames
            + Regions::slack_bytes(&frame_sizes(layout));
        Self { budget_bytes, event_room_bytes: arena_bytes - budget_bytes, top_k }
    }

    /// The largest plan, in whole MiB of budget, that takes no more than `total_bytes` in all.
    #[must_use]
    pub fn within(layout: &ExpertLayout, total_bytes: u64, top_k: u32) -> Self {
        // The event room grows with the budget, so that of a larger budget is enough.
        let room = Self::new(layout, total_bytes, top_k).event_room_bytes;
        let budget_bytes = total_bytes.saturating_sub(room);
        if budget_bytes >= layout.total_bytes() {
            return Self::new(layout, budget_bytes, top_k);
        }
        Self::new(layout, budget_bytes >> 20 << 20, top_k)
    }

    /// All memory for experts.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        self.budget_bytes + self.event_room_bytes
    }
}

/// Frame sizes of all tensors, duplicates included.
pub(super) fn frame_sizes(layout: &ExpertLayout) -> Vec<u64> {
    layout.layers.iter().flat_map(|l| l.tensors.iter().map(ExpertTensor::frame_bytes)).collect()
}
