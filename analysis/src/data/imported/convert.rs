//! From traces and logs to an imported folder.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use bmoe_trace::import::{Import, LogReader, RouteReader};

use super::part::{self, LazyPart, write_whole};
use super::plan::{Group, Plan};
use super::run::{ImportedRun, file_name, json};
use super::{Partitioned, index_path, is_imported, names};
use crate::data::write::frame;
use crate::error::{AnalysisError, Result};

/// Called now and then with the bytes read so far; `Break` stops the import, of which nothing is left then.
pub type Progress<'a> = dyn FnMut(u64) -> ControlFlow<()> + 'a;

/// Writes the runs of a plan into a folder, which appears whole or not at all.
///
/// # Errors
/// A file can't be read or is damaged, the folder is in the way (with `replace` only one that `bmoe import` did not
/// make) or can't be written, or `progress` stopped the work.
pub fn import(
    plan: Plan,
    out: &Path,
    replace: bool,
    progress: &mut Progress<'_>,
) -> Result<Vec<(String, ImportedRun)>> {
    check_free(out, replace)?;
    let parent = out.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::create_dir_all(parent).map_err(AnalysisError::io("make the folder", parent))?;
    let name = out.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let temp = tempfile::Builder::new()
        .prefix(&format!(".{name}."))
        .suffix(".part")
        .tempdir_in(parent)
        .map_err(AnalysisError::io("write", out))?;
    let runs =
        Conversion { dir: temp.path(), done: plan.done.clone(), progress }.all(plan.groups)?;
    put_in_place(temp, out, parent)?;
    Ok(runs)
}

/// Refuses a folder that would be lost.
fn check_free(out: &Path, replace: bool) -> Result<()> {
    let refused = |message: &str| {
        Err(AnalysisError::ImportRefused { path: out.to_owned(), message: message.to_owned() })
    };
    let mut entries = match fs::read_dir(out) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(AnalysisError::io("use as a folder", out))?,
    };
    match (entries.next().is_some(), is_imported(out)) {
        (false, _) => Ok(()),
        (true, true) if replace => match foreign(out).map_err(AnalysisError::io("read", out))? {
            None => Ok(()),
            Some(path) => refused(&format!(
                "holds {}, which no import made and --force would remove; move it away, or give another --out",
                path.display()
            )),
        },
        (true, true) => {
            refused("holds an import already; --force replaces it, another --out keeps both")
        }
        (true, false) => {
            refused("is not empty and was not made by `bmoe import`; give another --out")
        }
    }
}

/// Something in an imported folder that neither `bmoe import` nor `bmoe report` has put there.
fn foreign(out: &Path) -> std::io::Result<Option<PathBuf>> {
    for entry in fs::read_dir(out)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let inside: Option<fn(&str) -> bool> = match name.as_str() {
            "report.md" | "report.html" => continue,
            "plots" => Some(|name| name.ends_with(".svg") || name.ends_with(".png")),
            "data" => Some(|name| ["imported.parquet", "routes", "scores", "logs"].contains(&name)),
            _ => None,
        };
        let Some(ours) = inside.filter(|_| path.is_dir()) else { return Ok(Some(path)) };
        for entry in fs::read_dir(&path)? {
            let path = entry?.path();
            if !ours(&path.file_name().unwrap_or_default().to_string_lossy()) {
                return Ok(Some(path));
            }
        }
    }
    Ok(None)
}

fn put_in_place(temp: tempfile::TempDir, out: &Path, parent: &Path) -> Result<()> {
    let failed = || AnalysisError::io("write", out);
    // Temporary folders are private by default.
    #[cfg(unix)]
    fs::set_permissions(temp.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .map_err(failed())?;
    sync_folders(temp.path()).map_err(failed())?;
    let old = if is_imported(out) {
        let aside = tempfile::Builder::new().prefix(".old.").tempdir_in(parent).map_err(failed())?;
        fs::rename(out, aside.path().join("old")).map_err(failed())?;
        Some(aside)
    } else {
        None
    };
    let new = temp.keep();
    if let Err(e) = fs::rename(&new, out) {
        if let Some(aside) = &old {
            // What was there before is better than nothing; the first error is the one to tell.
            let _ = fs::rename(aside.path().join("old"), out);
        }
        let _ = fs::remove_dir_all(&new);
        return Err(failed()(e));
    }
    File::open(parent)
        .and_then(|folder| folder.sync_all())
        .map_err(AnalysisError::io("write", parent))
}

/// Names of files are not on the disk before their folders are.
fn sync_folders(folder: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            sync_folders(&entry.path())?;
        }
    }
    File::open(folder)?.sync_all()
}

struct Conversion<'a, 'p> {
    dir: &'a Path,
    done: std::rc::Rc<std::cell::Cell<u64>>,
    progress: &'a mut Progress<'p>,
}

impl Conversion<'_, '_> {
    fn all(&mut self, groups: Vec<Group>) -> Result<Vec<(String, ImportedRun)>> {
        let mut uses: BTreeMap<String, usize> = BTreeMap::new();
        for group in &groups {
            *uses.entry(group.base.clone()).or_default() += 1;
        }
        let mut ids = BTreeSet::new();
        let mut runs: Vec<(String, ImportedRun)> = Vec::new();
        for group in groups {
            let mut name = group.base.clone();
            if uses[&name] > 1 {
                name = group.long_name();
            }
            // Two logs of one stem in one folder.
            if runs.iter().any(|(_, run)| run.name == name) {
                name = format!("{name} ({})", group.files().join(", "));
            }
            runs.push(self.one(group, name, &mut ids)?);
        }
        tell_cells_apart(&mut runs);
        let mut columns = frame::<ImportedRun>("", &[]);
        for (run_id, run) in &runs {
            let row = frame(run_id, std::slice::from_ref(run));
            columns =
                columns.and_then(|mut all| all.vstack_mut_owned(row?).map(|_| ()).map(|()| all));
        }
        let path = index_path(self.dir);
        let mut columns =
            columns.map_err(|e| AnalysisError::io("write", &path)(std::io::Error::other(e)))?;
        columns.rechunk_mut();
        write_whole(&path, "imported", &columns)?;
        Ok(runs)
    }

