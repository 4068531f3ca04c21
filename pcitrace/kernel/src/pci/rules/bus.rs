//! Rules about who may use the bus, what PAR, PERR# and SERR# say, the 64-bit lines and LOCK#.

use super::masks::Masks;
use super::words::{AGENTS, GNT, Past, REQ, Words, flood, line};
use super::{Rule, Rules, Stretch};
use crate::samples::bits::Backend;
use crate::samples::block::{below, ones};

/// FRAME# asserted for longer than this without GNT# outlasts any latency timer: 255 clocks, counted in steps of 8 from 16.
const LATENCY_TIMER: u64 = 272;

/// Lines that these rules look back on.
#[derive(Debug, Clone, Copy)]
pub struct Lines {
    perr: Past,
    serr: Past,
    lock: Past,
    grants_unknown: Past,
    /// Address phases, write data and read data whose parity is judged; odd ones; data that cannot be judged.
    address: Past,
    write: Past,
    read: Past,
    odd: Past,
    unjudged: Past,
    /// Of write data what SERR# reports: messages of special cycles.
    message: Past,
    /// One clock after what was bad: what SERR# and PERR# may speak of.
    system: Past,
    bad_data: Past,
    unsure: Past,
    unsure_address: Past,
    locked: Past,
    established: Past,
    refused: Past,
    abandoned: Past,
}

impl Default for Lines {
    fn default() -> Self {
        let none = Past::default();
        // What was asserted already is no new assertion.
        let all = Past(!0);
        Lines {
            perr: all,
            serr: all,
            lock: all,
            grants_unknown: none,
            address: none,
            write: none,
            read: none,
            odd: none,
            unjudged: none,
            message: none,
            system: none,
            bad_data: none,
            unsure: none,
            unsure_address: none,
            locked: none,
            established: none,
            refused: none,
            abandoned: none,
        }
    }
}

impl Lines {
    pub fn advance(&mut self, words: &Words, clocks: u32) {
        self.perr.advance(words[line::PERR], clocks);
        self.serr.advance(words[line::SERR], clocks);
        self.lock.advance(words[line::LOCK], clocks);
        self.grants_unknown.advance(words[line::GNT_UNKNOWN], clocks);
    }
}

/// GNT# and REQ# of the agents.
#[derive(Debug, Clone)]
pub struct Grants {
    pub(super) agents: usize,
    pub(super) granted: [Past; AGENTS],
    pub(super) requested: [Past; AGENTS],
    waiting: [Past; AGENTS],
    /// An idle clock that ends a transaction with STOP#.
    stopped_idle: Past,
    idle: Past,
    /// Address phases of the present block, and whose they are.
    pub(super) owners: Vec<(u32, Option<u8>)>,
    /// Of the last transaction before the block.
    pub(super) owner: Option<u8>,
    /// Its address phase, and whether its GNT# was there since.
    since: u64,
    kept: bool,
}

impl Grants {
    pub fn new(agents: usize) -> Self {
        Grants {
            agents,
            granted: [Past::default(); AGENTS],
            requested: [Past::default(); AGENTS],
            waiting: [Past::default(); AGENTS],
            stopped_idle: Past::default(),
            idle: Past::default(),
            owners: Vec::new(),
            owner: None,
            since: 0,
            kept: true,
        }
    }

    pub fn forget(&mut self) {
        *self = Grants::new(self.agents);
    }

    pub fn advance(&mut self, words: &Words, clocks: u32) {
        for agent in 0..self.agents {
            self.granted[agent].advance(words[GNT + agent], clocks);
            self.requested[agent].advance(words[REQ + agent], clocks);
        }
        if let Some(&(_, owner)) = self.owners.last() {
            self.owner = owner;
        }
        self.owners.clear();
    }

    /// Whose the bus is at a clock: the last one to begin at or before it.
    pub fn owner_at(&self, clock: Option<u32>) -> Option<u8> {
        let begun = clock.and_then(|clock| self.owners.iter().rev().find(|(at, _)| *at <= clock));
        begun.map_or(self.owner, |(_, owner)| *owner)
    }
}

