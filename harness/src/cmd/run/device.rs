//! One target's part of a matrix: its files, its result folder, its runs.

use std::collections::HashMap;
use std::ffi::OsString;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bmoe_analysis::journal::read_environment;
use bmoe_analysis::result_set::{Environment, ModelFile};
use bmoe_supervise::Lock;

use super::prepare;
use crate::engine;
use crate::environment::ANSWER_LIMIT;
use crate::error::Error;
use crate::facts::{self, Facts};
use crate::matrix::{Matrix, Schedule};
use crate::models::{self, Identity, Located};
use crate::results;
use crate::runner::{
    Exit, Interrupt, Observer, Placed, Runner, Summary, SupervisedExecutor, Work, judge_across,
};
use crate::target::{Command, StagedFile, Target, TargetError, local_home};

/// What all targets of a matrix share.
pub(super) struct Shared<'a> {
    pub(super) matrix: &'a Matrix,
    pub(super) matrix_text: &'a str,
    pub(super) schedule: &'a Schedule,
    pub(super) located: &'a [Located],
    pub(super) models: &'a [ModelFile],
    /// This machine, and what is the same everywhere.
    pub(super) here: &'a Environment,
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
    files: Placed,
}

/// What a target is, and the engine for it on this machine.
pub(super) struct Chosen {
    pub(super) engine: PathBuf,
    /// Which build it is, where there are several.
    variant: Option<&'static str>,
    facts: Option<Facts>,
}

/// Finds the engine that suits a target.
pub(super) fn choose(target: &dyn Target, given: Option<&Path>) -> Result<Chosen, Error> {
    if target.name() == "local" {
        return Ok(Chosen { engine: engine::find(given)?, variant: None, facts: None });
    }
    let facts = asked_twice(|| facts::gather(target, None))?;
    let abi = facts.abi().unwrap_or("unknown");
    let found = engine::for_device(given, &engine::device_builds()?, abi, &facts.cpu_features)?;
    if let Some(better) = found.better {
        eprintln!(
            "note: {} could run the faster build {better}, which is not built; scripts/build-device.sh makes it",
            target.name()
        );
    }
    Ok(Chosen { engine: found.path, variant: found.variant, facts: Some(facts) })
}

/// Asks a question whose answer a cable may have cut off once more: an adb server that is restarted in between is
/// back at once.
fn asked_twice<T>(ask: impl Fn() -> Result<T, TargetError>) -> Result<T, TargetError> {
    ask().or_else(|error| if error.is_lost() { ask() } else { Err(error) })
}

