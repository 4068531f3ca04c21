//! The lines beside the control lines, read once a block for all transactions in it.

use super::Protocol;
use crate::pci::layout::Layout;
use crate::pci::word::Word;
use crate::samples::bits::{Backend, Bit};
use crate::samples::block::Block;

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
    /// PAR, where there is something that it makes even.
    pub par: u64,
}

/// Lines of a block of which several lie in one byte of a sample: that is read once for neighbours.
struct Lines<'a, 'b, B: Backend> {
    block: &'b Block<'a, B>,
    byte: usize,
    plane: B::Plane,
}

impl<'a, 'b, B: Backend> Lines<'a, 'b, B> {
    #[inline(always)]
    fn of(block: &'b Block<'a, B>, byte: usize) -> Self {
        Lines { block, byte, plane: block.plane(byte) }
    }

    #[inline(always)]
    fn line(&mut self, bit: Bit) -> u64 {
        if bit.byte != self.byte {
            *self = Lines::of(self.block, bit.byte);
        }
        self.block.line_of(self.plane, bit.mask.leading_zeros(), bit.flip)
    }
}

impl Beside {
    #[inline(always)]
    pub fn read<B: Backend>(block: &Block<B>, layout: &Layout) -> Self {
        let mut beside = Beside::default();
        let par = layout.par.filter(|_| layout.parity.is_some());
        let lines = [layout.perr, layout.serr, layout.cbe.first().copied(), par];
        let Some(first) = lines.into_iter().flatten().next() else { return beside };
        let mut lines = Lines::of(block, first.byte);
        if let (Some(perr), unknown) = (layout.perr, layout.perr_unknown) {
            (beside.perr, beside.perr_unknown) = (lines.line(perr), block.maybe(unknown));
        }
        if let (Some(serr), unknown) = (layout.serr, layout.serr_unknown) {
            (beside.serr, beside.serr_unknown) = (lines.line(serr), block.maybe(unknown));
        }
        for (disabled, &bit) in beside.disabled.iter_mut().zip(&layout.cbe) {
            *disabled = lines.line(bit);
        }
        if let Some(par) = par {
            beside.par = lines.line(par);
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