impl Rules {
    /// Who begins each transaction: the one whose GNT# alone was asserted in the clock before.
    #[inline(always)]
    pub(super) fn tell_owners<B: Backend>(&mut self, stretch: &Stretch<B>, m: &Masks, words: &Words) {
        self.findings.address_phases += u64::from(m.address.count_ones());
        let agents = self.grants.agents;
        if agents == 0 {
            return;
        }
        let unknown = self.past.bus.grants_unknown.back(words[line::GNT_UNKNOWN], 1);
        for clock in ones(m.address) {
            let before = |agent: usize| self.grants.granted[agent].back(words[GNT + agent], 1) >> clock & 1;
            let granted = (0..agents).fold(0u64, |all, agent| all | before(agent) << agent);
            let alone = granted.is_power_of_two() && unknown >> clock & 1 == 0;
            self.grants.owners.push((clock, alone.then(|| granted.trailing_zeros() as u8)));
        }
        if self.wanted.has(Rule::M17) {
            self.latency_timer(stretch, m, words);
        }
    }

    /// FRAME# that goes on and on, though GNT# was gone from the first clock after the address phase.
    #[inline(always)]
    fn latency_timer<B: Backend>(&mut self, stretch: &Stretch<B>, m: &Masks, words: &Words) {
        let limit = self.grants.since + LATENCY_TIMER;
        let first = m.address.trailing_zeros().min(stretch.clocks);
        let granted = self.grants.owner.map(|owner| words[GNT + usize::from(owner)]);
        let until = limit.saturating_sub(self.clk).min(64) as u32;
        if until < first && limit >= self.clk {
            let held = m.frame & below(until + 1) == below(until + 1) && m.body >> until & 1 != 0;
            if held && self.commands.invalidates >> until & 1 == 0 {
                match granted {
                    Some(granted) if !self.grants.kept && granted & below(until + 1) == 0 => {
                        self.say(Rule::M17, 1 << until, stretch, m);
                    }
                    Some(_) => {}
                    None => self.findings.unjudged[Rule::M17 as usize] += 1,
                }
            }
        }
        self.grants.kept |= granted.is_some_and(|granted| granted & below(first) != 0);
        if let Some(&(clock, owner)) = self.grants.owners.last() {
            self.grants.since = self.clk + u64::from(clock);
            let later = m.all & !below(clock + 1);
            self.grants.kept = owner.is_none_or(|owner| words[GNT + usize::from(owner)] & later != 0);
        }
    }

    #[inline(always)]
    pub(super) fn arbitration<B: Backend>(&mut self, stretch: &Stretch<B>, m: &Masks, words: &Words) {
        let agents = self.grants.agents;
        if agents == 0 {
            return;
        }
        let (mut any, mut many, mut any_before, mut fell, mut rose) = (0, 0, 0, 0, 0);
        let grants = &self.grants;
        for agent in 0..agents {
            let now = words[GNT + agent];
            let before = grants.granted[agent].back(now, 1);
            many |= any & now;
            any |= now;
            any_before |= before;
            fell |= before & !now;
            rose |= now & !before;
        }
        let unknown = words[line::GNT_UNKNOWN];
        let known_before = !self.past.bus.grants_unknown.back(unknown, 1) & self.past.live.back(m.all, 1);
        let idle = !m.busy & m.all;
        let idle_before = self.grants.idle.back(idle, 1);
        self.grants.idle.advance(idle, stretch.clocks);
        let many = Self::first(&mut self.broken[Rule::A01 as usize], many & !unknown & m.all, stretch.clocks);
        if many != 0 {
            let granted =
                |clock: u32| (0..agents).fold(0, |all, agent| all | (words[GNT + agent] >> clock & 1) << agent);
            self.say_each(Rule::A01, many, 0, stretch, m, |clock| Some(granted(clock)));
        }
        self.say(Rule::A02, idle & idle_before & fell & rose & !unknown & known_before, stretch, m);
        let ungranted = m.address & !any_before & known_before;
        self.findings.ungranted += u64::from(ungranted.count_ones());
        self.say(Rule::A03, ungranted, stretch, m);
        self.requests(stretch, m, words, idle);
        self.back_to_back(stretch, m);
    }

