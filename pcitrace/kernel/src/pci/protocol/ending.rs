//! How a transaction ends, and what may still be said of it afterwards.

use super::{Protocol, SPECIAL_CYCLE, State, Tail, Watched, is_read};
use crate::pci::problems::What;
use crate::pci::rows::{Flag, Termination};
use crate::pci::suspects::Suspect;
use crate::samples::bits::{Backend, Bit};
use crate::samples::block::{Block, below, range};

impl Protocol {
    /// PERR# and SERR# in the two clocks after a transaction, as far as they are in this block.
    #[inline(always)]
    pub(super) fn watch_tail<B: Backend>(&mut self, block: &Block<B>, from: u32) {
        let Some(tail) = block.data(self.tail.as_mut()) else { return };
        let to = (from + tail.clocks_left).min(block.clocks());
        if from >= to {
            return;
        }
        if self.beside.has_errors() {
            let beside = &self.beside;
            let mask = range(from, to);
            let from_clk = |number: u64| !below(number.saturating_sub(self.clk).min(64) as u32);
            tail.perr.watch(beside.perr, beside.perr_unknown, mask & from_clk(tail.first_perr));
            tail.serr.watch(beside.serr, beside.serr_unknown, mask & from_clk(tail.first_serr));
        }
        tail.clocks_left -= to - from;
        if tail.clocks_left == 0 {
            self.emit_tail();
        }
    }

    /// The open transaction ended at the clock before `at`.
    #[inline(always)]
    pub(super) fn finish<B: Backend>(&mut self, block: &Block<B>, at: u32, because: Option<Termination>) {
        let end = if at == 0 { self.last_stamp } else { block.stamp(at - 1) };
        let in_window_before = at == 0 && self.last_clock_in_window_before;
        self.close(end, self.clk + u64::from(at), in_window_before, because);
        self.watch_tail(block, at);
    }

    /// `after`: number of the clock after the last one.
    pub(super) fn close(&mut self, end: u64, after: u64, in_window_before: bool, because: Option<Termination>) {
        let Some(mut open) = self.open.take() else { return };
        // A tail that is still there is cut by this transaction: its clocks are over in any case.
        if self.tail.is_some() {
            self.emit_tail();
        }
        let row = &mut open.row;
        row.end = end;
        row.clocks = after - row.start_clk;
        let unclaimed = match (self.layout.devsel, self.layout.stop) {
            (Some(_), _) => !open.claimed && !open.claim_unknown,
            (None, Some(_)) => !open.answered,
            // Without DEVSEL# and STOP# a retry looks like an abort.
            (None, None) => false,
        };
        let answered_last = self.state == State::Done;
        let termination = because.or(open.stopped).unwrap_or(match (answered_last, row.command) {
            (true, _) if self.layout.stop.is_none() => Termination::Unknown,
            (true, _) => Termination::Completion,
            (false, Some(SPECIAL_CYCLE)) => Termination::SpecialCycle,
            (false, _) if unclaimed => Termination::MasterAbort,
            (false, _) => Termination::Unknown,
        });
        if termination == Termination::MasterAbort || termination == Termination::SpecialCycle && unclaimed {
            // The last clock was counted as a wait (for DEVSEL#, where captured); now it is known to be the abort.
            let counts = match self.windows.last_mut().filter(|_| in_window_before) {
                Some((_, before)) => before,
                None => &mut self.counts,
            };
            let is_turnaround = after == open.address_clk + 2 && row.command.is_some_and(is_read);
            if is_turnaround {
                counts.turnaround -= 1;
            } else if self.layout.devsel.is_some() {
                counts.decode -= 1;
            } else {
                counts.target -= 1;
            }
            counts.abort += 1;
        }
        if self.state == State::Address2 {
            // The real command and the high half of the address did not come.
            row.command = None;
            row.address = None;
            row.flags.tell(Flag::AddressParityOk, None);
        }
        row.termination = termination;
        self.pcix.moved_more_than_once(u64::from(row.data_phases > 1));
        let (start, start_clk, suspect) = (row.start, row.start_clk, row.flags.is(Flag::Suspect));
        let gave_up = because.is_none() && open.stopped.is_none() && !answered_last && self.layout.stop.is_some();
        if gave_up && termination == Termination::Unknown {
            self.problem((after - 1, end), What::GaveUp, Some(open.number));
        }
        if termination == Termination::Truncated {
            self.problem((after - 1, end), What::Truncated, Some(open.number));
        }
        let told = Suspect { stamp: start, clk: start_clk, transaction: open.number };
        self.rows.problems.suspect(told, suspect);
        self.rows.transactions.push(row);
        self.after_transaction = Some(after);
        self.state = State::Idle;
        if self.layout.perr.is_none() && self.layout.serr.is_none() {
            return;
        }
        self.tail = Some(Tail {
            row: self.rows.transactions.len() - 1,
            number: open.number,
            perr: open.perr,
            serr: open.serr,
            first_perr: open.address_clk + 2,
            first_serr: start_clk + 2,
            clocks_left: 2,
        });
    }

    pub(super) fn emit_tail(&mut self) {
        let Some(tail) = self.tail.take() else { return };
        let row = self.rows.transactions.get(tail.row);
        let (end, mut flags) = ((row.start_clk + row.clocks - 1, row.end), row.flags);
        flags.tell(Flag::Perr, tail.perr.result(self.layout.perr));
        flags.tell(Flag::Serr, tail.serr.result(self.layout.serr));
        self.rows.transactions.set_flags(tail.row, flags);
        if flags.is(Flag::Perr) {
            self.problem(end, What::ParityError, Some(tail.number));
        }
        if flags.is(Flag::Serr) {
            self.problem(end, What::SystemError, Some(tail.number));
        }
    }

    /// The next clock, of which `sample` is all that is known here, is the last one that may speak of the tail.
    pub fn last_of_tail(&mut self, sample: &[u8]) {
        if let Some(tail) = &mut self.tail {
            let layout = &self.layout;
            let see = |watched: &mut Watched, line: Option<Bit>, unknown: Option<Bit>| {
                watched.asserted |= line.is_some_and(|line| line.get(sample));
                watched.unknown |= unknown.is_some_and(|unknown| unknown.get(sample));
            };
            see(&mut tail.perr, layout.perr, layout.perr_unknown);
            see(&mut tail.serr, layout.serr, layout.serr_unknown);
        }
        self.emit_tail();
    }

    /// What was still awaited will not come.
    pub(super) fn forget_pending(&mut self) {
        self.emit_tail();
        self.awaits_par = None;
    }
}
