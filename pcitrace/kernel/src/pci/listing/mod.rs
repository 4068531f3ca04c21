//! A capture as lines for people: parts of it in, text out.
//!
//! - `rows` reads the parts, `line` says what a line has and `writer` writes it, `names` says what an address is;
//! - `joined` puts the attempts of one access together, `news` tells which accesses may change names.
//!
//! Names are given from outside and may change between two lines: a listing names what is known at that line.

pub mod clocks;
mod joined;
mod line;
pub mod names;
pub mod news;
mod rows;
mod writer;

use crate::error::{Error, Result};
use crate::pci::decoding::parts::Part;
use crate::pci::problems::What;
use joined::Joined;
use line::{Ending, Line};
use names::{Names, Window};
use rows::{Problem, Row, Rows, Sentences};
use std::collections::{HashSet, VecDeque};
use std::ops::Range;
use writer::{Style, Writer};

/// Columns of transactions that a listing reads.
pub const COLUMNS: [&str; 17] = [
    "bus",
    "transaction",
    "start_us",
    "start_clk",
    "clocks",
    "command",
    "address",
    "data_phases",
    "bytes",
    "bytes_exact",
    "wait_clks",
    "termination",
    "initiator",
    "dac",
    "end_us",
    "last_data_us",
    "message",
];

/// Columns of a time in us with three decimals: up to 10,000 s, and up to 1 s where a terminal is narrow.
const WIDE: usize = 14;
const NARROW: usize = 10;

/// What nobody claims is said once a page of so many bytes, and of so many pages.
const PAGE: u64 = 4096;
const PAGES: usize = 4096;

/// What one line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layer {
    /// A transaction; the retries of one access are one line.
    Transactions,
    /// A data phase.
    Data,
    /// An access: its retries and what disconnects cut it to are one line.
    Accesses,
}

/// What the times count from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Zero {
    Start,
    /// The line before.
    LineBefore,
    /// A time of the capture in us.
    At(f64),
}

#[derive(Debug, Clone)]
pub struct Options {
    pub layer: Layer,
    pub zero: Zero,
    /// Columns of the terminal; longer lines are cut.
    pub width: Option<usize>,
    pub colour: bool,
    /// Every data phase of a line, not only the first ones.
    pub all_data: bool,
    /// Each retry by itself.
    pub raw: bool,
    /// Columns of the longest name of a bus; 0: there is one bus, and lines do not name it.
    pub bus_width: usize,
    /// Not all transactions are listed: problems only of those that are, and from here to there those of none.
    pub problems_of_us: Option<(f64, f64)>,
    /// The same in clocks.
    pub problems_of_clks: Option<(f64, f64)>,
    /// Columns of the longest name of an initiator; 0: no GNT# was captured.
    pub initiator_width: usize,
}

impl Options {
    /// Whether all transactions are listed.
    fn all_rows(&self) -> bool {
        self.problems_of_us.is_none()
    }

    /// Columns of the terminal that are left beside the time, who it was, and what a line ends with.
    fn left(&self, time: usize, ending: Ending) -> usize {
        let column = |width: usize| if width > 0 { width + 2 } else { 0 };
        let before = 1 + time + " us  ".len() + column(self.bus_width) + column(self.initiator_width);
        self.width.map_or(usize::MAX, |width| width.saturating_sub(before + ending.columns()))
    }

    /// Whether the terminal has no room for lines as a file has them.
    fn is_narrow(&self) -> bool {
        self.left(WIDE, Ending::Words) < line::WHAT
    }

    /// What lines end with.
    fn ending(&self) -> Ending {
        match () {
            () if !self.is_narrow() => Ending::Words,
            () if self.left(NARROW, Ending::Letters) >= line::LEAST => Ending::Letters,
            () => Ending::Alone,
        }
    }

    /// Columns of a time.
    fn time_width(&self) -> usize {
        if self.is_narrow() { NARROW } else { WIDE }
    }
}

/// A listing under way.
pub struct Listing {
    options: Options,
    pub names: Names,
    /// Sentences of the rules that are told, by bus and id.
    pub rules: Sentences,
    joined: Joined,
    /// Pages of which was said that nobody claims them: bus, I/O, address.
    unclaimed: HashSet<(String, bool, u64)>,
    problems: VecDeque<Problem>,
    /// Where LOCK# falls in rows that are still to come: bus and time.
    locks: VecDeque<(String, f64)>,
    /// Start of the line before.
    before_us: Option<f64>,
    out: Vec<u8>,
}

