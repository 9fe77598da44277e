//! From a matrix to the runs that it asks for, in their order.

use std::collections::HashSet;

use bmoe_cache::PolicyKind;
use bmoe_trace::RunConfig;
use regex::{Regex, RegexBuilder};

use super::knobs::{ExtraCell, Overrides, normalise};
use super::order::Order;
use super::{Matrix, MatrixError, Model, naming};

/// One configuration of one model.
#[derive(Debug, Clone, PartialEq)]
pub struct Cell {
    /// Made from the content: the same cell has the same id in every matrix.
    pub id: String,
    /// What a person calls it.
    pub name: String,
    /// The model's name within the matrix.
    pub model: String,
    /// The configuration, without the path of the model.
    pub config: RunConfig,
    /// The baseline of its model.
    pub baseline: bool,
    /// Its text must be that of the other lossless cells with the same work.
    pub lossless: bool,
}

impl Cell {
    /// Whether both compute the same text: the same model and prompt, and the same of everything
    /// that decides which experts are used, which of ggml's kernels computes them and how tokens are
    /// chosen.
    #[must_use]
    pub fn same_text(&self, other: &Self) -> bool {
        fn key(cell: &Cell) -> impl PartialEq + '_ {
            let c = &cell.config;
            let routes = (c.n_expert_used, &c.replay_routes);
            let kernels = (c.ctx_tokens, c.ubatch_tokens);
            (&cell.model, &c.prompt, c.n_predict, routes, kernels, c.chat, c.think, c.sampling)
        }
        key(self) == key(other)
    }
}

/// One run of one cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Planned {
    /// Index of the cell.
    pub cell: usize,
    /// Repetition, from 0.
    pub repetition: u32,
}

/// The cells of a matrix and the order of their runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Schedule {
    /// The cells, model by model, baselines first.
    pub cells: Vec<Cell>,
    /// The runs, in their order.
    pub runs: Vec<Planned>,
}

/// A cell before its name and id.
struct Draft<'a> {
    /// Its own.
    name: Option<String>,
    /// The name of its prompt, where there are several.
    prompt: Option<&'a str>,
    config: RunConfig,
}

impl Matrix {
    /// Expands the axes and adds the further cells.
    ///
    /// # Errors
    /// A selector matches nothing, the baseline is ambiguous, or a cell has an impossible setting.
    pub fn schedule(&self) -> Result<Schedule, MatrixError> {
        let mut cells = Vec::new();
        for model in &self.models {
            cells.extend(self.cells_of(model)?);
        }
        self.check_runs(cells.len())?;
        self.check_selectors(&cells)?;
        for cell in &cells {
            self.check_cell(cell)?;
        }
        let baselines: Vec<Cell> = cells.iter().filter(|c| c.baseline).cloned().collect();
        for cell in &mut cells {
            cell.lossless = baselines.is_empty() || baselines.iter().any(|b| b.same_text(cell));
        }
        Ok(Schedule::new(cells, self.repetitions).ordered(self.order, self.seed))
    }

