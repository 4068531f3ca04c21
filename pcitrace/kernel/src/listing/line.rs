//! One line of a listing, and how it is written.

use super::Options;
use super::names::{Names, Place};
use super::rows::Row;
use std::borrow::Cow;
use std::io::Write;

const COMMANDS: [&str; 16] = [
    "interrupt acknowledge",
    "special cycle",
    "io read",
    "io write",
    "reserved command 4",
    "reserved command 5",
    "memory read",
    "memory write",
    "reserved command 8",
    "reserved command 9",
    "config read",
    "config write",
    "memory read multiple",
    "dual address cycle",
    "memory read line",
    "memory write and invalidate",
];
const SPECIAL_CYCLE: u8 = 1;

/// An access that was retried so often without any data is never going to be completed: a target may take 16 clocks to its
/// first data (PCI 2.3, section 3.5.1.1), and one that needs longer seldom needs 64 attempts.
const PERSISTENT: u64 = 64;

/// Data phases that a line shows unless it is to show all.
const SHOWN: usize = 4;
/// Data phases in a line of their own.
const IN_A_LINE: usize = 8;
/// Columns of what is done, so that what follows stands in columns, too.
const WHAT: usize = 52;

#[derive(Debug, Clone, Copy)]
pub struct Phase {
    pub time_us: f64,
    pub data: Option<u64>,
    pub enables: Option<u8>,
}

/// What a line says; of one row that is written at once it borrows what it can.
#[derive(Debug, Clone)]
pub struct Line<'a> {
    pub bus: Cow<'a, str>,
    pub number: u64,
    pub time_us: f64,
    /// Of the first attempt.
    pub first_us: f64,
    pub attempts: u64,
    pub command: Option<u8>,
    pub address: Option<u64>,
    pub dac: bool,
    pub initiator: Option<Cow<'a, str>>,
    pub data: Cow<'a, [Phase]>,
    pub phases: u64,
    /// Of the last attempt.
    pub last_phases: u64,
    pub bytes: u64,
    pub exact: bool,
    pub waits: Option<u64>,
    pub termination: Cow<'a, str>,
    pub message: Option<u32>,
    /// LOCK# was taken, or kept, in the clock after its address.
    pub locked: bool,
}

impl<'a> Line<'a> {
    pub fn of(row: &'a Row) -> Self {
        Line {
            bus: row.bus.into(),
            number: row.number,
            time_us: row.start_us,
            first_us: row.start_us,
            attempts: 1,
            command: row.command,
            address: row.address,
            dac: row.dac,
            initiator: row.initiator.map(Into::into),
            data: Cow::Borrowed(&row.data),
            phases: row.data_phases,
            last_phases: row.data_phases,
            bytes: row.bytes,
            exact: row.exact,
            waits: Some(row.waits),
            termination: row.termination.into(),
            message: row.message,
            locked: false,
        }
    }

