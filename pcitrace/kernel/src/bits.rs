//! Samples to bitmaps: 64 samples at a time, bit `i` of a bitmap is sample `i`.
//!
//! Two implementations of one trait: AVX2 + BMI2 where the processor has them, portable integer arithmetic elsewhere.
//! The choice is made once a decoder ([`has_fast_path`]); both give the same bitmaps (tested below).

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

/// How 64 samples become bitmaps.
///
/// # Safety
/// `data` must be valid for `64 * unit` bytes, `byte < unit`, and the processor must have what the implementation uses.
pub trait Backend {
    /// One byte of each of 64 samples.
    type Plane: Copy;

    /// # Safety
    /// As for the trait.
    unsafe fn plane(data: *const u8, unit: usize, byte: usize) -> Self::Plane;

    /// # Safety
    /// As for the trait.
    unsafe fn bitmap(plane: Self::Plane, mask: u8) -> u64;

    /// Are all bits of `mask` set in every eight bytes of 64 samples, seen through `flip`? `unit` divides 8.
    ///
    /// # Safety
    /// As for the trait.
    unsafe fn all_set(data: *const u8, unit: usize, flip: u64, mask: u64) -> bool;

    /// [`Backend::plane`] and [`Backend::bitmap`] for a single line.
    ///
    /// # Safety
    /// As for the trait.
    #[inline(always)]
    unsafe fn level(data: *const u8, unit: usize, byte: usize, mask: u8) -> u64 {
        unsafe { Self::bitmap(Self::plane(data, unit, byte), mask) }
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

pub fn has_fast_path() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("popcnt")
            && is_x86_feature_detected!("lzcnt")
    }
    #[cfg(not(target_arch = "x86_64"))]
    false
}

pub struct Portable;

const LOW_BITS: u64 = 0x0101_0101_0101_0101;

impl Backend for Portable {
    type Plane = [u64; 8];

    #[inline(always)]
    unsafe fn plane(data: *const u8, unit: usize, byte: usize) -> Self::Plane {
        std::array::from_fn(|word| {
            let bytes = std::array::from_fn(|i| unsafe { *data.add((word * 8 + i) * unit + byte) });
            u64::from_le_bytes(bytes)
        })
    }

    #[inline(always)]
    unsafe fn bitmap(plane: Self::Plane, mask: u8) -> u64 {
        let shift = mask.trailing_zeros();
        let mut out = 0;
        for (word, bytes) in plane.into_iter().enumerate() {
            // The product moves bit 0 of byte i to bit 56 + i; no two of its terms meet.
            let byte = ((bytes >> shift) & LOW_BITS).wrapping_mul(0x0102_0408_1020_4080) >> 56;
            out |= byte << (8 * word);
        }
        out
    }

