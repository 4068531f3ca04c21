//! Samples to bitmaps: 64 samples at a time, bit `i` of a bitmap is sample `i`.
//!
//! Two implementations of one trait: AVX2 + BMI2 where the processor has them, portable integer arithmetic elsewhere.
//! The choice is made once a decoder ([`has_fast_path`]); both give the same bitmaps (tested below).

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) mod avx512;

use crate::samples::ahead::Ahead;
use crate::samples::block::ones;
use crate::samples::changes::{Maps, Progress, Watched};
use crate::samples::taken::Taken;
#[cfg(target_arch = "x86_64")]
pub use avx2::Avx2;
#[cfg(target_arch = "x86_64")]
pub use avx512::Avx512;
#[cfg(target_arch = "x86_64")]
use std::sync::LazyLock;

/// One line in a sample: `byte & mask`, seen through `flip` so that 1 is the wanted sense.
#[derive(Debug, Clone, Copy)]
pub struct Bit {
    pub byte: usize,
    pub mask: u8,
    /// All ones where the level has to be inverted.
    pub flip: u64,
}

impl Bit {
    pub fn new(position: usize, invert: bool) -> Self {
        Bit { byte: position / 8, mask: 1 << (position % 8), flip: if invert { !0 } else { 0 } }
    }

    /// Makes the line in a sample asserted, or not.
    #[inline(always)]
    pub fn put(&self, sample: &mut [u8], asserted: bool) {
        let set = if asserted ^ (self.flip != 0) { self.mask } else { 0 };
        sample[self.byte] = sample[self.byte] & !self.mask | set;
    }

    pub fn get(&self, sample: &[u8]) -> bool {
        (sample[self.byte] & self.mask != 0) ^ (self.flip != 0)
    }
}

/// Instead of a shift: the line was not captured and reads 0.
pub const ABSENT: u32 = 16;

/// Bits of each of 32 samples of up to eight bytes, as the eight-byte words that hold the samples.
#[derive(Debug, Clone, Copy, Default)]
pub struct SampleMask([u64; 32]);

impl SampleMask {
    /// The bits of the bytes of one sample, repeated.
    pub fn repeated(sample: &[u8]) -> Self {
        let byte = |at: usize| sample[at % sample.len()];
        SampleMask(std::array::from_fn(|word| u64::from_le_bytes(std::array::from_fn(|i| byte(8 * word + i)))))
    }

    /// Word number `word` of samples of `unit` bytes: eight samples fill `unit` words.
    #[inline(always)]
    fn word(&self, word: usize, unit: usize) -> u64 {
        self.0[word % unit]
    }

    /// The first sample's bits, and some of the samples after it.
    pub fn first(&self) -> u64 {
        self.0[0]
    }
}

/// Takes the clocks out of so many blocks of 64 samples, or out of fewer if these are enough: from, stamp of the first, blocks,
/// what is looked at. How many blocks these were.
///
/// # Safety
/// A sample has to be before them and one behind, of the size that was begun with, and the processor has what
/// [`Backend::take_clocks`] asks for.
pub type TakeClocks = unsafe fn(*const u8, u64, usize, &Look, &mut Taken) -> usize;

/// Finds the changes in so many blocks of 64 samples.
///
/// # Safety
/// As for [`TakeClocks`]; there are no more blocks than a stretch has.
pub type FindChanges = unsafe fn(*const u8, usize, &Look, &mut Maps, &mut Ahead);

/// Takes clocks out around the changes that were found in so many blocks: from and stamp of the first, blocks, what is
/// watched, what was found, how far that was done. Whether all of them were gone over, before enough clocks were there.
///
/// # Safety
/// As for [`FindChanges`], of the same samples.
pub type TakeChanges =
    unsafe fn((*const u8, u64), usize, &Watched, &Maps, &mut Progress, &mut Taken, &mut Ahead) -> bool;

pub type ChangeWays = (FindChanges, TakeChanges);

/// Bits of samples of up to eight bytes, repeated from the first one on: CLK, the same where CLK is low if it is set, and what is
/// watched.
#[derive(Debug, Clone, Copy, Default)]
pub struct Look {
    pub clk: u64,
    pub flip: u64,
    pub watched: u64,
}

