//! Where in a transaction each clock of a block is.

use super::Rules;
use super::words::{Past, Words, flood, line};
use crate::pci::word::Word;
use crate::samples::block::{below, ones};

/// Words of the present block; `before` is the clock before each.
#[derive(Debug, Clone, Copy, Default)]
pub struct Masks {
    /// Clocks of the block.
    pub all: u64,
    pub frame: u64,
    pub irdy: u64,
    pub trdy: u64,
    pub stop: u64,
    pub devsel: u64,
    pub before: Before,
    pub busy: u64,
    /// FRAME# is asserted anew.
    pub begins: u64,
    /// It is so within a transaction.
    pub again: u64,
    /// First address phases; the last ones; those that read "dual address cycle".
    pub address: u64,
    pub last_address: u64,
    pub dual: u64,
    /// Clocks of a transaction, address phases included.
    pub within: u64,
    /// Of these, those after the address phases.
    pub body: u64,
    /// What is not an address phase and follows a clock of a transaction.
    pub after: u64,
    /// The data phase is open; also in the clock in which the bus became idle.
    pub open: u64,
    /// A data phase ended; it was the last one.
    pub ended: u64,
    pub last: u64,
    /// The last phase had ended, and IRDY# is still there.
    pub over: u64,
    /// DEVSEL#, STOP# were asserted in this transaction by now.
    pub claimed: u64,
    pub stopped: u64,
    /// STOP# was asserted after its address phases by now: it ends the transaction.
    pub refused: u64,
    /// DEVSEL# was, by the clock before.
    pub claimed_before: u64,
}

#[derive(Debug, Clone, Copy, Default)]
pub struct Before {
    pub frame: u64,
    pub irdy: u64,
    pub trdy: u64,
    pub stop: u64,
    pub devsel: u64,
}

/// What the clocks before the block say, of every word that a rule looks back on.
#[derive(Debug, Clone, Copy, Default)]
pub struct Pasts {
    pub frame: Past,
    pub irdy: Past,
    pub trdy: Past,
    pub stop: Past,
    pub devsel: Past,
    pub address: Past,
    pub last_address: Past,
    pub dual: Past,
    pub within: Past,
    pub body: Past,
    pub ended: Past,
    pub last: Past,
    pub last_stopped: Past,
    pub over: Past,
    pub claimed: Past,
    pub stopped: Past,
    pub refused: Past,
    /// Every clock in step.
    pub live: Past,
    pub no_irdy: Past,
    pub no_answer: Past,
    pub own: super::control::Own,
    pub phases: super::phases::Phases,
    pub bus: super::bus::Lines,
    pub upper: super::upper::Lines,
}

impl Masks {
    /// DEVSEL# was asserted in this transaction by now, also in the clock in which the bus became idle.
    #[inline(always)]
    pub fn claimed_by_now(&self) -> u64 {
        self.claimed_before | self.devsel & self.within & !self.address
    }

    /// F I T S D at a clock and at the one before.
    pub fn lines(&self, clock: u32) -> u16 {
        let before = &self.before;
        let now = [self.frame, self.irdy, self.trdy, self.stop, self.devsel];
        let then = [before.frame, before.irdy, before.trdy, before.stop, before.devsel];
        let pack = |words: [u64; 5]| {
            words.iter().enumerate().fold(0, |lines, (n, word)| lines | ((word >> clock & 1) as u16) << n)
        };
        pack(now) | pack(then) << 8
    }
}

