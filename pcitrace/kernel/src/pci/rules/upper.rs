//! The upper half of a bus of 64 bits: C/BE[7:4]#, AD[63:32] and PAR64, where REQ64# and ACK64# say that they count.
//!
//! Ref: PCI Local Bus Specification 2.3, 3.8: PAR64 is valid after each address phase with REQ64#, and after data with ACK64#.

use super::masks::Masks;
use super::words::{Past, Words, line};
use super::{Rules, Stretch};
use crate::samples::bits::Backend;

/// What these rules look back on.
#[derive(Debug, Clone, Copy, Default)]
pub struct Lines {
    asked: Past,
    acknowledged: Past,
    enables: [Past; 4],
    enables_unknown: Past,
    data_unknown: Past,
    address: Past,
    write: Past,
    read: Past,
    odd: Past,
    unsure_address: Past,
    unsure_data: Past,
    /// 64 bits were asked for in the block before.
    was_asked: bool,
}

/// Clocks of the present block in which the upper half counts.
#[derive(Debug, Clone, Copy, Default)]
pub struct Upper {
    /// Of transactions that began with REQ64#; of those whose first DEVSEL# came with ACK64#.
    pub asked: u64,
    pub acknowledged: u64,
    /// The initiator drives it: 64 bits were asked for, and not refused so far.
    pub driven: u64,
    /// Data is 64 bits wide.
    pub wide: u64,
}

/// One clock after bad parity, or after what cannot be judged.
#[derive(Debug, Clone, Copy, Default)]
pub struct Wrong {
    pub address: u64,
    pub write: u64,
    pub read: u64,
    pub unsure_address: u64,
    pub unsure_data: u64,
}

impl Upper {
    /// Clocks in which C/BE[7:4]# disables a byte of wide data.
    #[inline(always)]
    pub fn disabled(&self, words: &Words) -> u64 {
        let lanes = (0..4).fold(0, |lanes, lane| lanes | words[line::CBE_HIGH + lane]);
        self.wide & lanes & !words[line::CBE_HIGH_UNKNOWN]
    }
}

impl Rules {
    /// Where the upper half counts.
    #[inline(always)]
    pub(super) fn upper_half(&mut self, m: &Masks, words: &Words, clocks: u32) -> Upper {
        let (req64, ack64) = (self.layout.req64.is_some(), self.layout.ack64.is_some());
        if !(req64 || ack64) {
            return Upper::default();
        }
        let past = &mut self.past.upper;
        let asked = Self::through(&mut past.asked, words[line::REQ64] & m.address, m, clocks);
        let first = m.devsel & m.within & (m.address | !m.claimed_before);
        let acknowledged = Self::through(&mut past.acknowledged, words[line::ACK64] & first, m, clocks);
        // Where only one of the two was captured nothing is known of the other.
        let both = if req64 && ack64 { asked } else { 0 };
        Upper { asked, acknowledged, driven: both & (!m.claimed | acknowledged), wide: both & acknowledged }
    }

    /// Clocks in which C/BE[7:4]# is not what it was at the clock before.
    #[inline(always)]
    pub(super) fn upper_enables_changed(&mut self, words: &Words, clocks: u32) -> u64 {
        if self.layout.cbe.len() < 8 {
            return 0;
        }
        let past = &mut self.past.upper;
        let mut changed = 0;
        for lane in 0..4 {
            let now = words[line::CBE_HIGH + lane];
            changed |= now ^ past.enables[lane].back(now, 1);
            past.enables[lane].advance(now, clocks);
        }
        let unknown = words[line::CBE_HIGH_UNKNOWN];
        let known = !(unknown | past.enables_unknown.back(unknown, 1));
        past.enables_unknown.advance(unknown, clocks);
        changed & known & self.upper.driven
    }

