//! VCD, plain or gzipped.
//!
//! It is read here and not by wellen (which reads FST and GHW): every statement has to be checked, and a reader that
//! checks every statement has all but read the file. wellen is the second reader in the tests.
//!
//! The body is cut into pieces at time stamps and the pieces are scanned on all cores; memory holds a few pieces and
//! the changes that were asked for, whatever the file's length.

mod header;
mod packed;
mod scan;

use super::text::{Text, append};
use crate::capture::{Capture, Changes, Data, Limb, Signal};
use crate::error::{Error, Result};
use crate::in_order::in_order;
use crate::interrupt;
use header::Header;
use packed::{Packed, Stamps, limb_width};
use scan::{NetLimb, Scan, Slots, Wrong, scan};
use std::io::Read;
use std::sync::atomic::{AtomicBool, Ordering};

const PIECE_BYTES: usize = 1 << 19;
/// A header or a single time step (or comment) longer than this is refused, to bound memory.
const MAX_STEP_BYTES: usize = 256 << 20;
/// What is kept of the check at opening, at most: all changes of files of some 300 MB.
const MAX_KEPT_BYTES: usize = 100 << 20;
const MAX_KEPT_LIMBS: usize = 256;

struct Vcd {
    text: Text,
    header: Header,
    /// Where the header ends in the text.
    body: u64,
    end: u64,
    /// While the simulator had its dump turned off.
    gaps: Vec<(u64, u64)>,
    /// All changes, unless they are too many: the file need not be read twice.
    kept: Option<(Vec<NetLimb>, Vec<Kept>)>,
}

