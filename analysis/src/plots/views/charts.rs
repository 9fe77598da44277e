//! Views that are lines or bars.

use super::Labels;
use crate::plots::chart::{Axis, AxisKind, Chart, Series, Shape};
use crate::plots::theme::{BLUE, GREEN, GREY, ORANGE, PURPLE, RED, SERIES, SKY};
use crate::routes::views::{
    Bin, ByteStep, Bytes, Cache, CacheRow, Drift, Entropy, LagRepeats, LayerEntropy, LayerPhases,
    Loops, Overlap, Reuse, Window, Workset,
};
use crate::tabular::MIB;
use plotters::style::RGBColor;

/// More bars than this are drawn as means of neighbours.
const MOST_BARS: usize = 560;

fn line(name: &str, colour: RGBColor, points: Vec<(f64, f64)>) -> Series {
    Series { name: name.to_owned(), colour, shape: Shape::Line(points) }
}

fn bars(name: &str, colour: RGBColor, values: Vec<f64>) -> Series {
    Series { name: name.to_owned(), colour, shape: Shape::Bars(values) }
}

fn numbers(name: &str, from: f64, to: f64) -> Axis {
    Axis { name: name.to_owned(), kind: AxisKind::Numbers(from, to) }
}

fn places(name: &str, labels: Vec<String>) -> Axis {
    Axis { name: name.to_owned(), kind: AxisKind::Places(labels) }
}

pub(super) fn reuse(view: &Reuse, labels: &Labels<'_>) -> Vec<Chart> {
    let panel = |(unit, bins, all, cold): (&str, &[Bin], u64, u64)| {
        let share = |uses: u64| 100.0 * uses as f64 / all as f64;
        let mut names: Vec<String> = bins.iter().map(bin_name).collect();
        names.push("first use".to_owned());
        let mut reused: Vec<f64> = bins.iter().map(|bin| share(bin.uses)).collect();
        reused.push(0.0);
        let mut first = vec![0.0; bins.len()];
        first.push(share(cold));
        let (what, axis) = if unit == "tokens" {
            (
                "tokens since an expert's last use",
                "tokens since the last use (1 = the token before)",
            )
        } else {
            (
                "MiB of experts used since an expert's last use",
                "MiB of distinct experts used since (an LRU cache of so many MiB still holds it)",
            )
        };
        Chart {
            title: labels.title(what),
            subtitle: labels.subtitle(),
            x: places(axis, names),
            y_name: if unit == "tokens" { "uses, %" } else { "look-ups, %" }.to_owned(),
            y_least: 0.0,
            series: vec![bars("used before", BLUE, reused), bars("first use", ORANGE, first)],
            levels: Vec::new(),
        }
    };
    view.parts().into_iter().filter(|part| part.2 > 0).map(panel).collect()
}

fn bin_name(bin: &Bin) -> String {
    if bin.to - bin.above == 1 {
        bin.to.to_string()
    } else {
        format!("{}–{}", bin.above + 1, bin.to)
    }
}

pub(super) fn overlap(view: &Overlap, labels: &Labels<'_>) -> Chart {
    let known = |lag: usize| {
        let of = view.layers.iter().filter_map(move |l| l.lags[lag]);
        let low = of.clone().fold(f64::INFINITY, f64::min);
        let high = of.fold(0.0, f64::max);
        view.mean[lag].map(|mean| ((lag + 1) as f64, low * 100.0, mean * 100.0, high * 100.0))
    };
    let points: Vec<_> = (0..view.mean.len()).filter_map(known).collect();
    let mean = points.iter().map(|(lag, _, mean, _)| (*lag, *mean)).collect();
    let mut series = vec![line(
        if view.layers.len() > 1 { "mean of the layers" } else { "the layer" },
        BLUE,
        mean,
    )];
    if view.layers.len() > 1 {
        let band = points.iter().map(|(lag, low, _, high)| (*lag, *low, *high)).collect();
        let shape = Shape::Band(band);
        series.insert(0, Series { name: "lowest to highest layer".into(), colour: BLUE, shape });
    }
    Chart {
        title: labels.title("experts shared with earlier tokens"),
        subtitle: labels.subtitle(),
        x: numbers("tokens back", 1.0, view.mean.len() as f64),
        y_name: "share of a token's experts, %".to_owned(),
        y_least: 0.0,
        series,
        levels: vec![(view.random * 100.0, format!("by chance {:.1} %", view.random * 100.0))],
    }
}

