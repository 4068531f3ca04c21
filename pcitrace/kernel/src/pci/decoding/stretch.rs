//! PCI buses of a capture that is decoded in stretches: see [`crate::pipeline::stretch`].

use crate::capture::{Capture, Data, Sampled};
use crate::error::{Error, Result};
use crate::pci::decoding::bus::{Taker, buses, layouts};
use crate::pci::decoding::memory::MemorySink;
use crate::pci::decoding::{Decoded, Left, Options, Sink};
use crate::pci::layout::BusSpec;
use crate::pci::tables::Wanted;
use crate::pipeline::stretch::{self, Span};
use crate::wire::WireScan;

/// Decodes the buses of a stretch, and reads the frames on `wires`; what it leaves of each bus besides its rows.
pub fn decode<S: Sink>(
    capture: &Capture,
    specs: &[BusSpec],
    options: &Options,
    span: Span,
    sink: &mut S,
    wires: &mut [WireScan],
) -> Result<Vec<Left>> {
    let sampled = sampled(capture)?;
    let (_, tables) = layouts(capture, sampled, specs, options)?;
    let buses = buses(tables, options, sink)?;
    let mut taker = Taker { tracks: buses.iter().map(|bus| bus.track()).collect(), sink };
    stretch::decode(sampled, &buses, span, wires, &mut taker)?;
    let Taker { tracks, sink } = taker;
    tracks
        .into_iter()
        .enumerate()
        .map(|(bus, track)| {
            sink.reached(bus, u64::MAX)?;
            Ok(track.left())
        })
        .collect()
}

/// What is left of each bus when its stretches, in order, are put together.
pub fn join(
    capture: &Capture,
    specs: &[BusSpec],
    options: &Options,
    stretches: Vec<Vec<Left>>,
) -> Result<Vec<Decoded>> {
    let sampled = sampled(capture)?;
    let (time, tables) = layouts(capture, sampled, specs, options)?;
    let mut sink = MemorySink::new(&Wanted { columns: Some(Vec::new()), coded: true })?;
    let mut tracks: Vec<_> = buses(tables, options, &mut sink)?.iter().map(|bus| bus.track()).collect();
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
