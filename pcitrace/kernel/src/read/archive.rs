//! Zip files, read strictly: the container of sigrok `.sr` and DSView `.dsl`.
//! Ref: PKWARE APPNOTE 6.3.10, sections 4.3 (structures) and 4.5.3 (zip64).
//!
//! The directory is read here and not by a zip library, because damage and trickery must be seen where a library is
//! lenient: names that repeat, members that overlap, sizes that deflate cannot reach.

use crate::error::{Error, Result};
use flate2::read::DeflateDecoder;
use std::collections::HashSet;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Deflate's best case is a match of 258 bytes in two bits.
const MAX_EXPANSION: u64 = 1032;
/// About half a million members; 100 times what a 1 G-sample capture in 1 MB members has.
const MAX_DIRECTORY_BYTES: u64 = 32 << 20;
/// `version`, `metadata` and `header` are a few hundred bytes.
const MAX_TEXT_BYTES: u64 = 1 << 20;

const END: &[u8] = b"PK\x05\x06";
const END64: &[u8] = b"PK\x06\x06";
const END64_LOCATOR: &[u8] = b"PK\x06\x07";
const DIRECTORY_ENTRY: &[u8] = b"PK\x01\x02";
const LOCAL_HEADER: &[u8] = b"PK\x03\x04";

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
        out.resize(size, 0);
        match member.method {
            Method::Stored => self.read_at(member.data_offset, out)?,
            Method::Deflate => {
                let mut compressed = vec![0; member.compressed_size as usize];
                self.read_at(member.data_offset, &mut compressed)?;
                match libdeflater::Decompressor::new().deflate_decompress(&compressed, out) {
                    Ok(n) if n == size => {}
                    Ok(n) => return Err(self.wrong_size(member, n as u64)),
                    Err(libdeflater::DecompressionError::InsufficientSpace) => {
                        return Err(self.damaged(member, &format!("inflates to more than its declared {size} bytes")));
                    }
                    Err(libdeflater::DecompressionError::BadData) => {
                        return Err(self.damaged(member, "its deflate data is damaged"));
                    }
                }
            }
        }
        self.check_crc(member, libdeflater::crc32(out))
    }

    /// The member in pieces, for members too large to hold.
    pub fn stream<'a>(&'a self, member: &'a Member) -> MemberStream<'a> {
        let section =
            Section { file: &self.file, at: member.data_offset, end: member.data_offset + member.compressed_size };
        MemberStream {
            archive: self,
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

    fn read_directory(&self, length: u64) -> Result<Vec<Member>> {
        let (directory, entries) = self.find_directory(length)?;
        let mut bytes = vec![0; (directory.end - directory.start) as usize];
        self.read_at(directory.start, &mut bytes)?;
        let mut members = Vec::new();
        let mut extents = Vec::new();
        let mut names = HashSet::new();
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            let at = directory.end - rest.len() as u64;
            let entry;
            (entry, rest) = Entry::split(rest).ok_or_else(|| self.broken(at, "the zip directory is damaged here"))?;
            let member = self.locate(&entry, directory.start)?;
            if !names.insert(member.name.clone()) {
                return Err(self.broken(at, "the zip directory lists this member twice").within(&member.name));
            }
            extents.push((entry.header_offset, member.data_offset + member.compressed_size, members.len()));
            members.push(member);
        }
        if members.len() as u64 != entries {
            return Err(self.broken(
                directory.start,
                format!("the zip directory lists {} members where its end says {entries}", members.len()),
            ));
        }
        extents.sort_unstable();
        if let Some(pair) = extents.windows(2).find(|pair| pair[0].1 > pair[1].0) {
            return Err(self.damaged(&members[pair[1].2], "overlaps another member of the zip"));
        }
        Ok(members)
    }

    /// Where the central directory is, and how many entries it claims.
    fn find_directory(&self, length: u64) -> Result<(std::ops::Range<u64>, u64)> {
        // The end record is 22 bytes and a comment of up to 65535.
        let tail_start = length.saturating_sub(22 + 65535);
        let mut tail = vec![0; (length - tail_start) as usize];
        self.read_at(tail_start, &mut tail)?;
        let end = (0..tail.len().saturating_sub(21))
            .rev()
            .find(|&i| tail[i..].starts_with(END) && i + 22 + usize::from(le16(&tail[i + 20..])) == tail.len());
        let Some(end) = end else {
            return Err(self.broken(length, "the zip directory at the end is missing: the file is cut off"));
        };
        let record = &tail[end..];
        let end = tail_start + end as u64;
        let mut limit = end;
        let mut disks = u32::from(le16(&record[4..])) | u32::from(le16(&record[6..]));
        let mut entries = u64::from(le16(&record[10..]));
        let mut size = u64::from(le32(&record[12..]));
        let mut start = u64::from(le32(&record[16..]));
        let mut locator = [0; 20];
        if end >= 20 {
            self.read_at(end - 20, &mut locator)?;
        }
        if locator.starts_with(END64_LOCATOR) {
            limit = le64(&locator[8..]);
            let mut record = [0; 56];
            if limit.checked_add(56).is_none_or(|record_end| record_end > end) {
                return Err(self.broken(end - 20, "the zip64 end record is not where it is said to be"));
            }
            self.read_at(limit, &mut record)?;
            if !record.starts_with(END64) {
                return Err(self.broken(limit, "the zip64 end record is damaged"));
            }
            disks = le32(&record[16..]) | le32(&record[20..]);
            entries = le64(&record[32..]);
            size = le64(&record[40..]);
            start = le64(&record[48..]);
        }
        if disks != 0 {
            return Err(self.broken(end, "the zip file is one part of several"));
        }
        if start.checked_add(size) != Some(limit) {
            return Err(self.broken(
                end,
                format!(
                    "the zip directory of {size} bytes does not fit between its offset {start} and its end at {limit}"
                ),
            ));
        }
        if size > MAX_DIRECTORY_BYTES {
            return Err(self.broken(
                start,
                format!("the zip directory is {size} bytes long, more than the {MAX_DIRECTORY_BYTES} that are read"),
            ));
        }
        Ok((start..limit, entries))
    }

    /// Checks an entry of the directory against the member's own header and the file.
    fn locate(&self, entry: &Entry, directory_start: u64) -> Result<Member> {
        let at = entry.header_offset;
        let name = String::from_utf8_lossy(entry.name).into_owned();
        let refuse = |what: String| Err(self.broken(at, what).within(&name));
        if entry.flags & 0x2041 != 0 {
            return refuse("is encrypted, which no capture file is".into());
        }
        let method = match entry.method {
            0 => Method::Stored,
            8 => Method::Deflate,
            other => {
                return refuse(format!("is compressed by zip method {other}; stored (0) and deflate (8) are read"));
            }
        };
        let mut header = [0; 30];
        if at.checked_add(30).is_none_or(|end| end > directory_start) {
            return refuse("is said to begin behind the last member".into());
        }
        self.read_at(at, &mut header)?;
        if !header.starts_with(LOCAL_HEADER) || le16(&header[8..]) != entry.method {
            return refuse("has no header of its own where the directory says".into());
        }
        let data_offset = at + 30 + u64::from(le16(&header[26..])) + u64::from(le16(&header[28..]));
        if data_offset.checked_add(entry.compressed_size).is_none_or(|end| end > directory_start) {
            return refuse(format!("its {} compressed bytes do not fit in the file", entry.compressed_size));
        }
        let possible = match method {
            Method::Stored => entry.size == entry.compressed_size,
            Method::Deflate => entry.size <= entry.compressed_size.saturating_mul(MAX_EXPANSION),
        };
        if !possible {
            return refuse(format!("{} bytes cannot come from {} compressed ones", entry.size, entry.compressed_size));
        }
        Ok(Member {
            name,
            size: entry.size,
            compressed_size: entry.compressed_size,
            crc32: entry.crc32,
            method,
            data_offset,
        })
    }
}

