//! A second protocol beside PCI, as small as one can be: when a strobe was high, and in how many clocks. Cuts, threads,
//! stretches, captures of changes and tables are there for it as they are.

use crate::bus::{BusTables, Counted, Origin};
use crate::capture::{Changes, Chunk, Limb, Sampled, Signal};
use crate::columns::{Column, Columns, Context, Fill, Row, batch, cells, clock, column, fill};
use crate::error::Result;
use crate::pipeline::cut::SyncPoints;
use crate::pipeline::records::{self, Group, Packing};
use crate::pipeline::stretch::{self, Span};
use crate::pipeline::{self, Bus, Decoder, Gather, How, Take};
use crate::samples::bits::Bit;
use crate::samples::places::Source;
use crate::time::TimeBase;
use arrow_array::cast::AsArray;
use arrow_array::types::UInt64Type;
use proptest::prelude::*;
use std::slice::from_ref;
use std::sync::Arc;

/// The lines, in samples of one byte.
#[derive(Clone, Copy)]
struct Lines {
    clk: Bit,
    strobe: Bit,
}

/// A row: the strobe was high in so many clocks.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Pulse {
    clk: u64,
    stamp: u64,
    clocks: u64,
}

impl Row for Pulse {
    type Layout = Lines;
    type Few<'a> = &'a [Pulse];
    type Many = Vec<Pulse>;
}

impl Counted for Pulse {
    fn counted_from(self, origin: Origin) -> Self {
        Pulse { clk: self.clk + origin.clocks, ..self }
    }
}

const PULSES: &[Column<Pulse>] = &[
    column("bus", Fill::Same(|bus| &bus.name)),
    column("start_us", cells!(Float, |c, pulse| Some(c.us(pulse.stamp)))),
    clock("clk", cells!(Integer, |_, pulse| Some(pulse.clk))),
    column("clocks", cells!(Integer, |_, pulse| Some(pulse.clocks))),
];

struct Counter {
    lines: Lines,
    next_sample: u64,
    clk: u64,
    before: Option<u8>,
    open: Option<Pulse>,
    ready: Vec<Pulse>,
}

impl Counter {
    fn clock(&mut self, sample: u8, stamp: u64) {
        if self.lines.strobe.get(&[sample]) {
            let begins = Pulse { clk: self.clk, stamp, clocks: 0 };
            self.open.get_or_insert(begins).clocks += 1;
        } else {
            self.ready.extend(self.open.take());
        }
        self.clk += 1;
    }
}

impl Decoder for Counter {
    fn push(&mut self, bytes: &[u8]) {
        let clk = self.lines.clk;
        let is_high = |sample| clk.get(&[sample]);
        for &sample in bytes {
            let edge = self.before.replace(sample).filter(|&before| !is_high(before) && is_high(sample));
            edge.into_iter().for_each(|before| self.clock(before, self.next_sample));
            self.next_sample += 1;
        }
    }

    fn push_stamped(&mut self, bytes: &[u8], stamps: &[u64]) {
        let unit = bytes.len() / stamps.len().max(1);
        stamps.iter().enumerate().for_each(|(nth, &stamp)| self.clock(bytes[nth * unit], stamp));
    }

    fn gap(&mut self) {
        self.before = None;
        self.finish();
    }

    fn end_at_sync_point(&mut self, _next: &[u8]) {
        assert!(self.open.is_none());
    }

    fn finish(&mut self) {
        self.ready.extend(self.open.take());
    }
}

impl Gather<Counter> for Vec<Pulse> {
    fn decode(&mut self, decoder: &mut Counter, bytes: &[u8]) {
        decoder.push(bytes);
        self.take(decoder);
    }

    fn take(&mut self, decoder: &mut Counter) {
        self.append(&mut decoder.ready);
    }
}

struct Strobe {
    tables: BusTables<Lines>,
    sync_points: SyncPoints,
}

impl Bus for Strobe {
    type Decoder = Counter;
    type Rows = Vec<Pulse>;

    fn name(&self) -> &str {
        &self.tables.name
    }

    fn sync_points(&self) -> &SyncPoints {
        &self.sync_points
    }

    fn decoder(&self, first: u64, _clock: Option<&[u8]>) -> Counter {
        Counter { lines: self.tables.layout, next_sample: first, clk: 0, before: None, open: None, ready: Vec::new() }
    }

    fn rows(&self) -> Vec<Pulse> {
        Vec::new()
    }
}

/// Of the one bus there is.
#[derive(Default)]
struct Taken {
    pulses: Vec<Pulse>,
    origin: Origin,
}

impl Take<Strobe> for Taken {
    fn rows(&mut self, _bus: usize, _decoder: &mut Counter, rows: Vec<Pulse>) -> Result<()> {
        self.pulses.extend(rows.into_iter().map(|pulse| pulse.counted_from(self.origin)));
        Ok(())
    }

    fn over(&mut self, _bus: usize, decoder: Counter) {
        self.origin.clocks += decoder.clk;
    }
}

struct Samples(Vec<u8>, usize);

impl Sampled for Samples {
    fn unit_size(&self) -> usize {
        1
    }

    fn bits(&self) -> &[usize] {
        &[0, 1]
    }

    fn rate_hz(&self) -> Option<f64> {
        Some(1e8)
    }

