//! Samples to clock words: finds the clock edges, reads the lines there and feeds the protocol.
//!
//! In timing mode a line's value at a clock is that of the last sample in which CLK was low (`pci-reference`, "Sampling").

#[cfg(target_arch = "x86_64")]
use crate::bits::Avx2;
use crate::bits::{ABSENT, Backend, Bit, Portable, has_fast_path};
use crate::block::{Block, Span, Word, below, range, rises};
use crate::dense::{Dense, Pace, Watch};
use crate::events::Events;
#[cfg(target_arch = "x86_64")]
use crate::lanes::{self, avx512::Eight};
use crate::layout::Layout;
use crate::look::{self, Look, Seen, Wanted};
use crate::protocol::{Protocol, Whole};
use crate::rows::TakeRows;
use crate::rules::Rules;
use crate::steady::Steady;
use crate::windows::Windows;

/// Samples per block.
pub const BLOCK: usize = 64;

/// Bytes that are decoded before their rows are taken, at most and at least.
const SLICE: usize = 128 << 10;
const LEAST_SLICE: usize = 4 << 10;
/// Bytes of rows that are taken in one go, about: so few that they are still in the cache of the core, and so many that the
/// loops over them, one a column, are long.
const NEAR: usize = 192 << 10;

/// One control line: which of the control planes, and how far its bit is from the top of the byte.
#[derive(Debug, Clone, Copy)]
struct Line {
    plane: usize,
    left: u32,
}

/// The control lines of a layout, arranged so that each byte of the samples is gathered once.
struct Control {
    /// The byte of the sample that holds FRAME#, and its bits that have to be inverted to read 1 when asserted.
    byte: (usize, u8),
    /// The same for the other bytes that hold control lines, the planes from 1 on.
    others: Vec<(usize, u8)>,
    idle: Steady,
    burst: Steady,
    clk: Line,
    frame: Line,
    irdy: Line,
    trdy: Line,
    stop: Line,
    devsel: Line,
    rst: Line,
    unknown: Line,
    /// RST# or unknown levels are there.
    has_rare: bool,
    /// CLK, and the lines whose change just before an edge is suspect.
    watch: Watch,
    /// How the data phases of a burst are looked at, where that is done for many clocks at once.
    phases: Option<(Look, Wanted)>,
}

/// A layout has no more control lines than these.
const MAX_PLANES: usize = 8;

impl Control {
    /// `still`: lines that have to be looked at wherever they change; `fast`: by vector instructions.
    fn new(layout: &Layout, still: &[Bit], fast: bool) -> Self {
        let mut bytes: Vec<(usize, u8)> = Vec::new();
        let mut line = |bit: Option<Bit>| {
            let Some(bit) = bit else { return Line { plane: 0, left: ABSENT } };
            let plane = bytes.iter().position(|&(byte, _)| byte == bit.byte).unwrap_or_else(|| {
                bytes.push((bit.byte, 0));
                bytes.len() - 1
            });
            bytes[plane].1 |= bit.mask & bit.flip as u8;
            Line { plane, left: bit.mask.leading_zeros() }
        };
        let frame = line(Some(layout.frame));
        let burst = Steady::new(layout.unit, layout.clk, Protocol::burst_levels(layout), still);
        Control {
            idle: Steady::new(layout.unit, layout.clk, Protocol::idle_levels(layout), still),
            phases: phases(layout, burst.still()).filter(|_| fast),
            burst,
            frame,
            clk: line(layout.clk),
            irdy: line(Some(layout.irdy)),
            trdy: line(Some(layout.trdy)),
            stop: line(layout.stop),
            devsel: line(layout.devsel),
            rst: line(layout.rst),
            unknown: line(layout.unknown),
            has_rare: layout.rst.is_some() || layout.unknown.is_some(),
            watch: Watch::new(layout.unit, layout.clk, layout.control_bytes()),
            byte: bytes[0],
            others: bytes.split_off(1),
        }
    }

