//! The loop over the samples of a decoder, compiled once for each kind of processor and size of a sample.

use super::Decoder;
use super::control::Control;
use crate::pci::events::Events;
use crate::pci::protocol::{Protocol, Whole};
use crate::pci::rules::Rules;
use crate::pci::word::Word;
use crate::samples::BLOCK;
use crate::samples::ahead::Ahead;
#[cfg(target_arch = "x86_64")]
use crate::samples::bits::{self, Avx2, Avx512};
use crate::samples::bits::{Backend, Portable};
use crate::samples::block::{Block, Span, below, range};
use crate::samples::dense::{Dense, Pace};
#[cfg(target_arch = "x86_64")]
use crate::samples::lanes::{self, avx512::Eight};
use crate::samples::look::{self, Look, Seen, Wanted};
use crate::samples::steady::{Steady, SteadyRun};

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt,lzcnt")]
pub(super) fn run_avx2<const UNIT: usize>(decoder: &mut Decoder, data: &[u8], samples: usize, stamps: &[u64]) {
    if decoder.protocol.layout().has_data() {
        run::<Avx2<UNIT, true>>(decoder, data, samples, stamps);
    } else {
        run::<Avx2<UNIT, false>>(decoder, data, samples, stamps);
    }
}

#[inline(always)]
pub(super) fn run<B: Engine>(decoder: &mut Decoder, data: &[u8], samples: usize, stamps: &[u64]) {
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
        if decoder.is_quick() && decoder.protocol.is_quiet() && whole - next >= BLOCK {
            (looked, clock) = (next, span.clock_between::<B>(looked, next).or(clock));
            if let Some(before) = clock.map(|number| span.sample(number)).or(span.last_clock()) {
                // Safety: as above.
                next = unsafe { B::sparse(decoder, &span, next, whole, before) };
                continue;
            }
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
    while next + BLOCK <= whole {
        // Safety: as the caller says, here and below.
        let blocks = unsafe { dense.take::<B>(span, next, (whole - next) / BLOCK, &decoder.control.watch) };
        if dense.taken.is_full() {
            unsafe { B::give(decoder, &mut dense, false) };
        }
        next += BLOCK * blocks;
        if dense.taken.is_still() && decoder.rules.is_none() {
            unsafe { B::give(decoder, &mut dense, true) };
            let checks = decoder.protocol.looks_at_phases();
            let bursts = decoder.protocol.is_bursting() && (!checks || decoder.control.phases.is_some());
            if decoder.protocol.is_quiet() || bursts {
                decoder.pace = Pace::resting();
                break;
            }
            dense.taken.moves();
        }
    }
    unsafe { B::give(decoder, &mut dense, true) };
    decoder.dense = dense;
    next
}

/// Decodes the samples from `next` on, on an idle bus, by taking out the clocks in which something happens: those in which it
/// rests, or a burst goes on, are only counted. Up to where less than a block is left before `whole`, or the bus is dense; the
/// first sample that was not decoded.
///
/// # Safety
/// As for [`Backend`], for all samples up to `whole` and that one itself.
#[inline(always)]
unsafe fn sparse<B: Engine>(decoder: &mut Decoder, span: &Span, mut next: usize, whole: usize, before: &[u8]) -> usize {
    let mut dense = std::mem::take(&mut decoder.dense);
    dense.begin::<B>(span.unit(), before);
    let (checks, looks_before) = (decoder.protocol.looks_at_phases(), decoder.protocol.layout().grants.is_some());
    let may_burst = Protocol::may_burst(decoder.protocol.layout()) && (!checks || decoder.control.phases.is_some());
    if !checks && decoder.changes.can::<B>(span.unit()) {
        // Safety: as the caller says.
        next = unsafe { around_changes::<B>(decoder, &mut dense, span, next, whole) };
    }
    while next + BLOCK <= whole && !decoder.pace.is_dense() {
        let from = next;
        // Safety: as the caller says, here and below.
        next += BLOCK * unsafe { dense.take::<B>(span, next, 1, &decoder.control.watch) };
        let Control { idle, burst, watch, phases, .. } = &decoder.control;
        let rests = dense.taken.are_last_two(|clocks, number| idle.holds(clocks, number));
        let moves = || dense.taken.are_last_two(|clocks, number| burst.holds(clocks, number));
        // A change just before the first sample would make it suspect.
        if rests || may_burst && moves() && !watch.differs(span.sample(next - 1), span.sample(next)) {
            let layout = decoder.protocol.layout();
            let parity = layout.parity.as_ref().filter(|_| checks && !rests);
            let odd = parity.is_some_and(|parity| parity.is_odd(dense.taken.last_sample()));
            let steady = if let (Some(_), Some(phases)) = (parity, phases) {
                unsafe { even_burst::<B>(burst, phases, span, next, whole, odd) }
            } else {
                let state = if rests { idle } else { burst };
                unsafe { state.run::<B>(span.data(), B::unit(span.unit()), next, whole) }
            };
            if rests && !looks_before {
                dense.taken.leave_out(steady.clocks);
            } else if let Some(last) = span.clock_between::<B>(next, steady.end).filter(|_| steady.clocks > 0) {
                // The last one is there: data moved in it, or the bus is granted to somebody.
                dense.taken.leave_out(steady.clocks - 1);
                dense.taken.push(&span.sample(last)[..B::unit(span.unit())], span.stamp(last));
                if let (Some(_), Some(par)) = (parity, layout.par) {
                    // It was checked: as if it came just behind the clock before.
                    par.put(dense.taken.last_sample(), odd);
                }
            }
            next = steady.end;
        }
        if dense.taken.is_full() {
            unsafe { B::give(decoder, &mut dense, false) };
        }
        decoder.pace.went(next - from);
    }
    unsafe { B::give(decoder, &mut dense, true) };
    decoder.dense = dense;
    next
}

/// The same by stretches in which all changes are found first, where data phases need no look.
///
/// # Safety
/// As for [`sparse`].
#[inline(always)]
unsafe fn around_changes<B: Engine>(
    decoder: &mut Decoder,
    dense: &mut Dense,
    span: &Span,
    mut next: usize,
    whole: usize,
) -> usize {
    if next == 0 {
        // No sample is before these.
        // Safety: as the caller says, here and below.
        next = BLOCK * unsafe { dense.take::<B>(span, next, 1, &decoder.control.watch) };
    }
    let mut steady = false;
    while next + BLOCK <= whole {
        let Decoder { changes, control, .. } = &mut *decoder;
        unsafe { changes.find(span, next, whole, &control.lasting, steady, &dense.taken) };
        if changes.are_everywhere() {
            decoder.pace = Pace::dense();
            break;
        }
        loop {
            let Decoder { changes, control, .. } = &mut *decoder;
            let taken = unsafe { changes.take(span, &control.lasting, &mut dense.taken) };
            if let Some(all) = taken {
                (next, steady) = all;
                break;
            }
            unsafe { B::give(decoder, dense, false) };
        }
    }
    next
}

/// As [`Steady::run`] of a burst behind a clock that is `odd` or not, up to where PAR does not make one even at the latest.
///
/// # Safety
/// As for [`skip_checked`].
#[inline(always)]
unsafe fn even_burst<B: Backend>(
    burst: &Steady,
    phases: &(Look, Wanted),
    span: &Span,
    from: usize,
    to: usize,
    odd: bool,
) -> SteadyRun {
    let mut run = SteadyRun { end: from, clocks: 0 };
    let mut odd = u64::from(odd);
    let mut seen = [Seen::default(); look::BLOCKS];
    loop {
        // Safety: as the caller says, here and below.
        let count = unsafe { burst.look(phases, span, run.end, to, &mut seen) };
        for seen in &seen[..count] {
            let edges = seen.clocks & below(seen.still as u32);
            let (odds, par) = unsafe { (B::compress(seen.odd, edges), B::compress(seen.par, edges)) };
            let clocks = edges.count_ones();
            if ((odds << 1 | odd) ^ par) & below(clocks) != 0 {
                return run;
            }
            odd = if clocks > 0 { odds >> (clocks - 1) } else { odd };
            run.clocks += u64::from(clocks);
            run.end += seen.still;
        }
        if count < look::BLOCKS || seen[count - 1].still < BLOCK {
            return run;
        }
    }
}

/// Decodes the clocks that were taken out: `all` of them, or those of which enough follow.
///
/// # Safety
/// The backend fits the processor.
#[inline(always)]
unsafe fn give<B: Engine>(decoder: &mut Decoder, dense: &mut Dense, all: bool) {
    dense.taken.note_missing();
    let (span, clocks) = dense.waiting();
    let mut whole = decoder.whole.take();
    let mut ahead = decoder.changes.ahead;
    decoder.protocol.go_on(span.missing(0, 1));
    if let Some(whole) = &mut whole {
        // Safety: the backend fits the processor, here and below.
        unsafe { B::note_all(decoder, dense, whole, &mut ahead) };
        decoder.first_clock = decoder.first_clock.or((clocks > 1).then(|| span.stamp(1)));
    }
    // The first one was decoded.
    let mut at = 1;
    loop {
        if let Some(whole) = &mut whole {
            at = unsafe { B::whole(&mut decoder.protocol, whole, &span, at, &mut ahead) };
        }
        if at == clocks || !all && clocks - at < BLOCK {
            break;
        }
        let to = whole.as_ref().map_or(at + BLOCK, |whole| whole.idle_from(at)).min(clocks);
        let to = span.next_missing(at, to);
        // Safety: there is room for a block behind the last clock.
        unsafe {
            let (edges, word) = decoder.control.read::<B>(&span, at, below((to - at) as u32));
            let word = Word { suspect: dense.taken.suspect(at) & below((to - at) as u32), ..word };
            B::pass_on(decoder, &Block::new(&span, at, edges), &word);
        }
        decoder.protocol.go_on(span.missing(at, to));
        at = to;
    }
    decoder.whole = whole;
    decoder.changes.ahead = ahead;
    dense.taken.keep_from(at);
}

/// Lines of the cache that are asked for with each block of clocks, about as many as memory gives meanwhile.
const A_BLOCK: usize = 8;

/// Notes what the lines read at the clocks that were taken out.
///
/// # Safety
/// The backend fits the processor.
#[inline(always)]
unsafe fn note_all<B: Backend>(decoder: &Decoder, dense: &Dense, whole: &mut Whole, ahead: &mut Ahead) {
    let (span, clocks) = dense.waiting();
    whole.clear();
    for start in (0..clocks).step_by(BLOCK) {
        ahead.ask(A_BLOCK);
        // Safety: there is room for a block behind the last clock; and as the caller says.
        unsafe {
            let (edges, word) = decoder.control.read::<B>(&span, start, below((clocks - start).min(BLOCK) as u32));
            let word = Word { suspect: dense.taken.suspect(start), ..word };
            whole.note(decoder.protocol.layout(), &Block::<B>::new(&span, start, edges), &word);
        }
    }
}

/// Parts of [`run`] that are behind a call: inlined, none would leave enough registers for the others.
pub(super) trait Engine: Backend + Sized {
    /// # Safety
    /// The backend fits the processor.
    unsafe fn pass_on(decoder: &mut Decoder, block: &Block<Self>, word: &Word);

    /// # Safety
    /// As for [`stretch`].
    unsafe fn stretch(decoder: &mut Decoder, span: &Span, next: usize, whole: usize, before: &[u8]) -> usize;

    /// # Safety
    /// As for [`sparse`].
    unsafe fn sparse(decoder: &mut Decoder, span: &Span, next: usize, whole: usize, before: &[u8]) -> usize;

    /// # Safety
    /// As for [`give`].
    unsafe fn give(decoder: &mut Decoder, dense: &mut Dense, all: bool);

    /// [`note_all`], by the longest vectors that the processor has.
    ///
    /// # Safety
    /// As there.
    unsafe fn note_all(decoder: &Decoder, dense: &Dense, whole: &mut Whole, ahead: &mut Ahead);

    /// [`Protocol::whole`], for as many transactions at a time as the processor can.
    ///
    /// # Safety
    /// The backend fits the processor.
    unsafe fn whole(protocol: &mut Protocol, whole: &mut Whole, span: &Span, at: usize, ahead: &mut Ahead) -> usize;

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

    unsafe fn sparse(decoder: &mut Decoder, span: &Span, next: usize, whole: usize, before: &[u8]) -> usize {
        unsafe { sparse::<Self>(decoder, span, next, whole, before) }
    }

    unsafe fn give(decoder: &mut Decoder, dense: &mut Dense, all: bool) {
        unsafe { give::<Self>(decoder, dense, all) }
    }

    unsafe fn note_all(decoder: &Decoder, dense: &Dense, whole: &mut Whole, ahead: &mut Ahead) {
        unsafe { note_all::<Self>(decoder, dense, whole, ahead) }
    }

    unsafe fn whole(protocol: &mut Protocol, whole: &mut Whole, span: &Span, at: usize, ahead: &mut Ahead) -> usize {
        unsafe { protocol.whole::<Self, u64>(whole, span, at, ahead) }
    }

    unsafe fn judge(rules: &mut Rules, block: &Block<Self>, word: &Word) {
        rules.push(block, word);
    }

    unsafe fn note(events: &mut Events, block: &Block<Self>, protocol: &mut Protocol) {
        events.push(block, protocol);
    }
}

/// Calls a function of this module that is compiled for the processor's instructions, here within [`Avx2`].
#[cfg(target_arch = "x86_64")]
macro_rules! behind_a_call {
    ($name:ident($($argument:ident: $of:ty),*) -> $result:ty) => {{
        #[target_feature(enable = "avx2,bmi1,bmi2,popcnt,lzcnt")]
        #[inline(never)]
        unsafe fn called<const UNIT: usize, const DATA: bool>($($argument: $of),*) -> $result {
            // Safety: this function has the features, and all else is as the caller says.
            unsafe { $name::<Avx2<UNIT, DATA>>($($argument),*) }
        }
        unsafe { called::<UNIT, DATA>($($argument),*) }
    }};
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
        behind_a_call!(stretch(decoder: &mut Decoder, span: &Span, next: usize, whole: usize, before: &[u8]) -> usize)
    }

    #[inline(always)]
    unsafe fn sparse(decoder: &mut Decoder, span: &Span, next: usize, whole: usize, before: &[u8]) -> usize {
        behind_a_call!(sparse(decoder: &mut Decoder, span: &Span, next: usize, whole: usize, before: &[u8]) -> usize)
    }

    #[inline(always)]
    unsafe fn give(decoder: &mut Decoder, dense: &mut Dense, all: bool) {
        behind_a_call!(give(decoder: &mut Decoder, dense: &mut Dense, all: bool) -> ())
    }

    #[inline(always)]
    unsafe fn note_all(decoder: &Decoder, dense: &Dense, whole: &mut Whole, ahead: &mut Ahead) {
        #[target_feature(enable = "avx2,bmi1,bmi2,popcnt,lzcnt")]
        #[inline(never)]
        fn by_avx2<const UNIT: usize, const DATA: bool>(
            decoder: &Decoder,
            dense: &Dense,
            whole: &mut Whole,
            ahead: &mut Ahead,
        ) {
            // Safety: this function has the features.
            unsafe { note_all::<Avx2<UNIT, DATA>>(decoder, dense, whole, ahead) }
        }
        #[target_feature(enable = "avx2,bmi1,bmi2,popcnt,lzcnt,avx512f,avx512bw,avx512vbmi,avx512vbmi2")]
        #[inline(never)]
        fn by_avx512<const UNIT: usize, const DATA: bool>(
            decoder: &Decoder,
            dense: &Dense,
            whole: &mut Whole,
            ahead: &mut Ahead,
        ) {
            // Safety: this function has the features.
            unsafe { note_all::<Avx512<UNIT, DATA>>(decoder, dense, whole, ahead) }
        }
        unsafe {
            if bits::avx512::reads() {
                by_avx512::<UNIT, DATA>(decoder, dense, whole, ahead)
            } else {
                by_avx2::<UNIT, DATA>(decoder, dense, whole, ahead)
            }
        }
    }

    #[inline(always)]
    unsafe fn whole(protocol: &mut Protocol, whole: &mut Whole, span: &Span, at: usize, ahead: &mut Ahead) -> usize {
        #[target_feature(enable = "avx2,bmi1,bmi2,popcnt,lzcnt")]
        #[inline(never)]
        unsafe fn one_by_one<const UNIT: usize, const DATA: bool>(
            protocol: &mut Protocol,
            whole: &mut Whole,
            span: &Span,
            at: usize,
            ahead: &mut Ahead,
        ) -> usize {
            // Safety: this function has the features.
            unsafe { protocol.whole::<Avx2<UNIT, DATA>, u64>(whole, span, at, ahead) }
        }
        #[target_feature(enable = "avx2,bmi1,bmi2,popcnt,lzcnt,avx512f,avx512cd,avx512vbmi,avx512vpopcntdq")]
        #[inline(never)]
        unsafe fn by_eight<const UNIT: usize, const DATA: bool>(
            protocol: &mut Protocol,
            whole: &mut Whole,
            span: &Span,
            at: usize,
            ahead: &mut Ahead,
        ) -> usize {
            // Safety: this function has the features.
            unsafe { protocol.whole::<Avx2<UNIT, DATA>, Eight>(whole, span, at, ahead) }
        }
        unsafe {
            if lanes::avx512::is_there() {
                by_eight::<UNIT, DATA>(protocol, whole, span, at, ahead)
            } else {
                one_by_one::<UNIT, DATA>(protocol, whole, span, at, ahead)
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
