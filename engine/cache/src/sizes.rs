/// A (layer, expert) pair as a dense number: `layer * n_expert + expert`, layers counted among the MoE
/// layers only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(pub u32);

impl Key {
    /// As an index into tables of all entries.
    #[inline]
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Bytes of every entry. All experts of a layer have one size; layers differ, because mixes like
/// Q4_K_M give some layers' tensors another type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntrySizes {
    layer_bytes: Vec<u64>,
    n_expert: u32,
}

impl EntrySizes {
    /// `expert_bytes[i]` = bytes of one expert of MoE layer `i`.
    #[must_use]
    pub fn new(expert_bytes: &[u64], n_expert: u32) -> Self {
        Self { layer_bytes: expert_bytes.to_vec(), n_expert }
    }

    /// Number of (layer, expert) pairs.
    #[must_use]
    pub fn entries(&self) -> usize {
        self.layer_bytes.len() * self.n_expert as usize
    }

    /// Number of MoE layers.
    #[must_use]
    pub fn layers(&self) -> usize {
        self.layer_bytes.len()
    }

    /// Experts in a layer.
    #[inline]
    #[must_use]
    pub const fn n_expert(&self) -> u32 {
        self.n_expert
    }

    /// Bytes of one expert of a layer.
    #[inline]
    #[must_use]
    pub fn layer_bytes(&self, layer: usize) -> u64 {
        self.layer_bytes[layer]
    }

    /// Bytes of an entry.
    #[inline]
    #[must_use]
    pub fn bytes(&self, key: Key) -> u64 {
        self.layer_bytes[self.layer(key)]
    }

    /// Bytes of all entries together.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        self.layer_bytes.iter().sum::<u64>() * u64::from(self.n_expert)
    }

    /// The entry of an expert in a layer.
    #[inline]
    #[must_use]
    pub fn key(&self, layer: usize, expert: u16) -> Key {
        debug_assert!(layer < self.layer_bytes.len() && u32::from(expert) < self.n_expert);
        Key(layer as u32 * self.n_expert + u32::from(expert))
    }

    /// The layer of an entry.
    #[inline]
    #[must_use]
    pub fn layer(&self, key: Key) -> usize {
        (key.0 / self.n_expert) as usize
    }

    /// The expert of an entry.
    #[inline]
    #[must_use]
    pub fn expert(&self, key: Key) -> u16 {
        (key.0 % self.n_expert) as u16
    }
}
