//! The tables of a capture in parts, in order of time, while it is decoded: for who looks at rows one after the other.
//!
//! The decoder runs on a thread of its own and waits where nobody takes its parts, so memory does not grow with the
//! capture; it ends when nobody wants more.

use crate::bus::Origin;
use crate::capture::Capture;
use crate::columns::{self, Columns, Many, Row, batch, parts_of};
use crate::error::{Error, Result};
use crate::pci::decoding::{self, Decoded, Options, Sink};
use crate::pci::layout::{BusSpec, BusTables, Layout};
use crate::pci::phases::Phases;
use crate::pci::problems::{Concerns, Problem, Problems, What};
use crate::pci::protocol::OnBus;
use crate::pci::rows::{DataPhase, Rows, Transaction};
use crate::pci::rules::{Rule, Violation};
use crate::pci::tables::{self, Wanted};
use crate::pci::tiles::Transactions;
use arrow_array::{BooleanArray, RecordBatch};
use arrow_select::filter::filter_record_batch;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Transactions in a part, about.
const ROWS: usize = 8192;
/// Broken rules in a part, about: on a bus whose lines are noise there are many in each transaction.
const BROKEN: usize = 2 * ROWS;
/// Bytes of clocks' lines in a part, about.
const LINES: usize = 1 << 20;
/// How long rows of a quiet bus may wait for others.
const PATIENCE: Duration = Duration::from_millis(100);
/// Clocks after a transaction that still speak of it: PERR#, released lines.
const AFTERWARDS: u64 = 2;
/// Parts that may wait to be taken.
const WAITING: usize = 4;

/// Some transactions with all their data phases, or the first ones, and the problems that were found until then.
///
/// A problem comes with its transaction; one of none comes before the transaction that follows it, or with that.
#[derive(Debug, Clone)]
pub struct Part {
    pub transactions: RecordBatch,
    /// In the order of their transactions; no columns where they were not asked for.
    pub data_phases: RecordBatch,
    pub problems: RecordBatch,
    /// How many data phases of the part are those of a transaction or of one before it.
    pub phase_ends: Vec<usize>,
    /// Lines of the clocks, where those were asked for; not those of the transactions alone.
    pub clock_lines: Vec<u8>,
}

impl Part {
    /// Number of the first data phase of a transaction, and of the first behind.
    pub fn phases_of(&self, row: usize) -> std::ops::Range<usize> {
        let start = row.checked_sub(1).map_or(0, |before| self.phase_ends[before]);
        start..self.phase_ends[row]
    }

    /// The transactions that are wanted, with their data phases; all problems stay.
    pub fn choose(&self, wanted: &[bool]) -> std::result::Result<Part, arrow_schema::ArrowError> {
        let mut phases = vec![false; self.data_phases.num_rows()];
        let mut phase_ends = Vec::new();
        let mut count = 0;
        for (row, _) in wanted.iter().enumerate().filter(|(_, wanted)| **wanted) {
            let of = self.phases_of(row);
            count += of.len();
            phases[of].fill(true);
            phase_ends.push(count);
        }
        Ok(Part {
            transactions: filter_record_batch(&self.transactions, &BooleanArray::from(wanted.to_vec()))?,
            data_phases: filter_record_batch(&self.data_phases, &BooleanArray::from(phases))?,
            problems: self.problems.clone(),
            phase_ends,
            clock_lines: self.clock_lines.clone(),
        })
    }

    /// Its transactions, and only those of its problems that are to be told.
    pub fn tell(&self, told: &[bool]) -> std::result::Result<Part, arrow_schema::ArrowError> {
        let problems = filter_record_batch(&self.problems, &BooleanArray::from(told.to_vec()))?;
        Ok(Part { problems, ..self.clone() })
    }
}

enum Message {
    Part(Part),
    Done(Result<Vec<Decoded>>),
}

/// The parts of a capture, as they are decoded.
pub struct Parts {
    messages: Receiver<Message>,
    thread: Option<JoinHandle<()>>,
    /// What is left when all parts were taken.
    pub decoded: Option<Vec<Decoded>>,
}

/// What came while somebody waited.
pub enum Next {
    Part(Part),
    End,
    NothingYet,
}

