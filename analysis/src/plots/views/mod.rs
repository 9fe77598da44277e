//! A picture for every view.

mod charts;
mod grids;
mod guesses;

use super::canvas::Picture;
use super::chart::{Chart, Panels};
use super::heatmap::Heatmap;
use super::theme::Theme;
use crate::markdown::one_line;
use crate::routes::RouteTrace;
use crate::routes::predict::Predict;
use crate::routes::tokens::Phases;
use crate::routes::views::{Selection, Shown};
use crate::routes::whatif::WhatIf;

/// What a picture says of the trace that it is of.
pub(super) struct Labels<'a> {
    /// Title: what is shown, of which trace.
    trace: &'a RouteTrace,
    phases: Phases,
    /// The only layer that is looked at.
    layer: Option<u32>,
}

impl Labels<'_> {
    fn title(&self, what: &str) -> String {
        format!("{}: {what}", one_line(&self.trace.name))
    }

    /// `48 MoE layers × 128 experts`, or the one that is looked at.
    fn layers(&self) -> String {
        let (layers, experts) = (self.trace.layers.len(), self.trace.n_expert);
        match self.layer {
            Some(layer) => format!("layer {layer}: {experts} experts"),
            None if layers == 1 => format!("1 MoE layer × {experts} experts"),
            None => format!("{layers} MoE layers × {experts} experts"),
        }
    }

    /// The same, and which tokens.
    fn subtitle(&self) -> String {
        let tokens = match self.phases {
            Phases::Decode => "decode tokens",
            Phases::Prefill => "prompt tokens",
            Phases::All => "prompt and decode tokens",
        };
        format!("{}; {tokens}", self.layers())
    }
}

/// Draws a view.
///
/// # Errors
/// The plotting library failed.
pub fn view_picture(
    shown: &Shown,
    trace: &RouteTrace,
    selection: &Selection,
    theme: Theme,
) -> Result<Picture, String> {
    let labels = Labels { trace, phases: selection.phases, layer: selection.layer };
    let one = |chart: Chart| Picture::render(&chart, theme);
    match shown {
        Shown::Matrix(view) => Picture::render(&grids::matrix(view, &labels), theme),
        Shown::Hot(view) => {
            let model = if trace.arch.is_empty() { &trace.name } else { &trace.arch };
            Heatmap { hot: view, model, run: &trace.name }.render(theme)
        }
        Shown::Coactivation(view) => Picture::render(&grids::coactivation(view, &labels), theme),
        Shown::Reuse(view) => Picture::render(&Panels(charts::reuse(view, &labels)), theme),
        Shown::Cache(view) => Picture::render(&Panels(charts::cache(view, &labels)), theme),
        Shown::Entropy(view) => one(charts::entropy(view, &labels)),
        Shown::Overlap(view) => one(charts::overlap(view, &labels)),
        Shown::Workset(view) => one(charts::workset(view, &labels)),
        Shown::Bytes(view) => one(charts::bytes(view, &labels)),
        Shown::Phases(view) => one(charts::drift(view, &labels)),
        Shown::Loops(view) => one(charts::loops(view, &labels)),
    }
}

/// Draws what predictors find against how many experts they name.
///
/// # Errors
/// The plotting library failed.
pub fn predict_picture(
    predict: &Predict,
    trace: &RouteTrace,
    theme: Theme,
) -> Result<Picture, String> {
    let labels = Labels { trace, phases: Phases::Decode, layer: None };
    Picture::render(&guesses::predict(predict, &labels), theme)
}

/// Draws the bytes that changes save against the weight that they lose.
///
/// # Errors
/// The plotting library failed.
pub fn whatif_picture(
    whatif: &WhatIf,
    trace: &RouteTrace,
    theme: Theme,
) -> Result<Picture, String> {
    let labels = Labels { trace, phases: Phases::Decode, layer: None };
    Picture::render(&guesses::whatif(whatif, &labels), theme)
}
