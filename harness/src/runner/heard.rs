//! What is heard of a run on a device, kept here for whoever watches it.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use bmoe_trace::supervised::Followed;

use super::executor::{Event, Job};

/// What has been heard of a run on a device, in the attempt's folder here until the device's own files are
/// fetched: lines of `bmoe-engine follow`. For whoever watches the run; nothing is judged by it.
pub const FOLLOWED_FILE: &str = "followed.txt";

/// Keeps what is heard of a run elsewhere. A failure of it is none of the run's.
#[derive(Debug)]
pub(super) struct Heard(Option<File>);

impl Heard {
    pub(super) fn new(job: &Job<'_>) -> Self {
        let path = job.folder.join(FOLLOWED_FILE);
        let elsewhere = !is_here(job);
        Self(elsewhere.then(|| File::create(path).ok()).flatten())
    }

    pub(super) fn keep(&mut self, event: &Event) {
        let followed = match event {
            Event::Line(line) => Followed::Line(line.clone()),
            Event::Sample(sample) => Followed::Sample(sample.clone()),
            Event::Notice(_) => return,
        };
        if let Some(file) = &mut self.0
            && file.write_all(format!("{followed}\n").as_bytes()).is_err()
        {
            self.0 = None;
        }
    }
}

/// Whether the attempt's place on the target is its folder here.
pub(super) fn is_here(job: &Job<'_>) -> bool {
    let here = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    here(job.place) == here(job.folder)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::source::attempt::AttemptFeed;
    use crate::view::world::RunData;
    use bmoe_trace::RunConfig;
    use bmoe_trace::line::Line;
    use std::time::Duration;

    const PROGRESS: &str = r#"BMOE_PROGRESS {"step":1,"steps":9,"wall_ms":2.0,"io_ms":0.5,"compute_ms":1.0,"mgmt_ms":0.1,"stall_ms":0.0,"read_mb":3.0,"cache_hit_pct":50.0,"majflt":0,"cpu_ms":1.0,"delta_text":"Once","lane_busy_ms":0.5,"other_ms":0.4}"#;

    #[test]
    fn what_is_heard_of_a_device_is_what_the_viewer_shows() {
        let folder = tempfile::tempdir().unwrap();
        let config = RunConfig::default();
        let timeout = Duration::from_secs(1);
        let away = Path::new("/data/elsewhere");
        let job = Job { config: &config, place: away, folder: folder.path(), timeout };
        let mut heard = Heard::new(&job);
        let line = Line::parse(PROGRESS).unwrap();
        // A follower that begins again says things twice.
        (0..2).for_each(|_| heard.keep(&Event::Line(line.clone())));
        heard.keep(&Event::Notice("lost".into()));
        let mut run = RunData::default();
        AttemptFeed::new(folder.path()).poll(&mut run);
        assert_eq!((run.steps().len(), run.text(1)), (1, ("Once", true)));
        assert_eq!(run.steps()[0].wall_ns, Some(2_000_000));
    }

    #[test]
    fn nothing_is_kept_of_a_run_whose_files_are_here() {
        let folder = tempfile::tempdir().unwrap();
        let config = RunConfig::default();
        let (place, timeout) = (folder.path(), Duration::from_secs(1));
        let _ = Heard::new(&Job { config: &config, place, folder: place, timeout });
        assert!(!folder.path().join(FOLLOWED_FILE).exists());
    }
}
