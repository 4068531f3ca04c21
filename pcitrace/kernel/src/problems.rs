//! What was wrong on the bus or in the capture: what repeats is one row with its count.
//!
//! A line that toggles on a dead bus breaks a rule at every other clock, for as long as the capture lasts. Its row says
//! how often, from which clock to which. A row ends where a transaction begins or the capture has a gap, so the rows
//! are bounded by those, and they are the same however the capture is cut.

use crate::rows::Origin;
use crate::rules::Rule;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProblemKind {
    Gap,
    UnknownLevel,
    StartsInside,
    Truncated,
    IllegalSequence,
    AddressParity,
    DataParity,
    ParityError,
    SystemError,
    Suspect,
    /// Nothing is wrong: INTA# to INTD# or LOCK# changed. Only in parts that are to be listed.
    Event,
    /// A rule of the catalogue is broken; only where rules were asked for.
    Broken(Rule),
}

impl ProblemKind {
    pub fn name(self) -> &'static str {
        match self {
            ProblemKind::Gap => "gap",
            ProblemKind::UnknownLevel => "unknown_level",
            ProblemKind::StartsInside => "starts_inside",
            ProblemKind::Truncated => "truncated",
            ProblemKind::IllegalSequence => "illegal_sequence",
            ProblemKind::AddressParity => "address_parity",
            ProblemKind::DataParity => "data_parity",
            ProblemKind::ParityError => "perr",
            ProblemKind::SystemError => "serr",
            ProblemKind::Suspect => "suspect",
            ProblemKind::Event => "event",
            ProblemKind::Broken(rule) => rule.id(),
        }
    }
}

/// Whom a problem concerns: transactions by their numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Concerns {
    Transaction(u64),
    /// None, where so many had begun.
    NoneAfter(u64),
}

impl Concerns {
    pub fn transaction(self) -> Option<u64> {
        match self {
            Concerns::Transaction(number) => Some(number),
            Concerns::NoneAfter(_) => None,
        }
    }

    fn counted_from(self, origin: Origin) -> Self {
        match self {
            Concerns::Transaction(number) => Concerns::Transaction(number + origin.transactions),
            Concerns::NoneAfter(begun) => Concerns::NoneAfter(begun + origin.transactions),
        }
    }
}

/// Something wrong, once or several times in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// Of the first time.
    pub stamp: u64,
    pub kind: ProblemKind,
    pub concerns: Concerns,
    pub text: &'static str,
    /// Of a broken rule: F I T S D asserted at its clock (bits 0 to 4) and at the one before (bits 8 to 12).
    pub lines: u16,
    /// Numbers of the clocks at which it was seen for the first and for the last time. A gap has that of the clock behind.
    pub first_clk: u64,
    pub last_clk: u64,
    pub count: u64,
}

/// The problems of one bus, in the order in which they were found.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Problems {
    rows: Vec<Problem>,
    /// The last row of each kind and text: a few, one of which may go on.
    last: Vec<usize>,
}

impl Problems {
    #[cold]
    #[inline(never)]
    pub fn push(&mut self, problem: Problem) {
        let same = |row: &Problem| row.kind == problem.kind && row.text == problem.text;
        let found = self.last.iter().position(|&row| same(&self.rows[row]));
        if let Some(place) = found {
            let row = &mut self.rows[self.last[place]];
            // A gap is one by itself, unless no clock is between it and the one before.
            let goes_on = row.concerns == problem.concerns
                && (problem.kind != ProblemKind::Gap || row.last_clk == problem.first_clk);
            if goes_on {
                row.last_clk = problem.last_clk;
                row.count += problem.count;
                return;
            }
        }
        if problem.kind == ProblemKind::Gap {
            self.last.clear();
        } else if let Some(place) = found {
            self.last.swap_remove(place);
        }
        self.last.push(self.rows.len());
        self.rows.push(problem);
    }

    /// The same, with numbers that count from the start of the capture.
    pub fn counted_from(mut self, origin: Origin) -> Self {
        for problem in &mut self.rows {
            problem.concerns = problem.concerns.counted_from(origin);
            problem.first_clk += origin.clocks;
            problem.last_clk += origin.clocks;
        }
        self
    }

