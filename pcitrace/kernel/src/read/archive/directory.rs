//! The directory of a zip file, read here and not by a zip library, because damage and trickery must be seen where a
//! library is lenient: names that repeat, members that overlap, sizes that deflate cannot reach.
//! Ref: PKWARE APPNOTE 6.3.10, sections 4.3 (structures) and 4.5.3 (zip64).

use super::{Archive, Member, Method};
use crate::error::Result;
use std::collections::HashSet;

/// Deflate's best case is a match of 258 bytes in two bits.
const MAX_EXPANSION: u64 = 1032;
/// About half a million members; 100 times what a 1 G-sample capture in 1 MB members has.
const MAX_DIRECTORY_BYTES: u64 = 32 << 20;

pub(super) const END: &[u8] = b"PK\x05\x06";
pub(super) const END64: &[u8] = b"PK\x06\x06";
pub(super) const END64_LOCATOR: &[u8] = b"PK\x06\x07";
pub(super) const DIRECTORY_ENTRY: &[u8] = b"PK\x01\x02";
pub(super) const LOCAL_HEADER: &[u8] = b"PK\x03\x04";

impl Archive {
    pub(super) fn read_directory(&self, length: u64) -> Result<Vec<Member>> {
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

fn le16(bytes: &[u8]) -> u16 {
    u16::from_le_bytes([bytes[0], bytes[1]])
}

fn le32(bytes: &[u8]) -> u32 {
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

fn le64(bytes: &[u8]) -> u64 {
    u64::from(le32(bytes)) | u64::from(le32(&bytes[4..])) << 32
}
