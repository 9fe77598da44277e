//! Pictures of a run, each as SVG and as PNG from the same drawing, light or dark.

mod canvas;
mod chart;
mod dark;
mod distribution;
mod grid;
mod heatmap;
mod policies;
mod theme;
mod timeline;
mod views;

pub use canvas::Picture;
pub use distribution::Distribution;
pub use heatmap::Heatmap;
pub use policies::{curve_picture, policies_picture};
pub use theme::Theme;
pub use timeline::Timeline;
pub use views::{predict_picture, view_picture, whatif_picture};
