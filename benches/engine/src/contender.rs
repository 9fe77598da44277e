//! What is compared: configurations by name.

use bmoe_trace::config::{CacheBudget, ComputeTrace, Mode, RunConfig};

use crate::data::{ModelFacts, Settings};

/// Usual readahead of a block device, KiB.
pub const USUAL_READ_AHEAD_KIB: u64 = 128;

/// Tokens of a run that only checks the logits.
const CHECKED_TOKENS: u32 = 16;

/// Times that each kind of telemetry is measured.
const TELEMETRY_ROUNDS: u32 = 10;

/// Repeats of what is only explanation, or very slow.
const FEW_ROUNDS: u32 = 3;

/// Memory for experts between tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cache {
    /// None.
    Off,
    /// [`Settings::cache_mib`].
    Part,
    /// Room for all experts.
    Whole,
}

/// What a run writes while it goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Records {
    /// The binary trace.
    Trace,
    /// The binary trace with every read and each layer's parts.
    Layers,
    /// The binary trace and the CSV of its tokens.
    TraceAndCsv,
    /// The CSV of its routes.
    RouteCsv,
    /// Nothing but its text.
    Nothing,
}

/// What a step belongs to; `--only` takes these names too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Hashes of the logits.
    Check,
    /// The disk's ceiling.
    Ceiling,
    /// Rates.
    Timed,
    /// Where the time of a layer goes.
    Layers,
    /// What telemetry costs.
    Telemetry,
    /// Samples of where the processor was.
    Profile,
}

impl Part {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Check => "check",
            Self::Ceiling => "ceiling",
            Self::Timed => "timed",
            Self::Layers => "layers",
            Self::Telemetry => "telemetry",
            Self::Profile => "profile",
        }
    }
}

/// One configuration of the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Contender {
    /// Its name in the data.
    pub name: &'static str,
    /// What it belongs to.
    pub part: Part,
    /// Where the experts are.
    pub mode: Mode,
    /// Memory for experts between tokens.
    pub cache: Cache,
    /// Reads overlap with computing.
    pub overlap: bool,
    /// In a memory control group of half the model's size.
    pub limited: bool,
    /// With the readahead that the machine has; otherwise with the usual one.
    pub own_read_ahead: bool,
    /// All experts are read into the cache before the prompt.
    pub warm: bool,
    /// What it writes.
    pub records: Records,
}

const BASE: Contender = Contender {
    name: "",
    part: Part::Timed,
    mode: Mode::Stream,
    cache: Cache::Part,
    overlap: true,
    limited: true,
    own_read_ahead: false,
    warm: false,
    records: Records::Trace,
};

const RESIDENT: Contender =
    Contender { name: "resident", mode: Mode::Resident, cache: Cache::Off, limited: false, ..BASE };
const MMAP: Contender = Contender { name: "mmap", mode: Mode::Mmap, cache: Cache::Off, ..BASE };
/// Without a limit the page cache holds the whole model, and nothing is read; loading takes no time, which it does
/// where weights have to be copied.
const TELEMETRY: Contender = Contender { part: Part::Telemetry, limited: false, ..MMAP };

