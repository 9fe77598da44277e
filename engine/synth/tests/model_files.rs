//! Models as files: what is planned is what is written, in a form that a GGUF reader understands.

mod common;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bmoe_synth::{
    Arch, Progress, Shape, SynthError, WeightType, WriteOptions, builtin_names, plan, write_model,
};
use common::Value;

fn write(shape: &Shape, options: &WriteOptions) -> bmoe_synth::WriteReport {
    write_model(shape, options, &mut |_| {}).unwrap()
}

fn tiny(arch: Arch) -> Shape {
    Shape::builtin(&format!("tiny-{}", arch.name())).unwrap()
}

#[test]
fn the_plan_is_what_is_written() {
    let dir = tempfile::tempdir().unwrap();
    for arch in Arch::ALL {
        let (shape, path) = (tiny(arch), dir.path().join("model.gguf"));
        let planned = plan(&shape, None, None).unwrap();
        let mut last = Progress { written_bytes: 0, total_bytes: 0 };
        let report = write_model(&shape, &WriteOptions::new(&path), &mut |p| {
            assert!(p.written_bytes > last.written_bytes, "progress goes forward");
            last = p;
        })
        .unwrap();
        assert_eq!(report.file_bytes, planned.file_bytes);
        assert_eq!(report.expert_bytes, planned.expert_bytes);
        assert_eq!(fs::metadata(&path).unwrap().len(), planned.file_bytes);
        let total = planned.file_bytes;
        assert_eq!(last, Progress { written_bytes: total, total_bytes: total });

        let file = common::read(&path);
        assert_eq!(file.tensors.len(), planned.tensors.len());
        let mut offset = 0;
        for (read, planned) in file.tensors.iter().zip(&planned.tensors) {
            assert_eq!(read.name, planned.name);
            assert_eq!(read.dims, planned.dims, "{}", read.name);
            assert_eq!(read.ggml_type, planned.ggml_type(), "{}", read.name);
            assert_eq!(read.offset, offset, "{}", read.name);
            offset += planned.bytes.next_multiple_of(32);
        }
        assert_eq!(file.data_start + offset, file.file_len);
    }
}

#[test]
fn metadata_describes_the_shape_and_the_tokenizer() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.gguf");
    write(&tiny(Arch::Gemma4), &WriteOptions::new(&path));
    let meta = common::read(&path).metadata;
    assert_eq!(meta["general.architecture"], Value::Str("gemma4".to_owned()));
    let number = |key: &str| meta[&format!("gemma4.{key}")].number();
    assert_eq!(number("block_count"), 3.0);
    assert_eq!(number("expert_count"), 16.0);
    assert_eq!(number("expert_used_count"), 4.0);
    assert_eq!(number("expert_feed_forward_length"), 256.0);
    assert_eq!(number("attention.key_length"), 64.0);
    assert_eq!(number("attention.key_length_swa"), 32.0);
    let windowed = &meta["gemma4.attention.sliding_window_pattern"];
    assert_eq!(*windowed, Value::Numbers(vec![1.0, 1.0, 0.0]));
    assert_eq!(meta["gemma4.attention.head_count_kv"], Value::Numbers(vec![2.0, 2.0, 1.0]));

    let Value::Strs(tokens) = &meta["tokenizer.ggml.tokens"] else { panic!("no tokens") };
    assert_eq!(tokens.len(), 1024);
    let eos = meta["tokenizer.ggml.eos_token_id"].number() as usize;
    assert_eq!(tokens[eos], "<|im_end|>");
}

#[test]
fn bytes_depend_on_the_seed_and_not_on_the_threads() {
    let dir = tempfile::tempdir().unwrap();
    let shape = tiny(Arch::Qwen3Moe);
    let bytes = |seed, threads| {
        let path = dir.path().join("model.gguf");
        let options = WriteOptions { seed, threads: Some(threads), ..WriteOptions::new(&path) };
        write(&shape, &options);
        fs::read(path).unwrap()
    };
    let one = bytes(1, 1);
    assert!(one == bytes(1, 2) && one == bytes(1, 5), "threads changed the bytes");
    assert!(one != bytes(2, 2), "another seed gave the same bytes");
}

