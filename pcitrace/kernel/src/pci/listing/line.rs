//! One line of a listing, and how it is written.

use super::Options;
use super::names::{Names, Place};
use super::rows::Row;
use super::writer::{Style, Writer};
use std::borrow::Cow;

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
pub const WHAT: usize = 52;
/// Columns that are left to it where a terminal is narrow: a command and its address.
pub const LEAST: usize = 24;

/// What a line of a listing ends with, by the room that a terminal has for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd)]
pub enum Ending {
    /// `64 bytes    7 waits  completion`.
    Words,
    /// `64 B   7 w  completion`.
    Letters,
    /// `completion`.
    Alone,
}

impl Ending {
    /// Columns of it where a transaction completed.
    pub fn columns(self) -> usize {
        match self {
            Ending::Words => "     400 bytes    7 waits  completion".len(),
            Ending::Letters => "   400 B   7 w  completion".len(),
            Ending::Alone => "  completion".len(),
        }
    }
}

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
    /// 8 bytes in each data phase, whatever this line shows of them: one of a burst may look like 4.
    pub wide: bool,
}

impl<'a> Line<'a> {
    pub fn of(row: &Row<'a>) -> Self {
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
            data: Cow::Borrowed(row.data),
            phases: row.data_phases,
            last_phases: row.data_phases,
            bytes: row.bytes,
            exact: row.exact,
            waits: Some(row.waits),
            termination: row.termination.into(),
            message: row.message,
            locked: false,
            wide: false,
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
    pub fn and(mut self, row: &Row<'a>) -> Self {
        self.number = row.number;
        self.time_us = row.start_us;
        self.attempts += 1;
        self.data.to_mut().extend_from_slice(row.data);
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
        let wide = self.wide
            || self.bytes > 4 * self.phases
            || self.data.iter().any(|phase| phase.data.is_some_and(|data| data >> 32 != 0));
        if wide { 8 } else { 4 }
    }

    /// What stands behind what was done: bytes, waits, and how it ended.
    fn rest(&self, ending: Ending, options: &Options, writer: &mut Writer) {
        let (indent, bytes, gap, waits) = match ending {
            Ending::Words if self.bytes == 1 => (2, " byte ", "  ", [" waits", " wait "]),
            Ending::Words => (2, " bytes", "  ", [" waits", " wait "]),
            Ending::Letters => (0, " B", " ", [" w"; 2]),
            Ending::Alone => {
                writer.text(Style::Plain, "  ");
                return self.ended(options, writer);
            }
        };
        writer.pad(writer.at + indent);
        writer.text(Style::Plain, if self.exact { "  " } else { "<=" });
        writer.number(self.bytes, 4);
        writer.text(Style::Plain, bytes);
        if let Some(number) = self.waits {
            writer.text(Style::Plain, gap);
            writer.number(number, 3);
            writer.text(Style::Plain, waits[usize::from(number == 1)]);
        }
        writer.text(Style::Plain, "  ");
        self.ended(options, writer);
    }

    /// The rest on a terminal: what was done, from the column `start` on, gives way to how it ended, but not what stands
    /// before the column `least`.
    fn rest_within(&self, width: usize, start: usize, least: usize, options: &Options, writer: &mut Writer) {
        let usual = options.ending();
        let column = match usual {
            Ending::Words => writer.at.max(start + WHAT),
            shorter => width.saturating_sub(shorter.columns()),
        };
        for ending in [Ending::Words, Ending::Letters, Ending::Alone].into_iter().filter(|&one| one >= usual) {
            let mut text = Vec::new();
            let mut rest = Writer::new(&mut text, options);
            self.rest(ending, options, &mut rest);
            if least + rest.at <= width || ending == Ending::Alone {
                let room = width.saturating_sub(rest.at).max(least);
                let column = if ending == usual { column.max(least).min(room) } else { room };
                return writer.ends_with(rest, column);
            }
        }
    }

    /// How it ended, and how many attempts it took.
    fn ended(&self, options: &Options, writer: &mut Writer) {
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
            // Of what was not chosen nothing is said: it may have completed there.
            let outcome = if options.all_rows() { ", not completed" } else { "" };
            writer.formatted(style, format_args!(", {attempts} times in {in_us:.3} us{outcome}"));
        } else if attempts > 1 {
            writer.formatted(style, format_args!(", {attempts} attempts in {in_us:.3} us"));
        }
        if self.locked {
            writer.text(Style::Notable, ", locked");
        }
    }

    pub fn write(&self, time_us: f64, names: &Names, options: &Options, out: &mut Vec<u8>) {
        let mut writer = Writer::new(out, options);
        writer.time(Style::Plain, b' ', time_us, options.time_width());
        writer.column(Style::Plain, &self.bus, options.bus_width);
        let initiator = self.initiator.as_deref().map_or("", |line| names.initiator(&self.bus, line));
        writer.column(Style::Plain, initiator, options.initiator_width);
        let start = writer.at;
        let least = self.what(names, options, &mut writer);
        match options.width {
            None => {
                writer.pad(start + WHAT);
                self.rest(Ending::Words, options, &mut writer);
            }
            Some(width) => self.rest_within(width, start, least, options, &mut writer),
        }
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

    /// What is done: the command, where, and with which data; returns the column up to which a narrow terminal shows it.
    fn what(&self, names: &Names, options: &Options, writer: &mut Writer) -> usize {
        let start = writer.at;
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
        let named = matches!(self.command, Some(0xA | 0xB));
        if let Some(address) = self.address.filter(|_| self.command != Some(SPECIAL_CYCLE)) {
            match named.then(|| names.configured(&self.bus, address)).flatten() {
                Some(name) => writer.texts(Style::Name, [" ", name]),
                None => {
                    writer.text(Style::Plain, " ");
                    writer.hex(Style::Plain, address, if self.dac { 16 } else { 8 });
                }
            }
        }
        // A space, or the mark of a cut, stands behind it.
        let least = 1 + if named { writer.at.min(start + LEAST) } else { writer.at };
        if let Some(Place { window, offset, register }) = &place {
            writer.texts(Style::Name, [" ", &window.name, "+0x"]);
            writer.hex(Style::Name, *offset, 1);
            if let Some(register) = register {
                writer.texts(Style::Name, [" ", &register.name]);
            }
        }
        let shown = if options.all_data && self.data.len() > SHOWN { 0 } else { SHOWN };
        if self.data.iter().any(|phase| phase.data.is_some()) {
            writer.text(Style::Plain, if shown > 0 { " =" } else { "" });
            let each = self.phase_bytes();
            for phase in self.data.iter().take(shown) {
                writer.text(Style::Plain, " ");
                writer.data(phase, each);
            }
            if self.data.len() > shown && shown > 0 {
                writer.formatted(Style::Plain, format_args!(" and {} more", self.phases - shown as u64));
            }
            self.in_words(place, writer);
        }
        least
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
