//! A member of a zip file, read in pieces.

use super::{Archive, Member, Method, read_exact_at};
use crate::error::Result;
use flate2::read::DeflateDecoder;
use std::fs::File;
use std::io::Read;

/// A member being read in pieces.
pub struct MemberStream<'a> {
    archive: &'a Archive,
    member: &'a Member,
    source: Source<'a>,
    crc: libdeflater::Crc,
    done: u64,
    checked: bool,
}

enum Source<'a> {
    Stored(Section<'a>),
    Deflate(Box<DeflateDecoder<Section<'a>>>),
}

impl<'a> MemberStream<'a> {
    pub(super) fn new(archive: &'a Archive, member: &'a Member) -> Self {
        let section =
            Section { file: &archive.file, at: member.data_offset, end: member.data_offset + member.compressed_size };
        MemberStream {
            archive,
            member,
            source: match member.method {
                Method::Stored => Source::Stored(section),
                Method::Deflate => Source::Deflate(Box::new(DeflateDecoder::new(section))),
            },
            crc: libdeflater::Crc::new(),
            done: 0,
            checked: false,
        }
    }

    /// Fills `out` as far as the member goes; fewer bytes than asked (or none) only at its end. Its size and CRC have
    /// been checked when the last byte is given.
    pub fn fill(&mut self, out: &mut [u8]) -> Result<usize> {
        let left = self.member.size - self.done;
        let wanted = out.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let mut filled = 0;
        while filled < wanted {
            match self.read(&mut out[filled..wanted])? {
                0 => {
                    return Err(self.archive.wrong_size(self.member, self.done + filled as u64));
                }
                n => filled += n,
            }
        }
        self.crc.update(&out[..filled]);
        self.done += filled as u64;
        if self.done == self.member.size && !self.checked {
            self.check_end()?;
            self.checked = true;
        }
        Ok(filled)
    }

    fn check_end(&mut self) -> Result<()> {
        if self.read(&mut [0])? != 0 {
            let what = format!("inflates to more than its declared {} bytes", self.member.size);
            return Err(self.archive.damaged(self.member, &what));
        }
        self.archive.check_crc(self.member, self.crc.sum())
    }

    fn read(&mut self, out: &mut [u8]) -> Result<usize> {
        let result = match &mut self.source {
            Source::Stored(section) => section.read(out),
            Source::Deflate(decoder) => decoder.read(out),
        };
        result.map_err(|e| {
            let consumed = match &self.source {
                Source::Stored(section) => section.at - self.member.data_offset,
                Source::Deflate(decoder) => decoder.total_in(),
            };
            let what = format!("its data cannot be read: {e}");
            self.archive.broken(self.member.data_offset + consumed, what).within(&self.member.name)
        })
    }
}

/// Bytes of the file by position, so that several threads can read at once.
struct Section<'a> {
    file: &'a File,
    at: u64,
    end: u64,
}

impl Read for Section<'_> {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let n = out.len().min(usize::try_from(self.end - self.at).unwrap_or(usize::MAX));
        read_exact_at(self.file, &mut out[..n], self.at)?;
        self.at += n as u64;
        Ok(n)
    }
}
