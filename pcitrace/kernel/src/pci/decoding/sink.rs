//! Who takes the rows of a capture, and what they are gathered in until then.

use crate::bus::Origin;
use crate::error::Result;
use crate::pci::clocking::Decoder;
use crate::pci::layout::BusTables;
use crate::pci::problems::Problems;
use crate::pci::protocol::OnBus;
use crate::pci::rows::Rows;
use crate::pci::rules::Violation;
use crate::pipeline::Gather;

/// Takes the rows of all buses as they come.
pub trait Sink {
    /// What rows are gathered in, on any thread.
    type Gathered: Gather<Decoder>;
    /// Called once, before any rows: for each bus something without rows to gather them in.
    fn begin(&mut self, buses: &[BusTables]) -> Result<Vec<Self::Gathered>>;
    /// Rows of one bus, in order, with numbers that count from `origin`. This is done by one thread, so there is little
    /// that it may do to each row.
    fn rows(&mut self, bus: usize, origin: Origin, rows: Self::Gathered) -> Result<()>;
    /// Whether problems are told while they are found, and not kept; else they are in [`Decoded`].
    const TAKES_PROBLEMS: bool = false;
    /// Problems of one bus, before the rows that they concern, where so many transactions had begun.
    fn problems(&mut self, _bus: usize, _problems: Problems, _begun: u64) -> Result<()> {
        Ok(())
    }
    /// Whether broken rules are told while they are found; else they are in [`Decoded`], as many as are kept.
    fn takes_violations(&self) -> bool {
        false
    }
    /// Rules that were broken on one bus, before the rows behind them; and the transaction that was on it then.
    fn violations(&mut self, _bus: usize, _violations: Vec<Violation>, _open: Option<OnBus>) -> Result<()> {
        Ok(())
    }
    /// Lines of the next clocks, where those were asked for.
    fn clock_lines(&mut self, _lines: Vec<u8>) -> Result<()> {
        Ok(())
    }
    /// No row of `bus` that is still to come starts before `stamp`; for `u64::MAX` none comes at all.
    fn reached(&mut self, bus: usize, stamp: u64) -> Result<()>;
}

impl Gather<Decoder> for Rows {
    fn decode(&mut self, decoder: &mut Decoder, bytes: &[u8]) {
        decoder.push_all(bytes, self);
    }

    fn take(&mut self, decoder: &mut Decoder) {
        decoder.protocol.drain(self);
    }

    fn counts(&self) -> Vec<usize> {
        vec![self.transactions.len(), self.data_phases.len(), self.events.len()]
    }

    fn reserve(&mut self, counts: &[usize]) {
        if let &[transactions, data_phases, _] = counts {
            self.transactions.reserve(transactions);
            self.data_phases.reserve(data_phases);
        }
    }
}
