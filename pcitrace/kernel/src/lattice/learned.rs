//! Tables of costs that are learned from what was seen.

/// How one observed time speaks for its neighbours: bins are 9 % wide, so up to about 20 %.
const NEAR: [f64; 5] = [1.0 / 9.0, 2.0 / 9.0, 3.0 / 9.0, 2.0 / 9.0, 1.0 / 9.0];

/// Entries of a table over times that are learned together, for what is learned of a time is learned of its neighbours.
const TOGETHER: usize = 4;

/// No share is less likely: a cost is finite.
const LEAST: f64 = 1e-12;

/// One row of a table: what is known of it before, and what that is worth.
pub struct First<'a> {
    /// Shares; their sum need not be one.
    pub shares: &'a [f64],
    /// Observations that they are worth.
    pub weight: f64,
    /// Whether the entries are times, which speak for their neighbours.
    pub times: bool,
}

impl First<'_> {
    /// By how much what was seen was dearer while the table was not known: the marginal likelihood under a Dirichlet
    /// prior against the learned table (MacKay, Information Theory, Inference and Learning Algorithms, 2003, chapter 28).
    pub fn learning(&self, seen: &[f64]) -> f64 {
        let total: f64 = seen.iter().sum();
        if total == 0.0 {
            return 0.0;
        }
        let together = if self.times { TOGETHER } else { 1 };
        let known = self.weight * self.shares.iter().sum::<f64>();
        let each = seen.chunks(together).zip(self.shares.chunks(together)).map(|(seen, shares)| {
            let count: f64 = seen.iter().sum();
            if count == 0.0 {
                return 0.0;
            }
            let first = self.weight * shares.iter().sum::<f64>();
            count * ((count + first) / (total + known)).ln() - rising(first, count)
        });
        rising(known, total) + each.sum::<f64>()
    }

    /// Fills `costs` with what each entry costs by what was seen.
    pub fn costs(&self, seen: &[f64], costs: &mut [f32]) {
        let total = seen.iter().sum::<f64>() + self.weight;
        for (at, (cost, share)) in costs.iter_mut().zip(self.shares).enumerate() {
            let count = if self.times { near(seen, at) } else { seen[at] };
            *cost = -((count + self.weight * share) / total).max(LEAST).ln() as f32;
        }
    }
}

/// What was seen of an entry and of those around it.
fn near(seen: &[f64], at: usize) -> f64 {
    let reach = NEAR.len() / 2;
    let (low, high) = (at.saturating_sub(reach), (at + reach + 1).min(seen.len()));
    seen[low..high].iter().zip(&NEAR[low + reach - at..]).map(|(seen, share)| share * seen).sum()
}

/// The logarithm of x (x + 1) ... (x + count - 1), a quotient of gamma functions.
fn rising(x: f64, count: f64) -> f64 {
    /// Factors that are multiplied; behind these Stirling's series is as good as double precision.
    const PLAIN: f64 = 16.0;
    let mut product = 1.0;
    let mut at = 0.0;
    while at < count.min(PLAIN) {
        product *= x + at;
        at += 1.0;
    }
    let rest = if count > PLAIN { ln_gamma(x + count) - ln_gamma(x + PLAIN) } else { 0.0 };
    product.ln() + rest
}

/// Stirling's series for the logarithm of the gamma function, but for its constant.
fn ln_gamma(x: f64) -> f64 {
    let square = x * x;
    (x - 0.5) * x.ln() - x + (1.0 / 12.0 - (1.0 / 360.0 - 1.0 / (1260.0 * square)) / square) / x
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rising_is_the_sum_of_the_logarithms() {
        for x in [1e-7_f64, 0.3, 2.0, 90.0] {
            for count in [0, 1, 2, 15, 16, 17, 40, 1000] {
                let sum: f64 = (0..count).map(|by| (x + f64::from(by)).ln()).sum();
                let found = rising(x, f64::from(count));
                assert!((found - sum).abs() < 1e-9 * sum.abs().max(1.0), "{x} {count}: {found}, not {sum}");
            }
        }
    }

    #[test]
    fn learning_is_what_was_dearer_one_by_one() {
        let first = First { shares: &[0.5, 0.3, 0.2], weight: 3.0, times: false };
        let (mut seen, mut one_by_one) = ([0.0; 3], 0.0);
        let values = [0, 2, 2, 1, 0, 2];
        for (before, value) in values.into_iter().enumerate() {
            one_by_one -= ((seen[value] + 3.0 * first.shares[value]) / (before as f64 + 3.0)).ln();
            seen[value] += 1.0;
        }
        let mut costs = [0.0; 3];
        first.costs(&seen, &mut costs);
        let after: f64 = values.into_iter().map(|value| f64::from(costs[value])).sum();
        assert!((first.learning(&seen) - (one_by_one - after)).abs() < 1e-5);
    }

    #[test]
    fn a_time_speaks_for_its_neighbours() {
        let first = First { shares: &[0.0; 8], weight: 0.0, times: true };
        let mut seen = [0.0; 8];
        seen[1] = 9.0;
        let mut costs = [0.0; 8];
        first.costs(&seen, &mut costs);
        let shares: Vec<i32> = costs.iter().map(|cost| (9.0 * (-cost).exp()).round() as i32).collect();
        assert_eq!(shares, [2, 3, 2, 1, 0, 0, 0, 0]);
    }
}
