//! Bitmaps of several things side by side, by the same code for one at a time and for eight.

use std::ops::{Add, BitAnd, BitOr, BitXor, Not, Sub};

/// A bitmap, or a number, of each of some things.
pub trait Lanes:
    Copy
    + BitAnd<Output = Self>
    + BitOr<Output = Self>
    + BitXor<Output = Self>
    + Not<Output = Self>
    + Add<Output = Self>
    + Sub<Output = Self>
{
    /// How many things.
    const COUNT: usize;

    /// # Safety
    /// The processor has what the implementation uses: then it may do everything with what it got here.
    unsafe fn of(each: &[u64; EIGHT]) -> Self;

    /// The same of shorter numbers.
    ///
    /// # Safety
    /// As for [`Lanes::of`].
    unsafe fn of_short(each: &[u16; EIGHT]) -> Self;

    /// Each by itself.
    fn each(self) -> [u64; EIGHT];

    /// The lowest byte of each.
    fn bytes(self) -> [u8; EIGHT];

    /// The same for all.
    ///
    /// # Safety
    /// As for [`Lanes::of`].
    unsafe fn all(value: u64) -> Self;

    /// From each of these bytes on the eight of a bitmap, its first bits lowest.
    ///
    /// # Safety
    /// They are there, and as for [`Lanes::of`].
    unsafe fn read(map: *const u8, bytes: &[usize; EIGHT]) -> Self;

    /// Of numbers of bytes: where these and the seven behind each lie in a [`Map`].
    fn places(self) -> Self;

    /// The eight bytes at each of these places.
    ///
    /// # Safety
    /// The map does not end before, and as for [`Lanes::of`].
    unsafe fn eight_of(map: &Map, places: Self) -> Self;

    /// Bits towards the top, fewer than 64.
    fn up(self, by: Self) -> Self;

    /// Bits towards the lowest, fewer than 64.
    fn down(self, by: Self) -> Self;

    /// How many bits are set.
    fn count(self) -> Self;

    /// All bits where both are the same.
    fn equal(self, other: Self) -> Self;

    /// All bits where any is set.
    fn some(self) -> Self;

    /// The bits below the first that is set; all where none is.
    fn below_first(self) -> Self;

    /// The first bit that is set, if one is.
    fn first(self) -> Self;

    /// The place of the last bit that is set; one has to be.
    fn last(self) -> Self;

    /// Whether any bit of any is set.
    #[inline(always)]
    fn is_any(self) -> bool {
        self.each()[..Self::COUNT].iter().fold(0, |all, each| all | each) != 0
    }

    /// The sum of all.
    #[inline(always)]
    fn total(self) -> u64 {
        self.each()[..Self::COUNT].iter().sum()
    }

    /// This, where all bits of `is` are set, or else the `other`.
    #[inline(always)]
    fn or_else(self, is: Self, other: Self) -> Self {
        self & is | other & !is
    }
}

/// No kind of lanes has more.
pub const EIGHT: usize = 8;

/// A bitmap as long as an instruction can take bytes of: eight times eight of them at once.
pub type Map = [u8; 128];

impl Lanes for u64 {
    const COUNT: usize = 1;

    #[inline(always)]
    unsafe fn of(each: &[u64; EIGHT]) -> Self {
        each[0]
    }

    #[inline(always)]
    unsafe fn of_short(each: &[u16; EIGHT]) -> Self {
        each[0].into()
    }

    #[inline(always)]
    fn each(self) -> [u64; EIGHT] {
        [self; _]
    }

    #[inline(always)]
    fn bytes(self) -> [u8; EIGHT] {
        [self as u8; _]
    }

    #[inline(always)]
    unsafe fn all(value: u64) -> Self {
        value
    }

    #[inline(always)]
    unsafe fn read(map: *const u8, bytes: &[usize; EIGHT]) -> Self {
        // Safety: as the caller says.
        u64::from_le(unsafe { map.add(bytes[0]).cast::<u64>().read_unaligned() })
    }

    #[inline(always)]
    fn places(self) -> Self {
        self
    }

    #[inline(always)]
    unsafe fn eight_of(map: &Map, places: Self) -> Self {
        // Safety: as the caller says.
        unsafe { Self::read(map.as_ptr(), &[places as usize; EIGHT]) }
    }

    #[inline(always)]
    fn up(self, by: Self) -> Self {
        self << (by % 64)
    }

    #[inline(always)]
    fn down(self, by: Self) -> Self {
        self >> (by % 64)
    }

    #[inline(always)]
    fn count(self) -> Self {
        self.count_ones().into()
    }

    #[inline(always)]
    fn equal(self, other: Self) -> Self {
        u64::from(self == other).wrapping_neg()
    }

    #[inline(always)]
    fn some(self) -> Self {
        u64::from(self != 0).wrapping_neg()
    }

    #[inline(always)]
    fn below_first(self) -> Self {
        !self & self.wrapping_sub(1)
    }

    #[inline(always)]
    fn first(self) -> Self {
        self & self.wrapping_neg()
    }

