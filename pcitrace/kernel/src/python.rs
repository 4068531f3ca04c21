//! The Python module `pcitrace._kernel`: thin, described in `_kernel.pyi`.

use crate::capture::{Capture as Opened, Data};
use crate::error::{Error, Result};
use crate::layout::{BusSpec, Source};
use crate::pipeline::{self, Options};
use crate::wire::{WireSpec, clock_mhz as measured_mhz, frames};
use crate::write::{BusRows, FileSink, MemorySink, TableFile};
use crate::{memory, read, tables};
use arrow::array::{RecordBatch, RecordBatchIterator};
use arrow::datatypes::SchemaRef;
use arrow::ffi_stream::FFI_ArrowArrayStream;
use pyo3::exceptions::{PyKeyboardInterrupt, PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyCapsule, PyDict, PyList};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// The exceptions are those of `pcitrace.errors`.
fn to_python(py: Python<'_>, error: Error) -> PyErr {
    let raise = |name: &str, message: String, path: Option<String>, offset: Option<u64>| -> PyResult<PyErr> {
        let class = py.import("pcitrace.errors")?.getattr(name)?;
        let kwargs = PyDict::new(py);
        if let Some(path) = path {
            kwargs.set_item("path", path)?;
            kwargs.set_item("offset", offset)?;
        }
        Ok(PyErr::from_value(class.call((message,), Some(&kwargs))?))
    };
    // Names and text of a damaged file may hold anything; a message is one line.
    let message =
        error.to_string().split(|c: char| c.is_control()).filter(|s| !s.is_empty()).collect::<Vec<_>>().join(" ");
    let mapped = match error {
        Error::Format { path, offset, .. } => {
            raise("CaptureFormatError", message, Some(path.display().to_string()), offset)
        }
        Error::Decode(_) => raise("DecodeError", message, None, None),
        Error::Interrupted => Ok(PyKeyboardInterrupt::new_err(message)),
        Error::Write { path, source } => {
            Ok(PyOSError::new_err((source.raw_os_error().unwrap_or(0), source.to_string(), path.display().to_string())))
        }
    };
    mapped.unwrap_or_else(|error| error)
}

/// An open capture file.
#[pyclass(frozen, module = "pcitrace._kernel")]
struct Capture {
    opened: Opened,
}

#[pymethods]
impl Capture {
    #[getter]
    fn format(&self) -> &str {
        self.opened.format
    }

    #[getter]
    fn channels(&self) -> Vec<(String, u32)> {
        self.opened.channels.iter().map(|channel| (channel.name.clone(), channel.width)).collect()
    }

    #[getter]
    fn rate_hz(&self) -> Option<f64> {
        match &self.opened.data {
            Data::Sampled(sampled) => sampled.rate_hz(),
            Data::Changes(_) => None,
        }
    }

    /// Unit of the times in a capture of changes.
    #[getter]
    fn tick_s(&self) -> Option<f64> {
        match &self.opened.data {
            Data::Sampled(_) => None,
            Data::Changes(changes) => {
                let (numerator, denominator) = changes.tick();
                Some(numerator as f64 / denominator as f64)
            }
        }
    }

    #[getter]
    fn unit_size(&self) -> Option<usize> {
        match &self.opened.data {
            Data::Sampled(sampled) => Some(sampled.unit_size()),
            Data::Changes(_) => None,
        }
    }

    #[getter]
    fn sample_count(&self) -> Option<u64> {
        match &self.opened.data {
            Data::Sampled(sampled) => sampled.total_bytes().map(|bytes| bytes / sampled.unit_size() as u64),
            Data::Changes(_) => None,
        }
    }

    #[getter]
    fn duration_s(&self) -> Option<f64> {
        match &self.opened.data {
            Data::Sampled(_) => Some(self.sample_count()? as f64 / self.rate_hz()?),
            Data::Changes(changes) => {
                let (numerator, denominator) = changes.tick();
                Some(changes.end() as f64 * numerator as f64 / denominator as f64)
            }
        }
    }

