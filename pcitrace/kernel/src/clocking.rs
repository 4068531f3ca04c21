//! Samples to clock words: finds the clock edges, reads the lines there and feeds the protocol.
//!
//! In timing mode a line's value at a clock is that of the last sample in which CLK was low (`pci-reference`, "Sampling").

#[cfg(target_arch = "x86_64")]
use crate::bits::Avx2;
use crate::bits::{ABSENT, Backend, Bit, Portable, has_fast_path};
use crate::block::{Block, Span, Word};
use crate::layout::Layout;
use crate::protocol::Protocol;
use crate::steady::Steady;
use crate::windows::Windows;
use std::marker::PhantomData;

/// Samples per block.
pub const BLOCK: usize = 64;

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
    /// The lines whose change just before an edge is suspect, for one sample by itself.
    watched: Vec<(usize, u8)>,
}

/// A layout has no more control lines than these.
const MAX_PLANES: usize = 8;

impl Control {
    fn new(layout: &Layout) -> Self {
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
        let released = [Some(layout.frame), Some(layout.irdy), layout.rst, layout.unknown];
        let asserted = [Some(layout.frame), Some(layout.irdy), Some(layout.trdy), layout.devsel];
        let quiet = [layout.stop, layout.rst, layout.unknown, layout.perr, layout.serr, layout.cbe_unknown];
        let enabled = layout.cbe.iter().map(|&bit| Some(bit));
        let burst = asserted.map(|bit| (bit, true)).into_iter().chain(quiet.map(|bit| (bit, false)));
        let frame = line(Some(layout.frame));
        Control {
            idle: Steady::new(layout.unit, layout.clk, released.map(|bit| (bit, false))),
            burst: Steady::new(layout.unit, layout.clk, burst.chain(enabled.map(|bit| (bit, false)))),
            frame,
            clk: line(layout.clk),
            irdy: line(Some(layout.irdy)),
            trdy: line(Some(layout.trdy)),
            stop: line(layout.stop),
            devsel: line(layout.devsel),
            rst: line(layout.rst),
            unknown: line(layout.unknown),
            has_rare: layout.rst.is_some() || layout.unknown.is_some(),
            watched: layout.control_bytes(),
            byte: bytes[0],
            others: bytes.split_off(1),
        }
    }

    fn changed_before(&self, before: &[u8], sample: &[u8]) -> bool {
        self.watched.iter().fold(0, |any, &(byte, mask)| any | (before[byte] ^ sample[byte]) & mask) != 0
    }
}