    #[inline(always)]
    fn last(self) -> Self {
        u64::from(63 ^ self.leading_zeros())
    }
}

/// Eight at a time, on processors that have the instructions.
#[cfg(target_arch = "x86_64")]
pub mod avx512 {
    use super::{EIGHT, Lanes, Map};
    use std::arch::x86_64::*;
    use std::ops::{Add, BitAnd, BitOr, BitXor, Not, Sub};

    /// For each byte of eight numbers the lowest of its number, and how far it is behind that.
    const LOWEST: [u8; 64] = bytes(8, 0);
    const BEHIND: [u8; 64] = bytes(0, 1);

    const fn bytes(lane: u8, within: u8) -> [u8; 64] {
        let mut bytes = [0; 64];
        let mut at = 0;
        while at < 64 {
            bytes[at] = at as u8 / 8 * lane + at as u8 % 8 * within;
            at += 1;
        }
        bytes
    }

    /// Only there where the processor has what [`is_there`] asks for.
    #[derive(Clone, Copy)]
    pub struct Eight(__m512i);

    pub fn is_there() -> bool {
        is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512cd")
            && is_x86_feature_detected!("avx512vbmi")
            && is_x86_feature_detected!("avx512vpopcntdq")
    }

    macro_rules! operators {
        ($($trait:ident $method:ident $with:ident),*) => {
            $(impl $trait for Eight {
                type Output = Self;

                #[inline(always)]
                fn $method(self, other: Self) -> Self {
                    // Safety: the processor has it.
                    Eight(unsafe { $with(self.0, other.0) })
                }
            })*
        };
    }
    operators!(
        BitAnd bitand _mm512_and_si512, BitOr bitor _mm512_or_si512, BitXor bitxor _mm512_xor_si512,
        Add add _mm512_add_epi64, Sub sub _mm512_sub_epi64
    );

    impl Not for Eight {
        type Output = Self;

        #[inline(always)]
        fn not(self) -> Self {
            // Safety: the processor has it, here and below.
            Eight(unsafe { _mm512_xor_si512(self.0, _mm512_set1_epi64(-1)) })
        }
    }

    impl Lanes for Eight {
        const COUNT: usize = EIGHT;

        #[inline(always)]
        unsafe fn of(each: &[u64; EIGHT]) -> Self {
            Eight(unsafe { _mm512_loadu_si512(each.as_ptr().cast()) })
        }

        #[inline(always)]
        unsafe fn of_short(each: &[u16; EIGHT]) -> Self {
            Eight(unsafe { _mm512_cvtepu16_epi64(_mm_loadu_si128(each.as_ptr().cast())) })
        }

        #[inline(always)]
        fn each(self) -> [u64; EIGHT] {
            let mut each = [0; EIGHT];
            unsafe { _mm512_storeu_si512(each.as_mut_ptr().cast(), self.0) };
            each
        }

        #[inline(always)]
        fn bytes(self) -> [u8; EIGHT] {
            let lowest = unsafe { _mm_cvtsi128_si64(_mm512_cvtepi64_epi8(self.0)) };
            lowest.to_le_bytes()
        }

        #[inline(always)]
        unsafe fn all(value: u64) -> Self {
            Eight(unsafe { _mm512_set1_epi64(value as i64) })
        }

        #[inline(always)]
        unsafe fn read(map: *const u8, bytes: &[usize; EIGHT]) -> Self {
            // Loads of one each are faster than a gather.
            unsafe {
                Eight(_mm512_set_epi64(
                    map.add(bytes[7]).cast::<i64>().read_unaligned(),
                    map.add(bytes[6]).cast::<i64>().read_unaligned(),
                    map.add(bytes[5]).cast::<i64>().read_unaligned(),
                    map.add(bytes[4]).cast::<i64>().read_unaligned(),
                    map.add(bytes[3]).cast::<i64>().read_unaligned(),
                    map.add(bytes[2]).cast::<i64>().read_unaligned(),
                    map.add(bytes[1]).cast::<i64>().read_unaligned(),
                    map.add(bytes[0]).cast::<i64>().read_unaligned(),
                ))
            }
        }

        #[inline(always)]
        fn places(self) -> Self {
            unsafe {
                let lowest = _mm512_loadu_si512(LOWEST.as_ptr().cast());
                let behind = _mm512_loadu_si512(BEHIND.as_ptr().cast());
                Eight(_mm512_add_epi8(_mm512_permutexvar_epi8(lowest, self.0), behind))
            }
        }

        #[inline(always)]
        unsafe fn eight_of(map: &Map, places: Self) -> Self {
            unsafe {
                let (low, high) = (map.as_ptr().cast(), map.as_ptr().add(64).cast());
                Eight(_mm512_permutex2var_epi8(_mm512_loadu_si512(low), places.0, _mm512_loadu_si512(high)))
            }
        }

        #[inline(always)]
        fn up(self, by: Self) -> Self {
            Eight(unsafe { _mm512_sllv_epi64(self.0, by.0) })
        }

