//! Lines that stand beside the transactions, whose changes are rows: INTA# to INTD# and LOCK#.
//!
//! A line is looked at where everything else is, at the rising edges of CLK: a row is the first clock with the new level.

use crate::pci::layout::Layout;
use crate::pci::protocol::Protocol;
use crate::samples::bits::{Backend, Bit};
use crate::samples::block::{Block, below, ones};

/// One change of one line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    pub clk: u64,
    pub stamp: u64,
    /// Its place in [`crate::pci::layout::EVENT_LINES`].
    pub line: u8,
    /// It was asserted, so it fell.
    pub asserted: bool,
    /// The transaction that this clock is part of.
    pub transaction: Option<u64>,
    /// So many had begun.
    pub begun: u64,
}

/// What is known of one line.
struct Watched {
    line: u8,
    bit: Bit,
    unknown: Option<Bit>,
    /// Whether it was asserted when that was last known; a gap takes that away.
    asserted: Option<bool>,
}

/// The lines of one bus whose changes are wanted.
pub struct Events {
    watched: Vec<Watched>,
}

impl Events {
    /// `clock` is the sample of the clock before, where decoding starts behind one.
    pub fn new(layout: &Layout, clock: Option<&[u8]>) -> Self {
        let lines = layout.events.iter().zip(0..).filter_map(|(line, number)| line.map(|line| (line, number)));
        let watched = lines.map(|((bit, unknown), line)| Watched {
            line,
            bit,
            unknown,
            asserted: clock.map(|clock| bit.get(clock)),
        });
        Events { watched: watched.collect() }
    }

    /// Their level is not the last one in every line: a row is due.
    #[inline(always)]
    pub fn differ(&self, sample: &[u8]) -> bool {
        self.watched.iter().any(|line| line.asserted != Some(line.bit.get(sample)))
    }

    /// Nothing is known any more.
    pub fn gap(&mut self) {
        self.watched.iter_mut().for_each(|line| line.asserted = None);
    }

    /// Adds the changes in a block that `protocol` has just decoded.
    pub fn push<B: Backend>(&mut self, block: &Block<B>, protocol: &mut Protocol) {
        let clocks = block.clocks();
        let all = below(clocks);
        let mut found = Vec::new();
        for line in &mut self.watched {
            let levels = block.line(line.bit) & all;
            let known = all & !line.unknown.map_or(0, |unknown| block.line(unknown));
            if line.asserted.is_some_and(|asserted| levels & known == if asserted { known } else { 0 }) {
                continue;
            }
            for clock in ones(known) {
                let asserted = levels >> clock & 1 != 0;
                if line.asserted.replace(asserted).is_some_and(|before| before != asserted) {
                    found.push((clock, line.line, asserted));
                }
            }
        }
        found.sort_unstable();
        let first = protocol.clk - u64::from(clocks);
        for (clock, line, asserted) in found {
            let clk = first + u64::from(clock);
            let (transaction, begun) = (protocol.transaction_at(clk), protocol.begun_at(clk));
            protocol.rows.events.push(Event { clk, stamp: block.stamp(clock), line, asserted, transaction, begun });
        }
    }
}