/// All contenders, in the order of the table.
pub const CONTENDERS: &[Contender] = &[
    RESIDENT,
    MMAP,
    Contender { name: "mmap-own-readahead", own_read_ahead: true, ..MMAP },
    Contender { name: "stream", ..BASE },
    Contender { name: "stream-serial", overlap: false, ..BASE },
    Contender { name: "stream-off", cache: Cache::Off, ..BASE },
    Contender { name: "stream-off-serial", cache: Cache::Off, overlap: false, ..BASE },
    Contender { name: "stream-whole", cache: Cache::Whole, limited: false, warm: true, ..BASE },
    Contender { name: "layers", part: Part::Layers, records: Records::Layers, ..BASE },
    Contender {
        name: "layers-serial",
        part: Part::Layers,
        records: Records::Layers,
        overlap: false,
        ..BASE
    },
    Contender {
        name: "layers-off",
        part: Part::Layers,
        records: Records::Layers,
        cache: Cache::Off,
        ..BASE
    },
    Contender { name: "check-resident", part: Part::Check, ..RESIDENT },
    Contender { name: "check-mmap", part: Part::Check, ..MMAP },
    Contender { name: "check-stream", part: Part::Check, ..BASE },
    Contender { name: "check-stream-serial", part: Part::Check, overlap: false, ..BASE },
    Contender { name: "check-stream-off", part: Part::Check, cache: Cache::Off, ..BASE },
    Contender {
        name: "check-stream-whole",
        part: Part::Check,
        cache: Cache::Whole,
        limited: false,
        ..BASE
    },
    Contender { name: "telemetry-none", records: Records::Nothing, ..TELEMETRY },
    Contender { name: "telemetry-trace-csv", records: Records::TraceAndCsv, ..TELEMETRY },
    Contender { name: "telemetry-routes", records: Records::RouteCsv, ..TELEMETRY },
    Contender { name: "profile-stream", part: Part::Profile, records: Records::Nothing, ..BASE },
];

/// Name of the step that measures the disk's ceiling.
pub const CEILING: &str = "ceiling";

/// The contender of a name.
#[must_use]
pub fn named(name: &str) -> Option<&'static Contender> {
    CONTENDERS.iter().find(|c| c.name == name)
}

impl Contender {
    /// Whether it starts with nothing in the page cache.
    #[must_use]
    pub fn cold(&self) -> bool {
        matches!(self.part, Part::Timed | Part::Layers | Part::Profile)
    }

    /// Tokens that it generates. mmap with a large readahead gets an eighth, being a hundred times slower.
    #[must_use]
    pub fn tokens(&self, settings: &Settings) -> u32 {
        match self.part {
            Part::Check => settings.tokens.min(CHECKED_TOKENS),
            _ if self.own_read_ahead => (settings.tokens / 8).max(1),
            _ => settings.tokens,
        }
    }

    /// The engine's run file.
    #[must_use]
    pub fn config(&self, settings: &Settings, model: &ModelFacts) -> RunConfig {
        let cache_mib = match self.cache {
            Cache::Off => 0,
            Cache::Part => settings.cache_mib,
            Cache::Whole => model.expert_bytes.div_ceil(1 << 20),
        };
        let layers = self.records == Records::Layers;
        RunConfig {
            mode: self.mode,
            prompt: prompt(),
            n_predict: self.tokens(settings),
            threads: settings.threads,
            ctx_tokens: 1024,
            cache_mib: CacheBudget::Mib(cache_mib),
            io_threads: settings.lanes,
            overlap: self.overlap,
            hash_logits: self.part == Part::Check,
            io_trace: layers,
            compute_trace: if layers { ComputeTrace::Layers } else { ComputeTrace::Off },
            ..RunConfig::default()
        }
    }

    /// The row's name in the table.
    #[must_use]
    pub fn label(&self, settings: &Settings, own_read_ahead_kib: u64) -> String {
        let mut label = match (self.mode, self.cache) {
            (Mode::Resident, _) => "resident".to_owned(),
            (Mode::Mmap, _) if self.own_read_ahead => {
                format!("mmap, readahead {own_read_ahead_kib} KiB")
            }
            (Mode::Mmap, _) => format!("mmap, readahead {USUAL_READ_AHEAD_KIB} KiB"),
            (Mode::Stream, Cache::Off) => "stream, cache off".to_owned(),
            (Mode::Stream, Cache::Part) => format!("stream, cache {} MiB", settings.cache_mib),
            (Mode::Stream, Cache::Whole) => "stream, all experts cached".to_owned(),
        };
        if self.mode == Mode::Stream && !self.overlap {
            label += ", serial";
        }
        if !self.limited {
            label += ", no limit";
        }
        label
    }
}

