//! Stretches in which something happens all the time: their clocks are taken out of the samples and put side by side, so
//! that many can be decoded in one go, however many samples a clock has.

use crate::samples::BLOCK;
use crate::samples::bits::{Backend, Bit, Look, SampleMask, TakeClocks};
use crate::samples::block::{Span, rises};
use crate::samples::taken::Taken;

/// Whether the clocks are worth taking out: where few samples can be gone over at once, they are.
pub struct Pace {
    /// A running mean of the samples that went by at once, times [`Pace::WEIGHT`].
    mean: usize,
}

impl Pace {
    const WEIGHT: usize = 8;
    /// Fewer than one and a half blocks.
    const DENSE: usize = 3 * BLOCK / 2;
    const MOST: usize = 4 * BLOCK;

    /// The bus rests.
    pub fn resting() -> Self {
        Pace { mean: Self::MOST * Self::WEIGHT }
    }

    /// Something happens all the time.
    pub fn dense() -> Self {
        Pace { mean: BLOCK * Self::WEIGHT }
    }

    #[inline(always)]
    pub fn went(&mut self, samples: usize) {
        self.mean = self.mean - self.mean / Self::WEIGHT + samples.min(Self::MOST);
    }

    #[inline(always)]
    pub fn is_dense(&self) -> bool {
        self.mean < Self::DENSE * Self::WEIGHT
    }
}

/// Takes clocks out of samples.
#[derive(Default)]
pub struct Dense {
    pub taken: Taken,
    /// Does all of that by few instructions, where the processor has them.
    take_clocks: Option<TakeClocks>,
}

impl Dense {
    /// Begins behind a clock with this sample.
    pub fn begin<B: Backend>(&mut self, unit: usize, before: &[u8]) {
        if self.taken.unit() != unit {
            self.take_clocks = B::take_clocks(unit);
        }
        self.taken.begin(unit, before);
    }

    /// Takes the clocks out of so many blocks of samples from number `start` on, or out of fewer of them if these are enough: how
    /// many these were.
    ///
    /// # Safety
    /// As for [`Backend`], for these samples and, where there is CLK, one more.
    #[inline(always)]
    pub unsafe fn take<B: Backend>(&mut self, span: &Span, start: usize, blocks: usize, watch: &Watch) -> usize {
        let unit = B::unit(self.taken.unit());
        let from = span.sample(start).as_ptr();
        let stamp = span.stamp(start);
        if let Some(take) = self.take_clocks.filter(|_| start > 0 && watch.clk.is_some()) {
            // Safety: a sample is before these, and as the caller says.
            return unsafe { take(from, stamp, blocks, &watch.look, &mut self.taken) };
        }
        // Safety: as the caller says, here and below.
        let (clocks, changed) = unsafe { watch.scan::<B>(span, start) };
        let (samples, stamps) = self.taken.room(unit);
        // Safety: there is room for a block, and what is copied with it.
        unsafe { copy_all(from, unit, clocks, samples.as_mut_ptr(), stamps.as_mut_ptr(), stamp) };
        let suspect = if watch.clk.is_some() { unsafe { B::compress(changed, clocks) } } else { 0 };
        self.taken.add(clocks.count_ones(), suspect, changed != 0);
        1
    }

    /// The clocks as samples of their own, as in state mode, and how many they are: the first one was decoded.
    #[inline(always)]
    pub fn waiting(&self) -> (Span<'_>, usize) {
        let taken = &self.taken;
        let span = Span::new(taken.samples(), taken.unit(), None).stamped(taken.stamps(), 0);
        (span.without(taken.missing()), taken.count())
    }
}

/// Clocks are copied so many at a time, whether they are there or not: how many there are cannot be foreseen.
const AT_ONCE: usize = 4;

/// Copies those of 64 samples that are `clocks` side by side, and their stamps.
///
/// # Safety
/// 64 samples of `unit` bytes are there, and room for a few more of them.
#[inline(always)]
unsafe fn copy_all(from: *const u8, unit: usize, mut clocks: u64, to: *mut u8, stamps: *mut u64, stamp: u64) {
    let mut at = 0;
    while clocks != 0 {
        for _ in 0..AT_ONCE {
            let sample = clocks.trailing_zeros() as usize % BLOCK;
            // Safety: as the caller says.
            unsafe {
                copy(from.add(sample * unit), to.add(at * unit), unit);
                *stamps.add(at) = stamp + sample as u64;
            }
            clocks &= clocks.wrapping_sub(1);
            at += 1;
        }
    }
}