impl Parts {
    /// Starts to decode; of transactions the named columns, or all.
    pub fn start(capture: Arc<Capture>, buses: Vec<BusSpec>, options: Options, wanted: &Wanted) -> Result<Self> {
        let (sender, messages) = sync_channel(WAITING);
        let mut sink = PartSink::new(wanted, &options, sender.clone())?;
        let work = move || {
            let decoded = decoding::decode(&capture, &buses, &options, &mut [], &mut sink, &mut |_| true);
            let decoded = decoded.and_then(|decoded| sink.send(true).map(|()| decoded));
            // Who does not listen any more does not want to know.
            let _ = sender.send(Message::Done(decoded));
        };
        let thread = std::thread::Builder::new().name("decode".into()).spawn(work);
        let thread = thread.map_err(|error| Error::Decode(format!("no thread to decode on: {error}")))?;
        Ok(Parts { messages, thread: Some(thread), decoded: None })
    }

    /// The next part, if it comes in time.
    pub fn next(&mut self, patience: Duration) -> Result<Next> {
        if self.decoded.is_some() {
            return Ok(Next::End);
        }
        match self.messages.recv_timeout(patience) {
            Ok(Message::Part(part)) => Ok(Next::Part(part)),
            Ok(Message::Done(decoded)) => {
                self.decoded = Some(decoded?);
                Ok(Next::End)
            }
            Err(std::sync::mpsc::RecvTimeoutError::Timeout) => Ok(Next::NothingYet),
            Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => match self.thread.take().map(JoinHandle::join) {
                Some(Err(panic)) => std::panic::resume_unwind(panic),
                _ => Err(Error::Interrupted),
            },
        }
    }
}

/// What one bus has for the next parts.
#[derive(Default)]
struct Queue {
    transactions: Transactions,
    /// So many of them are in parts already.
    taken: usize,
    data_phases: VecDeque<DataPhase>,
    /// Of which transaction the last data phase was, and how many of it have come.
    last_phase: (u64, u64),
    problems: Problems,
    /// Broken rules of which it is not known yet in which transaction they lie.
    violations: VecDeque<Violation>,
    /// What was on the bus when the last of them was found.
    on_bus: Option<OnBus>,
    /// The clock behind the transaction before, and so much more as what is still said of it takes.
    over: u64,
    /// Of the next transaction.
    number: u64,
    /// Rows that are still to come start here or later.
    reached: u64,
}

impl Queue {
    /// Takes in what a decoder found later. Most often all before it is in parts, and it need not be touched.
    fn add(&mut self, more: Transactions) {
        if self.taken == self.transactions.len() {
            (self.transactions, self.taken) = (more, 0);
            return;
        }
        // Not before it is the most of them, so that what waits long is not moved each time.
        if 2 * self.taken > self.transactions.len() {
            self.transactions.forget(std::mem::take(&mut self.taken));
        }
        more.some(0..more.len()).for_each(|some| self.transactions.extend(some));
    }

    /// Start of the next transaction.
    fn front(&self) -> Option<u64> {
        (self.taken < self.transactions.len()).then(|| self.transactions.get(self.taken).start)
    }

    /// Takes in data phases that a decoder found later, no more than so many of each transaction.
    fn add_phases(&mut self, more: Phases, most: u64) {
        for phase in more.into_rows() {
            let (last, count) = self.last_phase;
            let nth = if phase.transaction == last { count } else { 0 };
            self.last_phase = (phase.transaction, nth + 1);
            if nth < most {
                self.data_phases.push_back(phase);
            }
        }
    }

    /// How many of the next transactions, and of data phases of which so many of each are wanted, start before a stamp
    /// and have come whole; so many at most.
    fn ready(&self, before: u64, most: usize, phases_of_each: u64) -> (usize, usize) {
        let rows = self.taken..self.transactions.len().min(self.taken + most);
        let (mut count, mut phases) = (0, 0);
        for next in rows.map(|nth| self.transactions.get(nth)) {
            let whole = phases + next.data_phases.min(phases_of_each) as usize;
            if next.start >= before || whole > self.data_phases.len() && self.reached != u64::MAX {
                break;
            }
            (count, phases) = (count + 1, whole.min(self.data_phases.len()));
        }
        (count, phases)
    }

    /// Broken rules at clocks before this one, with the transaction whose clocks they follow; how many rows these make.
    fn tell_violations(&mut self, before: u64) -> usize {
        self.tell_while(|violation| violation.clk < before)
    }

