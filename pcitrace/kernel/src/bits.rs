//! Samples to bitmaps: 64 samples at a time, bit `i` of a bitmap is sample `i`.
//!
//! Two implementations of one trait: AVX2 + BMI2 where the processor has them, portable integer arithmetic elsewhere.
//! The choice is made once a decoder ([`has_fast_path`]); both give the same bitmaps (tested below).

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

/// Takes the clocks out of 64 samples: from, what is looked at, to, stamps, stamp of the first. Gives which samples are clocks,
/// and before which of all samples something changed.
///
/// # Safety
/// A sample has to be before them and one behind; there has to be room for 64 of each, and the processor has what
/// [`Backend::take_clocks`] asks for.
pub type TakeClocks = unsafe fn(*const u8, &Look, *mut u8, *mut u64, u64) -> (u64, u64);

/// Bits of samples whose size divides eight bytes, repeated: CLK, the same where CLK is low if it is set, and what is watched.
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

    /// False where it is known when compiled that only CLK, the control lines, GNT# and RST# were captured.
    const DATA: bool;

    /// The size of samples: what is known of it when compiled, or else `unit`.
    #[inline(always)]
    fn unit(unit: usize) -> usize {
        unit
    }

    /// For samples of `unit` bytes, where the processor can do that in a few instructions.
    fn take_clocks(_unit: usize) -> Option<TakeClocks> {
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

/// For samples of `UNIT` bytes; of any size for 0. `DATA` as in [`Backend`].
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
pub struct Avx2<const UNIT: usize, const DATA: bool>;

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use super::{Avx2, Backend, SampleMask, TakeClocks};
    use std::arch::x86_64::*;

    impl<const UNIT: usize, const DATA: bool> Backend for Avx2<UNIT, DATA> {
        type Plane = [__m256i; 2];

        const DATA: bool = DATA;

        #[inline(always)]
        fn unit(unit: usize) -> usize {
            if UNIT == 0 { unit } else { UNIT }
        }

        fn take_clocks(unit: usize) -> Option<TakeClocks> {
            super::avx512::take_clocks(unit)
        }

        #[inline(always)]
        unsafe fn plane(data: *const u8, unit: usize, byte: usize) -> Self::Plane {
            unsafe {
                match Self::unit(unit) {
                    unit @ 3..=8 if super::avx512::picks() => {
                        let bytes = super::avx512::plane(data, unit, byte);
                        [load(bytes.as_ptr()), load(bytes.as_ptr().add(32))]
                    }
                    unit => plane(data, unit, byte),
                }
            }
        }

        #[inline(always)]
        unsafe fn flipped(plane: Self::Plane, flip: u8) -> Self::Plane {
            unsafe {
                let flip = _mm256_set1_epi8(flip as i8);
                [_mm256_xor_si256(plane[0], flip), _mm256_xor_si256(plane[1], flip)]
            }
        }

        #[inline(always)]
        unsafe fn top_bits(plane: Self::Plane, left: u32) -> u64 {
            unsafe {
                // Two bytes at a time: shifts below 8 move nothing of the lower one to the top of the upper one.
                let left = _mm_cvtsi32_si128(left as i32);
                let low = _mm256_movemask_epi8(_mm256_sll_epi16(plane[0], left)) as u32;
                let high = _mm256_movemask_epi8(_mm256_sll_epi16(plane[1], left)) as u32;
                u64::from(low) | u64::from(high) << 32
            }
        }

        #[inline(always)]
        unsafe fn changes(plane: Self::Plane, before: u8, mask: u8) -> u64 {
            unsafe {
                let [low, high] = plane;
                let (mask, zero) = (_mm256_set1_epi8(mask as i8), _mm256_setzero_si256());
                // Each byte beside the one before it, which may lie in the other half of a vector.
                let first = _mm256_permute2x128_si256(_mm256_set1_epi8(before as i8), low, 0x20);
                let between = _mm256_permute2x128_si256(low, high, 0x21);
                let low = _mm256_xor_si256(low, _mm256_alignr_epi8(low, first, 15));
                let high = _mm256_xor_si256(high, _mm256_alignr_epi8(high, between, 15));
                let low = _mm256_movemask_epi8(_mm256_cmpeq_epi8(_mm256_and_si256(low, mask), zero)) as u32;
                let high = _mm256_movemask_epi8(_mm256_cmpeq_epi8(_mm256_and_si256(high, mask), zero)) as u32;
                !(u64::from(low) | u64::from(high) << 32)
            }
        }

        #[inline(always)]
        unsafe fn unchanged(
            data: *const u8,
            unit: usize,
            blocks: usize,
            watched: &SampleMask,
            counted: &SampleMask,
        ) -> (usize, u64) {
            // Most of the time of a decode goes by here: each unit size has its own loop.
            unsafe {
                if super::avx512::counts() {
                    super::avx512::unchanged(data, Self::unit(unit), blocks, watched, counted)
                } else {
                    unchanged_of(data, Self::unit(unit), blocks, watched, counted)
                }
            }
        }

        #[inline(always)]
        unsafe fn compress(x: u64, mask: u64) -> u64 {
            unsafe { _pext_u64(x, mask) }
        }

        #[inline(always)]
        unsafe fn expand(x: u64, mask: u64) -> u64 {
            unsafe { _pdep_u64(x, mask) }
        }
    }

    #[inline(always)]
    unsafe fn load(data: *const u8) -> __m256i {
        unsafe { _mm256_loadu_si256(data.cast()) }
    }

    // No closures here: an intrinsic is inlined only into a function that has its target feature, and a closure has not.

    /// One byte of each of 64 samples.
    #[inline(always)]
    pub unsafe fn plane(data: *const u8, unit: usize, byte: usize) -> [__m256i; 2] {
        unsafe {
            match unit {
                1 => [load(data), load(data.add(32))],
                2 => [pack16(data, byte), pack16(data.add(64), byte)],
                4 => [pack32(data, byte), pack32(data.add(128), byte)],
                8 => [pack64(data, byte), pack64(data.add(256), byte)],
                3 => pick::<4>(data, 3, byte),
                unit @ 5..=7 => pick::<2>(data, unit, byte),
                _ => {
                    let bytes: [u8; 64] = std::array::from_fn(|i| *data.add(i * unit + byte));
                    [load(bytes.as_ptr()), load(bytes.as_ptr().add(32))]
                }
            }
        }
    }

    /// One byte of each of 32 two-byte samples, in order.
    #[inline(always)]
    unsafe fn pack16(data: *const u8, byte: usize) -> __m256i {
        unsafe {
            let count = _mm_cvtsi32_si128(8 * byte as i32);
            let low_byte = _mm256_set1_epi16(0xff);
            let a = _mm256_and_si256(_mm256_srl_epi16(load(data), count), low_byte);
            let b = _mm256_and_si256(_mm256_srl_epi16(load(data.add(32)), count), low_byte);
            _mm256_permute4x64_epi64(_mm256_packus_epi16(a, b), 0b11_01_10_00)
        }
    }

    #[target_feature(enable = "avx2,popcnt,bmi1")]
    pub unsafe fn unchanged_of(
        data: *const u8,
        unit: usize,
        blocks: usize,
        watched: &SampleMask,
        counted: &SampleMask,
    ) -> (usize, u64) {
        unsafe {
            match unit {
                1 => unchanged::<1>(data, blocks, watched, counted),
                2 => unchanged::<2>(data, blocks, watched, counted),
                3 => unchanged::<3>(data, blocks, watched, counted),
                4 => unchanged::<4>(data, blocks, watched, counted),
                5 => unchanged::<5>(data, blocks, watched, counted),
                6 => unchanged::<6>(data, blocks, watched, counted),
                7 => unchanged::<7>(data, blocks, watched, counted),
                _ => unchanged::<8>(data, blocks, watched, counted),
            }
        }
    }

    #[inline(always)]
    unsafe fn unchanged<const UNIT: usize>(
        data: *const u8,
        blocks: usize,
        watched: &SampleMask,
        counted: &SampleMask,
    ) -> (usize, u64) {
        unsafe {
            let (one, zero) = (_mm256_set1_epi8(1), _mm256_setzero_si256());
            let mut count = zero;
            let mut block = 0;
            while block < blocks {
                let start = data.add(64 * UNIT * block);
                let (mut any, mut changes) = (zero, zero);
                for i in 0..2 * UNIT {
                    let changed = changed::<UNIT>(start.add(32 * i));
                    // Where all vectors have the same mask, it comes last.
                    let mask = if UNIT.is_power_of_two() { changed } else { vector::<UNIT>(watched, i) };
                    any = _mm256_or_si256(any, _mm256_and_si256(changed, mask));
                    let is_counted = _mm256_min_epu8(_mm256_and_si256(changed, vector::<UNIT>(counted, i)), one);
                    changes = _mm256_add_epi8(changes, is_counted);
                }
                let mask = if UNIT.is_power_of_two() { vector::<UNIT>(watched, 0) } else { any };
                if _mm256_testz_si256(any, mask) == 0 {
                    break;
                }
                count = _mm256_add_epi64(count, _mm256_sad_epu8(changes, zero));
                block += 1;
            }
            let pair = _mm_add_epi64(_mm256_castsi256_si128(count), _mm256_extracti128_si256(count, 1));
            let mut count = (_mm_cvtsi128_si64(pair) + _mm_extract_epi64(pair, 1)) as u64;
            if block == blocks {
                return (64 * blocks, count);
            }
            // Within this block: first the change, then the ticks in the samples before it.
            let start = data.add(64 * UNIT * block);
            let mut at = 0;
            while changed_bytes::<UNIT>(start, at, watched) == 0 {
                at += 1;
            }
            let byte = 64 * at + changed_bytes::<UNIT>(start, at, watched).trailing_zeros() as usize;
            let end = byte / UNIT * UNIT;
            for at in 0..end / 64 {
                count += u64::from(changed_bytes::<UNIT>(start, at, counted).count_ones());
            }
            if !end.is_multiple_of(64) {
                let before = (1 << (end % 64)) - 1;
                count += u64::from((changed_bytes::<UNIT>(start, end / 64, counted) & before).count_ones());
            }
            (64 * block + end / UNIT, count)
        }
    }

    /// The mask for 32 bytes, number `i` of a block.
    #[inline(always)]
    unsafe fn vector<const UNIT: usize>(mask: &SampleMask, i: usize) -> __m256i {
        unsafe {
            if UNIT.is_power_of_two() {
                return _mm256_set1_epi64x(mask.first() as i64);
            }
            load(mask.0.as_ptr().add(4 * (i % UNIT)).cast())
        }
    }

    /// Which of 64 bytes, number `at` of a block, differ from those of the next sample in a bit of `mask`.
    #[inline(always)]
    unsafe fn changed_bytes<const UNIT: usize>(start: *const u8, at: usize, mask: &SampleMask) -> u64 {
        unsafe {
            let zero = _mm256_setzero_si256();
            let low = _mm256_and_si256(changed::<UNIT>(start.add(64 * at)), vector::<UNIT>(mask, 2 * at));
            let high = _mm256_and_si256(changed::<UNIT>(start.add(64 * at + 32)), vector::<UNIT>(mask, 2 * at + 1));
            let low = _mm256_movemask_epi8(_mm256_cmpeq_epi8(low, zero)) as u32;
            let high = _mm256_movemask_epi8(_mm256_cmpeq_epi8(high, zero)) as u32;
            !(u64::from(low) | u64::from(high) << 32)
        }
    }

    /// The bits in which samples in 32 bytes differ from the next ones.
    #[inline(always)]
    unsafe fn changed<const UNIT: usize>(at: *const u8) -> __m256i {
        unsafe { _mm256_xor_si256(load(at), load(at.add(UNIT))) }
    }

    /// One byte of each of 64 samples of `unit` bytes, `N` of which are loaded at a time.
    #[inline(always)]
    unsafe fn pick<const N: usize>(data: *const u8, unit: usize, byte: usize) -> [__m256i; 2] {
        unsafe {
            let mut at = [-1i8; 16];
            let mut last = [-1i8; 16];
            for i in 0..N {
                at[i] = (byte + i * unit) as i8;
                // The last samples are loaded together with bytes before them, as none need follow.
                last[i] = at[i] + (16 - N * unit) as i8;
            }
            let (at, last) = (_mm_loadu_si128(at.as_ptr().cast()), _mm_loadu_si128(last.as_ptr().cast()));
            let mut quarters = [_mm_setzero_si128(); 4];
            let mut i = 0;
            while i < 4 {
                let start = data.add(16 * i * unit);
                let mut picked = [_mm_setzero_si128(); 8];
                let mut j = 0;
                while j < 16 / N {
                    picked[j] = _mm_shuffle_epi8(_mm_loadu_si128(start.add(j * N * unit).cast()), at);
                    j += 1;
                    if i == 3 && j == 16 / N - 1 {
                        picked[j] = _mm_shuffle_epi8(_mm_loadu_si128(data.add(64 * unit - 16).cast()), last);
                        j += 1;
                    }
                }
                if N == 2 {
                    let mut j = 0;
                    while j < 4 {
                        picked[j] = _mm_unpacklo_epi16(picked[2 * j], picked[2 * j + 1]);
                        j += 1;
                    }
                }
                let low = _mm_unpacklo_epi32(picked[0], picked[1]);
                quarters[i] = _mm_unpacklo_epi64(low, _mm_unpacklo_epi32(picked[2], picked[3]));
                i += 1;
            }
            [_mm256_set_m128i(quarters[1], quarters[0]), _mm256_set_m128i(quarters[3], quarters[2])]
        }
    }

    /// One byte of each of 32 four-byte samples, in order.
    #[inline(always)]
    unsafe fn pack32(data: *const u8, byte: usize) -> __m256i {
        unsafe {
            let count = _mm_cvtsi32_si128(8 * byte as i32);
            let low_byte = _mm256_set1_epi32(0xff);
            let a = _mm256_and_si256(_mm256_srl_epi32(load(data), count), low_byte);
            let b = _mm256_and_si256(_mm256_srl_epi32(load(data.add(32)), count), low_byte);
            let c = _mm256_and_si256(_mm256_srl_epi32(load(data.add(64)), count), low_byte);
            let d = _mm256_and_si256(_mm256_srl_epi32(load(data.add(96)), count), low_byte);
            // All packs work within 128-bit lanes; the permutation puts the eight groups of four back in order.
            let mixed = _mm256_packus_epi16(_mm256_packus_epi32(a, b), _mm256_packus_epi32(c, d));
            _mm256_permutevar8x32_epi32(mixed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7))
        }
    }

    /// One byte of each of 32 eight-byte samples, in order.
    #[inline(always)]
    unsafe fn pack64(data: *const u8, byte: usize) -> __m256i {
        unsafe {
            let count = _mm_cvtsi32_si128(8 * byte as i32);
            let low = _mm256_packus_epi32(pair64(data, count), pair64(data.add(64), count));
            let high = _mm256_packus_epi32(pair64(data.add(128), count), pair64(data.add(192), count));
            let mixed = _mm256_packus_epi16(low, high);
            // Lane 0 holds a0 b0 a1 b1 of the four pairs, lane 1 a2 b2 a3 b3; order them a0 a1 a2 a3 b0 b1 b2 b3.
            let within = _mm256_setr_epi8(
                0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15, 0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13,
                15,
            );
            let sorted = _mm256_shuffle_epi8(mixed, within);
            let (first, last) = (_mm256_castsi256_si128(sorted), _mm256_extracti128_si256(sorted, 1));
            _mm256_set_m128i(_mm_unpackhi_epi16(first, last), _mm_unpacklo_epi16(first, last))
        }
    }

    /// Two vectors of four eight-byte samples as eight 32-bit values: a0 b0 a1 b1 | a2 b2 a3 b3.
    #[inline(always)]
    unsafe fn pair64(data: *const u8, count: __m128i) -> __m256i {
        unsafe {
            let low_byte = _mm256_set1_epi64x(0xff);
            let a = _mm256_and_si256(_mm256_srl_epi64(load(data), count), low_byte);
            let b = _mm256_and_si256(_mm256_srl_epi64(load(data.add(32)), count), low_byte);
            _mm256_or_si256(a, _mm256_slli_epi64(b, 32))
        }
    }
}

