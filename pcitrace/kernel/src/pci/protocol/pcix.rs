//! PCI-X on the lines of PCI: what tells it, so that it is refused by its name and not decoded as something else.
//!
//! Ref: PCI-X Addendum 1.0, 6.2 (initialization pattern) and 2.7 (burst transactions).

use super::Protocol;
use crate::pci::word::Word;

/// The pattern on DEVSEL#, STOP# and TRDY# has to be there 10 clocks before RST# rises; so many of them are believed.
const SET_UP: u32 = 4;

/// What was seen of PCI-X so far.
#[derive(Debug, Default, Clone, Copy, serde::Serialize, serde::Deserialize)]
pub struct PciX {
    /// DEVSEL#, STOP# and TRDY# in the clocks of a reset so far, and in how many they were the same.
    pattern: Option<(u8, u32)>,
    /// RST# rose while they said PCI-X.
    mode: bool,
    /// Transactions that moved data more than once, and those with an attribute phase.
    bursts: u64,
    attribute_phases: u64,
}

impl PciX {
    pub fn add(&mut self, later: PciX) {
        self.mode |= later.mode;
        self.bursts += later.bursts;
        self.attribute_phases += later.attribute_phases;
    }

    /// What tells that the bus is PCI-X, if it is. One odd burst is a fault of PCI.
    pub fn told_by(&self) -> Option<String> {
        if self.mode {
            return Some("DEVSEL#, STOP# and TRDY# set its mode when RST# rises".into());
        }
        let PciX { bursts, attribute_phases: odd, .. } = *self;
        (odd >= 2 && 2 * odd > bursts).then(|| format!("{odd} of {bursts} bursts have an attribute phase"))
    }

    #[inline(always)]
    pub(super) fn moved_more_than_once(&mut self, transactions: u64) {
        self.bursts += transactions;
    }
}

impl Protocol {
    /// Clocks `from..to` of a word in which nothing is decoded: a reset may be among them.
    pub(super) fn watch_reset(&mut self, word: &Word, from: u32, to: u32) {
        if word.reset == 0 && self.pcix.pattern.is_none() {
            return;
        }
        for clock in from..to {
            let at = |map: u64| map >> clock & 1 != 0;
            if at(word.reset) {
                let said = u8::from(at(word.devsel)) << 2 | u8::from(at(word.stop)) << 1 | u8::from(at(word.trdy));
                let quiet = !at(word.frame) && !at(word.irdy) && !at(word.unknown);
                self.pcix.pattern = match self.pcix.pattern {
                    Some((before, clocks)) if quiet && before == said => Some((said, clocks + 1)),
                    _ => Some((if quiet { said } else { 0 }, 1)),
                };
            } else if let Some((said, clocks)) = self.pcix.pattern.take() {
                self.pcix.mode |= said != 0 && clocks >= SET_UP;
            }
        }
    }

    /// IRDY# is held after the last data phase of the last transaction. So PCI-X ends a burst, whose FRAME# is released a data
    /// phase earlier; and there an attribute phase is behind the address, so that IRDY# comes two clocks later.
    pub(super) fn watch_attributes(&mut self, word: &Word, at: u32) {
        let moves = (word.trdy & word.irdy & !word.frame) >> at & 1 != 0;
        let Some(row) = self.rows.transactions.last().filter(|_| moves) else { return };
        let waited = matches!(row.initiator_wait_clks, 1..=2) && row.devsel_clks != Some(1);
        self.pcix.attribute_phases += u64::from(waited && row.data_phases > 1);
    }
}
