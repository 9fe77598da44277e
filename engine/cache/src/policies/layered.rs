use crate::{EntrySizes, Key, Policy};

/// Any policy, partitioned: each layer owns an equal share of the budget, `floor(budget / layers)` bytes,
/// and evicts only its own entries, by a policy of its own.
#[derive(Debug, Clone)]
pub struct Layered<P> {
    layers: Vec<P>,
    n_expert: u32,
}

impl<P> Layered<P> {
    /// `make` gets the sizes of one layer alone, whose keys are `0..n_expert`, and the layer's number.
    #[must_use]
    pub fn new(sizes: &EntrySizes, make: impl Fn(&EntrySizes, usize) -> P) -> Self {
        let n_expert = sizes.n_expert();
        let layers = (0..sizes.layers())
            .map(|layer| make(&EntrySizes::new(&[sizes.layer_bytes(layer)], n_expert), layer))
            .collect();
        Self { layers, n_expert }
    }

    /// The layer's policy and the key there.
    #[inline]
    fn split(&mut self, key: Key) -> (&mut P, Key) {
        let layer = key.0 / self.n_expert;
        (&mut self.layers[layer as usize], Key(key.0 - layer * self.n_expert))
    }
}

impl<P: Policy> Policy for Layered<P> {
    #[inline]
    fn per_layer(&self) -> bool {
        true
    }

    fn set_budget(&mut self, bytes: u64) {
        self.layers.iter_mut().for_each(|policy| policy.set_budget(bytes));
    }

    #[inline]
    fn begin_token(&mut self) {
        self.layers.iter_mut().for_each(Policy::begin_token);
    }

    #[inline]
    fn announce(&mut self, key: Key) {
        let (policy, key) = self.split(key);
        policy.announce(key);
    }

    #[inline]
    fn insert(&mut self, key: Key) {
        let (policy, key) = self.split(key);
        policy.insert(key);
    }

    #[inline]
    fn hit(&mut self, key: Key) {
        let (policy, key) = self.split(key);
        policy.hit(key);
    }

    #[inline]
    fn repeat(&mut self, key: Key) {
        let (policy, key) = self.split(key);
        policy.repeat(key);
    }

    #[inline]
    fn evict(&mut self, layer: usize, protected: impl Fn(Key) -> bool) -> Option<Key> {
        let first = layer as u32 * self.n_expert;
        let victim = self.layers[layer].evict(0, |key| protected(Key(first + key.0)))?;
        Some(Key(first + victim.0))
    }
}
