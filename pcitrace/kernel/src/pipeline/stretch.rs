//! A sampled capture in stretches, each of which any process can decode: from the first sync point of a bus in one stretch of
//! chunks to the first in the next. Put together they are the whole.

use crate::capture::{Capture, Data, Sampled};
use crate::error::{Error, Result};
use crate::interrupt;
use crate::pci::clocking::Decoder;
use crate::pci::decoding::memory::MemorySink;
use crate::pci::layout::BusSpec;
use crate::pci::tables::Wanted;
use crate::pci::windows::Windows;
use crate::pipeline::cut::Split;
use crate::pipeline::{Decoded, Gather, Left, Options, Sink, Track, layouts, windows_of};
use crate::wire::{WireScan, before_sample};

/// The chunks that begin at these bytes of a capture, from one to before another.
#[derive(Debug, Clone, Copy)]
pub struct Span {
    pub from: u64,
    pub to: u64,
}

/// Where to divide a capture into about `count` equal stretches: bytes at which chunks begin, without the first. None where
/// no chunk can be reached without reading those before it.
pub fn edges(capture: &Capture, count: u64) -> Vec<u64> {
    let Data::Sampled(sampled) = &capture.data else { return Vec::new() };
    let each = (sampled.total_bytes().unwrap_or(0) / count.max(1)).max(1);
    let mut last = 0;
    let far = |start: &u64| {
        let far = *start >= last + each;
        last = if far { *start } else { last };
        far
    };
    sampled.starts().into_iter().filter(far).collect()
}

enum State {
    /// For the first sync point.
    Waits,
    Decodes(Box<Decoder>),
    Ended,
}

/// One bus in one stretch.
struct Part<G> {
    track: Track<G>,
    state: State,
    windows: Windows,
}

impl<G: Gather> Part<G> {
    fn decoder(&self, options: &Options, first: u64, clock: Option<&[u8]>) -> Decoder {
        let (layout, windows) = (self.track.bus.layout.clone(), self.windows);
        match clock {
            Some(clock) => Decoder::in_step(layout, options.data_phases, windows, first, options.portable, clock),
            None => Decoder::new(layout, options.data_phases, windows, first, options.portable),
        }
    }

    /// The next chunk of the stretch.
    fn push(&mut self, options: &Options, offset: u64, bytes: &[u8], sink: &mut impl Sink<Gathered = G>) -> Result<()> {
        let mut bytes = bytes;
        if let State::Waits = self.state {
            let Some(split) = Split::of(&self.track.bus.layout, offset, bytes) else { return Ok(()) };
            self.state = State::Decodes(Box::new(self.decoder(options, split.first, Some(split.clock))));
            bytes = split.behind;
        }
        let State::Decodes(decoder) = &mut self.state else { return Ok(()) };
        let mut rows = self.track.empty();
        decoder.push_all(bytes, &mut rows);
        self.track.pass_on(decoder, rows, sink)
    }

    /// A chunk of the stretch behind.
    fn push_to_sync(&mut self, offset: u64, bytes: &[u8], sink: &mut impl Sink<Gathered = G>) -> Result<()> {
        let State::Decodes(decoder) = &mut self.state else { return Ok(()) };
        let split = Split::of(&self.track.bus.layout, offset, bytes);
        decoder.push(split.as_ref().map_or(bytes, |split| split.head));
        if let Some(split) = split {
            decoder.end_at_sync_point(split.next);
            return self.end(sink);
        }
        self.track.drain(decoder, sink)
    }

    fn end(&mut self, sink: &mut impl Sink<Gathered = G>) -> Result<()> {
        if let State::Decodes(mut decoder) = std::mem::replace(&mut self.state, State::Ended) {
            self.track.drain(&mut decoder, sink)?;
            self.track.absorb(*decoder);
        }
        Ok(())
    }

    /// The capture is over.
    fn finish(mut self, sink: &mut impl Sink<Gathered = G>) -> Result<Left> {
        if let State::Decodes(decoder) = &mut self.state {
            decoder.finish();
            self.end(sink)?;
        }
        sink.reached(self.track.bus.index, u64::MAX)?;
        Ok(self.track.left())
    }
}