    /// Clocks in which AD[63:32] counts, and has known levels there and at the clock before.
    #[inline(always)]
    pub(super) fn upper_data_known(&mut self, words: &Words, clocks: u32) -> u64 {
        if self.layout.ad_high.is_none() {
            return 0;
        }
        let past = &mut self.past.upper.data_unknown;
        let unknown = words[line::AD_HIGH_UNKNOWN];
        let known = !(unknown | past.back(unknown, 1));
        past.advance(unknown, clocks);
        known & self.upper.driven
    }

    /// Bits of AD[63:32] that differ between a clock and the one before.
    #[inline(always)]
    pub(super) fn upper_data_changed<B: Backend>(&self, stretch: &Stretch<B>, clock: u32) -> u64 {
        let (Some(ad), Some(before)) = (&self.layout.ad_high, stretch.block.sample_before(stretch.from + clock)) else {
            return 0;
        };
        ad.get(stretch.sample(clock)) ^ ad.get(before)
    }

    /// C/BE[7:4]# and the enabled bytes of AD[63:32] in the first data phase, where they are known.
    pub(super) fn upper_first_phase<B: Backend>(
        &self,
        stretch: &Stretch<B>,
        words: &Words,
        clock: u32,
    ) -> Option<(u8, u64)> {
        let unknown = words[line::CBE_HIGH_UNKNOWN] | words[line::AD_HIGH_UNKNOWN] | !self.upper.driven;
        let ad = self.layout.ad_high.as_ref().filter(|_| unknown >> clock & 1 == 0 && self.layout.cbe.len() == 8)?;
        let enables = (0..4).fold(0, |all, lane| all | (words[line::CBE_HIGH + lane] >> clock & 1) << lane) as u8;
        let lanes = (0..4).filter(|lane| enables >> lane & 1 == 0).fold(0, |all, lane| all | 0xff << (8 * lane));
        Some((enables, ad.get(stretch.sample(clock)) & lanes))
    }

    /// PAR64 one clock after address and data.
    #[inline(always)]
    pub(super) fn upper_parity<B: Backend>(&mut self, stretch: &Stretch<B>, m: &Masks, words: &Words) -> Wrong {
        let n = stretch.clocks;
        let Upper { asked, wide, .. } = self.upper;
        // One block more: the last clock of the one before is judged in it.
        if asked == 0 && !std::mem::take(&mut self.past.upper.was_asked) {
            return Wrong::default();
        }
        self.past.upper.was_asked = asked != 0;
        let write = self.commands.driven() & m.body & m.irdy & wide;
        let read = self.commands.reads & m.body & m.trdy & wide;
        let address = (m.address | m.last_address) & asked;
        let halves = self.layout.parity_high.as_ref().zip(self.layout.par64);
        let past = &mut self.past.upper;
        // PERR# and SERR# may speak of a half that was not captured.
        let unknown = if halves.is_some() { words[line::AD_HIGH_UNKNOWN] | words[line::CBE_HIGH_UNKNOWN] } else { !0 };
        let (no_address, no_data) = (address & unknown, (write | read) & unknown);
        let mut told = Wrong {
            unsure_address: past.unsure_address.back(no_address, 1),
            unsure_data: past.unsure_data.back(no_data, 1),
            ..Wrong::default()
        };
        past.unsure_address.advance(no_address, n);
        past.unsure_data.advance(no_data, n);
        let Some((parity, _)) = halves else { return told };
        let judged = (address | write | read) & !unknown;
        let odd = stretch.block.odd(parity, judged << stretch.from) >> stretch.from;
        let due = [
            past.address.back(address & judged, 1),
            past.write.back(write & judged, 1),
            past.read.back(read & judged, 1),
        ];
        let par_unknown = words[line::PAR64_UNKNOWN];
        told.unsure_address |= due[0] & par_unknown;
        told.unsure_data |= (due[1] | due[2]) & par_unknown;
        let wrong = (past.odd.back(odd, 1) ^ words[line::PAR64]) & m.all & !par_unknown;
        [told.address, told.write, told.read] = due.map(|due| due & wrong);
        past.odd.advance(odd, n);
        past.address.advance(address & judged, n);
        past.write.advance(write & judged, n);
        past.read.advance(read & judged, n);
        told
    }
}
