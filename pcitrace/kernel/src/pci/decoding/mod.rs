//! Captures of PCI buses, decoded: whole, in stretches (`stretch`), in parts while they are decoded (`parts`), or as samples
//! come (`stream`); to memory or to files.

mod bus;
mod file_problems;
pub mod files;
pub mod memory;
pub mod parts;
mod sink;
pub mod stream;
pub mod stretch;
mod track;

use crate::capture::{Capture, Changes, Data, Sampled};
use crate::error::{Error, Result};
use crate::pci::layout::{BusSpec, BusTables, Layout};
use crate::pci::listing::clocks::{ClockLines, Wanted};
use crate::pci::packing::packed;
use crate::pci::rules::{ClockLimits, Parameters, Requests, RuleSet, Rules};
use crate::pipeline::{self, Bus, Decoder, How, records};
use crate::samples::bits::Bit;
use crate::time::TimeBase;
use crate::wire::WireScan;
use bus::{Taker, buses, layouts};
pub use sink::Sink;
pub use track::{Decoded, Left};

#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Instead of the rate that the file states.
    pub rate_hz: Option<f64>,
    /// State mode: every sample is one clock of this frequency.
    pub clock_mhz: Option<f64>,
    pub recover_clock: bool,
    pub data_phases: bool,
    /// In parts no more of one transaction than this, where it may go on and on; None for all.
    pub most_phases: Option<u64>,
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
    fn judge(&self, number: usize, layout: &Layout, time: TimeBase) -> Option<Box<Rules>> {
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

/// Decodes all `specs` of a capture in one pass, and of a sampled one reads the frames on `wires` too. `progress` gets the share
/// that is done and says whether to go on.
pub fn decode<S: Sink>(
    capture: &Capture,
    specs: &[BusSpec],
    options: &Options,
    wires: &mut [WireScan],
    sink: &mut S,
    progress: &mut dyn FnMut(f64) -> bool,
) -> Result<Vec<Decoded>> {
    match &capture.data {
        Data::Sampled(sampled) => decode_sampled(capture, sampled.as_ref(), specs, options, wires, sink, progress),
        Data::Changes(changes) => decode_changes(capture, changes.as_ref(), specs, options, sink, progress),
    }
}

fn decode_sampled<S: Sink>(
    capture: &Capture,
    sampled: &dyn Sampled,
    specs: &[BusSpec],
    options: &Options,
    wires: &mut [WireScan],
    sink: &mut S,
    progress: &mut dyn FnMut(f64) -> bool,
) -> Result<Vec<Decoded>> {
    let (time, tables) = layouts(capture, sampled, specs, options)?;
    let buses = buses(tables, options, sink)?;
    let clk = |spec: &BusSpec| {
        let clk = spec.line("CLK")?;
        Ok(Bit::new(sampled.bits()[clk.channel], clk.active_low))
    };
    let recovers = options.recover_clock && options.clock_mhz.is_none();
    let how = How {
        threads: options.threads,
        looks_back: options.rules.is_some(),
        until: options.until,
        recovered: recovers.then(|| specs.iter().map(clk).collect::<Result<_>>()).transpose()?,
    };
    let mut taker = Taker { tracks: buses.iter().map(|bus| bus.track()).collect(), sink };
    let end = pipeline::decode(sampled, &buses, &how, wires, &mut taker, progress)?;
    let unit = sampled.unit_size() as u64;
    let samples = end.bytes / unit;
    let Taker { tracks, sink } = taker;
    let mut results = Vec::new();
    for (mut track, mut decoder) in tracks.into_iter().zip(end.decoders) {
        decoder.finish();
        track.drain(&mut decoder, sink)?;
        track.absorb(decoder);
        if !end.bytes.is_multiple_of(unit) {
            track.ends_within_a_sample(samples, sink)?;
        }
        results.push(track.result(sink, options, time.us(samples), &capture.path)?);
    }
    Ok(results)
}

fn decode_changes<S: Sink>(
    capture: &Capture,
    changes: &dyn Changes,
    specs: &[BusSpec],
    options: &Options,
    sink: &mut S,
    progress: &mut dyn FnMut(f64) -> bool,
) -> Result<Vec<Decoded>> {
    if options.clock_mhz.is_some() || options.recover_clock {
        return Err(Error::Decode(format!(
            "{}: a file of changes has no samples; decode it without a stated or recovered clock",
            capture.path.display()
        )));
    }
    let time = TimeBase::ticks(changes.tick());
    let mut packings = Vec::new();
    let mut tables = Vec::new();
    for (index, spec) in specs.iter().enumerate() {
        let (packing, layout) = packed(spec)?;
        packings.push(packing);
        tables.push(BusTables { name: spec.name.clone(), index, layout, time });
    }
    let buses = buses(tables, options, sink)?;
    let mut results = Vec::new();
    for (index, (packing, bus)) in packings.into_iter().zip(&buses).enumerate() {
        let mut track = bus.track();
        let decoder = bus.decoder(0, None);
        let mut decoder = records::decode(changes, packing, options.until, decoder, |decoder, done| {
            let share = (index as f64 + done) / specs.len() as f64;
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