pub(super) fn workset(view: &Workset, labels: &Labels<'_>) -> Chart {
    let sized = view.bank_bytes > 0;
    let amount = |experts: f64, bytes: f64| if sized { bytes / MIB } else { experts };
    let mut growth: Vec<(f64, f64)> = vec![(0.0, 0.0)];
    let each = view.growth.len().div_ceil(MOST_BARS).max(1);
    let sampled = view.growth.iter().step_by(each).chain(view.growth.last());
    growth.extend(sampled.map(|g| (g.tokens as f64, amount(g.experts as f64, g.bytes as f64))));
    let windows = |of: &dyn Fn(&Window) -> f64| -> Vec<(f64, f64)> {
        view.windows.iter().map(|w| (w.tokens as f64, of(w))).collect()
    };
    let budget = |bytes: u64| {
        let share = 100.0 * bytes as f64 / view.bank_bytes as f64;
        (bytes as f64 / MIB, format!("{:.0} MiB, {share:.1} % of all experts", bytes as f64 / MIB))
    };
    Chart {
        title: labels.title("distinct experts that tokens in a row use"),
        subtitle: labels.subtitle(),
        x: numbers("tokens in a row", 0.0, view.tokens as f64),
        y_name: if sized { "distinct experts, MiB" } else { "distinct experts" }.to_owned(),
        y_least: 0.0,
        series: vec![
            line(
                "most of any window",
                ORANGE,
                windows(&|w| amount(w.max_experts as f64, w.max_bytes as f64)),
            ),
            line("mean of all windows", BLUE, windows(&|w| amount(w.mean_experts, w.mean_bytes))),
            line("from the first token on", GREEN, growth),
        ],
        levels: view.budgets.iter().map(|fit| budget(fit.budget_bytes)).collect(),
    }
}

pub(super) fn cache(view: &Cache, labels: &Labels<'_>) -> Vec<Chart> {
    let panel = |phase: &str| {
        let of_phase = || view.rows.iter().filter(|row| row.phase == phase);
        let rows: Vec<&CacheRow> = of_phase().filter(|row| row.layer.is_some()).collect();
        let share = |of: &dyn Fn(&CacheRow) -> u64| -> Vec<f64> {
            let percent = |row: &&CacheRow| 100.0 * of(row) as f64 / row.lookups.max(1) as f64;
            rows.iter().map(percent).collect()
        };
        let number = |row: &&CacheRow| row.layer.map(|l| l.to_string());
        let all = of_phase().find(|row| row.layer.is_none()).or_else(|| of_phase().next());
        let mib = match all {
            Some(row) if view.has_bytes => format!("; {:.0} MiB read", row.read_bytes as f64 / MIB),
            _ => String::new(),
        };
        let hits = all.and_then(CacheRow::hit_share).unwrap_or(0.0) * 100.0;
        Chart {
            title: labels.title(&format!("where experts came from, {phase}")),
            subtitle: format!("{}; hit rate {hits:.1} %{mib}", labels.layers()),
            x: places("layer", rows.iter().filter_map(number).collect()),
            y_name: "look-ups, %".to_owned(),
            y_least: 100.0,
            series: vec![
                bars("in the cache", BLUE, share(&|row| row.hits)),
                bars("read ahead", SKY, share(&|row| row.prefetch_hits)),
                bars("read again", ORANGE, share(&|row| row.misses - row.cold_misses)),
                bars("first use", GREY, share(&|row| row.cold_misses)),
            ],
            levels: Vec::new(),
        }
    };
    ["prefill", "decode"]
        .into_iter()
        .filter(|phase| view.rows.iter().any(|row| row.phase == *phase))
        .map(panel)
        .collect()
}

pub(super) fn entropy(view: &Entropy, labels: &Labels<'_>) -> Chart {
    let over = |of: &dyn Fn(&LayerEntropy) -> Option<f64>| -> Vec<(f64, f64)> {
        let layers = view.layers.iter().enumerate();
        layers.filter_map(|(place, l)| Some((place as f64 + 0.5, of(l)?))).collect()
    };
    let mut series = vec![line("of the layer's routes", BLUE, over(&|l| l.effective_experts))];
    let weighted = over(&|l| l.effective_weighted);
    if !weighted.is_empty() {
        series.push(line("of one token's weights", RED, weighted));
    }
    Chart {
        title: labels.title("effective experts, 2 to the entropy"),
        subtitle: labels.subtitle(),
        x: places("layer", view.layers.iter().map(|l| l.layer.to_string()).collect()),
        y_name: "effective experts".to_owned(),
        y_least: 0.0,
        series,
        levels: vec![(f64::from(view.n_expert), format!("{} if even", view.n_expert))],
    }
}

