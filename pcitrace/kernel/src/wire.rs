//! What is beside the PCI bus in a capture: frames on the Ethernet wire (TX_EN, TX_CLK, TXD), and the rate of a clock line.
//!
//! Ref: IEEE Std 802.3, clause 22 (MII, nibbles, low one first) and clause 35 (GMII, bytes). Data are launched at the rising
//! edge of the clock and read at the falling one.

use crate::capture::{Capture, Changes, Data, Sampled, Signal};
use crate::error::{Error, Result};
use crate::interrupt;
#[cfg(target_arch = "x86_64")]
use crate::samples::bits::Avx2;
use crate::samples::bits::{Backend, Bit, Portable, has_fast_path};
use crate::samples::block::below;
use crate::samples::places::Source;
use crate::time::TimeBase;
use arrow_array::builder::{BinaryBuilder, Float64Builder};
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use std::sync::Arc;

/// The lines of one direction of the wire.
#[derive(Debug, Clone)]
pub struct WireSpec {
    pub enable: Source,
    pub clock: Option<Source>,
    /// TXD lines from bit 0 on.
    pub data: Vec<Source>,
}

/// One frame: from the rise of TX_EN to its fall; None where the capture begins or ends inside.
struct Frame {
    start: Option<u64>,
    end: Option<u64>,
    bytes: Option<Vec<u8>>,
}

#[derive(Default)]
struct Scan {
    /// 4 or 8 data lines and a clock were captured.
    symbol_bits: Option<usize>,
    enabled: Option<bool>,
    start: Option<u64>,
    symbols: Vec<u8>,
    frames: Vec<Frame>,
}

impl Scan {
    fn new(spec: &WireSpec) -> Self {
        let symbol_bits = spec.clock.and(Some(spec.data.len())).filter(|bits| matches!(bits, 4 | 8));
        Scan { symbol_bits, ..Scan::default() }
    }

    fn enable(&mut self, stamp: u64, enabled: bool) {
        match (self.enabled.replace(enabled), enabled) {
            (Some(false), true) => {
                self.start = Some(stamp);
                self.symbols.clear();
            }
            (Some(true), false) => self.frame(Some(stamp)),
            _ => {}
        }
    }

    /// A falling edge of the clock.
    fn symbol(&mut self, value: u8) {
        if self.enabled == Some(true) {
            self.symbols.push(value);
        }
    }

    /// TX_EN in 64 samples of a frame, whose symbols were read; the number of samples up to the end of the frame.
    fn enabled_for(&mut self, enabled: u64, stamp: u64) -> usize {
        let samples = (!enabled).trailing_zeros() as usize;
        if samples < 64 {
            self.enable(stamp + samples as u64, false);
        }
        (samples + 1).min(64)
    }

    fn frame(&mut self, end: Option<u64>) {
        let symbols = std::mem::take(&mut self.symbols);
        let whole = self.start.is_some() && end.is_some();
        let bytes = match self.symbol_bits.filter(|_| whole) {
            Some(8) => Some(symbols),
            Some(_) => Some(symbols.chunks_exact(2).map(|pair| pair[0] & 0xf | pair[1] << 4).collect()),
            None => None,
        };
        self.frames.push(Frame { start: self.start.take(), end, bytes });
    }

    fn finish(mut self) -> Vec<Frame> {
        if self.enabled == Some(true) {
            self.frame(None);
        }
        self.frames
    }
}

/// The frames on one direction of the wire: `start_us`, `end_us`, `bytes` (with preamble and FCS).
pub fn frames(capture: &Capture, spec: &WireSpec, rate_hz: Option<f64>) -> Result<(SchemaRef, Vec<RecordBatch>)> {
    match &capture.data {
        Data::Sampled(sampled) => {
            let mut scan = WireScan::new(capture, sampled.as_ref(), spec, rate_hz)?;
            let mut buffer = Vec::new();
            for chunk in sampled.chunks() {
                scan.push(&chunk?.bytes(&mut buffer)?)?;
            }
            Ok(scan.finish())
        }
        Data::Changes(changes) => Ok(table(&scan_changes(changes.as_ref(), spec)?, TimeBase::ticks(changes.tick()))),
    }
}

