//! A capture through the decoder, on several threads where its chunks allow that, with the same rows however it is cut.

use crate::capture::{Capture, Chunk, Data, Sampled};
use crate::clocking::Decoder;
use crate::cut::{Cut, decode_chunk};
use crate::error::{Error, Result};
use crate::in_order::in_order;
use crate::layout::{BusSpec, Layout};
use crate::records;
use crate::recover::Recovery;
use crate::rows::{Origin, Problem, ProblemKind, Rows, WindowCounts, append_windows};
use crate::windows::Windows;

#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Instead of the rate that the file states.
    pub rate_hz: Option<f64>,
    /// State mode: every sample is one clock of this frequency.
    pub clock_mhz: Option<f64>,
    pub recover_clock: bool,
    pub data_phases: bool,
    /// Length of the windows of the accounting; None for one over the whole capture.
    pub window_us: Option<f64>,
    /// 0 for as many as the machine runs at once.
    pub threads: usize,
    /// Do without the processor's vector instructions.
    pub portable: bool,
}

/// Turns stamps into time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TimeBase {
    /// Microseconds per stamp, as a fraction.
    numerator: f64,
    denominator: f64,
}

impl TimeBase {
    pub fn per_second(rate_hz: f64) -> Self {
        TimeBase { numerator: 1e6, denominator: rate_hz }
    }

    pub fn ticks((numerator, denominator): (u64, u64)) -> Self {
        TimeBase { numerator: numerator as f64 * 1e6, denominator: denominator as f64 }
    }

    pub fn us(&self, stamp: u64) -> f64 {
        stamp as f64 * self.numerator / self.denominator
    }

    fn stamps(&self, us: f64) -> f64 {
        us * self.denominator / self.numerator
    }
}

/// Takes the rows of all buses as they come.
pub trait Sink {
    /// Called once, before any rows.
    fn begin(&mut self, buses: &[BusTables]) -> Result<()>;
    /// Rows of one bus, in order, with numbers that count from `origin`. To count from the start is left to the sink: rows
    /// come from another thread, and to go through them as they come would keep all threads waiting.
    fn rows(&mut self, bus: usize, origin: Origin, rows: Rows) -> Result<()>;
    /// No row of `bus` that is still to come starts before `stamp`.
    fn reached(&mut self, bus: usize, stamp: u64) -> Result<()>;
}

/// What the tables of one bus need to know of it.
#[derive(Debug, Clone)]
pub struct BusTables {
    pub name: String,
    pub layout: Layout,
    pub time: TimeBase,
}

/// What is left of a bus when its rows are gone.
#[derive(Debug, Clone)]
pub struct Decoded {
    pub bus: BusTables,
    pub transactions: u64,
    pub problems: Vec<Problem>,
    pub windows: WindowCounts,
    pub window_us: Option<f64>,
    /// Length of the capture.
    pub duration_us: f64,
    /// Mean over the whole capture.
    pub clock_mhz: Option<f64>,
}

/// Decodes all `buses` of a capture in one pass. `progress` gets the share that is done and says whether to go on.
pub fn decode(
    capture: &Capture,
    buses: &[BusSpec],
    options: &Options,
    sink: &mut dyn Sink,
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
                .map(|spec| {
                    let layout = records::Packing::new(spec)?.layout;
                    Ok(BusTables { name: spec.name.clone(), layout, time })
                })
                .collect::<Result<Vec<_>>>()?;
            sink.begin(&tables)?;
            let mut results = Vec::new();
            for (index, (spec, bus)) in buses.iter().zip(tables).enumerate() {
                let mut track = Track::new(bus, index);
                let make = |layout| Decoder::new(layout, options.data_phases, windows, 0, options.portable);
                let mut decoder = records::decode(changes.as_ref(), spec, make, |decoder, done| {
                    let share = (index as f64 + done) / buses.len() as f64;
                    if !progress(share) {
                        return Err(Error::Interrupted);
                    }
                    track.drain(decoder, sink)
                })?;
                track.drain(&mut decoder, sink)?;
                track.absorb(decoder);
                results.push(track.result(sink, options, time.us(changes.end()), capture)?);
            }
            Ok(results)
        }
    }
}

