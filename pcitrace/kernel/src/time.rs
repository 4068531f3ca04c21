//! Stamps and time.

use crate::error::{Error, Result};
use std::ops::RangeInclusive;

/// Turns stamps into time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TimeBase {
    /// Microseconds per stamp, as a fraction.
    numerator: f64,
    denominator: f64,
}

impl TimeBase {
    /// Slower and faster than anything that takes samples: with rates beyond, times would be infinite, or all the same.
    const RATES_HZ: RangeInclusive<f64> = 1e-6..=1e15;

    pub fn per_second(rate_hz: f64) -> Result<Self> {
        if Self::RATES_HZ.contains(&rate_hz) {
            return Ok(TimeBase { numerator: 1e6, denominator: rate_hz });
        }
        let (least, most) = Self::RATES_HZ.into_inner();
        Err(Error::Decode(format!("a rate of {rate_hz:e} Hz is not possible; give one of {least:e} to {most:e} Hz")))
    }

    pub fn ticks((numerator, denominator): (u64, u64)) -> Self {
        TimeBase { numerator: numerator as f64 * 1e6, denominator: denominator as f64 }
    }

    pub fn us(&self, stamp: u64) -> f64 {
        stamp as f64 * self.numerator / self.denominator
    }

    pub fn stamps(&self, us: f64) -> f64 {
        us * self.denominator / self.numerator
    }
}
