//! The published text formats, written while a run goes on.
//!
//! Both writers are fed the same [`Record`](crate::Record)s as the binary trace, one by one. They only
//! append and flush after every token, so that a file can be followed with `tail -f` and an ended
//! process leaves whole lines behind it.
//!
//! * [`MetricsCsv`]: `bmoe_metrics v2`, one row per decode step.
//! * [`RouteCsv`]: `route_trace v1`, one row per (layer, token, slot).
//!
//! The column names and meanings are those of the BigMoeOnEdge engine's files; `docs/formats.md`
//! lists them with their units. A number that this engine does not measure is -1.

mod metrics;
mod route;

pub use metrics::MetricsCsv;
pub use route::RouteCsv;

/// A preamble value: blanks would end it, so they are percent-encoded.
fn preamble_value(text: &str) -> String {
    let mut value = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_whitespace() || c.is_control() || c == '%' {
            let mut utf8 = [0; 4];
            for byte in c.encode_utf8(&mut utf8).bytes() {
                value.push_str(&format!("%{byte:02X}"));
            }
        } else {
            value.push(c);
        }
    }
    value
}

fn out_of_order(what: &str) -> std::io::Error {
    std::io::Error::new(
        std::io::ErrorKind::InvalidData,
        format!("a {what} record came before the start record that names the model"),
    )
}
