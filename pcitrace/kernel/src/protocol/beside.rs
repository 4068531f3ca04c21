//! The lines beside the control lines, read once a block for all transactions in it.

use super::Protocol;
use crate::bits::Backend;
use crate::block::{Block, Word};
use crate::layout::Layout;

/// These lines at every clock of a block. Nothing was read of a block without a transaction, nor of lines that were not
/// captured: they read 0.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Beside {
    pub perr: u64,
    pub serr: u64,
    /// PERR# and SERR# have no known level.
    pub perr_unknown: u64,
    pub serr_unknown: u64,
    /// C/BE# high: the lane is disabled in a data phase.
    pub disabled: [u64; 8],
}

impl Beside {
    #[inline(always)]
    pub fn read<B: Backend>(block: &Block<B>, layout: &Layout) -> Self {
        let mut beside = Beside::default();
        if let (Some(perr), unknown) = (layout.perr, layout.perr_unknown) {
            (beside.perr, beside.perr_unknown) = (block.line(perr), block.maybe(unknown));
        }
        if let (Some(serr), unknown) = (layout.serr, layout.serr_unknown) {
            (beside.serr, beside.serr_unknown) = (block.line(serr), block.maybe(unknown));
        }
        if let Some(first) = layout.cbe.first() {
            let mut byte = first.byte;
            let mut plane = block.plane(byte);
            for (disabled, bit) in beside.disabled.iter_mut().zip(&layout.cbe) {
                if bit.byte != byte {
                    byte = bit.byte;
                    plane = block.plane(byte);
                }
                *disabled = block.line_of(plane, bit.mask.leading_zeros(), bit.flip);
            }
        }
        beside
    }

    /// Something may be said by PERR# or SERR#.
    #[inline(always)]
    pub fn has_errors(&self) -> bool {
        self.perr | self.serr | self.perr_unknown | self.serr_unknown != 0
    }

    /// Byte lanes that are disabled in the data phases `low`, of the upper four in those of `high`.
    #[inline(always)]
    pub fn disabled_lanes(&self, low: u64, high: u64) -> u64 {
        let (lower, upper) = self.disabled.split_at(4);
        let count = |lanes: &[u64], phases: u64| -> u32 { lanes.iter().map(|lane| (lane & phases).count_ones()).sum() };
        u64::from(count(lower, low) + if high == 0 { 0 } else { count(upper, high) })
    }
}

impl Protocol {
    #[inline(always)]
    pub(super) fn look_beside<B: Backend>(&mut self, block: &Block<B>, word: &Word) {
        if B::DATA && (word.frame != 0 || self.open.is_some() || self.tail.is_some()) {
            self.beside = Beside::read(block, &self.layout);
        }
    }
}
