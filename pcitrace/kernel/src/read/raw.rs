//! Raw samples as an analyser's program writes them (`sigrok-cli -O binary`): nothing but units, from a file or a pipe.

use super::names::number_repeated;
use crate::capture::{Capture, Channel, Chunk, Data, Sampled};
use crate::error::{Error, Result};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// Bytes of a file that are decoded at once.
const CHUNK: usize = 4 << 20;

struct Raw {
    path: PathBuf,
    unit: usize,
    bits: Vec<usize>,
    rate_hz: Option<f64>,
    /// None of a pipe, which ends when its writer does, and can be read once.
    bytes: Option<u64>,
    was_read: AtomicBool,
}

/// Opens samples of `unit` bytes whose bit `k` is called `names[k]`; the path `-` is standard input.
pub fn open(path: &Path, unit: usize, mut names: Vec<String>, rate_hz: Option<f64>) -> Result<Capture> {
    if unit == 0 || names.len() > 8 * unit {
        let what =
            format!("{} channels do not fit into samples of {unit} bytes; say the right --unit-size", names.len());
        return Err(Error::format(path, what));
    }
    let bytes = match path.to_str() {
        Some("-") => None,
        _ => {
            let metadata = std::fs::metadata(path).map_err(|e| Error::format(path, format!("cannot be read: {e}")))?;
            metadata.is_file().then_some(metadata.len())
        }
    };
    if bytes == Some(0) {
        return Err(Error::format(path, "is empty"));
    }
    let bits = (0..names.len()).collect();
    let notes = number_repeated(&mut names);
    let raw = Raw { path: path.into(), unit, bits, rate_hz, bytes, was_read: AtomicBool::new(false) };
    Ok(Capture {
        path: path.into(),
        format: "binary",
        channels: names.into_iter().map(|name| Channel { name, width: 1 }).collect(),
        data: Data::Sampled(Box::new(raw)),
        notes,
        captures: 1,
    })
}

impl Raw {
    fn reader(&self) -> Result<Box<dyn Read + Send>> {
        if self.bytes.is_none() && self.was_read.swap(true, Ordering::Relaxed) {
            return Err(Error::format(
                &self.path,
                "was read already, and a pipe gives its samples once; record to a file",
            ));
        }
        if self.path.as_os_str() == "-" {
            return Ok(Box::new(std::io::stdin()));
        }
        let file = File::open(&self.path).map_err(|e| Error::format(&self.path, format!("cannot be read: {e}")))?;
        Ok(Box::new(file))
    }
}

impl Sampled for Raw {
    fn unit_size(&self) -> usize {
        self.unit
    }

    fn bits(&self) -> &[usize] {
        &self.bits
    }

    fn rate_hz(&self) -> Option<f64> {
        self.rate_hz
    }

    fn total_bytes(&self) -> Option<u64> {
        self.bytes
    }

    fn chunks(&self) -> Box<dyn Iterator<Item = Result<Chunk<'_>>> + Send + '_> {
        let mut reader = match self.reader() {
            Ok(reader) => reader,
            Err(error) => return Box::new(std::iter::once(Err(error))),
        };
        let (mut offset, mut over) = (0, false);
        Box::new(std::iter::from_fn(move || {
            if over {
                return None;
            }
            let mut bytes = Vec::new();
            let read = reader.by_ref().take(CHUNK as u64).read_to_end(&mut bytes);
            over = bytes.len() < CHUNK;
            let start = offset;
            offset += bytes.len() as u64;
            match read {
                Err(e) => {
                    over = true;
                    Some(Err(Error::format(&self.path, format!("cannot be read: {e}")).at(start)))
                }
                Ok(0) => None,
                Ok(_) => Some(Ok(Chunk::ready(start, bytes))),
            }
        }))
    }
}
