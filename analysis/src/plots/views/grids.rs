//! Views that are grids.

use super::Labels;
use crate::plots::grid::{Grid, Scale};
use crate::routes::views::{Coactivation, Matrix};
use crate::stats::mean;

/// More columns than this are drawn as means of neighbours.
const MOST_COLUMNS: usize = 560;

/// Percentages as labels of a bar of shares.
fn percents() -> Vec<(f64, String)> {
    [0, 20, 40, 60, 80, 100].map(|p| (f64::from(p) / 100.0, p.to_string())).to_vec()
}

pub(super) fn matrix(view: &Matrix, labels: &Labels<'_>) -> Grid {
    if view.layers.len() == 1 { experts(view, labels) } else { layers(view, labels) }
}

/// Layer by step: the share of the experts that the step before used.
fn layers(view: &Matrix, labels: &Labels<'_>) -> Grid {
    let each = view.steps.len().div_ceil(MOST_COLUMNS).max(1);
    let columns: Vec<_> = view.steps.chunks(each).collect();
    let mut cells = Vec::with_capacity(columns.len() * view.layers.len());
    for layer in 0..view.layers.len() {
        for steps in &columns {
            let shares: Vec<f64> = steps
                .iter()
                .filter_map(|step| step.layers[layer].as_ref())
                .map(|cell| cell.repeats() as f64 / cell.experts.len() as f64)
                .collect();
            cells.push(mean(&shares));
        }
    }
    let means = if each > 1 { format!(" (means of {each})") } else { String::new() };
    Grid {
        title: labels.title("experts that the step before used, too"),
        subtitle: format!("{}; {} steps{means}", labels.subtitle(), view.steps.len()),
        rows: view.layers.iter().map(u32::to_string).collect(),
        columns: columns.iter().map(|steps| steps[0].position.to_string()).collect(),
        cells,
        x_name: "position in the text".to_owned(),
        y_name: "layer".to_owned(),
        scale: Scale::Bar {
            highest: 1.0,
            square_root: false,
            heading: vec!["repeated of the".to_owned(), format!("{} experts, %", view.top_k)],
            labels: percents(),
            mark: None,
        },
        nothing: "not computed",
    }
}

/// Expert by step in one layer.
fn experts(view: &Matrix, labels: &Labels<'_>) -> Grid {
    const USED: f64 = 0.25;
    const REPEATED: f64 = 0.85;
    let each = view.steps.len().div_ceil(MOST_COLUMNS).max(1);
    let columns: Vec<_> = view.steps.chunks(each).collect();
    let mut cells = vec![None; columns.len() * view.n_expert as usize];
    for (column, steps) in columns.iter().enumerate() {
        for cell in steps.iter().filter_map(|step| step.layers[0].as_ref()) {
            for (expert, repeated) in cell.experts.iter().zip(&cell.repeated) {
                let place = &mut cells[usize::from(*expert) * columns.len() + column];
                let value = if *repeated { REPEATED } else { USED };
                *place = Some(place.unwrap_or(0.0_f64).max(value));
            }
        }
    }
    let layer = view.layers.first().copied().unwrap_or_default();
    Grid {
        title: labels.title(&format!("experts of layer {layer}, step by step")),
        subtitle: format!(
            "top-{} of {} experts; {} steps",
            view.top_k,
            view.n_expert,
            view.steps.len()
        ),
        rows: (0..view.n_expert).map(|expert| expert.to_string()).collect(),
        columns: columns.iter().map(|steps| steps[0].position.to_string()).collect(),
        cells,
        x_name: "position in the text".to_owned(),
        y_name: "expert".to_owned(),
        scale: Scale::Kinds(vec![(USED, "used"), (REPEATED, "used, also the step before")]),
        nothing: "not used",
    }
}

/// Expert by expert in one layer: how much more often than by chance.
pub(super) fn coactivation(view: &Coactivation, labels: &Labels<'_>) -> Grid {
    let (mut cells, mut names, mut layer, mut tokens) = (Vec::new(), Vec::new(), 0, 0);
    if let Some(focus) = &view.focus {
        let places = 0..focus.experts.len();
        cells =
            places.clone().flat_map(|a| places.clone().map(move |b| focus.lift(a, b))).collect();
        names = focus.experts.iter().map(u16::to_string).collect();
        (layer, tokens) = (focus.layer, focus.tokens);
    }
    // A pair that was seen once with two rare experts has an enormous lift; it would leave the others dark.
    let mut sorted: Vec<f64> = cells.iter().flatten().copied().collect();
    sorted.sort_by(f64::total_cmp);
    let highest = crate::stats::percentile(&sorted, 0.99).unwrap_or(1.0).max(2.0).ceil();
    let marks = [0.0, 0.25, 0.5, 2.0, 4.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0, 50.0, 100.0];
    Grid {
        title: labels.title(&format!("which experts of layer {layer} come together")),
        subtitle: format!(
            "the {} hottest experts, the hottest first; {tokens} tokens",
            names.len()
        ),
        rows: names.clone(),
        columns: names,
        cells,
        x_name: "expert".to_owned(),
        y_name: "expert".to_owned(),
        scale: Scale::Bar {
            highest,
            square_root: true,
            heading: vec![
                "times as often as".to_owned(),
                format!("by chance ({highest:.0} or more"),
                "is the brightest)".to_owned(),
            ],
            labels: marks.map(|m| (m, m.to_string())).to_vec(),
            mark: Some((1.0, "1 = chance".to_owned())),
        },
        nothing: "",
    }
}
