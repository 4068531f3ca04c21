//! Transactions near one of whose clocks a control line changed: on a jittery bus that is most of them, so that they are kept
//! as small as they can be.

use crate::lane::Lane;
use crate::rows::Origin;

/// One of them, once and for all: what [`crate::problems::What::Suspect`] is said of.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Suspect {
    pub stamp: u64,
    pub clk: u64,
    pub transaction: u64,
}

impl Suspect {
    /// How far it is behind another one; None where that is too far for a block.
    #[inline(always)]
    fn behind(self, first: Suspect) -> Option<Behind> {
        let behind = |now: u64, then: u64| now.wrapping_sub(then);
        let behind = [
            behind(self.stamp, first.stamp),
            behind(self.clk, first.clk),
            behind(self.transaction, first.transaction),
        ];
        ((behind[0] | behind[1] | behind[2]) >> 32 == 0).then(|| behind.map(|number| number as u32))
    }
}

/// How far stamp, clock and number of one are behind those of another.
type Behind = [u32; 3];

/// Some of them, with numbers that count from those of the first.
#[derive(Debug, Default, Clone, PartialEq)]
struct Block {
    first: Suspect,
    behind: Lane<Behind>,
}

impl Block {
    fn iter(&self) -> impl Iterator<Item = Suspect> {
        let Suspect { stamp, clk, transaction } = self.first;
        self.behind.iter().map(move |behind| Suspect {
            stamp: stamp + u64::from(behind[0]),
            clk: clk + u64::from(behind[1]),
            transaction: transaction + u64::from(behind[2]),
        })
    }
}

/// Of one bus, by the numbers of their transactions.
#[derive(Debug, Default, Clone)]
pub struct Suspects(Vec<Block>);

impl Suspects {
    /// No block has more: it would have to move as it grows.
    const MOST: usize = 1 << 13;

    /// Adds one behind all others, if it `is` one: without a branch, so that what cannot be foreseen is not guessed.
    #[inline(always)]
    pub fn push_if(&mut self, suspect: Suspect, is: bool) {
        if let Some(Block { first, behind }) = self.0.last_mut().filter(|block| block.behind.len() < Self::MOST)
            && let Some(far) = suspect.behind(*first)
        {
            return behind.push_if(far, is);
        }
        self.begin(suspect, is);
    }

    /// The same with a block of its own.
    #[cold]
    #[inline(never)]
    fn begin(&mut self, suspect: Suspect, is: bool) {
        if is {
            self.0.push(Block { first: suspect, behind: Lane::from_iter([[0; 3]]) });
        }
    }

    /// Takes those of another, which come behind all of these.
    pub fn append(&mut self, more: Suspects) {
        self.0.extend(more.0);
    }

    /// Their numbers count from the start of the capture now.
    pub fn count_from(&mut self, origin: Origin) {
        for Block { first, .. } in &mut self.0 {
            first.clk += origin.clocks;
            first.transaction += origin.transactions;
        }
    }

    pub fn len(&self) -> usize {
        self.0.iter().map(|block| block.behind.len()).sum()
    }

    pub fn iter(&self) -> impl Iterator<Item = Suspect> {
        self.0.iter().flat_map(Block::iter)
    }
}

impl PartialEq for Suspects {
    /// However they lie in blocks.
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// However far they are apart, and however they are put together.
        #[test]
        fn suspects_come_back(
            pieces in proptest::collection::vec(proptest::collection::vec((any::<u8>(), any::<bool>()), 0..40), 0..6),
            far in 0u64..1 << 34,
            origin in 0u64..1000,
        ) {
            let (mut all, mut expected, mut last) = (Suspects::default(), Vec::new(), 1);
            for piece in &pieces {
                let mut own = Suspects::default();
                for &(step, is) in piece {
                    last += 1 + u64::from(step) + if step == 0 { far } else { 0 };
                    let suspect = Suspect { stamp: 3 * last, clk: last, transaction: last / 2 };
                    own.push_if(suspect, is);
                    if is {
                        expected.push(Suspect { clk: last + origin, transaction: last / 2 + 2 * origin, ..suspect });
                    }
                }
                own.count_from(Origin { clocks: origin, transactions: 2 * origin });
                all.append(own);
            }
            prop_assert_eq!(all.len(), expected.len());
            prop_assert_eq!(all.iter().collect::<Vec<_>>(), expected);
        }
    }

    #[test]
    fn blocks_are_no_longer_than_that() {
        let mut all = Suspects::default();
        let suspect = |nth| Suspect { stamp: 9 * nth, clk: 3 * nth, transaction: nth };
        (0..20_000).for_each(|nth| all.push_if(suspect(nth), nth % 4 != 0));
        assert!(all.iter().eq((0..20_000).filter(|nth| nth % 4 != 0).map(suspect)));
        assert!(all.0.iter().all(|block| block.behind.len() <= Suspects::MOST));
    }
}
