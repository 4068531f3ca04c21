//! Rows to Arrow record batches. The columns are described in `pcitrace/schema.py`; a test compares the two.

use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::pipeline::{BusTables, Decoded};
use crate::rows::{COMMAND_NAMES, Counts, DataPhase, Origin, Transaction};
use arrow::array::{
    ArrayRef, ArrowPrimitiveType, BooleanArray, PrimitiveArray, RecordBatch, RecordBatchOptions, StringBuilder,
    StringDictionaryBuilder,
};
use arrow::buffer::{BooleanBuffer, NullBuffer};
use arrow::datatypes::{DataType, Field, Float64Type, Schema, SchemaRef, UInt8Type, UInt64Type};
use std::sync::Arc;

/// One column: its name, whether it can be null, and how to fill it from rows.
struct Column<R> {
    name: &'static str,
    nullable: bool,
    fill: Fill<R>,
}

/// Fills a column from rows, by a loop of its own for each column: most of the time of a table goes by in them.
enum Fill<R> {
    /// The flag says whether text is dictionary encoded.
    Text(fn(&[Row<R>], bool) -> ArrayRef),
    Float(fn(&[Row<R>]) -> ArrayRef),
    Integer(fn(&[Row<R>]) -> ArrayRef),
    Byte(fn(&[Row<R>]) -> ArrayRef),
    Flag(fn(&[Row<R>]) -> ArrayRef),
}

/// A [`Fill`] by what one cell holds.
macro_rules! cells {
    (Text, $cell:expr) => {
        Fill::Text(|rows, coded| text(rows, coded, $cell))
    };
    (Float, $cell:expr) => {
        Fill::Float(|rows| primitive::<Float64Type, _>(rows, $cell))
    };
    (Integer, $cell:expr) => {
        Fill::Integer(|rows| primitive::<UInt64Type, _>(rows, $cell))
    };
    (Byte, $cell:expr) => {
        Fill::Byte(|rows| primitive::<UInt8Type, _>(rows, $cell))
    };
    (Flag, $cell:expr) => {
        Fill::Flag(|rows| flags(rows, $cell))
    };
}

/// A row and what it needs besides itself.
pub type Row<'a, R> = (Context<'a>, &'a R);

/// What a row needs besides itself.
pub struct Context<'a> {
    pub bus: &'a BusTables,
    /// Number of the row within its bus.
    pub number: u64,
    pub origin: Origin,
}

impl<'a> Context<'a> {
    /// Of a row that counts from the start of the capture.
    fn of(bus: &'a BusTables) -> Self {
        Context { bus, number: 0, origin: Origin::default() }
    }

    fn layout(&self) -> &'a Layout {
        &self.bus.layout
    }

    fn us(&self, stamp: u64) -> f64 {
        self.bus.time.us(stamp)
    }
}

/// Some or all columns of a table.
pub struct Columns<R: 'static> {
    chosen: Vec<&'static Column<R>>,
    schema: SchemaRef,
    /// Whether text is dictionary encoded: a byte a row.
    coded: bool,
}

impl<R> Columns<R> {
    fn all(table: &'static [Column<R>]) -> Self {
        Self::of(table.iter().collect(), false)
    }

    fn named(table: &'static [Column<R>], names: &[String]) -> Result<Self> {
        let find = |name: &String| {
            let found = table.iter().find(|column| column.name == name);
            found.ok_or_else(|| Error::Decode(format!("there is no column {name}")))
        };
        Ok(Self::of(names.iter().map(find).collect::<Result<_>>()?, true))
    }

    fn of(chosen: Vec<&'static Column<R>>, coded: bool) -> Self {
        let field = |column: &&Column<R>| {
            let kind = match column.fill {
                Fill::Text(_) if coded => DataType::Dictionary(Box::new(DataType::UInt8), Box::new(DataType::Utf8)),
                Fill::Text(_) => DataType::Utf8,
                Fill::Float(_) => DataType::Float64,
                Fill::Integer(_) => DataType::UInt64,
                Fill::Byte(_) => DataType::UInt8,
                Fill::Flag(_) => DataType::Boolean,
            };
            Field::new(column.name, kind, column.nullable)
        };
        let schema = Arc::new(Schema::new(chosen.iter().map(field).collect::<Vec<_>>()));
        Columns { chosen, schema, coded }
    }

    pub fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    pub fn batch(&self, rows: &[Row<R>]) -> RecordBatch {
        let array = |column: &&Column<R>| match column.fill {
            Fill::Text(fill) => fill(rows, self.coded),
            Fill::Float(fill) | Fill::Integer(fill) | Fill::Byte(fill) | Fill::Flag(fill) => fill(rows),
        };
        let arrays = self.chosen.iter().map(array).collect();
        // The count says how many rows there are also where no column was asked for.
        let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
        RecordBatch::try_new_with_options(self.schema(), arrays, &options).expect("the arrays follow the schema")
    }
}

