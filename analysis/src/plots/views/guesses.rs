//! Predictions and changes.

use super::Labels;
use crate::plots::chart::{Axis, AxisKind, Chart, Series, Shape};
use crate::plots::theme::{GREY, SERIES};
use crate::routes::predict::{Predict, Predictor};
use crate::routes::whatif::WhatIf;

pub(super) fn predict(predict: &Predict, labels: &Labels<'_>) -> Chart {
    let shown = Predictor::ALL.into_iter().filter(|p| p.fitted_on() != "itself");
    let mut colours = SERIES.into_iter();
    let mut series = Vec::new();
    for predictor in shown {
        let rows = predict.rows.iter().filter(|row| row.predictor == predictor);
        let points: Vec<_> = rows
            .filter_map(|row| Some((row.experts as f64, row.found_held_out? * 100.0)))
            .collect();
        if points.is_empty() {
            continue;
        }
        let random = predictor == Predictor::Random;
        let colour = if random { GREY } else { colours.next().unwrap_or(GREY) };
        series.push(Series {
            name: predictor.name().to_owned(),
            colour,
            shape: Shape::Line(points),
        });
    }
    let most = predict.rows.iter().map(|row| row.experts).max().unwrap_or(1);
    Chart {
        title: labels.title("experts found before the router runs"),
        subtitle: format!(
            "share of a layer's {} experts (of {}); the last {} generated tokens, held out",
            predict.top_k, predict.n_expert, predict.held_out_tokens
        ),
        x: Axis {
            name: "experts guessed per layer".to_owned(),
            kind: AxisKind::Numbers(0.0, most as f64),
        },
        y_name: "found, %".to_owned(),
        y_least: 100.0,
        series,
        levels: Vec::new(),
    }
}

pub(super) fn whatif(whatif: &WhatIf, labels: &Labels<'_>) -> Chart {
    let mut series: Vec<Series> = Vec::new();
    let mut colours = SERIES.into_iter();
    for row in whatif.rows.iter().skip(1) {
        let Some(point) = row.weight_lost.zip(row.saved).map(|(x, y)| (x * 100.0, y * 100.0))
        else {
            continue;
        };
        let name = row.change.name();
        match series.iter_mut().find(|s| s.name == name) {
            Some(Series { shape: Shape::Line(points), .. }) => points.push(point),
            _ => series.push(Series {
                name: name.to_owned(),
                colour: colours.next().unwrap_or(GREY),
                shape: Shape::Line(vec![(0.0, 0.0), point]),
            }),
        }
    }
    for series in &mut series {
        if let Shape::Line(points) = &mut series.shape {
            points.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
        }
    }
    let lost = whatif.rows.iter().filter_map(|row| row.weight_lost).fold(0.01, f64::max);
    Chart {
        title: labels.title("bytes saved against routing weight lost"),
        subtitle: format!(
            "{} generated tokens, top-{}; lossy: text quality is not measured",
            whatif.tokens, whatif.top_k
        ),
        x: Axis {
            name: "routing weight lost, mean, %".to_owned(),
            kind: AxisKind::Numbers(0.0, lost * 100.0),
        },
        y_name: "bytes saved, %".to_owned(),
        y_least: 0.0,
        series,
        levels: Vec::new(),
    }
}
