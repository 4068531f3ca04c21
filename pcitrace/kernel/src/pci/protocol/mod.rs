//! The PCI bus protocol: clock words in, transactions and the accounting of every clock out.
//!
//! Ref: PCI Local Bus Specification 2.2, chapter 3 (bus operation); the definitions are in `docs/decoding.md`.
//! A clock word holds up to 64 clocks as one bitmap a line, bit 0 the earliest clock, 1 = asserted. The states below
//! change a few times a transaction; the clocks between two changes are counted with masks.

mod beside;
mod body;
mod ending;
mod group;
mod lasting;
mod pcix;
mod phases;
mod whole;

use crate::pci::layout::Layout;
use crate::pci::problems::{Concerns, Problem, What};
use crate::pci::rows::{Counts, Rows, TakeRows, Termination, Transaction, WindowCounts};
use crate::pci::word::Word;
use crate::samples::bits::{Backend, Bit};
use crate::samples::block::{Block, first};
use beside::Beside;
pub use pcix::PciX;
pub use whole::Whole;

const SPECIAL_CYCLE: u8 = 0x1;
const DUAL_ADDRESS_CYCLE: u8 = 0xd;

/// Interrupt acknowledge, I/O read, memory read, configuration read, memory read multiple, memory read line.
const fn is_read(command: u8) -> bool {
    matches!(command, 0x0 | 0x2 | 0x6 | 0xa | 0xc | 0xe)
}

/// Which way data goes; None for special cycles and reserved commands.
fn reads(command: u8) -> Option<bool> {
    (is_read(command) || matches!(command, 0x3 | 0x7 | 0xb | 0xf)).then(|| is_read(command))
}

/// What the bus was doing before the next clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Out of step: at the start, after a gap, an unknown level, a reset or an illegal sequence.
    Lost,
    Idle,
    /// The first address phase read "dual address cycle": the second one follows.
    Address2,
    /// FRAME# asserted, address phases over.
    Open,
    /// FRAME# released, IRDY# asserted: the last data phase, not ended yet.
    Final,
    /// The last data phase has ended.
    Done,
}

/// The transaction that is on the bus.
#[derive(Debug, Clone)]
struct Open {
    /// As far as it is known.
    row: Transaction,
    number: u64,
    /// Clock number of the last address phase.
    address_clk: u64,
    /// DEVSEL# was seen.
    claimed: bool,
    /// TRDY# or STOP# was seen.
    answered: bool,
    /// What the first clock with IRDY# and STOP# said.
    stopped: Option<Termination>,
    /// DEVSEL# had no known level before the first clock with DEVSEL# asserted.
    claim_unknown: bool,
    wide: bool,
    /// Of the first address phase of two.
    first_parity_ok: Option<bool>,
    perr: Watched,
    serr: Watched,
}

/// Number and first clock of the transaction that is on the bus.
#[derive(Debug, Clone, Copy)]
pub struct OnBus {
    pub number: u64,
    pub start_clk: u64,
}

/// An error line over the clocks in which it speaks of one transaction.
#[derive(Debug, Clone, Copy, Default)]
struct Watched {
    asserted: bool,
    unknown: bool,
}

impl Watched {
    /// The line, and where it has no known level, at the clocks in which it speaks.
    #[inline(always)]
    fn watch(&mut self, line: u64, unknown: u64, clocks: u64) {
        self.asserted |= line & clocks != 0;
        self.unknown |= unknown & clocks != 0;
    }

    fn result(self, line: Option<Bit>) -> Option<bool> {
        line.filter(|_| self.asserted || !self.unknown).map(|_| self.asserted)
    }
}

/// A finished transaction whose PERR# and SERR# may still come.
#[derive(Debug, Clone)]
struct Tail {
    /// Its row in `rows.transactions`.
    row: usize,
    number: u64,
    perr: Watched,
    serr: Watched,
    /// Numbers of the first clocks in which PERR# and SERR# may be about it.
    first_perr: u64,
    first_serr: u64,
    clocks_left: u32,
}

/// Number and stamp of a clock.
type At = (u64, u64);

