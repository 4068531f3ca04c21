//! CLK itself: its period, and how long it is high and low (PCI 2.3, 4.2.3.1 and 7.6.4.1).

use super::{Rule, Violation};
use crate::capture::Signal;
use crate::samples::bits::Backend;
use crate::samples::block::Span;
use crate::samples::places::Source;
use crate::wire::levels;

/// The shortest times that are allowed, in stamps. A time may be longer than measured by less than a stamp: a sample, or
/// the unit in which a file rounds.
#[derive(Debug, Clone, Copy)]
pub struct ClockLimits {
    pub period: f64,
    pub half: f64,
    /// So much shorter, as a share, is not told: crystals are not exact.
    pub tolerance: f64,
}

impl ClockLimits {
    /// Of a bus of 33 or 66 MHz; a stamp takes `us`.
    pub fn new(mhz: u32, us: f64, tolerance: f64) -> Self {
        let (period_ns, half_ns) = if mhz == 66 { (15.0, 6.0) } else { (30.0, 11.0) };
        let stamp_ns = us * 1e3;
        ClockLimits { period: period_ns / stamp_ns, half: half_ns / stamp_ns, tolerance }
    }

    /// Is a time of so many stamps certainly too short?
    fn is_short(self, stamps: u64, limit: f64) -> bool {
        stamps as f64 + 1.0 <= limit * (1.0 - self.tolerance)
    }
}

/// Edges of CLK, one after the other.
#[derive(Debug, Clone, Copy, Default)]
pub struct ClockWatch {
    level: Option<bool>,
    changed: Option<u64>,
    rose: Option<u64>,
    /// Rises so far.
    rises: u64,
}

impl ClockWatch {
    /// CLK has this level from `stamp` on.
    fn change(&mut self, stamp: u64, high: bool, limits: ClockLimits, found: &mut Vec<Violation>) {
        let mut short = |time: Option<u64>, limit: f64, clk: u64| {
            if let Some(time) = time.map(|before| stamp - before).filter(|&time| limits.is_short(time, limit)) {
                found.push(Violation { rule: Rule::E01, clk, stamp, lines: 0, value: Some(time) });
            }
        };
        short(self.changed, limits.half, self.rises.saturating_sub(1));
        if high {
            short(self.rose, limits.period, self.rises);
            self.rose = Some(stamp);
            self.rises += 1;
        }
        self.changed = Some(stamp);
        self.level = Some(high);
    }

    /// All samples of a span, of which `samples` are new.
    #[inline(always)]
    pub fn watch<B: Backend>(&mut self, span: &Span, samples: usize, limits: ClockLimits, found: &mut Vec<Violation>) {
        let Some(clk) = span.clk() else { return };
        let mut from = 0;
        while from < samples {
            // 64 samples follow everywhere but at the end, where those before are read again.
            let start = from.min(samples.saturating_sub(64));
            // Safety: the span holds 64 samples at least, and a layout's bits lie within the unit.
            let word = unsafe { B::line(span.sample(start).as_ptr(), span.unit(), clk) } >> (from - start);
            let count = (samples - from).min(64 - (from - start)).min(64) as u32;
            let before = self.level.unwrap_or(word & 1 != 0);
            self.level = Some(before);
            let mut toggles = (word ^ (word << 1 | u64::from(before))) & crate::samples::block::below(count);
            while toggles != 0 {
                let at = toggles.trailing_zeros();
                toggles &= toggles - 1;
                // The stamp of a clock is that of the first sample with CLK high, and `stamp` is of the one before it.
                self.change(span.stamp(from + at as usize) - 1, word >> at & 1 != 0, limits, found);
            }
            from += count as usize;
        }
    }

    /// The next changes of a capture that lists these.
    pub fn watch_changes(
        &mut self,
        clk: &Signal,
        source: Source,
        gaps: &[(u64, u64)],
        limits: ClockLimits,
        found: &mut Vec<Violation>,
    ) {
        for (time, level) in levels(clk, &source) {
            let Some(high) = level else {
                *self = ClockWatch { rises: self.rises, ..ClockWatch::default() };
                continue;
            };
            if self.changed.is_some_and(|before| gaps.iter().any(|&(from, to)| before < to && from < time)) {
                *self = ClockWatch { rises: self.rises, ..ClockWatch::default() };
            }
            match self.level {
                None => self.level = Some(high),
                Some(level) if level != high => self.change(time, high, limits, found),
                Some(_) => {}
            }
        }
    }
}