pub fn open(text: Text, timescale: Option<&str>) -> Result<Capture> {
    let header_text = read_header(&text)?;
    let header = header::parse(&header_text, timescale)
        .map_err(|w| text.wrong_at(w.at as u64, format!("{}; correct the VCD's header", w.what)))?;
    let body = header_text.len() as u64;
    let mut vcd = Vcd { text, header, body, end: 0, gaps: Vec::new(), kept: None };
    // The whole body is checked now, so that a damaged file is refused by whatever opens it.
    let all = vcd.header.nets.limbs().take(MAX_KEPT_LIMBS + 1).collect::<Vec<_>>();
    let wanted = if all.len() <= MAX_KEPT_LIMBS { all } else { Vec::new() };
    let (body, kept) = vcd.check_body(&wanted, MAX_KEPT_BYTES)?;
    vcd.end = body.end;
    vcd.gaps = body.gaps();
    vcd.kept = kept.filter(|_| !wanted.is_empty()).map(|pieces| (wanted, pieces));
    Ok(Capture {
        path: vcd.text.path().into(),
        format: "vcd",
        channels: vcd.header.channels.clone(),
        notes: vcd.header.notes.clone(),
        captures: 1,
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
        &self.gaps
    }

    fn signals(&self, limbs: &[Limb]) -> Result<Vec<Signal>> {
        let nets = self.nets_of(limbs);
        let mut signals = vec![Signal::default(); nets.len()];
        self.for_each_piece(&nets, |piece, places| {
            self.unpack(piece, &nets, places, &mut signals);
            Ok(true)
        })?;
        Ok(signals)
    }

    fn parts(&self, limbs: &[Limb], take: &mut dyn FnMut(&[Signal]) -> Result<bool>) -> Result<()> {
        let nets = self.nets_of(limbs);
        let mut signals = vec![Signal::default(); nets.len()];
        let mut goes_on = true;
        self.for_each_piece(&nets, |piece, places| {
            self.unpack(piece, &nets, places, &mut signals);
            // What changes at the last time of a piece may change once more in the next.
            let last: Vec<Signal> = signals.iter_mut().map(|signal| signal.split_off(piece.stamps.last())).collect();
            goes_on = take(&signals)?;
            signals.iter_mut().zip(&last).for_each(|(signal, last)| signal.set(last));
            Ok(goes_on)
        })?;
        if goes_on { take(&signals).map(|_| ()) } else { Ok(()) }
    }
}

impl Vcd {
    fn nets_of(&self, limbs: &[Limb]) -> Vec<NetLimb> {
        limbs.iter().map(|limb| (self.header.channel_nets[limb.channel], limb.index)).collect()
    }

    /// Gives the pieces in order of time, and where in them each of `nets` is; `take` says whether to go on.
    fn for_each_piece(
        &self,
        nets: &[NetLimb],
        mut take: impl FnMut(&Kept, &[Option<usize>]) -> Result<bool>,
    ) -> Result<()> {
        let places = |all: &[NetLimb]| -> Vec<_> { nets.iter().map(|net| all.binary_search(net).ok()).collect() };
        if let Some((all, pieces)) = &self.kept {
            let places = places(all);
            for piece in pieces {
                interrupt::check()?;
                if !take(piece, &places)? {
                    break;
                }
            }
            return Ok(());
        }
        let mut distinct = nets.to_vec();
        distinct.sort_unstable();
        distinct.dedup();
        let places = places(&distinct);
        self.scan_body(&distinct, &mut |piece| take(&piece, &places)).map(|_| ())
    }

    /// Appends the changes in a piece to those of each net.
    fn unpack(&self, piece: &Kept, nets: &[NetLimb], places: &[Option<usize>], signals: &mut [Signal]) {
        let times = piece.stamps.times();
        for ((&(net, limb), place), signal) in nets.iter().zip(places).zip(signals) {
            if let Some(place) = *place {
                piece.signals[place].unpack(limb_width(self.header.nets.width(net), limb), &times, signal);
            }
        }
    }

    /// Checks the body and keeps the changes of some limbs, if they take no more than `most` bytes.
    fn check_body(&self, wanted: &[NetLimb], most: usize) -> Result<(Body, Option<Vec<Kept>>)> {
        let (mut pieces, mut bytes) = (Vec::new(), 0);
        let body = self.scan_body(wanted, &mut |piece| {
            bytes += piece.bytes();
            if bytes <= most {
                pieces.push(piece);
            } else {
                pieces.clear();
            }
            Ok(bytes <= most)
        })?;
        Ok((body, (bytes <= most).then_some(pieces)))
    }

    /// Gives the changes of the given limbs, which are in order of their nets, piece by piece, until `take` says that it wants
    /// no more; all of the body is checked.
    fn scan_body(&self, wanted: &[NetLimb], take: &mut dyn FnMut(Kept) -> Result<bool>) -> Result<Body> {
        let slots = Slots::new(&self.header.nets, wanted);
        let checked_only = Slots::new(&self.header.nets, &[]);
        let scan_piece = |piece: &Piece, keep: bool| {
            scan(&piece.text, &self.header.nets, if keep { &slots } else { &checked_only })
                .map_err(|Wrong { at, what }| damaged(&self.text, piece.offset + at as u64, &what))
        };
        let mut body = Body::default();
        let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
        let mut pieces = Pieces::new(&self.text, self.body)?;
        let pieces = std::iter::from_fn(move || pieces.next().transpose());
        let keep = AtomicBool::new(true);
        let work = |piece: Piece, _: &mut ()| {
            let scan = scan_piece(&piece, keep.load(Ordering::Relaxed));
            Ok((piece, scan.map(Scan::shrunk)))
        };
        // Text that ended within a statement; the next piece continues it.
        let mut unfinished: Option<Piece> = None;
        in_order(pieces, threads, work, |(mut piece, mut scan)| {
            if let Some(mut head) = unfinished.take() {
                head.text.append(&mut piece.text);
                if head.text.len() > MAX_STEP_BYTES {
                    return Err(self.text.wrong_at(head.offset, too_long("a comment or value")));
                }
                piece = head;
                scan = scan_piece(&piece, keep.load(Ordering::Relaxed));
            }
            let scan = scan?;
            if scan.unfinished {
                unfinished = Some(piece);
                return Ok(());
            }
            let kept = body.add(scan, &piece, &self.text)?;
            if keep.load(Ordering::Relaxed) {
                keep.store(take(kept)?, Ordering::Relaxed);
            }
            Ok(())
        })?;
        if let Some(piece) = unfinished {
            let end = piece.offset + piece.text.len() as u64;
            return Err(self
                .text
                .wrong_at(end, "the file is cut off within its last value or comment; record it again"));
        }
        Ok(body)
    }
}

/// The changes in a piece of the body, of each limb that was asked for.
struct Kept {
    stamps: Stamps,
    signals: Vec<Packed>,
}

impl Kept {
    /// Bytes that it takes.
    fn bytes(&self) -> usize {
        self.stamps.len() + self.signals.iter().map(|signal| size_of::<Packed>() + signal.len()).sum::<usize>()
    }
}

/// What is known of the body besides its changes.
#[derive(Default)]
struct Body {
    end: u64,
    switches: Vec<(u64, bool)>,
}

impl Body {
    /// The next piece; its changes.
    fn add(&mut self, scan: Scan, piece: &Piece, text: &Text) -> Result<Kept> {
        if let Some(first) = scan.first_time.filter(|&first| first < self.end) {
            let what = format!("time runs backwards from {} to {first}", self.end);
            return Err(damaged(text, piece.offset, &what));
        }
        self.end = scan.last_time.unwrap_or(self.end);
        self.switches.extend(scan.switches);
        Ok(Kept { stamps: scan.stamps, signals: scan.signals })
    }

    fn gaps(&self) -> Vec<(u64, u64)> {
        let mut gaps = Vec::new();
        let mut off = None;
        for &(time, on) in &self.switches {
            match (on, off) {
                (false, None) => off = Some(time),
                (true, Some(since)) => {
                    gaps.push((since, time));
                    off = None;
                }
                _ => {}
            }
        }
        gaps.extend(off.map(|since| (since, self.end)));
        gaps.retain(|(from, to)| from < to);
        gaps
    }
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
        Ok(Pieces { source, reader: source.read_from(body)?, offset: body, rest: Vec::new() })
    }

    fn next(&mut self) -> Result<Option<Piece>> {
        let mut text = std::mem::take(&mut self.rest);
        loop {
            let old = text.len();
            let read = append(&mut self.reader, &mut text, PIECE_BYTES).map_err(|e| self.source.unreadable(e))?;
            let at_end = read < PIECE_BYTES;
            if !at_end {
                let Some(cut) = last_stamp(&text, old) else {
                    if text.len() > MAX_STEP_BYTES {
                        return Err(self.source.wrong_at(self.offset, too_long("what lies between two time stamps")));
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

fn damaged(text: &Text, offset: u64, what: &str) -> Error {
    text.wrong_at(offset, format!("{what}; the VCD is damaged, write it again"))
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
        let count = (1 << 16).max(header.len());
        let read = append(&mut reader, &mut header, count).map_err(|e| text.unreadable(e))?;
        let at_end = read < count;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::testing::TempFile;

    const HEADER: &str = "$date today $end\n$timescale 10 ns $end\n$scope module top $end\n\
        $var wire 1 ! CLK $end $var wire 4 ab AD [3:0] $end $var wire 1 % D [7] $end\n\
        $var real 64 r V $end $scope module sub $end $var wire 1 ! c $end $upscope $end $upscope $end\n\
        $enddefinitions $end\n";

    fn open_text(text: &str) -> Result<(TempFile, Capture)> {
        let file = TempFile::new("a.vcd", text.as_bytes());
        let capture = open(Text::new(file.path(), false), None)?;
        Ok((file, capture))
    }

    fn changes(capture: &Capture) -> &dyn Changes {
        let Data::Changes(changes) = &capture.data else {
            panic!("a VCD lists changes");
        };
        &**changes
    }

    fn refusal(body: &str) -> String {
        match open_text(&(HEADER.to_owned() + body)) {
            Err(Error::Format { offset, message, .. }) => {
                let place = offset.expect("the place is known") as usize - HEADER.len();
                format!("{place}: {}", message.trim_end_matches("; the VCD is damaged, write it again"))
            }
            Err(other) => panic!("{other}"),
            Ok(_) => panic!("{body:?} was read"),
        }
    }

    #[test]
    fn names_widths_values_and_times() {
        let body = "$dumpvars 0! bxZ ab x% r1.5 r $end\n#10 1! b1 ab\n$comment #3 0! $end\n#20\n0!\nB101z ab\nz%\n#20 1!\n#30\n";
        let (_file, capture) = open_text(&(HEADER.to_owned() + body)).unwrap();
        let names: Vec<_> = capture.channels.iter().map(|c| (c.name.as_str(), c.width)).collect();
        assert_eq!(names, [("top.CLK", 1), ("top.AD[3:0]", 4), ("top.D[7]", 1), ("top.sub.c", 1)]);
        let vcd = changes(&capture);
        assert_eq!((vcd.tick(), vcd.end()), ((1, 100_000_000), 30));
        let signals = vcd.signals(&Limb::lowest(&[3, 1, 2, 0])).unwrap();
        let clk = Signal { times: vec![0, 10, 20, 20], values: vec![0, 1, 0, 1], ..Signal::default() };
        assert_eq!((&signals[0], &signals[3]), (&clk, &clk));
        let ad = Signal {
            times: vec![0, 10, 20],
            values: vec![0, 1, 0b1010],
            unknown: vec![0b1110, 0, 0],
            high_z: vec![0b0001, 0, 0b0001],
        };
        assert_eq!(signals[1], ad);
        let d = Signal { times: vec![0, 20], values: vec![0, 0], unknown: vec![1, 0], high_z: vec![0, 1] };
        assert_eq!(signals[2], d);
        assert_eq!(vcd.signals(&Limb::lowest(&[3, 1, 2, 0])).unwrap(), signals, "read again");
    }

    #[test]
    fn no_more_changes_are_kept_than_asked() {
        let body: String = (0..200_000).map(|i| format!("#{}\n{}!\n", 10 * i, i % 2)).collect();
        let file = TempFile::new("a.vcd", (HEADER.to_owned() + &body).as_bytes());
        let text = Text::new(file.path(), false);
        let header_text = read_header(&text).unwrap();
        let header = header::parse(&header_text, None).unwrap();
        let clk = header.channel_nets[0];
        let body = header_text.len() as u64;
        let vcd = Vcd { text, header, body, end: 0, gaps: Vec::new(), kept: None };
        let all = vcd.check_body(&[(clk, 0)], usize::MAX).unwrap().1.unwrap();
        let bytes = all.iter().map(|piece| piece.stamps.len() + piece.signals[0].len() + size_of::<Packed>()).sum();
        assert_eq!(all.iter().map(|piece| piece.signals[0].count()).sum::<usize>(), 200_000);
        assert!(bytes < 3 * 200_000);
        assert!(vcd.check_body(&[(clk, 0)], bytes).unwrap().1.is_some());
        let (body, kept) = vcd.check_body(&[(clk, 0)], bytes - 1).unwrap();
        assert_eq!((kept.is_some(), body.end), (false, 1_999_990));
    }

    #[test]
    fn a_dump_turned_off_is_a_gap() {
        let body = "#5 1!\n$dumpoff x! bx ab x% $end\n#9\n$dumpon 0! b0 ab 0% $end\n#12 1!\n#15 $dumpoff x! $end\n#20";
        let (_file, capture) = open_text(&(HEADER.to_owned() + body)).unwrap();
        assert_eq!(changes(&capture).gaps(), [(5, 9), (15, 20)]);
    }

    #[test]
    fn what_a_simulator_does_not_write_is_refused_with_its_place() {
        assert_eq!(refusal("#10 1!\n#9 0!\n"), "7: time runs backwards from 10 to 9");
        assert_eq!(refusal("#1x"), "0: `#1x` is not a time");
        assert_eq!(refusal("#99999999999999999999"), "0: `#99999999999999999999` is not a time");
        assert_eq!(refusal("1?"), "0: `1?` changes a net `?` that the header does not declare");
        assert_eq!(refusal("#1 1"), "3: `1` changes no net: its identifier is missing");
        assert_eq!(refusal("b1 abc"), "3: `b1 abc` changes a net `abc` that the header does not declare");
        assert_eq!(refusal("b10101 ab"), "0: `b10101 ab` is 5 bits for a net of 4");
        assert_eq!(refusal("b102 ab"), "0: `b102` is not a value");
        assert_eq!(refusal("#5 pDD 6 6 !"), "3: `pDD` is neither a time nor a value change");
        assert_eq!(refusal("$scope"), "0: `$scope` has no place among the value changes");
        for cut in ["#5 1!\nb10", "#5 1!\nb10 ", "#5 $comment 1!", "#5 r1.5"] {
            let message = refusal(cut);
            assert!(message.starts_with(&format!("{}: the file is cut off", cut.len())), "{message}");
        }
    }

    #[test]
    fn headers_that_say_too_little_are_refused() {
        let wrong = |text: &str| open_text(text).map(|_| ()).unwrap_err().to_string();
        let without = |part: &str| wrong(&HEADER.replace(part, ""));
        assert!(without("$enddefinitions $end").contains("the VCD header ends without"));
        assert!(without("$timescale 10 ns $end").contains("no `$timescale`"));
        let instead = |part: &str, other: &str| wrong(&HEADER.replace(part, other));
        for unit in ["0 ns", "10 lightyears", "ns", "10", "99999999999999999999 s"] {
            assert!(instead("10 ns", unit).contains("is not a number and a unit"), "{unit}");
        }
        assert!(instead("wire 4 ab", "wire 4 !").contains("`!` is declared with 1 and with 4 bits"));
        assert!(instead("wire 4 ab AD", "wire four ab AD").contains("is not type, width, identifier, name"));
        assert!(instead("$date today $end", "today").contains("`today` stands where"));
    }

    /// What lies across the cuts between pieces: comments with times in them, values apart from their identifiers.
    #[test]
    fn pieces_do_not_show() {
        let mut text = HEADER.to_owned();
        let mut expected = Signal::default();
        let mut random = 1u32;
        for time in 0.. {
            if text.len() > 3 * PIECE_BYTES {
                break;
            }
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let value = u64::from(random >> 28);
            if random >> 10 & 1 == 0 {
                // Wherever a piece ends, some times go on in the next.
                text += &format!("#{time}\nb1 ab\n");
                expected.push(time, 1, 0, 0);
            }
            text += &format!("#{time}\nb{value:b}");
            text += match random >> 8 & 3 {
                0 => " ab\n",
                1 => "\nab\n$comment\n#3\n1!\n$end\n",
                2 => "\n\n\n ab ",
                _ => " ab\n1%\n",
            };
            expected.push(time, value, 0, 0);
        }
        text += "$comment";
        while text.len() < 5 * PIECE_BYTES {
            text += " #1\n";
        }
        text += "$end";
        let (file, capture) = open_text(&text).unwrap();
        assert_eq!(changes(&capture).signals(&Limb::lowest(&[1])).unwrap(), [expected.clone()]);
        let mut parts: Vec<Signal> = Vec::new();
        let mut take = |part: &[Signal]| {
            parts.push(part[0].clone());
            Ok(true)
        };
        changes(&capture).parts(&Limb::lowest(&[1]), &mut take).unwrap();
        assert!(parts.len() > 3);
        let times = |part: &Signal| (part.times.first().copied(), part.times.last().copied());
        let not_empty: Vec<_> = parts.iter().map(times).filter(|(first, _)| first.is_some()).collect();
        assert!(not_empty.windows(2).all(|pair| pair[0].1 < pair[1].0), "a time is in one part");
        assert_eq!(parts.iter().flat_map(|part| part.times.clone()).collect::<Vec<_>>(), expected.times);
        assert_eq!(parts.iter().flat_map(|part| part.values.clone()).collect::<Vec<_>>(), expected.values);

        std::fs::write(file.path(), text + "\n#0").unwrap();
        let error = open(Text::new(file.path(), false), None).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("time runs backwards"), "{error}");
    }
}
