//! Where lines change in a stretch of samples, found before anything else is asked of it: one loop goes over all of it without a
//! guess, as fast as memory gives it, and where the bus begins and ends to rest is looked up then.

use crate::samples::BLOCK;
use crate::samples::ahead::Ahead;
use crate::samples::bits::{Backend, ChangeWays, Look};
use crate::samples::block::{Span, below};
use crate::samples::taken::Taken;

/// Blocks of 64 samples of a stretch, at most: a bit each fits into a word.
pub const BLOCKS: usize = 64;
/// Bytes of a stretch, at most: so few that they are still in the nearest cache when clocks are taken out of them, and that
/// memory is not left alone for long.
const BYTES: usize = 8 << 10;

/// What is found in a stretch. Behind its last block there is room for a vector, and nothing is set.
#[repr(align(64))]
pub struct Maps {
    /// CLK is high in the sample.
    pub high: [u64; BLOCKS + 8],
    /// The sample is a clock.
    pub clocks: [u64; BLOCKS + 8],
    /// A line that is watched differs from the sample before.
    pub changed: [u64; BLOCKS + 8],
    /// How many clocks come before each block, and behind the last one.
    pub before: [u64; BLOCKS + 8],
    /// In which blocks one does.
    pub busy: u64,
}

impl Default for Maps {
    fn default() -> Self {
        Maps { high: [0; _], clocks: [0; _], changed: [0; _], before: [0; _], busy: 0 }
    }
}

impl Maps {
    /// The first eight samples from number `eight` of them on in which something changes.
    #[inline(always)]
    pub fn next_moved(&self, eight: usize) -> Option<usize> {
        let (block, gone) = (eight / 8, below(8 * (eight % 8) as u32));
        let here = self.changed[block] & !gone != 0;
        let busy = self.busy & !below((block + usize::from(!here)) as u32);
        if busy == 0 {
            return None;
        }
        let found = busy.trailing_zeros() as usize;
        let gone = if found == block { gone } else { 0 };
        Some(8 * found + (self.changed[found] & !gone).trailing_zeros() as usize / 8)
    }

    /// The last clock from sample `from` on before sample `to`.
    #[inline(always)]
    pub fn last_clock(&self, from: usize, to: usize) -> Option<usize> {
        let mut block = to / BLOCK;
        let mut clocks = self.clocks[block] & below((to % BLOCK) as u32);
        while clocks == 0 && BLOCK * block > from {
            block -= 1;
            clocks = self.clocks[block];
        }
        let last = BLOCK * block + clocks.checked_ilog2()? as usize;
        (last >= from).then_some(last)
    }

    /// How many clocks come before this sample.
    #[inline(always)]
    pub fn clocks_before(&self, sample: usize) -> u64 {
        let here = self.clocks[sample / BLOCK] & below((sample % BLOCK) as u32);
        self.before[sample / BLOCK] + u64::from(here.count_ones())
    }
}

/// What is watched.
pub struct Watched {
    /// CLK, and the lines whose changes end a state that lasts.
    pub look: Look,
    /// Those among them whose change just before a clock is suspect.
    pub suspect: u64,
    /// Bits of a sample and what they read in each state that lasts.
    pub states: [(u64, u64); 2],
}

impl Watched {
    /// Whether a sample is in a state that lasts.
    #[inline(always)]
    pub fn lasts(&self, sample: u64) -> bool {
        let [one, other] = self.states.map(|(told, wanted)| (sample ^ wanted) & told);
        // No branch: which of them it is cannot be foreseen.
        one.min(other) == 0
    }
}

/// How far clocks were taken out of a stretch.
#[derive(Debug, Default, Clone, Copy)]
pub struct Progress {
    /// The next samples are these eight.
    pub eight: usize,
    /// The bus is in a state that lasts.
    pub steady: bool,
    /// So many clocks were taken, the last one just before this sample.
    pub taken: u64,
    pub taken_to: usize,
    /// How many were left out before the stretch.
    pub left_out: u64,
}

