//! The head of a GHW file: whether its sections are where they should be and declare what is possible.
//! Ref: GHDL's ghwlib.h.

use super::fst::Wrong;

const MAGIC: &[u8] = b"GHDLwave\n";

pub fn is_ghw(head: &[u8]) -> bool {
    head.starts_with(MAGIC)
}

/// The sections before the values, in the order in which GHDL writes them. A reader goes from one to the next, so each
/// has to end where the directory at the file's end says that the next one begins.
const SECTIONS: [&[u8; 4]; 5] = [b"STR\0", b"TYP\0", b"WKT\0", b"HIE\0", b"EOH\0"];

pub fn check(file: &[u8]) -> Result<(), Wrong> {
    let wrong = |at: usize, what: &str| Err(Wrong { at, what: format!("{what}; record it again") });
    let big_endian = match file.get(MAGIC.len() + 3) {
        Some(1) => false,
        Some(2) => true,
        _ => return wrong(MAGIC.len(), "the GHW header is damaged or cut off"),
    };
    let u32_at = |at: usize| {
        let bytes = *file.get(at..)?.first_chunk()?;
        Some(if big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) } as usize)
    };
    let tail = file.len().saturating_sub(12);
    if !file[tail..].starts_with(b"TAI\0") {
        return wrong(file.len(), "the GHW file does not end with its directory: it is cut off");
    }
    let directory = u32_at(tail + 8).unwrap_or(tail);
    let starts: Option<Vec<usize>> = (0..SECTIONS.len()).map(|n| u32_at(directory + 16 + 8 * n)).collect();
    let starts = starts
        .filter(|starts| SECTIONS.iter().zip(starts).all(|(name, &at)| file.get(at..at + 4) == Some(name.as_slice())));
    let Some([strings, types, known_types, hierarchy, end]) = starts.and_then(|s| <[usize; 5]>::try_from(s).ok())
    else {
        return wrong(tail, "the GHW directory is damaged");
    };
    // Each string, type, scope and signal takes at least a byte.
    for at in [strings + 8, types + 8, hierarchy + 8, hierarchy + 12, hierarchy + 16] {
        if u32_at(at).is_none_or(|count| count > file.len()) {
            return wrong(at, "a GHW section declares more than the file can hold");
        }
    }
    let count_at = |at: usize| u32_at(at).unwrap_or(0);
    let section = |from: usize, to: usize| file.get(from..to).map(|bytes| Section { bytes });
    let strings_fit = section(strings + 16, types).and_then(|s| s.strings(count_at(strings + 8), file.len()));
    if strings != MAGIC.len() + 7 || strings_fit.is_none() {
        return wrong(strings, "the GHW strings are damaged");
    }
    let version = file[MAGIC.len() + 2];
    let types_fit = section(types + 12, known_types).and_then(|s| s.types(count_at(types + 8), version, file.len()));
    match types_fit {
        Some(Types::Read) => {}
        Some(Types::SeveralDimensions) => {
            let what = "a GHW type is an array of several dimensions, and those cannot be read; leave its signals out (ghdl \
                        --read-wave-opt=FILE)";
            return wrong(types, what);
        }
        None => return wrong(types, "the GHW types are damaged"),
    }
    // A second section of a kind would be read as well.
    let again =
        |name: &&[u8; 4]| section(hierarchy + 4, end).is_none_or(|s| memchr::memmem::find(s.bytes, *name).is_some());
    if SECTIONS.iter().any(again) {
        return wrong(hierarchy, "the GHW hierarchy is damaged");
    }
    if section(known_types + 8, hierarchy).and_then(Section::known_types).is_none() {
        return wrong(known_types, "the GHW types are damaged");
    }
    if section(end + 4, directory).and_then(|values| values.values(big_endian)).is_none() {
        return wrong(end, "the GHW values are not one section with those at the start and one with the changes");
    }
    Ok(())
}

/// What is left of a section.
#[derive(Clone, Copy)]
struct Section<'a> {
    bytes: &'a [u8],
}

/// What the types of a file are.
enum Types {
    Read,
    SeveralDimensions,
}

/// Kinds of types, as GHDL numbers its run-time information.
mod kind {
    pub const ENUMS: [u8; 2] = [22, 23];
    pub const REAL: u8 = 27;
    pub const NUMBERS: [u8; 3] = [25, 26, REAL];
    pub const PHYSICAL_64: u8 = 29;
    pub const ARRAY: u8 = 31;
    pub const RECORD: u8 = 32;
    pub const SUBTYPE_SCALAR: u8 = 34;
    pub const SUBTYPE_ARRAY: u8 = 35;
    pub const SUBTYPE_UNBOUNDED_ARRAY: u8 = 37;
}

/// Strings may inflate to this many times the file: each may share the begin of the one before.
const MAX_STRING_EXPANSION: usize = 256;