    /// The clocks of the block at sample `start` that are among the samples `valid`, and the lines there.
    ///
    /// # Safety
    /// As for [`Backend`], for the 64 samples from `start` on.
    #[inline(always)]
    unsafe fn read<B: Backend>(&self, span: &Span, start: usize, valid: u64) -> (u64, Word) {
        let first = span.sample(start).as_ptr();
        // Safety: as the caller says, here and below.
        let plane = unsafe { Self::plane::<B>(first, span.unit(), self.byte) };
        if self.others.is_empty() {
            // The usual case: all lines in one byte of the sample, no need to choose.
            return unsafe { self.word::<B>(span, start, valid, |_| plane) };
        }
        let mut planes = [plane; MAX_PLANES];
        for (plane, &byte) in planes[1..].iter_mut().zip(&self.others) {
            *plane = unsafe { Self::plane::<B>(first, span.unit(), byte) };
        }
        unsafe { self.word::<B>(span, start, valid, |line| planes[line.plane]) }
    }

    /// A function of its own: a closure would not be compiled for the processor's vector instructions.
    ///
    /// # Safety
    /// As for [`Backend`].
    #[inline(always)]
    unsafe fn plane<B: Backend>(first: *const u8, unit: usize, (byte, flip): (usize, u8)) -> B::Plane {
        unsafe { B::flipped(B::plane(first, unit, byte), flip) }
    }

    /// # Safety
    /// As for [`Backend`].
    #[inline(always)]
    unsafe fn word<B: Backend>(
        &self,
        span: &Span,
        start: usize,
        valid: u64,
        plane: impl Fn(Line) -> B::Plane,
    ) -> (u64, Word) {
        unsafe {
            let frame = B::top_bits(plane(self.frame), self.frame.left);
            let irdy = B::top_bits(plane(self.irdy), self.irdy.left);
            let trdy = B::top_bits(plane(self.trdy), self.trdy.left);
            let stop = B::top_bits(plane(self.stop), self.stop.left);
            let devsel = B::top_bits(plane(self.devsel), self.devsel.left);
            let (mut edges, mut suspect) = (valid, 0);
            if let Some(clk) = span.clk() {
                let after = clk.get(span.sample(start + BLOCK));
                edges &= rises(B::top_bits(plane(self.clk), self.clk.left), after);
                let changed = |line: u64| line ^ line << 1;
                suspect = changed(frame) | changed(irdy) | changed(trdy) | changed(stop) | changed(devsel);
                if start == 0 {
                    let changed = |before| self.watch.differs(before, span.sample(0));
                    suspect = suspect & !1 | u64::from(span.last_sample().is_some_and(changed));
                }
            }
            let mut word = Word {
                frame: B::compress(frame, edges),
                irdy: B::compress(irdy, edges),
                trdy: B::compress(trdy, edges),
                stop: B::compress(stop, edges),
                devsel: B::compress(devsel, edges),
                suspect: B::compress(suspect, edges),
                unknown: 0,
                reset: 0,
            };
            if self.has_rare {
                word.reset = B::compress(B::top_bits(plane(self.rst), self.rst.left), edges);
                word.unknown = B::compress(B::top_bits(plane(self.unknown), self.unknown.left), edges);
            }
            (edges, word)
        }
    }
}

/// How the data phases of a burst are looked at, in which the bits `still` stay as they are: where all levels are known, and
/// the processor can.
fn phases(layout: &Layout, still: u64) -> Option<(Look, Wanted)> {
    let look = look::look(layout.unit).filter(|_| !layout.has_unknown())?;
    let par = layout.par.filter(|_| layout.parity.is_some());
    let (parity, flip) = match (par, &layout.parity) {
        (Some(_), Some(parity)) => parity.of_word()?,
        _ => (0, false),
    };
    Some((look, Wanted { clk: layout.clk, still, parity, flip, par }))
}

/// Decodes the samples of one bus, given in pieces of any size.
pub struct Decoder {
    pub protocol: Protocol,
    /// Judges every clock, where asked for.
    pub rules: Option<Box<Rules>>,
    /// Notes where some lines change, where asked for.
    events: Option<Events>,
    control: Control,
    fast: bool,
    /// Bytes of the next slice.
    slice: usize,
    pace: Pace,
    dense: Dense,
    /// Where transactions can be told as a whole: rules and events look at every clock.
    whole: Option<Box<Whole>>,
    windows: Windows,
    /// First stamp of the next window.
    window_end: u64,
    /// Bytes that wait for the ones after them: fewer than 65 samples.
    carry: Vec<u8>,
    carry_stamps: Vec<u64>,
    /// Number of the first sample in `carry`.
    next_sample: u64,
    /// The sample of the last clock, and the last sample before `carry`.
    last_clock: Option<Vec<u8>>,
    last_sample: Option<Vec<u8>>,
    /// Stamps of the first and the last clock.
    pub first_clock: Option<u64>,
    pub last_clock_stamp: Option<u64>,
}

