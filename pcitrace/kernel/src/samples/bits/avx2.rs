//! [`Backend`] by AVX2 and BMI2.

use super::{Backend, ChangeWays, SampleMask, TakeClocks};
use std::arch::x86_64::*;

/// For samples of `UNIT` bytes; of any size for 0. `DATA` as in [`Backend`].
#[derive(Clone, Copy)]
pub struct Avx2<const UNIT: usize, const DATA: bool>;

impl<const UNIT: usize, const DATA: bool> Backend for Avx2<UNIT, DATA> {
    type Plane = [__m256i; 2];

    const DATA: bool = DATA;

    #[inline(always)]
    fn unit(unit: usize) -> usize {
        if UNIT == 0 { unit } else { UNIT }
    }

    #[inline(always)]
    unsafe fn words(data: *const u8, unit: usize, samples: u64, to: &mut [u64; 64]) {
        // Safety: as the caller says, and the processor has what is asked for, here and below.
        unsafe {
            match Self::unit(unit) {
                unit @ 5..=8 if super::avx512::reads() => super::avx512::words(data, unit, samples, to),
                unit => super::words_one_by_one(data, unit, samples, to),
            }
        }
    }

    #[inline(always)]
    unsafe fn numbers(map: u64, first: u64, to: &mut [u64; 64]) {
        if super::avx512::reads() {
            unsafe { super::avx512::put_stamps(map, first, to.as_mut_ptr()) }
        } else {
            super::numbers_one_by_one(map, first, to);
        }
    }

    fn take_clocks(unit: usize) -> Option<TakeClocks> {
        super::avx512::take_clocks(unit)
    }

    fn change_ways(unit: usize) -> Option<ChangeWays> {
        super::avx512::changes::ways(unit)
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
            0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15, 0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15,
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
