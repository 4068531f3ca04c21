//! The clocks of a transaction after its address phases: what each of them counts as.

use super::{Protocol, SPECIAL_CYCLE, is_read};
use crate::pci::rows::{Flag, Termination};
use crate::pci::word::Word;
use crate::samples::bits::Backend;
use crate::samples::block::{Block, below, range};

/// What the first clock with IRDY# and STOP# says: whether TRDY# and DEVSEL# are asserted, DEVSEL# is known, and data moved before.
#[inline(always)]
pub(super) fn how_stopped(trdy: bool, devsel_known: bool, devsel: bool, moved_before: bool) -> Termination {
    match (trdy, devsel_known, devsel) {
        (true, _, _) => Termination::DisconnectWithData,
        (false, false, _) => Termination::Unknown,
        (false, true, false) => Termination::TargetAbort,
        (false, true, true) if moved_before => Termination::DisconnectWithoutData,
        (false, true, true) => Termination::Retry,
    }
}

impl Protocol {
    /// Clocks `from..to` belong to the open transaction, after its address phases.
    #[inline(always)]
    pub(super) fn body<B: Backend>(&mut self, block: &Block<B>, word: &Word, from: u32, to: u32) {
        if from >= to {
            return;
        }
        let clk = self.clk;
        let Some(open) = &mut self.open else { return };
        let row = &mut open.row;
        let mask = range(from, to);
        let (irdy, trdy) = (word.irdy & mask, word.trdy & mask);
        let data = irdy & trdy;

        row.flags.also(Flag::Suspect, word.suspect & mask != 0);
        let stopped = irdy & word.stop;
        if stopped != 0 && open.stopped.is_none() {
            let clock = stopped.trailing_zeros();
            let moved_before = row.data_phases > 0 || data & below(clock) != 0;
            let at = |map: u64| map >> clock & 1 != 0;
            let devsel_known = self.layout.devsel.is_some() && !at(block.maybe(self.layout.devsel_unknown));
            open.stopped = Some(how_stopped(at(trdy), devsel_known, at(word.devsel), moved_before));
        }
        if row.command == Some(SPECIAL_CYCLE) && row.message.is_none() && irdy != 0 {
            // The message is there in the first clock with IRDY# (PCI 2.3, 3.6.2).
            let sample = block.sample(irdy.trailing_zeros());
            let known = !self.layout.ad_unknown.is_some_and(|unknown| unknown.get(sample));
            row.message = self.layout.ad.as_ref().filter(|_| known).map(|ad| ad.get(sample) as u32);
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

        if B::DATA && self.beside.has_errors() {
            let beside = &self.beside;
            let (first_perr, first_serr) = (open.address_clk + 2, row.start_clk + 2);
            open.perr.watch(beside.perr, beside.perr_unknown, mask & from_clk(first_perr));
            open.serr.watch(beside.serr, beside.serr_unknown, mask & from_clk(first_serr));
        }

        if data != 0 {
            let count = data.count_ones();
            if row.data_phases == 0 {
                row.first_data = block.stamp(data.trailing_zeros());
            }
            row.last_data = block.stamp(63 - data.leading_zeros());
            row.data_phases += u64::from(count);
            let wide = match (B::DATA && open.wide, self.layout.ack64) {
                (true, Some(ack64)) => data & block.line(ack64),
                (true, None) => data,
                _ => 0,
            };
            // Lanes without a known byte enable count as enabled.
            let (cbe_unknown, high_unknown) =
                (block.maybe(self.layout.cbe_unknown), block.maybe(self.layout.cbe_high_unknown));
            let lanes = if B::DATA { self.layout.cbe.len() } else { 0 };
            let inexact = match lanes {
                0 => data,
                4 => data & (cbe_unknown | wide),
                _ => data & cbe_unknown | wide & high_unknown,
            };
            let mut bytes = 4 * u64::from(count + wide.count_ones());
            if lanes > 0 {
                bytes -= self.beside.disabled_lanes(data & !cbe_unknown, wide & !high_unknown);
            }
            row.bytes += bytes;
            row.flags.only(Flag::BytesExact, inexact == 0);
            self.counts.data += u64::from(count);
            self.counts.bytes += bytes;
            self.counts.inexact_phases += u64::from(inexact.count_ones());
            let number = open.number;
            if self.want_data_phases {
                self.list_data_phases(block, data, wide, number);
            }
            self.data_parity(block, data, wide, number);
        }
    }
}
