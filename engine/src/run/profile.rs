//! Profiles of a run's experts: written at its end, preloaded at the beginning of another.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bmoe_trace::profile::Profile;
use bmoe_trace::record::{ModelShape, Record};
use bmoe_trace::{Mode, RunConfig};

use super::sinks::RecordSink;
use super::whole_file::write_whole;
use crate::error::EngineError;
use crate::flash::store::ExpertStore;

/// `--save-profile`: counts the uses of all experts, and writes them when the run ends, however it ends.
pub struct ProfileFile {
    path: PathBuf,
    profile: Option<Profile>,
}

impl ProfileFile {
    /// Writes to `path`.
    #[must_use]
    pub fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), profile: None }
    }
}

impl RecordSink for ProfileFile {
    fn record(&mut self, record: &Record) -> Result<(), EngineError> {
        match (record, &mut self.profile) {
            (Record::Start(start), none) => *none = Some(Profile::new(&start.model)),
            (Record::Route(route), Some(profile)) => profile.add(route),
            (Record::End(_), Some(profile)) if profile.uses.iter().flatten().any(|u| *u > 0) => {
                let json = profile.to_json();
                return write_whole(&self.path, json.as_bytes()).map_err(|e| EngineError::Output {
                    what: format!("the profile {}", self.path.display()),
                    message: e.to_string(),
                });
            }
            _ => {}
        }
        Ok(())
    }

    fn wants_routes(&self) -> bool {
        true
    }
}

/// The profile that a configuration names, if it does.
///
/// # Errors
/// It can't be read, is of another model, or there is no cache to fill.
pub(super) fn load(config: &RunConfig, shape: &ModelShape) -> Result<Option<Profile>, EngineError> {
    let Some(path) = &config.warm_profile else { return Ok(None) };
    if config.mode != Mode::Stream || !config.cache_mib.is_on() {
        return Err(EngineError::Config(format!(
            "--warm-profile {} fills the expert cache, and there is none; give --cache-mb, in stream mode",
            path.display()
        )));
    }
    let profile = Profile::load(path, shape).map_err(|e| EngineError::Config(e.to_string()))?;
    Ok(Some(profile))
}

/// What preloading did.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Preloaded {
    /// Bytes of the experts' slices.
    pub(super) bytes: u64,
    /// How long it took.
    pub(super) took: Duration,
}

/// Reads a profile's experts into the cache, the most used first, as far as there is room.
///
/// # Errors
/// A read failed.
pub(super) fn preload(
    store: &mut ExpertStore,
    profile: &Profile,
    cancelled: &dyn Fn() -> bool,
) -> Result<Preloaded, EngineError> {
    let start = Instant::now();
    let bytes = store.warm(&profile.ranked(), cancelled)?;
    Ok(Preloaded { bytes, took: start.elapsed() })
}
