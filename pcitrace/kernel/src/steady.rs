//! Samples in which the bus stays idle, or in the middle of a burst: most of a capture.

use crate::bits::{Backend, Bit, SampleMask};
use crate::clocking::BLOCK;

/// A state of the bus that can last for many samples: what each line has to read.
pub struct Steady {
    /// The lines' bits.
    watched: SampleMask,
    /// CLK; no bit in state mode.
    ticks: SampleMask,
    /// The first sample is in this state if its `told` bits read so; CLK is low if its bit reads so.
    told: u64,
    wanted: u64,
    low: u64,
    /// The bits of one sample.
    sample: u64,
    /// Samples fit into eight bytes.
    fits: bool,
}

impl Steady {
    /// Of lines that have to be asserted or not, and of some that only must not change.
    pub fn new(unit: usize, clk: Option<Bit>, lines: impl IntoIterator<Item = (Bit, bool)>, still: &[Bit]) -> Self {
        let fits = unit <= 8;
        let place = |bit: Bit| if fits { u64::from(bit.mask) << (8 * bit.byte) } else { 0 };
        let (mut watched, mut wanted) = (0, 0);
        for (bit, asserted) in lines {
            watched |= place(bit);
            if asserted != (bit.flip != 0) {
                wanted |= place(bit);
            }
        }
        let told = watched;
        watched |= still.iter().fold(0, |bits, &bit| bits | place(bit));
        let ticks = clk.map_or(0, place);
        let mask = |bits: u64| SampleMask::repeated(&bits.to_le_bytes()[..unit.min(8)]);
        Steady {
            watched: mask(watched),
            ticks: mask(ticks),
            told,
            wanted,
            low: clk.map_or(0, |clk| ticks & clk.flip),
            sample: if fits { !0 >> (64 - 8 * unit) } else { 0 },
            fits,
        }
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
            (start, u64::from_le(start.cast::<u64>().read_unaligned()))
        };
        // One sample tells: the others are compared with it.
        if (first ^ self.wanted) & self.told & self.sample != 0 {
            return none;
        }
        // Safety: as the caller says.
        let (samples, changes) = unsafe { B::unchanged(start, unit, blocks, &self.watched, &self.ticks) };
        let ticks = self.ticks.first() & self.sample;
        let clocks = if ticks == 0 {
            samples as u64
        } else {
            // Rises and falls alternate: of an odd number of changes that begin with a rise, one more are rises.
            let begins_low = (first ^ self.low) & ticks == 0;
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
