//! From a coarse sweep to a fine one: an ordinary matrix around the fastest cell.

use bmoe_analysis::cells::Figures;
use bmoe_analysis::measured::Measured;
use bmoe_trace::{CacheBudget, Mode, RunConfig};

use crate::matrix::{Matrix, Model};

/// Repetitions of the fine matrix: what a comparison needs to tell up to six differences from chance.
const REPETITIONS: u32 = 5;
/// Budgets are multiples of this.
const CACHE_STEP_MIB: u64 = 50;
/// Most read lanes of the engine.
const MOST_LANES: u32 = 8;

/// A fine matrix, and what it is around.
#[derive(Debug, Clone, PartialEq)]
pub struct Refined {
    /// The matrix, as TOML.
    pub toml: String,
    /// The fastest cell.
    pub around: String,
    /// Its mean rate.
    pub tok_s: f64,
    /// Cells of the fine matrix.
    pub cells: usize,
}

/// The values of a setting next to the fastest cell's: halfway to the next lower and the next higher one that was
/// measured; beyond the ends a quarter further.
fn between(best: u64, measured: &[u64], step: u64, highest: u64) -> Vec<u64> {
    let round = |value: u64| (value + step / 2) / step * step;
    let lower = measured.iter().copied().filter(|v| *v < best).max();
    let higher = measured.iter().copied().filter(|v| *v > best).min();
    let below = lower.map_or(best - best / 4, |lower| u64::midpoint(lower, best));
    let above = higher.map_or(best + (best / 4).max(step), |higher| u64::midpoint(best, higher));
    let mut values: Vec<u64> = [below, above].map(round).to_vec();
    values.retain(|v| *v != best && *v > 0 && *v <= highest && !measured.contains(v));
    values.dedup();
    values
}

/// The matrix around the fastest valid, lossless, streamed cell of a folder.
///
/// # Errors
/// There is none; the message says what there is.
pub fn refine(measured: &Measured, matrix: &Matrix) -> Result<Refined, String> {
    let cells = measured.cells();
    let rate = |cell: &bmoe_analysis::cells::Cell<'_>| {
        Some(Figures::pooled(&measured.valid_runs(cell))?.rates?.mean)
    };
    let streamed = |cell: &&bmoe_analysis::cells::Cell<'_>| {
        cell.config.mode == Mode::Stream && cell.attempts.iter().all(|attempt| attempt.lossless)
    };
    let rated = cells.iter().filter(streamed).filter_map(|cell| Some((cell, rate(cell)?)));
    let Some((best, tok_s)) = rated.max_by(|a, b| a.1.total_cmp(&b.1)) else {
        return Err("it has no valid, lossless, streamed cell to go on from".to_owned());
    };
    let model = matrix
        .models
        .iter()
        .find(|model| model.name == best.model)
        .ok_or_else(|| format!("its matrix has no model `{}`", best.model))?;
    let of_model: Vec<&RunConfig> = cells
        .iter()
        .filter(|cell| cell.model == best.model && cell.config.mode == Mode::Stream)
        .map(|cell| cell.config)
        .collect();
    let values = |of: &dyn Fn(&RunConfig) -> Option<u64>| -> Vec<u64> {
        of_model.iter().filter_map(|config| of(config)).collect()
    };
    let mib = |config: &RunConfig| match config.cache_mib {
        CacheBudget::Mib(mib) => Some(mib),
        CacheBudget::Auto => None,
    };
    let mut variants: Vec<String> = Vec::new();
    if let Some(budget) = mib(best.config) {
        let others = between(budget, &values(&mib), CACHE_STEP_MIB, u64::MAX);
        variants.extend(others.iter().map(|mib| format!("cache_mib = {mib}")));
    }
    let lanes = between(
        best.config.io_threads.into(),
        &values(&|config| Some(config.io_threads.into())),
        1,
        MOST_LANES.into(),
    );
    variants.extend(lanes.iter().map(|lanes| format!("io_threads = {lanes}")));
    if best.config.threads > 0 {
        let threads = between(
            best.config.threads.into(),
            &values(&|config| Some(config.threads.into())),
            1,
            u64::MAX,
        );
        variants.extend(threads.iter().map(|threads| format!("threads = {threads}")));
    }
    variants.push(format!("overlap = {}", !best.config.overlap));
    let base = base(best.config)?;
    let mut toml = format!(
        "# Around the fastest cell of a sweep, \"{}\" ({tok_s:.2} tok/s): one setting at a time.\nname = \"{}-fine\"\n\
         repetitions = {REPETITIONS}\ntimeout_s = {}\nbaseline = {{ cache_mib = {}, io_threads = {}, threads = {}, overlap = {} }}\n\n\
         [[model]]\n{}\n[base]\n{base}\n[[cell]]\n",
        best.name,
        matrix.name,
        matrix.timeout_s,
        mib(best.config).map_or_else(|| "\"auto\"".to_owned(), |mib| mib.to_string()),
        best.config.io_threads,
        best.config.threads,
        best.config.overlap,
        described(model),
    );
    for variant in &variants {
        toml += &format!("\n[[cell]]\n{variant}\n");
    }
    Ok(Refined { toml, around: best.name.to_owned(), tok_s, cells: variants.len() + 1 })
}

/// The settings of a run that are not the default, as TOML.
fn base(config: &RunConfig) -> Result<String, String> {
    let table = |config: &RunConfig| toml::Table::try_from(config).map_err(|e| e.to_string());
    let (mut set, default) = (table(config)?, table(&RunConfig::default())?);
    set.retain(|key, value| key != "model" && default.get(key) != Some(value));
    toml::to_string(&set).map_err(|e| e.to_string())
}

fn described(model: &Model) -> String {
    let text = |value: &str| toml::Value::from(value).to_string();
    let mut lines = format!("name = {}\n", text(&model.name));
    if let Some(path) = &model.path {
        lines += &format!("path = {}\n", text(&path.to_string_lossy()));
    }
    if let Some(sha256) = &model.sha256 {
        lines += &format!("sha256 = {}\n", text(sha256));
    }
    if let Some(synth) = &model.synth {
        let layers = synth.layers.map_or_else(String::new, |layers| format!(", layers = {layers}"));
        lines += &format!(
            "synth = {{ shape = {}{layers}, seed = {} }}\n",
            text(&synth.shape),
            synth.seed
        );
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::between;

    #[test]
    fn neighbours_lie_halfway_and_beyond_the_ends_a_quarter_further() {
        assert_eq!(between(2000, &[0, 2000, 4000], 50, u64::MAX), [1000, 3000]);
        assert_eq!(between(4000, &[0, 2000, 4000], 50, u64::MAX), [3000, 5000]);
        assert_eq!(between(4, &[1, 4], 1, 8), [2, 5]);
        assert_eq!(between(8, &[4, 8], 1, 8), [6]);
        assert_eq!(between(1, &[1, 2], 1, 8), [0_u64; 0]);
        assert_eq!(between(0, &[0, 2000], 50, u64::MAX), [1000]);
    }
}
