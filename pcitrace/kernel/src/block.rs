//! Clock words: the lines at up to 64 clocks, and the way back to the samples they came from.

use crate::bits::{Backend, Bit};
use crate::layout::Layout;
use std::marker::PhantomData;

/// The clocks of one 64-sample block and the way back to the samples they came from.
pub struct Block<'a, B> {
    /// From the block's first sample on; 64 samples at least.
    pub data: &'a [u8],
    pub unit: usize,
    /// Samples that are clocks.
    pub edges: u64,
    /// Stamp of the block's first sample, or the stamps of its samples.
    pub stamps: Stamps<'a>,
    /// The sample of the clock before this block, from its first byte on.
    pub previous: Option<&'a [u8]>,
    pub backend: PhantomData<B>,
}

#[derive(Debug, Clone, Copy)]
pub enum Stamps<'a> {
    From(u64),
    Listed(&'a [u64]),
}

impl Stamps<'_> {
    #[inline(always)]
    pub fn at(&self, sample: usize) -> u64 {
        match self {
            Stamps::From(first) => first + sample as u64,
            Stamps::Listed(stamps) => stamps[sample],
        }
    }
}

impl<B: Backend> Block<'_, B> {
    #[inline(always)]
    pub fn clocks(&self) -> u32 {
        self.edges.count_ones()
    }

    /// The line at every clock of the block.
    #[inline(always)]
    pub fn line(&self, bit: Bit) -> u64 {
        // Safety: `data` holds 64 samples, and a layout's bits lie within the unit.
        unsafe {
            let plane = B::plane(self.data.as_ptr(), self.unit, bit.byte);
            B::compress(B::bitmap(plane, bit.mask) ^ bit.flip, self.edges)
        }
    }

    #[inline(always)]
    pub fn maybe(&self, bit: Option<Bit>) -> u64 {
        match bit {
            Some(bit) => self.line(bit),
            None => 0,
        }
    }

    /// Byte lanes that C/BE# disables in the data phases `data`, in those of `wide` the upper four too.
    #[inline(always)]
    pub fn disabled_lanes(&self, layout: &Layout, data: u64, wide: u64) -> u64 {
        let known_low = data & !self.maybe(layout.cbe_unknown);
        let known_high = wide & !self.maybe(layout.cbe_high_unknown);
        let lanes = if wide == 0 { 4 } else { layout.cbe.len() };
        let mut disabled = 0;
        let mut byte = layout.cbe[0].byte;
        // Safety: as in `line`.
        let mut plane = unsafe { B::plane(self.data.as_ptr(), self.unit, byte) };
        for (lane, bit) in layout.cbe[..lanes].iter().enumerate() {
            if bit.byte != byte {
                byte = bit.byte;
                // Safety: as in `line`.
                plane = unsafe { B::plane(self.data.as_ptr(), self.unit, byte) };
            }
            // Safety: as in `line`.
            let high = unsafe { B::compress(B::bitmap(plane, bit.mask) ^ bit.flip, self.edges) };
            let phases = if lane < 4 { known_low } else { known_high };
            disabled += u64::from((high & phases).count_ones());
        }
        disabled
    }

    #[inline(always)]
    fn position(&self, clock: u32) -> usize {
        // Safety: the backend fits the processor.
        unsafe { B::expand(1 << clock, self.edges) }.trailing_zeros() as usize
    }

    #[inline(always)]
    pub fn sample(&self, clock: u32) -> &[u8] {
        &self.data[self.position(clock) * self.unit..]
    }

    #[inline(always)]
    pub fn stamp(&self, clock: u32) -> u64 {
        self.stamps.at(self.position(clock))
    }

    #[inline(always)]
    pub fn sample_before(&self, clock: u32) -> Option<&[u8]> {
        match clock {
            0 => self.previous,
            _ => Some(self.sample(clock - 1)),
        }
    }
}

/// The control lines at every clock of a block, 1 = asserted.
#[derive(Debug, Clone, Copy)]
pub struct Word {
    pub frame: u64,
    pub irdy: u64,
    pub trdy: u64,
    pub stop: u64,
    pub devsel: u64,
    /// No known level on FRAME#, IRDY#, TRDY# or STOP#.
    pub unknown: u64,
    pub reset: u64,
    /// A control line differs between the last two samples before the edge.
    pub suspect: u64,
}

/// Clocks `from..to` of a word.
#[inline(always)]
pub fn range(from: u32, to: u32) -> u64 {
    below(to) & !below(from)
}

#[inline(always)]
pub fn below(clock: u32) -> u64 {
    if clock >= 64 { !0 } else { (1 << clock) - 1 }
}

/// First clock of `map` at or after `from`, or `end`.
#[inline(always)]
pub fn first(map: u64, from: u32, end: u32) -> u32 {
    (map & !below(from)).trailing_zeros().min(end)
}
