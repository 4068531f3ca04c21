//! Rows to Arrow record batches. The columns are described in `pcitrace/schema.py`; a test compares the two.

use crate::columns::{
    Column, Columns, Context, Mark, Marks, Row, batch, cells, clock, column, known_by, nullable, nullable_transaction,
    told_by, transaction,
};
use crate::error::Result;
use crate::pci::decoding::Decoded;
use crate::pci::events::Event;
use crate::pci::layout::{BusTables, EVENT_LINES, Layout};
use crate::pci::phases::{InPhases, Phases};
use crate::pci::problems::Problem;
use crate::pci::rows::{COMMAND_NAMES, Counts, DataPhase, Flag, Termination, Transaction, WindowCounts};
use crate::pci::rules::{Findings, Rule, Violation};
use crate::pci::tiles::{Has, InTile, Transactions};
use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use std::slice;
use std::sync::Arc;

// For `cells!`.
use crate::columns::{Fill, fill};

/// Where a row is, in columns that look at the lines of its bus.
type At<'a> = Context<'a, Layout>;

fn bus_name(bus: &BusTables) -> &str {
    &bus.name
}

// What a bus has no lines for cannot be told.

fn has_commands(layout: &Layout) -> bool {
    layout.cbe_word.is_some()
}

fn has_addresses(layout: &Layout) -> bool {
    layout.ad.is_some()
}

fn has_parity(layout: &Layout) -> bool {
    layout.parity.is_some() && layout.par.is_some()
}

// The marks of a transaction: its flags, which of them are known, and what else may be null.

const fn is(flag: Flag) -> Fill<Transaction> {
    Fill::Mark(Mark(flag as usize))
}

const fn known(flag: Flag) -> Mark {
    Mark(8 + flag as usize)
}

const fn has(what: Has) -> Mark {
    Mark(16 + what as usize)
}

impl Row for Transaction {
    type Layout = Layout;
    type Few<'a> = InTile<'a>;
    type Many = Transactions;

    fn marks(few: InTile) -> Marks {
        [&few.tile.flags_set, &few.tile.flags_known, &few.tile.has].map(|lane| few.bits(lane))
    }
}

// Those of a data phase.
const PARITY_OK: Mark = Mark(0);
const PARITY: Mark = Mark(1);
const DATA: Mark = Mark(2);
const BYTE_ENABLES: Mark = Mark(3);

impl Row for DataPhase {
    type Layout = Layout;
    type Few<'a> = InPhases<'a>;
    type Many = Phases;

    fn marks(few: InPhases) -> Marks {
        few.marks()
    }
}

/// Rows one after the other, without marks.
macro_rules! plain {
    ($($row:ty),*) => {
        $(impl Row for $row {
            type Layout = Layout;
            type Few<'a> = &'a [$row];
            type Many = Vec<$row>;
        })*
    };
}
plain!(Event, Problem, Violation, Window);