    #[inline(always)]
    unsafe fn all_set(data: *const u8, unit: usize, flip: u64, mask: u64) -> bool {
        let words = (0..8 * unit).map(|i| unsafe { data.cast::<u64>().add(i).read_unaligned() });
        words.fold(mask, |all, word| all & (word ^ flip)) == mask
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

#[cfg(target_arch = "x86_64")]
pub struct Avx2;

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use super::{Avx2, Backend};
    use std::arch::x86_64::*;

    impl Backend for Avx2 {
        type Plane = [__m256i; 2];

        #[inline(always)]
        unsafe fn plane(data: *const u8, unit: usize, byte: usize) -> Self::Plane {
            unsafe {
                match unit {
                    1 => [load(data), load(data.add(32))],
                    2 => [pack16(data, byte), pack16(data.add(64), byte)],
                    4 => [pack32(data, byte), pack32(data.add(128), byte)],
                    8 => [pack64(data, byte), pack64(data.add(256), byte)],
                    _ => {
                        let bytes: [u8; 64] = std::array::from_fn(|i| *data.add(i * unit + byte));
                        [load(bytes.as_ptr()), load(bytes.as_ptr().add(32))]
                    }
                }
            }
        }

        #[inline(always)]
        unsafe fn bitmap(plane: Self::Plane, mask: u8) -> u64 {
            unsafe {
                let mask = _mm256_set1_epi8(mask as i8);
                let low = _mm256_movemask_epi8(_mm256_cmpeq_epi8(_mm256_and_si256(plane[0], mask), mask));
                let high = _mm256_movemask_epi8(_mm256_cmpeq_epi8(_mm256_and_si256(plane[1], mask), mask));
                u64::from(low as u32) | u64::from(high as u32) << 32
            }
        }

        #[inline(always)]
        unsafe fn all_set(data: *const u8, unit: usize, flip: u64, mask: u64) -> bool {
            unsafe {
                let flip = _mm256_set1_epi64x(flip as i64);
                let mut all = _mm256_xor_si256(load(data), flip);
                for i in 1..2 * unit {
                    all = _mm256_and_si256(all, _mm256_xor_si256(load(data.add(32 * i)), flip));
                }
                _mm256_testc_si256(all, _mm256_set1_epi64x(mask as i64)) == 1
            }
        }

        #[inline(always)]
        unsafe fn level(data: *const u8, unit: usize, byte: usize, mask: u8) -> u64 {
            unsafe {
                if unit != 2 {
                    return Self::bitmap(Self::plane(data, unit, byte), mask);
                }
                // The bit as the sign of each sample; packing keeps signs.
                let bit = 8 * byte as i32 + mask.trailing_zeros() as i32;
                let count = _mm_cvtsi32_si128(15 - bit);
                let low = sign16(data, count);
                let high = sign16(data.add(64), count);
                u64::from(low) | u64::from(high) << 32
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

    /// The signs of 32 two-byte samples shifted left by `count`.
    #[inline(always)]
    unsafe fn sign16(data: *const u8, count: __m128i) -> u32 {
        unsafe {
            let a = _mm256_sll_epi16(load(data), count);
            let b = _mm256_sll_epi16(load(data.add(32)), count);
            _mm256_movemask_epi8(_mm256_permute4x64_epi64(_mm256_packs_epi16(a, b), 0b11_01_10_00)) as u32
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bitmap_by_hand(data: &[u8], unit: usize, bit: usize) -> u64 {
        (0..64).fold(0, |map, i| map | u64::from(data[i * unit + bit / 8] >> (bit % 8) & 1) << i)
    }

    fn check<B: Backend>(data: &[u8], unit: usize) -> Result<(), TestCaseError> {
        for bit in 0..8 * unit {
            let expected = bitmap_by_hand(data, unit, bit);
            let mask = 1 << (bit % 8);
            unsafe {
                let plane = B::plane(data.as_ptr(), unit, bit / 8);
                prop_assert_eq!(B::bitmap(plane, mask), expected);
                prop_assert_eq!(B::level(data.as_ptr(), unit, bit / 8, mask), expected);
                if 8 % unit == 0 {
                    let pattern = (0..8 / unit).fold(0, |all, i| all | 1u64 << (8 * unit * i + bit));
                    prop_assert_eq!(B::all_set(data.as_ptr(), unit, 0, pattern), expected == !0);
                    prop_assert_eq!(B::all_set(data.as_ptr(), unit, !0, pattern), expected == 0);
                }
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
                check::<Avx2>(data, unit)?;
            }
        }

        #[test]
        fn compress_and_expand_are_inverse(x: u64, mask: u64) {
            let packed = unsafe { Portable::compress(x, mask) };
            prop_assert_eq!(unsafe { Portable::expand(packed, mask) }, x & mask);
            #[cfg(target_arch = "x86_64")]
            if has_fast_path() {
                prop_assert_eq!(unsafe { Avx2::compress(x, mask) }, packed);
                prop_assert_eq!(unsafe { Avx2::expand(packed, mask) }, x & mask);
            }
        }
    }

    fn check_constant<B: Backend>() {
        let data = [0x5au8; 64 * 8];
        for unit in [1, 2, 4, 8] {
            unsafe {
                assert!(B::all_set(data.as_ptr(), unit, 0, 0x5a5a_5a5a_5a5a_5a5a));
                assert!(B::all_set(data.as_ptr(), unit, !0, 0xa5a5_a5a5_a5a5_a5a5));
                assert!(!B::all_set(data.as_ptr(), unit, 0, 0x5a5a_5b5a_5a5a_5a5a));
                let mut other = data;
                other[64 * unit - 1] = 0;
                assert!(!B::all_set(other.as_ptr(), unit, 0, 0x5a5a_5a5a_5a5a_5a5a));
            }
        }
    }

    #[test]
    fn constant_samples_are_all_set() {
        check_constant::<Portable>();
        #[cfg(target_arch = "x86_64")]
        if has_fast_path() {
            check_constant::<Avx2>();
        }
    }
}
