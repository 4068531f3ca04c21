//! A retried access is repeated as it was. A heuristic: the next access with the same GNT#, address and direction is taken
//! to be the same one, if it comes soon: test benches give up retried accesses, and use their addresses again much later.

use super::masks::Masks;
use super::words::{AGENTS, Words, line};
use super::{Rule, Rules, Stretch};
use crate::samples::bits::Backend;
use crate::samples::block::ones;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Access {
    owner: u8,
    address: u64,
    write: bool,
    command: u8,
    /// C/BE# of the first data phase and, of a write, the enabled bytes of its data.
    first: Option<(u8, u64)>,
    /// The same of the upper half, where 64 bits were asked for.
    first_high: Option<(u8, u64)>,
    /// How many transactions its initiator had begun.
    number: u64,
}

/// So many retried accesses are remembered; the oldest is forgotten.
const REMEMBERED: usize = 64;

#[derive(Debug, Clone, Default)]
pub struct Repeats {
    current: Option<Access>,
    retried: Vec<Access>,
    /// Where each of them is: these are looked through at every transaction.
    addresses: Vec<u64>,
    /// Transactions begun by each agent.
    begun: [u64; AGENTS],
}

impl Repeats {
    fn remember(&mut self, access: Access) {
        if self.retried.len() == REMEMBERED {
            self.retried.remove(0);
            self.addresses.remove(0);
        }
        self.retried.push(access);
        self.addresses.push(access.address);
    }

    /// Takes out the oldest one that is the same access.
    fn take(&mut self, access: &Access) -> Option<Access> {
        if !self.addresses.contains(&access.address) {
            return None;
        }
        let same =
            |other: &Access| (other.owner, other.address, other.write) == (access.owner, access.address, access.write);
        let at = self.retried.iter().position(same)?;
        self.addresses.remove(at);
        Some(self.retried.remove(at))
    }
}

impl Rules {
    #[inline(always)]
    pub(super) fn repeats<B: Backend>(&mut self, stretch: &Stretch<B>, m: &Masks, words: &Words) {
        if !self.wanted.has(Rule::M23) || self.grants.agents == 0 || self.layout.cbe_word.is_none() {
            return;
        }
        let first = self.commands.first_ready;
        let retry = m.last & m.stop & !m.trdy & m.devsel & !self.commands.moved_before;
        for clock in ones(m.address | m.last_address & !m.address | first | retry) {
            let is = |word: u64| word >> clock & 1 != 0;
            if is(m.address) {
                self.repeat.current = None;
            }
            if is(m.last_address) {
                self.repeat.current = self.begin(stretch, m, words, clock);
            }
            if is(first) && self.repeat.current.is_some() {
                let changed = self.unlike(stretch, words, clock);
                if changed != 0 {
                    self.say_each(Rule::M23, 1 << clock, 0, stretch, m, |_| Some(changed));
                }
            }
            if is(retry) && self.repeat.current.is_none() {
                self.findings.unjudged[Rule::M23 as usize] += 1;
            }
            if is(retry)
                && let Some(access) = self.repeat.current.filter(|access| access.first.is_some())
            {
                self.repeat.remember(access);
            }
        }
    }

    /// The access whose last address phase this is, where all of it is known.
    fn begin<B: Backend>(&mut self, stretch: &Stretch<B>, m: &Masks, words: &Words, clock: u32) -> Option<Access> {
        let (ad, owner) = (self.layout.ad.as_ref()?, self.grants.owner_at(Some(clock))?);
        let number = &mut self.repeat.begun[usize::from(owner)];
        *number += 1;
        if (words[line::CBE_UNKNOWN] | words[line::AD_UNKNOWN]) >> clock & 1 != 0 {
            return None;
        }
        let mut address = ad.get(stretch.sample(clock)) & 0xffff_ffff;
        if m.address >> clock & 1 == 0 {
            let low = ad.get(stretch.block.sample_before(stretch.from + clock)?) & 0xffff_ffff;
            address = address << 32 | low;
        }
        let command = Self::enables(words, clock) as u8;
        let write = self.commands.writes >> clock & 1 != 0;
        Some(Access { owner, address, write, command, first: None, first_high: None, number: *number })
    }

    /// The first data phase is known now; what differs from the retried access: command (1), byte enables (2), data (4).
    fn unlike<B: Backend>(&mut self, stretch: &Stretch<B>, words: &Words, clock: u32) -> u64 {
        let high = self.upper_first_phase(stretch, words, clock);
        let unknown = (words[line::CBE_UNKNOWN] | words[line::AD_UNKNOWN]) >> clock & 1 != 0;
        let Some(mut access) = self.repeat.current else { return 0 };
        let known = !words[line::CBE_UNKNOWN] >> clock & 1 != 0 && !(access.write && unknown);
        if let Some(ad) = self.layout.ad.as_ref().filter(|_| known) {
            let enables = Self::enables(words, clock) as u8;
            let lanes = (0..4).filter(|lane| enables >> lane & 1 == 0).fold(0, |all, lane| all | 0xff << (8 * lane));
            let data = if access.write { ad.get(stretch.sample(clock)) & lanes } else { 0 };
            access.first = Some((enables, data));
            access.first_high = high.map(|(enables, data)| (enables, if access.write { data } else { 0 }));
        }
        self.repeat.current = Some(access);
        let Some(before) = self.repeat.take(&access) else { return 0 };
        let soon = access.number - before.number <= self.parameters.repeat_within;
        let (Some(was), Some(is)) = (before.first.filter(|_| soon), access.first) else { return 0 };
        let mut changed = u64::from(before.command != access.command);
        for (was, is) in [(was, is)].into_iter().chain(before.first_high.zip(access.first_high)) {
            // Other byte enables enable other bytes.
            changed |= if was.0 != is.0 { 2 } else { u64::from(was.1 != is.1) << 2 };
        }
        changed
    }
}
