//! The peer's clock against ours, from exchanges of frames.
//!
//! As the midpoints of ping-pongs were used in the ATLAS note (Hughes-Jones and Saka, 2000): each exchange gives an
//! offset, exact if both directions took equally long; those that waited least are fitted with a straight line.

use serde::Serialize;

/// Four times of an exchange: the first and last of our clock, the others of the peer's; ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exchange {
    pub request_sent: i64,
    pub request_received: i64,
    pub reply_sent: i64,
    pub reply_received: i64,
}

// The peer's times are what it says: differences of any two of them must fit.
fn difference(later: i64, earlier: i64) -> i128 {
    i128::from(later) - i128::from(earlier)
}

impl Exchange {
    /// Peer's clock minus ours.
    fn offset(&self) -> f64 {
        let there = difference(self.request_received, self.request_sent);
        let back = difference(self.reply_sent, self.reply_received);
        (there + back) as f64 / 2.0
    }

    /// Time on the way, both directions.
    fn round_trip(&self) -> i128 {
        difference(self.reply_received, self.request_sent) - difference(self.reply_sent, self.request_received)
    }

    /// Of our clock.
    fn middle(&self) -> i64 {
        self.request_sent + (self.reply_received - self.request_sent) / 2
    }
}

/// Peer's time = t + offset + drift (t - reference), t and reference of our clock.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClockFit {
    pub node: u16,
    pub reference_ns: i64,
    pub offset_us: f64,
    pub offset_sigma_us: f64,
    /// Null where the exchanges span too little time.
    pub drift_ppm: Option<f64>,
    pub drift_sigma_ppm: Option<f64>,
    /// Half the round trip, in the mean of those used: the offset is off by this at most, if all of it were in one
    /// direction.
    pub asymmetry_bound_us: f64,
    /// The drift is off by this much at most, if the difference between the directions changed while it was measured.
    pub drift_bound_ppm: Option<f64>,
    pub exchanges: usize,
    /// Exchanges that waited least: those the line goes through.
    pub used: usize,
}

/// Exchanges close in time compete; the quarter with the shortest round trips is kept of each group.
const GROUP: usize = 40;
const KEEP: usize = 4;
const LEAST_SPAN_NS: f64 = 50e6;

/// None without any exchange.
pub fn fit(node: u16, exchanges: &[Exchange]) -> Option<ClockFit> {
    let mut sorted: Vec<&Exchange> = exchanges.iter().filter(|exchange| exchange.round_trip() >= 0).collect();
    sorted.sort_by_key(|exchange| exchange.middle());
    let mut kept: Vec<&Exchange> = Vec::new();
    for group in sorted.chunks(GROUP) {
        let mut group = group.to_vec();
        group.sort_by_key(|exchange| exchange.round_trip());
        kept.extend(&group[..group.len().div_ceil(KEEP)]);
    }
    let shortest = kept.iter().map(|exchange| exchange.round_trip()).min()?;
    // Of a group that only saw a busy link nothing is kept.
    kept.retain(|exchange| exchange.round_trip() <= 2 * shortest + 2_000);

    let n = kept.len() as f64;
    let origin = kept[0].middle();
    let time = |exchange: &Exchange| (exchange.middle() - origin) as f64;
    let mean_time = kept.iter().map(|e| time(e)).sum::<f64>() / n;
    // Offsets can be as large as an uptime: differences keep their nanoseconds.
    let base = kept[0].offset();
    let mean = kept.iter().map(|e| e.offset() - base).sum::<f64>() / n;
    let spread: f64 = kept.iter().map(|e| (time(e) - mean_time).powi(2)).sum();
    // Each offset is off by half its round trip at most; the drift is the sum of all offsets by their distance in time.
    let lever: f64 = kept.iter().map(|e| (time(e) - mean_time).abs() * e.round_trip() as f64 / 2.0).sum();
    let first = kept.iter().map(|e| time(e)).fold(f64::INFINITY, f64::min);
    let last = kept.iter().map(|e| time(e)).fold(f64::NEG_INFINITY, f64::max);
    let with_drift = kept.len() >= 8 && last - first >= LEAST_SPAN_NS;
    let drift = if with_drift {
        kept.iter().map(|e| (time(e) - mean_time) * (e.offset() - base - mean)).sum::<f64>() / spread
    } else {
        0.0
    };
    let residual = |e: &Exchange| e.offset() - base - mean - drift * (time(e) - mean_time);
    let freedom = n - if with_drift { 2.0 } else { 1.0 };
    let variance = if freedom > 0.0 {
        kept.iter().map(|e| residual(e).powi(2)).sum::<f64>() / freedom
    } else {
        // One exchange: what its own round trip allows, as a uniform distribution.
        (shortest as f64 / 2.0).powi(2) / 3.0
    };
    Some(ClockFit {
        node,
        reference_ns: origin + mean_time as i64,
        offset_us: (base + mean) / 1e3,
        offset_sigma_us: (variance / n).sqrt() / 1e3,
        drift_ppm: with_drift.then_some(drift * 1e6),
        drift_sigma_ppm: with_drift.then(|| (variance / spread).sqrt() * 1e6),
        asymmetry_bound_us: kept.iter().map(|e| e.round_trip() as f64).sum::<f64>() / n / 2e3,
        drift_bound_ppm: with_drift.then(|| lever / spread * 1e6),
        exchanges: exchanges.len(),
        used: kept.len(),
    })
}

