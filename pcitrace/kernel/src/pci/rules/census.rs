//! How often each control line was asserted, whatever the protocol makes of it: what tells a stuck line from a busy one.

use crate::pci::word::Word;
use crate::samples::block::below;

/// FRAME#, IRDY#, TRDY#, STOP#, DEVSEL#, over the clocks outside RST# in which they have known levels.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Census {
    pub clocks: u64,
    pub asserted: [u64; 5],
    /// Clocks at which the line is not what it was at the clock before.
    pub changes: [u64; 5],
    last: [u64; 5],
    /// A clock was counted before.
    begun: bool,
}

impl Census {
    #[inline(always)]
    pub fn push(&mut self, word: &Word, clocks: u32) {
        let counted = !(word.unknown | word.reset) & below(clocks);
        self.clocks += u64::from(counted.count_ones());
        let lines = [word.frame, word.irdy, word.trdy, word.stop, word.devsel];
        // The first clock of all is no change.
        let compared = counted & if self.begun { !0 } else { !1 };
        for (line, now) in lines.into_iter().enumerate() {
            self.asserted[line] += u64::from((now & counted).count_ones());
            self.changes[line] += u64::from(((now ^ (now << 1 | self.last[line])) & compared).count_ones());
            self.last[line] = now >> (clocks - 1) & 1;
        }
        self.begun = true;
    }
}
