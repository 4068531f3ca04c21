//! The head of a GHW file: whether the counts its sections declare are possible.
//! Ref: GHDL's ghwlib.h.

use super::fst::Wrong;

const MAGIC: &[u8] = b"GHDLwave\n";

pub fn is_ghw(head: &[u8]) -> bool {
    head.starts_with(MAGIC)
}

/// Sections are found through the directory that a finished file ends with.
pub fn check(file: &[u8]) -> Result<(), Wrong> {
    let wrong = |at: usize, what: &str| Err(Wrong { at, what: what.into() });
    let big_endian = match file.get(MAGIC.len() + 3) {
        Some(1) => false,
        Some(2) => true,
        _ => {
            return wrong(MAGIC.len(), "the GHW header is damaged or cut off; record it again");
        }
    };
    let u32_at = |at: usize| {
        let bytes = *file.get(at..)?.first_chunk()?;
        Some(if big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) } as usize)
    };
    let tail = file.len().saturating_sub(12);
    if !file[tail..].starts_with(b"TAI\0") {
        return wrong(file.len(), "the GHW file does not end with its directory: it is cut off; record it again");
    }
    let sections = (|| {
        let directory = u32_at(tail + 8)?;
        let count = u32_at(directory + 8).filter(|_| file[directory..].starts_with(b"DIR\0"))?;
        let entry = |n: usize| u32_at(directory + 12 + 8 * n + 4);
        (count < file.len()).then(|| (0..count).map(entry).collect::<Option<Vec<_>>>())?
    })();
    let Some(sections) = sections else {
        return wrong(tail, "the GHW directory is damaged; record it again");
    };
    for at in sections {
        // Each string, type, scope and signal takes at least a byte.
        let counts = match file.get(at..at + 4) {
            Some(b"STR\0" | b"TYP\0") => 1,
            Some(b"HIE\0") => 3,
            Some(_) => 0,
            None => return wrong(tail, "the GHW directory points behind the file; record it again"),
        };
        for n in 0..counts {
            if u32_at(at + 8 + 4 * n).is_none_or(|count| count > file.len()) {
                return wrong(at + 8 + 4 * n, "a GHW section declares more than the file can hold; it is damaged");
            }
        }
        if file[at..].starts_with(b"TYP\0") {
            let version = file[MAGIC.len() + 2];
            let mut types = Types { bytes: &file[at + 12..], limit: file.len() as u64, is_array: Vec::new() };
            if types.walk(u32_at(at + 8).unwrap_or(0), version) == Some(Walk::Impossible) {
                return wrong(at, "a GHW type declares more than the file can hold; it is damaged");
            }
        }
    }
    Ok(())
}

/// The types, as far as they are of the kinds that buses are made of.
struct Types<'a> {
    bytes: &'a [u8],
    /// Nothing has more parts than this.
    limit: u64,
    /// Of each type so far: whether it is an array of scalars, whose subtypes have one range.
    is_array: Vec<bool>,
}

#[derive(PartialEq)]
enum Walk {
    /// All are possible up to the end, or up to one that is not understood here.
    Done,
    Impossible,
}

/// Kinds of types, as GHDL numbers its run-time information.
mod kind {
    pub const ENUMS: [u8; 2] = [22, 23];
    pub const NUMBERS: [u8; 3] = [25, 26, 27];
    pub const PHYSICAL_64: u8 = 29;
    pub const ARRAY: u8 = 31;
    pub const RECORD: u8 = 32;
    pub const SUBTYPE_SCALAR: u8 = 34;
    pub const SUBTYPE_ARRAY: u8 = 35;
    pub const SUBTYPE_UNBOUNDED_ARRAY: u8 = 37;
}

impl Types<'_> {
    /// `None` where the bytes end too early, which the reader will see as well.
    fn walk(&mut self, count: usize, version: u8) -> Option<Walk> {
        for _ in 0..count {
            let kind = self.byte()?;
            self.unsigned()?; // name
            let mut is_array = false;
            let possible = match kind {
                kind if kind::ENUMS.contains(&kind) => self.list(Self::unsigned)?,
                kind if kind::NUMBERS.contains(&kind) => true,
                kind::PHYSICAL_64 if version == 0 => true,
                kind::PHYSICAL_64 => self.list(|types| types.unsigned().and_then(|_| types.signed().map(|_| 0)))?,
                kind::SUBTYPE_SCALAR => {
                    let base = self.unsigned()?;
                    self.range()?;
                    self.is_known(base)
                }
                kind::ARRAY => {
                    let element = self.unsigned()?;
                    is_array = self.is_known(element) && !self.is_array[element as usize - 1];
                    self.is_known(element) && self.list(Self::unsigned)?
                }
                kind::SUBTYPE_UNBOUNDED_ARRAY => {
                    let base = self.unsigned()?;
                    is_array = self.is_known(base) && self.is_array[base as usize - 1];
                    self.is_known(base)
                }
                kind::SUBTYPE_ARRAY => {
                    let base = self.unsigned()?;
                    if !self.is_known(base) || !self.is_array[base as usize - 1] {
                        return Some(Walk::Done);
                    }
                    self.range()? <= self.limit
                }
                kind::RECORD => self.list(|types| types.unsigned().and_then(|_| types.unsigned()))?,
                _ => return Some(Walk::Done),
            };
            if !possible {
                return Some(Walk::Impossible);
            }
            self.is_array.push(is_array);
        }
        Some(Walk::Done)
    }

    /// Types are numbered from 1 and only refer to earlier ones.
    fn is_known(&self, number: u64) -> bool {
        (1..=self.is_array.len() as u64).contains(&number)
    }

    /// A count and as many entries; false if there cannot be so many.
    fn list(&mut self, mut entry: impl FnMut(&mut Self) -> Option<u64>) -> Option<bool> {
        let count = self.unsigned()?;
        if count > self.bytes.len() as u64 {
            return Some(false);
        }
        for _ in 0..count {
            entry(self)?;
        }
        Some(true)
    }

    /// The length of a range, at least roughly (of reals 0).
    fn range(&mut self) -> Option<u64> {
        match self.byte()? & 0x7f {
            kind if kind::ENUMS.contains(&kind) => {
                let (left, right) = (self.byte()?, self.byte()?);
                Some(u64::from(left.abs_diff(right)))
            }
            27 => {
                self.bytes = self.bytes.get(16..)?;
                Some(0)
            }
            _ => {
                let (left, right) = (self.signed()?, self.signed()?);
                Some(left.abs_diff(right))
            }
        }
    }

    fn byte(&mut self) -> Option<u8> {
        let (&byte, rest) = self.bytes.split_first()?;
        self.bytes = rest;
        Some(byte)
    }

    fn unsigned(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    fn signed(&mut self) -> Option<i64> {
        let before = self.bytes.len();
        let value = self.unsigned()?;
        let shift = 64usize.saturating_sub(7 * (before - self.bytes.len()));
        Some((value << shift) as i64 >> shift)
    }
}
