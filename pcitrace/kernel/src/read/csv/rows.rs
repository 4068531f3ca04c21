//! The rows of a CSV: read in blocks of whole lines, each row checked cell by cell.

use crate::error::{Error, Result};
use crate::interrupt;
use crate::read::text::{Text, append};
use std::io::Read;

const BLOCK_BYTES: usize = 4 << 20;

/// Some lines of the file.
pub struct Block {
    pub text: Vec<u8>,
    /// Number of the first one, from 1.
    pub first_line: u64,
}

pub struct Blocks<'a> {
    source: &'a Text,
    reader: Box<dyn Read + Send>,
    rest: Vec<u8>,
    line: u64,
}

impl<'a> Blocks<'a> {
    pub fn new(source: &'a Text, offset: u64, first_line: u64) -> Result<Self> {
        Ok(Blocks { source, reader: source.read_from(offset)?, rest: Vec::new(), line: first_line })
    }

    fn read(&mut self) -> Result<Option<Block>> {
        interrupt::check()?;
        let mut text = std::mem::take(&mut self.rest);
        let count = BLOCK_BYTES - text.len();
        append(&mut self.reader, &mut text, count).map_err(|e| self.source.unreadable(e))?;
        if text.len() == BLOCK_BYTES {
            let Some(cut) = memchr::memrchr(b'\n', &text) else {
                return Err(wrong_line(self.source, self.line, "is longer than any row of samples"));
            };
            self.rest = text.split_off(cut + 1);
        }
        if text.is_empty() {
            return Ok(None);
        }
        let first_line = self.line;
        self.line += memchr::memchr_iter(b'\n', &text).count() as u64;
        Ok(Some(Block { text, first_line }))
    }
}

impl Iterator for Blocks<'_> {
    type Item = Result<Block>;

    fn next(&mut self) -> Option<Self::Item> {
        self.read().transpose()
    }
}

impl Block {
    /// Rows with their line numbers; blank lines (sigrok ends frames with one) are none.
    pub fn rows(&self) -> impl Iterator<Item = (u64, &[u8])> {
        self.text
            .split(|&c| c == b'\n')
            .zip(self.first_line..)
            .map(|(line, number)| (number, line.trim_ascii_end()))
            .filter(|(_, row)| !row.is_empty())
    }
}

/// The first cell of a row, and what is behind its separator.
pub fn split_first(row: &[u8], separator: u8) -> (&[u8], &[u8]) {
    let end = row.iter().position(|&c| c == separator).unwrap_or(row.len());
    (row[..end].trim_ascii(), row.get(end + 1..).unwrap_or_default())
}

pub fn wrong_line(source: &Text, line: u64, what: impl Into<String>) -> Error {
    Error::format(source.path(), what).within(format!("line {line}"))
}

/// The cells of a row of names, without blanks and quotes around them.
pub fn cells(row: &str, separator: u8) -> Vec<String> {
    let mut cells = vec![String::new()];
    let mut quoted = false;
    for c in row.chars() {
        match c {
            '"' => quoted = !quoted,
            c if c == char::from(separator) && !quoted => cells.push(String::new()),
            c => cells.last_mut().expect("never empty").push(c),
        }
    }
    cells.into_iter().map(|cell| cell.trim().into()).collect()
}

/// The bits of `row`'s cells, the first into bit 0 of `unit`. `cells` is how many the row must have; those behind
/// the unit's channels (`channels`) are checked only. The error says what is wrong.
#[inline]
pub fn read_bits(
    row: &[u8],
    separator: u8,
    channels: usize,
    columns: usize,
    unit: &mut [u8],
) -> std::result::Result<(), String> {
    // As written by every tool: one digit, one separator.
    if row.len() == 2 * columns - 1 {
        let mut odd = 0;
        for (k, cell) in row.chunks(2).enumerate() {
            let bit = cell[0].wrapping_sub(b'0');
            odd |= bit & !1;
            odd |= cell.get(1).map_or(0, |&c| c ^ separator);
            if k < channels {
                unit[k / 8] |= (bit & 1) << (k % 8);
            }
        }
        if odd == 0 {
            return Ok(());
        }
        unit.fill(0);
    }
    let mut count = 0;
    for cell in row.split(|&c| c == separator) {
        let bit = match cell.trim_ascii() {
            b"0" => 0,
            b"1" => 1,
            other => {
                return Err(format!(
                    "value {} is `{}`, neither 0 nor 1; export logic channels only",
                    count + 1,
                    String::from_utf8_lossy(&other[..other.len().min(40)])
                ));
            }
        };
        if count < channels {
            unit[count / 8] |= bit << (count % 8);
        }
        count += 1;
    }
    if count != columns {
        return Err(format!("{count} values where the first row has {columns}; export the file again"));
    }
    Ok(())
}
