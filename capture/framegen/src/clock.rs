//! The host's clock: nanoseconds of CLOCK_MONOTONIC_RAW, read through the time stamp counter.
//!
//! CLOCK_MONOTONIC_RAW is the clock nobody steers, so its drift against the peer's is a constant of the two crystals.
//! Where the counter is not constant (old CPUs, not x86) the clock is read by the system call instead.

use crate::control::ClockError;
use std::time::Duration;

/// A correspondence of counter and clock older than this is read anew, which takes well below a microsecond.
const ANCHOR_NS: i64 = 5_000_000;
const CALIBRATION: Duration = Duration::from_millis(50);
/// Two halves of the calibration may differ by this much before the counter is distrusted.
const CALIBRATION_TOLERANCE: f64 = 20e-6;

fn read(id: libc::clockid_t) -> i64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid timespec. The two clocks used exist in every supported kernel, so it cannot fail.
    unsafe { libc::clock_gettime(id, &mut time) };
    #[allow(clippy::useless_conversion)] // 32-bit hosts
    let (seconds, nanoseconds) = (i64::from(time.tv_sec), i64::from(time.tv_nsec));
    seconds * 1_000_000_000 + nanoseconds
}

fn raw_ns() -> i64 {
    read(libc::CLOCK_MONOTONIC_RAW)
}

/// Wall-clock time, to date a run.
pub fn unix_ns() -> i64 {
    read(libc::CLOCK_REALTIME)
}

#[cfg(any(target_arch = "x86_64", target_arch = "x86"))]
fn counter() -> u64 {
    #[cfg(target_arch = "x86")]
    use core::arch::x86::_rdtsc;
    #[cfg(target_arch = "x86_64")]
    use core::arch::x86_64::_rdtsc;
    // SAFETY: used only where /proc/cpuinfo names the counter's flags, so the instruction exists.
    unsafe { _rdtsc() }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "x86")))]
fn counter() -> u64 {
    raw_ns() as u64
}

fn counter_is_constant() -> bool {
    const CLOCKSOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    is_constant(&read("/proc/cpuinfo"), read(CLOCKSOURCE).trim())
}

/// What the CPU says of its counter, unless the kernel does not trust it: then it has fallen back to one of these.
fn is_constant(cpuinfo: &str, clocksource: &str) -> bool {
    if ["hpet", "acpi_pm", "pit", "jiffies", "refined-jiffies"].contains(&clocksource) {
        return false;
    }
    cpuinfo
        .lines()
        .find(|line| line.starts_with("flags"))
        .is_some_and(|flags| ["constant_tsc", "nonstop_tsc"].iter().all(|f| flags.split(' ').any(|g| g == *f)))
}

#[derive(Clone, Copy, Debug)]
struct Pair {
    counter: u64,
    ns: i64,
}

/// Counter and clock at one moment: the tightest of a few readings.
fn pair() -> Pair {
    let mut best = (u64::MAX, Pair { counter: 0, ns: 0 });
    for _ in 0..4 {
        let before = counter();
        let ns = raw_ns();
        let width = counter().wrapping_sub(before);
        if width < best.0 {
            best = (width, Pair { counter: before.wrapping_add(width / 2), ns });
        }
    }
    best.1
}

#[derive(Clone, Debug)]
pub struct Clock {
    /// None: no usable counter.
    ns_per_tick: Option<f64>,
    first: Pair,
    anchor: Pair,
    error: ClockError,
}

impl Clock {
    /// Calibrate the counter; `error` is a synthetic offset and drift, for tests.
    pub fn calibrate(error: ClockError) -> Clock {
        let first = pair();
        let mut clock = Clock { ns_per_tick: None, first, anchor: first, error };
        if counter_is_constant() {
            std::thread::sleep(CALIBRATION / 2);
            let middle = pair();
            std::thread::sleep(CALIBRATION / 2);
            clock.anchor = pair();
            let (early, late) = (slope(first, middle), slope(middle, clock.anchor));
            if (early / late - 1.0).abs() < CALIBRATION_TOLERANCE {
                clock.ns_per_tick = Some(slope(first, clock.anchor));
            }
        }
        clock
    }

