//! Of `pcitrace._kernel`: the lines of a capture for other programs.

use crate::error::{Error, Result};
use crate::fst::FstFile;
use crate::lines::{self, Texts};
use crate::python::{Capture, to_python};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::cell::RefCell;
use std::path::PathBuf;

/// What a call back into Python raised, kept beside the error that ends the work.
#[derive(Default)]
struct Raised(RefCell<Option<PyErr>>);

impl Raised {
    fn catch<T>(&self, result: PyResult<T>) -> Result<T> {
        result.map_err(|error| {
            self.0.replace(Some(error));
            Error::Interrupted
        })
    }

    fn of<T>(self, py: Python<'_>, result: Result<T>) -> PyResult<T> {
        result.map_err(|error| self.0.take().unwrap_or_else(|| to_python(py, error)))
    }
}

/// Writes all channels as samples; returns how many changes to `x` and `z` are written as 1.
#[pyfunction]
fn write_samples(py: Python<'_>, capture: &Capture, rate_hz: u64, write: Bound<'_, PyAny>) -> PyResult<(u64, u64)> {
    let raised = Raised::default();
    let mut out = |bytes: &[u8]| {
        raised.catch(py.check_signals().and_then(|()| write.call1((PyBytes::new(py, bytes),)).map(drop)))
    };
    let result = lines::samples(&capture.opened, rate_hz, &mut out);
    raised.of(py, result).map(|released| (released.unknown, released.high_z))
}

/// Little-endian ticks, little-endian ends of the texts, and the texts.
type PyTexts = (Vec<u8>, Vec<u8>, Vec<u8>);

/// Writes all channels as the body of a VCD, with texts among the changes.
#[pyfunction]
fn write_vcd(
    py: Python<'_>,
    capture: &Capture,
    ids: Vec<String>,
    rate_hz: f64,
    ticks_hz: f64,
    texts: Bound<'_, PyAny>,
    write: Bound<'_, PyAny>,
) -> PyResult<()> {
    let raised = Raised::default();
    let mut texts = texts.try_iter()?;
    let mut more = || {
        let next = texts.next().map(|item| item?.extract::<PyTexts>()).transpose();
        Ok(raised.catch(next)?.map(|(ticks, ends, text)| {
            let numbers = |bytes: &[u8]| -> Vec<u64> {
                bytes.as_chunks::<8>().0.iter().map(|&eight| u64::from_le_bytes(eight)).collect()
            };
            let ends = numbers(&ends).into_iter().map(|end| end as usize).collect();
            Texts { ticks: numbers(&ticks), ends, text }
        }))
    };
    let mut out = |bytes: &[u8]| {
        raised.catch(py.check_signals().and_then(|()| write.call1((PyBytes::new(py, bytes),)).map(drop)))
    };
    let result = lines::check_ids(&capture.opened, &ids)
        .and_then(|()| lines::vcd(&capture.opened, &ids, rate_hz, ticks_hz, &mut more, &mut out));
    raised.of(py, result)
}

/// An FST file that is written from the lines of a VCD.
#[pyclass(module = "pcitrace._kernel")]
struct Fst {
    file: FstFile,
}

#[pymethods]
impl Fst {
    #[new]
    fn new(py: Python<'_>, path: PathBuf, declarations: &[u8]) -> PyResult<Self> {
        FstFile::create(&path, declarations).map(|file| Fst { file }).map_err(|error| to_python(py, error))
    }

    /// Takes whole lines.
    fn write(&mut self, py: Python<'_>, lines: &[u8]) -> PyResult<()> {
        py.detach(|| self.file.write(lines)).map_err(|error| to_python(py, error))
    }

    fn close(&mut self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.file.close()).map_err(|error| to_python(py, error))
    }
}

pub fn register_in(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Fst>()?;
    module.add_function(wrap_pyfunction!(write_samples, module)?)?;
    module.add_function(wrap_pyfunction!(write_vcd, module)?)
}