/// One entry of the central directory.
struct Entry<'a> {
    name: &'a [u8],
    flags: u16,
    method: u16,
    crc32: u32,
    compressed_size: u64,
    size: u64,
    header_offset: u64,
}

impl<'a> Entry<'a> {
    fn split(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (head, rest) = bytes.split_at_checked(46)?;
        if !head.starts_with(DIRECTORY_ENTRY) {
            return None;
        }
        let (name, rest) = rest.split_at_checked(le16(&head[28..]).into())?;
        let (extra, rest) = rest.split_at_checked(le16(&head[30..]).into())?;
        let (_comment, rest) = rest.split_at_checked(le16(&head[32..]).into())?;
        let mut entry = Entry {
            name,
            flags: le16(&head[8..]),
            method: le16(&head[10..]),
            crc32: le32(&head[16..]),
            compressed_size: le32(&head[20..]).into(),
            size: le32(&head[24..]).into(),
            header_offset: le32(&head[42..]).into(),
        };
        entry.widen(extra)?;
        Some((entry, rest))
    }

    /// Fields that are all ones are in the zip64 extra field (id 1), in this order.
    fn widen(&mut self, mut extra: &[u8]) -> Option<()> {
        let mut fields = [&mut self.size, &mut self.compressed_size, &mut self.header_offset];
        if fields.iter().all(|f| **f != u64::from(u32::MAX)) {
            return Some(());
        }
        loop {
            let (head, rest) = extra.split_at_checked(4)?;
            let (mut body, rest) = rest.split_at_checked(le16(&head[2..]).into())?;
            if le16(head) == 1 {
                for field in fields.iter_mut().filter(|f| ***f == u64::from(u32::MAX)) {
                    let value;
                    (value, body) = body.split_at_checked(8)?;
                    **field = le64(value);
                }
                return Some(());
            }
            extra = rest;
        }
    }
}

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

