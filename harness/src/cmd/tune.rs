//! `bmoe tune`

mod measure;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bmoe_analysis::cells::Figures;
use bmoe_analysis::curve::LruCurve;
use bmoe_analysis::measured::Measured;
use bmoe_analysis::routes::whatif::{Change, WhatIf, WhatIfOptions};
use bmoe_analysis::routes::{LoadOptions, RouteTrace, load};
use bmoe_analysis::simulate::{Accesses, Rules};

use bmoe_trace::Mode;

use self::measure::Place;
use super::ask;
use super::run::default_out;
use crate::atomic;
use crate::error::Error;
use crate::matrix::Synth;
use crate::say::say;
use crate::target::TargetError;
use crate::tune::candidates::{Candidate, predict, promising};
use crate::tune::log::{self, Entry};
use crate::tune::recipe::Answer;
use crate::tune::{Request, matrices, race};

/// Repetitions that each round adds to every cell that is still in the race.
const ROUND: u32 = 2;
/// Most repetitions of a cell.
const MOST_REPETITIONS: u32 = 20;
/// Most cells of the first round.
const MOST_CELLS: usize = 8;

/// Find the fastest lossless configuration of a device
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Measures the storage and the computation first, predicts what every cache, policy, number of lanes and threads would
give, and runs only what comes near the best prediction, with interleaved repetitions, until the best is told
from the others or the time is up. Prints the engine's options, why each is where it is, and what more cache would buy.
An interrupted tune goes on with --resume. docs/tune.md has the method.

Examples:
  bmoe tune --model models/qwen3-30b-a3b.gguf --target adb --time 30min
  bmoe tune --shape quickstart --time 3min --out runs/tune
  bmoe tune --shape qwen3-30b-a3b --layers 12 --memory-mib 2400 --lossy
  bmoe tune --resume runs/tune")]
pub(super) struct Args {
    /// The model, a GGUF file
    #[arg(long, value_name = "FILE", conflicts_with = "shape", required_unless_present_any = ["shape", "resume"])]
    model: Option<PathBuf>,
    /// Or a synthetic model: a shape of `bmoe synth --list`, or a shape file
    #[arg(long, value_name = "SHAPE")]
    shape: Option<String>,
    /// Only the first so many layers of the shape
    #[arg(long, value_name = "N", requires = "shape")]
    layers: Option<u32>,
    /// Where to run: `local`, `adb` or `adb:SERIAL`
    #[arg(long, value_name = "TARGET", default_value = "local")]
    target: String,
    /// The time for everything but sending files
    #[arg(long, value_name = "TIME", default_value = "20min", value_parser = humantime::parse_duration)]
    time: Duration,
    /// Memory for dense weights and cache [default: what is available, less an eighth]
    #[arg(long, value_name = "MIB")]
    memory_mib: Option<u64>,
    /// Also try fewer experts per token: faster, another text
    #[arg(long)]
    lossy: bool,
    /// The prompt
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "The old lighthouse keeper climbed the stairs and looked over the sea."
    )]
    prompt: String,
    /// Tokens of each run
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u32).range(16..=4096))]
    tokens: u32,
    /// The folder for everything, new or empty [default: runs/tune-<UTC date and time>]
    #[arg(short, long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Go on with a tune that was interrupted
    #[arg(long, value_name = "DIR", conflicts_with_all = ["model", "shape", "out", "dry_run"])]
    resume: Option<PathBuf>,
    /// Say what would be done, run nothing
    #[arg(long)]
    dry_run: bool,
    /// The engine to run [default: bmoe-engine beside this program]
    #[arg(long, value_name = "PATH", env = "BMOE_ENGINE")]
    engine: Option<PathBuf>,
    /// Where synthetic models are kept
    #[arg(long, value_name = "DIR", default_value = "models")]
    models: PathBuf,
}

pub(super) fn run(args: &Args) -> Result<(), Error> {
    let (request, out) = args.request()?;
    if args.dry_run {
        say!("would tune in {} for {} s at most:", out.display(), request.time_s);
        say!("1 probe: one run without a cache, and the computation with other numbers of threads");
        say!("2 disk: iobench on the model's expert slices");
        say!("3 predict: every cache, policy, lanes, threads and overlap");
        say!("4 race: at most {MOST_CELLS} configurations, {ROUND} repetitions a round");
        if request.lossy {
            say!("5 lossy: the winner with fewer experts per token");
        }
        return Ok(());
    }
    let place = Place::open(&out, &request)?;
    let tuned = place.tuned();
    tuned.map_err(|error| match error {
        Error::Interrupted { signal, .. } => Error::Interrupted {
            signal,
            what: format!("; `bmoe tune --resume {}` goes on", out.display()),
        },
        Error::TargetLost { reason, .. } => Error::Target(TargetError::Lost {
            target: request.target.clone(),
            reason: format!("{reason}; `bmoe tune --resume {}` goes on", out.display()),
        }),
        other => other,
    })
}

