//! What a reader gives: the channels of a capture file and a way to their values.

use crate::error::Result;
use std::borrow::Cow;
use std::path::PathBuf;

/// A named input of the analyser, or a net of a waveform file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Channel {
    pub name: String,
    /// 1 for a wire; more for a vector of a waveform file, whose bit 0 is the least significant.
    pub width: u32,
}

pub struct Capture {
    pub path: PathBuf,
    pub format: &'static str,
    pub channels: Vec<Channel>,
    pub data: Data,
    /// What the reader had to settle by itself, in a sentence each: for whoever looks at the capture.
    pub notes: Vec<String>,
    /// How many captures the file holds; this is one of them.
    pub captures: usize,
}

pub enum Data {
    Sampled(Box<dyn Sampled>),
    Changes(Box<dyn Changes>),
}

/// Bytes of a sample, at most: far more than any analyser has, and what a file or a user states must not decide about memory.
pub const MAX_UNIT: usize = 4096;

/// Equidistant samples of `unit_size` bytes; channel `k` is bit `bits()[k]`, little endian.
pub trait Sampled: Send + Sync {
    fn unit_size(&self) -> usize;
    /// Position of each channel in the unit.
    fn bits(&self) -> &[usize];
    /// As stated in the file; a reader refuses rates that are not positive and finite.
    fn rate_hz(&self) -> Option<f64>;
    /// Total number of bytes, where the file states it before it is read.
    fn total_bytes(&self) -> Option<u64>;
    /// The samples in order, as chunks that can be loaded on any thread. Chunks may cut a sample in two.
    fn chunks(&self) -> Box<dyn Iterator<Item = Result<Chunk<'_>>> + Send + '_>;
    /// Bytes at which chunks begin that can be read without those before them; none where there are no such.
    fn starts(&self) -> Vec<u64> {
        Vec::new()
    }
    /// The chunks from one of `starts` on; those before it are not read.
    fn chunks_from(&self, start: u64) -> Box<dyn Iterator<Item = Result<Chunk<'_>>> + Send + '_> {
        Box::new(self.chunks().skip_while(move |chunk| chunk.as_ref().is_ok_and(|chunk| chunk.offset < start)))
    }
}

/// A contiguous run of bytes of a sampled capture.
pub struct Chunk<'a> {
    /// Of its first byte from the start of the capture.
    pub offset: u64,
    bytes: Bytes<'a>,
}

type Load<'a> = Box<dyn FnOnce(&mut Vec<u8>) -> Result<()> + Send + 'a>;

enum Bytes<'a> {
    Ready(Cow<'a, [u8]>),
    /// Fills a buffer that is used again; on any thread.
    Load(Load<'a>),
}

impl<'a> Chunk<'a> {
    pub fn ready(offset: u64, bytes: impl Into<Cow<'a, [u8]>>) -> Self {
        Chunk { offset, bytes: Bytes::Ready(bytes.into()) }
    }

    /// `load` replaces what is in the buffer.
    pub fn load(offset: u64, load: impl FnOnce(&mut Vec<u8>) -> Result<()> + Send + 'a) -> Self {
        Chunk { offset, bytes: Bytes::Load(Box::new(load)) }
    }

    /// The bytes, in `buffer` or where they are.
    pub fn bytes<'b>(self, buffer: &'b mut Vec<u8>) -> Result<Cow<'b, [u8]>>
    where
        'a: 'b,
    {
        match self.bytes {
            Bytes::Ready(bytes) => Ok(bytes),
            Bytes::Load(load) => {
                load(buffer)?;
                Ok(Cow::Borrowed(buffer))
            }
        }
    }
}

/// 64 bits of a channel: bit `64 * index` and those above it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Limb {
    pub channel: usize,
    pub index: u32,
}

impl Limb {
    /// The lowest limbs of some channels: all there is of those that are not wider.
    pub fn lowest(channels: &[usize]) -> Vec<Limb> {
        channels.iter().map(|&channel| Limb { channel, index: 0 }).collect()
    }
}

/// A capture that lists what changed and when.
pub trait Changes: Send + Sync {
    /// Seconds per tick as an exact fraction: `(numerator, denominator)`, e.g. (1, 10^12) for 1 ps.
    fn tick(&self) -> (u64, u64);
    /// Last time of the capture, in ticks from time 0 of the file.
    fn end(&self) -> u64;
    /// Time spans (ticks) in which nothing was recorded, in order.
    fn gaps(&self) -> &[(u64, u64)];
    /// All changes of the given limbs (of channels as `Capture::channels` numbers them), in the order asked.
    fn signals(&self, limbs: &[Limb]) -> Result<Vec<Signal>>;
    /// The same in parts, one after the other in time: what is before and behind the end of a part is never at the same time.
    /// `take` says whether to go on.
    fn parts(&self, limbs: &[Limb], take: &mut dyn FnMut(&[Signal]) -> Result<bool>) -> Result<()> {
        take(&self.signals(limbs)?).map(|_| ())
    }
}

/// The changes of 64 bits of a channel. Before the first one every bit is unknown.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Signal {
    /// Ticks, never decreasing; of several changes at one time the last holds.
    pub times: Vec<u64>,
    /// The value after each change; `unknown` and `high_z` bits read 0.
    pub values: Vec<u64>,
    /// Bits that are `x` (or any state that is neither 0, 1 nor z); empty if there are none at all.
    pub unknown: Vec<u64>,
    /// Bits that are `z`; empty if there are none at all.
    pub high_z: Vec<u64>,
}

impl Signal {
    /// Appends a change; the masks appear with the first bit that needs them.
    #[inline]
    pub fn push(&mut self, time: u64, value: u64, unknown: u64, high_z: u64) {
        if unknown | high_z != 0 || !self.unknown.is_empty() || !self.high_z.is_empty() {
            self.push_masks(unknown, high_z);
        }
        self.times.push(time);
        self.values.push(value);
    }

    /// Takes away the changes at `time` and later.
    pub fn split_off(&mut self, time: u64) -> Signal {
        let at = self.times.partition_point(|&before| before < time);
        let behind = |bits: &mut Vec<u64>| bits.split_off(at.min(bits.len()));
        Signal {
            times: behind(&mut self.times),
            values: behind(&mut self.values),
            unknown: behind(&mut self.unknown),
            high_z: behind(&mut self.high_z),
        }
    }

    /// The same changes as another one, in the memory that there is.
    pub fn set(&mut self, other: &Signal) {
        self.times.clone_from(&other.times);
        self.values.clone_from(&other.values);
        self.unknown.clone_from(&other.unknown);
        self.high_z.clone_from(&other.high_z);
    }

    #[inline(never)]
    fn push_masks(&mut self, unknown: u64, high_z: u64) {
        for (masks, mask) in [(&mut self.unknown, unknown), (&mut self.high_z, high_z)] {
            if mask != 0 || !masks.is_empty() {
                masks.resize(self.times.len(), 0);
                masks.push(mask);
            }
        }
    }
}