impl MemberStream<'_> {
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

#[cfg(unix)]
fn read_exact_at(file: &File, out: &mut [u8], offset: u64) -> std::io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, out, offset)
}

fn le16(bytes: &[u8]) -> u16 {
    u16::from_le_bytes([bytes[0], bytes[1]])
}

fn le32(bytes: &[u8]) -> u32 {
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

fn le64(bytes: &[u8]) -> u64 {
    u64::from(le32(bytes)) | u64::from(le32(&bytes[4..])) << 32
}

/// Writes small zip files for the tests of this and other readers.
#[cfg(test)]
pub(crate) mod testing {
    use std::io::Write;

    /// A deflated member each; sizes and CRC are right.
    pub fn zip(members: &[(&str, &[u8])]) -> Vec<u8> {
        write(members, false)
    }

    /// The same with sizes, offsets and the end in their zip64 form.
    pub fn zip64(members: &[(&str, &[u8])]) -> Vec<u8> {
        write(members, true)
    }

    fn write(members: &[(&str, &[u8])], wide: bool) -> Vec<u8> {
        let mut file = Vec::new();
        let mut directory = Vec::new();
        for (name, data) in members {
            let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::default());
            encoder.write_all(data).unwrap();
            let compressed = encoder.finish().unwrap();
            let numbers = [data.len() as u64, compressed.len() as u64, file.len() as u64];
            let field = |n: usize| if wide { u32::MAX } else { numbers[n] as u32 };
            let mut extra = Vec::new();
            if wide {
                extra.extend([9, 0, 1, 0, 7]); // a field of some other kind comes first
                extra.extend([1, 0, 24, 0]);
                numbers.iter().for_each(|n| extra.extend(n.to_le_bytes()));
            }
            let mut fields = vec![20, 0, 0, 0, 8, 0, 0, 0, 0, 0];
            fields.extend(libdeflater::crc32(data).to_le_bytes());
            fields.extend(field(1).to_le_bytes());
            fields.extend(field(0).to_le_bytes());
            fields.extend((name.len() as u16).to_le_bytes());
            file.extend(super::LOCAL_HEADER);
            file.extend(&fields);
            file.extend([0, 0]);
            file.extend(name.as_bytes());
            file.extend(&compressed);
            directory.extend(super::DIRECTORY_ENTRY);
            directory.extend([20, 0]);
            directory.extend(&fields);
            directory.extend((extra.len() as u16).to_le_bytes());
            directory.extend([0; 10]);
            directory.extend(field(2).to_le_bytes());
            directory.extend(name.as_bytes());
            directory.extend(&extra);
        }
        let start = file.len() as u64;
        let (count, size) = (members.len() as u64, directory.len() as u64);
        file.extend(&directory);
        if wide {
            let end = file.len() as u64;
            file.extend(super::END64);
            file.extend(44u64.to_le_bytes());
            file.extend([45, 0, 45, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
            [count, count, size, start].iter().for_each(|n| file.extend(n.to_le_bytes()));
            file.extend(super::END64_LOCATOR);
            file.extend([0; 4]);
            file.extend(end.to_le_bytes());
            file.extend([1, 0, 0, 0]);
        }
        let short = |n: u64| if wide { u32::MAX } else { n as u32 };
        file.extend(super::END);
        file.extend([0; 4]);
        file.extend((short(count) as u16).to_le_bytes());
        file.extend((short(count) as u16).to_le_bytes());
        file.extend(short(size).to_le_bytes());
        file.extend(short(start).to_le_bytes());
        file.extend([0, 0]);
        file
    }
}

#[cfg(test)]
mod tests {
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
