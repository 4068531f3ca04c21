//! The samples of a capture through the decoders of its buses, on several threads where chunks allow that, with the same rows
//! however they are cut.
//!
//! What is decoded a protocol says: a [`Bus`] makes a [`Decoder`], whose rows a [`Gather`] gathers on any thread, and
//! [`Take`] takes them in order.

pub mod cut;
pub mod records;
mod recover;
pub mod stretch;
#[cfg(test)]
mod strobe;

use crate::capture::{Chunk, Sampled, Signal};
use crate::error::{Error, Result};
use crate::in_order::in_order;
use crate::lane::Page;
use crate::pipeline::cut::{Cut, Rest, SyncPoints};
use crate::pipeline::recover::Recovery;
use crate::samples::bits::Bit;
use crate::samples::places::Source;
use crate::wire::{WireCut, WireScan};
use std::collections::BTreeMap;

/// One bus of a capture, as its protocol decodes it.
pub trait Bus: Sync {
    type Decoder: Decoder;
    type Rows: Gather<Self::Decoder>;
    fn name(&self) -> &str;
    /// Where a decoder may start knowing nothing.
    fn sync_points(&self) -> &SyncPoints;
    /// A decoder from sample number `first` on. It starts behind a sync point where the sample of that clock is given, else it
    /// knows nothing of what came before.
    fn decoder(&self, first: u64, clock: Option<&[u8]>) -> Self::Decoder;
    /// None yet, to gather rows in.
    fn rows(&self) -> Self::Rows;
}

/// Decodes the samples of one bus.
pub trait Decoder: Send {
    /// The next bytes of the capture, in pieces of any size.
    fn push(&mut self, bytes: &[u8]);
    /// Whole samples, each of which is a clock and has a stamp.
    fn push_stamped(&mut self, bytes: &[u8], stamps: &[u64]);
    /// Nothing is known between the samples so far and the next ones.
    fn gap(&mut self);
    /// It was given the bytes up to a sync point and ends there; `next` is the sample of the clock after it.
    fn end_at_sync_point(&mut self, next: &[u8]);
    /// The capture is over.
    fn finish(&mut self);
    /// The next changes of CLK, of a capture of changes: before the samples of these clocks.
    fn watch_clock(&mut self, _changes: &Signal, _clk: Source, _gaps: &[(u64, u64)]) {}
}

/// Gathers the rows of a decoder.
pub trait Gather<D>: Clone + Send + Sync {
    /// Has the next bytes decoded, and takes the rows as they are complete.
    fn decode(&mut self, decoder: &mut D, bytes: &[u8]);
    /// Takes the rows that are complete.
    fn take(&mut self, decoder: &mut D);
    /// Nobody asks for them before the capture is over: more of the same decoder may be gathered with them.
    fn may_wait(&self) -> bool {
        false
    }
    /// How many there are, of each kind.
    fn counts(&self) -> Vec<usize> {
        Vec::new()
    }
    /// Makes room for about so many.
    fn reserve(&mut self, _counts: &[usize]) {}
    /// The rows may go to what is left of this page, where they go to pages.
    fn lend(&mut self, _page: Page) {}
    /// What is left of it now.
    fn give_back(&mut self) -> Page {
        Page::default()
    }
}

/// Takes what the decoders of all buses find, in order.
pub trait Take<B: Bus> {
    /// Rows of a bus; what else its decoder has found is still there.
    fn rows(&mut self, bus: usize, decoder: &mut B::Decoder, rows: B::Rows) -> Result<()>;
    /// A decoder came to its end, and another one goes on.
    fn over(&mut self, bus: usize, decoder: B::Decoder);

    /// The rows that a decoder has ready.
    fn ready(&mut self, number: usize, bus: &B, decoder: &mut B::Decoder) -> Result<()> {
        let mut rows = bus.rows();
        rows.take(decoder);
        self.rows(number, decoder, rows)
    }
}

/// How the samples of a capture are decoded.
#[derive(Default)]
pub struct How {
    /// 0 for as many as the machine runs at once.
    pub threads: usize,
    /// Decoders look back further than one that starts at a sync point could: each bus has one for all samples.
    pub looks_back: bool,
    /// Go no further than about this stamp: chunks that begin behind it are left out, and what of a chunk lies behind it where
    /// decoders look back.
    pub until: Option<u64>,
    /// CLK of each bus, where clocks are recovered from it.
    pub recovered: Option<Vec<Bit>>,
}

/// Where the samples end.
pub struct End<B: Bus> {
    /// The last one of each bus, which is not finished.
    pub decoders: Vec<B::Decoder>,
    /// So many were decoded.
    pub bytes: u64,
}

