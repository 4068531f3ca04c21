//! Blocks in which the bus stays idle, or in the middle of a burst: most of a capture.

use crate::bits::{Backend, Bit};
use crate::clocking::BLOCK;

/// A state of the bus that can last for many samples: what each line has to read.
pub struct Steady {
    /// The samples with which every bit of the mask is 1 through the flip are in this state; both hold as many samples as fit
    /// into eight bytes. None where samples do not fit.
    test: Option<(u64, u64)>,
}

impl Steady {
    /// Of lines (those that were captured) that have to read 1 (asserted) or 0.
    pub fn new(unit: usize, lines: impl IntoIterator<Item = (Option<Bit>, bool)>) -> Self {
        let (mut flip, mut mask) = ([0; 8], [0; 8]);
        if !matches!(unit, 1 | 2 | 4 | 8) {
            return Steady { test: None };
        }
        for (bit, wanted) in lines {
            let Some(bit) = bit else { continue };
            for byte in (bit.byte..8).step_by(unit) {
                mask[byte] |= bit.mask;
                // Inverted twice, by the polarity of the line and by what is wanted, is not inverted.
                if wanted == (bit.flip != 0) {
                    flip[byte] |= bit.mask;
                }
            }
        }
        Steady { test: Some((u64::from_le_bytes(flip), u64::from_le_bytes(mask))) }
    }

    /// Goes over the blocks from `from` on, to `to` at most, in all samples of which the bus is in this state.
    ///
    /// # Safety
    /// As for [`Backend`], for all blocks up to `to`, and the first sample after them.
    #[inline(always)]
    pub unsafe fn run<B: Backend>(
        &self,
        clk: Option<Bit>,
        data: &[u8],
        unit: usize,
        from: usize,
        to: usize,
    ) -> SteadyRun {
        let Some(test) = self.test else {
            return SteadyRun { end: from, clocks: 0, last: (0, 0) };
        };
        // Most of the time of a decode goes by here: each unit size has its own loop.
        unsafe {
            match unit {
                1 => Self::run_in::<B, 1>(test, clk, data, from, to),
                2 => Self::run_in::<B, 2>(test, clk, data, from, to),
                4 => Self::run_in::<B, 4>(test, clk, data, from, to),
                _ => Self::run_in::<B, 8>(test, clk, data, from, to),
            }
        }
    }

    #[inline(always)]
    unsafe fn run_in<B: Backend, const UNIT: usize>(
        (flip, mask): (u64, u64),
        clk: Option<Bit>,
        data: &[u8],
        from: usize,
        to: usize,
    ) -> SteadyRun {
        let (mut clocks, mut last) = (0, (0, 0));
        let mut end = from;
        while end < to {
            let start = end * BLOCK;
            // Safety: as the caller says.
            let edges = unsafe {
                let block = data.as_ptr().add(start * UNIT);
                if !B::all_set(block, UNIT, flip, mask) {
                    break;
                }
                match clk {
                    Some(clk) => {
                        let level = B::level(block, UNIT, clk.byte, clk.mask) ^ clk.flip;
                        let after = *block.add(BLOCK * UNIT + clk.byte) & clk.mask != 0;
                        !level & (level >> 1 | (u64::from(after) ^ clk.flip & 1) << 63)
                    }
                    None => !0,
                }
            };
            end += 1;
            clocks += u64::from(edges.count_ones());
            if edges != 0 {
                last = (start, edges);
            }
        }
        SteadyRun { end, clocks, last }
    }
}

/// Blocks in which the bus stays in one state.
pub struct SteadyRun {
    /// The first block after them.
    pub end: usize,
    pub clocks: u64,
    /// The last of them that has a clock: its first sample and its edges.
    pub last: (usize, u64),
}
