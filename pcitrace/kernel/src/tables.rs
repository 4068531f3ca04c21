//! Rows to Arrow record batches. The columns are described in `pcitrace/schema.py`; a test compares the two.

use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::pipeline::{BusTables, Decoded};
use crate::rows::{COMMAND_NAMES, Counts, DataPhase, Transaction};
use arrow::array::{
    ArrayRef, ArrowPrimitiveType, BooleanArray, PrimitiveArray, RecordBatch, RecordBatchOptions, StringBuilder,
    StringDictionaryBuilder,
};
use arrow::buffer::{BooleanBuffer, NullBuffer};
use arrow::datatypes::{DataType, Field, Float64Type, Schema, SchemaRef, UInt8Type, UInt64Type};
use std::borrow::Borrow;
use std::sync::Arc;

/// One column: its name, whether it can be null, and how to fill it from rows.
struct Column<R> {
    name: &'static str,
    nullable: bool,
    fill: Fill<R>,
}

enum Fill<R> {
    Text(fn(&Context, &R) -> Option<&'static str>),
    /// Names that belong to the bus.
    Name(for<'a> fn(&'a Context, &R) -> Option<&'a str>),
    Float(fn(&Context, &R) -> Option<f64>),
    Integer(fn(&Context, &R) -> Option<u64>),
    Byte(fn(&Context, &R) -> Option<u8>),
    Flag(fn(&Context, &R) -> Option<bool>),
}

/// What a row needs besides itself.
pub struct Context<'a> {
    pub bus: &'a BusTables,
    /// Number of the row within its bus.
    pub number: u64,
}

impl Context<'_> {
    fn layout(&self) -> &Layout {
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
                Fill::Text(_) | Fill::Name(_) if coded => {
                    DataType::Dictionary(Box::new(DataType::UInt8), Box::new(DataType::Utf8))
                }
                Fill::Text(_) | Fill::Name(_) => DataType::Utf8,
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

    pub fn batch(&self, rows: &[(Context, impl Borrow<R>)]) -> RecordBatch {
        let arrays = self.chosen.iter().map(|column| self.array(column, rows)).collect();
        // The count says how many rows there are also where no column was asked for.
        let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
        RecordBatch::try_new_with_options(self.schema(), arrays, &options).expect("the arrays follow the schema")
    }

    fn array(&self, column: &Column<R>, rows: &[(Context, impl Borrow<R>)]) -> ArrayRef {
        let n = rows.len();
        match column.fill {
            Fill::Text(get) => self.text(rows.iter().map(|(context, row)| get(context, row.borrow()))),
            Fill::Name(get) => self.text(rows.iter().map(|(context, row)| get(context, row.borrow()))),
            Fill::Float(get) => primitive::<Float64Type>(n, |i| get(&rows[i].0, rows[i].1.borrow())),
            Fill::Integer(get) => primitive::<UInt64Type>(n, |i| get(&rows[i].0, rows[i].1.borrow())),
            Fill::Byte(get) => primitive::<UInt8Type>(n, |i| get(&rows[i].0, rows[i].1.borrow())),
            Fill::Flag(get) => {
                let cell = |i: usize| get(&rows[i].0, rows[i].1.borrow());
                let values = BooleanBuffer::collect_bool(n, |i| cell(i) == Some(true));
                Arc::new(BooleanArray::new(values, Some(validity(n, |i| cell(i).is_some()))))
            }
        }
    }

    fn text<'a>(&self, texts: impl ExactSizeIterator<Item = Option<&'a str>>) -> ArrayRef {
        if self.coded {
            let mut builder = StringDictionaryBuilder::<UInt8Type>::new();
            texts.for_each(|text| builder.append_option(text));
            Arc::new(builder.finish())
        } else {
            let mut builder = StringBuilder::with_capacity(texts.len(), 12 * texts.len());
            texts.for_each(|text| builder.append_option(text));
            Arc::new(builder.finish())
        }
    }
}

fn primitive<T: ArrowPrimitiveType>(n: usize, cell: impl Fn(usize) -> Option<T::Native>) -> ArrayRef {
    let mut nulls = 0;
    let values: Vec<_> = (0..n)
        .map(|i| {
            let value = cell(i);
            nulls += usize::from(value.is_none());
            value.unwrap_or_default()
        })
        .collect();
    let valid = (nulls > 0).then(|| validity(n, |i| cell(i).is_some()));
    Arc::new(PrimitiveArray::<T>::new(values.into(), valid))
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
    column("bus", Fill::Name(|c, _| Some(&c.bus.name))),
    column("transaction", Fill::Integer(|c, _| Some(c.number))),
    column("start_us", Fill::Float(|c, t| Some(c.us(t.start)))),
    column("end_us", Fill::Float(|c, t| Some(c.us(t.end)))),
    column("start_sample", Fill::Integer(|_, t| Some(t.start))),
    column("end_sample", Fill::Integer(|_, t| Some(t.end))),
    column("start_clk", Fill::Integer(|_, t| Some(t.start_clk))),
    column("clocks", Fill::Integer(|_, t| Some(t.clocks))),
    nullable("command", Fill::Byte(|_, t| t.command)),
    nullable("command_name", Fill::Text(|_, t| t.command.map(|command| COMMAND_NAMES[usize::from(command)]))),
    nullable("dac", Fill::Flag(|_, t| t.dac)),
    nullable("address", Fill::Integer(|_, t| t.address)),
    column("data_phases", Fill::Integer(|_, t| Some(t.data_phases))),
    column("bytes", Fill::Integer(|_, t| Some(t.bytes))),
    column("bytes_exact", Fill::Flag(|_, t| Some(t.bytes_exact))),
    column("wait_clks", Fill::Integer(|_, t| Some(t.clocks - u64::from(t.address_phases) - t.data_phases))),
    nullable("target_wait_clks", Fill::Integer(|c, t| c.layout().stop.map(|_| t.target_wait_clks))),
    column("initiator_wait_clks", Fill::Integer(|_, t| Some(t.initiator_wait_clks))),
    nullable("devsel_clks", Fill::Integer(|_, t| t.devsel_clks.map(u64::from))),
    column("termination", Fill::Text(|_, t| Some(t.termination.name()))),
    nullable(
        "initiator",
        Fill::Name(|c, t| t.initiator.map(|index| c.layout().grant_names[usize::from(index)].as_str())),
    ),
    column("fast_back_to_back", Fill::Flag(|_, t| Some(t.fast_back_to_back))),
    nullable("address_parity_ok", Fill::Flag(|_, t| t.address_parity_ok)),
    nullable("perr", Fill::Flag(|_, t| t.perr)),
    nullable("serr", Fill::Flag(|_, t| t.serr)),
    nullable("suspect", Fill::Flag(|_, t| t.suspect)),
    nullable("first_data_us", Fill::Float(|c, t| (t.data_phases > 0).then(|| c.us(t.first_data)))),
    nullable("last_data_us", Fill::Float(|c, t| (t.data_phases > 0).then(|| c.us(t.last_data)))),
];

