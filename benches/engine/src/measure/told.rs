//! One line for people.

use crate::data::Entry;

/// Of one measurement.
pub(super) fn line(entry: &Entry) -> String {
    let what = match (&entry.failure, &entry.run, &entry.ceiling) {
        (Some(failure), _, _) => format!("failed: {failure}"),
        (_, Some(run), _) => {
            let wall =
                if run.steps.wall_ns.is_empty() { &run.arrivals_ns } else { &run.steps.wall_ns };
            let seconds = wall.iter().sum::<u64>() as f64 / 1e9;
            format!(
                "{} tokens, {:.2} tok/s, load {:.2} s",
                wall.len(),
                wall.len() as f64 / seconds,
                run.load_ns as f64 / 1e9
            )
        }
        (_, _, Some(rows)) => {
            let rows = rows
                .iter()
                .map(|r| format!("{:.0} KiB {:.0} MiB/s", r.bytes as f64 / 1024.0, r.mib_s));
            rows.collect::<Vec<_>>().join(", ")
        }
        (None, None, None) => String::new(),
    };
    let noise = if entry.noise.others_at_work() {
        format!(
            " (others at work: {:.2} cores, {:.1} % stolen)",
            entry.noise.others_cores,
            100.0 * entry.noise.steal_share
        )
    } else {
        String::new()
    };
    format!("{}, repeat {}: {what}{noise}", entry.name, entry.round + 1)
}
