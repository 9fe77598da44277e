//! From raw traces to tables and pictures: Parquet, statistics, plots, reports.

pub mod result_set;
