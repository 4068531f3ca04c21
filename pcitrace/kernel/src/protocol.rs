//! The PCI bus protocol: clock words in, transactions and the accounting of every clock out.
//!
//! Ref: PCI Local Bus Specification 2.2, chapter 3 (bus operation); the definitions are in `docs/decoding.md`.
//! A clock word holds up to 64 clocks as one bitmap a line, bit 0 the earliest clock, 1 = asserted. The states below
//! change a few times a transaction; the clocks between two changes are counted with masks.

use crate::bits::{Backend, Bit};
use crate::layout::Layout;
use crate::rows::{Counts, DataPhase, Problem, ProblemKind, Rows, Termination, Transaction, WindowCounts};
use std::marker::PhantomData;

const SPECIAL_CYCLE: u8 = 0x1;
const DUAL_ADDRESS_CYCLE: u8 = 0xd;

/// Interrupt acknowledge, I/O read, memory read, configuration read, memory read multiple, memory read line.
fn is_read(command: u8) -> bool {
    matches!(command, 0x0 | 0x2 | 0x6 | 0xa | 0xc | 0xe)
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

/// The clocks of one 64-sample block and the way back to the samples they came from.
pub struct Block<'a, B> {
    /// From the block's first sample on; 64 samples at least.
    pub data: &'a [u8],
    pub unit: usize,
    /// Samples that are clocks.
    pub edges: u64,
    /// Stamp of the block's first sample, or the stamps of its samples.
    pub stamps: Stamps<'a>,
    /// The sample of the clock before this block, from its first byte on.
    pub previous: Option<&'a [u8]>,
    pub backend: PhantomData<B>,
}

#[derive(Debug, Clone, Copy)]
pub enum Stamps<'a> {
    From(u64),
    Listed(&'a [u64]),
}

impl Stamps<'_> {
    #[inline(always)]
    pub fn at(&self, sample: usize) -> u64 {
        match self {
            Stamps::From(first) => first + sample as u64,
            Stamps::Listed(stamps) => stamps[sample],
        }
    }
}

impl<B: Backend> Block<'_, B> {
    #[inline(always)]
    fn clocks(&self) -> u32 {
        self.edges.count_ones()
    }

    /// The line at every clock of the block.
    #[inline(always)]
    pub fn line(&self, bit: Bit) -> u64 {
        // Safety: `data` holds 64 samples, and a layout's bits lie within the unit.
        unsafe {
            let plane = B::plane(self.data.as_ptr(), self.unit, bit.byte);
            B::compress(B::bitmap(plane, bit.mask) ^ bit.flip, self.edges)
        }
    }

    #[inline(always)]
    fn maybe(&self, bit: Option<Bit>) -> u64 {
        match bit {
            Some(bit) => self.line(bit),
            None => 0,
        }
    }

    /// Byte lanes that C/BE# disables in the data phases `data`, in those of `wide` the upper four too.
    #[inline(always)]
    fn disabled_lanes(&self, layout: &Layout, data: u64, wide: u64) -> u64 {
        let known_low = data & !self.maybe(layout.cbe_unknown);
        let known_high = wide & !self.maybe(layout.cbe_high_unknown);
        let lanes = if wide == 0 { 4 } else { layout.cbe.len() };
        let mut disabled = 0;
        let mut byte = layout.cbe[0].byte;
        // Safety: as in `line`.
        let mut plane = unsafe { B::plane(self.data.as_ptr(), self.unit, byte) };
        for (lane, bit) in layout.cbe[..lanes].iter().enumerate() {
            if bit.byte != byte {
                byte = bit.byte;
                // Safety: as in `line`.
                plane = unsafe { B::plane(self.data.as_ptr(), self.unit, byte) };
            }
            // Safety: as in `line`.
            let high = unsafe { B::compress(B::bitmap(plane, bit.mask) ^ bit.flip, self.edges) };
            let phases = if lane < 4 { known_low } else { known_high };
            disabled += u64::from((high & phases).count_ones());
        }
        disabled
    }

    #[inline(always)]
    fn position(&self, clock: u32) -> usize {
        // Safety: the backend fits the processor.
        unsafe { B::expand(1 << clock, self.edges) }.trailing_zeros() as usize
    }

    #[inline(always)]
    fn sample(&self, clock: u32) -> &[u8] {
        &self.data[self.position(clock) * self.unit..]
    }

    #[inline(always)]
    fn stamp(&self, clock: u32) -> u64 {
        self.stamps.at(self.position(clock))
    }

    #[inline(always)]
    fn sample_before(&self, clock: u32) -> Option<&[u8]> {
        match clock {
            0 => self.previous,
            _ => Some(self.sample(clock - 1)),
        }
    }
}

