//! Transactions that lie in one block as a whole, as most do on a busy bus: nothing of them has to be remembered from one
//! clock to the next, so each is counted with masks in one go and its row is written once.
//!
//! The rows and counts are those of the state machine, to which everything is left that is out of the ordinary.

use super::body::how_stopped;
use super::{DUAL_ADDRESS_CYCLE, Protocol, SPECIAL_CYCLE, Tail, Watched, is_read};
use crate::bits::Backend;
use crate::block::{Block, Word, below, first, range};
use crate::layout::Layout;
use crate::problems::{Suspect, What};
use crate::rows::{Counts, Flag, Termination, Transaction};
use std::ops::Range;

/// The clocks of some transactions by class: no clock is in two of them.
#[derive(Default)]
struct Classes {
    address: u64,
    data: u64,
    stop: u64,
    abort: u64,
    turnaround: u64,
    decode: u64,
    both: u64,
    target: u64,
    initiator: u64,
    inexact: u64,
    bytes: u64,
}

impl Classes {
    #[inline(always)]
    fn add_to(&self, counts: &mut Counts) {
        let clocks = |map: u64| u64::from(map.count_ones());
        counts.address += clocks(self.address);
        counts.data += clocks(self.data);
        counts.stop += clocks(self.stop);
        counts.abort += clocks(self.abort);
        counts.turnaround += clocks(self.turnaround);
        counts.decode += clocks(self.decode);
        counts.both += clocks(self.both);
        counts.target += clocks(self.target);
        counts.initiator += clocks(self.initiator);
        counts.inexact_phases += clocks(self.inexact);
        counts.bytes += self.bytes;
    }
}

/// Whether a bus has only lines of which a transaction can be told in one go.
pub(super) fn is_simple(layout: &Layout, looks_at_phases: bool) -> bool {
    !looks_at_phases && !layout.wide && layout.req64.is_none() && layout.ack64.is_none()
}

/// Where an ordinary transaction ends that begins at clock `start`: the clock behind it, and whether its last data phase ended.
/// That clock has to be in the block, too.
#[inline(always)]
fn end_of(word: &Word, start: u32, clocks: u32) -> Option<(u32, bool)> {
    let released = first(!word.frame, start + 1, clocks);
    let last = first(!word.irdy | word.frame | word.trdy | word.stop, released, clocks);
    if last == clocks {
        return None;
    }
    let at = |map: u64, clock: u32| map >> clock & 1 != 0;
    let ends_well = at(word.irdy & !word.frame, last);
    let end = last + u32::from(ends_well);
    // FRAME# is released while IRDY# is asserted, and IRDY# with the last data phase.
    let is_legal = at(word.irdy, released) && end < clocks && !at(word.irdy, end);
    is_legal.then_some((end, ends_well))
}

impl Protocol {
    /// On an idle bus: the transactions from clock `at` on that lie in the block as a whole, with the idle clocks before each;
    /// the clock behind the last one.
    #[inline(always)]
    pub(super) fn whole<B: Backend>(&mut self, block: &Block<B>, word: &Word, mut at: u32) -> u32 {
        if !self.simple || word.unknown | word.reset != 0 {
            return at;
        }
        let clocks = block.clocks();
        let mut classes = Classes::default();
        loop {
            let start = first(word.frame | word.irdy, at, clocks);
            if start + 2 >= clocks || word.irdy >> start & 1 != 0 {
                break;
            }
            let Some((end, ends_well)) = end_of(word, start, clocks) else { break };
            if !self.one(block, word, &mut classes, start..end, ends_well) {
                break;
            }
            self.counts.idle += u64::from(start - at);
            at = end;
        }
        classes.add_to(&mut self.counts);
        at
    }

