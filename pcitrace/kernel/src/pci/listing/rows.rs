//! The rows of a part, as a listing reads them.

use super::line::Phase;
use crate::pci::decoding::parts::Part;
use crate::pci::problems::What;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, UInt8Type, UInt64Type};
use arrow_array::{Array, ArrayRef, BooleanArray, Float64Array, RecordBatch, StringArray, UInt8Array, UInt64Array};
use std::collections::HashMap;
use std::ops::Range;

type Read<T> = Result<T, String>;

/// Sentences of rules, by bus and id.
pub type Sentences = HashMap<String, HashMap<String, String>>;

fn column<'a>(batch: &'a RecordBatch, name: &str) -> Read<&'a ArrayRef> {
    batch.column_by_name(name).ok_or_else(|| name.to_string())
}

fn integers<'a>(batch: &'a RecordBatch, name: &str) -> Read<&'a UInt64Array> {
    column(batch, name)?.as_primitive_opt::<UInt64Type>().ok_or_else(|| name.to_string())
}

fn bytes<'a>(batch: &'a RecordBatch, name: &str) -> Read<&'a UInt8Array> {
    column(batch, name)?.as_primitive_opt::<UInt8Type>().ok_or_else(|| name.to_string())
}

fn floats<'a>(batch: &'a RecordBatch, name: &str) -> Read<&'a Float64Array> {
    column(batch, name)?.as_primitive_opt::<Float64Type>().ok_or_else(|| name.to_string())
}

fn some<T>(valid: bool, value: impl FnOnce() -> T) -> Option<T> {
    valid.then(value)
}

/// A text column.
struct Texts<'a> {
    texts: &'a StringArray,
}

impl<'a> Texts<'a> {
    fn of(batch: &'a RecordBatch, name: &str) -> Read<Self> {
        let texts = column(batch, name)?.as_string_opt::<i32>().ok_or_else(|| name.to_string())?;
        Ok(Texts { texts })
    }

    fn get(&self, row: usize) -> Option<&'a str> {
        some(self.texts.is_valid(row), || self.texts.value(row))
    }
}

/// One transaction.
pub struct Row<'a> {
    pub bus: &'a str,
    pub number: u64,
    pub start_us: f64,
    pub end_us: f64,
    pub start_clk: u64,
    pub clocks: u64,
    pub command: Option<u8>,
    pub address: Option<u64>,
    pub dac: bool,
    pub data_phases: u64,
    pub bytes: u64,
    pub exact: bool,
    pub waits: u64,
    pub termination: &'a str,
    /// A disconnect ended it before the initiator wanted to: a clock with STOP# follows the last data. Without that clock the
    /// initiator was ending anyway.
    pub cut: bool,
    pub initiator: Option<&'a str>,
    pub data: &'a [Phase],
    /// Of a special cycle.
    pub message: Option<u32>,
}

pub struct Rows<'a> {
    part: &'a Part,
    bus: Texts<'a>,
    number: &'a UInt64Array,
    start_us: &'a Float64Array,
    start_clk: &'a UInt64Array,
    clocks: &'a UInt64Array,
    command: &'a UInt8Array,
    address: &'a UInt64Array,
    dac: &'a BooleanArray,
    data_phases: &'a UInt64Array,
    bytes: &'a UInt64Array,
    exact: &'a BooleanArray,
    waits: &'a UInt64Array,
    termination: Texts<'a>,
    end_us: &'a Float64Array,
    last_data_us: &'a Float64Array,
    initiator: Texts<'a>,
    message: &'a UInt64Array,
    /// Data phases of the rows.
    phases: Vec<Phase>,
    /// How many data phases of the part are before them.
    before: usize,
}

impl<'a> Rows<'a> {
    /// The rows from one to another; the error is the column that is missing.
    pub fn of(part: &'a Part, range: &Range<usize>) -> Read<Self> {
        let rows = &part.transactions;
        let (times_us, data) = (floats(&part.data_phases, "time_us")?, integers(&part.data_phases, "data")?);
        let enables = bytes(&part.data_phases, "byte_enables")?;
        let phase = |nth: usize| Phase {
            time_us: times_us.value(nth),
            data: some(data.is_valid(nth), || data.value(nth)),
            enables: some(enables.is_valid(nth), || enables.value(nth)),
        };
        let end = |rows: usize| rows.checked_sub(1).map_or(0, |last| part.phase_ends[last]);
        let before = end(range.start);
        let flags = |name: &str| column(rows, name)?.as_boolean_opt().ok_or_else(|| name.to_string());
        Ok(Rows {
            part,
            bus: Texts::of(rows, "bus")?,
            number: integers(rows, "transaction")?,
            start_us: floats(rows, "start_us")?,
            start_clk: integers(rows, "start_clk")?,
            clocks: integers(rows, "clocks")?,
            command: bytes(rows, "command")?,
            address: integers(rows, "address")?,
            dac: flags("dac")?,
            data_phases: integers(rows, "data_phases")?,
            bytes: integers(rows, "bytes")?,
            exact: flags("bytes_exact")?,
            waits: integers(rows, "wait_clks")?,
            termination: Texts::of(rows, "termination")?,
            end_us: floats(rows, "end_us")?,
            last_data_us: floats(rows, "last_data_us")?,
            initiator: Texts::of(rows, "initiator")?,
            message: integers(rows, "message")?,
            phases: (before..end(range.end)).map(phase).collect(),
            before,
        })
    }

