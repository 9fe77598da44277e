//! Tests of whole result folders, in one program so that it is linked once.

mod compare;
mod damage;
mod folder;
mod import;
mod parquet;
mod pictures;
mod predict;
mod published;
mod report;
mod synthetic;
mod traces;
mod versions;
mod views;
