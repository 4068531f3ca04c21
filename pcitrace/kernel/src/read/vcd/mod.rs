//! VCD, plain or gzipped.
//!
//! It is read here and not by wellen (which reads FST and GHW): every statement has to be checked, and a reader that
//! checks every statement has all but read the file. wellen is the second reader in the tests.
//!
//! The body is cut into pieces at time stamps and the pieces are scanned on all cores; memory holds a few pieces and
//! the changes that were asked for, whatever the file's length.

mod header;
mod scan;

use super::text::{Text, fill};
use crate::capture::{Capture, Changes, Data, Signal};
use crate::error::Result;
use header::Header;
use scan::{Scan, Wrong, scan};
use std::io::Read;
use std::sync::mpsc::sync_channel;
use std::thread;

const PIECE_BYTES: usize = 1 << 20;
/// A header or a single time step (or comment) longer than this is refused, to bound memory.
const MAX_STEP_BYTES: usize = 256 << 20;

struct Vcd {
    text: Text,
    header: Header,
    /// Where the header ends in the text.
    body: u64,
    end: u64,
}

pub fn open(text: Text) -> Result<Capture> {
    let header_text = read_header(&text)?;
    let header = header::parse(&header_text).map_err(|w| text.wrong_at(w.at as u64, w.what))?;
    let mut vcd = Vcd {
        text,
        header,
        body: header_text.len() as u64,
        end: 0,
    };
    // The whole body is checked now, so that a damaged file is refused by whatever opens it.
    let (_, end) = vcd.scan_body(&[])?;
    vcd.end = end;
    Ok(Capture {
        path: vcd.text.path().into(),
        format: "vcd",
        channels: vcd.header.channels.clone(),
        data: Data::Changes(Box::new(vcd)),
    })
}

impl Changes for Vcd {
    fn tick(&self) -> (u64, u64) {
        self.header.tick
    }

    fn end(&self) -> u64 {
        self.end
    }

    fn gaps(&self) -> &[(u64, u64)] {
        &[]
    }

    fn signals(&self, channels: &[usize]) -> Result<Vec<Signal>> {
        let nets: Vec<usize> = channels
            .iter()
            .map(|&c| self.header.channel_nets[c])
            .collect();
        let mut distinct = nets.clone();
        distinct.sort_unstable();
        distinct.dedup();
        let (mut signals, _) = self.scan_body(&distinct)?;
        let mut uses = vec![0; distinct.len()];
        let slots: Vec<usize> = nets
            .iter()
            .map(|net| distinct.partition_point(|d| d < net))
            .collect();
        slots.iter().for_each(|&slot| uses[slot] += 1);
        Ok(slots
            .into_iter()
            .map(|slot| {
                uses[slot] -= 1;
                if uses[slot] == 0 {
                    std::mem::take(&mut signals[slot])
                } else {
                    signals[slot].clone()
                }
            })
            .collect())
    }
}

impl Vcd {
    /// The changes of the given nets, and the last time.
    fn scan_body(&self, wanted: &[usize]) -> Result<(Vec<Signal>, u64)> {
        let mut slots = vec![None; self.header.nets.len()];
        for (slot, &net) in wanted.iter().enumerate() {
            slots[net] = Some(slot as u32);
        }
        let scan_piece = |piece: &Piece| {
            scan(&piece.text, &self.header.nets, &slots, wanted.len())
                .map_err(|Wrong { at, what }| self.text.wrong_at(piece.offset + at as u64, what))
        };
        let mut merged = Merged {
            signals: vec![Signal::default(); wanted.len()],
            end: 0,
        };
        let workers = thread::available_parallelism().map_or(1, |n| n.get());
        let mut pieces = Pieces::new(&self.text, self.body)?;
        // Text that ended within a statement; the next piece continues it.
        let mut unfinished: Option<Piece> = None;
        thread::scope(|scope| -> Result<()> {
            let (send, receive) = sync_channel(workers);
            scope.spawn(move || {
                while let Some(piece) = pieces.next().transpose() {
                    let failed = piece.is_err();
                    if send.send(piece).is_err() || failed {
                        return;
                    }
                }
            });
            loop {
                let batch: Vec<Piece> = receive.iter().take(workers).collect::<Result<_>>()?;
                if batch.is_empty() {
                    return Ok(());
                }
                let scans: Vec<Result<Scan>> = thread::scope(|scope| {
                    let (last, others) = batch.split_last().expect("not empty");
                    let handles: Vec<_> = others
                        .iter()
                        .map(|p| scope.spawn(|| scan_piece(p)))
                        .collect();
                    let last = scan_piece(last);
                    let join =
                        |h: thread::ScopedJoinHandle<_>| h.join().expect("the scan does not panic");
                    handles.into_iter().map(join).chain([last]).collect()
                });
                for (mut piece, mut scan) in batch.into_iter().zip(scans) {
                    if let Some(mut head) = unfinished.take() {
                        head.text.append(&mut piece.text);
                        if head.text.len() > MAX_STEP_BYTES {
                            return Err(self
                                .text
                                .wrong_at(head.offset, too_long("a comment or value")));
                        }
                        piece = head;
                        scan = scan_piece(&piece);
                    }
                    let scan = scan?;
                    if scan.unfinished {
                        unfinished = Some(piece);
                    } else {
                        merged.append(scan, &piece, &self.text)?;
                    }
                }
            }
        })?;
        if let Some(piece) = unfinished {
            let end = piece.offset + piece.text.len() as u64;
            return Err(self.text.wrong_at(
                end,
                "the file is cut off within its last value or comment; record it again",
            ));
        }
        Ok((merged.signals, merged.end))
    }
}

