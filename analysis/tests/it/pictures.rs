//! Pictures of shapes at the edges: the smallest model, the widest, a long run.

use bmoe_analysis::data::{DataReader, RouteRow};
use bmoe_analysis::ingest;
use bmoe_analysis::plots::{Heatmap, Timeline};
use bmoe_analysis::routing::Routing;
use bmoe_trace::Mode;

use crate::folder::{Folder, cell, keep_picture};
use crate::synthetic::Shape;

/// The routes of a run of some shape.
fn routes(shape: Shape, tokens: u32) -> Vec<RouteRow> {
    let mut folder = Folder::new();
    folder.add_run_of(shape, &cell("m0", "mmap", Mode::Mmap, 0, 1), tokens);
    ingest(folder.path()).unwrap();
    DataReader::new(folder.path()).routes_of("m0-r0").unwrap()
}

#[test]
fn heatmaps_of_the_smallest_and_the_widest_model() {
    for (name, shape) in [
        ("small", Shape { layers: 1, experts: 4, top_k: 2 }),
        ("wide", Shape { layers: 26, experts: 256, top_k: 8 }),
    ] {
        let routes = routes(shape, 30);
        let routing = Routing::new(&routes, u32::from(shape.experts)).unwrap();
        let heatmap = Heatmap { routing: &routing, model: name, run: "mmap" };
        let picture = heatmap.render().unwrap();
        // One rectangle for each expert that was used, over one for all the others; the colour bar has
        // one per pixel.
        let used: usize = routing.touched().iter().sum();
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
    let picture = timeline.render().unwrap();
    assert!(picture.svg.contains("time of each of 1200 decode tokens (means of 3)"));
    keep_picture("long-timeline.png", &picture.png);
}
