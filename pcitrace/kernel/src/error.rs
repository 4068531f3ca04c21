//! Typed errors; `python.rs` maps them one to one to `pcitrace.errors`.

use std::path::{Path, PathBuf};

pub type Result<T> = std::result::Result<T, Error>;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be read as the capture it claims to be.
    #[error("{}{}: {message}", path.display(), place(offset, member))]
    Format {
        path: PathBuf,
        /// Byte offset in the file (or line, where `member` says so), if there is one place to name.
        offset: Option<u64>,
        /// Member of an archive, or a line of a text file.
        member: Option<String>,
        /// What was found and what to do.
        message: String,
    },
    /// A bus cannot be decoded with the lines or rates that were given.
    #[error("{0}")]
    Decode(String),
    /// The caller's progress hook asked to stop.
    #[error("interrupted")]
    Interrupted,
    #[error("cannot write {}: {source}", path.display())]
    Write {
        path: PathBuf,
        source: std::io::Error,
    },
}

impl Error {
    pub fn format(path: &Path, message: impl Into<String>) -> Self {
        Error::Format {
            path: path.into(),
            offset: None,
            member: None,
            message: message.into(),
        }
    }

    pub fn at(mut self, byte: u64) -> Self {
        if let Error::Format { offset, .. } = &mut self {
            *offset = Some(byte);
        }
        self
    }

    /// Names the archive member, or the line of a text file ("line 17").
    pub fn within(mut self, name: impl Into<String>) -> Self {
        if let Error::Format { member, .. } = &mut self {
            *member = Some(name.into());
        }
        self
    }
}

fn place(offset: &Option<u64>, member: &Option<String>) -> String {
    match (member, offset) {
        (Some(m), Some(o)) => format!(", {m}, byte {o}"),
        (Some(m), None) => format!(", {m}"),
        (None, Some(o)) => format!(", byte {o}"),
        (None, None) => String::new(),
    }
}