struct Merged {
    signals: Vec<Signal>,
    end: u64,
}

impl Merged {
    fn append(&mut self, scan: Scan, piece: &Piece, text: &Text) -> Result<()> {
        if let Some(first) = scan.first_time.filter(|&first| first < self.end) {
            let what = format!("time runs backwards from {} to {first}", self.end);
            return Err(text.wrong_at(piece.offset, what));
        }
        self.end = scan.last_time.unwrap_or(self.end);
        for (all, more) in self.signals.iter_mut().zip(scan.signals) {
            append_mask(
                &mut all.unknown,
                all.times.len(),
                more.unknown,
                more.times.len(),
            );
            append_mask(
                &mut all.high_z,
                all.times.len(),
                more.high_z,
                more.times.len(),
            );
            all.times.extend(more.times);
            all.values.extend(more.values);
        }
        Ok(())
    }
}

/// Masks are empty where no bit is set at all.
fn append_mask(all: &mut Vec<u64>, length: usize, more: Vec<u64>, more_length: usize) {
    if all.is_empty() && more.is_empty() {
        return;
    }
    all.resize(length, 0);
    all.extend(more);
    all.resize(length + more_length, 0);
}

/// A part of the body that begins with a time stamp (the first one may not).
struct Piece {
    offset: u64,
    text: Vec<u8>,
}

struct Pieces<'a> {
    source: &'a Text,
    reader: Box<dyn Read + Send>,
    offset: u64,
    rest: Vec<u8>,
}

impl<'a> Pieces<'a> {
    fn new(source: &'a Text, body: u64) -> Result<Self> {
        Ok(Pieces {
            source,
            reader: source.read_from(body)?,
            offset: body,
            rest: Vec::new(),
        })
    }

    fn next(&mut self) -> Result<Option<Piece>> {
        let mut text = std::mem::take(&mut self.rest);
        loop {
            let old = text.len();
            text.resize(old + PIECE_BYTES, 0);
            let read =
                fill(&mut self.reader, &mut text[old..]).map_err(|e| self.source.unreadable(e))?;
            text.truncate(old + read);
            let at_end = read < PIECE_BYTES;
            if !at_end {
                let Some(cut) = last_stamp(&text, old) else {
                    if text.len() > MAX_STEP_BYTES {
                        return Err(self
                            .source
                            .wrong_at(self.offset, too_long("what lies between two time stamps")));
                    }
                    continue;
                };
                self.rest = text.split_off(cut);
            }
            let offset = self.offset;
            self.offset += text.len() as u64;
            return Ok((!text.is_empty()).then_some(Piece { offset, text }));
        }
    }
}

/// Where the last time stamp begins, if behind `from` (a stamp across `from` was not seen before either).
fn last_stamp(text: &[u8], from: usize) -> Option<usize> {
    let from = from.saturating_sub(1).max(1);
    memchr::memrchr_iter(b'#', &text[from..])
        .map(|i| from + i)
        .find(|&i| text[i - 1] <= b' ' && text.get(i + 1).is_some_and(u8::is_ascii_digit))
}

fn too_long(what: &str) -> String {
    format!("{what} is longer than {} MiB", MAX_STEP_BYTES >> 20)
}

/// The text up to and with `$enddefinitions $end`.
fn read_header(text: &Text) -> Result<Vec<u8>> {
    const LAST: &[u8] = b"$enddefinitions";
    const END: &[u8] = b"$end";
    let mut reader = text.read_from(0)?;
    let mut header = Vec::new();
    let mut searched = 0;
    loop {
        let old = header.len();
        header.resize(old + (1 << 16).max(old), 0);
        let read = fill(&mut reader, &mut header[old..]).map_err(|e| text.unreadable(e))?;
        let at_end = old + read < header.len();
        header.truncate(old + read);
        if let Some(last) = memchr::memmem::find(&header[searched..], LAST) {
            let from = searched + last + LAST.len();
            if let Some(end) = memchr::memmem::find(&header[from..], END) {
                header.truncate(from + end + END.len());
                return Ok(header);
            }
            searched += last;
        } else {
            searched = header.len().saturating_sub(LAST.len());
        }
        if at_end {
            return Err(text.wrong_at(
                header.len() as u64,
                "the VCD header ends without `$enddefinitions $end`: the file is cut off; record it again",
            ));
        }
        if header.len() > MAX_STEP_BYTES {
            return Err(text.wrong_at(header.len() as u64, too_long("the header")));
        }
    }
}
