//! Saleae Logic 2 binary export: one `digital_N.bin` a channel, versions 0 and 1.
//! Ref: Saleae support articles "Binary Export Format - Version 0" and its 2025 update (version 1).
//!
//! The files of one folder are one capture. Times are kept in picoseconds; where the export begins before its trigger
//! (negative times), time 0 is its begin.

use crate::capture::{Capture, Changes, Channel, Data, Limb, Signal};
use crate::error::{Error, Result};
use std::fmt::Display;
use std::path::{Path, PathBuf};

pub const MAGIC: &[u8] = b"<SALEAE>";
const PS: f64 = 1e12;
/// 100 days, so that picoseconds fit in an i64.
const MAX_SECONDS: f64 = 8.64e6;

struct Saleae {
    files: Vec<PathBuf>,
    /// Picoseconds of the file that are time 0 of the capture; 0 or negative.
    origin: i64,
    end: u64,
    gaps: Vec<(u64, u64)>,
}

pub fn open(path: &Path) -> Result<Capture> {
    let files = siblings(path)?;
    let recordings = files.iter().map(|file| Ok(Recording::read(file)?.spans())).collect::<Result<Vec<_>>>()?;
    let all = || recordings.iter().flatten();
    let origin = all().map(|span| span.0).min().unwrap_or(0).min(0);
    let ticks = |ps: i64| (ps - origin) as u64;
    let mut gaps: Vec<(u64, u64)> = recordings
        .iter()
        .flat_map(|spans| spans.windows(2))
        .filter(|pair| pair[0].1 < pair[1].0)
        .map(|pair| (ticks(pair[0].1), ticks(pair[1].0)))
        .collect();
    gaps.sort_unstable();
    gaps.dedup_by(|next, last| {
        let overlaps = next.0 <= last.1;
        if overlaps {
            last.1 = last.1.max(next.1);
        }
        overlaps
    });
    let channels = files.iter().map(|file| Channel { name: stem(file), width: 1 }).collect();
    let end = ticks(all().map(|span| span.1).max().unwrap_or(origin));
    Ok(Capture {
        path: path.into(),
        format: "saleae",
        channels,
        data: Data::Changes(Box::new(Saleae { files, origin, end, gaps })),
        notes: Vec::new(),
        captures: 1,
    })
}

impl Changes for Saleae {
    fn tick(&self) -> (u64, u64) {
        (1, 1_000_000_000_000)
    }

    fn end(&self) -> u64 {
        self.end
    }

    fn gaps(&self) -> &[(u64, u64)] {
        &self.gaps
    }

    fn signals(&self, limbs: &[Limb]) -> Result<Vec<Signal>> {
        limbs
            .iter()
            .map(|&Limb { channel, .. }| Ok(Recording::read(&self.files[channel])?.signal(self.origin, self.end)))
            .collect()
    }
}

/// `digital_N.bin` of the same folder by N, or the file alone if it has another name.
fn siblings(path: &Path) -> Result<Vec<PathBuf>> {
    if number(path).is_none() {
        return Ok(vec![path.into()]);
    }
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let unreadable = |e| Error::format(folder, format!("cannot be read: {e}"));
    let mut files: Vec<(u32, PathBuf)> = std::fs::read_dir(folder)
        .map_err(unreadable)?
        .map(|entry| entry.map(|e| e.path()).map_err(unreadable))
        .filter_map(|file| match file {
            Ok(file) => number(&file).map(|n| Ok((n, file))),
            Err(e) => Some(Err(e)),
        })
        .collect::<Result<_>>()?;
    files.sort_unstable();
    Ok(files.into_iter().map(|(_, file)| file).collect())
}

fn number(path: &Path) -> Option<u32> {
    let name = path.file_name()?.to_str()?;
    let digits = name.strip_prefix("digital_")?.strip_suffix(".bin")?;
    digits.parse().ok().filter(|n: &u32| n.to_string() == digits)
}

