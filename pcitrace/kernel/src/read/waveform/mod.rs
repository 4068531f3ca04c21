//! FST (GTKWave) and GHW (GHDL), plain or gzipped, through the wellen crate.
//!
//! wellen trusts its input, so three things stand around it: sizes that a damaged file declares are checked before it
//! allocates them (`fst`, `ghw`), a panic within it becomes an error (`guard`), and it runs on the calling thread only.

mod fst;
mod ghw;
mod guard;

use super::text::Text;
use crate::capture::{Capture, Changes, Channel, Data, Limb, Signal};
use crate::error::{Error, Result};
use crate::read::names::{count_bytes, number_repeated};
use flate2::bufread::MultiGzDecoder;
use guard::{aside, guarded};
use std::collections::HashMap;
use std::io::{Cursor, Read};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use wellen::{Hierarchy, ItemRef, LoadOptions, SignalEncoding, SignalRef, SignalSource, SignalValueRef, viewers};

pub use fst::is_fst;
pub use ghw::is_ghw;

/// Gzipped files may inflate to this much, to bound memory.
const MAX_INFLATED_BYTES: u64 = 1 << 30;

/// Far deeper than any design, and names stay short.
const MAX_SCOPES: usize = 1000;

struct Waveform {
    path: PathBuf,
    hierarchy: Arc<Hierarchy>,
    source: Arc<Mutex<SignalSource>>,
    /// Signal of each channel.
    signals: Vec<SignalRef>,
    times: Arc<Vec<u64>>,
    tick: (u64, u64),
    gaps: Vec<(u64, u64)>,
}

pub fn open(text: Text) -> Result<Capture> {
    let path = text.path().to_owned();
    let mut bytes = read_all(&text)?;
    if fst::is_wrapped(&bytes) {
        bytes = read_up_to(&text, MultiGzDecoder::new(&bytes[fst::WRAPPER_BYTES..]), MAX_INFLATED_BYTES)?;
    }
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
        let header = aside(|| viewers::read_header(Cursor::new(bytes), &options)).map_err(|e| e.to_string())?;
        let body = viewers::read_body(header.body, &header.hierarchy, None).map_err(|e| e.to_string())?;
        Ok((header.hierarchy, body))
    })?
    .map_err(damaged)?;
    if !body.time_table.is_sorted() {
        return Err(damaged("time runs backwards".into()));
    }
    let tick = tick(&hierarchy).ok_or_else(|| damaged("the time unit is missing or below 1 as".into()))?;
    let (mut channels, signals) = channels(&hierarchy).map_err(|what| Error::format(&path, what))?;
    let notes = number_repeated(channels.iter_mut().map(|channel| &mut channel.name));
    let end = body.time_table.last().copied().unwrap_or(0);
    let gaps = gaps.into_iter().map(|(from, to)| (from, to.min(end))).filter(|(from, to)| from < to).collect();
    Ok(Capture {
        path: path.clone(),
        format,
        channels,
        notes,
        captures: 1,
        data: Data::Changes(Box::new(Waveform {
            path,
            hierarchy: Arc::new(hierarchy),
            source: Arc::new(Mutex::new(body.source)),
            signals,
            times: Arc::new(body.time_table),
            tick,
            gaps,
        })),
    })
}

fn read_all(text: &Text) -> Result<Vec<u8>> {
    let limit = if text.is_gzipped() { MAX_INFLATED_BYTES } else { u64::MAX };
    read_up_to(text, text.read_from(0)?, limit)
}

