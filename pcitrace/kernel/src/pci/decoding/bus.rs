//! A PCI bus of a capture, as it is decoded.

use crate::capture::{Capture, Sampled};
use crate::error::{Error, Result};
use crate::pci::clocking::Decoder;
use crate::pci::decoding::track::Track;
use crate::pci::decoding::{Options, Sink};
use crate::pci::layout::{BusSpec, BusTables, Layout};
use crate::pci::protocol::Protocol;
use crate::pci::windows::Windows;
use crate::pipeline::cut::SyncPoints;
use crate::pipeline::{Bus, Gather, Take};
use crate::samples::places::Source;
use crate::time::TimeBase;

/// A bus of which decoders are made.
pub(super) struct PciBus<'a, G> {
    tables: BusTables,
    sync_points: SyncPoints,
    options: &'a Options,
    windows: Windows,
    /// To gather rows in.
    empty: G,
}

impl<G: Gather<Decoder>> PciBus<'_, G> {
    /// What goes on over all its decoders.
    pub fn track(&self) -> Track<G> {
        Track::new(self.tables.clone(), self.empty.clone(), self.options)
    }
}

impl<G: Gather<Decoder>> Bus for PciBus<'_, G> {
    type Decoder = Decoder;
    type Rows = G;

    fn name(&self) -> &str {
        &self.tables.name
    }

    fn sync_points(&self) -> &SyncPoints {
        &self.sync_points
    }

    fn decoder(&self, first: u64, clock: Option<&[u8]>) -> Decoder {
        let Options { data_phases, events, portable, .. } = *self.options;
        let BusTables { index, ref layout, time, .. } = self.tables;
        let rules = self.options.judge(index, layout, time);
        let decoder = match clock {
            Some(clock) => Decoder::in_step(layout.clone(), data_phases, self.windows, first, portable, clock),
            None => Decoder::new(layout.clone(), data_phases, self.windows, first, portable),
        };
        decoder.noting_events(events).judged_by(rules)
    }

    fn rows(&self) -> G {
        self.empty.clone()
    }
}

/// Gives what the decoders find to a sink.
pub(super) struct Taker<'a, S: Sink> {
    pub tracks: Vec<Track<S::Gathered>>,
    pub sink: &'a mut S,
}

impl<S: Sink> Take<PciBus<'_, S::Gathered>> for Taker<'_, S> {
    fn rows(&mut self, bus: usize, decoder: &mut Decoder, rows: S::Gathered) -> Result<()> {
        self.tracks[bus].pass_on(decoder, rows, self.sink)
    }

    fn over(&mut self, bus: usize, decoder: Decoder) {
        self.tracks[bus].absorb(decoder);
    }
}

/// The buses whose tables are these, once a sink has begun with them.
pub(super) fn buses<'a, S: Sink>(
    tables: Vec<BusTables>,
    options: &'a Options,
    sink: &mut S,
) -> Result<Vec<PciBus<'a, S::Gathered>>> {
    let windows = tables.iter().map(|bus| windows_of(options, bus.time)).collect::<Result<Vec<_>>>()?;
    let empty = sink.begin(&tables)?;
    let bus = |((tables, windows), empty): ((BusTables, Windows), S::Gathered)| {
        let (unit, clk) = (tables.layout.unit, tables.layout.clk);
        let sync_points = SyncPoints { unit, clk, idle: Protocol::idle_levels(&tables.layout) };
        PciBus { tables, sync_points, options, windows, empty }
    };
    Ok(tables.into_iter().zip(windows).zip(empty).map(bus).collect())
}

/// The axis of a sampled capture, and where the lines of buses are in its samples.
pub(super) fn layouts(
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

fn windows_of(options: &Options, time: TimeBase) -> Result<Windows> {
    match options.window_us {
        None => Ok(Windows::WHOLE),
        Some(us) if us > 0.0 && time.stamps(us) >= 1.0 => Ok(Windows { length: time.stamps(us) }),
        Some(us) => Err(Error::Decode(format!("a window of {us} us is shorter than one sample; give a longer one"))),
    }
}
