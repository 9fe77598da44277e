//! A trace for benchmarks, and what each policy counts on it.
//!
//! 10 million accesses: 48 layers of 128 experts, top-8, where a token keeps a part of the token before it and draws the
//! rest from a skewed order of the layer's own, like routes of real models.

use bmoe_cache::PolicyKind;

/// MoE layers.
pub(crate) const LAYERS: usize = 48;
/// Experts per layer.
pub(crate) const EXPERTS: u32 = 128;
/// Experts per token and layer.
pub(crate) const TOP_K: usize = 8;
/// Experts of all events.
const ACCESSES: usize = 10_000_000;

/// Hits that each policy counts on the trace with a quarter of the bytes of all experts.
pub(crate) const HITS: [(PolicyKind, u64); 11] = [
    (PolicyKind::Lru, 5_739_707),
    (PolicyKind::Lfu, 5_825_186),
    (PolicyKind::LfuAged, 6_697_615),
    (PolicyKind::Lfru, 6_357_675),
    (PolicyKind::Fifo, 5_409_426),
    (PolicyKind::Sieve, 4_189_333),
    (PolicyKind::S3Fifo, 5_926_251),
    (PolicyKind::Arc, 5_398_273),
    (PolicyKind::LayerLru, 5_906_773),
    (PolicyKind::LayerLfu, 6_857_164),
    (PolicyKind::Random, 5_277_425),
];

/// `SplitMix64`.
struct Generator(u64);

impl Generator {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u32) -> u32 {
        (((self.next() >> 32) * u64::from(n)) >> 32) as u32
    }
}

/// The experts of all events, layer after layer, token after token. Integers only, so that it is the same
/// everywhere.
pub(crate) fn trace() -> Vec<[u16; TOP_K]> {
    let mut random = Generator(7);
    let order: Vec<Vec<u16>> = (0..LAYERS)
        .map(|_| {
            let mut order: Vec<u16> = (0..EXPERTS as u16).collect();
            for i in (1..order.len()).rev() {
                order.swap(i, random.below(i as u32 + 1) as usize);
            }
            order
        })
        .collect();
    let mut last = vec![[u16::MAX; TOP_K]; LAYERS];
    (0..ACCESSES / TOP_K)
        .map(|event| {
            let layer = event % LAYERS;
            let mut chosen = Vec::with_capacity(TOP_K);
            for expert in last[layer] {
                if expert != u16::MAX && random.below(100) < 30 {
                    chosen.push(expert);
                }
            }
            while chosen.len() < TOP_K {
                // The product of two draws prefers the low ranks.
                let rank = random.below(EXPERTS) * random.below(EXPERTS) / EXPERTS;
                let expert = order[layer][rank as usize];
                if !chosen.contains(&expert) {
                    chosen.push(expert);
                }
            }
            last[layer] = chosen.try_into().unwrap_or([0; TOP_K]);
            last[layer]
        })
        .collect()
}

/// Bytes of one expert of each layer: two sizes, as in Q4_K_M files.
pub(crate) fn layer_bytes() -> Vec<u64> {
    (0..LAYERS).map(|layer| if layer % 3 == 0 { 3_059_712 } else { 2_654_208 }).collect()
}
