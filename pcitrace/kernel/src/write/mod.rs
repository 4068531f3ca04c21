//! Tables to files as they come.

mod csv;
mod file;
mod problems;
mod rowgroups;

use crate::bus::{BusTables, Counted, Origin};
use crate::columns::{Columns, Many, Part, Row, batch_from, parts_of};
use crate::error::{Error, Result};
use crate::interrupt;
use crate::pci::events::Event;
use crate::pci::layout::Layout;
use crate::pci::problems::Problems;
use crate::pci::rows::{DataPhase, Rows, Transaction};
use crate::pci::tables::{self, Wanted};
use crate::pipeline::Sink;
use arrow::array::RecordBatch;
pub use file::TableFile;
pub use problems::Counted as CountedProblems;
use problems::ProblemOutput;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Rows per record batch.
const BATCH: usize = 8192;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Csv,
    JsonLines,
    Parquet,
}

impl Format {
    /// By the ending of the file name.
    pub fn of(path: &Path) -> Result<Self> {
        match path.extension().and_then(|ending| ending.to_str()) {
            Some("csv") => Ok(Format::Csv),
            Some("jsonl") => Ok(Format::JsonLines),
            Some("parquet") => Ok(Format::Parquet),
            _ => Err(Error::Decode(format!(
                "{}: the ending says the format of a table; use .csv, .jsonl or .parquet",
                path.display()
            ))),
        }
    }
}

/// Rows of several buses in order of time.
struct Merge<R: Row> {
    queues: Vec<VecDeque<R>>,
    /// Per bus: number of the next row.
    numbers: Vec<u64>,
    /// Per bus: rows that are still to come start here or later.
    reached: Vec<u64>,
    stamp: fn(&R) -> u64,
    merged: Merged<R>,
}

/// Rows that wait for those of another bus, at most: a bus that is stuck in one transaction may never let them go.
const MOST_WAITING: usize = 1 << 16;

impl<R: Counted + Row> Merge<R> {
    fn new(buses: usize, stamp: fn(&R) -> u64) -> Self {
        let queues = (0..buses).map(|_| VecDeque::new()).collect();
        Merge {
            queues,
            numbers: vec![0; buses],
            reached: vec![0; buses],
            stamp,
            merged: Merged::new(Origin::default()),
        }
    }

    /// Takes rows of one bus, in order, whose numbers count from `origin`.
    fn add(&mut self, bus: usize, origin: Origin, rows: R::Many) -> Option<Merged<R>> {
        if self.queues.len() > 1 || rows.count() < BATCH {
            self.queues[bus].extend(rows.into_rows().map(|row| row.counted_from(origin)));
            return None;
        }
        // Of a single bus they are in order as they are, and there is no need to touch each.
        self.pop();
        let mut alone = Merged::new(origin);
        // The number of a transaction counts from `origin`, too; of other rows nobody asks for it.
        let number = self.numbers[bus].saturating_sub(origin.transactions);
        alone.runs.push(Run { bus, number, length: rows.count() });
        self.numbers[bus] += rows.count() as u64;
        alone.rows = rows;
        Some(alone)
    }

    /// Puts together the rows that no later row can come before, and those that would make too many wait.
    fn pop(&mut self) {
        let single = self.queues.len() == 1;
        let limit = if single { u64::MAX } else { self.reached.iter().copied().min().unwrap_or(u64::MAX) };
        let mut waiting = self.queues.iter().map(VecDeque::len).sum::<usize>();
        loop {
            let next = self
                .queues
                .iter()
                .enumerate()
                .filter_map(|(bus, queue)| queue.front().map(|row| ((self.stamp)(row), bus)))
                .min();
            match next {
                Some((stamp, bus)) if stamp < limit || limit == u64::MAX || waiting > MOST_WAITING => {
                    waiting -= 1;
                    self.queues[bus].pop_front().into_iter().for_each(|row| self.merged.rows.push(row));
                    match self.merged.runs.last_mut() {
                        Some(run) if run.bus == bus => run.length += 1,
                        _ => self.merged.runs.push(Run { bus, number: self.numbers[bus], length: 1 }),
                    }
                    self.numbers[bus] += 1;
                }
                _ => return,
            }
        }
    }