    fn cells_of(&self, model: &Model) -> Result<Vec<Cell>, MatrixError> {
        let mut base = RunConfig::default();
        self.base.apply(&mut base);
        let configure = |settings: &Overrides| {
            let mut config = base.clone();
            settings.apply(&mut config);
            normalise(&mut config);
            config
        };
        let excluded = |config: &RunConfig| self.exclude.iter().any(|e| e.matches(config));
        let combinations = self.axes.iter().flat_map(|axes| axes.combinations());
        let named: Vec<(Option<&str>, Option<&str>)> = match self.prompts.len() {
            0 => vec![(None, None)],
            1 => self.prompts.values().map(|prompt| (None, Some(prompt.as_str()))).collect(),
            _ => self.prompts.iter().map(|(n, p)| (Some(n.as_str()), Some(p.as_str()))).collect(),
        };
        let with_prompts = |settings: Overrides| {
            // A prompt that a cell or an axis names itself is its own.
            let named = if settings.prompt.is_some() { vec![(None, None)] } else { named.clone() };
            named.into_iter().map(move |(name, prompt)| {
                let mut settings = settings.clone();
                settings.prompt = settings.prompt.or(prompt.map(str::to_owned));
                (name, settings)
            })
        };
        let mut configs: Vec<Draft<'_>> = combinations
            .flat_map(&with_prompts)
            .map(|(prompt, settings)| Draft { name: None, prompt, config: configure(&settings) })
            .filter(|draft| !excluded(&draft.config))
            .collect();
        let extra = |cell: &&ExtraCell| cell.model.as_ref().is_none_or(|m| *m == model.name);
        configs.extend(self.cells.iter().filter(extra).flat_map(|c| {
            let draft = |(prompt, settings)| Draft {
                name: c.name.clone(),
                prompt,
                config: configure(&settings),
            };
            with_prompts(c.settings()).map(draft).collect::<Vec<_>>()
        }));
        if configs.is_empty() {
            return Err(self.invalid(format!(
                "has no cell for the model `{}`; add `[axes]` or a `[[cell]]`",
                model.name
            )));
        }

        // What only a cell with a name of its own has is told by that name.
        let unnamed = configs.iter().filter(|draft| draft.name.is_none()).map(|d| &d.config);
        let varying = naming::varying(&unnamed.collect::<Vec<_>>());
        // A prompt's own name says more than its first words.
        let mut without_prompt = varying.clone();
        without_prompt.remove("prompt");
        let mut seen = HashSet::new();
        let mut cells = Vec::new();
        for Draft { name, prompt, config } in configs {
            let id = naming::cell_id(model, &config);
            if !seen.insert(id.clone()) {
                continue;
            }
            cells.push(Cell {
                id,
                name: match (name, prompt) {
                    (Some(name), None) => name,
                    (None, None) => naming::cell_name(&config, &varying),
                    (name, Some(prompt)) => {
                        let name =
                            name.unwrap_or_else(|| naming::cell_name(&config, &without_prompt));
                        format!("{name}, {prompt}")
                    }
                },
                model: model.name.clone(),
                baseline: self.baseline.as_ref().is_some_and(|b| b.matches(&config)),
                lossless: false,
                config,
            });
        }
        cells.sort_by_key(|cell| !cell.baseline);
        Ok(cells)
    }

    /// A selector that selects nothing is a mistake that would otherwise go unnoticed.
    fn check_selectors(&self, cells: &[Cell]) -> Result<(), MatrixError> {
        let mut all = self.clone();
        all.exclude.clear();
        if !self.exclude.is_empty() {
            let mut everything = Vec::new();
            for model in &all.models {
                everything.extend(all.cells_of(model)?);
            }
            for (i, exclude) in self.exclude.iter().enumerate() {
                if !everything.iter().any(|cell| exclude.matches(&cell.config)) {
                    return Err(self.invalid(format!(
                        "has an exclude (number {}) that no cell matches: {}",
                        i + 1,
                        inline(exclude)
                    )));
                }
            }
        }
        for group in &self.groups {
            let (baselines, members) = group.split(cells);
            let problem = if baselines.is_empty() {
                format!("a baseline that no cell matches: {}", inline(&group.baseline))
            } else if members.is_empty() {
                format!("no members beside its baseline: {}", inline(&group.members))
            } else {
                continue;
            };
            return Err(self.invalid(format!("has the group \"{}\" with {problem}", group.name)));
        }
        for entry in self.published.iter().flat_map(|published| &published.cells) {
            let selected = entry.select(cells);
            if selected.len() != 1 {
                let names: Vec<_> = selected.iter().map(|c| format!("\"{}\"", c.name)).collect();
                let found =
                    if names.is_empty() { "no cell".to_owned() } else { names.join(" and ") };
                return Err(self.invalid(format!(
                    "has published figures whose settings select {found}: {}; expected one cell",
                    inline(&entry.settings)
                )));
            }
        }
        let Some(baseline) = &self.baseline else { return Ok(()) };
        for model in &self.models {
            let matching: Vec<_> =
                cells.iter().filter(|c| c.baseline && c.model == model.name).collect();
            if matching.is_empty() {
                return Err(self.invalid(format!(
                    "has a baseline that no cell of the model `{}` matches: {}",
                    model.name,
                    inline(baseline)
                )));
            }
            for (i, cell) in matching.iter().enumerate() {
                if let Some(other) = matching[..i].iter().find(|o| o.same_text(cell)) {
                    return Err(self.invalid(format!(
                        "has an ambiguous baseline: {} matches both \"{}\" and \"{}\"; name \
                         more settings in it",
                        inline(baseline),
                        other.name,
                        cell.name
                    )));
                }
            }
        }
        Ok(())
    }