fn table(frames: &[Frame], time: TimeBase) -> (SchemaRef, Vec<RecordBatch>) {
    let schema = Arc::new(Schema::new(vec![
        Field::new("start_us", DataType::Float64, true),
        Field::new("end_us", DataType::Float64, true),
        Field::new("bytes", DataType::Binary, true),
    ]));
    let length = |frame: &Frame| frame.bytes.as_ref().map_or(0, Vec::len);
    let mut batches = Vec::new();
    let mut rest = frames;
    while !rest.is_empty() {
        let mut left = BATCH_BYTES;
        let fits = |frame: &&Frame| {
            let fits = length(frame) <= left;
            left = left.saturating_sub(length(frame));
            fits
        };
        let (some, behind) = rest.split_at(rest.iter().take_while(fits).count().max(1));
        batches.push(batch(&schema, some, time));
        rest = behind;
    }
    (schema, batches)
}

/// Bytes of frames in a batch: Arrow counts up to 2 GiB.
const BATCH_BYTES: usize = 1 << 28;

fn batch(schema: &SchemaRef, frames: &[Frame], time: TimeBase) -> RecordBatch {
    let mut start = Float64Builder::new();
    let mut end = Float64Builder::new();
    let mut bytes = BinaryBuilder::new();
    for frame in frames {
        start.append_option(frame.start.map(|stamp| time.us(stamp)));
        end.append_option(frame.end.map(|stamp| time.us(stamp)));
        bytes.append_option(frame.bytes.as_ref());
    }
    let columns: Vec<ArrayRef> = vec![Arc::new(start.finish()), Arc::new(end.finish()), Arc::new(bytes.finish())];
    RecordBatch::try_new(schema.clone(), columns).expect("three columns of one length")
}

/// Frames in samples that come piece by piece, in order.
pub struct WireScan {
    lines: Lines,
    scan: Scan,
    time: TimeBase,
    pieces: Pieces,
    /// The last sample, and the number of the next one.
    before: Option<Vec<u8>>,
    stamp: u64,
}

impl WireScan {
    pub fn new(capture: &Capture, sampled: &dyn Sampled, spec: &WireSpec, rate_hz: Option<f64>) -> Result<Self> {
        let rate = rate_hz
            .or(sampled.rate_hz())
            .ok_or_else(|| Error::format(&capture.path, "states no sample rate; give it with --rate"))?;
        let bit = |source: &Source| Bit::new(sampled.bits()[source.channel], source.active_low);
        let lines = Lines {
            enable: bit(&spec.enable),
            clock: spec.clock.as_ref().map(bit),
            data: spec.data.iter().map(bit).collect(),
        };
        Ok(WireScan {
            lines,
            scan: Scan::new(spec),
            time: TimeBase::per_second(rate)?,
            pieces: Pieces::new(sampled.unit_size()),
            before: None,
            stamp: 0,
        })
    }

    /// The next bytes, which may end within a sample.
    pub fn push(&mut self, bytes: &[u8]) -> Result<()> {
        let WireScan { lines, scan, pieces, before, stamp, .. } = self;
        let unit = pieces.unit;
        pieces.push(bytes, &mut |samples| {
            lines.read_all(scan, before.as_deref(), samples, unit, *stamp);
            if let Some(last) = samples.len().checked_sub(unit) {
                *before = Some(samples[last..].to_vec());
            }
            *stamp += (samples.len() / unit) as u64;
            true
        })?;
        Ok(())
    }

    /// The same lines, of which nothing was read yet.
    pub fn fresh(&self) -> Self {
        let scan = Scan { symbol_bits: self.scan.symbol_bits, ..Scan::default() };
        let (lines, pieces) = (self.lines.clone(), Pieces::new(self.pieces.unit));
        WireScan { lines, scan, time: self.time, pieces, before: None, stamp: 0 }
    }