/// How 64 samples become bitmaps.
///
/// # Safety
/// `data` must be valid for `64 * unit` bytes, `byte < unit`, and the processor must have what the implementation uses.
pub trait Backend: Copy {
    /// One byte of each of 64 samples.
    type Plane: Copy;

    /// False where it is known when compiled that no data were captured, only lines that say what happens when.
    const DATA: bool;

    /// The size of samples: what is known of it when compiled, or else `unit`.
    #[inline(always)]
    fn unit(unit: usize) -> usize {
        unit
    }

    /// Eight bytes from the first on of each of those of 64 samples that are in the map.
    ///
    /// # Safety
    /// As for the trait, and 64 bytes more are there.
    #[inline(always)]
    unsafe fn words(data: *const u8, unit: usize, samples: u64, to: &mut [u64; 64]) {
        // Safety: as the caller says.
        unsafe { words_one_by_one(data, unit, samples, to) }
    }

    /// The numbers of the bits that are set, where the lowest one is `first`.
    ///
    /// # Safety
    /// As for the trait.
    #[inline(always)]
    unsafe fn numbers(map: u64, first: u64, to: &mut [u64; 64]) {
        numbers_one_by_one(map, first, to);
    }

    /// For samples of `unit` bytes, where the processor can do that in a few instructions.
    fn take_clocks(_unit: usize) -> Option<TakeClocks> {
        None
    }

    /// Likewise.
    fn change_ways(_unit: usize) -> Option<ChangeWays> {
        None
    }

    /// # Safety
    /// As for the trait.
    unsafe fn plane(data: *const u8, unit: usize, byte: usize) -> Self::Plane;

    /// The bytes with the bits of `flip` inverted.
    ///
    /// # Safety
    /// As for the trait.
    unsafe fn flipped(plane: Self::Plane, flip: u8) -> Self::Plane;

    /// Bit 7 of each byte shifted left by `left`, less than 8; zeros for [`ABSENT`].
    ///
    /// # Safety
    /// As for the trait.
    unsafe fn top_bits(plane: Self::Plane, left: u32) -> u64;

    /// Which of the bytes differ in a bit of `mask` from the one before: the first from `before`.
    ///
    /// # Safety
    /// As for the trait.
    unsafe fn changes(plane: Self::Plane, before: u8, mask: u8) -> u64;

    /// How many of the samples of up to `blocks` blocks of 64 go by before one differs from the next in a bit of `watched`,
    /// and how often the one bit of `counted` differs among them. `unit` is 8 at most.
    ///
    /// # Safety
    /// As for the trait, for all blocks and one sample more.
    unsafe fn unchanged(
        data: *const u8,
        unit: usize,
        blocks: usize,
        watched: &SampleMask,
        counted: &SampleMask,
    ) -> (usize, u64);

    /// The line in 64 samples.
    ///
    /// # Safety
    /// As for the trait.
    #[inline(always)]
    unsafe fn line(data: *const u8, unit: usize, bit: Bit) -> u64 {
        unsafe { Self::top_bits(Self::plane(data, unit, bit.byte), bit.mask.leading_zeros()) ^ bit.flip }
    }

    /// The bits of `x` selected by `mask`, packed to the low end.
    ///
    /// # Safety
    /// As for the trait.
    unsafe fn compress(x: u64, mask: u64) -> u64;

    /// The low bits of `x` spread to the positions set in `mask`.
    ///
    /// # Safety
    /// As for the trait.
    unsafe fn expand(x: u64, mask: u64) -> u64;

    /// Writes the places of the bits that are set, lowest first and counted from `first`; behind them it may write anything.
    ///
    /// # Safety
    /// There is room for 64, and as for the trait.
    #[inline(always)]
    unsafe fn places(mut map: u64, first: u16, mut to: *mut u16) {
        // Several at a time, whether they are there or not: how many there are cannot be foreseen, but that there are no more can.
        while map != 0 {
            for nth in 0..8 {
                // Safety: as the caller says.
                unsafe { to.add(nth).write(first + (map.trailing_zeros() % 64) as u16) };
                map &= map.wrapping_sub(1);
            }
            to = unsafe { to.add(8) };
        }
    }
}

