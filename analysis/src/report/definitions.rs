//! What the columns of a report mean.

use super::ModelPart;
use crate::stats::bootstrap;

const DEFINITIONS: &str = "\
## Definitions

- **tok/s mean**: decoded tokens over total decode seconds (not the mean of rates). Loading and the prompt
  are in none of the rates. With repetitions, all their tokens are pooled, and the parenthesis holds the 95 %
  interval.
- **× baseline**: the mean over the baseline's mean.
- **min, max, median, p5, p95**: over the rates of single tokens (1 / wall time), all of them, none dropped
  as warm-up; percentiles interpolate linearly between order statistics.
- **hit %**: distinct experts found in the cache over all looked up, per layer and micro-batch, from the
  start of the run, prompt included. *Decode hit %* leaves the prompt out. Without a cache: –.
- **MiB/token**: expert bytes that the engine fetched for an average token, those read ahead included; *MiB
  transferred* adds what alignment costs. In `mmap` mode the kernel fetches, unmeasured: –.
- **compute + I/O s/token**: time in the graph's own operations, and time in which the graph was blocked on
  expert reads. In `mmap` mode page faults are inside the compute time. *Lanes busy* sums the read
  lanes, so several lanes can be busy for longer than the graph waits. *Other* is the residual: sampling,
  graph set-up, telemetry.
- **first token s**: from the start of the process to the first sampled token, loading included (mean of
  the repetitions). **peak RSS**: highest resident memory of the process (highest of the repetitions);
  in `mmap` mode it counts the mapped pages.
- **verdict**: *valid* = ran to its end, and its text is the baseline's where that was required; what the
  data lack of such a run stands beside it. Cells that are not valid have no figures.
";

const OVERLAP: &str = "\
- **stall**: where reads overlap with computation there is no I/O wait but a stall: the time in which
  threads had nothing to compute because the experts left to do were still being read, averaged over the
  threads.
";

const AHEAD: &str = "\
- **experts read ahead**: prefetched or predicted, per token. *Of them used* counts hits on such experts
  before anything else had used them, *left unused* those that left the cache without a use; the rest was
  still there.
";

const RATE: &str = "\
- **MiB/s while reading**: bytes transferred over the time in which any read was outstanding.
";

const LOAD: &str = "\
- **load average**: before → after a run (mean of the repetitions), over the last minute. The engine's own
  threads are in the second figure, those of the run before in the first.
";

const INTERVALS: &str = "\
- **95 % interval**: bootstrap of RESAMPLES resamples, seed SEED: runs are drawn with replacement, then the
  tokens of each in circular blocks, as long as neighbouring tokens depend on each other; percentiles 2.5 and
  97.5. Of few runs such an interval is too narrow. † one run: what differs from run to run is not in it.
  *Means of the runs*: the lowest and the highest.
";

const AGAINST: &str = "\
- **Δ**: the cell's figure over the baseline's, less one. Where both decoded the same tokens, the blocks of a
  resample lie at the same tokens in all runs of both. **p**: two-sided test of Mann and Whitney on the runs'
  mean rates, corrected after Holm for the rows of a table; with fewer than 4 runs of a cell: –. *Says* needs p below
  0.05 and an interval apart from zero.
";

const STEADY: &str = "\
- **steady state**: without the first WARMUP decoded tokens of each run. No other table leaves tokens out.
";

const PRESSURE: &str = "\
- **under pressure**: extremes over all attempts at the cell, valid or not; temperatures in and out are means.
  *Peak RSS* is the process's; *MemAvailable*, *swap*, *pages swapped* and *memory pressure* are the system's.
  Faults are of the decode steps. What the target can't tell has no column.
";

/// Adds the definitions of what the models' tables hold.
pub(super) fn push(text: &mut String, models: &[ModelPart<'_>], warmup_tokens: usize) {
    text.push_str(DEFINITIONS);
    let figures = || models.iter().flat_map(|m| &m.rows).filter_map(|r| r.figures.as_ref());
    if figures().any(|f| f.overlaps) {
        text.push_str(OVERLAP);
    }
    if figures().any(|f| f.speculates) {
        text.push_str(AHEAD);
    }
    if figures().any(|f| f.read_rate_mib_s.is_some()) {
        text.push_str(RATE);
    }
    if models.iter().flat_map(|m| &m.rows).any(|r| r.cell.load_average().is_some()) {
        text.push_str(LOAD);
    }
    let rows = || models.iter().flat_map(|m| &m.rows);
    if rows().any(|r| r.intervals.is_some()) {
        let resamples = bootstrap::RESAMPLES.to_string();
        let seed = bootstrap::SEED.to_string();
        text.push_str(&INTERVALS.replace("RESAMPLES", &resamples).replace("SEED", &seed));
    }
    if rows().any(|r| r.against.is_some()) {
        text.push_str(AGAINST);
    }
    if rows().any(|r| r.steady.is_some()) {
        text.push_str(&STEADY.replace("WARMUP", &warmup_tokens.to_string()));
    }
    if rows().next().is_some() {
        text.push_str(PRESSURE);
    }
}
