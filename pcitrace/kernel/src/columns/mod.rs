//! Rows to Arrow columns, as they come: a decoder's rows are few enough to lie in the core's cache when they are taken.

pub mod batches;
pub mod cell;
pub mod pages;

use crate::bus::{BusTables, Origin};
use crate::columns::cell::{Cells, Names, primitive, text_in_all};
use crate::error::{Error, Result};
use crate::lane::{Page, Rooms};
use arrow_array::types::{Float64Type, UInt8Type, UInt64Type};
use arrow_array::{ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions, new_null_array};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex};

/// One column: its name, whether it can be null, how to fill it from rows, and what its numbers count from.
pub struct Column<R: Row> {
    name: &'static str,
    nullable: bool,
    fill: Fill<R>,
    counted: Counted,
    /// The mark of rows in which it is not null, where there is one.
    known: Option<Mark>,
    /// Whether a bus of these lines may have anything in it but null.
    told: fn(&R::Layout) -> bool,
}

impl<R: Row> Column<R> {
    const fn of(name: &'static str, nullable: bool, fill: Fill<R>, counted: Counted) -> Self {
        Column { name, nullable, fill, counted, known: None, told: |_| true }
    }
}

/// What the numbers of a column count from, in a capture that several decoders make up.
#[derive(Clone, Copy)]
enum Counted {
    Start,
    Clock,
    Transaction,
}

/// What is so of a row or not, by its number among the marks of such rows. Sixty-four rows give a word of a column at once.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Mark(pub usize);

/// A word of each mark, by eights.
pub type Marks = [[u64; 8]; 3];

/// A kind of rows, of which columns are made.
pub trait Row: Sized + Send + Sync + 'static {
    /// Where the lines of their bus are: what it has no lines for cannot be told.
    type Layout: Clone + Send + Sync;
    /// Some that follow each other, where they are.
    type Few<'a>: Few<Row = Self>;
    /// Those that wait for something.
    type Many: Many<Self>;
    /// Which of the rows of a group, or of fewer, have each mark; where columns of them are made.
    fn marks(_few: Self::Few<'_>) -> Marks {
        [[0; 8]; _]
    }
}

/// Rows of which something can be told one by one.
pub trait Told: Copy {
    type Row;
    fn count(self) -> usize;
    fn told<T>(self, nth: usize, tell: impl FnOnce(&Self::Row) -> T) -> T;
}

/// Some rows that follow each other.
pub trait Few: Told {
    type Group: Told<Row = Self::Row>;
    fn split_at(self, at: usize) -> (Self, Self);
    /// Where they are just a group: code that knows how many rows it has is twice as fast.
    fn group(self) -> Option<Self::Group>;
}

impl<R> Told for &[R] {
    type Row = R;

    #[inline(always)]
    fn count(self) -> usize {
        self.len()
    }

    #[inline(always)]
    fn told<T>(self, nth: usize, tell: impl FnOnce(&R) -> T) -> T {
        tell(&self[nth])
    }
}

impl<R> Told for &[R; GROUP] {
    type Row = R;

    #[inline(always)]
    fn count(self) -> usize {
        GROUP
    }

    #[inline(always)]
    fn told<T>(self, nth: usize, tell: impl FnOnce(&R) -> T) -> T {
        tell(&self[nth])
    }
}

impl<'a, R> Few for &'a [R] {
    type Group = &'a [R; GROUP];

    #[inline(always)]
    fn split_at(self, at: usize) -> (Self, Self) {
        self.split_at(at)
    }

    #[inline(always)]
    fn group(self) -> Option<Self::Group> {
        self.try_into().ok()
    }
}

/// Rows that wait, in order.
pub trait Many<R: Row>: Default + Send + Sync {
    fn count(&self) -> usize;
    fn push(&mut self, row: R);
    fn into_rows(self) -> impl Iterator<Item = R>;
    /// The rows from one number on and before another.
    fn some(&self, rows: Range<usize>) -> impl Iterator<Item = R::Few<'_>>;
}

