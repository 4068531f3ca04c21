//! Captures of changes as one packed record a clock: samples for a decoder, each of which is a clock.
//!
//! A record holds the values in force just before CLK rises. Beside each group of lines it has a bit that says that one
//! of them has no known value; lines that are pulled up read 1 where they are `z` (`pci-reference`, "Sampling").

use crate::capture::{Changes, Limb, Signal};
use crate::error::Result;
use crate::pipeline::Decoder;
use crate::samples::bits::Bit;
use crate::samples::places::Source;
use crate::wire::levels;
use std::collections::BTreeMap;
use std::iter::Peekable;
use std::slice::Iter;

/// Lines whose unknown values are noted together.
pub trait Group: Copy + Ord {
    /// Pulled-up lines read 1 when nobody drives them.
    fn is_pulled_up(self) -> bool;
    /// Whether they are noted at all; else what is not known reads as it may.
    fn is_noted(self) -> bool;
}

/// Neighbouring bits of one limb that are neighbours in the record too, within one 64-bit word of it.
#[derive(Debug, Clone)]
struct Part<G> {
    limb: Limb,
    shift: u32,
    /// Ones as wide as the part, at the low end.
    mask: u64,
    word: usize,
    to: u32,
    group: G,
    /// What unknown bits of pulled-up lines read.
    released: u64,
    has_unknown: bool,
}

/// How a bus is packed into records.
pub struct Packing<G> {
    parts: Vec<Part<G>>,
    /// Position of each line in the record, and of each group's "unknown" bit.
    places: BTreeMap<Source, usize>,
    flags: BTreeMap<G, usize>,
    words: usize,
    clk: Source,
}

impl<G: Group> Packing<G> {
    /// Of these lines besides `clk`, each with its group.
    pub fn new(clk: Source, mut lines: Vec<(Source, G)>) -> Self {
        lines.sort_by_key(|(source, _)| *source);
        let mut parts: Vec<Part<G>> = Vec::new();
        let mut places: BTreeMap<Source, usize> = BTreeMap::new();
        let mut next = 0;
        for (source, group) in lines {
            let released = u64::from(source.active_low);
            places.insert(source, next);
            match parts.last_mut() {
                Some(part)
                    if part.limb == source.limb()
                        && part.shift + part.mask.count_ones() == source.shift()
                        && part.group == group
                        && next % 64 != 0 =>
                {
                    part.released |= released << part.mask.count_ones();
                    part.mask = part.mask << 1 | 1;
                }
                _ => parts.push(Part {
                    limb: source.limb(),
                    shift: source.shift(),
                    mask: 1,
                    word: next / 64,
                    to: next as u32 % 64,
                    group,
                    released,
                    has_unknown: true,
                }),
            }
            next += 1;
        }
        let mut flags = BTreeMap::new();
        for part in parts.iter().filter(|part| part.group.is_noted()) {
            flags.entry(part.group).or_insert_with(|| {
                next += 1;
                next - 1
            });
        }
        Packing { parts, places, flags, words: next.div_ceil(64), clk }
    }

    /// Bytes of a record.
    pub fn unit(&self) -> usize {
        self.words * 8
    }

    /// Which bit of the record a line is.
    pub fn place(&self, line: Source) -> usize {
        self.places[&line]
    }

    /// Set where a line of the group has no known value.
    pub fn unknown(&self, group: G) -> Option<Bit> {
        self.flags.get(&group).map(|&position| Bit::new(position, false))
    }

    fn limbs(&self) -> Vec<Limb> {
        let mut limbs: Vec<Limb> = self.parts.iter().map(|part| part.limb).collect();
        limbs.sort_unstable();
        limbs.dedup();
        limbs
    }

    /// Writes the parts of `limb` into the record, and their groups' flags.
    fn update(&mut self, record: &mut [u64], limb: Limb, value: u64, unknown: u64, high_z: u64) {
        let first = self.parts.partition_point(|part| part.limb < limb);
        let count = self.parts[first..].iter().take_while(|part| part.limb == limb).count();
        for index in first..first + count {
            let part = &mut self.parts[index];
            let cut = |map: u64| map >> part.shift & part.mask;
            let (mut value, unknown, high_z) = (cut(value), cut(unknown), cut(high_z));
            let bad = if part.group.is_pulled_up() {
                value |= high_z;
                unknown
            } else {
                unknown | high_z
            };
            if part.group.is_pulled_up() {
                value = value & !bad | part.released & bad;
            }
            record[part.word] = record[part.word] & !(part.mask << part.to) | value << part.to;
            let (group, changed) = (part.group, part.has_unknown != (bad != 0));
            part.has_unknown = bad != 0;
            if let Some(&flag) = self.flags.get(&group).filter(|_| changed) {
                let any = self.parts.iter().any(|part| part.group == group && part.has_unknown);
                record[flag / 64] = record[flag / 64] & !(1 << (flag % 64)) | u64::from(any) << (flag % 64);
            }
        }
    }
}

/// Reads one limb forward in time, part by part.
struct Cursor {
    limb: Limb,
    next: usize,
}

