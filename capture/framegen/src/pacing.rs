//! When the frames of a stream leave: the schedule, and what happens to frames that are late.

use crate::random::Random;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Arrivals {
    /// One frame every `spacing`.
    Regular,
    /// Exponentially distributed intervals with mean `spacing`.
    Poisson,
    /// Groups of `burst` frames back to back, one group every `spacing`.
    Burst,
    /// At the times of a file.
    File,
}

/// What a late frame does to those after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Late {
    /// The schedule moves with it: no interval is shorter than planned by more than 0.5 µs.
    Slip,
    /// The schedule stands: frames follow at once until it is caught up.
    CatchUp,
    /// The schedule stands: its slots that have passed are left empty.
    Skip,
}

/// A frame that leaves within this of its deadline is on time: the tens of nanoseconds of a busy-wait must not add up.
const LATE_NS: f64 = 500.0;

/// Intervals between planned departures, in ns, from the first frame on.
#[derive(Clone, Debug)]
pub enum Schedule {
    Regular { spacing_ns: f64 },
    Poisson { spacing_ns: f64, random: Random },
    Burst { spacing_ns: f64, burst: u32, position: u32 },
    File { times_ns: Arc<[f64]>, position: usize },
}

impl Schedule {
    pub fn new(arrivals: Arrivals, spacing_ns: f64, seed: u64, burst: u32, times_ns: Arc<[f64]>) -> Schedule {
        match arrivals {
            Arrivals::Regular => Schedule::Regular { spacing_ns },
            Arrivals::Poisson => Schedule::Poisson { spacing_ns, random: Random::new(seed) },
            Arrivals::Burst => Schedule::Burst { spacing_ns, burst, position: 0 },
            Arrivals::File => Schedule::File { times_ns, position: 0 },
        }
    }

    /// From the start to the first frame: 0 unless a file says otherwise.
    pub fn first(&self) -> f64 {
        match self {
            Schedule::File { times_ns, .. } => times_ns.first().copied().unwrap_or(0.0),
            _ => 0.0,
        }
    }

    /// From this frame to the next.
    pub fn interval(&mut self) -> f64 {
        match self {
            Schedule::Regular { spacing_ns } => *spacing_ns,
            Schedule::Poisson { spacing_ns, random } => *spacing_ns * random.exponential(),
            Schedule::Burst { spacing_ns, burst, position } => {
                *position += 1;
                if *position % *burst == 0 { *spacing_ns } else { 0.0 }
            }
            Schedule::File { times_ns, position } => {
                let here = times_ns.get(*position).copied().unwrap_or(0.0);
                *position += 1;
                times_ns.get(*position).copied().unwrap_or(here) - here
            }
        }
    }
}

/// Deadlines of frame after frame. Fractions of a nanosecond add up exactly enough: f64 keeps 2^-20 ns over a day.
#[derive(Clone, Debug)]
pub struct Pacer {
    schedule: Schedule,
    late: Late,
    start: i64,
    /// Of the next frame, relative to `start`.
    deadline: f64,
    /// Slots left empty so far.
    pub skipped: u32,
}

impl Pacer {
    pub fn new(schedule: Schedule, late: Late, start: i64) -> Pacer {
        let deadline = schedule.first();
        Pacer { schedule, late, start, deadline, skipped: 0 }
    }

    pub fn deadline(&self) -> i64 {
        self.start + self.deadline as i64
    }

    /// The frame due at `deadline` left at `sent`.
    pub fn sent(&mut self, sent: i64) {
        let behind = (sent - self.start) as f64 - self.deadline;
        if self.late == Late::Slip && behind > LATE_NS {
            self.deadline += behind;
        }
        self.deadline += self.schedule.interval();
    }

    /// With [`Late::Skip`]: pass over the slots that another slot has already followed. `left` bounds how many.
    pub fn skip_missed(&mut self, now: i64, left: u32) {
        if self.late != Late::Skip {
            return;
        }
        let elapsed = (now - self.start) as f64;
        for _ in 0..left {
            let mut ahead = self.schedule.clone();
            let next = self.deadline + ahead.interval();
            if next > elapsed {
                break;
            }
            self.schedule = ahead;
            self.deadline = next;
            self.skipped += 1;
        }
    }
}