    fn check_cell(&self, cell: &Cell) -> Result<(), MatrixError> {
        let config = &cell.config;
        let problem = if config.prompt.is_empty() && config.replay_routes.is_none() {
            "no `prompt`; set one in [base]".to_owned()
        } else if config.n_predict == 0 {
            "`n_predict = 0`; expected 1 or more".to_owned()
        } else if !(1..=8).contains(&config.io_threads) {
            format!("`io_threads = {}`; expected 1 to 8", config.io_threads)
        } else if !(config.io_ceiling_mib_s >= 0.0 && config.io_ceiling_mib_s.is_finite()) {
            let given = config.io_ceiling_mib_s;
            format!("`io_ceiling_mib_s = {given}`; expected MiB/s, or 0 when they are not known")
        } else if config.cache_policy.parse::<PolicyKind>().is_err() {
            let known = PolicyKind::ALL.map(PolicyKind::name).join(", ");
            format!("`cache_policy = \"{}\"`; expected one of {known}", config.cache_policy)
        } else {
            return Ok(());
        };
        Err(self.invalid(format!("has the cell \"{}\" with {problem}", cell.name)))
    }
}

fn inline(selector: &Overrides) -> String {
    let table = toml::Table::try_from(selector).unwrap_or_default();
    let pairs: Vec<_> = table.iter().map(|(key, value)| format!("{key} = {value}")).collect();
    format!("{{ {} }}", pairs.join(", "))
}

impl Schedule {
    fn new(cells: Vec<Cell>, repetitions: u32) -> Self {
        let runs = Order::Interleaved.runs(cells.len(), repetitions, 0);
        Self { cells, runs }
    }

    /// The same runs in another order.
    #[must_use]
    pub fn ordered(mut self, order: Order, seed: u64) -> Self {
        let repetitions = self.runs.iter().map(|run| run.repetition + 1).max().unwrap_or(0);
        let kept = std::mem::take(&mut self.runs);
        self.runs = order.runs(self.cells.len(), repetitions, seed);
        self.runs.retain(|run| kept.contains(run));
        self
    }

    /// Keeps the runs of the selected cells.
    #[must_use]
    pub fn select(mut self, selection: &Selection) -> Self {
        self.runs.retain(|run| selection.selects(&self.cells[run.cell]));
        self
    }
}

/// Chooses cells by name, model or id.
#[derive(Debug, Clone)]
pub struct Selection {
    text: String,
    regex: Regex,
}

impl Selection {
    /// A text that the cell's `model: name` or id contains, or a regular expression that matches it;
    /// upper and lower case are the same.
    ///
    /// # Errors
    /// It is no regular expression.
    pub fn new(filter: &str) -> Result<Self, regex::Error> {
        let regex = RegexBuilder::new(filter).case_insensitive(true).build()?;
        Ok(Self { text: filter.to_lowercase(), regex })
    }

    /// Whether the cell is chosen.
    #[must_use]
    pub fn selects(&self, cell: &Cell) -> bool {
        self.selects_named(&cell.model, &cell.name, &cell.id)
    }

    /// The same of a cell that is known by its names only.
    #[must_use]
    pub fn selects_named(&self, model: &str, name: &str, id: &str) -> bool {
        let label = format!("{model}: {name}").to_lowercase();
        label.contains(&self.text) || self.regex.is_match(&label) || self.regex.is_match(id)
    }
}