/// The control lines at every clock of a block, 1 = asserted.
#[derive(Debug, Clone, Copy)]
pub struct Word {
    pub frame: u64,
    pub irdy: u64,
    pub trdy: u64,
    pub stop: u64,
    pub devsel: u64,
    /// No known level on FRAME#, IRDY#, TRDY# or STOP#.
    pub unknown: u64,
    pub reset: u64,
    /// A control line differs between the last two samples before the edge.
    pub suspect: u64,
}

/// Clocks `from..to` of a word.
#[inline(always)]
fn range(from: u32, to: u32) -> u64 {
    below(to) & !below(from)
}

#[inline(always)]
fn below(clock: u32) -> u64 {
    if clock >= 64 { !0 } else { (1 << clock) - 1 }
}

/// First clock of `map` at or after `from`, or `end`.
#[inline(always)]
fn first(map: u64, from: u32, end: u32) -> u32 {
    (map & !below(from)).trailing_zeros().min(end)
}

/// The transaction that is on the bus.
#[derive(Debug, Clone)]
struct Open {
    /// Its row in `rows.transactions`.
    row: usize,
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

/// An error line over the clocks in which it speaks of one transaction.
#[derive(Debug, Clone, Copy, Default)]
struct Watched {
    asserted: bool,
    unknown: bool,
}

impl Watched {
    #[inline(always)]
    fn watch<B: Backend>(&mut self, block: &Block<B>, line: Option<Bit>, unknown: Option<Bit>, clocks: u64) {
        if let Some(line) = line.filter(|_| clocks != 0) {
            self.asserted |= block.line(line) & clocks != 0;
            self.unknown |= block.maybe(unknown) & clocks != 0;
        }
    }

    fn result(self, line: Option<Bit>) -> Option<bool> {
        line.filter(|_| self.asserted || !self.unknown).map(|_| self.asserted)
    }
}

/// A finished transaction whose PERR# and SERR# may still come.
#[derive(Debug, Clone)]
struct Tail {
    row: usize,
    number: u64,
    perr: Watched,
    serr: Watched,
    /// Numbers of the first clocks in which PERR# and SERR# may be about it.
    first_perr: u64,
    first_serr: u64,
    clocks_left: u32,
}

/// What PAR of the next clock will complete.
#[derive(Debug, Clone, Copy)]
enum AwaitsPar {
    Address { odd: bool },
    Data { odd: bool, number: u64, stamp: u64 },
}

pub struct Protocol {
    layout: Layout,
    want_data_phases: bool,
    state: State,
    /// Clocks seen so far; the number of the next one.
    pub clk: u64,
    numbers: u64,
    open: Option<Open>,
    tail: Option<Tail>,
    awaits_par: Option<AwaitsPar>,
    /// Number of the clock after the last transaction.
    after_transaction: Option<u64>,
    last_stamp: u64,
    pub rows: Rows,
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
        Protocol {
            layout,
            want_data_phases,
            state: if in_step { State::Idle } else { State::Lost },
            clk: 0,
            numbers: 0,
            open: None,
            tail: None,
            awaits_par: None,
            after_transaction: None,
            last_stamp: 0,
            rows: Rows::default(),
            windows: Vec::new(),
            window,
            counts: Counts::default(),
            last_clock_in_window_before: false,
        }
    }

    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Nothing is open or pending: idle clocks need no look.
    #[inline(always)]
    pub fn is_quiet(&self) -> bool {
        self.state == State::Idle && self.tail.is_none() && self.awaits_par.is_none()
    }

    /// Number of transactions begun so far.
    pub fn transactions(&self) -> u64 {
        self.numbers
    }

    /// Stamp of the first transaction that was not given out yet, or of a data phase that waits for its PAR.
    pub fn oldest_pending(&self) -> Option<u64> {
        let transaction = self.rows.transactions.get(self.complete_rows()).map(|row| row.start);
        let phase = self.rows.data_phases.first().map(|phase| phase.stamp);
        transaction.into_iter().chain(phase).min()
    }

    /// The rows before this one will not change any more.
    fn complete_rows(&self) -> usize {
        let tail = self.tail.as_ref().map(|tail| tail.row);
        let open = self.open.as_ref().map(|open| open.row);
        tail.or(open).unwrap_or(self.rows.transactions.len())
    }