/// Decodes the samples of one bus, given in pieces of any size.
pub struct Decoder {
    pub protocol: Protocol,
    control: Control,
    fast: bool,
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
        Decoder {
            control: Control::new(protocol.layout()),
            fast: has_fast_path() && !portable,
            windows,
            window_end: windows.start(windows.number_of(first) + 1),
            protocol,
            carry: Vec::new(),
            carry_stamps: Vec::new(),
            next_sample: first,
            last_clock: None,
            last_sample: None,
            first_clock: None,
            last_clock_stamp: None,
        }
    }

    fn unit(&self) -> usize {
        self.protocol.layout().unit
    }

    fn is_timing(&self) -> bool {
        self.protocol.layout().clk.is_some()
    }

    /// The next bytes of the capture.
    pub fn push(&mut self, mut bytes: &[u8]) {
        let unit = self.unit();
        let whole = (BLOCK + 1) * unit;
        while !self.carry.is_empty() {
            let carried = self.carry.len();
            let wanted = whole - carried;
            if bytes.len() < wanted {
                self.carry.extend_from_slice(bytes);
                return;
            }
            self.carry.extend_from_slice(&bytes[..wanted]);
            let block = std::mem::take(&mut self.carry);
            self.run(&block, 1, !0, &[]);
            match (BLOCK * unit).checked_sub(carried) {
                Some(used) => bytes = &bytes[used..],
                None => {
                    self.carry.extend_from_slice(&block[BLOCK * unit..]);
                    bytes = &bytes[wanted..];
                }
            }
        }
        let blocks = (bytes.len() / unit).saturating_sub(1) / BLOCK;
        self.run(bytes, blocks, !0, &[]);
        self.carry.extend_from_slice(&bytes[blocks * BLOCK * unit..]);
    }

    /// Whole samples with a stamp each (state mode: each is a clock).
    pub fn push_stamped(&mut self, bytes: &[u8], stamps: &[u64]) {
        let unit = self.unit();
        self.carry.extend_from_slice(bytes);
        self.carry_stamps.extend_from_slice(stamps);
        let blocks = self.carry_stamps.len().saturating_sub(1) / BLOCK;
        let (data, stamps) = (std::mem::take(&mut self.carry), std::mem::take(&mut self.carry_stamps));
        self.run(&data, blocks, !0, &stamps);
        self.carry.extend_from_slice(&data[blocks * BLOCK * unit..]);
        self.carry_stamps.extend_from_slice(&stamps[blocks * BLOCK..]);
    }

    /// Nothing is known between the samples so far and the next ones.
    pub fn gap(&mut self) {
        self.flush();
        let stamp = self.carry_stamps.last().copied().unwrap_or(self.next_sample);
        self.protocol.gap(stamp);
        self.carry_stamps.clear();
        self.last_clock = None;
        self.last_sample = None;
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
        if clocks == BLOCK {
            self.run(&data, 1, !0, &stamps);
        } else if clocks > 0 {
            self.run(&data, 1, (1 << clocks) - 1, &stamps);
        }
        self.next_sample += samples as u64;
        self.next_sample -= if clocks > 0 { BLOCK as u64 } else { 0 };
    }

    /// `blocks` blocks of `data`, which holds at least one sample more.
    fn run(&mut self, data: &[u8], blocks: usize, valid: u64, stamps: &[u64]) {
        if blocks == 0 {
            return;
        }
        let unit = self.unit();
        assert!(data.len() >= (blocks * BLOCK + 1) * unit || !self.is_timing() && data.len() >= blocks * BLOCK * unit);
        #[cfg(target_arch = "x86_64")]
        if self.fast {
            // Safety: `fast` is only set where the processor has what this needs.
            return unsafe {
                match unit {
                    1 => run_avx2::<1>(self, data, blocks, valid, stamps),
                    2 => run_avx2::<2>(self, data, blocks, valid, stamps),
                    4 => run_avx2::<4>(self, data, blocks, valid, stamps),
                    8 => run_avx2::<8>(self, data, blocks, valid, stamps),
                    _ => run_avx2::<0>(self, data, blocks, valid, stamps),
                }
            };
        }
        run::<Portable>(self, data, blocks, valid, stamps);
    }

    /// No row that is still to come starts before this stamp.
    pub fn reached(&self) -> u64 {
        let next = self.carry_stamps.first().copied().unwrap_or(self.next_sample);
        self.protocol.oldest_pending().unwrap_or(next)
    }

    /// Rows that are complete.
    pub fn take_rows(&mut self) -> crate::rows::Rows {
        self.protocol.take_rows()
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt,lzcnt")]
fn run_avx2<const UNIT: usize>(decoder: &mut Decoder, data: &[u8], blocks: usize, valid: u64, stamps: &[u64]) {
    if decoder.protocol.layout().has_data() {
        run::<Avx2<UNIT, true>>(decoder, data, blocks, valid, stamps);
    } else {
        run::<Avx2<UNIT, false>>(decoder, data, blocks, valid, stamps);
    }
}

#[inline(always)]
fn run<B: Engine>(decoder: &mut Decoder, data: &[u8], blocks: usize, valid: u64, stamps: &[u64]) {
    let unit = decoder.unit();
    let clk = decoder.protocol.layout().clk;
    let last_clock = decoder.last_clock.take();
    let last_sample = decoder.last_sample.take();
    let span = Span {
        data,
        unit,
        clk,
        stamps,
        // The stamp of a clock in timing mode is the first sample with CLK high, one after the sample that is read.
        first_stamp: decoder.next_sample + u64::from(clk.is_some()),
        last_clock: last_clock.as_deref(),
        last_sample: last_sample.as_deref(),
    };
    let mut run = Run { span, blocks, whole: 0 };
    run.whole = run.same_window(decoder.window_end);
    let mut index = 0;
    while index < blocks {
        if valid == !0 {
            index = run.skip_steady::<B>(decoder, index);
            if index == blocks {
                break;
            }
        }
        // Safety: 64 samples follow the start of each block (asserted by the caller), and the backend fits the processor.
        unsafe { B::block(&mut run, decoder, index, valid) };
        index += 1;
    }
    let end = blocks * BLOCK;
    let valid_end = end - valid.leading_zeros() as usize;
    let copy = |number: usize| Some(run.span.sample(number)[..unit].to_vec());
    if let Some(last) = run.span.clock_before(valid_end) {
        decoder.last_clock_stamp = Some(run.span.stamp(last));
        decoder.last_clock = copy(last);
    } else {
        decoder.last_clock = last_clock.clone();
    }
    decoder.last_sample = copy(end - 1);
    decoder.next_sample += end as u64;
}

/// A span and how far the present window reaches in it.
struct Run<'a> {
    span: Span<'a>,
    blocks: usize,
    /// Blocks before this one lie in the present window as a whole.
    whole: usize,
}