impl<R: for<'a> Row<Few<'a> = &'a [R]>> Many<R> for Vec<R> {
    fn count(&self) -> usize {
        self.len()
    }

    fn push(&mut self, row: R) {
        self.push(row);
    }

    fn into_rows(self) -> impl Iterator<Item = R> {
        self.into_iter()
    }

    fn some(&self, rows: Range<usize>) -> impl Iterator<Item = &[R]> {
        std::iter::once(&self[rows])
    }
}

/// Fills a column from rows, by a loop of its own for each column: most of the time of a table goes by in them.
pub enum Fill<R: Row> {
    Text(fn(&Part<R>, &mut Cells)),
    /// The same text in all rows of a bus.
    Same(fn(&BusTables<R::Layout>) -> &str),
    /// A name out of a list: its place there, and the list of a bus.
    Name(fn(&Part<R>, &mut Cells), fn(&BusTables<R::Layout>) -> Vec<&str>),
    Float(fn(&Part<R>, &mut Cells)),
    Integer(fn(&Part<R>, &mut Cells)),
    Byte(fn(&Part<R>, &mut Cells)),
    Flag(fn(&Part<R>, &mut Cells)),
    Mark(Mark),
}

/// A [`Fill`] by what one cell holds.
macro_rules! cells {
    (Text, $cell:expr) => {
        Fill::Text(|part, cells| cells.texts(part, $cell))
    };
    (Name, $cell:expr, $names:expr) => {
        Fill::Name(fill!(names, $cell), $names)
    };
    (Float, $cell:expr) => {
        Fill::Float(fill!(floats, $cell))
    };
    (Integer, $cell:expr) => {
        Fill::Integer(fill!(integers, $cell))
    };
    (Byte, $cell:expr) => {
        Fill::Byte(fill!(bytes, $cell))
    };
    (Flag, $cell:expr) => {
        Fill::Flag(fill!(flags, $cell))
    };
}
pub(crate) use cells;

/// Rows that are filled into all columns before the next ones: few enough for the nearest cache, and a word of bits.
pub const GROUP: usize = 64;

/// A whole group is filled by code that knows how many rows it has: twice as fast.
macro_rules! fill {
    ($way:ident, $($cell:expr),*) => {
        |part, cells| match $crate::columns::Few::group(part.1) {
            Some(rows) => cells.$way(&(part.0, rows), $($cell),*),
            None => cells.$way(part, $($cell),*),
        }
    };
}
pub(crate) use fill;

pub const fn column<R: Row>(name: &'static str, fill: Fill<R>) -> Column<R> {
    Column::of(name, false, fill, Counted::Start)
}

pub const fn nullable<R: Row>(name: &'static str, fill: Fill<R>) -> Column<R> {
    Column::of(name, true, fill, Counted::Start)
}

/// Null in all rows of a bus that has no such lines. Nobody writes to its memory then, so that no page has to be cleared.
pub const fn told_by<R: Row>(told: fn(&R::Layout) -> bool, name: &'static str, fill: Fill<R>) -> Column<R> {
    Column { name, nullable: true, fill, counted: Counted::Start, known: None, told }
}

/// A column that is null but in rows with this mark.
pub const fn known_by<R: Row>(mark: Mark, mut column: Column<R>) -> Column<R> {
    column.known = Some(mark);
    column
}

/// Of numbers of clocks, which count from the decoder's first one.
pub const fn clock<R: Row>(name: &'static str, fill: Fill<R>) -> Column<R> {
    Column::of(name, false, fill, Counted::Clock)
}

/// The same for numbers of transactions.
pub const fn transaction<R: Row>(name: &'static str, fill: Fill<R>) -> Column<R> {
    Column::of(name, false, fill, Counted::Transaction)
}

/// The same where there need be none.
pub const fn nullable_transaction<R: Row>(name: &'static str, fill: Fill<R>) -> Column<R> {
    Column::of(name, true, fill, Counted::Transaction)
}

/// Rows of one bus that follow each other, with what the first of them needs besides itself.
pub type Part<'a, R> = (Context<'a, <R as Row>::Layout>, <R as Row>::Few<'a>);

