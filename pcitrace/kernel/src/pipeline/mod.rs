//! A capture through the decoder, on several threads where its chunks allow that, with the same rows however it is cut.

pub mod cut;
pub mod parts;
mod recover;
pub mod stream;
pub mod stretch;

use crate::bus::Origin;
use crate::capture::{Capture, Chunk, Data, Sampled};
use crate::error::{Error, Result};
use crate::in_order::in_order;
use crate::lane::Page;
use crate::pci::clocking::Decoder;
use crate::pci::layout::{BusSpec, BusTables, Layout};
use crate::pci::listing::clocks::{ClockLines, Wanted};
use crate::pci::problems::{Concerns, Problem, Problems, What};
use crate::pci::protocol::PciX;
use crate::pci::records;
use crate::pci::rows::{Rows, TakeRows, WindowCounts, append_windows};
use crate::pci::rules::{ClockLimits, Findings, Parameters, Requests, RuleSet, Rules, Violation};
use crate::pci::windows::Windows;
use crate::pipeline::cut::{Cut, Rest, decode_chunk};
use crate::pipeline::recover::Recovery;
use crate::samples::places::Source;
use crate::time::TimeBase;
use crate::wire::{WireCut, WireScan};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// The first chunk is judged in pieces of so many bytes: who waits for the first rows gets them at once.
const FIRST: usize = 1 << 18;

#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Instead of the rate that the file states.
    pub rate_hz: Option<f64>,
    /// State mode: every sample is one clock of this frequency.
    pub clock_mhz: Option<f64>,
    pub recover_clock: bool,
    pub data_phases: bool,
    /// Note where INTA# to INTD# and LOCK# change.
    pub events: bool,
    /// Length of the windows of the accounting; None for one over the whole capture.
    pub window_us: Option<f64>,
    /// Judge every clock by these rules.
    pub rules: Option<RuleSet>,
    /// Of these rules every violation is kept, also where nobody takes them while they are found.
    pub every: RuleSet,
    /// Broken rules are in [`Decoded`] also where they could be told while they are found.
    pub keep_violations: bool,
    /// Whose limits CLK of each bus has to keep, 33 or 66 MHz.
    pub bus_mhz: Vec<Option<u32>>,
    pub parameters: Parameters,
    /// Nobody wants to know what was wrong besides the rules.
    pub forget_problems: bool,
    /// Measure how long agents wait; rules have to be asked for, if only an empty set of them.
    pub requests: bool,
    /// Go no further than about this stamp: chunks, or records, that begin behind it are left out, and what of a chunk
    /// lies behind it is not judged.
    pub until: Option<u64>,
    /// Write a line for each of these clocks; rules have to be asked for, if only an empty set of them.
    pub clock_lines: Option<Wanted>,
    /// 0 for as many as the machine runs at once.
    pub threads: usize,
    /// Do without the processor's vector instructions.
    pub portable: bool,
}

impl Options {
    /// What judges the clocks of the bus with this number.
    pub(crate) fn judge(&self, number: usize, layout: &Layout, time: TimeBase) -> Option<Box<Rules>> {
        let bus_mhz = self.bus_mhz.get(number).copied().flatten();
        let limits = bus_mhz.map(|mhz| ClockLimits::new(mhz, time.us(1), self.parameters.clock_tolerance));
        let mut rules = Rules::new(layout.clone(), self.rules?, limits, self.parameters);
        rules.findings.every = self.every;
        let lines = |wanted: &Wanted| ClockLines::new(layout.clone(), time, wanted.clone());
        rules.lines = self.clock_lines.as_ref().map(lines);
        rules.requests = self.requests.then(Requests::default);
        Some(Box::new(rules))
    }
}

