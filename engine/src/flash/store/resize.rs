//! Changing the budget between two tokens.

use super::ExpertStore;
use crate::flash::memory::MemoryPlan;

impl ExpertStore {
    /// Changes the budget, up to the one that the store was made with. When it shrinks, what the policy gives up
    /// leaves, the rest moves together, and the memory goes back to the system. To be called between two
    /// micro-batches. Returns the number of experts that had to leave.
    pub fn resize(&mut self, budget_bytes: u64) -> u64 {
        self.end_event();
        let plan = MemoryPlan::new(self.layout(), budget_bytes, self.plan.top_k);
        let evicted = self.cache.set_budget(plan.budget_bytes).to_vec();
        self.free_entries(&evicted);
        self.frames.resize(plan.budget_bytes, plan.total_bytes());
        self.plan = plan;
        evicted.len() as u64
    }
}