impl Cursor {
    /// Goes on to the last change before `time`; the values, if there was one.
    fn advance(&mut self, signal: &Signal, time: u64) -> Option<(u64, u64, u64)> {
        let before = self.next;
        while self.next < signal.times.len() && signal.times[self.next] < time {
            self.next += 1;
        }
        (self.next > before).then(|| {
            let at = self.next - 1;
            let of = |bits: &[u64]| bits.get(at).copied().unwrap_or(0);
            (signal.values[at], of(&signal.unknown), of(&signal.high_z))
        })
    }
}

/// Finds where CLK goes from 0 to 1, part by part.
struct Rises<'a> {
    clk: Source,
    gaps: Peekable<Iter<'a, (u64, u64)>>,
    before: Option<bool>,
}

impl Rises<'_> {
    /// The times of the next ones.
    fn of(&mut self, clk: &Signal) -> Vec<u64> {
        let mut rises = Vec::new();
        for (time, now) in levels(clk, &self.clk) {
            // Both are in order of time, and gaps do not overlap.
            while self.gaps.next_if(|&&(_, to)| to < time).is_some() {}
            if self.before == Some(false)
                && now == Some(true)
                && self.gaps.peek().is_none_or(|&&(from, _)| time <= from)
            {
                rises.push(time);
            }
            self.before = now;
        }
        rises
    }
}

/// Records pushed at a time.
const BATCH: usize = 4096;

/// Makes records of changes.
struct Recorder<'a, G> {
    packing: Packing<G>,
    cursors: Vec<Cursor>,
    /// As it stands.
    record: Vec<u64>,
    gaps: Peekable<Iter<'a, (u64, u64)>>,
    bytes: Vec<u8>,
}

impl<'a, G: Group> Recorder<'a, G> {
    fn new(mut packing: Packing<G>, limbs: &[Limb], gaps: &'a [(u64, u64)]) -> Self {
        // Before its first change every line is unknown.
        let mut record = vec![0u64; packing.words];
        for &flag in packing.flags.values() {
            record[flag / 64] |= 1 << (flag % 64);
        }
        for &limb in limbs {
            packing.update(&mut record, limb, 0, !0, 0);
        }
        let cursors = limbs.iter().map(|&limb| Cursor { limb, next: 0 }).collect();
        Recorder { packing, cursors, record, gaps: gaps.iter().peekable(), bytes: Vec::new() }
    }

    /// The changes before `time` hold.
    fn advance(&mut self, signals: &[Signal], time: u64) {
        for (cursor, signal) in self.cursors.iter_mut().zip(signals) {
            if let Some((value, unknown, high_z)) = cursor.advance(signal, time) {
                self.packing.update(&mut self.record, cursor.limb, value, unknown, high_z);
            }
        }
    }

    /// The clocks at these times.
    fn push(&mut self, signals: &[Signal], times: &[u64], decoder: &mut impl Decoder) {
        let mut from = 0;
        for (index, &time) in times.iter().enumerate() {
            if self.gaps.next_if(|&&(_, end)| end < time).is_some() {
                while self.gaps.next_if(|&&(_, end)| end < time).is_some() {}
                decoder.push_stamped(&self.bytes, &times[from..index]);
                self.bytes.clear();
                from = index;
                decoder.gap();
            }
            self.advance(signals, time);
            self.bytes.extend(self.record.iter().flat_map(|word| word.to_le_bytes()));
        }
        decoder.push_stamped(&self.bytes, &times[from..]);
        self.bytes.clear();
    }

    /// What is left of a part changes after its last clock.
    fn end_part(&mut self, signals: &[Signal]) {
        self.advance(signals, u64::MAX);
        self.cursors.iter_mut().for_each(|cursor| cursor.next = 0);
    }
}

/// Decodes one bus of a capture of changes, up to a time or all of it, with a decoder of its records. `batch` is called after
/// each batch of these with the share that is done.
pub fn decode<D: Decoder>(
    changes: &dyn Changes,
    packing: Packing<impl Group>,
    until: Option<u64>,
    mut decoder: D,
    mut batch: impl FnMut(&mut D, f64) -> Result<()>,
) -> Result<D> {
    let (clk, gaps) = (packing.clk, changes.gaps());
    let limbs = packing.limbs();
    let mut wanted = limbs.clone();
    wanted.push(clk.limb());
    let mut rises = Rises { clk, gaps: gaps.iter().peekable(), before: None };
    let mut recorder = Recorder::new(packing, &limbs, gaps);
    changes.parts(&wanted, &mut |signals| {
        let [signals @ .., clk_signal] = signals else { return Ok(false) };
        decoder.watch_clock(clk_signal, clk, gaps);
        let mut times = rises.of(clk_signal);
        let all = times.len();
        times.truncate(until.map_or(all, |until| times.partition_point(|&time| time <= until)));
        for times in times.chunks(BATCH) {
            recorder.push(signals, times, &mut decoder);
            let share = times.last().map_or(0.0, |&last| last as f64 / changes.end().max(1) as f64);
            batch(&mut decoder, share)?;
        }
        recorder.end_part(signals);
        Ok(times.len() == all)
    })?;
    decoder.finish();
    batch(&mut decoder, 1.0)?;
    Ok(decoder)
}
