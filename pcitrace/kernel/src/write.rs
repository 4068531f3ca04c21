//! Tables to files as they come, and to memory.

use crate::error::{Error, Result};
use crate::pipeline::{BusTables, Sink};
use crate::rows::{DataPhase, Origin, Rows, Transaction};
use crate::tables::{self, Columns, Context, Part, portions};
use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use arrow::csv::Writer as CsvWriter;
use arrow::datatypes::SchemaRef;
use arrow::json::{LineDelimitedWriter, WriterBuilder as JsonBuilder};
use parquet::arrow::ArrowWriter;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Rows per record batch.
const BATCH: usize = 8192;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Csv,
    JsonLines,
    Parquet,
}

impl Format {
    /// By the ending of the file name.
    pub fn of(path: &Path) -> Result<Self> {
        match path.extension().and_then(|ending| ending.to_str()) {
            Some("csv") => Ok(Format::Csv),
            Some("jsonl") => Ok(Format::JsonLines),
            Some("parquet") => Ok(Format::Parquet),
            _ => Err(Error::Decode(format!(
                "{}: the ending says the format of a table; use .csv, .jsonl or .parquet",
                path.display()
            ))),
        }
    }
}

type Out = Box<dyn Write + Send>;

enum Encoder {
    Csv(Box<CsvWriter<Out>>),
    JsonLines(Box<LineDelimitedWriter<Out>>),
    Parquet(Box<ArrowWriter<Out>>),
}

/// A table being written. The file appears under its name when the table is whole.
pub struct TableFile {
    path: PathBuf,
    /// Where it is until then.
    partial: Option<PathBuf>,
    encoder: Option<Encoder>,
}

impl TableFile {
    pub fn create(path: &Path, schema: SchemaRef) -> Result<Self> {
        let format = Format::of(path)?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let partial = path.with_file_name(format!(".{name}.{}.part", std::process::id()));
        let file = File::create(&partial).map_err(|source| Error::Write { path: path.into(), source })?;
        let mut table = TableFile { path: path.into(), partial: Some(partial), encoder: None };
        table.encoder = Some(table.encode(Box::new(BufWriter::with_capacity(1 << 16, file)), format, schema)?);
        Ok(table)
    }

    fn encode(&self, out: Out, format: Format, schema: SchemaRef) -> Result<Encoder> {
        Ok(match format {
            Format::Csv => {
                let mut writer = CsvWriter::new(out);
                // The header, also of a table without rows.
                writer.write(&RecordBatch::new_empty(schema)).map_err(|error| self.failed(error))?;
                Encoder::Csv(Box::new(writer))
            }
            Format::JsonLines => Encoder::JsonLines(Box::new(JsonBuilder::new().with_explicit_nulls(true).build(out))),
            Format::Parquet => {
                let properties = parquet::file::properties::WriterProperties::builder()
                    .set_compression(parquet::basic::Compression::SNAPPY)
                    .build();
                let writer = ArrowWriter::try_new(out, schema, Some(properties)).map_err(|error| self.failed(error))?;
                Encoder::Parquet(Box::new(writer))
            }
        })
    }

    fn failed(&self, error: impl std::error::Error + Send + Sync + 'static) -> Error {
        Error::Write { path: self.path.clone(), source: std::io::Error::other(error) }
    }

