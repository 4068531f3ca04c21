//! Samples in which some lines stay as they are while others are checked: all that is asked of them in one go by vector
//! instructions, where the processor has those. So a bus is whose data phases are looked at in the middle of a burst.

use crate::samples::BLOCK;
use crate::samples::bits::Bit;
use crate::samples::block::rises;

/// Samples are looked at in so many blocks of 64 at a time.
pub const BLOCKS: usize = 16;

/// What is looked at in samples of up to eight bytes.
#[derive(Debug, Clone, Copy)]
pub struct Wanted {
    /// None where every sample is a clock.
    pub clk: Option<Bit>,
    /// Bits of a sample read as a number: those that have to stay as they are, and those whose parity is told.
    pub still: u64,
    pub parity: u64,
    /// The parity is told the other way round.
    pub flip: bool,
    /// None where nothing makes it even.
    pub par: Option<Bit>,
}

/// What 64 samples read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Seen {
    /// These are clocks.
    pub clocks: u64,
    /// In these the parity is odd, and in these the line is asserted that should make it even.
    pub odd: u64,
    pub par: u64,
    /// In so many from the first on all is as it was.
    pub still: usize,
}

/// Looks at up to so many blocks of samples from a place on, up to the first in which something changes; how many it saw. In
/// the sample given, read as a number, everything is as it has to stay.
///
/// # Safety
/// All blocks are there and a sample more, and the processor has what [`look`] asks for.
pub type Look = unsafe fn(*const u8, usize, u64, &Wanted, &mut [Seen; BLOCKS]) -> usize;

/// For samples of `unit` bytes, where the processor can do that in a few instructions.
pub fn look(unit: usize) -> Option<Look> {
    #[cfg(target_arch = "x86_64")]
    {
        let has = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vbmi")
            && is_x86_feature_detected!("avx512bitalg");
        match unit {
            1 => Some(avx512::look::<1> as Look),
            2 => Some(avx512::look::<2> as Look),
            3 => Some(avx512::look::<3> as Look),
            4 => Some(avx512::look::<4> as Look),
            5 => Some(avx512::look::<5> as Look),
            6 => Some(avx512::look::<6> as Look),
            7 => Some(avx512::look::<7> as Look),
            8 => Some(avx512::look::<8> as Look),
            _ => None,
        }
        .filter(|_| has)
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _ = (unit, BLOCK, rises);
        None
    }
}

#[cfg(target_arch = "x86_64")]
mod avx512 {
    use super::{BLOCK, BLOCKS, Seen, Wanted, rises};
    use crate::samples::bits::Bit;
    use crate::samples::bits::avx512::{AHEAD, Pick, load};
    use std::arch::x86_64::*;