/// Takes the rows of all buses as they come.
pub trait Sink {
    /// What rows are gathered in, on any thread.
    type Gathered: Gather;
    /// Called once, before any rows: for each bus something without rows to gather them in.
    fn begin(&mut self, buses: &[BusTables]) -> Result<Vec<Self::Gathered>>;
    /// Rows of one bus, in order, with numbers that count from `origin`. This is done by one thread, so there is little
    /// that it may do to each row.
    fn rows(&mut self, bus: usize, origin: Origin, rows: Self::Gathered) -> Result<()>;
    /// Whether problems are told while they are found, and not kept; else they are in [`Decoded`].
    const TAKES_PROBLEMS: bool = false;
    /// Problems of one bus, before the rows that they concern, where so many transactions had begun.
    fn problems(&mut self, _bus: usize, _problems: Problems, _begun: u64) -> Result<()> {
        Ok(())
    }
    /// Whether broken rules are told while they are found; else they are in [`Decoded`], as many as are kept.
    fn takes_violations(&self) -> bool {
        false
    }
    /// Rules that were broken on one bus, before the rows behind them.
    fn violations(&mut self, _bus: usize, _violations: Vec<Violation>) -> Result<()> {
        Ok(())
    }
    /// Lines of the next clocks, where those were asked for.
    fn clock_lines(&mut self, _lines: Vec<u8>) -> Result<()> {
        Ok(())
    }
    /// The wires that are read in the same pass, of a sampled capture.
    fn wires(&mut self) -> &mut [WireScan] {
        &mut []
    }
    /// No row of `bus` that is still to come starts before `stamp`; for `u64::MAX` none comes at all.
    fn reached(&mut self, bus: usize, stamp: u64) -> Result<()>;
}

/// Gathers the rows of a chunk.
pub trait Gather: TakeRows + Clone + Send + Sync {
    /// Makes room for so many transactions and data phases.
    fn reserve(&mut self, transactions: usize, data_phases: usize);
    fn counts(&self) -> (usize, usize);
    fn is_empty(&self) -> bool;
    /// The rows may go to what is left of this page, where they go to pages.
    fn lend(&mut self, _page: Page) {}
    /// What is left of it now.
    fn give_back(&mut self) -> Page {
        Page::default()
    }
}

impl Gather for Rows {
    fn reserve(&mut self, transactions: usize, data_phases: usize) {
        self.transactions.reserve(transactions);
        self.data_phases.reserve(data_phases);
    }

    fn counts(&self) -> (usize, usize) {
        (self.transactions.len(), self.data_phases.len())
    }

    fn is_empty(&self) -> bool {
        self.counts() == (0, 0) && self.events.is_empty()
    }
}

/// What is left of a bus when its rows are gone.
#[derive(Debug, Clone)]
pub struct Decoded {
    pub bus: BusTables,
    pub transactions: u64,
    /// In the order in which they were found.
    pub problems: Problems,
    pub windows: WindowCounts,
    pub window_us: Option<f64>,
    /// Length of the capture.
    pub duration_us: f64,
    /// Mean over the whole capture.
    pub clock_mhz: Option<f64>,
    /// Where rules were asked for.
    pub findings: Option<Findings>,
    /// Where they were to be measured.
    pub requests: Option<Requests>,
}

/// Decodes all `buses` of a capture in one pass. `progress` gets the share that is done and says whether to go on.
pub fn decode<S: Sink>(
    capture: &Capture,
    buses: &[BusSpec],
    options: &Options,
    sink: &mut S,
    progress: &mut dyn FnMut(f64) -> bool,
) -> Result<Vec<Decoded>> {
    match &capture.data {
        Data::Sampled(sampled) => decode_sampled(capture, sampled.as_ref(), buses, options, sink, progress),
        Data::Changes(changes) => {
            if options.clock_mhz.is_some() || options.recover_clock {
                return Err(Error::Decode(format!(
                    "{}: a file of changes has no samples; decode it without a stated or recovered clock",
                    capture.path.display()
                )));
            }
            let time = TimeBase::ticks(changes.tick());
            let windows = windows_of(options, time)?;
            let tables = buses
                .iter()
                .enumerate()
                .map(|(index, spec)| {
                    let layout = records::Packing::new(spec)?.layout;
                    Ok(BusTables { name: spec.name.clone(), index, layout, time })
                })
                .collect::<Result<Vec<_>>>()?;
            let empty = sink.begin(&tables)?;
            let mut results = Vec::new();
            for (index, ((spec, bus), empty)) in buses.iter().zip(tables).zip(empty).enumerate() {
                let mut track = Track::new(bus, empty, options);
                let make = |layout: Layout| {
                    let rules = options.judge(index, &layout, time);
                    let decoder = Decoder::new(layout, options.data_phases, windows, 0, options.portable);
                    decoder.noting_events(options.events).judged_by(rules)
                };
                let mut decoder = records::decode(changes.as_ref(), spec, options.until, make, |decoder, done| {
                    let share = (index as f64 + done) / buses.len() as f64;
                    if !progress(share) {
                        return Err(Error::Interrupted);
                    }
                    track.drain(decoder, sink)
                })?;
                track.drain(&mut decoder, sink)?;
                track.absorb(decoder);
                results.push(track.result(sink, options, time.us(changes.end()), &capture.path)?);
            }
            Ok(results)
        }
    }
}

