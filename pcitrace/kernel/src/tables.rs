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
use std::slice;
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
    Text(fn(&[Part<R>], bool) -> ArrayRef),
    Float(fn(&[Part<R>]) -> ArrayRef),
    Integer(fn(&[Part<R>]) -> ArrayRef),
    Byte(fn(&[Part<R>]) -> ArrayRef),
    Flag(fn(&[Part<R>]) -> ArrayRef),
}

/// A [`Fill`] by what one cell holds.
macro_rules! cells {
    (Text, $cell:expr) => {
        Fill::Text(|parts, coded| text(parts, coded, $cell))
    };
    (Float, $cell:expr) => {
        Fill::Float(|parts| primitive::<Float64Type, _>(parts, $cell))
    };
    (Integer, $cell:expr) => {
        Fill::Integer(|parts| primitive::<UInt64Type, _>(parts, $cell))
    };
    (Byte, $cell:expr) => {
        Fill::Byte(|parts| primitive::<UInt8Type, _>(parts, $cell))
    };
    (Flag, $cell:expr) => {
        Fill::Flag(|parts| flags(parts, $cell))
    };
}

/// Rows of one bus that follow each other, with what the first of them needs besides itself.
pub type Part<'a, R> = (Context<'a>, &'a [R]);

/// What a row needs besides itself.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    pub bus: &'a BusTables,
    /// Number of the row within its bus.
    pub number: u64,
    pub origin: Origin,
}

/// The rows of a part, each with its own context.
fn rows<'a, R>(&(context, rows): &Part<'a, R>) -> impl Iterator<Item = (Context<'a>, &'a R)> {
    (context.number..).zip(rows).map(move |(number, row)| (Context { number, ..context }, row))
}

fn count<R>(parts: &[Part<R>]) -> usize {
    parts.iter().map(|(_, rows)| rows.len()).sum()
}

/// Parts for batches of about `size` rows: long ones are cut, short ones are put together.
pub fn portions<'a, R>(parts: impl Iterator<Item = Part<'a, R>>, size: usize) -> Vec<Vec<Part<'a, R>>> {
    let mut portions: Vec<Vec<Part<R>>> = Vec::new();
    let mut room = 0;
    for (context, rows) in parts {
        for (nth, rows) in rows.chunks(size).enumerate() {
            let part = (Context { number: context.number + (nth * size) as u64, ..context }, rows);
            match portions.last_mut() {
                Some(last) if room >= rows.len() => last.push(part),
                _ => {
                    portions.push(vec![part]);
                    room = size;
                }
            }
            room -= rows.len();
        }
    }
    portions
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

    pub fn batch(&self, parts: &[Part<R>]) -> RecordBatch {
        let array = |column: &&Column<R>| match column.fill {
            Fill::Text(fill) => fill(parts, self.coded),
            Fill::Float(fill) | Fill::Integer(fill) | Fill::Byte(fill) | Fill::Flag(fill) => fill(parts),
        };
        let arrays = self.chosen.iter().map(array).collect();
        // The count says how many rows there are also where no column was asked for.
        let options = RecordBatchOptions::new().with_row_count(Some(count(parts)));
        RecordBatch::try_new_with_options(self.schema(), arrays, &options).expect("the arrays follow the schema")
    }
}

fn text<R>(parts: &[Part<R>], coded: bool, cell: impl for<'a> Fn(&Context<'a>, &R) -> Option<&'a str>) -> ArrayRef {
    let cells = parts.iter().flat_map(rows);
    if coded {
        let mut builder = StringDictionaryBuilder::<UInt8Type>::new();
        cells.for_each(|(context, row)| builder.append_option(cell(&context, row)));
        Arc::new(builder.finish())
    } else {
        let mut builder = StringBuilder::with_capacity(count(parts), 12 * count(parts));
        cells.for_each(|(context, row)| builder.append_option(cell(&context, row)));
        Arc::new(builder.finish())
    }
}

fn primitive<T: ArrowPrimitiveType, R>(
    parts: &[Part<R>],
    cell: impl Fn(&Context, &R) -> Option<T::Native>,
) -> ArrayRef {
    let mut nulls = 0;
    let mut values = Vec::with_capacity(count(parts));
    for part in parts {
        values.extend(rows(part).map(|(context, row)| {
            let value = cell(&context, row);
            nulls += usize::from(value.is_none());
            value.unwrap_or_default()
        }));
    }
    let valid = (nulls > 0).then(|| NullBuffer::new(bits(parts, |context, row| cell(context, row).is_some())));
    Arc::new(PrimitiveArray::<T>::new(values.into(), valid))
}

fn flags<R>(parts: &[Part<R>], cell: impl Fn(&Context, &R) -> Option<bool>) -> ArrayRef {
    let values = bits(parts, |context, row| cell(context, row) == Some(true));
    let valid = bits(parts, |context, row| cell(context, row).is_some());
    Arc::new(BooleanArray::new(values, Some(NullBuffer::new(valid))))
}

fn bits<R>(parts: &[Part<R>], bit: impl Fn(&Context, &R) -> bool) -> BooleanBuffer {
    let mut cells = parts.iter().flat_map(rows);
    BooleanBuffer::collect_bool(count(parts), |_| cells.next().is_some_and(|(context, row)| bit(&context, row)))
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
        .flat_map(|decoded| {
            decoded.problems.iter().map(|problem| (Context::of(&decoded.bus), slice::from_ref(problem)))
        })
        .collect();
    rows.sort_by_key(|(_, problem)| problem[0].stamp);
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
    Columns::all(CLOCKS).batch(&[(Context::of(&decoded.bus), &windows)])
}