    fn one(
        &mut self,
        group: Group,
        name: String,
        ids: &mut BTreeSet<String>,
    ) -> Result<(String, ImportedRun)> {
        let files = group.files();
        let Group { routes, log, device, .. } = group;
        let mut run = ImportedRun {
            cell: name.clone(),
            name: name.clone(),
            files_json: json(&files),
            layers_json: "[]".to_owned(),
            route_keys_json: "[]".to_owned(),
            log_keys_json: "[]".to_owned(),
            ..ImportedRun::default()
        };
        let run_id = names::run_id(&name, ids);
        let mut notes: Vec<String> = Vec::new();
        if let Some(mut input) = routes {
            let Import::Routes(reader) = input.open()? else { return Err(input.changed()) };
            self.routes(&input.path, &run_id, *reader, &mut run, &mut notes)?;
        }
        if let Some(mut input) = log {
            let Import::Log(reader) = input.open()? else { return Err(input.changed()) };
            self.log(&input.path, &run_id, *reader, &mut run, &mut notes)?;
        }
        if let Some(mut input) = device {
            let Import::Device(metrics) = input.open()? else { return Err(input.changed()) };
            run.device_json = Some(json(&metrics.keys));
            notes.extend(metrics.unfinished_line.map(|line| {
                format!(
                    "{}: line {line}, the last, has no end and was left out: it may have been cut off",
                    input.name()
                )
            }));
        }
        run.notes_json = json(&notes);
        Ok((run_id, run))
    }

    fn routes<R: std::io::Read>(
        &mut self,
        path: &Path,
        run_id: &str,
        mut reader: RouteReader<R>,
        run: &mut ImportedRun,
        notes: &mut Vec<String>,
    ) -> Result<()> {
        let mut routes = self.part(Partitioned::Routes, run_id);
        let mut scores = self.part(Partitioned::Scores, run_id);
        while let Some(mut chunk) = reader.next().map_err(AnalysisError::import(path))? {
            self.advance()?;
            run.route_rows += chunk.len() as u64;
            run.route_events =
                chunk.event.last().map_or(run.route_events, |last| u64::from(*last) + 1);
            let scored = std::mem::take(&mut chunk.scores);
            routes.write(part::routes(chunk, &reader.header().extra_columns))?;
            scores.write(part::scores(scored))?;
        }
        routes.finish()?;
        scores.finish()?;
        run.route_format = Some(reader.format().as_str().to_owned());
        run.describe_routes(reader.header());
        notes.extend(reader.notes());
        if run.route_rows == 0 {
            notes.push("it has no routes".to_owned());
        }
        if let Some(text) = reader.log() {
            // Made of the trace's records: what is wrong with it is wrong with the trace.
            let log = LogReader::open(text).map_err(AnalysisError::import(path))?;
            let mut of_log = Vec::new();
            self.log(path, run_id, log, run, &mut of_log)?;
        }
        Ok(())
    }

    fn log<R: std::io::Read>(
        &mut self,
        path: &Path,
        run_id: &str,
        mut reader: LogReader<R>,
        run: &mut ImportedRun,
        notes: &mut Vec<String>,
    ) -> Result<()> {
        let mut part = self.part(Partitioned::Logs, run_id);
        let mut stalls = false;
        while let Some(chunk) = reader.next().map_err(AnalysisError::import(path))? {
            self.advance()?;
            run.log_rows += chunk.rows as u64;
            stalls |= chunk.any_positive(reader.header(), "stall_ms");
            part.write(part::log(reader.header(), chunk))?;
        }
        part.finish()?;
        let header = reader.header();
        let keys = &header.keys;
        run.log_version = Some(header.version.unwrap_or(0));
        // Without a preamble only stalls tell: serial runs have none.
        run.overlap = Some(keys.parsed::<u32>("overlap").map_or(stalls, |overlap| overlap > 0));
        run.model = run.model.take().or(keys.get("model").map(file_name));
        run.arch = run.arch.take().or(keys.get("arch").map(str::to_owned));
        if let Some(cell) = names::cell(keys) {
            run.cell = cell;
        }
        run.log_keys_json = json(keys);
        run.summary_json = header.summary.as_ref().map(json);
        notes.extend(reader.notes().iter().cloned());
        Ok(())
    }

    fn part(&self, table: Partitioned, run_id: &str) -> LazyPart {
        LazyPart::new(table.path(self.dir, run_id), table.as_str())
    }

    fn advance(&mut self) -> Result<()> {
        match (self.progress)(self.done.get()) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(AnalysisError::ImportStopped),
        }
    }
}

/// Cells of one model with the same settings get their runs' names besides.
fn tell_cells_apart(runs: &mut [(String, ImportedRun)]) {
    let mut uses: BTreeMap<(Option<String>, String), usize> = BTreeMap::new();
    let key = |run: &ImportedRun| (run.model.clone(), run.cell.clone());
    for (_, run) in runs.iter() {
        *uses.entry(key(run)).or_default() += 1;
    }
    for (_, run) in runs {
        if uses[&key(run)] > 1 && run.cell != run.name {
            run.cell = format!("{} ({})", run.cell, run.name);
        }
    }
}
