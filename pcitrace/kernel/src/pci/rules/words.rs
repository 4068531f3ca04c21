//! Words of 64 clocks: the lines that the rules read besides the control lines, and what was before them.

use crate::pci::layout::Layout;
use crate::samples::bits::{ABSENT, Backend, Bit};
use crate::samples::block::Block;

/// What a word says of the 64 clocks before the present block: bit 63 is the last of them.
#[derive(Debug, Default, Clone, Copy)]
pub struct Past(pub u64);

impl Past {
    /// The word `by` clocks later: bit `i` is what `now` or the past has at clock `i - by`; 1 to 63.
    #[inline(always)]
    pub fn back(self, now: u64, by: u32) -> u64 {
        now << by | self.0 >> (64 - by)
    }

    /// Was it so in the last clock before the block?
    #[inline(always)]
    pub fn last(self) -> bool {
        self.0 >> 63 != 0
    }

    /// The block of `clocks` clocks is over.
    #[inline(always)]
    pub fn advance(&mut self, now: u64, clocks: u32) {
        self.0 = if clocks == 64 { now } else { self.0 >> clocks | now << (64 - clocks) };
    }

    /// Clocks that end a run of eight, and of sixteen, in which it was so.
    #[inline(always)]
    pub fn runs(self, now: u64) -> (u64, u64) {
        let two = u128::from(now) << 64 | u128::from(self.0);
        let two = two & two << 1;
        let four = two & two << 2;
        let eight = four & four << 4;
        ((eight >> 64) as u64, ((eight & eight << 8) >> 64) as u64)
    }
}

/// Goes on from `start` through the ones of `pass` above it.
#[inline(always)]
pub fn flood(start: u64, pass: u64) -> u64 {
    let (mut on, mut pass) = (start, pass);
    for by in [1, 2, 4, 8, 16, 32] {
        on |= pass & on << by;
        pass &= pass << by;
    }
    on
}

/// Lines beyond the control lines, as indices into [`Words`].
pub mod line {
    pub const CBE: usize = 0;
    pub const AD0: usize = 4;
    pub const PAR: usize = 5;
    pub const PERR: usize = 6;
    pub const SERR: usize = 7;
    pub const LOCK: usize = 8;
    pub const REQ64: usize = 9;
    pub const ACK64: usize = 10;
    /// What has no known level.
    pub const CBE_UNKNOWN: usize = 11;
    pub const AD_UNKNOWN: usize = 12;
    pub const PAR_UNKNOWN: usize = 13;
    pub const GNT_UNKNOWN: usize = 14;
    pub const PERR_UNKNOWN: usize = 15;
    pub const SERR_UNKNOWN: usize = 16;
    pub const DEVSEL_UNKNOWN: usize = 17;
    pub const AD1: usize = 18;
    /// Of the upper half of a bus of 64 bits.
    pub const CBE_HIGH: usize = 19;
    pub const PAR64: usize = 23;
    pub const AD_HIGH_UNKNOWN: usize = 24;
    pub const CBE_HIGH_UNKNOWN: usize = 25;
    pub const PAR64_UNKNOWN: usize = 26;
    pub const FIXED: usize = 27;
}

/// The lines at every clock of a block. 1 = asserted for lines that are active low; C/BE#, AD and PAR as on the bus.
pub type Words = [u64; MOST];

/// [`line::FIXED`] lines, 22 agents' GNT# and REQ#.
const MOST: usize = line::FIXED + 2 * AGENTS;

/// More agents than this are not watched; a PCI bus has at most 21.
pub const AGENTS: usize = 22;

pub const GNT: usize = line::FIXED;
pub const REQ: usize = line::FIXED + AGENTS;

/// A line of a byte: index of its word, how far it is from the top of the byte, what inverts it.
type Lane = (usize, u32, u64);

/// Reads the words: each byte of the samples once, however many lines it holds.
#[derive(Debug, Clone)]
pub struct Reader {
    /// A byte of the sample, and its lines.
    bytes: Vec<(usize, Vec<Lane>)>,
}