impl Args {
    fn request(&self) -> Result<(Request, PathBuf), Error> {
        if let Some(out) = &self.resume {
            let path = out.join("tune.json");
            let text = fs::read(&path).map_err(|e| {
                Error::Refused(format!(
                    "cannot go on in {}: {} cannot be read: {e}; expected a folder of `bmoe tune`",
                    out.display(),
                    path.display()
                ))
            })?;
            let request = serde_json::from_slice(&text)
                .map_err(|e| Error::Refused(format!("{} is damaged: {e}", path.display())))?;
            return Ok((request, out.clone()));
        }
        let absolute = |path: &Path| std::path::absolute(path).map_err(Error::io("find", path));
        if let Some(model) = self.model.as_deref().filter(|model| !model.is_file()) {
            return Err(Error::Refused(format!(
                "--model {}: there is no such file; give a GGUF file, or --shape for a synthetic model",
                model.display()
            )));
        }
        let synth = match self.shape.as_deref() {
            None => None,
            Some(shape) => {
                let path = Path::new(shape);
                let is_file = path.extension().is_some_and(|end| end == "toml");
                let path = if is_file { absolute(path)? } else { path.to_owned() };
                let shape = path.to_string_lossy().into_owned();
                Some(Synth { shape, layers: self.layers, seed: 0 })
            }
        };
        let request = Request {
            model: self.model.as_deref().map(absolute).transpose()?,
            synth,
            target: self.target.clone(),
            engine: self.engine.as_deref().map(absolute).transpose()?,
            models: absolute(&self.models)?,
            time_s: self.time.as_secs(),
            memory_mib: self.memory_mib,
            lossy: self.lossy,
            prompt: self.prompt.clone(),
            tokens: self.tokens,
        };
        Ok((request, self.out.clone().unwrap_or_else(|| default_out("tune"))))
    }
}

