//! What a bad cable does to frames that come in: loses, doubles, delays and reorders them, from a seed.

use super::plan::PortPlan;
use super::{Ps, ps};
use crate::random::Random;

#[derive(Clone, Debug)]
pub struct Impairment {
    plan: PortPlan,
    random: Random,
    losing: bool,
    /// Frames that are not reordered enter in their order.
    last: Ps,
}

/// When a frame enters the switch, and once more if it is doubled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    pub at: Ps,
    pub held: bool,
    pub copy: bool,
}

impl Impairment {
    pub fn new(plan: &PortPlan, random: Random) -> Impairment {
        Impairment { plan: plan.clone(), random, losing: false, last: Ps::MIN }
    }

    fn happens(&mut self, probability: f64) -> bool {
        probability > 0.0 && self.random.unit() <= probability
    }

    /// Two states (Gilbert): the loss rate is `loss`, runs of lost frames have the mean `loss_burst`.
    fn loses(&mut self) -> bool {
        let (loss, burst) = (self.plan.loss, self.plan.loss_burst);
        let recover = 1.0 / burst;
        let begin = if loss < 1.0 { (recover * loss / (1.0 - loss)).min(1.0) } else { 1.0 };
        self.losing = if burst == 1.0 {
            self.happens(loss)
        } else if self.losing {
            loss >= 1.0 || !self.happens(recover)
        } else {
            self.happens(begin)
        };
        self.losing
    }

    /// None: the frame is lost.
    pub fn pass(&mut self, now: Ps) -> Option<Entry> {
        if self.loses() {
            return None;
        }
        let jitter = if self.plan.jitter_us > 0.0 { self.plan.jitter_us * self.random.exponential() } else { 0.0 };
        let mut at = now + ps(self.plan.delay_us + jitter);
        let held = self.happens(self.plan.reorder);
        if held {
            at += ps(self.plan.reorder_us);
        } else {
            at = at.max(self.last);
            self.last = at;
        }
        Some(Entry { at, held, copy: self.happens(self.plan.duplicate) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_have_their_rate_and_their_runs() {
        for (loss, burst) in [(0.1, 1.0), (0.1, 5.0), (0.02, 20.0)] {
            let plan = PortPlan { loss, loss_burst: burst, ..PortPlan::default() };
            let mut line = Impairment::new(&plan, Random::new(3));
            let lost: Vec<bool> = (0..400_000).map(|now| line.pass(now).is_none()).collect();
            let count = lost.iter().filter(|lost| **lost).count() as f64;
            let runs = lost.windows(2).filter(|pair| !pair[0] && pair[1]).count() as f64;
            assert!((count / 4e5 / loss - 1.0).abs() < 0.1, "{loss} {burst}: {count}");
            // Independent losses have runs of 1 / (1 - p).
            let expected = if burst == 1.0 { 1.0 / (1.0 - loss) } else { burst };
            assert!((count / runs / expected - 1.0).abs() < 0.1, "{loss} {burst}: {}", count / runs);
        }
    }

    #[test]
    fn jitter_keeps_the_order_and_reordering_does_not() {
        let plan = PortPlan { delay_us: 100.0, jitter_us: 50.0, ..PortPlan::default() };
        let mut line = Impairment::new(&plan, Random::new(3));
        let times: Vec<Ps> = (0..1000).map(|i| line.pass(i * 1_000_000).expect("no loss").at).collect();
        assert!(times.is_sorted() && times[0] >= 100_000_000);
        let mut line = Impairment::new(&PortPlan { reorder: 0.1, ..plan }, Random::new(3));
        let times: Vec<Ps> = (0..1000).map(|i| line.pass(i * 1_000_000).expect("no loss").at).collect();
        assert!(!times.is_sorted());
    }
}
