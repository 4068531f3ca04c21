//! Typed errors; `python` maps them one to one to `pcitrace.errors`.

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
    Write { path: PathBuf, source: std::io::Error },
}

impl Error {
    pub fn format(path: &Path, message: impl Into<String>) -> Self {
        Error::Format { path: path.into(), offset: None, member: None, message: one_line(&message.into()) }
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
            *member = Some(one_line(&name.into()));
        }
        self
    }
}

/// What a message quotes from a file may hold anything, line ends too.
fn one_line(text: &str) -> String {
    let parts: Vec<&str> = text.split(char::is_control).map(str::trim).filter(|part| !part.is_empty()).collect();
    parts.join(" ")
}

fn place(offset: &Option<u64>, member: &Option<String>) -> String {
    match (member, offset) {
        (Some(m), Some(o)) => format!(", {m}, byte {o}"),
        (Some(m), None) => format!(", {m}"),
        (None, Some(o)) => format!(", byte {o}"),
        (None, None) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_one_line_with_its_place() {
        let error = Error::format(Path::new("a.vcd"), "`1\u{1b}[2J` is no\n\tvalue").within("line\n3").at(7);
        assert_eq!(error.to_string(), "a.vcd, line 3, byte 7: `1 [2J` is no value");
    }
}
