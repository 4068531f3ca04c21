//! What was wrong on the bus or in the capture: what repeats is one row with its count.
//!
//! A line that toggles on a dead bus breaks a rule at every other clock, for as long as the capture lasts. Its row says
//! how often, from which clock to which. A row ends where a transaction begins or the capture has a gap, so the rows
//! are bounded by those, and they are the same however the capture is cut.

use crate::bus::Origin;
use crate::lane::Lane;
use crate::pci::layout::EVENT_LINES;
use crate::pci::rules::{RULES, Rule};
use crate::pci::suspects::{Suspect, Suspects};
use serde::{Deserialize, Serialize};

/// What a change of each of [`crate::pci::layout::EVENT_LINES`] reads: released, asserted.
const EVENT_TEXTS: [[&str; 2]; EVENT_LINES.len()] = [
    ["INTA# released", "INTA# asserted: an interrupt"],
    ["INTB# released", "INTB# asserted: an interrupt"],
    ["INTC# released", "INTC# asserted: an interrupt"],
    ["INTD# released", "INTD# asserted: an interrupt"],
    ["LOCK# released", "LOCK# asserted: the target is locked"],
];

/// What can be wrong: several may be of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum What {
    Gap,
    UnknownLevel,
    StartsInside,
    Truncated,
    EndsWithinSample,
    IrdyWithoutAddress,
    FrameReleasedInDac,
    FrameWithoutIrdy,
    FrameReturned,
    IrdyAfterLastPhase,
    GaveUp,
    AddressParity,
    DataParity {
        /// Not known of a command that is neither read nor write.
        read: Option<bool>,
    },
    ParityError,
    SystemError,
    Suspect,
    /// Nothing is wrong: INTA# to INTD# or LOCK# changed. Only in parts that are to be listed.
    Event {
        line: u8,
        asserted: bool,
    },
    /// A rule of the catalogue is broken; only where rules were asked for.
    Broken(Rule),
}

impl What {
    /// So many kinds besides the rules.
    const PLAIN: usize = 16;
    const COUNT: usize = What::PLAIN + RULES.len() + 2 * EVENT_LINES.len();
    /// What the kind of all events is called.
    pub const EVENT: &str = "event";
    /// How the text begins that says that LOCK# fell.
    pub const LOCKED: &str = "LOCK# asserted";

    /// Its place among all of them.
    fn place(self) -> usize {
        match self {
            What::Gap => 0,
            What::UnknownLevel => 1,
            What::StartsInside => 2,
            What::Truncated => 3,
            What::EndsWithinSample => 4,
            What::IrdyWithoutAddress => 5,
            What::FrameReleasedInDac => 6,
            What::FrameWithoutIrdy => 7,
            What::FrameReturned => 8,
            What::IrdyAfterLastPhase => 9,
            What::GaveUp => 10,
            What::AddressParity => 11,
            What::DataParity { .. } => 12,
            What::ParityError => 13,
            What::SystemError => 14,
            What::Suspect => 15,
            What::Broken(rule) => What::PLAIN + rule as usize,
            What::Event { line, asserted } => What::PLAIN + RULES.len() + 2 * usize::from(line) + usize::from(asserted),
        }
    }

