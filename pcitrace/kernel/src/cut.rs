//! Chunks decoded on their own: where the bus carries no memory, a decoder may start knowing nothing.

use crate::clocking::Decoder;
use crate::layout::Layout;
use crate::windows::Windows;

/// How a chunk in the middle of a capture is decoded without knowing what came before it.
pub struct Cut {
    /// Bytes that the decoder of the chunk before has to be given; it ends in step.
    pub head: Vec<u8>,
    /// The decoder of all that follows; None where the chunk has no sync point.
    pub rest: Option<Decoder>,
}

/// Decodes `bytes`, which begin at byte `offset` of the capture, from their first sync point on; there is room for `room`
/// transactions from the start.
pub fn decode_chunk(
    layout: &Layout,
    want_data_phases: bool,
    windows: Windows,
    portable: bool,
    offset: u64,
    bytes: &[u8],
    room: usize,
) -> Cut {
    let unit = layout.unit;
    let skip = (unit - (offset % unit as u64) as usize) % unit;
    let samples = bytes.get(skip..).unwrap_or_default();
    let Some(sync) = sync_point(layout, samples) else {
        return Cut { head: bytes.to_vec(), rest: None };
    };
    let first = (offset + skip as u64) / unit as u64 + sync as u64 + 1;
    let clock = &samples[sync * unit..(sync + 1) * unit];
    let mut rest = Decoder::in_step(layout.clone(), want_data_phases, windows, first, portable, clock);
    rest.protocol.rows.transactions.reserve(room);
    rest.push(&samples[(sync + 1) * unit..]);
    // The sample after the sync point shows the edge to the decoder before.
    let head = skip + (sync + 1 + usize::from(layout.clk.is_some())) * unit;
    Cut { head: bytes[..head].to_vec(), rest: Some(rest) }
}

/// The third of three idle clocks in a row, as a sample number in `samples`. Nothing of what was on the bus before can
/// matter after it: PERR#, SERR# and PAR come at most two clocks after a transaction.
fn sync_point(layout: &Layout, samples: &[u8]) -> Option<usize> {
    let unit = layout.unit;
    let lines = [Some(layout.frame), Some(layout.irdy), layout.rst, layout.unknown];
    let is_idle = |sample: &[u8]| lines.iter().flatten().all(|bit| !bit.get(sample));
    let mut idle = 0;
    let mut all = samples.chunks_exact(unit).enumerate().peekable();
    while let Some((index, sample)) = all.next() {
        let is_clock = match (layout.clk, all.peek()) {
            (Some(clk), Some((_, after))) => !clk.get(sample) && clk.get(after),
            (Some(_), None) => false,
            (None, _) => true,
        };
        if is_clock {
            idle = if is_idle(sample) { idle + 1 } else { 0 };
            if idle == 3 {
                return Some(index);
            }
        }
    }
    None
}