/// Some of the rows of a bus, of which the first has this number.
pub fn parts_of<'a, R: Row>(
    bus: &'a BusTables<R::Layout>,
    mut number: u64,
    rows: impl Iterator<Item = R::Few<'a>>,
) -> impl Iterator<Item = Part<'a, R>> {
    rows.map(move |few| {
        let context = Context { bus, number };
        number += few.count() as u64;
        (context, few)
    })
}

/// What a row needs besides itself.
pub struct Context<'a, L> {
    pub bus: &'a BusTables<L>,
    /// Number of the row within its bus.
    pub number: u64,
}

impl<L> Clone for Context<'_, L> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<L> Copy for Context<'_, L> {}

impl<'a, L> Context<'a, L> {
    pub fn layout(&self) -> &'a L {
        &self.bus.layout
    }

    pub fn us(&self, stamp: u64) -> f64 {
        self.bus.time.us(stamp)
    }
}

/// Some or all columns of a table.
pub struct Columns<R: Row> {
    chosen: Vec<&'static Column<R>>,
    schema: SchemaRef,
    /// Whether names are dictionary encoded: a byte a row.
    coded: bool,
    /// Whether any is made of marks.
    marked: bool,
    /// Columns that say the same in all rows of a bus, by column and bus: batches share the longest.
    same: Mutex<HashMap<(usize, usize), ArrayRef>>,
}

impl<R: Row> Columns<R> {
    pub fn all(table: &'static [Column<R>]) -> Self {
        Self::of(table.iter().collect(), false)
    }

    pub fn chosen(columns: impl Iterator<Item = &'static Column<R>>) -> Self {
        Self::of(columns.collect(), false)
    }

    /// Of `more` those too that only their names ask for.
    pub fn named(
        table: &'static [Column<R>],
        more: &'static [Column<R>],
        names: &[String],
        coded: bool,
    ) -> Result<Self> {
        let find = |name: &String| {
            let found = table.iter().chain(more).find(|column| column.name == name);
            found.ok_or_else(|| {
                let there: Vec<_> = table.iter().map(|column| column.name).collect();
                Error::Decode(format!("there is no column {name}; there are {}", there.join(", ")))
            })
        };
        Ok(Self::of(names.iter().map(find).collect::<Result<_>>()?, coded))
    }

    fn of(chosen: Vec<&'static Column<R>>, coded: bool) -> Self {
        let field = |column: &&Column<R>| {
            let kind = match column.fill {
                Fill::Same(_) | Fill::Name(..) if coded => {
                    DataType::Dictionary(Box::new(DataType::UInt8), Box::new(DataType::Utf8))
                }
                Fill::Text(_) | Fill::Same(_) | Fill::Name(..) => DataType::Utf8,
                Fill::Float(_) => DataType::Float64,
                Fill::Integer(_) => DataType::UInt64,
                Fill::Byte(_) => DataType::UInt8,
                Fill::Flag(_) | Fill::Mark(_) => DataType::Boolean,
            };
            Field::new(column.name, kind, column.nullable)
        };
        let schema = Arc::new(Schema::new(chosen.iter().map(field).collect::<Vec<_>>()));
        let marked = chosen.iter().any(|column| matches!(column.fill, Fill::Mark(_)) || column.known.is_some());
        Columns { chosen, schema, coded, marked, same: Mutex::default() }
    }

    /// So many rows of a column that says the same in all rows of a bus, of one that may be made with more.
    fn same(&self, column: usize, bus: usize, rows: usize, make: impl Fn(usize) -> ArrayRef) -> ArrayRef {
        let mut all = self.same.lock().expect("nothing that holds it panics");
        let longest = all.entry((column, bus)).or_insert_with(|| make(rows));
        if longest.len() < rows {
            *longest = make(rows.max(2 * longest.len()));
        }
        longest.slice(0, rows)
    }

    pub fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
}

/// A table as it is filled.
pub struct Sheet<R: Row> {
    columns: Arc<Columns<R>>,
    cells: Vec<Cells>,
    rows: usize,
    /// Rows that there is room for; texts may need more.
    room: usize,
}

