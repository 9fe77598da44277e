//! Pictures of a run, each as SVG and as PNG from the same drawing.

mod canvas;
mod heatmap;
mod timeline;

pub use canvas::Picture;
pub use heatmap::Heatmap;
pub use timeline::Timeline;
