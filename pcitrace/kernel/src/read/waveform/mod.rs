//! FST (GTKWave) and GHW (GHDL), plain or gzipped, through the wellen crate.
//!
//! wellen trusts its input, so three things stand around it: sizes that a damaged file declares are checked before it
//! allocates them (`fst`, `ghw`), a panic within it becomes an error (`guard`), and it runs on the calling thread only.

mod fst;
mod ghw;
mod guard;

use super::text::Text;
use crate::capture::{Capture, Changes, Channel, Data, Signal};
use crate::error::{Error, Result};
use guard::guarded;
use std::collections::HashMap;
use std::io::{Cursor, Read};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use wellen::{Hierarchy, LoadOptions, SignalEncoding, SignalRef, SignalSource, SignalValueRef, viewers};

pub use fst::is_fst;
pub use ghw::is_ghw;

/// A gzipped file may inflate to this much.
const MAX_BYTES: u64 = 1 << 30;

struct Waveform {
    path: PathBuf,
    hierarchy: Hierarchy,
    source: Mutex<SignalSource>,
    /// Signal of each channel.
    signals: Vec<SignalRef>,
    times: Vec<u64>,
    tick: (u64, u64),
    gaps: Vec<(u64, u64)>,
}

pub fn open(text: Text) -> Result<Capture> {
    let path = text.path().to_owned();
    let bytes = read_all(&text)?;
    let (format, gaps) = if is_ghw(&bytes) {
        ghw::check(&bytes).map_err(|w| text.wrong_at(w.at as u64, w.what))?;
        ("ghw", Vec::new())
    } else {
        let gaps = fst::check(&bytes).map_err(|w| text.wrong_at(w.at as u64, w.what))?;
        ("fst", gaps)
    };
    let damaged = |what: String| Error::format(&path, format!("cannot be read as {format}: {what}; record it again"));
    let (hierarchy, body) = guarded(|| {
        let options = LoadOptions { multi_thread: false, ..LoadOptions::default() };
        let header = viewers::read_header(Cursor::new(bytes), &options).map_err(|e| e.to_string())?;
        let body = viewers::read_body(header.body, &header.hierarchy, None).map_err(|e| e.to_string())?;
        Ok((header.hierarchy, body))
    })
    .map_err(damaged)?;
    let tick = tick(&hierarchy).ok_or_else(|| damaged("the time unit is missing or below 1 as".into()))?;
    let (channels, signals) = channels(&hierarchy).map_err(|what| Error::format(&path, what))?;
    let end = body.time_table.last().copied().unwrap_or(0);
    let gaps = gaps.into_iter().map(|(from, to)| (from, to.min(end))).filter(|(from, to)| from < to).collect();
    Ok(Capture {
        path: path.clone(),
        format,
        channels,
        data: Data::Changes(Box::new(Waveform {
            path,
            hierarchy,
            source: Mutex::new(body.source),
            signals,
            times: body.time_table,
            tick,
            gaps,
        })),
    })
}

fn read_all(text: &Text) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    text.read_from(0)?.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(|e| text.unreadable(e))?;
    if bytes.len() as u64 > MAX_BYTES {
        let what = format!("is longer than {} MiB, the most that is read of a waveform database", MAX_BYTES >> 20);
        return Err(Error::format(text.path(), what));
    }
    Ok(bytes)
}

/// Seconds per tick in lowest terms.
fn tick(hierarchy: &Hierarchy) -> Option<(u64, u64)> {
    let timescale = hierarchy.timescale()?;
    let exponent = u32::from(timescale.unit.to_exponent()?.unsigned_abs());
    let (mut numerator, mut denominator) = (u64::from(timescale.factor), 10u64.checked_pow(exponent)?);
    while numerator % 10 == 0 && denominator % 10 == 0 && numerator > 0 {
        (numerator, denominator) = (numerator / 10, denominator / 10);
    }
    (numerator > 0).then_some((numerator, denominator))
}

/// Names as in a VCD of the same design. What has no bits (reals, strings, events) is no channel.
fn channels(hierarchy: &Hierarchy) -> std::result::Result<(Vec<Channel>, Vec<SignalRef>), String> {
    let mut channels = Vec::new();
    let mut signals = Vec::new();
    let mut by_name = HashMap::new();
    for var in hierarchy.all_vars().map(|var| &hierarchy[var]) {
        let SignalEncoding::BitVector(width @ 1..) = var.signal_encoding(hierarchy) else {
            continue;
        };
        let mut name = var.full_name(hierarchy).replace(".[", "[");
        if let Some(index) = var.index() {
            let (msb, lsb) = (index.msb(), index.lsb());
            name += &if msb == lsb { format!("[{msb}]") } else { format!("[{msb}:{lsb}]") };
        }
        let signal = var.signal_ref();
        match by_name.insert(name.clone(), signal) {
            None => {
                channels.push(Channel { name, width });
                signals.push(signal);
            }
            Some(same) if same == signal => {}
            Some(_) => return Err(format!("two nets have the name `{name}`")),
        }
    }
    Ok((channels, signals))
}

impl Changes for Waveform {
    fn tick(&self) -> (u64, u64) {
        self.tick
    }

    fn end(&self) -> u64 {
        self.times.last().copied().unwrap_or(0)
    }

    fn gaps(&self) -> &[(u64, u64)] {
        &self.gaps
    }

    fn signals(&self, channels: &[usize]) -> Result<Vec<Signal>> {
        let wanted: Vec<SignalRef> = channels.iter().map(|&c| self.signals[c]).collect();
        let mut source = self.source.lock().unwrap_or_else(PoisonError::into_inner);
        guarded(|| {
            let loaded = source.load_signals(&wanted, &self.hierarchy, false);
            let by_ref: HashMap<SignalRef, &wellen::Signal> = loaded.iter().map(|s| (s.signal_ref(), s)).collect();
            wanted.iter().map(|signal| convert(by_ref[signal], &self.times)).collect()
        })
        .map_err(|what| unreadable(&self.path, &what))
    }
}

fn unreadable(path: &Path, what: &str) -> Error {
    Error::format(path, format!("its value changes cannot be read: {what}; record it again"))
}

fn convert(from: &wellen::Signal, times: &[u64]) -> std::result::Result<Signal, String> {
    let mut signal = Signal::default();
    for (index, value) in from.iter_changes() {
        let SignalValueRef::BitVec(bits) = value else {
            return Err("a vector has a value without bits".into());
        };
        let (mut ones, mut unknown, mut high_z) = (0u64, 0u64, 0u64);
        let width = bits.width().min(64);
        if let Some(bytes) = bits.be_bytes() {
            ones = bytes.iter().rev().take(8).rev().fold(0, |word, &byte| word << 8 | u64::from(byte));
            if width < 64 {
                ones &= (1 << width) - 1;
            }
        } else {
            for bit in 0..width {
                match bits.get_bit(bit).as_ascii() {
                    '0' | 'l' => {}
                    '1' | 'h' => ones |= 1 << bit,
                    'z' => high_z |= 1 << bit,
                    _ => unknown |= 1 << bit,
                }
            }
        }
        let time = *times.get(index as usize).ok_or("a change is behind the last time")?;
        signal.push(time, ones, unknown, high_z);
    }
    Ok(signal)
}
