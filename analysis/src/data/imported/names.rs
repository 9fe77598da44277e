//! What imported runs are called.

use std::collections::BTreeSet;
use std::path::Path;

use bmoe_trace::import::Keys;

/// A file's name without its ending, and without the words that tell a trace from a log of the same run.
pub(crate) fn base(path: &Path) -> String {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let short =
        [".route", ".routes", ".metrics", ".trace"].iter().find_map(|end| stem.strip_suffix(end));
    short.filter(|s| !s.is_empty()).map_or(stem.clone(), str::to_owned)
}

/// A name for a folder: of letters, digits, `.`, `_` and `-`, and not taken yet.
pub(super) fn run_id(wish: &str, taken: &mut BTreeSet<String>) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '-' };
    // File systems end names at 255 bytes.
    let id: String = wish.chars().map(plain).take(120).collect();
    let id = match id.trim_matches(['.', '-']) {
        "" => "run",
        id => id,
    };
    let free = std::iter::once(id.to_owned())
        .chain((2..).map(|n| format!("{id}-{n}")))
        .find(|id| !taken.contains(id));
    let id = free.unwrap_or_else(|| id.to_owned());
    taken.insert(id.clone());
    id
}

/// The settings of a log's preamble as a cell's name; `None` when it has none that tell.
pub(super) fn cell(keys: &Keys) -> Option<String> {
    let number = |key: &str| keys.parsed::<u64>(key);
    let on = |key: &str| number(key).is_some_and(|n| n > 0);
    let mut parts: Vec<String> = Vec::new();
    let streams = number("moe_stream")? > 0;
    match keys.get("mode") {
        Some(mode) => parts.push(mode.to_owned()),
        None => parts.push(if streams { "stream" } else { "mmap" }.to_owned()),
    }
    if streams {
        parts.push(match number("cache_mb") {
            Some(mib) if on("cache_auto") => format!("cache auto ({mib} MiB)"),
            Some(0) | None => "cache off".to_owned(),
            Some(mib) => format!("cache {mib} MiB"),
        });
        let policy = keys.get("cache_policy").filter(|policy| *policy != "lru" && on("cache_mb"));
        parts.extend(policy.map(str::to_owned));
        let lanes = number("io_threads").filter(|lanes| *lanes > 0);
        parts.extend(lanes.map(|n| format!("{n} lane{}", if n == 1 { "" } else { "s" })));
        if on("overlap") {
            parts.push("overlap".to_owned());
        }
        if on("prefetch") {
            parts.push(format!("prefetch {}", keys.get("prefetch").unwrap_or_default()));
        }
    }
    parts.extend(number("n_expert_used").filter(|k| *k > 0).map(|k| format!("top-{k}")));
    Some(parts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_files_and_fit_a_folder() {
        for (file, name) in [
            ("a/qwen_c2000_l2.csv", "qwen_c2000_l2"),
            ("qwen.route.csv", "qwen"),
            ("x.1.csv", "x.1"),
        ] {
            assert_eq!(base(Path::new(file)), name);
        }
        let mut taken = BTreeSet::new();
        for (wish, id) in
            [("a b/ü", "a-b"), ("a b/ü", "a-b-2"), ("../", "run"), ("", "run-2"), ("x.1", "x.1")]
        {
            assert_eq!(run_id(wish, &mut taken), id);
        }
    }

    #[test]
    fn cells_are_named_by_their_settings() {
        let keys = |pairs: &[(&str, &str)]| {
            Keys(pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect())
        };
        let pairs = [
            ("moe_stream", "1"),
            ("cache_mb", "4000"),
            ("io_threads", "4"),
            ("overlap", "1"),
            ("n_expert_used", "6"),
        ];
        assert_eq!(cell(&keys(&pairs)).unwrap(), "stream, cache 4000 MiB, 4 lanes, overlap, top-6");
        assert_eq!(cell(&keys(&[("moe_stream", "0"), ("cache_mb", "0")])).unwrap(), "mmap");
        assert_eq!(cell(&keys(&[("engine", "x")])), None);
    }
}
