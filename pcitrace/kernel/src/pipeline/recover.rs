//! Clock recovery for asynchronous captures with at least six samples a clock: the edges are smoothed by a phase-locked loop,
//! and every line is read by a majority of three samples about a quarter of a period before the edge.
//!
//! What it is good for, and what not, was measured: `docs/decoding.md`, "Which sample is read".

use crate::pipeline::Decoder;
use crate::samples::BLOCK;
use crate::samples::bits::{Bit, line_of_block};
use crate::samples::block::{below, ones};

/// Fewer samples a clock than this leave no room for a majority.
const MIN_SAMPLES: f64 = 6.0;
/// Rises used to find the period before the loop starts.
const TRAINING: usize = 32;
/// Samples kept behind what was looked at, and so the longest period that can be followed.
const HISTORY: u64 = 1 << 16;
/// Loop gains for phase and period.
const PHASE_GAIN: f64 = 0.1;
const PERIOD_GAIN: f64 = 0.005;
/// Periods without a rise after which the clock counts as stopped.
const COAST: u32 = 4;
/// Clocks that are decoded at a time, at most.
const CLOCKS: usize = 4096;

/// Follows CLK of one bus and gives its decoder one sample a clock.
pub struct Recovery {
    clk: Bit,
    unit: usize,
    /// Samples not yet left behind; the first has number `first`.
    buffer: Vec<u8>,
    first: u64,
    /// The next sample to look at for a rise, and the level before it.
    at: u64,
    high: bool,
    /// Rises not yet used.
    rises: Vec<u64>,
    state: Option<Loop>,
    trained: bool,
    clocks: Clocks,
}

/// Clocks that go to the decoder together.
#[derive(Default)]
struct Clocks {
    samples: Vec<u8>,
    stamps: Vec<u64>,
}

impl Clocks {
    fn push_to(&mut self, decoder: &mut impl Decoder) {
        decoder.push_stamped(&self.samples, &self.stamps);
        self.samples.clear();
        self.stamps.clear();
    }
}

struct Loop {
    period: f64,
    /// Time of the next rise, in samples.
    next: f64,
    missed: u32,
}

/// The nearest whole number, as `round` gives it, which is a call where the processor's own is not compiled for.
#[inline(always)]
fn rounded(time: f64) -> u64 {
    let whole = time as i64;
    (whole + i64::from(time - whole as f64 >= 0.5)).max(0) as u64
}

impl Recovery {
    pub fn new(clk: Bit, unit: usize) -> Self {
        Recovery {
            clk,
            unit,
            buffer: Vec::new(),
            first: 0,
            at: 0,
            high: true,
            rises: Vec::new(),
            state: None,
            trained: false,
            clocks: Clocks::default(),
        }
    }

    pub fn push(&mut self, bytes: &[u8], decoder: &mut impl Decoder) {
        self.buffer.extend_from_slice(bytes);
        self.find_rises();
        self.follow(decoder, false);
        self.forget();
    }

    /// The capture is over; what is wrong if no clock could be followed.
    pub fn finish(&mut self, decoder: &mut impl Decoder) -> Result<(), String> {
        self.follow(decoder, true);
        if self.trained {
            return Ok(());
        }
        Err(format!(
            "the clock cannot be recovered: it needs {TRAINING} rises of CLK, {MIN_SAMPLES} to {HISTORY} samples apart; decode \
             without clock recovery"
        ))
    }

    fn end(&self) -> u64 {
        self.first + (self.buffer.len() / self.unit) as u64
    }

    /// Rises of the debounced clock: the level is the majority of three samples.
    fn find_rises(&mut self) {
        while self.at + 2 < self.end() {
            let samples = &self.buffer[(self.at - self.first) as usize * self.unit..];
            let ready = (samples.len() / self.unit - 2).min(BLOCK);
            let now = line_of_block(samples, self.unit, self.clk);
            let later = line_of_block(&samples[2 * self.unit..], self.unit, self.clk);
            // Two later, and between the two.
            let next = now >> 1 | later >> 62 << 63;
            let high = now & next | next & later | now & later;
            let rises = high & !(high << 1 | u64::from(self.high)) & below(ready as u32);
            self.rises.extend(ones(rises).map(|sample| self.at + u64::from(sample) + 1));
            self.high = high >> (ready - 1) & 1 != 0;
            self.at += ready as u64;
        }
    }