/// What PAR of the next clock will complete.
#[derive(Debug, Clone, Copy)]
enum AwaitsPar {
    Address {
        odd: bool,
    },
    /// Of AD[31:0] and C/BE[3:0]#, and in a 64-bit data phase of the upper halves; `None` where they are not known.
    Data {
        odd: Option<bool>,
        odd_high: Option<Option<bool>>,
        number: u64,
        stamp: u64,
        clk: u64,
        read: Option<bool>,
    },
}

pub struct Protocol {
    layout: Layout,
    want_data_phases: bool,
    /// Each data phase has to be looked at: for its row or its parity.
    looks_at_phases: bool,
    state: State,
    /// Clocks seen so far; the number of the next one.
    pub clk: u64,
    numbers: u64,
    /// Transactions whose rows were given away.
    drained: u64,
    open: Option<Open>,
    tail: Option<Tail>,
    awaits_par: Option<AwaitsPar>,
    /// Of the present block.
    beside: Beside,
    /// Number of the clock after the last transaction.
    after_transaction: Option<u64>,
    last_stamp: u64,
    pub rows: Rows,
    pub pcix: PciX,
    /// The accounting of the windows before the present one, and of that.
    windows: WindowCounts,
    window: u64,
    counts: Counts,
    /// The last clock was counted in the window before: for the class `abort`, known one clock later.
    last_clock_in_window_before: bool,
}

impl Protocol {
    /// `in_step`: the clock before was idle and nothing from before it is pending.
    pub fn new(layout: Layout, want_data_phases: bool, in_step: bool, window: u64) -> Self {
        let looks_at_phases = want_data_phases || layout.parity.is_some() && layout.par.is_some();
        Protocol {
            looks_at_phases,
            layout,
            want_data_phases,
            state: if in_step { State::Idle } else { State::Lost },
            clk: 0,
            numbers: 0,
            drained: 0,
            open: None,
            tail: None,
            awaits_par: None,
            beside: Beside::default(),
            after_transaction: None,
            last_stamp: 0,
            rows: Rows::default(),
            pcix: PciX::default(),
            windows: Vec::new(),
            window,
            counts: Counts::default(),
            last_clock_in_window_before: false,
        }
    }

    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// How many transactions had begun with a clock of the last block.
    pub fn begun_at(&self, clk: u64) -> u64 {
        let open = self.open.as_ref().filter(|open| open.row.start_clk <= clk);
        open.map_or_else(|| self.drained + self.rows.transactions.begun(clk) as u64, |open| open.number + 1)
    }

    /// The transaction that a clock of the last block is part of, if any.
    pub fn transaction_at(&self, clk: u64) -> Option<u64> {
        if let Some(open) = self.open.as_ref().filter(|open| open.row.start_clk <= clk) {
            return Some(open.number);
        }
        let nth = self.rows.transactions.begun(clk).checked_sub(1)?;
        let row = self.rows.transactions.get(nth);
        (clk < row.start_clk + row.clocks).then(|| self.drained + nth as u64)
    }

    /// The transaction that has begun and not ended yet.
    pub fn on_bus(&self) -> Option<OnBus> {
        self.open.as_ref().map(|open| OnBus { number: open.number, start_clk: open.row.start_clk })
    }

    /// Number of transactions begun so far.
    pub fn transactions(&self) -> u64 {
        self.numbers
    }

    /// Stamp of the first transaction that was not given out yet, or of a data phase that waits for its PAR.
    pub fn oldest_pending(&self) -> Option<u64> {
        let tail = self.tail.as_ref().map(|tail| self.rows.transactions.get(tail.row).start);
        let open = self.open.as_ref().map(|open| open.row.start);
        let phase = self.rows.data_phases.first().map(|phase| phase.stamp);
        [tail, open, phase].into_iter().flatten().min()
    }

    /// The rows before this one will not change any more.
    fn complete_rows(&self) -> usize {
        self.tail.as_ref().map_or(self.rows.transactions.len(), |tail| tail.row)
    }

    pub fn begin_window(&mut self, number: u64) {
        self.end_window();
        self.window = number;
        self.last_clock_in_window_before = true;
    }

    /// A window without a clock leaves nothing.
    fn end_window(&mut self) {
        let counts = std::mem::take(&mut self.counts);
        if counts != Counts::default() {
            self.windows.push((self.window, counts));
        }
    }

