//! What takes AVX2 eight instructions a clock: one instruction puts 64 bytes of samples side by side, and one more looks at a
//! line in all of them.

pub(super) mod changes;

use super::{Avx2, Backend, Look, SampleMask, TakeClocks};
use crate::samples::ahead::look_up_pages;
use crate::samples::block::{below, rises};
use crate::samples::taken::Taken;
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

/// [`Backend`] by longer vectors, where many samples are read that lie side by side; what these do not make quicker is that of
/// [`Avx2`]. For samples of `UNIT` bytes; of any size for 0.
#[derive(Clone, Copy)]
pub struct Avx512<const UNIT: usize, const DATA: bool>;

/// The processor has what [`Avx512`] uses.
#[inline(always)]
pub fn reads() -> bool {
    static HAS: LazyLock<bool> =
        LazyLock::new(|| super::has_fast_path() && counts() && picks() && is_x86_feature_detected!("avx512vbmi2"));
    *HAS
}

impl<const UNIT: usize, const DATA: bool> Backend for Avx512<UNIT, DATA> {
    type Plane = __m512i;

    const DATA: bool = DATA;

    #[inline(always)]
    fn unit(unit: usize) -> usize {
        Avx2::<UNIT, DATA>::unit(unit)
    }

    #[inline(always)]
    unsafe fn plane(data: *const u8, unit: usize, byte: usize) -> Self::Plane {
        unsafe {
            match Self::unit(unit) {
                1 => _mm512_loadu_si512(data.cast()),
                2 => {
                    let places = _mm512_loadu_si512(PLACES.as_ptr().cast());
                    let places = _mm512_add_epi8(_mm512_add_epi8(places, places), _mm512_set1_epi8(byte as i8));
                    let (low, high) = (_mm512_loadu_si512(data.cast()), _mm512_loadu_si512(data.add(64).cast()));
                    _mm512_permutex2var_epi8(low, places, high)
                }
                unit @ 3..=8 => _mm512_loadu_si512(plane(data, unit, byte).as_ptr().cast()),
                unit => {
                    let bytes: [u8; 64] = std::array::from_fn(|i| *data.add(i * unit + byte));
                    _mm512_loadu_si512(bytes.as_ptr().cast())
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn flipped(plane: Self::Plane, flip: u8) -> Self::Plane {
        unsafe { _mm512_xor_si512(plane, _mm512_set1_epi8(flip as i8)) }
    }

    #[inline(always)]
    unsafe fn top_bits(plane: Self::Plane, left: u32) -> u64 {
        // Two bytes at a time: shifts below 8 move nothing of the lower one to the top of the upper one.
        unsafe { _mm512_movepi8_mask(_mm512_sll_epi16(plane, _mm_cvtsi32_si128(left as i32))) }
    }

    #[inline(always)]
    unsafe fn changes(plane: Self::Plane, before: u8, mask: u8) -> u64 {
        unsafe {
            // Each byte beside the one before it.
            let last = _mm512_sub_epi8(_mm512_loadu_si512(PLACES.as_ptr().cast()), _mm512_set1_epi8(1));
            let behind = _mm512_mask_set1_epi8(_mm512_permutexvar_epi8(last, plane), 1, before as i8);
            _mm512_test_epi8_mask(_mm512_xor_si512(plane, behind), _mm512_set1_epi8(mask as i8))
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
        unsafe { Avx2::<UNIT, DATA>::unchanged(data, unit, blocks, watched, counted) }
    }

    #[inline(always)]
    unsafe fn compress(x: u64, mask: u64) -> u64 {
        unsafe { Avx2::<UNIT, DATA>::compress(x, mask) }
    }

    #[inline(always)]
    unsafe fn expand(x: u64, mask: u64) -> u64 {
        unsafe { Avx2::<UNIT, DATA>::expand(x, mask) }
    }

    #[inline(always)]
    unsafe fn words(data: *const u8, unit: usize, samples: u64, to: &mut [u64; 64]) {
        unsafe { Avx2::<UNIT, DATA>::words(data, unit, samples, to) }
    }

    #[inline(always)]
    unsafe fn numbers(map: u64, first: u64, to: &mut [u64; 64]) {
        unsafe { Avx2::<UNIT, DATA>::numbers(map, first, to) }
    }

    #[inline(always)]
    unsafe fn places(map: u64, first: u16, to: *mut u16) {
        unsafe {
            let first = _mm512_set1_epi16(first as i16);
            let places = _mm512_maskz_compress_epi8(map, _mm512_loadu_si512(PLACES.as_ptr().cast()));
            let low = _mm512_cvtepu8_epi16(_mm512_castsi512_si256(places));
            _mm512_storeu_si512(to.cast(), _mm512_add_epi16(low, first));
            if map.count_ones() > 32 {
                let high = _mm512_cvtepu8_epi16(_mm512_extracti64x4_epi64(places, 1));
                _mm512_storeu_si512(to.add(32).cast(), _mm512_add_epi16(high, first));
            }
        }
    }
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
            1 => like_first::<1>(data, blocks, watched.first(), counted.first()),
            2 => like_first::<2>(data, blocks, watched.first(), counted.first()),
            3 => unchanged_of::<3>(data, blocks, watched, counted),
            4 => like_first::<4>(data, blocks, watched.first(), counted.first()),
            5 => unchanged_of::<5>(data, blocks, watched, counted),
            6 => unchanged_of::<6>(data, blocks, watched, counted),
            7 => unchanged_of::<7>(data, blocks, watched, counted),
            _ => like_first::<8>(data, blocks, watched.first(), counted.first()),
        }
    }
}

/// Of samples whose size divides that of a vector: each is compared with the first one, so that it is read once.
#[target_feature(enable = "avx512f,avx512bw,popcnt,bmi1")]
unsafe fn like_first<const UNIT: usize>(data: *const u8, blocks: usize, watched: u64, counted: u64) -> (usize, u64) {
    let lanes = 64 / UNIT;
    let mask = |bits: u64| _mm512_set1_epi64(bits as i64);
    let (watched, counted) = (mask(watched), mask(counted));
    // Safety: the samples are there, and one behind.
    unsafe {
        let first = repeated::<UNIT>(data);
        // The counted bit of the sample before.
        let mut before = any::<UNIT>(first, counted) & 1;
        let mut count = 0;
        for block in 0..blocks {
            let start = data.add(64 * UNIT * block);
            // Lines that were asked for one by one would come later than those that the processor asks for by itself.
            look_up_pages(start, 64 * UNIT);
            let (mut differ, mut high) = (_mm512_setzero_si512(), 0);
            for nth in 0..UNIT {
                let samples = _mm512_loadu_si512(start.add(64 * nth).cast());
                differ = _mm512_or_si512(differ, _mm512_xor_si512(samples, first));
                high |= any::<UNIT>(samples, counted) << (nth * lanes);
            }
            let ticks = high ^ (high << 1 | before);
            if _mm512_test_epi8_mask(differ, watched) != 0 {
                let mut others = 0;
                for nth in 0..UNIT {
                    let samples = _mm512_loadu_si512(start.add(64 * nth).cast());
                    others |= any::<UNIT>(_mm512_xor_si512(samples, first), watched) << (nth * lanes);
                }
                let other = others.trailing_zeros();
                return (64 * block + other as usize - 1, count + u64::from((ticks & below(other)).count_ones()));
            }
            count += u64::from(ticks.count_ones());
            before = high >> 63;
        }
        let behind = repeated::<UNIT>(data.add(64 * UNIT * blocks));
        if any::<UNIT>(_mm512_xor_si512(behind, first), watched) != 0 {
            return (64 * blocks - 1, count);
        }
        (64 * blocks, count + (any::<UNIT>(behind, counted) & 1 ^ before))
    }
}

/// A sample, as often as a vector holds it.
///
/// # Safety
/// It is there.
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn repeated<const UNIT: usize>(at: *const u8) -> __m512i {
    // Safety: as the caller says.
    unsafe {
        match UNIT {
            1 => _mm512_set1_epi8(at.cast::<i8>().read()),
            2 => _mm512_set1_epi16(at.cast::<i16>().read_unaligned()),
            4 => _mm512_set1_epi32(at.cast::<i32>().read_unaligned()),
            _ => _mm512_set1_epi64(at.cast::<i64>().read_unaligned()),
        }
    }
}

/// The same of others: each sample is compared with the one before it.
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
                _mm_prefetch::<_MM_HINT_NTA>(start.wrapping_add(AHEAD + 64 * nth).cast());
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
        && is_x86_feature_detected!("avx512vbmi")
        && is_x86_feature_detected!("avx512vbmi2")
        && is_x86_feature_detected!("popcnt")
        && is_x86_feature_detected!("bmi2");
    match unit {
        1 => Some(take::<1> as TakeClocks),
        2 => Some(take::<2> as TakeClocks),
        3 => Some(take_packed::<3> as TakeClocks),
        4 => Some(take::<4> as TakeClocks),
        5 => Some(take_packed::<5> as TakeClocks),
        6 => Some(take_packed::<6> as TakeClocks),
        7 => Some(take_packed::<7> as TakeClocks),
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

/// A sample as a number.
///
/// # Safety
/// It is there.
#[inline(always)]
unsafe fn sample<const UNIT: usize>(at: *const u8) -> u64 {
    // Safety: as the caller says.
    unsafe {
        match UNIT {
            1 => at.read().into(),
            2 => at.cast::<u16>().read_unaligned().into(),
            4 => at.cast::<u32>().read_unaligned().into(),
            _ => at.cast::<u64>().read_unaligned(),
        }
    }
}

/// Puts the clocks among 64 samples side by side.
///
/// # Safety
/// There is room for them and a vector more.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi2,popcnt")]
#[inline]
unsafe fn put_samples<const UNIT: usize>(all: &[__m512i; UNIT], clocks: u64, mut to: *mut u8) {
    let lanes = 64 / UNIT;
    for (nth, &samples) in all.iter().enumerate() {
        let which = clocks >> (nth * lanes) & (!0 >> (64 - lanes));
        // To registers: written to memory at once it takes ten times as long on some processors.
        let packed = match UNIT {
            1 => _mm512_maskz_compress_epi8(which, samples),
            2 => _mm512_maskz_compress_epi16(which as u32, samples),
            4 => _mm512_maskz_compress_epi32(which as u16, samples),
            _ => _mm512_maskz_compress_epi64(which as u8, samples),
        };
        // Safety: as the caller says.
        unsafe {
            _mm512_storeu_si512(to.cast(), packed);
            to = to.add(UNIT * which.count_ones() as usize);
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vbmi2,popcnt,bmi2")]
unsafe fn take<const UNIT: usize>(
    mut from: *const u8,
    mut stamp: u64,
    blocks: usize,
    look: &Look,
    taken: &mut Taken,
) -> usize {
    let lanes = 64 / UNIT;
    let mask = |bits: u64| _mm512_set1_epi64(bits as i64);
    let (clk, flip, watched) = (mask(look.clk), mask(look.flip), mask(look.watched));
    for block in 1..=blocks {
        let (samples, stamps) = taken.room(UNIT);
        let (to, stamps) = (samples.as_mut_ptr(), stamps.as_mut_ptr());
        let mut all = [_mm512_setzero_si512(); UNIT];
        let (mut high, mut changed) = (0, 0);
        // Safety: the samples are there with one before and one behind, and room for what is written.
        unsafe {
            for line in 0..UNIT {
                _mm_prefetch::<_MM_HINT_NTA>(from.wrapping_add(AHEAD + 64 * line).cast());
            }
            for (nth, samples) in all.iter_mut().enumerate() {
                *samples = _mm512_loadu_si512(from.add(64 * nth).cast());
                let before = _mm512_loadu_si512(from.add(64 * nth).sub(UNIT).cast());
                high |= any::<UNIT>(_mm512_xor_si512(*samples, flip), clk) << (nth * lanes);
                changed |= any::<UNIT>(_mm512_xor_si512(*samples, before), watched) << (nth * lanes);
            }
            from = from.add(64 * UNIT);
            let behind = sample::<UNIT>(from);
            let clocks = rises(high, (behind ^ look.flip) & look.clk & (!0 >> (64 - 8 * UNIT)) != 0);
            put_samples::<UNIT>(&all, clocks, to);
            put_stamps(clocks, stamp, stamps);
            if taken_enough(taken, clocks, changed) {
                return block;
            }
        }
        stamp += 64;
    }
    blocks
}

/// Adds the clocks that were put there out of a block, before some of whose samples a line `changed`; whether these are enough.
#[target_feature(enable = "popcnt,bmi2")]
fn taken_enough(taken: &mut Taken, clocks: u64, changed: u64) -> bool {
    taken.add(clocks.count_ones(), _pext_u64(changed, clocks), changed != 0);
    taken.is_full() || taken.is_still()
}

/// The same of samples whose size does not divide that of a vector: each byte with CLK or a line that is watched is picked out of
/// 64 of them, and as many as a vector holds are put side by side at a time.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,avx512vbmi2,popcnt,bmi2")]
unsafe fn take_packed<const UNIT: usize>(
    mut from: *const u8,
    mut stamp: u64,
    blocks: usize,
    look: &Look,
    taken: &mut Taken,
) -> usize {
    // So many samples are in a vector, and each is so many bits of a mask, of which these are the first.
    let (held, all) = (64 / UNIT, (1u64 << UNIT) - 1);
    let firsts = const {
        let (mut firsts, mut at) = (0u64, 0);
        while at < 64 / UNIT {
            firsts |= 1 << (at * UNIT);
            at += 1;
        }
        firsts
    };
    let bits = |of: u64, byte: usize| (of >> (8 * byte)) as u8;
    let clk_byte = look.clk.trailing_zeros() as usize / 8;
    let (clk, flip) = (bits(look.clk, clk_byte), bits(look.flip, clk_byte));
    // Safety: the samples are there with one before and one behind, and room for what is written, here and below.
    let last = unsafe { _mm512_sub_epi8(_mm512_loadu_si512(PLACES.as_ptr().cast()), _mm512_set1_epi8(1)) };
    for block in 1..=blocks {
        let (samples, stamps) = taken.room(UNIT);
        let (mut to, stamps) = (samples.as_mut_ptr(), stamps.as_mut_ptr());
        let (mut high, mut changed) = (0, 0);
        unsafe {
            for line in 0..UNIT {
                _mm_prefetch::<_MM_HINT_NTA>(from.wrapping_add(AHEAD + 64 * line).cast());
            }
            let vectors = load::<UNIT>(from);
            for byte in 0..UNIT {
                let watched = bits(look.watched, byte);
                if byte == clk_byte || watched != 0 {
                    let picked = Pick::of::<UNIT>(byte).out_of(&vectors);
                    if byte == clk_byte {
                        high = _mm512_test_epi8_mask(picked, _mm512_set1_epi8(clk as i8));
                    }
                    // Each byte beside the one before it.
                    let before = from.sub(UNIT).add(byte).read();
                    let behind = _mm512_mask_set1_epi8(_mm512_permutexvar_epi8(last, picked), 1, before as i8);
                    let differ = _mm512_xor_si512(picked, behind);
                    changed |= _mm512_test_epi8_mask(differ, _mm512_set1_epi8(watched as i8));
                }
            }
            let after = from.add(64 * UNIT + clk_byte).read() ^ flip;
            let clocks = rises(if flip == 0 { high } else { !high }, after & clk != 0);
            for nth in 0..64usize.div_ceil(held) {
                // The last ones end with the last sample.
                let first = (held * nth).min(64 - held);
                let which = (clocks >> first) & (!0 << (held * nth - first)) & below(held as u32);
                // Vectors end with a sample, so that none reaches behind the block.
                let vector = _mm512_loadu_si512(from.add(UNIT * (first + held)).sub(64).cast());
                let bytes = (_pdep_u64(which, firsts) * all) << (64 % UNIT);
                let packed = _mm512_maskz_compress_epi8(bytes, vector);
                _mm512_storeu_si512(to.cast(), packed);
                to = to.add(UNIT * which.count_ones() as usize);
            }
            from = from.add(64 * UNIT);
            put_stamps(clocks, stamp, stamps);
            if taken_enough(taken, clocks, changed) {
                return block;
            }
        }
        stamp += 64;
    }
    blocks
}

/// [`super::Backend::words`] of five to eight bytes: eight samples at a time.
///
/// # Safety
/// As there, and the processor [`reads`].
#[inline(always)]
pub unsafe fn words(data: *const u8, unit: usize, samples: u64, to: &mut [u64; 64]) {
    unsafe {
        match unit {
            5 => words_of::<5>(data, samples, to),
            6 => words_of::<6>(data, samples, to),
            7 => words_of::<7>(data, samples, to),
            _ => words_of::<8>(data, samples, to),
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,popcnt")]
unsafe fn words_of<const UNIT: usize>(data: *const u8, samples: u64, to: &mut [u64; 64]) {
    let apart = const {
        let (mut places, mut at) = ([0u8; 64], 0);
        while at < 64 {
            places[at] = (at / 8 * UNIT + at % 8) as u8;
            at += 1;
        }
        places
    };
    let mut to = to.as_mut_ptr();
    // Safety: as the caller says; before each eight samples no more than are before them were written.
    unsafe {
        let apart = _mm512_loadu_si512(apart.as_ptr().cast());
        for nth in 0..8 {
            let eight = _mm512_loadu_si512(data.add(8 * UNIT * nth).cast());
            let eight = if UNIT == 8 { eight } else { _mm512_permutexvar_epi8(apart, eight) };
            let which = (samples >> (8 * nth)) as u8;
            _mm512_storeu_si512(to.cast(), _mm512_maskz_compress_epi64(which, eight));
            to = to.add(which.count_ones() as usize);
        }
    }
}

/// The stamps of these clocks among 64 samples, the first of which is given.
///
/// # Safety
/// There is room for them and seven more.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi2,popcnt")]
#[inline]
pub unsafe fn put_stamps(clocks: u64, first: u64, stamps: *mut u64) {
    let mut each = [0u8; 64];
    let first = _mm512_set1_epi64(first as i64);
    // Safety: as the caller says.
    unsafe {
        let place = _mm512_loadu_si512(PLACES.as_ptr().cast());
        _mm512_storeu_si512(each.as_mut_ptr().cast(), _mm512_maskz_compress_epi8(clocks, place));
        for at in (0..clocks.count_ones() as usize).step_by(8) {
            let eight = _mm512_cvtepu8_epi64(_mm_loadl_epi64(each.as_ptr().add(at).cast()));
            _mm512_storeu_si512(stamps.add(at).cast(), _mm512_add_epi64(first, eight));
        }
    }
}

/// Bytes that are asked for ahead: more than a page, beyond whose end the processor does not look by itself.
pub const AHEAD: usize = 6 << 10;

const PLACES: [u8; 64] = {
    let mut places = [0; 64];
    let mut at = 0;
    while at < 64 {
        places[at] = at as u8;
        at += 1;
    }
    places
};
