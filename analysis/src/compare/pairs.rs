//! Which cells are compared with which.

use bmoe_trace::RunConfig;
use serde_json::Value;

use super::Arm;
use crate::measured::Measured;
use crate::result_set::NamedGroup;

/// Cells to compare, and those that have no partner.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Pairs<'a> {
    /// A and B of each comparison.
    pub pairs: Vec<(Arm<'a>, Arm<'a>)>,
    /// Cells without a partner.
    pub alone: Vec<Arm<'a>>,
}

/// Pairs the cells of two sides: one of each is a pair whatever they are, otherwise those of the same content
/// (id) or, failing that, of the same model and name.
#[must_use]
pub fn pair<'a>(a: Vec<Arm<'a>>, b: Vec<Arm<'a>>) -> Pairs<'a> {
    let mut paired = Pairs::default();
    if a.len() == 1 && b.len() == 1 {
        paired.pairs = a.into_iter().zip(b).collect();
        return paired;
    }
    let mut b: Vec<Option<Arm<'a>>> = b.into_iter().map(Some).collect();
    let mut left = Vec::new();
    let same_id = |x: &Arm<'_>, y: &Arm<'_>| x.cell.id == y.cell.id;
    let same_name =
        |x: &Arm<'_>, y: &Arm<'_>| (x.cell.model, x.cell.name) == (y.cell.model, y.cell.name);
    let mut take = |a: Vec<Arm<'a>>, same: &dyn Fn(&Arm<'_>, &Arm<'_>) -> bool| {
        for arm in a {
            let place = b.iter().position(|other| other.as_ref().is_some_and(|o| same(&arm, o)));
            match place.and_then(|place| b[place].take()) {
                Some(partner) => paired.pairs.push((arm, partner)),
                None => left.push(arm),
            }
        }
        std::mem::take(&mut left)
    };
    let left = take(a, &same_id);
    let left = take(left, &same_name);
    paired.alone = left.into_iter().chain(b.into_iter().flatten()).collect();
    paired
}

/// The pairs of a named group whose cells are in a folder. The first `warmup_tokens` of each run are left out.
#[must_use]
pub fn pair_named<'a>(
    group: &NamedGroup,
    measured: &'a Measured,
    warmup_tokens: usize,
) -> Vec<(Arm<'a>, Arm<'a>)> {
    let cells = measured.cells();
    let arm = |id: &str| {
        let cell = cells.iter().find(|cell| cell.id == id)?;
        Some(Arm::new(measured, cell.clone(), warmup_tokens))
    };
    let both =
        group.pairs.iter().filter_map(|pair| Some((arm(&pair.baseline)?, arm(&pair.member)?)));
    both.filter(|(a, b)| !a.runs.is_empty() && !b.runs.is_empty()).collect()
}

/// Pairs the cells of one side that differ in a single setting only. Of each group the baseline is A, or else
/// the cell with the smallest value (false before true, numbers before words).
///
/// # Errors
/// The axis is no setting, or no two cells differ in it alone.
pub fn pair_by<'a>(arms: Vec<Arm<'a>>, axis: &str) -> Result<Pairs<'a>, String> {
    let settings = match serde_json::to_value(RunConfig::default()) {
        Ok(Value::Object(settings)) => settings,
        _ => serde_json::Map::new(),
    };
    if !settings.contains_key(axis) {
        let known: Vec<&str> = settings.keys().map(String::as_str).collect();
        return Err(format!("`{axis}` is not a setting; expected one of {}", known.join(", ")));
    }
    let mut groups: Vec<Group<'a>> = Vec::new();
    for arm in arms {
        let mut rest = serde_json::to_value(arm.cell.config).unwrap_or_default();
        let value = rest.as_object_mut().and_then(|r| r.remove(axis)).unwrap_or_default();
        let key = (arm.cell.model.to_owned(), rest);
        match groups.iter_mut().find(|group| group.shared == key) {
            Some(group) => group.members.push((value, arm)),
            None => groups.push(Group { shared: key, members: vec![(value, arm)] }),
        }
    }
    let mut paired = Pairs::default();
    for Group { mut members, .. } in groups {
        members.sort_by(|(a, x), (b, y)| {
            y.cell.baseline.cmp(&x.cell.baseline).then_with(|| order(a, b))
        });
        let mut members = members.into_iter().map(|(_, arm)| arm);
        let Some(first) = members.next() else { continue };
        let before = paired.pairs.len();
        paired.pairs.extend(members.map(|other| (first.clone(), other)));
        if paired.pairs.len() == before {
            paired.alone.push(first);
        }
    }
    if paired.pairs.is_empty() {
        return Err(format!("no two of the cells differ in `{axis}` alone"));
    }
    Ok(paired)
}

/// Cells that differ in the axis alone.
struct Group<'a> {
    /// Model, and all other settings.
    shared: (String, Value),
    /// The axis's value of each.
    members: Vec<(Value, Arm<'a>)>,
}

fn order(a: &Value, b: &Value) -> std::cmp::Ordering {
    let rank = |value: &Value| match value {
        Value::Bool(value) => (0, f64::from(u8::from(*value))),
        Value::Number(value) => (1, value.as_f64().unwrap_or_default()),
        _ => (2, 0.0),
    };
    let ((x, m), (y, n)) = (rank(a), rank(b));
    x.cmp(&y).then(m.total_cmp(&n)).then_with(|| a.to_string().cmp(&b.to_string()))
}
