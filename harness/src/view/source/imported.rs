//! Imported folders and traces of any program.

use std::path::Path;

use bmoe_analysis::data::imported::{ImportedReader, ImportedRun, LogColumns};
use bmoe_analysis::routes::{LoadOptions, RouteTrace, load, load_all};

use crate::error::Error;
use crate::view::world::{RouteLog, RunData, Step, World};

const MIB: f64 = 1024.0 * 1024.0;

/// A folder of `bmoe import`.
///
/// # Errors
/// It is damaged.
pub fn folder(dir: &Path) -> Result<World, Error> {
    let mut world = World { name: dir.display().to_string(), ..World::default() };
    let reader = ImportedReader::new(dir);
    for (id, imported) in reader.runs()? {
        let mut run = of_log(&imported, &reader.log(&id)?);
        if imported.route_rows > 0 {
            let mut source = dir.as_os_str().to_owned();
            source.push(":");
            source.push(&id);
            add_routes(&mut run, load(Path::new(&source), options())?);
        }
        run.run_id = Some(id);
        world.runs.push(run);
    }
    Ok(world)
}

/// A trace of any format that `bmoe import` reads.
///
/// # Errors
/// It holds no routes, or is damaged.
pub fn trace(path: &Path) -> Result<World, Error> {
    let mut world = World { name: path.display().to_string(), ..World::default() };
    for trace in load_all(path, options())? {
        let mut run = RunData { name: trace.name.clone(), over: true, ..RunData::default() };
        add_routes(&mut run, trace);
        world.runs.push(run);
    }
    Ok(world)
}

fn options() -> LoadOptions {
    LoadOptions { residency: true, ..LoadOptions::default() }
}

/// Tokens of which only the routes are known have no times.
fn add_routes(run: &mut RunData, trace: RouteTrace) {
    run.routes = RouteLog::new(trace);
    for _ in run.steps().len()..run.routes.tokens() {
        run.push(Step::default());
    }
}

fn of_log(imported: &ImportedRun, log: &LogColumns) -> RunData {
    let mut run = RunData {
        name: imported.name.clone(),
        model: imported.model.clone().unwrap_or_default(),
        overlap: imported.overlap == Some(true),
        over: true,
        ..RunData::default()
    };
    for row in 0..log.rows {
        let at = |name: &str| log.get(name).get(row).copied().flatten().filter(|v| *v >= 0.0);
        let ns = |name: &str| at(name).map(|ms| (ms * 1e6) as u64);
        let mib = |name: &str| at(name).map(|mib| (mib * MIB) as u64);
        let count = |name: &str| at(name).map(|n| n as u64);
        // Under overlap the published I/O time is that of the lanes, and waiting is the stall.
        let (waited, busy) =
            if run.overlap { (ns("stall_ms"), ns("io_ms")) } else { (ns("io_ms"), None) };
        run.push(Step {
            wall_ns: ns("wall_ms"),
            compute_ns: ns("compute_ms"),
            io_wait_ns: ns("io_wait_ms").or(waited),
            mgmt_ns: ns("mgmt_ms"),
            other_ns: ns("other_ms"),
            lane_busy_ns: ns("lane_busy_ms").or(busy),
            read_bytes: count("read_bytes"),
            hits: count("hits"),
            misses: count("misses"),
            cumulative_hit_rate: at("cache_hit_pct").map(|pct| pct / 100.0),
            major_faults: count("majflt"),
            cache_resident_bytes: None,
            cache_budget_bytes: mib("cache_budget_mib").filter(|b| *b > 0),
            rss_bytes: mib("rss_mib"),
            mem_available_bytes: mib("mem_available_mib"),
        });
    }
    run
}
