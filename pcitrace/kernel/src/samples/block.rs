//! Up to 64 clocks, of which any line can be read as a bitmap, and the way back to the samples they came from.

use crate::samples::bits::{Backend, Bit};
use crate::samples::places::{Gather, Parity};
use std::marker::PhantomData;

/// Samples that are decoded in one go.
pub struct Span<'a> {
    data: &'a [u8],
    unit: usize,
    clk: Option<Bit>,
    /// Of every sample, or empty where they count from `first_stamp`.
    stamps: &'a [u64],
    first_stamp: u64,
    /// How many clocks that are not there come before each, or empty where all are there.
    missing: &'a [u64],
    /// The samples of the last clock and the last sample before `data`.
    last_clock: Option<&'a [u8]>,
    last_sample: Option<&'a [u8]>,
}

impl<'a> Span<'a> {
    /// Samples of `unit` bytes, of which `clk` is CLK: none in state mode, where every sample is a clock.
    pub fn new(data: &'a [u8], unit: usize, clk: Option<Bit>) -> Self {
        assert!(clk.is_none_or(|clk| clk.byte < unit), "CLK lies within a sample");
        Span { data, unit, clk, stamps: &[], first_stamp: 0, missing: &[], last_clock: None, last_sample: None }
    }

    /// With a stamp for each sample, or for the first one where there are none.
    pub fn stamped(self, stamps: &'a [u64], first_stamp: u64) -> Self {
        Span { stamps, first_stamp, ..self }
    }

    /// So many clocks come before each that are not there: of every sample, and what follows the last one.
    pub fn without(self, missing: &'a [u64]) -> Self {
        Span { missing, ..self }
    }

    /// Behind these samples: that of the last clock and the very last.
    pub fn behind(self, last_clock: Option<&'a [u8]>, last_sample: Option<&'a [u8]>) -> Self {
        Span { last_clock, last_sample, ..self }
    }

    pub fn data(&self) -> &'a [u8] {
        self.data
    }

    #[inline(always)]
    pub fn unit(&self) -> usize {
        self.unit
    }

    #[inline(always)]
    pub fn clk(&self) -> Option<Bit> {
        self.clk
    }

    pub fn last_clock(&self) -> Option<&'a [u8]> {
        self.last_clock
    }

    pub fn last_sample(&self) -> Option<&'a [u8]> {
        self.last_sample
    }

    /// How many of the first `samples` have a stamp below this one.
    pub fn samples_before(&self, stamp: u64, samples: usize) -> usize {
        match self.stamps {
            [] => (stamp - self.first_stamp).min(samples as u64) as usize,
            listed => listed.partition_point(|&listed| listed < stamp).min(samples),
        }
    }

    /// From sample number `number` on.
    #[inline(always)]
    pub fn sample(&self, number: usize) -> &'a [u8] {
        &self.data[number * self.unit..]
    }

    /// Stamp of the clock that is read at this sample.
    #[inline(always)]
    pub fn stamp(&self, number: usize) -> u64 {
        match self.stamps {
            [] => self.first_stamp + number as u64,
            listed => listed[number],
        }
    }

    /// The stamps of all samples, where they are listed.
    pub fn stamps(&self) -> &'a [u64] {
        self.stamps
    }

    /// How many clocks that are not there come before each sample, and the end; empty where all are there.
    #[inline(always)]
    pub fn all_missing(&self) -> &'a [u64] {
        self.missing
    }

    /// How many clocks are not there from number `from` on before number `to`, those just before `to` too.
    #[inline(always)]
    pub fn missing(&self, from: usize, to: usize) -> u64 {
        match self.missing {
            [] => 0,
            missing => missing[to] - missing[from],
        }
    }

    /// The first number behind `from`, up to `to`, before which clocks are missing; or `to`.
    pub fn next_missing(&self, from: usize, to: usize) -> usize {
        match self.missing {
            [] => to,
            missing => to.min(from + missing[from..to].partition_point(|&before| before == missing[from])),
        }
    }

    /// The last sample before number `end` that is a clock.
    #[inline(always)]
    pub fn clock_before<B: Backend>(&self, end: usize) -> Option<usize> {
        self.clock_between::<B>(0, end)
    }

    /// The same, where those before number `from` need not be looked at.
    #[inline(always)]
    pub fn clock_between<B: Backend>(&self, from: usize, end: usize) -> Option<usize> {
        let Some(clk) = self.clk else { return end.checked_sub(1) };
        if let Some(start) = end.checked_sub(64) {
            // Safety: these 64 samples are there, and a layout's bits lie within the unit.
            let high = unsafe { B::line(self.sample(start).as_ptr(), self.unit, clk) };
            let edges = rises(high, clk.get(self.sample(end)));
            if edges != 0 {
                return Some(end - 1 - edges.leading_zeros() as usize);
            }
        }
        let high = |number: usize| clk.get(self.sample(number));
        (from..end).rev().find(|&number| !high(number) && high(number + 1))
    }
}

/// Samples before a rise of CLK, which is high in the samples of `high`; in the one after them it is `after`.
#[inline(always)]
pub fn rises(high: u64, after: bool) -> u64 {
    !high & (high >> 1 | u64::from(after) << 63)
}

/// The clocks of one 64-sample block and the way back to the samples they came from.
#[derive(Clone, Copy)]
pub struct Block<'a, B> {
    span: &'a Span<'a>,
    /// Number of the block's first sample; 64 samples at least follow.
    start: usize,
    /// Samples that are clocks.
    edges: u64,
    backend: PhantomData<B>,
}