impl<R: Row> Clone for Sheet<R> {
    fn clone(&self) -> Self {
        Sheet { columns: self.columns.clone(), cells: self.cells.clone(), rows: self.rows, room: 0 }
    }
}

impl<R: Row> Sheet<R> {
    /// Without rows, for rows of `buses`.
    pub fn new(columns: &Arc<Columns<R>>, buses: &[BusTables<R::Layout>]) -> Self {
        let cells = |column: &&Column<R>| {
            let lists = match column.fill {
                Fill::Name(_, names) => buses.iter().map(|bus| Names::new(&names(bus))).collect(),
                Fill::Same(text) => buses.iter().map(|bus| Names::new(&[text(bus)])).collect(),
                _ => Vec::new(),
            };
            // What is coded takes a byte, and says which names there might be.
            let coded = columns.coded && matches!(column.fill, Fill::Same(_) | Fill::Name(..));
            let mut cells = Cells {
                coded,
                nullable: column.nullable && column.known.is_none(),
                untold: !coded && !buses.is_empty() && !buses.iter().any(|bus| (column.told)(&bus.layout)),
                lists: Arc::new(lists),
                ..Cells::default()
            };
            if matches!(column.fill, Fill::Text(_) | Fill::Same(_) | Fill::Name(..)) && !coded {
                cells.offsets.push(0);
            }
            cells
        };
        Sheet { columns: columns.clone(), cells: columns.chosen.iter().map(cells).collect(), rows: 0, room: 0 }
    }

    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Without rows, for the same ones.
    pub fn empty(&self) -> Self {
        let cells = self.cells.iter().map(Cells::empty).collect();
        Sheet { columns: self.columns.clone(), cells, rows: 0, room: 0 }
    }

    /// How many more rows there is room for.
    pub fn left(&self) -> usize {
        self.room.saturating_sub(self.rows)
    }

    /// How many rows fit into so many bytes, of texts of a middling length.
    pub fn fitting(&mut self, bytes: usize) -> usize {
        let mut bytes_of = |rows| {
            let mut counted = Rooms::default();
            self.make_room(rows, &mut counted);
            counted.bytes
        };
        let (few, more) = (16 * GROUP, 32 * GROUP);
        let (least, each) = (bytes_of(few), bytes_of(more) - bytes_of(few));
        let rows = few + bytes.saturating_sub(least) * (more - few) / each.max(1);
        // Each column is filled up to the next few bytes.
        (rows / GROUP - 1) * GROUP
    }

    /// Makes room for so many rows in all.
    pub fn reserve(&mut self, rows: usize) {
        self.reserve_in(rows, &mut Page::default());
    }

    /// The same in what is left of a page, if that is enough.
    pub fn reserve_in(&mut self, rows: usize, page: &mut Page) {
        if rows > self.room {
            let mut counted = Rooms::default();
            self.make_room(rows, &mut counted);
            self.make_room(rows, &mut page.room(counted.bytes));
            self.room = rows;
        }
    }

    /// The columns that are not null in all rows.
    fn told(&mut self) -> impl Iterator<Item = (&'static Column<R>, &mut Cells)> {
        let all = self.columns.chosen.iter().copied().zip(&mut self.cells);
        all.filter(|(_, cells)| !cells.untold)
    }

    fn make_room(&mut self, rows: usize, rooms: &mut Rooms) {
        for (column, cells) in self.told() {
            match column.fill {
                Fill::Float(_) => rooms.make(&mut cells.floats, rows),
                Fill::Integer(_) => rooms.make(&mut cells.integers, rows),
                Fill::Byte(_) => rooms.make(&mut cells.bytes, rows),
                Fill::Same(_) | Fill::Name(..) if cells.coded => rooms.make(&mut cells.bytes, rows),
                Fill::Same(_) => {}
                Fill::Name(..) | Fill::Text(_) => cells.make_text_room(rows, rooms),
                Fill::Flag(_) | Fill::Mark(_) => rooms.make(&mut cells.flags.words, rows / 64 + 1),
            }
            if column.nullable {
                rooms.make(&mut cells.valid.words, rows / 64 + 1);
            }
        }
    }

