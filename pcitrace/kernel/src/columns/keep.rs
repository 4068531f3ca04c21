//! Tables in memory: built on the threads that decode, chunk by chunk.

use crate::bus::{self, Origin};
use crate::columns::{Columns, Context, Few, Part, Row, Sheet, Told};
use crate::error::Result;
use crate::lane::{LARGE_PAGE, Page};
use crate::pci::events::Event;
use crate::pci::layout::BusTables;
use crate::pci::phases::InPhases;
use crate::pci::rows::{DataPhase, TakeRows, Transaction};
use crate::pci::tables::{self, Wanted};
use crate::pci::tiles::InTile;
use crate::pipeline::{Gather, Sink};
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

/// A table in sheets, none of them longer than a large page: what the system has just cleared is still in the cache then
/// when the columns come there.
#[derive(Clone)]
struct Pages<R: Row> {
    full: Vec<Sheet<R>>,
    sheet: Sheet<R>,
    /// Rows of all of `full`.
    before: usize,
    /// How many rows there may be in all.
    expected: usize,
    /// Rows of a large page.
    page: usize,
}

/// Rows of the first sheet, where nothing is known of how many may come.
const FEW: usize = 512;

impl<R: Row> Pages<R> {
    fn new(columns: &Arc<Columns<R>>, buses: &[bus::BusTables<R::Layout>]) -> Self {
        let mut sheet = Sheet::new(columns, buses);
        let page = sheet.fitting(LARGE_PAGE);
        Pages { full: Vec::new(), sheet, before: 0, expected: 0, page }
    }

    fn rows(&self) -> usize {
        self.before + self.sheet.rows()
    }

    fn add(&mut self, (mut context, mut rows): Part<R>, page: &mut Page) {
        while rows.count() > 0 {
            if self.sheet.left() == 0 {
                self.turn(rows.count(), page);
            }
            let (now, rest) = rows.split_at(rows.count().min(self.sheet.left()));
            self.sheet.add(&(context, now));
            context.number += now.count() as u64;
            rows = rest;
        }
    }

    /// Begins a sheet, with room for some rows: as many as are still expected, or as there are, where more come than were
    /// expected.
    fn turn(&mut self, some: usize, page: &mut Page) {
        let rows = self.rows();
        let next = match self.expected.saturating_sub(rows) {
            0 => rows.max(some).max(FEW),
            rest => rest,
        };
        if self.sheet.rows() > 0 {
            let empty = self.sheet.empty();
            self.full.push(std::mem::replace(&mut self.sheet, empty));
        }
        self.before = rows;
        let most = if page.left() < LARGE_PAGE { self.sheet.fitting(page.left()) } else { self.page };
        self.sheet.reserve_in(next.min(most), page);
    }

    fn append(&mut self, more: &Self) {
        more.full.iter().chain([&more.sheet]).for_each(|sheet| self.sheet.append(sheet));
    }

    fn finish(self, bus: usize, origin: Origin) -> impl Iterator<Item = RecordBatch> {
        self.full.into_iter().chain([self.sheet]).map(move |sheet| sheet.finish(bus, origin))
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

impl Gather for Sheets {
    fn reserve(&mut self, transactions: usize, data_phases: usize) {
        self.transactions.expected = transactions;
        self.data_phases.expected = data_phases;
    }

    fn counts(&self) -> (usize, usize) {
        (self.transactions.rows(), self.data_phases.rows())
    }

    fn is_empty(&self) -> bool {
        self.rows() == 0
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
            transactions: Pages::new(&self.transactions, buses),
            data_phases: Pages::new(&self.data_phases, buses),
            events: Pages::new(&self.events, buses),
            page: Page::default(),
        };
        Ok(buses.iter().map(empty).collect())
    }

    fn wires(&mut self) -> &mut [WireScan] {
        &mut self.wires
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

/// A table in batches, of which small ones are put together.
pub struct Batches<R: Row> {
    columns: Arc<Columns<R>>,
    batches: Vec<RecordBatch>,
    small: Vec<RecordBatch>,
    /// Rows of the small ones.
    rows: usize,
}

impl<R: Row> Batches<R> {
    /// Rows of a batch that stays as it is: to put it together with others is to copy it into fresh memory.
    const LARGE: usize = 512;

    fn new(columns: &Arc<Columns<R>>) -> Self {
        Batches { columns: columns.clone(), batches: Vec::new(), small: Vec::new(), rows: 0 }
    }

    fn push(&mut self, batch: RecordBatch) {
        let rows = batch.num_rows();
        if rows >= Self::LARGE {
            self.put_together();
            self.batches.push(batch);
        } else if rows > 0 {
            self.rows += rows;
            self.small.push(batch);
            if self.rows >= Self::LARGE {
                self.put_together();
            }
        }
    }

    fn put_together(&mut self) {
        self.rows = 0;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::columns::batch;
    use crate::pci::layout::{BusSpec, Layout};
    use crate::pci::phases::Phases;
    use crate::samples::places::Source;
    use crate::time::TimeBase;
    use proptest::prelude::*;

    /// A bus of whose data phases everything can be told.
    fn bus() -> BusTables {
        let control = ["CLK", "FRAME#", "IRDY#", "TRDY#", "CBE0#", "CBE1#", "CBE2#", "CBE3#", "PAR"];
        let ad = (0..32).map(|nth| format!("AD{nth}"));
        let names = control.map(String::from).into_iter().chain(ad).enumerate();
        let lines = names.map(|(channel, name)| (name, Source { channel, bit: 0, active_low: false })).collect();
        let spec = BusSpec { name: "PCI".into(), width: None, lines };
        let layout = Layout::new(&spec, 8, false, |source| source.channel).expect("a bus");
        BusTables { name: spec.name, index: 0, layout, time: TimeBase::per_second(1e8).expect("a rate") }
    }

    proptest! {
        /// However many are expected, come at a time and fit into a sheet.
        #[test]
        fn pages_hold_what_was_put_in(
            phases in proptest::collection::vec((any::<Option<u64>>(), any::<Option<u8>>(), any::<Option<bool>>()), 0..400),
            pieces in proptest::collection::vec(1usize..200, 1..40),
            expected in 0usize..500,
            page in 1usize..200,
        ) {
            let bus = bus();
            let row = |(nth, &(data, byte_enables, parity_ok))| {
                DataPhase { transaction: nth as u64 / 3, stamp: 7 * nth as u64, data, byte_enables, parity_ok }
            };
            let rows: Phases = phases.iter().enumerate().map(row).collect();
            let columns = Arc::new(tables::data_phases());
            let buses = [bus.clone()];
            let mut pages = Pages { page, expected, ..Pages::new(&columns, &buses) };
            let context = Context { bus: &bus, number: 0 };
            let (mut from, mut sizes) = (0, pieces.iter().cycle());
            while from < rows.len() {
                let to = rows.len().min(from + sizes.next().expect("a cycle"));
                rows.some(from..to).for_each(|few| pages.add((context, few), &mut Page::default()));
                from = to;
            }
            prop_assert_eq!(pages.rows(), rows.len());
            let batches: Vec<_> = pages.finish(0, Origin::default()).collect();
            prop_assert!(batches.iter().all(|batch| batch.num_rows() <= page));
            let whole = concat_batches(&columns.schema(), &batches).expect("batches of one schema");
            // One sheet of them, each added by itself: no group is whole.
            let parts: Vec<_> = (0..rows.len()).flat_map(|row| rows.some(row..row + 1)).map(|few| (context, few)).collect();
            prop_assert_eq!(whole, batch(&columns, &buses, &parts));
        }
    }
}