impl<'a, B: Backend> Block<'a, B> {
    /// The clocks `edges` of the 64 samples from number `start` on.
    ///
    /// # Safety
    /// As for [`Backend`], for these samples.
    #[inline(always)]
    pub unsafe fn new(span: &'a Span<'a>, start: usize, edges: u64) -> Self {
        Block { span, start, edges, backend: PhantomData }
    }

    /// Those of its clocks.
    #[inline(always)]
    pub fn only(&self, clocks: u64) -> Self {
        // Safety: the backend fits the processor.
        Block { edges: unsafe { B::expand(clocks, self.edges) }, ..*self }
    }

    /// One byte of each sample.
    #[inline(always)]
    pub fn plane(&self, byte: usize) -> B::Plane {
        // Safety: 64 samples follow, and a layout's bytes lie within the unit.
        unsafe { B::plane(self.start_ptr(), self.span.unit, byte) }
    }

    /// The line that is so many bits from the top of the bytes of a plane, at every clock.
    #[inline(always)]
    pub fn line_of(&self, plane: B::Plane, left: u32, flip: u64) -> u64 {
        // Safety: the backend fits the processor.
        unsafe { B::compress(B::top_bits(plane, left) ^ flip, self.edges) }
    }

    #[inline(always)]
    pub fn clocks(&self) -> u32 {
        self.edges.count_ones()
    }

    fn start_ptr(&self) -> *const u8 {
        self.span.sample(self.start).as_ptr()
    }

    /// The line at every clock of the block.
    #[inline(always)]
    pub fn line(&self, bit: Bit) -> u64 {
        // Safety: 64 samples follow, and a layout's bits lie within the unit.
        unsafe { B::compress(B::line(self.start_ptr(), self.span.unit, bit), self.edges) }
    }

    #[inline(always)]
    pub fn maybe(&self, bit: Option<Bit>) -> u64 {
        match self.data(bit) {
            Some(bit) => self.line(bit),
            None => 0,
        }
    }

    #[inline(always)]
    pub fn data<T>(&self, of: Option<T>) -> Option<T> {
        if_data::<B, T>(of)
    }

    /// The clocks among `clocks` in which a parity is odd.
    #[inline(always)]
    pub fn odd(&self, parity: &Parity, clocks: u64) -> u64 {
        // Safety: the backend fits the processor.
        let samples = unsafe { B::expand(clocks, self.edges) };
        let odd = parity.odd_among(self.span.sample(self.start), B::unit(self.span.unit), samples);
        // Safety: as above.
        unsafe { B::compress(odd, self.edges) }
    }

    /// Number of the clock's sample in the span.
    #[inline(always)]
    fn number(&self, clock: u32) -> usize {
        // Safety: the backend fits the processor.
        self.start + unsafe { B::expand(1 << clock, self.edges) }.trailing_zeros() as usize
    }

    #[inline(always)]
    pub fn sample(&self, clock: u32) -> &[u8] {
        &self.span.data[self.number(clock) * B::unit(self.span.unit)..]
    }

    #[inline(always)]
    pub fn stamp(&self, clock: u32) -> u64 {
        self.span.stamp(self.number(clock))
    }

    /// The stamps of all clocks.
    #[inline(always)]
    pub fn stamps(&self, stamps: &mut [u64; 64]) {
        if self.span.stamps.is_empty() {
            // Safety: the backend fits the processor.
            return unsafe { B::numbers(self.edges, self.span.stamp(self.start), stamps) };
        }
        for (stamp, sample) in stamps.iter_mut().zip(ones(self.edges)) {
            *stamp = self.span.stamp(self.start + sample as usize);
        }
    }

    /// Some bits of the sample of each clock.
    #[inline(always)]
    pub fn gather(&self, bits: &Gather, gathered: &mut [u64; 64]) {
        bits.among::<B>(self.span.sample(self.start), B::unit(self.span.unit), self.edges, gathered);
    }

    #[inline(always)]
    pub fn sample_before(&self, clock: u32) -> Option<&[u8]> {
        if clock > 0 {
            return Some(self.sample(clock - 1));
        }
        match self.span.clock_before::<B>(self.number(0)) {
            Some(number) => Some(self.span.sample(number)),
            None => self.span.last_clock,
        }
    }
}

/// What is there only if lines beyond the control lines were captured.
#[inline(always)]
pub fn if_data<B: Backend, T>(of: Option<T>) -> Option<T> {
    of.filter(|_| B::DATA)
}

/// Positions of the ones, lowest first.
#[inline(always)]
pub fn ones(mut map: u64) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let lowest = map.trailing_zeros();
        map &= map.wrapping_sub(1);
        (lowest < 64).then_some(lowest)
    })
}

/// Clocks `from..to` of a word: some, within 64.
#[inline(always)]
pub fn range(from: u32, to: u32) -> u64 {
    !0 << from & !0 >> (64 - to)
}

#[inline(always)]
pub fn below(clock: u32) -> u64 {
    if clock >= 64 { !0 } else { (1 << clock) - 1 }
}

/// First clock of `map` at or after `from`, or `end`; neither is beyond 64.
#[inline(always)]
pub fn first(map: u64, from: u32, end: u32) -> u32 {
    // For 64 the shift does nothing, and the sum is 64 at least all the same.
    ((map >> (from % 64)).trailing_zeros() + from).min(end)
}