    pub fn begin_window(&mut self, number: u64) {
        let before = std::mem::replace(&mut self.window, number);
        self.windows.push((before, std::mem::take(&mut self.counts)));
        self.last_clock_in_window_before = true;
    }

    /// The accounting of all windows.
    pub fn into_windows(mut self) -> WindowCounts {
        self.windows.push((self.window, self.counts));
        self.windows
    }

    #[inline(always)]
    pub fn skip_idle(&mut self, clocks: u64) {
        self.counts.idle += clocks;
        self.clk += clocks;
    }

    /// In a burst that has begun, and nobody asks for its single data phases.
    #[inline(always)]
    pub fn is_bursting(&self) -> bool {
        let listed = self.want_data_phases || self.layout.parity.is_some() && self.layout.par.is_some();
        let begun = |open: &Open| open.claimed && !open.wide && self.rows.transactions[open.row].data_phases > 0;
        self.state == State::Open
            && !listed
            && self.tail.is_none()
            && self.awaits_par.is_none()
            && self.open.as_ref().is_some_and(begun)
    }

    /// Clocks of a burst that end a data phase with all bytes each, and nothing else; the stamp is that of the last.
    #[inline(always)]
    pub fn skip_burst(&mut self, clocks: u64, last: u64) {
        let Some(open) = &mut self.open else { return };
        let row = &mut self.rows.transactions[open.row];
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

    /// One block of clocks.
    #[inline(always)]
    pub fn push<B: Backend>(&mut self, block: &Block<B>, word: &Word) {
        let n = block.clocks();
        if n == 0 {
            return;
        }
        self.resolve_par(block);
        self.watch_tail(block, 0);
        let bad = word.unknown | word.reset;
        let mut at = 0;
        while at < n {
            at = match self.state {
                State::Lost => {
                    let synced = first(!(word.frame | word.irdy | bad), at, n);
                    if self.clk == 0 && at == 0 && synced > 0 && bad & 1 == 0 {
                        self.problem(block.stamp(0), ProblemKind::StartsInside, None, STARTS_INSIDE);
                    }
                    self.counts.unknown += u64::from(synced - at);
                    if synced < n {
                        self.state = State::Idle;
                    }
                    synced
                }
                State::Idle => {
                    let next = first(word.frame | word.irdy | bad, at, n);
                    self.counts.idle += u64::from(next - at);
                    if next == n {
                        break;
                    }
                    let clock = 1 << next;
                    if bad & clock != 0 {
                        self.lose(block, word, next);
                    } else if word.irdy & clock != 0 {
                        // IRDY# without an address phase one clock before: the address was missed.
                        self.problem(block.stamp(next), ProblemKind::IllegalSequence, None, IRDY_WITHOUT_ADDRESS);
                        self.lose(block, word, next);
                    } else {
                        self.address_phase(block, word, next);
                    }
                    next + 1
                }
                State::Address2 => {
                    let clock = 1 << at;
                    if bad & clock != 0 {
                        self.lose(block, word, at);
                    } else if word.frame & clock == 0 {
                        self.illegal(block, word, at, FRAME_IN_DAC);
                        if self.state == State::Idle {
                            continue;
                        }
                    } else {
                        self.second_address_phase(block, word, at);
                    }
                    at + 1
                }
                State::Open => {
                    let next = first(!word.frame | bad, at, n);
                    let ends_well = next < n && (word.irdy & !bad) >> next & 1 != 0;
                    self.body(block, word, at, next + u32::from(ends_well));
                    if next == n {
                        break;
                    }
                    let clock = 1 << next;
                    if bad & clock != 0 {
                        self.lose(block, word, next);
                    } else if ends_well {
                        // FRAME# high, IRDY# low: the last data phase.
                        self.state = if (word.trdy | word.stop) & clock != 0 { State::Done } else { State::Final };
                    } else {
                        self.illegal(block, word, next, FRAME_WITHOUT_IRDY);
                        at = next;
                        continue;
                    }
                    next + 1
                }
                State::Final => {
                    let next = first(!word.irdy | word.frame | word.trdy | word.stop | bad, at, n);
                    self.body(block, word, at, next);
                    if next == n {
                        break;
                    }
                    let clock = 1 << next;
                    if bad & clock != 0 {
                        self.lose(block, word, next);
                    } else if word.irdy & clock == 0 {
                        // IRDY# released without TRDY# or STOP#: nobody answered.
                        self.finish(block, next, None);
                        at = next;
                        continue;
                    } else if word.frame & clock != 0 {
                        self.illegal(block, word, next, FRAME_RETURNED);
                    } else {
                        self.body(block, word, next, next + 1);
                        self.state = State::Done;
                    }
                    next + 1
                }
                State::Done => {
                    let clock = 1 << at;
                    self.finish(block, at, None);
                    if bad & clock == 0 && word.irdy & clock != 0 {
                        self.problem(
                            block.stamp(at),
                            ProblemKind::IllegalSequence,
                            Some(self.numbers - 1),
                            IRDY_AFTER_LAST_PHASE,
                        );
                        self.lose(block, word, at);
                        at + 1
                    } else {
                        at
                    }
                }
            };
        }
        self.clk += u64::from(n);
        self.last_stamp = block.stamp(n - 1);
        self.last_clock_in_window_before = false;
    }

    #[inline(always)]
    fn problem(&mut self, stamp: u64, kind: ProblemKind, transaction: Option<u64>, text: &'static str) {
        self.rows.problems.push(Problem { stamp, kind, transaction, text });
    }

    /// The clock at `at` cannot be used: whatever is open ends at the clock before.
    #[inline(always)]
    fn lose<B: Backend>(&mut self, block: &Block<B>, word: &Word, at: u32) {
        let reset = word.reset >> at & 1 != 0;
        if self.open.is_some() {
            self.finish(block, at, Some(Termination::Truncated));
        }
        if word.unknown >> at & 1 != 0 && !reset {
            self.problem(block.stamp(at), ProblemKind::UnknownLevel, None, UNKNOWN_LEVEL);
        }
        self.counts.unknown += 1;
        self.state = State::Lost;
    }

    /// The open transaction broke the protocol at clock `at` and ends at the clock before.
    #[inline(always)]
    fn illegal<B: Backend>(&mut self, block: &Block<B>, word: &Word, at: u32, text: &'static str) {
        let number = self.open.as_ref().map(|open| open.number);
        self.problem(block.stamp(at), ProblemKind::IllegalSequence, number, text);
        self.finish(block, at, Some(Termination::Unknown));
        if (word.frame | word.irdy) >> at & 1 != 0 {
            self.lose(block, word, at);
        }
    }

    /// FRAME# asserted on an idle bus (or in the clock after a transaction): the address phase.
    #[inline(always)]
    fn address_phase<B: Backend>(&mut self, block: &Block<B>, word: &Word, at: u32) {
        let sample = block.sample(at);
        let layout = &self.layout;
        let known = |unknown: Option<Bit>| unknown.is_none_or(|bit| !bit.get(sample));
        let start_clk = self.clk + u64::from(at);
        let command =
            layout.cbe_word.as_ref().filter(|_| known(layout.cbe_unknown)).map(|cbe| (cbe.get(sample) & 0xf) as u8);
        // Without a known command it may be half of an address.
        let whole = known(layout.ad_unknown) && known(layout.cbe_unknown);
        let address = layout.ad.as_ref().filter(|_| whole).map(|ad| ad.get(sample));
        let initiator = layout
            .grants
            .as_ref()
            .zip(block.sample_before(at))
            .filter(|(_, before)| layout.grants_unknown.is_none_or(|bit| !bit.get(before)))
            .map(|(grants, before)| grants.get(before))
            .filter(|grants| grants.is_power_of_two())
            .map(|grants| grants.trailing_zeros() as u8);
        let is_dual = command == Some(DUAL_ADDRESS_CYCLE);
        let stamp = block.stamp(at);
        let timing = layout.clk.is_some();
        let wide = match (layout.req64, layout.ack64) {
            (Some(req64), Some(_)) => req64.get(sample),
            (None, Some(_)) => true,
            (Some(req64), None) => layout.wide && req64.get(sample),
            (None, None) => layout.wide,
        };
        self.rows.transactions.push(Transaction {
            start: stamp,
            end: stamp,
            start_clk,
            clocks: 1,
            command,
            dac: command.map(|_| is_dual),
            address,
            address_phases: 1,
            data_phases: 0,
            first_data: 0,
            last_data: 0,
            bytes: 0,
            bytes_exact: true,
            target_wait_clks: 0,
            initiator_wait_clks: 0,
            devsel_clks: None,
            termination: Termination::Unknown,
            initiator,
            fast_back_to_back: self.after_transaction == Some(start_clk),
            address_parity_ok: None,
            perr: None,
            serr: None,
            suspect: timing.then_some(word.suspect >> at & 1 != 0),
        });
        self.open = Some(Open {
            row: self.rows.transactions.len() - 1,
            number: self.numbers,
            address_clk: start_clk,
            claimed: false,
            answered: false,
            stopped: None,
            claim_unknown: false,
            wide,
            first_parity_ok: None,
            perr: Watched::default(),
            serr: Watched::default(),
        });
        self.numbers += 1;
        self.counts.address += 1;
        self.state = if is_dual { State::Address2 } else { State::Open };
        self.address_parity(block, at);
    }

    /// The second clock of a dual address cycle: the real command and the high half of the address.
    #[inline(always)]
    fn second_address_phase<B: Backend>(&mut self, block: &Block<B>, word: &Word, at: u32) {
        let sample = block.sample(at);
        let known = |unknown: Option<Bit>| unknown.is_none_or(|bit| !bit.get(sample));
        let layout = &self.layout;
        let command =
            layout.cbe_word.as_ref().filter(|_| known(layout.cbe_unknown)).map(|cbe| (cbe.get(sample) & 0xf) as u8);
        let high = layout.ad.as_ref().filter(|_| known(layout.ad_unknown)).map(|ad| ad.get(sample));
        let address_clk = self.clk + u64::from(at);
        if let Some(open) = &mut self.open {
            let row = &mut self.rows.transactions[open.row];
            row.command = command;
            row.address = row.address.zip(high).map(|(low, high)| low | high << 32);
            row.address_phases = 2;
            open.first_parity_ok = row.address_parity_ok.take();
            open.address_clk = address_clk;
            if let Some(suspect) = &mut row.suspect {
                *suspect |= word.suspect >> at & 1 != 0;
            }
        }
        self.counts.address += 1;
        self.state = State::Open;
        self.address_parity(block, at);
    }

    /// PAR of the next clock makes AD[31:0], C/BE[3:0]# and PAR even (PCI 2.2, 3.7.1).
    #[inline(always)]
    fn address_parity<B: Backend>(&mut self, block: &Block<B>, at: u32) {
        let (Some(parity), Some(_)) = (&self.layout.parity, self.layout.par) else {
            return;
        };
        let sample = block.sample(at);
        if [self.layout.ad_unknown, self.layout.cbe_unknown].into_iter().flatten().any(|bit| bit.get(sample)) {
            return;
        }
        let odd = parity.is_odd(sample);
        if at + 1 < block.clocks() {
            self.check_par(block.sample(at + 1), AwaitsPar::Address { odd });
        } else {
            self.awaits_par = Some(AwaitsPar::Address { odd });
        }
    }

    #[inline(always)]
    fn resolve_par<B: Backend>(&mut self, block: &Block<B>) {
        if let Some(awaited) = self.awaits_par.take() {
            self.check_par(block.sample(0), awaited);
        }
    }

    /// `sample` is the clock that carries PAR.
    fn check_par(&mut self, sample: &[u8], awaited: AwaitsPar) {
        let Some(par) = self.layout.par else { return };
        if self.layout.par_unknown.is_some_and(|bit| bit.get(sample)) {
            return;
        }
        let par = par.get(sample);
        match awaited {
            AwaitsPar::Address { odd } => {
                let Some(open) = &mut self.open else { return };
                let ok = odd == par;
                let row = &mut self.rows.transactions[open.row];
                row.address_parity_ok = match row.address_phases {
                    1 => Some(ok),
                    _ => open.first_parity_ok.map(|first| first && ok),
                };
                let (stamp, number) = (row.start, open.number);
                if !ok {
                    self.problem(stamp, ProblemKind::AddressParity, Some(number), ADDRESS_PARITY);
                }
            }
            AwaitsPar::Data { odd, number, stamp } => {
                let ok = odd == par;
                if let Some(phase) = self.rows.data_phases.last_mut() {
                    phase.parity_ok = Some(ok);
                }
                if !ok {
                    self.problem(stamp, ProblemKind::DataParity, Some(number), DATA_PARITY);
                }
            }
        }
    }

    /// Clocks `from..to` belong to the open transaction, after its address phases.
    #[inline(always)]
    fn body<B: Backend>(&mut self, block: &Block<B>, word: &Word, from: u32, to: u32) {
        if from >= to {
            return;
        }
        let clk = self.clk;
        let Some(open) = &mut self.open else { return };
        let row = &mut self.rows.transactions[open.row];
        let mask = range(from, to);
        let (irdy, trdy) = (word.irdy & mask, word.trdy & mask);
        let data = irdy & trdy;

        if let Some(suspect) = &mut row.suspect {
            *suspect |= word.suspect & mask != 0;
        }
        let stopped = irdy & word.stop;
        if stopped != 0 && open.stopped.is_none() {
            let clock = stopped.trailing_zeros();
            let moved_before = row.data_phases > 0 || data & below(clock) != 0;
            let at = |map: u64| map >> clock & 1 != 0;
            let devsel_known = self.layout.devsel.is_some() && !at(block.maybe(self.layout.devsel_unknown));
            open.stopped = Some(match (at(trdy), devsel_known, at(word.devsel)) {
                (true, _, _) => Termination::DisconnectWithData,
                (false, false, _) => Termination::Unknown,
                (false, true, false) => Termination::TargetAbort,
                (false, true, true) if moved_before => Termination::DisconnectWithoutData,
                (false, true, true) => Termination::Retry,
            });
        }
        open.answered |= (trdy | word.stop & mask) != 0;
        let mut undecoded = 0;
        if !open.claimed && self.layout.devsel.is_some() {
            let claim = word.devsel & mask;
            undecoded = mask & below(claim.trailing_zeros());
            open.claim_unknown |= block.maybe(self.layout.devsel_unknown) & undecoded != 0;
            if claim != 0 {
                open.claimed = true;
                let clock = u64::from(claim.trailing_zeros());
                row.devsel_clks = (!open.claim_unknown).then(|| (clk + clock - open.address_clk) as u32);
            }
        }

        // The clocks of this word from a clock number on.
        let from_clk = |number: u64| !below(number.saturating_sub(clk).min(64) as u32);
        let mut wait = mask & !data;
        if wait != 0 {
            let stop = stopped & !trdy;
            wait &= !stop;
            row.target_wait_clks += u64::from((wait & irdy).count_ones());
            row.initiator_wait_clks += u64::from((wait & !irdy).count_ones());
            let turnaround = match row.command {
                Some(command) if is_read(command) => {
                    wait & from_clk(open.address_clk + 1) & !from_clk(open.address_clk + 2)
                }
                _ => 0,
            };
            wait &= !turnaround;
            let decode = wait & undecoded;
            wait &= !decode;
            let counts = &mut self.counts;
            counts.stop += u64::from(stop.count_ones());
            counts.turnaround += u64::from(turnaround.count_ones());
            counts.decode += u64::from(decode.count_ones());
            counts.both += u64::from((wait & !irdy & !trdy).count_ones());
            counts.target += u64::from((wait & irdy).count_ones());
            counts.initiator += u64::from((wait & !irdy & trdy).count_ones());
        }

        if self.layout.perr.is_some() || self.layout.serr.is_some() {
            let (first_perr, first_serr) = (open.address_clk + 2, row.start_clk + 2);
            let layout = &self.layout;
            open.perr.watch(block, layout.perr, layout.perr_unknown, mask & from_clk(first_perr));
            open.serr.watch(block, layout.serr, layout.serr_unknown, mask & from_clk(first_serr));
        }

        if data != 0 {
            let count = data.count_ones();
            if row.data_phases == 0 {
                row.first_data = block.stamp(data.trailing_zeros());
            }
            row.last_data = block.stamp(63 - data.leading_zeros());
            row.data_phases += u64::from(count);
            let wide = match (open.wide, self.layout.ack64) {
                (true, Some(ack64)) => data & block.line(ack64),
                (true, None) => data,
                _ => 0,
            };
            // Lanes without a known byte enable count as enabled.
            let inexact = match self.layout.cbe.len() {
                0 => data,
                4 => data & (block.maybe(self.layout.cbe_unknown) | wide),
                _ => data & block.maybe(self.layout.cbe_unknown) | wide & block.maybe(self.layout.cbe_high_unknown),
            };
            let mut bytes = 4 * u64::from(count + wide.count_ones());
            if !self.layout.cbe.is_empty() {
                bytes -= block.disabled_lanes(&self.layout, data, wide);
            }
            row.bytes += bytes;
            row.bytes_exact &= inexact == 0;
            self.counts.data += u64::from(count);
            self.counts.bytes += bytes;
            self.counts.inexact_phases += u64::from(inexact.count_ones());
            let number = open.number;
            if self.want_data_phases || (self.layout.parity.is_some() && self.layout.par.is_some()) {
                self.list_data_phases(block, data, wide, number);
            }
        }
    }

    /// Every data phase by itself: its value, byte enables and parity.
    #[inline(always)]
    fn list_data_phases<B: Backend>(&mut self, block: &Block<B>, data: u64, wide: u64, number: u64) {
        let layout = &self.layout;
        let mut odd = 0u64;
        let first_phase = self.rows.data_phases.len();
        let mut left = data;
        while left != 0 {
            let clock = left.trailing_zeros();
            left &= left - 1;
            let sample = block.sample(clock);
            if let Some(parity) = &layout.parity {
                odd |= u64::from(parity.is_odd(sample)) << clock;
            }
            if self.want_data_phases {
                let is_wide = wide >> clock & 1 != 0;
                let known = |unknown: Option<Bit>| unknown.is_none_or(|bit| !bit.get(sample));
                let low = layout.ad.as_ref().filter(|_| known(layout.ad_unknown)).map(|ad| ad.get(sample));
                let high = layout.ad_high.as_ref().filter(|_| known(layout.ad_high_unknown)).map(|ad| ad.get(sample));
                let lanes = layout.cbe_word.as_ref().filter(|_| known(layout.cbe_unknown)).map(|cbe| cbe.get(sample));
                self.rows.data_phases.push(DataPhase {
                    transaction: number,
                    stamp: block.stamp(clock),
                    data: if is_wide { low.zip(high).map(|(low, high)| low | high << 32) } else { low },
                    byte_enables: match (is_wide, layout.cbe.len()) {
                        (true, 8) => lanes.filter(|_| known(layout.cbe_high_unknown)).map(|lanes| lanes as u8),
                        (true, _) => None,
                        (false, _) => lanes.map(|lanes| (lanes & 0xf) as u8),
                    },
                    parity_ok: None,
                });
            }
        }
        let (Some(_), Some(par)) = (&layout.parity, layout.par) else {
            return;
        };
        // PAR of the next clock belongs to this one (PCI 2.2, 3.7.1).
        let unknown =
            block.maybe(layout.ad_unknown) | block.maybe(layout.cbe_unknown) | block.maybe(layout.par_unknown) >> 1;
        let last = 1 << (block.clocks() - 1);
        let checked = data & !unknown & !last;
        let bad = checked & (odd ^ block.line(par) >> 1);
        if self.want_data_phases {
            let mut left = data;
            for phase in &mut self.rows.data_phases[first_phase..] {
                let clock = left.trailing_zeros();
                left &= left - 1;
                if checked >> clock & 1 != 0 {
                    phase.parity_ok = Some(bad >> clock & 1 == 0);
                }
            }
        }
        let mut left = bad;
        while left != 0 {
            let clock = left.trailing_zeros();
            left &= left - 1;
            self.problem(block.stamp(clock), ProblemKind::DataParity, Some(number), DATA_PARITY);
        }
        if data & !unknown & last != 0 {
            let clock = block.clocks() - 1;
            self.awaits_par = Some(AwaitsPar::Data { odd: odd >> clock & 1 != 0, number, stamp: block.stamp(clock) });
        }
    }

    /// PERR# and SERR# in the two clocks after a transaction, as far as they are in this block.
    #[inline(always)]
    fn watch_tail<B: Backend>(&mut self, block: &Block<B>, from: u32) {
        let Some(tail) = &mut self.tail else { return };
        let to = (from + tail.clocks_left).min(block.clocks());
        if from >= to {
            return;
        }
        let mask = range(from, to);
        let from_clk = |number: u64| !below(number.saturating_sub(self.clk).min(64) as u32);
        tail.perr.watch(block, self.layout.perr, self.layout.perr_unknown, mask & from_clk(tail.first_perr));
        tail.serr.watch(block, self.layout.serr, self.layout.serr_unknown, mask & from_clk(tail.first_serr));
        tail.clocks_left -= to - from;
        if tail.clocks_left == 0 {
            self.emit_tail();
        }
    }

    /// The open transaction ended at the clock before `at`.
    #[inline(always)]
    fn finish<B: Backend>(&mut self, block: &Block<B>, at: u32, because: Option<Termination>) {
        let end = if at == 0 { self.last_stamp } else { block.stamp(at - 1) };
        let in_window_before = at == 0 && self.last_clock_in_window_before;
        self.close(end, self.clk + u64::from(at), in_window_before, because);
        self.watch_tail(block, at);
    }

    /// `after`: number of the clock after the last one.
    fn close(&mut self, end: u64, after: u64, in_window_before: bool, because: Option<Termination>) {
        let Some(open) = self.open.take() else { return };
        // A tail that is still there is cut by this transaction: its clocks are over in any case.
        self.emit_tail();
        let row = &mut self.rows.transactions[open.row];
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
            row.address_parity_ok = None;
        }
        row.termination = termination;
        let (start, start_clk, suspect) = (row.start, row.start_clk, row.suspect);
        let gave_up = because.is_none() && open.stopped.is_none() && !answered_last && self.layout.stop.is_some();
        if gave_up && termination == Termination::Unknown {
            self.problem(end, ProblemKind::IllegalSequence, Some(open.number), GAVE_UP);
        }
        if termination == Termination::Truncated {
            self.problem(end, ProblemKind::Truncated, Some(open.number), TRUNCATED);
        }
        if suspect == Some(true) {
            self.problem(start, ProblemKind::Suspect, Some(open.number), SUSPECT);
        }
        self.after_transaction = Some(after);
        self.tail = Some(Tail {
            row: open.row,
            number: open.number,
            perr: open.perr,
            serr: open.serr,
            first_perr: open.address_clk + 2,
            first_serr: start_clk + 2,
            clocks_left: 2,
        });
        self.state = State::Idle;
    }

