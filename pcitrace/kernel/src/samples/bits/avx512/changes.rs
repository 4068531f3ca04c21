//! Changes found in a stretch of samples, and clocks taken out around them, by long vectors.

use super::{PLACES, Pick, any, load, put_samples, reads, sample};
use crate::samples::BLOCK;
use crate::samples::ahead::Ahead;
use crate::samples::bits::{ChangeWays, FindChanges, Look, TakeChanges};
use crate::samples::changes::{Maps, Progress, Watched};
use crate::samples::taken::{CLOCKS, Taken};
use std::arch::x86_64::*;

/// For samples of `unit` bytes whose size divides that of a vector.
pub fn ways(unit: usize) -> Option<ChangeWays> {
    let has = reads() && is_x86_feature_detected!("avx512vpopcntdq");
    match unit {
        1 => Some((find::<1> as FindChanges, take::<1> as TakeChanges)),
        2 => Some((find::<2> as FindChanges, take::<2> as TakeChanges)),
        4 => Some((find::<4> as FindChanges, take::<4> as TakeChanges)),
        8 => Some((find::<8> as FindChanges, take::<8> as TakeChanges)),
        _ => None,
    }
    .filter(|_| has)
}

/// [`FindChanges`].
///
/// # Safety
/// As there.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,avx512vpopcntdq")]
unsafe fn find<const UNIT: usize>(from: *const u8, blocks: usize, look: &Look, maps: &mut Maps, ahead: &mut Ahead) {
    let clk_byte = look.clk.trailing_zeros() as usize / 8;
    let here = u64::MAX >> (64 - 8 * UNIT);
    ahead.go_to(from, BLOCK * UNIT * blocks);
    // Safety: as the caller says; one sample is behind the last block.
    unsafe {
        if look.watched & here & !(0xff << (8 * clk_byte)) == 0 {
            find_in_byte::<UNIT>(from, blocks, look, clk_byte, maps, ahead);
        } else {
            find_in_all::<UNIT>(from, blocks, look, maps, ahead);
        }
        let behind = sample::<UNIT>(from.add(BLOCK * UNIT * blocks)) & look.clk & here;
        maps.high[blocks] = u64::from(behind != 0);
    }
    sum_up(blocks, look.flip != 0, maps);
}

/// Where CLK is high and lines change that all lie in one byte, which is picked out of 64 samples: a third of the instructions.
///
/// # Safety
/// As for [`FindChanges`].
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
unsafe fn find_in_byte<const UNIT: usize>(
    from: *const u8,
    blocks: usize,
    look: &Look,
    byte: usize,
    maps: &mut Maps,
    ahead: &mut Ahead,
) {
    let mask = |bits: u64| _mm512_set1_epi8((bits >> (8 * byte)) as i8);
    let (clk, watched) = (mask(look.clk), mask(look.watched));
    let pick = Pick::of::<UNIT>(byte);
    let (high, changed) = (maps.high.as_mut_ptr(), maps.changed.as_mut_ptr());
    // Safety: the samples are there with one before, and so many blocks have room.
    unsafe {
        // Each byte beside the one before it.
        let before = _mm512_add_epi8(_mm512_loadu_si512(PLACES.as_ptr().cast()), _mm512_set1_epi8(63));
        let mut last = _mm512_set1_epi8(from.sub(UNIT).add(byte).read() as i8);
        let mut asked = *ahead;
        for block in 0..blocks {
            let start = from.add(BLOCK * UNIT * block);
            asked.look_at(start, UNIT);
            let picked = pick.out_of(&load::<UNIT>(start));
            high.add(block).write(_mm512_test_epi8_mask(picked, clk));
            let differ = _mm512_xor_si512(picked, _mm512_permutex2var_epi8(last, before, picked));
            changed.add(block).write(_mm512_test_epi8_mask(differ, watched));
            last = picked;
        }
        *ahead = asked;
    }
}

