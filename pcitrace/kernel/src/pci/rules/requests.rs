//! How long agents wait: from REQ# to GNT#, and from there to their address phase.

use super::Rules;
use super::masks::Masks;
use super::words::{GNT, REQ, Words};
use crate::samples::block::{below, ones};
use std::collections::BTreeMap;

/// Clocks -> how often it took so many.
pub type Histogram = BTreeMap<u64, u64>;

/// What was measured of all agents whose REQ# was captured.
#[derive(Debug, Clone, Default)]
pub struct Requests {
    /// Clocks from the first one with REQ# to the first one with GNT#; 0 where the agent had it already.
    pub arbitration: Histogram,
    /// From the first clock with both to the address phase.
    pub acquisition: Histogram,
    /// Clocks in which an agent asked while another one's transaction was on the bus: who waited, for whom.
    pub held: BTreeMap<(u8, u8), u64>,
    agents: Vec<Waiting>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Waiting {
    /// The clock since which it asks for GNT#; since which it asked and had it.
    asked: Option<u64>,
    granted: Option<u64>,
}

impl Requests {
    /// Nothing is known of what was before.
    pub fn forget(&mut self) {
        self.agents.clear();
    }
}

impl Rules {
    /// Follows REQ# and GNT# of each agent through the block.
    pub(super) fn follow_requests(&mut self, m: &Masks, words: &Words) {
        let Some(requests) = &mut self.requests else { return };
        let grants = &self.grants;
        requests.agents.resize(grants.agents, Waiting::default());
        for (agent, waiting) in requests.agents.iter_mut().enumerate() {
            if self.layout.agents.get(agent).is_none_or(|lines| lines.request.is_none()) {
                continue;
            }
            let (grant, request) = (words[GNT + agent], words[REQ + agent]);
            let (mut left, mut owner) = (request & m.within, grants.owner);
            for (clock, next) in grants.owners.iter().copied().chain([(64, None)]) {
                let clocks = (left & below(clock)).count_ones();
                left &= !below(clock);
                if let Some(other) = owner.filter(|&other| clocks > 0 && usize::from(other) != agent) {
                    *requests.held.entry((agent as u8, other)).or_default() += u64::from(clocks);
                }
                owner = next;
            }
            let asks = request & !grants.requested[agent].back(request, 1) & m.all;
            let gains = grant & !grants.granted[agent].back(grant, 1) & m.all;
            let loses = !grant & grants.granted[agent].back(grant, 1) & m.all;
            let begun = |clock: u32| grants.owners.iter().any(|&(at, owner)| at == clock && owner == Some(agent as u8));
            for clock in ones(asks | gains | loses | m.address) {
                let (is, clk) = (|word: u64| word >> clock & 1 != 0, self.clk + u64::from(clock));
                if begun(clock)
                    && let Some(since) = waiting.granted.take()
                {
                    *requests.acquisition.entry(clk - since).or_default() += 1;
                }
                if is(loses) && waiting.granted.take().is_some() && is(request) {
                    waiting.asked = Some(clk);
                }
                if is(asks) {
                    waiting.asked = Some(clk);
                }
                if is(grant)
                    && let Some(since) = waiting.asked.take()
                {
                    *requests.arbitration.entry(clk - since).or_default() += 1;
                    waiting.granted = Some(clk);
                }
            }
        }
    }
}