/// One thing to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// A contender's name, or [`CEILING`].
    pub name: &'static str,
    /// The repeat, from 0.
    pub round: u32,
}

/// Everything to do, in order: checks; then rounds of all that is timed, each beginning with another one; then
/// telemetry, alternating; then the profile.
#[must_use]
pub fn steps(settings: &Settings, only: &[String]) -> Vec<Step> {
    let wanted = |name: &str, part: Part| {
        only.is_empty() || only.iter().any(|o| o == name || o == part.name())
    };
    let of = |parts: &[Part]| -> Vec<&'static Contender> {
        CONTENDERS.iter().filter(|c| parts.contains(&c.part) && wanted(c.name, c.part)).collect()
    };
    let mut steps: Vec<Step> =
        of(&[Part::Check]).iter().map(|c| Step { name: c.name, round: 0 }).collect();
    let timed = of(&[Part::Timed, Part::Layers]);
    for round in 0..settings.repeats {
        let mut names: Vec<&'static str> = timed
            .iter()
            .filter(|c| round < FEW_ROUNDS || (c.part == Part::Timed && !c.own_read_ahead))
            .map(|c| c.name)
            .collect();
        if wanted(CEILING, Part::Ceiling) {
            names.push(CEILING);
        }
        if !names.is_empty() {
            // Not by one: neighbours would stay neighbours.
            let by = (round as usize * 5) % names.len();
            names.rotate_left(by);
        }
        steps.extend(names.into_iter().map(|name| Step { name, round }));
    }
    let telemetry = of(&[Part::Telemetry]);
    for round in 0..TELEMETRY_ROUNDS {
        let mut order = telemetry.clone();
        if !order.is_empty() {
            let by = round as usize % order.len();
            order.rotate_left(by);
        }
        steps.extend(order.iter().map(|c| Step { name: c.name, round }));
    }
    steps.extend(of(&[Part::Profile]).iter().map(|c| Step { name: c.name, round: 0 }));
    steps
}

/// A prompt of 64 tokens: words of the synthetic models' vocabulary, two syllables, each of which is a token with
/// its space.
fn prompt() -> String {
    const WORDS: usize = 64;
    const CONSONANTS: &[u8] = b"bdfghjklmnprstvwyz";
    const VOWELS: &[u8] = b"aeiou";
    let mut state = 1_u64;
    let mut below = |n: usize| {
        // Knuth's generator; its upper bits are the good ones.
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) as usize) % n
    };
    let mut text = String::new();
    for _ in 0..WORDS {
        text.push(' ');
        for _ in 0..2 {
            text.push(char::from(CONSONANTS[below(CONSONANTS.len())]));
            text.push(char::from(VOWELS[below(VOWELS.len())]));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> Settings {
        Settings {
            tokens: 128,
            repeats: 5,
            cache_mib: 1500,
            limit_mib: 2417,
            threads: 2,
            lanes: 4,
            shape: "s".into(),
            layers: 12,
        }
    }

    #[test]
    fn rounds_are_interleaved_and_begin_differently() {
        let steps = steps(&settings(), &["timed".into()]);
        assert_eq!(steps.iter().filter(|s| s.name == "stream").count(), 5);
        assert_eq!(steps.iter().filter(|s| s.name == "mmap-own-readahead").count(), 3);
        let first: Vec<&str> =
            (0..5).map(|r| steps.iter().find(|s| s.round == r).unwrap().name).collect();
        let mut distinct = first.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), 5, "{first:?}");
    }

    #[test]
    fn only_takes_names_and_parts() {
        let two = steps(&settings(), &["stream".into(), "ceiling".into()]);
        assert_eq!(two.len(), 10);
        assert!(two.iter().all(|s| s.name == "stream" || s.name == CEILING));
        assert_eq!(steps(&settings(), &["telemetry".into()]).len(), 30);
    }

    #[test]
    fn names_are_unique() {
        for contender in CONTENDERS {
            assert_eq!(named(contender.name), Some(contender));
        }
    }
}
