//! A sampled capture in stretches, each of which any process can decode: from the first sync point of a bus in one stretch of
//! chunks to the first in the next. Put together they are the whole.

use crate::capture::{Capture, Data, Sampled};
use crate::error::Result;
use crate::interrupt;
use crate::pipeline::cut::Split;
use crate::pipeline::{Bus, Decoder, Gather, Take};
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

enum State<D> {
    /// For the first sync point.
    Waits,
    Decodes(Box<D>),
    Ended,
}

/// One bus in one stretch.
struct Part<'a, B: Bus> {
    number: usize,
    bus: &'a B,
    state: State<B::Decoder>,
}

impl<B: Bus> Part<'_, B> {
    fn begin(&mut self, first: u64, clock: Option<&[u8]>) {
        self.state = State::Decodes(Box::new(self.bus.decoder(first, clock)));
    }

    /// The next chunk of the stretch.
    fn push(&mut self, offset: u64, bytes: &[u8], taker: &mut impl Take<B>) -> Result<()> {
        let mut bytes = bytes;
        if let State::Waits = self.state {
            let Some(split) = Split::of(self.bus.sync_points(), offset, bytes) else { return Ok(()) };
            self.begin(split.first, Some(split.clock));
            bytes = split.behind;
        }
        let State::Decodes(decoder) = &mut self.state else { return Ok(()) };
        let mut rows = self.bus.rows();
        rows.decode(decoder, bytes);
        taker.rows(self.number, decoder, rows)
    }

    /// A chunk of the stretch behind.
    fn push_to_sync(&mut self, offset: u64, bytes: &[u8], taker: &mut impl Take<B>) -> Result<()> {
        let State::Decodes(decoder) = &mut self.state else { return Ok(()) };
        let split = Split::of(self.bus.sync_points(), offset, bytes);
        decoder.push(split.as_ref().map_or(bytes, |split| split.head));
        if let Some(split) = split {
            decoder.end_at_sync_point(split.next);
            return self.end(taker);
        }
        taker.ready(self.number, self.bus, decoder)
    }

    fn end(&mut self, taker: &mut impl Take<B>) -> Result<()> {
        if let State::Decodes(mut decoder) = std::mem::replace(&mut self.state, State::Ended) {
            taker.ready(self.number, self.bus, &mut decoder)?;
            taker.over(self.number, *decoder);
        }
        Ok(())
    }

    /// The capture is over.
    fn finish(mut self, taker: &mut impl Take<B>) -> Result<()> {
        if let State::Decodes(decoder) = &mut self.state {
            decoder.finish();
        }
        self.end(taker)
    }
}

/// Decodes the buses of a stretch, and reads the frames on `wires`. What is under way where it begins is left to the stretch
/// before, and what is where it ends is gone on with.
pub fn decode<B: Bus>(
    sampled: &dyn Sampled,
    buses: &[B],
    span: Span,
    wires: &mut [WireScan],
    taker: &mut impl Take<B>,
) -> Result<()> {
    let part = |(number, bus)| Part { number, bus, state: State::Waits };
    let mut parts: Vec<_> = buses.iter().enumerate().map(part).collect();
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
            parts.iter_mut().try_for_each(|part| part.push_to_sync(offset, &bytes, taker))?;
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
                parts.iter_mut().for_each(|part| part.begin(0, None));
            }
            let skip = before_sample(offset, unit);
            under_way.iter_mut().for_each(|wire| wire.begin_at((offset + skip as u64) / unit as u64));
            inside = inside.get(skip..).unwrap_or_default();
        }
        parts.iter_mut().try_for_each(|part| part.push(offset, &bytes, taker))?;
        under_way.iter_mut().try_for_each(|wire| wire.push(inside))?;
    }
    parts.into_iter().try_for_each(|part| part.finish(taker))
}