    /// Its kind, and what it is in words.
    fn told(self) -> (&'static str, &'static str) {
        match self {
            What::Gap => ("gap", "the capture has a gap"),
            What::UnknownLevel => ("unknown_level", "FRAME#, IRDY#, TRDY# or STOP# has no known level"),
            What::StartsInside => (
                "starts_inside",
                "the capture begins while FRAME# or IRDY# is asserted; decoding starts at the first idle clock",
            ),
            What::Truncated => ("truncated", "the capture ends, has a gap or shows a reset inside this transaction"),
            What::EndsWithinSample => {
                ("truncated", "the capture ends within a sample: what there is of it is left out")
            }
            What::IrdyWithoutAddress => {
                ("illegal_sequence", "IRDY# asserted without an address phase in the clock before")
            }
            What::FrameReleasedInDac => {
                ("illegal_sequence", "FRAME# released in the second address phase of a dual address cycle")
            }
            What::FrameWithoutIrdy => ("illegal_sequence", "FRAME# released while IRDY# was not asserted"),
            What::FrameReturned => ("illegal_sequence", "FRAME# asserted again before the last data phase ended"),
            What::IrdyAfterLastPhase => ("illegal_sequence", "IRDY# still asserted after the last data phase"),
            What::GaveUp => ("illegal_sequence", "the initiator gave up a claimed transaction without TRDY# or STOP#"),
            What::AddressParity => ("address_parity", "AD, C/BE# and PAR of the address phase are not even"),
            What::DataParity { .. } => ("data_parity", "AD, C/BE# and PAR of a data phase are not even"),
            What::ParityError => ("perr", "PERR# asserted"),
            What::SystemError => ("serr", "SERR# asserted"),
            What::Suspect => ("suspect", "a control line changed between the last two samples before a clock edge"),
            What::Broken(rule) => (rule.id(), ""),
            What::Event { line, asserted } => (What::EVENT, EVENT_TEXTS[usize::from(line)][usize::from(asserted)]),
        }
    }

    pub fn kind(self) -> &'static str {
        self.told().0
    }

    pub fn text(self) -> &'static str {
        self.told().1
    }

    /// The rule of the catalogue that says the same.
    pub fn rule(self) -> Option<Rule> {
        match self {
            What::IrdyWithoutAddress => Some(Rule::M03),
            What::FrameReleasedInDac => Some(Rule::M22),
            What::FrameWithoutIrdy => Some(Rule::M01),
            What::FrameReturned => Some(Rule::M04),
            What::IrdyAfterLastPhase => Some(Rule::M07),
            What::GaveUp => Some(Rule::M06),
            What::AddressParity => Some(Rule::P01),
            What::DataParity { read: Some(false) } => Some(Rule::P02),
            What::DataParity { read: Some(true) } => Some(Rule::P03),
            What::Broken(rule) => Some(rule),
            _ => None,
        }
    }
}

/// Whom a problem concerns: transactions by their numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
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

    /// Of the transaction, or how many had begun.
    pub fn number(self) -> u64 {
        let (Concerns::Transaction(number) | Concerns::NoneAfter(number)) = self;
        number
    }

    fn counted_from(self, origin: Origin) -> Self {
        match self {
            Concerns::Transaction(number) => Concerns::Transaction(number + origin.transactions),
            Concerns::NoneAfter(begun) => Concerns::NoneAfter(begun + origin.transactions),
        }
    }
}

/// Something wrong, once or several times in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Problem {
    /// Of the first time.
    pub stamp: u64,
    pub what: What,
    pub concerns: Concerns,
    /// Of a broken rule: F I T S D asserted at its clock (bits 0 to 4) and at the one before (bits 8 to 12).
    pub lines: u16,
    /// Numbers of the clocks at which it was seen for the first and for the last time. A gap has that of the clock behind.
    pub first_clk: u64,
    pub last_clk: u64,
    pub count: u64,
}

impl From<Suspect> for Problem {
    fn from(Suspect { stamp, clk, transaction }: Suspect) -> Self {
        let (what, concerns) = (What::Suspect, Concerns::Transaction(transaction));
        Problem { stamp, what, concerns, lines: 0, first_clk: clk, last_clk: clk, count: 1 }
    }
}

/// The problems of one bus.
#[derive(Debug, Clone, PartialEq)]
pub struct Problems {
    /// All but those of `suspects`, in the order in which they were found.
    rows: Lane<Problem>,
    /// The last row of each kind, which may go on; none since a gap.
    last: [Option<u32>; What::COUNT],
    suspects: Suspects,
}

impl Default for Problems {
    fn default() -> Self {
        Problems { rows: Lane::default(), last: [None; What::COUNT], suspects: Suspects::default() }
    }
}