    /// The same beyond the row.
    pub fn kept(self) -> Line<'static> {
        Line {
            bus: Cow::Owned(self.bus.into_owned()),
            initiator: self.initiator.map(|initiator| Cow::Owned(initiator.into_owned())),
            data: Cow::Owned(self.data.into_owned()),
            termination: Cow::Owned(self.termination.into_owned()),
            ..self
        }
    }

    /// The access with its next attempt: a line stands where the last attempt does.
    pub fn and(mut self, row: &'a Row) -> Self {
        self.number = row.number;
        self.time_us = row.start_us;
        self.attempts += 1;
        self.data.to_mut().extend_from_slice(&row.data);
        self.phases += row.data_phases;
        self.last_phases = row.data_phases;
        self.bytes += row.bytes;
        self.exact &= row.exact;
        self.waits = self.waits.map(|waits| waits + row.waits);
        self.termination = row.termination.into();
        self
    }

    /// Bytes that one data phase may move: 8 where more moved than 4 each.
    pub fn phase_bytes(&self) -> u64 {
        let wide = self.bytes > 4 * self.phases
            || self.data.iter().any(|phase| phase.data.is_some_and(|data| data >> 32 != 0));
        if wide { 8 } else { 4 }
    }

    /// How it ended, and how many attempts it took.
    fn ended(&self, writer: &mut Writer) {
        let (style, text) = match &*self.termination {
            "completion" => (Style::Plain, "completion"),
            "special_cycle" => (Style::Plain, "special cycle"),
            "" => return,
            "retry" => (Style::Notable, "retry"),
            "disconnect_with_data" => (Style::Notable, "disconnect with data"),
            "disconnect_without_data" => (Style::Notable, "disconnect without data"),
            "target_abort" => (Style::Problem, "target abort"),
            "master_abort" => (Style::Problem, "master abort"),
            other => (Style::Problem, other),
        };
        writer.text(style, text);
        let (attempts, in_us) = (self.attempts, self.time_us - self.first_us);
        if attempts > 1 && self.termination == "retry" {
            writer.formatted(style, format_args!(", {attempts} times in {in_us:.3} us, not completed"));
        } else if attempts > 1 {
            writer.formatted(style, format_args!(", {attempts} attempts in {in_us:.3} us"));
        }
        if self.locked {
            writer.text(Style::Notable, ", locked");
        }
    }

    pub fn write(&self, time_us: f64, names: &Names, options: &Options, out: &mut Vec<u8>) {
        let mut writer = Writer::new(out, options);
        writer.time(Style::Plain, b' ', time_us);
        writer.column(Style::Plain, &self.bus, usize::from(options.with_bus) * self.bus.len());
        let initiator = self.initiator.as_deref().map_or("", |line| names.initiator(&self.bus, line));
        writer.column(Style::Plain, initiator, options.initiator_width);
        let start = writer.at;
        self.what(names, options, &mut writer);
        writer.pad(start + WHAT);
        writer.text(Style::Plain, if self.exact { "    " } else { "  <=" });
        writer.number(self.bytes, 4);
        writer.text(Style::Plain, if self.bytes == 1 { " byte " } else { " bytes" });
        if let Some(waits) = self.waits {
            writer.text(Style::Plain, "  ");
            writer.number(waits, 3);
            writer.text(Style::Plain, if waits == 1 { " wait " } else { " waits" });
        }
        writer.text(Style::Plain, "  ");
        self.ended(&mut writer);
        writer.end();
        if options.all_data && self.data.len() > SHOWN {
            self.all_data(options, out);
        }
    }

    /// What is wrong where an access was retried so often that it is no coincidence, and nothing came of it.
    pub fn never_completed(&self) -> Option<String> {
        if self.termination != "retry" || self.attempts < PERSISTENT {
            return None;
        }
        let of = self.address.map_or(String::new(), |address| format!(" {address:08x}"));
        let command = self.command.map_or("access", |command| COMMANDS[usize::from(command)]);
        Some(format!("never completed: {command}{of} was retried {} times", self.attempts))
    }

    /// What is done: the command, where, and with which data.
    fn what(&self, names: &Names, options: &Options, writer: &mut Writer) {
        let style = match self.command {
            Some(0xA | 0xB) => Style::Configuration,
            Some(command) if command & 1 == 1 => Style::Write,
            Some(_) => Style::Read,
            None => Style::Plain,
        };
        writer.text(style, self.command.map_or("transaction", |command| COMMANDS[usize::from(command)]));
        if let Some(message) = self.message {
            writer.formatted(Style::Name, format_args!(" {} ({message:08x})", message_in_words(message as u16)));
        }
        let place = self.place(names);
        if let Some(address) = self.address.filter(|_| self.command != Some(SPECIAL_CYCLE)) {
            match names.configured(&self.bus, address).filter(|_| matches!(self.command, Some(0xA | 0xB))) {
                Some(name) => writer.formatted(Style::Name, format_args!(" {name}")),
                None => writer.address(address, if self.dac { 16 } else { 8 }),
            }
        }
        if let Some(Place { window, offset, register }) = &place {
            writer.formatted(Style::Name, format_args!(" {}+0x{offset:x}", window.name));
            if let Some(register) = register {
                writer.formatted(Style::Name, format_args!(" {}", register.name));
            }
        }
        let shown = if options.all_data && self.data.len() > SHOWN { 0 } else { SHOWN };
        if self.data.iter().any(|phase| phase.data.is_some()) {
            writer.text(Style::Plain, if shown > 0 { " =" } else { "" });
            for phase in self.data.iter().take(shown) {
                writer.text(Style::Plain, " ");
                writer.data(phase, self.phase_bytes());
            }
            if self.data.len() > shown && shown > 0 {
                writer.formatted(Style::Plain, format_args!(" and {} more", self.data.len() - shown));
            }
            self.in_words(place, writer);
        }
    }

    /// A value of a register that has fields, in words.
    fn in_words(&self, place: Option<Place>, writer: &mut Writer) {
        let Some(Place { register: Some(register), offset, .. }) = place else { return };
        let [Phase { data: Some(data), .. }] = self.data[..] else { return };
        if register.fields.is_empty() {
            return;
        }
        // The value stands on the lanes of its bytes.
        let first = offset - offset % 4;
        let words = register.in_words(data >> (8 * register.offset.saturating_sub(first)));
        if !words.is_empty() {
            writer.formatted(Style::Name, format_args!(" ({words})"));
        }
    }

    fn place<'n>(&self, names: &'n Names) -> Option<Place<'n>> {
        let io = match self.command? {
            2 | 3 => true,
            6 | 7 | 0xC | 0xE | 0xF => false,
            _ => return None,
        };
        let address = self.address?;
        // A memory address says the dword; the first enabled byte says which register of it is meant.
        let lane =
            self.data.first().and_then(|phase| phase.enables).map_or(0, |enables| u64::from(enables.trailing_ones()));
        let byte = if io { address } else { (address & !3) + if lane < 4 { lane } else { 0 } };
        let mut place = names.place(&self.bus, io, byte, self.number)?;
        place.offset = address - place.window.base;
        Some(place)
    }

    /// The data of a burst, each line with its offset.
    fn all_data(&self, options: &Options, out: &mut Vec<u8>) {
        let each = self.phase_bytes();
        for (nth, phases) in self.data.chunks(IN_A_LINE).enumerate() {
            let mut writer = Writer::new(out, options);
            writer.formatted(Style::Plain, format_args!("{:>16}+{:04x} ", "", (nth * IN_A_LINE) as u64 * each));
            for phase in phases {
                writer.text(Style::Plain, " ");
                writer.data(phase, each);
            }
            writer.end();
        }
    }
}

