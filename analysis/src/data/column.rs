//! Rows of plain structs to Parquet columns and back, from one declaration.

use bmoe_trace::record::{Phase, ReadPurpose, Residency};
use polars::prelude::*;

/// A type that one column holds.
pub(super) trait Cell: Sized {
    /// The column.
    fn write(name: &str, values: Vec<Self>) -> Column;
    /// Its values back; the error names what does not fit.
    fn read(series: &Series) -> PolarsResult<Vec<Self>>;
    /// What a row has when the file lacks the column.
    fn missing() -> Option<Self> {
        None
    }
}

fn required<T>(series: &Series, values: impl Iterator<Item = Option<T>>) -> PolarsResult<Vec<T>> {
    values
        .collect::<Option<Vec<T>>>()
        .ok_or_else(|| polars_err!(ComputeError: "column `{}` has a null", series.name()))
}

macro_rules! plain_cell {
    ($($type:ty, $accessor:ident;)*) => {$(
        impl Cell for $type {
            fn write(name: &str, values: Vec<Self>) -> Column {
                Column::new(name.into(), values)
            }
            fn read(series: &Series) -> PolarsResult<Vec<Self>> {
                required(series, series.$accessor()?.iter())
            }
        }
        impl Cell for Option<$type> {
            fn write(name: &str, values: Vec<Self>) -> Column {
                Column::new(name.into(), values)
            }
            fn read(series: &Series) -> PolarsResult<Vec<Self>> {
                Ok(series.$accessor()?.iter().collect())
            }
            fn missing() -> Option<Self> {
                Some(None)
            }
        }
    )*};
}

plain_cell! {
    bool, bool;
    i32, i32;
    u32, u32;
    u64, u64;
    f32, f32;
    f64, f64;
}

impl Cell for String {
    fn write(name: &str, values: Vec<Self>) -> Column {
        Column::new(name.into(), values)
    }
    fn read(series: &Series) -> PolarsResult<Vec<Self>> {
        required(series, series.str()?.iter().map(|v| v.map(str::to_owned)))
    }
}

impl Cell for Option<String> {
    fn write(name: &str, values: Vec<Self>) -> Column {
        Column::new(name.into(), values)
    }
    fn read(series: &Series) -> PolarsResult<Vec<Self>> {
        Ok(series.str()?.iter().map(|v| v.map(str::to_owned)).collect())
    }
    fn missing() -> Option<Self> {
        Some(None)
    }
}

/// Values of an enum, as words.
macro_rules! named_cell {
    ($type:ident is $what:literal: $($variant:ident = $name:literal),* $(,)?) => {
        impl Named for $type {
            const WHAT: &'static str = $what;
            fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
            fn named(name: &str) -> Option<Self> {
                match name { $($name => Some(Self::$variant),)* _ => None }
            }
        }

        impl Cell for $type {
            fn write(name: &str, values: Vec<Self>) -> Column {
                let names: Vec<&str> = values.into_iter().map(Named::name).collect();
                Column::new(name.into(), names)
            }
            fn read(series: &Series) -> PolarsResult<Vec<Self>> {
                required(series, read_named(series)?.into_iter())
            }
        }

        impl Cell for Option<$type> {
            fn write(name: &str, values: Vec<Self>) -> Column {
                let names: Vec<Option<&str>> =
                    values.into_iter().map(|v| v.map(Named::name)).collect();
                Column::new(name.into(), names)
            }
            fn read(series: &Series) -> PolarsResult<Vec<Self>> {
                read_named(series)
            }
            fn missing() -> Option<Self> {
                Some(None)
            }
        }
    };
}

pub(super) trait Named: Sized + Copy + PartialEq {
    const WHAT: &'static str;
    fn name(self) -> &'static str;
    fn named(name: &str) -> Option<Self>;
}

fn read_named<T: Named>(series: &Series) -> PolarsResult<Vec<Option<T>>> {
    let value = |name: &str| {
        let what = T::WHAT;
        T::named(name).ok_or_else(|| polars_err!(ComputeError: "`{name}` is not a {what}"))
    };
    series.str()?.iter().map(|name| name.map(value).transpose()).collect()
}

named_cell!(Phase is "phase": Prefill = "prefill", Decode = "decode");
named_cell!(Residency is "residency": Miss = "miss", Hit = "hit", PrefetchHit = "prefetch_hit");
named_cell!(
    ReadPurpose is "purpose of a read":
    Demand = "demand", Prefetch = "prefetch", Predict = "predict", Warm = "warm",
);

/// Reads a named column, or what its absence means.
pub(super) fn read_column<T: Cell + Clone>(frame: &DataFrame, name: &str) -> PolarsResult<Vec<T>> {
    match (frame.column(name), T::missing()) {
        (Ok(column), _) => T::read(column.as_materialized_series()),
        (Err(_), Some(missing)) => Ok(vec![missing; frame.height()]),
        (Err(e), None) => Err(e),
    }
}

/// A row type of one of the files.
pub(super) trait Row: Sized {
    /// The rows' columns, without `run_id`.
    fn columns(rows: &[Self]) -> Vec<Column>;
    /// The rows of a frame.
    fn from_frame(frame: &DataFrame) -> PolarsResult<Vec<Self>>;
    /// Names of the columns, without `run_id`.
    const COLUMNS: &'static [&'static str];
}

/// Declares a row struct; field names are column names.
macro_rules! row {
    (
        $(#[$meta:meta])*
        pub struct $name:ident { $($(#[$field_meta:meta])* pub $field:ident: $type:ty,)* }
    ) => {
        $(#[$meta])*
        pub struct $name { $($(#[$field_meta])* pub $field: $type,)* }

        impl $crate::data::column::Row for $name {
            const COLUMNS: &'static [&'static str] = &[$(stringify!($field)),*];

            fn columns(rows: &[Self]) -> Vec<polars::prelude::Column> {
                use $crate::data::column::Cell;
                vec![$(<$type as Cell>::write(
                    stringify!($field),
                    rows.iter().map(|r| r.$field.clone()).collect(),
                )),*]
            }

            fn from_frame(
                frame: &polars::prelude::DataFrame,
            ) -> polars::prelude::PolarsResult<Vec<Self>> {
                use $crate::data::column::read_column;
                $(let mut $field = read_column::<$type>(frame, stringify!($field))?.into_iter();)*
                let row = || Some(Self { $($field: $field.next()?,)* });
                Ok(std::iter::from_fn(row).collect())
            }
        }
    };
}
pub(super) use row;
