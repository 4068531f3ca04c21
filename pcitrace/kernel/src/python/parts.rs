//! Of `pcitrace._kernel`: a capture in parts, and as a listing.

use crate::pci::decoding::Options;
use crate::pci::decoding::parts::{self, Next};
use crate::pci::listing::names::{Field, Register, Window};
use crate::pci::listing::{self, Layer, Zero, news};
use crate::pci::tables::{self, Wanted};
use crate::python::{self, Capture, Decoded, PySpec, Table, rule_set, to_python};
use crate::write::TableFile;
use arrow_array::RecordBatch;
use arrow_array::ffi_stream::{FFI_ArrowArrayStream, RecordBatchStreamReader};
use arrow_schema::ArrowError;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyCapsule};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The tables of a capture in parts, in order of time.
#[pyclass(frozen, module = "pcitrace._kernel")]
pub struct Parts {
    parts: Mutex<parts::Parts>,
}

#[pymethods]
impl Parts {
    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Part>> {
        loop {
            let next = py
                .detach(|| self.parts.lock().unwrap_or_else(PoisonError::into_inner).next(Duration::from_millis(100)));
            match next.map_err(|error| to_python(py, error))? {
                Next::Part(part) => return Ok(Some(Part { part })),
                Next::End => return Ok(None),
                Next::NothingYet => py.check_signals()?,
            }
        }
    }

    /// What is left of each bus when all parts were taken, with the broken rules where they were to be kept.
    fn decoded(&self, py: Python<'_>) -> PyResult<Vec<Decoded>> {
        let decoded = self.parts.lock().unwrap_or_else(PoisonError::into_inner).decoded.clone();
        let decoded = decoded.ok_or_else(|| PyValueError::new_err("decoded() comes after the last part"))?;
        decoded.into_iter().map(|decoded| Decoded::of(py, decoded, None)).collect()
    }
}

type ConfigurationAccess = (usize, String, u64, u8, u64, Vec<news::Moved>);

/// Some transactions with all their data phases.
#[pyclass(frozen, module = "pcitrace._kernel")]
pub struct Part {
    part: parts::Part,
}

#[pymethods]
impl Part {
    fn __len__(&self) -> usize {
        self.part.transactions.num_rows()
    }

    #[getter]
    fn transactions(&self) -> Table {
        Table::of(self.part.transactions.clone())
    }

    #[getter]
    fn data_phases(&self) -> Table {
        Table::of(self.part.data_phases.clone())
    }

    #[getter]
    fn problems(&self) -> Table {
        Table::of(self.part.problems.clone())
    }

    /// Lines of the clocks, where those were asked for.
    fn clock_lines<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.part.clock_lines)
    }

    /// The transactions that are wanted, a byte each, with their data phases.
    fn choose(&self, wanted: &[u8]) -> PyResult<Part> {
        if wanted.len() != self.__len__() {
            return Err(PyValueError::new_err("choose() needs a byte for each transaction"));
        }
        let wanted: Vec<bool> = wanted.iter().map(|&byte| byte != 0).collect();
        let part = self.part.choose(&wanted).map_err(|error| PyValueError::new_err(error.to_string()))?;
        Ok(Part { part })
    }

    /// All transactions, and the problems that are to be told, a byte each.
    fn tell(&self, told: &[u8]) -> PyResult<Part> {
        if told.len() != self.part.problems.num_rows() {
            return Err(PyValueError::new_err("tell() needs a byte for each problem"));
        }
        let told: Vec<bool> = told.iter().map(|&byte| byte != 0).collect();
        let part = self.part.tell(&told).map_err(|error| PyValueError::new_err(error.to_string()))?;
        Ok(Part { part })
    }
}

/// The configuration accesses that may change what anything is called.
#[pyclass(frozen, module = "pcitrace._kernel")]
pub struct News {
    news: Mutex<news::News>,
}

#[pymethods]
impl News {
    /// The byte offsets of the dwords that place windows, and of those that say who is there.
    #[new]
    fn new(windows: Vec<u32>, identity: Vec<u32>) -> Self {
        News { news: Mutex::new(news::News::new(&windows, &identity)) }
    }

    /// The first from this row of a part on, if there is one: row, bus, transaction, command, address, and time, data and
    /// byte enables of each data phase.
    fn next(&self, part: &Part, start: usize) -> PyResult<Option<ConfigurationAccess>> {
        let found = self.news.lock().unwrap_or_else(PoisonError::into_inner).next(&part.part, start);
        let found = found.map_err(|column| PyValueError::new_err(format!("next() needs the column {column}")))?;
        Ok(found.map(|one| (one.row, one.bus, one.transaction, one.command, one.address, one.moved)))
    }

