//! Rules that need C/BE# or AD: commands, byte enables, what stays as it is within a data phase.

use super::masks::Masks;
use super::words::{Past, Words, flood, line};
use super::{Rule, Rules, Stretch};
use crate::samples::bits::Backend;
use crate::samples::block::ones;

/// What these rules look back on; floods are of the present transaction.
#[derive(Debug, Clone, Copy, Default)]
pub struct Phases {
    /// Its command is known, is a read, a write, a memory write and invalidate, a special cycle.
    pub known: Past,
    pub reads: Past,
    pub writes: Past,
    invalidates: Past,
    special: Past,
    /// An I/O access, with AD[1:0] of its address.
    io: Past,
    io_low: Past,
    io_high: Past,
    /// A memory access in a reserved order, and whether it went on.
    reserved_order: Past,
    went_on: Past,
    moved: Past,
    ready: Past,
    lanes: [Past; 4],
    unknown: Past,
    ad0: Past,
    ad_unknown: Past,
}

/// Which transactions the clocks belong to, by command.
#[derive(Debug, Clone, Copy, Default)]
pub struct Commands {
    pub known: u64,
    pub reads: u64,
    pub writes: u64,
    pub special: u64,
    /// The same of the clock before, also where that was in another transaction.
    pub known_before: u64,
    pub writes_before: u64,
    pub invalidates: u64,
    /// The first clock with IRDY#.
    pub first_ready: u64,
    /// Data had moved in this transaction by the clock before.
    pub moved_before: u64,
}

impl Commands {
    /// Whose data the initiator drives: writes, and special cycles with their message.
    #[inline(always)]
    pub fn driven(&self) -> u64 {
        self.writes | self.special
    }
}

impl Rules {
    /// Goes on from `start` to the end of the transaction; what the clocks before said is carried on.
    #[inline(always)]
    pub(super) fn through(past: &mut Past, start: u64, m: &Masks, clocks: u32) -> u64 {
        let pass = m.busy & !m.address;
        let on = flood(start | u64::from(past.last()) & pass & 1, pass);
        past.advance(on, clocks);
        on
    }

    #[inline(always)]
    pub(super) fn commands<B: Backend>(&mut self, stretch: &Stretch<B>, m: &Masks, words: &Words) {
        let n = stretch.clocks;
        let mut commands = Commands::default();
        Self::progress(&mut self.past.phases, m, n, &mut commands);
        if !self.layout.cbe.is_empty() {
            let [c0, c1, c2, c3] = [0, 1, 2, 3].map(|lane| words[line::CBE + lane]);
            let last = m.last_address & !words[line::CBE_UNKNOWN];
            let reserved = last & !c1 & (c3 ^ c2);
            let past = &mut self.past.phases;
            let before = *past;
            let special = last & Self::command(words, 0x1);
            commands.known = Self::through(&mut past.known, last, m, n);
            commands.reads = Self::through(&mut past.reads, last & !c0 & !reserved, m, n);
            let write = last & c0 & !reserved & !special & !(c3 & c2 & !c1);
            commands.writes = Self::through(&mut past.writes, write, m, n);
            commands.known_before = before.known.back(commands.known, 1);
            commands.writes_before = before.writes.back(commands.writes, 1);
            let invalidate = last & c0 & c1 & c2 & c3;
            commands.invalidates = Self::through(&mut past.invalidates, invalidate, m, n);
            commands.special = Self::through(&mut past.special, special, m, n);
            self.say(Rule::M21, reserved, stretch, m);
            self.say_once(Rule::M20, commands.special & m.devsel & m.body, stretch, m);
            let disabled = (c0 | c1 | c2 | c3) & !words[line::CBE_UNKNOWN] | self.upper.disabled(words);
            let partial = commands.invalidates & m.body & m.irdy & m.trdy & disabled;
            if partial != 0 {
                self.say_each(Rule::M18, partial, 0, stretch, m, |clock| Some(Self::enables(words, clock)));
            }
            let turn = self.past.last_address.back(last & !c0 & !reserved, 1);
            let turnaround = turn & commands.reads & m.trdy & m.body;
            self.say(Rule::T10, turnaround, stretch, m);
            self.second_address_phase(stretch, m, words);
            if self.layout.ad_order[0].is_some() {
                self.byte_addresses(stretch, m, words, &commands);
            }
        }
        self.commands = commands;
    }

    /// When the initiator was first ready, and when data had moved.
    #[inline(always)]
    fn progress(past: &mut Phases, m: &Masks, clocks: u32, commands: &mut Commands) {
        let (ready_before, moved_before) = (past.ready, past.moved);
        let ready = Self::through(&mut past.ready, m.irdy & m.body, m, clocks);
        commands.first_ready = ready & !(ready_before.back(ready, 1) & !m.address) & m.body;
        let moved = Self::through(&mut past.moved, m.irdy & m.trdy & m.body, m, clocks);
        commands.moved_before = moved_before.back(moved, 1) & m.body;
    }

    /// The second clock of a dual address cycle: FRAME# alone, a memory command, an upper half that is not 0.
    #[inline(always)]
    fn second_address_phase<B: Backend>(&mut self, stretch: &Stretch<B>, m: &Masks, words: &Words) {
        let second = self.past.dual.back(m.dual, 1) & m.all;
        if second == 0 {
            return;
        }
        let [c0, c1, c2, c3] = [0, 1, 2, 3].map(|lane| words[line::CBE + lane]);
        // Memory commands: 0110, 0111, 1100, 1110, 1111.
        let memory = c1 & c2 | c2 & c3 & !c0;
        let mut bad = second & (!m.frame | m.irdy | m.trdy | m.devsel | !memory & !words[line::CBE_UNKNOWN]);
        if let Some(ad) = &self.layout.ad {
            for clock in ones(second & !words[line::AD_UNKNOWN]) {
                bad |= u64::from(ad.get(stretch.sample(clock)) & 0xffff_ffff == 0) << clock;
            }
        }
        self.say(Rule::M22, bad, stretch, m);
    }