impl Reader {
    pub fn new(layout: &Layout) -> Self {
        let mut reader = Reader { bytes: Vec::new() };
        for (lane, &bit) in layout.cbe.iter().take(4).enumerate() {
            reader.add(line::CBE + lane, Some(bit));
        }
        for (lane, &bit) in layout.cbe.iter().skip(4).enumerate() {
            reader.add(line::CBE_HIGH + lane, Some(bit));
        }
        for (index, bit) in [
            (line::AD0, layout.ad_order[0]),
            (line::AD1, layout.ad_order[1]),
            (line::PAR, layout.par),
            (line::PERR, layout.perr),
            (line::SERR, layout.serr),
            (line::LOCK, layout.lock),
            (line::REQ64, layout.req64),
            (line::ACK64, layout.ack64),
            (line::CBE_UNKNOWN, layout.cbe_unknown),
            (line::AD_UNKNOWN, layout.ad_unknown),
            (line::PAR_UNKNOWN, layout.par_unknown),
            (line::GNT_UNKNOWN, layout.grants_unknown),
            (line::PERR_UNKNOWN, layout.perr_unknown),
            (line::SERR_UNKNOWN, layout.serr_unknown),
            (line::DEVSEL_UNKNOWN, layout.devsel_unknown),
            (line::PAR64, layout.par64),
            (line::AD_HIGH_UNKNOWN, layout.ad_high_unknown),
            (line::CBE_HIGH_UNKNOWN, layout.cbe_high_unknown),
            (line::PAR64_UNKNOWN, layout.par64_unknown),
        ] {
            reader.add(index, bit);
        }
        for (agent, lines) in layout.agents.iter().take(AGENTS).enumerate() {
            reader.add(GNT + agent, Some(lines.grant));
            reader.add(REQ + agent, lines.request);
        }
        reader
    }

    fn add(&mut self, index: usize, bit: Option<Bit>) {
        let Some(bit) = bit else { return };
        let entry = (index, bit.mask.leading_zeros().min(ABSENT), bit.flip);
        match self.bytes.iter_mut().find(|(byte, _)| *byte == bit.byte) {
            Some((_, lines)) => lines.push(entry),
            None => self.bytes.push((bit.byte, vec![entry])),
        }
    }

    #[inline(always)]
    pub fn read<B: Backend>(&self, block: &Block<B>) -> Words {
        let mut words = [0; MOST];
        for (byte, lines) in &self.bytes {
            let plane = block.plane(*byte);
            for &(index, left, flip) in lines {
                words[index] = block.line_of(plane, left, flip);
            }
        }
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn words_equal_clock_by_clock(values: Vec<bool>, cuts in proptest::collection::vec(1usize..65, 40), by in 1u32..20) {
            let mut past = Past::default();
            let mut from = 0;
            for length in cuts {
                let to = (from + length).min(values.len());
                if from == to {
                    break;
                }
                let at = |n: i64| n >= 0 && values[n as usize];
                let now = (from..to).fold(0, |word, n| word | u64::from(values[n]) << (n - from));
                let (eight, sixteen) = past.runs(now);
                for n in from..to {
                    let bit = |word: u64| word >> (n - from) & 1 != 0;
                    prop_assert_eq!(bit(past.back(now, by)), at(n as i64 - i64::from(by)));
                    prop_assert_eq!(bit(eight), (0..8).all(|k| at(n as i64 - k)));
                    prop_assert_eq!(bit(sixteen), (0..16).all(|k| at(n as i64 - k)));
                }
                past.advance(now, (to - from) as u32);
                from = to;
            }
        }

        #[test]
        fn flood_goes_through(start: u64, pass: u64) {
            let mut on = false;
            let wanted = (0..64).fold(0, |word, n| {
                on = start >> n & 1 != 0 || on && pass >> n & 1 != 0;
                word | u64::from(on) << n
            });
            prop_assert_eq!(flood(start, pass), wanted);
        }
    }
}
