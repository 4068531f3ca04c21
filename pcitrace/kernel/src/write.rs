//! Tables to files as they come.

mod file;

use crate::columns::{Columns, Context, Part, batch, portions};
use crate::error::{Error, Result};
use crate::events::Event;
use crate::interrupt;
use crate::pipeline::{BusTables, Sink};
use crate::rows::{DataPhase, Origin, Rows, Transaction};
use crate::tables::{self, Wanted};
pub use file::TableFile;
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
struct Merge<R> {
    queues: Vec<VecDeque<R>>,
    /// Per bus: number of the next row.
    numbers: Vec<u64>,
    /// Per bus: rows that are still to come start here or later.
    reached: Vec<u64>,
    stamp: fn(&R) -> u64,
}

/// Rows that wait for those of another bus, at most: a bus that is stuck in one transaction may never let them go.
const MOST_WAITING: usize = 1 << 16;

impl<R> Merge<R> {
    fn new(buses: usize, stamp: fn(&R) -> u64) -> Self {
        let queues = (0..buses).map(|_| VecDeque::new()).collect();
        Merge { queues, numbers: vec![0; buses], reached: vec![0; buses], stamp }
    }

    /// The rows that no later row can come before, and those that would make too many wait.
    fn pop(&mut self) -> Merged<R> {
        let limit = self.reached.iter().copied().min().unwrap_or(u64::MAX);
        let mut waiting = self.queues.iter().map(VecDeque::len).sum::<usize>();
        let mut out = Merged { rows: Vec::new(), runs: Vec::new() };
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
                    out.rows.extend(self.queues[bus].pop_front());
                    match out.runs.last_mut() {
                        Some(run) if run.bus == bus => run.length += 1,
                        _ => out.runs.push(Run { bus, number: self.numbers[bus], length: 1 }),
                    }
                    self.numbers[bus] += 1;
                }
                _ => return out,
            }
        }
    }
}

/// Rows in order of time; each run of them is of one bus.
struct Merged<R> {
    rows: Vec<R>,
    runs: Vec<Run>,
}

struct Run {
    bus: usize,
    /// Of its first row, within the bus.
    number: u64,
    length: usize,
}

impl<R> Merged<R> {
    fn parts<'a>(&'a self, buses: &'a [BusTables]) -> impl Iterator<Item = Part<'a, R>> {
        let mut rest = self.rows.as_slice();
        self.runs.iter().map(move |run| {
            let (rows, behind) = rest.split_at(run.length);
            rest = behind;
            (Context { bus: &buses[run.bus], number: run.number }, rows)
        })
    }
}

/// Writes the tables of all buses into one file each, in order of time.
pub struct FileSink {
    transactions_path: PathBuf,
    data_phases_path: Option<PathBuf>,
    events_path: Option<PathBuf>,
    transaction_columns: Arc<Columns<Transaction>>,
    data_phase_columns: Arc<Columns<DataPhase>>,
    event_columns: Arc<Columns<Event>>,
    buses: Vec<BusTables>,
    transactions: Merge<Transaction>,
    data_phases: Merge<DataPhase>,
    events: Merge<Event>,
    transactions_file: Option<TableFile>,
    data_phases_file: Option<TableFile>,
    events_file: Option<TableFile>,
    threads: usize,
}

impl FileSink {
    /// `threads` as of [`TableFile::create`].
    pub fn new(transactions: &Path, data_phases: Option<&Path>, events: Option<&Path>, threads: usize) -> Result<Self> {
        for path in std::iter::once(transactions).chain(data_phases).chain(events) {
            Format::of(path)?;
        }
        Ok(FileSink {
            transactions_path: transactions.into(),
            data_phases_path: data_phases.map(Path::to_path_buf),
            events_path: events.map(Path::to_path_buf),
            transaction_columns: Arc::new(tables::transactions(&Wanted::default())?),
            data_phase_columns: Arc::new(tables::data_phases()),
            event_columns: Arc::new(tables::events()),
            buses: Vec::new(),
            transactions: Merge::new(0, |t| t.start),
            data_phases: Merge::new(0, |d| d.stamp),
            events: Merge::new(0, |e| e.stamp),
            transactions_file: None,
            data_phases_file: None,
            events_file: None,
            threads,
        })
    }

    fn write_ready(&mut self) -> Result<()> {
        if let Some(file) = &mut self.transactions_file {
            for portion in portions(self.transactions.pop().parts(&self.buses), BATCH) {
                file.write(&batch(&self.transaction_columns, &self.buses, &portion))?;
                interrupt::check()?;
            }
        }
        if let Some(file) = &mut self.data_phases_file {
            for portion in portions(self.data_phases.pop().parts(&self.buses), BATCH) {
                file.write(&batch(&self.data_phase_columns, &self.buses, &portion))?;
                interrupt::check()?;
            }
        }
        if let Some(file) = &mut self.events_file {
            for portion in portions(self.events.pop().parts(&self.buses), BATCH) {
                file.write(&batch(&self.event_columns, &self.buses, &portion))?;
                interrupt::check()?;
            }
        }
        Ok(())
    }

    /// Everything was decoded.
    pub fn finish(mut self) -> Result<()> {
        self.write_ready()?;
        // All tables are whole before the first one appears.
        let files = [self.transactions_file.take(), self.data_phases_file.take(), self.events_file.take()];
        for file in files.into_iter().flatten() {
            file.finish()?;
        }
        Ok(())
    }
}

impl Sink for FileSink {
    type Gathered = Rows;

    fn begin(&mut self, buses: &[BusTables]) -> Result<Vec<Rows>> {
        self.buses = buses.to_vec();
        self.transactions = Merge::new(buses.len(), |t| t.start);
        self.data_phases = Merge::new(buses.len(), |d| d.stamp);
        self.events = Merge::new(buses.len(), |e| e.stamp);
        self.transactions_file =
            Some(TableFile::create(&self.transactions_path, self.transaction_columns.schema(), self.threads)?);
        let create = |path: &Option<PathBuf>, schema| {
            path.as_ref().map(|path| TableFile::create(path, schema, self.threads)).transpose()
        };
        self.data_phases_file = create(&self.data_phases_path, self.data_phase_columns.schema())?;
        self.events_file = create(&self.events_path, self.event_columns.schema())?;
        Ok(vec![Rows::default(); buses.len()])
    }

    fn rows(&mut self, bus: usize, origin: Origin, rows: Rows) -> Result<()> {
        let rows = rows.counted_from(origin);
        self.transactions.queues[bus].extend(rows.transactions);
        if self.data_phases_file.is_some() {
            self.data_phases.queues[bus].extend(rows.data_phases);
        }
        self.events.queues[bus].extend(rows.events);
        Ok(())
    }

    fn reached(&mut self, bus: usize, stamp: u64) -> Result<()> {
        self.transactions.reached[bus] = stamp;
        self.data_phases.reached[bus] = stamp;
        self.events.reached[bus] = stamp;
        self.write_ready()
    }
}
