//! The attempts of one access, put together.
//!
//! A target that says retry is asked again, by the same initiator for the same address with the same command. These
//! attempts are one access, whatever others do in between. Where address or command are not known nothing is joined.

use super::line::Line;
use super::rows::Row;

/// An access that was not repeated for so long was given up: a target may discard its answer then (PCI 2.3, section
/// 3.3.3.3.3: the discard timer counts 2^15 clocks).
const GIVEN_UP_CLKS: u64 = 1 << 15;
/// Accesses that wait to be repeated; beyond them the one that waited longest is let go.
const MOST: usize = 64;

struct Waiting {
    /// Elsewhere, so that the addresses of dozens, which are looked at in every row, lie close together.
    line: Box<Line<'static>>,
    last_clk: u64,
    /// Address of the next attempt.
    next: u64,
    after_retry: bool,
}

/// The accesses that wait to be repeated, the oldest first.
pub struct Joined {
    /// Put together what disconnects cut, too.
    disconnects: bool,
    waiting: Vec<Waiting>,
    /// None of them was given up before this clock of any bus.
    first_given_up: u64,
}

impl Joined {
    pub fn new(disconnects: bool) -> Self {
        Joined { disconnects, waiting: Vec::new(), first_given_up: u64::MAX }
    }

    pub fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Accesses that nobody will go on with, seen from this row.
    pub fn overdue(&mut self, row: &Row) -> Vec<Line<'static>> {
        // Dozens may wait at every row.
        if !self.disconnects && row.start_clk < self.first_given_up {
            return Vec::new();
        }
        let over = |one: &Waiting| {
            let given_up = row.start_clk >= one.given_up();
            let other_access =
                || !one.after_retry && one.line.initiator.as_deref() == row.initiator && !one.continues(row);
            (given_up || other_access()) && one.line.bus == row.bus
        };
        let over = self.waiting.extract_if(.., |one| over(one)).map(|one| *one.line).collect();
        self.first_given_up = self.waiting.iter().map(Waiting::given_up).min().unwrap_or(u64::MAX);
        over
    }

    /// All that wait.
    pub fn all(&mut self) -> Vec<Line<'static>> {
        self.waiting.drain(..).map(|one| *one.line).collect()
    }

    /// Takes a transaction; gives the access that it completes, or one that has waited too long among too many.
    pub fn next<'a>(&mut self, row: &Row<'a>) -> Option<Line<'a>> {
        let begun = match self.waiting.iter().position(|one| one.continues(row)) {
            Some(place) => Some(*self.waiting.remove(place).line),
            None => None,
        };
        let retry = row.termination == "retry";
        let cut = self.disconnects && row.cut;
        let known = row.address.filter(|_| row.command.is_some());
        let line = match begun {
            Some(begun) => begun.and(row),
            None => Line::of(row),
        };
        let Some(address) = known.filter(|_| retry || cut) else { return Some(line) };
        let moved = line.last_phases * line.phase_bytes();
        let next = if moved == 0 { address } else { (address & !3) + moved };
        let last_clk = row.start_clk + row.clocks;
        let waiting = Waiting { line: Box::new(line.kept()), last_clk, next, after_retry: retry };
        self.first_given_up = self.first_given_up.min(waiting.given_up());
        self.waiting.push(waiting);
        (self.waiting.len() > MOST).then(|| *self.waiting.remove(0).line)
    }
}

impl Waiting {
    /// The first clock at which a transaction shows that nobody goes on with it.
    fn given_up(&self) -> u64 {
        self.last_clk + GIVEN_UP_CLKS + 1
    }

    fn continues(&self, row: &Row) -> bool {
        row.address == Some(self.next)
            && row.command == self.line.command
            && row.initiator == self.line.initiator.as_deref()
            && row.bus == self.line.bus
    }
}