#[test]
fn split_files_hold_the_same_tensors() {
    let dir = tempfile::tempdir().unwrap();
    let shape = tiny(Arch::GptOss);
    let whole = dir.path().join("whole.gguf");
    write(&shape, &WriteOptions::new(&whole));
    let options =
        WriteOptions { split: Some(3), ..WriteOptions::new(dir.path().join("parts.gguf")) };
    let report = write(&shape, &options);
    let names: Vec<String> = report
        .files
        .iter()
        .map(|f| f.file_name().unwrap().to_string_lossy().into_owned())
        .collect();
    assert_eq!(
        names,
        ["parts-00001-of-00003.gguf", "parts-00002-of-00003.gguf", "parts-00003-of-00003.gguf"]
    );

    let data = |path: &Path| {
        let (head, bytes) = (common::read(path), fs::read(path).unwrap());
        let ends =
            head.tensors.iter().skip(1).map(|t| t.offset).chain([head.file_len - head.data_start]);
        head.tensors
            .iter()
            .zip(ends)
            .map(|(t, end)| {
                let range = (head.data_start + t.offset) as usize..(head.data_start + end) as usize;
                (t.name.clone(), bytes[range].to_vec())
            })
            .collect::<Vec<_>>()
    };
    let mut joined = Vec::new();
    for (i, file) in report.files.iter().enumerate() {
        let head = common::read(file);
        assert_eq!(head.metadata["split.no"].number() as usize, i);
        assert_eq!(head.metadata["split.count"].number(), 3.0);
        let part = data(file);
        assert!(!part.is_empty());
        joined.extend(part);
    }
    let total = common::read(&report.files[0]).metadata["split.tensors.count"].number();
    assert_eq!(total as usize, joined.len());
    assert!(joined == data(&whole), "the parts differ from the whole");
}

#[test]
fn published_shapes_have_the_published_sizes() {
    let sizes = |name: &str| {
        let shape = Shape::builtin(name).unwrap();
        let p = plan(&shape, None, None).unwrap();
        (p.file_bytes as f64, p.expert_bytes)
    };
    let within = |bytes: f64, published: f64| (bytes / published - 1.0).abs() < 0.02;
    let count = |experts: &[u64], bytes| experts.iter().filter(|&&b| b == bytes).count();

    let (bytes, experts) = sizes("qwen3-30b-a3b");
    assert!((bytes / 18_556_686_912.0 - 1.0).abs() < 0.001, "{bytes}");
    assert_eq!(count(&experts, 2_654_208), 24);
    assert_eq!(count(&experts, 3_059_712), 24);

    let (bytes, experts) = sizes("gemma-4-26b-a4b");
    assert!(within(bytes, 17.0e9), "{bytes}");
    assert_eq!(count(&experts, 3_593_216), 16);
    assert_eq!(count(&experts, 4_336_640), 14);

    let (bytes, experts) = sizes("gpt-oss-120b");
    // Published as 58.46 GB, which can only be GiB: the experts alone are 60.9e9 bytes.
    assert!(within(bytes, 58.46 * f64::from(1 << 30)), "{bytes}");
    assert_eq!(count(&experts, 13_219_200), 36);
}

/// The published trace's header gives both expert and dense bytes of every layer.
#[test]
fn qwen3_layers_are_those_of_the_published_trace() {
    let header = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../../shared/data/published/2026-07-15-route/qwen.route.csv");
    let Ok(text) = fs::read_to_string(&header) else {
        eprintln!("skipped: {} is not there", header.display());
        return;
    };
    let p = plan(&Shape::builtin("qwen3-30b-a3b").unwrap(), None, None).unwrap();
    let mut layers = 0;
    for line in text.lines().take_while(|l| l.starts_with('#')) {
        let field = |name: &str| {
            let rest = line.split_once(&format!("{name}="))?.1;
            rest.split_whitespace().next()?.parse::<u64>().ok()
        };
        let (Some(layer), Some(expert), Some(dense)) =
            (field("layer"), field("expert_bytes"), field("dense_bytes"))
        else {
            continue;
        };
        assert_eq!(p.expert_bytes[layer as usize], expert, "layer {layer}");
        let prefix = format!("blk.{layer}.");
        let ours: u64 = p
            .tensors
            .iter()
            .filter(|t| t.name.starts_with(&prefix) && t.expert_layer.is_none())
            .map(|t| t.bytes)
            .sum();
        assert_eq!(ours, dense, "dense bytes of layer {layer}");
        layers += 1;
    }
    assert_eq!(layers, 48);
}

#[test]
fn quickstart_is_about_half_a_gigabyte() {
    let p = plan(&Shape::builtin("quickstart").unwrap(), None, None).unwrap();
    assert!((450e6..620e6).contains(&(p.file_bytes as f64)), "{}", p.file_bytes);
}

#[test]
fn every_type_and_architecture_can_be_planned() {
    for name in builtin_names().filter(|n| n.starts_with("tiny-")) {
        for ty in WeightType::ALL {
            let shape = Shape::builtin(name).unwrap().with_type(ty).unwrap();
            let p = plan(&shape, None, None).unwrap();
            let matrices = if shape.arch == Arch::NemotronHMoe { 2 } else { 3 };
            let (expert, d) = (matrices * ty.bytes(256 * 256), &shape.dims);
            let expected: Vec<u64> = (0..d.layers)
                .map(|l| {
                    let dense = l < d.leading_dense || !(l + 1).is_multiple_of(d.moe_step.max(1));
                    if dense { 0 } else { expert }
                })
                .collect();
            assert_eq!(p.expert_bytes, expected, "{name} {ty}");
        }
    }
}