    /// What AD[1:0] of the address says of byte enables and order.
    #[inline(always)]
    fn byte_addresses<B: Backend>(&mut self, stretch: &Stretch<B>, m: &Masks, words: &Words, of: &Commands) {
        let n = stretch.clocks;
        let [c0, c1, c2, c3] = [0, 1, 2, 3].map(|lane| words[line::CBE + lane]);
        let (ad0, ad1) = (words[line::AD0], words[line::AD1]);
        let known = m.last_address & !words[line::CBE_UNKNOWN] & !words[line::AD_UNKNOWN];
        let past = &mut self.past.phases;
        let is_io = known & !c3 & !c2 & c1;
        let io = Self::through(&mut past.io, is_io, m, n);
        let low = Self::through(&mut past.io_low, is_io & ad0, m, n);
        let high = Self::through(&mut past.io_high, is_io & ad1, m, n);
        // The number of the lowest enabled lane, in two bits.
        let lane_low = c0 & !c1 | c0 & c1 & c2 & !c3;
        let lane_high = c0 & c1 & !(c2 & c3);
        let enables_known = !words[line::CBE_UNKNOWN] & !(c0 & c1 & c2 & c3);
        let m19 = of.first_ready & io & enables_known & ((lane_low ^ low) | (lane_high ^ high));
        // The low half of an address in two phases came in the first of them.
        let order = ad0 & m.address | past.ad0.back(ad0, 1) & !m.address;
        let memory = known & (c1 & c2 | c2 & c3 & !c0);
        let reserved = Self::through(&mut past.reserved_order, memory & order, m, n);
        let moved = m.irdy & m.trdy & m.body;
        let went_on = Self::through(&mut past.went_on, reserved & moved & of.moved_before, m, n);
        past.ad0.advance(ad0, n);
        self.say_each(Rule::M19, m19, 0, stretch, m, |clock| Some(Self::enables(words, clock)));
        self.say_once(Rule::T15, went_on, stretch, m);
    }

    /// C/BE[3:0]# at a clock.
    pub(super) fn enables(words: &Words, clock: u32) -> u64 {
        (0..4).fold(0, |all, lane| all | (words[line::CBE + lane] >> clock & 1) << lane)
    }

    /// What stays as it is within a data phase: C/BE#, AD of a write once the initiator is ready, of a read once the target is.
    #[inline(always)]
    pub(super) fn stability<B: Backend>(&mut self, stretch: &Stretch<B>, m: &Masks, words: &Words) {
        let n = stretch.clocks;
        let same_phase = m.open & m.body & self.past.body.back(m.body, 1);
        let past = &mut self.past.phases;
        let (mut changed, mut values) = (0, [0; 4]);
        for lane in 0..4 {
            let now = words[line::CBE + lane];
            values[lane] = past.lanes[lane].back(now, 1);
            changed |= now ^ values[lane];
            past.lanes[lane].advance(now, n);
        }
        let unknown = words[line::CBE_UNKNOWN];
        let m14 = same_phase & changed & !(unknown | past.unknown.back(unknown, 1));
        past.unknown.advance(unknown, n);
        let m14 = m14 | same_phase & self.upper_enables_changed(words, n);
        let unknown = words[line::AD_UNKNOWN];
        let past = &mut self.past.phases;
        let ad_known = !(unknown | past.ad_unknown.back(unknown, 1));
        past.ad_unknown.advance(unknown, n);
        let high_known = self.upper_data_known(words, n);
        if m14 != 0 {
            let then = |clock: u32| (0..4).fold(0, |all, lane: usize| all | (values[lane] >> clock & 1) << lane);
            self.say_each(Rule::M14, m14, 0, stretch, m, |clock| Some(then(clock) << 4 | Self::enables(words, clock)));
        }
        let same_phase = same_phase & (ad_known | high_known);
        let written = same_phase & self.commands.writes & m.before.irdy & m.irdy;
        let read = same_phase & self.commands.reads & m.before.trdy & !m.before.irdy;
        if written | read == 0 || self.layout.ad.is_none() {
            return;
        }
        let mut moved = [0; 64];
        let mut changed = 0;
        for clock in ones(written | read) {
            let is = |word: u64| word >> clock & 1 != 0;
            let low = if is(ad_known) { self.changed(stretch, clock) } else { 0 };
            let high = if is(high_known) { self.upper_data_changed(stretch, clock) } else { 0 };
            moved[clock as usize] = low | high << 32;
            changed |= u64::from(moved[clock as usize] != 0) << clock;
        }
        if changed != 0 {
            let bits = |clock: u32| Some(moved[clock as usize]);
            self.say_each(Rule::M15, changed & written, 0, stretch, m, bits);
            self.say_each(Rule::T14, changed & read, 0, stretch, m, bits);
        }
    }

    /// Bits of AD[31:0] that differ between a clock and the one before.
    #[inline(always)]
    fn changed<B: Backend>(&self, stretch: &Stretch<B>, clock: u32) -> u64 {
        let (Some(ad), Some(before)) = (&self.layout.ad, stretch.block.sample_before(stretch.from + clock)) else {
            return 0;
        };
        (ad.get(stretch.sample(clock)) ^ ad.get(before)) & 0xffff_ffff
    }
}