/// The same where they lie in several.
///
/// # Safety
/// As there.
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn find_in_all<const UNIT: usize>(
    from: *const u8,
    blocks: usize,
    look: &Look,
    maps: &mut Maps,
    ahead: &mut Ahead,
) {
    let lanes = 64 / UNIT;
    let mask = |bits: u64| _mm512_set1_epi64(bits as i64);
    let (clk, watched) = (mask(look.clk), mask(look.watched));
    let mut asked = *ahead;
    for block in 0..blocks {
        let (mut high, mut changed) = (0, 0);
        // Safety: the samples are there with one before.
        unsafe {
            let start = from.add(BLOCK * UNIT * block);
            asked.look_at(start, UNIT);
            for nth in 0..UNIT {
                let samples = _mm512_loadu_si512(start.add(64 * nth).cast());
                let before = _mm512_loadu_si512(start.add(64 * nth).sub(UNIT).cast());
                high |= any::<UNIT>(samples, clk) << (nth * lanes);
                changed |= any::<UNIT>(_mm512_xor_si512(samples, before), watched) << (nth * lanes);
            }
        }
        (maps.high[block], maps.changed[block]) = (high, changed);
    }
    *ahead = asked;
}

/// What follows from where CLK is high, or low where it is `flipped`, and where lines change.
#[target_feature(enable = "avx512f,avx512bw,avx512vpopcntdq")]
fn sum_up(blocks: usize, flipped: bool, maps: &mut Maps) {
    let flip = _mm512_set1_epi64(-i64::from(flipped));
    let up = |by: i64| _mm512_sub_epi64(_mm512_set_epi64(7, 6, 5, 4, 3, 2, 1, 0), _mm512_set1_epi64(by));
    let (one, two, four, last) = (up(1), up(2), up(4), _mm512_set1_epi64(7));
    let mut all = _mm512_setzero_si512();
    let mut busy = 0;
    // Safety: there is room for eight behind the last block.
    unsafe {
        _mm512_storeu_si512(maps.changed.as_mut_ptr().add(blocks).cast(), all);
        for first in (0..blocks).step_by(8) {
            let high = _mm512_xor_si512(flip, _mm512_loadu_si512(maps.high.as_ptr().add(first).cast()));
            let next = _mm512_xor_si512(flip, _mm512_loadu_si512(maps.high.as_ptr().add(first + 1).cast()));
            let after = _mm512_or_si512(_mm512_srli_epi64::<1>(high), _mm512_slli_epi64::<63>(next));
            let clocks = _mm512_andnot_si512(high, after);
            _mm512_storeu_si512(maps.clocks.as_mut_ptr().add(first).cast(), clocks);
            let mut count = _mm512_popcnt_epi64(clocks);
            count = _mm512_add_epi64(count, _mm512_maskz_permutexvar_epi64(0xfe, one, count));
            count = _mm512_add_epi64(count, _mm512_maskz_permutexvar_epi64(0xfc, two, count));
            count = _mm512_add_epi64(count, _mm512_maskz_permutexvar_epi64(0xf0, four, count));
            all = _mm512_add_epi64(count, _mm512_permutexvar_epi64(last, all));
            _mm512_storeu_si512(maps.before.as_mut_ptr().add(first + 1).cast(), all);
            let changed = _mm512_loadu_si512(maps.changed.as_ptr().add(first).cast());
            busy |= u64::from(_mm512_test_epi64_mask(changed, changed)) << first;
        }
        _mm512_storeu_si512(maps.clocks.as_mut_ptr().add(blocks).cast(), _mm512_setzero_si512());
    }
    maps.busy = busy;
}

/// Lines of the cache that are asked for with 64 samples around changes: so many that few are left for the loop that finds changes,
/// which would ask for them faster than memory gives them, whereupon a processor leaves some out.
const AT_CHANGES: usize = 12;

/// Where clocks that are taken go, and how many are there.
struct Filled {
    samples: *mut u8,
    stamps: *mut u64,
    missing: *mut u64,
    suspect: *mut u64,
    count: usize,
}