fn stem(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

/// One file: stretches of unbroken recording.
struct Recording {
    chunks: Vec<RecordedChunk>,
}

struct RecordedChunk {
    initial: bool,
    /// Picoseconds.
    begin: i64,
    end: i64,
    toggles: Vec<i64>,
}

impl Recording {
    fn read(path: &Path) -> Result<Self> {
        let bytes = std::fs::read(path).map_err(|e| Error::format(path, format!("cannot be read: {e}")))?;
        let mut fields = Fields { path, bytes: &bytes, at: 0 };
        if fields.take(8)? != MAGIC {
            return Err(fields.damaged_before(8, "does not begin with `<SALEAE>`"));
        }
        let version = fields.u32()?;
        if version > 1 {
            return Err(fields.wrong_before(4, format!("is of version {version}; versions 0 and 1 are read")));
        }
        match fields.u32()? {
            0 => {}
            1 => {
                return Err(fields.wrong_before(4, "holds analog samples; export digital channels"));
            }
            other => {
                return Err(fields.wrong_before(4, format!("holds data of type {other}; type 0 (digital) is read")));
            }
        }
        let count = if version == 1 { fields.u64()? } else { 1 };
        let mut chunks: Vec<RecordedChunk> = Vec::new();
        for _ in 0..count {
            let earliest = chunks.last().map_or(i64::MIN, |chunk| chunk.end);
            chunks.push(fields.chunk(version == 1, earliest)?);
        }
        if fields.at < bytes.len() {
            let what = format!("{} bytes follow the last transition", bytes.len() - fields.at);
            return Err(fields.damaged_before(0, what));
        }
        Ok(Recording { chunks })
    }

    /// Begin and end of each chunk in picoseconds.
    fn spans(&self) -> Vec<(i64, i64)> {
        self.chunks.iter().map(|c| (c.begin, c.end)).collect()
    }

    fn signal(&self, origin: i64, capture_end: u64) -> Signal {
        let mut signal = Signal::default();
        let mut push = |ps: i64, value: bool| {
            signal.times.push((ps - origin) as u64);
            signal.values.push(value.into());
        };
        for chunk in &self.chunks {
            let mut value = chunk.initial;
            push(chunk.begin, value);
            for &time in &chunk.toggles {
                value = !value;
                push(time, value);
            }
        }
        // A file that ends before its siblings says nothing about the rest.
        if let Some(last) = self.chunks.last().map(|chunk| chunk.end)
            && ((last - origin) as u64) < capture_end
        {
            push(last, false);
            signal.unknown = vec![0; signal.times.len() - 1];
            signal.unknown.push(1);
        }
        signal
    }
}

/// Little-endian fields, one after the other.
struct Fields<'a> {
    path: &'a Path,
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Fields<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        let rest = &self.bytes[self.at..];
        if rest.len() < count {
            let what = format!("the file is cut off: {count} bytes belong here, {} are left", rest.len());
            return Err(self.damaged_before(0, what));
        }
        self.at += count;
        Ok(&rest[..count])
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        Ok(self.take(N)?.try_into().expect("take gives as many as asked"))
    }

    fn u32(&mut self) -> Result<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// Seconds as picoseconds, not before `earliest`.
    fn time(&mut self, earliest: i64) -> Result<i64> {
        let seconds = f64::from_le_bytes(self.array()?);
        if seconds.is_nan() || seconds.abs() >= MAX_SECONDS {
            return Err(self.damaged_before(8, format!("{seconds} s is no time of a capture")));
        }
        let ps = (seconds * PS).round() as i64;
        if ps < earliest {
            let what = format!("time runs backwards from {} s to {seconds} s", earliest as f64 / PS);
            return Err(self.damaged_before(8, what));
        }
        Ok(ps)
    }

    fn chunk(&mut self, has_rate: bool, earliest: i64) -> Result<RecordedChunk> {
        let initial = match self.u32()? {
            0 => false,
            1 => true,
            other => {
                return Err(self.damaged_before(4, format!("the initial state is {other}, neither 0 nor 1")));
            }
        };
        if has_rate {
            self.array::<8>()?;
        }
        let begin = self.time(earliest)?;
        let end = self.time(begin)?;
        let count = self.u64()?;
        let left = (self.bytes.len() - self.at) / 8;
        if count > left as u64 {
            let what = format!("the file is cut off: {count} transitions belong here, {left} are left");
            return Err(self.damaged_before(0, what));
        }
        let mut toggles: Vec<i64> = Vec::with_capacity(count as usize);
        for _ in 0..count {
            let time = self.time(toggles.last().copied().unwrap_or(begin))?;
            if time > end {
                let what = format!("a transition at {} s is behind the end at {} s", time as f64 / PS, end as f64 / PS);
                return Err(self.damaged_before(8, what));
            }
            toggles.push(time);
        }
        Ok(RecordedChunk { initial, begin, end, toggles })
    }

    /// Something damaged in the last `back` bytes taken.
    fn damaged_before(&self, back: usize, what: impl Display) -> Error {
        self.wrong_before(back, format!("{what}; export the file again"))
    }

    /// Something not as it should be in the last `back` bytes taken.
    fn wrong_before(&self, back: usize, what: impl Into<String>) -> Error {
        Error::format(self.path, what).at((self.at - back) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::testing::TempFile;

    fn header(version: u32) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(version.to_le_bytes());
        bytes.extend([0; 4]);
        bytes
    }

    fn chunk(rate: Option<f64>, initial: u32, begin: f64, end: f64, times: &[f64]) -> Vec<u8> {
        let mut bytes = initial.to_le_bytes().to_vec();
        let seconds = rate.into_iter().chain([begin, end]);
        seconds.for_each(|s| bytes.extend(s.to_le_bytes()));
        bytes.extend((times.len() as u64).to_le_bytes());
        times.iter().for_each(|t| bytes.extend(t.to_le_bytes()));
        bytes
    }

    fn version0(initial: u32, begin: f64, end: f64, times: &[f64]) -> Vec<u8> {
        [header(0), chunk(None, initial, begin, end, times)].concat()
    }

    fn version1(chunks: &[Vec<u8>]) -> Vec<u8> {
        [header(1), (chunks.len() as u64).to_le_bytes().to_vec(), chunks.concat()].concat()
    }

    fn changes(capture: &Capture) -> &dyn Changes {
        let Data::Changes(changes) = &capture.data else {
            panic!("the export lists changes");
        };
        &**changes
    }

    #[test]
    fn the_files_of_a_folder_are_one_capture() {
        let first = version0(1, -1e-6, 1e-6, &[-5e-7, 0.0]);
        let file = TempFile::new("digital_0.bin", &first);
        let folder = file.path().parent().unwrap();
        // Ends early: what follows is not known.
        std::fs::write(folder.join("digital_10.bin"), version0(0, -1e-6, 5e-7, &[])).unwrap();
        std::fs::write(folder.join("digital_2.bin"), version0(0, -1e-6, 1e-6, &[])).unwrap();
        std::fs::write(folder.join("digital_02.bin"), b"another").unwrap();
        std::fs::write(folder.join("analog_1.bin"), b"another").unwrap();
        let capture = open(&folder.join("digital_2.bin")).unwrap();
        let names: Vec<_> = capture.channels.iter().map(|c| c.name.as_str()).collect();
        assert_eq!(names, ["digital_0", "digital_2", "digital_10"]);
        let saleae = changes(&capture);
        assert_eq!((saleae.tick(), saleae.end()), ((1, 1_000_000_000_000), 2_000_000));
        let signals = saleae.signals(&Limb::lowest(&[0, 2])).unwrap();
        assert_eq!(signals[0].times, [0, 500_000, 1_000_000]);
        assert_eq!(signals[0].values, [1, 0, 1]);
        assert_eq!((&signals[1].times[..], &signals[1].unknown[..]), (&[0, 1_500_000][..], &[0, 1][..]));

        std::fs::write(folder.join("digital_10.bin"), b"<SALEAE>").unwrap();
        let error = open(file.path()).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("digital_10.bin, byte 8: the file is cut off"), "{error}");
    }

    #[test]
    fn chunks_have_gaps_between_them() {
        let part = |initial, begin, end, times: &[f64]| chunk(Some(1e9), initial, begin, end, times);
        let bytes = version1(&[part(0, 0.0, 1e-6, &[2e-7]), part(0, 2e-6, 3e-6, &[2.5e-6]), part(1, 3e-6, 4e-6, &[])]);
        let file = TempFile::new("one.bin", &bytes);
        let other = version1(&[part(1, 0.0, 1.5e-6, &[]), part(1, 2.1e-6, 4e-6, &[])]);
        let capture = open(file.path()).unwrap();
        assert_eq!(changes(&capture).gaps(), [(1_000_000, 2_000_000)]);
        let signals = changes(&capture).signals(&Limb::lowest(&[0])).unwrap();
        assert_eq!(signals[0].times, [0, 200_000, 2_000_000, 2_500_000, 3_000_000]);
        assert_eq!(signals[0].values, [0, 1, 0, 1, 1]);

        let file = TempFile::new("digital_0.bin", &bytes);
        std::fs::write(file.path().with_file_name("digital_1.bin"), other).unwrap();
        assert_eq!(changes(&open(file.path()).unwrap()).gaps(), [(1_000_000, 2_100_000)]);
    }

    #[test]
    fn damage_is_refused_with_its_place() {
        let refusal = |bytes: &[u8]| {
            let file = TempFile::new("digital_0.bin", bytes);
            open(file.path()).map(|_| ()).unwrap_err().to_string()
        };
        let good = version0(0, 0.0, 1.0, &[0.25, 0.5]);
        for length in 0..good.len() {
            assert!(refusal(&good[..length]).contains("the file is cut off"), "{length}");
        }
        assert!(refusal(&[&good[..], b"!"].concat()).contains("byte 60: 1 bytes follow"));
        let with = |at: usize, value: &[u8]| {
            let mut bytes = good.clone();
            bytes[at..at + value.len()].copy_from_slice(value);
            refusal(&bytes)
        };
        assert!(with(0, b"?").contains("does not begin"));
        assert!(with(8, &[2]).contains("byte 8: is of version 2"));
        assert!(with(12, &[1]).contains("holds analog samples"));
        assert!(with(12, &[7]).contains("data of type 7"));
        assert!(with(16, &[2]).contains("the initial state is 2"));
        assert!(with(20, &f64::NAN.to_le_bytes()).contains("NaN s is no time"));
        assert!(with(28, &(-1f64).to_le_bytes()).contains("byte 28: time runs backwards from 0 s to -1 s"));
        assert!(with(36, &[255; 8]).contains("18446744073709551615 transitions belong here, 2 are left"));
        assert!(with(52, &0.1f64.to_le_bytes()).contains("byte 52: time runs backwards"));
        assert!(with(52, &1.5f64.to_le_bytes()).contains("behind the end at 1 s"));
    }
}
