//! Tables of costs that are learned from what was seen.

use rustc_hash::FxHashMap;

/// How one observed time speaks for its neighbours: bins are 9 % wide, so up to about 20 %.
const NEAR: [f64; 5] = [1.0 / 9.0, 2.0 / 9.0, 3.0 / 9.0, 2.0 / 9.0, 1.0 / 9.0];

/// Entries of a table over times that are learned together, for what is learned of a time is learned of its neighbours.
const TOGETHER: usize = 4;

/// No entry costs more: what was never thought possible has a share of 1e-12.
const DEAREST: f64 = 27.631_021_115_928_547;

/// What was seen: an entry of a row each, of a table with so many rows.
pub struct Seen<'a> {
    pub entry: &'a [i64],
    pub row: &'a [i64],
    pub rows: usize,
}

/// What is known of a table before.
pub struct Prior<'a> {
    /// Costs, row by row, or of one row that all begin with. The shares of a row need not add up to one.
    pub costs: &'a [f32],
    /// Entries of a row.
    pub columns: usize,
    /// Observations that a row is worth.
    pub weight: f64,
    /// Whether the entries are times, which speak for their neighbours.
    pub times: bool,
}

fn share(cost: f32) -> f64 {
    f64::from(-cost).exp()
}

fn whole(costs: &[f32]) -> f64 {
    costs.iter().copied().map(share).sum()
}

/// The costs of a table, and what learning them cost; nothing if something was seen of an entry that it does not have.
///
/// Of the entries that are not `kept` (0) what was seen is forgotten once that was counted.
pub fn learn(seen: &Seen<'_>, prior: &Prior<'_>, kept: Option<&[u8]>) -> Option<(Vec<f32>, f64)> {
    let columns = prior.columns;
    let size = seen.rows.checked_mul(columns).filter(|_| columns > 0)?;
    let is_table = [columns, size].contains(&prior.costs.len()) && seen.entry.len() == seen.row.len();
    if !is_table || kept.is_some_and(|kept| kept.len() != size) {
        return None;
    }
    let mut counts = vec![0.0; size];
    let mut totals = vec![0.0; seen.rows];
    for (entry, row) in seen.entry.iter().zip(seen.row) {
        let entry = usize::try_from(*entry).ok().filter(|entry| *entry < columns)?;
        let row = usize::try_from(*row).ok()?;
        *totals.get_mut(row)? += 1.0;
        counts[row * columns + entry] += 1.0;
    }
    let all = (prior.costs.len() == columns).then(|| whole(prior.costs));
    let (mut costs, mut nats) = (Vec::with_capacity(size), 0.0);
    for (row, (counts, mut total)) in counts.chunks_mut(columns).zip(totals).enumerate() {
        let before = if all.is_some() { prior.costs } else { &prior.costs[row * columns..][..columns] };
        let first = First { costs: before, weight: prior.weight, times: prior.times };
        if total > 0.0 {
            nats += first.learning(counts, total, all.unwrap_or_else(|| whole(before)));
        }
        if let Some(kept) = kept {
            counts
                .iter_mut()
                .zip(&kept[row * columns..])
                .filter(|(_, kept)| **kept == 0)
                .for_each(|(count, _)| *count = 0.0);
            total = counts.iter().sum();
        }
        first.costs(counts, total, &mut costs);
    }
    Some((costs, nats))
}

/// One row of a prior.
struct First<'a> {
    costs: &'a [f32],
    weight: f64,
    times: bool,
}

impl First<'_> {
    /// By how much what was seen was dearer while the table was not known: the marginal likelihood under a Dirichlet
    /// prior against the learned table (MacKay, Information Theory, Inference and Learning Algorithms, 2003, chapter 28).
    ///
    /// `total` is how much was seen, `whole` how likely all entries are together.
    fn learning(&self, seen: &[f64], total: f64, whole: f64) -> f64 {
        let together = if self.times { TOGETHER } else { 1 };
        let known = self.weight * whole;
        let each = seen.chunks(together).zip(self.costs.chunks(together)).map(|(seen, costs)| {
            let count: f64 = seen.iter().sum();
            if count == 0.0 {
                return 0.0;
            }
            let first = self.weight * costs.iter().copied().map(share).sum::<f64>();
            count * ((count + first) / (total + known)).ln() - rising(first, count)
        });
        rising(known, total) + each.sum::<f64>()
    }

    /// Appends what each entry costs by what was seen.
    fn costs(&self, seen: &[f64], total: f64, costs: &mut Vec<f32>) {
        let (from, total) = (costs.len(), total + self.weight);
        // Where nothing was seen all is as it was before, but rarer by what was seen elsewhere.
        let rarer = (total / self.weight).ln();
        costs.extend(self.costs.iter().map(|cost| (f64::from(*cost) + rarer).min(DEAREST) as f32));
        let reach = if self.times { NEAR.len() / 2 } else { 0 };
        let mut done = 0;
        for at in (0..seen.len()).filter(|at| seen[*at] > 0.0) {
            let end = (at + reach + 1).min(seen.len());
            for entry in done.max(at.saturating_sub(reach))..end {
                let count = if self.times { near(seen, entry) } else { seen[entry] };
                costs[from + entry] =
                    (-((count + self.weight * share(self.costs[entry])) / total).ln()).min(DEAREST) as f32;
            }
            done = end;
        }
    }
}

