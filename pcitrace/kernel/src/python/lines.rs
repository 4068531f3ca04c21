//! Of `pcitrace._kernel`: the lines of a capture for other programs.

use crate::error::{Error, Result};
use crate::fst::FstFile;
use crate::interrupt;
use crate::lines::{self, MoreTexts, Rates, Texts, Vcd};
use crate::python::{Capture, interruptible, to_python};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Parts of the texts that may wait to be written.
const WAITING: usize = 2;
/// How often Ctrl-C is looked for when all texts are made.
const POLL: Duration = Duration::from_millis(5);

/// What a call back into Python raised, kept beside the error that ends the work.
#[derive(Default)]
struct Raised(Mutex<Option<PyErr>>);

impl Raised {
    fn catch<T>(&self, result: PyResult<T>) -> Result<T> {
        result.map_err(|error| {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
            Error::Interrupted
        })
    }

    /// What was raised, instead of the error that came of it.
    fn of<T>(self, result: PyResult<T>) -> PyResult<T> {
        result.map_err(|error| self.0.into_inner().unwrap_or_else(PoisonError::into_inner).unwrap_or(error))
    }
}

/// Writes all channels as samples; returns how many changes to `x` and `z` are written as 1.
#[pyfunction]
fn write_samples(py: Python<'_>, capture: &Capture, rate_hz: u64, write: Py<PyAny>) -> PyResult<(u64, u64)> {
    let raised = Raised::default();
    let result = interruptible(py, || {
        let mut out =
            |bytes: &[u8]| Python::attach(|py| raised.catch(write.call1(py, (PyBytes::new(py, bytes),)).map(drop)));
        lines::samples(&capture.opened, rate_hz, &mut out)
    });
    raised.of(result).map(|released| (released.unknown, released.high_z))
}

/// Ticks, signals, and ends of the texts, each of 8 bytes, little-endian; the texts.
type PyTexts = (PyBackedBytes, PyBackedBytes, PyBackedBytes, Vec<u8>);

/// Does `work` on a thread of its own, with the texts that Python makes meanwhile.
fn with_texts(
    py: Python<'_>,
    texts: &Bound<'_, PyAny>,
    work: impl FnOnce(MoreTexts) -> PyResult<()> + Send,
) -> PyResult<()> {
    let (sender, receiver) = sync_channel(WAITING);
    let failed = Arc::new(AtomicBool::new(false));
    std::thread::scope(|scope| {
        let goes_on = failed.clone();
        let writer = scope.spawn(move || {
            let mut more = || Ok(receiver.recv().ok());
            interrupt::asking(move || !goes_on.load(Ordering::Relaxed), || work(&mut more))
        });
        let result = feed(py, texts, sender, &failed).and_then(|()| {
            while !writer.is_finished() {
                py.check_signals()?;
                py.detach(|| std::thread::sleep(POLL));
            }
            Ok(())
        });
        failed.store(result.is_err(), Ordering::Relaxed);
        let written = py.detach(|| writer.join());
        result.and_then(|()| written.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

/// Sends the texts to the thread that writes, until that has ended.
fn feed(py: Python<'_>, texts: &Bound<'_, PyAny>, sender: SyncSender<Texts>, failed: &AtomicBool) -> PyResult<()> {
    for item in texts.try_iter()? {
        let some = item.and_then(|item| item.extract::<PyTexts>()).inspect_err(|_| {
            // Before the sender is gone, which ends the texts.
            failed.store(true, Ordering::Relaxed);
        });
        let (ticks, signals, ends, text) = some?;
        let numbers = |bytes: &[u8]| bytes.as_chunks::<8>().0.iter().map(|&eight| u64::from_le_bytes(eight)).collect();
        let places = |bytes: &[u8]| -> Vec<usize> {
            bytes.as_chunks::<8>().0.iter().map(|&eight| u64::from_le_bytes(eight) as usize).collect()
        };
        let texts = Texts { ticks: numbers(&ticks), signals: places(&signals), ends: places(&ends), text };
        if py.detach(|| sender.send(texts)).is_err() {
            break;
        }
    }
    Ok(())
}

/// Writes all channels as the body of a VCD, with texts among the changes.
#[pyfunction]
fn write_vcd(
    py: Python<'_>,
    capture: &Capture,
    ids: Vec<String>,
    rate_hz: f64,
    ticks_hz: f64,
    texts: Bound<'_, PyAny>,
    write: Py<PyAny>,
) -> PyResult<()> {
    let (opened, rates) = (&capture.opened, Rates { samples_hz: rate_hz, ticks_hz });
    with_texts(py, &texts, |more| {
        let raised = Raised::default();
        let mut out =
            |bytes: &[u8]| Python::attach(|py| raised.catch(write.call1(py, (PyBytes::new(py, bytes),)).map(drop)));
        let result = lines::changes(opened, &ids, rates, more, &mut Vcd::new(&ids, &mut out));
        raised.of(result.map_err(|error| Python::attach(|py| to_python(py, error))))
    })
}

/// Writes all channels as an FST file, with texts among the changes; the declarations are those of the VCD.
#[pyfunction]
fn write_fst(
    py: Python<'_>,
    capture: &Capture,
    path: PathBuf,
    declarations: &[u8],
    rate_hz: f64,
    ticks_hz: f64,
    texts: Bound<'_, PyAny>,
) -> PyResult<()> {
    let (opened, rates) = (&capture.opened, Rates { samples_hz: rate_hz, ticks_hz });
    with_texts(py, &texts, |more| {
        let result = FstFile::create(&path, declarations).and_then(|mut file| {
            let ids = file.ids().to_vec();
            lines::changes(opened, &ids, rates, more, &mut file)
        });
        result.map_err(|error| Python::attach(|py| to_python(py, error)))
    })
}

pub fn register_in(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(write_samples, module)?)?;
    module.add_function(wrap_pyfunction!(write_fst, module)?)?;
    module.add_function(wrap_pyfunction!(write_vcd, module)?)
}