/// Holds the average rate on the wire below a ceiling, over windows of about a millisecond.
#[derive(Clone, Debug)]
pub struct Ceiling {
    ns_per_byte: f64,
    /// When all bytes so far are through a wire of this rate.
    free_at: f64,
}

impl Ceiling {
    const WINDOW_NS: f64 = 1e6;

    pub fn new(rate_mbit_s: f64) -> Ceiling {
        Ceiling { ns_per_byte: 8e3 / rate_mbit_s, free_at: f64::NEG_INFINITY }
    }

    /// The earliest time at which the next frame may leave.
    pub fn not_before(&self) -> i64 {
        (self.free_at - Self::WINDOW_NS) as i64
    }

    pub fn sent(&mut self, now: i64, wire_bytes: u64) {
        self.free_at = self.free_at.max(now as f64) + wire_bytes as f64 * self.ns_per_byte;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deadlines(schedule: Schedule, late: Late, delays: &[i64]) -> Vec<i64> {
        let mut pacer = Pacer::new(schedule, late, 1000);
        delays
            .iter()
            .map(|delay| {
                let deadline = pacer.deadline();
                pacer.sent(deadline + delay);
                deadline
            })
            .collect()
    }

    #[test]
    fn a_fraction_of_a_nanosecond_is_not_lost() {
        let schedule = Schedule::new(Arrivals::Regular, 12.25, 0, 1, Arc::new([]));
        let times = deadlines(schedule, Late::Slip, &[0; 401]);
        assert_eq!(times[400], 1000 + 4900);
    }

    #[test]
    fn slip_moves_the_schedule_and_catch_up_does_not() {
        let schedule = || Schedule::new(Arrivals::Regular, 100.0, 0, 1, Arc::new([]));
        let delays = [400, 900, 0, 0];
        assert_eq!(deadlines(schedule(), Late::Slip, &delays), [1000, 1100, 2100, 2200]);
        assert_eq!(deadlines(schedule(), Late::CatchUp, &delays), [1000, 1100, 1200, 1300]);
    }

    #[test]
    fn skip_leaves_passed_slots_empty() {
        let mut pacer = Pacer::new(Schedule::new(Arrivals::Regular, 100.0, 0, 1, Arc::new([])), Late::Skip, 0);
        pacer.sent(0);
        pacer.skip_missed(350, 10);
        assert_eq!((pacer.deadline(), pacer.skipped), (300, 2));
        pacer.sent(350);
        pacer.skip_missed(10_000, 3);
        assert_eq!((pacer.deadline(), pacer.skipped), (700, 5));
    }

    #[test]
    fn bursts_and_files() {
        let burst = Schedule::new(Arrivals::Burst, 100.0, 0, 3, Arc::new([]));
        assert_eq!(deadlines(burst, Late::Slip, &[0; 7]), [1000, 1000, 1000, 1100, 1100, 1100, 1200]);
        let file = Schedule::new(Arrivals::File, 0.0, 0, 1, Arc::new([5.0, 7.0, 7.0, 30.0]));
        assert_eq!(deadlines(file, Late::Slip, &[0; 4]), [1005, 1007, 1007, 1030]);
    }

    #[test]
    fn poisson_is_seeded_and_has_its_mean() {
        let times =
            |seed| deadlines(Schedule::new(Arrivals::Poisson, 1e4, seed, 1, Arc::new([])), Late::Slip, &[0; 20_001]);
        assert_eq!(times(3), times(3));
        assert_ne!(times(3), times(4));
        let mean = (times(3)[20_000] - times(3)[0]) as f64 / 20_000.0;
        assert!((mean / 1e4 - 1.0).abs() < 0.03, "{mean}"); // sigma is 0.7 %
    }

    #[test]
    fn ceiling_bounds_the_average() {
        let mut ceiling = Ceiling::new(1000.0); // 8 ns a byte
        let mut now = 0i64;
        let mut bytes = 0u64;
        while now < 10_000_000 {
            now = now.max(ceiling.not_before());
            ceiling.sent(now, 1538);
            bytes += 1538;
        }
        let limit = (now as f64 + Ceiling::WINDOW_NS) / 8.0 + 1538.0;
        assert!(bytes as f64 <= limit && bytes as f64 > 0.9 * limit, "{bytes} {limit}");
    }
}