/// A sample of `unit` bytes.
///
/// # Safety
/// Both must be valid for so many bytes.
#[inline(always)]
unsafe fn copy(from: *const u8, to: *mut u8, unit: usize) {
    // Safety: as the caller says; what overlaps in one sample is the same.
    unsafe {
        match unit {
            1 => to.write(from.read()),
            2 => to.cast::<u16>().write_unaligned(from.cast::<u16>().read_unaligned()),
            3 => {
                to.cast::<u16>().write_unaligned(from.cast::<u16>().read_unaligned());
                to.add(2).write(from.add(2).read());
            }
            4..=7 => {
                to.cast::<u32>().write_unaligned(from.cast::<u32>().read_unaligned());
                let last = unit - 4;
                to.add(last).cast::<u32>().write_unaligned(from.add(last).cast::<u32>().read_unaligned());
            }
            8 => to.cast::<u64>().write_unaligned(from.cast::<u64>().read_unaligned()),
            _ => std::ptr::copy_nonoverlapping(from, to, unit),
        }
    }
}

/// CLK, and lines that are watched for changes.
pub struct Watch {
    clk: Option<Bit>,
    watched: Vec<(usize, u8)>,
    look: Look,
}

impl Watch {
    /// Of the bits of some bytes of samples of `unit` bytes.
    pub fn new(unit: usize, clk: Option<Bit>, watched: Vec<(usize, u8)>) -> Self {
        let mask = |bits: &[(usize, u8)]| {
            let mut sample = [0; 8];
            for &(byte, mask) in bits.iter().filter(|(byte, _)| *byte < 8) {
                sample[byte] |= mask;
            }
            SampleMask::repeated(&sample[..unit.min(8)]).first()
        };
        let ticks = clk.map_or(0, |clk| mask(&[(clk.byte, clk.mask)]));
        let flip = clk.map_or(0, |clk| ticks & clk.flip);
        let look = Look { clk: ticks, flip, watched: mask(&watched) };
        Watch { clk, watched, look }
    }

    /// The same, as bits of samples.
    pub fn look(&self) -> &Look {
        &self.look
    }

    /// Whether a sample differs from the one before in what is watched.
    pub fn differs(&self, before: &[u8], sample: &[u8]) -> bool {
        self.watched.iter().fold(0, |any, &(byte, mask)| any | (before[byte] ^ sample[byte]) & mask) != 0
    }

    /// The clocks among the 64 samples from number `start` on, and before which samples a line that is watched changed.
    ///
    /// # Safety
    /// As for [`Backend`], for these samples.
    #[inline(always)]
    unsafe fn scan<B: Backend>(&self, span: &Span, start: usize) -> (u64, u64) {
        let samples = span.sample(start).as_ptr();
        let before = if start > 0 { Some(span.sample(start - 1)) } else { span.last_sample() };
        let (mut high, mut changed) = (None, 0);
        for &(byte, mask) in &self.watched {
            // Safety: as the caller says, here and below.
            let plane = unsafe { B::plane(samples, span.unit(), byte) };
            if let Some(clk) = self.clk.filter(|clk| clk.byte == byte) {
                high = Some(unsafe { B::top_bits(plane, clk.mask.leading_zeros()) } ^ clk.flip);
            }
            // Nothing is known of what was before the very first sample.
            let first = before.map_or_else(|| span.sample(start)[byte], |sample| sample[byte]);
            changed |= unsafe { B::changes(plane, first, mask) };
        }
        let Some(clk) = self.clk else { return (!0, changed) };
        let high = high.unwrap_or_else(|| unsafe { B::line(samples, span.unit(), clk) });
        (rises(high, clk.get(span.sample(start + BLOCK))), changed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::bits::Portable;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn clocks_wait_as_they_came_however_many_are_kept(
            data in proptest::collection::vec(0u8..4, 65 * BLOCK),
            kept in proptest::collection::vec(0usize..BLOCK, 65),
        ) {
            let watch = Watch::new(1, Some(Bit::new(0, false)), vec![(0, 2)]);
            let span = Span::new(&data, 1, Some(Bit::new(0, false)));
            let mut dense = Dense::default();
            dense.begin::<Portable>(1, &[0]);
            // Sample, stamp, and whether it is suspect.
            let mut expected = vec![(0, 0, false)];
            for (block, &kept) in kept.iter().enumerate().take(64) {
                let start = BLOCK * block;
                // Safety: these samples are there, and one more.
                unsafe { dense.take::<Portable>(&span, start, 1, &watch) };
                let is_clock = |at: &usize| data[*at] & 1 == 0 && data[at + 1] & 1 == 1;
                let suspect = |at: usize| at > 0 && (data[at] ^ data[at - 1]) & 2 != 0;
                expected.extend((start..start + BLOCK).filter(is_clock).map(|at| (data[at], at as u64, suspect(at))));
                if kept % 8 == 0 || dense.taken.is_full() {
                    let from = expected.len() - kept.min(expected.len() - 1);
                    dense.taken.keep_from(from);
                    expected.drain(..from - 1);
                }
                let (waiting, count) = dense.waiting();
                prop_assert_eq!(count, expected.len());
                for (at, &(sample, stamp, suspect)) in expected.iter().enumerate().skip(1) {
                    let found = (waiting.sample(at)[0], waiting.stamp(at), dense.taken.suspect(at) & 1 != 0);
                    prop_assert_eq!(found, (sample, stamp, suspect));
                }
            }
        }
    }
}