    /// The broken rules of which can be told where they lie, though no transaction came that is not in a part.
    fn tell_known(&mut self, reached: u64) -> usize {
        // A transaction that goes on and on must not keep waiting what was broken in it.
        let is_next = self.on_bus.is_some_and(|open| open.number == self.number);
        self.tell_while(|violation| is_next || violation.stamp < reached)
    }

    fn tell_while(&mut self, is_due: impl Fn(&Violation) -> bool) -> usize {
        let before = self.problems.len();
        while let Some(violation) = self.violations.front().filter(|&violation| is_due(violation)).copied() {
            self.violations.pop_front();
            let concerns = self.concerned_by(&violation);
            self.problems.push(Problem {
                stamp: violation.stamp,
                what: What::Broken(violation.rule),
                concerns,
                lines: violation.lines,
                first_clk: violation.clk,
                last_clk: violation.clk,
                count: 1,
            });
        }
        self.problems.len() - before
    }

    fn concerned_by(&self, violation: &Violation) -> Concerns {
        if let Some(open) = self.on_bus.filter(|open| open.start_clk <= violation.clk) {
            return Concerns::Transaction(open.number);
        }
        match self.number.checked_sub(1).filter(|_| violation.clk < self.over) {
            Some(number) => Concerns::Transaction(number),
            None => Concerns::NoneAfter(self.number),
        }
    }
}

/// What the decoder says of itself where rules were not asked for; a rule says the same, and more precisely.
fn is_told_by(problem: What, rule: Rule) -> bool {
    match problem {
        What::AddressParity => rule == Rule::P01,
        What::DataParity { .. } => matches!(rule, Rule::P02 | Rule::P03),
        other => other.kind() == "illegal_sequence" && (rule <= Rule::M11 || rule == Rule::M22),
    }
}

/// The rules that say the same as the decoder does of itself.
fn tells(rule: Rule) -> bool {
    rule <= Rule::M11 || matches!(rule, Rule::M22 | Rule::P01 | Rule::P02 | Rule::P03)
}

/// A broken rule that says the same as the decoder does: bus, first and last clock, rule.
type Telling = (usize, u64, u64, Rule);

fn telling((bus, problem): &(usize, Problem)) -> Option<Telling> {
    match problem.what {
        What::Broken(rule) if tells(rule) => Some((*bus, problem.first_clk, problem.last_clk, rule)),
        _ => None,
    }
}

/// Leaves out the problems that a broken rule of the same bus, of these or of some before, tells at the same clocks, or the
/// next ones.
fn without_what_rules_tell(found: Vec<(usize, Problem)>, before: &[Telling]) -> Vec<(usize, Problem)> {
    let mut rules: Vec<_> = before.iter().copied().chain(found.iter().filter_map(telling)).collect();
    rules.sort_unstable();
    // Where all rules up to each of them end, to know when to stop looking back.
    let ends: Vec<_> = rules
        .iter()
        .scan((0, 0), |end, &(bus, _, last, _)| {
            *end = (bus, if end.0 == bus { end.1.max(last) } else { last });
            Some(*end)
        })
        .collect();
    let is_told = |(bus, problem): &(usize, Problem)| {
        let behind = rules.partition_point(|&(of, first, ..)| (of, first) <= (*bus, problem.last_clk + 1));
        let mut near = (0..behind).rev().take_while(|&nth| ends[nth] >= (*bus, problem.first_clk.saturating_sub(1)));
        near.any(|nth| {
            let (_, _, last, rule) = rules[nth];
            problem.first_clk <= last + 1 && is_told_by(problem.what, rule)
        })
    };
    found.iter().filter(|problem| !is_told(problem)).copied().collect()
}

/// A run of transactions of one bus.
struct Run {
    bus: usize,
    number: u64,
    transactions: usize,
    data_phases: usize,
}

struct PartSink {
    sender: SyncSender<Message>,
    transaction_columns: Arc<Columns<Transaction>>,
    data_phase_columns: Arc<Columns<DataPhase>>,
    /// So many data phases of each transaction are wanted.
    most_phases: u64,
    with_rules: bool,
    with_problems: bool,
    buses: Vec<BusTables>,
    queues: Vec<Queue>,
    /// What the next part will hold.
    transactions: Transactions,
    data_phases: Phases,
    runs: Vec<Run>,
    phase_ends: Vec<usize>,
    /// Rows of broken rules that were told since the part before.
    broken: usize,
    /// What rules said last, which the decoder may still say in the next part.
    told: Vec<Telling>,
    clock_lines: Vec<u8>,
    last_sent: Option<Instant>,
}