    /// All whole samples; None for a capture of changes.
    fn read_samples<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let Data::Sampled(sampled) = &self.opened.data else {
            return Err(PyValueError::new_err("a capture of changes has no samples"));
        };
        let all = py.detach(|| -> Result<Vec<u8>> {
            let mut all = Vec::new();
            let mut buffer = Vec::new();
            for chunk in sampled.chunks() {
                all.extend_from_slice(&chunk?.bytes(&mut buffer)?);
            }
            all.truncate(all.len() / sampled.unit_size() * sampled.unit_size());
            Ok(all)
        });
        all.map(|all| PyBytes::new(py, &all)).map_err(|error| to_python(py, error))
    }
}

/// An Arrow table that other libraries read without a copy.
#[pyclass(frozen, module = "pcitrace._kernel")]
struct Table {
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
}

#[pymethods]
impl Table {
    #[getter]
    fn num_rows(&self) -> usize {
        self.batches.iter().map(RecordBatch::num_rows).sum()
    }

    /// Ref: Arrow PyCapsule interface, "arrow_array_stream".
    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // A consumer's wish for other types is best effort; it converts itself.
        let _ = requested_schema;
        let batches = self.batches.clone().into_iter().map(Ok);
        let reader = RecordBatchIterator::new(batches, self.schema.clone());
        let stream = FFI_ArrowArrayStream::new(Box::new(reader));
        PyCapsule::new_with_value(py, stream, c"arrow_array_stream")
    }
}

impl Table {
    fn of(batch: RecordBatch) -> Self {
        Table { schema: batch.schema(), batches: vec![batch] }
    }
}

/// The tables of one bus.
#[pyclass(frozen, module = "pcitrace._kernel")]
struct Decoded {
    rows: Mutex<BusRows>,
    transactions: PyOnceLock<Py<Table>>,
    data_phases: PyOnceLock<Py<Table>>,
    #[pyo3(get)]
    problems: Py<Table>,
    #[pyo3(get)]
    clocks: Py<Table>,
    #[pyo3(get)]
    clock_mhz: Option<f64>,
    #[pyo3(get)]
    duration_us: f64,
}

#[pymethods]
impl Decoded {
    #[getter]
    fn transactions(&self, py: Python<'_>) -> PyResult<Py<Table>> {
        self.table(py, &self.transactions, BusRows::take_transactions)
    }

    #[getter]
    fn data_phases(&self, py: Python<'_>) -> PyResult<Py<Table>> {
        self.table(py, &self.data_phases, BusRows::take_data_phases)
    }
}

impl Decoded {
    /// A table that is built from its rows, which are gone then, when it is asked for the first time.
    fn table(
        &self,
        py: Python<'_>,
        built: &PyOnceLock<Py<Table>>,
        take: fn(&mut BusRows) -> (SchemaRef, Vec<RecordBatch>),
    ) -> PyResult<Py<Table>> {
        let build = || {
            let (schema, batches) = py.detach(|| take(&mut self.rows.lock().unwrap_or_else(PoisonError::into_inner)));
            Py::new(py, Table { schema, batches })
        };
        Ok(built.get_or_try_init(py, build)?.clone_ref(py))
    }
}

#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct PySpec {
    name: String,
    width: Option<u32>,
    lines: BTreeMap<String, (usize, u32, bool)>,
}

impl PySpec {
    fn check(self, capture: &Opened) -> Result<BusSpec> {
        let lines = self
            .lines
            .into_iter()
            .map(|(line, place)| {
                let source = checked(capture, &line, place)?;
                Ok((line, source))
            })
            .collect::<Result<_>>()?;
        Ok(BusSpec { name: self.name, width: self.width, lines })
    }
}

fn checked(capture: &Opened, line: &str, (channel, bit, active_low): (usize, u32, bool)) -> Result<Source> {
    match capture.channels.get(channel) {
        Some(found) if bit < found.width => Ok(Source { channel, bit, active_low }),
        _ => Err(Error::Decode(format!(
            "{line} is wired to bit {bit} of channel {channel}, which the capture does not have ({} channels)",
            capture.channels.len()
        ))),
    }
}