    fn total_bytes(&self) -> Option<u64> {
        Some(self.0.len() as u64)
    }

    fn chunks(&self) -> Box<dyn Iterator<Item = Result<Chunk<'_>>> + Send + '_> {
        let chunks = self.0.chunks(self.1).enumerate();
        Box::new(chunks.map(|(nth, bytes)| Ok(Chunk::ready((nth * self.1) as u64, bytes))))
    }
}

/// The same as changes of two channels, which anybody would drive.
struct Changed(Vec<Signal>, u64);

impl Changed {
    fn of(samples: &[u8]) -> Self {
        let mut signals = vec![Signal::default(); 2];
        for (time, sample) in (0..).zip(samples) {
            (0..).zip(&mut signals).for_each(|(bit, signal)| signal.push(time, u64::from(sample >> bit & 1), 0, 0));
        }
        Changed(signals, samples.len() as u64)
    }
}

impl Changes for Changed {
    fn tick(&self) -> (u64, u64) {
        (1, 100_000_000)
    }

    fn end(&self) -> u64 {
        self.1
    }

    fn gaps(&self) -> &[(u64, u64)] {
        &[]
    }

    fn signals(&self, limbs: &[Limb]) -> Result<Vec<Signal>> {
        Ok(limbs.iter().map(|limb| self.0[limb.channel].clone()).collect())
    }
}

impl Group for () {
    fn is_pulled_up(self) -> bool {
        false
    }

    fn is_noted(self) -> bool {
        false
    }
}

fn strobe() -> Strobe {
    let layout = Lines { clk: Bit::new(0, false), strobe: Bit::new(1, false) };
    let sync_points = SyncPoints { unit: 1, clk: Some(layout.clk), idle: vec![(layout.strobe, false)] };
    let time = TimeBase::per_second(1e8).expect("a rate");
    Strobe { tables: BusTables { name: "strobe".into(), index: 0, layout, time }, sync_points }
}

fn decoded(bus: &Strobe, samples: &Samples, threads: usize) -> Vec<Pulse> {
    let (mut taken, how) = (Taken::default(), How { threads, ..How::default() });
    let end = pipeline::decode(samples, from_ref(bus), &how, &mut [], &mut taken, &mut |_| true);
    for mut decoder in end.expect("samples that can be decoded").decoders {
        decoder.finish();
        taken.ready(0, bus, &mut decoder).expect("nothing that fails");
    }
    taken.pulses
}

/// In two stretches, of which the second one begins at the first chunk from a byte on.
fn in_stretches(bus: &Strobe, samples: &Samples, from: usize) -> Vec<Pulse> {
    let (mut taken, middle) = (Taken::default(), from.next_multiple_of(samples.1) as u64);
    for span in [Span { from: 0, to: middle }, Span { from: middle, to: u64::MAX }] {
        stretch::decode(samples, from_ref(bus), span, &mut [], &mut taken).expect("a stretch");
    }
    taken.pulses
}

/// Of the changes of its lines.
fn of_changes(changed: &Changed) -> Vec<Pulse> {
    let line = |channel| Source { channel, bit: 0, active_low: false };
    let packing = Packing::new(line(0), vec![(line(1), ())]);
    let mut bus = strobe();
    bus.tables.layout.strobe = Bit::new(packing.place(line(1)), false);
    let (mut pulses, decoder) = (bus.rows(), bus.decoder(0, None));
    let batch = |decoder: &mut Counter, _| {
        pulses.take(decoder);
        Ok(())
    };
    records::decode(changed, packing, None, decoder, batch).expect("changes that can be decoded");
    pulses
}

proptest! {
    /// The rows are the same however the samples are cut.
    #[test]
    fn pulses_are_found_wherever_cuts_are(
        samples in proptest::collection::vec(0u8..4, 2..400),
        chunk in 1usize..90,
        from in 1usize..400,
    ) {
        let bus = strobe();
        let whole = Samples(samples.clone(), samples.len());
        let cut = Samples(samples, chunk);
        let pulses = decoded(&bus, &whole, 1);
        prop_assert_eq!(&decoded(&bus, &cut, 1), &pulses);
        prop_assert_eq!(&decoded(&bus, &cut, 2), &pulses);
        prop_assert_eq!(&in_stretches(&bus, &cut, from), &pulses);
        prop_assert_eq!(&of_changes(&Changed::of(&whole.0)), &pulses);
        let part = (Context { bus: &bus.tables, number: 0 }, pulses.as_slice());
        let table = batch(&Arc::new(Columns::all(PULSES)), from_ref(&bus.tables), &[part]);
        let clks: Vec<_> = pulses.iter().map(|pulse| pulse.clk).collect();
        prop_assert_eq!(table["clk"].as_primitive::<UInt64Type>().values(), &clks[..]);
    }
}

#[test]
fn a_strobe_is_high_in_two_clocks_and_in_one() {
    let pulses = decoded(&strobe(), &Samples(vec![0, 1, 2, 3, 2, 3, 0, 1, 2, 3, 0, 1], 3), 2);
    let [first, second] = [Pulse { clk: 1, stamp: 3, clocks: 2 }, Pulse { clk: 4, stamp: 9, clocks: 1 }];
    assert_eq!(pulses, [first, second]);
}