    fn emit_tail(&mut self) {
        let Some(tail) = self.tail.take() else { return };
        let row = &mut self.rows.transactions[tail.row];
        row.perr = tail.perr.result(self.layout.perr);
        row.serr = tail.serr.result(self.layout.serr);
        let (end, perr, serr) = (row.end, row.perr, row.serr);
        if perr == Some(true) {
            self.problem(end, ProblemKind::ParityError, Some(tail.number), PERR);
        }
        if serr == Some(true) {
            self.problem(end, ProblemKind::SystemError, Some(tail.number), SERR);
        }
    }

    /// What was still awaited will not come.
    fn forget_pending(&mut self) {
        self.emit_tail();
        self.awaits_par = None;
    }

    /// Nothing is known between the last clock and the next one.
    pub fn gap(&mut self, stamp: u64) {
        self.problem(stamp, ProblemKind::Gap, None, GAP);
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

    /// Rows that will not change any more.
    pub fn take_rows(&mut self) -> Rows {
        let complete = self.complete_rows();
        let mut rows = std::mem::take(&mut self.rows);
        self.rows.transactions = rows.transactions.split_off(complete);
        for open in
            self.open.as_mut().map(|open| &mut open.row).into_iter().chain(self.tail.as_mut().map(|tail| &mut tail.row))
        {
            *open -= complete;
        }
        if matches!(self.awaits_par, Some(AwaitsPar::Data { .. })) {
            self.rows.data_phases.extend(rows.data_phases.pop());
        }
        rows
    }
}

const STARTS_INSIDE: &str =
    "the capture begins while FRAME# or IRDY# is asserted; decoding starts at the first idle clock";
const UNKNOWN_LEVEL: &str = "FRAME#, IRDY#, TRDY# or STOP# has no known level";
const IRDY_WITHOUT_ADDRESS: &str = "IRDY# asserted without an address phase in the clock before";
const FRAME_IN_DAC: &str = "FRAME# released in the second address phase of a dual address cycle";
const FRAME_WITHOUT_IRDY: &str = "FRAME# released while IRDY# was not asserted";
const FRAME_RETURNED: &str = "FRAME# asserted again before the last data phase ended";
const IRDY_AFTER_LAST_PHASE: &str = "IRDY# still asserted after the last data phase";
const GAVE_UP: &str = "the initiator gave up a claimed transaction without TRDY# or STOP#";
const TRUNCATED: &str = "the capture ends, has a gap or shows a reset inside this transaction";
const ADDRESS_PARITY: &str = "AD, C/BE# and PAR of the address phase are not even";
const DATA_PARITY: &str = "AD, C/BE# and PAR of a data phase are not even";
const PERR: &str = "PERR# asserted";
const SERR: &str = "SERR# asserted";
const SUSPECT: &str = "a control line changed between the last two samples before a clock edge";
const GAP: &str = "the capture has a gap";
