//! The heavy dependencies stay behind one door each.

use std::process::Command;

/// Everything that is compiled for a package, tests apart.
fn dependencies(package: &str) -> String {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--offline", "--locked", "--prefix", "none", "--format", "{p}"])
        .args(["--edges", "normal,build", "--package", package])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn building_the_harness_does_not_compile_llama_cpp() {
    let tree = dependencies("bmoe");
    assert!(tree.contains("polars ") && !tree.contains("llama-cpp"), "{tree}");
}

#[test]
fn building_the_engine_does_not_compile_polars() {
    let tree = dependencies("bmoe-engine");
    assert!(tree.contains("llama-cpp-sys-2 ") && !tree.contains("polars"), "{tree}");
}