fn windows_of(options: &Options, time: TimeBase) -> Result<Windows> {
    match options.window_us {
        None => Ok(Windows::WHOLE),
        Some(us) if us > 0.0 && time.stamps(us) >= 1.0 => Ok(Windows { length: time.stamps(us) }),
        Some(us) => Err(Error::Decode(format!("a window of {us} us is shorter than one sample; give a longer one"))),
    }
}

/// The rows and counts of one bus, over all the decoders that make it up.
struct Track {
    bus: BusTables,
    index: usize,
    /// Clocks and transactions of the decoders before the present one.
    origin: Origin,
    problems: Vec<Problem>,
    windows: WindowCounts,
    first_clock: Option<u64>,
    last_clock: Option<u64>,
}

impl Track {
    fn new(bus: BusTables, index: usize) -> Self {
        Track {
            bus,
            index,
            origin: Origin::default(),
            problems: Vec::new(),
            windows: Vec::new(),
            first_clock: None,
            last_clock: None,
        }
    }

    /// Passes on what the decoder has finished.
    fn drain(&mut self, decoder: &mut Decoder, sink: &mut dyn Sink) -> Result<()> {
        let mut rows = decoder.take_rows();
        self.problems.extend(rows.problems.drain(..).map(|problem| Problem {
            transaction: problem.transaction.map(|number| number + self.origin.transactions),
            ..problem
        }));
        sink.rows(self.index, self.origin, rows)?;
        sink.reached(self.index, decoder.reached())
    }

    /// The present decoder is over; the next one counts from here.
    fn absorb(&mut self, decoder: Decoder) {
        self.origin.clocks += decoder.protocol.clk;
        self.origin.transactions += decoder.protocol.transactions();
        self.first_clock = self.first_clock.or(decoder.first_clock);
        self.last_clock = decoder.last_clock_stamp.or(self.last_clock);
        append_windows(&mut self.windows, decoder.protocol.into_windows());
    }

    fn result(
        mut self,
        sink: &mut dyn Sink,
        options: &Options,
        duration_us: f64,
        capture: &Capture,
    ) -> Result<Decoded> {
        sink.reached(self.index, u64::MAX)?;
        if self.origin.clocks == 0 {
            return Err(Error::Decode(format!(
                "{}: bus {}: CLK never rises in this capture; check the wiring of CLK",
                capture.path.display(),
                self.bus.name
            )));
        }
        self.problems.sort();
        let span =
            self.first_clock.zip(self.last_clock).map(|(first, last)| self.bus.time.us(last) - self.bus.time.us(first));
        Ok(Decoded {
            clock_mhz: options.clock_mhz.or(span.filter(|&us| us > 0.0).map(|us| (self.origin.clocks - 1) as f64 / us)),
            transactions: self.origin.transactions,
            problems: self.problems,
            windows: self.windows,
            window_us: options.window_us,
            duration_us,
            bus: self.bus,
        })
    }
}

/// What a thread uses again from one chunk to the next.
#[derive(Default)]
struct Own {
    buffer: Vec<u8>,
    /// How many transactions each bus may have in the next chunk: an eighth more than in the last, to be copied seldom.
    rows: Vec<usize>,
}