pub(crate) fn windows_of(options: &Options, time: TimeBase) -> Result<Windows> {
    match options.window_us {
        None => Ok(Windows::WHOLE),
        Some(us) if us > 0.0 && time.stamps(us) >= 1.0 => Ok(Windows { length: time.stamps(us) }),
        Some(us) => Err(Error::Decode(format!("a window of {us} us is shorter than one sample; give a longer one"))),
    }
}

/// The rows and counts of one bus, over all the decoders that make it up.
pub(crate) struct Track<G> {
    pub(crate) bus: BusTables,
    /// To gather rows in.
    empty: G,
    forget_problems: bool,
    /// Clocks and transactions of the decoders before the present one.
    origin: Origin,
    problems: Problems,
    windows: WindowCounts,
    first_clock: Option<u64>,
    last_clock: Option<u64>,
    pcix: PciX,
    findings: Option<Findings>,
    requests: Option<Requests>,
}

/// What a stretch of the capture leaves of a bus besides its rows. Its numbers count from the start of the stretch.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Left {
    origin: Origin,
    problems: Vec<Problem>,
    windows: WindowCounts,
    first_clock: Option<u64>,
    last_clock: Option<u64>,
    pcix: PciX,
}

impl<G: Gather> Track<G> {
    pub(crate) fn new(bus: BusTables, empty: G, options: &Options) -> Self {
        Track {
            bus,
            empty,
            forget_problems: options.forget_problems,
            origin: Origin::default(),
            problems: Problems::default(),
            windows: Vec::new(),
            first_clock: None,
            last_clock: None,
            pcix: PciX::default(),
            findings: None,
            requests: None,
        }
    }

    /// To gather rows in.
    pub(crate) fn empty(&self) -> G {
        self.empty.clone()
    }

    /// Passes on what the decoder has finished.
    pub(crate) fn drain(&mut self, decoder: &mut Decoder, sink: &mut impl Sink<Gathered = G>) -> Result<()> {
        let mut rows = self.empty.clone();
        decoder.protocol.drain(&mut rows);
        self.pass_on(decoder, rows, sink)
    }

    /// Passes on the rows of a decoder, and what else it has found.
    pub(crate) fn pass_on<S: Sink<Gathered = G>>(
        &mut self,
        decoder: &mut Decoder,
        rows: G,
        sink: &mut S,
    ) -> Result<()> {
        let begun = self.origin.transactions + decoder.protocol.transactions();
        let mut found = std::mem::take(&mut decoder.protocol.rows.problems);
        found.count_from(self.origin);
        self.tell(found, begun, sink)?;
        if let Some(rules) = decoder.rules.as_mut().filter(|_| sink.takes_violations()) {
            sink.violations(self.bus.index, rules.findings.take())?;
            if let Some(lines) = &mut rules.lines {
                sink.clock_lines(lines.take())?;
            }
        }
        if !rows.is_empty() {
            sink.rows(self.bus.index, self.origin, rows)?;
        }
        sink.reached(self.bus.index, decoder.reached())
    }

    /// Gives on or keeps what was wrong where so many transactions had begun.
    fn tell<S: Sink>(&mut self, found: Problems, begun: u64, sink: &mut S) -> Result<()> {
        if S::TAKES_PROBLEMS {
            return sink.problems(self.bus.index, found, begun);
        }
        if !self.forget_problems {
            self.problems.append(found);
        }
        Ok(())
    }

    /// The problems that will not go on, of those that there are so far.
    pub(crate) fn closed_problems(&mut self, decoder: &Decoder) -> Vec<Problem> {
        self.problems.take_closed(self.origin.transactions + decoder.protocol.transactions())
    }