/// What takes AVX2 eight instructions a clock: one instruction puts 64 bytes of samples side by side, and one more looks at a
/// line in all of them.
#[cfg(target_arch = "x86_64")]
pub(crate) mod avx512 {
    use super::{Look, SampleMask, TakeClocks};
    use crate::block::{below, rises};
    use std::arch::x86_64::*;
    use std::sync::LazyLock;

    /// The processor has what [`unchanged`] asks for.
    #[inline(always)]
    pub fn counts() -> bool {
        static HAS: LazyLock<bool> = LazyLock::new(|| {
            is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("popcnt")
                && is_x86_feature_detected!("bmi1")
        });
        *HAS
    }

    /// The processor has what [`plane`] asks for.
    #[inline(always)]
    pub fn picks() -> bool {
        static HAS: LazyLock<bool> = LazyLock::new(|| {
            is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512vbmi")
        });
        *HAS
    }

    /// One byte of each of 64 samples of three to eight bytes: each instruction picks out of 128 bytes.
    ///
    /// # Safety
    /// As of [`super::Backend`], and the processor [`picks`].
    #[inline(always)]
    pub unsafe fn plane(data: *const u8, unit: usize, byte: usize) -> [u8; 64] {
        unsafe {
            match unit {
                3 => plane_of::<3>(data, byte),
                4 => plane_of::<4>(data, byte),
                5 => plane_of::<5>(data, byte),
                6 => plane_of::<6>(data, byte),
                7 => plane_of::<7>(data, byte),
                _ => plane_of::<8>(data, byte),
            }
        }
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
    unsafe fn plane_of<const UNIT: usize>(data: *const u8, byte: usize) -> [u8; 64] {
        let mut bytes = [0; 64];
        // Safety: the samples fill so many vectors.
        unsafe {
            let picked = Pick::of::<UNIT>(byte).out_of(&load::<UNIT>(data));
            _mm512_storeu_si512(bytes.as_mut_ptr().cast(), picked);
        }
        bytes
    }

    /// The vectors that 64 samples fill.
    ///
    /// # Safety
    /// They are there.
    #[target_feature(enable = "avx512f")]
    #[inline]
    pub unsafe fn load<const UNIT: usize>(data: *const u8) -> [__m512i; UNIT] {
        let mut vectors = [_mm512_setzero_si512(); UNIT];
        for (nth, vector) in vectors.iter_mut().enumerate() {
            // Safety: as the caller says.
            *vector = unsafe { _mm512_loadu_si512(data.add(64 * nth).cast()) };
        }
        vectors
    }

    /// Picks one byte of each of 64 samples out of the vectors that they fill.
    #[derive(Clone, Copy)]
    pub struct Pick {
        /// Where it is in the two vectors that it lies in: only the lowest seven bits count.
        places: __m512i,
        /// The samples whose byte lies in each two vectors.
        here: [u64; 4],
    }

    impl Pick {
        #[target_feature(enable = "avx512f,avx512bw")]
        #[inline]
        pub fn of<const UNIT: usize>(byte: usize) -> Self {
            let from = |pair: usize| (128 * pair).saturating_sub(byte).div_ceil(UNIT) as u32;
            let mut here = [0; 4];
            for (pair, here) in here.iter_mut().enumerate() {
                *here = below(from(pair + 1)) & !below(from(pair));
            }
            let lowest = const {
                let mut places = [0; 64];
                let mut at = 0;
                while at < 64 {
                    places[at] = (at * UNIT % 128) as u8;
                    at += 1;
                }
                places
            };
            // Safety: so many bytes are there.
            let lowest = unsafe { _mm512_loadu_si512(lowest.as_ptr().cast()) };
            Pick { places: _mm512_add_epi8(lowest, _mm512_set1_epi8(byte as i8)), here }
        }

        #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
        #[inline]
        pub fn out_of<const UNIT: usize>(&self, vectors: &[__m512i; UNIT]) -> __m512i {
            let mut picked = _mm512_setzero_si512();
            for (pair, here) in self.here.iter().enumerate().take(UNIT.div_ceil(2)) {
                let (low, high) = (vectors[2 * pair], vectors[(2 * pair + 1).min(UNIT - 1)]);
                picked = _mm512_or_si512(picked, _mm512_maskz_permutex2var_epi8(*here, low, self.places, high));
            }
            picked
        }
    }

    /// [`super::Backend::unchanged`] with a third of the instructions: a long idle stretch comes as fast as memory gives it.
    ///
    /// # Safety
    /// As there.
    pub unsafe fn unchanged(
        data: *const u8,
        unit: usize,
        blocks: usize,
        watched: &SampleMask,
        counted: &SampleMask,
    ) -> (usize, u64) {
        unsafe {
            match unit {
                1 => unchanged_of::<1>(data, blocks, watched, counted),
                2 => unchanged_of::<2>(data, blocks, watched, counted),
                3 => unchanged_of::<3>(data, blocks, watched, counted),
                4 => unchanged_of::<4>(data, blocks, watched, counted),
                5 => unchanged_of::<5>(data, blocks, watched, counted),
                6 => unchanged_of::<6>(data, blocks, watched, counted),
                7 => unchanged_of::<7>(data, blocks, watched, counted),
                _ => unchanged_of::<8>(data, blocks, watched, counted),
            }
        }
    }

    #[target_feature(enable = "avx512f,avx512bw,popcnt,bmi1")]
    unsafe fn unchanged_of<const UNIT: usize>(
        data: *const u8,
        blocks: usize,
        watched: &SampleMask,
        counted: &SampleMask,
    ) -> (usize, u64) {
        // Safety: as the caller says; and each mask has eight words from any of the first eight on.
        unsafe {
            let zero = _mm512_setzero_si512();
            let (mut watches, mut counts) = ([zero; UNIT], [zero; UNIT]);
            for (nth, (watch, count)) in watches.iter_mut().zip(&mut counts).enumerate() {
                *watch = _mm512_loadu_si512(watched.0.as_ptr().add(8 * nth % UNIT).cast());
                *count = _mm512_loadu_si512(counted.0.as_ptr().add(8 * nth % UNIT).cast());
            }
            let mut count = 0;
            for block in 0..blocks {
                let start = data.add(64 * UNIT * block);
                let (mut any, mut ticks) = (zero, 0);
                for nth in 0..UNIT {
                    _mm_prefetch::<_MM_HINT_T0>(start.wrapping_add(AHEAD + 64 * nth).cast());
                    let changed = changed::<UNIT>(start.add(64 * nth));
                    any = _mm512_or_si512(any, _mm512_and_si512(changed, watches[nth]));
                    ticks += u64::from(_mm512_test_epi8_mask(changed, counts[nth]).count_ones());
                }
                if _mm512_test_epi8_mask(any, any) == 0 {
                    count += ticks;
                    continue;
                }
                // Within this block: first the change, then the ticks in the samples before it.
                let mut end = 0;
                for (nth, &watch) in watches.iter().enumerate() {
                    let changes = _mm512_test_epi8_mask(changed::<UNIT>(start.add(64 * nth)), watch);
                    if changes != 0 {
                        end = (64 * nth + changes.trailing_zeros() as usize) / UNIT;
                        break;
                    }
                }
                for (nth, &counted) in counts.iter().enumerate() {
                    let before = below((end * UNIT).saturating_sub(64 * nth).min(64) as u32);
                    let ticks = _mm512_test_epi8_mask(changed::<UNIT>(start.add(64 * nth)), counted);
                    count += u64::from((ticks & before).count_ones());
                }
                return (64 * block + end, count);
            }
            (64 * blocks, count)
        }
    }

    /// The bits in which samples in 64 bytes differ from the next ones.
    #[target_feature(enable = "avx512f")]
    #[inline]
    unsafe fn changed<const UNIT: usize>(at: *const u8) -> __m512i {
        // Safety: these bytes are there, and a sample more.
        unsafe { _mm512_xor_si512(_mm512_loadu_si512(at.cast()), _mm512_loadu_si512(at.add(UNIT).cast())) }
    }

    pub fn take_clocks(unit: usize) -> Option<TakeClocks> {
        let has = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vbmi2")
            && is_x86_feature_detected!("popcnt");
        match unit {
            1 => Some(take::<1> as TakeClocks),
            2 => Some(take::<2> as TakeClocks),
            4 => Some(take::<4> as TakeClocks),
            8 => Some(take::<8> as TakeClocks),
            _ => None,
        }
        .filter(|_| has)
    }

    /// In which samples of a vector a bit of the mask is set.
    #[target_feature(enable = "avx512f,avx512bw")]
    fn any<const UNIT: usize>(samples: __m512i, mask: __m512i) -> u64 {
        match UNIT {
            1 => _mm512_test_epi8_mask(samples, mask),
            2 => _mm512_test_epi16_mask(samples, mask).into(),
            4 => _mm512_test_epi32_mask(samples, mask).into(),
            _ => _mm512_test_epi64_mask(samples, mask).into(),
        }
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi2,popcnt")]
    unsafe fn take<const UNIT: usize>(
        from: *const u8,
        look: &Look,
        mut to: *mut u8,
        stamps: *mut u64,
        stamp: u64,
    ) -> (u64, u64) {
        let lanes = 64 / UNIT;
        let mask = |bits: u64| _mm512_set1_epi64(bits as i64);
        let (clk, flip, watched) = (mask(look.clk), mask(look.flip), mask(look.watched));
        let mut all = [_mm512_setzero_si512(); UNIT];
        let (mut high, mut changed) = (0, 0);
        // Safety: 64 samples are there with one before and one behind, and room for what is written.
        unsafe {
            for line in 0..UNIT {
                _mm_prefetch::<_MM_HINT_T0>(from.wrapping_add(AHEAD + 64 * line).cast());
            }
            for (nth, samples) in all.iter_mut().enumerate() {
                *samples = _mm512_loadu_si512(from.add(64 * nth).cast());
                let before = _mm512_loadu_si512(from.add(64 * nth).sub(UNIT).cast());
                high |= any::<UNIT>(_mm512_xor_si512(*samples, flip), clk) << (nth * lanes);
                changed |= any::<UNIT>(_mm512_xor_si512(*samples, before), watched) << (nth * lanes);
            }
            let behind = from.add(64 * UNIT);
            let behind = match UNIT {
                1 => behind.read().into(),
                2 => behind.cast::<u16>().read_unaligned().into(),
                4 => behind.cast::<u32>().read_unaligned().into(),
                _ => behind.cast::<u64>().read_unaligned(),
            };
            let clocks = rises(high, (behind ^ look.flip) & look.clk & (!0 >> (64 - 8 * UNIT)) != 0);
            for (nth, &samples) in all.iter().enumerate() {
                let which = clocks >> (nth * lanes) & (!0 >> (64 - lanes));
                // To registers: written to memory at once it takes ten times as long on some processors.
                let packed = match UNIT {
                    1 => _mm512_maskz_compress_epi8(which, samples),
                    2 => _mm512_maskz_compress_epi16(which as u32, samples),
                    4 => _mm512_maskz_compress_epi32(which as u16, samples),
                    _ => _mm512_maskz_compress_epi64(which as u8, samples),
                };
                _mm512_storeu_si512(to.cast(), packed);
                to = to.add(UNIT * which.count_ones() as usize);
            }
            let places = _mm512_maskz_compress_epi8(clocks, _mm512_loadu_si512(PLACES.as_ptr().cast()));
            let mut each = [0u8; 64];
            _mm512_storeu_si512(each.as_mut_ptr().cast(), places);
            let first = _mm512_set1_epi64(stamp as i64);
            for at in (0..clocks.count_ones() as usize).step_by(8) {
                let eight = _mm512_cvtepu8_epi64(_mm_loadl_epi64(each.as_ptr().add(at).cast()));
                _mm512_storeu_si512(stamps.add(at).cast(), _mm512_add_epi64(first, eight));
            }
            (clocks, changed)
        }
    }

    /// Bytes that are asked for ahead: a page, beyond whose end the processor does not look by itself.
    const AHEAD: usize = 4096;

    const PLACES: [u8; 64] = {
        let mut places = [0; 64];
        let mut at = 0;
        while at < 64 {
            places[at] = at as u8;
            at += 1;
        }
        places
    };
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
            data in proptest::collection::vec(any::<u8>(), 8 * 66),
            clk in 0usize..64,
            low in any::<bool>(),
            watched in any::<u64>(),
            stamp in 0..1u64 << 60,
        ) {
            for unit in [1, 2, 4, 8] {
                let Some(take) = Avx2::<0, true>::take_clocks(unit) else { continue };
                let repeated = |bits: u64| SampleMask::repeated(&bits.to_le_bytes()[..unit]).first();
                let clk = Bit::new(clk % (8 * unit), low);
                let bit = u64::from(clk.mask) << (8 * clk.byte);
                let look = Look { clk: repeated(bit), flip: repeated(bit & clk.flip), watched: repeated(watched) };
                let (mut samples, mut stamps) = (vec![0; 64 * unit], vec![0; 64]);
                // Safety: a sample is before these and one behind, there is room for all, and the processor has what it asks for.
                let (clocks, changed) =
                    unsafe { take(data[unit..].as_ptr(), &look, samples.as_mut_ptr(), stamps.as_mut_ptr(), stamp) };
                let sample = |at: usize| &data[(at + 1) * unit..][..unit];
                let places: Vec<_> = (0..64).filter(|&at| !clk.get(sample(at)) && clk.get(sample(at + 1))).collect();
                prop_assert_eq!(clocks, places.iter().fold(0, |map, at| map | 1 << at));
                let differ = |at: usize| {
                    let mut each = data[at * unit..][..unit].iter().zip(sample(at)).zip(watched.to_le_bytes());
                    each.any(|((before, now), mask)| (before ^ now) & mask != 0)
                };
                prop_assert_eq!(changed, (0..64).fold(0, |map, at| map | u64::from(differ(at)) << at));
                let expected: Vec<u8> = places.iter().flat_map(|&at| sample(at).to_vec()).collect();
                prop_assert_eq!(&samples[..expected.len()], &expected[..]);
                let expected: Vec<u64> = places.iter().map(|&at| stamp + at as u64).collect();
                prop_assert_eq!(&stamps[..places.len()], &expected[..]);
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
