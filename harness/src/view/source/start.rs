//! A matrix that the viewer starts: `bmoe run` in a process of its own, which goes on when the viewer is left.

use std::ffi::OsString;
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::Source;
use super::folder::FolderSource;
use super::tail::LineTail;
use crate::error::Error;
use crate::view::world::{Mode, World};

/// Starts a matrix and follows it.
#[derive(Debug)]
pub struct StartSource {
    child: Child,
    folder: PathBuf,
    log: LineTail,
    last: String,
    follow: Option<FolderSource>,
    over: bool,
}

impl StartSource {
    /// Starts this program with these words behind `run`. What it says goes to `DIR.log` beside the folder.
    ///
    /// # Errors
    /// It can't be started.
    pub fn start(words: &[OsString], folder: &Path) -> Result<(Self, World), Error> {
        let mut path = folder.as_os_str().to_owned();
        path.push(".log");
        let path = PathBuf::from(path);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).map_err(Error::io("make", parent))?;
        }
        let log = File::create(&path).map_err(Error::io("write", &path))?;
        let again = log.try_clone().map_err(Error::io("write", &path))?;
        let program = std::env::current_exe().map_err(Error::io("find", Path::new("bmoe")))?;
        let mut command = Command::new(&program);
        command.arg("run").args(words).arg("--out").arg(folder);
        command.stdin(Stdio::null()).stdout(log).stderr(again);
        // Ctrl-C at the viewer's terminal is for the viewer.
        command.process_group(0);
        let child = command.spawn().map_err(Error::io("start", &program))?;
        let world = World {
            name: folder.display().to_string(),
            mode: Mode::Live,
            notice: Some("preparing".to_owned()),
            ..World::default()
        };
        let log = LineTail::new(&path);
        let folder = folder.to_owned();
        let source = Self { child, folder, log, last: String::new(), follow: None, over: false };
        Ok((source, world))
    }
}

impl Source for StartSource {
    fn poll(&mut self, world: &mut World) {
        let last = &mut self.last;
        let _ = self.log.take(|line| {
            if !line.trim().is_empty() {
                *last = line.trim().to_owned();
            }
        });
        if self.follow.is_none() {
            world.notice = Some(self.last.clone());
            if let Ok((source, fresh)) = FolderSource::open(&self.folder) {
                world.cells = fresh.cells;
                world.notice = None;
                self.follow = Some(source);
            }
        }
        if let Some(follow) = &mut self.follow {
            follow.poll(world);
        }
        if !self.over {
            match self.child.try_wait() {
                Ok(Some(status)) => {
                    self.over = true;
                    if !status.success() {
                        world.notice = Some(self.last.clone());
                    }
                    world.mode = Mode::Replay;
                }
                _ => world.mode = Mode::Live,
            }
        }
    }

    fn is_settled(&self) -> bool {
        self.over && self.follow.as_ref().is_none_or(FolderSource::is_settled)
    }

    fn goes_on(&self) -> Option<String> {
        (!self.over).then(|| {
            format!(
                "the run goes on: `bmoe view {}` shows it, `kill -INT {}` ends it",
                self.folder.display(),
                self.child.id()
            )
        })
    }
}
