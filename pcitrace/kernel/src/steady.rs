//! Samples in which the bus stays idle, or in the middle of a burst: most of a capture.

use crate::bits::{Backend, Bit};
use crate::clocking::BLOCK;

/// A state of the bus that can last for many samples: what each line has to read.
pub struct Steady {
    /// The lines' bits, in samples in eight bytes.
    watched: u64,
    /// CLK in the same eight bytes; 0 in state mode.
    ticks: u64,
    /// The first of those samples is in this state if its `watched` bits read so; CLK is low if its bit reads so.
    wanted: u64,
    low: u64,
    /// The bits of one sample.
    sample: u64,
    /// Samples fit into eight bytes.
    fits: bool,
}

impl Steady {
    /// Of lines (those that were captured) that have to read 1 (asserted) or 0.
    pub fn new(unit: usize, clk: Option<Bit>, lines: impl IntoIterator<Item = (Option<Bit>, bool)>) -> Self {
        let fits = matches!(unit, 1 | 2 | 4 | 8);
        let places = |bit: Bit| {
            let mut bytes = [0; 8];
            (bit.byte..if fits { 8 } else { 0 }).step_by(unit).for_each(|byte| bytes[byte] = bit.mask);
            u64::from_le_bytes(bytes)
        };
        let mut steady = Steady {
            watched: 0,
            ticks: 0,
            wanted: 0,
            low: 0,
            sample: if fits { !0 >> (64 - 8 * unit) } else { 0 },
            fits,
        };
        for (bit, wanted) in lines {
            let Some(bit) = bit else { continue };
            steady.watched |= places(bit);
            if wanted != (bit.flip != 0) {
                steady.wanted |= places(bit);
            }
        }
        if let Some(clk) = clk {
            steady.ticks = places(clk);
            steady.low = places(clk) & clk.flip;
        }
        steady
    }

    /// Goes over the samples from `from` on in which the bus is in this state, short of `to` at the latest, up to the last
    /// one before a change.
    ///
    /// # Safety
    /// As for [`Backend`], for all samples up to `to` and that one itself.
    #[inline(always)]
    pub unsafe fn run<B: Backend>(&self, data: &[u8], unit: usize, from: usize, to: usize) -> SteadyRun {
        let none = SteadyRun { end: from, clocks: 0 };
        let blocks = to.saturating_sub(from) / BLOCK;
        if blocks == 0 || !self.fits {
            return none;
        }
        // Safety: as the caller says; 64 samples are eight bytes at least.
        let (start, first) = unsafe {
            let start = data.as_ptr().add(from * unit);
            (start, start.cast::<u64>().read_unaligned())
        };
        // One sample tells: the others are compared with it.
        if (first ^ self.wanted) & self.watched & self.sample != 0 {
            return none;
        }
        // Safety: as the caller says.
        let (samples, changes) = unsafe { B::unchanged(start, unit, blocks, self.watched, self.ticks) };
        let clocks = if self.ticks == 0 {
            samples as u64
        } else {
            // Rises and falls alternate: of an odd number of changes that begin with a rise, one more are rises.
            let begins_low = (first ^ self.low) & self.ticks & self.sample == 0;
            (changes + u64::from(begins_low)) / 2
        };
        SteadyRun { end: from + samples, clocks }
    }
}

/// Samples in which the bus stays in one state.
pub struct SteadyRun {
    /// The first sample after them.
    pub end: usize,
    pub clocks: u64,
}