    /// After so many samples there are a few bytes more; the last decoder is over.
    pub(crate) fn ends_within_a_sample(&mut self, samples: u64, sink: &mut impl Sink) -> Result<()> {
        let last = self.origin.clocks.saturating_sub(1);
        let mut found = Problems::default();
        found.push(Problem {
            stamp: samples,
            what: What::EndsWithinSample,
            concerns: Concerns::NoneAfter(self.origin.transactions),
            lines: 0,
            first_clk: last,
            last_clk: last,
            count: 1,
        });
        self.tell(found, self.origin.transactions, sink)
    }

    /// The present decoder is over; the next one counts from here.
    pub(crate) fn absorb(&mut self, decoder: Decoder) {
        (self.findings, self.requests) =
            decoder.rules.map(|rules| (Some(rules.findings), rules.requests)).unwrap_or_default();
        self.origin.clocks += decoder.protocol.clk;
        self.origin.transactions += decoder.protocol.transactions();
        self.pcix.add(decoder.protocol.pcix);
        self.first_clock = self.first_clock.or(decoder.first_clock);
        self.last_clock = decoder.last_clock_stamp.or(self.last_clock);
        append_windows(&mut self.windows, decoder.protocol.into_windows());
    }

    /// What is to be told of it elsewhere.
    pub(crate) fn left(self) -> Left {
        Left {
            origin: self.origin,
            problems: self.problems.rows().collect(),
            windows: self.windows,
            first_clock: self.first_clock,
            last_clock: self.last_clock,
            pcix: self.pcix,
        }
    }

    /// The stretch behind this was decoded elsewhere.
    pub(crate) fn go_on(&mut self, left: Left) {
        let mut found = Problems::of(left.problems);
        found.count_from(self.origin);
        self.problems.append(found);
        self.origin.clocks += left.origin.clocks;
        self.origin.transactions += left.origin.transactions;
        self.pcix.add(left.pcix);
        self.first_clock = self.first_clock.or(left.first_clock);
        self.last_clock = left.last_clock.or(self.last_clock);
        append_windows(&mut self.windows, left.windows);
    }

    pub(crate) fn result(
        self,
        sink: &mut impl Sink,
        options: &Options,
        duration_us: f64,
        path: &Path,
    ) -> Result<Decoded> {
        sink.reached(self.bus.index, u64::MAX)?;
        if self.origin.clocks == 0 {
            return Err(Error::Decode(format!(
                "{}: bus {}: CLK never rises in this capture; check the wiring of CLK",
                path.display(),
                self.bus.name
            )));
        }
        if let Some(why) = self.pcix.told_by() {
            return Err(Error::Decode(format!(
                "{}: bus {}: this is PCI-X, not PCI: {why}; PCI-X is not decoded, set the bus to PCI mode",
                path.display(),
                self.bus.name
            )));
        }
        let span =
            self.first_clock.zip(self.last_clock).map(|(first, last)| self.bus.time.us(last) - self.bus.time.us(first));
        Ok(Decoded {
            clock_mhz: options.clock_mhz.or(span.filter(|&us| us > 0.0).map(|us| (self.origin.clocks - 1) as f64 / us)),
            transactions: self.origin.transactions,
            problems: self.problems,
            windows: self.windows,
            window_us: options.window_us,
            duration_us,
            findings: self.findings,
            requests: self.requests,
            bus: self.bus,
        })
    }
}

/// What a thread uses again from one chunk to the next.
#[derive(Default)]
struct Own {
    buffer: Vec<u8>,
    /// Rows of each bus in the last chunk.
    counts: BTreeMap<usize, (usize, usize)>,
    page: Page,
}

impl Own {
    /// To gather the rows of the next chunk of a bus in: there is room for an eighth more than in the last.
    fn gatherer<G: Gather>(&mut self, bus: usize, empty: &G) -> G {
        let mut rows = empty.clone();
        let (transactions, data_phases) = self.counts.get(&bus).copied().unwrap_or_default();
        let more = |count: usize| if count > 0 { count + count / 8 + 64 } else { 0 };
        rows.reserve(more(transactions), more(data_phases));
        rows.lend(std::mem::take(&mut self.page).kept());
        rows
    }

    /// These are the rows of that chunk.
    fn gathered<G: Gather>(&mut self, bus: usize, rows: &mut G) {
        self.counts.insert(bus, rows.counts());
        self.page = rows.give_back();
    }
}