    /// What REQ# has to do: wait no longer than it must, and give way after a STOP#.
    #[inline(always)]
    fn requests<B: Backend>(&mut self, stretch: &Stretch<B>, m: &Masks, words: &Words, idle: u64) {
        let n = stretch.clocks;
        if self.wanted.has(Rule::A06) {
            let mut late = 0;
            for agent in 0..self.grants.agents {
                let asks = self.layout.agents[agent].request.is_some();
                let waiting = idle & words[GNT + agent] & if asks { words[REQ + agent] } else { !0 };
                let past = &mut self.grants.waiting[agent];
                if waiting | past.0 != 0 {
                    // The seventeenth clock in a row, and no later one.
                    let (_, sixteen) = past.runs(waiting);
                    let seventeen = sixteen & past.back(waiting, 16) & !past.back(waiting, 17) & m.all;
                    past.advance(waiting, n);
                    if asks {
                        late |= seventeen;
                    } else {
                        self.findings.unjudged[Rule::A06 as usize] += u64::from(seventeen.count_ones());
                    }
                }
            }
            self.say(Rule::A06, late, stretch, m);
        }
        // The first idle clock after a transaction that STOP# ended.
        let ends = self.past.last_stopped.back(m.last & m.refused, 1) & idle;
        let after = self.grants.stopped_idle.back(ends, 1) & m.all;
        self.grants.stopped_idle.advance(ends, n);
        let mut kept = 0;
        for clock in ones(after) {
            let owner = self.grants.owner_at(clock.checked_sub(2)).map(usize::from);
            let Some(owner) = owner.filter(|&owner| self.layout.agents[owner].request.is_some()) else {
                self.findings.unjudged[Rule::M16 as usize] += 1;
                continue;
            };
            let request = words[REQ + owner];
            let at = |by: u32| match by {
                0 => request >> clock & 1,
                by => self.grants.requested[owner].back(request, by) >> clock & 1,
            };
            kept |= (at(1) | at(0) & at(2)) << clock;
        }
        if kept != 0 {
            self.say_each(Rule::M16, kept, 1, stretch, m, |_| None);
        }
    }

    /// Without an idle clock before it, an access follows a write by the same initiator.
    #[inline(always)]
    fn back_to_back<B: Backend>(&mut self, stretch: &Stretch<B>, m: &Masks) {
        let begins = m.address & m.before.irdy;
        if begins == 0 {
            return;
        }
        let writes = self.commands.writes_before;
        let mut bad = begins & self.commands.known_before & !writes;
        for clock in ones(begins & writes) {
            let owners = self.grants.owner_at(clock.checked_sub(1)).zip(self.grants.owner_at(Some(clock)));
            match owners {
                Some((before, now)) => bad |= u64::from(before != now) << clock,
                None => self.findings.unjudged[Rule::M13 as usize] += 1,
            }
        }
        self.say(Rule::M13, bad, stretch, m);
    }

