//! Pictures of shapes at the edges: the smallest model, the widest, a long run.

use bmoe_analysis::data::DataReader;
use bmoe_analysis::ingest;
use bmoe_analysis::plots::{
    Heatmap, Theme, Timeline, predict_picture, view_picture, whatif_picture,
};
use bmoe_analysis::routes::predict::{Predict, PredictOptions};
use bmoe_analysis::routes::tokens::Phases;
use bmoe_analysis::routes::views::{Hot, Selection, View};
use bmoe_analysis::routes::whatif::{WhatIf, WhatIfOptions};
use bmoe_analysis::routes::{LoadOptions, RouteTrace, load};
use bmoe_cache::PolicyKind;
use bmoe_trace::Mode;

use crate::folder::{Folder, cell, keep_picture};
use crate::synthetic::Shape;
use crate::traces::{qwen3, toy};

/// The routes of a run of some shape.
fn routes(shape: Shape, tokens: u32) -> RouteTrace {
    let mut folder = Folder::new();
    folder.add_run_of(shape, &cell("m0", "mmap", Mode::Mmap, 0, 1), tokens);
    load(&folder.trace_path("m0-r0"), LoadOptions::default()).unwrap()
}

#[test]
fn heatmaps_of_the_smallest_and_the_widest_model() {
    for (name, shape) in [
        ("small", Shape { layers: 1, experts: 4, top_k: 2 }),
        ("wide", Shape { layers: 26, experts: 256, top_k: 8 }),
    ] {
        let hot = Hot::new(&routes(shape, 30), &Selection::default()).unwrap();
        let heatmap = Heatmap { hot: &hot, model: name, run: "mmap" };
        let picture = heatmap.render(Theme::Auto).unwrap();
        // One rectangle for each expert that was used, over one for all the others; the colour bar has
        // one per pixel.
        let used: usize = hot.layers.iter().map(|l| l.touched).sum();
        let rectangles = picture.svg.matches("<rect").count();
        assert!(rectangles > used && rectangles < used + 700, "{rectangles} for {used}");
        keep_picture(&format!("{name}-experts.png"), &picture.png);
    }
}

#[test]
fn a_long_run_is_drawn_in_means_of_tokens() {
    let mut folder = Folder::new();
    let cached = cell("s1", "stream, cache 200 MiB, 2 lanes", Mode::Stream, 200, 2);
    folder.add_run(&cached, 1200);
    ingest(folder.path()).unwrap();
    let tokens = &DataReader::new(folder.path()).tokens().unwrap()["s1-r0"];
    let timeline = Timeline {
        tokens,
        model: "qwen-tiny",
        cell: &cached.name,
        streams: true,
        overlaps: false,
        cached: true,
    };
    let picture = timeline.render(Theme::Auto).unwrap();
    assert!(picture.svg.contains("time of each of 1200 decode tokens (means of 3)"));
    keep_picture("long-timeline.png", &picture.png);
}

#[test]
fn every_view_is_drawn_of_a_small_trace_and_of_a_real_one() {
    for trace in std::iter::once(toy()).chain(qwen3()) {
        let name = trace.name.clone();
        let layer = trace.layers[1].index;
        for view in View::ALL {
            for (kind, selection) in [
                ("decode", Selection::of(Phases::Decode)),
                ("all", Selection::of(Phases::All)),
                ("layer", Selection { layer: Some(layer), ..Selection::default() }),
            ] {
                let shown = view.of(&trace, &selection).unwrap();
                let picture = view_picture(&shown, &trace, &selection, Theme::Auto).unwrap();
                assert!(picture.svg.contains(&trace.layers.len().to_string()), "{view}");
                keep_picture(&format!("{name}-{view}-{kind}.png"), &picture.png);
            }
        }
        let predict = Predict::of(&trace, &PredictOptions::default()).unwrap();
        keep_picture(
            &format!("{name}-predict.png"),
            &predict_picture(&predict, &trace, Theme::Auto).unwrap().png,
        );
        let options =
            WhatIfOptions { policy: PolicyKind::Lru, budget_bytes: trace.bank_bytes() / 4 };
        let whatif = WhatIf::of(&trace, &options).unwrap();
        keep_picture(
            &format!("{name}-whatif.png"),
            &whatif_picture(&whatif, &trace, Theme::Dark).unwrap().png,
        );
    }
}
