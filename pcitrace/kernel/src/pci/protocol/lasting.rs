//! States of the bus that last: what the lines read in them, and how their clocks are counted without a look at each.

use super::{Protocol, State};
use crate::pci::layout::Layout;
use crate::samples::bits::{Backend, Bit};
use crate::samples::block::{Block, Span, below};
use crate::samples::look::Seen;

/// Lines that were captured, each with whether it is asserted.
pub type Levels = Vec<(Bit, bool)>;

fn captured<const N: usize>(lines: [Option<Bit>; N], asserted: bool) -> impl Iterator<Item = (Bit, bool)> {
    lines.into_iter().flatten().map(move |line| (line, asserted))
}

impl Protocol {
    /// What the lines read while the bus is idle. After such a clock nothing is open, and PAR of the last phase was seen; only
    /// PERR# and SERR# come one clock later than that. So it is where a decoder may start knowing nothing.
    pub fn idle_levels(layout: &Layout) -> Levels {
        captured([Some(layout.frame), Some(layout.irdy), layout.rst, layout.unknown], false).collect()
    }

    /// What they read in the middle of a burst, while each clock moves all bytes of a data phase.
    pub fn burst_levels(layout: &Layout) -> Levels {
        let moving = [Some(layout.frame), Some(layout.irdy), Some(layout.trdy), layout.devsel];
        let quiet = [layout.stop, layout.rst, layout.unknown, layout.perr, layout.serr, layout.cbe_unknown];
        let enabled = layout.cbe.iter().map(|&lane| (lane, false));
        captured(moving, true).chain(captured(quiet, false)).chain(enabled).collect()
    }

    /// Nothing is open or pending: idle clocks need no look.
    #[inline(always)]
    pub fn is_quiet(&self) -> bool {
        self.state == State::Idle && self.tail.is_none() && self.awaits_par.is_none()
    }

    #[inline(always)]
    pub fn skip_idle(&mut self, clocks: u64) {
        self.counts.idle += clocks;
        self.clk += clocks;
    }

    /// Each data phase is looked at: for its row or its parity.
    #[inline(always)]
    pub fn looks_at_phases(&self) -> bool {
        self.looks_at_phases
    }

    /// Bursts can be told by the lines that there are.
    pub fn may_burst(layout: &Layout) -> bool {
        layout.devsel.is_some()
    }

    /// In a burst that has begun.
    #[inline(always)]
    pub fn is_bursting(&self) -> bool {
        self.state == State::Open
            && self.tail.is_none()
            && self.open.as_ref().is_some_and(|open| open.claimed && !open.wide && open.row.data_phases > 0)
    }

    /// Clocks of a burst that end a data phase with all bytes each, and nothing else; the stamp is that of the last.
    #[inline(always)]
    pub fn skip_burst(&mut self, clocks: u64, last: u64) {
        let Some(open) = &mut self.open else { return };
        let row = &mut open.row;
        row.last_data = last;
        row.data_phases += clocks;
        row.bytes += 4 * clocks;
        self.counts.data += clocks;
        self.counts.bytes += 4 * clocks;
        if self.layout.cbe.is_empty() {
            self.counts.inexact_phases += clocks;
        }
        self.clk += clocks;
        self.last_stamp = last;
        self.last_clock_in_window_before = false;
    }

    /// So many clocks in which the bus stays as it was in the two before: idle, or in the middle of a burst up to one behind them.
    pub fn go_on(&mut self, clocks: u64) {
        match self.state {
            _ if clocks == 0 => {}
            State::Idle => self.skip_idle(clocks),
            State::Open => self.skip_burst(clocks, self.last_stamp),
            _ => {
                self.counts.unknown += clocks;
                self.clk += clocks;
            }
        }
    }

    /// Clocks of a burst as [`Protocol::skip_burst`], among the samples from number `from` on that are `seen` to be still, whose
    /// data phases are to be looked at.
    ///
    /// # Safety
    /// As for [`Block::new`], for 64 samples.
    #[inline(always)]
    pub unsafe fn skip_checked<B: Backend>(&mut self, span: &Span, from: usize, seen: &Seen) {
        let edges = seen.clocks & below(seen.still as u32);
        if edges == 0 {
            return;
        }
        // Safety: as the caller says.
        let (block, odd, par) =
            unsafe { (Block::<B>::new(span, from, edges), B::compress(seen.odd, edges), B::compress(seen.par, edges)) };
        self.resolve_par(&block);
        let Some(number) = self.open.as_ref().map(|open| open.number) else { return };
        if self.want_data_phases {
            self.list_burst(&block, number);
        }
        if self.layout.parity.is_some() && self.layout.par.is_some() {
            self.compare_parity(&block, below(block.clocks()), number, odd, par);
        }
        self.skip_burst(block.clocks().into(), block.stamp(block.clocks() - 1));
    }
}