    /// One byte of a sample, as the bytes of vectors: as it was, the bits that have to stay so, and those of the parity.
    #[derive(Clone, Copy)]
    struct Byte {
        pick: Pick,
        first: __m512i,
        still: __m512i,
        parity: __m512i,
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi,avx512bitalg")]
    pub unsafe fn look<const UNIT: usize>(
        from: *const u8,
        blocks: usize,
        first: u64,
        wanted: &Wanted,
        seen: &mut [Seen; BLOCKS],
    ) -> usize {
        let (firsts, stills, parities) = (first.to_le_bytes(), wanted.still.to_le_bytes(), wanted.parity.to_le_bytes());
        let all = |bits: u8| _mm512_set1_epi8(bits as i8);
        // No closures given to others: what these call is not compiled for the instructions.
        let line = |bit: Bit| (Pick::of::<UNIT>(bit.byte), all(bit.mask));
        let none = Bit { byte: 0, mask: 0, flip: 0 };
        let (clk_bit, par_bit) = (wanted.clk.unwrap_or(none), wanted.par.unwrap_or(none));
        let (clk, par) = (line(clk_bit), line(par_bit));
        let mut bytes = [Byte { pick: par.0, first: par.1, still: par.1, parity: par.1 }; UNIT];
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = Byte {
                pick: Pick::of::<UNIT>(at),
                first: all(firsts[at]),
                still: all(stills[at]),
                parity: all(parities[at]),
            };
        }
        let zero = _mm512_setzero_si512();
        let mut count = 0;
        for seen in seen.iter_mut().take(blocks) {
            // Safety: as the caller says, here and below.
            let start = unsafe { from.add(BLOCK * UNIT * count) };
            for line in 0..UNIT {
                _mm_prefetch::<_MM_HINT_NTA>(start.wrapping_add(AHEAD + 64 * line).cast());
            }
            let vectors = unsafe { load::<UNIT>(start) };
            count += 1;
            let (mut moved, mut odd) = (zero, zero);
            for (at, byte) in bytes.iter().enumerate() {
                if stills[at] | parities[at] != 0 {
                    let picked = byte.pick.out_of(&vectors);
                    let differ = _mm512_xor_si512(picked, byte.first);
                    moved = _mm512_or_si512(moved, _mm512_and_si512(differ, byte.still));
                    odd = _mm512_xor_si512(odd, _mm512_and_si512(picked, byte.parity));
                }
            }
            let moved = _mm512_test_epi8_mask(moved, moved);
            let odd = _mm512_test_epi8_mask(_mm512_popcnt_epi8(odd), all(1));
            let asserted = _mm512_test_epi8_mask(par.0.out_of(&vectors), par.1);
            let mut clocks = !0;
            if wanted.clk.is_some() {
                let high = _mm512_test_epi8_mask(clk.0.out_of(&vectors), clk.1);
                // Safety: a sample is behind the last block.
                let after = unsafe { start.add(BLOCK * UNIT + clk_bit.byte).read() };
                clocks = rises(high ^ clk_bit.flip, (after & clk_bit.mask != 0) ^ (clk_bit.flip != 0));
            }
            *seen = Seen {
                clocks,
                odd: if wanted.flip { !odd } else { odd },
                par: asserted ^ par_bit.flip,
                still: moved.trailing_zeros() as usize,
            };
            if moved != 0 {
                break;
            }
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// A processor without these instructions has nothing to test here.
        #[test]
        fn what_is_seen_is_in_the_samples(
            unit in 1usize..9,
            blocks in 1usize..5,
            data in proptest::collection::vec(any::<u64>(), 4 * BLOCK + 1),
            [clk, par] in proptest::array::uniform2(proptest::option::of((0usize..64, any::<bool>()))),
            (still, parity, flip) in (any::<u64>(), any::<u64>(), any::<bool>()),
            moves in proptest::option::of(0usize..4 * BLOCK),
        ) {
            let Some(look) = look(unit) else { return Ok(()) };
            let all = !0 >> (64 - 8 * unit);
            let first = data[0] & all;
            let samples: Vec<u64> = data.iter().enumerate().map(|(at, &sample)| {
                let still = if Some(at) == moves { 0 } else { still };
                (first & still | sample & !still) & all
            }).collect();
            let bytes: Vec<u8> =
                samples[..BLOCK * blocks + 1].iter().flat_map(|sample| sample.to_le_bytes()[..unit].to_vec()).collect();
            let bit = |(position, low): (usize, bool)| Bit::new(position % (8 * unit), low);
            let wanted =
                Wanted { clk: clk.map(bit), still: still & all, parity: parity & all, flip, par: par.map(bit) };
            let mut seen = [Seen::default(); BLOCKS];
            // Safety: so many samples are there and one more, and the processor has what this asks for.
            let count = unsafe { look(bytes.as_ptr(), blocks, first, &wanted, &mut seen) };
            let get = |bit: Bit, at: usize| bit.get(&samples[at].to_le_bytes());
            let moved = (0..BLOCK * blocks).find(|&at| (samples[at] ^ first) & wanted.still != 0);
            prop_assert_eq!(count, moved.map_or(blocks, |at| at / BLOCK + 1));
            for (nth, seen) in seen[..count].iter().enumerate() {
                let map = |is: &dyn Fn(usize) -> bool| {
                    (0..BLOCK).fold(0, |map, at| map | u64::from(is(BLOCK * nth + at)) << at)
                };
                let expected = Seen {
                    clocks: map(&|at| wanted.clk.is_none_or(|clk| !get(clk, at) && get(clk, at + 1))),
                    odd: map(&|at| ((samples[at] & wanted.parity).count_ones() % 2 == 1) ^ flip),
                    par: map(&|at| wanted.par.is_some_and(|par| get(par, at))),
                    still: moved.map_or(BLOCK, |at| (at - BLOCK * nth).min(BLOCK)),
                };
                prop_assert_eq!(*seen, expected);
            }
        }
    }
}
