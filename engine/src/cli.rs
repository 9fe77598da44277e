//! The command line.

use std::path::{Path, PathBuf};

use bmoe_engine::EngineError;
use bmoe_supervise::command::DeviceCommand;
use bmoe_trace::RunConfig;
use bmoe_trace::config::{ComputeTrace, DenseWeights, Mode};
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgGroup, Args, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::cmd::documents::{Completions, Man};
use crate::cmd::iobench::IoBench;
use crate::options::{CacheArgs, ReadArgs, Switch, TextArgs, one_of};
use crate::outputs::{refuse_model, same_file};

/// The engine's version and that of the llama.cpp inside it.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (llama-cpp-sys-2 0.1.161)");

#[derive(Debug, Parser)]
#[command(name = "bmoe-engine", about, long_about = None, version = VERSION)]
#[command(after_help = "Exit codes: 0 done, 2 wrong usage, 3 the model or a setting was refused, \
    4 the run failed on the way, 130 or 143 interrupted by SIGINT or SIGTERM.")]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Cli {
    /// The command line, or the end of the process.
    pub(crate) fn read() -> Self {
        let mut command = Self::command();
        let matches = command.get_matches_mut();
        if let Some((name, given)) = matches.subcommand() {
            let beside = settings_beside_config(&command, name, given);
            if !beside.is_empty() {
                let message = format!(
                    "--config describes the whole run, so {} can't be given beside it; write it into that \
                     file, or leave --config out",
                    beside.join(", ")
                );
                command.error(ErrorKind::ArgumentConflict, message).exit();
            }
        }
        Self::from_arg_matches(&matches).unwrap_or_else(|e| e.exit())
    }
}

/// The settings that were given beside `--config`. (As a conflict of its own, clap would name all settings there
/// are.)
fn settings_beside_config(
    command: &clap::Command,
    name: &str,
    given: &clap::ArgMatches,
) -> Vec<String> {
    let Some(command) = command.find_subcommand(name) else { return Vec::new() };
    if !given.try_contains_id("config").unwrap_or(false) {
        return Vec::new();
    }
    let settings = command.get_groups().find(|group| group.get_id() == "settings");
    settings
        .into_iter()
        .flat_map(ArgGroup::get_args)
        .filter(|id| given.value_source(id.as_str()) == Some(ValueSource::CommandLine))
        .filter_map(|id| {
            let arg = command.get_arguments().find(|arg| arg.get_id() == id)?;
            Some(format!("--{}", arg.get_long()?))
        })
        .collect()
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Load a model, compute a prompt, generate tokens and measure every step.
    Generate(Generate),
    /// Keep a model loaded and answer requests, one JSON object a line on standard input.
    Session(Session),
    /// List the architectures that are known, and what was verified of each.
    Archs(Archs),
    /// Measure what the disk can do with the engine's own reads.
    Iobench(IoBench),
    /// Print completions for a shell.
    Completions(Completions),
    /// Print a manual page.
    Man(Man),
    #[command(flatten)]
    Device(DeviceCommand),
}

#[derive(Debug, Args)]
pub(crate) struct Archs {
    /// As JSON, one array of objects
    #[arg(long)]
    json: bool,
}

impl Archs {
    /// The listing.
    pub(crate) fn text(&self) -> String {
        if self.json {
            let json = serde_json::to_string_pretty(bmoe_engine::arch::ALL);
            json.expect("rows of strings are JSON") + "\n"
        } else {
            bmoe_engine::arch::table()
        }
    }
}

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("settings").multiple(true))]
#[command(after_help = "Examples:\n  \
    bmoe-engine generate -m model.gguf -p 'Once upon a time' -n 64 --cache-mb 2000\n  \
    bmoe-engine generate -m model.gguf -f prompt.txt --mode mmap --csv tokens.csv\n  \
    bmoe-engine generate -m model.gguf --chat --think off -p 'What is a mixture of experts?'\n  \
    bmoe-engine generate --config run.toml --trace run.trace --progress")]
