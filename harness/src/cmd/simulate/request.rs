//! What is asked for on the command line: policies, budgets, numbers.

use std::str::FromStr;

use bmoe_analysis::simulate::{Accesses, Budget, SimPolicy, auto_budgets, auto_slots};

/// Policies in the order in which they were given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Policies(Vec<SimPolicy>);

impl Policies {
    pub(super) fn list(&self) -> &[SimPolicy] {
        &self.0
    }
}

impl FromStr for Policies {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "all" {
            return Ok(Self(SimPolicy::ALL.to_vec()));
        }
        let mut policies = Vec::new();
        for name in text.split(',') {
            let policy = name.trim().parse::<SimPolicy>().map_err(|e| e.to_string())?;
            if !policies.contains(&policy) {
                policies.push(policy);
            }
        }
        Ok(Self(policies))
    }
}

/// A list of budgets, or those that fit the trace.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Budgets<T> {
    Auto,
    List(Vec<T>),
}

impl<T: FromStr> FromStr for Budgets<T>
where
    Budgets<T>: Bounds<T>,
{
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        let number = |word: &str| {
            let number = word.trim().parse::<T>().ok().filter(Self::fits);
            number.ok_or_else(|| format!("'{word}' is not {}", Self::WHAT))
        };
        text.split(',').map(number).collect::<Result<_, _>>().map(Self::List)
    }
}

/// Which numbers are budgets.
pub(super) trait Bounds<T> {
    const WHAT: &'static str;
    fn fits(number: &T) -> bool;
}

impl Bounds<f64> for Budgets<f64> {
    const WHAT: &'static str = "a number of MiB from 0 to 1000000000";

    fn fits(number: &f64) -> bool {
        (0.0..=1e9).contains(number)
    }
}

impl Bounds<u32> for Budgets<u32> {
    const WHAT: &'static str = "a number of slots from 0 to 65536";

    fn fits(number: &u32) -> bool {
        *number <= 65_536
    }
}

impl Budgets<f64> {
    pub(super) fn of(&self, accesses: &Accesses) -> Vec<Budget> {
        match self {
            Self::Auto => auto_budgets(accesses),
            Self::List(mib) => mib
                .iter()
                .map(|mib| Budget::Bytes((mib * f64::from(1 << 20)).round() as u64))
                .collect(),
        }
    }
}

impl Budgets<u32> {
    pub(super) fn of(&self, accesses: &Accesses) -> Vec<Budget> {
        match self {
            Self::Auto => auto_slots(accesses),
            Self::List(slots) => slots.iter().copied().map(Budget::SlotsPerLayer).collect(),
        }
    }
}

/// For clap: a number above 0.
pub(in crate::cmd) fn positive(text: &str) -> Result<f64, String> {
    within(text, |number| number.is_finite() && number > 0.0, "a number above 0")
}

/// For clap: 0 to 100.
pub(super) fn percent(text: &str) -> Result<f64, String> {
    within(text, |number| (0.0..=100.0).contains(&number), "a percentage from 0 to 100")
}

/// For clap: 0 to 1.
pub(in crate::cmd) fn share(text: &str) -> Result<f64, String> {
    within(text, |number| (0.0..=1.0).contains(&number), "a number from 0 to 1")
}

fn within(text: &str, fits: impl Fn(f64) -> bool, what: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number| fits(*number));
    number.ok_or_else(|| format!("'{text}' is not {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_keep_their_order_and_name_what_is_wrong() {
        let policies: Policies = "lru, belady,lru".parse().unwrap();
        assert_eq!(policies.list().iter().map(|p| p.name()).collect::<Vec<_>>(), ["lru", "belady"]);
        assert_eq!("all".parse::<Policies>().unwrap().list(), SimPolicy::ALL);
        assert!("lru,clock".parse::<Policies>().unwrap_err().contains("unknown policy 'clock'"));
        assert_eq!("250,0.5".parse(), Ok(Budgets::List(vec![250.0, 0.5])));
        assert_eq!("auto".parse(), Ok(Budgets::<u32>::Auto));
        assert_eq!(
            "8,-1".parse::<Budgets<u32>>().unwrap_err(),
            "'-1' is not a number of slots from 0 to 65536"
        );
        assert!("NaN".parse::<Budgets<f64>>().is_err() && "".parse::<Budgets<f64>>().is_err());
        assert!(positive("inf").is_err() && percent("101").is_err() && share("0.5").is_ok());
    }
}