    /// One of them, if nothing is special about it.
    #[inline(always)]
    fn one<B: Backend>(
        &mut self,
        block: &Block<B>,
        word: &Word,
        classes: &mut Classes,
        of: Range<u32>,
        ends_well: bool,
    ) -> bool {
        let (start, end) = (of.start, of.end);
        let mut row = self.first_phase(block, word, start);
        if matches!(row.command, Some(DUAL_ADDRESS_CYCLE | SPECIAL_CYCLE)) {
            return false;
        }
        let layout = &self.layout;
        let mask = range(start + 1, end);
        let (irdy, trdy) = (word.irdy & mask, word.trdy & mask);
        let data = irdy & trdy;
        row.flags.also(Flag::Suspect, word.suspect & mask != 0);

        let has_devsel = layout.devsel.is_some();
        let claim = word.devsel & mask;
        let before_claim = mask & below(claim.trailing_zeros());
        let claim_unknown = has_devsel && block.maybe(layout.devsel_unknown) & before_claim != 0;
        let undecoded = if has_devsel { before_claim } else { 0 };
        row.devsel_clks = (claim != 0 && !claim_unknown).then(|| claim.trailing_zeros() - start);

        // How it ends is different from one to the next: to guess the way takes longer than to go all of them.
        let stopped = irdy & word.stop;
        let clock = stopped.trailing_zeros() % 64;
        let at = |map: u64| map >> clock & 1 != 0;
        let devsel_known = has_devsel && !at(block.maybe(layout.devsel_unknown));
        let by_target = how_stopped(at(trdy), devsel_known, at(word.devsel), data & below(clock) != 0);
        let completed = if layout.stop.is_some() { Termination::Completion } else { Termination::Unknown };
        let unclaimed = match (has_devsel, layout.stop.is_some()) {
            (true, _) => (claim == 0) & !claim_unknown,
            (false, true) => trdy | word.stop & mask == 0,
            (false, false) => false,
        };
        let left = if unclaimed { Termination::MasterAbort } else { Termination::Unknown };
        row.termination = [[left, completed], [by_target; 2]][usize::from(stopped != 0)][usize::from(ends_well)];
        let gave_up = row.termination == Termination::Unknown && stopped == 0 && !ends_well && layout.stop.is_some();

        let stop = stopped & !trdy;
        let wait = mask & !data & !stop;
        row.target_wait_clks = u64::from((wait & irdy).count_ones());
        row.initiator_wait_clks = u64::from((wait & !irdy).count_ones());
        let reads = row.command.is_some_and(is_read);
        let turnaround = wait & u64::from(reads) << (start + 1);
        let decode = wait & !turnaround & undecoded;
        let wait = wait & !turnaround & !decode;
        // Of an abort the last clock is what is known as such, and none of the others.
        let abort = if row.termination == Termination::MasterAbort { 1 << (end - 1) } else { 0 };
        classes.address |= 1 << start;
        classes.data |= data;
        classes.stop |= stop;
        classes.abort |= abort;
        classes.turnaround |= turnaround & !abort;
        classes.decode |= decode & !abort;
        classes.both |= wait & !irdy & !trdy & !abort;
        classes.target |= wait & irdy & !abort;
        classes.initiator |= wait & !irdy & trdy & !abort;

        let moved = u64::from(data != 0);
        row.first_data = moved * block.stamp((data | 1 << (end - 1)).trailing_zeros());
        row.last_data = moved * block.stamp(63 - (data | 1 << start).leading_zeros());
        row.data_phases = u64::from(data.count_ones());
        let cbe_unknown = block.maybe(layout.cbe_unknown);
        let has_lanes = B::DATA && !layout.cbe.is_empty();
        let inexact = if has_lanes { data & cbe_unknown } else { data };
        let disabled = if has_lanes { self.beside.disabled_lanes(data & !cbe_unknown, 0) } else { 0 };
        row.bytes = 4 * row.data_phases - disabled;
        row.flags.only(Flag::BytesExact, inexact == 0);
        classes.inexact |= inexact;
        classes.bytes += row.bytes;
        row.end = block.stamp(end - 1);
        row.clocks = u64::from(end - start);
        self.passed(block, row, start..end, gave_up);
        true
    }

    /// The transaction is over; what is said of it afterwards may be in the next block.
    #[inline(always)]
    fn passed<B: Backend>(&mut self, block: &Block<B>, mut row: Transaction, of: Range<u32>, gave_up: bool) {
        let (start, end) = (of.start, of.end);
        // Cut by this transaction: its clocks are over in any case.
        if self.tail.is_some() {
            self.emit_tail();
        }
        let number = self.numbers;
        self.numbers += 1;
        self.after_transaction = Some(row.start_clk + row.clocks);
        self.pcix.burst(row.data_phases);
        let (last, began) = ((self.clk + u64::from(end) - 1, row.end), (row.start_clk, row.start));
        let (perr, serr) = (self.layout.perr, self.layout.serr);
        let to = (end + 2).min(block.clocks());
        let (mut perr_seen, mut serr_seen) = (Watched::default(), Watched::default());
        let watches = B::DATA && (perr.is_some() || serr.is_some());
        if watches && self.beside.has_errors() {
            let speaks = range(start + 2, to);
            perr_seen.watch(self.beside.perr, self.beside.perr_unknown, speaks);
            serr_seen.watch(self.beside.serr, self.beside.serr_unknown, speaks);
            if to == end + 2 {
                row.flags.tell(Flag::Perr, perr_seen.result(perr));
                row.flags.tell(Flag::Serr, serr_seen.result(serr));
            }
        } else if watches && to == end + 2 {
            row.flags.tell(Flag::Perr, perr.map(|_| false));
            row.flags.tell(Flag::Serr, serr.map(|_| false));
        }
        let (suspect, erred) = (row.flags.is(Flag::Suspect), [Flag::Perr, Flag::Serr].map(|line| row.flags.is(line)));
        self.rows.transactions.push(row);
        let told = Suspect { stamp: began.1, clk: began.0, transaction: number };
        self.rows.problems.suspect(told, suspect);
        if gave_up | erred[0] | erred[1] {
            let mut tell = |said: bool, at, what| {
                if said {
                    self.problem(at, what, Some(number));
                }
            };
            tell(gave_up, last, What::GaveUp);
            tell(erred[0], last, What::ParityError);
            tell(erred[1], last, What::SystemError);
        }
        if watches && to < end + 2 {
            self.tail = Some(Tail {
                row: self.rows.transactions.len() - 1,
                number,
                perr: perr_seen,
                serr: serr_seen,
                first_perr: began.0 + 2,
                first_serr: began.0 + 2,
                clocks_left: end + 2 - to,
            });
        }
    }
}
