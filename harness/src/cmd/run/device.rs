//! One target's part of a matrix: its files, its result folder, its runs.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bmoe_analysis::result_set::{Environment, ModelFile};
use bmoe_supervise::Lock;

use super::prepare;
use crate::error::Error;
use crate::matrix::{Matrix, Schedule};
use crate::models::{self, Located};
use crate::results;
use crate::runner::{Interrupt, Observer, Placed, Runner, Summary, SupervisedExecutor, Work};
use crate::target::{StagedFile, Target, local_home};

/// What all targets of a matrix share.
pub(super) struct Shared<'a> {
    pub(super) matrix: &'a Matrix,
    pub(super) matrix_text: &'a str,
    pub(super) schedule: &'a Schedule,
    pub(super) work: &'a Work,
    pub(super) located: &'a [Located],
    pub(super) models: &'a [ModelFile],
    pub(super) engine: &'a Path,
    pub(super) interrupt: &'a Interrupt,
}

/// Nobody else on this machine uses the target as long as this is held.
pub(super) fn reserve(target: &dyn Target) -> Result<Lock, Error> {
    let folder = local_home().join("locks");
    std::fs::create_dir_all(&folder).map_err(Error::io("make", &folder))?;
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' };
    let path = folder.join(target.name().chars().map(plain).collect::<String>());
    let owner = format!("process {}", std::process::id());
    Lock::take(&path, &owner, Duration::ZERO).map_err(Error::io("lock", &path))?.map_err(|held| {
        Error::Refused(format!(
            "another runner uses {}: {}; wait for its end, or stop it first",
            target.name(),
            held.by
        ))
    })
}

/// Where the target has the files of a matrix.
pub(super) struct Staged {
    engine: PathBuf,
    models: HashMap<String, PathBuf>,
    profiles: Placed,
}

impl Shared<'_> {
    /// Makes everything available there that the runs need.
    pub(super) fn stage(
        &self,
        target: &dyn Target,
        observer: &mut dyn Observer,
    ) -> Result<Staged, Error> {
        let mut put = |path: &Path, executable| -> Result<PathBuf, Error> {
            let sha256 = if target.name() == "local" {
                // What stays where it is needs no name by its content.
                String::new()
            } else {
                prepare::hash(path, self.interrupt)?.1
            };
            let bytes = std::fs::metadata(path).map_or(0, |m| m.len());
            let file = StagedFile { path, sha256: &sha256, executable };
            let staged = target.stage(&file, &mut |done| observer.sending(path, done, bytes))?;
            Ok(staged)
        };
        let engine = put(self.engine, true)?;
        let mut placed = HashMap::new();
        for model in self.located {
            let mut first = None;
            for file in models::files(&model.path) {
                let there = put(&file, false)?;
                first.get_or_insert(there);
            }
            placed.insert(model.name.clone(), first.unwrap_or_default());
        }
        let mut profiles = Placed::new();
        let cells = self.schedule.runs.iter().map(|run| &self.schedule.cells[run.cell]);
        for profile in cells.filter_map(|cell| cell.config.warm_profile.as_ref()) {
            if !profiles.contains_key(profile) {
                profiles.insert(profile.clone(), put(profile, false)?);
            }
        }
        Ok(Staged { engine, models: placed, profiles })
    }

    /// Makes the result folder, or completes one that an earlier runner began.
    pub(super) fn describe(
        &self,
        folder: &Path,
        environment: impl FnOnce() -> Result<Environment, Error>,
    ) -> Result<(), Error> {
        if folder.join("environment.json").exists() {
            return Ok(());
        }
        let environment = Environment { models: self.models.to_vec(), ..environment()? };
        results::create(folder, self.matrix_text, &environment)
    }

    /// Runs what is to be run there.
    pub(super) fn run(
        &self,
        target: &dyn Target,
        staged: &Staged,
        folder: &Path,
        observer: &mut dyn Observer,
    ) -> Result<Summary, Error> {
        let patience = Duration::from_secs(u64::from(self.matrix.patience_s));
        let mut executor =
            SupervisedExecutor::new(target, &staged.engine, patience, self.interrupt.clone());
        let runner = Runner {
            folder,
            models: &staged.models,
            profiles: &staged.profiles,
            timeout: Duration::from_secs(u64::from(self.matrix.timeout_s)),
            retries: self.matrix.retries,
            warmup_runs: self.matrix.warmup_runs,
            gate: self.matrix.gate.rules(),
            interrupt: self.interrupt.clone(),
        };
        Ok(runner.run(self.schedule, self.work, &mut executor, observer)?)
    }
}