    pub fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        let result = match &mut self.encoder {
            Some(Encoder::Csv(writer)) => writer.write(batch).map_err(std::io::Error::other),
            Some(Encoder::JsonLines(writer)) => writer.write(batch).map_err(std::io::Error::other),
            Some(Encoder::Parquet(writer)) => writer.write(batch).map_err(std::io::Error::other),
            None => Ok(()),
        };
        result.map_err(|error| self.failed(error))
    }

    pub fn finish(mut self) -> Result<()> {
        let done = |out: Out| {
            let mut out = out;
            out.flush()
        };
        let result = match self.encoder.take() {
            Some(Encoder::Csv(writer)) => done(writer.into_inner()),
            Some(Encoder::JsonLines(mut writer)) => {
                writer.finish().map_err(std::io::Error::other).and_then(|()| done(writer.into_inner()))
            }
            Some(Encoder::Parquet(writer)) => writer.into_inner().map_err(std::io::Error::other).and_then(done),
            None => Ok(()),
        };
        result.map_err(|source| Error::Write { path: self.path.clone(), source })?;
        if let Some(partial) = self.partial.take() {
            std::fs::rename(&partial, &self.path).map_err(|source| {
                let _ = std::fs::remove_file(&partial);
                Error::Write { path: self.path.clone(), source }
            })?;
        }
        Ok(())
    }
}

impl Drop for TableFile {
    /// A table that was not finished leaves nothing behind.
    fn drop(&mut self) {
        if let Some(partial) = &self.partial {
            let _ = std::fs::remove_file(partial);
        }
    }
}

/// Rows of several buses in order of time.
struct Merge<R> {
    queues: Vec<VecDeque<R>>,
    /// Per bus: number of the next row.
    numbers: Vec<u64>,
    /// Per bus: rows that are still to come start here or later.
    reached: Vec<u64>,
    stamp: fn(&R) -> u64,
}

impl<R> Merge<R> {
    fn new(buses: usize, stamp: fn(&R) -> u64) -> Self {
        let queues = (0..buses).map(|_| VecDeque::new()).collect();
        Merge { queues, numbers: vec![0; buses], reached: vec![0; buses], stamp }
    }

    /// The rows that no later row can come before.
    fn pop(&mut self) -> Merged<R> {
        let limit = self.reached.iter().copied().min().unwrap_or(u64::MAX);
        let mut out = Merged { rows: Vec::new(), runs: Vec::new() };
        loop {
            let next = self
                .queues
                .iter()
                .enumerate()
                .filter_map(|(bus, queue)| queue.front().map(|row| ((self.stamp)(row), bus)))
                .min();
            match next {
                Some((stamp, bus)) if stamp < limit || limit == u64::MAX => {
                    out.rows.extend(self.queues[bus].pop_front());
                    match out.runs.last_mut() {
                        Some(run) if run.bus == bus => run.length += 1,
                        _ => out.runs.push(Run { bus, number: self.numbers[bus], length: 1 }),
                    }
                    self.numbers[bus] += 1;
                }
                _ => return out,
            }
        }
    }
}

/// Rows in order of time; each run of them is of one bus.
struct Merged<R> {
    rows: Vec<R>,
    runs: Vec<Run>,
}

struct Run {
    bus: usize,
    /// Of its first row, within the bus.
    number: u64,
    length: usize,
}

impl<R> Merged<R> {
    fn parts<'a>(&'a self, buses: &'a [BusTables]) -> impl Iterator<Item = Part<'a, R>> {
        let mut rest = self.rows.as_slice();
        self.runs.iter().map(move |run| {
            let (rows, behind) = rest.split_at(run.length);
            rest = behind;
            (Context { bus: &buses[run.bus], number: run.number, origin: Origin::default() }, rows)
        })
    }
}

/// Writes the tables of all buses into one file each, in order of time.
pub struct FileSink {
    transactions_path: PathBuf,
    data_phases_path: Option<PathBuf>,
    transaction_columns: Columns<Transaction>,
    data_phase_columns: Columns<DataPhase>,
    buses: Vec<BusTables>,
    transactions: Merge<Transaction>,
    data_phases: Merge<DataPhase>,
    transactions_file: Option<TableFile>,
    data_phases_file: Option<TableFile>,
}

