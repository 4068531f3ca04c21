//! Where the lines of one bus are in a sample, as the decoder needs them.

use crate::bits::Bit;
use crate::block::ones;
use crate::capture::Limb;
use crate::error::{Error, Result};
use crate::lanes::{EIGHT, Lanes};
use std::collections::BTreeMap;

/// Lines whose changes are rows, in the order of `Layout::events`.
pub const EVENT_LINES: [&str; 5] = ["INTA#", "INTB#", "INTC#", "INTD#", "LOCK#"];

/// A channel bit and its polarity, as the wiring gives it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Source {
    pub channel: usize,
    pub bit: u32,
    /// The line is asserted, or 1, when the channel is low.
    pub active_low: bool,
}

impl Source {
    /// Where the bit is in a capture of changes.
    pub fn limb(self) -> Limb {
        Limb { channel: self.channel, index: self.bit / 64 }
    }

    /// Place of the bit within its limb.
    pub fn shift(self) -> u32 {
        self.bit % 64
    }
}

/// The lines of one bus by their canonical names (`FRAME#`, `AD0`, `CBE0#`, `GNT_NIC#` ...).
#[derive(Debug, Clone)]
pub struct BusSpec {
    pub name: String,
    /// Data width where the user stated it.
    pub width: Option<u32>,
    pub lines: BTreeMap<String, Source>,
}

impl BusSpec {
    pub fn line(&self, name: &str) -> Result<Source> {
        self.lines.get(name).copied().ok_or_else(|| {
            Error::Decode(format!(
                "bus {}: no channel is wired to {name}; CLK FRAME# IRDY# TRDY# are the minimum",
                self.name
            ))
        })
    }

    /// Lines whose names are `stem` + number or `_name` (+ `#`), sorted by number, then name.
    pub fn agents(&self, stem: &str) -> Vec<(String, Source)> {
        let number = |name: &str| name.trim_start_matches(stem).trim_end_matches('#').parse().unwrap_or(u32::MAX);
        let mut found: Vec<_> = self
            .lines
            .iter()
            .filter(|(name, _)| name.starts_with(stem))
            .map(|(name, &source)| (name.clone(), source))
            .collect();
        found.sort_by_key(|(name, _)| (number(name), name.clone()));
        found
    }

    /// All of `stem0..stemN` + `suffix`, or nothing where one of them is missing.
    fn group(&self, stem: &str, range: std::ops::Range<u32>, suffix: &str) -> Option<Vec<Source>> {
        range.map(|i| self.lines.get(&format!("{stem}{i}{suffix}")).copied()).collect()
    }
}

/// Collects scattered bits of a sample into one integer.
#[derive(Debug, Clone)]
pub struct Gather {
    parts: Vec<Part>,
    flip: u64,
}

/// Neighbouring bits that stay neighbours: `(load_le(byte) >> shift & mask) << to`.
#[derive(Debug, Clone, Copy)]
struct Part {
    byte: usize,
    shift: u32,
    mask: u64,
    to: u32,
}

impl Gather {
    /// `positions[i]` is the place of bit `i` in the sample, and whether it is stored inverted.
    pub fn new(positions: &[(usize, bool)]) -> Self {
        let mut parts: Vec<Part> = Vec::new();
        let mut flip = 0;
        let mut previous = None;
        for (to, &(position, inverted)) in positions.iter().enumerate() {
            flip |= u64::from(inverted) << to;
            // A part is one unaligned 8-byte load: up to 57 bits wherever it starts.
            match (parts.last_mut(), previous) {
                (Some(part), Some(before)) if before + 1 == position && part.mask.count_ones() < 57 => {
                    part.mask = part.mask << 1 | 1;
                }
                _ => parts.push(Part { byte: position / 8, shift: position as u32 % 8, mask: 1, to: to as u32 }),
            }
            previous = Some(position);
        }
        Gather { parts, flip }
    }

    /// `sample` starts at the sample; bytes after its end may follow and are ignored.
    #[inline(always)]
    pub fn get(&self, sample: &[u8]) -> u64 {
        let mut out = self.flip;
        for part in &self.parts {
            let word = word_at(sample, part.byte);
            out ^= (word >> part.shift & part.mask) << part.to;
        }
        out
    }
}

