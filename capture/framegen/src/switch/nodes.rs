//! A host of the plan: its clock, the time its card and its program take, and its end of the cable.

use super::line::Line;
use super::parcel::Parcel;
use super::plan::NodePlan;
use super::{PS_PER_NS, Ps, ps};
use crate::frame::{Header, Mac};
use crate::random::Random;

/// What a clock without error shows when the run begins: hosts have been up for a while.
pub const ORIGIN_NS: i64 = 1_000_000_000_000;

pub struct Node {
    pub plan: NodePlan,
    pub mac: Mac,
    pub line: Line<Parcel<Header>>,
    random: Random,
    last_ready: Ps,
    last_received: Ps,
}

impl Node {
    pub fn new(number: usize, plan: &NodePlan, rate_mbit_s: f64, seed: u64) -> Node {
        let own = Mac([0x02, 0, 0, 0, (number >> 8) as u8, number as u8 + 1]);
        Node {
            plan: plan.clone(),
            mac: plan.mac.unwrap_or(own),
            line: Line::new(rate_mbit_s),
            random: Random::new(seed ^ (number as u64 + 1).wrapping_mul(0xA076_1D64_78BD_642F)),
            last_ready: Ps::MIN,
            last_received: Ps::MIN,
        }
    }

    /// What the clock shows, ns.
    pub fn clock_ns(&self, now: Ps) -> i64 {
        let exact = now as f64 / PS_PER_NS as f64 * (1.0 + self.plan.clock_drift_ppm * 1e-6);
        let shown = ORIGIN_NS + (exact + self.plan.clock_offset_us * 1e3).floor() as i64;
        shown.div_euclid(self.plan.clock_step_ns) * self.plan.clock_step_ns
    }

    /// When the clock shows `ns`, its steps left aside.
    pub fn when(&self, ns: i64) -> Ps {
        let since = (ns - ORIGIN_NS) as f64 - self.plan.clock_offset_us * 1e3;
        (since / (1.0 + self.plan.clock_drift_ppm * 1e-6) * PS_PER_NS as f64).ceil() as Ps
    }

    /// Normal, of mean `us`; never negative.
    fn scattered(&mut self, us: f64) -> Ps {
        if self.plan.jitter_us == 0.0 {
            return ps(us);
        }
        // Box and Muller, 1958.
        let normal = (-2.0 * self.random.unit().ln()).sqrt() * (std::f64::consts::TAU * self.random.unit()).cos();
        ps((us + self.plan.jitter_us * normal).max(0.0))
    }

    /// When a frame that is stamped now is ready to go out, behind those before it.
    pub fn ready(&mut self, now: Ps, user: u32) -> Ps {
        let delay = self.scattered(self.plan.send_us + self.plan.send_us_per_byte * f64::from(user));
        self.last_ready = self.last_ready.max(now + delay);
        self.last_ready
    }

    /// When a frame is stamped whose last bit arrives at `last`.
    pub fn received(&mut self, last: Ps, user: u32) -> Ps {
        let delay = self.scattered(self.plan.receive_us + self.plan.receive_us_per_byte * f64::from(user));
        self.last_received = self.last_received.max(last + delay);
        self.last_received
    }

    /// When the answer to a request is stamped.
    pub fn answered(&mut self, received: Ps) -> Ps {
        received + self.scattered(self.plan.respond_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_there_and_back() {
        let plan = NodePlan { clock_offset_us: -7e6, clock_drift_ppm: 50.0, ..NodePlan::default() };
        let node = Node::new(0, &plan, 1000.0, 1);
        for now in [0, 1_000, 123_456_789_000, 60_000_000_000_000] {
            assert!((node.when(node.clock_ns(now)) - now).abs() <= 2_000, "{now}");
        }
        assert_eq!(node.clock_ns(1_000_000_000_000), ORIGIN_NS + 1_000_000_000 + 50_000 - 7_000_000_000);
        let coarse = Node::new(0, &NodePlan { clock_step_ns: 1000, ..NodePlan::default() }, 1000.0, 1);
        assert_eq!(coarse.clock_ns(1_999_999), ORIGIN_NS + 1_000);
    }

    #[test]
    fn delays_have_their_mean_and_keep_the_order() {
        let plan = NodePlan { send_us: 5.0, send_us_per_byte: 0.01, jitter_us: 0.1, ..NodePlan::default() };
        let mut node = Node::new(0, &plan, 1000.0, 1);
        let delays: Vec<f64> =
            (0..10_000).map(|i| (node.ready(i * 100_000_000, 100) - i * 100_000_000) as f64).collect();
        let mean = delays.iter().sum::<f64>() / 1e4;
        let sigma = (delays.iter().map(|d| (d - mean).powi(2)).sum::<f64>() / 1e4).sqrt();
        assert!((mean - 6e6).abs() < 5e3 && (sigma - 1e5).abs() < 5e3, "{mean} {sigma}");
        let first = node.received(0, 100);
        assert!(node.received(1, 100) >= first);
    }
}