impl FileSink {
    pub fn new(transactions: &Path, data_phases: Option<&Path>) -> Result<Self> {
        for path in std::iter::once(transactions).chain(data_phases) {
            Format::of(path)?;
        }
        Ok(FileSink {
            transactions_path: transactions.into(),
            data_phases_path: data_phases.map(Path::to_path_buf),
            transaction_columns: tables::transactions(None)?,
            data_phase_columns: tables::data_phases(),
            buses: Vec::new(),
            transactions: Merge::new(0, |t| t.start),
            data_phases: Merge::new(0, |d| d.stamp),
            transactions_file: None,
            data_phases_file: None,
        })
    }

    fn write_ready(&mut self) -> Result<()> {
        if let Some(file) = &mut self.transactions_file {
            for portion in portions(self.transactions.pop().parts(&self.buses), BATCH) {
                file.write(&self.transaction_columns.batch(&portion))?;
            }
        }
        if let Some(file) = &mut self.data_phases_file {
            for portion in portions(self.data_phases.pop().parts(&self.buses), BATCH) {
                file.write(&self.data_phase_columns.batch(&portion))?;
            }
        }
        Ok(())
    }

    /// Everything was decoded.
    pub fn finish(mut self) -> Result<()> {
        self.write_ready()?;
        // Both tables are whole before the first one appears.
        for file in [self.transactions_file.take(), self.data_phases_file.take()].into_iter().flatten() {
            file.finish()?;
        }
        Ok(())
    }
}

impl Sink for FileSink {
    fn begin(&mut self, buses: &[BusTables]) -> Result<()> {
        self.buses = buses.to_vec();
        self.transactions = Merge::new(buses.len(), |t| t.start);
        self.data_phases = Merge::new(buses.len(), |d| d.stamp);
        self.transactions_file = Some(TableFile::create(&self.transactions_path, self.transaction_columns.schema())?);
        self.data_phases_file = match &self.data_phases_path {
            Some(path) => Some(TableFile::create(path, self.data_phase_columns.schema())?),
            None => None,
        };
        Ok(())
    }

    fn rows(&mut self, bus: usize, origin: Origin, rows: Rows) -> Result<()> {
        let rows = rows.counted_from(origin);
        self.transactions.queues[bus].extend(rows.transactions);
        if self.data_phases_file.is_some() {
            self.data_phases.queues[bus].extend(rows.data_phases);
        }
        Ok(())
    }

    fn reached(&mut self, bus: usize, stamp: u64) -> Result<()> {
        self.transactions.reached[bus] = stamp;
        self.data_phases.reached[bus] = stamp;
        self.write_ready()
    }
}

/// Keeps the rows of each bus, or what few columns need of them.
pub struct MemorySink {
    columns: Arc<Columns<Transaction>>,
    /// Rows that become a table as they come, where few columns of them take much less.
    most: usize,
    pub buses: Vec<BusRows>,
}

impl MemorySink {
    /// For all columns of transactions, or for those that are named.
    pub fn new(columns: Option<&[String]>) -> Result<Self> {
        let most = if columns.is_some() { BATCH } else { usize::MAX };
        Ok(MemorySink { columns: Arc::new(tables::transactions(columns)?), most, buses: Vec::new() })
    }
}

/// Rows of few columns that are put together: what is that large goes back to the system when it is let go.
const WHOLE: usize = 1 << 20;

/// The rows of one bus; the tables are built when they are asked for.
pub struct BusRows {
    tables: BusTables,
    columns: Arc<Columns<Transaction>>,
    /// The first transactions, as far as they are a table already: first the large parts of it, then the small ones.
    whole: Vec<RecordBatch>,
    small: Vec<RecordBatch>,
    /// How many these are.
    built: u64,
    transactions: Pieces<Transaction>,
    data_phases: Pieces<DataPhase>,
}

/// Rows in the pieces in which they came: to put large ones together would only copy them.
struct Pieces<R> {
    pieces: Vec<(Origin, Vec<R>)>,
    count: usize,
}

impl<R> Default for Pieces<R> {
    fn default() -> Self {
        Pieces { pieces: Vec::new(), count: 0 }
    }
}