/// Rounds in which it is learned which of two kinds items are that look alike.
const ROUNDS: usize = 4;

/// Which of two kinds each item is: by what either costs, and by which kind those of its group mostly are.
pub fn likeliest(costs: &[[f32; 2]], group: &[i64]) -> Vec<u8> {
    let mut number = FxHashMap::default();
    let at: Vec<usize> = group
        .iter()
        .map(|one| {
            let next = number.len();
            *number.entry(*one).or_insert(next)
        })
        .collect();
    let likely: Vec<[f64; 2]> =
        costs.iter().map(|[first, second]| [first, second].map(|cost| share(cost - first.min(*second)))).collect();
    let mut kinds = vec![[0.5; 2]; number.len()];
    for _ in 0..ROUNDS {
        let mut seen = vec![[0.5; 2]; kinds.len()];
        for (group, likely) in at.iter().zip(&likely) {
            let weight: [f64; 2] = std::array::from_fn(|kind| likely[kind] * kinds[*group][kind]);
            let all: f64 = weight.iter().sum();
            seen[*group].iter_mut().zip(weight).for_each(|(seen, weight)| *seen += weight / all);
        }
        kinds = seen.iter().map(|[first, second]| [first, second].map(|kind| kind / (first + second))).collect();
    }
    let nats = |kind: usize, group: usize, costs: &[f32; 2]| f64::from(costs[kind]) - kinds[group][kind].ln();
    at.iter().zip(costs).map(|(group, costs)| u8::from(nats(1, *group, costs) < nats(0, *group, costs))).collect()
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

    const HALF: f32 = std::f32::consts::LN_2;

    fn first(costs: &[f32], weight: f64, times: bool) -> First<'_> {
        First { costs, weight, times }
    }

    #[test]
    fn what_is_forgotten_was_counted_and_what_is_no_entry_is_refused() {
        let prior = Prior { costs: &[HALF; 4], columns: 2, weight: 2.0, times: false };
        let seen = Seen { entry: &[0, 0, 1], row: &[0, 0, 1], rows: 2 };
        let (costs, nats) = learn(&seen, &prior, None).expect("a table");
        let one_row = Prior { costs: &[HALF; 2], ..prior };
        assert_eq!(learn(&seen, &one_row, None).expect("a table"), (costs.clone(), nats));
        let (fewer, same) = learn(&seen, &prior, Some(&[0, 1, 1, 1])).expect("a table");
        assert!(nats > 0.0 && same == nats);
        let shares = |costs: &[f32]| costs.iter().map(|cost| f64::from((-cost).exp())).collect::<Vec<_>>();
        for (found, share) in [(&costs, [0.75, 0.25, 1.0 / 3.0, 2.0 / 3.0]), (&fewer, [0.5, 0.5, 1.0 / 3.0, 2.0 / 3.0])]
        {
            assert!(shares(found).iter().zip(share).all(|(found, share)| (found - share).abs() < 1e-6), "{found:?}");
        }
        for (entry, row) in [(2, 0), (-1, 0), (0, 2), (0, -1), (0, i64::MAX)] {
            assert!(learn(&Seen { entry: &[entry], row: &[row], rows: 2 }, &prior, None).is_none(), "{entry} {row}");
        }
        assert!(learn(&Seen { entry: &[0, 1], row: &[0], rows: 2 }, &prior, None).is_none());
        assert!(learn(&seen, &prior, Some(&[1])).is_none());
        assert!(learn(&seen, &Prior { columns: 0, ..prior }, None).is_none());
    }

    #[test]
    fn what_tells_nothing_is_of_the_kind_of_its_group() {
        let told = [[0.0, 3.0], [0.0, 3.0], [2.0, 0.0]];
        let costs = [told[0], told[1], told[2], [1.0; 2], [1.0; 2], [1.0; 2]];
        assert_eq!(likeliest(&costs, &[7, 7, -1, 7, -1, 9]), [0, 0, 1, 0, 1, 0]);
        assert!(likeliest(&[], &[]).is_empty());
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
        let shares = [0.5, 0.3, 0.2];
        let before = shares.map(|share: f64| -share.ln() as f32);
        let first = first(&before, 3.0, false);
        let (mut seen, mut one_by_one) = ([0.0; 3], 0.0);
        let values = [0, 2, 2, 1, 0, 2];
        for (sooner, value) in values.into_iter().enumerate() {
            one_by_one -= ((seen[value] + 3.0 * shares[value]) / (sooner as f64 + 3.0)).ln();
            seen[value] += 1.0;
        }
        let mut costs = vec![];
        first.costs(&seen, 6.0, &mut costs);
        let after: f64 = values.into_iter().map(|value| f64::from(costs[value])).sum();
        assert!((first.learning(&seen, 6.0, whole(&before)) - (one_by_one - after)).abs() < 1e-5);
    }

    #[test]
    fn a_time_speaks_for_its_neighbours() {
        let first = first(&[f32::INFINITY; 8], 1e-9, true);
        let mut seen = [0.0; 8];
        seen[1] = 9.0;
        let mut costs = vec![];
        first.costs(&seen, 9.0, &mut costs);
        let shares: Vec<i32> = costs.iter().map(|cost| (9.0 * (-cost).exp()).round() as i32).collect();
        assert_eq!(shares, [2, 3, 2, 1, 0, 0, 0, 0]);
    }
}