/// Calls the progress hook, if any, and lets Python handle signals; the first exception ends the work.
struct Watch {
    hook: Option<Py<PyAny>>,
    raised: Option<PyErr>,
}

impl Watch {
    fn step(&mut self, share: f64) -> bool {
        Python::attach(|py| {
            let hooked = self.hook.as_ref().map_or(Ok(()), |hook| hook.call1(py, (share,)).map(drop));
            self.raised = hooked.and_then(|()| py.check_signals()).err();
        });
        self.raised.is_none()
    }

    fn error(self, py: Python<'_>, error: Error) -> PyErr {
        self.raised.unwrap_or_else(|| to_python(py, error))
    }
}

#[pyfunction]
fn open(py: Python<'_>, path: &str) -> PyResult<Capture> {
    let opened = py.detach(|| read::open(Path::new(path)));
    opened.map(|opened| Capture { opened }).map_err(|error| to_python(py, error))
}

#[pyfunction]
#[pyo3(signature = (samples, unit_size, names, rate_hz = None))]
fn from_samples(
    py: Python<'_>,
    samples: PyBackedBytes,
    unit_size: usize,
    names: Vec<String>,
    rate_hz: Option<f64>,
) -> PyResult<Capture> {
    let opened = memory::capture(samples, unit_size, names, rate_hz);
    opened.map(|opened| Capture { opened }).map_err(|error| to_python(py, error))
}

#[pyfunction]
#[pyo3(signature = (capture, buses, *, rate_hz = None, clock_mhz = None, recover_clock = false, columns = None,
                    data_phases = false, window_us = None, threads = 0, progress = None, portable = false))]
#[allow(clippy::too_many_arguments)]
fn decode(
    py: Python<'_>,
    capture: &Capture,
    buses: Vec<PySpec>,
    rate_hz: Option<f64>,
    clock_mhz: Option<f64>,
    recover_clock: bool,
    columns: Option<Vec<String>>,
    data_phases: bool,
    window_us: Option<f64>,
    threads: usize,
    progress: Option<Py<PyAny>>,
    portable: bool,
) -> PyResult<Vec<Decoded>> {
    let options = Options { rate_hz, clock_mhz, recover_clock, data_phases, window_us, threads, portable };
    let mut watch = Watch { hook: progress, raised: None };
    let mut sink = MemorySink::new(columns.as_deref()).map_err(|error| to_python(py, error))?;
    let decoded = py.detach(|| {
        let specs = buses.into_iter().map(|spec| spec.check(&capture.opened)).collect::<Result<Vec<_>>>()?;
        pipeline::decode(&capture.opened, &specs, &options, &mut sink, &mut |share| watch.step(share))
    });
    let decoded = match decoded {
        Ok(decoded) => decoded,
        Err(error) => return Err(watch.error(py, error)),
    };
    decoded
        .iter()
        .zip(sink.buses)
        .map(|(decoded, rows)| {
            Ok(Decoded {
                rows: Mutex::new(rows),
                transactions: PyOnceLock::new(),
                data_phases: PyOnceLock::new(),
                problems: Py::new(py, Table::of(tables::problems(&[decoded])))?,
                clocks: Py::new(py, Table::of(tables::clocks(decoded)))?,
                clock_mhz: decoded.clock_mhz,
                duration_us: decoded.duration_us,
            })
        })
        .collect()
}

#[pyfunction]
#[pyo3(signature = (capture, buses, *, transactions, data_phases = None, problems = None, rate_hz = None, clock_mhz = None,
                    recover_clock = false, threads = 0, progress = None, portable = false))]