    /// Reads a chunk by itself, from where TX_EN is low in it, with something fresh. It begins at byte `offset` of the capture.
    pub fn cut(mut self, offset: u64, bytes: &[u8]) -> Result<WireCut> {
        let unit = self.pieces.unit;
        let (skip, high, rests) = self.rest_of(offset, bytes);
        if !rests {
            return Ok(WireCut { head: bytes.to_vec(), rest: None });
        }
        let low = skip + high * unit;
        self.begin_at((offset + low as u64) / unit as u64);
        self.push(&bytes[low..])?;
        Ok(WireCut { head: bytes[..low + unit].to_vec(), rest: Some(self) })
    }

    /// The next chunk, which was read by itself.
    pub fn go_on(&mut self, cut: WireCut) -> Result<()> {
        self.push(&cut.head)?;
        if let Some(mut rest) = cut.rest {
            self.scan.frames.append(&mut rest.scan.frames);
            rest.scan.frames = std::mem::take(&mut self.scan.frames);
            *self = rest;
        }
        Ok(())
    }

    /// The samples begin at number `stamp` of the capture.
    pub fn begin_at(&mut self, stamp: u64) {
        self.stamp = stamp;
    }

    /// Whether TX_EN was low once, or a frame's begin was seen.
    pub fn is_in_step(&self) -> bool {
        self.scan.enabled == Some(false) || self.scan.start.is_some() || !self.scan.frames.is_empty()
    }

    /// The bytes of the next chunk, up to the first of its samples in which TX_EN is low; whether there is one. The chunk begins
    /// at byte `offset` of the capture.
    pub fn push_to_rest(&mut self, offset: u64, bytes: &[u8]) -> Result<bool> {
        let (skip, high, rests) = self.rest_of(offset, bytes);
        self.push(if rests { &bytes[..skip + (high + 1) * self.pieces.unit] } else { bytes })?;
        Ok(rests)
    }

    /// Of a chunk the bytes before its first sample, then the samples in which TX_EN is high, and whether one follows in which
    /// it is low.
    fn rest_of(&self, offset: u64, bytes: &[u8]) -> (usize, usize, bool) {
        let unit = self.pieces.unit;
        let skip = before_sample(offset, unit).min(bytes.len());
        let high = run_of(&bytes[skip..], unit, self.lines.enable, true);
        (skip, high, high < (bytes.len() - skip) / unit)
    }

    /// The same as `finish`, where what was under way at the begin is told elsewhere.
    pub fn finish_in_step(mut self) -> (SchemaRef, Vec<RecordBatch>) {
        let in_step = self.is_in_step();
        let mut frames = std::mem::take(&mut self.scan.frames);
        frames.extend(self.scan.finish());
        if !in_step || frames.first().is_some_and(|frame| frame.start.is_none()) {
            frames.drain(..1.min(frames.len()));
        }
        table(&frames, self.time)
    }

    pub fn finish(self) -> (SchemaRef, Vec<RecordBatch>) {
        table(&self.scan.finish(), self.time)
    }
}

/// Bytes from byte `offset` of a capture to the next sample.
pub fn before_sample(offset: u64, unit: usize) -> usize {
    (unit - (offset % unit as u64) as usize) % unit
}

/// A chunk of a wire that was read by itself.
pub struct WireCut {
    /// What the scan of the chunk before has to be given: up to the first sample in which TX_EN is low.
    head: Vec<u8>,
    /// From that sample on; None where there is none.
    rest: Option<WireScan>,
}

/// Where the lines of one direction are in a sample.
#[derive(Clone)]
struct Lines {
    enable: Bit,
    clock: Option<Bit>,
    data: Vec<Bit>,
}

impl Lines {
    /// Some samples, of which the first is number `stamp`; `before` is the one before it.
    fn read_all(&self, scan: &mut Scan, before: Option<&[u8]>, samples: &[u8], unit: usize, stamp: u64) {
        let count = samples.len() / unit;
        let mut at = 0;
        while at < count {
            if scan.symbol_bits.is_none() || scan.enabled == Some(false) {
                // Only TX_EN matters: on to the next sample in which it differs.
                at += scan.enabled.map_or(0, |enabled| run_of(&samples[at * unit..], unit, self.enable, enabled));
                if at == count {
                    break;
                }
            } else if at > 0 && at + 64 <= count {
                at += self.read_block(scan, &samples[(at - 1) * unit..], unit, stamp + at as u64);
                continue;
            }
            let sample = &samples[at * unit..(at + 1) * unit];
            match at.checked_sub(1) {
                Some(last) => self.read(scan, &samples[last * unit..], sample, stamp + at as u64),
                None => self.read(scan, before.unwrap_or(sample), sample, stamp + at as u64),
            }
            at += 1;
        }
    }