impl<R: Sync> Pieces<R> {
    /// Pieces shorter than this are put together.
    const SHORT: usize = 1024;
    /// Rows per batch of a table: who looks rows up in one has few batches to look into.
    const LONG: usize = 1 << 17;

    fn append(&mut self, origin: Origin, mut rows: Vec<R>) {
        self.count += rows.len();
        match self.pieces.last_mut() {
            Some((last_origin, last)) if *last_origin == origin && last.len() + rows.len() < Self::SHORT => {
                last.append(&mut rows);
            }
            _ => self.pieces.push((origin, rows)),
        }
    }

    /// Builds the batches of a table on all cores; the first row has the number `first`.
    fn in_batches(&self, bus: &BusTables, first: u64, columns: &Columns<R>) -> Vec<RecordBatch> {
        let mut number = first;
        let parts = self.pieces.iter().map(|(origin, rows)| {
            let part = (Context { bus, number, origin: *origin }, rows.as_slice());
            number += rows.len() as u64;
            part
        });
        let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
        let portions = portions(parts, (self.count / (4 * threads)).clamp(BATCH, Self::LONG));
        let share = portions.len().div_ceil(threads).max(1);
        std::thread::scope(|scope| {
            let workers: Vec<_> = portions
                .chunks(share)
                .map(|some| scope.spawn(move || some.iter().map(|parts| columns.batch(parts)).collect::<Vec<_>>()))
                .collect();
            workers
                .into_iter()
                .flat_map(|worker| worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
                .collect()
        })
    }
}

impl BusRows {
    /// Builds the table of transactions; its rows are gone then.
    pub fn take_transactions(&mut self) -> (SchemaRef, Vec<RecordBatch>) {
        let rest = std::mem::take(&mut self.transactions).in_batches(&self.tables, self.built, &self.columns);
        let batches = self.whole.drain(..).chain(self.small.drain(..)).chain(rest).collect();
        (self.columns.schema(), batches)
    }

    /// Makes a table of the rows there are.
    fn build(&mut self) {
        for (origin, rows) in std::mem::take(&mut self.transactions).pieces {
            let context = Context { bus: &self.tables, number: self.built, origin };
            self.small.push(self.columns.batch(&[(context, &rows)]));
            self.built += rows.len() as u64;
        }
        if self.small.iter().map(RecordBatch::num_rows).sum::<usize>() >= WHOLE {
            let whole = concat_batches(&self.columns.schema(), &self.small).expect("batches of one schema");
            self.whole.push(whole);
            self.small.clear();
        }
    }

    /// Builds the table of data phases; its rows are gone then.
    pub fn take_data_phases(&mut self) -> (SchemaRef, Vec<RecordBatch>) {
        let columns = tables::data_phases();
        let batches = std::mem::take(&mut self.data_phases).in_batches(&self.tables, 0, &columns);
        (columns.schema(), batches)
    }
}

impl Sink for MemorySink {
    fn begin(&mut self, buses: &[BusTables]) -> Result<()> {
        let empty = |tables: &BusTables| BusRows {
            tables: tables.clone(),
            columns: self.columns.clone(),
            whole: Vec::new(),
            small: Vec::new(),
            built: 0,
            transactions: Pieces::default(),
            data_phases: Pieces::default(),
        };
        self.buses = buses.iter().map(empty).collect();
        Ok(())
    }

    fn rows(&mut self, bus: usize, origin: Origin, rows: Rows) -> Result<()> {
        let bus = &mut self.buses[bus];
        bus.transactions.append(origin, rows.transactions);
        bus.data_phases.append(origin, rows.data_phases);
        if bus.transactions.count >= self.most {
            bus.build();
        }
        Ok(())
    }

    fn reached(&mut self, _bus: usize, _stamp: u64) -> Result<()> {
        Ok(())
    }
}
