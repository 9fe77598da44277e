//! The documents of the repository say what its results say.

use std::fs;
use std::path::{Path, PathBuf};

use bmoe::splice;

fn documents() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut folders =
        vec![root.clone(), root.join("docs"), root.join("docs/published"), root.join("results")];
    folders.retain(|folder| folder.is_dir());
    let files = folders.iter().flat_map(|folder| fs::read_dir(folder).unwrap());
    let mut files: Vec<_> = files.map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|end| end == "md"));
    files.sort();
    files
}

/// `bmoe report --splice FILE` would change nothing.
#[test]
fn tables_between_markers_are_those_of_the_reports() {
    let mut tables = 0;
    for document in documents() {
        let text = fs::read_to_string(&document).unwrap();
        let mut report = |folder: &str| {
            let path = document.parent().unwrap().join(folder).join("report.md");
            fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))
        };
        let fresh = splice::refresh(&text, &mut report);
        let (fresh, found) = fresh.unwrap_or_else(|e| panic!("{}: {e}", document.display()));
        assert!(
            fresh == text,
            "{} is stale; `bmoe report --splice` refreshes it",
            document.display()
        );
        tables += found;
    }
    assert!(tables > 0, "the README has tables between markers");
}

/// Relative links lead somewhere.
#[test]
fn links_between_documents_lead_somewhere() {
    let mut links = 0;
    for document in documents() {
        let text = fs::read_to_string(&document).unwrap();
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            if file.contains(':') || target.contains(char::is_whitespace) {
                continue;
            }
            let path = if file.is_empty() {
                document.clone()
            } else {
                document.parent().unwrap().join(file)
            };
            assert!(path.exists(), "{}: {target} is not there", document.display());
            if !anchor.is_empty() {
                let headings = fs::read_to_string(&path).unwrap();
                let mut anchors = headings.lines().filter(|l| l.starts_with('#')).map(anchor_of);
                assert!(
                    anchors.any(|a| a == anchor),
                    "{}: {target} has no such heading",
                    document.display()
                );
            }
            links += 1;
        }
    }
    assert!(links > 20, "{links} links");
}

/// As viewers of Markdown make them of a heading.
fn anchor_of(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    text.chars()
        .filter_map(|c| match c {
            ' ' => Some('-'),
            c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c),
            _ => None,
        })
        .collect()
}
