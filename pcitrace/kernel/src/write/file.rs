//! A table being written: encoded on threads of its own, so that whoever decodes does not wait for that.

use super::Format;
use crate::error::{Error, Result};
use crate::in_order::in_order;
use arrow::array::RecordBatch;
use arrow::csv::WriterBuilder as CsvBuilder;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use arrow::json::writer::LineDelimited;
use arrow::json::{Writer as JsonWriter, WriterBuilder as JsonBuilder};
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

/// Batches that may wait to be encoded.
const WAITING: usize = 4;

/// The file appears under its name when the table is whole.
pub struct TableFile {
    path: PathBuf,
    /// Where it is until then.
    partial: Option<PathBuf>,
    batches: Option<SyncSender<RecordBatch>>,
    writer: Option<JoinHandle<Result<()>>>,
    /// Nobody wants the table any more.
    given_up: Arc<AtomicBool>,
}

/// What the thread of a table works with.
struct Job {
    path: PathBuf,
    file: File,
    format: Format,
    schema: SchemaRef,
    batches: Receiver<RecordBatch>,
    threads: usize,
    given_up: Arc<AtomicBool>,
}

impl TableFile {
    /// `threads` encode, or as many as the machine runs at once for 0.
    pub fn create(path: &Path, schema: SchemaRef, threads: usize) -> Result<Self> {
        let format = Format::of(path)?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let partial = path.with_file_name(format!(".{name}.{}.part", std::process::id()));
        let failed = |source| Error::Write { path: path.into(), source };
        let file = File::create(&partial).map_err(failed)?;
        let (sender, batches) = sync_channel(WAITING);
        let given_up = Arc::new(AtomicBool::new(false));
        let threads = match threads {
            0 => std::thread::available_parallelism().map_or(1, |n| n.get()),
            given => given,
        };
        let mut table = TableFile {
            path: path.into(),
            partial: Some(partial),
            batches: Some(sender),
            writer: None,
            given_up: given_up.clone(),
        };
        let job = Job { path: path.into(), file, format, schema, batches, threads, given_up };
        table.writer = Some(std::thread::Builder::new().name("write".into()).spawn(move || job.run()).map_err(failed)?);
        Ok(table)
    }

    /// Hands on some rows; waits while too many were handed on before.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        match self.batches.as_ref().map(|batches| batches.send(batch.clone())) {
            // The thread takes nothing more: it says why.
            Some(Err(_)) => self.join(),
            _ => Ok(()),
        }
    }

    pub fn finish(mut self) -> Result<()> {
        self.join()?;
        if let Some(partial) = self.partial.take() {
            std::fs::rename(&partial, &self.path).map_err(|source| {
                let _ = std::fs::remove_file(&partial);
                Error::Write { path: self.path.clone(), source }
            })?;
        }
        Ok(())
    }

    /// Waits until everything is written.
    fn join(&mut self) -> Result<()> {
        self.batches = None;
        self.writer.take().map_or(Ok(()), |writer| writer.join().unwrap_or_else(|panic| resume_unwind(panic)))
    }
}

impl Drop for TableFile {
    /// A table that was not finished leaves nothing behind.
    fn drop(&mut self) {
        self.given_up.store(true, Ordering::Relaxed);
        self.batches = None;
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
        if let Some(partial) = &self.partial {
            let _ = std::fs::remove_file(partial);
        }
    }
}

impl Job {
    fn run(self) -> Result<()> {
        let Job { path, file, format, schema, batches, threads, given_up } = self;
        let failed = |source| Error::Write { path: path.clone(), source };
        let go_on = || if given_up.load(Ordering::Relaxed) { Err(Error::Interrupted) } else { Ok(()) };
        let mut out = BufWriter::with_capacity(1 << 16, file);
        if format == Format::Parquet {
            let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
            let other = |error| failed(std::io::Error::other(error));
            let mut writer = ArrowWriter::try_new(&mut out, schema, Some(properties)).map_err(other)?;
            for batch in batches {
                go_on()?;
                writer.write(&batch).map_err(other)?;
            }
            writer.close().map_err(other)?;
        } else {
            // The header, also of a table without rows.
            let header = text(format, &RecordBatch::new_empty(schema), true);
            out.write_all(&header.map_err(std::io::Error::other).map_err(failed)?).map_err(failed)?;
            let encode = |batch: RecordBatch, _: &mut ()| {
                text(format, &batch, false).map_err(|error| failed(std::io::Error::other(error)))
            };
            in_order(batches.into_iter().map(Ok), threads, encode, |bytes: Vec<u8>| {
                go_on()?;
                out.write_all(&bytes).map_err(failed)
            })?;
        }
        out.flush().map_err(failed)
    }
}

/// Rows as lines.
fn text(format: Format, batch: &RecordBatch, header: bool) -> std::result::Result<Vec<u8>, ArrowError> {
    match format {
        Format::Csv => {
            let mut writer = CsvBuilder::new().with_header(header).build(Vec::new());
            writer.write(batch)?;
            Ok(writer.into_inner())
        }
        _ => {
            let builder = JsonBuilder::new().with_explicit_nulls(true);
            let mut writer: JsonWriter<Vec<u8>, LineDelimited> = builder.build(Vec::new());
            writer.write(batch)?;
            writer.finish()?;
            Ok(writer.into_inner())
        }
    }
}