/// What AD[15:0] of a special cycle says.
///
/// Ref: PCI Local Bus Specification 2.3, appendix A.
fn message_in_words(code: u16) -> &'static str {
    match code {
        0 => "shutdown",
        1 => "halt",
        2 => "x86 architecture specific",
        _ => "reserved message",
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    Plain,
    Read,
    Write,
    Configuration,
    Name,
    Notable,
    Problem,
}

impl Style {
    /// Ref: ECMA-48, section 8.3.117 (SGR).
    fn code(self) -> &'static str {
        match self {
            Style::Plain => "",
            Style::Read => "\x1b[32m",
            Style::Write => "\x1b[34m",
            Style::Configuration => "\x1b[35m",
            Style::Name => "\x1b[36m",
            Style::Notable => "\x1b[33m",
            Style::Problem => "\x1b[1;31m",
        }
    }
}

/// Writes one line, not wider than the terminal.
pub struct Writer<'a> {
    out: &'a mut Vec<u8>,
    /// Where the line begins in `out`.
    start: usize,
    width: Option<usize>,
    /// Where each style begins and ends, if there are to be colours.
    styles: Option<Vec<(usize, usize, Style)>>,
    /// Columns written.
    pub at: usize,
}

impl<'a> Writer<'a> {
    pub fn new(out: &'a mut Vec<u8>, options: &Options) -> Self {
        let styles = options.colour.then(Vec::new);
        Writer { start: out.len(), out, width: options.width, styles, at: 0 }
    }

    pub fn text(&mut self, style: Style, text: &str) {
        let from = self.out.len();
        self.out.extend_from_slice(text.as_bytes());
        self.written(style, from);
    }

    pub fn formatted(&mut self, style: Style, text: std::fmt::Arguments) {
        let from = self.out.len();
        // A Vec takes all that is written.
        let _ = self.out.write_fmt(text);
        self.written(style, from);
    }

    fn written(&mut self, style: Style, from: usize) {
        let written = &self.out[from..];
        // Names come from files: a column a character is right for all but the rarest.
        self.at += if written.is_ascii() { written.len() } else { String::from_utf8_lossy(written).chars().count() };
        if let Some(styles) = self.styles.as_mut().filter(|_| style != Style::Plain) {
            styles.push((from, self.out.len(), style));
        }
    }