pub(super) fn bytes(view: &Bytes, labels: &Labels<'_>) -> Chart {
    let each = view.steps.len().div_ceil(MOST_BARS).max(1);
    let chunks: Vec<_> = view.steps.chunks(each).collect();
    let mean = |of: &dyn Fn(&ByteStep) -> u64| -> Vec<f64> {
        let of_chunk =
            |c: &&[ByteStep]| c.iter().map(of).sum::<u64>() as f64 / c.len() as f64 / MIB;
        chunks.iter().map(of_chunk).collect()
    };
    let mut series = vec![
        bars("first used", GREY, mean(&|s| s.first_use_bytes)),
        bars("used before", SKY, mean(&|s| s.demand_bytes - s.first_use_bytes)),
    ];
    if view.steps.iter().any(|step| step.read_bytes.is_some()) {
        let read = mean(&|s| s.read_bytes.unwrap_or(0));
        let points = read.into_iter().enumerate().map(|(i, mib)| (i as f64 + 0.5, mib)).collect();
        series.push(line("read by the recorded run", PURPLE, points));
    }
    let means = if each > 1 { format!("; means of {each} steps") } else { String::new() };
    Chart {
        title: labels.title("expert bytes of each step"),
        subtitle: format!("{}{means}", labels.subtitle()),
        x: places(
            "position in the text (a micro-batch of the prompt is one step)",
            chunks.iter().map(|steps| steps[0].position.to_string()).collect(),
        ),
        y_name: "MiB".to_owned(),
        y_least: 0.0,
        series,
        levels: Vec::new(),
    }
}

pub(super) fn drift(view: &Drift, labels: &Labels<'_>) -> Chart {
    let rows: Vec<&LayerPhases> = view.layers.iter().filter(|l| l.layer.is_some()).collect();
    let over = |of: &dyn Fn(&LayerPhases) -> Option<f64>| -> Vec<(f64, f64)> {
        let layers = rows.iter().enumerate();
        layers.filter_map(|(place, l)| Some((place as f64 + 0.5, of(l)?))).collect()
    };
    let neighbours = |l: &LayerPhases| {
        crate::stats::mean(&l.quarters_bits.iter().flatten().copied().collect::<Vec<_>>())
    };
    let lines = [
        ("prompt / generated", over(&|l| l.prompt_decode_bits)),
        ("first / last quarter", over(&|l| l.first_last_bits)),
        ("neighbouring quarters", over(&neighbours)),
        ("by chance", over(&|l| l.chance_bits)),
    ];
    let colours = [SERIES[0], SERIES[1], SERIES[2], GREY];
    let series = lines.into_iter().zip(colours).filter(|((_, points), _)| !points.is_empty());
    Chart {
        title: labels.title("how the parts of the text differ in their experts"),
        subtitle: format!("{}; quarters are of the generated tokens", labels.layers()),
        x: places(
            "layer",
            rows.iter().filter_map(|l| l.layer).map(|layer| layer.to_string()).collect(),
        ),
        y_name: "Jensen-Shannon divergence, bits".to_owned(),
        y_least: 0.0,
        series: series.map(|((name, points), colour)| line(name, colour, points)).collect(),
        levels: Vec::new(),
    }
}

pub(super) fn loops(view: &Loops, labels: &Labels<'_>) -> Chart {
    let over = |of: &dyn Fn(&LagRepeats) -> f64| -> Vec<(f64, f64)> {
        view.lags.iter().map(|l| (l.lag as f64, of(l) * 100.0)).collect()
    };
    let verdict = if view.warning { "the routes repeat themselves" } else { "no loop" };
    Chart {
        title: labels.title("exact repeats of the routes"),
        subtitle: format!("{}; {verdict}", labels.subtitle()),
        x: numbers("steps back", 1.0, view.lags.len().max(2) as f64),
        y_name: "repeated exactly, %".to_owned(),
        y_least: 1.0,
        series: vec![
            line("(step, layer) pairs", BLUE, over(&|l| l.layer_steps)),
            line("whole steps", RED, over(&|l| l.whole_steps)),
        ],
        levels: Vec::new(),
    }
}