    /// The registers of a device are called otherwise since this address was accessed.
    fn renamed(&self, bus: &str, address: u64) {
        self.news.lock().unwrap_or_else(PoisonError::into_inner).renamed(bus, address);
    }
}

type PyField = (String, u32, u32, Vec<(u64, String)>);
type PyRegister = (u64, u64, String, Vec<PyField>);
type PyWindow = (bool, u64, u64, bool, String, u64, u64, Vec<PyRegister>);

/// A capture as lines for people.
#[pyclass(frozen, module = "pcitrace._kernel")]
pub struct Listing {
    listing: Mutex<listing::Listing>,
}

#[pymethods]
impl Listing {
    #[new]
    #[pyo3(signature = (*, layer = "transactions", zero_us = 0.0, width = None, colour = false, all_data = false,
                        raw = false, bus_width = 0, problems_of_us = None, problems_of_clks = None,
                        initiator_width = 0))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        layer: &str,
        zero_us: Option<f64>,
        width: Option<usize>,
        colour: bool,
        all_data: bool,
        raw: bool,
        bus_width: usize,
        problems_of_us: Option<(f64, f64)>,
        problems_of_clks: Option<(f64, f64)>,
        initiator_width: usize,
    ) -> PyResult<Self> {
        let layer = match layer {
            "transactions" => Layer::Transactions,
            "data" => Layer::Data,
            "accesses" => Layer::Accesses,
            other => return Err(PyValueError::new_err(format!("there is no layer {other}"))),
        };
        let zero = match zero_us {
            None => Zero::LineBefore,
            Some(0.0) => Zero::Start,
            Some(us) => Zero::At(us),
        };
        let options = listing::Options {
            layer,
            zero,
            width,
            colour,
            all_data,
            raw,
            bus_width,
            problems_of_us,
            problems_of_clks,
            initiator_width,
        };
        Ok(Listing { listing: Mutex::new(listing::Listing::new(options)) })
    }

    /// Columns of transactions that a listing needs.
    #[staticmethod]
    fn columns() -> Vec<&'static str> {
        listing::COLUMNS.to_vec()
    }

    fn set_windows(&self, bus: String, windows: Vec<PyWindow>) {
        let windows = windows.into_iter().map(|(io, base, size, size_known, name, since, until, registers)| Window {
            io,
            base,
            size,
            size_known,
            name,
            since,
            until,
            registers: registers.into_iter().map(register).collect(),
        });
        self.with(|listing| listing.names.set_windows(bus, windows.collect()));
    }

    fn set_initiator(&self, bus: String, line: String, name: String) {
        self.with(|listing| listing.names.set_initiator(bus, line, name));
    }

    /// The rules that are told of a bus: their sentences by their ids.
    fn set_rules(&self, bus: String, sentences: HashMap<String, String>) {
        self.with(|listing| listing.rules.insert(bus, sentences));
    }

    fn set_place(&self, bus: String, address: u64, name: String) {
        self.with(|listing| listing.names.set_place(bus, address, name));
    }

    /// Takes over the problems of a part, before its lines.
    fn begin(&self, py: Python<'_>, part: &Part) -> PyResult<()> {
        self.with(|listing| listing.problems(&part.part)).map_err(|error| to_python(py, error))
    }

    /// The line of what is wrong with the lines of a bus themselves.
    fn cause<'py>(&self, py: Python<'py>, bus: String, time_us: f64, text: String) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.with(|listing| listing.cause(bus, time_us, text)))
    }

    /// The lines of the transactions from `start` to `stop`.
    fn lines<'py>(&self, py: Python<'py>, part: &Part, start: usize, stop: usize) -> PyResult<Bound<'py, PyBytes>> {
        let stop = stop.min(part.__len__());
        let lines = py.detach(|| self.with(|listing| listing.lines(&part.part, start..stop)));
        lines.map(|lines| PyBytes::new(py, &lines)).map_err(|error| to_python(py, error))
    }

    fn finish<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.with(|listing| listing.finish()))
    }
}