const TRANSACTIONS: &[Column<Transaction>] = &[
    column("bus", Fill::Same(bus_name)),
    transaction("transaction", cells!(Integer, |c, _| Some(c.number))),
    column("start_us", cells!(Float, |c, t| Some(c.us(t.start)))),
    column("end_us", cells!(Float, |c, t| Some(c.us(t.end)))),
    column("start_sample", cells!(Integer, |_, t| Some(t.start))),
    column("end_sample", cells!(Integer, |_, t| Some(t.end))),
    clock("start_clk", cells!(Integer, |_, t| Some(t.start_clk))),
    column("clocks", cells!(Integer, |_, t| Some(t.clocks))),
    known_by(has(Has::Command), told_by(has_commands, "command", cells!(Byte, |_, t| t.command))),
    known_by(
        has(Has::Command),
        told_by(has_commands, "command_name", cells!(Name, |_, t| t.command, |_| COMMAND_NAMES.to_vec())),
    ),
    known_by(known(Flag::Dac), told_by(has_commands, "dac", is(Flag::Dac))),
    known_by(has(Has::Address), told_by(has_addresses, "address", cells!(Integer, |_, t| t.address))),
    column("data_phases", cells!(Integer, |_, t| Some(t.data_phases))),
    column("bytes", cells!(Integer, |_, t| Some(t.bytes))),
    column("bytes_exact", is(Flag::BytesExact)),
    column("wait_clks", cells!(Integer, |_, t| Some(t.clocks - u64::from(t.address_phases) - t.data_phases))),
    nullable("target_wait_clks", cells!(Integer, |c: &At, t| c.layout().stop.map(|_| t.target_wait_clks))),
    column("initiator_wait_clks", cells!(Integer, |_, t| Some(t.initiator_wait_clks))),
    known_by(has(Has::Claim), nullable("devsel_clks", cells!(Integer, |_, t| t.devsel_clks.map(u64::from)))),
    column(
        "termination",
        cells!(Name, |_, t| Some(t.termination as u8), |_| Termination::ALL.map(Termination::name).to_vec()),
    ),
    known_by(
        has(Has::Initiator),
        told_by(
            |layout| layout.grants.is_some(),
            "initiator",
            cells!(Name, |_, t| t.initiator, |bus| bus.layout.grant_names.iter().map(String::as_str).collect()),
        ),
    ),
    column("fast_back_to_back", is(Flag::FastBackToBack)),
    known_by(known(Flag::AddressParityOk), told_by(has_parity, "address_parity_ok", is(Flag::AddressParityOk))),
    known_by(known(Flag::Perr), told_by(|layout| layout.perr.is_some(), "perr", is(Flag::Perr))),
    known_by(known(Flag::Serr), told_by(|layout| layout.serr.is_some(), "serr", is(Flag::Serr))),
    known_by(known(Flag::Suspect), nullable("suspect", is(Flag::Suspect))),
    known_by(has(Has::Data), nullable("first_data_us", cells!(Float, |c, t| Some(c.us(t.first_data))))),
    known_by(has(Has::Data), nullable("last_data_us", cells!(Float, |c, t| Some(c.us(t.last_data))))),
    told_by(has_addresses, "device", cells!(Byte, |_, t| t.device())),
    told_by(
        |layout| layout.idsels.is_some(),
        "idsel",
        cells!(Name, |_, t| t.idsel, |bus| bus.layout.idsel_names.iter().map(String::as_str).collect()),
    ),
];

/// What only a listing reads of transactions.
const LISTED: &[Column<Transaction>] = &[nullable("message", cells!(Integer, |_, t| t.message.map(u64::from)))];

const DATA_PHASES: &[Column<DataPhase>] = &[
    column("bus", Fill::Same(bus_name)),
    transaction("transaction", cells!(Integer, |_, d| Some(d.transaction))),
    column("time_us", cells!(Float, |c, d| Some(c.us(d.stamp)))),
    known_by(DATA, told_by(has_addresses, "data", cells!(Integer, |_, d| d.data))),
    known_by(BYTE_ENABLES, told_by(has_commands, "byte_enables", cells!(Byte, |_, d| d.byte_enables))),
    known_by(PARITY, told_by(has_parity, "parity_ok", Fill::Mark(PARITY_OK))),
];

const EVENTS: &[Column<Event>] = &[
    column("bus", Fill::Same(bus_name)),
    column("time_us", cells!(Float, |c, e| Some(c.us(e.stamp)))),
    clock("clk", cells!(Integer, |_, e| Some(e.clk))),
    column("line", cells!(Name, |_, e| Some(e.line), |_| EVENT_LINES.to_vec())),
    column("edge", cells!(Name, |_, e| Some(u8::from(e.asserted)), |_| vec!["rising", "falling"])),
    nullable_transaction("transaction", cells!(Integer, |_, e| e.transaction)),
];

const PROBLEMS: &[Column<Problem>] = &[
    column("bus", cells!(Text, |c, _| Some(&c.bus.name))),
    column("kind", cells!(Text, |_, p| Some(p.what.kind()))),
    nullable("rule", cells!(Text, |_, p| p.what.rule().map(Rule::id))),
    column("time_us", cells!(Float, |c, p| Some(c.us(p.stamp)))),
    nullable("transaction", cells!(Integer, |_, p| p.concerns.transaction())),
    column("count", cells!(Integer, |_, p| Some(p.count))),
    column("first_clk", cells!(Integer, |_, p| Some(p.first_clk))),
    column("last_clk", cells!(Integer, |_, p| Some(p.last_clk))),
    column("text", cells!(Text, |_, p| Some(p.what.text()))),
];

/// What a listing reads of problems besides.
const LINES: &[Column<Problem>] = &[
    column("asserted", cells!(Byte, |_, p| Some(p.lines as u8))),
    column("asserted_before", cells!(Byte, |_, p| Some((p.lines >> 8) as u8))),
];

