//! Captures of changes as one packed record a clock: state-mode samples for the decoder.
//!
//! A record holds the values in force just before CLK rises. Beside each group of lines it has a bit that says that one
//! of them has no known value; control lines that are `z` read 1, as they are pulled up (`pci-reference`, "Sampling").

use crate::capture::{Changes, Limb, Signal};
use crate::error::Result;
use crate::pci::clocking::Decoder;
use crate::pci::layout::{BusSpec, EVENT_LINES, Layout};
use crate::pipeline::Decoder as _;
use crate::samples::bits::Bit;
use crate::samples::places::Source;
use crate::wire::levels;
use std::collections::BTreeMap;
use std::iter::Peekable;
use std::slice::Iter;

/// Lines whose unknown values are noted together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Group {
    /// FRAME#, IRDY#, TRDY#, STOP#: without one of them the clock means nothing.
    Control,
    Devsel,
    Grants,
    Idsels,
    /// One of the lines whose changes are rows.
    Event(usize),
    Perr,
    Serr,
    AdLow,
    AdHigh,
    ByteEnables,
    ByteEnablesHigh,
    Parity,
    ParityHigh,
    /// RST# and the others: unknown reads released.
    Other,
}

impl Group {
    fn of(line: &str) -> Group {
        if let Some(number) = EVENT_LINES.iter().position(|&name| name == line) {
            return Group::Event(number);
        }
        match line {
            "FRAME#" | "IRDY#" | "TRDY#" | "STOP#" => Group::Control,
            "DEVSEL#" => Group::Devsel,
            "PERR#" => Group::Perr,
            "SERR#" => Group::Serr,
            "PAR" => Group::Parity,
            "PAR64" => Group::ParityHigh,
            _ if line.starts_with("GNT") => Group::Grants,
            _ if line.starts_with("IDSEL") => Group::Idsels,
            "CBE4#" | "CBE5#" | "CBE6#" | "CBE7#" => Group::ByteEnablesHigh,
            _ if line.starts_with("CBE") => Group::ByteEnables,
            _ => match line.strip_prefix("AD").and_then(|digits| digits.parse::<u32>().ok()) {
                Some(0..32) => Group::AdLow,
                Some(_) => Group::AdHigh,
                None => Group::Other,
            },
        }
    }

    /// Pulled-up lines read 1 when nobody drives them.
    fn is_pulled_up(self) -> bool {
        use Group::{AdHigh, AdLow, ByteEnables, ByteEnablesHigh, Idsels, Parity, ParityHigh};
        !matches!(self, AdLow | AdHigh | Idsels | ByteEnables | ByteEnablesHigh | Parity | ParityHigh)
    }
}

/// Neighbouring bits of one limb that are neighbours in the record too, within one 64-bit word of it.
#[derive(Debug, Clone)]
struct Part {
    limb: Limb,
    shift: u32,
    /// Ones as wide as the part, at the low end.
    mask: u64,
    word: usize,
    to: u32,
    group: Group,
    /// What unknown bits of pulled-up lines read.
    released: u64,
    has_unknown: bool,
}

/// How a bus is packed into records.
pub struct Packing {
    pub layout: Layout,
    parts: Vec<Part>,
    /// Position of each group's "unknown" bit.
    flags: BTreeMap<Group, usize>,
    words: usize,
    clk: Source,
}

impl Packing {
    pub fn new(spec: &BusSpec) -> Result<Self> {
        let clk = spec.line("CLK")?;
        let mut lines: Vec<(&String, &Source)> = spec.lines.iter().filter(|(name, _)| *name != "CLK").collect();
        lines.sort_by_key(|(_, source)| **source);
        let mut parts: Vec<Part> = Vec::new();
        let mut places: BTreeMap<Source, usize> = BTreeMap::new();
        let mut next = 0;
        for (name, source) in lines {
            let group = Group::of(name);
            let released = u64::from(source.active_low);
            places.insert(*source, next);
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
        for part in parts.iter().filter(|part| part.group != Group::Other) {
            flags.entry(part.group).or_insert_with(|| {
                next += 1;
                next - 1
            });
        }
        let words = next.div_ceil(64);
        let mut layout = Layout::new(spec, words * 8, true, |source| places[&source])?;
        let flag = |group| flags.get(&group).map(|&position| Bit::new(position, false));
        layout.unknown = flag(Group::Control);
        layout.devsel_unknown = flag(Group::Devsel);
        layout.grants_unknown = flag(Group::Grants);
        layout.idsels_unknown = flag(Group::Idsels);
        for (number, line) in layout.events.iter_mut().enumerate() {
            *line = line.map(|(bit, _)| (bit, flag(Group::Event(number))));
        }
        layout.perr_unknown = flag(Group::Perr);
        layout.serr_unknown = flag(Group::Serr);
        layout.ad_unknown = flag(Group::AdLow);
        layout.ad_high_unknown = flag(Group::AdHigh);
        layout.cbe_unknown = flag(Group::ByteEnables);
        layout.cbe_high_unknown = flag(Group::ByteEnablesHigh);
        layout.par_unknown = flag(Group::Parity);
        layout.par64_unknown = flag(Group::ParityHigh);
        Ok(Packing { layout, parts, flags, words, clk })
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
struct Recorder<'a> {
    packing: Packing,
    cursors: Vec<Cursor>,
    /// As it stands.
    record: Vec<u64>,
    gaps: Peekable<Iter<'a, (u64, u64)>>,
    bytes: Vec<u8>,
}

impl<'a> Recorder<'a> {
    fn new(mut packing: Packing, limbs: &[Limb], gaps: &'a [(u64, u64)]) -> Self {
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
    fn push(&mut self, signals: &[Signal], times: &[u64], decoder: &mut Decoder) {
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

/// Decodes one bus of a capture of changes, up to a time or all of it, with a decoder of the layout of its [`Packing`]. `batch` is
/// called after each batch of records with the share that is done.
pub fn decode(
    changes: &dyn Changes,
    spec: &BusSpec,
    until: Option<u64>,
    mut decoder: Decoder,
    mut batch: impl FnMut(&mut Decoder, f64) -> Result<()>,
) -> Result<Decoder> {
    let packing = Packing::new(spec)?;
    let (clk, gaps) = (packing.clk, changes.gaps());
    let limbs = packing.limbs();
    let mut wanted = limbs.clone();
    wanted.push(clk.limb());
    let mut rises = Rises { clk, gaps: gaps.iter().peekable(), before: None };
    let mut recorder = Recorder::new(packing, &limbs, gaps);
    changes.parts(&wanted, &mut |signals| {
        let [signals @ .., clk_signal] = signals else { return Ok(false) };
        if let Some(rules) = &mut decoder.rules {
            rules.watch_changes(clk_signal, clk, gaps);
        }
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