    /// Appends what was found later.
    pub fn append(&mut self, more: Problems) {
        more.rows.into_iter().for_each(|problem| self.push(problem));
    }

    /// Takes out the rows that concern what was before a transaction: none of them goes on.
    pub fn take_before(&mut self, transaction: u64) -> Vec<Problem> {
        let over = |row: &Problem| match row.concerns {
            Concerns::Transaction(number) | Concerns::NoneAfter(number) => number < transaction,
        };
        let (taken, left): (Vec<_>, Vec<_>) = std::mem::take(&mut self.rows).into_iter().partition(over);
        self.last.clear();
        left.into_iter().for_each(|row| self.push(row));
        taken
    }

    /// The rows so far, in the order in which they were found.
    pub fn rows(&self) -> &[Problem] {
        &self.rows
    }

    /// Takes the rows that cannot go on where so many transactions have begun. What concerns a transaction may be seen up to
    /// the end of the next one.
    pub fn take_closed(&mut self, begun: u64) -> Vec<Problem> {
        let is_open = |row: &Problem| match row.concerns {
            Concerns::Transaction(number) => begun <= number + 2,
            Concerns::NoneAfter(before) => begun == before,
        };
        let last = std::mem::take(&mut self.last);
        let (mut closed, mut kept) = (Vec::new(), Vec::new());
        for (index, row) in std::mem::take(&mut self.rows).into_iter().enumerate() {
            if last.contains(&index) && is_open(&row) {
                self.last.push(kept.len());
                kept.push(row);
            } else {
                closed.push(row);
            }
        }
        self.rows = kept;
        closed.sort();
        closed
    }

    /// All rows in order of time.
    pub fn in_order(self) -> Vec<Problem> {
        let mut rows = self.rows;
        rows.sort();
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// At clock `clk`, of one of two kinds, where so many transactions had begun; some are linked to the last of them.
    fn problem(clk: u64, what: u8, begun: u64) -> Problem {
        let (kind, text) = match what % 4 {
            0 => (ProblemKind::Gap, "gap"),
            1 => (ProblemKind::DataParity, "parity"),
            _ => (ProblemKind::IllegalSequence, ["a", "b"][usize::from(what % 2)]),
        };
        let linked = what % 4 == 1 && begun > 0;
        let concerns = if linked { Concerns::Transaction(begun - 1) } else { Concerns::NoneAfter(begun) };
        Problem { stamp: clk, kind, concerns, text, lines: 0, first_clk: clk, last_clk: clk, count: 1 }
    }

    #[test]
    fn what_toggles_is_one_row_until_a_transaction_begins() {
        let mut problems = Problems::default();
        for clk in 0..1000 {
            problems.push(problem(2 * clk, 2 + (clk % 2) as u8, u64::from(clk >= 600)));
        }
        let rows = problems.in_order();
        let told: Vec<_> = rows.iter().map(|row| (row.text, row.count, row.first_clk, row.last_clk)).collect();
        assert_eq!(told, [("a", 300, 0, 1196), ("b", 300, 2, 1198), ("a", 200, 1200, 1996), ("b", 200, 1202, 1998)]);
    }

    proptest! {
        #[test]
        fn a_cut_anywhere_changes_nothing(
            found in proptest::collection::vec((0u8..12, 0u64..2, 0u64..3), 0..60),
            cuts in proptest::collection::vec(0usize..60, 0..4),
        ) {
            let (mut clk, mut begun) = (0, 0);
            let found: Vec<Problem> = found.into_iter().map(|(what, transactions, clocks)| {
                begun += transactions;
                clk += clocks;
                problem(clk, what, begun)
            }).collect();
            let mut whole = Problems::default();
            found.iter().for_each(|&problem| whole.push(problem));

            let mut pieces = Problems::default();
            let mut from = 0;
            let mut ends: Vec<usize> = cuts.into_iter().map(|cut| cut.min(found.len())).collect();
            ends.sort_unstable();
            ends.push(found.len());
            for end in ends {
                let mut piece = Problems::default();
                found[from..end].iter().for_each(|&problem| piece.push(problem));
                pieces.append(piece.counted_from(Origin::default()));
                from = end;
            }
            prop_assert_eq!(pieces.in_order(), whole.in_order());
        }
    }
}
