//! Zip files, read strictly: the container of sigrok `.sr` and DSView `.dsl`.

mod directory;
mod stream;
#[cfg(test)]
pub(crate) mod testing;

use crate::error::{Error, Result};
use crate::lane::fresh;
use std::fs::File;
use std::path::{Path, PathBuf};

pub use stream::MemberStream;

/// `version`, `metadata` and `header` are a few hundred bytes.
const MAX_TEXT_BYTES: u64 = 1 << 20;

/// An open zip file. Members can be read from several threads at once.
pub struct Archive {
    path: PathBuf,
    file: File,
    members: Vec<Member>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    pub name: String,
    /// Bytes when inflated, as the directory declares; reading checks it.
    pub size: u64,
    pub compressed_size: u64,
    pub crc32: u32,
    pub method: Method,
    /// Offset of the (compressed) data in the file.
    pub data_offset: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    Stored,
    Deflate,
}

impl Archive {
    pub fn open(path: &Path) -> Result<Self> {
        let bad = |e: std::io::Error| Error::format(path, format!("cannot be read: {e}"));
        let file = File::open(path).map_err(bad)?;
        let length = file.metadata().map_err(bad)?.len();
        let mut archive = Archive { path: path.into(), file, members: Vec::new() };
        archive.members = archive.read_directory(length)?;
        Ok(archive)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// In the order of the directory.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    pub fn member(&self, name: &str) -> Option<&Member> {
        self.members.iter().find(|m| m.name == name)
    }

    /// The whole member, in place of what `out` held. Fastest for members that fit in memory; see `stream`.
    pub fn inflate(&self, member: &Member, out: &mut Vec<u8>) -> Result<()> {
        let size = usize::try_from(member.size).map_err(|_| self.damaged(member, "is too large for this machine"))?;
        // Behind it what it is inflated from: memory that is used again from member to member.
        let packed = if member.method == Method::Deflate { member.compressed_size as usize } else { 0 };
        if out.capacity() < size + packed {
            // Fresh memory is zero as it comes: nobody has to go over it. But the system had to clear it, so the next member, which
            // may not be packed as well as this one, has to fit, too. Nobody touches what is left over.
            *out = fresh(size + packed + size / 4);
        }
        out.resize(size + packed, 0);
        let (whole, packed) = out.split_at_mut(size);
        self.read_at(member.data_offset, if member.method == Method::Stored { whole } else { packed })?;
        match member.method {
            Method::Stored => {}
            Method::Deflate => match libdeflater::Decompressor::new().deflate_decompress(packed, whole) {
                Ok(n) if n == size => {}
                Ok(n) => return Err(self.wrong_size(member, n as u64)),
                Err(libdeflater::DecompressionError::InsufficientSpace) => {
                    return Err(self.damaged(member, &format!("inflates to more than its declared {size} bytes")));
                }
                Err(libdeflater::DecompressionError::BadData) => {
                    return Err(self.damaged(member, "its deflate data is damaged"));
                }
            },
        }
        out.truncate(size);
        self.check_crc(member, libdeflater::crc32(out))
    }

    /// The member in pieces, for members too large to hold.
    pub fn stream<'a>(&'a self, member: &'a Member) -> MemberStream<'a> {
        MemberStream::new(self, member)
    }

    /// A small text member; `None` if there is no such member.
    pub fn text(&self, name: &str) -> Result<Option<String>> {
        let Some(member) = self.member(name) else {
            return Ok(None);
        };
        if member.size > MAX_TEXT_BYTES {
            return Err(self.damaged(member, &format!("is {} bytes long, which no such text is", member.size)));
        }
        let mut bytes = Vec::new();
        self.inflate(member, &mut bytes)?;
        Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        read_exact_at(&self.file, out, offset)
            .map_err(|e| Error::format(&self.path, format!("cannot be read: {e}")).at(offset))
    }

    /// The file as a whole is wrong at `offset`.
    fn broken(&self, offset: u64, what: impl Into<String>) -> Error {
        Error::format(&self.path, format!("{}; copy or record the file again", what.into())).at(offset)
    }

    fn damaged(&self, member: &Member, what: &str) -> Error {
        self.broken(member.data_offset, what).within(&member.name)
    }

    fn wrong_size(&self, member: &Member, found: u64) -> Error {
        self.damaged(member, &format!("inflates to {found} bytes where the directory declares {}", member.size))
    }

    fn check_crc(&self, member: &Member, found: u32) -> Result<()> {
        if found == member.crc32 {
            return Ok(());
        }
        Err(self
            .damaged(member, &format!("its CRC-32 is {found:08x} where the directory declares {:08x}", member.crc32)))
    }
}

#[cfg(unix)]
fn read_exact_at(file: &File, out: &mut [u8], offset: u64) -> std::io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, out, offset)
}