impl Section<'_> {
    /// Each string ends with the length that the next one shares with it. The end mark has the form of a string.
    fn strings(mut self, count: usize, file_bytes: usize) -> Option<()> {
        let (mut length, mut total) = (0usize, 0usize);
        for _ in 0..=count {
            let mut c = self.byte()?;
            while c >= 160 || (32..128).contains(&c) {
                length += 1;
                c = self.byte()?;
            }
            total = total.checked_add(length)?;
            let (mut shared, mut shift) = (usize::from(c & 0x1f), 5);
            while c >= 128 && shift < usize::BITS {
                c = self.byte()?;
                shared |= usize::from(c & 0x1f) << shift;
                shift += 5;
            }
            length = length.min(shared);
        }
        (self.bytes.is_empty() && total <= MAX_STRING_EXPANSION * file_bytes).then_some(())
    }

    /// As far as they are of the kinds that buses are made of; nothing has more parts than the file bytes.
    fn types(mut self, count: usize, version: u8, file_bytes: usize) -> Option<Types> {
        // Of each type so far: whether it is an array of scalars, whose subtypes have one range.
        let mut is_array: Vec<bool> = Vec::new();
        for _ in 0..count {
            let kind = self.byte()?;
            self.unsigned()?; // name
            // Types are numbered from 1 and only refer to earlier ones.
            let array = |number: u64| is_array.get(usize::try_from(number).ok()?.checked_sub(1)?).copied();
            let mut this_is_array = false;
            match kind {
                kind if kind::ENUMS.contains(&kind) => self.list(|s| s.unsigned().map(drop))?,
                kind if kind::NUMBERS.contains(&kind) => {}
                kind::PHYSICAL_64 if version == 0 => {}
                kind::PHYSICAL_64 => self.list(|s| s.unsigned().and_then(|_| s.signed()).map(drop))?,
                kind::SUBTYPE_SCALAR => {
                    array(self.unsigned()?)?;
                    self.range()?;
                }
                kind::ARRAY => {
                    this_is_array = !array(self.unsigned()?)?;
                    let mut dimensions = 0;
                    self.list(|s| {
                        dimensions += 1;
                        s.unsigned().map(drop)
                    })?;
                    if dimensions > 1 {
                        return Some(Types::SeveralDimensions);
                    }
                }
                kind::SUBTYPE_UNBOUNDED_ARRAY => this_is_array = array(self.unsigned()?)?,
                kind::SUBTYPE_ARRAY => {
                    if !array(self.unsigned()?)? {
                        return Some(Types::Read);
                    }
                    if self.range()? > file_bytes as u64 {
                        return None;
                    }
                }
                kind::RECORD => self.list(|s| s.unsigned().and_then(|_| s.unsigned()).map(drop))?,
                // Of records and arrays in arrays: what follows is not looked at.
                _ => return Some(Types::Read),
            }
            is_array.push(this_is_array);
        }
        // The section ends with a zero.
        (self.bytes == [0]).then_some(Types::Read)
    }

    /// Kind and type, up to a zero.
    fn known_types(mut self) -> Option<()> {
        while self.byte()? != 0 {
            self.unsigned()?;
        }
        self.bytes.is_empty().then_some(())
    }

    /// The values at the start, and then the changes, if there are any. Time only grows within a section; if a later one
    /// began before, wellen would leave out what it holds and go on.
    fn values(self, big_endian: bool) -> Option<()> {
        let start = self.bytes.strip_prefix(b"SNP\0")?;
        let (start, rest) = start.split_at(memchr::memmem::find(start, b"ESN\0")?);
        let rest = &rest[4..];
        if rest.is_empty() {
            return Some(());
        }
        let changes = rest.strip_prefix(b"CYC\0")?.strip_suffix(b"ECY\0")?;
        let another = [b"ESN\0", b"ECY\0"].iter().any(|end| memchr::memmem::find(changes, *end).is_some());
        let time = |bytes: &[u8]| {
            let bytes = *bytes.first_chunk()?;
            Some(if big_endian { u64::from_be_bytes(bytes) } else { u64::from_le_bytes(bytes) })
        };
        (!another && time(start.get(4..)?)? <= time(changes)?).then_some(())
    }

    /// A count and as many entries.
    fn list(&mut self, mut entry: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        let count = self.unsigned()?;
        if count > self.bytes.len() as u64 {
            return None;
        }
        (0..count).try_for_each(|_| entry(self))
    }

    /// The length of a range, at least roughly (of reals 0).
    fn range(&mut self) -> Option<u64> {
        match self.byte()? & 0x7f {
            kind if kind::ENUMS.contains(&kind) => {
                let (left, right) = (self.byte()?, self.byte()?);
                Some(u64::from(left.abs_diff(right)))
            }
            kind::REAL => {
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
