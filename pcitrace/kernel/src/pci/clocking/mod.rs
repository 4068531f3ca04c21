//! Samples to clock words: finds the clock edges, reads the lines there and feeds the protocol.
//!
//! In timing mode a line's value at a clock is that of the last sample in which CLK was low (`pci-reference`, "Sampling").

mod control;
mod engine;

use crate::capture::Signal;
use crate::pci::events::Events;
use crate::pci::layout::Layout;
use crate::pci::protocol::{Protocol, Whole};
use crate::pci::rows::TakeRows;
use crate::pci::rules::Rules;
use crate::pci::windows::Windows;
use crate::pipeline;
use crate::samples::BLOCK;
use crate::samples::bits::{Bit, Portable, has_fast_path, takes_clocks};
use crate::samples::block::Span;
use crate::samples::changes::Changes;
use crate::samples::dense::{Dense, Pace};
use crate::samples::places::Source;
use control::Control;
use engine::run;
#[cfg(target_arch = "x86_64")]
use engine::run_avx2;

/// Bytes that are decoded before their rows are taken: at first, at most and at least.
const SLICE: usize = 128 << 10;
const MOST_SLICE: usize = 2 << 20;
const LEAST_SLICE: usize = 4 << 10;
/// Bytes of rows that are taken in one go, about: so few that they are still in the cache of the core, and so many that the
/// loops over them, one a column, are long.
const NEAR: usize = 192 << 10;

/// Decodes the samples of one bus, given in pieces of any size.
pub struct Decoder {
    pub protocol: Protocol,
    /// Judges every clock, where asked for.
    pub rules: Option<Box<Rules>>,
    /// Notes where some lines change, where asked for.
    events: Option<Events>,
    control: Control,
    fast: bool,
    /// Clocks are taken out of samples by few instructions.
    takes: bool,
    /// Bytes of the next slice.
    slice: usize,
    pace: Pace,
    dense: Dense,
    changes: Changes,
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
            takes: fast && protocol.layout().clk.is_some() && takes_clocks(protocol.layout().unit),
            slice: SLICE,
            pace: Pace::resting(),
            dense: Dense::default(),
            changes: Changes::default(),
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

    /// The clocks of transactions are taken out also where these are far apart.
    fn is_quick(&self) -> bool {
        self.takes && self.whole.is_some()
    }

    fn is_timing(&self) -> bool {
        self.protocol.layout().clk.is_some()
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

    /// So many samples are missing before the next one.
    pub fn skip(&mut self, samples: u64) {
        self.next_sample += samples;
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
                self.slice = (self.slice * 2).min(MOST_SLICE);
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

impl pipeline::Decoder for Decoder {
    fn push(&mut self, bytes: &[u8]) {
        let unit = self.unit();
        let Some(bytes) = self.bridge(bytes) else { return };
        let samples = ready(bytes.len() / unit);
        self.run(bytes, samples, &[]);
        self.carry.extend_from_slice(&bytes[samples * unit..]);
    }

    fn push_stamped(&mut self, bytes: &[u8], stamps: &[u64]) {
        let unit = self.unit();
        self.carry.extend_from_slice(bytes);
        self.carry_stamps.extend_from_slice(stamps);
        let samples = ready(self.carry_stamps.len());
        let (data, stamps) = (std::mem::take(&mut self.carry), std::mem::take(&mut self.carry_stamps));
        self.run(&data, samples, &stamps);
        self.carry.extend_from_slice(&data[samples * unit..]);
        self.carry_stamps.extend_from_slice(&stamps[samples..]);
    }

    fn gap(&mut self) {
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

    fn end_at_sync_point(&mut self, next: &[u8]) {
        self.flush();
        self.protocol.last_of_tail(next);
        assert!(self.protocol.is_quiet(), "a sync point leaves nothing open");
    }

    fn finish(&mut self) {
        self.flush();
        self.protocol.break_off();
    }

    fn watch_clock(&mut self, changes: &Signal, clk: Source, gaps: &[(u64, u64)]) {
        if let Some(rules) = &mut self.rules {
            rules.watch_changes(changes, clk, gaps);
        }
    }
}
