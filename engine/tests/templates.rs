//! Chat templates with what those of several families are made of: tools, namespaces, macros, reversed and
//! sliced lists, dates, refusals, and every way of switching thinking off.

use bmoe_engine::chat::{ChatTemplate, Message, Role, Splitter, ThinkControl};
use bmoe_trace::config::Think;

fn template(source: &str) -> ChatTemplate {
    ChatTemplate::new(source, "<s>", "</s>").unwrap()
}

fn say(role: Role, content: &str, reasoning: Option<&str>) -> Message {
    Message { role, content: content.to_owned(), reasoning: reasoning.map(str::to_owned) }
}

/// A question, an answer with thoughts, and the next question.
fn conversation() -> Vec<Message> {
    vec![
        say(Role::User, "Why?", None),
        say(Role::Assistant, "Because.", Some("hm")),
        say(Role::User, "And <then> \"what\"?", None),
    ]
}

fn text(template: &ChatTemplate, messages: &[Message], think: Think) -> String {
    template.render(messages, think).unwrap().text
}

/// Thoughts and answer of generated text.
fn read(mut splitter: Splitter, generated: &str) -> (String, String) {
    splitter.push(generated);
    splitter.finish();
    (splitter.reasoning().to_owned(), splitter.text().to_owned())
}

#[test]
fn a_switch_with_tools_and_namespaces() {
    let template = template(include_str!("templates/chatml.jinja"));
    assert_eq!(template.think_control(), ThinkControl::Template);
    let expected = "<|im_start|>user\nWhy?<|im_end|>\n<|im_start|>assistant\nBecause.<|im_end|>\n\
        <|im_start|>user\nAnd <then> \"what\"?<|im_end|>\n<|im_start|>assistant\n";
    let rendered = template.render(&conversation(), Think::Default).unwrap();
    assert_eq!(rendered.text, expected);
    assert_eq!(text(&template, &conversation(), Think::On), expected);
    let thought = read(rendered.splitter, "<think>\nlet me\n</think>\n\nYes");
    assert_eq!(thought, ("let me".to_owned(), "Yes".to_owned()));
    let off = template.render(&conversation(), Think::Off).unwrap();
    assert_eq!(off.text, format!("{expected}<think>\n\n</think>\n\n"));
    assert_eq!(read(off.splitter, "Yes"), (String::new(), "Yes".to_owned()));
    let system = [say(Role::System, "Be brief.", None), say(Role::User, "Hi", None)];
    assert!(
        text(&template, &system, Think::On)
            .starts_with("<|im_start|>system\nBe brief.<|im_end|>\n")
    );
}

#[test]
fn thoughts_that_the_prompt_opens() {
    let template = template(include_str!("templates/opened.jinja"));
    assert_eq!(template.think_control(), ThinkControl::Prefill);
    let expected = "<s><|User|>Why?<|Assistant|>Because.</s><|User|>And <then> \"what\"?<|Assistant|><think>\n";
    let rendered = template.render(&conversation(), Think::On).unwrap();
    assert_eq!(rendered.text, expected);
    assert_eq!(read(rendered.splitter, "so\n</think>\n\nA").0, "so");
    let off = template.render(&conversation(), Think::Off).unwrap();
    assert_eq!(off.text, format!("{expected}\n</think>\n\n"));
    assert_eq!(read(off.splitter, "A").1, "A");
}

#[test]
fn dates_and_models_that_do_not_think() {
    let template = template(include_str!("templates/headers.jinja"));
    assert_eq!(template.think_control(), ThinkControl::None);
    let on = text(&template, &conversation(), Think::On);
    assert_eq!(on, text(&template, &conversation(), Think::Off));
    assert!(on.starts_with("<s><|header|>system<|end_header|>\n\nToday: "), "{on}");
    assert!(on.ends_with("\"what\"?<|eot|><|header|>assistant<|end_header|>\n\n"), "{on}");
    let date = on.split("Today: ").nth(1).unwrap().split('\n').next().unwrap();
    assert_eq!((date.len(), date.split(' ').count()), (11, 3), "{date}");
}

