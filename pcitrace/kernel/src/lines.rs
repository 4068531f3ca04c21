//! The lines of a capture for other programs: as equidistant samples, or as the changes of a VCD with texts among them.

use crate::capture::{Capture, Changes, Data, Limb, Sampled, Signal};
use crate::error::{Error, Result};
use crate::interrupt;
use crate::wire::for_each_sample;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Takes bytes of the file that is written, in order.
pub type Write<'a> = &'a mut dyn FnMut(&[u8]) -> Result<()>;

/// Gives texts to put among the changes, in order of their ticks; None at the end.
pub type MoreTexts<'a> = &'a mut dyn FnMut() -> Result<Option<Texts>>;

/// Some texts: when, of which signal, where each ends in `text`. Signals are numbered from the first channel on.
#[derive(Debug, Default)]
pub struct Texts {
    pub ticks: Vec<u64>,
    pub signals: Vec<usize>,
    pub ends: Vec<usize>,
    pub text: Vec<u8>,
}

const BLOCK: usize = 1 << 20;

/// How often a value was neither 0 nor 1.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Released {
    pub unknown: u64,
    pub high_z: u64,
}

/// Writes a capture as samples: a sampled one as it is; of one of changes, the values in force at `rate_hz`, all channels
/// bit after bit. What is neither 0 nor 1 is written as 1, as the bus is pulled up; how often that was is returned.
pub fn samples(capture: &Capture, rate_hz: u64, write: Write) -> Result<Released> {
    match &capture.data {
        Data::Sampled(sampled) => copy(sampled.as_ref(), write).map(|()| Released::default()),
        Data::Changes(changes) => resample(capture, changes.as_ref(), rate_hz, write),
    }
}

fn copy(sampled: &dyn Sampled, write: Write) -> Result<()> {
    let mut result = Ok(());
    for_each_sample(sampled, |samples| {
        result = write(samples);
        result.is_ok()
    })?;
    result
}

/// A limb that is written: its changes, and its first bit in a sample.
struct Track {
    signal: Signal,
    next: usize,
    to: usize,
    mask: u64,
    last: u64,
}

impl Track {
    fn value(&self, at: usize) -> u64 {
        let bits = |bits: &[u64]| bits.get(at).copied().unwrap_or(0);
        (self.signal.values[at] | bits(&self.signal.unknown) | bits(&self.signal.high_z)) & self.mask
    }
}

/// Changes after which it is asked whether to go on: a few milliseconds. All of a file may be at one time.
const ASK_EVERY: usize = 1 << 16;

fn resample(capture: &Capture, changes: &dyn Changes, rate_hz: u64, write: Write) -> Result<Released> {
    let limbs = limbs(capture);
    let mut to = 0;
    let mut tracks = Vec::new();
    let mut released = Released::default();
    for (limb, signal) in limbs.iter().zip(changes.signals(&limbs)?) {
        let width = (capture.channels[limb.channel].width - 64 * limb.index).min(64);
        released.unknown += signal.unknown.iter().filter(|&&bits| bits != 0).count() as u64;
        released.high_z += signal.high_z.iter().filter(|&&bits| bits != 0).count() as u64;
        let mask = !0 >> (64 - width);
        tracks.push(Track { signal, next: 0, to, mask, last: mask });
        to += width as usize;
    }
    let (numerator, denominator) = changes.tick();
    let per_tick = u128::from(numerator) * u128::from(rate_hz);
    let sample_of = |tick: u64| (u128::from(tick) * per_tick).div_ceil(u128::from(denominator)) as u64;
    let total = (u128::from(changes.end()) * per_tick / u128::from(denominator)) as u64 + 1;
    let (unit, words) = (to.div_ceil(8), to.div_ceil(64));
    let mut state = vec![0; words];
    tracks.iter().for_each(|track| flip(&mut state, track.to, track.mask));
    let per_block = (4 * BLOCK / (8 * words)) as u64;
    let (mut block, mut bytes) = (Vec::new(), Vec::new());
    for first in (0..total).step_by(per_block as usize) {
        let count = per_block.min(total - first) as usize;
        block.clear();
        block.resize(count * words, 0);
        for track in &mut tracks {
            while let Some(&time) = track.signal.times.get(track.next) {
                let sample = (sample_of(time) - first) as usize;
                if sample >= count {
                    break;
                }
                if track.next % ASK_EVERY == 0 {
                    interrupt::check()?;
                }
                let value = track.value(track.next);
                flip(&mut block[sample * words..][..words], track.to, track.last ^ value);
                track.last = value;
                track.next += 1;
            }
        }
        bytes.clear();
        for sample in block.chunks_exact(words) {
            let from = bytes.len();
            for (state, changed) in state.iter_mut().zip(sample) {
                *state ^= changed;
                bytes.extend_from_slice(&state.to_le_bytes());
            }
            bytes.truncate(from + unit);
        }
        interrupt::check()?;
        write(&bytes)?;
    }
    Ok(released)
}

