use super::*;

fn edit(name: &str, from: &str, to: &str) -> Result<Shape> {
    let text = builtin_toml(name).unwrap();
    assert!(text.contains(from), "{name} has no `{from}`");
    Shape::from_toml_str(&text.replacen(from, to, 1), "edited.toml")
}

fn message(name: &str, from: &str, to: &str) -> String {
    edit(name, from, to).unwrap_err().to_string()
}

#[test]
fn every_builtin_shape_is_valid_and_named_like_its_file() {
    for name in builtin_names() {
        assert_eq!(Shape::builtin(name).unwrap().name, name);
    }
}

#[test]
fn errors_name_the_field_the_value_and_what_was_expected() {
    let m = message("tiny-qwen3moe", "hidden = 256", "hidden = 250");
    assert_eq!(m, "shape `tiny-qwen3moe`: dims.hidden = 250, expected a multiple of 32");

    let m = message("tiny-qwen3moe", "expert_ffn = 256", "expert_ffn = 96");
    assert_eq!(
        m,
        "shape `tiny-qwen3moe`: tensor blk.0.ffn_down_exps.weight has rows of 96 weights, but type Q6_K \
         needs a multiple of 256: change the dimension or choose a type with blocks of 32"
    );

    let m = message("tiny-qwen3moe", "experts_used = 4", "experts_used = 40");
    assert_eq!(m, "shape `tiny-qwen3moe`: dims.experts_used = 40, expected 1 to 16");

    let m = message("tiny-qwen2moe", "dense_ffn = 512", "");
    assert!(m.contains("dims.dense_ffn is missing"), "{m}");

    let m = message("tiny-gpt-oss", "period = 2", "period = 3");
    assert!(m.contains("dims.window.period = 3, expected 2"), "{m}");

    let m = message("tiny-qwen3moe", "layers = [0]", "layers = [7]");
    assert_eq!(m, "shape `tiny-qwen3moe`: types.expert_down names layer 7, expected 0 to 2");

    let m = message("tiny-qwen3moe", "vocab = 1024", "vocab = 100");
    assert!(m.contains("tokenizer.vocab = 100, expected 439 to"), "{m}");
}

#[test]
fn parts_that_an_architecture_does_not_have_or_can_not_use_are_refused() {
    let m = message("tiny-qwen3moe", "expert_ffn = 256", "expert_ffn = 256\nleading_dense = 1");
    assert_eq!(m, "shape `tiny-qwen3moe`: dims.leading_dense = 1, but qwen3moe has no such part");
    let m = message("tiny-glm4moe", "leading_dense = 1", "leading_dense = 3");
    assert!(m.contains("leading_dense = 3, moe_step = 0 leave none of 3 layers"), "{m}");
    let m = message("tiny-bailingmoe2", "expert_groups = 4", "expert_groups = 5");
    assert!(m.contains("dims.expert_groups = 5, expected 2 or more equal groups"), "{m}");
    let m = message("tiny-bailingmoe2", "expert_groups_used = 2", "expert_groups_used = 4");
    assert!(m.contains("dims.expert_groups_used = 4, expected less than"), "{m}");
    let m = message("tiny-deepseek2", "q_lora_rank = 64", "");
    assert!(m.contains("dims.extra.q_lora_rank is missing"), "{m}");
    let m = message("tiny-deepseek2", "rope_dim = 16", "rope_dim = 16\nrank = 1");
    assert!(m.contains("dims.extra.rank is not known; deepseek2 has q_lora_rank, "), "{m}");
}

#[test]
fn a_missing_output_is_a_tied_head_where_that_exists() {
    let output = "output = \"Q8_0\"";
    assert_eq!(edit("tiny-gemma4", output, "").unwrap().types.output, None);
    let m = message("tiny-gpt-oss", output, "");
    assert_eq!(
        m,
        "shape `tiny-gpt-oss`: types.output is missing, expected a type: the head of gpt-oss is not tied to \
         the embedding"
    );
    let text = builtin_toml("tiny-qwen3moe").unwrap();
    let text = text.replace(output, "").replace("kv_heads = 2", "kv_heads = 8");
    let m = Shape::from_toml_str(&text, "edited.toml").unwrap_err().to_string();
    assert!(m.contains("needs heads = 8 to be at least twice kv_heads = 8"), "{m}");
}

#[test]
fn unknown_types_and_fields_are_refused_with_their_place() {
    let m = message("tiny-qwen3moe", "embedding = \"Q4_K\"", "embedding = \"Q3_K\"");
    assert!(m.contains("edited.toml") && m.contains("unknown variant `Q3_K`"), "{m}");

    let m = message("tiny-qwen3moe", "expert_gate_up = \"Q4_K\"", "expert_gate_up = \"Q3_K\"");
    assert!(m.contains("expected a weight type such as \"Q4_K\""), "{m}");

    let m = message("tiny-qwen3moe", "experts = 16", "experts = 16\nexpert_count = 5");
    assert!(m.contains("unknown field `expert_count`"), "{m}");
}

#[test]
fn an_unknown_shape_lists_those_that_exist() {
    let m = Shape::builtin("qwen4").unwrap_err().to_string();
    let start = "unknown shape `qwen4`; built-in shapes are quickstart, qwen3-30b-a3b, ";
    assert!(m.starts_with(start) && m.contains("such as tiny-qwen3moe"), "{m}");
}

#[test]
fn shortening_keeps_the_first_layers_types() {
    let full = Shape::builtin("qwen3-30b-a3b").unwrap();
    let short = full.clone().with_layers(12).unwrap();
    assert_eq!(short.dims.layers, 12);
    for layer in 0..12 {
        assert_eq!(short.types.expert_down.at(layer), full.types.expert_down.at(layer));
    }
    short.validate().unwrap();
    let m = full.with_layers(49).unwrap_err().to_string();
    assert_eq!(m, "layers = 49: shape `qwen3-30b-a3b` has 48 layers; give 1 to 48");
}

#[test]
fn every_tiny_shape_takes_every_type() {
    for name in builtin_names().filter(|n| n.starts_with("tiny-")) {
        for ty in WeightType::ALL {
            Shape::builtin(name).unwrap().with_type(ty).unwrap();
        }
    }
}

#[test]
fn a_list_gives_one_type_a_layer() {
    let list = "expert_gate_up = [\"Q4_K\", \"Q5_K\", \"Q6_K\"]";
    let shape = edit("tiny-qwen3moe", "expert_gate_up = \"Q4_K\"", list).unwrap();
    assert_eq!(shape.types.expert_gate_up.at(1), WeightType::Q5_K);
    let m = message("tiny-qwen3moe", "expert_gate_up = \"Q4_K\"", "expert_gate_up = [\"Q4_K\"]");
    assert!(
        m.contains("types.expert_gate_up lists 1 types, expected one for each of the 3"),
        "{m}"
    );
}
