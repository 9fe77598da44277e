//! Which files make which runs.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use bmoe_trace::import::{self, Format, Import, ImportError};

use super::names;
use crate::error::{AnalysisError, Result};

/// A file whose bytes are counted as they are read.
#[derive(Debug)]
pub(super) struct Counted {
    file: File,
    done: Rc<Cell<u64>>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(buffer)?;
        self.done.set(self.done.get() + read as u64);
        Ok(read)
    }
}

/// A file to import.
#[derive(Debug)]
pub(super) struct Input {
    pub(super) path: PathBuf,
    format: Format,
    /// What can be read only once (a pipe) stays open.
    opened: Option<Import<Counted>>,
    done: Rc<Cell<u64>>,
}

/// The files of one run.
#[derive(Debug, Default)]
pub(super) struct Group {
    folder: PathBuf,
    pub(super) base: String,
    pub(super) routes: Option<Input>,
    pub(super) log: Option<Input>,
    pub(super) device: Option<Input>,
}

/// What will be imported.
#[derive(Debug)]
pub struct Plan {
    pub(super) groups: Vec<Group>,
    pub(super) done: Rc<Cell<u64>>,
    passed_over: Vec<String>,
    bytes: u64,
}

impl Plan {
    /// Looks into the files, and into folders for the files there. Reads their heads, writes nothing.
    ///
    /// # Errors
    /// A file can't be read, or one that was named can't be imported; in a folder such files are passed over.
    pub fn new(paths: &[PathBuf]) -> Result<Self> {
        let mut plan =
            Self { groups: Vec::new(), done: Rc::default(), passed_over: Vec::new(), bytes: 0 };
        let mut inputs: Vec<Input> = Vec::new();
        for path in paths {
            let there = fs::metadata(path).map_err(AnalysisError::io("read", path))?;
            if !there.is_dir() {
                inputs.push(plan.open(path)?);
                continue;
            }
            let (files, others) = files_of(path)?;
            plan.passed_over.extend(others);
            for file in files {
                match plan.open(&file) {
                    Ok(input) => inputs.push(input),
                    Err(AnalysisError::Import { path, source: ImportError::Unknown { .. } }) => {
                        plan.passed_over
                            .push(format!("{} is passed over: no trace or log", path.display()));
                    }
                    Err(e) => return Err(e),
                }
            }
        }
        let mut seen = BTreeSet::new();
        inputs.retain(|input| seen.insert(input.path.clone()));
        plan.add_siblings(&mut inputs)?;
        plan.bytes = inputs.iter().filter_map(|i| Some(fs::metadata(&i.path).ok()?.len())).sum();
        plan.done.set(0);
        // Device metrics last: they belong to a run that is there.
        inputs.sort_by_key(|input| input.format == Format::Device);
        for input in inputs {
            plan.add(input)?;
        }
        if plan.groups.is_empty() {
            let path = paths.first().cloned().unwrap_or_default();
            return Err(AnalysisError::ImportRefused {
                path,
                message: "holds no trace or log".to_owned(),
            });
        }
        Ok(plan)
    }

    /// Bytes of all files.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Files of folders that are no traces or logs, for people.
    #[must_use]
    pub fn passed_over(&self) -> &[String] {
        &self.passed_over
    }

    fn open(&self, path: &Path) -> Result<Input> {
        let opened = open(path, &self.done)?;
        let format = match &opened {
            Import::Routes(routes) => routes.format(),
            Import::Log(_) => Format::Metrics,
            Import::Device(_) => Format::Device,
        };
        let again = fs::metadata(path).is_ok_and(|m| m.is_file());
        let opened = Some(opened).filter(|_| !again);
        Ok(Input { path: path.to_owned(), format, opened, done: self.done.clone() })
    }

    /// A log's `.metrics` file beside it comes along.
    fn add_siblings(&mut self, inputs: &mut Vec<Input>) -> Result<()> {
        let mut siblings = Vec::new();
        let mut others = Vec::new();
        for input in inputs.iter().filter(|i| i.format != Format::Device && i.opened.is_none()) {
            let path = input.path.with_extension("metrics");
            let known =
                |path: &Path| inputs.iter().chain(&siblings).any(|i: &Input| i.path == path);
            if path.is_file() && !known(&path) {
                match self.open(&path) {
                    Ok(sibling) if sibling.format == Format::Device => siblings.push(sibling),
                    Ok(_)
                    | Err(AnalysisError::Import { source: ImportError::Unknown { .. }, .. }) => {
                        others.push(path);
                    }
                    Err(e) => return Err(e),
                }
            }
        }
        others.dedup();
        self.passed_over.extend(others.iter().map(|path| {
            format!(
                "{} is passed over: it has a log's name, and holds no device metrics (key=value lines)",
                path.display()
            )
        }));
        inputs.extend(siblings);
        Ok(())
    }

