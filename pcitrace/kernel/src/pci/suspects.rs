//! Transactions near one of whose clocks a control line changed: on a jittery bus that is most of them, so that they are kept
//! as small as they can be.

use crate::bus::Origin;
use crate::lane::Lane;

/// One of them, once and for all: what [`crate::pci::problems::What::Suspect`] is said of.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Suspect {
    pub stamp: u64,
    pub clk: u64,
    pub transaction: u64,
}

impl Suspect {
    /// How far it is behind another one.
    #[inline(always)]
    fn behind(self, first: Suspect) -> [u64; 3] {
        let Suspect { stamp, clk, transaction } = first;
        [self.stamp.wrapping_sub(stamp), self.clk.wrapping_sub(clk), self.transaction.wrapping_sub(transaction)]
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
    /// It would have to move as it grows.
    const LONG: usize = 1 << 13;

    /// Whether it can hold more, none of which is behind this one.
    #[inline(always)]
    fn has_room_up_to(&self, last: Suspect) -> bool {
        let [stamp, clk, transaction] = last.behind(self.first);
        self.behind.len() < Self::LONG && (stamp | clk | transaction) >> 32 == 0
    }

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
    /// Adds one behind all others, if it `is` one.
    pub fn push_if(&mut self, suspect: Suspect, is: bool) {
        if is {
            self.push_some(1, |_| (suspect, true));
        }
    }

    /// Adds those behind all others that are, of some in order, one at least: without a branch for each, so that what cannot be
    /// foreseen is not guessed.
    #[inline(always)]
    pub fn push_some(&mut self, count: usize, each: impl Fn(usize) -> (Suspect, bool)) {
        if !self.0.last().is_some_and(|block| block.has_room_up_to(each(count - 1).0)) {
            self.begin(each(0).0);
        }
        if let Some(Block { first, behind }) = self.0.last_mut() {
            for (suspect, is) in (0..count).map(each) {
                behind.push_if(suspect.behind(*first).map(|number| number as u32), is);
            }
        }
    }

    /// Begins a block.
    #[cold]
    #[inline(never)]
    fn begin(&mut self, first: Suspect) {
        // Where one was filled, another may be.
        let room = self.0.last().map_or(0, |block| block.behind.len());
        let mut behind = Lane::default();
        behind.reserve(room);
        self.0.push(Block { first, behind });
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

    pub fn count(&self) -> usize {
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
            prop_assert_eq!(all.count(), expected.len());
            prop_assert_eq!(all.iter().collect::<Vec<_>>(), expected);
        }
    }

    #[test]
    fn blocks_are_no_longer_than_that() {
        let mut all = Suspects::default();
        let suspect = |nth| Suspect { stamp: 9 * nth, clk: 3 * nth, transaction: nth };
        (0..20_000).for_each(|nth| all.push_if(suspect(nth), nth % 4 != 0));
        assert!(all.iter().eq((0..20_000).filter(|nth| nth % 4 != 0).map(suspect)));
        assert!(all.0.iter().all(|block| block.behind.len() <= Block::LONG));
    }
}