impl Filled {
    /// Adds a clock by itself, which is not suspect.
    ///
    /// # Safety
    /// There is room for it, and its sample of `UNIT` bytes.
    #[inline(always)]
    unsafe fn push<const UNIT: usize>(&mut self, sample: *const u8, stamp: u64, missing: u64) {
        // Safety: as the caller says.
        unsafe {
            self.samples.add(UNIT * self.count).copy_from_nonoverlapping(sample, UNIT);
            self.stamps.add(self.count).write(stamp);
            self.missing.add(self.count).write(missing);
            self.put_suspect(0);
        }
        self.count += 1;
    }

    /// Adds the clocks among 64 samples, before which lines changed in some.
    ///
    /// # Safety
    /// There is room for a block and a vector more.
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi2,popcnt,bmi2")]
    #[inline]
    unsafe fn push_all<const UNIT: usize>(
        &mut self,
        all: &[__m512i; UNIT],
        clocks: u64,
        changed: u64,
        stamp: u64,
        missing: u64,
    ) {
        // Safety: as the caller says.
        unsafe {
            put_samples::<UNIT>(all, clocks, self.samples.add(UNIT * self.count));
            self.put_stamps(clocks, stamp, missing);
            self.put_suspect(_pext_u64(changed, clocks));
        }
        self.count += clocks.count_ones() as usize;
    }

    /// The stamps of the clocks, and how many are missing before them. Most often there are no more than sixteen.
    ///
    /// # Safety
    /// As for [`Filled::push_all`].
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi2,popcnt")]
    #[inline]
    unsafe fn put_stamps(&mut self, clocks: u64, stamp: u64, missing: u64) {
        let (stamp, missing) = (_mm512_set1_epi64(stamp as i64), _mm512_set1_epi64(missing as i64));
        // Safety: as the caller says.
        unsafe {
            let (stamps, all_missing) = (self.stamps.add(self.count), self.missing.add(self.count));
            let places = _mm512_maskz_compress_epi8(clocks, _mm512_loadu_si512(PLACES.as_ptr().cast()));
            let first = _mm512_castsi512_si128(places);
            for (nth, eight) in [first, _mm_bsrli_si128::<8>(first)].into_iter().enumerate() {
                let eight = _mm512_add_epi64(stamp, _mm512_cvtepu8_epi64(eight));
                _mm512_storeu_si512(stamps.add(8 * nth).cast(), eight);
                _mm512_storeu_si512(all_missing.add(8 * nth).cast(), missing);
            }
            if clocks.count_ones() > 16 {
                let mut each = [0u8; 64];
                _mm512_storeu_si512(each.as_mut_ptr().cast(), places);
                for at in (16..clocks.count_ones() as usize).step_by(8) {
                    let eight = _mm512_cvtepu8_epi64(_mm_loadl_epi64(each.as_ptr().add(at).cast()));
                    _mm512_storeu_si512(stamps.add(at).cast(), _mm512_add_epi64(stamp, eight));
                    _mm512_storeu_si512(all_missing.add(at).cast(), missing);
                }
            }
        }
    }

    /// # Safety
    /// There is room for it.
    #[inline(always)]
    unsafe fn put_suspect(&mut self, suspect: u64) {
        let (word, used) = (self.count / BLOCK, self.count % BLOCK);
        // Safety: as the caller says.
        unsafe {
            *self.suspect.add(word) |= suspect << used;
            *self.suspect.add(word + 1) = suspect >> 1 >> (BLOCK - 1 - used);
        }
    }
}

