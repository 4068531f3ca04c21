//! Text captures, plain or gzipped, read front to back as often as asked.

use crate::error::{Error, Result};
use flate2::bufread::MultiGzDecoder;
use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

pub const GZIP_MAGIC: &[u8] = b"\x1f\x8b";

pub struct Text {
    path: PathBuf,
    gzipped: bool,
    /// Bytes of the text before its first character.
    skipped: u64,
}

impl Text {
    pub fn new(path: &Path, gzipped: bool) -> Self {
        Text { path: path.into(), gzipped, skipped: 0 }
    }

    /// The same from byte `count` on: what comes before it is none of the text.
    pub fn skipping(self, count: u64) -> Self {
        Text { skipped: count, ..self }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn is_gzipped(&self) -> bool {
        self.gzipped
    }

    /// The (inflated) text from byte `offset` on.
    pub fn read_from(&self, offset: u64) -> Result<Box<dyn Read + Send>> {
        let offset = offset + self.skipped;
        let mut file = File::open(&self.path).map_err(|e| self.unreadable(e))?;
        if !self.gzipped {
            file.seek(SeekFrom::Start(offset)).map_err(|e| self.unreadable(e))?;
            return Ok(Box::new(file));
        }
        let mut inflated = MultiGzDecoder::new(BufReader::with_capacity(1 << 18, file));
        std::io::copy(&mut inflated.by_ref().take(offset), &mut std::io::sink()).map_err(|e| self.unreadable(e))?;
        Ok(Box::new(inflated))
    }

    /// What a failed read of this file means.
    pub fn unreadable(&self, e: std::io::Error) -> Error {
        let what = if self.gzipped {
            format!("its gzip data is damaged or cut off ({e}); copy or record the file again")
        } else {
            format!("cannot be read: {e}")
        };
        Error::format(&self.path, what)
    }

    /// Something wrong at byte `offset` of the text.
    pub fn wrong_at(&self, offset: u64, what: impl Into<String>) -> Error {
        let error = Error::format(&self.path, what).at(offset + self.skipped);
        if self.gzipped { error.within("when inflated") } else { error }
    }
}

/// Reads up to `count` bytes more into `out`; fewer only at the end of the text. The number of bytes read.
pub fn append(reader: &mut impl Read, out: &mut Vec<u8>, count: usize) -> std::io::Result<usize> {
    out.reserve(count);
    reader.take(count as u64).read_to_end(out)
}