impl Place<'_> {
    /// Does what is not done yet, and writes the answer.
    fn tuned(&self) -> Result<(), Error> {
        let request = self.request;
        self.probe()?;
        let disk = self.disk()?;
        let probe = Measured::read(&self.folder.join("probe"))?;
        let trace = routes(&self.folder.join("probe"))?;
        let device = self.device_figures(&probe, disk, &trace)?;
        let refused = |e: bmoe_analysis::simulate::SimulateError| {
            Error::Refused(format!("the probe's routes: {e}"))
        };
        let predicted = predict(&trace, &device).map_err(refused)?;
        let accesses = Accesses::new(&trace, Rules::ENGINE);
        let curve = LruCurve::new(&accesses).map_err(refused)?;
        let Some(best) = predicted.first() else {
            return Err(Error::Engine(
                "nothing can be predicted: the storage's rate could not be measured".to_owned(),
            ));
        };
        eprintln!(
            "predicted best: {} ({:.2} tok/s); memory for the cache: {} MiB",
            crate::tune::recipe::options(&best.candidate),
            best.tok_s,
            device.cache_memory_mib
        );
        let most = self.affordable(best.tok_s);
        let candidates: Vec<Candidate> =
            promising(&predicted, most).into_iter().map(|p| p.candidate).collect();
        let decided = self.race(&candidates, self.fits_into_memory(&probe))?;
        let measured = Measured::read(&self.folder.join("race"))?;
        let (standing, out) = race::standing(&measured);
        let winner = standing.first().and_then(|first| {
            let cells = measured.cells();
            let config = cells.iter().find(|cell| cell.id == first.id)?.config;
            candidates.iter().find(|candidate| candidate.is_of(config))
        });
        let lossy = match winner {
            Some(winner) if request.lossy => self.lossy(winner, &trace, &probe)?,
            _ => Vec::new(),
        };
        let answer = Answer {
            request,
            winner,
            standing: &standing,
            out: &out,
            predicted: &predicted,
            device: &device,
            curve: &curve,
            tokens: trace.decode_tokens(),
            lossy: &lossy,
            decided,
            spent_s: log::spent_s(&self.log()?),
        };
        let text = answer.text();
        let write = |name: &str, text: &str| {
            let path = self.folder.join(name);
            atomic::write(&path, text.as_bytes()).map_err(Error::io("write", &path))
        };
        if let Some(toml) = answer.toml() {
            write("recipe.toml", &toml)?;
        }
        write("report.md", &text)?;
        ask::print(&format!("{text}\nreport   {}\n", self.folder.join("report.md").display()))?;
        if standing.is_empty() {
            return Err(Error::NotAllValid { invalid: out.len(), total: out.len() });
        }
        Ok(())
    }

    /// How many configurations the first round can afford in half of the time that is left.
    fn affordable(&self, tok_s: f64) -> usize {
        let spent = self.log().map_or(0.0, |entries| log::spent_s(&entries));
        let left_s = (self.request.time_s as f64 - spent).max(0.0);
        // Loading, the prompt and the gates take some seconds beside the tokens.
        let run_s = f64::from(self.request.tokens) / tok_s + 5.0;
        let most = left_s / 2.0 / (run_s * f64::from(ROUND));
        (most.floor() as usize).clamp(2, MOST_CELLS)
    }

    /// Rounds until the intervals decide or the time is up; whether they decide.
    fn race(&self, candidates: &[Candidate], mapped: bool) -> Result<bool, Error> {
        loop {
            let entries = self.log()?;
            let folder = self.folder.join("race");
            let (text, repetitions) = match log::last_round(&entries) {
                // One that was interrupted goes on as it was.
                Some((text, repetitions, false)) => (text.to_owned(), repetitions),
                Some((_, repetitions, true)) => {
                    let measured = Measured::read(&folder)?;
                    let (standing, _) = race::standing(&measured);
                    if race::is_decided(&standing) {
                        return Ok(true);
                    }
                    let time_left = self.request.time_s as f64 - log::spent_s(&entries);
                    if repetitions >= MOST_REPETITIONS || time_left <= 0.0 {
                        return Ok(false);
                    }
                    let left: Vec<&race::Runner> =
                        standing.iter().filter(|runner| !runner.is_beaten()).collect();
                    eprintln!(
                        "{} of {} configurations are still in the race",
                        left.len(),
                        standing.len()
                    );
                    let cells = measured.cells();
                    let configs: Vec<_> = cells
                        .iter()
                        .filter(|cell| left.iter().any(|runner| runner.id == cell.id))
                        .map(|cell| cell.config)
                        .collect();
                    let mapped = mapped && configs.iter().any(|c| c.mode == Mode::Mmap);
                    let in_race = |c: &&Candidate| configs.iter().any(|config| c.is_of(config));
                    let still: Vec<Candidate> =
                        candidates.iter().filter(in_race).cloned().collect();
                    let repetitions = repetitions + ROUND;
                    (matrices::race(self.request, &still, mapped, repetitions), repetitions)
                }
                None => (matrices::race(self.request, candidates, mapped, ROUND), ROUND),
            };
            if !matches!(log::last_round(&entries), Some((.., false))) {
                self.append(&Entry::Round { matrix: text.clone(), repetitions })?;
            }
            let begun = Instant::now();
            self.measure("race", &text)?;
            self.append(&Entry::RoundDone { seconds: begun.elapsed().as_secs_f64() })?;
        }
    }

    /// The winner with fewer experts: top-k, rate, and the share of the router's weight that is lost.
    fn lossy(
        &self,
        winner: &Candidate,
        trace: &RouteTrace,
        probe: &Measured,
    ) -> Result<Vec<(u32, f64, Option<f64>)>, Error> {
        let top_k = probe.runs.values().map(|run| run.n_expert_used).max().unwrap_or(0);
        let experts: Vec<u32> = [top_k, top_k.saturating_sub(1), top_k.saturating_sub(2)]
            .into_iter()
            .filter(|experts| *experts > 0)
            .collect();
        if !log::is_done(&self.log()?, "lossy") {
            let begun = Instant::now();
            self.measure("lossy", &matrices::lossy(self.request, winner, &experts, ROUND))?;
            self.append(&Entry::Done {
                step: "lossy".to_owned(),
                seconds: begun.elapsed().as_secs_f64(),
            })?;
        }
        let options = WhatIfOptions {
            policy: winner.policy,
            budget_bytes: ask::mib_to_bytes(winner.cache_mib as f64),
        };
        let whatif = WhatIf::of(trace, &options).map_err(|e| Error::Refused(e.to_string()))?;
        let lost = |experts: u32| {
            if experts == top_k {
                return Some(0.0);
            }
            let fewer = usize::try_from(experts).ok()?;
            whatif
                .rows
                .iter()
                .find(|row| row.change == Change::Fewer { experts: fewer })?
                .weight_lost
        };
        let measured = Measured::read(&self.folder.join("lossy"))?;
        let mut rows = Vec::new();
        for cell in measured.cells() {
            let figures = Figures::pooled(&measured.valid_runs(&cell));
            if let Some(rates) = figures.and_then(|figures| figures.rates) {
                let experts = cell.config.n_expert_used;
                rows.push((experts, rates.mean, lost(experts)));
            }
        }
        rows.sort_by_key(|row| std::cmp::Reverse(row.0));
        Ok(rows)
    }
}

/// The routes of the probe's whole run.
fn routes(probe: &Path) -> Result<RouteTrace, Error> {
    let options = LoadOptions { weights: true, residency: false, scores: false };
    Ok(load(probe, options)?)
}
