//! Figures as people read them: of a width that does not jump, and a dash for what nobody measured.

const MIB: f64 = 1024.0 * 1024.0;

/// A dash for what is not known.
pub const UNKNOWN: &str = "–";

/// With so many decimals.
#[must_use]
pub fn number(value: Option<f64>, decimals: usize) -> String {
    match value.filter(|v| v.is_finite()) {
        Some(value) => format!("{value:.decimals$}"),
        None => UNKNOWN.to_owned(),
    }
}

/// Three significant digits: `0.12`, `3.45`, `67.8`, `912`.
#[must_use]
pub fn three(value: Option<f64>) -> String {
    let decimals = match value.map(f64::abs) {
        Some(v) if v < 9.995 => 2,
        Some(v) if v < 99.95 => 1,
        _ => 0,
    };
    number(value, decimals)
}

/// Milliseconds with a unit.
#[must_use]
pub fn ms(ns: Option<f64>) -> String {
    format!("{} ms", three(ns.map(|ns| ns / 1e6)))
}

/// MiB or GiB with a unit.
#[must_use]
pub fn bytes(bytes: Option<f64>) -> String {
    match bytes {
        Some(bytes) if bytes >= 1000.0 * MIB => {
            format!("{} GiB", three(Some(bytes / MIB / 1024.0)))
        }
        bytes => format!("{} MiB", three(bytes.map(|b| b / MIB))),
    }
}

/// Per cent of a share (0 to 1).
#[must_use]
pub fn percent(share: Option<f64>) -> String {
    format!("{} %", number(share.map(|s| s * 100.0), 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_keep_their_width() {
        assert_eq!(three(Some(0.1234)), "0.12");
        assert_eq!(three(Some(9.999)), "10.0");
        assert_eq!(three(Some(99.97)), "100");
        assert_eq!(three(None), "–");
        assert_eq!(bytes(Some(3.0 * 1024.0 * MIB)), "3.00 GiB");
        assert_eq!(bytes(Some(12.5 * MIB)), "12.5 MiB");
        assert_eq!(ms(Some(1.5e6)), "1.50 ms");
        assert_eq!(percent(Some(0.5)), "50.0 %");
    }
}