/// A chunk that was decoded on its own.
struct Piece<G> {
    length: usize,
    /// One a wire.
    wires: Vec<WireCut>,
    /// One a bus.
    cuts: Vec<Cut<G>>,
}

/// The axis of a sampled capture, and where the lines of buses are in its samples.
pub(crate) fn layouts(
    capture: &Capture,
    sampled: &dyn Sampled,
    buses: &[BusSpec],
    options: &Options,
) -> Result<(TimeBase, Vec<BusTables>)> {
    let state_rate = options.clock_mhz.map(|mhz| mhz * 1e6);
    let rate = state_rate.or(options.rate_hz).or(sampled.rate_hz()).ok_or_else(|| {
        Error::format(
            &capture.path,
            "states no sample rate; give it with --rate, or the bus clock with --clock-mhz if every sample is one clock",
        )
    })?;
    let state_mode = state_rate.is_some();
    let time = TimeBase::per_second(rate).map_err(|e| Error::Decode(format!("{}: {e}", capture.path.display())))?;
    let tables = buses
        .iter()
        .enumerate()
        .map(|(index, spec)| {
            let bit = |source: Source| sampled.bits()[source.channel];
            let layout = Layout::new(spec, sampled.unit_size(), state_mode || options.recover_clock, bit)?;
            Ok(BusTables { name: spec.name.clone(), index, layout, time })
        })
        .collect::<Result<Vec<_>>>()?;
    Ok((time, tables))
}

