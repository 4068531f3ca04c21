//! Samples that are in memory already.

use crate::capture::{Capture, Channel, Chunk, Data, Sampled};
use crate::error::{Error, Result};
use crate::read::names::number_repeated;
use std::path::PathBuf;

/// Bytes per chunk: a few per core's cache, many per thread.
const CHUNK: usize = 4 << 20;

struct Samples<B> {
    bytes: B,
    unit: usize,
    bits: Vec<usize>,
    rate_hz: Option<f64>,
}

/// A capture of `bytes`, samples of `unit` bytes whose bit `k` is called `names[k]`.
pub fn capture(
    bytes: impl AsRef<[u8]> + Send + Sync + 'static,
    unit: usize,
    names: Vec<String>,
    rate_hz: Option<f64>,
) -> Result<Capture> {
    let path = PathBuf::from("samples in memory");
    if unit == 0 || names.len() > 8 * unit {
        let what = format!("{} channels do not fit into samples of {unit} bytes", names.len());
        return Err(Error::format(&path, what));
    }
    let bits = (0..names.len()).collect();
    let mut names = names;
    let notes = number_repeated(&mut names);
    let channels = names.into_iter().map(|name| Channel { name, width: 1 }).collect();
    let data = Data::Sampled(Box::new(Samples { bytes, unit, bits, rate_hz }));
    Ok(Capture { path, format: "memory", channels, data, notes, captures: 1 })
}

impl<B: AsRef<[u8]> + Send + Sync> Sampled for Samples<B> {
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
        Some(self.bytes.as_ref().len() as u64)
    }

    fn chunks(&self) -> Box<dyn Iterator<Item = Result<Chunk<'_>>> + Send + '_> {
        let chunks = self.bytes.as_ref().chunks(CHUNK).enumerate();
        Box::new(chunks.map(|(index, bytes)| Ok(Chunk::ready((index * CHUNK) as u64, bytes))))
    }
}
