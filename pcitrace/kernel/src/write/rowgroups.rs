//! Parquet: row groups, each encoded whole by one thread, are put into the file in order.

use super::file::Piece;
use crate::in_order::in_order_of;
use arrow_schema::{DataType, SchemaRef};
use parquet::arrow::ArrowSchemaConverter;
use parquet::arrow::add_encoded_arrow_schema_to_metadata;
use parquet::arrow::arrow_writer::{ArrowColumnChunk, ArrowRowGroupWriterFactory, compute_leaves};
use parquet::basic::{Compression, Encoding};
use parquet::errors::ParquetError;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::ColumnPath;
use std::io::{Error, Write};
use std::sync::Arc;

/// Rows of a group: few enough that some of them are encoded at a time in little memory.
const ROWS: usize = 1 << 16;

/// Columns whose numbers rise from row to row, or are mostly the same: to look each up in a dictionary takes longer.
const STEADY: [&str; 5] = ["transaction", "start_sample", "end_sample", "start_clk", "byte_enables"];
/// Numbers of which no two are alike: a dictionary of them would hold them all.
const ANY: &str = "data";
/// Names of which all are the same: written as they are and compressed they take a third of a byte, and a fifth of the time
/// in which they are looked up.
const PLAIN: &str = "bus";

fn properties(schema: &SchemaRef) -> WriterProperties {
    let mut properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_statistics_enabled(EnabledStatistics::Chunk);
    for field in schema.fields() {
        let name = field.name().as_str();
        let path = ColumnPath::from(name);
        if STEADY.contains(&name) || name == ANY {
            // Packed in as many bits as they differ by: hardly anything is left for Snappy, which takes as long again.
            properties = properties
                .set_column_encoding(path.clone(), Encoding::DELTA_BINARY_PACKED)
                .set_column_compression(path.clone(), Compression::UNCOMPRESSED)
                .set_column_dictionary_enabled(path, false);
        } else if field.data_type() == &DataType::Float64 {
            // Times differ in their last bytes. With these by themselves Snappy finds the others in long runs, and gives up
            // on these at once: a third of the time, and half of what is written.
            properties = properties
                .set_column_encoding(path.clone(), Encoding::BYTE_STREAM_SPLIT)
                .set_column_dictionary_enabled(path, false);
        } else if name == PLAIN {
            properties = properties.set_column_dictionary_enabled(path, false);
        }
    }
    properties.build()
}

/// Pieces put together to about as many rows as a group has.
fn groups(pieces: impl Iterator<Item = Piece>) -> impl Iterator<Item = Vec<Piece>> {
    let mut pieces = pieces.fuse();
    std::iter::from_fn(move || {
        let mut rows = 0;
        let mut group = Vec::new();
        while rows < ROWS {
            let Some(piece) = pieces.next() else { break };
            rows += piece.rows;
            group.push(piece);
        }
        (!group.is_empty()).then_some(group)
    })
}

/// Writes all pieces; `go_on` is asked for each of them.
pub fn write(
    out: &mut (impl Write + Send),
    schema: &SchemaRef,
    pieces: impl Iterator<Item = Piece> + Send,
    threads: usize,
    go_on: impl Fn() -> crate::error::Result<()> + Sync,
    failed: impl Fn(Error) -> crate::error::Error + Sync,
) -> crate::error::Result<()> {
    let failed = |error: ParquetError| failed(Error::other(error));
    let mut properties = properties(schema);
    let root = ArrowSchemaConverter::new().convert(schema).map_err(failed)?.root_schema_ptr();
    add_encoded_arrow_schema_to_metadata(schema, &mut properties);
    let mut writer = SerializedFileWriter::new(out, root, Arc::new(properties)).map_err(failed)?;
    let factory = ArrowRowGroupWriterFactory::new(&writer, schema.clone());
    let encode =
        |(number, group): (usize, Vec<Piece>), _: &mut ()| encoded(&factory, schema, number, group, &go_on, failed);
    // A group is large: no more of them at a time than threads, and one that waits.
    in_order_of(groups(pieces).enumerate().map(Ok), threads, threads + 1, encode, |chunks| {
        go_on()?;
        let mut group = writer.next_row_group().map_err(failed)?;
        for chunk in chunks {
            chunk.append_to_row_group(&mut group).map_err(failed)?;
        }
        group.close().map(drop).map_err(failed)
    })?;
    writer.close().map(drop).map_err(failed)
}

fn encoded(
    factory: &ArrowRowGroupWriterFactory,
    schema: &SchemaRef,
    number: usize,
    group: Vec<Piece>,
    go_on: impl Fn() -> crate::error::Result<()>,
    failed: impl Fn(ParquetError) -> crate::error::Error,
) -> crate::error::Result<Vec<ArrowColumnChunk>> {
    let mut writers = factory.create_column_writers(number).map_err(&failed)?;
    for piece in group {
        go_on()?;
        let batch = (piece.make)();
        // Each column is flat: it has one leaf.
        for ((writer, field), array) in writers.iter_mut().zip(schema.fields()).zip(batch.columns()) {
            for leaf in compute_leaves(field, array).map_err(&failed)? {
                writer.write(&leaf).map_err(&failed)?;
            }
        }
    }
    writers.into_iter().map(|writer| writer.close().map_err(&failed)).collect()
}
