//! The columns of a `route_trace` file, and a row's values.

use super::super::error::{ImportError, Place as At, Result, quoted};
use super::super::fields::{real_32, split, unsigned, unsigned_32};
use super::super::lines::{Line, too_many_columns};
use crate::record::{Phase, Residency};

/// What a column of the file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Turn,
    Phase,
    Step,
    Layer,
    Slot,
    Expert,
    Weight,
    Residency,
    ExpertBytes,
    Extra(usize),
}

const ROLES: [(&str, Role); 9] = [
    ("turn", Role::Turn),
    ("phase", Role::Phase),
    ("step", Role::Step),
    ("layer", Role::Layer),
    ("slot", Role::Slot),
    ("expert", Role::Expert),
    ("weight", Role::Weight),
    ("residency", Role::Residency),
    ("expert_bytes", Role::ExpertBytes),
];

const REQUIRED: [&str; 5] = ["phase", "step", "layer", "slot", "expert"];

/// One row as it stands in the file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Row {
    pub(super) turn: u32,
    pub(super) phase: Phase,
    pub(super) step: u32,
    pub(super) layer: u32,
    pub(super) slot: u32,
    pub(super) expert: u32,
    pub(super) weight: f32,
    pub(super) residency: Option<Residency>,
    pub(super) read_bytes: u64,
}

/// The columns in file order.
#[derive(Debug)]
pub(super) struct Columns {
    roles: Vec<Role>,
    names: Vec<String>,
}

impl Columns {
    pub(super) fn of(line: &Line<'_>) -> Result<Self> {
        too_many_columns(line)?;
        let text = line.text()?;
        let names: Vec<String> = text.split(',').map(|name| name.trim().to_owned()).collect();
        if let Some(missing) = REQUIRED.iter().find(|name| !names.iter().any(|n| n == *name)) {
            let found = format!("{} has no column `{missing}`", quoted(line.bytes));
            let expected = "a header with the columns turn,phase,step,layer,slot,expert,weight,residency,expert_bytes \
                            in any order";
            return Err(ImportError::line(line.number, found, expected));
        }
        let mut extra = 0;
        let mut roles = Vec::with_capacity(names.len());
        for (index, name) in names.iter().enumerate() {
            if name.is_empty() || names[..index].contains(name) {
                let place = At::Column { number: index + 1, name: name.clone() };
                let value = quoted(name.as_bytes());
                return Err(ImportError::Value {
                    line: line.number,
                    place,
                    value,
                    expected: "names, each once".into(),
                });
            }
            roles.push(ROLES.iter().find(|(known, _)| known == name).map_or_else(
                || {
                    extra += 1;
                    Role::Extra(extra - 1)
                },
                |(_, role)| *role,
            ));
        }
        Ok(Self { roles, names })
    }

    pub(super) fn extra(&self) -> Vec<String> {
        let named = self.roles.iter().zip(&self.names);
        named
            .filter(|(role, _)| matches!(role, Role::Extra(_)))
            .map(|(_, name)| name.clone())
            .collect()
    }

    /// The error of a column's value.
    #[cold]
    pub(super) fn wrong(
        &self,
        line: u64,
        role: Role,
        value: String,
        expected: impl Into<String>,
    ) -> ImportError {
        let index = self.roles.iter().position(|r| *r == role).unwrap_or_default();
        let place = At::Column { number: index + 1, name: self.names[index].clone() };
        ImportError::Value { line, place, value, expected: expected.into() }
    }

    /// Reads the fields of a line; `extra` takes those of unknown columns.
    #[inline]
    pub(super) fn row(&self, line: &Line<'_>, extra: &mut [Vec<String>]) -> Result<Row> {
        let mut row = Row {
            turn: 0,
            phase: Phase::Decode,
            step: 0,
            layer: 0,
            slot: 0,
            expert: 0,
            weight: f32::NAN,
            residency: None,
            read_bytes: 0,
        };
        let mut rest = Some(line.bytes);
        for role in &self.roles {
            let Some(unread) = rest else { return Err(self.width(line)) };
            let (field, behind) = split(unread);
            rest = behind;
            let wrong = |expected: &str| self.wrong(line.number, *role, quoted(field), expected);
            match role {
                Role::Turn => {
                    row.turn = unsigned_32(field).ok_or_else(|| wrong("a turn from 0"))?
                }
                Role::Phase => {
                    row.phase = match field {
                        b"0" => Phase::Prefill,
                        b"1" => Phase::Decode,
                        _ => return Err(wrong("0 (prefill) or 1 (decode)")),
                    };
                }
                Role::Step => {
                    row.step = unsigned_32(field).ok_or_else(|| wrong("a position from 0"))?
                }
                Role::Layer => {
                    row.layer = unsigned_32(field).ok_or_else(|| wrong("a layer from 0"))?
                }
                Role::Slot => {
                    row.slot = unsigned_32(field).ok_or_else(|| wrong("a slot from 0"))?
                }
                Role::Expert => {
                    row.expert = unsigned_32(field).ok_or_else(|| wrong("an expert from 0"))?
                }
                Role::Weight => {
                    // Some routers scale their weights beyond 1.
                    let weight = real_32(field).filter(|weight| weight.is_nan() || *weight >= 0.0);
                    row.weight = weight.ok_or_else(|| wrong("a finite number from 0, or nan"))?
                }
                Role::Residency => {
                    row.residency = match field {
                        b"0" => Some(Residency::Miss),
                        b"1" => Some(Residency::Hit),
                        b"2" => Some(Residency::PrefetchHit),
                        b"-1" => None,
                        _ => {
                            return Err(wrong(
                                "0 (miss), 1 (hit), 2 (first use of a prefetch) or -1 (unknown)",
                            ));
                        }
                    };
                }
                Role::ExpertBytes => {
                    row.read_bytes = unsigned(field).ok_or_else(|| wrong("bytes from 0"))?
                }
                Role::Extra(index) => {
                    let text = Line { bytes: field, ..*line };
                    extra[*index].push(text.text()?.to_owned());
                }
            }
        }
        if rest.is_some() { Err(self.width(line)) } else { Ok(row) }
    }

    #[cold]
    fn width(&self, line: &Line<'_>) -> ImportError {
        let fields = line.bytes.split(|b| *b == b',').count();
        let found = format!("{} has {fields} fields", quoted(line.bytes));
        ImportError::line(
            line.number,
            found,
            format!("{}, as many as the header has columns", self.roles.len()),
        )
    }
}
