//! Blocks in which the bus stays idle, or in the middle of a burst: most of a capture.

use crate::bits::{Backend, Bit};
use crate::clocking::BLOCK;

/// A state of the bus that can last for many samples: what each line has to read.
pub struct Steady {
    /// Samples in eight bytes are in this state if every bit of `mask` is 1 through `flip`.
    flip: u64,
    mask: u64,
    clk: Option<Bit>,
    /// CLK in the same eight bytes.
    ticks: u64,
    /// Samples fit into eight bytes.
    fits: bool,
}

impl Steady {
    /// Of lines (those that were captured) that have to read 1 (asserted) or 0.
    pub fn new(unit: usize, clk: Option<Bit>, lines: impl IntoIterator<Item = (Option<Bit>, bool)>) -> Self {
        let (mut flip, mut mask, mut ticks) = ([0; 8], [0; 8], [0; 8]);
        let fits = matches!(unit, 1 | 2 | 4 | 8);
        let places = |bit: Bit| (bit.byte..if fits { 8 } else { 0 }).step_by(unit);
        for (bit, wanted) in lines {
            let Some(bit) = bit else { continue };
            for byte in places(bit) {
                mask[byte] |= bit.mask;
                // Inverted twice, by the polarity of the line and by what is wanted, is not inverted.
                if wanted == (bit.flip != 0) {
                    flip[byte] |= bit.mask;
                }
            }
        }
        if let Some(clk) = clk {
            places(clk).for_each(|byte| ticks[byte] |= clk.mask);
        }
        Steady {
            flip: u64::from_le_bytes(flip),
            mask: u64::from_le_bytes(mask),
            clk,
            ticks: u64::from_le_bytes(ticks),
            fits,
        }
    }

    /// Goes over the blocks from `from` on, to `to` at most, in all samples of which the bus is in this state, up to the last
    /// block that the state outlasts.
    ///
    /// # Safety
    /// As for [`Backend`], for all blocks up to `to` and one sample more.
    #[inline(always)]
    pub unsafe fn run<B: Backend>(&self, data: &[u8], unit: usize, from: usize, to: usize) -> SteadyRun {
        let none = SteadyRun { end: from, clocks: 0 };
        if from >= to || !self.fits {
            return none;
        }
        // Safety: as the caller says; 64 samples are eight bytes at least.
        let (start, first) = unsafe {
            let start = data.as_ptr().add(from * BLOCK * unit);
            (start, start.cast::<u64>().read_unaligned())
        };
        if (first ^ self.flip) & self.mask != self.mask {
            return none;
        }
        // Safety: as the caller says.
        let (blocks, changes) = unsafe { B::unchanged(start, unit, to - from, self.mask, self.ticks) };
        let end = from + blocks;
        let clocks = match self.clk {
            // Rises and falls alternate, so the levels at both ends tell them apart.
            Some(clk) => {
                let level = |block: usize| u64::from(clk.get(&data[block * BLOCK * unit..]));
                (changes + level(end) - level(from)) / 2
            }
            None => (blocks * BLOCK) as u64,
        };
        SteadyRun { end, clocks }
    }
}

/// Blocks in which the bus stays in one state.
pub struct SteadyRun {
    /// The first block after them.
    pub end: usize,
    pub clocks: u64,
}
