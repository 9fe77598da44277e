//! The shape files of `matrices/shapes/`, compiled in so that they can be named from anywhere.

macro_rules! shapes {
    ($($name:literal),* $(,)?) => {
        const BUILTIN: &[(&str, &str)] = &[
            $(($name, include_str!(concat!("../../../../matrices/shapes/", $name, ".toml")))),*
        ];
    };
}

shapes![
    "tiny-qwen3moe",
    "tiny-qwen2moe",
    "tiny-gemma4",
    "tiny-gpt-oss",
    "tiny-olmoe",
    "tiny-granitemoe",
    "tiny-ernie4_5-moe",
    "tiny-glm4moe",
    "tiny-bailingmoe2",
    "tiny-llama4",
    "tiny-deepseek2",
    "tiny-qwen3next",
    "tiny-qwen35moe",
    "tiny-lfm2moe",
    "tiny-bailingmoe3",
    "tiny-deepseek4",
    "tiny-llama",
    "tiny-qwen3vlmoe",
    "tiny-minimax-m2",
    "tiny-dots1",
    "tiny-hunyuan-moe",
    "tiny-bailingmoe",
    "tiny-deepseek",
    "tiny-smallthinker",
    "tiny-exaone-moe",
    "tiny-cohere2moe",
    "tiny-mimo2",
    "tiny-dbrx",
    "tiny-mistral4",
    "tiny-phimoe",
    "tiny-granitehybrid",
    "tiny-nemotron_h_moe",
    "tiny-kimi-linear",
    "tiny-deepseek32",
    "tiny-glm-dsa",
    "tiny-step35",
    "tiny-hy_v3",
    "tiny-afmoe",
    "tiny-laguna",
    "tiny-mellum",
    "tiny-maple",
    "tiny-jamba",
    "tiny-mistral3",
    "tiny-deepseek2-ocr",
    "tiny-arctic",
    "tiny-grovemoe",
    "tiny-grok",
    "tiny-granite_swa",
    "tiny-dots3note",
    "tiny-hy_v4",
    "tiny-minimax-m3",
    "tiny-minimax-01",
    "tiny-kimi-k3",
    "tiny-glm5-next",
    "tiny-qwen4exp",
    "tiny-minicpm",
    "quickstart",
    "qwen3-30b-a3b",
    "gemma-4-26b-a4b",
    "gpt-oss-120b",
];

/// Names of the built-in shapes.
pub fn builtin_names() -> impl Iterator<Item = &'static str> {
    BUILTIN.iter().map(|(name, _)| *name)
}

/// The TOML text of a built-in shape.
pub fn builtin_toml(name: &str) -> Option<&'static str> {
    BUILTIN.iter().find(|(n, _)| *n == name).map(|(_, text)| *text)
}