/// [`TakeChanges`]: of 64 samples around changes the clocks from the one before the first change to the second behind the last,
/// where the bus is in a state that lasts then; else all of them, and those of the next 64.
///
/// # Safety
/// As there.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi2,popcnt,bmi1,bmi2,lzcnt")]
unsafe fn take<const UNIT: usize>(
    (from, stamp): (*const u8, u64),
    blocks: usize,
    watched: &Watched,
    maps: &Maps,
    progress: &mut Progress,
    taken: &mut Taken,
    ahead: &mut Ahead,
) -> bool {
    let suspect = (watched.suspect != watched.look.watched).then_some(_mm512_set1_epi64(watched.suspect as i64));
    let Progress { mut eight, mut steady, mut taken_to, left_out, .. } = *progress;
    let begun = taken.count();
    let room = taken.all_room();
    let mut room = Filled {
        samples: room.samples.as_mut_ptr(),
        stamps: room.stamps.as_mut_ptr(),
        missing: room.missing.as_mut_ptr(),
        suspect: room.suspect.as_mut_ptr(),
        count: begun,
    };
    // How many are left out before one, of those of the stretch so many come before it: it wraps.
    let base = left_out.wrapping_sub(progress.taken).wrapping_add(begun as u64);
    let missing = |before: u64, count: usize| base.wrapping_add(before).wrapping_sub(count as u64);
    let last_eight = 8 * (blocks - 1);
    let mut all_done = false;
    // Safety: 64 samples from each place up to the last block on are there with one before, and maps of them; there is room for
    // them and a clock more where not enough clocks are there.
    unsafe {
        while room.count < CLOCKS {
            if steady {
                // The clock before the change lies in these eight or the ones before, where a clock is no longer.
                eight = maps.next_moved(eight).map_or(8 * blocks, |moved| eight.max(moved.saturating_sub(1)));
            }
            if eight > last_eight {
                // What comes next knows nothing of the clocks of this stretch.
                if steady && let Some(last) = maps.last_clock(taken_to, 8 * eight) {
                    let missing = missing(maps.clocks_before(last), room.count);
                    room.push::<UNIT>(from.add(UNIT * last), stamp + last as u64, missing);
                }
                all_done = true;
                break;
            }
            ahead.ask(AT_CHANGES);
            let start = from.add(UNIT * 8 * eight);
            let samples = load::<UNIT>(start);
            let changed = maps.changed.as_ptr().cast::<u8>().add(eight).cast::<u64>().read_unaligned();
            let every = maps.clocks.as_ptr().cast::<u8>().add(eight).cast::<u64>().read_unaligned();
            let mut clocks = every;
            if steady {
                let before = every & changed.wrapping_sub(1) & !changed;
                if before != 0 {
                    clocks &= !0 << (63 - before.leading_zeros());
                } else if let Some(last) = maps.last_clock(taken_to, 8 * eight) {
                    let missing = missing(maps.clocks_before(last), room.count);
                    room.push::<UNIT>(from.add(UNIT * last), stamp + last as u64, missing);
                }
            }
            let behind = every & !0 << (63 - (changed | 1).leading_zeros());
            let second = behind & behind.wrapping_sub(1);
            steady =
                second != 0 && watched.lasts(sample::<UNIT>(start.add(UNIT * (second.trailing_zeros() as usize % 64))));
            if steady {
                clocks &= second ^ second.wrapping_sub(1);
            }
            let first = 8 * eight;
            eight += 8;
            if clocks != 0 {
                let suspects = suspect.map_or(changed, |mask| changed_in::<UNIT>(&samples, start, mask));
                let missing = missing(maps.clocks_before(first + clocks.trailing_zeros() as usize), room.count);
                room.push_all::<UNIT>(&samples, clocks, suspects, stamp + first as u64, missing);
                taken_to = first + 64 - clocks.leading_zeros() as usize;
            }
        }
    }
    let count = room.count;
    let to = if all_done { 8 * eight } else { taken_to };
    taken.have(count, missing(maps.clocks_before(to), count));
    let new = (count - begun) as u64;
    *progress = Progress { eight, steady, taken: progress.taken + new, taken_to, left_out };
    all_done
}

/// Before which of 64 samples a bit of the mask changes.
///
/// # Safety
/// They begin at `start`, and one is before them.
#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
unsafe fn changed_in<const UNIT: usize>(samples: &[__m512i; UNIT], start: *const u8, mask: __m512i) -> u64 {
    let mut changed = 0;
    for (nth, &samples) in samples.iter().enumerate() {
        // Safety: as the caller says.
        let before = unsafe { _mm512_loadu_si512(start.add(64 * nth).sub(UNIT).cast()) };
        changed |= any::<UNIT>(_mm512_xor_si512(samples, before), mask) << (nth * (64 / UNIT));
    }
    changed
}