/// Decodes the buses of a stretch, and reads the frames on `wires`. What is under way where it begins is left to the stretch
/// before, and what is where it ends is gone on with.
pub fn decode<S: Sink>(
    capture: &Capture,
    buses: &[BusSpec],
    options: &Options,
    span: Span,
    sink: &mut S,
    wires: &mut [WireScan],
) -> Result<Vec<Left>> {
    let sampled = sampled(capture)?;
    let (time, tables) = layouts(capture, sampled, buses, options)?;
    let windows = windows_of(options, time)?;
    let empty = sink.begin(&tables)?;
    let mut parts: Vec<_> = tables
        .into_iter()
        .zip(empty)
        .map(|(bus, empty)| Part { track: Track::new(bus, empty, options), state: State::Waits, windows })
        .collect();
    let unit = sampled.unit_size();
    let mut under_way: Vec<_> = wires.iter_mut().collect();
    let mut buffer = Vec::new();
    for chunk in sampled.chunks_from(span.from) {
        let chunk = chunk?;
        let offset = chunk.offset;
        interrupt::check()?;
        if offset >= span.to {
            parts
                .iter_mut()
                .filter(|part| matches!(part.state, State::Waits))
                .for_each(|part| part.state = State::Ended);
            under_way.retain(|wire| wire.is_in_step());
            if under_way.is_empty() && parts.iter().all(|part| matches!(part.state, State::Ended)) {
                break;
            }
        }
        let bytes = chunk.bytes(&mut buffer)?;
        if offset >= span.to {
            parts.iter_mut().try_for_each(|part| part.push_to_sync(offset, &bytes, sink))?;
            let mut left = Vec::new();
            for wire in under_way {
                if !wire.push_to_rest(offset, &bytes)? {
                    left.push(wire);
                }
            }
            under_way = left;
            continue;
        }
        let mut inside = bytes.as_ref();
        if offset == span.from {
            if offset == 0 {
                parts.iter_mut().for_each(|part| part.state = State::Decodes(Box::new(part.decoder(options, 0, None))));
            }
            let skip = before_sample(offset, unit);
            under_way.iter_mut().for_each(|wire| wire.begin_at((offset + skip as u64) / unit as u64));
            inside = inside.get(skip..).unwrap_or_default();
        }
        parts.iter_mut().try_for_each(|part| part.push(options, offset, &bytes, sink))?;
        under_way.iter_mut().try_for_each(|wire| wire.push(inside))?;
    }
    parts.into_iter().map(|part| part.finish(sink)).collect()
}

/// What is left of each bus when its stretches, in order, are put together.
pub fn join(
    capture: &Capture,
    buses: &[BusSpec],
    options: &Options,
    stretches: Vec<Vec<Left>>,
) -> Result<Vec<Decoded>> {
    let sampled = sampled(capture)?;
    let (time, tables) = layouts(capture, sampled, buses, options)?;
    let mut sink = MemorySink::new(&Wanted { columns: Some(Vec::new()), coded: true })?;
    let empty = sink.begin(&tables)?;
    let mut tracks: Vec<_> =
        tables.into_iter().zip(empty).map(|(bus, empty)| Track::new(bus, empty, options)).collect();
    for stretch in stretches {
        tracks.iter_mut().zip(stretch).for_each(|(track, left)| track.go_on(left));
    }
    let (bytes, unit) = (sampled.total_bytes().unwrap_or(0), sampled.unit_size() as u64);
    tracks
        .into_iter()
        .map(|mut track| {
            if bytes % unit != 0 {
                track.ends_within_a_sample(bytes / unit, &mut sink)?;
            }
            track.result(&mut sink, options, time.us(bytes / unit), &capture.path)
        })
        .collect()
}

fn sampled(capture: &Capture) -> Result<&dyn Sampled> {
    match &capture.data {
        Data::Sampled(sampled) => Ok(sampled.as_ref()),
        Data::Changes(_) => {
            Err(Error::Decode(format!("{}: a file of changes has no stretches", capture.path.display())))
        }
    }
}
