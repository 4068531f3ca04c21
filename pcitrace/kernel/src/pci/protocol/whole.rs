//! Ordinary transactions, as most are on a busy bus, counted as a whole: nothing of them has to be remembered from one clock
//! to the next, so each is read from a window of the lines that begins with it, and its row is written once.
//!
//! Where they begin and end is found for many clocks at a time; then they are counted several side by side (`group`). The
//! rows and counts are those of the state machine, to which everything is left that is out of the ordinary.

use super::beside::Beside;
use super::group::{Group, Sums};
use super::{Protocol, State};
use crate::pci::layout::Layout;
use crate::pci::word::Word;
use crate::samples::ahead::Ahead;
use crate::samples::bits::Backend;
use crate::samples::block::{Block, Span, below};
use crate::samples::lanes::{EIGHT, Lanes, Map};
use crate::samples::taken::MOST;

/// Lines of the cache that are asked for with each transaction, about as many as memory gives meanwhile.
const A_TRANSACTION: usize = 2;

/// Clocks of an ordinary transaction, at most, so that its window has the two behind it, too.
const LONGEST: usize = WINDOW - 2;
/// Clocks of a window, wherever it begins.
const WINDOW: usize = 57;

/// A line at many clocks.
pub(super) struct Line(Map);

const _: () = assert!(MOST / 8 + 8 <= size_of::<Map>(), "a word can be read from each clock on");

impl Default for Line {
    fn default() -> Self {
        Line([0; _])
    }
}

impl Line {
    /// Clocks from `64 * nth` on.
    #[inline(always)]
    fn set(&mut self, nth: usize, word: u64) {
        self.0[8 * nth..][..8].copy_from_slice(&word.to_le_bytes());
    }

    /// The clocks from `at` on: [`WINDOW`] of them, and some more.
    #[inline(always)]
    fn from(&self, at: usize) -> u64 {
        let eight: [u8; 8] = self.0[at / 8..][..8].try_into().expect("eight bytes");
        u64::from_le_bytes(eight) >> (at % 8)
    }

    /// The same of several clocks at once, which begin at these bits of the bytes at these [`Lanes::places`].
    ///
    /// # Safety
    /// As for [`Lanes::eight_of`].
    #[inline(always)]
    pub unsafe fn at_each<L: Lanes>(&self, places: L, within: L) -> L {
        // Safety: as the caller says.
        unsafe { L::eight_of(&self.0, places) }.down(within)
    }
}

/// Some clocks by their numbers, in order, of which the first ones are gone.
struct Places {
    /// Behind them there is room for what is read or written with them; it holds clocks, too.
    all: [u16; MOST + 64],
    count: usize,
    gone: usize,
}

impl Default for Places {
    fn default() -> Self {
        Places { all: [0; _], count: 0, gone: 0 }
    }
}

impl Places {
    fn clear(&mut self) {
        self.count = 0;
        self.gone = 0;
    }

    /// Those of the bits that are set in a word.
    #[inline(always)]
    fn push<B: Backend>(&mut self, nth: usize, word: u64) {
        let room: &mut [u16; 64] = self.all[self.count..].first_chunk_mut().expect("room behind the last one");
        // Safety: there is room for as many as a word has bits, and the backend fits the processor.
        unsafe { B::places(word, (64 * nth) as u16, room.as_mut_ptr()) };
        self.count += word.count_ones() as usize;
    }

    /// Those from clock `at` on are not gone.
    #[inline(always)]
    fn go_to(&mut self, at: usize) {
        let rest = &self.all[self.gone..self.count];
        self.gone += rest.iter().take_while(|&&place| usize::from(place) < at).count();
    }

    #[inline(always)]
    fn rest(&self) -> &[u16] {
        &self.all[self.gone..self.count]
    }

    /// The next ones, from number `nth` of the rest on.
    #[inline(always)]
    fn eight(&self, nth: usize) -> &[u16; EIGHT] {
        self.all[self.gone + nth..].first_chunk().expect("room behind the last one")
    }
}

/// What the lines read at many clocks.
#[derive(Default)]
pub(super) struct Lines {
    pub frame: Line,
    pub irdy: Line,
    pub trdy: Line,
    pub stop: Line,
    pub devsel: Line,
    pub suspect: Line,
    pub perr: Line,
    pub serr: Line,
    pub disabled: [Line; 4],
}

/// What is read of many clocks before transactions are.
#[derive(Default)]
pub struct Whole {
    lines: Lines,
    /// Clocks in which an ordinary transaction begins, those behind one, and those in which none goes on.
    starts: Places,
    ends: Places,
    odd: Places,
    /// FRAME#, IRDY#, and that the last data phase ended, at the last clock.
    last: [u64; 3],
    /// The same of a clock whose parity the next one makes even, and that it is odd.
    awaits_par: [u64; 2],
    clocks: usize,
}

impl Whole {
    /// Forgets all clocks.
    pub fn clear(&mut self) {
        self.starts.clear();
        self.ends.clear();
        self.odd.clear();
        self.last = [0; 3];
        self.awaits_par = [0; 2];
        self.clocks = 0;
    }

    /// The clock behind the first idle one from `at` on, or one not far behind `at`: where the state machine is idle then, as it
    /// mostly is, transactions can be told as a whole again.
    pub fn idle_from(&self, at: usize) -> usize {
        let busy = (self.lines.frame.from(at) | self.lines.irdy.from(at)) & below(WINDOW as u32);
        at + (!busy).trailing_zeros() as usize + usize::from(busy != below(WINDOW as u32))
    }

