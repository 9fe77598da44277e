//! The append-only record of a matrix: one line for every attempt that ended.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use bmoe_analysis::result_set::CellRecord;

/// `cells.jsonl` of a result folder.
#[derive(Debug)]
pub struct Journal {
    file: File,
}

impl Journal {
    /// Starts a journal; there must be none.
    ///
    /// # Errors
    /// The file exists or can't be made.
    pub fn create(folder: &Path) -> io::Result<Self> {
        let file =
            OpenOptions::new().create_new(true).append(true).open(folder.join("cells.jsonl"))?;
        // The name must survive a crash as well as what is written under it.
        File::open(folder)?.sync_all()?;
        Ok(Self { file })
    }

    /// Appends one attempt. It is on the disk when this returns.
    ///
    /// # Errors
    /// The write failed.
    pub fn append(&mut self, record: &CellRecord) -> io::Result<()> {
        let mut line = serde_json::to_vec(record)?;
        line.push(b'\n');
        self.file.write_all(&line)?;
        self.file.sync_data()
    }
}