fn decode_sampled(
    capture: &Capture,
    sampled: &dyn Sampled,
    buses: &[BusSpec],
    options: &Options,
    sink: &mut dyn Sink,
    progress: &mut dyn FnMut(f64) -> bool,
) -> Result<Vec<Decoded>> {
    let positive = |what: &str, value: Option<f64>| match value {
        Some(value) if !(value > 0.0 && value.is_finite()) => {
            Err(Error::Decode(format!("{what} of {value} is not possible; give a positive number")))
        }
        value => Ok(value),
    };
    let state_rate = positive("a clock", options.clock_mhz)?.map(|mhz| mhz * 1e6);
    let rate = state_rate.or(positive("a sample rate", options.rate_hz)?).or(sampled.rate_hz()).ok_or_else(|| {
        Error::format(
            &capture.path,
            "states no sample rate; give it with --rate, or the bus clock with --clock-mhz if every sample is one clock",
        )
    })?;
    let state_mode = state_rate.is_some();
    let unit = sampled.unit_size();
    let time = TimeBase::per_second(rate);
    let windows = windows_of(options, time)?;
    let bits = sampled.bits();
    let recover = options.recover_clock && !state_mode;
    let tables = buses
        .iter()
        .map(|spec| {
            let layout = Layout::new(spec, unit, state_mode || recover, |source| bits[source.channel])?;
            Ok(BusTables { name: spec.name.clone(), layout, time })
        })
        .collect::<Result<Vec<_>>>()?;
    sink.begin(&tables)?;

    let mut tracks: Vec<Track> = tables.iter().enumerate().map(|(i, bus)| Track::new(bus.clone(), i)).collect();
    let mut decoders: Vec<Decoder> = tables
        .iter()
        .map(|bus| Decoder::new(bus.layout.clone(), options.data_phases, windows, 0, options.portable))
        .collect();
    let total = sampled.total_bytes();
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
                Ok(Recovery::new(crate::bits::Bit::new(bits[clk.channel], clk.active_low), unit))
            })
            .collect::<Result<Vec<_>>>()?;
        let mut buffer = Vec::new();
        for chunk in sampled.chunks() {
            let bytes = chunk?.bytes(&mut buffer)?;
            for ((track, decoder), recovery) in tracks.iter_mut().zip(&mut decoders).zip(&mut recoveries) {
                recovery.push(&bytes, decoder);
                track.drain(decoder, sink)?;
            }
            step(bytes.len())?;
        }
        for ((decoder, recovery), track) in decoders.iter_mut().zip(&mut recoveries).zip(&tracks) {
            recovery.finish(decoder).map_err(|why| Error::Decode(format!("bus {}: {why}", track.bus.name)))?;
        }
    } else if threads == 1 {
        let mut buffer = Vec::new();
        for chunk in sampled.chunks() {
            let bytes = chunk?.bytes(&mut buffer)?;
            for (track, decoder) in tracks.iter_mut().zip(&mut decoders) {
                decoder.push(&bytes);
                track.drain(decoder, sink)?;
            }
            step(bytes.len())?;
        }
    } else {
        let cut = |chunk: Chunk, own: &mut Own| -> Result<(usize, Vec<Cut>)> {
            let offset = chunk.offset;
            let bytes = chunk.bytes(&mut own.buffer)?;
            own.rows.resize(tables.len(), 0);
            let of_bus = |(bus, rows): (&BusTables, &mut usize)| {
                let Options { data_phases, portable, .. } = *options;
                let cut = decode_chunk(&bus.layout, data_phases, windows, portable, offset, &bytes, *rows);
                let found = cut.rest.as_ref().map_or(0, |rest| rest.protocol.rows.transactions.len());
                *rows = found + found / 8;
                cut
            };
            let cuts = tables.iter().zip(&mut own.rows).map(of_bus).collect();
            Ok((bytes.len(), cuts))
        };
        in_order(sampled.chunks(), threads, cut, |(length, cuts)| {
            for ((track, decoder), cut) in tracks.iter_mut().zip(&mut decoders).zip(cuts) {
                decoder.push(&cut.head);
                if let Some(rest) = cut.rest {
                    decoder.end_at_sync_point();
                    track.drain(decoder, sink)?;
                    track.absorb(std::mem::replace(decoder, rest));
                }
                track.drain(decoder, sink)?;
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
            track.problems.push(Problem {
                stamp: samples,
                kind: ProblemKind::Truncated,
                transaction: None,
                text: "the capture ends within a sample: what there is of it is left out",
            });
        }
        results.push(track.result(sink, options, duration_us, capture)?);
    }
    Ok(results)
}
