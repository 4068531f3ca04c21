//! Rows as lines of CSV, byte for byte as Arrow's own writer has them, but column types are told apart once a batch.

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::csv::WriterBuilder;
use arrow::datatypes::{DataType, Float64Type, UInt8Type, UInt64Type};
use arrow::error::ArrowError;

/// A column whose cells are written by hand.
enum Cells<'a> {
    Text(&'a arrow::array::StringArray),
    Float(&'a [f64]),
    Integer(&'a [u64]),
    Byte(&'a [u8]),
    Flag(&'a arrow::array::BooleanArray),
}

impl<'a> Cells<'a> {
    fn of(array: &'a ArrayRef) -> Option<Self> {
        Some(match array.data_type() {
            DataType::Utf8 => Cells::Text(array.as_string()),
            DataType::Float64 => Cells::Float(array.as_primitive::<Float64Type>().values()),
            DataType::UInt64 => Cells::Integer(array.as_primitive::<UInt64Type>().values()),
            DataType::UInt8 => Cells::Byte(array.as_primitive::<UInt8Type>().values()),
            DataType::Boolean => Cells::Flag(array.as_boolean()),
            _ => return None,
        })
    }

    #[inline(always)]
    fn write(&self, row: usize, digits: &mut itoa::Buffer, out: &mut Vec<u8>) {
        match self {
            Cells::Text(texts) => quoted(texts.value(row).as_bytes(), out),
            Cells::Float(values) => decimal(values[row], digits, out),
            Cells::Integer(values) => out.extend_from_slice(digits.format(values[row]).as_bytes()),
            Cells::Byte(values) => out.extend_from_slice(digits.format(values[row]).as_bytes()),
            Cells::Flag(flags) => out.extend_from_slice(if flags.value(row) { b"true" } else { b"false" }),
        }
    }
}

/// Numbers with so many thousandths have 15 digits at most.
const FEW_DIGITS: u64 = 1_000_000_000_000_000;

/// The shortest digits that read as this number, as ryu finds them. Most are times in whole nanoseconds: no two numbers share
/// a decimal of 15 digits, so that one is the shortest without a search.
#[inline(always)]
fn decimal(value: f64, digits: &mut itoa::Buffer, out: &mut Vec<u8>) {
    let thousandths = (value * 1e3 + 0.5) as u64;
    if thousandths >= FEW_DIGITS || thousandths as f64 / 1e3 != value || value.is_sign_negative() {
        out.extend_from_slice(ryu::Buffer::new().format(value).as_bytes());
        return;
    }
    let part = (thousandths % 1000) as u16;
    let three = [part / 100, part / 10 % 10, part % 10].map(|digit| b'0' + digit as u8);
    let kept = match part {
        _ if part.is_multiple_of(100) => 1,
        _ if part.is_multiple_of(10) => 2,
        _ => 3,
    };
    out.extend_from_slice(digits.format(thousandths / 1000).as_bytes());
    out.push(b'.');
    out.extend_from_slice(&three[..kept]);
}

/// In quotes only where that is necessary (RFC 4180, 2.6 and 2.7).
fn quoted(text: &[u8], out: &mut Vec<u8>) {
    if !text.iter().any(|c| matches!(c, b',' | b'"' | b'\r' | b'\n')) {
        out.extend_from_slice(text);
        return;
    }
    out.push(b'"');
    for &c in text {
        if c == b'"' {
            out.push(b'"');
        }
        out.push(c);
    }
    out.push(b'"');
}

/// Bytes of a cell, about.
const CELL: usize = 8;

pub fn lines(batch: &RecordBatch, header: bool) -> Result<Vec<u8>, ArrowError> {
    let columns: Option<Vec<_>> =
        batch.columns().iter().map(|array| Some((Cells::of(array)?, array.nulls()))).collect();
    // A line of one empty cell would be an empty line.
    let Some(columns) = columns.filter(|columns| !header && columns.len() > 1) else {
        let mut writer = WriterBuilder::new().with_header(header).build(Vec::new());
        writer.write(batch)?;
        return Ok(writer.into_inner());
    };
    let mut out = Vec::with_capacity(batch.num_rows() * columns.len() * CELL);
    let mut digits = itoa::Buffer::new();
    for row in 0..batch.num_rows() {
        for (cells, nulls) in &columns {
            if nulls.is_none_or(|nulls| nulls.is_valid(row)) {
                cells.write(row, &mut digits, &mut out);
            }
            out.push(b',');
        }
        *out.last_mut().expect("a row has a cell") = b'\n';
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{BooleanArray, Float64Array, StringArray, UInt8Array, UInt64Array};
    use proptest::prelude::*;
    use std::sync::Arc;

    type Row = (Option<String>, Option<f64>, Option<u64>, Option<u8>, Option<bool>);

    fn batch(rows: &[Row]) -> RecordBatch {
        let columns: Vec<(&str, ArrayRef)> = vec![
            ("text", Arc::new(rows.iter().map(|row| row.0.clone()).collect::<StringArray>())),
            ("float", Arc::new(rows.iter().map(|row| row.1).collect::<Float64Array>())),
            ("integer", Arc::new(rows.iter().map(|row| row.2).collect::<UInt64Array>())),
            ("byte", Arc::new(rows.iter().map(|row| row.3).collect::<UInt8Array>())),
            ("flag", Arc::new(rows.iter().map(|row| row.4).collect::<BooleanArray>())),
        ];
        RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, array)| (name, array, true))).unwrap()
    }

    /// Times, numbers of few digits beside others and those next to them, whatever a float may be.
    fn float() -> impl Strategy<Value = f64> {
        let beside = |(number, step): (f64, i64)| f64::from_bits(number.to_bits().wrapping_add_signed(step));
        let thousandths = (0..2 * FEW_DIGITS).prop_map(|n| n as f64 / 1e3);
        let few = (0u64..1 << 21).prop_map(|n| n as f64 / 1e3);
        prop_oneof![
            any::<f64>(),
            Just(-0.0),
            (0u64..1 << 50).prop_map(|n| n as f64 / 100.0),
            (prop_oneof![thousandths, few], -1i64..=1).prop_map(beside),
        ]
    }

    proptest! {
        #[test]
        fn numbers_have_the_digits_of_ryu(value in float()) {
            let (mut out, mut ryu) = (Vec::new(), ryu::Buffer::new());
            decimal(value, &mut itoa::Buffer::new(), &mut out);
            prop_assert_eq!(String::from_utf8(out).unwrap(), ryu.format(value));
        }

        #[test]
        fn lines_are_those_of_arrow(
            rows in proptest::collection::vec(
                (
                    proptest::option::of("[a-c,\"\r\n ]{0,5}"),
                    proptest::option::of(float()),
                    any::<Option<u64>>(),
                    any::<Option<u8>>(),
                    any::<Option<bool>>(),
                ),
                0..20,
            )
        ) {
            let batch = batch(&rows);
            for header in [false, true] {
                let mut writer = WriterBuilder::new().with_header(header).build(Vec::new());
                writer.write(&batch).unwrap();
                prop_assert_eq!(lines(&batch, header).unwrap(), writer.into_inner());
            }
            let one = batch.project(&[2]).unwrap();
            let mut writer = WriterBuilder::new().with_header(false).build(Vec::new());
            writer.write(&one).unwrap();
            prop_assert_eq!(lines(&one, false).unwrap(), writer.into_inner());
        }
    }
}