    /// What was put together, if it is so many rows at least.
    fn take(&mut self, least: usize) -> Option<Merged<R>> {
        let enough = self.merged.rows.count() >= least;
        enough.then(|| std::mem::replace(&mut self.merged, Merged::new(Origin::default())))
    }
}

/// Rows in order of time; each run of them is of one bus.
struct Merged<R: Row> {
    rows: R::Many,
    runs: Vec<Run>,
    /// What their numbers count from.
    origin: Origin,
}

struct Run {
    bus: usize,
    /// Of its first row, within the bus.
    number: u64,
    length: usize,
}

impl<R: Row> Merged<R> {
    fn new(origin: Origin) -> Self {
        Merged { rows: R::Many::default(), runs: Vec::new(), origin }
    }

    /// Rows `from..to` as a table.
    fn batch(&self, table: &Table<R>, from: usize, to: usize) -> RecordBatch {
        let mut parts: Vec<Part<R>> = Vec::new();
        let mut start = 0;
        for run in &self.runs {
            let (first, last) = (from.max(start), to.min(start + run.length));
            if first < last {
                let number = run.number + (first - start) as u64;
                parts.extend(parts_of::<R>(&table.buses[run.bus], number, self.rows.some(first..last)));
            }
            start += run.length;
            if start >= to {
                break;
            }
        }
        batch_from(&table.columns, &table.buses, &parts, self.origin)
    }
}

/// What rows of one kind become.
struct Table<R: Row> {
    columns: Arc<Columns<R>>,
    buses: Arc<[BusTables<R::Layout>]>,
}

impl<R: Row> Clone for Table<R> {
    fn clone(&self) -> Self {
        Table { columns: self.columns.clone(), buses: self.buses.clone() }
    }
}

/// A table of all buses on its way into a file.
struct Output<R: Row> {
    table: Table<R>,
    merge: Merge<R>,
    file: TableFile,
}

impl<R: Counted + Row> Output<R> {
    fn create(
        path: &Path,
        columns: Columns<R>,
        stamp: fn(&R) -> u64,
        buses: &Arc<[BusTables<R::Layout>]>,
        threads: usize,
    ) -> Result<Self> {
        let table = Table { columns: Arc::new(columns), buses: buses.clone() };
        let file = TableFile::create(path, table.columns.schema(), threads)?;
        Ok(Output { merge: Merge::new(buses.len(), stamp), table, file })
    }

    fn add(&mut self, bus: usize, origin: Origin, rows: R::Many) -> Result<()> {
        match self.merge.add(bus, origin, rows) {
            Some(alone) => {
                self.write(1)?;
                self.hand_on(alone)
            }
            None => Ok(()),
        }
    }

    fn reached(&mut self, bus: usize, stamp: u64) -> Result<()> {
        self.merge.reached[bus] = stamp;
        self.merge.pop();
        self.write(BATCH)
    }

    /// Writes what was put together, if it is so many rows at least.
    fn write(&mut self, least: usize) -> Result<()> {
        self.merge.take(least).map_or(Ok(()), |merged| self.hand_on(merged))
    }

    /// The rows become batches on the threads that encode them.
    fn hand_on(&mut self, merged: Merged<R>) -> Result<()> {
        let (count, merged) = (merged.rows.count(), Arc::new(merged));
        for from in (0..count).step_by(BATCH) {
            let to = (from + BATCH).min(count);
            let (table, merged) = (self.table.clone(), merged.clone());
            self.file.write_made(to - from, move || merged.batch(&table, from, to))?;
            interrupt::check()?;
        }
        Ok(())
    }

    /// Nothing comes any more; the file is there when it is finished.
    fn close(mut self) -> Result<TableFile> {
        self.merge.reached.fill(u64::MAX);
        self.merge.pop();
        self.write(1)?;
        Ok(self.file)
    }
}