impl Listing {
    fn with<T>(&self, work: impl FnOnce(&mut listing::Listing) -> T) -> T {
        work(&mut self.listing.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn register((offset, size, name, fields): PyRegister) -> Register {
    let fields = fields.into_iter().map(|(name, shift, width, values)| Field { name, shift, width, values });
    Register { offset, size, name, fields: fields.collect() }
}

/// The rows of a table of somebody else.
fn of_stream(table: &Bound<'_, PyAny>) -> PyResult<Vec<RecordBatch>> {
    let capsule = table.call_method0("__arrow_c_stream__")?.cast_into::<PyCapsule>()?;
    let stream = capsule.pointer_checked(Some(c"arrow_array_stream"))?.cast::<FFI_ArrowArrayStream>();
    // SAFETY: by the Arrow PyCapsule interface a capsule of this name holds such a stream, which is moved out of it.
    let reader = unsafe { RecordBatchStreamReader::from_raw(stream.as_ptr()) };
    let unusable = |error: ArrowError| PyValueError::new_err(error.to_string());
    reader.map_err(unusable)?.collect::<std::result::Result<_, _>>().map_err(unusable)
}

/// A table being written; the file appears when it is closed.
#[pyclass(frozen, module = "pcitrace._kernel")]
pub struct Writer {
    file: Mutex<Option<TableFile>>,
}

#[pymethods]
impl Writer {
    /// For all columns of `transactions`, `data_phases` or `problems`.
    #[new]
    fn new(py: Python<'_>, path: PathBuf, table: &str) -> PyResult<Self> {
        let schema = match table {
            "transactions" => tables::transactions(&Wanted::default()).map(|columns| columns.schema()),
            "data_phases" => Ok(tables::data_phases().schema()),
            "problems" => Ok(tables::problem_schema()),
            other => return Err(PyValueError::new_err(format!("there is no table {other} to write"))),
        };
        let file = schema.and_then(|schema| TableFile::create(&path, schema, 0));
        file.map(|file| Writer { file: Mutex::new(Some(file)) }).map_err(|error| to_python(py, error))
    }

    /// Any table with `__arrow_c_stream__` and these columns.
    fn write(&self, py: Python<'_>, table: &Bound<'_, PyAny>) -> PyResult<()> {
        let batches = match table.cast::<Table>() {
            Ok(table) => table.get().batches().to_vec(),
            Err(_) => of_stream(table)?,
        };
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(file) = file.as_mut() else { return Err(PyValueError::new_err("the table is closed")) };
        let written = py.detach(|| batches.iter().try_for_each(|batch| file.write(batch)));
        written.map_err(|error| to_python(py, error))
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let file = self.file.lock().unwrap_or_else(PoisonError::into_inner).take();
        file.map_or(Ok(()), TableFile::finish).map_err(|error| to_python(py, error))
    }
}

#[pyfunction]
#[pyo3(name = "parts")]
#[pyo3(signature = (capture, buses, *, rate_hz = None, clock_mhz = None, recover_clock = false, columns = None,
                    data_phases = false, most_phases = None, events = false, rules = None, keep_violations = false, every = None,
                    bus_mhz = None, parameters = None, problems = true, until = None, clocks = None, threads = 0))]
#[allow(clippy::too_many_arguments)]
fn start(
    py: Python<'_>,
    capture: &Capture,
    buses: Vec<PySpec>,
    rate_hz: Option<f64>,
    clock_mhz: Option<f64>,
    recover_clock: bool,
    columns: Option<Vec<String>>,
    data_phases: bool,
    most_phases: Option<u64>,
    events: bool,
    rules: Option<Vec<String>>,
    keep_violations: bool,
    every: Option<Vec<String>>,
    bus_mhz: Option<Vec<Option<u32>>>,
    parameters: Option<(u64, f64)>,
    problems: bool,
    until: Option<u64>,
    clocks: Option<(u64, u64, u64, u64)>,
    threads: usize,
) -> PyResult<Parts> {
    let rules = rule_set(rules)?;
    let options = Options {
        rate_hz,
        clock_mhz,
        recover_clock,
        data_phases,
        most_phases,
        events,
        rules,
        keep_violations,
        every: rule_set(every)?.unwrap_or_default(),
        bus_mhz: bus_mhz.unwrap_or_default(),
        parameters: python::parameters(parameters),
        forget_problems: !problems,
        until,
        clock_lines: clocks
            .map(|(from, to, first, end)| listing::clocks::Wanted { stamps: from..to, clks: first..end }),
        threads,
        ..Options::default()
    };
    // The names of a dictionary are those of one bus, and a part may have rows of several.
    let wanted = Wanted { coded: false, columns };
    let specs = buses.into_iter().map(|spec| spec.check(&capture.opened)).collect::<crate::error::Result<Vec<_>>>();
    let parts = specs
        .and_then(|specs| parts::Parts::start(capture.opened.clone(), specs, options, &wanted))
        .map_err(|error| to_python(py, error))?;
    Ok(Parts { parts: Mutex::new(parts) })
}

pub fn register_in(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Parts>()?;
    module.add_class::<Part>()?;
    module.add_class::<News>()?;
    module.add_class::<Listing>()?;
    module.add_class::<Writer>()?;
    module.add_function(wrap_pyfunction!(start, module)?)?;
    Ok(())
}
