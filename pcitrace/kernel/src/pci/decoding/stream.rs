//! Samples that come while the bus runs: fed piece by piece, tables given out as soon as their rows are complete.

use crate::capture::MAX_UNIT;
use crate::error::{Error, Result};
use crate::pci::clocking::Decoder;
use crate::pci::decoding::bus::buses;
use crate::pci::decoding::memory::{MemorySink, Sheets};
use crate::pci::decoding::track::Track;
use crate::pci::decoding::{Options, Sink};
use crate::pci::layout::{BusSpec, BusTables, Layout};
use crate::pci::problems::Problem;
use crate::pci::rows::WindowCounts;
use crate::pci::rules::Findings;
use crate::pci::tables::{self, Wanted};
use crate::pipeline::{Bus, Decoder as _};
use crate::time::TimeBase;
use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use arrow_select::concat::concat_batches;
use std::path::Path;

/// The decoders of some buses in samples of `unit` bytes.
pub struct Stream {
    unit: usize,
    options: Options,
    buses: Vec<BusTables>,
    sink: MemorySink,
    tracks: Vec<Track<Sheets>>,
    decoders: Vec<Decoder>,
    /// Samples that a gap is known to have swallowed.
    skipped: u64,
    fed: u64,
}

/// Rows that are complete, of all buses; each table is whole by itself.
pub struct Found {
    pub transactions: RecordBatch,
    pub data_phases: RecordBatch,
    pub problems: RecordBatch,
    pub clocks: RecordBatch,
    pub events: RecordBatch,
}

impl Stream {
    /// Channel `k` is bit `k` of a sample. Of the options a rate, or the frequency of the clock, has to be there.
    pub fn new(unit: usize, specs: &[BusSpec], options: Options, wanted: &Wanted) -> Result<Self> {
        let rate = options.clock_mhz.map(|mhz| mhz * 1e6).or(options.rate_hz);
        let rate = rate.ok_or_else(|| {
            Error::Decode(
                "a stream needs the rate of its samples, or the frequency of the clock that takes them".into(),
            )
        })?;
        let time = TimeBase::per_second(rate)?;
        if !(1..=MAX_UNIT).contains(&unit) || specs.is_empty() {
            return Err(Error::Decode(format!("a stream needs a bus, in samples of 1 to {MAX_UNIT} bytes")));
        }
        let inside = |spec: &BusSpec| spec.lines.values().all(|source| source.channel < 8 * unit);
        if let Some(spec) = specs.iter().find(|spec| !inside(spec)) {
            return Err(Error::Decode(format!("bus {}: a line is beyond samples of {unit} bytes", spec.name)));
        }
        let tables = |(index, spec): (usize, &BusSpec)| {
            let layout = Layout::new(spec, unit, options.clock_mhz.is_some(), |source| source.channel)?;
            Ok(BusTables { name: spec.name.clone(), index, layout, time })
        };
        let tables = specs.iter().enumerate().map(tables).collect::<Result<Vec<_>>>()?;
        let mut sink = MemorySink::new(wanted)?;
        let options = Options { events: true, ..options };
        let buses = buses(tables.clone(), &options, &mut sink)?;
        Ok(Stream {
            unit,
            tracks: buses.iter().map(|bus| bus.track()).collect(),
            sink,
            decoders: buses.iter().map(|bus| bus.decoder(0, None)).collect(),
            buses: tables,
            options,
            skipped: 0,
            fed: 0,
        })
    }

