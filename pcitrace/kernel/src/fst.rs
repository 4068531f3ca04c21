//! FST, the compact form of VCD that GTKWave and Surfer open at once, written as the changes come.
//!
//! - A file is a header, sections of changes, the widths of the signals, their names, and where the capture has gaps.
//! - A section is complete in itself: the values at its begin, a chain of changes a signal, and its times.
//!
//! Ref: the FST chapter of GTKWave's manual, and `block_format.txt` beside its `fstapi.c`.

use crate::error::{Error, Result};
use crate::lines::Sink;
use std::fs::File;
use std::io::{BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

const HEADER: u8 = 0;
const BLACKOUT: u8 = 2;
const GEOMETRY: u8 = 3;
const NAMES: u8 = 4;
const CHANGES: u8 = 8;

const SCOPE: u8 = 254;
const UP: u8 = 255;
const WIRE: u8 = 16;
const STRING: u8 = 21;

/// Length of the header without its type.
const HEADER_BYTES: u64 = 329;
/// What a reader tells the order of bytes of a float by.
const E: f64 = std::f64::consts::E;
/// Bytes of changes and times after which a section is written.
const SECTION: usize = 4 << 20;
const LEVEL: i32 = 1;

/// A file that is being written.
pub struct FstFile {
    path: PathBuf,
    body: Body<BufWriter<File>>,
}

impl FstFile {
    /// `declarations` are those of the VCD, up to `$enddefinitions`.
    pub fn create(path: &Path, declarations: &[u8]) -> Result<Self> {
        let declared = Declared::read(declarations)?;
        let file = File::create(path).map_err(|source| Error::Write { path: path.into(), source })?;
        let mut file = FstFile { path: path.into(), body: Body::new(BufWriter::new(file), declared) };
        file.body.header().map_err(|source| file.error(source))?;
        Ok(file)
    }

    /// The identifiers of the signals, in their order.
    pub fn ids(&self) -> &[String] {
        &self.body.declared.ids
    }

    fn error(&self, source: std::io::Error) -> Error {
        Error::Write { path: self.path.clone(), source }
    }
}

impl Sink for FstFile {
    #[inline]
    fn time(&mut self, tick: u64) -> Result<()> {
        self.body.time(tick).map_err(|source| self.error(source))
    }

    #[inline]
    fn bit(&mut self, channel: usize, high: bool) {
        self.body.bit(channel, b'0' + u8::from(high));
    }

    fn text(&mut self, signal: usize, text: &[u8]) {
        self.body.text(signal, text);
    }

    fn lines(&mut self, text: &[u8]) -> Result<()> {
        self.body.lines(text);
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        self.body.finish().map_err(|source| self.error(source))
    }
}

/// What the declarations say.
#[derive(Default)]
struct Declared {
    version: String,
    /// Power of ten of a second.
    timescale: i8,
    ids: Vec<String>,
    /// Bits of each signal; None for texts.
    widths: Vec<Option<usize>>,
    scopes: u64,
    names: Vec<u8>,
}

impl Declared {
    fn read(text: &[u8]) -> Result<Self> {
        let mut found = Declared::default();
        for line in String::from_utf8_lossy(text).lines() {
            let words: Vec<&str> = line.split_ascii_whitespace().filter(|&word| word != "$end").collect();
            match words[..] {
                ["$version", ..] => found.version = words[1..].join(" "),
                ["$timescale", number, unit] => {
                    found.timescale = exponent(number, unit).ok_or_else(|| unreadable(line))?
                }
                ["$scope", _, name] => {
                    found.scopes += 1;
                    found.names.extend([SCOPE, 0]);
                    found.text(name);
                    found.text("");
                }
                ["$upscope"] => found.names.push(UP),
                ["$var", kind, width, id, ..] if words.len() > 4 => {
                    let bits = width.parse().ok().filter(|&bits| bits > 0).ok_or_else(|| unreadable(line))?;
                    let bits = (kind != "string").then_some(bits);
                    found.widths.push(bits);
                    found.ids.push(id.into());
                    found.names.extend([if bits.is_some() { WIRE } else { STRING }, 0]);
                    found.text(&words[4..].join(" "));
                    varint(&mut found.names, bits.unwrap_or(0) as u64);
                    varint(&mut found.names, 0);
                }
                ["$enddefinitions"] | [] => {}
                _ => return Err(unreadable(line)),
            }
        }
        Ok(found)
    }

    fn text(&mut self, text: &str) {
        self.names.extend(text.bytes().filter(|&byte| byte != 0));
        self.names.push(0);
    }
}

fn unreadable(line: &str) -> Error {
    Error::Decode(format!("`{line}` is no declaration that can be written as FST"))
}

/// `10 ns` is 10^-8 s.
fn exponent(number: &str, unit: &str) -> Option<i8> {
    let factor = ["1", "10", "100"].iter().position(|&one| one == number)?;
    let unit = ["s", "ms", "us", "ns", "ps", "fs"].iter().position(|&one| one == unit)?;
    Some(factor as i8 - 3 * unit as i8)
}

/// A signal and its changes since the begin of the section.
struct Chain {
    /// Value now, a character a bit; a text is not kept.
    now: Vec<u8>,
    changes: Vec<u8>,
    /// Number of the time of the last change.
    last: u64,
}

struct Body<W: Write + Seek> {
    out: W,
    declared: Declared,
    chains: Vec<Chain>,
    /// Values at the begin of the section.
    frame: Vec<u8>,
    /// Times of the section as differences, and how many.
    times: Vec<u8>,
    count: u64,
    /// First time of the capture, of the section, and the last one.
    first: Option<u64>,
    begin: u64,
    now: u64,
    /// Bytes of changes.
    held: usize,
    sections: u64,
    gaps: Vec<(bool, u64)>,
}

impl<W: Write + Seek> Body<W> {
    fn new(out: W, declared: Declared) -> Self {
        let chain = |&bits: &Option<usize>| Chain { now: vec![b'x'; bits.unwrap_or(0)], changes: Vec::new(), last: 0 };
        Body {
            out,
            chains: declared.widths.iter().map(chain).collect(),
            declared,
            frame: Vec::new(),
            times: Vec::new(),
            count: 0,
            first: None,
            begin: 0,
            now: 0,
            held: 0,
            sections: 0,
            gaps: Vec::new(),
        }
    }

    /// The header; at the end once more, when its numbers are known.
    fn header(&mut self) -> std::io::Result<()> {
        let declared = &self.declared;
        let signals = declared.widths.len() as u64;
        self.out.write_all(&[HEADER])?;
        for number in [HEADER_BYTES, self.first.unwrap_or(0), self.now] {
            self.out.write_all(&number.to_be_bytes())?;
        }
        self.out.write_all(&E.to_ne_bytes())?;
        for number in [0, declared.scopes, signals, signals, self.sections] {
            self.out.write_all(&number.to_be_bytes())?;
        }
        self.out.write_all(&declared.timescale.to_be_bytes())?;
        let mut version = declared.version.clone().into_bytes();
        version.truncate(127);
        version.resize(128, 0);
        self.out.write_all(&version)?;
        // The date, 119 bytes; the type, Verilog; the time that is zero.
        self.out.write_all(&[0; 119 + 1 + 8])
    }

    fn lines(&mut self, text: &[u8]) {
        let mut from = 0;
        for end in memchr::memchr_iter(b'\n', text) {
            self.line(&text[from..end]);
            from = end + 1;
        }
    }

    fn line(&mut self, line: &[u8]) {
        match line {
            [value @ (b'0' | b'1' | b'x' | b'z'), id @ ..] => self.bit(signal(id), *value),
            [b'b', rest @ ..] => {
                if let Some(space) = memchr::memchr(b' ', rest) {
                    self.bits(signal(&rest[space + 1..]), &rest[..space]);
                }
            }
            b"$dumpoff" => self.gaps.push((false, self.now)),
            b"$dumpon" => self.gaps.push((true, self.now)),
            _ => {}
        }
    }

    fn time(&mut self, time: u64) -> std::io::Result<()> {
        if self.held + self.times.len() >= SECTION {
            self.section()?;
        }
        if self.count == 0 {
            self.begin = time;
            self.frame.clear();
            self.chains.iter().for_each(|chain| self.frame.extend_from_slice(&chain.now));
            varint(&mut self.times, time);
        } else {
            varint(&mut self.times, time - self.now);
        }
        self.first.get_or_insert(time);
        self.count += 1;
        self.now = time;
        Ok(())
    }

    /// Begins a change of a signal: how many times after its last one.
    fn change(&mut self, signal: usize) -> Option<(&mut Chain, u64, &mut usize)> {
        let at = self.count.saturating_sub(1);
        let chain = self.chains.get_mut(signal)?;
        let later = at - chain.last;
        chain.last = at;
        Some((chain, later, &mut self.held))
    }

    #[inline]
    fn bit(&mut self, signal: usize, value: u8) {
        let Some((chain, later, held)) = self.change(signal) else { return };
        let before = chain.changes.len();
        chain.now[0] = value;
        let code = match value {
            b'0' => later << 2,
            b'1' => later << 2 | 2,
            b'x' => later << 4 | 1,
            _ => later << 4 | 3,
        };
        varint(&mut chain.changes, code);
        *held += chain.changes.len() - before;
    }

    /// A vector; digits that are left out on its left are 0, or what its first digit is where that is unknown.
    fn bits(&mut self, signal: usize, digits: &[u8]) {
        let Some((chain, later, held)) = self.change(signal) else { return };
        let before = chain.changes.len();
        let width = chain.now.len();
        let left = width.saturating_sub(digits.len());
        let fill = digits.first().map_or(b'x', |&first| if first == b'1' { b'0' } else { first });
        chain.now[..left].fill(fill);
        chain.now[left..].copy_from_slice(&digits[digits.len() - (width - left)..]);
        if chain.now.iter().all(|digit| matches!(digit, b'0' | b'1')) {
            varint(&mut chain.changes, later << 1);
            let byte = |eight: &[u8]| eight.iter().enumerate().fold(0, |byte, (n, &one)| byte | (one & 1) << (7 - n));
            chain.changes.extend(chain.now.chunks(8).map(byte));
        } else {
            varint(&mut chain.changes, later << 1 | 1);
            chain.changes.extend_from_slice(&chain.now);
        }
        *held += chain.changes.len() - before;
    }

    fn text(&mut self, signal: usize, text: &[u8]) {
        let Some((chain, later, held)) = self.change(signal) else { return };
        let before = chain.changes.len();
        varint(&mut chain.changes, later << 1);
        varint(&mut chain.changes, text.len() as u64);
        chain.changes.extend_from_slice(text);
        *held += chain.changes.len() - before;
    }

    /// Writes a section, and begins the next one.
    fn section(&mut self) -> std::io::Result<()> {
        if self.count == 0 {
            return Ok(());
        }
        let signals = self.chains.len() as u64;
        let mut block = Vec::with_capacity(self.held / 2 + self.times.len() / 4 + 4096);
        block.extend(self.begin.to_be_bytes());
        block.extend(self.now.to_be_bytes());
        block.extend((self.held as u64).to_be_bytes());
        let frame = squeezed(&self.frame);
        varint(&mut block, self.frame.len() as u64);
        varint(&mut block, frame.len() as u64);
        varint(&mut block, signals);
        block.extend_from_slice(&frame);
        varint(&mut block, signals);
        let chains = block.len() as u64;
        block.push(b'4');
        let (mut places, mut before, mut without) = (Vec::new(), 0, 0u64);
        for chain in &mut self.chains {
            if chain.changes.is_empty() {
                without += 1;
                continue;
            }
            if without > 0 {
                varint(&mut places, std::mem::take(&mut without) << 1);
            }
            let place = block.len() as u64 - chains;
            signed(&mut places, ((place - before) << 1 | 1) as i64);
            before = place;
            let packed = lz4_flex::block::compress(&chain.changes);
            if packed.len() < chain.changes.len() {
                varint(&mut block, chain.changes.len() as u64);
                block.extend_from_slice(&packed);
            } else {
                varint(&mut block, 0);
                block.extend_from_slice(&chain.changes);
            }
            chain.changes.clear();
            chain.last = 0;
        }
        if without > 0 {
            varint(&mut places, without << 1);
        }
        block.extend_from_slice(&places);
        block.extend((places.len() as u64).to_be_bytes());
        let times = squeezed(&self.times);
        block.extend_from_slice(&times);
        for number in [self.times.len() as u64, times.len() as u64, self.count] {
            block.extend(number.to_be_bytes());
        }
        self.block(CHANGES, &block)?;
        self.times.clear();
        (self.count, self.held) = (0, 0);
        self.sections += 1;
        Ok(())
    }

    /// A block: its type, its length, and what it holds.
    fn block(&mut self, kind: u8, content: &[u8]) -> std::io::Result<()> {
        self.out.write_all(&[kind])?;
        self.out.write_all(&(content.len() as u64 + 8).to_be_bytes())?;
        self.out.write_all(content)
    }

    fn finish(&mut self) -> std::io::Result<()> {
        self.section()?;
        let mut widths = Vec::new();
        // A length of 0 says a float, the largest one a text.
        self.declared.widths.iter().for_each(|bits| varint(&mut widths, bits.map_or(0xffff_ffff, |bits| bits as u64)));
        let mut block = (widths.len() as u64).to_be_bytes().to_vec();
        block.extend((self.declared.widths.len() as u64).to_be_bytes());
        block.extend_from_slice(&squeezed(&widths));
        self.block(GEOMETRY, &block)?;
        if !self.gaps.is_empty() {
            let mut block = Vec::new();
            varint(&mut block, self.gaps.len() as u64);
            let mut before = 0;
            for &(there, time) in &self.gaps {
                block.push(u8::from(there));
                varint(&mut block, time - std::mem::replace(&mut before, time));
            }
            self.block(BLACKOUT, &block)?;
        }
        let mut block = (self.declared.names.len() as u64).to_be_bytes().to_vec();
        block.extend_from_slice(&zipped(&self.declared.names));
        self.block(NAMES, &block)?;
        self.out.seek(SeekFrom::Start(0))?;
        self.header()?;
        self.out.flush()
    }
}

/// The number of a signal, by its identifier in the VCD: digits of base 94 without a zero, the lowest first.
#[inline]
fn signal(id: &[u8]) -> usize {
    let place = |above: usize, &byte: &u8| 94 * above + usize::from(byte.wrapping_sub(b'!')) + 1;
    id.iter().rev().fold(0, place).wrapping_sub(1)
}

#[inline]
fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn signed(out: &mut Vec<u8>, mut value: i64) {
    while !(-64..64).contains(&value) {
        out.push(value as u8 & 0x7f | 0x80);
        value >>= 7;
    }
    out.push(value as u8 & 0x7f);
}

/// By zlib, where that is shorter.
fn squeezed(bytes: &[u8]) -> Vec<u8> {
    let mut compressor = libdeflater::Compressor::new(libdeflater::CompressionLvl::new(LEVEL).unwrap_or_default());
    let mut out = vec![0; compressor.zlib_compress_bound(bytes.len())];
    match compressor.zlib_compress(bytes, &mut out) {
        Ok(length) if length < bytes.len() => {
            out.truncate(length);
            out
        }
        _ => bytes.to_vec(),
    }
}

fn zipped(bytes: &[u8]) -> Vec<u8> {
    let mut compressor = libdeflater::Compressor::new(libdeflater::CompressionLvl::default());
    let mut out = vec![0; compressor.gzip_compress_bound(bytes.len())];
    let length = compressor.gzip_compress(bytes, &mut out).unwrap_or(0);
    out.truncate(length);
    out
}