    /// One sample, and the one before it.
    fn read(&self, scan: &mut Scan, before: &[u8], sample: &[u8], stamp: u64) {
        if self.clock.is_some_and(|clock| clock.get(before) && !clock.get(sample)) {
            let data = self.data.iter().enumerate();
            scan.symbol(data.fold(0, |byte, (i, bit)| byte | u8::from(bit.get(before)) << i));
        }
        scan.enable(stamp, self.enable.get(sample));
    }

    /// Up to 64 samples of a frame, behind the first one given: to the one in which it ends. How many these are; `stamp` is
    /// that of the first of them.
    fn read_block(&self, scan: &mut Scan, samples: &[u8], unit: usize, stamp: u64) -> usize {
        assert!(samples.len() >= 65 * unit);
        #[cfg(target_arch = "x86_64")]
        if has_fast_path() {
            #[target_feature(enable = "avx2,bmi1,bmi2,popcnt,lzcnt")]
            fn symbols(lines: &Lines, samples: &[u8], unit: usize, out: &mut Vec<u8>) -> u64 {
                // Safety: this function has the features, and 65 samples are there.
                unsafe { lines.symbols::<Avx2<0, true>>(samples, unit, out) }
            }
            // Safety: the processor has the features.
            let enabled = unsafe { symbols(self, samples, unit, &mut scan.symbols) };
            return scan.enabled_for(enabled, stamp);
        }
        // Safety: 65 samples are there.
        let enabled = unsafe { self.symbols::<Portable>(samples, unit, &mut scan.symbols) };
        scan.enabled_for(enabled, stamp)
    }

    /// Appends the symbols of a frame up to its end, and gives TX_EN in 64 samples.
    ///
    /// # Safety
    /// As for [`Backend`], for 65 samples.
    #[inline(always)]
    unsafe fn symbols<B: Backend>(&self, samples: &[u8], unit: usize, out: &mut Vec<u8>) -> u64 {
        let (before, now) = (samples.as_ptr(), samples[unit..].as_ptr());
        // Safety: as the caller says, here and below.
        let enabled = unsafe { B::line(now, unit, self.enable) };
        let Some(clock) = self.clock else { return enabled };
        let high = unsafe { B::line(before, unit, clock) };
        let falls = high & !(high >> 1 | u64::from(clock.get(&samples[64 * unit..])) << 63);
        // One in the sample in which TX_EN falls was launched while it was high.
        let falls = falls & below((!enabled).trailing_zeros() + 1);
        let mut packed = [0; 8];
        for (packed, bit) in packed.iter_mut().zip(&self.data) {
            *packed = unsafe { B::compress(B::line(before, unit, *bit), falls) };
        }
        let count = falls.count_ones() as usize;
        for first in (0..count).step_by(8) {
            let spread = |bits: u64| unsafe { B::expand(bits >> first & 0xff, 0x0101_0101_0101_0101) };
            let eight = packed.iter().enumerate().fold(0, |eight, (line, &bits)| eight | spread(bits) << line);
            out.extend_from_slice(&eight.to_le_bytes()[..(count - first).min(8)]);
        }
        enabled
    }
}

/// How many samples from the first on have `bit` at `level`.
fn run_of(samples: &[u8], unit: usize, bit: Bit, level: bool) -> usize {
    #[cfg(target_arch = "x86_64")]
    if has_fast_path() {
        #[target_feature(enable = "avx2,bmi1,bmi2,popcnt,lzcnt")]
        fn run_of_avx2(samples: &[u8], unit: usize, bit: Bit, level: bool) -> usize {
            run_in_blocks::<Avx2<0, true>>(samples, unit, bit, level)
        }
        // Safety: the processor has the features.
        return unsafe { run_of_avx2(samples, unit, bit, level) };
    }
    run_in_blocks::<Portable>(samples, unit, bit, level)
}