    /// The accounting of the windows that are over, but the last: its last clock may turn out to be an abort.
    pub fn take_windows(&mut self) -> WindowCounts {
        let over = self.windows.len().saturating_sub(1);
        self.windows.drain(..over).collect()
    }

    /// The accounting of all windows.
    pub fn into_windows(mut self) -> WindowCounts {
        self.end_window();
        self.windows
    }

    /// One block of clocks.
    ///
    /// The states follow each other as in a transaction; each passes on the first clock that it left, and only where a
    /// state repeats does it go round again.
    #[inline(always)]
    pub fn push<B: Backend>(&mut self, block: &Block<B>, word: &Word) {
        let n = block.clocks();
        if n == 0 {
            return;
        }
        self.look_beside(block, word);
        self.resolve_par(block);
        self.watch_tail(block, 0);
        let mut at = 0;
        loop {
            if self.state == State::Lost {
                at = self.regain(*block, *word, at);
            }
            if self.state == State::Idle {
                at = self.idle(block, word, at);
            }
            if self.state == State::Address2 && at < n {
                at = self.address2(*block, *word, at);
            }
            if matches!(self.state, State::Open | State::Final) && at < n {
                at = self.open(block, word, at);
            }
            if self.state == State::Done && at < n {
                at = self.done(block, word, at);
            }
            if at >= n {
                break;
            }
        }
        self.clk += u64::from(n);
        self.last_stamp = block.stamp(n - 1);
        self.last_clock_in_window_before = false;
    }

    /// Looks for a clock from `at` on from which decoding can start.
    #[cold]
    #[inline(never)]
    fn regain<B: Backend>(&mut self, block: Block<B>, word: Word, at: u32) -> u32 {
        let bad = word.unknown | word.reset;
        let synced = first(!(word.frame | word.irdy | bad), at, block.clocks());
        if self.clk == 0 && at == 0 && synced > 0 && bad & 1 == 0 {
            self.problem(self.at(&block, 0), What::StartsInside, None);
        }
        self.counts.unknown += u64::from(synced - at);
        self.watch_reset(&word, at, (synced + 1).min(block.clocks()));
        if synced < block.clocks() {
            self.state = State::Idle;
        }
        synced
    }

    #[inline(always)]
    fn idle<B: Backend>(&mut self, block: &Block<B>, word: &Word, at: u32) -> u32 {
        let bad = word.unknown | word.reset;
        let next = first(word.frame | word.irdy | bad, at, block.clocks());
        self.counts.idle += u64::from(next - at);
        if next == block.clocks() {
            return next;
        }
        let clock = 1 << next;
        if bad & clock != 0 {
            self.lose(*block, *word, next);
        } else if word.irdy & clock != 0 {
            // IRDY# without an address phase one clock before: the address was missed.
            self.problem(self.at(block, next), What::IrdyWithoutAddress, None);
            self.lose(*block, *word, next);
        } else {
            self.address_phase(block, word, next);
        }
        next + 1
    }

    #[cold]
    #[inline(never)]
    fn address2<B: Backend>(&mut self, block: Block<B>, word: Word, at: u32) -> u32 {
        let clock = 1 << at;
        if (word.unknown | word.reset) & clock != 0 {
            self.lose(block, word, at);
        } else if word.frame & clock == 0 {
            self.illegal(block, word, at, What::FrameReleasedInDac);
            if self.state == State::Idle {
                return at;
            }
        } else {
            self.second_address_phase(&block, &word, at);
        }
        at + 1
    }

    /// FRAME# is asserted, or was released and the last data phase goes on.
    #[inline(always)]
    fn open<B: Backend>(&mut self, block: &Block<B>, word: &Word, at: u32) -> u32 {
        let bad = word.unknown | word.reset;
        let end = block.clocks();
        let was_open = self.state == State::Open;
        let released = if was_open { first(!word.frame | bad, at, end) } else { at };
        let next = first(!word.irdy | word.frame | word.trdy | word.stop | bad, released, end);
        let ends_well = next < end && (word.irdy & !word.frame & !bad) >> next & 1 != 0;
        self.body(block, word, at, next + u32::from(ends_well));
        if released < end {
            self.state = if ends_well { State::Done } else { State::Final };
        }
        if ends_well {
            return next + 1;
        }
        if next == end {
            return next;
        }
        let clock = 1 << next;
        if bad & clock != 0 {
            self.lose(*block, *word, next);
        } else if was_open && next == released {
            self.illegal(*block, *word, next, What::FrameWithoutIrdy);
            return next;
        } else if word.irdy & clock == 0 {
            // IRDY# released without TRDY# or STOP#: nobody answered.
            self.finish(block, next, None);
            return next;
        } else {
            self.illegal(*block, *word, next, What::FrameReturned);
        }
        next + 1
    }