    pub fn add(&mut self, &(mut context, mut rows): &Part<R>) {
        self.rows += rows.count();
        if self.rows > self.room {
            self.reserve(self.rows.max(2 * self.room));
        }
        while rows.count() > 0 {
            let (group, rest) = rows.split_at(rows.count().min(GROUP));
            self.fill(&(context, group));
            context.number += group.count() as u64;
            rows = rest;
        }
    }

    /// Adds the rows of a group, or fewer.
    fn fill(&mut self, part: &Part<R>) {
        let count = part.1.count();
        let marks = if self.columns.marked { R::marks(part.1) } else { Marks::default() };
        let word = |Mark(mark): Mark| marks[mark / 8][mark % 8];
        for (column, cells) in self.told() {
            match column.fill {
                Fill::Same(_) => cells.same(part.0.bus.index, count),
                Fill::Mark(mark) => cells.flags.push(word(mark), count),
                Fill::Text(fill) | Fill::Name(fill, _) => fill(part, cells),
                Fill::Float(fill) | Fill::Integer(fill) | Fill::Byte(fill) | Fill::Flag(fill) => fill(part, cells),
            }
            if let Some(mark) = column.known {
                cells.valid.push(word(mark), count);
            }
        }
    }

    /// Appends the rows of a sheet of the same columns and buses.
    pub fn append(&mut self, more: &Sheet<R>) {
        self.rows += more.rows;
        self.cells.iter_mut().zip(&more.cells).for_each(|(cells, more)| cells.append(more));
    }

    /// The table of rows of bus number `bus`, whose decoder's numbers count from `origin`.
    pub fn finish(self, bus: usize, origin: Origin) -> RecordBatch {
        let schema = self.columns.schema();
        let array = |(nth, mut cells): (usize, Cells)| -> ArrayRef {
            let (column, field) = (self.columns.chosen[nth], schema.field(nth));
            if cells.untold {
                return self.columns.same(nth, bus, self.rows, |rows| new_null_array(field.data_type(), rows));
            }
            if let Some((bus, text)) = cells.one_text() {
                return self.columns.same(nth, bus, self.rows, |rows| text_in_all(text, rows));
            }
            let more = match column.counted {
                Counted::Start => 0,
                Counted::Clock => origin.clocks,
                Counted::Transaction => origin.transactions,
            };
            if more > 0 {
                cells.integers.iter_mut().for_each(|number| *number += more);
            }
            cells.write_same();
            match column.fill {
                Fill::Same(_) | Fill::Name(..) if cells.coded => cells.into_codes(bus),
                Fill::Text(_) | Fill::Same(_) | Fill::Name(..) => cells.into_texts(),
                Fill::Float(_) => primitive::<Float64Type>(cells.floats, cells.valid),
                Fill::Integer(_) => primitive::<UInt64Type>(cells.integers, cells.valid),
                Fill::Byte(_) => primitive::<UInt8Type>(cells.bytes, cells.valid),
                Fill::Flag(_) | Fill::Mark(_) => {
                    Arc::new(BooleanArray::new(cells.flags.finish(), cells.valid.into_nulls()))
                }
            }
        };
        let arrays = self.cells.into_iter().enumerate().map(array).collect();
        // The count says how many rows there are also where no column was asked for.
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows));
        RecordBatch::try_new_with_options(schema, arrays, &options).expect("the arrays follow the schema")
    }
}

/// A table of all rows of some parts.
pub fn batch<R: Row>(columns: &Arc<Columns<R>>, buses: &[BusTables<R::Layout>], parts: &[Part<R>]) -> RecordBatch {
    batch_from(columns, buses, parts, Origin::default())
}

/// The same of rows whose numbers count from `origin`.
pub fn batch_from<R: Row>(
    columns: &Arc<Columns<R>>,
    buses: &[BusTables<R::Layout>],
    parts: &[Part<R>],
    origin: Origin,
) -> RecordBatch {
    let mut sheet = Sheet::new(columns, buses);
    sheet.reserve(parts.iter().map(|(_, rows)| rows.count()).sum());
    parts.iter().for_each(|part| sheet.add(part));
    sheet.finish(0, origin)
}
