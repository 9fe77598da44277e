//! Tests of whole result folders, in one program so that it is linked once.

mod compare;
mod damage;
mod folder;
mod parquet;
mod pictures;
mod published;
mod report;
mod synthetic;
mod versions;
