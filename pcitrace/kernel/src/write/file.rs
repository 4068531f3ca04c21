//! A table being written: encoded on threads of its own, so that whoever decodes does not wait for that.

use super::{BATCH, Format, rowgroups, text};
use crate::error::{Error, Result};
use crate::in_order::in_order;
use crate::interrupt;
use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use arrow_select::concat::concat_batches;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Pieces that may wait to be encoded.
const WAITING: usize = 4;
/// Time until it is asked again whether one more may.
const WAIT: Duration = Duration::from_micros(200);
/// Batches of fewer rows are put together, so many of them at most.
const FEW: usize = 4096;
const MOST_SMALL: usize = 64;

/// Some rows, which are made where they are encoded.
pub struct Piece {
    pub rows: usize,
    pub make: Box<dyn FnOnce() -> RecordBatch + Send>,
}

/// The file appears under its name when the table is whole.
pub struct TableFile {
    path: PathBuf,
    /// Where it is until then.
    partial: Option<PathBuf>,
    pieces: Option<SyncSender<Piece>>,
    schema: SchemaRef,
    /// Batches of few rows each, and how many rows they are.
    small: Vec<RecordBatch>,
    small_rows: usize,
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
    pieces: Receiver<Piece>,
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
        let (sender, pieces) = sync_channel(WAITING);
        let given_up = Arc::new(AtomicBool::new(false));
        let threads = match threads {
            0 => std::thread::available_parallelism().map_or(1, |n| n.get()),
            given => given,
        };
        let mut table = TableFile {
            path: path.into(),
            partial: Some(partial),
            pieces: Some(sender),
            schema: schema.clone(),
            small: Vec::new(),
            small_rows: 0,
            writer: None,
            given_up: given_up.clone(),
        };
        let job = Job { path: path.into(), file, format, schema, pieces, threads, given_up };
        table.writer = Some(std::thread::Builder::new().name("write".into()).spawn(move || job.run()).map_err(failed)?);
        Ok(table)
    }

    /// Hands on some rows. Of a long batch a piece is encoded at a time, so that what is encoded needs little memory.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        for from in (0..batch.num_rows()).step_by(BATCH) {
            let rows = BATCH.min(batch.num_rows() - from);
            self.small_rows += rows;
            self.small.push(batch.slice(from, rows));
            if self.small_rows >= FEW || self.small.len() >= MOST_SMALL {
                self.hand_on()?;
            }
        }
        Ok(())
    }

    fn hand_on(&mut self) -> Result<()> {
        let (batches, rows) = (std::mem::take(&mut self.small), std::mem::take(&mut self.small_rows));
        let whole = match batches.as_slice() {
            [] => return Ok(()),
            [one] => one.clone(),
            several => concat_batches(&self.schema, several).expect("batches of one schema"),
        };
        self.write_made(rows, move || whole)
    }

    /// Hands on some rows that are made later, behind all that were handed on before; waits while those are too many.
    pub fn write_made(&mut self, rows: usize, make: impl FnOnce() -> RecordBatch + Send + 'static) -> Result<()> {
        let Some(pieces) = &self.pieces else { return Ok(()) };
        let mut piece = Piece { rows, make: Box::new(make) };
        loop {
            match pieces.try_send(piece) {
                Ok(()) => return Ok(()),
                // Encoding takes longer than decoding: whoever waits for it can be interrupted.
                Err(TrySendError::Full(back)) => piece = back,
                // The thread takes nothing more: it says why.
                Err(TrySendError::Disconnected(_)) => return self.join(),
            }
            interrupt::check()?;
            std::thread::sleep(WAIT);
        }
    }

    pub fn finish(mut self) -> Result<()> {
        self.hand_on()?;
        self.join()?;
        if let Some(partial) = self.partial.take() {
            std::fs::rename(&partial, &self.path).map_err(|source| {
                let _ = std::fs::remove_file(&partial);
                Error::Write { path: self.path.clone(), source }
            })?;
        }
        Ok(())
    }

    /// Waits until everything is written, or somebody interrupts.
    fn join(&mut self) -> Result<()> {
        self.pieces = None;
        while self.writer.as_ref().is_some_and(|writer| !writer.is_finished()) {
            interrupt::check()?;
            std::thread::sleep(WAIT);
        }
        self.writer.take().map_or(Ok(()), |writer| writer.join().unwrap_or_else(|panic| resume_unwind(panic)))
    }
}

impl Drop for TableFile {
    /// A table that was not finished leaves nothing behind.
    fn drop(&mut self) {
        self.given_up.store(true, Ordering::Relaxed);
        self.pieces = None;
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
        let Job { path, file, format, schema, pieces, threads, given_up } = self;
        let failed = |source| Error::Write { path: path.clone(), source };
        let go_on = || if given_up.load(Ordering::Relaxed) { Err(Error::Interrupted) } else { Ok(()) };
        let mut out = BufWriter::with_capacity(1 << 16, file);
        if format == Format::Parquet {
            rowgroups::write(&mut out, &schema, pieces.into_iter(), threads, go_on, failed)?;
        } else {
            // The header, also of a table without rows.
            out.write_all(&text::header(format, &schema)).map_err(failed)?;
            let encode = |piece: Piece, _: &mut ()| {
                go_on()?;
                text::rows(format, &(piece.make)()).map_err(|error| failed(std::io::Error::other(error)))
            };
            in_order(pieces.into_iter().map(Ok), threads, encode, |bytes: Vec<u8>| {
                go_on()?;
                out.write_all(&bytes).map_err(failed)
            })?;
        }
        out.flush().map_err(failed)
    }
}