/// Flips bits from bit `to` on.
fn flip(words: &mut [u64], to: usize, bits: u64) {
    let wide = u128::from(bits) << (to % 64);
    words[to / 64] ^= wide as u64;
    if let Some(above) = words.get_mut(to / 64 + 1) {
        *above ^= (wide >> 64) as u64;
    }
}

/// All limbs of all channels.
fn limbs(capture: &Capture) -> Vec<Limb> {
    let of = |(channel, width): (usize, u32)| (0..width.div_ceil(64)).map(move |index| Limb { channel, index });
    capture.channels.iter().map(|channel| channel.width).enumerate().flat_map(of).collect()
}

/// Takes changes in order of time.
pub trait Sink {
    /// Begins a time, later than the one before.
    fn time(&mut self, tick: u64) -> Result<()>;
    /// The level of a channel of one bit.
    fn bit(&mut self, channel: usize, high: bool);
    /// The value of a signal that is a text.
    fn text(&mut self, signal: usize, text: &[u8]);
    /// Changes as whole lines of a VCD.
    fn lines(&mut self, text: &[u8]) -> Result<()>;
    fn finish(&mut self) -> Result<()>;
}

/// The body of a VCD.
pub struct Vcd<'a> {
    out: Vec<u8>,
    /// What stands behind the value of each signal.
    ends: Vec<Vec<u8>>,
    write: Write<'a>,
}

impl<'a> Vcd<'a> {
    pub fn new(ids: &[String], write: Write<'a>) -> Self {
        Vcd { out: Vec::new(), ends: ids.iter().map(|id| format!("{id}\n").into_bytes()).collect(), write }
    }
}

impl Sink for Vcd<'_> {
    #[inline]
    fn time(&mut self, tick: u64) -> Result<()> {
        if self.out.len() >= BLOCK {
            interrupt::check()?;
            (self.write)(&self.out)?;
            self.out.clear();
        }
        stamp(&mut self.out, tick);
        Ok(())
    }

    #[inline]
    fn bit(&mut self, channel: usize, high: bool) {
        self.out.push(b'0' + u8::from(high));
        self.out.extend_from_slice(&self.ends[channel]);
    }

    /// Blanks would end the value.
    fn text(&mut self, signal: usize, text: &[u8]) {
        self.out.push(b's');
        let mut from = 0;
        for blank in memchr::memchr_iter(b' ', text) {
            self.out.extend_from_slice(&text[from..blank]);
            self.out.extend_from_slice(br"\x20");
            from = blank + 1;
        }
        self.out.extend_from_slice(&text[from..]);
        self.out.push(b' ');
        self.out.extend_from_slice(&self.ends[signal]);
    }

    fn lines(&mut self, text: &[u8]) -> Result<()> {
        self.out.extend_from_slice(text);
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        (self.write)(&self.out)
    }
}

/// How long a sample of a sampled capture is in the ticks that are written; those of changes keep their own.
#[derive(Debug, Clone, Copy)]
pub struct Rates {
    pub samples_hz: f64,
    pub ticks_hz: f64,
}

