//! Tables to files as they come.

mod file;
mod output;
mod rowgroups;
mod text;

use crate::error::{Error, Result};
pub use file::TableFile;
pub use output::Output;
use std::path::Path;

/// Rows per record batch.
pub const BATCH: usize = 8192;
/// Rows that wait for those of another bus, at most: a bus that is stuck in one transaction may never let them go.
pub const MOST_WAITING: usize = 1 << 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Csv,
    JsonLines,
    Parquet,
}

impl Format {
    /// By the ending of the file name.
    pub fn of(path: &Path) -> Result<Self> {
        match path.extension().and_then(|ending| ending.to_str()) {
            Some("csv") => Ok(Format::Csv),
            Some("jsonl") => Ok(Format::JsonLines),
            Some("parquet") => Ok(Format::Parquet),
            _ => Err(Error::Decode(format!(
                "{}: the ending says the format of a table; use .csv, .jsonl or .parquet",
                path.display()
            ))),
        }
    }
}