#[cfg(windows)]
fn read_exact_at(file: &File, mut out: &mut [u8], mut offset: u64) -> std::io::Result<()> {
    use std::io::ErrorKind;
    while !out.is_empty() {
        match std::os::windows::fs::FileExt::seek_read(file, out, offset) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(read) => {
                out = &mut out[read..];
                offset += read as u64;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::directory::{DIRECTORY_ENTRY, END};
    use super::*;
    use crate::read::testing::TempFile;

    /// Long enough that a stream is filled more than once.
    fn samples() -> Vec<u8> {
        (0..30_000u32).map(|n| (n / 100) as u8).collect()
    }

    fn example() -> Vec<u8> {
        testing::zip(&[("version", b"2"), ("logic-1-1", &samples()), ("empty", b"")])
    }

    fn open(bytes: &[u8]) -> (TempFile, Result<Archive>) {
        let file = TempFile::new("a.zip", bytes);
        let archive = Archive::open(file.path());
        (file, archive)
    }

    fn refusal(bytes: &[u8]) -> String {
        let (_file, archive) = open(bytes);
        archive.map(|_| ()).unwrap_err().to_string()
    }

    fn read_both_ways(archive: &Archive, name: &str) -> Result<Vec<u8>> {
        let member = archive.member(name).unwrap();
        let mut whole = vec![99; 7];
        archive.inflate(member, &mut whole)?;
        let mut stream = archive.stream(member);
        let mut pieces: Vec<u8> = Vec::new();
        let mut piece = [0; 1000];
        loop {
            match stream.fill(&mut piece)? {
                0 => break,
                n => pieces.extend(&piece[..n]),
            }
        }
        assert_eq!(whole, pieces);
        Ok(whole)
    }

    #[test]
    fn members_come_back_whole_and_in_pieces() {
        for bytes in [example(), testing::zip64(&[("version", b"2"), ("logic-1-1", &samples()), ("empty", b"")])] {
            let (_file, archive) = open(&bytes);
            let archive = archive.unwrap();
            assert_eq!(archive.members().len(), 3);
            assert_eq!(archive.text("version").unwrap().as_deref(), Some("2"));
            assert_eq!(archive.text("metadata").unwrap(), None);
            assert_eq!(read_both_ways(&archive, "logic-1-1").unwrap(), samples());
            assert_eq!(read_both_ways(&archive, "empty").unwrap(), b"");
        }
    }

    #[test]
    fn every_cut_is_refused() {
        let bytes = example();
        for length in 0..bytes.len() {
            assert!(open(&bytes[..length]).1.is_err(), "{length}");
        }
    }

    #[test]
    fn a_wrong_crc_or_size_is_named() {
        let good = example();
        let entry = good.windows(4).rposition(|w| w == DIRECTORY_ENTRY).unwrap();
        let second = good[..entry].windows(4).rposition(|w| w == DIRECTORY_ENTRY).unwrap();
        for (at, expected) in [(16, "CRC-32"), (24, "inflates to")] {
            let mut bytes = good.clone();
            bytes[second + at] ^= 1;
            let (_file, archive) = open(&bytes);
            let error = read_both_ways(&archive.unwrap(), "logic-1-1").unwrap_err().to_string();
            assert!(error.contains("logic-1-1, byte "), "{error}");
            assert!(error.contains(expected), "{error}");
        }
        // One more than there is, and no end to a stream of fewer.
        let mut bytes = good.clone();
        bytes[second + 24] -= 1;
        let (_file, archive) = open(&bytes);
        let archive = archive.unwrap();
        let member = archive.member("logic-1-1").unwrap();
        let mut all = vec![0; member.size as usize];
        let error = archive.stream(member).fill(&mut all).unwrap_err().to_string();
        assert!(error.contains("more than its declared 29999 bytes"), "{error}");
    }

    #[test]
    fn damaged_data_is_never_given_out() {
        let good = example();
        let (_file, archive) = open(&good);
        let member = archive.unwrap().member("logic-1-1").unwrap().clone();
        for at in 0..member.compressed_size {
            let mut bytes = good.clone();
            bytes[(member.data_offset + at) as usize] ^= 0x10;
            let (_file, archive) = open(&bytes);
            let archive = archive.unwrap();
            let mut whole = Vec::new();
            let mut piece = vec![0; member.size as usize];
            let refused = archive.inflate(&member, &mut whole).is_err();
            assert_eq!(archive.stream(&member).fill(&mut piece).is_err(), refused, "{at}");
            // The last byte has bits that mean nothing.
            assert!(refused || (whole == samples() && piece == samples()), "{at}");
        }
    }

    #[test]
    fn what_no_capture_has_is_refused() {
        let twice = testing::zip(&[("logic-1-1", b"a"), ("logic-1-1", b"b")]);
        assert!(refusal(&twice).contains("lists this member twice"));

        let change = |find: &[u8], at: usize, value: &[u8]| {
            let mut bytes = example();
            let found = bytes.windows(4).position(|w| w == find).unwrap();
            bytes[found + at..found + at + value.len()].copy_from_slice(value);
            refusal(&bytes)
        };
        assert!(change(DIRECTORY_ENTRY, 8, &[1]).contains("version, byte 0: is encrypted"));
        assert!(change(DIRECTORY_ENTRY, 10, &[93]).contains("zip method 93"));
        assert!(change(DIRECTORY_ENTRY, 24, &[255; 3]).contains("16777215 bytes cannot come from 3"));
        assert!(change(DIRECTORY_ENTRY, 20, &[255; 3]).contains("do not fit in the file"));
        assert!(change(DIRECTORY_ENTRY, 20, &[60]).contains("overlaps another member"));
        assert!(change(DIRECTORY_ENTRY, 42, &[1]).contains("no header of its own"));
        assert!(change(DIRECTORY_ENTRY, 42, &[255; 3]).contains("behind the last member"));
        assert!(change(END, 10, &[9]).contains("lists 3 members where its end says 9"));
        assert!(change(END, 4, &[1]).contains("one part of several"));
        assert!(refusal(b"").contains("cut off"));
    }

    #[test]
    fn members_are_read_from_several_threads() {
        let (_file, archive) = open(&example());
        let archive = archive.unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| assert_eq!(read_both_ways(&archive, "logic-1-1").unwrap(), samples()));
            }
        });
    }
}