/// Takes out the clocks of a stretch around its changes.
#[derive(Default)]
pub struct Changes {
    unit: usize,
    ways: Option<ChangeWays>,
    maps: Box<Maps>,
    progress: Progress,
    /// Number of the first sample, and how many blocks there are.
    from: usize,
    blocks: usize,
    /// How far samples were asked for.
    pub ahead: Ahead,
}

impl Changes {
    /// Of samples of `unit` bytes; whether the processor can do that.
    #[inline(always)]
    pub fn can<B: Backend>(&mut self, unit: usize) -> bool {
        if self.unit != unit {
            (self.unit, self.ways) = (unit, B::change_ways(unit));
        }
        self.ways.is_some()
    }

    /// Finds the changes in the samples from number `from` on, up to `to` at most, a block of them at least. The bus is in a
    /// state that lasts or not.
    ///
    /// # Safety
    /// As for [`Backend`], for all samples up to `to`, that one itself and the one before.
    #[inline(always)]
    pub unsafe fn find(&mut self, span: &Span, from: usize, to: usize, watched: &Watched, steady: bool, taken: &Taken) {
        let Some((find, _)) = self.ways else { return };
        self.from = from;
        self.blocks = ((to - from) / BLOCK).min(BYTES / BLOCK / self.unit).min(BLOCKS);
        self.progress = Progress { steady, left_out: taken.left_out(), ..Progress::default() };
        // Safety: as the caller says.
        unsafe { find(span.sample(from).as_ptr(), self.blocks, &watched.look, &mut self.maps, &mut self.ahead) };
    }

    /// Something changes nearly everywhere.
    #[inline(always)]
    pub fn are_everywhere(&self) -> bool {
        3 * self.maps.busy.count_ones() as usize > 2 * self.blocks
    }

    /// Takes out clocks until enough are there; where all of the stretch was gone over, the first sample behind that and whether
    /// the bus is in a state that lasts.
    ///
    /// # Safety
    /// As for [`Changes::find`], of the same samples.
    #[inline(always)]
    pub unsafe fn take(&mut self, span: &Span, watched: &Watched, taken: &mut Taken) -> Option<(usize, bool)> {
        let (_, take) = self.ways?;
        let first = (span.sample(self.from).as_ptr(), span.stamp(self.from));
        // Safety: as the caller says.
        let all = unsafe { take(first, self.blocks, watched, &self.maps, &mut self.progress, taken, &mut self.ahead) };
        all.then_some((self.from + 8 * self.progress.eight, self.progress.steady))
    }
}

#[cfg(test)]
#[cfg(target_arch = "x86_64")]
mod tests {
    use super::*;
    use crate::samples::bits::{Avx2, Bit, SampleMask};
    use proptest::prelude::*;

    /// A clock as it is in the samples: which one, its number, whether a line that is suspect then changed just before it.
    type Clock = (Vec<u8>, u64, bool);

    /// Takes out all clocks, however often enough of them are there; those, with how many are left out before each, and in all
    /// up to which sample.
    fn all_taken(span: &Span, samples: usize, watched: &Watched) -> (Vec<(Clock, u64)>, u64, usize) {
        let (mut changes, mut taken) = (Changes::default(), Taken::default());
        assert!(changes.can::<Avx2<0, true>>(span.unit()), "that was asked");
        taken.begin(span.unit(), span.sample(0));
        let mut found = Vec::new();
        let mut collect = |taken: &mut Taken| {
            taken.note_missing();
            found.extend((1..taken.count()).map(|at| {
                let sample = taken.samples()[at * span.unit()..][..span.unit()].to_vec();
                let missing = taken.missing().get(at).copied().unwrap_or_default();
                ((sample, taken.stamps()[at], taken.suspect(at) & 1 != 0), missing)
            }));
            taken.keep_from(taken.count());
        };
        let (mut next, mut steady) = (1, false);
        while next + BLOCK <= samples {
            // Safety: all samples are there, and `can` told that the processor has what this needs, here and below.
            unsafe { changes.find(span, next, samples, watched, steady, &taken) };
            loop {
                if let Some(all) = unsafe { changes.take(span, watched, &mut taken) } {
                    (next, steady) = all;
                    break;
                }
                collect(&mut taken);
            }
        }
        collect(&mut taken);
        (found, taken.left_out(), next)
    }