impl Run<'_> {
    fn same_window(&self, window_end: u64) -> usize {
        match self.span.stamps {
            [] => (window_end.saturating_sub(self.span.first_stamp) / BLOCK as u64).min(self.blocks as u64) as usize,
            listed => (listed.partition_point(|&stamp| stamp < window_end) / BLOCK).min(self.blocks),
        }
    }

    /// Goes over the blocks from `index` on in which nothing happens; the first one in which something may.
    #[inline(always)]
    fn skip_steady<B: Backend>(&mut self, decoder: &mut Decoder, index: usize) -> usize {
        let Decoder { protocol, control, .. } = decoder;
        let quiet = protocol.is_quiet();
        let may_skip = quiet || protocol.is_bursting() && self.steady_before(index, control);
        if !may_skip {
            return index;
        }
        // In state mode no sample need follow the last block.
        let to = if self.span.clk.is_some() { self.whole } else { self.whole.min(self.blocks - 1) };
        let state = if quiet { &control.idle } else { &control.burst };
        // Safety: all blocks are in the data, and one sample more up to `to`.
        let steady = unsafe { state.run::<B>(self.span.data, self.span.unit, index, to) };
        if quiet {
            protocol.skip_idle(steady.clocks);
        } else if steady.clocks > 0 {
            let last = self.span.clock_before(steady.end * BLOCK).unwrap_or_default();
            protocol.skip_burst(steady.clocks, self.span.stamp(last));
        }
        steady.end
    }

    /// No control line changed between block `index` and the sample before it, which has to be in the data.
    fn steady_before(&self, index: usize, control: &Control) -> bool {
        let start = index * BLOCK;
        start > 0 && !control.changed_before(self.span.sample(start - 1), self.span.sample(start))
    }

    /// Reads block `index` and passes its clocks on.
    ///
    /// # Safety
    /// As for [`Backend`].
    #[inline(always)]
    unsafe fn block<B: Backend>(&mut self, decoder: &mut Decoder, index: usize, valid: u64) {
        let Decoder { protocol, control, windows, window_end, first_clock, .. } = decoder;
        let start = index * BLOCK;
        // Safety: as the caller says.
        let samples = unsafe { Samples::read::<B>(control, &self.span, start) };
        let edges = valid & samples.edges;
        if edges == 0 {
            return;
        }
        if first_clock.is_none() {
            *first_clock = Some(self.span.stamp(start + edges.trailing_zeros() as usize));
        }
        let before = if start == 0 { self.span.last_sample } else { Some(self.span.sample(start - 1)) };
        let mut suspect = samples.suspect & !1;
        if let (Some(before), Some(_)) = (before, self.span.clk) {
            suspect |= u64::from(control.changed_before(before, self.span.sample(start)));
        }
        let mut left = edges;
        while left != 0 {
            let mut part = left;
            if index >= self.whole {
                part = self.in_window(protocol, windows, window_end, start, left);
            }
            let block = Block::<B> { span: &self.span, start, edges: part, backend: PhantomData };
            // Safety: as the caller says.
            let word = unsafe { samples.at::<B>(part, suspect) };
            protocol.push(&block, &word);
            left &= !part;
        }
    }

    /// Those of the clocks `left` of the block at sample `start` that lie in the window of the first of them. A window begins
    /// where it has to.
    #[cold]
    #[inline(never)]
    fn in_window(
        &mut self,
        protocol: &mut Protocol,
        windows: &Windows,
        window_end: &mut u64,
        start: usize,
        left: u64,
    ) -> u64 {
        let stamp = |sample: u32| self.span.stamp(start + sample as usize);
        let first = stamp(left.trailing_zeros());
        if first >= *window_end {
            let number = windows.number_of(first);
            protocol.begin_window(number);
            *window_end = windows.start(number + 1);
        }
        let later = (0..BLOCK as u32).find(|&sample| stamp(sample) >= *window_end);
        self.whole = self.same_window(*window_end);
        left & later.map_or(!0, |sample| (1 << sample) - 1)
    }
}

/// [`Run::block`] behind a call: inlined into [`run`], neither would leave enough registers for the other.
trait Engine: Backend + Sized {
    /// # Safety
    /// As for [`Backend`].
    unsafe fn block(run: &mut Run, decoder: &mut Decoder, index: usize, valid: u64);
}

impl Engine for Portable {
    unsafe fn block(run: &mut Run, decoder: &mut Decoder, index: usize, valid: u64) {
        unsafe { run.block::<Self>(decoder, index, valid) }
    }
}