#[test]
fn a_model_that_does_not_fit_is_refused_before_anything_is_written() {
    let dir = tempfile::tempdir().unwrap();
    // About 2.5 PB.
    let text = r#"
        name = "huge"
        arch = "qwen3moe"
        [dims]
        layers = 512
        hidden = 32768
        heads = 32
        kv_heads = 4
        head_dim = 128
        experts = 512
        experts_used = 8
        expert_ffn = 32768
        context = 4096
        rope_base = 10000.0
        [types]
        expert_gate_up = "F32"
        expert_down = "F32"
        attention = "F16"
        embedding = "F16"
        output = "F16"
        [tokenizer]
        vocab = 1024
    "#;
    let shape = Shape::from_toml_str(text, "huge.toml").unwrap();
    let path = dir.path().join("huge.gguf");
    let error = write_model(&shape, &WriteOptions::new(&path), &mut |_| {}).unwrap_err();
    assert!(matches!(error, SynthError::Space { .. }), "{error}");
    let message = error.to_string();
    assert!(message.contains("bytes free") || message.contains("free;"), "{message}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn options_that_do_not_fit_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let shape = tiny(Arch::Qwen3Moe);
    let message =
        |options: WriteOptions| write_model(&shape, &options, &mut |_| {}).unwrap_err().to_string();
    let path = dir.path().join("m.gguf");
    let m = message(WriteOptions { layers: Some(9), ..WriteOptions::new(&path) });
    assert_eq!(m, "layers = 9: shape `tiny-qwen3moe` has 3 layers; give 1 to 3");
    let m = message(WriteOptions { split: Some(0), ..WriteOptions::new(&path) });
    assert_eq!(m, "split = 0, expected 1 to 39 parts, the number of tensors");
    let part = dir.path().join("m-00001-of-00003.gguf");
    let m = message(WriteOptions::new(&part));
    let expected =
        "readers take this name for one of 3 files; choose another, or write m.gguf with split = 3";
    assert_eq!(m, format!("{}: {expected}", part.display()));
    assert!(!part.exists());
    let missing = dir.path().join("nowhere");
    let m = message(WriteOptions::new(missing.join("m.gguf")));
    assert!(m.starts_with(&format!("look at folder {}", missing.display())), "{m}");
}

#[test]
fn a_failed_write_leaves_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.gguf");
    // A folder in the way of the final name: writing works, renaming doesn't.
    fs::create_dir(&path).unwrap();
    fs::write(path.join("keep"), b"x").unwrap();
    let error =
        write_model(&tiny(Arch::Qwen3Moe), &WriteOptions::new(&path), &mut |_| {}).unwrap_err();
    assert!(error.to_string().starts_with("rename to "), "{error}");
    let left: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, ["model.gguf"]);
}

#[test]
fn a_stopped_write_leaves_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let options = WriteOptions {
        split: Some(2),
        stop: Some(Arc::clone(&stop)),
        ..WriteOptions::new(dir.path().join("model.gguf"))
    };
    let error = write_model(&tiny(Arch::Qwen3Moe), &options, &mut |done| {
        // In the middle of the second file.
        stop.store(done.written_bytes > done.total_bytes * 3 / 4, Ordering::Relaxed);
    })
    .unwrap_err();
    assert!(matches!(error, SynthError::Stopped { .. }), "{error}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn of_two_writers_of_the_same_file_one_is_refused_and_the_other_undisturbed() {
    let dir = tempfile::tempdir().unwrap();
    let shape = tiny(Arch::Qwen3Moe);
    let other = dir.path().join("other.gguf");
    write(&shape, &WriteOptions::new(&other));
    let path = dir.path().join("model.gguf");
    // A dead writer's.
    fs::write(dir.path().join("model.gguf.part"), "half a model").unwrap();
    let (mut first, mut second) = (true, None);
    let report = write_model(&shape, &WriteOptions::new(&path), &mut |_| {
        if std::mem::take(&mut first) {
            let options = WriteOptions { seed: 7, ..WriteOptions::new(&path) };
            second = Some(write_model(&shape, &options, &mut |_| {}));
        }
    })
    .unwrap();
    let refused = second.unwrap().unwrap_err();
    assert!(matches!(refused, SynthError::Busy { .. }), "{refused}");
    assert!(fs::read(&path).unwrap() == fs::read(&other).unwrap());
    assert_eq!(report.metadata[0].ino(), fs::metadata(&path).unwrap().ino());
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
}
