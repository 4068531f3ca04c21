//! Exact counts of one stream at its receiver.

use serde::{Deserialize, Serialize};

/// Duplicates and reordering as RFC 4737 (section 3.3, Type-P-Reordered) counts them: of a packet that comes more than
/// once only the first copy is looked at, and it is reordered if a later sequence number came before it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Different sequence numbers received undamaged.
    pub received: u64,
    pub duplicated: u64,
    pub reordered: u64,
    /// Payload not what the pattern says, or a length that was not sent.
    pub corrupt: u64,
    /// Sequence numbers that were never planned; not ours, and not counted above.
    pub unplanned: u64,
}

#[derive(Clone, Debug)]
pub struct Tally {
    pub counts: Counts,
    planned: u32,
    seen: Vec<u64>,
    next_expected: u32,
}

impl Tally {
    pub fn new(planned: u32) -> Tally {
        Tally { counts: Counts::default(), planned, seen: vec![0; (planned as usize).div_ceil(64)], next_expected: 0 }
    }

    /// One arrived frame. True if it is the first undamaged copy.
    pub fn arrived(&mut self, sequence: u32, intact: bool) -> bool {
        if sequence >= self.planned {
            self.counts.unplanned += 1;
            return false;
        }
        if !intact {
            self.counts.corrupt += 1;
            return false;
        }
        let (word, bit) = (sequence as usize / 64, 1u64 << (sequence % 64));
        if self.seen[word] & bit != 0 {
            self.counts.duplicated += 1;
            return false;
        }
        self.seen[word] |= bit;
        self.counts.received += 1;
        if sequence < self.next_expected {
            self.counts.reordered += 1;
        } else {
            self.next_expected = sequence + 1;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;
    use std::collections::HashSet;

    fn count(planned: u32, arrivals: &[u32]) -> Counts {
        let mut tally = Tally::new(planned);
        for &sequence in arrivals {
            tally.arrived(sequence, true);
        }
        tally.counts
    }

    #[test]
    fn by_hand() {
        let counts = |received, duplicated, reordered| Counts { received, duplicated, reordered, ..Counts::default() };
        assert_eq!(count(4, &[0, 1, 2, 3]), counts(4, 0, 0));
        assert_eq!(count(4, &[0, 2, 1, 3]), counts(4, 0, 1));
        assert_eq!(count(4, &[3, 0, 1, 2]), counts(4, 0, 3));
        assert_eq!(count(4, &[0, 1, 1, 0, 3]), counts(3, 2, 0));
        assert_eq!(count(2, &[0, 2, u32::MAX]), Counts { received: 1, unplanned: 2, ..Counts::default() });
    }

    #[test]
    fn against_the_definition_written_out() {
        let mut random = Random::new(11);
        for _ in 0..200 {
            let planned = 1 + (random.word() % 200) as u32;
            let arrivals: Vec<u32> =
                (0..random.word() % 300).map(|_| (random.word() % u64::from(planned)) as u32).collect();
            let mut firsts: Vec<u32> = Vec::new();
            for &a in &arrivals {
                if !firsts.contains(&a) {
                    firsts.push(a);
                }
            }
            let reordered = (0..firsts.len()).filter(|&i| firsts[..i].iter().any(|&before| before > firsts[i])).count();
            let distinct: HashSet<u32> = arrivals.iter().copied().collect();
            assert_eq!(
                count(planned, &arrivals),
                Counts {
                    received: distinct.len() as u64,
                    duplicated: (arrivals.len() - distinct.len()) as u64,
                    reordered: reordered as u64,
                    ..Counts::default()
                }
            );
        }
    }
}
