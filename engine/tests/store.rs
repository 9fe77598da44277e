//! The store against the files it reads: whatever the budget, the sizes and the events, every slice
//! handed out holds its file's bytes, and hits, misses and memory are what the cache says.
#![expect(unsafe_code, reason = "looks at the slices that the store hands out")]

use std::path::PathBuf;
use std::sync::Arc;

use bmoe_cache::{Cache, PolicyKind};
use bmoe_engine::flash::arena::Arena;
use bmoe_engine::flash::file::SliceFiles;
use bmoe_engine::flash::lanes::{LaneOptions, Lanes};
use bmoe_engine::flash::layout::{ExpertLayout, ExpertTensor, LayerLayout, Projection};
use bmoe_engine::flash::memory::MemoryPlan;
use bmoe_engine::flash::probe::probes;
use bmoe_engine::flash::store::{ExpertStore, StoreOptions};
use bmoe_trace::config::IoEngine;
use proptest::prelude::*;

const N_EXPERT: u32 = 7;

/// Writes files whose bytes tell their position, and lays experts out in them.
fn layout(dir: &std::path::Path, sizes: &[[u64; 3]], gap: u64) -> ExpertLayout {
    let files: Vec<PathBuf> = (0..2).map(|i| dir.join(format!("part-{i}"))).collect();
    let mut offsets = [gap, gap * 3];
    let mut layers = Vec::new();
    for (layer, sizes) in sizes.iter().enumerate() {
        let kinds = [Projection::Up, Projection::Gate, Projection::Down];
        let tensors = (0..3)
            .map(|p| {
                let file = (layer + p) % 2;
                let offset = offsets[file];
                offsets[file] += sizes[p] * u64::from(N_EXPERT) + gap;
                ExpertTensor {
                    name: format!("blk.{layer}.{p}"),
                    projection: kinds[p],
                    file,
                    offset,
                    slice_bytes: sizes[p],
                }
            })
            .collect();
        layers.push(LayerLayout { layer: layer as u32, tensors });
    }
    for (i, path) in files.iter().enumerate() {
        std::fs::write(path, (0..offsets[i]).map(|at| byte(i, at)).collect::<Vec<u8>>()).unwrap();
    }
    ExpertLayout { files, n_expert: N_EXPERT, layers }
}