impl Problems {
    #[cold]
    #[inline(never)]
    pub fn push(&mut self, problem: Problem) {
        let place = problem.what.place();
        if let (What::Suspect, Concerns::Transaction(transaction)) = (problem.what, problem.concerns) {
            return self.suspect(Suspect { stamp: problem.stamp, clk: problem.first_clk, transaction }, true);
        }
        if let Some(last) = self.last[place] {
            let row = &mut self.rows[last as usize];
            // A gap is one by itself, unless no clock is between it and the one before.
            let goes_on =
                row.concerns == problem.concerns && (problem.what != What::Gap || row.last_clk == problem.first_clk);
            if goes_on {
                row.last_clk = problem.last_clk;
                row.count += problem.count;
                return;
            }
        }
        if problem.what == What::Gap {
            // What rules say of the transaction that a gap cut may be told before and after it.
            let may_go_on =
                |row: &Problem| matches!((row.what, row.concerns), (What::Broken(_), Concerns::Transaction(_)));
            // So nothing is between two gaps of one clock.
            debug_assert!(
                self.rows
                    .last()
                    .is_none_or(|row| { row.what == What::Gap || may_go_on(row) || row.last_clk < problem.first_clk })
            );
            let rows = &self.rows;
            self.last.iter_mut().for_each(|last| *last = last.filter(|&row| may_go_on(&rows[row as usize])));
        }
        self.last[place] = Some(self.rows.len() as u32);
        self.rows.push(problem);
    }

    /// Of a transaction behind all others, if it `is` so.
    pub fn suspect(&mut self, suspect: Suspect, is: bool) {
        self.suspects.push_if(suspect, is);
    }

    /// The same of several, one at least; each with whether it is so.
    #[inline(always)]
    pub fn suspects(&mut self, count: usize, each: impl Fn(usize) -> (Suspect, bool)) {
        self.suspects.push_some(count, each);
    }

    /// Their numbers count from the start of the capture now.
    pub fn count_from(&mut self, origin: Origin) {
        for problem in self.rows.iter_mut() {
            problem.concerns = problem.concerns.counted_from(origin);
            problem.first_clk += origin.clocks;
            problem.last_clk += origin.clocks;
        }
        self.suspects.count_from(origin);
    }

    /// Rows as [`Problems::rows`] gave them: none of them goes on with another.
    pub fn of(rows: Vec<Problem>) -> Self {
        let (suspects, rows): (Vec<_>, Vec<_>) = rows.into_iter().partition(|row| row.what == What::Suspect);
        let mut problems = Problems { rows: rows.into_iter().collect(), ..Problems::default() };
        suspects.into_iter().for_each(|row| problems.push(row));
        problems
    }

    /// Appends what was found later.
    pub fn append(&mut self, more: Problems) {
        let mut began = [false; What::COUNT];
        for &problem in more.rows.iter() {
            // Only the first of its kind may go on from a row here; what follows it was put together already.
            let place = problem.what.place();
            if problem.what == What::Gap || !std::mem::replace(&mut began[place], true) {
                self.push(problem);
            } else {
                self.last[place] = Some(self.rows.len() as u32);
                self.rows.push(problem);
            }
        }
        self.suspects.append(more.suspects);
    }

    /// Takes out the rows that concern what was before a transaction: none of them goes on.
    pub fn take_before(&mut self, transaction: u64) -> Vec<Problem> {
        let over = |row: &Problem| row.concerns.number() < transaction;
        let (taken, left): (Vec<_>, Vec<_>) = std::mem::take(self).rows().partition(over);
        left.into_iter().for_each(|row| self.push(row));
        taken
    }

