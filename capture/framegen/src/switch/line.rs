//! One direction of a port: frames one after the other, at its rate, unless a PAUSE frame holds them.

use super::parcel::{GAP, PREAMBLE, QUANTUM_BITS};
use super::{Ps, duration};
use std::collections::VecDeque;

#[derive(Clone, Debug)]
pub struct Line<T> {
    pub waiting: VecDeque<T>,
    rate_mbit_s: f64,
    free_at: Ps,
    paused_until: Ps,
}

impl<T> Line<T> {
    pub fn new(rate_mbit_s: f64) -> Line<T> {
        Line { waiting: VecDeque::new(), rate_mbit_s, free_at: Ps::MIN, paused_until: Ps::MIN }
    }

    /// When the next frame may begin.
    pub fn opens_at(&self) -> Ps {
        self.free_at.max(self.paused_until)
    }

    /// From a frame's first bit, preamble included, to its last.
    pub fn length(&self, frame_bytes: u64) -> Ps {
        duration(PREAMBLE + frame_bytes, self.rate_mbit_s)
    }

    /// A frame begins; the time of its last bit.
    pub fn begin(&mut self, first: Ps, frame_bytes: u64) -> Ps {
        self.free_at = first + duration(PREAMBLE + frame_bytes + GAP, self.rate_mbit_s);
        first + self.length(frame_bytes)
    }

    /// A frame that has begun is not held; 0 quanta let the next one go.
    pub fn pause(&mut self, now: Ps, quanta: u16) {
        self.paused_until = now + self.quanta(quanta);
    }

    pub fn quanta(&self, quanta: u16) -> Ps {
        (f64::from(quanta) * QUANTUM_BITS as f64 * 1e6 / self.rate_mbit_s).round() as Ps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_follow_with_preamble_and_gap() {
        let mut line: Line<()> = Line::new(1000.0);
        assert_eq!(line.begin(0, 64), 72 * 8_000);
        assert_eq!(line.opens_at(), 84 * 8_000);
        line.pause(1_000_000, 0xFFFF);
        // 33.5 ms at 1 Gbit/s.
        assert_eq!(line.opens_at(), 1_000_000 + 65_535 * 512 * 1_000);
        line.pause(2_000_000, 0);
        assert_eq!(line.opens_at(), 2_000_000);
    }
}