    /// PAR one clock after address and data; PERR# and SERR# that nothing explains.
    #[inline(always)]
    pub(super) fn parity<B: Backend>(&mut self, stretch: &Stretch<B>, m: &Masks, words: &Words) {
        let (Some(parity), Some(_)) = (&self.layout.parity, self.layout.par) else { return };
        let n = stretch.clocks;
        let unknown = words[line::AD_UNKNOWN] | words[line::CBE_UNKNOWN];
        let address = m.address | m.last_address;
        let message = self.commands.special & m.body & m.irdy;
        let write = self.commands.driven() & m.body & m.irdy;
        let read = self.commands.reads & m.body & m.trdy;
        let judged = (address | write | read) & !unknown;
        let odd = stretch.block.odd(parity, judged << stretch.from) >> stretch.from;
        let bus = &mut self.past.bus;
        // What is said now is of the clock before.
        let par_known = m.all & !words[line::PAR_UNKNOWN];
        let wrong = (bus.odd.back(odd, 1) ^ words[line::PAR]) & par_known;
        let of_address = bus.address.back(address & judged, 1);
        let of_write = bus.write.back(write & judged, 1);
        let of_read = bus.read.back(read & judged, 1);
        let (bad_address, bad_write, bad_read) = (wrong & of_address, wrong & of_write, wrong & of_read);
        let no_command = m.body & !self.commands.known & (m.irdy | m.trdy);
        let data = (write | read) & unknown | no_command;
        // Where nothing is to be judged, PAR may float.
        let unsure = bus.unjudged.back(data, 1) | (of_write | of_read) & !par_known;
        let unsure_address = bus.unsure_address.back(address & unknown, 1) | of_address & !par_known;
        let of_message = bus.message.back(message, 1);
        bus.odd.advance(odd, n);
        bus.message.advance(message, n);
        bus.address.advance(address & judged, n);
        bus.write.advance(write & judged, n);
        bus.read.advance(read & judged, n);
        bus.unjudged.advance(data, n);
        bus.unsure_address.advance(address & unknown, n);
        let high = self.upper_parity(stretch, m, words);
        let bad_address = bad_address | high.address;
        let (bad_write, bad_read) = (bad_write | high.write, bad_read | high.read);
        if bad_address | bad_write | bad_read != 0 {
            let told = high.address | high.write | high.read;
            let seen = |clock: u32| {
                let upper = told >> clock & 1;
                let parity = words[if upper != 0 { line::PAR64 } else { line::PAR }] >> clock & 1;
                Some(upper << 1 | parity)
            };
            self.say_each(Rule::P01, bad_address, 1, stretch, m, seen);
            self.say_each(Rule::P02, bad_write, 1, stretch, m, seen);
            self.say_each(Rule::P03, bad_read, 1, stretch, m, seen);
        }
        let bad_data = bad_write | bad_read;
        let (unsure, unsure_address) = (unsure | high.unsure_data, unsure_address | high.unsure_address);
        let (system, unsure_system) = (bad_address | bad_write & of_message, unsure_address | unsure & of_message);
        self.errors(stretch, m, words, [system, bad_data, unsure, unsure_system]);
    }

    /// PERR# is there two clocks after bad data (and a second one), SERR# two to nine after a bad address or message.
    #[inline(always)]
    fn errors<B: Backend>(&mut self, stretch: &Stretch<B>, m: &Masks, words: &Words, told: [u64; 4]) {
        let n = stretch.clocks;
        let [system, bad_data, unsure, unsure_system] = told;
        let bus = self.past.bus;
        let live = self.past.live;
        let perr = words[line::PERR] & !words[line::PERR_UNKNOWN];
        let serr = words[line::SERR] & !words[line::SERR_UNKNOWN] & !bus.serr.back(words[line::SERR], 1);
        let cause = bad_data | unsure;
        let before = Past(bus.bad_data.0 | bus.unsure.0);
        let p04 = perr & !(before.back(cause, 1) | before.back(cause, 2)) & live.back(m.all, 3) & m.all;
        self.say_once(Rule::P04, p04, stretch, m);
        if serr != 0 {
            let cause = system | unsure_system;
            let before = bus.system;
            let explained = (1..=8).fold(0, |all, by| all | before.back(cause, by));
            self.say(Rule::P05, serr & !explained & live.back(m.all, 9) & m.all, stretch, m);
        }
        let bus = &mut self.past.bus;
        bus.system.advance(system | unsure_system, n);
        bus.bad_data.advance(bad_data, n);
        bus.unsure.advance(unsure, n);
    }