#[test]
fn channels_and_efforts() {
    let template = template(include_str!("templates/channels.jinja"));
    assert_eq!(template.think_control(), ThinkControl::Prefill);
    let on = template.render(&conversation(), Think::On).unwrap();
    assert!(on.text.contains("Reasoning: medium\n"), "{}", on.text);
    let end = "<|start|>assistant<|channel|>final<|message|>Because.<|end|><|start|>user<|message|>And \
        <then> \"what\"?<|end|><|start|>assistant";
    assert!(on.text.ends_with(end), "{}", on.text);
    let generated =
        "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>A";
    assert_eq!(read(on.splitter, generated), ("hm".to_owned(), "A".to_owned()));
    let off = template.render(&conversation(), Think::Off).unwrap();
    assert!(off.text.contains("Reasoning: low\n"), "{}", off.text);
    assert!(off.text.ends_with(&format!("{end}<|channel|>final<|message|>")), "{}", off.text);
    assert_eq!(read(off.splitter, "A"), (String::new(), "A".to_owned()));
    let marks =
        [say(Role::User, "a", None), say(Role::Assistant, "<|channel|>final<|message|>", None)];
    let error = template.render(&marks, Think::Default).unwrap_err().to_string();
    assert!(error.contains("must not have channel marks"), "{error}");
}

#[test]
fn refusals_are_one_clear_line() {
    let template = template(include_str!("templates/alternating.jinja"));
    let expected = "<s>[INST] Why?[/INST] Because.</s>[INST] And <then> \"what\"?[/INST]";
    assert_eq!(text(&template, &conversation(), Think::Default), expected);
    let twice = [say(Role::User, "a", None), say(Role::User, "b", None)];
    let error = template.render(&twice, Think::Default).unwrap_err().to_string();
    assert_eq!(error.lines().count(), 1, "{error}");
    for part in ["chat template failed", "roles must alternate", "raw prompt"] {
        assert!(error.contains(part), "no {part:?} in {error}");
    }
    let damaged = ChatTemplate::new("{% for m in messages %}", "", "").unwrap_err().to_string();
    assert!(damaged.contains("chat template can't be read"), "{damaged}");
    let broken = ChatTemplate::new("{{ messages[0].parts.first.text }}", "", "").unwrap_err();
    assert!(broken.to_string().contains("chat template failed"), "{broken}");
}

#[test]
fn thoughts_on_a_channel_of_their_own() {
    let template = template(include_str!("templates/turns.jinja"));
    assert_eq!(template.think_control(), ThinkControl::Template);
    let off = template.render(&conversation(), Think::Off).unwrap();
    let expected = "<s><|turn>user\nWhy?<turn|>\n<|turn>model\nBecause.<turn|>\n<|turn>user\n\
        And <then> \"what\"?<turn|>\n<|turn>model\n<|channel>thought\n<channel|>";
    assert_eq!(off.text, expected);
    assert_eq!(read(off.splitter, "A"), (String::new(), "A".to_owned()));
    let on = template.render(&conversation(), Think::On).unwrap();
    assert!(on.text.starts_with("<s><|turn>system\n<|think|>\n<turn|>\n"), "{}", on.text);
    let generated = "<|channel>thought\nhm\n<channel|>A";
    assert_eq!(read(on.splitter, generated), ("hm".to_owned(), "A".to_owned()));
}

#[test]
fn marks_for_training_mean_nothing() {
    let template = template(include_str!("templates/generation.jinja"));
    assert_eq!(template.think_control(), ThinkControl::Template);
    let on = text(&template, &conversation(), Think::Default);
    assert!(
        on.contains("Mode: /think\n") && on.contains("<|im_start|>assistant\nBecause."),
        "{on}"
    );
    let off = text(&template, &conversation(), Think::Off);
    assert!(off.ends_with("<|im_start|>assistant\n<think>\n\n</think>\n"), "{off}");
}