fn byte(file: usize, at: u64) -> u8 {
    (at.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8 ^ (file as u8 * 85)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn slices_hold_their_bytes(
        sizes in prop::collection::vec([1u64..9000, 1u64..5000, 1u64..9000], 1..4),
        gap in 0u64..5000,
        budget_share in 0u64..130,
        direct in any::<bool>(),
        overlap in any::<bool>(),
        policy in prop::sample::select(PolicyKind::ALL.to_vec()),
        uring in any::<bool>(),
        order in Just(vec![0usize, 1, 2]).prop_shuffle(),
        events in prop::collection::vec(prop::collection::vec(0u16..N_EXPERT as u16, 1..12), 1..25),
        // Share of the first budget, now and then.
        resizes in prop::collection::vec(prop::option::weighted(0.3, 0u64..101), 25),
    ) {
        // Beside the sources: on the disk that the project is on, not on a tmpfs.
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let layout = layout(dir.path(), &sizes, gap);
        let budget = layout.total_bytes() * budget_share / 100;
        let plan = MemoryPlan::new(&layout, budget, 2);
        let (files, _) = SliceFiles::open(&layout.files, direct, &probes(&layout)).unwrap();
        let options = LaneOptions {
            lanes: 3,
            helpers: if overlap { 0 } else { 1 },
            engine: if uring { IoEngine::Uring } else { IoEngine::Pread },
            slices: ExpertStore::slices(&layout),
            record: false,
        };
        let lanes = Arc::new(Lanes::new(files, options).unwrap());
        let arena = Arena::new(plan.total_bytes()).unwrap();
        let sizes = layout.entry_sizes();
        let mut cache = Cache::new(sizes.clone(), plan.budget_bytes, policy.build(&sizes, 0));
        let mut store = ExpertStore::new(layout.clone(), plan, Arc::clone(&lanes), arena, StoreOptions { policy, overlap, poison: true });
        for layer in 0..layout.layers.len() {
            store.set_order(layer, &order);
        }

        let mut expected_bytes = 0;
        for (i, experts) in events.iter().enumerate() {
            let layer = i % layout.layers.len();
            if let Some(share) = resizes[i] {
                let budget = plan.budget_bytes * share / 100;
                let evicted = cache.set_budget(budget).len() as u64;
                prop_assert_eq!(store.resize(budget), evicted);
                prop_assert!(store.resident_bytes() <= budget);
            }
            let outcome = cache.event(layer, experts).clone();
            expected_bytes += outcome.misses.len() as u64 * layout.layers[layer].expert_bytes();
            store.begin(i as u32, layer, experts).unwrap();
            let mut distinct = experts.clone();
            distinct.sort_unstable();
            distinct.dedup();
            for &p in &order {
                let tensor = &layout.layers[layer].tensors[p];
                let mut seen = Vec::new();
                loop {
                    let round = store.next_round(p).unwrap().to_vec();
                    if round.is_empty() {
                        break;
                    }
                    for &expert in &round {
                        let range = tensor.slice(expert);
                        let pointer = store.slice(expert, p);
                        if let Some(pending) = store.pending(expert, p) {
                            prop_assert!(overlap && lanes.queue().wait_for(pending));
                        }
                        // SAFETY: the round says that the slice is in memory.
                        let got = unsafe {
                            std::slice::from_raw_parts(pointer, tensor.slice_bytes as usize)
                        };
                        let whole =
                            got.iter().zip(range.clone()).all(|(b, at)| *b == byte(tensor.file, at));
                        prop_assert!(whole, "layer {} {} expert {}", layer, p, expert);
                    }
                    seen.extend(round);
                    // The engine doesn't ask again when it knows that a round is the last one.
                    if i % 2 == 0 && store.finished(p) {
                        break;
                    }
                }
                seen.sort_unstable();
                prop_assert_eq!(&seen, &distinct);
            }
        }
        let stats = store.take_stats();
        prop_assert_eq!(store.counts(), cache.counts());
        prop_assert_eq!(stats.expert_read_bytes, expected_bytes);
        prop_assert!(store.peak_cache_bytes() <= plan.budget_bytes);
        prop_assert!(store.peak_event_bytes() <= plan.event_room_bytes);
    }
    /// Events that are given up anywhere leave nothing wrong to those that follow.
    #[test]
    fn abandoned_events_leave_nothing_behind(
        sizes in prop::collection::vec([1u64..9000, 1u64..5000, 1u64..9000], 1..3),
        budget_share in 0u64..80,
        overlap in any::<bool>(),
        policy in prop::sample::select(PolicyKind::ALL.to_vec()),
        events in prop::collection::vec(
            (prop::collection::vec(0u16..N_EXPERT as u16, 1..12), prop::option::of(0usize..5)),
            1..25,
        ),
    ) {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let layout = layout(dir.path(), &sizes, 100);
        let plan = MemoryPlan::new(&layout, layout.total_bytes() * budget_share / 100, 2);
        let (files, _) = SliceFiles::open(&layout.files, true, &probes(&layout)).unwrap();
        let options = LaneOptions {
            lanes: 3,
            helpers: if overlap { 0 } else { 1 },
            engine: IoEngine::Pread,
            slices: ExpertStore::slices(&layout),
            record: false,
        };
        let lanes = Arc::new(Lanes::new(files, options).unwrap());
        let arena = Arena::new(plan.total_bytes()).unwrap();
        let options = StoreOptions { policy, overlap, poison: true };
        let mut store = ExpertStore::new(layout.clone(), plan, Arc::clone(&lanes), arena, options);
        for (i, (experts, rounds)) in events.iter().enumerate() {
            let layer = i % layout.layers.len();
            store.begin(i as u32, layer, experts).unwrap();
            let mut left = rounds.unwrap_or(usize::MAX);
            'event: for (p, tensor) in layout.layers[layer].tensors.iter().enumerate() {
                loop {
                    if left == 0 {
                        store.abandon();
                        break 'event;
                    }
                    left -= 1;
                    let round = store.next_round(p).unwrap().to_vec();
                    for &expert in &round {
                        if let Some(pending) = store.pending(expert, p) {
                            prop_assert!(overlap && lanes.queue().wait_for(pending));
                        }
                        // SAFETY: the round says that the slice is in memory.
                        let got = unsafe {
                            let bytes = tensor.slice_bytes as usize;
                            std::slice::from_raw_parts(store.slice(expert, p), bytes)
                        };
                        let mut expected = tensor.slice(expert).map(|at| byte(tensor.file, at));
                        prop_assert!(got.iter().all(|b| Some(*b) == expected.next()));
                    }
                    if store.finished(p) {
                        break;
                    }
                }
            }
            prop_assert!(store.resident_bytes() <= plan.budget_bytes);
        }
    }
}
