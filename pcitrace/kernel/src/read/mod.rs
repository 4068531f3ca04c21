//! One reader a format. `open` looks at the content, not at the name.

pub mod archive;
mod csv;
mod dsview;
pub mod ini;
pub mod names;
pub mod raw;
mod saleae;
mod sigrok;
mod text;
mod vcd;
mod waveform;

use crate::capture::{Capture, Data};
use crate::error::{Error, Result};
use archive::Archive;
use std::path::Path;
use text::{GZIP_MAGIC, Text, append};

/// Byte order mark of UTF-8, with which some programs begin a text.
const UTF8_MARK: &[u8] = b"\xef\xbb\xbf";

const FORMATS: &str =
    "sigrok .sr, DSView .dsl, VCD, FST, GHW, sigrok and Saleae CSV, and Saleae digital_N.bin are read";

/// Later times are no capture's but damage, and sums of them overflow.
const MAX_TICKS: u64 = i64::MAX as u64;

/// What may have to be said about a file to open it.
#[derive(Debug, Default, Clone)]
pub struct How<'a> {
    /// Time unit of a VCD, like `1 ns`.
    pub timescale: Option<&'a str>,
    /// Of a session of several devices the number of the one to open, from 0.
    pub device: usize,
}

/// Opens a capture of any format that is read.
pub fn open(path: &Path, how: &How) -> Result<Capture> {
    // A pipe would be waited for, and it cannot be read twice.
    if std::fs::metadata(path).is_ok_and(|metadata| !metadata.is_file()) {
        return Err(Error::format(path, "is not a regular file; write the capture to a file and give that"));
    }
    let capture = open_file(path, how)?;
    match &capture.data {
        Data::Changes(changes) if changes.end() > MAX_TICKS => {
            let what = format!("its times go up to {} ticks, which no capture's do; record it again", changes.end());
            Err(Error::format(path, what))
        }
        _ => Ok(capture),
    }
}

fn open_file(path: &Path, how: &How) -> Result<Capture> {
    let wrong = |what: &str| Err(Error::format(path, format!("{what}; {FORMATS}")));
    let plain = Text::new(path, false);
    let head = begin(&plain)?;
    let is_zip = head.starts_with(b"PK\x03\x04") || head.starts_with(b"PK\x05\x06");
    let (text, head) = if head.starts_with(GZIP_MAGIC) {
        let text = Text::new(path, true);
        let head = begin(&text)?;
        (text, head)
    } else {
        (plain, head)
    };
    let is_vcd = head.strip_prefix(UTF8_MARK).unwrap_or(&head).trim_ascii_start().starts_with(b"$");
    if how.timescale.is_some() && !is_vcd {
        return wrong("is no VCD; only of a VCD the timescale can be given");
    }
    if is_zip {
        let archive = Archive::open(path)?;
        if archive.member("version").is_some() || archive.member("metadata").is_some() {
            return sigrok::open(archive, how.device);
        }
        if archive.member("header").is_some() {
            return dsview::open(archive);
        }
        if archive.member("meta.json").is_some() {
            return wrong(
                "is a project of Saleae Logic 2 (.sal); open it there and export the raw data as CSV or binary",
            );
        }
        return wrong("is a zip, but holds neither sigrok's `metadata` nor DSView's `header`");
    }
    if head.is_empty() {
        wrong("is empty")
    } else if is_utf16(&head) {
        wrong("is text in UTF-16; save it as UTF-8")
    } else if head.starts_with(UTF8_MARK) {
        let text = text.skipping(UTF8_MARK.len() as u64);
        if is_vcd { vcd::open(text, how.timescale) } else { csv::open(text) }
    } else if head.starts_with(saleae::MAGIC) {
        saleae::open(path)
    } else if waveform::is_fst(&head) || waveform::is_ghw(&head) {
        waveform::open(text)
    } else if is_vcd {
        vcd::open(text, how.timescale)
    } else if head.iter().any(|&c| c < b' ' && !c.is_ascii_whitespace()) {
        wrong("is not a capture")
    } else {
        csv::open(text)
    }
}

/// It says so, or every other byte of its begin is 0.
fn is_utf16(head: &[u8]) -> bool {
    let begin = head.as_chunks::<2>().0;
    let begin = &begin[..begin.len().min(16)];
    let is_ascii = |high: usize| !begin.is_empty() && begin.iter().all(|pair| pair[high] == 0 && pair[1 - high] != 0);
    head.starts_with(b"\xff\xfe") || head.starts_with(b"\xfe\xff") || is_ascii(0) || is_ascii(1)
}

/// The first bytes of a file.
fn begin(text: &Text) -> Result<Vec<u8>> {
    let mut head = Vec::new();
    append(&mut text.read_from(0)?, &mut head, 512).map_err(|e| text.unreadable(e))?;
    Ok(head)
}

#[cfg(test)]
pub(crate) mod testing {
    use std::path::{Path, PathBuf};
    use std::sync::atomic::{AtomicU64, Ordering};

    /// A file in a folder of its own, removed with it at the end.
    pub struct TempFile {
        path: PathBuf,
    }

    impl TempFile {
        pub fn new(name: &str, bytes: &[u8]) -> Self {
            static COUNT: AtomicU64 = AtomicU64::new(0);
            let number = COUNT.fetch_add(1, Ordering::Relaxed);
            let folder = std::env::temp_dir().join(format!("pcitrace-{}-{number}", std::process::id()));
            std::fs::create_dir_all(&folder).unwrap();
            let path = folder.join(name);
            std::fs::write(&path, bytes).unwrap();
            TempFile { path }
        }

        pub fn path(&self) -> &Path {
            &self.path
        }
    }

    impl Drop for TempFile {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(self.path.parent().unwrap());
        }
    }
}