/// [`Backend::words`], one by one.
///
/// # Safety
/// As there.
#[inline(always)]
unsafe fn words_one_by_one(data: *const u8, unit: usize, samples: u64, to: &mut [u64; 64]) {
    for (out, sample) in to.iter_mut().zip(ones(samples)) {
        // Safety: as the caller says.
        *out = u64::from_le(unsafe { data.add(sample as usize * unit).cast::<u64>().read_unaligned() });
    }
}

/// [`Backend::numbers`], one by one.
#[inline(always)]
fn numbers_one_by_one(map: u64, first: u64, to: &mut [u64; 64]) {
    for (out, at) in to.iter_mut().zip(ones(map)) {
        *out = first + u64::from(at);
    }
}

#[inline]
pub fn has_fast_path() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        static HAS: LazyLock<bool> = LazyLock::new(|| {
            is_x86_feature_detected!("avx2")
                && is_x86_feature_detected!("bmi1")
                && is_x86_feature_detected!("bmi2")
                && is_x86_feature_detected!("popcnt")
                && is_x86_feature_detected!("lzcnt")
        });
        *HAS
    }
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Whether there is a [`Backend::take_clocks`] for samples of `unit` bytes.
pub fn takes_clocks(unit: usize) -> bool {
    #[cfg(target_arch = "x86_64")]
    let takes = Avx2::<0, true>::take_clocks(unit).is_some();
    #[cfg(not(target_arch = "x86_64"))]
    let takes = Portable::take_clocks(unit).is_some();
    takes
}

/// The line in the first 64 samples, or in all of them if they are fewer; zeros after the last.
pub fn line_of_block(samples: &[u8], unit: usize, bit: Bit) -> u64 {
    assert!(bit.byte < unit, "a line lies within the samples");
    let count = (samples.len() / unit).min(64);
    if count < 64 {
        return (0..count).fold(0, |line, at| line | u64::from(bit.get(&samples[at * unit..])) << at);
    }
    #[cfg(target_arch = "x86_64")]
    if has_fast_path() {
        #[target_feature(enable = "avx2,bmi1,bmi2,popcnt,lzcnt")]
        fn line(samples: &[u8], unit: usize, bit: Bit) -> u64 {
            // Safety: 64 samples are there, and the bit lies within the unit.
            unsafe { Avx2::<0, true>::line(samples.as_ptr(), unit, bit) }
        }
        // Safety: the processor has the features.
        return unsafe { line(samples, unit, bit) };
    }
    // Safety: as above.
    unsafe { Portable::line(samples.as_ptr(), unit, bit) }
}

/// The eight bits of 64 bytes, the lowest first, each as a line.
pub fn bits_of_block(bytes: &[u8; 64]) -> [u64; 8] {
    #[inline(always)]
    unsafe fn bits<B: Backend>(bytes: &[u8; 64]) -> [u64; 8] {
        // Safety: 64 samples of a byte are there; and as the caller says.
        let plane = unsafe { B::plane(bytes.as_ptr(), 1, 0) };
        std::array::from_fn(|bit| unsafe { B::top_bits(plane, 7 - bit as u32) })
    }
    #[cfg(target_arch = "x86_64")]
    if has_fast_path() {
        #[target_feature(enable = "avx2,bmi1,bmi2,popcnt,lzcnt")]
        fn by_vectors(bytes: &[u8; 64]) -> [u64; 8] {
            // Safety: the processor has what this needs.
            unsafe { bits::<Avx2<1, true>>(bytes) }
        }
        // Safety: as above.
        return unsafe { by_vectors(bytes) };
    }
    // Safety: any processor has what this needs.
    unsafe { bits::<Portable>(bytes) }
}

#[derive(Clone, Copy)]
pub struct Portable;

const LOW_BITS: u64 = 0x0101_0101_0101_0101;

impl Backend for Portable {
    type Plane = [u64; 8];

    const DATA: bool = true;