    /// The transaction ended with the clock before `at`.
    #[inline(always)]
    fn done<B: Backend>(&mut self, block: &Block<B>, word: &Word, at: u32) -> u32 {
        self.finish(block, at, None);
        let clock = 1 << at;
        if (word.unknown | word.reset) & clock == 0 && word.irdy & clock != 0 {
            let number = Some(self.numbers - 1);
            self.problem(self.at(block, at), What::IrdyAfterLastPhase, number);
            self.watch_attributes(word, at);
            self.lose(*block, *word, at);
            return at + 1;
        }
        at
    }

    #[cold]
    #[inline(never)]
    fn problem(&mut self, (clk, stamp): At, what: What, transaction: Option<u64>) {
        let concerns = transaction.map_or(Concerns::NoneAfter(self.numbers), Concerns::Transaction);
        let problem = Problem { stamp, what, concerns, lines: 0, first_clk: clk, last_clk: clk, count: 1 };
        self.rows.problems.push(problem);
    }

    /// Number and stamp of a clock of the block.
    fn at<B: Backend>(&self, block: &Block<B>, clock: u32) -> At {
        (self.clk + u64::from(clock), block.stamp(clock))
    }

    /// The clock at `at` cannot be used: whatever is open ends at the clock before.
    #[cold]
    #[inline(never)]
    fn lose<B: Backend>(&mut self, block: Block<B>, word: Word, at: u32) {
        let reset = word.reset >> at & 1 != 0;
        if self.open.is_some() {
            self.finish(&block, at, Some(Termination::Truncated));
        }
        if word.unknown >> at & 1 != 0 && !reset {
            self.problem(self.at(&block, at), What::UnknownLevel, None);
        }
        self.counts.unknown += 1;
        self.state = State::Lost;
    }

    /// The open transaction broke the protocol at clock `at` and ends at the clock before.
    #[cold]
    #[inline(never)]
    fn illegal<B: Backend>(&mut self, block: Block<B>, word: Word, at: u32, what: What) {
        let number = self.open.as_ref().map(|open| open.number);
        self.problem(self.at(&block, at), what, number);
        self.finish(&block, at, Some(Termination::Unknown));
        if (word.frame | word.irdy) >> at & 1 != 0 {
            self.lose(block, word, at);
        }
    }

    /// Nothing is known between the last clock and the next one.
    pub fn gap(&mut self, stamp: u64) {
        self.problem((self.clk, stamp), What::Gap, None);
        self.break_off();
        self.state = State::Lost;
        self.after_transaction = None;
    }

    /// No clock follows.
    pub fn break_off(&mut self) {
        let because = (self.state != State::Done).then_some(Termination::Truncated);
        self.close(self.last_stamp, self.clk, self.last_clock_in_window_before, because);
        self.forget_pending();
    }

    /// Bytes of the rows that were not given away.
    pub fn waiting(&self) -> usize {
        let rows = &self.rows;
        rows.transactions.bytes() + rows.data_phases.bytes() + size_of_val(&rows.events[..])
    }

    /// Gives away the rows that will not change any more.
    pub fn drain(&mut self, taker: &mut impl TakeRows) {
        let transactions = self.complete_rows();
        let awaited = usize::from(matches!(self.awaits_par, Some(AwaitsPar::Data { .. })));
        let data_phases = self.rows.data_phases.len().saturating_sub(awaited);
        let rows = &mut self.rows;
        let complete = rows.transactions.some(0..transactions);
        taker.take(self.drained, complete, rows.data_phases.some(0..data_phases), &rows.events);
        rows.events.clear();
        rows.transactions.forget(transactions);
        rows.data_phases.forget(data_phases);
        self.drained += transactions as u64;
        if let Some(tail) = &mut self.tail {
            tail.row -= transactions;
        }
    }
}