    /// A whole number, right-aligned in so many columns. Formatting it would take several times as long.
    pub fn number(&mut self, value: u64, width: usize) {
        let mut digits = [b' '; 20];
        let (mut rest, mut at) = (value, digits.len());
        while at == digits.len() || rest > 0 {
            at -= 1;
            digits[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        let shown = &digits[at.min(digits.len() - width)..];
        self.out.extend_from_slice(shown);
        self.at += shown.len();
    }

    /// A space and so many digits in hex, more where it needs more.
    pub fn address(&mut self, value: u64, width: usize) {
        let needed = (u64::BITS - value.leading_zeros()).div_ceil(4) as usize;
        let digits = width.max(needed);
        self.out.push(b' ');
        self.out.extend((0..digits).rev().map(|place| b"0123456789abcdef"[(value >> (4 * place) & 15) as usize]));
        self.at += 1 + digits;
    }

    /// Microseconds with three decimals, 15 columns wide with the mark before them.
    pub fn time(&mut self, style: Style, mark: u8, us: f64) {
        let from = self.out.len();
        let ns = (us * 1e3).round();
        if ns.abs() < 1e15 {
            // Ten times as fast as the formatting of floats, and half of a line's time otherwise.
            let mut digits = [b' '; 20];
            let (mut rest, mut at) = ((ns as i64).unsigned_abs(), digits.len());
            for place in 0.. {
                if place == 3 {
                    at -= 1;
                    digits[at] = b'.';
                }
                at -= 1;
                digits[at] = b'0' + (rest % 10) as u8;
                rest /= 10;
                if rest == 0 && place >= 3 {
                    break;
                }
            }
            if ns < 0.0 {
                at -= 1;
                digits[at] = b'-';
            }
            self.out.push(mark);
            self.out.extend_from_slice(&digits[at.min(digits.len() - 14)..]);
        } else {
            let _ = write!(self.out, "{}{us:>14.3}", char::from(mark));
        }
        self.out.extend_from_slice(b" us  ");
        self.written(style, from);
    }

    /// A text in a column of its own, where that has a width.
    pub fn column(&mut self, style: Style, text: &str, width: usize) {
        if width > 0 {
            let end = self.at + width + 2;
            self.text(style, text);
            self.pad(end);
        }
    }

    /// Spaces up to a column.
    pub fn pad(&mut self, column: usize) {
        let more = column.saturating_sub(self.at);
        self.out.resize(self.out.len() + more, b' ');
        self.at += more;
    }

    /// Data in hex; bytes that are not enabled as dots.
    pub fn data(&mut self, phase: &Phase, bytes: u64) {
        let Some(data) = phase.data else { return self.text(Style::Plain, "?") };
        let disabled = phase.enables.unwrap_or(0);
        let mut text = [b'.'; 16];
        for lane in 0..bytes as usize {
            if disabled >> lane & 1 == 0 {
                let byte = (data >> (8 * lane)) as u8;
                let at = 2 * (bytes as usize - 1 - lane);
                text[at] = b"0123456789abcdef"[usize::from(byte >> 4)];
                text[at + 1] = b"0123456789abcdef"[usize::from(byte & 15)];
            }
        }
        self.text(Style::Plain, std::str::from_utf8(&text[..2 * bytes as usize]).unwrap_or("?"));
    }

    /// Ends the line: no spaces at its end, cut where the terminal ends, with its colours.
    pub fn end(self) {
        let kept = self.out[self.start..].iter().rposition(|&byte| byte != b' ').map_or(0, |last| last + 1);
        self.out.truncate(self.start + kept);
        let mut is_cut = false;
        if let Some(width) = self.width.filter(|&width| width > 0 && self.at > width) {
            let line = String::from_utf8_lossy(&self.out[self.start..]).into_owned();
            if let Some((cut, _)) = line.char_indices().nth(width).and_then(|_| line.char_indices().nth(width - 1)) {
                self.out.truncate(self.start + cut);
                self.out.extend_from_slice("…".as_bytes());
                is_cut = true;
            }
        }
        let cut = self.out.len() - self.start - if is_cut { '…'.len_utf8() } else { 0 };
        if let Some(styles) = self.styles {
            let line = self.out.split_off(self.start);
            let mut done = 0;
            for (from, to, style) in styles {
                let to = if to - self.start >= cut { line.len() } else { to - self.start };
                let from = from - self.start;
                if from >= done && from < to && from < cut.max(1) {
                    self.out.extend_from_slice(&line[done..from]);
                    self.out.extend_from_slice(style.code().as_bytes());
                    self.out.extend_from_slice(&line[from..to]);
                    self.out.extend_from_slice(b"\x1b[0m");
                    done = to;
                }
            }
            self.out.extend_from_slice(&line[done..]);
        }
        self.out.push(b'\n');
    }
}