impl Pasts {
    pub fn advance(&mut self, masks: &Masks, words: &Words, clocks: u32) {
        self.frame.advance(masks.frame, clocks);
        self.irdy.advance(masks.irdy, clocks);
        self.trdy.advance(masks.trdy, clocks);
        self.stop.advance(masks.stop, clocks);
        self.devsel.advance(masks.devsel, clocks);
        self.address.advance(masks.address, clocks);
        self.last_address.advance(masks.last_address, clocks);
        self.dual.advance(masks.dual, clocks);
        self.within.advance(masks.within, clocks);
        self.body.advance(masks.body, clocks);
        self.ended.advance(masks.ended, clocks);
        self.last.advance(masks.last, clocks);
        self.last_stopped.advance(masks.last & masks.refused, clocks);
        self.refused.advance(masks.refused, clocks);
        self.over.advance(masks.over, clocks);
        self.claimed.advance(masks.claimed, clocks);
        self.stopped.advance(masks.stopped, clocks);
        self.live.advance(masks.all, clocks);
        self.bus.advance(words, clocks);
    }
}

impl Rules {
    /// C/BE# reads this command (with no unknown bit).
    #[inline(always)]
    pub(super) fn command(words: &Words, command: u8) -> u64 {
        (0..4).fold(!words[line::CBE_UNKNOWN], |word, lane| {
            let level = words[line::CBE + lane];
            word & if command >> lane & 1 != 0 { level } else { !level }
        })
    }

    #[inline(always)]
    pub(super) fn masks(&mut self, word: &Word, words: &Words, clocks: u32) -> Masks {
        let past = &self.past;
        let &Word { frame, irdy, trdy, stop, devsel, .. } = word;
        let before = Before {
            frame: past.frame.back(frame, 1),
            irdy: past.irdy.back(irdy, 1),
            trdy: past.trdy.back(trdy, 1),
            stop: past.stop.back(stop, 1),
            devsel: past.devsel.back(devsel, 1),
        };
        let all = below(clocks);
        let dual_command = if self.layout.cbe.is_empty() { 0 } else { Self::command(words, 0xd) };
        let begins = frame & !before.frame & all;
        let masks =
            Masks { all, frame, irdy, trdy, stop, devsel, before, busy: frame | irdy, begins, ..Masks::default() };
        // FRAME# comes back without IRDY# before the phase ended: a new transaction only if nobody claimed this one.
        let torn = begins & before.irdy & !irdy & !(before.trdy | before.stop);
        let masks = self.split(masks, begins & !(before.irdy & irdy) & !torn, dual_command);
        // What one of them is depends on those before it.
        ones(torn).fold(masks, |masks, clock| match masks.claimed_before >> clock & 1 {
            0 => self.split(masks, masks.address | 1 << clock, dual_command),
            _ => masks,
        })
    }

    /// The rest of the words, where the first address phases are known.
    #[inline(always)]
    fn split(&self, mut m: Masks, address: u64, dual_command: u64) -> Masks {
        let past = &self.past;
        m.address = address;
        m.again = m.begins & !address;
        m.dual = address & dual_command;
        let second = past.dual.back(m.dual, 1) & m.frame & !address;
        m.last_address = address & !m.dual | second;
        let pass = m.busy & !address;
        let on = |start: u64, before: Past| flood(start | u64::from(before.last()) & pass & 1, pass);
        m.within = on(address, past.within);
        m.after = past.within.back(m.within, 1) & !address & m.all;
        m.body = m.within & !address & !second;
        m.claimed = on(m.devsel & m.within, past.claimed);
        m.stopped = on(m.stop & m.within, past.stopped);
        m.refused = on(m.stop & m.body, past.refused);
        m.claimed_before = past.claimed.back(m.claimed, 1) & m.all;
        let answer = m.trdy | m.stop;
        let ended = m.body & m.irdy & answer;
        let last = ended & !m.frame;
        let still = past.last.back(last, 1) & m.irdy & !m.begins;
        if still != 0 || past.over.last() {
            let held = m.irdy & pass;
            m.over = flood(still | u64::from(past.over.last()) & held & 1, held);
        }
        m.ended = ended & !m.over;
        m.last = last & !m.over;
        let closed = m.before.irdy & (m.before.trdy | m.before.stop);
        m.open = m.after & !second & !closed & !m.over & !past.over.back(m.over, 1);
        m
    }
}