/// Decodes all samples, of all buses and wires in one pass. `progress` gets the share that is done and says whether to go on.
pub fn decode<B: Bus, T: Take<B>>(
    sampled: &dyn Sampled,
    buses: &[B],
    how: &How,
    wires: &mut [WireScan],
    taker: &mut T,
    progress: &mut dyn FnMut(f64) -> bool,
) -> Result<End<B>> {
    let unit = sampled.unit_size();
    let end_byte = how.until.map_or(u64::MAX, |stamp| stamp.saturating_add(1).saturating_mul(unit as u64));
    let chunks = sampled.chunks().take_while(|chunk| chunk.as_ref().map_or(true, |chunk| chunk.offset < end_byte));
    let threads = match how.threads {
        0 => std::thread::available_parallelism().map_or(1, |n| n.get()),
        given => given,
    };
    let decoders = buses.iter().map(|bus| bus.decoder(0, None)).collect();
    let waiting = buses.iter().map(|_| None).collect();
    let mut run = Run { buses, decoders, waiting, wires, taker, progress, total: sampled.total_bytes(), bytes: 0 };
    if let Some(clks) = &how.recovered {
        run.recover(chunks, clks, unit)?;
    } else if threads == 1 {
        let mut own = Own::default();
        for chunk in chunks {
            let mut buffer = std::mem::take(&mut own.buffer);
            let bytes = chunk?.bytes(&mut buffer)?;
            run.push(&bytes, &mut own)?;
            run.went(&bytes)?;
            own.buffer = buffer;
        }
        run.no_longer_wait()?;
    } else if how.looks_back {
        run.in_turn(chunks, threads, end_byte)?;
    } else {
        run.in_cuts(chunks, threads)?;
    }
    Ok(End { decoders: run.decoders, bytes: run.bytes })
}

/// The first chunk is decoded in pieces of so many bytes, where all go through one decoder: who waits for the first rows gets
/// them at once.
const FIRST: usize = 1 << 18;

/// The decoders on their way through a capture.
struct Run<'a, B: Bus, T> {
    buses: &'a [B],
    decoders: Vec<B::Decoder>,
    /// Rows of each bus that wait for more.
    waiting: Vec<Option<B::Rows>>,
    wires: &'a mut [WireScan],
    taker: &'a mut T,
    progress: &'a mut dyn FnMut(f64) -> bool,
    /// How many bytes the capture has, where that is known, and how many were decoded.
    total: Option<u64>,
    bytes: u64,
}