        #[inline(always)]
        fn down(self, by: Self) -> Self {
            Eight(unsafe { _mm512_srlv_epi64(self.0, by.0) })
        }

        #[inline(always)]
        fn count(self) -> Self {
            Eight(unsafe { _mm512_popcnt_epi64(self.0) })
        }

        #[inline(always)]
        fn equal(self, other: Self) -> Self {
            Eight(unsafe { _mm512_maskz_set1_epi64(_mm512_cmpeq_epi64_mask(self.0, other.0), -1) })
        }

        #[inline(always)]
        fn some(self) -> Self {
            Eight(unsafe { _mm512_maskz_set1_epi64(_mm512_test_epi64_mask(self.0, self.0), -1) })
        }

        #[inline(always)]
        fn below_first(self) -> Self {
            Eight(unsafe { _mm512_andnot_si512(self.0, _mm512_add_epi64(self.0, _mm512_set1_epi64(-1))) })
        }

        #[inline(always)]
        fn first(self) -> Self {
            Eight(unsafe { _mm512_and_si512(self.0, _mm512_sub_epi64(_mm512_setzero_si512(), self.0)) })
        }

        #[inline(always)]
        fn last(self) -> Self {
            Eight(unsafe { _mm512_sub_epi64(_mm512_set1_epi64(63), _mm512_lzcnt_epi64(self.0)) })
        }
    }
}

#[cfg(test)]
#[cfg(target_arch = "x86_64")]
mod tests {
    use super::*;
    use avx512::Eight;
    use proptest::prelude::*;

    #[target_feature(enable = "avx512f,avx512cd,avx512vbmi,avx512vpopcntdq")]
    fn all_of(
        a: &[u64; EIGHT],
        b: &[u64; EIGHT],
        by: &[u64; EIGHT],
        map: &Map,
        bytes: &[usize; EIGHT],
    ) -> Vec<[u64; EIGHT]> {
        let short = by.map(|by| by as u16);
        // Safety: this function has the features, and all bytes are there.
        unsafe {
            let (a, b, by) = (Eight::of(a), Eight::of(b), Eight::of(by));
            let (read, short) = (Eight::read(map.as_ptr(), bytes), Eight::of_short(&short));
            let places = Eight::of(&bytes.map(|byte| byte as u64)).places();
            [
                a & b,
                a | b,
                a ^ b,
                !a,
                a + by,
                a - (a & b),
                a.up(by),
                a.down(by),
                a.count(),
                a.equal(b),
                a.some(),
                a.below_first(),
            ]
            .into_iter()
            .chain([
                a.first(),
                (a | Eight::all(1)).last(),
                a.or_else(b.some(), by),
                read,
                short,
                Eight::eight_of(map, places),
            ])
            .chain([Eight::all(by.total()), Eight::all((a & b).is_any().into())])
            .map(Lanes::each)
            .collect()
        }
    }

    proptest! {
        /// A processor without the instructions has nothing to test here.
        #[test]
        fn eight_are_eight_times_one(
            a in proptest::array::uniform8(any::<u64>()),
            b in proptest::array::uniform8(any::<u64>()),
            same in any::<u8>(),
            zero in any::<u8>(),
            by in proptest::array::uniform8(0..64u64),
            map in proptest::collection::vec(any::<u8>(), size_of::<Map>()),
            bytes in proptest::array::uniform8(0..size_of::<Map>() - 7),
        ) {
            let in_lane = |map: u8, lane: usize| map >> lane & 1 != 0;
            let a: [u64; EIGHT] = std::array::from_fn(|lane| if in_lane(zero, lane) { 0 } else { a[lane] >> 1 });
            let b: [u64; EIGHT] = std::array::from_fn(|lane| if in_lane(same, lane) { a[lane] } else { b[lane] });
            let map: &Map = map.first_chunk().expect("so many");
            if !avx512::is_there() {
                return Ok(());
            }
            // Safety: the processor has the features.
            let found = unsafe { all_of(&a, &b, &by, map, &bytes) };
            for lane in 0..EIGHT {
                let (a, b, by) = (a[lane], b[lane], by[lane]);
                // Safety: one at a time asks for nothing, and the bytes are there.
                let read = unsafe { u64::read(map.as_ptr(), &[bytes[lane]; EIGHT]) };
                let expected = [
                    a & b, a | b, a ^ b, !a, a + by, a - (a & b), a.up(by), a.down(by), a.count(), a.equal(b), a.some(), a.below_first(),
                    Lanes::first(a), (a | 1).last(), a.or_else(b.some(), by), read, by, read,
                ];
                prop_assert_eq!(found.iter().take(expected.len()).map(|each| each[lane]).collect::<Vec<_>>(), expected);
            }
            let any = a.iter().zip(&b).any(|(a, b)| a & b != 0);
            prop_assert_eq!(&found[found.len() - 2..], &[[by.iter().sum::<u64>(); EIGHT], [any.into(); EIGHT]]);
        }
    }
}
