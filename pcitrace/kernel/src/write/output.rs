//! The rows of all buses in order of time, on their way into one file.

use crate::bus::{BusTables, Counted, Origin};
use crate::columns::{Columns, Many, Part, Row, batch_from, parts_of};
use crate::error::Result;
use crate::interrupt;
use crate::write::{BATCH, MOST_WAITING, TableFile};
use arrow_array::RecordBatch;
use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;

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
pub struct Output<R: Row> {
    table: Table<R>,
    merge: Merge<R>,
    file: TableFile,
}

impl<R: Counted + Row> Output<R> {
    pub fn create(
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

    pub fn add(&mut self, bus: usize, origin: Origin, rows: R::Many) -> Result<()> {
        match self.merge.add(bus, origin, rows) {
            Some(alone) => {
                self.write(1)?;
                self.hand_on(alone)
            }
            None => Ok(()),
        }
    }

    pub fn reached(&mut self, bus: usize, stamp: u64) -> Result<()> {
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
    pub fn close(mut self) -> Result<TableFile> {
        self.merge.reached.fill(u64::MAX);
        self.merge.pop();
        self.write(1)?;
        Ok(self.file)
    }
}