fn text<R>(rows: &[Row<R>], coded: bool, cell: impl for<'a> Fn(&Context<'a>, &R) -> Option<&'a str>) -> ArrayRef {
    let texts = rows.iter().map(|(context, row)| cell(context, row));
    if coded {
        let mut builder = StringDictionaryBuilder::<UInt8Type>::new();
        texts.for_each(|text| builder.append_option(text));
        Arc::new(builder.finish())
    } else {
        let mut builder = StringBuilder::with_capacity(rows.len(), 12 * rows.len());
        texts.for_each(|text| builder.append_option(text));
        Arc::new(builder.finish())
    }
}

fn primitive<T: ArrowPrimitiveType, R>(rows: &[Row<R>], cell: impl Fn(&Context, &R) -> Option<T::Native>) -> ArrayRef {
    let mut nulls = 0;
    let value = |(context, row): &Row<R>| {
        let value = cell(context, row);
        nulls += usize::from(value.is_none());
        value.unwrap_or_default()
    };
    let values: Vec<_> = rows.iter().map(value).collect();
    let valid = (nulls > 0).then(|| validity(rows.len(), |i| cell(&rows[i].0, rows[i].1).is_some()));
    Arc::new(PrimitiveArray::<T>::new(values.into(), valid))
}

fn flags<R>(rows: &[Row<R>], cell: impl Fn(&Context, &R) -> Option<bool>) -> ArrayRef {
    let cell = |i: usize| cell(&rows[i].0, rows[i].1);
    let values = BooleanBuffer::collect_bool(rows.len(), |i| cell(i) == Some(true));
    Arc::new(BooleanArray::new(values, Some(validity(rows.len(), |i| cell(i).is_some()))))
}

fn validity(n: usize, is_valid: impl Fn(usize) -> bool) -> NullBuffer {
    NullBuffer::new(BooleanBuffer::collect_bool(n, is_valid))
}

const fn column<R>(name: &'static str, fill: Fill<R>) -> Column<R> {
    Column { name, nullable: false, fill }
}

const fn nullable<R>(name: &'static str, fill: Fill<R>) -> Column<R> {
    Column { name, nullable: true, fill }
}

const TRANSACTIONS: &[Column<Transaction>] = &[
    column("bus", cells!(Text, |c, _| Some(&c.bus.name))),
    column("transaction", cells!(Integer, |c, _| Some(c.number))),
    column("start_us", cells!(Float, |c, t| Some(c.us(t.start)))),
    column("end_us", cells!(Float, |c, t| Some(c.us(t.end)))),
    column("start_sample", cells!(Integer, |_, t| Some(t.start))),
    column("end_sample", cells!(Integer, |_, t| Some(t.end))),
    column("start_clk", cells!(Integer, |c, t| Some(c.origin.clocks + t.start_clk))),
    column("clocks", cells!(Integer, |_, t| Some(t.clocks))),
    nullable("command", cells!(Byte, |_, t| t.command)),
    nullable("command_name", cells!(Text, |_, t| t.command.map(|command| COMMAND_NAMES[usize::from(command)]))),
    nullable("dac", cells!(Flag, |_, t| t.dac)),
    nullable("address", cells!(Integer, |_, t| t.address)),
    column("data_phases", cells!(Integer, |_, t| Some(t.data_phases))),
    column("bytes", cells!(Integer, |_, t| Some(t.bytes))),
    column("bytes_exact", cells!(Flag, |_, t| Some(t.bytes_exact))),
    column("wait_clks", cells!(Integer, |_, t| Some(t.clocks - u64::from(t.address_phases) - t.data_phases))),
    nullable("target_wait_clks", cells!(Integer, |c, t| c.layout().stop.map(|_| t.target_wait_clks))),
    column("initiator_wait_clks", cells!(Integer, |_, t| Some(t.initiator_wait_clks))),
    nullable("devsel_clks", cells!(Integer, |_, t| t.devsel_clks.map(u64::from))),
    column("termination", cells!(Text, |_, t| Some(t.termination.name()))),
    nullable(
        "initiator",
        cells!(Text, |c, t| t.initiator.map(|index| c.layout().grant_names[usize::from(index)].as_str())),
    ),
    column("fast_back_to_back", cells!(Flag, |_, t| Some(t.fast_back_to_back))),
    nullable("address_parity_ok", cells!(Flag, |_, t| t.address_parity_ok)),
    nullable("perr", cells!(Flag, |_, t| t.perr)),
    nullable("serr", cells!(Flag, |_, t| t.serr)),
    nullable("suspect", cells!(Flag, |_, t| t.suspect)),
    nullable("first_data_us", cells!(Float, |c, t| (t.data_phases > 0).then(|| c.us(t.first_data)))),
    nullable("last_data_us", cells!(Float, |c, t| (t.data_phases > 0).then(|| c.us(t.last_data)))),
];

const DATA_PHASES: &[Column<DataPhase>] = &[
    column("bus", cells!(Text, |c, _| Some(&c.bus.name))),
    column("transaction", cells!(Integer, |c, d| Some(c.origin.transactions + d.transaction))),
    column("time_us", cells!(Float, |c, d| Some(c.us(d.stamp)))),
    nullable("data", cells!(Integer, |_, d| d.data)),
    nullable("byte_enables", cells!(Byte, |_, d| d.byte_enables)),
    nullable("parity_ok", cells!(Flag, |_, d| d.parity_ok)),
];

