//! Rows as lines of text: CSV (RFC 4180), or an object of JSON each. Column types are told apart once a batch.

use super::Format;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, UInt8Type, UInt64Type};
use arrow_array::{Array, ArrayRef, BooleanArray, RecordBatch, StringArray};
use arrow_buffer::NullBuffer;
use arrow_schema::{ArrowError, DataType, Schema};

/// The values of a column.
enum Cells<'a> {
    Text(&'a StringArray),
    Float(&'a [f64]),
    Integer(&'a [u64]),
    Byte(&'a [u8]),
    Flag(&'a BooleanArray),
}

impl<'a> Cells<'a> {
    fn of(array: &'a ArrayRef) -> Result<Self, ArrowError> {
        Ok(match array.data_type() {
            DataType::Utf8 => Cells::Text(array.as_string()),
            DataType::Float64 => Cells::Float(array.as_primitive::<Float64Type>().values()),
            DataType::UInt64 => Cells::Integer(array.as_primitive::<UInt64Type>().values()),
            DataType::UInt8 => Cells::Byte(array.as_primitive::<UInt8Type>().values()),
            DataType::Boolean => Cells::Flag(array.as_boolean()),
            other => return Err(ArrowError::NotYetImplemented(format!("{other} as text"))),
        })
    }

    #[inline(always)]
    fn write(&self, row: usize, digits: &mut itoa::Buffer, out: &mut Vec<u8>, text: impl Fn(&str, &mut Vec<u8>)) {
        match self {
            Cells::Text(texts) => text(texts.value(row), out),
            Cells::Float(values) => decimal(values[row], digits, out),
            Cells::Integer(values) => out.extend_from_slice(digits.format(values[row]).as_bytes()),
            Cells::Byte(values) => out.extend_from_slice(digits.format(values[row]).as_bytes()),
            Cells::Flag(flags) => out.extend_from_slice(if flags.value(row) { b"true" } else { b"false" }),
        }
    }

    /// JSON has no word for infinity, nor for what is not a number (RFC 8259, 6).
    fn is_null_in_json(&self, row: usize) -> bool {
        matches!(self, Cells::Float(values) if !values[row].is_finite())
    }
}

struct Column<'a> {
    /// The name as JSON has it, with its colon.
    key: Vec<u8>,
    cells: Cells<'a>,
    nulls: Option<&'a NullBuffer>,
}

impl Column<'_> {
    #[inline(always)]
    fn is_known(&self, row: usize) -> bool {
        self.nulls.is_none_or(|nulls| nulls.is_valid(row))
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
fn quoted(text: &str, out: &mut Vec<u8>) {
    let text = text.as_bytes();
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

/// In quotes, with escapes where they are necessary (RFC 8259, 7).
fn json_text(text: &str, out: &mut Vec<u8>) {
    serde_json::to_writer(out, text).expect("text is written to memory");
}

/// Bytes of a cell, about.
const CELL: usize = 8;

/// What stands before the first row: the names of the columns in CSV.
pub fn header(format: Format, schema: &Schema) -> Vec<u8> {
    let mut out = Vec::new();
    if format == Format::Csv {
        for field in schema.fields() {
            quoted(field.name(), &mut out);
            out.push(b',');
        }
        end_of_line(schema.fields().len(), &mut out);
    }
    out
}

/// All rows, without a header.
pub fn rows(format: Format, batch: &RecordBatch) -> Result<Vec<u8>, ArrowError> {
    let schema = batch.schema();
    let columns = schema.fields().iter().zip(batch.columns()).map(|(field, array)| {
        let mut key = Vec::new();
        json_text(field.name(), &mut key);
        key.push(b':');
        Ok(Column { key, cells: Cells::of(array)?, nulls: array.nulls() })
    });
    let columns = columns.collect::<Result<Vec<_>, ArrowError>>()?;
    let mut out = Vec::with_capacity(batch.num_rows() * columns.len() * CELL);
    let mut digits = itoa::Buffer::new();
    for row in 0..batch.num_rows() {
        if format == Format::Csv {
            csv_line(row, &columns, &mut digits, &mut out);
        } else {
            json_line(row, &columns, &mut digits, &mut out);
        }
    }
    Ok(out)
}

#[inline(always)]
fn csv_line(row: usize, columns: &[Column], digits: &mut itoa::Buffer, out: &mut Vec<u8>) {
    let start = out.len();
    for column in columns {
        if column.is_known(row) {
            column.cells.write(row, digits, out, quoted);
        }
        out.push(b',');
    }
    // A line of one empty cell would be an empty line.
    if columns.len() == 1 && out.len() == start + 1 {
        out.splice(start..start, *b"\"\"");
    }
    end_of_line(columns.len(), out);
}

/// Instead of the comma behind the last cell.
#[inline(always)]
fn end_of_line(cells: usize, out: &mut Vec<u8>) {
    out.truncate(out.len() - cells.min(1));
    out.push(b'\n');
}

#[inline(always)]
fn json_line(row: usize, columns: &[Column], digits: &mut itoa::Buffer, out: &mut Vec<u8>) {
    out.push(b'{');
    for column in columns {
        out.extend_from_slice(&column.key);
        if column.is_known(row) && !column.cells.is_null_in_json(row) {
            column.cells.write(row, digits, out, json_text);
        } else {
            out.extend_from_slice(b"null");
        }
        out.push(b',');
    }
    out.truncate(out.len() - columns.len().min(1));
    out.extend_from_slice(b"}\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::{Float64Array, UInt8Array, UInt64Array};
    use proptest::prelude::*;
    use serde_json::{Value, json};
    use std::sync::Arc;

    type Row = (Option<String>, Option<f64>, Option<u64>, Option<u8>, Option<bool>);

    fn batch(rows: &[Row]) -> RecordBatch {
        let columns: Vec<(&str, ArrayRef)> = vec![
            ("text", Arc::new(rows.iter().map(|row| row.0.clone()).collect::<StringArray>())),
            ("a \"float\", or not", Arc::new(rows.iter().map(|row| row.1).collect::<Float64Array>())),
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

    fn some_rows() -> impl Strategy<Value = Vec<Row>> {
        let row = (
            proptest::option::of("[a-c,\"\r\n\\\\\u{1}ä ]{0,5}"),
            proptest::option::of(float()),
            any::<Option<u64>>(),
            any::<Option<u8>>(),
            any::<Option<bool>>(),
        );
        proptest::collection::vec(row, 0..20)
    }

    /// What `csv-core` writes of these cells.
    fn by_csv(table: &[Vec<String>]) -> Vec<u8> {
        let (mut writer, mut out, mut some) = (csv_core::Writer::new(), Vec::new(), [0; 256]);
        for cells in table {
            for (place, cell) in cells.iter().enumerate() {
                if place > 0 {
                    let (_, size) = writer.delimiter(&mut some);
                    out.extend_from_slice(&some[..size]);
                }
                let (result, _, size) = writer.field(cell.as_bytes(), &mut some);
                assert_eq!(result, csv_core::WriteResult::InputEmpty);
                out.extend_from_slice(&some[..size]);
            }
            let (_, size) = writer.terminator(&mut some);
            out.extend_from_slice(&some[..size]);
        }
        out
    }

    fn cells(row: &Row) -> Vec<String> {
        let (text, float, integer, byte, flag) = row;
        vec![
            text.clone().unwrap_or_default(),
            float.map(|value| ryu::Buffer::new().format(value).to_owned()).unwrap_or_default(),
            integer.map(|value| value.to_string()).unwrap_or_default(),
            byte.map(|value| value.to_string()).unwrap_or_default(),
            flag.map(|value| value.to_string()).unwrap_or_default(),
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
        fn csv_is_that_of_the_crate_for_it(rows in some_rows()) {
            let batch = batch(&rows);
            let names: Vec<String> = batch.schema().fields().iter().map(|field| field.name().clone()).collect();
            prop_assert_eq!(header(Format::Csv, &batch.schema()), by_csv(&[names]));
            let table: Vec<_> = rows.iter().map(cells).collect();
            prop_assert_eq!(super::rows(Format::Csv, &batch).unwrap(), by_csv(&table));
            for column in 0..5 {
                let one: Vec<_> = table.iter().map(|cells| vec![cells[column].clone()]).collect();
                prop_assert_eq!(super::rows(Format::Csv, &batch.project(&[column]).unwrap()).unwrap(), by_csv(&one));
            }
        }

        #[test]
        fn json_reads_as_the_values_that_were_written(rows in some_rows()) {
            let batch = batch(&rows);
            prop_assert!(header(Format::JsonLines, &batch.schema()).is_empty());
            let text = String::from_utf8(super::rows(Format::JsonLines, &batch).unwrap()).unwrap();
            prop_assert_eq!(text.lines().count(), rows.len());
            for (line, (text, float, integer, byte, flag)) in text.lines().zip(&rows) {
                let object: Value = serde_json::from_str(line).unwrap();
                prop_assert_eq!(object.as_object().unwrap().len(), 5);
                let others = [&object["text"], &object["integer"], &object["byte"], &object["flag"]];
                prop_assert_eq!(others, [&json!(text), &json!(integer), &json!(byte), &json!(flag)]);
                // The last digit of a float is not serde_json's to tell. What is not finite is null.
                let digits = line.split("or not\":").nth(1).unwrap().split(',').next().unwrap();
                prop_assert_eq!(digits.parse().ok(), float.filter(|value| value.is_finite()));
                prop_assert_eq!(object["a \"float\", or not"].is_null(), digits == "null");
            }
        }
    }

    #[test]
    fn a_type_that_no_table_has_is_named() {
        let batch = RecordBatch::try_from_iter([("kind", arrow_array::new_null_array(&DataType::Date32, 1))]).unwrap();
        assert!(super::rows(Format::Csv, &batch).unwrap_err().to_string().contains("Date32 as text"));
    }
}
