//! Tables in memory: built on the threads that decode, chunk by chunk.

use crate::columns::{Columns, Context, Sheet};
use crate::error::Result;
use crate::events::Event;
use crate::pipeline::{BusTables, Gather, Sink};
use crate::rows::{DataPhase, Origin, TakeRows, Transaction};
use crate::tables::{self, Wanted};
use crate::wire::WireScan;
use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use arrow::datatypes::SchemaRef;
use std::sync::Arc;

/// Keeps the tables of each bus.
pub struct MemorySink {
    transactions: Arc<Columns<Transaction>>,
    data_phases: Arc<Columns<DataPhase>>,
    events: Arc<Columns<Event>>,
    pub buses: Vec<BusRows>,
    /// What is read of the same samples besides.
    pub wires: Vec<WireScan>,
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
#[derive(Clone)]
pub struct Sheets {
    bus: Arc<BusTables>,
    transactions: Sheet<Transaction>,
    data_phases: Sheet<DataPhase>,
    events: Sheet<Event>,
}

impl TakeRows for Sheets {
    fn take(&mut self, first: u64, transactions: &[Transaction], data_phases: &[DataPhase], events: &[Event]) {
        let context = |number| Context { bus: &self.bus, number };
        self.transactions.add(&(context(first), transactions));
        self.data_phases.add(&(context(0), data_phases));
        self.events.add(&(context(0), events));
    }
}

impl Gather for Sheets {
    fn reserve(&mut self, transactions: usize, data_phases: usize) {
        self.transactions.reserve(transactions);
        self.data_phases.reserve(data_phases);
    }

    fn counts(&self) -> (usize, usize) {
        (self.transactions.rows(), self.data_phases.rows())
    }

    fn is_empty(&self) -> bool {
        self.rows() == 0
    }
}

impl Sheets {
    /// Rows of the longest.
    fn rows(&self) -> usize {
        self.transactions.rows().max(self.data_phases.rows()).max(self.events.rows())
    }
}

impl MemorySink {
    pub fn new(wanted: &Wanted) -> Result<Self> {
        Ok(MemorySink {
            transactions: Arc::new(tables::transactions(wanted)?),
            data_phases: Arc::new(tables::data_phases()),
            events: Arc::new(tables::events()),
            buses: Vec::new(),
            wires: Vec::new(),
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
            transactions: Sheet::new(&self.transactions, buses),
            data_phases: Sheet::new(&self.data_phases, buses),
            events: Sheet::new(&self.events, buses),
        };
        Ok(buses.iter().map(empty).collect())
    }

    fn wants_samples(&self) -> bool {
        !self.wires.is_empty()
    }

    fn samples(&mut self, bytes: &[u8]) -> Result<()> {
        self.wires.iter_mut().try_for_each(|wire| wire.push(bytes))
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
    const SHORT: usize = 1024;
    /// A batch has no more rows: who looks rows up in one has few of them to look into.
    const LONG: usize = 1 << 17;

    fn push(&mut self, origin: Origin, sheets: Sheets) {
        let rows = sheets.rows();
        match &mut self.last {
            Some((last_origin, last)) if *last_origin == origin && rows < Self::SHORT && last.rows() < Self::LONG => {
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
            self.transactions.push(sheets.transactions.finish(sheets.bus.index, origin));
            self.data_phases.push(sheets.data_phases.finish(sheets.bus.index, origin));
            self.events.push(sheets.events.finish(sheets.bus.index, origin));
        }
    }

    fn finish(&mut self) {
        self.finish_last();
        self.transactions.put_together();
        self.data_phases.put_together();
        self.events.put_together();
    }
}

/// A table in batches, of which small ones are put together.
pub struct Batches<R: 'static> {
    columns: Arc<Columns<R>>,
    batches: Vec<RecordBatch>,
    small: Vec<RecordBatch>,
    /// Bytes of the small ones.
    bytes: usize,
}

impl<R> Batches<R> {
    /// Bytes of a batch that stays as it is: to put it together with others is to copy it into fresh memory.
    const LARGE: usize = 1 << 20;

    fn new(columns: &Arc<Columns<R>>) -> Self {
        Batches { columns: columns.clone(), batches: Vec::new(), small: Vec::new(), bytes: 0 }
    }

    fn push(&mut self, batch: RecordBatch) {
        let bytes = batch.get_array_memory_size();
        if bytes >= Self::LARGE {
            self.put_together();
            self.batches.push(batch);
        } else if batch.num_rows() > 0 {
            self.bytes += bytes;
            self.small.push(batch);
            if self.bytes >= Self::LARGE {
                self.put_together();
            }
        }
    }

    fn put_together(&mut self) {
        self.bytes = 0;
        match self.small.len() {
            0 => {}
            1 => self.batches.append(&mut self.small),
            _ => {
                let whole = concat_batches(&self.columns.schema(), &self.small).expect("batches of one schema");
                self.batches.push(whole);
                self.small.clear();
            }
        }
    }

    /// The table; its batches are gone then.
    pub fn take(&mut self) -> (SchemaRef, Vec<RecordBatch>) {
        (self.columns.schema(), std::mem::take(&mut self.batches))
    }
}