impl PartSink {
    fn new(wanted: &Wanted, options: &Options, sender: SyncSender<Message>) -> Result<Self> {
        Ok(PartSink {
            sender,
            transaction_columns: Arc::new(tables::transactions(wanted)?),
            data_phase_columns: Arc::new(tables::data_phases()),
            most_phases: if options.data_phases { options.most_phases.unwrap_or(u64::MAX) } else { 0 },
            with_rules: options.rules.is_some() && !options.keep_violations,
            with_problems: !options.forget_problems,
            buses: Vec::new(),
            queues: Vec::new(),
            transactions: Transactions::default(),
            data_phases: Phases::default(),
            runs: Vec::new(),
            phase_ends: Vec::new(),
            broken: 0,
            told: Vec::new(),
            clock_lines: Vec::new(),
            last_sent: None,
        })
    }

    /// Takes over the rows that no later row can come before, and sends them off as they are enough for a part.
    fn collect(&mut self) -> Result<()> {
        loop {
            let limit = self.queues.iter().map(|queue| queue.reached).min().unwrap_or(u64::MAX);
            let fronts = self.queues.iter().enumerate().filter_map(|(bus, queue)| Some((queue.front()?, bus)));
            let Some((_, bus)) = fronts.clone().min() else { return Ok(()) };
            // Of transactions that start at once that of the first bus comes first.
            let others = fronts.filter(|&(_, other)| other != bus);
            let before = others.map(|(start, other)| start + u64::from(bus < other)).fold(limit, u64::min);
            let (count, phases) =
                self.queues[bus].ready(before, ROWS.saturating_sub(self.transactions.len()), self.most_phases);
            if count == 0 {
                return Ok(());
            }
            self.take(bus, count, phases);
            if self.transactions.len() >= ROWS || self.broken >= BROKEN {
                self.send(false)?;
            }
        }
    }

    /// So many of the next transactions of a bus go into the next part, with so many data phases, or as many as there is room
    /// for what they break.
    fn take(&mut self, bus: usize, count: usize, phases: usize) {
        let queue = &mut self.queues[bus];
        let (number, first_phase) = (queue.number, self.data_phases.len());
        let (mut end, most) = (first_phase, first_phase + phases);
        let mut rows = queue.taken..queue.taken;
        while rows.len() < count && self.broken < BROKEN {
            let row = queue.transactions.get(rows.end);
            rows.end += 1;
            self.broken += queue.tell_violations(row.start_clk);
            queue.number += 1;
            queue.over = row.start_clk + row.clocks + AFTERWARDS;
            self.broken += queue.tell_violations(row.start_clk + row.clocks + 1);
            end = most.min(end + row.data_phases.min(self.most_phases) as usize);
            self.phase_ends.push(end);
        }
        // What is said of the last one behind its end goes with it, as far as it is known where the next one begins.
        if rows.end < queue.transactions.len() {
            let next = queue.transactions.get(rows.end).start_clk;
            self.broken += queue.tell_violations(next.min(queue.over));
        }
        let (transactions, data_phases) = (rows.len(), end - first_phase);
        match self.runs.last_mut() {
            Some(run) if run.bus == bus => {
                run.transactions += transactions;
                run.data_phases += data_phases;
            }
            _ => self.runs.push(Run { bus, number, transactions, data_phases }),
        }
        queue.taken = rows.end;
        queue.transactions.some(rows).for_each(|some| self.transactions.extend(some));
        queue.data_phases.drain(..data_phases).for_each(|phase| self.data_phases.push(&phase));
    }