impl Gather {
    /// The same of each of the `samples`, numbers of those that begin at `block`, of `unit` bytes each.
    #[inline(always)]
    pub fn among(&self, block: &[u8], unit: usize, samples: u64, gathered: &mut [u64; 64]) {
        let last = 63 - (samples | 1).leading_zeros() as usize;
        match self.parts[..] {
            // The usual case: the bits are neighbours.
            [Part { byte, shift, mask, to: 0 }] if block.len() >= last * unit + byte + 8 => {
                for (out, sample) in gathered.iter_mut().zip(ones(samples)) {
                    // Safety: as was just seen, the last of them is in the block.
                    let word =
                        unsafe { block.as_ptr().add(sample as usize * unit + byte).cast::<u64>().read_unaligned() };
                    *out = self.flip ^ u64::from_le(word) >> shift & mask;
                }
            }
            _ => {
                for (out, sample) in gathered.iter_mut().zip(ones(samples)) {
                    *out = self.get(&block[sample as usize * unit..]);
                }
            }
        }
    }

    /// The same of the samples that begin at these places behind `data`.
    ///
    /// # Safety
    /// They are there, with eight bytes behind each, and as for [`Lanes::of`].
    #[inline(always)]
    pub unsafe fn each<L: Lanes>(&self, data: *const u8, places: &[usize; EIGHT]) -> L {
        // Safety: as the caller says; a part begins within the sample.
        unsafe {
            let mut out = L::all(self.flip);
            for part in &self.parts {
                let word = L::read(data.add(part.byte), places);
                out = out ^ (word.down(L::all(part.shift.into())) & L::all(part.mask)).up(L::all(part.to.into()));
            }
            out
        }
    }
}

/// The parity of scattered bits of a sample: no need to collect them.
#[derive(Debug, Clone)]
pub struct Parity {
    /// Eight bytes from `byte` on, and which of their bits count.
    words: Vec<(usize, u64)>,
    flip: bool,
}

impl Parity {
    /// Of bits at these positions; the flag says that a bit is stored inverted.
    fn new(positions: impl Iterator<Item = (usize, bool)>) -> Self {
        let mut words: BTreeMap<usize, u64> = BTreeMap::new();
        let mut flip = false;
        for (position, inverted) in positions {
            *words.entry(position / 64 * 8).or_default() |= 1 << (position % 64);
            flip ^= inverted;
        }
        Parity { words: words.into_iter().collect(), flip }
    }

    /// The bits of samples that fit into one word, and whether it is told the other way round.
    pub fn of_word(&self) -> Option<(u64, bool)> {
        match self.words[..] {
            [(0, mask)] => Some((mask, self.flip)),
            _ => None,
        }
    }

    /// Is the number of ones odd? `sample` as for [`Gather::get`].
    #[inline(always)]
    pub fn is_odd(&self, sample: &[u8]) -> bool {
        let bits = self.words.iter().fold(0, |bits, &(byte, mask)| bits ^ word_at(sample, byte) & mask);
        (bits.count_ones() & 1 == 1) ^ self.flip
    }

    /// Bit `i` of the result is set if that is so for sample `i` of `block`, which begins samples of `unit` bytes, and the bit
    /// is set in `samples`.
    #[inline(always)]
    pub fn odd_among(&self, block: &[u8], unit: usize, samples: u64) -> u64 {
        let last = 63 - (samples | 1).leading_zeros() as usize;
        match self.words[..] {
            // The usual case: AD and C/BE# are neighbours.
            [(byte, mask)] if block.len() >= last * unit + byte + 8 => {
                let mut odd = if self.flip { samples } else { 0 };
                for sample in ones(samples) {
                    // Safety: as was just seen, the last of them is in the block.
                    let word =
                        unsafe { block.as_ptr().add(sample as usize * unit + byte).cast::<u64>().read_unaligned() };
                    odd ^= u64::from((u64::from_le(word) & mask).count_ones() & 1) << sample;
                }
                odd
            }
            _ => ones(samples)
                .fold(0, |odd, sample| odd | u64::from(self.is_odd(&block[sample as usize * unit..])) << sample),
        }
    }
}