    pub fn row(&self, row: usize) -> Row<'_> {
        let Range { start, end } = self.part.phases_of(row);
        let termination = self.termination.get(row).unwrap_or_default();
        let ended_with_data = self.last_data_us.is_valid(row) && self.last_data_us.value(row) == self.end_us.value(row);
        Row {
            bus: self.bus.get(row).unwrap_or_default(),
            number: self.number.value(row),
            start_us: self.start_us.value(row),
            end_us: self.end_us.value(row),
            start_clk: self.start_clk.value(row),
            clocks: self.clocks.value(row),
            command: some(self.command.is_valid(row), || self.command.value(row)),
            address: some(self.address.is_valid(row), || self.address.value(row)),
            dac: self.dac.is_valid(row) && self.dac.value(row),
            data_phases: self.data_phases.value(row),
            bytes: self.bytes.value(row),
            exact: self.exact.value(row),
            waits: self.waits.value(row),
            termination,
            cut: termination.starts_with("disconnect") && !ended_with_data,
            initiator: self.initiator.get(row),
            data: &self.phases[start - self.before..end - self.before],
            message: some(self.message.is_valid(row), || self.message.value(row) as u32),
        }
    }
}

/// Something wrong, as a listing shows it.
pub struct Problem {
    pub bus: String,
    pub time_us: f64,
    /// None for what the listing itself says.
    pub first_clk: Option<u64>,
    pub transaction: Option<u64>,
    /// Kind and text.
    pub text: String,
    /// Nothing is wrong: a line beside the transactions changed.
    pub is_event: bool,
}

/// In `asserted_before`: what was before is not known.
const NOT_KNOWN: u8 = 1 << 7;

/// The problems of a part; of broken rules those that `sentences` has, by bus and id, in its words.
pub fn problems(batch: &RecordBatch, sentences: &Sentences) -> Read<Vec<Problem>> {
    let texts = |name: &str| column(batch, name)?.as_string_opt::<i32>().ok_or_else(|| name.to_string());
    let (bus, kind, text) = (texts("bus")?, texts("kind")?, texts("text")?);
    let (count, first_clk) = (integers(batch, "count")?, integers(batch, "first_clk")?);
    let times = |row: usize| match count.value(row) {
        1 => String::new(),
        count => format!(" ({count} times)"),
    };
    let (time_us, number) = (floats(batch, "time_us")?, integers(batch, "transaction")?);
    let lines = match batch.column_by_name("asserted") {
        Some(_) => Some((bytes(batch, "asserted")?, bytes(batch, "asserted_before")?)),
        None => None,
    };
    let rule = texts("rule")?;
    let asserted: [String; 1 << CONTROL.len()] = std::array::from_fn(asserted);
    // What no rule names has a kind.
    let named = |row: usize| match rule.is_valid(row) {
        true => rule.value(row).to_string(),
        false => kind.value(row).replace('_', " "),
    };
    let sentence = |row: usize| sentences.get(bus.value(row)).and_then(|rules| rules.get(kind.value(row)));
    // The text of a broken rule is its sentence.
    let is_told = |row: &usize| !text.value(*row).is_empty() || sentence(*row).is_some();
    let said = |row: usize| match (sentence(row), lines) {
        (Some(sentence), Some((now, before))) => {
            let (now, before) = (now.value(row), before.value(row));
            let (id, times) = (kind.value(row), times(row));
            let lines = match (&asserted[usize::from(now & 31)], &asserted[usize::from(before & 31)]) {
                // Other lines than these broke it.
                _ if now == 0 && before & 31 == 0 => String::new(),
                (now, _) if before & NOT_KNOWN != 0 => format!(" [asserted: {now}]"),
                (now, before) => format!(" [asserted: {now}; before: {before}]"),
            };
            [id, ": ", sentence, &times, &lines].concat()
        }
        _ if kind.value(row) == What::EVENT => text.value(row).to_string(),
        _ => format!("{}: {}{}", named(row), text.value(row), times(row)),
    };
    Ok((0..batch.num_rows())
        .filter(is_told)
        .map(|row| Problem {
            bus: bus.value(row).into(),
            time_us: time_us.value(row),
            first_clk: Some(first_clk.value(row)),
            transaction: some(number.is_valid(row), || number.value(row)),
            text: said(row),
            is_event: kind.value(row) == What::EVENT,
        })
        .collect())
}

const CONTROL: [&str; 5] = ["FRAME#", "IRDY#", "TRDY#", "STOP#", "DEVSEL#"];

/// Control lines by the bits that say that they are asserted.
fn asserted(bits: usize) -> String {
    let found: Vec<_> =
        CONTROL.iter().enumerate().filter(|(bit, _)| bits >> bit & 1 != 0).map(|(_, name)| *name).collect();
    if found.is_empty() { "none".into() } else { found.join(" ") }
}