impl ClockFit {
    /// A time of the peer's clock on ours, ns.
    pub fn to_ours(&self, peer_ns: i64) -> f64 {
        let drift = self.drift_ppm.unwrap_or(0.0) * 1e-6;
        let since = difference(peer_ns, self.reference_ns) as f64 - self.offset_us * 1e3;
        self.reference_ns as f64 + since / (1.0 + drift)
    }

    /// Uncertainty of that at our time `ns`, from the scatter of the exchanges, µs.
    pub fn sigma_us(&self, ns: f64) -> f64 {
        let since_s = (ns - self.reference_ns as f64) / 1e9;
        let by_drift = self.drift_sigma_ppm.unwrap_or(0.0) * since_s;
        self.offset_sigma_us.hypot(by_drift)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    /// Exchanges with a known offset and drift over a link with 10 µs each way and exponential queueing.
    fn synthetic(random: &mut Random, offset: i64, drift_ppm: f64, count: i64, every: i64) -> Vec<Exchange> {
        let origin = 50_000_000_000_000i64;
        let peer = |t: i64| t + offset + ((t - origin) as f64 * drift_ppm * 1e-6).round() as i64;
        (0..count)
            .map(|i| {
                let delay = |random: &mut Random| 10_000 + (random.exponential() * 3_000.0) as i64;
                let sent = origin + i * every;
                let arrived = sent + delay(random);
                let answered = arrived + 4_000;
                let back = answered + delay(random);
                Exchange {
                    request_sent: sent,
                    request_received: peer(arrived),
                    reply_sent: peer(answered),
                    reply_received: back,
                }
            })
            .collect()
    }

    #[test]
    fn offset_and_drift_come_back() {
        let mut random = Random::new(3);
        let (mut pulls, mut drift_pulls) = (Vec::new(), Vec::new());
        for i in 0..100 {
            let (offset, drift) = (-7_000_000_000_000 + i * 12_345, -100.0 + 2.0 * i as f64);
            let exchanges = synthetic(&mut random, offset, drift, 400, 1_000_000);
            let fit = fit(1, &exchanges).expect("exchanges");
            let origin = 50_000_000_000_000i64;
            let truth = offset as f64 + (fit.reference_ns - origin) as f64 * drift * 1e-6;
            assert!((fit.offset_us - truth / 1e3).abs() < fit.asymmetry_bound_us);
            pulls.push((fit.offset_us - truth / 1e3) / fit.offset_sigma_us);
            drift_pulls.push((fit.drift_ppm.expect("long enough") - drift) / fit.drift_sigma_ppm.expect("too"));
            // Round trips of 20 µs and more, evenly over 0.4 s: 3/2 of their ratio.
            let bound = fit.drift_bound_ppm.expect("too");
            assert!(
                (fit.drift_ppm.expect("long enough") - drift).abs() < bound && (50.0..100.0).contains(&bound),
                "{bound}"
            );
            // And a single time maps back.
            let t = origin + 77_777_777;
            let peer = t + offset + ((t - origin) as f64 * drift * 1e-6) as i64;
            assert!((fit.to_ours(peer) - t as f64).abs() < 1_000.0);
        }
        for pulls in [pulls, drift_pulls] {
            let mean = pulls.iter().sum::<f64>() / 100.0;
            let width = (pulls.iter().map(|p| (p - mean).powi(2)).sum::<f64>() / 99.0).sqrt();
            assert!(mean.abs() < 0.35 && (0.7..1.3).contains(&width), "{mean} {width}");
        }
    }

    #[test]
    fn little_time_gives_no_drift() {
        let mut random = Random::new(3);
        let fit = fit(1, &synthetic(&mut random, 5_000, 0.0, 20, 10_000)).expect("exchanges");
        assert_eq!((fit.drift_ppm, fit.drift_sigma_ppm, fit.drift_bound_ppm), (None, None, None));
        assert!((fit.offset_us - 5.0).abs() < 2.0, "{}", fit.offset_us);
        assert_eq!(super::fit(1, &[]), None);
    }
}
