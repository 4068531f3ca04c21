//! Samples in which some lines stay as they are while others are checked: all that is asked of them in one go by vector
//! instructions, where the processor has those. A bus with its data is such a one in the middle of a burst.

use crate::bits::Bit;
use crate::block::rises;
use crate::clocking::BLOCK;

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
    pub par: Bit,
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
            && is_x86_feature_detected!("avx512vpopcntdq");
        // A bus with AD, C/BE# and PAR fits into no fewer bytes.
        match unit {
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
    use crate::bits::Bit;
    use std::arch::x86_64::*;

    /// Where the bytes of eight samples go: each sample to eight bytes.
    const fn places<const UNIT: usize>() -> [u8; 64] {
        let mut places = [0; 64];
        let mut at = 0;
        while at < 64 {
            places[at] = (at / 8 * UNIT + at % 8) as u8;
            at += 1;
        }
        places
    }

    /// Eight samples as numbers; what is above their bytes means nothing.
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
    #[inline]
    unsafe fn eight<const UNIT: usize>(from: *const u8) -> __m512i {
        // Safety: only the bytes of these samples are read.
        unsafe {
            if UNIT == 8 {
                return _mm512_loadu_si512(from.cast());
            }
            let bytes = _mm512_maskz_loadu_epi8(!0 >> (64 - 8 * UNIT), from.cast());
            _mm512_permutexvar_epi8(_mm512_loadu_si512(places::<UNIT>().as_ptr().cast()), bytes)
        }
    }

    /// The bit of a sample read as a number.
    fn in_sample(bit: Bit) -> u64 {
        u64::from(bit.mask) << (8 * bit.byte)
    }

    #[target_feature(enable = "avx512f")]
    #[inline]
    fn any(samples: __m512i, mask: __m512i, nth: usize) -> u64 {
        u64::from(_mm512_test_epi64_mask(samples, mask)) << (8 * nth)
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi,avx512vpopcntdq")]
    pub unsafe fn look<const UNIT: usize>(
        from: *const u8,
        blocks: usize,
        first: u64,
        wanted: &Wanted,
        seen: &mut [Seen; BLOCKS],
    ) -> usize {
        let all = |bits: u64| _mm512_set1_epi64(bits as i64);
        let (first, still, parity) = (all(first), all(wanted.still), all(wanted.parity));
        let (clk, par, one) = (all(wanted.clk.map_or(0, in_sample)), all(in_sample(wanted.par)), all(1));
        let mut count = 0;
        for seen in seen.iter_mut().take(blocks) {
            // Safety: as the caller says.
            let start = unsafe { from.add(BLOCK * UNIT * count) };
            count += 1;
            let (mut high, mut moved, mut odd, mut asserted) = (0, 0, 0, 0);
            for nth in 0..8 {
                // Safety: as above.
                let samples = unsafe { eight::<UNIT>(start.add(8 * UNIT * nth)) };
                moved |= any(_mm512_xor_si512(samples, first), still, nth);
                high |= any(samples, clk, nth);
                asserted |= any(samples, par, nth);
                odd |= any(_mm512_popcnt_epi64(_mm512_and_si512(samples, parity)), one, nth);
            }
            let clocks = match wanted.clk {
                Some(clk) => {
                    // Safety: a sample is behind the last block.
                    let after = unsafe { start.add(BLOCK * UNIT + clk.byte).read() };
                    rises(high ^ clk.flip, (after & clk.mask != 0) ^ (clk.flip != 0))
                }
                None => !0,
            };
            *seen = Seen {
                clocks,
                odd: if wanted.flip { !odd } else { odd },
                par: asserted ^ wanted.par.flip,
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
            unit in 6usize..9,
            blocks in 1usize..5,
            data in proptest::collection::vec(any::<u64>(), 4 * BLOCK + 1),
            (clk, par) in (proptest::option::of((0usize..48, any::<bool>())), (0usize..48, any::<bool>())),
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
            let bit = |(position, low): (usize, bool)| Bit::new(position, low);
            let wanted = Wanted { clk: clk.map(bit), still: still & all, parity: parity & all, flip, par: bit(par) };
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
                    par: map(&|at| get(wanted.par, at)),
                    still: moved.map_or(BLOCK, |at| (at - BLOCK * nth).min(BLOCK)),
                };
                prop_assert_eq!(*seen, expected);
            }
        }
    }
}
