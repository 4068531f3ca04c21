//! Chunks decoded on their own: where the bus carries no memory, a decoder may start knowing nothing.

use crate::pipeline::Bus;
use crate::samples::bits::Bit;
use crate::wire::before_sample;

/// What tells the clocks of a bus after which nothing is open on it: its sync points.
#[derive(Debug, Clone)]
pub struct SyncPoints {
    /// Bytes of a sample.
    pub unit: usize,
    /// None where every sample is a clock.
    pub clk: Option<Bit>,
    /// What its lines read then.
    pub idle: Vec<(Bit, bool)>,
}

/// How a chunk in the middle of a capture is decoded without knowing what came before it.
pub struct Cut<B: Bus> {
    /// Bytes that the decoder of the chunk before has to be given; it ends in step.
    pub head: Vec<u8>,
    /// None where the chunk has no sync point.
    pub rest: Option<Rest<B>>,
}

/// What follows a sync point.
pub struct Rest<B: Bus> {
    /// The sample of the clock after it, in which the decoder of the chunk before may still see an error of its last
    /// transaction.
    pub next: Vec<u8>,
    pub decoder: B::Decoder,
    /// The rows that are complete.
    pub rows: B::Rows,
}

impl<B: Bus> Cut<B> {
    /// Decodes `bytes`, which begin at byte `offset` of the capture, from their first sync point on; `gather` gathers the rows
    /// of the bytes that it gives to a decoder.
    pub fn of(bus: &B, offset: u64, bytes: &[u8], gather: impl FnOnce(&mut B::Decoder, &[u8]) -> B::Rows) -> Self {
        let Some(split) = Split::of(bus.sync_points(), offset, bytes) else {
            return Cut { head: bytes.to_vec(), rest: None };
        };
        let mut decoder = bus.decoder(split.first, Some(split.clock));
        let rows = gather(&mut decoder, split.behind);
        Cut { head: split.head.to_vec(), rest: Some(Rest { next: split.next.to_vec(), decoder, rows }) }
    }
}

/// Where the first sync point divides the bytes of a chunk.
pub struct Split<'a> {
    /// For the decoder of what comes before.
    pub head: &'a [u8],
    /// The sample of the clock after the sync point: see [`Rest`].
    pub next: &'a [u8],
    /// The sample of the idle clock, and what follows it.
    pub clock: &'a [u8],
    pub behind: &'a [u8],
    /// Number of the sample with which that begins.
    pub first: u64,
}

impl<'a> Split<'a> {
    /// None where the chunk, which begins at byte `offset` of the capture, has no sync point.
    pub fn of(points: &SyncPoints, offset: u64, bytes: &'a [u8]) -> Option<Self> {
        let unit = points.unit;
        let skip = before_sample(offset, unit);
        let samples = bytes.get(skip..).unwrap_or_default();
        let (sync, next) = points.first_in(samples)?;
        let sample = |number: usize| &samples[number * unit..(number + 1) * unit];
        // The sample after the sync point shows the edge to the decoder before.
        let head = skip + (sync + 1 + usize::from(points.clk.is_some())) * unit;
        Some(Split {
            head: &bytes[..head],
            next: sample(next),
            clock: sample(sync),
            behind: &samples[(sync + 1) * unit..],
            first: (offset + skip as u64) / unit as u64 + sync as u64 + 1,
        })
    }
}

impl SyncPoints {
    /// An idle clock and the one after it, as sample numbers in `samples`.
    fn first_in(&self, samples: &[u8]) -> Option<(usize, usize)> {
        let is_idle = |sample: &[u8]| self.idle.iter().all(|(line, asserted)| line.get(sample) == *asserted);
        let mut idle = None;
        let mut all = samples.chunks_exact(self.unit).enumerate().peekable();
        while let Some((index, sample)) = all.next() {
            let is_clock = match (self.clk, all.peek()) {
                (Some(clk), Some((_, after))) => !clk.get(sample) && clk.get(after),
                (Some(_), None) => false,
                (None, _) => true,
            };
            if is_clock {
                if let Some(idle) = idle {
                    return Some((idle, index));
                }
                idle = is_idle(sample).then_some(index);
            }
        }
        None
    }
}