/// Writes the changes of all channels, and texts among them; `ids` are the identifiers of all signals in a VCD.
pub fn changes(capture: &Capture, ids: &[String], rates: Rates, texts: MoreTexts, sink: &mut impl Sink) -> Result<()> {
    if ids.len() < capture.channels.len() {
        return Err(Error::Decode(format!("{} identifiers for {} channels", ids.len(), capture.channels.len())));
    }
    let mut body = Body { last: None, texts: Some(Texts::default()), next: 0, more: texts, sink };
    match &capture.data {
        Data::Sampled(sampled) => {
            let tick_of = |sample| (sample as f64 * rates.ticks_hz / rates.samples_hz).round() as u64;
            sampled_lines(sampled.as_ref(), tick_of, &mut body)?;
        }
        Data::Changes(changes) => changing_lines(capture, changes.as_ref(), ids, &mut body)?,
    }
    body.texts_before(u64::MAX)?;
    body.sink.finish()
}

/// What is written: changes and texts in order of time.
struct Body<'a, S> {
    last: Option<u64>,
    texts: Option<Texts>,
    next: usize,
    more: MoreTexts<'a>,
    sink: &'a mut S,
}

impl<S: Sink> Body<'_, S> {
    /// Begins a time, after the texts before it.
    #[inline]
    fn begin(&mut self, tick: u64) -> Result<()> {
        self.texts_before(tick)?;
        if self.last != Some(tick) {
            self.last = Some(tick);
            self.sink.time(tick)?;
        }
        Ok(())
    }

    fn texts_before(&mut self, tick: u64) -> Result<()> {
        loop {
            let Some(texts) = &self.texts else { return Ok(()) };
            match texts.ticks.get(self.next) {
                None => {
                    self.texts = (self.more)()?;
                    self.next = 0;
                }
                Some(&at) if at < tick => {
                    let from = self.next.checked_sub(1).map_or(0, |before| texts.ends[before]);
                    let range = from..texts.ends[self.next];
                    // A text that is late, because two buses end at the same time, keeps the times in order.
                    let at = at.max(self.last.unwrap_or(0));
                    if self.last != Some(at) {
                        self.last = Some(at);
                        self.sink.time(at)?;
                    }
                    self.sink.text(texts.signals[self.next], &texts.text[range]);
                    self.next += 1;
                }
                Some(_) => return Ok(()),
            }
        }
    }
}