const VIOLATIONS: &[Column<Violation>] = &[
    column("rule", cells!(Text, |_, v| Some(v.rule.id()))),
    column("clk", cells!(Integer, |_, v| Some(v.clk))),
    column("time_us", cells!(Float, |c, v| Some(c.us(v.stamp)))),
    column("asserted", cells!(Byte, |_, v| Some(v.lines as u8))),
    column("asserted_before", cells!(Byte, |_, v| Some((v.lines >> 8) as u8))),
    nullable("value", cells!(Integer, |_, v| v.value)),
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
    nullable("stop", cells!(Integer, |c: &At, w| c.layout().stop.map(|_| w.counts.stop))),
    column("abort", cells!(Integer, |_, w| Some(w.counts.abort))),
    column("wait", cells!(Integer, |_, w| Some(w.counts.wait()))),
    nullable("turnaround", cells!(Integer, |c: &At, w| c.layout().cbe_word.as_ref().map(|_| w.counts.turnaround))),
    nullable("decode", cells!(Integer, |c: &At, w| c.layout().devsel.map(|_| w.counts.decode))),
    nullable("both", cells!(Integer, |c: &At, w| c.layout().devsel.map(|_| w.counts.both))),
    nullable("target", cells!(Integer, |c: &At, w| c.layout().devsel.and(c.layout().stop).map(|_| w.counts.target))),
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

/// What is wanted of the rows of a decoder.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    /// Columns of the transactions; None for all.
    pub columns: Option<Vec<String>>,
    /// Names in these columns are dictionary encoded.
    pub coded: bool,
}

pub fn transactions(wanted: &Wanted) -> Result<Columns<Transaction>> {
    let all = || Ok(Columns::all(TRANSACTIONS));
    wanted.columns.as_ref().map_or_else(all, |names| Columns::named(TRANSACTIONS, LISTED, names, wanted.coded))
}

pub fn data_phases() -> Columns<DataPhase> {
    Columns::all(DATA_PHASES)
}

pub fn events() -> Columns<Event> {
    Columns::all(EVENTS)
}

/// Rows per batch, at most.
const LONG: usize = 1 << 17;

pub fn problem_schema() -> SchemaRef {
    Columns::all(PROBLEMS).schema()
}

/// Problems, each with its bus, in this order; with the lines that were seen where broken rules are among them.
pub fn problem_rows(problems: &[(&BusTables, Problem)], with_lines: bool) -> RecordBatch {
    let rows: Vec<_> =
        problems.iter().map(|(bus, problem)| (Context { bus, number: 0 }, slice::from_ref(problem))).collect();
    let columns = Columns::chosen(PROBLEMS.iter().chain(LINES.iter().filter(|_| with_lines)));
    batch(&Arc::new(columns), &[], &rows)
}

/// The problems of several buses in order of time.
pub fn problems<'a>(buses: impl IntoIterator<Item = (&'a BusTables, &'a [Problem])>) -> (SchemaRef, Vec<RecordBatch>) {
    let one = |(bus, problems): (&'a BusTables, &'a [Problem])| {
        problems.iter().map(move |problem| (Context { bus, number: 0 }, slice::from_ref(problem)))
    };
    let mut rows: Vec<_> = buses.into_iter().flat_map(one).collect();
    rows.sort_by_key(|(_, problem)| problem[0].stamp);
    let columns = Arc::new(Columns::all(PROBLEMS));
    // Of one batch the texts might be too long for an array.
    let batches = rows.chunks(LONG).map(|rows| batch(&columns, &[], rows)).collect();
    (columns.schema(), batches)
}

/// Where rules were broken, in order of time; none where rules were not asked for.
pub fn violations(bus: &BusTables, findings: Option<&Findings>) -> RecordBatch {
    let mut violations = findings.map_or(Vec::new(), |findings| findings.violations.clone());
    violations.sort_by_key(|violation| (violation.clk, violation.rule));
    batch(&Arc::new(Columns::all(VIOLATIONS)), &[], &[(Context { bus, number: 0 }, &violations)])
}

pub fn clocks(decoded: &Decoded) -> RecordBatch {
    windows(&decoded.bus, &decoded.windows, decoded.window_us, decoded.duration_us)
}

/// Windows of one bus, cut at the end of the capture.
pub fn windows(bus: &BusTables, windows: &WindowCounts, window_us: Option<f64>, duration_us: f64) -> RecordBatch {
    let windows: Vec<_> = windows
        .iter()
        .map(|&(number, counts)| {
            let (start_us, end_us) = match window_us {
                Some(us) => (number as f64 * us, ((number + 1) as f64 * us).min(duration_us)),
                None => (0.0, duration_us),
            };
            Window { start_us, end_us, counts }
        })
        .collect();
    batch(&Arc::new(Columns::all(CLOCKS)), &[], &[(Context { bus, number: 0 }, &windows)])
}
