//! Samples to clock words: finds the clock edges, reads the lines there and feeds the protocol.
//!
//! In timing mode a line's value at a clock is that of the last sample in which CLK was low (`pci-reference`, "Sampling").

#[cfg(target_arch = "x86_64")]
use crate::bits::Avx2;
use crate::bits::{Backend, Bit, Portable, has_fast_path};
use crate::block::{Block, Stamps, Word};
use crate::layout::Layout;
use crate::protocol::Protocol;
use crate::steady::Steady;
use crate::windows::Windows;
use std::marker::PhantomData;

/// Samples per block.
pub const BLOCK: usize = 64;

/// One control line: which of the control planes, which bit.
#[derive(Debug, Clone, Copy)]
struct Line {
    plane: usize,
    mask: u8,
    flip: u64,
}

/// The control lines of a layout, arranged so that each byte of the samples is gathered once.
struct Control {
    /// Bytes of the sample that hold control lines.
    bytes: Vec<usize>,
    idle: Steady,
    burst: Steady,
    clk: Option<Line>,
    frame: Line,
    irdy: Line,
    trdy: Line,
    stop: Option<Line>,
    devsel: Option<Line>,
    rst: Option<Line>,
    unknown: Option<Line>,
    /// The lines whose change just before an edge is suspect, for one sample by itself.
    watched: Vec<(usize, u8)>,
}

/// A layout has no more control lines than these.
const MAX_PLANES: usize = 8;

impl Control {
    fn new(layout: &Layout) -> Self {
        let mut bytes: Vec<usize> = Vec::new();
        let mut line = |bit: Bit| {
            let plane = bytes.iter().position(|&byte| byte == bit.byte).unwrap_or_else(|| {
                bytes.push(bit.byte);
                bytes.len() - 1
            });
            Line { plane, mask: bit.mask, flip: bit.flip }
        };
        let clk = layout.clk.map(&mut line);
        let frame = line(layout.frame);
        let irdy = line(layout.irdy);
        let rst = layout.rst.map(&mut line);
        let unknown = layout.unknown.map(&mut line);
        let trdy = line(layout.trdy);
        let stop = layout.stop.map(&mut line);
        let devsel = layout.devsel.map(&mut line);
        let released = [Some(layout.frame), Some(layout.irdy), layout.rst, layout.unknown];
        let asserted = [Some(layout.frame), Some(layout.irdy), Some(layout.trdy), layout.devsel];
        let quiet = [layout.stop, layout.rst, layout.unknown, layout.perr, layout.serr, layout.cbe_unknown];
        let enabled = layout.cbe.iter().map(|&bit| Some(bit));
        let idle = Steady::new(layout.unit, released.map(|bit| (bit, false)));
        let burst = asserted.map(|bit| (bit, true)).into_iter().chain(quiet.map(|bit| (bit, false)));
        let burst = Steady::new(layout.unit, burst.chain(enabled.map(|bit| (bit, false))));
        Control {
            bytes,
            idle,
            burst,
            clk,
            frame,
            irdy,
            trdy,
            stop,
            devsel,
            rst,
            unknown,
            watched: layout.control_bytes(),
        }
    }