/// The line that begins a time.
fn stamp(out: &mut Vec<u8>, tick: u64) {
    let (mut digits, mut at, mut rest) = ([b'0'; 20], 20, tick);
    while rest > 0 || at == 20 {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    out.push(b'#');
    out.extend_from_slice(&digits[at..]);
    out.push(b'\n');
}

fn sampled_lines<S: Sink>(sampled: &dyn Sampled, tick_of: impl Fn(u64) -> u64, body: &mut Body<S>) -> Result<()> {
    let unit = sampled.unit_size();
    // The channels of a sample, 64 bits at a time.
    let mut masks = vec![0u64; unit.div_ceil(8)];
    let mut channels = vec![0; 64 * masks.len()];
    for (channel, &bit) in sampled.bits().iter().enumerate() {
        masks[bit / 64] |= 1 << (bit % 64);
        channels[bit] = channel;
    }
    let mut before = vec![0; masks.len()];
    let mut sample = 0;
    let mut write = |samples: &[u8]| {
        interrupt::check()?;
        for now in samples.chunks_exact(unit) {
            let mut begun = false;
            for (word, bytes) in now.chunks(8).enumerate() {
                let mut eight = [0; 8];
                eight[..bytes.len()].copy_from_slice(bytes);
                let now = u64::from_le_bytes(eight) & masks[word];
                // Of the first sample all are written.
                let mut changed = if sample == 0 { masks[word] } else { now ^ before[word] };
                before[word] = now;
                if changed != 0 && !begun {
                    body.begin(tick_of(sample))?;
                    begun = true;
                }
                while changed != 0 {
                    let bit = changed.trailing_zeros() as usize;
                    body.sink.bit(channels[64 * word + bit], now >> bit & 1 != 0);
                    changed &= changed - 1;
                }
            }
            sample += 1;
        }
        Ok(())
    };
    let mut result = Ok(());
    for_each_sample(sampled, |samples| {
        result = write(samples);
        result.is_ok()
    })?;
    result?;
    body.begin(tick_of(sample.saturating_sub(1)))
}

/// The bits of one limb as they stand.
#[derive(Debug, Clone, Copy, Default)]
struct Now {
    value: u64,
    unknown: u64,
    high_z: u64,
}

fn changing_lines<S: Sink>(capture: &Capture, changes: &dyn Changes, ids: &[String], body: &mut Body<S>) -> Result<()> {
    let limbs = limbs(capture);
    let signals = changes.signals(&limbs)?;
    let mut now: Vec<Vec<Now>> = capture
        .channels
        .iter()
        .map(|channel| vec![Now { unknown: !0, ..Now::default() }; channel.width.div_ceil(64) as usize])
        .collect();
    let mut next = vec![0; limbs.len()];
    let mut coming: BinaryHeap<Reverse<(u64, usize)>> =
        signals.iter().enumerate().filter_map(|(nth, signal)| Some(Reverse((*signal.times.first()?, nth)))).collect();
    let of_gap = |&(from, to): &(u64, u64)| [(from, b"$dumpoff\n$end\n".as_slice()), (to, b"$dumpon\n$end\n")];
    let mut switches = changes.gaps().iter().flat_map(of_gap).peekable();
    let (mut touched, mut text) = (Vec::new(), Vec::new());
    while let Some(&Reverse((tick, _))) = coming.peek() {
        while let Some((at, switch)) = switches.next_if(|&(at, _)| at <= tick) {
            body.begin(at)?;
            body.sink.lines(switch)?;
        }
        touched.clear();
        while let Some(&Reverse((time, nth))) = coming.peek()
            && time == tick
        {
            coming.pop();
            let (signal, at, limb) = (&signals[nth], next[nth], limbs[nth]);
            let bits = |bits: &[u64]| bits.get(at).copied().unwrap_or(0);
            now[limb.channel][limb.index as usize] =
                Now { value: signal.values[at], unknown: bits(&signal.unknown), high_z: bits(&signal.high_z) };
            touched.push(limb.channel);
            next[nth] += 1;
            if let Some(&time) = signal.times.get(next[nth]) {
                coming.push(Reverse((time, nth)));
            }
        }
        touched.sort_unstable();
        touched.dedup();
        body.begin(tick)?;
        text.clear();
        for &channel in &touched {
            value(&mut text, capture.channels[channel].width, &now[channel]);
            text.extend_from_slice(ids[channel].as_bytes());
            text.push(b'\n');
        }
        body.sink.lines(&text)?;
    }
    for (at, switch) in switches {
        body.begin(at)?;
        body.sink.lines(switch)?;
    }
    body.begin(changes.end())
}

/// A value as a VCD has it, up to its identifier.
fn value(out: &mut Vec<u8>, width: u32, now: &[Now]) {
    let digit = |bit: u32| {
        let limb = now[bit as usize / 64];
        let set = |bits: u64| bits >> (bit % 64) & 1 != 0;
        match (set(limb.unknown), set(limb.high_z), set(limb.value)) {
            (true, ..) => b'x',
            (_, true, _) => b'z',
            (.., level) => b'0' + u8::from(level),
        }
    };
    if width == 1 {
        out.push(digit(0));
        return;
    }
    out.push(b'b');
    // Leading zeros may be left out, unless what follows them would be repeated in their place.
    let known = now.iter().all(|limb| limb.unknown | limb.high_z == 0);
    let highest = now.iter().enumerate().rev().find(|(_, limb)| limb.value != 0);
    let digits = highest.map_or(1, |(nth, limb)| 64 * nth as u32 + 64 - limb.value.leading_zeros());
    out.extend((0..if known { digits.min(width) } else { width }).rev().map(digit));
    out.push(b' ');
}