    /// The next bytes; they may end within a sample.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<Found> {
        self.fed += bytes.len() as u64;
        self.decoders.iter_mut().for_each(|decoder| decoder.push(bytes));
        self.found()
    }

    /// Samples are missing before the next bytes, which begin with a whole one: so many, if that is known.
    pub fn gap(&mut self, samples: u64) -> Result<Found> {
        self.fed -= self.fed % self.unit as u64;
        self.skipped += samples;
        for decoder in &mut self.decoders {
            decoder.gap();
            decoder.skip(samples);
        }
        self.found()
    }

    /// How the rules were kept so far; empty where none were asked for.
    pub fn judged(&self) -> Vec<Judged> {
        self.buses.iter().zip(&self.decoders).filter_map(|(bus, decoder)| judged(bus, decoder)).collect()
    }

    /// How often so far; as `judged`, without the places.
    pub fn counted(&self) -> impl Iterator<Item = &Findings> {
        self.decoders.iter().filter_map(|decoder| Some(&decoder.rules.as_ref()?.findings))
    }

    /// What the decoders have finished.
    fn found(&mut self) -> Result<Found> {
        let (mut problems, mut clocks) = (Vec::new(), Vec::new());
        for (track, decoder) in self.tracks.iter_mut().zip(&mut self.decoders) {
            track.drain(decoder, &mut self.sink)?;
            problems.push(track.closed_problems(decoder));
            clocks.push(decoder.protocol.take_windows());
        }
        self.tables(&problems, &clocks, f64::INFINITY)
    }

    /// Nothing more comes: the rows that were not complete.
    pub fn finish(mut self) -> Result<(Found, Vec<Judged>)> {
        let samples = self.fed / self.unit as u64 + self.skipped;
        let duration_us = self.buses[0].time.us(samples);
        let (mut problems, mut clocks, mut told) = (Vec::new(), Vec::new(), Vec::new());
        let tracks = std::mem::take(&mut self.tracks);
        for (mut track, mut decoder) in tracks.into_iter().zip(std::mem::take(&mut self.decoders)) {
            decoder.finish();
            track.drain(&mut decoder, &mut self.sink)?;
            told.extend(judged(&track.bus, &decoder));
            track.absorb(decoder);
            if !self.fed.is_multiple_of(self.unit as u64) {
                track.ends_within_a_sample(samples, &mut self.sink)?;
            }
            let decoded = track.result(&mut self.sink, &self.options, duration_us, Path::new("stream"))?;
            problems.push(decoded.problems.in_order());
            clocks.push(decoded.windows);
        }
        Ok((self.tables(&problems, &clocks, duration_us)?, told))
    }

    fn tables(&mut self, problems: &[Vec<Problem>], clocks: &[WindowCounts], duration_us: f64) -> Result<Found> {
        let (mut transactions, mut data_phases, mut windows, mut events) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for (bus, counts) in self.buses.iter().zip(clocks) {
            // What there is of the bus is put together.
            self.sink.reached(bus.index, u64::MAX)?;
            let rows = &mut self.sink.buses[bus.index];
            transactions.push(rows.transactions.take());
            data_phases.push(rows.data_phases.take());
            events.push(rows.events.take());
            let clocks = tables::windows(bus, counts, self.options.window_us, duration_us);
            windows.push((clocks.schema(), vec![clocks]));
        }
        let problems = self.buses.iter().zip(problems).map(|(bus, rows)| (bus, rows.as_slice()));
        Ok(Found {
            transactions: joined(transactions),
            data_phases: joined(data_phases),
            problems: joined(vec![tables::problems(problems)]),
            clocks: joined(windows),
            events: joined(events),
        })
    }
}

/// Where rules were broken on a bus, and the counts.
pub type Judged = (RecordBatch, Findings);

fn judged(bus: &BusTables, decoder: &Decoder) -> Option<Judged> {
    let findings = &decoder.rules.as_ref()?.findings;
    Some((tables::violations(bus, Some(findings)), findings.clone()))
}

/// The tables of several buses, of which there is one at least, as one.
fn joined(tables: Vec<(SchemaRef, Vec<RecordBatch>)>) -> RecordBatch {
    let schema = tables[0].0.clone();
    let batches: Vec<RecordBatch> = tables.into_iter().flat_map(|(_, batches)| batches).collect();
    concat_batches(&schema, &batches).expect("batches of one schema")
}
