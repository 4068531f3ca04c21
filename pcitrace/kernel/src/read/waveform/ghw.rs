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
            None => {
                return wrong(tail, "the GHW directory points behind the file; record it again");
            }
        };
        for n in 0..counts {
            if u32_at(at + 8 + 4 * n).is_none_or(|count| count > file.len()) {
                return wrong(at + 8 + 4 * n, "a GHW section declares more than the file can hold; it is damaged");
            }
        }
    }
    Ok(())
}