impl Listing {
    pub fn new(options: Options) -> Self {
        Listing {
            joined: Joined::new(options.layer == Layer::Accesses),
            options,
            names: Names::default(),
            rules: Sentences::new(),
            unclaimed: HashSet::new(),
            problems: VecDeque::new(),
            locks: VecDeque::new(),
            before_us: None,
            out: Vec::new(),
        }
    }

    /// The problems of a part, before its first lines.
    pub fn problems(&mut self, part: &Part) -> Result<()> {
        let found = rows::problems(&part.problems, &self.rules).map_err(unusable)?;
        let locks = found.iter().filter(|one| one.is_event && one.text.starts_with(What::LOCKED));
        self.locks.extend(locks.map(|one| (one.bus.clone(), one.time_us)));
        if !self.options.all_rows() {
            // Not all transactions are listed, and a problem comes with its own or later.
            self.problems.retain(|one| one.transaction.is_none());
        }
        let wanted = found.into_iter().filter(|one| one.transaction.is_some() || self.is_wanted(one));
        self.problems.extend(wanted.collect::<Vec<_>>());
        Ok(())
    }

    /// The line of what no transaction has: what is wrong with the lines of a bus themselves.
    pub fn cause(&mut self, bus: String, time_us: f64, text: String) -> Vec<u8> {
        self.problem(&Problem { bus, time_us, first_clk: None, transaction: None, text, is_event: false });
        std::mem::take(&mut self.out)
    }

    /// The lines of some transactions of a part.
    pub fn lines(&mut self, part: &Part, range: Range<usize>) -> Result<Vec<u8>> {
        let rows = Rows::of(part, &range).map_err(unusable)?;
        for number in range {
            self.row(&rows.row(number));
        }
        // The next lines take about as much room.
        let room = Vec::with_capacity(self.out.len());
        Ok(std::mem::replace(&mut self.out, room))
    }

    /// What is left when the capture is over.
    pub fn finish(&mut self) -> Vec<u8> {
        for line in self.joined.all() {
            self.write(&line);
        }
        while let Some(problem) = self.problems.pop_front() {
            if self.is_wanted(&problem) {
                self.problem(&problem);
            }
        }
        std::mem::take(&mut self.out)
    }

    fn row(&mut self, row: &Row) {
        while self.locks.front().is_some_and(|(_, time_us)| *time_us <= row.start_us) {
            self.locks.pop_front();
        }
        self.due_problems(row, false);
        match self.options.layer {
            Layer::Data => self.data_lines(row),
            _ if self.options.raw => self.write(&self.line(row)),
            _ => {
                if self.joined.is_waiting() {
                    for line in self.joined.overdue(row) {
                        self.write(&line);
                    }
                }
                if let Some(mut line) = self.joined.next(row) {
                    line.locked = line.number == row.number && self.is_locked(row);
                    self.write(&line);
                }
            }
        }
        self.due_problems(row, true);
        if row.termination == "master_abort" {
            self.unclaimed(row);
        }
    }