    pub fn len(&self) -> usize {
        self.rows.len() + self.suspects.count()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The rows so far, those of each kind in the order in which they were found.
    pub fn rows(&self) -> impl Iterator<Item = Problem> {
        self.rows.iter().copied().chain(self.suspects.iter().map(Problem::from))
    }

    /// Takes the rows that cannot go on where so many transactions have begun. What concerns a transaction may be seen up to
    /// the end of the next one.
    pub fn take_closed(&mut self, begun: u64) -> Vec<Problem> {
        let is_open = |row: &Problem| match row.concerns {
            Concerns::Transaction(number) => begun <= number + 2,
            Concerns::NoneAfter(before) => begun == before,
        };
        let last = std::mem::replace(&mut self.last, [None; What::COUNT]);
        let (mut closed, mut kept) = (Vec::new(), Lane::default());
        for (index, &row) in std::mem::take(&mut self.rows).iter().enumerate() {
            let place = row.what.place();
            if last[place] == Some(index as u32) && is_open(&row) {
                self.last[place] = Some(kept.len() as u32);
                kept.push(row);
            } else {
                closed.push(row);
            }
        }
        self.rows = kept;
        closed.extend(std::mem::take(&mut self.suspects).iter().map(Problem::from));
        closed.sort();
        closed
    }

    /// All rows in order of time.
    pub fn in_order(self) -> Vec<Problem> {
        let mut rows: Vec<_> = self.rows().collect();
        if !rows.is_sorted() {
            rows.sort();
        }
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// At clock `clk`, of one of two kinds, where so many transactions had begun; some are linked to the last of them.
    fn problem(clk: u64, what: u8, begun: u64) -> Problem {
        let found = [What::Gap, What::DataParity { read: None }, What::FrameReturned, What::IrdyWithoutAddress]
            [usize::from(what % 4)];
        let linked = what % 4 == 1 && begun > 0;
        let concerns = if linked { Concerns::Transaction(begun - 1) } else { Concerns::NoneAfter(begun) };
        Problem { stamp: clk, what: found, concerns, lines: 0, first_clk: clk, last_clk: clk, count: 1 }
    }

    /// Problems in the order in which a decoder finds them: some, and at the end of each transaction whether it is suspect.
    /// A gap has the number of the clock behind it, so what was found before it was found at an earlier clock.
    fn in_turn(found: &[(u8, u64, u64)]) -> Vec<Problem> {
        let (mut clk, mut begun) = (0, 0);
        let mut problems: Vec<Problem> = Vec::new();
        for &(what, transactions, clocks) in found {
            if transactions > 0 && begun > 0 && what % 3 == 0 {
                problems.push(Suspect { stamp: clk / 2, clk: clk / 2, transaction: begun - 1 }.into());
            }
            begun += transactions;
            clk += clocks;
            let found_before = problems.iter().rfind(|row| row.what != What::Suspect);
            if what % 4 == 0 && found_before.is_some_and(|row| row.what != What::Gap && row.last_clk == clk) {
                clk += 1;
            }
            problems.push(problem(clk, what, begun));
        }
        problems
    }

    #[test]
    fn what_toggles_is_one_row_until_a_transaction_begins() {
        let mut problems = Problems::default();
        for clk in 0..1000 {
            problems.push(problem(2 * clk, 2 + (clk % 2) as u8, u64::from(clk >= 600)));
        }
        let rows = problems.in_order();
        let told: Vec<_> = rows.iter().map(|row| (row.what, row.count, row.first_clk, row.last_clk)).collect();
        let [a, b] = [What::FrameReturned, What::IrdyWithoutAddress];
        assert_eq!(told, [(a, 300, 0, 1196), (b, 300, 2, 1198), (a, 200, 1200, 1996), (b, 200, 1202, 1998)]);
    }

    proptest! {
        #[test]
        fn a_cut_anywhere_changes_nothing(
            found in proptest::collection::vec((0u8..12, 0u64..2, 0u64..3), 0..60),
            cuts in proptest::collection::vec(0usize..60, 0..4),
        ) {
            let found = in_turn(&found);
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
                pieces.append(piece);
                from = end;
            }
            prop_assert_eq!(pieces.in_order(), whole.in_order());
        }

        #[test]
        fn rows_are_taken_once_and_none_is_lost(
            found in proptest::collection::vec((0u8..12, 0u64..2, 0u64..3), 0..60),
            transaction in 0u64..30,
        ) {
            let mut problems = Problems::default();
            in_turn(&found).iter().for_each(|&problem| problems.push(problem));
            let all = problems.clone().in_order();
            prop_assert_eq!(problems.len(), all.len());
            prop_assert_eq!(Problems::of(problems.rows().collect()).in_order(), all.clone());

            let mut left = problems.clone();
            let mut taken = left.take_before(transaction);
            taken.extend(left.in_order());
            taken.sort();
            prop_assert_eq!(&taken, &all);
            let mut closed = problems.take_closed(transaction);
            closed.extend(problems.in_order());
            closed.sort();
            prop_assert_eq!(closed, all);
        }
    }
}