    fn follow(&mut self, decoder: &mut impl Decoder, to_the_end: bool) {
        let mut used = 0;
        while let Some(state) = self.state.take().or_else(|| self.train(&mut used)) {
            self.state = self.follow_loop(state, &mut used, decoder, to_the_end);
            if self.state.is_some() {
                break;
            }
            self.clocks.push_to(decoder);
            decoder.gap();
        }
        self.rises.drain(..used);
        self.clocks.push_to(decoder);
    }

    /// The loop as the next rises begin it, if there are enough of them.
    fn train(&mut self, used: &mut usize) -> Option<Loop> {
        loop {
            let waiting = self.rises.get(*used..*used + TRAINING)?;
            let mut periods: Vec<u64> = waiting.windows(2).map(|pair| pair[1] - pair[0]).collect();
            periods.sort_unstable();
            let median = periods[periods.len() / 2] as f64;
            if !(MIN_SAMPLES..HISTORY as f64).contains(&median) {
                *used += 1;
                continue;
            }
            // The mean of the periods that are about the median: lost and false rises do not count.
            let good: Vec<f64> =
                periods.iter().map(|&p| p as f64).filter(|p| (p - median).abs() < 0.3 * median).collect();
            let period = good.iter().sum::<f64>() / good.len() as f64;
            self.trained = true;
            return Some(Loop { period, next: waiting[0] as f64, missed: 0 });
        }
    }

    /// Follows the clock as far as its rises are known: the loop then, or None where the clock stopped.
    ///
    /// Each clock waits for the loop's state after the one before, which has to stay in registers.
    fn follow_loop(
        &mut self,
        mut state: Loop,
        used: &mut usize,
        decoder: &mut impl Decoder,
        to_the_end: bool,
    ) -> Option<Loop> {
        let known = self.at as f64;
        loop {
            // All rises up to half a period after the expected one have to be known.
            let horizon = state.next + state.period / 2.0;
            if horizon >= known && !to_the_end || state.next + 2.0 >= known {
                return Some(state);
            }
            let from = state.next - state.period / 2.0;
            while *used < self.rises.len() && (self.rises[*used] as f64) < from {
                *used += 1;
            }
            let candidates = self.rises[*used..].iter().take_while(|&&rise| (rise as f64) < horizon);
            let nearest = candidates.map(|&rise| rise as f64 - state.next).min_by(|a, b| a.abs().total_cmp(&b.abs()));
            match nearest {
                Some(error) => {
                    state.next += PHASE_GAIN * error;
                    state.period += PERIOD_GAIN * error;
                    state.missed = 0;
                }
                None => state.missed += 1,
            }
            if state.missed > COAST {
                return None;
            }
            let (edge, period) = (state.next, state.period);
            state.next += period;
            let middle = rounded(edge - period / 4.0);
            if middle <= self.first {
                continue;
            }
            let at = (middle - self.first) as usize * self.unit;
            let three = &self.buffer[at - self.unit..at + 2 * self.unit];
            let (before, rest) = three.split_at(self.unit);
            let (middle, after) = rest.split_at(self.unit);
            let votes = before.iter().zip(middle).zip(after).map(|((&a, &b), &c)| a & b | b & c | a & c);
            self.clocks.samples.extend(votes);
            self.clocks.stamps.push(rounded(edge));
            if self.clocks.stamps.len() >= CLOCKS {
                self.clocks.push_to(decoder);
            }
        }
    }

    /// Drops the samples that no later clock can need.
    fn forget(&mut self) {
        // A rise that is alone for longer than a period can be is the first of none.
        if self.state.is_none() {
            let alone = |pair: &[u64]| pair[1] - pair[0] > HISTORY;
            let mut stopped = self.rises.windows(2).rposition(alone).map_or(0, |last| last + 1);
            if self.rises.last().is_some_and(|&last| self.at - last > HISTORY) {
                stopped = self.rises.len();
            }
            self.rises.drain(..stopped);
        }
        let next = self.state.as_ref().map_or(self.at, |state| state.next as u64);
        let needed = self.rises.first().map_or(next, |&rise| rise.min(next)).min(self.at);
        let drop = needed.saturating_sub(2 * HISTORY).saturating_sub(self.first);
        self.buffer.drain(..drop as usize * self.unit);
        self.first += drop;
    }
}