const PROBLEMS: &[Column<crate::rows::Problem>] = &[
    column("bus", cells!(Text, |c, _| Some(&c.bus.name))),
    column("kind", cells!(Text, |_, p| Some(p.kind.name()))),
    column("time_us", cells!(Float, |c, p| Some(c.us(p.stamp)))),
    nullable("transaction", cells!(Integer, |_, p| p.transaction)),
    column("text", cells!(Text, |_, p| Some(p.text))),
];

/// One window of the accounting.
#[derive(Clone, Copy)]
struct Window {
    start_us: f64,
    end_us: f64,
    counts: Counts,
}

impl Window {
    fn share(part: u64, whole: u64) -> Option<f64> {
        (whole > 0).then(|| part as f64 / whole as f64)
    }

    fn occupancy(&self) -> Option<f64> {
        Self::share(self.counts.busy(), self.counts.total() - self.counts.unknown)
    }
}

const CLOCKS: &[Column<Window>] = &[
    column("bus", cells!(Text, |c, _| Some(&c.bus.name))),
    column("start_us", cells!(Float, |_, w| Some(w.start_us))),
    column("end_us", cells!(Float, |_, w| Some(w.end_us))),
    column("total", cells!(Integer, |_, w| Some(w.counts.total()))),
    column("unknown", cells!(Integer, |_, w| Some(w.counts.unknown))),
    column("idle", cells!(Integer, |_, w| Some(w.counts.idle))),
    column("address", cells!(Integer, |_, w| Some(w.counts.address))),
    column("data", cells!(Integer, |_, w| Some(w.counts.data))),
    nullable("stop", cells!(Integer, |c, w| c.layout().stop.map(|_| w.counts.stop))),
    column("abort", cells!(Integer, |_, w| Some(w.counts.abort))),
    column("wait", cells!(Integer, |_, w| Some(w.counts.wait()))),
    nullable("turnaround", cells!(Integer, |c, w| c.layout().cbe_word.as_ref().map(|_| w.counts.turnaround))),
    nullable("decode", cells!(Integer, |c, w| c.layout().devsel.map(|_| w.counts.decode))),
    nullable("both", cells!(Integer, |c, w| c.layout().devsel.map(|_| w.counts.both))),
    nullable("target", cells!(Integer, |c, w| c.layout().devsel.and(c.layout().stop).map(|_| w.counts.target))),
    column("initiator", cells!(Integer, |_, w| Some(w.counts.initiator))),
    column("busy", cells!(Integer, |_, w| Some(w.counts.busy()))),
    nullable("occupancy", cells!(Float, |_, w| w.occupancy())),
    nullable("utilisation", cells!(Float, |_, w| w.occupancy())),
    nullable("data_occupancy", cells!(Float, |_, w| Window::share(w.counts.data, w.counts.total() - w.counts.unknown))),
    nullable("efficiency", cells!(Float, |_, w| Window::share(w.counts.data, w.counts.busy()))),
    column("bytes", cells!(Integer, |_, w| Some(w.counts.bytes))),
    column("bytes_exact", cells!(Flag, |_, w| Some(w.counts.inexact_phases == 0))),
    nullable(
        "throughput_mb_s",
        cells!(Float, |_, w| {
            let us = w.end_us - w.start_us;
            (us > 0.0).then(|| w.counts.bytes as f64 / us)
        }),
    ),
];

/// All columns of the transactions, or those that are named, with coded texts.
pub fn transactions(names: Option<&[String]>) -> Result<Columns<Transaction>> {
    names.map_or_else(|| Ok(Columns::all(TRANSACTIONS)), |names| Columns::named(TRANSACTIONS, names))
}

pub fn data_phases() -> Columns<DataPhase> {
    Columns::all(DATA_PHASES)
}

/// The problems of several buses in order of time.
pub fn problems(decoded: &[&Decoded]) -> RecordBatch {
    let mut rows: Vec<_> = decoded
        .iter()
        .flat_map(|decoded| decoded.problems.iter().map(|problem| (Context::of(&decoded.bus), problem)))
        .collect();
    rows.sort_by_key(|(_, problem)| problem.stamp);
    Columns::all(PROBLEMS).batch(&rows)
}

pub fn clocks(decoded: &Decoded) -> RecordBatch {
    let windows: Vec<_> = decoded
        .windows
        .iter()
        .map(|&(number, counts)| {
            let (start_us, end_us) = match decoded.window_us {
                Some(us) => (number as f64 * us, ((number + 1) as f64 * us).min(decoded.duration_us)),
                None => (0.0, decoded.duration_us),
            };
            Window { start_us, end_us, counts }
        })
        .collect();
    let rows: Vec<_> = windows.iter().map(|window| (Context::of(&decoded.bus), window)).collect();
    Columns::all(CLOCKS).batch(&rows)
}