    proptest! {
        /// A processor without these instructions has nothing to test here.
        #[test]
        fn what_is_left_out_lasts(
            unit in prop_oneof![Just(1usize), Just(2), Just(4), Just(8)],
            places in proptest::sample::subsequence((0..64usize).collect::<Vec<_>>(), 64).prop_shuffle(),
            low in any::<bool>(),
            runs in proptest::collection::vec((0u64..4, 1usize..300), 1..60),
            halves in proptest::collection::vec(1usize..8, 1..4),
            slow in proptest::option::of(60usize..200),
            noise in any::<u64>(),
            one_is_suspect in any::<bool>(),
        ) {
            if Changes::default().can::<Avx2<0, true>>(unit) {
                let place: Vec<usize> = places.into_iter().filter(|&place| place < 8 * unit).take(3).collect();
                let bit = |nth: usize| 1u64 << place[nth];
                let (clk, lines) = (bit(0), bit(1) | bit(2));
                let mut halves = halves.iter().map(|&half| slow.unwrap_or(half)).cycle();
                let (mut left, mut high) = (0, false);
                let states = runs.iter().flat_map(|&(state, length)| std::iter::repeat_n(state, length));
                let samples: Vec<u64> = states.enumerate().map(|(at, state)| {
                    if left == 0 {
                        (left, high) = (halves.next().expect("a cycle"), !high);
                    }
                    left -= 1;
                    let other = noise.rotate_left(7 * at as u32 % 64) & !clk & !lines;
                    let driven = if state & 1 != 0 { bit(1) } else { 0 } | if state & 2 != 0 { bit(2) } else { 0 };
                    other | driven | if high { clk } else { 0 }
                }).collect();
                let bytes: Vec<u8> =
                    samples.iter().flat_map(|sample| sample.to_le_bytes()[..unit].to_vec()).collect();
                let span = Span::new(&bytes, unit, Some(Bit::new(place[0], low)));
                let repeated = |bits: u64| SampleMask::repeated(&bits.to_le_bytes()[..unit]).first();
                let look = Look {
                    clk: repeated(clk),
                    flip: if low { repeated(clk) } else { 0 },
                    watched: repeated(lines),
                };
                let suspects = if one_is_suspect { bit(1) } else { lines };
                let watched = Watched { look, suspect: repeated(suspects), states: [(lines, 0), (lines, lines)] };
                let count = samples.len() - 1;
                let changed = |at: usize, of: u64| (samples[at] ^ samples[at - 1]) & of != 0;
                let is_high = |at: usize| (samples[at] & clk != 0) != low;
                let clocks: Vec<usize> = (1..count).filter(|&at| !is_high(at) && is_high(at + 1)).collect();

                let (taken, left_out, end) = all_taken(&span, count, &watched);
                let mut gone = 0;
                for (nth, (clock, missing)) in taken.iter().enumerate() {
                    let number = nth + *missing as usize;
                    let at = clocks[number];
                    let sample = bytes[at * unit..][..unit].to_vec();
                    prop_assert_eq!(clock, &(sample, at as u64, changed(at, suspects)));
                    // Those between: it is as it was from two clocks before them to the one behind them.
                    if number > gone {
                        prop_assert!((clocks[gone - 2] + 1..=at).all(|at| !changed(at, lines)));
                        prop_assert!(watched.lasts(samples[at]));
                    }
                    gone = number + 1;
                }
                let before_end = clocks.iter().filter(|&&at| at < end).count();
                prop_assert_eq!(taken.len() + left_out as usize, before_end);
                prop_assert!(end + BLOCK > count || count <= BLOCK);
            }
        }
    }
}