/// Eight bytes from `byte` on, zeros after the end.
#[inline(always)]
fn word_at(sample: &[u8], byte: usize) -> u64 {
    let bytes = &sample[byte..];
    match bytes.first_chunk::<8>() {
        Some(whole) => u64::from_le_bytes(*whole),
        None => padded(bytes),
    }
}

/// The last samples of some.
#[cold]
#[inline(never)]
fn padded(bytes: &[u8]) -> u64 {
    let mut padded = [0; 8];
    padded[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(padded)
}

/// Lines of one bus in a sample. Bitmap lines read 1 when asserted; `cbe` bits read as they are on the bus.
#[derive(Debug, Clone)]
pub struct Layout {
    pub unit: usize,
    /// None in state mode, where every sample is a clock.
    pub clk: Option<Bit>,
    pub frame: Bit,
    pub irdy: Bit,
    pub trdy: Bit,
    pub stop: Option<Bit>,
    pub devsel: Option<Bit>,
    pub rst: Option<Bit>,
    /// Set where F, I, T or S has no known value (captures of changes).
    pub unknown: Option<Bit>,
    pub perr: Option<Bit>,
    pub serr: Option<Bit>,
    pub req64: Option<Bit>,
    pub ack64: Option<Bit>,
    pub par: Option<Bit>,
    pub par64: Option<Bit>,
    /// One bit a byte lane, 0 = enabled; 4 or 8 of them.
    pub cbe: Vec<Bit>,
    pub cbe_word: Option<Gather>,
    pub ad: Option<Gather>,
    pub ad_high: Option<Gather>,
    /// What PAR covers: AD[31:0] and C/BE[3:0]#.
    pub parity: Option<Parity>,
    /// What PAR64 covers: AD[63:32] and C/BE[7:4]#.
    pub parity_high: Option<Parity>,
    pub grants: Option<Gather>,
    pub grant_names: Vec<String>,
    /// Captures of changes: set where AD[31:0], AD[63:32], C/BE[3:0]#, C/BE[7:4]# or PAR has no known value.
    pub ad_unknown: Option<Bit>,
    pub ad_high_unknown: Option<Bit>,
    pub cbe_unknown: Option<Bit>,
    pub cbe_high_unknown: Option<Bit>,
    pub par_unknown: Option<Bit>,
    pub par64_unknown: Option<Bit>,
    /// The same for DEVSEL#, PERR#, SERR# and any GNT#.
    pub devsel_unknown: Option<Bit>,
    pub perr_unknown: Option<Bit>,
    pub serr_unknown: Option<Bit>,
    pub grants_unknown: Option<Bit>,
    /// IDSEL of the devices that have it captured, as names and bits; set where one has no known value.
    pub idsels: Option<Gather>,
    pub idsel_names: Vec<String>,
    pub idsels_unknown: Option<Bit>,
    /// The lines of [`EVENT_LINES`], each with what is set where it has no known value.
    pub events: [Option<(Bit, Option<Bit>)>; EVENT_LINES.len()],
    /// The user stated a width of 64.
    pub wide: bool,
    /// What only the rules look at: LOCK#, AD[1:0], and the agents' own lines in the order of `grant_names`.
    pub lock: Option<Bit>,
    pub ad_order: [Option<Bit>; 2],
    pub agents: Vec<Agent>,
    /// Lines that only a listing of clocks shows, by name: INTA#, IDSEL ...
    pub others: Vec<(String, Bit)>,
}

/// Lines that have places of their own in a layout; those that begin with `AD`, `CBE`, `GNT`, `REQ` are among them.
const KNOWN: [&str; 14] = [
    "CLK", "FRAME#", "IRDY#", "TRDY#", "STOP#", "DEVSEL#", "RST#", "PERR#", "SERR#", "REQ64#", "ACK64#", "PAR",
    "PAR64", "LOCK#",
];

/// The lines between one agent and the arbiter.
#[derive(Debug, Clone, Copy)]
pub struct Agent {
    pub grant: Bit,
    pub request: Option<Bit>,
}

impl Layout {
    /// `place` turns a channel bit into its position in the sample.
    pub fn new(spec: &BusSpec, unit: usize, state_mode: bool, place: impl Fn(Source) -> usize) -> Result<Self> {
        let bit = |s: Source| Bit::new(place(s), s.active_low);
        let optional = |name: &str| spec.lines.get(name).copied().map(bit);
        // C/BE# is named active low but read as it is on the bus.
        let as_on_bus = |s: Source| (place(s), !s.active_low);
        let as_stated = |s: Source| (place(s), s.active_low);
        let gather = |sources: Option<Vec<Source>>, how: &dyn Fn(Source) -> (usize, bool)| {
            sources.map(|s| Gather::new(&s.into_iter().map(how).collect::<Vec<_>>()))
        };
        let gather_all = |named: &[(String, Source)]| {
            let places: Vec<_> = named.iter().map(|(_, source)| as_stated(*source)).collect();
            (!places.is_empty()).then(|| Gather::new(&places))
        };
        let cbe_low = spec.group("CBE", 0..4, "#");
        let cbe_high = spec.group("CBE", 4..8, "#");
        let cbe: Vec<Source> = match (&cbe_low, &cbe_high) {
            (Some(low), Some(high)) => low.iter().chain(high).copied().collect(),
            (Some(low), None) => low.clone(),
            _ => Vec::new(),
        };
        let ad_low = spec.group("AD", 0..32, "");
        let grants = spec.agents("GNT");
        if grants.len() > 64 {
            return Err(Error::Decode(format!("bus {}: more than 64 GNT# lines", spec.name)));
        }
        let idsels = spec.agents("IDSEL");
        if idsels.len() > 64 {
            return Err(Error::Decode(format!("bus {}: more than 64 IDSEL lines", spec.name)));
        }
        let ad_high = spec.group("AD", 32..64, "");
        let parity = |ad: &Option<Vec<Source>>, cbe: &Option<Vec<Source>>| {
            let (ad, cbe) = (ad.as_ref()?, cbe.as_ref()?);
            Some(Parity::new(ad.iter().map(|&s| as_stated(s)).chain(cbe.iter().map(|&s| as_on_bus(s)))))
        };
        let (parity_low, parity_high) = (parity(&ad_low, &cbe_low), parity(&ad_high, &cbe_high));
        let agents = grants
            .iter()
            .map(|(name, source)| Agent { grant: bit(*source), request: optional(&name.replacen("GNT", "REQ", 1)) });
        let is_other = |name: &str| {
            !KNOWN.contains(&name) && !["AD", "CBE", "GNT", "REQ"].iter().any(|stem| name.starts_with(stem))
        };
        let others = spec.lines.iter().filter(|(name, _)| is_other(name));
        Ok(Layout {
            others: others.map(|(name, &source)| (name.clone(), bit(source))).collect(),
            agents: agents.collect(),
            lock: optional("LOCK#"),
            ad_order: [optional("AD0"), optional("AD1")],
            unit,
            clk: if state_mode { None } else { Some(bit(spec.line("CLK")?)) },
            frame: bit(spec.line("FRAME#")?),
            irdy: bit(spec.line("IRDY#")?),
            trdy: bit(spec.line("TRDY#")?),
            stop: optional("STOP#"),
            devsel: optional("DEVSEL#"),
            rst: optional("RST#"),
            unknown: None,
            perr: optional("PERR#"),
            serr: optional("SERR#"),
            req64: optional("REQ64#"),
            ack64: optional("ACK64#"),
            par: optional("PAR"),
            par64: optional("PAR64"),
            cbe: cbe.iter().map(|&s| Bit::new(place(s), !s.active_low)).collect(),
            cbe_word: (!cbe.is_empty()).then(|| Gather::new(&cbe.iter().map(|&s| as_on_bus(s)).collect::<Vec<_>>())),
            ad: gather(ad_low, &as_stated),
            ad_high: gather(ad_high, &as_stated),
            parity: parity_low,
            parity_high,
            grants: gather_all(&grants),
            grant_names: grants.into_iter().map(|(name, _)| name).collect(),
            ad_unknown: None,
            ad_high_unknown: None,
            cbe_unknown: None,
            cbe_high_unknown: None,
            par_unknown: None,
            par64_unknown: None,
            devsel_unknown: None,
            perr_unknown: None,
            serr_unknown: None,
            grants_unknown: None,
            idsels: gather_all(&idsels),
            idsel_names: idsels.into_iter().map(|(name, _)| name).collect(),
            idsels_unknown: None,
            events: EVENT_LINES.map(|name| optional(name).map(|bit| (bit, None))),
            wide: spec.width == Some(64),
        })
    }

    /// Were lines captured that tell more than what happens when, by whom: data, errors, the width of the bus?
    pub fn has_data(&self) -> bool {
        let lines = [self.perr, self.serr, self.req64, self.ack64, self.par];
        self.wide
            || !self.cbe.is_empty()
            || self.ad.is_some()
            || self.devsel_unknown.or(self.grants_unknown).is_some()
            || lines.into_iter().any(|line| line.is_some())
    }

    /// Captures of changes: a level may not be known.
    pub fn has_unknown(&self) -> bool {
        let control = [self.unknown, self.devsel_unknown, self.perr_unknown, self.serr_unknown];
        let data = [self.ad_unknown, self.cbe_unknown, self.grants_unknown, self.idsels_unknown];
        control.into_iter().chain(data).any(|line| line.is_some())
    }

    /// Bytes of the sample that hold the lines a decoder looks at clock by clock, with the bits of those lines.
    pub fn control_bytes(&self) -> Vec<(usize, u8)> {
        let mut bytes: BTreeMap<usize, u8> = BTreeMap::new();
        for bit in [Some(self.frame), Some(self.irdy), Some(self.trdy), self.stop, self.devsel].into_iter().flatten() {
            *bytes.entry(bit.byte).or_default() |= bit.mask;
        }
        bytes.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn gather_equals_bit_by_bit(
            sample in proptest::collection::vec(any::<u8>(), 20),
            positions in proptest::collection::vec((0usize..128, any::<bool>()), 1..64),
            start in 0usize..64,
        ) {
            let neighbours: Vec<_> = (start..start + 64).map(|p| (p, false)).collect();
            for positions in [&positions, &neighbours] {
                let expected = positions.iter().enumerate().fold(0u64, |word, (i, &(p, inverted))| {
                    word | u64::from((sample[p / 8] >> (p % 8) & 1 == 1) ^ inverted) << i
                });
                prop_assert_eq!(Gather::new(positions).get(&sample[..16]), expected);
            }
        }

        #[test]
        fn gathered_among_samples_is_gathered_of_each(
            unit in 6usize..18,
            data in proptest::collection::vec(any::<u8>(), 64 * 18),
            positions in proptest::collection::vec((0usize..48, any::<bool>()), 1..48),
            start in 0usize..17,
            samples: u64,
        ) {
            let neighbours: Vec<_> = (start..start + 32).map(|p| (p, p % 3 == 0)).collect();
            for positions in [&positions, &neighbours] {
                let (gather, block) = (Gather::new(positions), &data[..64 * unit]);
                let mut gathered = [0; 64];
                gather.among(block, unit, samples, &mut gathered);
                let expected: Vec<_> = ones(samples).map(|sample| gather.get(&block[sample as usize * unit..])).collect();
                prop_assert_eq!(&gathered[..expected.len()], &expected[..]);
            }
        }

        #[test]
        fn parity_equals_bit_by_bit(
            unit in 1usize..18,
            data in proptest::collection::vec(any::<u8>(), 64 * 18),
            positions in proptest::collection::btree_map(0usize..144, any::<bool>(), 1..40),
            below in 1usize..144,
            samples: u64,
        ) {
            // All in one word, and anywhere; the block ends with its last sample.
            for most in [below.min(64).min(8 * unit), 8 * unit] {
                let chosen: Vec<_> = positions.iter().map(|(&p, &i)| (p % most, i)).collect::<BTreeMap<_, _>>().into_iter().collect();
                let block = &data[..64 * unit];
                let odd = |sample: usize| {
                    let bit = |&(p, inverted): &(usize, bool)| (block[sample * unit + p / 8] >> (p % 8) & 1 == 1) ^ inverted;
                    chosen.iter().filter(|position| bit(position)).count() % 2 == 1
                };
                let expected = (0..64).fold(0, |map, sample| map | u64::from(odd(sample)) << sample);
                let parity = Parity::new(chosen.iter().copied());
                prop_assert_eq!(parity.odd_among(block, unit, samples), expected & samples);
            }
        }
    }
}
