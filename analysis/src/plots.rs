//! Pictures of a run, each as SVG and as PNG from the same drawing.

mod canvas;
mod chart;
mod grid;
mod heatmap;
mod theme;
mod timeline;
mod views;

pub use canvas::Picture;
pub use heatmap::Heatmap;
pub use timeline::Timeline;
pub use views::{predict_picture, view_picture, whatif_picture};
