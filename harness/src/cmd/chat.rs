//! `bmoe chat`

use std::ffi::OsString;
use std::io::{BufReader, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bmoe_trace::config::Think;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::chat::connection::Connection;
use crate::chat::screen::Screen;
use crate::chat::talk::Talk;
use crate::chat::typed::Settings;
use crate::chat::{self, Signals};
use crate::engine;
use crate::error::Error;

/// Talk with a model
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The engine stays loaded between messages; what was said stays computed, and experts stay in their cache.
Ctrl-C ends an answer (the conversation is then as it was before the message); twice, it leaves.
/clear forgets the conversation, /stats shows figures of the last answer, /quit leaves.
Lines of a file or a pipe are answered one after the other.

Examples:
  bmoe chat models/qwen3-30b-a3b.gguf -- --cache-mb 4000
  bmoe chat model.gguf --think off --n-predict 200 -- --temp 0.7 --seed 1
  echo 'What is a mixture of experts?' | bmoe chat model.gguf --no-think-text")]
pub(super) struct Args {
    /// GGUF model; of a split model any part
    model: PathBuf,
    /// Most tokens of an answer
    #[arg(short, long, value_name = "N", default_value_t = 512)]
    n_predict: u32,
    /// Context length in tokens, the whole conversation
    #[arg(long, value_name = "TOKENS", default_value_t = 4096)]
    ctx: u32,
    /// Whether the model is to think, where its chat template knows the difference
    #[arg(long, value_parser = PossibleValuesParser::new(Think::NAMES).try_map(|name| name.parse::<Think>()),
          default_value = "default")]
    think: Think,
    /// Don't show what the model thinks
    #[arg(long)]
    no_think_text: bool,
    /// The engine to run [default: bmoe-engine beside this program]
    #[arg(long, value_name = "PATH", env = "BMOE_ENGINE")]
    engine: Option<PathBuf>,
    /// Options of `bmoe-engine session`
    #[arg(last = true, value_name = "OPTIONS")]
    options: Vec<OsString>,
}

pub(super) fn run(args: &Args) -> Result<(), Error> {
    let engine = engine::find(args.engine.as_deref())?;
    let mut signals =
        Watched::new().map_err(Error::io("watch signals for", Path::new("the chat")))?;
    let mut command = Command::new(engine);
    command.args(["session", "--ctx", &args.ctx.to_string(), "--model"]).arg(&args.model);
    // A default of the engine's own that need not fit a small context: every request says how much it wants.
    command.args(["--n-predict", "1"]).args(&args.options);
    let connection = Connection::start(&mut command)?;
    let (stdin, stdout) = (std::io::stdin(), std::io::stdout());
    let terminal = stdout.is_terminal();
    let colour = terminal && std::env::var_os("NO_COLOR").is_none();
    let prompts = terminal && stdin.is_terminal();
    let screen = Screen::new(stdout, prompts, colour);
    let thoughts = !args.no_think_text;
    let settings = Settings { n_predict: args.n_predict, think: args.think, thoughts };
    let talk = Talk::new(connection, settings);
    chat::run(talk, screen, BufReader::new(stdin), &mut signals)
}

/// Signals of this process.
struct Watched {
    interrupt: Arc<AtomicBool>,
    leave: Arc<AtomicUsize>,
}

impl Watched {
    fn new() -> std::io::Result<Self> {
        let watched = Self { interrupt: Arc::default(), leave: Arc::default() };
        signal_hook::flag::register(SIGINT, Arc::clone(&watched.interrupt))?;
        for signal in [SIGTERM, SIGHUP] {
            let leave = Arc::clone(&watched.leave);
            signal_hook::flag::register_usize(signal, leave, signal.unsigned_abs() as usize)?;
        }
        Ok(watched)
    }
}

impl Signals for Watched {
    fn take_interrupt(&mut self) -> bool {
        self.interrupt.swap(false, Ordering::SeqCst)
    }

    fn leave(&self) -> Option<i32> {
        match self.leave.load(Ordering::SeqCst) {
            0 => None,
            signal => i32::try_from(signal).ok(),
        }
    }
}
