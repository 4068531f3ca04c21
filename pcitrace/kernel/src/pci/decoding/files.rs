//! Tables to files as their rows come.

use crate::bus::Origin;
use crate::error::Result;
use crate::pci::decoding::Sink;
use crate::pci::decoding::file_problems::{Counted, ProblemOutput};
use crate::pci::events::Event;
use crate::pci::layout::BusTables;
use crate::pci::problems::Problems;
use crate::pci::rows::{DataPhase, Rows, Transaction};
use crate::pci::tables::{self, Wanted};
use crate::write::{Format, Output, TableFile};
use std::path::{Path, PathBuf};
use std::sync::Arc;

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
    pub fn finish(self) -> Result<Vec<Counted>> {
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

    fn begin(&mut self, buses: &[BusTables]) -> Result<Vec<Rows>> {
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
