//! Clocks that were taken out of samples, side by side.

use crate::samples::BLOCK;
use crate::samples::block::{Span, below};
use crate::samples::lanes::Map;

/// Clocks that are put side by side before they are decoded, about.
pub const CLOCKS: usize = MOST - BLOCK;
/// They come a block of samples at a time, so there may be a block more. A line at all of them, and a word behind it, fits
/// into a [`Map`].
pub const MOST: usize = 8 * size_of::<Map>() - BLOCK;

/// Blocks of samples in which no line that is watched changes, after which the bus may rest for longer.
const STILL: i32 = 3;
/// After so many more this is asked again.
const NOT_YET: i32 = 64;

/// Clocks that wait to be decoded, behind one that was.
#[derive(Default)]
pub struct Taken {
    unit: usize,
    /// The sample of each, and its stamp; behind the last one there is room for two blocks more.
    samples: Vec<u8>,
    stamps: Vec<u64>,
    /// A line that is watched changed just before them: a bit each.
    suspect: Vec<u64>,
    /// How many clocks that were left out come before each, for the bus stayed as it was; nothing is there where `left_out` is 0.
    missing: Vec<u64>,
    left_out: u64,
    /// Before this one that is noted.
    noted: usize,
    count: usize,
    /// In so many of the last blocks no such line changed.
    still: i32,
}

/// The room of all clocks: see [`Taken`].
pub struct Room<'a> {
    pub samples: &'a mut [u8],
    pub stamps: &'a mut [u64],
    pub missing: &'a mut [u64],
    pub suspect: &'a mut [u64],
}

impl Taken {
    /// Begins behind a clock with this sample of `unit` bytes.
    pub fn begin(&mut self, unit: usize, before: &[u8]) {
        if self.unit != unit {
            self.samples = vec![0; (MOST + 2 * BLOCK) * unit];
            self.stamps = vec![0; MOST + 2 * BLOCK];
            self.suspect = vec![0; MOST / BLOCK + 2];
            self.missing = vec![0; MOST + 2 * BLOCK];
            self.unit = unit;
        }
        self.samples[..unit].copy_from_slice(&before[..unit]);
        self.suspect[0] = 0;
        self.count = 1;
        self.still = 0;
        self.left_out = 0;
        self.noted = 0;
    }

    /// So many clocks are left out behind the last one.
    #[inline(always)]
    pub fn leave_out(&mut self, clocks: u64) {
        self.missing[self.noted..=self.count].fill(self.left_out);
        self.noted = self.count;
        self.left_out += clocks;
    }

    /// Notes what is left out up to the last clock, and behind it.
    #[inline(always)]
    pub fn note_missing(&mut self) {
        if self.left_out > 0 {
            self.missing[self.noted..=self.count].fill(self.left_out);
            self.noted = self.count;
        }
    }

    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Where clocks go with what is known of them, from the first one on. What was left out before them is noted.
    #[inline(always)]
    pub fn all_room(&mut self) -> Room<'_> {
        self.missing[self.noted..=self.count].fill(self.left_out);
        Room {
            samples: &mut self.samples,
            stamps: &mut self.stamps,
            missing: &mut self.missing,
            suspect: &mut self.suspect,
        }
    }

    /// So many are there now, and so many were left out in all.
    #[inline(always)]
    pub fn have(&mut self, count: usize, left_out: u64) {
        (self.count, self.noted, self.left_out) = (count, count, left_out);
        self.missing[count] = left_out;
    }

    /// How many clocks that are not there come before each, and the end, once that is noted; empty where all are there.
    #[inline(always)]
    pub fn missing(&self) -> &[u64] {
        if self.left_out > 0 { &self.missing } else { &[] }
    }

    /// Adds a clock by itself.
    #[inline(always)]
    pub fn push(&mut self, sample: &[u8], stamp: u64) {
        self.samples[self.count * self.unit..][..sample.len()].copy_from_slice(sample);
        self.stamps[self.count] = stamp;
        self.add(1, 0, false);
    }

    /// The sample of the last clock, which may be changed.
    #[inline(always)]
    pub fn last_sample(&mut self) -> &mut [u8] {
        &mut self.samples[(self.count - 1) * self.unit..]
    }

    /// Whether that is so of the last two clocks.
    #[inline(always)]
    pub fn are_last_two(&self, is: impl Fn(&Span, usize) -> bool) -> bool {
        let span = Span::new(&self.samples, self.unit, None);
        self.count > 2 && is(&span, self.count - 2) && is(&span, self.count - 1)
    }

    pub fn unit(&self) -> usize {
        self.unit
    }

    pub fn count(&self) -> usize {
        self.count
    }

    pub fn samples(&self) -> &[u8] {
        &self.samples
    }

    pub fn stamps(&self) -> &[u64] {
        &self.stamps
    }

    #[inline(always)]
    pub fn is_full(&self) -> bool {
        self.count >= CLOCKS
    }

    /// The bus may rest for longer.
    #[inline(always)]
    pub fn is_still(&self) -> bool {
        self.still == STILL
    }

    /// It does not, as the last clocks show.
    pub fn moves(&mut self) {
        self.still -= NOT_YET;
    }

    /// Where the samples and stamps of the next clocks go.
    #[inline(always)]
    pub fn room(&mut self, unit: usize) -> (&mut [u8], &mut [u64]) {
        (&mut self.samples[self.count * unit..][..2 * BLOCK * unit], &mut self.stamps[self.count..][..2 * BLOCK])
    }

    /// So many more were put there, out of a block; which of them are suspect, and whether a line changed in it.
    #[inline(always)]
    pub fn add(&mut self, clocks: u32, suspect: u64, changed: bool) {
        let (word, used) = (self.count / BLOCK, self.count % BLOCK);
        self.suspect[word] |= suspect << used;
        self.suspect[word + 1] = suspect >> 1 >> (BLOCK - 1 - used);
        self.count += clocks as usize;
        self.still = if changed { 0 } else { self.still + 1 };
    }

    /// Which of the clocks from number `at` on are suspect.
    #[inline(always)]
    pub fn suspect(&self, at: usize) -> u64 {
        let (word, used) = (at / BLOCK, at % BLOCK);
        self.suspect[word] >> used | self.suspect[word + 1] << 1 << (BLOCK - 1 - used)
    }

    /// Those before number `at` were decoded.
    pub fn keep_from(&mut self, at: usize) {
        let first = at - 1;
        self.samples.copy_within(first * self.unit..self.count * self.unit, 0);
        self.stamps.copy_within(first..self.count, 0);
        if self.left_out > 0 {
            // What was left out before `at` counts no more.
            self.missing[first] = self.missing[at];
            self.missing.copy_within(first..=self.count, 0);
            self.noted = self.count - first;
        } else {
            self.noted = 0;
        }
        self.count -= first;
        for word in 0..=self.count / BLOCK {
            self.suspect[word] = self.suspect(first + BLOCK * word);
        }
        // Nobody has written what is behind the last clock.
        self.suspect[self.count / BLOCK] &= below((self.count % BLOCK) as u32);
    }
}