    /// A row as a line of its own; whether it is locked the changes of LOCK# within it tell.
    fn line<'a>(&self, row: &Row<'a>) -> Line<'a> {
        let mut line = Line::of(row);
        line.locked = self.is_locked(row);
        line
    }

    fn is_locked(&self, row: &Row) -> bool {
        let mut locks = self.locks.iter().take_while(|(_, time_us)| *time_us <= row.end_us);
        locks.any(|(bus, time_us)| bus == row.bus && *time_us > row.start_us)
    }

    /// An access to memory or I/O that nobody claimed, where base address registers say who should.
    #[cold]
    fn unclaimed(&mut self, row: &Row) {
        let io = matches!(row.command, Some(2 | 3));
        let (Some(address), Some(2 | 3 | 6 | 7 | 0xC | 0xE | 0xF)) = (row.address, row.command) else { return };
        if self.unclaimed.len() < PAGES && !self.unclaimed.insert((row.bus.into(), io, address / PAGE)) {
            return;
        }
        let Some(nearest) = self.names.nearest(row.bus, io, address, row.number) else { return };
        let text = match self.names.place(row.bus, io, address, row.number) {
            Some(place) => {
                let Window { name, size_known, .. } = place.window;
                let covers = if *size_known { "covers it" } else { "may cover it (its size was not read)" };
                format!("nobody claims {address:08x}, though {name} {covers}: is the device enabled to answer?")
            }
            None => {
                let Window { name, base, size, .. } = nearest;
                let end = match nearest.size_known {
                    true => format!("to {:08x}", base + (size - 1)),
                    false => "on, of a size that was not read".into(),
                };
                format!(
                    "nobody claims {address:08x}: no base address register covers it; nearest is {name}, {base:08x} {end}"
                )
            }
        };
        self.problem(&Problem {
            bus: row.bus.into(),
            time_us: row.start_us,
            first_clk: None,
            transaction: Some(row.number),
            text,
            is_event: false,
        });
    }

    /// One line a data phase, at its own time and address; a transaction without data is a line, too.
    fn data_lines(&mut self, row: &Row) {
        let whole = self.line(row);
        if whole.data.is_empty() {
            return self.write(&whole);
        }
        let each = whole.phase_bytes();
        for (nth, &phase) in whole.data.iter().enumerate() {
            let address =
                whole.address.map(|address| if nth == 0 { address } else { (address & !3) + each * nth as u64 });
            let enabled = phase.enables.map(|enables| each - u64::from((enables & (0xff >> (8 - each))).count_ones()));
            self.write(&Line {
                time_us: phase.time_us,
                address,
                data: vec![phase].into(),
                bytes: enabled.unwrap_or(each),
                exact: enabled.is_some(),
                wide: each == 8,
                waits: None,
                termination: if nth + 1 == whole.data.len() { whole.termination.clone() } else { "".into() },
                ..whole.clone()
            });
        }
    }

    /// Writes problems that belong before a row, or right behind it.
    fn due_problems(&mut self, row: &Row, behind: bool) {
        while let Some(problem) = self.problems.front() {
            let mine = problem.transaction.filter(|_| problem.bus == row.bus);
            let due = match mine {
                Some(number) => number < row.number || behind && number == row.number,
                None => problem.time_us <= row.start_us,
            };
            if !due {
                return;
            }
            if let Some(problem) = self.problems.pop_front() {
                let of_this = mine == Some(row.number);
                if of_this || self.is_wanted(&problem) {
                    self.problem(&problem);
                }
            }
        }
    }

    /// Whether a problem is shown although its transaction is not before it.
    fn is_wanted(&self, problem: &Problem) -> bool {
        let Some((from, to)) = self.options.problems_of_us else { return true };
        let in_clocks = match (self.options.problems_of_clks, problem.first_clk) {
            (Some((from, to)), Some(clk)) => (from..to).contains(&(clk as f64)),
            _ => true,
        };
        problem.transaction.is_none() && in_clocks && (from..to).contains(&problem.time_us)
    }

    fn problem(&mut self, problem: &Problem) {
        let time_us = self.shown_us(problem.time_us);
        let mut writer = Writer::new(&mut self.out, &self.options);
        let (style, mark) = if problem.is_event { (Style::Notable, b' ') } else { (Style::Problem, b'!') };
        writer.time(style, mark, time_us, self.options.time_width());
        writer.column(style, &problem.bus, self.options.bus_width);
        if !self.options.is_narrow() {
            writer.column(style, "", self.options.initiator_width);
        }
        writer.text(style, &problem.text);
        writer.end();
    }

    fn write(&mut self, line: &Line) {
        let time_us = self.shown_us(line.time_us);
        self.before_us = Some(line.time_us);
        line.write(time_us, &self.names, &self.options, &mut self.out);
        if let Some(text) = line.never_completed().filter(|_| self.options.all_rows()) {
            self.problem(&Problem {
                bus: line.bus.to_string(),
                time_us: line.time_us,
                first_clk: None,
                transaction: None,
                text,
                is_event: false,
            });
        }
    }

    fn shown_us(&self, time_us: f64) -> f64 {
        match self.options.zero {
            Zero::Start => time_us,
            Zero::At(zero) => time_us - zero,
            Zero::LineBefore => self.before_us.map_or(0.0, |before| time_us - before),
        }
    }
}

fn unusable(column: String) -> Error {
    Error::Decode(format!("a listing needs the column {column}"))
}