    /// "tsc", or "clock_gettime" where the counter cannot be used.
    pub fn source(&self) -> &'static str {
        if self.ns_per_tick.is_some() { "tsc" } else { "clock_gettime" }
    }

    /// Now, in ns. Reads the kernel's clock anew every few milliseconds.
    pub fn now(&mut self) -> i64 {
        let Some(ns_per_tick) = self.ns_per_tick else {
            return self.distort(raw_ns());
        };
        let since = counter().wrapping_sub(self.anchor.counter) as i64 as f64 * ns_per_tick;
        if went_back(since) {
            // A counter that runs backwards is none: from now on the kernel is asked.
            self.ns_per_tick = None;
            return self.distort(raw_ns());
        }
        if since as i64 <= ANCHOR_NS {
            return self.distort(self.anchor.ns + since as i64);
        }
        // The longer the baseline, the better the rate.
        self.anchor = pair();
        self.ns_per_tick = Some(slope(self.first, self.anchor));
        self.distort(self.anchor.ns)
    }

    /// Spin until `deadline`; the time after it at which this returned. False from `go_on` ends it early.
    pub fn wait_until(&mut self, deadline: i64, go_on: impl Fn() -> bool) -> i64 {
        loop {
            let now = self.now();
            if now >= deadline || !go_on() {
                return now;
            }
            std::hint::spin_loop();
        }
    }

    /// The time of a kernel timestamp (CLOCK_REALTIME) taken a moment ago, through both clocks as they stand now.
    pub fn of_kernel(&mut self, conversion: Realtime, realtime_ns: i64) -> i64 {
        self.distort(realtime_ns + conversion.raw_minus_realtime)
    }

    fn distort(&self, raw: i64) -> i64 {
        if self.error == ClockError::default() {
            return raw;
        }
        raw + self.error.offset_ns + (raw as f64 * self.error.drift_ppm * 1e-6) as i64
    }
}

/// Counters of two CPUs may be apart by less than a microsecond; beyond that one of them is wrong.
fn went_back(since_ns: f64) -> bool {
    since_ns < -1_000.0
}

fn slope(from: Pair, to: Pair) -> f64 {
    (to.ns - from.ns) as f64 / to.counter.wrapping_sub(from.counter) as f64
}

/// CLOCK_MONOTONIC_RAW minus CLOCK_REALTIME at one moment; the latter is steered, so read it when it is needed.
#[derive(Clone, Copy, Debug)]
pub struct Realtime {
    raw_minus_realtime: i64,
}

impl Realtime {
    pub fn read() -> Realtime {
        let mut best = (i64::MAX, 0);
        for _ in 0..3 {
            let before = raw_ns();
            let realtime = unix_ns();
            let width = raw_ns() - before;
            if width < best.0 {
                best = (width, before + width / 2 - realtime);
            }
        }
        Realtime { raw_minus_realtime: best.1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn follows_the_kernels_clock_across_anchors() {
        let mut clock = Clock::calibrate(ClockError::default());
        for _ in 0..20 {
            std::thread::sleep(Duration::from_millis(1));
            let before = raw_ns();
            let now = clock.now();
            let after = raw_ns();
            // Wide: a descheduled test lengthens the bracket, never narrows it. 1 µs for the extrapolation.
            assert!(now >= before - 1_000 && now <= after + 1_000, "{before} {now} {after}");
        }
    }

    #[test]
    fn the_kernels_own_choice_is_asked() {
        let good = "processor: 0\nflags : fpu constant_tsc nonstop_tsc\n";
        for (cpuinfo, source, constant) in [
            (good, "tsc", true),
            (good, "kvm-clock", true),
            (good, "", true),
            (good, "hpet", false),
            ("", "tsc", false),
        ] {
            assert_eq!(is_constant(cpuinfo, source), constant, "{source}");
        }
    }

    #[test]
    fn a_counter_that_goes_back_is_given_up() {
        let mut clock = Clock::calibrate(ClockError::default());
        // As if the anchor had been read on a CPU whose counter is a second ahead.
        clock.ns_per_tick = Some(1.0);
        clock.anchor = Pair { counter: counter().wrapping_add(1_000_000_000), ns: raw_ns() };
        let before = raw_ns();
        assert!(clock.now() >= before);
        assert_eq!(clock.source(), "clock_gettime");
    }

    #[test]
    fn synthetic_error_is_offset_and_drift() {
        let mut clock = Clock::calibrate(ClockError { offset_ns: 5_000_000, drift_ppm: 1000.0 });
        std::thread::sleep(Duration::from_millis(20));
        let before = raw_ns();
        let now = clock.now();
        let after = raw_ns();
        let shown = |raw: i64| raw + 5_000_000 + raw / 1000;
        assert!(now >= shown(before) - 1_000 && now <= shown(after) + 1_000, "{before} {now} {after}");
    }

    #[test]
    fn kernel_time_converts() {
        let mut clock = Clock::calibrate(ClockError::default());
        let before = raw_ns();
        let realtime = unix_ns();
        let after = raw_ns();
        let converted = clock.of_kernel(Realtime::read(), realtime);
        assert!(converted >= before - 10_000 && converted <= after + 10_000, "{before} {converted} {after}");
    }
}
