//! What was wrong, written while it is found: rows that cannot go on any more, in order of time.

use crate::error::Result;
use crate::pci::layout::BusTables;
use crate::pci::problems::{Problem, Problems};
use crate::pci::tables;
use crate::write::{BATCH, MOST_WAITING, TableFile};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::path::Path;
use std::sync::Arc;

/// How many problems a bus has.
#[derive(Debug, Clone, Copy, Default)]
pub struct Counted {
    pub rows: u64,
    pub first: Option<Problem>,
}

/// The problems of all buses on their way into a file, or only counted.
pub struct ProblemOutput {
    buses: Arc<[BusTables]>,
    file: Option<TableFile>,
    /// By bus, those that may go on.
    open: Vec<Problems>,
    /// Those that wait for what may still come before them: stamp, bus, problem.
    waiting: BinaryHeap<Reverse<(u64, usize, Problem)>>,
    /// By bus: what is still to be found was there at this stamp or later.
    reached: Vec<u64>,
    counted: Vec<Counted>,
}

impl ProblemOutput {
    /// Only counts them without a path.
    pub fn create(path: Option<&Path>, buses: &Arc<[BusTables]>, threads: usize) -> Result<Self> {
        let file = path.map(|path| TableFile::create(path, tables::problem_schema(), threads)).transpose()?;
        Ok(ProblemOutput {
            file,
            open: vec![Problems::default(); buses.len()],
            waiting: BinaryHeap::new(),
            reached: vec![0; buses.len()],
            counted: vec![Counted::default(); buses.len()],
            buses: buses.clone(),
        })
    }

    /// Takes what was found of a bus where so many transactions had begun.
    pub fn add(&mut self, bus: usize, found: Problems, begun: u64) {
        self.open[bus].append(found);
        let closed = self.open[bus].take_closed(begun);
        self.close_rows(bus, closed);
    }

    fn close_rows(&mut self, bus: usize, closed: Vec<Problem>) {
        let counted = &mut self.counted[bus];
        counted.rows += closed.len() as u64;
        counted.first = counted.first.into_iter().chain(closed.iter().copied()).min();
        if self.file.is_some() {
            self.waiting.extend(closed.into_iter().map(|problem| Reverse((problem.stamp, bus, problem))));
        }
    }

    pub fn reached(&mut self, bus: usize, stamp: u64) -> Result<()> {
        self.reached[bus] = stamp;
        let open = self.open.iter().flat_map(Problems::rows).map(|problem| problem.stamp);
        let limit = open.chain(self.reached.iter().copied()).min().unwrap_or(u64::MAX);
        self.write(limit)
    }

    /// Writes the rows before a stamp, and those that would make too many wait.
    fn write(&mut self, limit: u64) -> Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        let mut rows = Vec::new();
        loop {
            let is_due = |Reverse((stamp, ..)): &Reverse<(u64, usize, Problem)>| *stamp < limit;
            let due = self.waiting.len() > MOST_WAITING || limit == u64::MAX || self.waiting.peek().is_some_and(is_due);
            let next = if due { self.waiting.pop() } else { None };
            if rows.len() == BATCH || next.is_none() && !rows.is_empty() {
                file.write(&tables::problem_rows(&rows, false))?;
                rows.clear();
            }
            let Some(Reverse((_, bus, problem))) = next else { return Ok(()) };
            rows.push((&self.buses[bus], problem));
        }
    }

    /// Nothing comes any more.
    pub fn close(mut self) -> Result<(Option<TableFile>, Vec<Counted>)> {
        for bus in 0..self.open.len() {
            let rest = std::mem::take(&mut self.open[bus]).in_order();
            self.close_rows(bus, rest);
        }
        self.write(u64::MAX)?;
        Ok((self.file, self.counted))
    }
}
