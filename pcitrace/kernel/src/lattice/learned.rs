//! Tables of costs that are learned from what was seen.

/// How one observed time speaks for its neighbours: bins are 9 % wide, so up to about 20 %.
const NEAR: [f64; 5] = [1.0 / 9.0, 2.0 / 9.0, 3.0 / 9.0, 2.0 / 9.0, 1.0 / 9.0];

/// Entries of a table over times that are learned together, for what is learned of a time is learned of its neighbours.
const TOGETHER: usize = 4;

/// No share is less likely: a cost is finite.
const LEAST: f64 = 1e-12;

/// What was seen: an entry of a row each.
pub struct Seen<'a> {
    pub entry: &'a [i64],
    pub row: &'a [i64],
}

/// What is known of a table before.
pub struct Prior<'a> {
    /// Shares, row by row; the sum of a row need not be one.
    pub shares: &'a [f64],
    /// Entries of a row.
    pub columns: usize,
    /// Observations that a row is worth.
    pub weight: f64,
    /// Whether the entries are times, which speak for their neighbours.
    pub times: bool,
}

impl Prior<'_> {
    /// Its rows, with what was seen of each.
    fn rows<'a>(&'a self, counts: &'a [f64]) -> impl Iterator<Item = (First<'a>, &'a [f64])> {
        let first = |shares| First { shares, weight: self.weight, times: self.times };
        self.shares.chunks(self.columns).map(first).zip(counts.chunks(self.columns))
    }
}

/// The costs of a table, and what learning them cost; nothing if something was seen of an entry that it does not have.
///
/// Of the entries that are not `kept` (0) what was seen is forgotten once that was counted.
pub fn learn(seen: &Seen<'_>, prior: &Prior<'_>, kept: Option<&[u8]>) -> Option<(Vec<f32>, f64)> {
    let Prior { shares, columns, .. } = *prior;
    let is_table = columns > 0 && shares.len().is_multiple_of(columns) && seen.entry.len() == seen.row.len();
    if !is_table || kept.is_some_and(|kept| kept.len() != shares.len()) {
        return None;
    }
    let mut counts = vec![0.0; shares.len()];
    for (entry, row) in seen.entry.iter().zip(seen.row) {
        let entry = usize::try_from(*entry).ok().filter(|entry| *entry < columns)?;
        *counts.get_mut(usize::try_from(*row).ok()?.checked_mul(columns)? + entry)? += 1.0;
    }
    let nats = prior.rows(&counts).map(|(first, counts)| first.learning(counts)).sum();
    if let Some(kept) = kept {
        counts.iter_mut().zip(kept).filter(|(_, kept)| **kept == 0).for_each(|(count, _)| *count = 0.0);
    }
    let mut costs = vec![0.0; shares.len()];
    prior.rows(&counts).zip(costs.chunks_mut(columns)).for_each(|((first, counts), costs)| first.costs(counts, costs));
    Some((costs, nats))
}

/// One row of a prior.
struct First<'a> {
    shares: &'a [f64],
    weight: f64,
    times: bool,
}

impl First<'_> {
    /// By how much what was seen was dearer while the table was not known: the marginal likelihood under a Dirichlet
    /// prior against the learned table (MacKay, Information Theory, Inference and Learning Algorithms, 2003, chapter 28).
    fn learning(&self, seen: &[f64]) -> f64 {
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
    fn costs(&self, seen: &[f64], costs: &mut [f32]) {
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
    fn what_is_forgotten_was_counted_and_what_is_no_entry_is_refused() {
        let prior = Prior { shares: &[0.5, 0.5, 0.5, 0.5], columns: 2, weight: 2.0, times: false };
        let seen = Seen { entry: &[0, 0, 1], row: &[0, 0, 1] };
        let (costs, nats) = learn(&seen, &prior, None).expect("a table");
        let (fewer, same) = learn(&seen, &prior, Some(&[0, 1, 1, 1])).expect("a table");
        assert!(nats > 0.0 && same == nats);
        let shares = |costs: &[f32]| costs.iter().map(|cost| f64::from((-cost).exp())).collect::<Vec<_>>();
        for (found, share) in [(&costs, [0.75, 0.25, 1.0 / 3.0, 2.0 / 3.0]), (&fewer, [0.5, 0.5, 1.0 / 3.0, 2.0 / 3.0])]
        {
            assert!(shares(found).iter().zip(share).all(|(found, share)| (found - share).abs() < 1e-6), "{found:?}");
        }
        for (entry, row) in [(2, 0), (-1, 0), (0, 2), (0, -1), (0, i64::MAX)] {
            assert!(learn(&Seen { entry: &[entry], row: &[row] }, &prior, None).is_none(), "{entry} {row}");
        }
        assert!(learn(&Seen { entry: &[0, 1], row: &[0] }, &prior, None).is_none());
        assert!(learn(&seen, &prior, Some(&[1])).is_none());
        assert!(learn(&seen, &Prior { columns: 0, ..prior }, None).is_none());
    }

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
