//! The control lines of a bus in its samples, read at 64 of them in one go.

use crate::pci::layout::Layout;
use crate::pci::protocol::Protocol;
use crate::pci::word::Word;
use crate::samples::BLOCK;
use crate::samples::bits::{self, ABSENT, Backend, Bit};
use crate::samples::block::{Span, rises};
use crate::samples::changes::Watched;
use crate::samples::dense::Watch;
use crate::samples::look::{self, Look, Wanted};
use crate::samples::steady::Steady;

/// One control line: which of the control planes, and how far its bit is from the top of the byte.
#[derive(Debug, Clone, Copy)]
pub(super) struct Line {
    plane: usize,
    left: u32,
}

/// The control lines of a layout, arranged so that each byte of the samples is gathered once.
pub(super) struct Control {
    /// The byte of the sample that holds FRAME#, and its bits that have to be inverted to read 1 when asserted.
    byte: (usize, u8),
    /// The same for the other bytes that hold control lines, the planes from 1 on.
    others: Vec<(usize, u8)>,
    pub(super) idle: Steady,
    pub(super) burst: Steady,
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
    pub(super) watch: Watch,
    /// The same with the lines whose change ends what lasts, an idle bus and a burst.
    pub(super) lasting: Watched,
    /// How the data phases of a burst are looked at, where that is done for many clocks at once.
    pub(super) phases: Option<(Look, Wanted)>,
}

/// A layout has no more control lines than these.
const MAX_PLANES: usize = 8;

impl Control {
    /// `still`: lines that have to be looked at wherever they change; `fast`: by vector instructions.
    pub(super) fn new(layout: &Layout, still: &[Bit], fast: bool) -> Self {
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
        let idle = Steady::new(layout.unit, layout.clk, Protocol::idle_levels(layout), still);
        let watch = Watch::new(layout.unit, layout.clk, layout.control_bytes());
        Control {
            lasting: lasting(&watch, &idle, Protocol::may_burst(layout).then_some(&burst)),
            idle,
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
            watch,
            byte: bytes[0],
            others: bytes.split_off(1),
        }
    }

    /// The clocks of the block at sample `start` that are among the samples `valid`, and the lines there.
    ///
    /// # Safety
    /// As for [`Backend`], for the 64 samples from `start` on.
    #[inline(always)]
    pub(super) unsafe fn read<B: Backend>(&self, span: &Span, start: usize, valid: u64) -> (u64, Word) {
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

/// What ends states that last, of which a burst is one where it can be told.
fn lasting(watch: &Watch, idle: &Steady, burst: Option<&Steady>) -> Watched {
    let other = burst.unwrap_or(idle);
    let suspect = watch.look().watched;
    let look = bits::Look { watched: suspect | idle.watched() | other.watched(), ..*watch.look() };
    Watched { look, suspect, states: [idle.told(), other.told()] }
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