    /// Notes the clocks of a block behind those that are there, 64 of them or the last ones. The backend fits the processor.
    #[inline(always)]
    pub fn note<B: Backend>(&mut self, layout: &Layout, block: &Block<B>, word: &Word) {
        let nth = self.clocks / 64;
        self.clocks += block.clocks() as usize;
        self.lines.frame.set(nth, word.frame);
        self.lines.irdy.set(nth, word.irdy);
        self.lines.trdy.set(nth, word.trdy);
        self.lines.stop.set(nth, word.stop);
        self.lines.devsel.set(nth, word.devsel);
        self.lines.suspect.set(nth, word.suspect);
        let (frame, irdy) = (word.frame, word.irdy);
        let frame_before = frame << 1 | self.last[0] >> 63;
        let mut uneven = 0;
        if B::DATA {
            let beside = Beside::read(block, layout);
            self.lines.perr.set(nth, beside.perr);
            self.lines.serr.set(nth, beside.serr);
            for (line, word) in self.lines.disabled.iter_mut().zip(beside.disabled) {
                line.set(nth, word);
            }
            if let Some(parity) = layout.parity.as_ref().filter(|_| layout.par.is_some()) {
                let checked = frame & !frame_before | irdy & word.trdy;
                let now = [checked, block.odd(parity, checked)];
                let [checked, odd] = std::array::from_fn(|map| now[map] << 1 | self.awaits_par[map] >> 63);
                self.awaits_par = now;
                uneven = checked & (odd ^ beside.par);
            }
        }
        let here = below(block.clocks());
        let ended = irdy & !frame & (word.trdy | word.stop);
        let now = [frame, irdy, ended];
        let [_, irdy_before, ended_before] = std::array::from_fn(|line| now[line] << 1 | self.last[line] >> 63);
        self.last = now;
        self.starts.push::<B>(nth, frame & !frame_before);
        self.ends.push::<B>(nth, irdy_before & !irdy & !frame_before & here);
        // FRAME# is released while IRDY# is asserted, and IRDY# with the last data phase; neither comes alone or too late.
        let released = frame_before & !frame & !irdy;
        let lone = irdy & !frame_before & (frame | !irdy_before);
        let held = irdy & ended_before;
        self.odd.push::<B>(nth, (released | lone | held | uneven | word.unknown | word.reset) & here);
    }
}

impl Protocol {
    /// Whether a bus has only lines of which a transaction can be told as a whole: all levels are known, and data phases are
    /// only counted and their parity checked.
    pub fn is_simple(&self) -> bool {
        let layout = &self.layout;
        let wide = layout.wide || layout.req64.or(layout.ack64).is_some();
        !self.want_data_phases && !wide && !layout.has_unknown()
    }

    /// On an idle bus: the ordinary transactions from clock `at` on, with the idle clocks before and behind them; the first
    /// clock that was not counted. The samples of the clocks are those of `span`.
    ///
    /// # Safety
    /// As for [`Lanes`].
    #[inline(always)]
    pub unsafe fn whole<B: Backend, L: Lanes>(
        &mut self,
        whole: &mut Whole,
        span: &Span,
        at: usize,
        ahead: &mut Ahead,
    ) -> usize {
        if self.state != State::Idle || self.awaits_par.is_some() || !self.ends_tail(whole, at) {
            return at;
        }
        let Whole { lines, starts, ends, odd, clocks, .. } = whole;
        let clocks = *clocks;
        starts.go_to(at);
        ends.go_to(starts.rest().first().map_or(clocks, |&first| usize::from(first) + 1));
        odd.go_to(at);
        let odd = odd.rest().first().map_or(clocks, |&odd| odd.into());
        // The two clocks behind it have to be there, too.
        let most = odd.min(clocks.saturating_sub(1));
        let is_ordinary =
            |&(&start, &end): &(&u16, &u16)| usize::from(end) < most && usize::from(end - start) <= LONGEST;
        let ordinary = starts.rest().iter().zip(ends.rest()).take_while(is_ordinary).count();
        // Safety: as the caller says, here and below.
        let mut sums = unsafe { Sums::<L>::none() };
        let mut behind = if self.after_transaction == Some(self.clk) { at as u16 } else { 0 };
        let mut done = 0;
        while done < ordinary {
            ahead.ask(A_TRANSACTION * L::COUNT);
            let most = L::COUNT.min(ordinary - done);
            let group = Group { starts: starts.eight(done), ends: ends.eight(done), count: most, behind };
            let counted = unsafe { self.group::<B, L>(lines, span, &mut sums, group, at) };
            done += counted;
            if counted < most {
                break;
            }
            behind = ends.rest()[done - 1];
        }
        let next = starts.rest().get(done).map_or(clocks, |&next| next.into()).min(odd);
        if next > at {
            self.pcix.moved_more_than_once(sums.bursts());
            let clocks = (next - at) as u64 + span.missing(at, next);
            self.counts.idle += clocks - sums.add_to(&mut self.counts);
            self.clk += clocks;
            self.last_stamp = span.stamp(next - 1);
            self.last_clock_in_window_before = false;
        }
        next
    }

    /// PERR# and SERR# of the transaction before clock `at`, if it waits for them; whether all of these clocks are there.
    fn ends_tail(&mut self, whole: &Whole, at: usize) -> bool {
        let Some(tail) = &mut self.tail else { return true };
        if at + tail.clocks_left as usize > whole.clocks {
            return false;
        }
        let from_clk = |number: u64| !below(number.saturating_sub(self.clk).min(64) as u32);
        let speaks = below(tail.clocks_left);
        tail.perr.watch(whole.lines.perr.from(at), 0, speaks & from_clk(tail.first_perr));
        tail.serr.watch(whole.lines.serr.from(at), 0, speaks & from_clk(tail.first_serr));
        self.emit_tail();
        true
    }
}
