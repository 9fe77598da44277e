//! `bmoe chat`

use std::cell::RefCell;
use std::ffi::OsString;
use std::io::{BufReader, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;
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
use crate::view::app::{App, Left};
use crate::view::screens::Screen as ViewScreen;
use crate::view::screens::chat::{ChatScreen, ChatState, SharedChat};
use crate::view::screens::compare::CompareScreen;
use crate::view::screens::run::RunScreen;
use crate::view::source::chat::ChatSource;
use crate::view::terminal;
use crate::view::theme::Theme;

/// Talk with a model
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The engine stays loaded between messages; what was said stays computed, and experts stay in their cache.
Ctrl-C ends an answer (the conversation is then as it was before the message); twice, it leaves.
/clear forgets the conversation, /stats shows figures of the last answer, /quit leaves; /think, /tokens and
/thoughts change what the next answer is like. In a terminal it is a screen of the viewer, with figures beside the
text; --no-tui has plain lines.
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
    /// Plain lines instead of a screen; what is no terminal gets them in any case
    #[arg(long)]
    no_tui: bool,
    /// Frames a second at most, on the screen
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=60))]
    fps: u32,
    /// The engine to run [default: bmoe-engine beside this program]
    #[arg(long, value_name = "PATH", env = "BMOE_ENGINE")]
    engine: Option<PathBuf>,
    /// Options of `bmoe-engine session`
    #[arg(last = true, value_name = "OPTIONS")]
    options: Vec<OsString>,
}

pub(super) fn run(args: &Args) -> Result<(), Error> {
    let (stdin, stdout) = (std::io::stdin(), std::io::stdout());
    let terminal = stdout.is_terminal() && stdin.is_terminal();
    let thoughts = !args.no_think_text;
    let settings = Settings { n_predict: args.n_predict, think: args.think, thoughts };
    let dumb = std::env::var("TERM").is_ok_and(|term| term == "dumb");
    if terminal && !dumb && !args.no_tui {
        return args.show(settings);
    }
    let mut signals =
        Watched::new().map_err(Error::io("watch signals for", Path::new("the chat")))?;
    let colour = stdout.is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let screen = Screen::new(stdout, terminal, colour);
    let talk = Talk::new(args.connect()?, settings);
    chat::run(talk, screen, BufReader::new(stdin), &mut signals)
}

impl Args {
    fn connect(&self) -> Result<Connection, Error> {
        let mut command = Command::new(engine::find(self.engine.as_deref())?);
        command.args(["session", "--ctx", &self.ctx.to_string(), "--model"]).arg(&self.model);
        // A default of the engine's own that need not fit a small context: every request says how much it wants.
        command.args(["--n-predict", "1"]).args(&self.options);
        Connection::start(&mut command)
    }

    /// On the viewer's screen.
    fn show(&self, settings: Settings) -> Result<(), Error> {
        let signals = terminal::Signals::watch()
            .map_err(Error::io("watch signals for", Path::new("the chat")))?;
        let talk = Talk::new(self.connect()?, settings);
        let chat: SharedChat = Rc::new(RefCell::new(ChatState::new(settings)));
        let model = self.model.display().to_string();
        let (source, world) = ChatSource::new(talk, Rc::clone(&chat), model);
        let screens: Vec<Box<dyn ViewScreen>> = vec![
            Box::new(ChatScreen::new(Rc::clone(&chat))),
            Box::new(RunScreen::default()),
            Box::new(CompareScreen::default()),
        ];
        let theme = Theme::from_env(|name| std::env::var(name).ok());
        let mut app = App::new(world, Box::new(source), screens, theme);
        let path = Path::new("the terminal");
        let mut taken = terminal::Taken::take().map_err(Error::io("take", path))?;
        let left = app.run(&mut taken, &signals, self.fps);
        drop(taken);
        // Ends the session.
        drop(app);
        let interrupted = chat.borrow().interrupted;
        let end = chat.borrow_mut().end.take();
        match left.map_err(Error::io("draw on", path))? {
            Left::Signal(signal) => Err(Error::Interrupted { signal, what: String::new() }),
            Left::Quit => match (end, interrupted) {
                (Some(error), _) => Err(error),
                (None, true) => Err(chat::left()),
                (None, false) => Ok(()),
            },
        }
    }
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
