//! Chunks decoded on their own: where the bus carries no memory, a decoder may start knowing nothing.

use crate::pci::clocking::Decoder;
use crate::pci::layout::Layout;
use crate::pci::protocol::Protocol;
use crate::pci::rows::TakeRows;
use crate::wire::before_sample;

/// How a chunk in the middle of a capture is decoded without knowing what came before it.
pub struct Cut<T> {
    /// Bytes that the decoder of the chunk before has to be given; it ends in step.
    pub head: Vec<u8>,
    /// None where the chunk has no sync point.
    pub rest: Option<Rest<T>>,
}

/// What follows a sync point.
pub struct Rest<T> {
    /// The sample of the clock after it, in which the decoder of the chunk before may still see an error of its last
    /// transaction.
    pub next: Vec<u8>,
    pub decoder: Decoder,
    /// The rows that are complete.
    pub rows: T,
}

/// Decodes `bytes`, which begin at byte `offset` of the capture, from their first sync point on. `make` builds a decoder that
/// starts at a sample, of a clock in which the bus was idle; `rows` takes the rows.
pub fn decode_chunk<T: TakeRows>(
    layout: &Layout,
    offset: u64,
    bytes: &[u8],
    make: impl FnOnce(u64, &[u8]) -> Decoder,
    mut rows: T,
) -> Cut<T> {
    let Some(split) = Split::of(layout, offset, bytes) else {
        return Cut { head: bytes.to_vec(), rest: None };
    };
    let mut decoder = make(split.first, split.clock);
    decoder.push_all(split.behind, &mut rows);
    Cut { head: split.head.to_vec(), rest: Some(Rest { next: split.next.to_vec(), decoder, rows }) }
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
    pub fn of(layout: &Layout, offset: u64, bytes: &'a [u8]) -> Option<Self> {
        let unit = layout.unit;
        let skip = before_sample(offset, unit);
        let samples = bytes.get(skip..).unwrap_or_default();
        let (sync, next) = sync_point(layout, samples)?;
        let sample = |number: usize| &samples[number * unit..(number + 1) * unit];
        // The sample after the sync point shows the edge to the decoder before.
        let head = skip + (sync + 1 + usize::from(layout.clk.is_some())) * unit;
        Some(Split {
            head: &bytes[..head],
            next: sample(next),
            clock: sample(sync),
            behind: &samples[(sync + 1) * unit..],
            first: (offset + skip as u64) / unit as u64 + sync as u64 + 1,
        })
    }
}

/// An idle clock and the one after it, as sample numbers in `samples`.
fn sync_point(layout: &Layout, samples: &[u8]) -> Option<(usize, usize)> {
    let unit = layout.unit;
    let idle_levels = Protocol::idle_levels(layout);
    let is_idle = |sample: &[u8]| idle_levels.iter().all(|(line, asserted)| line.get(sample) == *asserted);
    let mut idle = None;
    let mut all = samples.chunks_exact(unit).enumerate().peekable();
    while let Some((index, sample)) = all.next() {
        let is_clock = match (layout.clk, all.peek()) {
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
