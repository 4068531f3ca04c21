//! Single lines over time: when each changes and to what, for a picture of the waveforms.

use crate::capture::{Capture, Data, Sampled};
use crate::error::Result;
#[cfg(target_arch = "x86_64")]
use crate::samples::bits::Avx2;
use crate::samples::bits::{Backend, Bit, Portable, has_fast_path};
use crate::samples::places::Source;
use crate::wire::{for_each_sample, levels};
use arrow_array::{ArrayRef, RecordBatch, UInt8Array, UInt64Array};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use std::sync::Arc;

/// What a line is at as the pin shows it.
const LOW: u8 = 0;
const HIGH: u8 = 1;
pub const UNKNOWN: u8 = 2;

/// The changes of one line: when, in samples or ticks, and the level from then on.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Wave {
    stamps: Vec<u64>,
    levels: Vec<u8>,
}

impl Wave {
    fn push(&mut self, stamp: u64, level: u8) {
        if self.levels.last() != Some(&level) {
            self.stamps.push(stamp);
            self.levels.push(level);
        }
    }

    /// The next 64 samples.
    #[inline(always)]
    fn push_word(&mut self, stamp: u64, word: u64) {
        let before = self.levels.last().map_or(!word & 1, |&level| u64::from(level == HIGH));
        let mut changes = word ^ (word << 1 | before);
        while changes != 0 {
            let at = changes.trailing_zeros();
            self.stamps.push(stamp + u64::from(at));
            self.levels.push((word >> at & 1) as u8);
            changes &= changes - 1;
        }
    }
}

/// When lines change: `line` (its place among `lines`), `stamp`, `level` (0 low, 1 high, 2 unknown), line by line.
pub fn waves(capture: &Capture, lines: &[Source]) -> Result<(SchemaRef, Vec<RecordBatch>)> {
    let waves = match &capture.data {
        Data::Sampled(sampled) => of_samples(sampled.as_ref(), lines)?,
        Data::Changes(changes) => {
            let limbs: Vec<_> = lines.iter().map(|line| line.limb()).collect();
            let signals = changes.signals(&limbs)?;
            let of = |(line, signal)| {
                let mut wave = Wave::default();
                for (stamp, level) in levels(signal, line) {
                    wave.push(stamp, level.map_or(UNKNOWN, |high| if high { HIGH } else { LOW }));
                }
                wave
            };
            lines.iter().zip(&signals).map(of).collect::<Vec<_>>()
        }
    };
    let schema = Arc::new(Schema::new(vec![
        Field::new("line", DataType::UInt8, false),
        Field::new("stamp", DataType::UInt64, false),
        Field::new("level", DataType::UInt8, false),
    ]));
    let batch = |(line, wave): (usize, Wave)| {
        let columns: Vec<ArrayRef> = vec![
            Arc::new(UInt8Array::from(vec![line as u8; wave.stamps.len()])),
            Arc::new(UInt64Array::from(wave.stamps)),
            Arc::new(UInt8Array::from(wave.levels)),
        ];
        RecordBatch::try_new(schema.clone(), columns).expect("three columns of one length")
    };
    let batches = waves.into_iter().enumerate().map(batch).collect();
    Ok((schema, batches))
}

fn of_samples(sampled: &dyn Sampled, lines: &[Source]) -> Result<Vec<Wave>> {
    let unit = sampled.unit_size();
    let bits: Vec<_> = lines.iter().map(|line| Bit::new(sampled.bits()[line.channel], line.active_low)).collect();
    let mut waves = vec![Wave::default(); lines.len()];
    let mut stamp = 0;
    for_each_sample(sampled, |samples| {
        for (wave, bit) in waves.iter_mut().zip(&bits) {
            scan(wave, samples, unit, *bit, stamp);
        }
        stamp += (samples.len() / unit) as u64;
        true
    })?;
    Ok(waves)
}

/// One line in the next samples.
fn scan(wave: &mut Wave, samples: &[u8], unit: usize, bit: Bit, stamp: u64) {
    #[cfg(target_arch = "x86_64")]
    if has_fast_path() {
        #[target_feature(enable = "avx2,bmi1,bmi2,popcnt,lzcnt")]
        fn scan_avx2(wave: &mut Wave, samples: &[u8], unit: usize, bit: Bit, stamp: u64) {
            scan_in_blocks::<Avx2<0, true>>(wave, samples, unit, bit, stamp);
        }
        // Safety: the processor has the features.
        return unsafe { scan_avx2(wave, samples, unit, bit, stamp) };
    }
    scan_in_blocks::<Portable>(wave, samples, unit, bit, stamp);
}

#[inline(always)]
fn scan_in_blocks<B: Backend>(wave: &mut Wave, samples: &[u8], unit: usize, bit: Bit, stamp: u64) {
    let count = samples.len() / unit;
    let mut at = 0;
    while at + 64 <= count {
        // Safety: 64 samples follow, and a bit lies within the unit.
        let word = unsafe { B::line(samples[at * unit..].as_ptr(), unit, bit) };
        wave.push_word(stamp + at as u64, word);
        at += 64;
    }
    for at in at..count {
        wave.push(stamp + at as u64, u8::from(bit.get(&samples[at * unit..])));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_single_samples_give_the_same_changes() {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        for length in [1, 63, 64, 65, 127, 128, 1000] {
            let samples: Vec<u8> = (0..length)
                .map(|_| {
                    state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                    (state >> 61) as u8
                })
                .collect();
            for bit in 0..3 {
                let bit = Bit::new(bit, false);
                let (mut quick, mut slow) = (Wave::default(), Wave::default());
                scan(&mut quick, &samples, 1, bit, 7);
                for (at, sample) in samples.iter().enumerate() {
                    slow.push(7 + at as u64, u8::from(bit.get(&[*sample])));
                }
                assert_eq!(quick, slow, "{length} samples");
            }
        }
    }
}
