//! Processes: which one is which, and ending along with another one.

use std::path::Path;

use bmoe_trace::supervised::Supervisor;
use rustix::process::{Pid, Signal, getppid, kill_process, set_parent_process_death_signal};

use crate::SuperviseError;

/// What `/proc/PID/stat` tells behind the command's name, which may hold anything.
pub(crate) struct Stat {
    fields: Vec<String>,
}

impl Stat {
    pub(crate) fn of(root: &Path, pid: u32) -> Option<Self> {
        // qemu, which runs programs of other CPUs, makes up a process's own file under its usual path; then the process
        // would know another start of itself than everybody else.
        let text = std::fs::read_to_string(root.join(format!("proc/./{pid}/stat"))).ok()?;
        Self::parse(&text)
    }

    fn parse(text: &str) -> Option<Self> {
        let (_, fields) = text.rsplit_once(')')?;
        Some(Self { fields: fields.split_ascii_whitespace().map(str::to_owned).collect() })
    }

    /// Field `number` as proc(5) counts them, from 3.
    fn field(&self, number: usize) -> Option<&str> {
        self.fields.get(number.checked_sub(3)?).map(String::as_str)
    }

    pub(crate) fn major_faults(&self) -> Option<u64> {
        self.field(12)?.parse().ok()
    }

    fn start_ticks(&self) -> Option<u64> {
        self.field(22)?.parse().ok()
    }

    /// It has ended, and nobody asked how yet.
    fn is_dead(&self) -> bool {
        matches!(self.field(3), Some("Z" | "X" | "x"))
    }
}

fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .map(|text| text.trim().to_owned())
        .unwrap_or_default()
}

/// This process.
#[must_use]
pub fn own() -> Supervisor {
    let pid = std::process::id();
    let start_ticks = Stat::of(Path::new("/"), pid).and_then(|s| s.start_ticks()).unwrap_or(0);
    Supervisor { pid, start_ticks, boot_id: boot_id() }
}

/// Whether a process still runs: the same one, not another that got its number.
#[must_use]
pub fn is_alive(process: &Supervisor) -> bool {
    process.boot_id == boot_id()
        && Stat::of(Path::new("/"), process.pid)
            .is_some_and(|s| s.start_ticks() == Some(process.start_ticks) && !s.is_dead())
}

/// Asks a process to end, when it is still the same one.
pub(crate) fn terminate(process: &Supervisor) {
    let pid = i32::try_from(process.pid).ok().and_then(Pid::from_raw);
    if let Some(pid) = pid.filter(|_| is_alive(process)) {
        // An error means that it has ended meanwhile, which is what was wanted.
        let _ = kill_process(pid, Signal::TERM);
    }
}

/// Makes this process end when the one that started it ends, whatever becomes of either.
///
/// # Errors
/// The system can't do that, or `parent` is not this process's parent (any more).
pub fn end_with_parent(parent: i32) -> Result<(), SuperviseError> {
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(|e| {
        SuperviseError::Other(format!("the engine's end cannot be tied to its supervisor's: {e}"))
    })?;
    // A parent that ended before the line above sends no signal any more.
    if getppid().is_none_or(|pid| pid.as_raw_nonzero().get() != parent) {
        return Err(SuperviseError::Other(format!(
            "the process {parent} that started this one has ended; nothing is run"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_told_from_another_one_of_its_number() {
        let me = own();
        assert!(me.start_ticks > 0 && is_alive(&me));
        assert!(!is_alive(&Supervisor { start_ticks: me.start_ticks + 1, ..me.clone() }));
        assert!(!is_alive(&Supervisor { boot_id: "another boot".into(), ..me }));
    }

    #[test]
    fn fields_are_counted_behind_the_name() {
        let stat = "42 (a name) with) Z 1 2 3 4 5 6 70 80 91 100 11 12 13 14 15 16 17 18 4242 9";
        let stat = Stat::parse(stat).unwrap();
        assert_eq!((stat.major_faults(), stat.start_ticks()), (Some(91), Some(4242)));
        assert!(stat.is_dead());
    }
}