    #[inline(always)]
    unsafe fn plane(data: *const u8, unit: usize, byte: usize) -> Self::Plane {
        std::array::from_fn(|word| {
            let bytes = std::array::from_fn(|i| unsafe { *data.add((word * 8 + i) * unit + byte) });
            u64::from_le_bytes(bytes)
        })
    }

    #[inline(always)]
    unsafe fn flipped(plane: Self::Plane, flip: u8) -> Self::Plane {
        plane.map(|bytes| bytes ^ (LOW_BITS * u64::from(flip)))
    }

    #[inline(always)]
    unsafe fn top_bits(plane: Self::Plane, left: u32) -> u64 {
        if left == ABSENT {
            return 0;
        }
        let mut out = 0;
        for (word, bytes) in plane.into_iter().enumerate() {
            // The product moves bit 0 of byte i to bit 56 + i; no two of its terms meet.
            let byte = ((bytes >> (7 - left)) & LOW_BITS).wrapping_mul(0x0102_0408_1020_4080) >> 56;
            out |= byte << (8 * word);
        }
        out
    }

    #[inline(always)]
    unsafe fn changes(plane: Self::Plane, before: u8, mask: u8) -> u64 {
        let (mut out, mut last) = (0, u64::from(before));
        for (word, bytes) in plane.into_iter().enumerate() {
            let differ = (bytes ^ (bytes << 8 | last)) & (LOW_BITS * u64::from(mask));
            last = bytes >> 56;
            // The top bit of a byte that is not 0.
            let some = (((differ & (LOW_BITS * 0x7f)) + LOW_BITS * 0x7f) | differ) >> 7 & LOW_BITS;
            out |= (some.wrapping_mul(0x0102_0408_1020_4080) >> 56) << (8 * word);
        }
        out
    }

    #[inline(always)]
    unsafe fn unchanged(
        data: *const u8,
        unit: usize,
        blocks: usize,
        watched: &SampleMask,
        counted: &SampleMask,
    ) -> (usize, u64) {
        let changed = |word: usize| unsafe {
            let at = data.add(8 * word);
            // Both as the masks are: the first byte lowest.
            u64::from_le(at.cast::<u64>().read_unaligned() ^ at.add(unit).cast::<u64>().read_unaligned())
        };
        let words = 8 * unit * blocks;
        let first = (0..words).find(|&word| changed(word) & watched.word(word, unit) != 0);
        let bytes = match first {
            Some(word) => {
                (8 * word + (changed(word) & watched.word(word, unit)).trailing_zeros() as usize / 8) / unit * unit
            }
            None => 8 * words,
        };
        let ticks = |word: usize| changed(word) & counted.word(word, unit);
        let whole: u64 = (0..bytes / 8).map(|word| u64::from(ticks(word).count_ones())).sum();
        let rest = match bytes % 8 {
            0 => 0,
            some => ticks(bytes / 8) & ((1 << (8 * some)) - 1),
        };
        (bytes / unit, whole + u64::from(rest.count_ones()))
    }

    #[inline(always)]
    unsafe fn compress(x: u64, mut mask: u64) -> u64 {
        let (mut out, mut to) = (0, 0);
        while mask != 0 {
            out |= ((x >> mask.trailing_zeros()) & 1) << to;
            to += 1;
            mask &= mask - 1;
        }
        out
    }