    fn add(&mut self, input: Input) -> Result<()> {
        let base = names::base(&input.path);
        let folder = input.path.parent().unwrap_or(Path::new("")).to_owned();
        let format = input.format;
        let takes = |group: &&mut Group| {
            group.folder == folder && group.base == base && group.takes(format)
        };
        let group = match self.groups.iter_mut().find(takes) {
            Some(group) => group,
            None if format == Format::Device => {
                let message = format!(
                    "holds device metrics, and no trace or log named {base} is imported with it"
                );
                return Err(AnalysisError::ImportRefused { path: input.path, message });
            }
            None => {
                self.groups.push(Group { folder, base, ..Group::default() });
                let last = self.groups.len() - 1;
                &mut self.groups[last]
            }
        };
        match format {
            Format::Metrics => group.log = Some(input),
            Format::Device => group.device = Some(input),
            _ => group.routes = Some(input),
        }
        Ok(())
    }
}

impl Input {
    /// The reader, from the beginning.
    pub(super) fn open(&mut self) -> Result<Import<Counted>> {
        match self.opened.take() {
            Some(opened) => Ok(opened),
            None => open(&self.path, &self.done),
        }
    }

    /// What there is to say when it has become another file since it was looked at.
    pub(super) fn changed(&self) -> AnalysisError {
        let message = "changed while it was imported; import it when nothing writes it".to_owned();
        AnalysisError::ImportRefused { path: self.path.clone(), message }
    }

    /// Its name without its folder.
    pub(super) fn name(&self) -> String {
        self.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }
}

impl Group {
    /// Whether a file of a format has a place in it.
    fn takes(&self, format: Format) -> bool {
        let brings_log = self.routes.as_ref().is_some_and(|r| r.format == Format::Binary);
        match format {
            Format::Device => self.device.is_none(),
            Format::Metrics => self.log.is_none() && !brings_log,
            Format::Binary => self.routes.is_none() && self.log.is_none(),
            Format::RouteCsv | Format::TokenJsonl | Format::CacheLab => self.routes.is_none(),
        }
    }

    /// Names of its files.
    pub(super) fn files(&self) -> Vec<String> {
        [&self.routes, &self.log, &self.device].into_iter().flatten().map(Input::name).collect()
    }

    /// The name with that of the folder, for names that occur twice.
    pub(super) fn long_name(&self) -> String {
        match self.folder.file_name() {
            Some(folder) => format!("{}/{}", folder.to_string_lossy(), self.base),
            None => self.base.clone(),
        }
    }
}

fn open(path: &Path, done: &Rc<Cell<u64>>) -> Result<Import<Counted>> {
    let file = File::open(path).map_err(AnalysisError::io("open", path))?;
    import::open(Counted { file, done: done.clone() }).map_err(AnalysisError::import(path))
}

/// The ordinary files of a folder, by name, and what to say about what else is there.
fn files_of(folder: &Path) -> Result<(Vec<PathBuf>, Vec<String>)> {
    for made in ["cells.jsonl", "data/imported.parquet"] {
        if folder.join(made).is_file() {
            let message = "is a result folder already; the commands take it as it is".to_owned();
            return Err(AnalysisError::ImportRefused { path: folder.to_owned(), message });
        }
    }
    let (mut files, mut others) = (Vec::new(), Vec::new());
    for entry in fs::read_dir(folder).map_err(AnalysisError::io("read", folder))? {
        let path = entry.map_err(AnalysisError::io("read", folder))?.path();
        let hidden = path.file_name().is_some_and(|n| n.to_string_lossy().starts_with('.'));
        match fs::metadata(&path) {
            _ if hidden => {}
            Ok(there) if there.is_file() => files.push(path),
            Ok(there) if there.is_dir() => {}
            Ok(_) => others.push(format!("{} is passed over: no ordinary file", path.display())),
            Err(e) => others.push(format!("{} is passed over: {e}", path.display())),
        }
    }
    files.sort();
    others.sort();
    Ok((files, others))
}