    fn changed_before(&self, before: &[u8], sample: &[u8]) -> bool {
        self.watched.iter().any(|&(byte, mask)| (before[byte] ^ sample[byte]) & mask != 0)
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
        self.control.clk.is_some()
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
            unsafe { run_avx2(self, data, blocks, valid, stamps) };
            self.remember(data, blocks);
            return;
        }
        run::<Portable>(self, data, blocks, valid, stamps);
        self.remember(data, blocks);
    }

    fn remember(&mut self, data: &[u8], blocks: usize) {
        let unit = self.unit();
        let end = blocks * BLOCK * unit;
        self.last_sample = Some(data[end - unit..end].to_vec());
        self.next_sample += (blocks * BLOCK) as u64;
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
fn run_avx2(decoder: &mut Decoder, data: &[u8], blocks: usize, valid: u64, stamps: &[u64]) {
    run::<Avx2>(decoder, data, blocks, valid, stamps);
}

#[inline(always)]
fn run<B: Engine>(decoder: &mut Decoder, data: &[u8], blocks: usize, valid: u64, stamps: &[u64]) {
    let Decoder {
        protocol,
        control,
        windows,
        window_end,
        next_sample,
        last_clock,
        last_sample,
        first_clock,
        last_clock_stamp,
        ..
    } = decoder;
    let unit = protocol.layout().unit;
    let timing = control.clk.is_some();
    let layout_clk = protocol.layout().clk;
    // The stamp of a clock in timing mode is the first sample with CLK high, one after the sample that is read.
    let first_stamp = *next_sample + u64::from(timing);
    let stamps_of = |start: usize| match stamps {
        [] => Stamps::From(first_stamp + start as u64),
        listed => Stamps::Listed(&listed[start..]),
    };
    // Blocks before this one lie in the present window as a whole.
    let same_window = |window_end: u64| match stamps {
        [] => (window_end.saturating_sub(first_stamp) / BLOCK as u64).min(blocks as u64) as usize,
        listed => (listed.partition_point(|&stamp| stamp < window_end) / BLOCK).min(blocks),
    };
    let mut whole = same_window(*window_end);
    // The last block with an edge, for the sample of the clock before.
    let mut clock_before: Option<(usize, u64)> = None;
    let mut index = 0;
    while index < blocks {
        if valid == !0 {
            let state = if protocol.is_quiet() {
                Some(&control.idle)
            } else if protocol.is_bursting() && steady_before(data, index, unit, control) {
                Some(&control.burst)
            } else {
                None
            };
            if let Some(state) = state {
                // Safety: as above.
                let run = unsafe { state.run::<B>(layout_clk, data, unit, index, whole) };
                if run.clocks > 0 {
                    clock_before = Some(run.last);
                    if protocol.is_quiet() {
                        protocol.skip_idle(run.clocks);
                    } else {
                        let (start, edges) = run.last;
                        protocol.skip_burst(run.clocks, stamps_of(start).at(63 - edges.leading_zeros() as usize));
                    }
                }
                index = run.end;
                if index == blocks {
                    break;
                }
            }
        }
        let start = index * BLOCK;
        index += 1;
        let block = &data[start * unit..];
        // Safety: 64 samples follow the start of each block (asserted by the caller), and the control bytes lie within the unit.
        let samples = unsafe { B::read(control, block, unit) };
        let edges = valid & samples.edges;
        let block_stamps = stamps_of(start);
        if first_clock.is_none() && edges != 0 {
            *first_clock = Some(block_stamps.at(edges.trailing_zeros() as usize));
        }
        let ends_window = block_stamps.at(BLOCK - 1) >= *window_end;
        let mut suspect = samples.suspect & !1;
        if timing && edges & 1 != 0 {
            let before = match start {
                0 => last_sample.as_deref(),
                _ => Some(&data[(start - 1) * unit..]),
            };
            suspect |= u64::from(before.is_some_and(|before| control.changed_before(before, block)));
        }
        let mut left = edges;
        while left != 0 {
            let mut part = left;
            if ends_window {
                let first = block_stamps.at(left.trailing_zeros() as usize);
                if first >= *window_end {
                    let number = windows.number_of(first);
                    protocol.begin_window(number);
                    *window_end = windows.start(number + 1);
                    whole = same_window(*window_end);
                }
                for sample in 0..BLOCK {
                    if block_stamps.at(sample) >= *window_end {
                        part &= (1 << sample) - 1;
                        break;
                    }
                }
            }
            let previous = match clock_before {
                Some((start, edges)) => Some(&data[(start + 63 - edges.leading_zeros() as usize) * unit..]),
                None => last_clock.as_deref(),
            };
            let clocks =
                Block::<B> { data: block, unit, edges: part, stamps: block_stamps, previous, backend: PhantomData };
            // Safety: the backend fits the processor.
            unsafe { B::push(protocol, &clocks, &samples, suspect) };
            left &= !part;
            clock_before = Some((start, part));
        }
    }
    if let Some((start, edges)) = clock_before {
        let within = 63 - edges.leading_zeros() as usize;
        let at = (start + within) * unit;
        *last_clock = Some(data[at..at + unit].to_vec());
        *last_clock_stamp = Some(stamps_of(start).at(within));
    }
}

/// No control line changed between block `index` and the sample before it, which has to be in `data`.
fn steady_before(data: &[u8], index: usize, unit: usize, control: &Control) -> bool {
    let start = index * BLOCK * unit;
    start > 0 && !control.changed_before(&data[start - unit..], &data[start..])
}

/// What a block needs, behind calls: inlined into [`run`] neither would leave enough registers for the other.
trait Engine: Backend + Sized {
    /// # Safety
    /// As for [`Backend`].
    unsafe fn read(control: &Control, block: &[u8], unit: usize) -> Samples;

    /// # Safety
    /// As for [`Backend`].
    unsafe fn push(protocol: &mut Protocol, block: &Block<Self>, samples: &Samples, suspect: u64);
}

impl Engine for Portable {
    unsafe fn read(control: &Control, block: &[u8], unit: usize) -> Samples {
        unsafe { Samples::read::<Self>(control, block, unit) }
    }

    unsafe fn push(protocol: &mut Protocol, block: &Block<Self>, samples: &Samples, suspect: u64) {
        unsafe { protocol.push(block, &samples.at::<Self>(block.edges, suspect)) }
    }
}

#[cfg(target_arch = "x86_64")]
impl Engine for Avx2 {
    #[inline(always)]
    unsafe fn read(control: &Control, block: &[u8], unit: usize) -> Samples {
        #[target_feature(enable = "avx2,bmi1,bmi2,popcnt,lzcnt")]
        #[inline(never)]
        fn read(control: &Control, block: &[u8], unit: usize) -> Samples {
            // Safety: this function has the features, and the caller of the outer one gives a whole block.
            unsafe { Samples::read::<Avx2>(control, block, unit) }
        }
        unsafe { read(control, block, unit) }
    }

    #[inline(always)]
    unsafe fn push(protocol: &mut Protocol, block: &Block<Self>, samples: &Samples, suspect: u64) {
        #[target_feature(enable = "avx2,bmi1,bmi2,popcnt,lzcnt")]
        #[inline(never)]
        fn push(protocol: &mut Protocol, block: &Block<Avx2>, samples: &Samples, suspect: u64) {
            // Safety: this function has the features.
            let word = unsafe { samples.at::<Avx2>(block.edges, suspect) };
            protocol.push(block, &word);
        }
        unsafe { push(protocol, block, samples, suspect) }
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
    /// As for [`Backend`], for the 64 samples of `block` and the first one after them.
    #[inline(always)]
    unsafe fn read<B: Backend>(control: &Control, block: &[u8], unit: usize) -> Self {
        let load = |byte: usize| unsafe { B::plane(block.as_ptr(), unit, byte) };
        let mut planes = [load(control.bytes[0]); MAX_PLANES];
        match control.bytes[..] {
            // The usual case: all lines in one byte of the sample, no need to choose.
            [_] => unsafe { Self::of::<B>(control, |_| planes[0], block, unit) },
            _ => {
                for (plane, &byte) in planes.iter_mut().zip(&control.bytes).skip(1) {
                    *plane = load(byte);
                }
                unsafe { Self::of::<B>(control, |line| planes[line.plane], block, unit) }
            }
        }
    }

    #[inline(always)]
    unsafe fn of<B: Backend>(control: &Control, plane: impl Fn(Line) -> B::Plane, block: &[u8], unit: usize) -> Self {
        unsafe {
            let frame = B::bitmap(plane(control.frame), control.frame.mask) ^ control.frame.flip;
            let irdy = B::bitmap(plane(control.irdy), control.irdy.mask) ^ control.irdy.flip;
            let trdy = B::bitmap(plane(control.trdy), control.trdy.mask) ^ control.trdy.flip;
            let (mut stop, mut devsel, mut reset, mut unknown) = (0, 0, 0, 0);
            if let Some(line) = control.stop {
                stop = B::bitmap(plane(line), line.mask) ^ line.flip;
            }
            if let Some(line) = control.devsel {
                devsel = B::bitmap(plane(line), line.mask) ^ line.flip;
            }
            if let Some(line) = control.rst {
                reset = B::bitmap(plane(line), line.mask) ^ line.flip;
            }
            if let Some(line) = control.unknown {
                unknown = B::bitmap(plane(line), line.mask) ^ line.flip;
            }
            let (mut edges, mut suspect) = (!0, 0);
            if let Some(clk) = control.clk {
                let level = B::bitmap(plane(clk), clk.mask) ^ clk.flip;
                let after = (block[BLOCK * unit + control.bytes[clk.plane]] & clk.mask != 0) ^ (clk.flip != 0);
                edges = !level & (level >> 1 | u64::from(after) << 63);
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
