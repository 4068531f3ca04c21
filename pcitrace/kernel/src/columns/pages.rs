//! A table in sheets that fit into large pages.

use crate::bus::{BusTables, Origin};
use crate::columns::{Columns, Few, Part, Row, Sheet, Told};
use crate::lane::{LARGE_PAGE, Page};
use arrow_array::RecordBatch;
use std::sync::Arc;

/// A table in sheets, none of them longer than a large page: what the system has just cleared is still in the cache then
/// when the columns come there.
#[derive(Clone)]
pub struct Pages<R: Row> {
    full: Vec<Sheet<R>>,
    sheet: Sheet<R>,
    /// Rows of all of `full`.
    before: usize,
    /// How many rows there may be in all.
    expected: usize,
    /// Rows of a large page, or of the longest sheet.
    page: usize,
}

/// A sheet has no more rows, however short they are: who looks rows up in one has few of them to look into.
const LONG: usize = 1 << 17;
/// Rows of the first sheet, where nothing is known of how many may come.
const FEW: usize = 512;

impl<R: Row> Pages<R> {
    pub fn new(columns: &Arc<Columns<R>>, buses: &[BusTables<R::Layout>]) -> Self {
        let mut sheet = Sheet::new(columns, buses);
        let page = sheet.fitting(LARGE_PAGE).min(LONG);
        Pages { full: Vec::new(), sheet, before: 0, expected: 0, page }
    }

    /// How many rows there may be in all.
    pub fn expect(&mut self, rows: usize) {
        self.expected = rows;
    }

    pub fn rows(&self) -> usize {
        self.before + self.sheet.rows()
    }

    /// How many more there is room for.
    pub fn left(&self) -> usize {
        self.sheet.left()
    }

    pub fn add(&mut self, (mut context, mut rows): Part<R>, page: &mut Page) {
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
        self.sheet.reserve_in(next.min(most).min(self.page), page);
    }

    pub fn append(&mut self, more: &Self) {
        more.full.iter().chain([&more.sheet]).for_each(|sheet| self.sheet.append(sheet));
    }

    pub fn finish(self, bus: usize, origin: Origin) -> impl Iterator<Item = RecordBatch> {
        self.full.into_iter().chain([self.sheet]).map(move |sheet| sheet.finish(bus, origin))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::columns::{Column, Context, Fill, batch, cells, clock, column, fill, nullable, told_by};
    use crate::time::TimeBase;
    use arrow_select::concat::concat_batches;
    use proptest::prelude::*;

    /// Whether the bus has a line of which something can be told.
    type Has = bool;

    struct Reading {
        stamp: u64,
        value: Option<u64>,
        odd: Option<bool>,
    }

    impl Row for Reading {
        type Layout = Has;
        type Few<'a> = &'a [Reading];
        type Many = Vec<Reading>;
    }

    const READINGS: &[Column<Reading>] = &[
        column("bus", Fill::Same(|bus| &bus.name)),
        column("text", cells!(Text, |c, _| Some(&c.bus.name))),
        column("number", cells!(Integer, |c, _| Some(c.number))),
        column("time_us", cells!(Float, |c, r| Some(c.us(r.stamp)))),
        clock("clk", cells!(Integer, |_, r| Some(r.stamp))),
        nullable("value", cells!(Integer, |_, r| r.value)),
        nullable("odd", cells!(Flag, |_, r| r.odd)),
        told_by(|has| *has, "untold", cells!(Byte, |_, _| Some(1))),
    ];

    proptest! {
        /// However many are expected, come at a time and fit into a sheet.
        #[test]
        fn pages_hold_what_was_put_in(
            readings in proptest::collection::vec((any::<Option<u64>>(), any::<Option<bool>>()), 0..400),
            pieces in proptest::collection::vec(1usize..200, 1..40),
            expected in 0usize..500,
            page in 1usize..200,
        ) {
            let time = TimeBase::per_second(1e8).expect("a rate");
            let bus = BusTables { name: "A".into(), index: 0, layout: false, time };
            let row = |(nth, &(value, odd))| Reading { stamp: 7 * nth as u64, value, odd };
            let rows: Vec<Reading> = readings.iter().enumerate().map(row).collect();
            let columns = Arc::new(Columns::all(READINGS));
            let buses = [bus.clone()];
            let mut pages = Pages { page, expected, ..Pages::new(&columns, &buses) };
            let (mut from, mut sizes) = (0, pieces.iter().cycle());
            while from < rows.len() {
                let to = rows.len().min(from + sizes.next().expect("a cycle"));
                pages.add((Context { bus: &bus, number: from as u64 }, &rows[from..to]), &mut Page::default());
                from = to;
            }
            prop_assert_eq!(pages.rows(), rows.len());
            let batches: Vec<_> = pages.finish(0, Origin::default()).collect();
            prop_assert!(batches.iter().all(|batch| batch.num_rows() <= page));
            let whole = concat_batches(&columns.schema(), &batches).expect("batches of one schema");
            // One sheet of them, each added by itself: no group is whole.
            let parts: Vec<_> =
                (0..rows.len()).map(|row| (Context { bus: &bus, number: row as u64 }, &rows[row..row + 1])).collect();
            prop_assert_eq!(whole, batch(&columns, &buses, &parts));
        }
    }
}
