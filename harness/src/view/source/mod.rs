//! Where the world comes from.

pub mod attempt;
pub mod chat;
pub mod folder;
pub mod imported;
pub mod records;
pub mod start;
pub mod tail;

use std::io::Read;
use std::path::Path;
use std::time::{Duration, SystemTime};

use bmoe_analysis::data::imported::is_imported;
use bmoe_trace::codec::MAGIC;

use self::attempt::AttemptFeed;
use self::folder::FolderSource;
use super::world::{Mode, RunData, World};
use crate::error::Error;

/// How long a trace without an end that does not grow counts as one that goes on.
const QUIET: Duration = Duration::from_secs(30);

/// Something that adds to the world.
pub trait Source: std::fmt::Debug {
    /// Takes what has come since the last time. Never waits. What can't be read is told in the world, and the rest
    /// goes on.
    fn poll(&mut self, world: &mut World);

    /// Whether everything that is there has been taken.
    fn is_settled(&self) -> bool {
        true
    }

    /// Whether there is nothing to look at any more: the viewer is left.
    fn is_over(&self) -> bool {
        false
    }

    /// What a person who leaves should know of what goes on.
    fn goes_on(&self) -> Option<String> {
        None
    }
}

/// Nothing more comes.
#[derive(Debug, Clone, Copy, Default)]
pub struct Still;

impl Source for Still {
    fn poll(&mut self, _world: &mut World) {}
}

/// A trace of this engine, finished or being written.
#[derive(Debug)]
pub struct TraceSource {
    feed: AttemptFeed,
    path: std::path::PathBuf,
    /// Everything that was there at the beginning is read.
    caught_up: bool,
}

impl TraceSource {
    /// Of a trace.
    #[must_use]
    pub fn new(path: &Path) -> (Self, World) {
        let name = path.display().to_string();
        let mut world = World { name: name.clone(), mode: Mode::Live, ..World::default() };
        // What is there already is replayed; only what is still being written is followed at its end.
        let over = !is_fresh(path);
        world.add_run(RunData { name, over, ..RunData::default() });
        (Self { feed: AttemptFeed::of_trace(path), path: path.to_owned(), caught_up: false }, world)
    }
}

fn is_fresh(path: &Path) -> bool {
    let modified = std::fs::metadata(path).and_then(|m| m.modified());
    let age = modified.ok().and_then(|at| SystemTime::now().duration_since(at).ok());
    age.is_some_and(|age| age < QUIET)
}

impl Source for TraceSource {
    fn poll(&mut self, world: &mut World) {
        let Some(run) = world.runs.first_mut() else { return };
        let more = self.feed.poll(run);
        if !more && !self.feed.ended() && !is_fresh(&self.path) {
            run.trouble.get_or_insert("the trace was cut off: it has no end".into());
            run.over = true;
        }
        let over = run.over && !more;
        world.mode = if over { Mode::Replay } else { Mode::Live };
        if !more && !self.caught_up {
            self.caught_up = true;
            if over {
                world.replay();
            }
        }
    }
}

/// Whatever a path names: a result folder, an imported folder, a trace.
///
/// # Errors
/// It is none of these, or can't be read.
pub fn open(path: &Path) -> Result<(Box<dyn Source>, World), Error> {
    if path.is_dir() {
        if is_imported(path) {
            return Ok((Box::new(Still), imported::folder(path)?));
        }
        let (source, world) = FolderSource::open(path)?;
        return Ok((Box::new(source), world));
    }
    let mut head = [0; 8];
    let mut file = std::fs::File::open(path).map_err(Error::io("open", path))?;
    let got = file.read(&mut head).map_err(Error::io("read", path))?;
    if head[..got] == MAGIC {
        let (source, world) = TraceSource::new(path);
        return Ok((Box::new(source), world));
    }
    Ok((Box::new(Still), imported::trace(path)?))
}
