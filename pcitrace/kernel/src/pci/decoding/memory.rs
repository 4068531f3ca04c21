//! Tables in memory: built on the threads that decode, chunk by chunk.

use crate::bus::Origin;
use crate::columns::batches::Batches;
use crate::columns::pages::Pages;
use crate::columns::{Columns, Context, Told};
use crate::error::Result;
use crate::lane::Page;
use crate::pci::clocking::Decoder;
use crate::pci::decoding::Sink;
use crate::pci::events::Event;
use crate::pci::layout::BusTables;
use crate::pci::phases::InPhases;
use crate::pci::rows::{DataPhase, TakeRows, Transaction};
use crate::pci::tables::{self, Wanted};
use crate::pci::tiles::InTile;
use crate::pipeline::Gather;
use std::sync::Arc;

/// Keeps the tables of each bus.
pub struct MemorySink {
    transactions: Arc<Columns<Transaction>>,
    data_phases: Arc<Columns<DataPhase>>,
    events: Arc<Columns<Event>>,
    pub buses: Vec<BusRows>,
}

/// The tables of one bus.
pub struct BusRows {
    pub transactions: Batches<Transaction>,
    pub data_phases: Batches<DataPhase>,
    pub events: Batches<Event>,
    /// What came last, and what its numbers count from: more of the same may follow.
    last: Option<(Origin, Sheets)>,
}

/// The rows of a chunk of one bus, as columns.
pub struct Sheets {
    bus: Arc<BusTables>,
    transactions: Pages<Transaction>,
    data_phases: Pages<DataPhase>,
    events: Pages<Event>,
    /// Where they may go next.
    page: Page,
}

impl Clone for Sheets {
    fn clone(&self) -> Self {
        Sheets {
            bus: self.bus.clone(),
            transactions: self.transactions.clone(),
            data_phases: self.data_phases.clone(),
            events: self.events.clone(),
            page: Page::default(),
        }
    }
}

impl TakeRows for Sheets {
    fn take<'a>(
        &mut self,
        first: u64,
        transactions: impl Iterator<Item = InTile<'a>>,
        data_phases: impl Iterator<Item = InPhases<'a>>,
        events: &[Event],
    ) {
        let mut context = Context { bus: &self.bus, number: 0 };
        data_phases.for_each(|few| self.data_phases.add((context, few), &mut self.page));
        self.events.add((context, events), &mut self.page);
        context.number = first;
        for few in transactions {
            self.transactions.add((context, few), &mut self.page);
            context.number += few.count() as u64;
        }
    }
}

impl Gather<Decoder> for Sheets {
    fn decode(&mut self, decoder: &mut Decoder, bytes: &[u8]) {
        decoder.push_all(bytes, self);
    }

    fn take(&mut self, decoder: &mut Decoder) {
        decoder.protocol.drain(self);
    }

    fn reserve(&mut self, counts: &[usize]) {
        if let &[transactions, data_phases, _] = counts {
            self.transactions.expect(transactions);
            self.data_phases.expect(data_phases);
        }
    }

    fn may_wait(&self) -> bool {
        true
    }

    fn counts(&self) -> Vec<usize> {
        vec![self.transactions.rows(), self.data_phases.rows(), self.events.rows()]
    }

    fn lend(&mut self, page: Page) {
        self.page = page;
    }

    fn give_back(&mut self) -> Page {
        std::mem::take(&mut self.page)
    }
}

impl Sheets {
    /// Rows of the longest.
    fn rows(&self) -> usize {
        self.transactions.rows().max(self.data_phases.rows()).max(self.events.rows())
    }

    /// Whether the rows of others fit behind these as they are.
    fn has_room(&self, more: &Self) -> bool {
        self.transactions.left() >= more.transactions.rows()
            && self.data_phases.left() >= more.data_phases.rows()
            && self.events.left() >= more.events.rows()
    }
}

impl MemorySink {
    pub fn new(wanted: &Wanted) -> Result<Self> {
        Ok(MemorySink {
            transactions: Arc::new(tables::transactions(wanted)?),
            data_phases: Arc::new(tables::data_phases()),
            events: Arc::new(tables::events()),
            buses: Vec::new(),
        })
    }
}

impl Sink for MemorySink {
    type Gathered = Sheets;

    fn begin(&mut self, buses: &[BusTables]) -> Result<Vec<Sheets>> {
        let new = |_: &BusTables| BusRows {
            transactions: Batches::new(&self.transactions),
            data_phases: Batches::new(&self.data_phases),
            events: Batches::new(&self.events),
            last: None,
        };
        self.buses = buses.iter().map(new).collect();
        let empty = |bus: &BusTables| Sheets {
            bus: Arc::new(bus.clone()),
            transactions: Pages::new(&self.transactions, buses),
            data_phases: Pages::new(&self.data_phases, buses),
            events: Pages::new(&self.events, buses),
            page: Page::default(),
        };
        Ok(buses.iter().map(empty).collect())
    }

    fn rows(&mut self, bus: usize, origin: Origin, sheets: Sheets) -> Result<()> {
        self.buses[bus].push(origin, sheets);
        Ok(())
    }

    fn reached(&mut self, bus: usize, stamp: u64) -> Result<()> {
        if stamp == u64::MAX {
            self.buses[bus].finish();
        }
        Ok(())
    }
}

impl BusRows {
    /// Rows so few that they are appended to what came before.
    const SHORT: usize = 512;

    fn push(&mut self, origin: Origin, sheets: Sheets) {
        let rows = sheets.rows();
        match &mut self.last {
            Some((last_origin, last)) if *last_origin == origin && rows < Self::SHORT && last.has_room(&sheets) => {
                last.transactions.append(&sheets.transactions);
                last.data_phases.append(&sheets.data_phases);
                last.events.append(&sheets.events);
            }
            _ => {
                self.finish_last();
                self.last = Some((origin, sheets));
            }
        }
    }

    fn finish_last(&mut self) {
        if let Some((origin, sheets)) = self.last.take() {
            sheets.transactions.finish(sheets.bus.index, origin).for_each(|batch| self.transactions.push(batch));
            sheets.data_phases.finish(sheets.bus.index, origin).for_each(|batch| self.data_phases.push(batch));
            sheets.events.finish(sheets.bus.index, origin).for_each(|batch| self.events.push(batch));
        }
    }

    fn finish(&mut self) {
        self.finish_last();
        self.transactions.put_together();
        self.data_phases.put_together();
        self.events.put_together();
    }
}