pub(crate) struct Generate {
    #[command(flatten)]
    pub(crate) run: RunArgs,
    /// The prompt
    #[arg(short, long, value_name = "TEXT", group = "settings")]
    prompt: Option<String>,
    /// The prompt, from a file
    #[arg(short = 'f', long, value_name = "FILE", conflicts_with = "prompt", group = "settings")]
    prompt_file: Option<PathBuf>,
    /// Put the prompt into the model's chat template
    #[arg(long, group = "settings")]
    chat: bool,
    /// Use the experts of a recorded route trace in the place of the router's choice
    #[arg(
        long,
        value_name = "TRACE",
        group = "settings",
        long_help = "Use the experts of a recorded route trace, of any format that `bmoe import` reads, in the \
          place of the router's choice. Weights are the router's own for those experts. The prompt becomes as \
          long as the trace's, and the end of the trace ends the run. Timing is real, the text is not"
    )]
    replay_routes: Option<PathBuf>,
    /// Print BMOE_ lines in the place of the text
    #[arg(long)]
    pub(crate) progress: bool,
    /// The process that started this one: end when it ends
    #[arg(long, value_name = "PID", hide = true)]
    parent: Option<i32>,
}

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("settings").multiple(true))]
#[command(after_help = "Requests, each a line:\n  \
    {\"cmd\":\"generate\",\"id\":1,\"prompt\":\"Hello\",\"n_predict\":64,\"think\":false,\"clear_kv\":true}\n  \
    {\"cmd\":\"cancel\"}\n  \
    {\"cmd\":\"close\"}\n\n\
    Answers are BMOE_ lines; docs/sessions.md describes both.\n\n\
    Examples:\n  \
    bmoe-engine session -m model.gguf --cache-mb 2000 --ctx 8192\n  \
    bmoe-engine session -m model.gguf --raw < requests.jsonl")]
pub(crate) struct Session {
    #[command(flatten)]
    pub(crate) run: RunArgs,
    /// Take prompts as they are, without the model's chat template
    #[arg(long)]
    raw: bool,
}

/// What is run and what is written, whoever asks for text.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// GGUF model; of a split model any part
    #[arg(
        short,
        long,
        value_name = "FILE",
        required_unless_present = "config",
        group = "settings"
    )]
    model: Option<PathBuf>,
    /// A run described by one TOML file, in the place of the options that describe it
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where the experts' weights are
    #[arg(long, value_parser = one_of::<Mode>(Mode::NAMES), default_value = "stream", group = "settings",
          long_help = "Where the experts' weights are: stream = read from flash when a token routes to them, \
          mmap = stock llama.cpp over a memory map, resident = stock llama.cpp with all weights in memory")]
    mode: Mode,
    /// Tokens to generate
    #[arg(short, long, value_name = "N", default_value_t = 64, group = "settings")]
    n_predict: u32,
    /// Compute threads; 0 = the cores that this process may use
    #[arg(short, long, value_name = "N", default_value_t = 0, group = "settings")]
    threads: u32,
    /// Context length in tokens
    #[arg(long, value_name = "TOKENS", default_value_t = 2048, group = "settings")]
    ctx: u32,
    /// Most tokens computed at once
    #[arg(long, value_name = "TOKENS", default_value_t = 512, group = "settings")]
    ubatch: u32,
    #[command(flatten)]
    cache: CacheArgs,
    #[command(flatten)]
    reads: ReadArgs,
    #[command(flatten)]
    text: TextArgs,
    /// Experts per token; 0 = what the model says (fewer changes the text)
    #[arg(long, value_name = "N", default_value_t = 0, group = "settings")]
    n_expert_used: u32,
    /// Hash the logits of every token, the prompt's included
    #[arg(long, group = "settings")]
    hash_logits: bool,
    /// Where the weights outside the experts are (stream): anonymous memory, or a map, read ahead or not
    #[arg(long, value_parser = one_of::<DenseWeights>(DenseWeights::NAMES), default_value = "anon",
          group = "settings")]
    dense_weights: DenseWeights,
    /// Cores of the compute threads, such as 4-7 or 0xf0; the read lanes take the others
    #[arg(long, value_name = "CORES", group = "settings")]
    cpu_mask: Option<String>,
    /// Record the router's N best experts of every token with their scores
    #[arg(long, value_name = "N", default_value_t = 0, group = "settings")]
    trace_scores: u32,
    /// Record every read in the binary trace
    #[arg(long, group = "settings")]
    io_trace: bool,
    /// Record every node's time in the binary trace (slows the run down)
    #[arg(long, group = "settings", conflicts_with = "compute_trace_layers")]
    compute_trace: bool,
    /// Record the time of each layer's parts in the binary trace (slows the run down a little)
    #[arg(long, group = "settings")]
    compute_trace_layers: bool,
    /// Write per-token metrics as CSV
    #[arg(long, value_name = "FILE")]
    pub(crate) csv: Option<PathBuf>,
    /// Write the experts that every token used as CSV
    #[arg(long, value_name = "FILE")]
    pub(crate) route_trace: Option<PathBuf>,
    /// Write how often each expert was used, for --warm-profile
    #[arg(long, value_name = "FILE")]
    pub(crate) save_profile: Option<PathBuf>,
    /// Write everything as a binary trace
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
    /// Print llama.cpp's log
    #[arg(long)]
    pub(crate) verbose: bool,
}