impl Decoder {
    /// A decoder that knows nothing of what came before sample number `first`.
    pub fn new(layout: Layout, want_data_phases: bool, windows: Windows, first: u64, portable: bool) -> Self {
        Self::starting(
            Protocol::new(layout, want_data_phases, false, windows.number_of(first)),
            windows,
            first,
            portable,
        )
    }

    /// A decoder that starts behind a sync point; `clock` is the sample of that clock, just before `first`.
    pub fn in_step(
        layout: Layout,
        want_data_phases: bool,
        windows: Windows,
        first: u64,
        portable: bool,
        clock: &[u8],
    ) -> Self {
        let protocol = Protocol::new(layout, want_data_phases, true, windows.number_of(first));
        Decoder {
            last_clock: Some(clock.to_vec()),
            last_sample: Some(clock.to_vec()),
            ..Self::starting(protocol, windows, first, portable)
        }
    }

    fn starting(protocol: Protocol, windows: Windows, first: u64, portable: bool) -> Self {
        let fast = has_fast_path() && !portable;
        Decoder {
            control: Control::new(protocol.layout(), &[], fast),
            fast,
            slice: SLICE,
            pace: Pace::resting(),
            dense: Dense::default(),
            whole: protocol.is_simple().then(Box::default),
            windows,
            window_end: windows.start(windows.number_of(first) + 1),
            protocol,
            rules: None,
            events: None,
            carry: Vec::new(),
            carry_stamps: Vec::new(),
            next_sample: first,
            last_clock: None,
            last_sample: None,
            first_clock: None,
            last_clock_stamp: None,
        }
    }

    /// The same, with rules by which every clock is judged.
    pub fn judged_by(self, rules: Option<Box<Rules>>) -> Self {
        let whole = self.whole.filter(|_| rules.is_none());
        Decoder { rules, whole, ..self }
    }

    /// The same, which notes where INTA# to INTD# and LOCK# change.
    pub fn noting_events(mut self, wanted: bool) -> Self {
        let layout = self.protocol.layout();
        let lines: Vec<Bit> = layout.events.iter().flatten().map(|&(bit, _)| bit).collect();
        if wanted && !lines.is_empty() {
            self.control = Control::new(layout, &lines, self.fast);
            self.events = Some(Events::new(layout, self.last_clock.as_deref()));
            self.whole = None;
        }
        self
    }

    fn unit(&self) -> usize {
        self.protocol.layout().unit
    }

    fn is_timing(&self) -> bool {
        self.protocol.layout().clk.is_some()
    }

    /// The next bytes of the capture.
    pub fn push(&mut self, bytes: &[u8]) {
        let unit = self.unit();
        let Some(bytes) = self.bridge(bytes) else { return };
        let samples = ready(bytes.len() / unit);
        self.run(bytes, samples, &[]);
        self.carry.extend_from_slice(&bytes[samples * unit..]);
    }

