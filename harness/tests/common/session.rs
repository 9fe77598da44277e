//! A session of the engine, played by a script.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use bmoe_trace::line::Line;

/// A session that says back what it was asked, thinks when it is asked to "think", waits for a cancel when it
/// is asked for something "long", and fails when it is asked to "break".
const ENGINE: &str = r#"#!/bin/sh
here=$(dirname "$0")
echo "$@" >"$here/arguments"
[ "$5" = none.gguf ] && { cat "$here/refused"; exit 3; }
[ "$5" = cold.gguf ] && echo 'warning: it is cold' >&2
cat "$here/ready"
while read -r line; do
    echo "$line" >>"$here/asked"
    case $line in
        *'"close"'*) exit 0 ;;
        *'"cancel"'*) cat "$here/cancelled" ;;
        *'"prompt":"long'*) cat "$here/first" ;;
        *'"prompt":"think'*) cat "$here/thoughts" "$here/done" ;;
        *'"prompt":"reject'*) cat "$here/rejected" ;;
        *'"prompt":"break'*) cat "$here/broken"; exit 4 ;;
        *) cat "$here/first" "$here/done" ;;
    esac
done
"#;

/// Writes the script with what it says; gives its path.
pub(crate) fn write(folder: &Path, files: Vec<(&str, Vec<Line>)>) -> PathBuf {
    for (name, lines) in files {
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        fs::write(folder.join(name), text).unwrap();
    }
    let engine = folder.join("engine");
    fs::write(&engine, ENGINE).unwrap();
    fs::set_permissions(&engine, fs::Permissions::from_mode(0o755)).unwrap();
    engine
}