impl Shared<'_> {
    /// Makes everything available there that the runs need.
    pub(super) fn stage(
        &self,
        target: &dyn Target,
        engine: &Path,
        observer: &mut dyn Observer,
    ) -> Result<Staged, Error> {
        let local = target.name() == "local";
        let mut put = |path: &Path, sha256: &str, executable| -> Result<PathBuf, Error> {
            let bytes = std::fs::metadata(path).map_or(0, |m| m.len());
            let file = StagedFile { path, sha256, executable };
            Ok(target.stage(&file, &mut |done| observer.sending(path, done, bytes))?)
        };
        let hash = |path: &Path| -> Result<Identity, Error> {
            // What stays where it is needs no name by its content.
            if local { Ok(Identity::default()) } else { prepare::identify(path, self.interrupt) }
        };
        let whole = |identity: &Identity| identity.sha256.clone().unwrap_or_default();
        let engine = put(engine, &whole(&hash(engine)?), true)?;
        let mut placed = HashMap::new();
        for model in self.located {
            let identity = hash(&model.path)?;
            let place = if identity.parts.is_empty() {
                put(&model.path, &whole(&identity), false)?
            } else {
                let files = models::files(&model.path);
                let parts = files.iter().zip(&identity.parts);
                let parts = parts
                    .map(|(file, sha256)| put(file, sha256, false))
                    .collect::<Result<_, _>>()?;
                together(target, parts, &whole(&identity))?
            };
            placed.insert(model.name.clone(), place);
        }
        let mut files = Placed::new();
        let cells = self.schedule.runs.iter().map(|run| &self.schedule.cells[run.cell]);
        for file in cells.flat_map(|cell| cell.config.files()) {
            if !files.contains_key(file) {
                let sha256 = whole(&hash(file)?);
                files.insert(file.clone(), put(file, &sha256, false)?);
            }
        }
        Ok(Staged { engine, models: placed, files })
    }

    /// Makes the result folder, or completes one that an earlier runner began.
    pub(super) fn describe(
        &self,
        target: &dyn Target,
        chosen: &Chosen,
        staged: &Staged,
        folder: &Path,
    ) -> Result<(), Error> {
        if folder.join("environment.json").exists() {
            return self.check_models(folder);
        }
        let mut environment = match &chosen.facts {
            None => self.here.clone(),
            Some(facts) => Environment {
                engine_version: self.version(target, &staged.engine)?,
                bmoe_commit: self.here.bmoe_commit.clone(),
                started: self.here.started.clone(),
                ..of_device(facts)
            },
        };
        if let (Some(variant), Some(version)) = (chosen.variant, &mut environment.engine_version) {
            version.push_str(&format!(", built for {variant}"));
        }
        environment.models = self.models.to_vec();
        let groups: Vec<_> =
            self.matrix.groups.iter().map(|group| group.named(&self.schedule.cells)).collect();
        let published =
            self.matrix.published.as_ref().map(|published| published.named(&self.schedule.cells));
        results::create(folder, self.matrix_text, &groups, published.as_ref(), &environment)
    }

    /// What goes on goes on with the same models: another file of the same name would be another cell.
    fn check_models(&self, folder: &Path) -> Result<(), Error> {
        let before = read_environment(folder)?.models;
        for now in self.models {
            let changed = before.iter().find(|m| m.name == now.name && m.sha256 != now.sha256);
            if let Some(then) = changed {
                let short = |sha256: &str| sha256.chars().take(12).collect::<String>();
                return Err(Error::Refused(format!(
                    "{} was begun with another model `{}` (SHA-256 {}, now {}); put that file back, or begin anew with \
                     another --out",
                    folder.display(),
                    now.name,
                    short(&then.sha256),
                    short(&now.sha256)
                )));
            }
        }
        Ok(())
    }

    fn version(&self, target: &dyn Target, engine: &Path) -> Result<Option<String>, Error> {
        let command = Command::new([engine.as_os_str(), "--version".as_ref()], ANSWER_LIMIT);
        let (finished, out) = asked_twice(|| {
            let mut out = Vec::new();
            let finished = target.exec(&command, &mut |piece| {
                out.extend_from_slice(piece);
                ControlFlow::Continue(())
            })?;
            Ok((finished, out))
        })?;
        if let Some(problem) = engine::cannot_run(engine, target.name(), &finished) {
            return Err(Error::Refused(problem));
        }
        let out = String::from_utf8_lossy(&out);
        Ok(out.lines().next().map(|line| line.chars().take(200).collect()))
    }

    /// Runs what is to be run there.
    pub(super) fn run(
        &self,
        target: &dyn Target,
        staged: &Staged,
        folder: &Path,
        work: &Work,
        observer: &mut dyn Observer,
    ) -> Result<Summary, Error> {
        let patience = Duration::from_secs(u64::from(self.matrix.patience_s));
        let mut executor =
            SupervisedExecutor::new(target, &staged.engine, patience, self.interrupt.clone());
        let runner = Runner {
            folder,
            models: &staged.models,
            files: &staged.files,
            timeout: Duration::from_secs(u64::from(self.matrix.timeout_s)),
            retries: self.matrix.retries,
            warmup_runs: self.matrix.warmup_runs,
            gate: self.matrix.gate.rules(),
            interrupt: self.interrupt.clone(),
        };
        let mut summary = runner.run(self.schedule, work, &mut executor, observer)?;
        for record in judge_across(folder)? {
            let reason = record.reason.as_deref().unwrap_or_default();
            observer.notice(&format!("{}: {}: {reason}", record.name, record.verdict.words()));
            summary.records.push(record);
        }
        Ok(summary)
    }
}

/// Links to the parts of a split model in one folder, where an engine looks for them beside each other. Gives the
/// first one.
fn together(
    target: &dyn Target,
    parts: Vec<PathBuf>,
    model_sha256: &str,
) -> Result<PathBuf, Error> {
    const LINK: &str = r#"d=$1; shift; mkdir -p "$d" && ln -sf "$@" "$d/" && : >"$d/manifest""#;
    let folder = target.home().join("files").join(&model_sha256[..16]);
    let first = folder.join(parts[0].file_name().unwrap_or_default());
    let mut words: Vec<OsString> = ["sh", "-c", LINK, "sh"].map(Into::into).into();
    words.push(folder.clone().into());
    words.extend(parts.into_iter().map(PathBuf::into_os_string));
    let finished =
        target.exec(&Command::new(words, ANSWER_LIMIT), &mut |_| ControlFlow::Continue(()))?;
    if finished.exit == Some(Exit::Code(0)) {
        return Ok(first);
    }
    Err(Error::Refused(format!(
        "{} cannot make links in {}: {}; join the model's parts with llama-gguf-split --merge",
        target.name(),
        folder.display(),
        finished.stderr.trim()
    )))
}

fn of_device(facts: &Facts) -> Environment {
    Environment {
        cpu: facts.soc.clone().or_else(|| facts.cpu.clone()),
        cores: Some(facts.cores),
        mem_total_bytes: facts.mem_total_bytes,
        mem_available_bytes: facts.mem_available_bytes,
        kernel: facts.kernel.clone(),
        os: Some(facts.headline()),
        file_system: facts.file_system.clone(),
        huge_pages: facts.huge_pages.clone(),
        ..Environment::default()
    }
}