    /// REQ64# goes with FRAME#, ACK64# with DEVSEL#.
    #[inline(always)]
    pub(super) fn extensions<B: Backend>(&mut self, stretch: &Stretch<B>, m: &Masks, words: &Words) {
        if self.layout.req64.is_some() {
            let asked = self.upper.asked;
            self.follows(Rule::W01, words[line::REQ64], m.frame & asked, stretch, m);
        }
        if self.layout.ack64.is_some() {
            let acknowledged = self.upper.acknowledged;
            self.follows(Rule::W02, words[line::ACK64], m.devsel & acknowledged, stretch, m);
        }
    }

    /// A line is what another one wants it to be; what it is instead is told.
    #[inline(always)]
    fn follows<B: Backend>(&mut self, rule: Rule, is: u64, wanted: u64, stretch: &Stretch<B>, m: &Masks) {
        let new = Self::first(&mut self.broken[rule as usize], (is ^ wanted) & m.all, stretch.clocks);
        if new != 0 {
            self.say_each(rule, new, 0, stretch, m, |clock| Some(is >> clock & 1));
        }
    }

    /// LOCK# is taken in the clock after an address phase of a read, and given up where that fails.
    #[inline(always)]
    pub(super) fn lock_rules<B: Backend>(&mut self, stretch: &Stretch<B>, m: &Masks, words: &Words) {
        let n = stretch.clocks;
        let lock = words[line::LOCK];
        if self.layout.lock.is_none() {
            return;
        }
        let [c0, c1, c2, c3] = [0, 1, 2, 3].map(|lane| words[line::CBE + lane]);
        // 0110, 1100, 1110. LOCK# may fall in the first clock of the next block.
        let read = m.last_address & !c0 & c2 & (c1 | c3);
        let m_read = self.lock.read.back(read, 1);
        self.lock.read.advance(read, n);
        if lock | self.past.bus.lock.0 == 0 {
            return;
        }
        let fell = lock & !self.past.bus.lock.back(lock, 1);
        // Of a dual address cycle after either: the second one is such a clock, too.
        let second = m.last_address & !m.address;
        let address = self.past.address.back(m.address, 1) | self.past.last_address.back(m.last_address, 1);
        let after_address = address & m.within & !m.address;
        let taken = fell & after_address;
        // Who holds it already releases it for the address phase: it was there in the clock before that.
        let dual = self.past.dual.back(m.dual, 2);
        let held = self.past.bus.lock.back(lock, 2) & !dual | self.past.bus.lock.back(lock, 3) & dual;
        let no_read = !m_read & self.commands.known_before & !second | !read & self.commands.known & second;
        let bus = &mut self.past.bus;
        let locked = Self::through(&mut bus.locked, taken, m, n);
        let begins = m.irdy & m.trdy & m.body & locked;
        let pass = (m.busy | lock) & m.all;
        let established = flood(begins | u64::from(bus.established.last()) & pass & 1, pass);
        let ends = m.last & locked & m.stop & !m.trdy;
        let retry = ends & m.devsel & !self.commands.moved_before & !established;
        let refused = retry | ends & !m.devsel;
        let unclaimed = m.within & locked & !m.claimed;
        let abandoned = bus.abandoned.back(unclaimed, 1) & !(m.within & !m.address) & m.all;
        let late = bus.refused.back(refused, 2) | self.lock.gone.back(abandoned, 1);
        bus.established.advance(established, n);
        bus.refused.advance(refused, n);
        bus.abandoned.advance(unclaimed, n);
        self.lock.gone.advance(abandoned, n);
        self.say(Rule::L01, fell & !after_address & m.all, stretch, m);
        self.say(Rule::L02, taken & !held & no_read, stretch, m);
        self.say(Rule::L03, lock & late & m.all, stretch, m);
    }
}

/// What the rules of LOCK# look back on besides.
#[derive(Debug, Clone, Copy, Default)]
pub struct Lock {
    read: Past,
    /// One clock after a master abort of a locked access.
    gone: Past,
}