#[allow(clippy::too_many_arguments)]
fn decode_to_files<'py>(
    py: Python<'py>,
    capture: &Capture,
    buses: Vec<PySpec>,
    transactions: &str,
    data_phases: Option<&str>,
    problems: Option<&str>,
    rate_hz: Option<f64>,
    clock_mhz: Option<f64>,
    recover_clock: bool,
    threads: usize,
    progress: Option<Py<PyAny>>,
    portable: bool,
) -> PyResult<Bound<'py, PyDict>> {
    let wanted = data_phases.is_some();
    let options =
        Options { rate_hz, clock_mhz, recover_clock, data_phases: wanted, window_us: None, threads, portable };
    let mut watch = Watch { hook: progress, raised: None };
    let decoded = py.detach(|| {
        let specs = buses.into_iter().map(|spec| spec.check(&capture.opened)).collect::<Result<Vec<_>>>()?;
        let mut sink = FileSink::new(Path::new(transactions), data_phases.map(Path::new))?;
        let decoded = pipeline::decode(&capture.opened, &specs, &options, &mut sink, &mut |share| watch.step(share))?;
        let problems = match problems {
            Some(path) => {
                let batch = tables::problems(&decoded.iter().collect::<Vec<_>>());
                let mut file = TableFile::create(Path::new(path), batch.schema())?;
                file.write(&batch)?;
                Some(file)
            }
            None => None,
        };
        sink.finish()?;
        problems.map_or(Ok(()), TableFile::finish)?;
        Ok(decoded)
    });
    let decoded = match decoded {
        Ok(decoded) => decoded,
        Err(error) => return Err(watch.error(py, error)),
    };
    let summary = PyDict::new(py);
    for decoded in &decoded {
        let bus = PyDict::new(py);
        bus.set_item("transactions", decoded.transactions)?;
        bus.set_item("clock_mhz", decoded.clock_mhz)?;
        bus.set_item("duration_us", decoded.duration_us)?;
        let problems = PyList::empty(py);
        for problem in &decoded.problems {
            let row = PyDict::new(py);
            row.set_item("kind", problem.kind.name())?;
            row.set_item("time_us", decoded.bus.time.us(problem.stamp))?;
            row.set_item("transaction", problem.transaction)?;
            row.set_item("text", problem.text)?;
            problems.append(row)?;
        }
        bus.set_item("problems", problems)?;
        summary.set_item(&decoded.bus.name, bus)?;
    }
    Ok(summary)
}

#[pyfunction]
#[pyo3(signature = (capture, lines, *, rate_hz = None))]
fn wire(
    py: Python<'_>,
    capture: &Capture,
    lines: HashMap<String, (usize, u32, bool)>,
    rate_hz: Option<f64>,
) -> PyResult<Table> {
    let batch = py.detach(|| {
        let source = |name: &str| lines.get(name).map(|&place| checked(&capture.opened, name, place)).transpose();
        let enable = source("TXEN")?.ok_or_else(|| Error::Decode("no channel is wired to TXEN".into()))?;
        let mut data = Vec::new();
        while let Some(line) = source(&format!("TXDATA{}", data.len()))? {
            data.push(line);
        }
        let spec = WireSpec { enable, clock: source("TXCLK")?, data };
        frames(&capture.opened, &spec, rate_hz)
    });
    batch.map(Table::of).map_err(|error| to_python(py, error))
}

#[pyfunction]
#[pyo3(signature = (capture, clk, *, rate_hz = None))]
fn measure_clock(
    py: Python<'_>,
    capture: &Capture,
    clk: (usize, u32, bool),
    rate_hz: Option<f64>,
) -> PyResult<Option<f64>> {
    let measured = py.detach(|| measured_mhz(&capture.opened, checked(&capture.opened, "CLK", clk)?, rate_hz));
    measured.map_err(|error| to_python(py, error))
}

#[pymodule]
fn _kernel(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<Capture>()?;
    module.add_class::<Table>()?;
    module.add_class::<Decoded>()?;
    module.add_function(wrap_pyfunction!(open, module)?)?;
    module.add_function(wrap_pyfunction!(from_samples, module)?)?;
    module.add_function(wrap_pyfunction!(decode, module)?)?;
    module.add_function(wrap_pyfunction!(decode_to_files, module)?)?;
    module.add_function(wrap_pyfunction!(wire, module)?)?;
    module.add_function(wrap_pyfunction!(measure_clock, module)?)?;
    Ok(())
}
