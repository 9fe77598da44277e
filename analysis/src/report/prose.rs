//! The report's text.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::{HeatmapPart, Loaded, ModelPart, definitions};
use crate::markdown::{Markdown, escape, link_text};
use crate::result_set::{Environment, ModelFile};
use crate::stats;
use crate::table::{self, Against, Row, mib};
use crate::tells;

const MIB: f64 = 1024.0 * 1024.0;

/// Repetitions that differ by more are told.
const WIDE_SPREAD: f64 = 0.15;

pub(super) fn report(
    loaded: &Loaded,
    models: &[ModelPart<'_>],
    groups: &[(String, Vec<Against>)],
    published: &str,
) -> String {
    let mut text = match &loaded.matrix {
        Some(name) => format!("# {}: benchmark report\n\n", escape(name)),
        None => "# Benchmark report\n\n".to_owned(),
    };
    text.push_str(
        "Made by `bmoe report .` in this folder, from `data/*.parquet`, `cells.jsonl` and \
         `environment.json`; `bmoe run matrix.toml` measures again.\n",
    );
    for model in models {
        push_model(&mut text, model, &loaded.environment);
    }
    if models.is_empty() {
        text.push_str("\nNo cell has ended yet.\n");
    }
    for (name, pairs) in groups {
        let _ = writeln!(text, "\n## Group: {}\n", escape(name));
        if pairs.is_empty() {
            text.push_str("No pair of it has been measured.\n");
        } else {
            text.push_str(&table::group(pairs));
        }
    }
    text.push_str(published);
    text.push('\n');
    definitions::push(&mut text, models, loaded.warmup_tokens);
    text.push_str("\n## Environment\n\n");
    text.push_str(&environment(&loaded.environment, loaded));
    push_notes(&mut text, loaded);
    text
}

fn push_model(text: &mut String, part: &ModelPart<'_>, environment: &Environment) {
    let file = environment.models.iter().find(|m| m.name == part.name);
    let _ = writeln!(text, "\n## {}\n", escape(part.name));
    if let Some(about) = about_model(part, file) {
        let _ = writeln!(text, "{about}\n");
    }
    text.push_str(&table::benchmark(&part.rows));
    let mut remarks: Vec<String> =
        part.rows.iter().flat_map(|row| remarks(row, environment.cores)).collect();
    remarks.extend(replayed(part));
    if !remarks.is_empty() {
        text.push('\n');
        for remark in remarks {
            let _ = writeln!(text, "- {remark}");
        }
    }
    for baseline in part.rows.iter().filter(|row| row.cell.baseline) {
        let against = table::against(&part.rows, baseline.cell.id);
        if !against.is_empty() {
            let _ = write!(text, "\n### Against {}\n\n{against}", escape(baseline.cell.name));
        }
    }
    let intervals = table::intervals(&part.rows);
    if !intervals.is_empty() {
        let _ = write!(text, "\n### 95 % intervals of the rates, tok/s\n\n{intervals}");
    }
    let steady = table::steady(&part.rows);
    if !steady.is_empty() {
        let _ = write!(text, "\n### Steady state\n\n{steady}");
    }
    let per_token = table::per_token(&part.rows);
    if !per_token.is_empty() {
        let _ = write!(text, "\n### Where the time of a token goes\n\n{per_token}");
    }
    let start_up = table::start_up(&part.rows);
    if !start_up.is_empty() {
        let _ = write!(text, "\n### Before the first token, and memory for experts\n\n{start_up}");
    }
    let _ = write!(text, "\n### Under pressure\n\n{}", table::pressure(&part.rows));
    let not_valid = table::not_valid(&part.rows);
    if !not_valid.is_empty() {
        let _ = write!(text, "\n### Attempts that are not valid\n\n{not_valid}");
    }
    if let Some(heatmap) = &part.heatmap {
        push_heatmap(text, part.name, heatmap);
    }
    if let Some(file) = &part.distribution {
        let _ = writeln!(
            text,
            "\n### Rates of single tokens\n\n![Rates of single tokens in each configuration, {model}](plots/{file}.svg)\n\n\
             All valid repetitions together ([PNG](plots/{file}.png)).",
            model = link_text(part.name),
        );
    }
    if !part.timelines.is_empty() {
        text.push_str("\n### Timelines\n\n");
        text.push_str("Each shows the cell's first valid repetition.\n");
        for timeline in &part.timelines {
            let (cell, file) = (&timeline.cell, &timeline.file);
            let _ = writeln!(
                text,
                "\n![Time of each decode token, {alt}](plots/{file}.svg)\n\n\
                 {cell} ([PNG](plots/{file}.png))",
                alt = link_text(cell),
                cell = escape(cell),
            );
        }
    }
}

/// What makes a cell's figures doubtful.
fn remarks(row: &Row<'_>, cores: Option<u32>) -> Vec<String> {
    let name = escape(row.cell.name);
    let mut remarks = Vec::new();
    let Some(figures) = &row.figures else { return remarks };
    if let Some((low, high)) = figures.run_range()
        && high > low * (1.0 + WIDE_SPREAD)
    {
        remarks.push(format!(
            "{name}: the repetitions differ by {:.0} % ({low:.2} to {high:.2} tok/s); something else than the \
             cell decided.",
            100.0 * (high / low - 1.0)
        ));
    }
    if figures.perturbed {
        remarks.push(format!(
            "{name}: reads or computation were traced, which takes time of its own; its rates are not \
             comparable."
        ));
    }
    let busiest =
        row.cell.valid().filter_map(|a| Some(a.load_average?.start)).max_by(f64::total_cmp);
    if let Some((load, cores)) = busiest.zip(cores)
        && load > f64::from(cores) + 0.5
    {
        remarks.push(format!(
            "{name}: the machine was busy before a repetition began (load average {load:.1} on {cores} \
             cores)."
        ));
    }
    remarks
}

/// Whose routes replayed cells follow, and what that means.
fn replayed(part: &ModelPart<'_>) -> Option<String> {
    let traces: BTreeSet<String> = part
        .rows
        .iter()
        .filter_map(|row| row.cell.config.replay_routes.as_ref()?.file_name())
        .map(|name| format!("`{}`", escape(&name.to_string_lossy())))
        .collect();
    (!traces.is_empty()).then(|| {
        format!(
            "Replayed: every token used the experts that {} recorded, whatever the model's router chose. Accesses, \
             reads and times are real, the text is not.",
            traces.into_iter().collect::<Vec<_>>().join(" and ")
        )
    })
}

fn about_model(part: &ModelPart<'_>, file: Option<&ModelFile>) -> Option<String> {
    let mut facts = Vec::new();
    if let Some(file) = file {
        let size = mib(Some(file.file_bytes as f64 / MIB));
        facts.push(format!("`{}`, {size} MiB", escape(&file.file)));
        if let Some(shape) = &file.synth_shape {
            facts.push(format!("synthetic, shape `{}`", escape(shape)));
        }
    }
    if let Some(run) = part.run {
        facts.push(format!(
            "architecture {}, {} MoE layers × {} experts, top-{}",
            escape(&run.arch),
            run.n_moe_layer,
            run.n_expert,
            run.n_expert_used
        ));
        facts.push(format!(
            "all experts {} MiB, of which one token uses {} MiB",
            mib(Some(run.expert_set_bytes as f64 / MIB)),
            mib(Some(run.token_demand_bytes as f64 / MIB))
        ));
    }
    if let Some(file) = file {
        facts.push(format!("SHA-256 `{}`", escape(&file.sha256)));
    }
    (!facts.is_empty()).then(|| facts.join("; ") + ".")
}

fn push_heatmap(text: &mut String, model: &str, heatmap: &HeatmapPart) {
    let HeatmapPart { hot, overlap, run, file } = heatmap;
    let touched: Vec<f64> = hot.layers.iter().map(|l| l.touched as f64).collect();
    let (previous, eighth) = (overlap.mean_at(1), overlap.mean_at(8));
    let _ = write!(
        text,
        "\n### Expert reuse\n\n![Share of decode tokens routed to each expert of each layer, \
         {alt}](plots/{file}.svg)\n\n\
         Routes of {run} ([PNG](plots/{file}.png)); every lossless cell routes alike. ",
        alt = link_text(model),
        run = escape(run),
    );
    if let Some(mean) = stats::mean(&touched) {
        let least = touched.iter().copied().fold(f64::INFINITY, f64::min);
        let most = touched.iter().copied().fold(0.0, f64::max);
        let _ = write!(
            text,
            "{} decode tokens used {mean:.0} of {} experts in an average layer ({least:.0} to \
             {most:.0}).",
            hot.tokens, hot.n_expert
        );
    }
    if let Some(previous) = previous {
        let _ = write!(
            text,
            " A token shares {:.1} % of a layer's experts with the previous token",
            previous * 100.0
        );
        match eighth {
            Some(eighth) => {
                let _ = write!(text, " and {:.1} % with the one eight steps back.", eighth * 100.0);
            }
            None => text.push('.'),
        }
    }
    text.push('\n');
}

fn environment(env: &Environment, loaded: &Loaded) -> String {
    let mut table = Markdown::new(&["what", "value"]);
    table.left_aligned(1);
    let unknown = || "unknown".to_owned();
    let gib = |bytes: u64| format!("{:.1} GiB", bytes as f64 / (MIB * 1024.0));
    let text = |value: &Option<String>| value.clone().unwrap_or_else(unknown);
    let memory = |value: Option<u64>| value.map_or_else(unknown, gib);
    let llama: std::collections::BTreeSet<&str> =
        loaded.measured.runs.values().map(|r| r.llama_version.as_str()).collect();
    let llama = llama.into_iter().collect::<Vec<_>>().join(", ");
    let rows = [
        ("started", text(&env.started)),
        ("CPU", text(&env.cpu)),
        ("cores usable", env.cores.map_or_else(unknown, |n| n.to_string())),
        ("memory", memory(env.mem_total_bytes)),
        ("memory available at the start", memory(env.mem_available_bytes)),
        ("memory limit (cgroup)", env.cgroup_limit_bytes.map_or_else(|| "none".to_owned(), gib)),
        ("kernel", text(&env.kernel)),
        ("operating system", text(&env.os)),
        ("virtualisation", env.virtualisation.clone().unwrap_or_else(|| "none detected".into())),
        ("disk of the models", text(&env.disk)),
        ("its readahead", env.read_ahead_kib.map_or_else(unknown, |k| format!("{k} KiB"))),
        ("file system", text(&env.file_system)),
        ("transparent huge pages", text(&env.huge_pages)),
        ("bmoe commit", text(&env.bmoe_commit)),
        ("engine", text(&env.engine_version)),
        ("llama.cpp bindings", if llama.is_empty() { unknown() } else { llama }),
    ];
    for (what, value) in rows {
        table.row(&[what.to_owned(), value]);
    }
    table.finish()
}

fn push_notes(text: &mut String, loaded: &Loaded) {
    let mut notes = Vec::new();
    for left_out in &loaded.metadata.left_out {
        let (trace, reason) = (escape(&left_out.trace), escape(&left_out.reason));
        notes.push(format!("`{trace}` was left out: {reason}."));
    }
    for (run_id, row) in &loaded.measured.runs {
        let held = loaded.measured.tokens.get(run_id).map_or(0, Vec::len);
        let run_id = escape(run_id);
        let cell = row.cell_name.as_deref().unwrap_or("a run that the journal does not know");
        if row.truncated_bytes > 0 {
            notes.push(format!(
                "{} (run {run_id}): its trace ends in an unfinished record; {} bytes were left out and \
                 {} tokens kept.",
                escape(cell),
                row.truncated_bytes,
                row.tokens
            ));
        } else if row.cell_name.is_none() {
            notes.push(format!(
                "Run {run_id} is in the data but not in `cells.jsonl` (its attempt never ended); it is \
                 in no table."
            ));
        }
        if row.truncated_bytes == 0
            && row.outcome.is_none()
            && row.verdict.as_deref() == Some("valid")
        {
            notes.push(format!(
                "{} (run {run_id}): its trace lacks its end; {} of {} tokens were kept.",
                escape(cell),
                row.tokens,
                row.n_predict
            ));
        }
        if held != row.tokens as usize {
            notes.push(format!(
                "{} (run {run_id}): `data/tokens.parquet` holds {held} of its {} tokens; its figures are \
                 without the others (copy the file from where the matrix ran, or its trace into `runs/`, \
                 and run `bmoe report` again).",
                escape(cell),
                row.tokens
            ));
        }
        if row.load_expert_read_bytes.is_some_and(|b| b > 0) && row.mode == "stream" {
            notes.push(format!("{}: expert bytes were read while loading.", escape(cell)));
        }
        if let Some(reason) = row.direct_io.as_deref().and_then(|d| d.strip_prefix("unavailable: "))
        {
            notes.push(format!(
                "{}: O_DIRECT was asked for and not used: {}.",
                escape(cell),
                escape(reason)
            ));
        }
        if let Some(reason) = row.io_engine.as_deref().and_then(|e| e.strip_prefix("unavailable: "))
        {
            notes.push(format!(
                "{}: io_uring was asked for and pread was used: {}.",
                escape(cell),
                escape(reason)
            ));
        }
    }
    for finding in tells::of_folder(&loaded.measured) {
        notes.push(format!(
            "Suspect: {}. Something else than the cell may have decided; run it again, in another order.",
            escape(&finding.evidence)
        ));
    }
    for (cell, run_id) in &loaded.without_data {
        notes.push(format!(
            "{} was valid, and the data do not hold its run {}; its figures are without it.",
            escape(cell),
            escape(run_id)
        ));
    }
    if loaded.measured.journal.unfinished_line {
        notes
            .push("The last line of `cells.jsonl` was never completed; it was passed over.".into());
    }
    if !notes.is_empty() {
        text.push_str("\n## Notes\n\n");
        for note in notes {
            let _ = writeln!(text, "- {note}");
        }
    }
}