    #[inline(always)]
    unsafe fn expand(mut x: u64, mut mask: u64) -> u64 {
        let mut out = 0;
        while mask != 0 {
            let lowest = mask & mask.wrapping_neg();
            if x & 1 != 0 {
                out |= lowest;
            }
            x >>= 1;
            mask ^= lowest;
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bitmap_by_hand(data: &[u8], unit: usize, bit: usize) -> u64 {
        (0..64).fold(0, |map, i| map | u64::from(data[i * unit + bit / 8] >> (bit % 8) & 1) << i)
    }

    #[cfg(target_arch = "x86_64")]
    proptest! {
        /// A processor without these instructions has nothing to test here: others copy one sample after another.
        #[test]
        fn clocks_that_are_taken_out_are_those_of_the_bitmaps(
            data in proptest::collection::vec(any::<u8>(), 8 * (2 + 64 * 3)),
            blocks in 1usize..4,
            clk in 0usize..64,
            low in any::<bool>(),
            watched in any::<u64>(),
            stamp in 0..1u64 << 60,
        ) {
            for unit in 1..=8 {
                let Some(take) = Avx2::<0, true>::take_clocks(unit) else { continue };
                let repeated = |bits: u64| SampleMask::repeated(&bits.to_le_bytes()[..unit]).first();
                let clk = Bit::new(clk % (8 * unit), low);
                let bit = u64::from(clk.mask) << (8 * clk.byte);
                let look = Look { clk: repeated(bit), flip: repeated(bit & clk.flip), watched: repeated(watched) };
                let mut taken = Taken::default();
                taken.begin(unit, &data);
                // Safety: a sample is before these and one behind, and the processor has what it asks for.
                let gone = unsafe { take(data[unit..].as_ptr(), stamp, blocks, &look, &mut taken) };
                prop_assert!(gone == blocks || taken.is_still());
                let sample = |at: usize| &data[(at + 1) * unit..][..unit];
                let differ = |at: usize| {
                    let mut each = data[at * unit..][..unit].iter().zip(sample(at)).zip(watched.to_le_bytes());
                    each.any(|((before, now), mask)| (before ^ now) & mask != 0)
                };
                let places: Vec<_> =
                    (0..64 * gone).filter(|&at| !clk.get(sample(at)) && clk.get(sample(at + 1))).collect();
                prop_assert_eq!(taken.count(), 1 + places.len());
                for (nth, &at) in (1..).zip(&places) {
                    prop_assert_eq!(&taken.samples()[nth * unit..][..unit], sample(at));
                    prop_assert_eq!((taken.stamps()[nth], taken.suspect(nth) & 1 != 0), (stamp + at as u64, differ(at)));
                }
            }
        }

        #[test]
        fn places_are_those_of_the_bits(map: u64, sparse: u64, first in 0u16..1000) {
            fn check<B: Backend>(map: u64, first: u16) -> Result<(), TestCaseError> {
                let mut places = [0; 64];
                // Safety: there is room for 64.
                unsafe { B::places(map, first, places.as_mut_ptr()) };
                let expected: Vec<_> = (0..64).filter(|at| map >> at & 1 != 0).map(|at| first + at).collect();
                prop_assert_eq!(&places[..expected.len()], &expected[..]);
                let mut numbers = [0; 64];
                // Safety: the processor has what it asks for.
                unsafe { B::numbers(map, first.into(), &mut numbers) };
                let expected: Vec<_> = expected.into_iter().map(u64::from).collect();
                prop_assert_eq!(&numbers[..expected.len()], &expected[..]);
                Ok(())
            }
            for map in [map, map & sparse, map | sparse, 0, !0] {
                check::<Portable>(map, first)?;
                #[cfg(target_arch = "x86_64")]
                if avx512::reads() {
                    check::<Avx512<0, true>>(map, first)?;
                }
            }
        }
    }

    fn check<B: Backend>(data: &[u8], unit: usize) -> Result<(), TestCaseError> {
        for bit in 0..8 * unit {
            let expected = bitmap_by_hand(data, unit, bit);
            let mask = 1 << (bit % 8);
            unsafe {
                let plane = B::plane(data.as_ptr(), unit, bit / 8);
                prop_assert_eq!(B::top_bits(plane, 7 - bit as u32 % 8), expected);
                prop_assert_eq!(B::top_bits(plane, ABSENT), 0);
                prop_assert_eq!(B::top_bits(B::flipped(plane, mask), 7 - bit as u32 % 8), !expected);
                prop_assert_eq!(B::line(data.as_ptr(), unit, Bit::new(bit, false)), expected);
                for before in [false, true] {
                    let changes = expected ^ (expected << 1 | u64::from(before));
                    prop_assert_eq!(B::changes(plane, if before { mask } else { !mask }, mask), changes);
                }
                prop_assert_eq!(B::line(data.as_ptr(), unit, Bit::new(bit, true)), !expected);
            }
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn planes_and_bitmaps_equal_the_samples(unit in 1usize..18, seed in proptest::collection::vec(any::<u8>(), 64 * 17)) {
            let data = &seed[..64 * unit];
            check::<Portable>(data, unit)?;
            #[cfg(target_arch = "x86_64")]
            if has_fast_path() {
                check::<Avx2<0, true>>(data, unit)?;
                for byte in 0..unit {
                    // What processors without longer vectors do.
                    let (low, high): ([u8; 32], [u8; 32]) =
                        unsafe { std::mem::transmute(avx2::plane(data.as_ptr(), unit, byte)) };
                    prop_assert!(low.iter().chain(&high).eq(data[byte..].iter().step_by(unit)));
                }
                match unit {
                    1 => check::<Avx2<1, true>>(data, unit)?,
                    2 => check::<Avx2<2, true>>(data, unit)?,
                    4 => check::<Avx2<4, true>>(data, unit)?,
                    8 => check::<Avx2<8, true>>(data, unit)?,
                    _ => {}
                }
            }
            #[cfg(target_arch = "x86_64")]
            if avx512::reads() {
                check::<Avx512<0, true>>(data, unit)?;
                match unit {
                    1 => check::<Avx512<1, true>>(data, unit)?,
                    2 => check::<Avx512<2, true>>(data, unit)?,
                    _ => {}
                }
            }
        }

        #[test]
        fn compress_and_expand_are_inverse(x: u64, mask: u64) {
            let packed = unsafe { Portable::compress(x, mask) };
            prop_assert_eq!(unsafe { Portable::expand(packed, mask) }, x & mask);
            #[cfg(target_arch = "x86_64")]
            if has_fast_path() {
                prop_assert_eq!(unsafe { Avx2::<0, true>::compress(x, mask) }, packed);
                prop_assert_eq!(unsafe { Avx2::<0, true>::expand(packed, mask) }, x & mask);
            }
        }
    }

    /// Samples before the first change of bit `watched`, in whole blocks at most, and the changes of bit `counted` in them.
    fn unchanged_by_hand(data: &[u8], unit: usize, watched: usize, counted: usize) -> (usize, u64) {
        let changes = |sample: usize, bit: usize| {
            let level = |sample: usize| data[sample * unit + bit / 8] >> (bit % 8) & 1;
            level(sample) != level(sample + 1)
        };
        let samples = (data.len() / unit - 1) / 64 * 64;
        let end = (0..samples).find(|&sample| changes(sample, watched)).unwrap_or(samples);
        (end, (0..end).filter(|&sample| changes(sample, counted)).count() as u64)
    }

    proptest! {
        #[test]
        fn unchanged_samples_and_their_changes(
            unit in 1usize..9,
            blocks in 1usize..6,
            watched in 0usize..64,
            counted in 0usize..64,
            first: u64,
            flips in proptest::collection::vec((0usize..330, 0usize..64), 0..40),
        ) {
            let (watched, counted) = (watched % (8 * unit), counted % (8 * unit));
            let mut data = Vec::new();
            for sample in 0..64 * blocks + 1 {
                // Every flip lasts; the watched bit flips seldom.
                let flipped = |&&(at, bit): &&(usize, usize)| at <= sample && (bit % (8 * unit) != watched || at % 5 == 0);
                let value = flips.iter().filter(flipped).fold(first, |value, &(_, bit)| value ^ 1 << (bit % (8 * unit)));
                data.extend_from_slice(&value.to_le_bytes()[..unit]);
            }
            let expected = unchanged_by_hand(&data, unit, watched, counted);
            let mask = |bit: usize| SampleMask::repeated(&(1u64 << bit).to_le_bytes()[..unit]);
            let (w, c) = (&mask(watched), &mask(counted));
            prop_assert_eq!(unsafe { Portable::unchanged(data.as_ptr(), unit, blocks, w, c) }, expected);
            #[cfg(target_arch = "x86_64")]
            if has_fast_path() {
                prop_assert_eq!(unsafe { Avx2::<0, true>::unchanged(data.as_ptr(), unit, blocks, w, c) }, expected);
                prop_assert_eq!(unsafe { avx2::unchanged_of(data.as_ptr(), unit, blocks, w, c) }, expected);
            }
        }
    }
}
