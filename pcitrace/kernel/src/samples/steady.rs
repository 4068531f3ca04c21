//! Samples in which the bus stays idle, or in the middle of a burst: most of a capture.

use crate::samples::BLOCK;
use crate::samples::bits::{Backend, Bit, SampleMask};
use crate::samples::block::Span;
use crate::samples::look::{BLOCKS, Look, Seen, Wanted};

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

    /// Where the bus is in this state in sample number `from`: so many blocks follow up to `to`, one at least, and that sample as a
    /// number. It alone tells: the others are compared with it.
    ///
    /// # Safety
    /// All samples up to `to` are there.
    #[inline(always)]
    unsafe fn begins(&self, data: &[u8], unit: usize, from: usize, to: usize) -> Option<(usize, u64)> {
        let blocks = to.saturating_sub(from) / BLOCK;
        if blocks == 0 || !self.fits {
            return None;
        }
        // Safety: as the caller says; 64 samples are eight bytes at least.
        let first = u64::from_le(unsafe { data.as_ptr().add(from * unit).cast::<u64>().read_unaligned() });
        ((first ^ self.wanted) & self.told & self.sample == 0).then_some((blocks, first))
    }

    /// Whether the bus is in this state in a sample; eight bytes have to be there.
    #[inline(always)]
    pub fn holds(&self, span: &Span, number: usize) -> bool {
        let Some(&first) = span.sample(number).first_chunk() else { return false };
        self.fits && (u64::from_le_bytes(first) ^ self.wanted) & self.told & self.sample == 0
    }

    /// Goes over the samples from `from` on in which the bus is in this state, short of `to` at the latest, up to the last
    /// one before a change.
    ///
    /// # Safety
    /// As for [`Backend`], for all samples up to `to` and that one itself.
    #[inline(always)]
    pub unsafe fn run<B: Backend>(&self, data: &[u8], unit: usize, from: usize, to: usize) -> SteadyRun {
        let none = SteadyRun { end: from, clocks: 0 };
        // Safety: as the caller says, here and below.
        let Some((blocks, first)) = (unsafe { self.begins(data, unit, from, to) }) else { return none };
        // Safety: as above.
        let start = unsafe { data.as_ptr().add(from * unit) };
        // Safety: as above.
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

impl Steady {
    /// The bits of samples that stay as they are, repeated.
    pub fn watched(&self) -> u64 {
        self.watched.first()
    }

    /// Bits of a sample and what they read.
    pub fn told(&self) -> (u64, u64) {
        (self.told, self.wanted & self.told)
    }

    /// The bits of a sample that stay as they are.
    pub fn still(&self) -> u64 {
        self.watched.first() & self.sample
    }

    /// The same as [`Steady::run`] with a look at what is checked in each sample, for some blocks at most: what is seen of how
    /// many.
    ///
    /// # Safety
    /// As for [`Look`], for all samples up to `to` and that one itself.
    #[inline(always)]
    pub unsafe fn look(
        &self,
        (look, wanted): &(Look, Wanted),
        span: &Span,
        from: usize,
        to: usize,
        seen: &mut [Seen; BLOCKS],
    ) -> usize {
        // Safety: as the caller says.
        unsafe {
            let Some((blocks, first)) = self.begins(span.data(), span.unit(), from, to) else { return 0 };
            look(span.sample(from).as_ptr(), blocks, first, wanted, seen)
        }
    }
}

/// Samples in which the bus stays in one state.
pub struct SteadyRun {
    /// The first sample after them.
    pub end: usize,
    pub clocks: u64,
}
