//! Commands, one file each.

pub(crate) mod iobench;
