//! What chat templates expect of the Python that they were written for.

use std::fmt::Write as _;
use std::time::SystemTime;

use chrono::{DateTime, Utc};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Kwargs;
use minijinja::{Environment, Error, ErrorKind, Value};
use serde::Serialize;
use serde_json::ser::{Formatter, PrettyFormatter};

/// Steps after which a template counts as one that never ends; real ones take thousands.
const FUEL: u64 = 50_000_000;

/// An environment in which templates made for Hugging Face's tokenizers run.
pub(super) fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
    environment.set_syntax(syntax.expect("the usual delimiters differ from each other"));
    environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    environment.set_fuel(Some(FUEL));
    environment.add_function("raise_exception", raise_exception);
    environment.add_function("strftime_now", strftime_now);
    environment.add_filter("tojson", tojson);
    environment
}

/// Templates mark the assistant's words with `{% generation %}`, for training. Here it means nothing.
pub(super) fn without_generation_tags(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(start) = rest.find("{%") {
        let Some(length) = rest[start..].find("%}") else { break };
        let tag = &rest[start + 2..start + length];
        let name = tag.trim_start_matches(['-', '+']).trim_end_matches(['-', '+']).trim();
        out.push_str(&rest[..start + 2]);
        match name {
            "generation" => out.push_str(&tag.replace("generation", "if true")),
            "endgeneration" => out.push_str(&tag.replace("endgeneration", "endif")),
            _ => out.push_str(tag),
        }
        rest = &rest[start + length..];
    }
    out.push_str(rest);
    out
}

fn raise_exception(message: String) -> Result<Value, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, message))
}

/// The date, in UTC, in `strftime`'s notation.
fn strftime_now(format: &str) -> Result<String, Error> {
    let mut text = String::new();
    write!(text, "{}", DateTime::<Utc>::from(SystemTime::now()).format(format)).map_err(|_| {
        Error::new(ErrorKind::InvalidOperation, format!("{format:?} is no date format"))
    })?;
    Ok(text)
}

/// JSON as Python's `json.dumps` writes it; other than minijinja's own it keeps `<`, `>` and `&`, which
/// mean something to a model.
fn tojson(value: &Value, options: Kwargs) -> Result<String, Error> {
    let indent: Option<usize> = options.get("indent")?;
    // Accepted and without effect: text is never escaped, and maps keep their order.
    let _: Option<bool> = options.get("ensure_ascii")?;
    let _: Option<bool> = options.get("sort_keys")?;
    let _: Option<Value> = options.get("separators")?;
    options.assert_all_used()?;
    match indent {
        Some(n) => write_json(value, PrettyFormatter::with_indent(" ".repeat(n).as_bytes())),
        None => write_json(value, Spaced),
    }
}

fn write_json(value: &Value, formatter: impl Formatter) -> Result<String, Error> {
    let mut bytes = Vec::new();
    let mut serializer = serde_json::Serializer::with_formatter(&mut bytes, formatter);
    let failed = |e: &dyn std::fmt::Display| {
        Error::new(ErrorKind::InvalidOperation, format!("a value can't be written as JSON: {e}"))
    };
    value.serialize(&mut serializer).map_err(|e| failed(&e))?;
    String::from_utf8(bytes).map_err(|e| failed(&e))
}

/// One line, with Python's blanks behind `,` and `:`.
struct Spaced;

impl Formatter for Spaced {
    fn begin_array_value<W: ?Sized + std::io::Write>(
        &mut self,
        writer: &mut W,
        first: bool,
    ) -> std::io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object_key<W: ?Sized + std::io::Write>(
        &mut self,
        writer: &mut W,
        first: bool,
    ) -> std::io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object_value<W: ?Sized + std::io::Write>(
        &mut self,
        writer: &mut W,
    ) -> std::io::Result<()> {
        writer.write_all(b": ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn render(source: &str) -> Result<String, Error> {
        let source = without_generation_tags(source);
        environment().render_str(&source, minijinja::context! {})
    }

    #[test]
    fn python_is_understood() {
        for (source, expected) in [
            ("{{ 'a</think>b'.split('</think>')[-1].lstrip('\\n') }}", "b"),
            (
                "{{ {'b': ['<x>', 1.5, true, none], 'a': {}} | tojson }}",
                r#"{"b": ["<x>", 1.5, true, null], "a": {}}"#,
            ),
            ("{{ {'a': [1]} | tojson(indent=2) }}", "{\n  \"a\": [\n    1\n  ]\n}"),
            (
                "{% for x in [1, 2, 3][::-1] %}{% if x == 2 %}{% continue %}{% endif %}{{ x }}{% endfor %}",
                "31",
            ),
            (
                "{% set ns = namespace(n=0) %}{% for x in 'ab' %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}",
                "2",
            ),
            ("a\n  {% if true %}\n  b\n  {% endif %}\nc\n", "a\n  b\nc"),
            (
                "{%- generation -%} x {%- endgeneration %} {% generation %}y{% endgeneration %}",
                "x y",
            ),
            ("{% macro m(x, y=2) %}{{ x }}{{ y }}{% endmacro %}{{ m(1) }}", "12"),
            ("{% for k, v in {'a': 1}.items() %}{{ k }}{{ v }}{% endfor %}", "a1"),
            ("{{ 'x' if 'a' is string and [] is sequence and {} is mapping else 'y' }}", "x"),
            ("{{ strftime_now('%Y')|length }}", "4"),
        ] {
            assert_eq!(render(source).unwrap(), expected, "{source}");
        }
    }

    #[test]
    fn what_goes_wrong_is_an_error() {
        let error = render("{{ raise_exception('roles must alternate') }}").unwrap_err();
        assert!(error.to_string().contains("roles must alternate"), "{error}");
        assert!(render("{{ strftime_now('%Q %') }}").is_err());
        let endless =
            "{% for a in range(9999) %}{% for b in range(9999) %}{{ b }}{% endfor %}{% endfor %}";
        assert!(render(endless).unwrap_err().to_string().contains("fuel"));
    }
}