#[cfg(target_arch = "x86_64")]
impl<const UNIT: usize, const DATA: bool> Engine for Avx2<UNIT, DATA> {
    #[inline(always)]
    unsafe fn block(run: &mut Run, decoder: &mut Decoder, index: usize, valid: u64) {
        #[target_feature(enable = "avx2,bmi1,bmi2,popcnt,lzcnt")]
        #[inline(never)]
        fn block<const UNIT: usize, const DATA: bool>(run: &mut Run, decoder: &mut Decoder, index: usize, valid: u64) {
            // Safety: this function has the features, and the caller of the outer one gives a block of the run.
            unsafe { run.block::<Avx2<UNIT, DATA>>(decoder, index, valid) }
        }
        unsafe { block::<UNIT, DATA>(run, decoder, index, valid) }
    }
}

/// The control lines in 64 samples, 1 = asserted.
struct Samples {
    /// Samples before a rise of CLK; in state mode every sample.
    edges: u64,
    frame: u64,
    irdy: u64,
    trdy: u64,
    stop: u64,
    devsel: u64,
    reset: u64,
    unknown: u64,
    suspect: u64,
}

impl Samples {
    /// # Safety
    /// As for [`Backend`], for the 64 samples from `start` on.
    #[inline(always)]
    unsafe fn read<B: Backend>(control: &Control, span: &Span, start: usize) -> Self {
        let first = span.sample(start).as_ptr();
        let load = |(byte, flip): (usize, u8)| unsafe { B::flipped(B::plane(first, span.unit, byte), flip) };
        let after = span.clk.map(|clk| clk.get(span.sample(start + BLOCK)));
        let plane = load(control.byte);
        if control.others.is_empty() {
            // The usual case: all lines in one byte of the sample, no need to choose.
            return unsafe { Self::of::<B>(control, after, |_| plane) };
        }
        let mut planes = [plane; MAX_PLANES];
        for (plane, &byte) in planes[1..].iter_mut().zip(&control.others) {
            *plane = load(byte);
        }
        unsafe { Self::of::<B>(control, after, |line| planes[line.plane]) }
    }

    /// `after` is the level of CLK in the next sample, in timing mode.
    ///
    /// # Safety
    /// As for [`Backend`].
    #[inline(always)]
    unsafe fn of<B: Backend>(control: &Control, after: Option<bool>, plane: impl Fn(Line) -> B::Plane) -> Self {
        unsafe {
            let frame = B::top_bits(plane(control.frame), control.frame.left);
            let irdy = B::top_bits(plane(control.irdy), control.irdy.left);
            let trdy = B::top_bits(plane(control.trdy), control.trdy.left);
            let stop = B::top_bits(plane(control.stop), control.stop.left);
            let devsel = B::top_bits(plane(control.devsel), control.devsel.left);
            let (mut reset, mut unknown) = (0, 0);
            if control.has_rare {
                reset = B::top_bits(plane(control.rst), control.rst.left);
                unknown = B::top_bits(plane(control.unknown), control.unknown.left);
            }
            let (mut edges, mut suspect) = (!0, 0);
            if let Some(after) = after {
                let high = B::top_bits(plane(control.clk), control.clk.left);
                edges = !high & (high >> 1 | u64::from(after) << 63);
                let changed = |line: u64| line ^ line << 1;
                suspect = changed(frame) | changed(irdy) | changed(trdy) | changed(stop) | changed(devsel);
            }
            Samples { edges, frame, irdy, trdy, stop, devsel, reset, unknown, suspect }
        }
    }

    /// # Safety
    /// As for [`Backend`].
    #[inline(always)]
    unsafe fn at<B: Backend>(&self, edges: u64, suspect: u64) -> Word {
        unsafe {
            Word {
                frame: B::compress(self.frame, edges),
                irdy: B::compress(self.irdy, edges),
                trdy: B::compress(self.trdy, edges),
                stop: B::compress(self.stop, edges),
                devsel: B::compress(self.devsel, edges),
                unknown: if self.unknown == 0 { 0 } else { B::compress(self.unknown, edges) },
                reset: if self.reset == 0 { 0 } else { B::compress(self.reset, edges) },
                suspect: if suspect == 0 { 0 } else { B::compress(suspect, edges) },
            }
        }
    }
}

impl Decoder {
    /// Ends a decoder at a sync point: it was given the head of the next chunk.
    pub fn end_at_sync_point(&mut self) {
        self.flush();
        assert!(self.protocol.is_quiet(), "a sync point leaves nothing open");
    }
}