/// Writes the tables of all buses into one file each, in order of time.
pub struct FileSink {
    transactions_path: PathBuf,
    data_phases_path: Option<PathBuf>,
    events_path: Option<PathBuf>,
    problems_path: Option<PathBuf>,
    transactions: Option<Output<Transaction>>,
    data_phases: Option<Output<DataPhase>>,
    events: Option<Output<Event>>,
    problems: Option<ProblemOutput>,
    threads: usize,
}

impl FileSink {
    /// `threads` as of [`TableFile::create`].
    pub fn new(
        transactions: &Path,
        data_phases: Option<&Path>,
        events: Option<&Path>,
        problems: Option<&Path>,
        threads: usize,
    ) -> Result<Self> {
        for path in std::iter::once(transactions).chain(data_phases).chain(events).chain(problems) {
            Format::of(path)?;
        }
        Ok(FileSink {
            transactions_path: transactions.into(),
            data_phases_path: data_phases.map(Path::to_path_buf),
            events_path: events.map(Path::to_path_buf),
            problems_path: problems.map(Path::to_path_buf),
            transactions: None,
            data_phases: None,
            events: None,
            problems: None,
            threads,
        })
    }

    /// Everything was decoded; gives how many problems each bus has.
    pub fn finish(self) -> Result<Vec<CountedProblems>> {
        // All tables are whole before the first one appears.
        let transactions = self.transactions.map(Output::close).transpose()?;
        let data_phases = self.data_phases.map(Output::close).transpose()?;
        let events = self.events.map(Output::close).transpose()?;
        let (problems, counted) = self.problems.map(ProblemOutput::close).transpose()?.unwrap_or_default();
        transactions.into_iter().chain(data_phases).chain(events).chain(problems).try_for_each(TableFile::finish)?;
        Ok(counted)
    }
}

impl Sink for FileSink {
    type Gathered = Rows;
    const TAKES_PROBLEMS: bool = true;

    fn begin(&mut self, buses: &[BusTables<Layout>]) -> Result<Vec<Rows>> {
        let (all, threads) = (Arc::from(buses), self.threads);
        let transactions = tables::transactions(&Wanted::default())?;
        self.transactions = Some(Output::create(&self.transactions_path, transactions, |t| t.start, &all, threads)?);
        if let Some(path) = &self.data_phases_path {
            self.data_phases = Some(Output::create(path, tables::data_phases(), |d| d.stamp, &all, threads)?);
        }
        if let Some(path) = &self.events_path {
            self.events = Some(Output::create(path, tables::events(), |e| e.stamp, &all, threads)?);
        }
        self.problems = Some(ProblemOutput::create(self.problems_path.as_deref(), &all, threads)?);
        Ok(vec![Rows::default(); buses.len()])
    }

    fn rows(&mut self, bus: usize, origin: Origin, rows: Rows) -> Result<()> {
        if let Some(transactions) = &mut self.transactions {
            transactions.add(bus, origin, rows.transactions)?;
        }
        if let Some(data_phases) = &mut self.data_phases {
            data_phases.add(bus, origin, rows.data_phases)?;
        }
        if let Some(events) = &mut self.events {
            events.add(bus, origin, rows.events)?;
        }
        Ok(())
    }

    fn problems(&mut self, bus: usize, problems: Problems, begun: u64) -> Result<()> {
        if let Some(output) = &mut self.problems {
            output.add(bus, problems, begun);
        }
        Ok(())
    }

    fn reached(&mut self, bus: usize, stamp: u64) -> Result<()> {
        if let Some(problems) = &mut self.problems {
            problems.reached(bus, stamp)?;
        }
        if let Some(transactions) = &mut self.transactions {
            transactions.reached(bus, stamp)?;
        }
        if let Some(data_phases) = &mut self.data_phases {
            data_phases.reached(bus, stamp)?;
        }
        if let Some(events) = &mut self.events {
            events.reached(bus, stamp)?;
        }
        Ok(())
    }
}
