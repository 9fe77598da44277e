//! Values of an axis: a list, or a range of numbers.

use serde::de::{Deserializer, Error as _};
use serde::{Deserialize, Serialize};

/// More values than any axis has that is meant.
const MAX_VALUES: usize = 10_000;

/// The values of one axis, ranges written out.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Values<T>(pub(super) Vec<T>);

/// `{ from = 500, to = 4000, step = 500 }` or `{ from = 500, to = 4000, factor = 2 }`, both ends included.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Range {
    from: f64,
    to: f64,
    step: Option<f64>,
    factor: Option<f64>,
}

impl Range {
    fn values(&self) -> Result<Vec<f64>, String> {
        let Self { from, to, step, factor } = *self;
        let next: Box<dyn Fn(f64) -> f64> = match (step, factor) {
            (Some(step), None) if step > 0.0 => Box::new(move |n| n + step),
            (None, Some(factor)) if factor > 1.0 && from > 0.0 => Box::new(move |n| n * factor),
            (None, None) => return Err("a range needs `step` or `factor`".to_owned()),
            (Some(_), Some(_)) => return Err("a range has either `step` or `factor`".to_owned()),
            (Some(step), None) => return Err(format!("`step = {step}`; expected more than 0")),
            (None, Some(factor)) => {
                return Err(format!(
                    "`factor = {factor}` from {from}; expected a factor above 1 and a start above 0"
                ));
            }
        };
        if from > to {
            return Err(format!("the range begins at {from} and ends before, at {to}"));
        }
        let mut values = Vec::new();
        let mut value = from;
        // A step of 0.1 must not miss its end by a rounding error.
        while value <= to * (1.0 + 1e-9) {
            values.push(value);
            if values.len() > MAX_VALUES {
                return Err(format!("the range has more than {MAX_VALUES} values"));
            }
            value = next(value);
        }
        Ok(values)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Values<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let written = toml::Value::deserialize(deserializer)?;
        let list = match written {
            toml::Value::Table(table) => {
                let range: Range = table.try_into().map_err(D::Error::custom)?;
                range.values().map_err(D::Error::custom)?.into_iter().map(number).collect()
            }
            toml::Value::Array(list) => list,
            other => {
                return Err(D::Error::custom(format!(
                    "expected a list of values or a range, found {}",
                    other.type_str()
                )));
            }
        };
        let value = |value: toml::Value| T::deserialize(value).map_err(D::Error::custom);
        list.into_iter().map(value).collect::<Result<_, _>>().map(Self)
    }
}

/// Whole numbers are written as such: most settings take nothing else. With a factor they are rounded.
#[expect(clippy::cast_possible_truncation, reason = "settings are far smaller")]
fn number(value: f64) -> toml::Value {
    let whole = value.round();
    if (value - whole).abs() < 1e-9 || value > 1000.0 {
        toml::Value::Integer(whole as i64)
    } else {
        toml::Value::Float(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize)]
    struct Axes {
        a: Values<u64>,
    }

    fn read(text: &str) -> Result<Vec<u64>, String> {
        toml::from_str::<Axes>(&format!("a = {text}"))
            .map(|axes| axes.a.0)
            .map_err(|e| e.to_string())
    }

    #[test]
    fn lists_and_ranges_are_the_same_thing() {
        assert_eq!(read("[3, 1]").unwrap(), [3, 1]);
        let range = "{ from = 500, to = 2000, step = 500 }";
        assert_eq!(read(range).unwrap(), [500, 1000, 1500, 2000]);
        assert_eq!(read("{ from = 1, to = 9, factor = 2 }").unwrap(), [1, 2, 4, 8]);
        assert_eq!(read("{ from = 7, to = 7, step = 1 }").unwrap(), [7]);
    }

    #[test]
    fn ranges_that_never_end_are_refused() {
        for (range, expected) in [
            ("{ from = 1, to = 9 }", "needs `step` or `factor`"),
            ("{ from = 1, to = 9, step = 1, factor = 2 }", "either `step` or `factor`"),
            ("{ from = 1, to = 9, step = 0 }", "expected more than 0"),
            ("{ from = 0, to = 9, factor = 2 }", "a start above 0"),
            ("{ from = 9, to = 1, step = 1 }", "ends before"),
            ("{ from = 0, to = 1000000, step = 1 }", "more than 10000 values"),
            ("{ from = 0, to = 9, stepp = 1 }", "stepp"),
            ("3", "expected a list of values or a range, found integer"),
            ("[\"x\"]", "x"),
        ] {
            let error = read(range).unwrap_err();
            assert!(error.contains(expected), "{range}: {error}");
        }
    }
}