fn decode_sampled<S: Sink>(
    capture: &Capture,
    sampled: &dyn Sampled,
    buses: &[BusSpec],
    options: &Options,
    sink: &mut S,
    progress: &mut dyn FnMut(f64) -> bool,
) -> Result<Vec<Decoded>> {
    let (time, tables) = layouts(capture, sampled, buses, options)?;
    let unit = sampled.unit_size();
    let windows = windows_of(options, time)?;
    let bits = sampled.bits();
    let recover = options.recover_clock && options.clock_mhz.is_none();
    let empty = sink.begin(&tables)?;

    let mut tracks: Vec<_> =
        tables.iter().zip(empty).map(|(bus, empty)| Track::new(bus.clone(), empty, options)).collect();
    let mut decoders: Vec<Decoder> = tables
        .iter()
        .map(|bus| {
            let rules = options.judge(bus.index, &bus.layout, time);
            let decoder = Decoder::new(bus.layout.clone(), options.data_phases, windows, 0, options.portable);
            decoder.noting_events(options.events).judged_by(rules)
        })
        .collect();
    let total = sampled.total_bytes();
    let end_byte = options.until.map_or(u64::MAX, |stamp| stamp.saturating_add(1).saturating_mul(unit as u64));
    let chunks = || sampled.chunks().take_while(|chunk| chunk.as_ref().map_or(true, |chunk| chunk.offset < end_byte));
    let mut reached = 0;
    let mut step = |length: usize| -> Result<()> {
        reached += length as u64;
        let share = total.map_or(0.0, |total| reached as f64 / total.max(1) as f64);
        if progress(share) { Ok(()) } else { Err(Error::Interrupted) }
    };

    let threads = match options.threads {
        0 => std::thread::available_parallelism().map_or(1, |n| n.get()),
        given => given,
    };
    if recover {
        let mut recoveries = buses
            .iter()
            .map(|spec| {
                let clk = spec.line("CLK")?;
                Ok(Recovery::new(crate::samples::bits::Bit::new(bits[clk.channel], clk.active_low), unit))
            })
            .collect::<Result<Vec<_>>>()?;
        let mut buffer = Vec::new();
        for chunk in chunks() {
            let bytes = chunk?.bytes(&mut buffer)?;
            for ((track, decoder), recovery) in tracks.iter_mut().zip(&mut decoders).zip(&mut recoveries) {
                recovery.push(&bytes, decoder);
                track.drain(decoder, sink)?;
            }
            sink.wires().iter_mut().try_for_each(|wire| wire.push(&bytes))?;
            step(bytes.len())?;
        }
        for ((decoder, recovery), track) in decoders.iter_mut().zip(&mut recoveries).zip(&tracks) {
            recovery.finish(decoder).map_err(|why| Error::Decode(format!("bus {}: {why}", track.bus.name)))?;
        }
    } else if threads == 1 {
        let mut own = Own::default();
        for chunk in chunks() {
            let mut buffer = std::mem::take(&mut own.buffer);
            let bytes = chunk?.bytes(&mut buffer)?;
            for (track, decoder) in tracks.iter_mut().zip(&mut decoders) {
                let mut rows = own.gatherer(track.bus.index, &track.empty);
                decoder.push_all(&bytes, &mut rows);
                own.gathered(track.bus.index, &mut rows);
                track.pass_on(decoder, rows, sink)?;
            }
            sink.wires().iter_mut().try_for_each(|wire| wire.push(&bytes))?;
            step(bytes.len())?;
            own.buffer = buffer;
        }
    } else if options.rules.is_some() {
        // Rules look back further than chunks that are decoded on their own could: the clocks are judged in order.
        let load = |chunk: Chunk, _: &mut ()| {
            let wanted = usize::try_from(end_byte.saturating_sub(chunk.offset)).unwrap_or(usize::MAX);
            let mut bytes = chunk.bytes(&mut Vec::new())?.into_owned();
            bytes.truncate(wanted);
            Ok(bytes)
        };
        let mut own = Own::default();
        let mut most = FIRST;
        in_order(chunks(), threads, load, |bytes: Vec<u8>| {
            for piece in bytes.chunks(most) {
                for (track, decoder) in tracks.iter_mut().zip(&mut decoders) {
                    let mut rows = own.gatherer(track.bus.index, &track.empty);
                    decoder.push_all(piece, &mut rows);
                    own.gathered(track.bus.index, &mut rows);
                    track.pass_on(decoder, rows, sink)?;
                }
            }
            most = usize::MAX;
            sink.wires().iter_mut().try_for_each(|wire| wire.push(&bytes))?;
            step(bytes.len())
        })?;
    } else {
        let empty: Vec<_> = tables.iter().zip(&tracks).map(|(bus, track)| (bus, track.empty.clone())).collect();
        let wires: Vec<_> = sink.wires().iter().map(WireScan::fresh).collect();
        let cut = |chunk: Chunk, own: &mut Own| -> Result<Piece<S::Gathered>> {
            let offset = chunk.offset;
            let mut buffer = std::mem::take(&mut own.buffer);
            let bytes = chunk.bytes(&mut buffer)?;
            let cuts: Vec<_> = empty
                .iter()
                .map(|(bus, empty)| {
                    let make = |first, clock: &[u8]| {
                        let layout = bus.layout.clone();
                        Decoder::in_step(layout, options.data_phases, windows, first, options.portable, clock)
                            .noting_events(options.events)
                    };
                    let mut cut = decode_chunk(&bus.layout, offset, &bytes, make, own.gatherer(bus.index, empty));
                    if let Some(rest) = &mut cut.rest {
                        own.gathered(bus.index, &mut rest.rows);
                    }
                    cut
                })
                .collect();
            let length = bytes.len();
            let wires = wires.iter().map(|wire| wire.fresh().cut(offset, &bytes)).collect::<Result<_>>()?;
            own.buffer = buffer;
            Ok(Piece { length, wires, cuts })
        };
        in_order(chunks(), threads, cut, |Piece { length, wires, cuts }| {
            sink.wires().iter_mut().zip(wires).try_for_each(|(wire, cut)| wire.go_on(cut))?;
            for ((track, decoder), cut) in tracks.iter_mut().zip(&mut decoders).zip(cuts) {
                decoder.push(&cut.head);
                if let Some(Rest { next, decoder: behind, rows }) = cut.rest {
                    decoder.end_at_sync_point(&next);
                    track.drain(decoder, sink)?;
                    track.absorb(std::mem::replace(decoder, behind));
                    track.pass_on(decoder, rows, sink)?;
                } else {
                    track.drain(decoder, sink)?;
                }
            }
            step(length)
        })?;
    }

    let mut results = Vec::new();
    for (mut track, mut decoder) in tracks.into_iter().zip(decoders) {
        decoder.finish();
        track.drain(&mut decoder, sink)?;
        let samples = reached / unit as u64;
        let duration_us = time.us(samples);
        track.absorb(decoder);
        if reached % unit as u64 != 0 {
            track.ends_within_a_sample(samples, sink)?;
        }
        results.push(track.result(sink, options, duration_us, &capture.path)?);
    }
    Ok(results)
}