    /// Decodes what waited for these bytes; the bytes that are left then, if they are not waiting themselves.
    fn bridge<'a>(&mut self, mut bytes: &'a [u8]) -> Option<&'a [u8]> {
        let unit = self.unit();
        let whole = (BLOCK + 1) * unit;
        while !self.carry.is_empty() {
            let carried = self.carry.len();
            let wanted = whole - carried;
            if bytes.len() < wanted {
                self.carry.extend_from_slice(bytes);
                return None;
            }
            self.carry.extend_from_slice(&bytes[..wanted]);
            let block = std::mem::take(&mut self.carry);
            self.run(&block, BLOCK, &[]);
            match (BLOCK * unit).checked_sub(carried) {
                Some(used) => bytes = &bytes[used..],
                None => {
                    self.carry.extend_from_slice(&block[BLOCK * unit..]);
                    bytes = &bytes[wanted..];
                }
            }
        }
        Some(bytes)
    }

    /// Whole samples with a stamp each (state mode: each is a clock).
    pub fn push_stamped(&mut self, bytes: &[u8], stamps: &[u64]) {
        let unit = self.unit();
        self.carry.extend_from_slice(bytes);
        self.carry_stamps.extend_from_slice(stamps);
        let samples = ready(self.carry_stamps.len());
        let (data, stamps) = (std::mem::take(&mut self.carry), std::mem::take(&mut self.carry_stamps));
        self.run(&data, samples, &stamps);
        self.carry.extend_from_slice(&data[samples * unit..]);
        self.carry_stamps.extend_from_slice(&stamps[samples..]);
    }

    /// Nothing is known between the samples so far and the next ones.
    pub fn gap(&mut self) {
        self.flush();
        let stamp = self.carry_stamps.last().copied().unwrap_or(self.next_sample);
        self.protocol.gap(stamp);
        if let Some(rules) = &mut self.rules {
            rules.gap();
        }
        if let Some(events) = &mut self.events {
            events.gap();
        }
        self.carry_stamps.clear();
        self.last_clock = None;
        self.last_sample = None;
    }

    /// So many samples are missing before the next one.
    pub fn skip(&mut self, samples: u64) {
        self.next_sample += samples;
    }

    /// The capture is over.
    pub fn finish(&mut self) {
        self.flush();
        self.protocol.break_off();
    }

    /// Decodes what waits for more samples. In timing mode the last sample cannot be before an edge.
    fn flush(&mut self) {
        let unit = self.unit();
        let mut data = std::mem::take(&mut self.carry);
        let samples = data.len() / unit;
        let clocks = if self.is_timing() { samples.saturating_sub(1) } else { samples };
        data.resize((BLOCK + 1) * unit, 0);
        let mut stamps = self.carry_stamps.clone();
        if let Some(&last) = stamps.last() {
            stamps.resize(BLOCK, last);
        }
        self.run(&data, clocks, &stamps);
        self.next_sample += (samples - clocks) as u64;
    }

    /// The first `samples` of `data`, which holds one more in timing mode, and a block of them at least.
    fn run(&mut self, data: &[u8], samples: usize, stamps: &[u64]) {
        if samples == 0 {
            return;
        }
        let unit = self.unit();
        assert!(data.len() >= (samples.max(BLOCK) + usize::from(self.is_timing())) * unit);
        #[cfg(target_arch = "x86_64")]
        if self.fast {
            // Safety: `fast` is only set where the processor has what this needs.
            return unsafe {
                match unit {
                    1 => run_avx2::<1>(self, data, samples, stamps),
                    2 => run_avx2::<2>(self, data, samples, stamps),
                    4 => run_avx2::<4>(self, data, samples, stamps),
                    8 => run_avx2::<8>(self, data, samples, stamps),
                    _ => run_avx2::<0>(self, data, samples, stamps),
                }
            };
        }
        run::<Portable>(self, data, samples, stamps);
    }

    /// Begins the window that sample `next` lies in, if that has not begun; the samples up to the one given lie in it.
    #[cold]
    #[inline(never)]
    fn window_at(&mut self, span: &Span, next: usize, samples: usize) -> usize {
        let stamp = span.stamp(next);
        if stamp >= self.window_end {
            let number = self.windows.number_of(stamp);
            self.protocol.begin_window(number);
            self.window_end = self.windows.start(number + 1);
        }
        span.samples_before(self.window_end, samples)
    }

    /// No row that is still to come starts before this stamp.
    pub fn reached(&self) -> u64 {
        let next = self.carry_stamps.first().copied().unwrap_or(self.next_sample);
        self.protocol.oldest_pending().unwrap_or(next)
    }

    /// Decodes the next bytes of the capture and gives away the rows that are complete, slice by slice.
    pub fn push_all(&mut self, bytes: &[u8], taker: &mut impl TakeRows) {
        let unit = self.unit();
        let bytes = self.bridge(bytes).unwrap_or_default();
        let samples = ready(bytes.len() / unit);
        let mut from = 0;
        while from < samples {
            let slice = (self.slice / unit).max(1).next_multiple_of(BLOCK);
            // What is left has to be a block, too.
            let slice = if samples - from < slice + BLOCK { samples - from } else { slice };
            self.run(&bytes[from * unit..], slice, &[]);
            from += slice;
            let waiting = self.protocol.waiting();
            if waiting > NEAR {
                self.slice = (self.slice / 2).max(LEAST_SLICE);
            } else if waiting < NEAR / 4 {
                self.slice = (self.slice * 2).min(SLICE);
            }
            // A few rows are not worth going over all columns.
            if waiting > NEAR / 2 {
                self.protocol.drain(taker);
            }
        }
        self.carry.extend_from_slice(&bytes[samples * unit..]);
        self.protocol.drain(taker);
    }
}