#[inline(always)]
fn run_in_blocks<B: Backend>(samples: &[u8], unit: usize, bit: Bit, level: bool) -> usize {
    let count = samples.len() / unit;
    let same = if level { 0 } else { !0 } ^ bit.flip;
    let mut at = 0;
    while at + 64 <= count {
        // Safety: 64 samples follow, and a bit lies within the unit.
        let differs = unsafe { B::line(samples[at * unit..].as_ptr(), unit, Bit { flip: !same, ..bit }) };
        if differs != 0 {
            return at + differs.trailing_zeros() as usize;
        }
        at += 64;
    }
    while at < count && bit.get(&samples[at * unit..]) == level {
        at += 1;
    }
    at
}

/// Samples that are looked at between two questions whether to go on.
const PIECE_SAMPLES: usize = 1 << 20;

/// Bytes as whole samples, in pieces.
struct Pieces {
    unit: usize,
    /// The beginning of a sample.
    carry: Vec<u8>,
}

impl Pieces {
    fn new(unit: usize) -> Self {
        Pieces { unit, carry: Vec::new() }
    }

    /// The next bytes; whether `take` wants more.
    fn push(&mut self, bytes: &[u8], take: &mut impl FnMut(&[u8]) -> bool) -> Result<bool> {
        let Pieces { unit, carry } = self;
        let mut rest = bytes;
        interrupt::check()?;
        if !carry.is_empty() {
            let wanted = (*unit - carry.len()).min(rest.len());
            carry.extend_from_slice(&rest[..wanted]);
            rest = &rest[wanted..];
            if carry.len() < *unit {
                return Ok(true);
            }
            if !take(carry) {
                return Ok(false);
            }
            carry.clear();
        }
        let whole = rest.len() / *unit * *unit;
        for piece in rest[..whole].chunks(PIECE_SAMPLES * *unit) {
            if !take(piece) {
                return Ok(false);
            }
            interrupt::check()?;
        }
        carry.extend_from_slice(&rest[whole..]);
        Ok(true)
    }
}

/// Gives whole samples, in pieces; `take` says whether to go on.
pub fn for_each_sample(sampled: &dyn Sampled, mut take: impl FnMut(&[u8]) -> bool) -> Result<()> {
    let mut pieces = Pieces::new(sampled.unit_size());
    let mut buffer = Vec::new();
    for chunk in sampled.chunks() {
        if !pieces.push(&chunk?.bytes(&mut buffer)?, &mut take)? {
            break;
        }
    }
    Ok(())
}

/// The level of one line over time: `(time, level)`, None where it is not known; of several changes at one time the last.
pub(crate) fn levels(signal: &Signal, source: &Source) -> impl Iterator<Item = (u64, Option<bool>)> {
    let set = |bits: &[u64], at: usize| bits.get(at).is_some_and(|bits| bits >> source.shift() & 1 != 0);
    (0..signal.times.len()).filter(|&at| signal.times.get(at + 1) != Some(&signal.times[at])).map(move |at| {
        let known = !set(&signal.unknown, at) && !set(&signal.high_z, at);
        (signal.times[at], known.then(|| set(&signal.values, at) ^ source.active_low))
    })
}

fn scan_changes(changes: &dyn Changes, spec: &WireSpec) -> Result<Vec<Frame>> {
    let lines = [spec.enable].into_iter().chain(spec.clock).chain(spec.data.iter().copied());
    let signals = changes.signals(&lines.map(Source::limb).collect::<Vec<_>>())?;
    let mut enables = levels(&signals[0], &spec.enable).peekable();
    let mut scan = Scan::new(spec);
    if let Some(clock) = &spec.clock {
        let mut data: Vec<_> = spec
            .data
            .iter()
            .zip(&signals[2..])
            .map(|(source, signal)| (levels(signal, source).peekable(), false))
            .collect();
        let mut high = None;
        for (time, level) in levels(&signals[1], clock) {
            if high == Some(true) && level == Some(false) {
                while let Some((at, level)) = enables.next_if(|&(at, _)| at < time) {
                    scan.enable(at, level == Some(true));
                }
                let mut value = 0;
                for (i, (levels, now)) in data.iter_mut().enumerate() {
                    while let Some((_, level)) = levels.next_if(|&(at, _)| at < time) {
                        *now = level == Some(true);
                    }
                    value |= u8::from(*now) << i;
                }
                scan.symbol(value);
            }
            high = level;
        }
    }
    for (at, level) in enables {
        scan.enable(at, level == Some(true));
    }
    Ok(scan.finish())
}

