//! Commands, one file each.

pub(crate) mod documents;
pub(crate) mod iobench;