impl RunArgs {
    /// Refuses outputs that would overwrite a model or each other.
    ///
    /// # Errors
    /// The first such output.
    pub(crate) fn check_outputs(&self) -> Result<(), EngineError> {
        let outputs: Vec<(&str, &Path)> = [
            ("--trace", &self.trace),
            ("--csv", &self.csv),
            ("--route-trace", &self.route_trace),
            ("--save-profile", &self.save_profile),
        ]
        .into_iter()
        .filter_map(|(option, path)| Some((option, path.as_deref()?)))
        .collect();
        for (i, (option, path)) in outputs.iter().enumerate() {
            refuse_model(option, path)?;
            if let Some((other, _)) = outputs[..i].iter().find(|(_, p)| same_file(p, path)) {
                return Err(EngineError::Config(format!(
                    "{other} and {option} name the same file, {}; give two",
                    path.display()
                )));
            }
        }
        Ok(())
    }

    /// Refuses records that would go nowhere.
    ///
    /// # Errors
    /// There is no binary trace for them.
    pub(crate) fn check_traces(&self, config: &RunConfig) -> Result<(), EngineError> {
        if self.trace.is_some() {
            return Ok(());
        }
        let wanted = [
            ("--io-trace", config.io_trace),
            ("--compute-trace", config.compute_trace == ComputeTrace::Nodes),
            ("--compute-trace-layers", config.compute_trace == ComputeTrace::Layers),
            ("--trace-scores", config.trace_scores > 0),
        ];
        match wanted.iter().find(|(_, wanted)| *wanted) {
            Some((option, _)) => Err(EngineError::Config(format!(
                "{option} records into the binary trace, and there is none; give --trace FILE"
            ))),
            None => Ok(()),
        }
    }

    /// All of the configuration but the prompt.
    fn run_config(&self) -> Result<RunConfig, EngineError> {
        if let Some(path) = &self.config {
            return RunConfig::load(path).map_err(|e| EngineError::Config(e.to_string()));
        }
        Ok(RunConfig {
            model: self.model.clone().unwrap_or_default(),
            mode: self.mode,
            n_predict: self.n_predict,
            threads: self.threads,
            ctx_tokens: self.ctx,
            ubatch_tokens: self.ubatch,
            cache_mib: self.cache.cache_mb,
            cache_floor_mib: self.cache.cache_floor_mb,
            cache_ceil_mib: self.cache.cache_ceil_mb,
            force_cache: self.cache.force_cache,
            cache_policy: self.cache.cache_policy.clone(),
            warm_profile: self.cache.warm_profile.clone(),
            prefetch_layers: self.cache.prefetch,
            predict_experts: self.cache.predict,
            io_threads: self.reads.io_threads,
            io_engine: self.reads.io_engine,
            odirect: !self.reads.no_odirect,
            overlap: self.reads.overlap == Switch::On,
            io_ceiling_mib_s: self.reads.io_ceiling,
            dense_weights: self.dense_weights,
            cpu_mask: self.cpu_mask.clone().unwrap_or_default(),
            think: self.text.think,
            sampling: self.text.sampling(),
            trace_scores: self.trace_scores,
            io_trace: self.io_trace,
            compute_trace: match (self.compute_trace, self.compute_trace_layers) {
                (true, _) => ComputeTrace::Nodes,
                (false, true) => ComputeTrace::Layers,
                (false, false) => ComputeTrace::Off,
            },
            n_expert_used: self.n_expert_used,
            hash_logits: self.hash_logits,
            ..RunConfig::default()
        })
    }
}

impl Session {
    /// The session that the arguments describe.
    ///
    /// # Errors
    /// A file that they name can't be read.
    pub(crate) fn run_config(&self) -> Result<RunConfig, EngineError> {
        Ok(RunConfig { chat: !self.raw, ..self.run.run_config()? })
    }
}

impl Generate {
    /// Ties this process's end to that of its supervisor, where there is one.
    ///
    /// # Errors
    /// The supervisor has ended already.
    pub(crate) fn follow_parent(&self) -> Result<(), EngineError> {
        let Some(parent) = self.parent else { return Ok(()) };
        bmoe_supervise::process::end_with_parent(parent)
            .map_err(|e| EngineError::Config(e.to_string()))
    }

    /// The run that the arguments describe.
    ///
    /// # Errors
    /// A file that they name can't be read.
    pub(crate) fn run_config(&self) -> Result<RunConfig, EngineError> {
        let config = self.run.run_config()?;
        if self.run.config.is_some() {
            return Ok(config);
        }
        let prompt = match (&self.prompt, &self.prompt_file) {
            (Some(prompt), _) => prompt.clone(),
            (None, Some(path)) => std::fs::read_to_string(path).map_err(|e| {
                EngineError::Config(format!("cannot read the prompt {}: {e}", path.display()))
            })?,
            (None, None) => String::new(),
        };
        let replay_routes = self.replay_routes.clone();
        Ok(RunConfig { prompt, chat: self.chat, replay_routes, ..config })
    }
}
