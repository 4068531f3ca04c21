//! Stretches in which something happens all the time: their clocks are taken out of the samples and put side by side, so
//! that a block has 64 of them, however many samples a clock has.

use crate::bits::{Backend, Compress};
use crate::block::{Span, below, rises};
use crate::clocking::BLOCK;

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

    #[inline(always)]
    pub fn went(&mut self, samples: usize) {
        self.mean = self.mean - self.mean / Self::WEIGHT + samples.min(Self::MOST);
    }

    #[inline(always)]
    pub fn is_dense(&self) -> bool {
        self.mean < Self::DENSE * Self::WEIGHT
    }
}

/// Clocks that wait to be a block.
#[derive(Default)]
pub struct Dense {
    unit: usize,
    /// The sample of each, and its stamp.
    samples: Vec<u8>,
    stamps: Vec<u64>,
    /// A control line changed just before them.
    suspect: u64,
    count: usize,
    /// Copies clocks by one instruction, where the processor has it.
    compress: Option<Compress>,
    /// The sample of the clock before them, if there is one.
    before: Option<Vec<u8>>,
}

impl Dense {
    /// Clocks are copied so many at a time, whether they are there or not: how many there are cannot be foreseen.
    const AT_ONCE: usize = 4;

    /// Begins behind a clock.
    pub fn begin<B: Backend>(&mut self, unit: usize, before: Option<&[u8]>) {
        if self.samples.is_empty() || self.unit != unit {
            // Behind a block there is room for what is copied with its last clocks.
            self.samples = vec![0; 2 * BLOCK * unit];
            self.stamps = vec![0; 2 * BLOCK];
            self.unit = unit;
            self.compress = B::compress_samples(unit);
        }
        self.before = before.map(|sample| sample[..unit].to_vec());
        self.forget();
    }

    fn forget(&mut self) {
        self.count = 0;
        self.suspect = 0;
    }

    pub fn is_full(&self) -> bool {
        self.count == BLOCK
    }

    /// Takes clocks out of the 64 samples from number `start` on: those of `edges`, as many as there is room for; which are
    /// left. `changed` says before which samples a control line changed.
    ///
    /// # Safety
    /// As for [`Backend`], for these samples.
    #[inline(always)]
    pub unsafe fn take<B: Backend>(&mut self, span: &Span, start: usize, edges: u64, changed: u64) -> u64 {
        // Safety: as the caller says.
        let taken = unsafe { B::expand(below((BLOCK - self.count) as u32), edges) };
        self.suspect |= unsafe { B::compress(changed, taken) } << (self.count % BLOCK);
        let unit = B::unit(self.unit);
        let from = span.sample(start).as_ptr();
        let stamp = span.stamp(start);
        if let Some(compress) = self.compress {
            let (samples, stamps) = (&mut self.samples[self.count * unit..], &mut self.stamps[self.count..]);
            // Safety: fewer than 64 clocks are there, so there is room for 64 more.
            unsafe { compress(from, taken, samples.as_mut_ptr(), stamps.as_mut_ptr(), stamp) };
            self.count += taken.count_ones() as usize;
            return edges & !taken;
        }
        let mut rest = taken;
        let mut at = self.count;
        while rest != 0 {
            for _ in 0..Self::AT_ONCE {
                let sample = rest.trailing_zeros() as usize % BLOCK;
                debug_assert!(at < BLOCK + Self::AT_ONCE);
                // Safety: there are fewer than 64 clocks before the first of these, so there is room for all of them; the
                // sample is one of the 64.
                unsafe {
                    copy(from.add(sample * unit), self.samples.as_mut_ptr().add(at * unit), unit);
                    *self.stamps.get_unchecked_mut(at) = stamp + sample as u64;
                }
                rest &= rest.wrapping_sub(1);
                at += 1;
            }
        }
        self.count += taken.count_ones() as usize;
        edges & !taken
    }

    /// The clocks as samples of their own, as in state mode; how many they are, and which of them are suspect.
    #[inline(always)]
    pub fn waiting(&self) -> Option<(Span<'_>, u32, u64)> {
        let span =
            Span::new(&self.samples, self.unit, None).stamped(&self.stamps, 0).behind(self.before.as_deref(), None);
        (self.count > 0).then_some((span, self.count as u32, self.suspect))
    }

    /// They were passed on.
    #[inline(always)]
    pub fn given<B: Backend>(&mut self) {
        let last = &self.samples[(self.count - 1) * self.unit..][..self.unit];
        match &mut self.before {
            // Safety: both are one sample.
            Some(before) => unsafe { copy(last.as_ptr(), before.as_mut_ptr(), B::unit(self.unit)) },
            None => self.before = Some(last.to_vec()),
        }
        self.forget();
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

/// The clocks among the 64 samples from number `start` on, read as CLK is high in those of `high`.
#[inline(always)]
pub fn edges(span: &Span, start: usize, high: u64) -> u64 {
    span.clk().map_or(!0, |clk| rises(high, clk.get(span.sample(start + BLOCK))))
}
