//! Where bits are in a sample: one as the wiring gives it, and scattered ones that are collected or counted together.

use crate::capture::Limb;
use crate::samples::bits::Backend;
use crate::samples::block::ones;
use crate::samples::lanes::{EIGHT, Lanes};
use std::collections::BTreeMap;

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
    pub fn among<B: Backend>(&self, block: &[u8], unit: usize, samples: u64, gathered: &mut [u64; 64]) {
        match self.parts[..] {
            // The usual case: the bits are neighbours.
            [Part { byte, shift, mask, to: 0 }] if block.len() >= 64 * unit + byte + 64 => {
                // Safety: as was just seen, they are in the block.
                unsafe { B::words(block.as_ptr().add(byte), unit, samples, gathered) };
                for out in &mut gathered[..samples.count_ones() as usize] {
                    *out = self.flip ^ *out >> shift & mask;
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
    pub fn new(positions: impl Iterator<Item = (usize, bool)>) -> Self {
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

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "x86_64")]
    use crate::samples::bits::Avx2;
    use crate::samples::bits::{Portable, has_fast_path};
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
            data in proptest::collection::vec(any::<u8>(), 64 * 18 + 100),
            behind in 0usize..100,
            positions in proptest::collection::vec((0usize..48, any::<bool>()), 1..48),
            start in 0usize..17,
            samples: u64,
        ) {
            let neighbours: Vec<_> = (start..start + 32).map(|p| (p, p % 3 == 0)).collect();
            for positions in [&positions, &neighbours] {
                let (gather, block) = (Gather::new(positions), &data[..64 * unit + behind]);
                let mut gathered = [0; 64];
                gather.among::<Portable>(block, unit, samples, &mut gathered);
                let expected: Vec<_> = ones(samples).map(|sample| gather.get(&block[sample as usize * unit..])).collect();
                prop_assert_eq!(&gathered[..expected.len()], &expected[..]);
                #[cfg(target_arch = "x86_64")]
                if has_fast_path() {
                    let mut gathered = [0; 64];
                    gather.among::<Avx2<0, true>>(block, unit, samples, &mut gathered);
                    prop_assert_eq!(&gathered[..expected.len()], &expected[..]);
                }
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
