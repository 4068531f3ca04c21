//! Raw samples as an analyser's program writes them (`sigrok-cli -O binary`): nothing but units, from a file or a pipe.

use super::names::number_repeated;
use crate::capture::{Capture, Channel, Chunk, Data, MAX_UNIT, Sampled};
use crate::error::{Error, Result};
use crate::interrupt;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// Bytes of a file that are decoded at once.
const CHUNK: usize = 4 << 20;

struct Raw {
    path: PathBuf,
    unit: usize,
    bits: Vec<usize>,
    rate_hz: Option<f64>,
    /// None of a pipe, which ends when its writer does, and can be read once.
    bytes: Option<u64>,
    was_read: AtomicBool,
}

/// Opens samples of `unit` bytes whose bit `k` is called `names[k]`; the path `-` is standard input.
pub fn open(path: &Path, unit: usize, mut names: Vec<String>, rate_hz: Option<f64>) -> Result<Capture> {
    if unit > MAX_UNIT {
        let what = format!("samples of {unit} bytes; say a --unit-size of {MAX_UNIT} at most");
        return Err(Error::format(path, what));
    }
    if unit == 0 || names.len() > 8 * unit {
        let what =
            format!("{} channels do not fit into samples of {unit} bytes; say the right --unit-size", names.len());
        return Err(Error::format(path, what));
    }
    let bytes = match path.to_str() {
        Some("-") => None,
        _ => {
            let metadata = std::fs::metadata(path).map_err(|e| Error::format(path, format!("cannot be read: {e}")))?;
            metadata.is_file().then_some(metadata.len())
        }
    };
    if bytes == Some(0) {
        return Err(Error::format(path, "is empty"));
    }
    let bits = (0..names.len()).collect();
    let notes = number_repeated(&mut names);
    let raw = Raw { path: path.into(), unit, bits, rate_hz, bytes, was_read: AtomicBool::new(false) };
    Ok(Capture {
        path: path.into(),
        format: "binary",
        channels: names.into_iter().map(|name| Channel { name, width: 1 }).collect(),
        data: Data::Sampled(Box::new(raw)),
        notes,
        captures: 1,
    })
}

impl Raw {
    fn reader(&self) -> Result<Input> {
        if self.bytes.is_none() && self.was_read.swap(true, Ordering::Relaxed) {
            return Err(Error::format(
                &self.path,
                "was read already, and a pipe gives its samples once; record to a file",
            ));
        }
        Input::open(&self.path, self.bytes.is_none())
            .map_err(|e| Error::format(&self.path, format!("cannot be read: {e}")))
    }

    /// The next bytes, `CHUNK` of them unless it ends before.
    fn chunk(&self, input: &mut Input, start: u64) -> Result<Vec<u8>> {
        let mut bytes = vec![0; CHUNK];
        let mut filled = 0;
        while filled < CHUNK {
            interrupt::check()?;
            match input.read(&mut bytes[filled..]) {
                Ok(Some(0)) => break,
                Ok(Some(count)) => filled += count,
                Ok(None) => {}
                Err(e) => return Err(Error::format(&self.path, format!("cannot be read: {e}")).at(start)),
            }
        }
        if start == 0 && filled == 0 {
            return Err(Error::format(&self.path, "ended without a sample; look at what should have written them"));
        }
        bytes.truncate(filled);
        Ok(bytes)
    }
}

/// A file, or a pipe, which says nothing for as long as it likes.
#[cfg(unix)]
struct Input {
    file: File,
    is_pipe: bool,
}

#[cfg(unix)]
impl Input {
    fn open(path: &Path, is_pipe: bool) -> std::io::Result<Self> {
        use std::os::fd::AsFd;
        use std::os::unix::fs::OpenOptionsExt;
        let file = match path.to_str() {
            Some("-") => File::from(std::io::stdin().as_fd().try_clone_to_owned()?),
            // Not waiting for the other end to be opened; a read does.
            _ if is_pipe => File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)?,
            _ => File::open(path)?,
        };
        Ok(Input { file, is_pipe })
    }

    /// Some bytes, 0 at the end, None if there are none yet.
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<Option<usize>> {
        use std::os::fd::AsRawFd;
        if self.is_pipe {
            let mut ready = libc::pollfd { fd: self.file.as_raw_fd(), events: libc::POLLIN, revents: 0 };
            // Safety: one descriptor, which is open.
            match unsafe { libc::poll(&raw mut ready, 1, interrupt::OFTEN.as_millis() as libc::c_int) } {
                0 => return Ok(None),
                1 => {}
                // A signal, which whoever asks is told of.
                _ => {
                    let error = std::io::Error::last_os_error();
                    return if error.kind() == ErrorKind::Interrupted { Ok(None) } else { Err(error) };
                }
            }
        }
        match self.file.read(out) {
            Err(e) if matches!(e.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => Ok(None),
            read => read.map(Some),
        }
    }
}

#[cfg(not(unix))]
struct Input(Box<dyn Read + Send>);

#[cfg(not(unix))]
impl Input {
    fn open(path: &Path, _is_pipe: bool) -> std::io::Result<Self> {
        Ok(match path.to_str() {
            Some("-") => Input(Box::new(std::io::stdin())),
            _ => Input(Box::new(File::open(path)?)),
        })
    }

    fn read(&mut self, out: &mut [u8]) -> std::io::Result<Option<usize>> {
        self.0.read(out).map(Some)
    }
}

impl Sampled for Raw {
    fn unit_size(&self) -> usize {
        self.unit
    }

    fn bits(&self) -> &[usize] {
        &self.bits
    }

    fn rate_hz(&self) -> Option<f64> {
        self.rate_hz
    }

    fn total_bytes(&self) -> Option<u64> {
        self.bytes
    }

    fn chunks(&self) -> Box<dyn Iterator<Item = Result<Chunk<'_>>> + Send + '_> {
        let mut input = match self.reader() {
            Ok(input) => input,
            Err(error) => return Box::new(std::iter::once(Err(error))),
        };
        let (mut offset, mut over) = (0, false);
        Box::new(std::iter::from_fn(move || {
            if over {
                return None;
            }
            let start = offset;
            let read = self.chunk(&mut input, start);
            over = read.as_ref().map_or(true, |bytes| bytes.len() < CHUNK);
            offset += read.as_ref().map_or(0, Vec::len) as u64;
            match read {
                Ok(bytes) if bytes.is_empty() => None,
                Ok(bytes) => Some(Ok(Chunk::ready(start, bytes))),
                Err(error) => Some(Err(error)),
            }
        }))
    }
}