fn read_up_to(text: &Text, reader: impl Read, limit: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    reader.take(limit.saturating_add(1)).read_to_end(&mut bytes).map_err(|e| text.unreadable(e))?;
    if bytes.len() as u64 > limit {
        let what = format!("inflates to more than {} MiB; gunzip it first", limit >> 20);
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
    let mut name_bytes = 0;
    // Depth first, in the order of the file: what is still to be seen, and the path to it.
    let mut items: Vec<(ItemRef, Rc<str>, usize)> = hierarchy.items().map(|item| (item, "".into(), 0)).collect();
    items.reverse();
    while let Some((item, path, depth)) = items.pop() {
        let var = match item {
            ItemRef::Var(var) => &hierarchy[var],
            ItemRef::Scope(scope) => {
                if depth == MAX_SCOPES {
                    return Err(format!(
                        "scopes are nested more than {MAX_SCOPES} deep: it is damaged; record it again"
                    ));
                }
                let scope = &hierarchy[scope];
                let path: Rc<str> = join(&path, scope.name(hierarchy)).into();
                let first = items.len();
                items.extend(scope.items(hierarchy).map(|item| (item, path.clone(), depth + 1)));
                items[first..].reverse();
                continue;
            }
        };
        let SignalEncoding::BitVector(width @ 1..) = var.signal_encoding(hierarchy) else {
            continue;
        };
        let mut name = join(&path, var.name(hierarchy));
        if let Some(index) = var.index() {
            let (msb, lsb) = (index.msb(), index.lsb());
            name += &if msb == lsb { format!("[{msb}]") } else { format!("[{msb}:{lsb}]") };
        }
        count_bytes(&mut name_bytes, &name)?;
        let signal = var.signal_ref();
        // One net may be declared under one name again.
        if by_name.insert(name.clone(), signal) != Some(signal) {
            channels.push(Channel { name, width });
            signals.push(signal);
        }
    }
    Ok((channels, signals))
}

/// `top.pci` and `AD`, or the index of an array, as one name.
fn join(path: &str, name: &str) -> String {
    match (path, name) {
        ("", name) => name.into(),
        (path, "") => path.into(),
        (path, name) if name.starts_with('[') => format!("{path}{name}"),
        (path, name) => format!("{path}.{name}"),
    }
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

    fn signals(&self, limbs: &[Limb]) -> Result<Vec<Signal>> {
        let wanted: Vec<SignalRef> = limbs.iter().map(|limb| self.signals[limb.channel]).collect();
        let (source, hierarchy, times) = (self.source.clone(), self.hierarchy.clone(), self.times.clone());
        let limbs = limbs.to_vec();
        guarded(move || {
            let mut source = source.lock().unwrap_or_else(PoisonError::into_inner);
            let loaded = source.load_signals(&wanted, &hierarchy, false);
            let by_ref: HashMap<SignalRef, &wellen::Signal> = loaded.iter().map(|s| (s.signal_ref(), s)).collect();
            let of = |(signal, limb): (&SignalRef, &Limb)| convert(by_ref[signal], limb.index, &times);
            wanted.iter().zip(&limbs).map(of).collect()
        })?
        .map_err(|what| unreadable(&self.path, &what))
    }
}

fn unreadable(path: &Path, what: &str) -> Error {
    Error::format(path, format!("its value changes cannot be read: {what}; record it again"))
}

/// The changes of one limb of a signal.
fn convert(from: &wellen::Signal, limb: u32, times: &[u64]) -> std::result::Result<Signal, String> {
    let mut signal = Signal::default();
    for (index, value) in from.iter_changes() {
        let SignalValueRef::BitVec(bits) = value else {
            return Err("a vector has a value without bits".into());
        };
        let (mut ones, mut unknown, mut high_z) = (0u64, 0u64, 0u64);
        let width = bits.width().saturating_sub(64 * limb).min(64);
        if let Some(bytes) = bits.be_bytes() {
            let lower = bytes.iter().rev().skip(8 * limb as usize).take(8);
            ones = lower.rev().fold(0, |word, &byte| word << 8 | u64::from(byte));
            if width < 64 {
                ones &= (1 << width) - 1;
            }
        } else {
            for bit in 0..width {
                match bits.get_bit(64 * limb + bit).as_ascii() {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::testing::TempFile;
    use std::io::Write;

    /// Three nets in units of 10 ns, with the dump turned off from 10 to 20.
    const FST: &[u8] = include_bytes!("../../../fuzz/seeds/mini.fst");
    /// A std_logic, a std_logic_vector, a bit and an integer, written by GHDL.
    const GHW: &[u8] = include_bytes!("../../../fuzz/seeds/mini.ghw");

    fn open_bytes(bytes: &[u8]) -> Result<Capture> {
        let file = TempFile::new("a.wave", bytes);
        crate::read::open(file.path(), &Default::default())
    }

    fn changes(capture: &Capture) -> &dyn Changes {
        let Data::Changes(changes) = &capture.data else {
            panic!("a waveform lists changes");
        };
        &**changes
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn fst_plain_gzipped_and_wrapped() {
        let mut wrapped = vec![254];
        wrapped.extend([0; 16]);
        wrapped.extend(gzip(FST));
        for bytes in [FST, &gzip(FST), &wrapped] {
            let capture = open_bytes(bytes).unwrap();
            let names: Vec<_> = capture.channels.iter().map(|c| (c.name.as_str(), c.width)).collect();
            assert_eq!(names, [("top.CLK", 1), ("top.AD[3:0]", 4), ("top.D[0]", 1)]);
            let fst = changes(&capture);
            assert_eq!((fst.tick(), fst.end(), fst.gaps()), ((1, 100_000_000), 40, &[(10, 20)][..]));
            let signals = fst.signals(&Limb::lowest(&[2, 1, 2])).unwrap();
            assert_eq!(signals[0], signals[2]);
            let ad = &signals[1];
            assert_eq!((ad.times[0], ad.values[0]), (0, 0b0001));
            assert_eq!((ad.unknown[0], ad.high_z[0]), (0b1000, 0b0100));
            assert_eq!((ad.times.last(), ad.values.last()), (Some(&20), Some(&0b1011)));
        }
    }

    #[test]
    fn ghw_has_nine_states_and_no_integers_of_its_own_width() {
        let capture = open_bytes(GHW).unwrap();
        let ghw = changes(&capture);
        assert_eq!(ghw.tick(), (1, 1_000_000_000_000_000));
        let ad = capture.channels.iter().position(|c| c.name == "top.ad[3:0]").unwrap();
        let signal = &ghw.signals(&Limb::lowest(&[ad])).unwrap()[0];
        // "UUUU", then "10ZX", then "01LH": weak levels are levels.
        assert_eq!(signal.times[..3], [0, 5_000_000, 10_000_000]);
        assert_eq!(signal.values[..3], [0, 0b1000, 0b0101]);
        assert_eq!(signal.unknown[..3], [0b1111, 0b0001, 0]);
        assert_eq!(signal.high_z[..3], [0, 0b0010, 0]);
    }

    #[test]
    fn every_cut_is_refused() {
        for bytes in [FST, GHW] {
            for length in 0..bytes.len() {
                assert!(open_bytes(&bytes[..length]).is_err(), "{length}");
            }
        }
    }

    #[test]
    fn sizes_that_cannot_be_are_refused() {
        // The length of the geometry when inflated, the number of strings, of types, and of signals.
        let geometry = FST.windows(9).position(|w| w == [3, 0, 0, 0, 0, 0, 0, 0, 27]).unwrap();
        let mut fst = FST.to_vec();
        fst[geometry + 9] = 1;
        assert!(open_bytes(&fst).map(|_| ()).unwrap_err().to_string().contains("declares sizes that it cannot have"));
        for (section, at) in [(b"STR\0", 10), (b"TYP\0", 10), (b"HIE\0", 18)] {
            let found = GHW.windows(4).position(|w| w == section).unwrap();
            let mut ghw = GHW.to_vec();
            ghw[found + at] = 1;
            let error = open_bytes(&ghw).map(|_| ()).unwrap_err().to_string();
            assert!(error.contains("declares more than the file can hold"), "{error}");
        }
    }

    #[test]
    fn a_ghw_that_goes_back_in_time_is_refused() {
        let find = |name: &[u8]| GHW.windows(4).position(|w| w == name).unwrap();
        let refused = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut ghw = GHW.to_vec();
            change(&mut ghw);
            open_bytes(&ghw).map(|_| ()).unwrap_err().to_string()
        };
        let (start, changes, end) = (find(b"SNP\0"), find(b"CYC\0"), find(b"ECY\0"));
        // The start after the first change; a second section of changes; times that no simulator reaches.
        let late = refused(&|ghw| ghw[start + 8 + 7] = 1);
        let twice = refused(&|ghw| ghw[end - 8..end].copy_from_slice(b"\0\x7fECY\0CY"));
        let endless = refused(&|ghw| {
            ghw[start + 8 + 7] = 0x80;
            ghw[changes + 4 + 7] = 0x80;
        });
        for error in [late, twice] {
            assert!(error.contains("the GHW values are not one section"), "{error}");
        }
        assert!(endless.contains("ticks, which no capture's do"), "{endless}");
    }
}