    /// Sends the next part; an empty one only if it is the last.
    fn send(&mut self, last: bool) -> Result<()> {
        // Also where there is nothing to send yet: what follows must have room.
        self.broken = 0;
        let mut found = Vec::new();
        for (bus, queue) in self.queues.iter_mut().enumerate() {
            if last {
                queue.tell_violations(u64::MAX);
            }
            let over = if last { u64::MAX } else { queue.number };
            found.extend(queue.problems.take_before(over).into_iter().map(|problem| (bus, problem)));
        }
        let found = if self.with_rules {
            let of_last = |&(bus, problem): &(usize, Problem)| problem.concerns.number() + 1 >= self.queues[bus].number;
            let last = found.iter().filter(|found| of_last(found)).filter_map(telling).collect();
            without_what_rules_tell(found, &std::mem::replace(&mut self.told, last))
        } else {
            found
        };
        let mut found: Vec<_> = found.into_iter().map(|(bus, problem)| (&self.buses[bus], problem)).collect();
        found.sort_by_key(|(_, problem)| *problem);
        if self.transactions.is_empty() && found.is_empty() && self.clock_lines.is_empty() && !last {
            return Ok(());
        }
        let part = Part {
            transactions: batch(
                &self.transaction_columns,
                &self.buses,
                &self.parts::<Transaction>(&self.transactions, |run| run.transactions),
            ),
            data_phases: batch(
                &self.data_phase_columns,
                &self.buses,
                &self.parts::<DataPhase>(&self.data_phases, |run| run.data_phases),
            ),
            problems: tables::problem_rows(&found, self.with_rules),
            phase_ends: std::mem::take(&mut self.phase_ends),
            clock_lines: std::mem::take(&mut self.clock_lines),
        };
        self.transactions = Transactions::default();
        self.data_phases = Phases::default();
        self.runs.clear();
        self.last_sent = Some(Instant::now());
        self.sender.send(Message::Part(part)).map_err(|_| Error::Interrupted)
    }

    /// The runs of the next part with their rows.
    fn parts<'a, R: Row<Layout = Layout>>(
        &'a self,
        rows: &'a R::Many,
        length: impl Fn(&Run) -> usize,
    ) -> Vec<columns::Part<'a, R>> {
        let mut to = 0;
        let parts = self.runs.iter().flat_map(|run| {
            let from = to;
            to += length(run);
            parts_of::<R>(&self.buses[run.bus], run.number, rows.some(from..to))
        });
        parts.collect()
    }
}

impl Sink for PartSink {
    type Gathered = Rows;
    const TAKES_PROBLEMS: bool = true;

    fn takes_violations(&self) -> bool {
        self.with_rules
    }

    fn violations(&mut self, bus: usize, violations: Vec<Violation>, open: Option<OnBus>) -> Result<()> {
        self.queues[bus].on_bus = open;
        // Rules are found one after the other, block by block; what was broken first comes first.
        let queue = &mut self.queues[bus].violations;
        let from = queue.len();
        queue.extend(violations);
        queue.make_contiguous()[from..].sort_by_key(|violation| (violation.clk, violation.rule));
        Ok(())
    }

    fn clock_lines(&mut self, lines: Vec<u8>) -> Result<()> {
        self.clock_lines.extend(lines);
        if self.clock_lines.len() >= LINES { self.send(false) } else { Ok(()) }
    }

    fn begin(&mut self, buses: &[BusTables]) -> Result<Vec<Rows>> {
        self.buses = buses.to_vec();
        self.queues = buses.iter().map(|_| Queue::default()).collect();
        Ok(vec![Rows::default(); buses.len()])
    }

    fn problems(&mut self, bus: usize, problems: Problems, _begun: u64) -> Result<()> {
        if self.with_problems {
            self.queues[bus].problems.append(problems);
        }
        Ok(())
    }

    fn rows(&mut self, bus: usize, origin: Origin, rows: Rows) -> Result<()> {
        let rows = rows.counted_from(origin);
        let queue = &mut self.queues[bus];
        for event in &rows.events {
            // Of none, so that it stands where it was, and is not taken to be said of a transaction.
            queue.problems.push(Problem {
                stamp: event.stamp,
                what: What::Event { line: event.line, asserted: event.asserted },
                concerns: Concerns::NoneAfter(event.transaction.unwrap_or(event.begun)),
                lines: 0,
                first_clk: event.clk,
                last_clk: event.clk,
                count: 1,
            });
        }
        queue.add(rows.transactions);
        queue.add_phases(rows.data_phases, self.most_phases);
        Ok(())
    }

    fn reached(&mut self, bus: usize, stamp: u64) -> Result<()> {
        self.queues[bus].reached = stamp;
        self.collect()?;
        let queue = &mut self.queues[bus];
        if queue.front().is_none() {
            // No transaction comes before these any more, and where none comes at all they must not wait for one.
            self.broken += queue.tell_known(stamp);
        }
        if self.last_sent.is_none_or(|sent| sent.elapsed() >= PATIENCE) {
            self.send(false)?;
        }
        Ok(())
    }
}