const DATA_PHASES: &[Column<DataPhase>] = &[
    column("bus", Fill::Name(|c, _| Some(&c.bus.name))),
    column("transaction", Fill::Integer(|_, d| Some(d.transaction))),
    column("time_us", Fill::Float(|c, d| Some(c.us(d.stamp)))),
    nullable("data", Fill::Integer(|_, d| d.data)),
    nullable("byte_enables", Fill::Byte(|_, d| d.byte_enables)),
    nullable("parity_ok", Fill::Flag(|_, d| d.parity_ok)),
];

const PROBLEMS: &[Column<crate::rows::Problem>] = &[
    column("bus", Fill::Name(|c, _| Some(&c.bus.name))),
    column("kind", Fill::Text(|_, p| Some(p.kind.name()))),
    column("time_us", Fill::Float(|c, p| Some(c.us(p.stamp)))),
    nullable("transaction", Fill::Integer(|_, p| p.transaction)),
    column("text", Fill::Text(|_, p| Some(p.text))),
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
    column("bus", Fill::Name(|c, _| Some(&c.bus.name))),
    column("start_us", Fill::Float(|_, w| Some(w.start_us))),
    column("end_us", Fill::Float(|_, w| Some(w.end_us))),
    column("total", Fill::Integer(|_, w| Some(w.counts.total()))),
    column("unknown", Fill::Integer(|_, w| Some(w.counts.unknown))),
    column("idle", Fill::Integer(|_, w| Some(w.counts.idle))),
    column("address", Fill::Integer(|_, w| Some(w.counts.address))),
    column("data", Fill::Integer(|_, w| Some(w.counts.data))),
    nullable("stop", Fill::Integer(|c, w| c.layout().stop.map(|_| w.counts.stop))),
    column("abort", Fill::Integer(|_, w| Some(w.counts.abort))),
    column("wait", Fill::Integer(|_, w| Some(w.counts.wait()))),
    nullable("turnaround", Fill::Integer(|c, w| c.layout().cbe_word.as_ref().map(|_| w.counts.turnaround))),
    nullable("decode", Fill::Integer(|c, w| c.layout().devsel.map(|_| w.counts.decode))),
    nullable("both", Fill::Integer(|c, w| c.layout().devsel.map(|_| w.counts.both))),
    nullable("target", Fill::Integer(|c, w| c.layout().devsel.and(c.layout().stop).map(|_| w.counts.target))),
    column("initiator", Fill::Integer(|_, w| Some(w.counts.initiator))),
    column("busy", Fill::Integer(|_, w| Some(w.counts.busy()))),
    nullable("occupancy", Fill::Float(|_, w| w.occupancy())),
    nullable("utilisation", Fill::Float(|_, w| w.occupancy())),
    nullable("data_occupancy", Fill::Float(|_, w| Window::share(w.counts.data, w.counts.total() - w.counts.unknown))),
    nullable("efficiency", Fill::Float(|_, w| Window::share(w.counts.data, w.counts.busy()))),
    column("bytes", Fill::Integer(|_, w| Some(w.counts.bytes))),
    column("bytes_exact", Fill::Flag(|_, w| Some(w.counts.inexact_phases == 0))),
    nullable(
        "throughput_mb_s",
        Fill::Float(|_, w| {
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
        .flat_map(|decoded| decoded.problems.iter().map(|&problem| (Context { bus: &decoded.bus, number: 0 }, problem)))
        .collect();
    rows.sort_by_key(|(_, problem)| problem.stamp);
    Columns::all(PROBLEMS).batch(&rows)
}

pub fn clocks(decoded: &Decoded) -> RecordBatch {
    let rows: Vec<_> = decoded
        .windows
        .iter()
        .map(|&(number, counts)| {
            let (start_us, end_us) = match decoded.window_us {
                Some(us) => (number as f64 * us, ((number + 1) as f64 * us).min(decoded.duration_us)),
                None => (0.0, decoded.duration_us),
            };
            (Context { bus: &decoded.bus, number: 0 }, Window { start_us, end_us, counts })
        })
        .collect();
    Columns::all(CLOCKS).batch(&rows)
}
