//! Reading experts before a layer asks for them. It only warms the cache: what is computed with is decided by
//! the router alone.

use bmoe_cache::Admission;
use bmoe_trace::record::ReadPurpose;

use super::ExpertStore;
use super::frames::Slice;

impl ExpertStore {
    /// Reads an expert on idle lanes, if the cache takes it. False when it is there already or there is no room
    /// for it.
    pub fn read_early(&mut self, layer: usize, expert: u16, purpose: ReadPurpose) -> bool {
        if !self.frames.has_room_for(layer) {
            return false;
        }
        let Admission::Admitted { evicted } = self.cache.prefetch(layer, expert) else {
            return false;
        };
        let evicted = evicted.to_vec();
        self.free_entries(&evicted);
        for at in 0..self.order[layer].len() {
            let projection = self.order[layer][at];
            let reserved = self.frames.reserve(Slice { layer, expert, projection }, purpose);
            assert!(reserved, "room for the expert was there a moment ago");
        }
        self.stats.speculated += 1;
        self.stats.speculated_bytes += self.frames.submit();
        self.peak_cache_bytes = self.peak_cache_bytes.max(self.cache.resident_bytes());
        true
    }

    /// Remembers what a token used, and reads what the token before it used in the next `layers` layers (in the
    /// first ones again behind the last: those are the next token's). `experts` are the token's own.
    pub fn prefetch_after(&mut self, layer: usize, experts: &[u16], layers: u32) {
        let n_layers = self.order.len();
        self.last_token.resize(n_layers, Vec::new());
        self.last_token[layer].clear();
        self.last_token[layer].extend_from_slice(experts);
        for ahead in 1..=(layers as usize).min(n_layers.saturating_sub(1)) {
            let layer = (layer + ahead) % n_layers;
            let wanted = std::mem::take(&mut self.last_token[layer]);
            for &expert in &wanted {
                self.read_early(layer, expert, ReadPurpose::Prefetch);
            }
            self.last_token[layer] = wanted;
        }
    }
}