/// Clock rises looked at to measure a rate.
const MEASURED_RISES: usize = 10_000;
/// Samples looked at.
const MEASURED_SAMPLES: u64 = 1 << 20;

/// Frequency of a clock line from the first part of a capture, in MHz; None without two rises or without a rate.
pub fn clock_mhz(capture: &Capture, clk: Source, rate_hz: Option<f64>) -> Result<Option<f64>> {
    let mut rises = Vec::new();
    let time = match &capture.data {
        Data::Sampled(sampled) => {
            let Some(rate) = rate_hz.or(sampled.rate_hz()) else {
                return Ok(None);
            };
            let bit = Bit::new(sampled.bits()[clk.channel], clk.active_low);
            let (mut high, mut stamp) = (true, 0);
            for_each_sample(sampled.as_ref(), |samples| {
                for sample in samples.chunks_exact(sampled.unit_size()) {
                    let level = bit.get(sample);
                    if level && !high {
                        rises.push(stamp);
                    }
                    high = level;
                    stamp += 1;
                }
                stamp < MEASURED_SAMPLES && rises.len() < MEASURED_RISES
            })?;
            TimeBase::per_second(rate)?
        }
        Data::Changes(changes) => {
            let mut high = Some(true);
            changes.parts(&[clk.limb()], &mut |signals| {
                for (time, level) in levels(&signals[0], &clk) {
                    if high == Some(false) && level == Some(true) && rises.len() < MEASURED_RISES {
                        rises.push(time);
                    }
                    high = level;
                }
                Ok(rises.len() < MEASURED_RISES)
            })?;
            TimeBase::ticks(changes.tick())
        }
    };
    Ok(match rises[..] {
        [first, .., last] => Some((rises.len() - 1) as f64 / (time.us(last) - time.us(first))),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// TX_EN, TX_CLK and four data lines.
    fn scan(unit: usize) -> WireScan {
        let bit = |nth| Bit::new(nth, false);
        let lines = Lines { enable: bit(0), clock: Some(bit(1)), data: (2..6).map(bit).collect() };
        let time = TimeBase::per_second(1e6).expect("a rate");
        let scan = Scan { symbol_bits: Some(4), ..Scan::default() };
        WireScan { lines, scan, time, pieces: Pieces::new(unit), before: None, stamp: 0 }
    }

    proptest! {
        #[test]
        fn chunks_read_by_themselves_are_the_whole(
            runs in proptest::collection::vec((any::<bool>(), 1usize..200, any::<u8>()), 1..30),
            cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..8),
            unit in 1usize..4,
        ) {
            let sample = |enabled: bool, nth: usize, data: u8| {
                let low = (nth as u8).wrapping_mul(data | 1) << 1 & 0x3e | u8::from(enabled);
                std::iter::once(low).chain(std::iter::repeat_n(data, unit - 1))
            };
            let run = |&(enabled, length, data): &(bool, usize, u8)| (0..length).flat_map(move |nth| sample(enabled, nth, data));
            let bytes: Vec<u8> = runs.iter().flat_map(run).collect();
            let mut whole = scan(unit);
            whole.push(&bytes).unwrap();
            let mut edges: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len())).chain([0, bytes.len()]).collect();
            edges.sort_unstable();
            let mut parts = scan(unit);
            for pair in edges.windows(2) {
                let cut = parts.fresh().cut(pair[0] as u64, &bytes[pair[0]..pair[1]]).unwrap();
                parts.go_on(cut).unwrap();
            }
            prop_assert_eq!(parts.finish(), whole.finish());
        }
    }
}
