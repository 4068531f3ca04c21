//! Rules that the control lines alone tell: FRAME#, IRDY#, TRDY#, STOP# and DEVSEL#.

use super::masks::Masks;
use super::words::{Past, flood};
use super::{Rule, Rules, Stretch};
use crate::samples::bits::Backend;

/// What these rules look back on.
#[derive(Debug, Clone, Copy, Default)]
pub struct Own {
    aborted: Past,
    ended_open: Past,
}

impl Rules {
    #[inline(always)]
    pub(super) fn control<B: Backend>(&mut self, stretch: &Stretch<B>, m: &Masks) {
        self.initiator(stretch, m);
        self.latencies(stretch, m);
        self.target(stretch, m);
        self.target_ends(stretch, m);
    }

    /// What the initiator does with FRAME# and IRDY#.
    #[inline(always)]
    fn initiator<B: Backend>(&mut self, stretch: &Stretch<B>, m: &Masks) {
        let (past, was) = (self.past, m.before);
        let after_last = past.last.back(m.last, 1) & m.all;
        let moving = was.irdy & m.open & m.claimed_by_now();
        // FRAME# is released only with IRDY# asserted, and asserted only with it released.
        let m01 = was.frame & !m.frame & !m.irdy & m.all;
        let m02 = m.begins & m.irdy;
        let m03 = m.irdy & !was.irdy & !was.frame & m.all;
        let m04 = m.again & was.irdy & m.after;
        // Once IRDY# is asserted, neither changes until the data phase ends.
        let m05 = moving & (m.frame ^ was.frame);
        let m06 = moving & !m.irdy;
        let m07 = after_last & m.irdy;
        let m10 = m.frame & m.irdy & m.body & past.stopped.back(m.stopped, 1);
        let m12 = past.last_stopped.back(m.last & m.refused, 1) & m.busy & m.all;
        if m01 | m02 | m03 | m04 | m05 | m06 | m07 | m12 != 0 {
            for (rule, at) in [
                (Rule::M01, m01),
                (Rule::M02, m02),
                (Rule::M03, m03),
                (Rule::M04, m04),
                (Rule::M05, m05),
                (Rule::M06, m06),
                (Rule::M07, m07),
                (Rule::M12, m12),
            ] {
                self.say(rule, at, stretch, m);
            }
        }
        self.say_once(Rule::M10, m10, stretch, m);
    }

    /// How long each side may wait, and how soon an initiator may give up.
    #[inline(always)]
    fn latencies<B: Backend>(&mut self, stretch: &Stretch<B>, m: &Masks) {
        let was = m.before;
        let n = stretch.clocks;
        let no_irdy = m.within & !m.address & !m.irdy;
        let no_answer = m.within & !m.address & !(m.trdy | m.stop);
        let (irdy_8, _) = self.past.no_irdy.runs(no_irdy);
        let (answer_8, answer_16) = self.past.no_answer.runs(no_answer);
        self.past.no_irdy.advance(no_irdy, n);
        self.past.no_answer.advance(no_answer, n);
        // Phases that ended with more to come.
        let more = m.ended & m.frame;
        let past = self.past;
        let (address_8, address_16) = (past.address.back(m.address, 8), past.address.back(m.address, 16));
        let ended_8 = past.own.ended_open.back(more, 8);
        self.past.own.ended_open.advance(more, n);
        self.say(Rule::M08, address_8 & irdy_8, stretch, m);
        self.say(Rule::M09, ended_8 & irdy_8, stretch, m);
        self.say(Rule::T11, address_16 & answer_16 & m.claimed, stretch, m);
        self.say(Rule::T12, ended_8 & answer_8, stretch, m);
        let near = self.near(m);
        let early = near | past.dual.back(m.dual, 1);
        // An unclaimed transaction may be followed by another at once: its first clock counts too.
        let unclaimed = past.within.back(m.within, 1) & !m.claimed_by_now() & m.all;
        self.say(Rule::M11, unclaimed & was.irdy & !m.irdy & early, stretch, m);
        let first = m.claimed & (m.address | !m.claimed_before);
        self.say(Rule::T01, first & !(near & m.body), stretch, m);
    }

    /// Clocks 1 to 4 after the address phase of their transaction, 2 to 5 after the first of two, also where the second
    /// is missing. The address phase of the next transaction may be one of them.
    #[inline(always)]
    fn near(&self, m: &Masks) -> u64 {
        let single = |by| self.past.address.back(m.address, by) & !self.past.dual.back(m.dual, by);
        let dual = |by| self.past.dual.back(m.dual, by);
        let begun = |by| self.past.address.back(m.address, by);
        let (one, two, three, four) = (begun(1), begun(2), begun(3), begun(4));
        single(1)
            | (single(2) | dual(2)) & !one
            | (single(3) | dual(3)) & !(one | two)
            | (single(4) | dual(4)) & !(one | two | three)
            | dual(5) & !(one | two | three | four)
    }

    /// What the target does with TRDY#, STOP# and DEVSEL# while a transaction goes on.
    #[inline(always)]
    fn target<B: Backend>(&mut self, stretch: &Stretch<B>, m: &Masks) {
        let (past, was) = (self.past, m.before);
        self.say_once(Rule::T02, m.trdy & !m.devsel & m.all, stretch, m);
        self.say_once(Rule::T03, m.stop & !m.devsel & m.within & !m.claimed, stretch, m);
        let t04 = was.devsel & !m.devsel & !m.stop & m.body & !m.over & !past.last.back(m.last, 1);
        let t05 = was.stop & was.frame & !m.stop & m.after;
        let changed = (m.trdy ^ was.trdy) | (m.stop ^ was.stop) | (m.devsel ^ was.devsel);
        let t07 = m.open & (was.trdy | was.stop) & changed & m.busy;
        let t09 = was.irdy & was.trdy & was.stop & m.trdy & past.body.back(m.body, 1) & m.all;
        if t04 | t05 | t07 | t09 != 0 {
            for (rule, at) in [(Rule::T04, t04), (Rule::T05, t05), (Rule::T07, t07), (Rule::T09, t09)] {
                self.say(rule, at, stretch, m);
            }
        }
    }

    /// How a target ends a transaction.
    #[inline(always)]
    fn target_ends<B: Backend>(&mut self, stretch: &Stretch<B>, m: &Masks) {
        let past = self.past;
        let after_last = past.last.back(m.last, 1) & m.all;
        self.say(Rule::T06, after_last & m.stop, stretch, m);
        self.say(Rule::T08, after_last & (m.trdy | m.stop | m.devsel), stretch, m);
        // STOP# without DEVSEL# after it: a target abort. TRDY# stays off, DEVSEL# does not return.
        let begins = m.stop & !m.devsel & m.claimed_before & m.body;
        let pass = m.busy & !m.address;
        let aborted = flood(begins | u64::from(past.own.aborted.last()) & pass & 1, pass);
        let t13 = aborted & (m.trdy | past.own.aborted.back(aborted, 1) & m.devsel) & m.body;
        self.past.own.aborted.advance(aborted, stretch.clocks);
        self.say_once(Rule::T13, t13, stretch, m);
    }
}