impl<B: Bus, T: Take<B>> Run<'_, B, T> {
    /// Gives the next bytes to all decoders.
    fn push(&mut self, bytes: &[u8], own: &mut Own) -> Result<()> {
        for ((number, bus), decoder) in self.buses.iter().enumerate().zip(&mut self.decoders) {
            let mut rows = self.waiting[number].take().unwrap_or_else(|| own.begin(number, bus));
            rows.decode(decoder, bytes);
            if rows.may_wait() {
                self.waiting[number] = Some(rows);
            } else {
                own.end(number, &mut rows);
                self.taker.rows(number, decoder, rows)?;
            }
        }
        Ok(())
    }

    /// Passes on the rows that waited for more.
    fn no_longer_wait(&mut self) -> Result<()> {
        for ((number, rows), decoder) in self.waiting.iter_mut().enumerate().zip(&mut self.decoders) {
            if let Some(rows) = rows.take() {
                self.taker.rows(number, decoder, rows)?;
            }
        }
        Ok(())
    }

    /// These bytes went through the decoders: the wires, too.
    fn went(&mut self, bytes: &[u8]) -> Result<()> {
        self.wires.iter_mut().try_for_each(|wire| wire.push(bytes))?;
        self.step(bytes.len())
    }

    fn step(&mut self, length: usize) -> Result<()> {
        self.bytes += length as u64;
        let share = self.total.map_or(0.0, |total| self.bytes as f64 / total.max(1) as f64);
        if (self.progress)(share) { Ok(()) } else { Err(Error::Interrupted) }
    }

    /// Clocks are recovered, and given to the decoders one by one.
    fn recover<'c>(
        &mut self,
        chunks: impl Iterator<Item = Result<Chunk<'c>>>,
        clks: &[Bit],
        unit: usize,
    ) -> Result<()> {
        let mut recoveries: Vec<_> = clks.iter().map(|&clk| Recovery::new(clk, unit)).collect();
        let mut buffer = Vec::new();
        for chunk in chunks {
            let bytes = chunk?.bytes(&mut buffer)?;
            let all = self.buses.iter().enumerate().zip(&mut self.decoders).zip(&mut recoveries);
            for (((number, bus), decoder), recovery) in all {
                recovery.push(&bytes, decoder);
                self.taker.ready(number, bus, decoder)?;
            }
            self.went(&bytes)?;
        }
        for ((bus, decoder), recovery) in self.buses.iter().zip(&mut self.decoders).zip(&mut recoveries) {
            recovery.finish(decoder).map_err(|why| Error::Decode(format!("bus {}: {why}", bus.name())))?;
        }
        Ok(())
    }

    /// Chunks are loaded on other threads, and decoded on this one.
    fn in_turn<'c>(
        &mut self,
        chunks: impl Iterator<Item = Result<Chunk<'c>>> + Send,
        threads: usize,
        end_byte: u64,
    ) -> Result<()> {
        let load = |chunk: Chunk, _: &mut ()| {
            let wanted = usize::try_from(end_byte.saturating_sub(chunk.offset)).unwrap_or(usize::MAX);
            let mut bytes = chunk.bytes(&mut Vec::new())?.into_owned();
            bytes.truncate(wanted);
            Ok(bytes)
        };
        let mut own = Own::default();
        let mut most = FIRST;
        in_order(chunks, threads, load, |bytes: Vec<u8>| {
            for piece in bytes.chunks(most) {
                self.push(piece, &mut own)?;
            }
            most = usize::MAX;
            self.went(&bytes)
        })?;
        self.no_longer_wait()
    }

    /// Chunks are decoded on all threads, each from its first sync point on.
    fn in_cuts<'c>(&mut self, chunks: impl Iterator<Item = Result<Chunk<'c>>> + Send, threads: usize) -> Result<()> {
        let buses = self.buses;
        let wires: Vec<_> = self.wires.iter().map(WireScan::fresh).collect();
        let cut = |chunk: Chunk, own: &mut Own| -> Result<Piece<B>> {
            let offset = chunk.offset;
            let mut buffer = std::mem::take(&mut own.buffer);
            let bytes = chunk.bytes(&mut buffer)?;
            let cuts = buses.iter().enumerate().map(|(number, bus)| {
                Cut::of(bus, offset, &bytes, |decoder, behind| own.gather(number, bus, decoder, behind))
            });
            let (cuts, length) = (cuts.collect(), bytes.len());
            let wires = wires.iter().map(|wire| wire.fresh().cut(offset, &bytes)).collect::<Result<_>>()?;
            own.buffer = buffer;
            Ok(Piece { length, wires, cuts })
        };
        in_order(chunks, threads, cut, |Piece { length, wires, cuts }| {
            self.wires.iter_mut().zip(wires).try_for_each(|(wire, cut)| wire.go_on(cut))?;
            for (((number, bus), decoder), cut) in buses.iter().enumerate().zip(&mut self.decoders).zip(cuts) {
                decoder.push(&cut.head);
                let Some(Rest { next, decoder: behind, rows }) = cut.rest else {
                    self.taker.ready(number, bus, decoder)?;
                    continue;
                };
                decoder.end_at_sync_point(&next);
                self.taker.ready(number, bus, decoder)?;
                self.taker.over(number, std::mem::replace(decoder, behind));
                self.taker.rows(number, decoder, rows)?;
            }
            self.step(length)
        })
    }
}

/// What a thread uses again from one chunk to the next.
#[derive(Default)]
struct Own {
    buffer: Vec<u8>,
    /// Rows of each bus in the last chunk.
    counts: BTreeMap<usize, Vec<usize>>,
    page: Page,
}

impl Own {
    /// The rows of a bus in these bytes.
    fn gather<B: Bus>(&mut self, number: usize, bus: &B, decoder: &mut B::Decoder, bytes: &[u8]) -> B::Rows {
        let mut rows = self.begin(number, bus);
        rows.decode(decoder, bytes);
        self.end(number, &mut rows);
        rows
    }

    /// To gather rows of a bus in. There is room for an eighth more than in the last chunk.
    fn begin<B: Bus>(&mut self, number: usize, bus: &B) -> B::Rows {
        let mut rows = bus.rows();
        let more = |&count: &usize| if count > 0 { count + count / 8 + 64 } else { 0 };
        let counts: Vec<_> = self.counts.get(&number).into_iter().flatten().map(more).collect();
        rows.reserve(&counts);
        rows.lend(std::mem::take(&mut self.page).kept());
        rows
    }

    /// No more are gathered.
    fn end<D>(&mut self, number: usize, rows: &mut impl Gather<D>) {
        self.counts.insert(number, rows.counts());
        self.page = rows.give_back();
    }
}

/// A chunk that was decoded on its own.
struct Piece<B: Bus> {
    length: usize,
    /// One a wire.
    wires: Vec<WireCut>,
    /// One a bus.
    cuts: Vec<Cut<B>>,
}