/// How many of the samples that are there can be decoded: one has to follow, and there have to be enough for a block.
fn ready(samples: usize) -> usize {
    if samples > BLOCK { samples - 1 } else { 0 }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt,lzcnt")]
fn run_avx2<const UNIT: usize>(decoder: &mut Decoder, data: &[u8], samples: usize, stamps: &[u64]) {
    if decoder.protocol.layout().has_data() {
        run::<Avx2<UNIT, true>>(decoder, data, samples, stamps);
    } else {
        run::<Avx2<UNIT, false>>(decoder, data, samples, stamps);
    }
}

#[inline(always)]
fn run<B: Engine>(decoder: &mut Decoder, data: &[u8], samples: usize, stamps: &[u64]) {
    let unit = decoder.unit();
    let clk = decoder.protocol.layout().clk;
    let last_clock = decoder.last_clock.take();
    let last_sample = decoder.last_sample.take();
    // The stamp of a clock in timing mode is the first sample with CLK high, one after the sample that is read.
    let first_stamp = decoder.next_sample + u64::from(clk.is_some());
    let span =
        Span::new(data, unit, clk).stamped(stamps, first_stamp).behind(last_clock.as_deref(), last_sample.as_deref());
    if let Some(rules) = &mut decoder.rules {
        rules.watch_clock::<B>(&span, samples);
    }
    // Samples before this one lie in the present window.
    let mut whole = 0;
    let mut next = 0;
    // The last clock before a sample, and which: where CLK rests it is not looked for again and again.
    let (mut looked, mut clock) = (0, None);
    while next < samples {
        if next >= whole {
            whole = decoder.window_at(&span, next, samples);
        }
        let dense = (clk.is_some() || decoder.whole.is_some()) && decoder.pace.is_dense() && whole - next >= BLOCK;
        if dense {
            (looked, clock) = (next, span.clock_between::<B>(looked, next).or(clock));
        }
        if dense && let Some(before) = clock.map(|number| span.sample(number)).or(span.last_clock()) {
            // Safety: where there is CLK, one sample follows those up to `whole`; and the backend fits the processor.
            next = unsafe { B::stretch(decoder, &span, next, whole, before) };
            continue;
        }
        let from = next;
        // In state mode no sample need follow the last one.
        if decoder.rules.is_none() {
            next = skip_steady::<B>(decoder, &span, next, whole.min(samples - 1));
        }
        // The sample before shows what changed; the last block goes back further, over samples that were read before.
        let start = next.saturating_sub(1).min(samples.saturating_sub(BLOCK));
        let stop = whole.min(start + BLOCK);
        // Safety: 64 samples follow the start of each block (asserted by the caller), and the backend fits the processor.
        unsafe { block::<B>(decoder, &span, start, range((next - start) as u32, (stop - start) as u32)) };
        next = stop;
        decoder.pace.went(next - from);
    }
    let copy = |number: usize| Some(span.sample(number)[..unit].to_vec());
    if let Some(last) = span.clock_before::<B>(samples) {
        decoder.last_clock_stamp = Some(span.stamp(last));
        decoder.last_clock = copy(last);
    } else {
        decoder.last_clock = last_clock.clone();
    }
    decoder.last_sample = copy(samples - 1);
    decoder.next_sample += samples as u64;
}

/// Goes over the samples from `from` on in which nothing happens, short of `to`; the first one where something may.
#[inline(always)]
fn skip_steady<B: Backend>(decoder: &mut Decoder, span: &Span, from: usize, to: usize) -> usize {
    let Decoder { protocol, control, events, .. } = decoder;
    if events.as_ref().is_some_and(|events| events.differ(span.sample(from))) {
        return from;
    }
    let quiet = protocol.is_quiet();
    if !quiet {
        // A change just before the first sample would make it suspect.
        let changed = from == 0 || control.watch.differs(span.sample(from - 1), span.sample(from));
        if changed || !protocol.is_bursting() {
            return from;
        }
        if protocol.looks_at_phases() {
            // No closures around what is compiled for the processor's vector instructions.
            let Some(phases) = &control.phases else { return from };
            // Safety: where there is CLK a sample follows those up to `to`, and the backend fits the processor.
            return unsafe { skip_checked::<B>(protocol, &control.burst, phases, span, from, to) };
        }
    }
    let state = if quiet { &control.idle } else { &control.burst };
    // Safety: all samples up to `to` are in the data.
    let steady = unsafe { state.run::<B>(span.data(), span.unit(), from, to) };
    if quiet {
        protocol.skip_idle(steady.clocks);
    } else if steady.clocks > 0 {
        let last = span.clock_before::<B>(steady.end).unwrap_or_default();
        protocol.skip_burst(steady.clocks, span.stamp(last));
    }
    steady.end
}

/// Goes over the samples from `from` on in which the burst goes on, short of `to`; the first one that it did not go over.
///
/// # Safety
/// As for [`Backend`], for all samples up to `to` and that one itself.
#[inline(always)]
unsafe fn skip_checked<B: Backend>(
    protocol: &mut Protocol,
    burst: &Steady,
    phases: &(Look, Wanted),
    span: &Span,
    mut from: usize,
    to: usize,
) -> usize {
    let mut seen = [Seen::default(); look::BLOCKS];
    loop {
        // Safety: as the caller says.
        let count = unsafe { burst.look(phases, span, from, to, &mut seen) };
        for seen in &seen[..count] {
            // Safety: these 64 samples are there, and the backend fits the processor.
            unsafe { protocol.skip_checked::<B>(span, from, seen) };
            from += seen.still;
        }
        if count < look::BLOCKS || seen[count - 1].still < BLOCK {
            return from;
        }
    }
}

/// Reads the block at sample `start` and passes on its clocks, of the samples `valid`.
///
/// # Safety
/// As for [`Backend`].
#[inline(always)]
unsafe fn block<B: Engine>(decoder: &mut Decoder, span: &Span, start: usize, valid: u64) {
    // Safety: as the caller says.
    unsafe {
        let (edges, word) = decoder.control.read::<B>(span, start, valid);
        if edges != 0 {
            B::pass_on(decoder, &Block::new(span, start, edges), &word);
        }
    }
}

#[inline(always)]
fn pass_on<B: Engine>(decoder: &mut Decoder, block: &Block<B>, word: &Word) {
    let Decoder { protocol, rules, events, first_clock, .. } = decoder;
    if first_clock.is_none() {
        *first_clock = Some(block.stamp(0));
    }
    protocol.push(block, word);
    if let Some(events) = events {
        // Safety: the backend fits the processor.
        unsafe { B::note(events, block, protocol) };
    }
    if let Some(rules) = rules {
        // Safety: the backend fits the processor.
        unsafe { B::judge(rules, block, word) };
    }
}

/// Blocks of samples in which no control line changes, after which the bus may rest for longer.
const STILL: i32 = 3;
/// After so many more this is asked again.
const NOT_YET: i32 = 64;

/// Decodes the samples from `next` on by taking their clocks out, up to where the bus rests or less than a block is left
/// before `whole`; the first sample that was not decoded.
///
/// # Safety
/// As for [`Backend`], for all samples up to `whole` and, where there is CLK, that one itself.
#[inline(always)]
unsafe fn stretch<B: Engine>(
    decoder: &mut Decoder,
    span: &Span,
    mut next: usize,
    whole: usize,
    before: &[u8],
) -> usize {
    let mut dense = std::mem::take(&mut decoder.dense);
    dense.begin::<B>(span.unit(), before);
    let mut still = 0;
    while next + BLOCK <= whole {
        // Safety: as the caller says, here and below.
        let changed = unsafe { dense.take::<B>(span, next, &decoder.control.watch) };
        if dense.is_full() {
            unsafe { B::give(decoder, &mut dense, false) };
        }
        next += BLOCK;
        still = if changed == 0 { still + 1 } else { 0 };
        if still == STILL && decoder.rules.is_none() {
            unsafe { B::give(decoder, &mut dense, true) };
            let checks = decoder.protocol.looks_at_phases();
            let bursts = decoder.protocol.is_bursting() && (!checks || decoder.control.phases.is_some());
            if decoder.protocol.is_quiet() || bursts {
                decoder.pace = Pace::resting();
                break;
            }
            still -= NOT_YET;
        }
    }
    unsafe { B::give(decoder, &mut dense, true) };
    decoder.dense = dense;
    next
}

/// Decodes the clocks that were taken out: `all` of them, or those of which enough follow.
///
/// # Safety
/// The backend fits the processor.
#[inline(always)]
unsafe fn give<B: Engine>(decoder: &mut Decoder, dense: &mut Dense, all: bool) {
    let (span, clocks) = dense.waiting();
    let mut whole = decoder.whole.take();
    if let Some(whole) = &mut whole {
        whole.clear();
        for start in (0..clocks).step_by(BLOCK) {
            // Safety: there is room for a block behind the last clock, here and below.
            unsafe {
                let (edges, word) = decoder.control.read::<B>(&span, start, below((clocks - start).min(BLOCK) as u32));
                let word = Word { suspect: dense.suspect(start), ..word };
                whole.note(decoder.protocol.layout(), &Block::<B>::new(&span, start, edges), &word);
            }
        }
        decoder.first_clock = decoder.first_clock.or((clocks > 1).then(|| span.stamp(1)));
    }
    // The first one was decoded.
    let mut at = 1;
    loop {
        if let Some(whole) = &mut whole {
            // Safety: the backend fits the processor.
            at = unsafe { B::whole(&mut decoder.protocol, whole, &span, at) };
        }
        if at == clocks || !all && clocks - at < BLOCK {
            break;
        }
        let to = whole.as_ref().map_or(at + BLOCK, |whole| whole.idle_from(at)).min(clocks);
        unsafe {
            let (edges, word) = decoder.control.read::<B>(&span, at, below((to - at) as u32));
            let word = Word { suspect: dense.suspect(at) & below((to - at) as u32), ..word };
            B::pass_on(decoder, &Block::new(&span, at, edges), &word);
        }
        at = to;
    }
    decoder.whole = whole;
    dense.keep_from(at);
}

/// Parts of [`run`] that are behind a call: inlined, none would leave enough registers for the others.
trait Engine: Backend + Sized {
    /// # Safety
    /// The backend fits the processor.
    unsafe fn pass_on(decoder: &mut Decoder, block: &Block<Self>, word: &Word);

    /// # Safety
    /// As for [`stretch`].
    unsafe fn stretch(decoder: &mut Decoder, span: &Span, next: usize, whole: usize, before: &[u8]) -> usize;

    /// # Safety
    /// As for [`give`].
    unsafe fn give(decoder: &mut Decoder, dense: &mut Dense, all: bool);

    /// [`Protocol::whole`], for as many transactions at a time as the processor can.
    ///
    /// # Safety
    /// The backend fits the processor.
    unsafe fn whole(protocol: &mut Protocol, whole: &mut Whole, span: &Span, at: usize) -> usize;

    /// [`Rules::push`], behind a call for the same reason.
    ///
    /// # Safety
    /// As for [`Backend`].
    unsafe fn judge(rules: &mut Rules, block: &Block<Self>, word: &Word);

    /// [`Events::push`], likewise.
    ///
    /// # Safety
    /// As for [`Backend`].
    unsafe fn note(events: &mut Events, block: &Block<Self>, protocol: &mut Protocol);
}

impl Engine for Portable {
    unsafe fn pass_on(decoder: &mut Decoder, block: &Block<Self>, word: &Word) {
        pass_on(decoder, block, word);
    }

    unsafe fn stretch(decoder: &mut Decoder, span: &Span, next: usize, whole: usize, before: &[u8]) -> usize {
        unsafe { stretch::<Self>(decoder, span, next, whole, before) }
    }

    unsafe fn give(decoder: &mut Decoder, dense: &mut Dense, all: bool) {
        unsafe { give::<Self>(decoder, dense, all) }
    }

    unsafe fn whole(protocol: &mut Protocol, whole: &mut Whole, span: &Span, at: usize) -> usize {
        unsafe { protocol.whole::<Self, u64>(whole, span, at) }
    }

    unsafe fn judge(rules: &mut Rules, block: &Block<Self>, word: &Word) {
        rules.push(block, word);
    }

    unsafe fn note(events: &mut Events, block: &Block<Self>, protocol: &mut Protocol) {
        events.push(block, protocol);
    }
}

#[cfg(target_arch = "x86_64")]
impl<const UNIT: usize, const DATA: bool> Engine for Avx2<UNIT, DATA> {
    #[inline(always)]
    unsafe fn pass_on(decoder: &mut Decoder, block: &Block<Self>, word: &Word) {
        #[target_feature(enable = "avx2,bmi1,bmi2,popcnt,lzcnt")]
        #[inline(never)]
        fn called<const UNIT: usize, const DATA: bool>(
            decoder: &mut Decoder,
            block: &Block<Avx2<UNIT, DATA>>,
            word: &Word,
        ) {
            pass_on(decoder, block, word);
        }
        unsafe { called::<UNIT, DATA>(decoder, block, word) }
    }

    #[inline(always)]
    unsafe fn stretch(decoder: &mut Decoder, span: &Span, next: usize, whole: usize, before: &[u8]) -> usize {
        #[target_feature(enable = "avx2,bmi1,bmi2,popcnt,lzcnt")]
        #[inline(never)]
        fn called<const UNIT: usize, const DATA: bool>(
            decoder: &mut Decoder,
            span: &Span,
            next: usize,
            whole: usize,
            before: &[u8],
        ) -> usize {
            // Safety: this function has the features, and the caller of the outer one gives samples of the span.
            unsafe { stretch::<Avx2<UNIT, DATA>>(decoder, span, next, whole, before) }
        }
        unsafe { called::<UNIT, DATA>(decoder, span, next, whole, before) }
    }

    #[inline(always)]
    unsafe fn give(decoder: &mut Decoder, dense: &mut Dense, all: bool) {
        #[target_feature(enable = "avx2,bmi1,bmi2,popcnt,lzcnt")]
        #[inline(never)]
        fn called<const UNIT: usize, const DATA: bool>(decoder: &mut Decoder, dense: &mut Dense, all: bool) {
            // Safety: this function has the features.
            unsafe { give::<Avx2<UNIT, DATA>>(decoder, dense, all) }
        }
        unsafe { called::<UNIT, DATA>(decoder, dense, all) }
    }

    #[inline(always)]
    unsafe fn whole(protocol: &mut Protocol, whole: &mut Whole, span: &Span, at: usize) -> usize {
        #[target_feature(enable = "avx2,bmi1,bmi2,popcnt,lzcnt")]
        #[inline(never)]
        unsafe fn one_by_one<const UNIT: usize, const DATA: bool>(
            protocol: &mut Protocol,
            whole: &mut Whole,
            span: &Span,
            at: usize,
        ) -> usize {
            // Safety: this function has the features.
            unsafe { protocol.whole::<Avx2<UNIT, DATA>, u64>(whole, span, at) }
        }
        #[target_feature(enable = "avx2,bmi1,bmi2,popcnt,lzcnt,avx512f,avx512cd,avx512vpopcntdq")]
        #[inline(never)]
        unsafe fn by_eight<const UNIT: usize, const DATA: bool>(
            protocol: &mut Protocol,
            whole: &mut Whole,
            span: &Span,
            at: usize,
        ) -> usize {
            // Safety: this function has the features.
            unsafe { protocol.whole::<Avx2<UNIT, DATA>, Eight>(whole, span, at) }
        }
        unsafe {
            if lanes::avx512::is_there() {
                by_eight::<UNIT, DATA>(protocol, whole, span, at)
            } else {
                one_by_one::<UNIT, DATA>(protocol, whole, span, at)
            }
        }
    }

    #[inline(always)]
    unsafe fn judge(rules: &mut Rules, block: &Block<Self>, word: &Word) {
        #[target_feature(enable = "avx2,bmi1,bmi2,popcnt,lzcnt")]
        #[inline(never)]
        fn called<const UNIT: usize, const DATA: bool>(
            rules: &mut Rules,
            block: &Block<Avx2<UNIT, DATA>>,
            word: &Word,
        ) {
            rules.push(block, word);
        }
        unsafe { called::<UNIT, DATA>(rules, block, word) }
    }

    #[inline(always)]
    unsafe fn note(events: &mut Events, block: &Block<Self>, protocol: &mut Protocol) {
        #[target_feature(enable = "avx2,bmi1,bmi2,popcnt,lzcnt")]
        #[inline(never)]
        fn called<const UNIT: usize, const DATA: bool>(
            events: &mut Events,
            block: &Block<Avx2<UNIT, DATA>>,
            protocol: &mut Protocol,
        ) {
            events.push(block, protocol);
        }
        unsafe { called::<UNIT, DATA>(events, block, protocol) }
    }
}

impl Decoder {
    /// Ends a decoder at a sync point: it was given the head of the next chunk. `next` is the sample of the clock after it.
    pub fn end_at_sync_point(&mut self, next: &[u8]) {
        self.flush();
        self.protocol.last_of_tail(next);
        assert!(self.protocol.is_quiet(), "a sync point leaves nothing open");
    }
}
