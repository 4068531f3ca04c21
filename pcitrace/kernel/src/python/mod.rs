//! The Python module `pcitrace._kernel`: thin, described in `_kernel.pyi`.

mod lines;
mod parts;
mod stretch;

use crate::capture::{Capture as Opened, Data};
use crate::error::{Error, Result};
use crate::pci::decoding::files::FileSink;
use crate::pci::decoding::memory::{BusRows, MemorySink};
use crate::pci::decoding::stream;
use crate::pci::decoding::{self, Decoded as Decoding, Options};
use crate::pci::layout::{BusSpec, BusTables};
use crate::pci::problems::Problem;
use crate::pci::rows::append_windows;
use crate::pci::rules::{Findings, Histogram, Parameters, RULES, RuleSet};
use crate::pci::tables;
use crate::pci::tables::Wanted;
use crate::samples::places::Source;
use crate::waves::waves as of_lines;
use crate::wire::{WireScan, WireSpec, clock_mhz as measured_mhz, frames};
use crate::{interrupt, memory, read};
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{RecordBatch, RecordBatchIterator};
use arrow_schema::{Schema, SchemaRef};
use pyo3::exceptions::{PyKeyboardInterrupt, PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyCapsule, PyDict};
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// The exceptions are those of `pcitrace.errors`.
pub fn to_python(py: Python<'_>, error: Error) -> PyErr {
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
pub struct Capture {
    pub opened: Arc<Opened>,
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

    /// What the reader had to settle by itself.
    #[getter]
    fn notes(&self) -> Vec<String> {
        self.opened.notes.clone()
    }

    /// How many captures the file holds.
    #[getter]
    fn captures(&self) -> usize {
        self.opened.captures
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

    /// Position of each channel in a sample; None in a capture of changes.
    #[getter]
    fn bits(&self) -> Option<Vec<usize>> {
        match &self.opened.data {
            Data::Sampled(sampled) => Some(sampled.bits().to_vec()),
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

    /// Whole samples from number `first` to before `last`, all by default, read into the memory that Python gets.
    #[pyo3(signature = (first = 0, last = None))]
    fn read_samples<'py>(&self, py: Python<'py>, first: u64, last: Option<u64>) -> PyResult<Bound<'py, PyBytes>> {
        let Data::Sampled(sampled) = &self.opened.data else {
            return Err(PyValueError::new_err("a capture of changes has no samples"));
        };
        let unit = sampled.unit_size() as u64;
        let there = sampled.total_bytes().unwrap_or(0) / unit;
        let start = first.min(there) * unit;
        let end = last.map_or(there, |last| last.clamp(first.min(there), there)) * unit;
        let fill = |out: &mut [u8]| -> Result<()> {
            let mut buffer = Vec::new();
            let mut chunks = sampled.chunks().peekable();
            while let Some(chunk) = chunks.next() {
                let chunk = chunk?;
                if chunk.offset >= end {
                    break;
                }
                // What ends before the first sample is not even loaded.
                if chunks.peek().is_some_and(|next| next.as_ref().is_ok_and(|next| next.offset <= start)) {
                    continue;
                }
                let offset = chunk.offset;
                let bytes = chunk.bytes(&mut buffer)?;
                let (from, to) = (offset.max(start), (offset + bytes.len() as u64).min(end));
                if from < to {
                    let part = &bytes[(from - offset) as usize..(to - offset) as usize];
                    out[(from - start) as usize..(to - start) as usize].copy_from_slice(part);
                }
                interrupt::check()?;
            }
            Ok(())
        };
        PyBytes::new_with(py, (end - start) as usize, |out| interruptible(py, || fill(out)))
    }
}

/// Makes the batches of a table.
type Make = Box<dyn FnOnce() -> Vec<RecordBatch> + Send>;

/// An Arrow table that other libraries read without a copy.
#[pyclass(frozen, module = "pcitrace._kernel")]
pub struct Table {
    schema: SchemaRef,
    rows: usize,
    batches: OnceLock<Vec<RecordBatch>>,
    /// Until somebody asks for them.
    make: Mutex<Option<Make>>,
}

#[pymethods]
impl Table {
    #[getter]
    fn num_rows(&self) -> usize {
        self.rows
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
        let batches = self.batches().to_vec().into_iter().map(Ok);
        let reader = RecordBatchIterator::new(batches, self.schema.clone());
        let stream = FFI_ArrowArrayStream::new(Box::new(reader));
        PyCapsule::new_with_value(py, stream, c"arrow_array_stream")
    }
}

impl Table {
    /// The rows; made now where nobody has asked for them before.
    pub fn batches(&self) -> &[RecordBatch] {
        self.batches.get_or_init(|| {
            let make = self.make.lock().unwrap_or_else(PoisonError::into_inner).take();
            make.map_or(Vec::new(), |make| make())
        })
    }

    pub fn of(batch: RecordBatch) -> Self {
        Self::of_batches((batch.schema(), vec![batch]))
    }

    pub fn of_batches((schema, batches): (SchemaRef, Vec<RecordBatch>)) -> Self {
        let rows = batches.iter().map(RecordBatch::num_rows).sum();
        Table { schema, rows, batches: OnceLock::from(batches), make: Mutex::new(None) }
    }

    /// The problems of a bus: they have long texts, and most callers only want to know how many there are.
    fn of_problems(decoded: &mut Decoding) -> Self {
        let (bus, problems) = (decoded.bus.clone(), std::mem::take(&mut decoded.problems));
        let rows = problems.len();
        let make: Make = Box::new(move || tables::problems([(&bus, problems.in_order().as_slice())]).1);
        Table { schema: tables::problem_schema(), rows, batches: OnceLock::new(), make: Mutex::new(Some(make)) }
    }
}

/// Clocks -> how often, from REQ# to GNT#, and from there to the address phase; who asked for the bus and who had it -> for
/// how many clocks.
type RequestTimes = (Histogram, Histogram, HashMap<(String, String), u64>);

/// The tables of one bus.
#[pyclass(frozen, module = "pcitrace._kernel")]
pub struct Decoded {
    #[pyo3(get)]
    transactions: Py<Table>,
    #[pyo3(get)]
    data_phases: Py<Table>,
    #[pyo3(get)]
    problems: Py<Table>,
    #[pyo3(get)]
    clocks: Py<Table>,
    /// The windows of `clocks` as one.
    #[pyo3(get)]
    all_clocks: Py<Table>,
    /// Without rows where they were not asked for.
    #[pyo3(get)]
    events: Py<Table>,
    /// Where rules were broken, with counts; None where no rules were asked for.
    #[pyo3(get)]
    violations: Option<Py<Table>>,
    #[pyo3(get)]
    judged: Option<Py<PyDict>>,
    /// Where they were to be measured.
    #[pyo3(get)]
    requests: Option<RequestTimes>,
    #[pyo3(get)]
    clock_mhz: Option<f64>,
    #[pyo3(get)]
    duration_us: f64,
}

#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct PySpec {
    name: String,
    width: Option<u32>,
    lines: BTreeMap<String, (usize, u32, bool)>,
}

impl PySpec {
    /// Channel `k` is bit `k` of a sample.
    fn unchecked(self) -> BusSpec {
        let source = |(channel, bit, active_low)| Source { channel, bit, active_low };
        let lines = self.lines.into_iter().map(|(line, place)| (line, source(place))).collect();
        BusSpec { name: self.name, width: self.width, lines }
    }

    pub fn check(self, capture: &Opened) -> Result<BusSpec> {
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
}

/// Does `work`, which may ask whether to go on, without the interpreter; Ctrl-C ends it.
pub fn interruptible<T: Send>(py: Python<'_>, work: impl FnOnce() -> Result<T> + Send) -> PyResult<T> {
    let raised = Arc::new(Mutex::new(None));
    let seen = raised.clone();
    let go_on = move || {
        let error = Python::attach(|py| py.check_signals().err());
        let go_on = error.is_none();
        *seen.lock().unwrap_or_else(PoisonError::into_inner) = error;
        go_on
    };
    let result = py.detach(|| interrupt::asking(go_on, work));
    let raised = raised.lock().unwrap_or_else(PoisonError::into_inner).take();
    result.map_err(|error| raised.unwrap_or_else(|| to_python(py, error)))
}

#[pyfunction]
#[pyo3(signature = (path, *, timescale = None, device = 0))]
fn open(py: Python<'_>, path: PathBuf, timescale: Option<&str>, device: usize) -> PyResult<Capture> {
    let opened = interruptible(py, || read::open(&path, &read::How { timescale, device }))?;
    Ok(Capture { opened: Arc::new(opened) })
}

/// Opens raw samples; `-` is standard input.
#[pyfunction]
#[pyo3(signature = (path, unit_size, names, rate_hz = None))]
fn open_raw(
    path: PathBuf,
    unit_size: usize,
    names: Vec<String>,
    rate_hz: Option<f64>,
    py: Python<'_>,
) -> PyResult<Capture> {
    let opened = read::raw::open(&path, unit_size, names, rate_hz);
    opened.map(|opened| Capture { opened: Arc::new(opened) }).map_err(|error| to_python(py, error))
}

/// Samples that come piece by piece.
#[pyclass(frozen, module = "pcitrace._kernel")]
struct Stream {
    /// None once it is finished.
    stream: Mutex<Option<stream::Stream>>,
    /// How the rules were kept, of each bus; there once it is finished.
    judged: Mutex<Vec<stream::Judged>>,
}

/// Transactions, data phases, problems, clocks and events.
type Found = (Table, Table, Table, Table, Table);

#[pymethods]
impl Stream {
    #[new]
    #[pyo3(signature = (buses, unit_size, *, rate_hz = None, clock_mhz = None, data_phases = false, window_us = None,
                        rules = None, bus_mhz = None, columns = None, portable = false))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        py: Python<'_>,
        buses: Vec<PySpec>,
        unit_size: usize,
        rate_hz: Option<f64>,
        clock_mhz: Option<f64>,
        data_phases: bool,
        window_us: Option<f64>,
        rules: Option<Vec<String>>,
        bus_mhz: Option<u32>,
        columns: Option<Vec<String>>,
        portable: bool,
    ) -> PyResult<Self> {
        let rules = rule_set(rules)?;
        let options = Options {
            rate_hz,
            clock_mhz,
            data_phases,
            window_us,
            rules,
            bus_mhz: vec![bus_mhz; buses.len()],
            portable,
            ..Options::default()
        };
        let specs = buses.into_iter().map(PySpec::unchecked).collect::<Vec<_>>();
        let wanted = Wanted { coded: columns.is_some(), columns };
        let stream = stream::Stream::new(unit_size, &specs, options, &wanted).map_err(|error| to_python(py, error))?;
        Ok(Stream { stream: Mutex::new(Some(stream)), judged: Mutex::default() })
    }

    fn feed(&self, py: Python<'_>, samples: PyBackedBytes) -> PyResult<Found> {
        self.found(py, move |stream| Self::open(stream)?.feed(&samples))
    }

    fn gap(&self, py: Python<'_>, samples: u64) -> PyResult<Found> {
        self.found(py, move |stream| Self::open(stream)?.gap(samples))
    }

    fn finish(&self, py: Python<'_>) -> PyResult<Found> {
        self.found(py, |stream| {
            let (found, judged) = stream.take().ok_or_else(Self::is_over)?.finish()?;
            *self.judged.lock().unwrap_or_else(PoisonError::into_inner) = judged;
            Ok(found)
        })
    }

    /// Of each bus where rules were broken, with counts; so far, or in all of it.
    fn judged(&self, py: Python<'_>) -> PyResult<Vec<(Table, Py<PyDict>)>> {
        let open = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        let told = match &*open {
            Some(stream) => stream.judged(),
            None => self.judged.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        };
        told.into_iter().map(|(violations, findings)| Ok((Table::of(violations), judged(py, &findings)?))).collect()
    }

    /// The counts alone.
    fn counted(&self, py: Python<'_>) -> PyResult<Vec<Py<PyDict>>> {
        let open = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        match &*open {
            Some(stream) => stream.counted().map(|findings| judged(py, findings)).collect(),
            None => {
                let over = self.judged.lock().unwrap_or_else(PoisonError::into_inner);
                over.iter().map(|(_, findings)| judged(py, findings)).collect()
            }
        }
    }
}

impl Stream {
    fn open(stream: &mut Option<stream::Stream>) -> Result<&mut stream::Stream> {
        stream.as_mut().ok_or_else(Self::is_over)
    }

    fn is_over() -> Error {
        Error::Decode("the stream is finished; make a new one".into())
    }

    fn found(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut Option<stream::Stream>) -> Result<stream::Found> + Send,
    ) -> PyResult<Found> {
        let found = interruptible(py, || work(&mut self.stream.lock().unwrap_or_else(PoisonError::into_inner)))?;
        let stream::Found { transactions, data_phases, problems, clocks, events } = found;
        let of = Table::of;
        Ok((of(transactions), of(data_phases), of(problems), of(clocks), of(events)))
    }
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
    opened.map(|opened| Capture { opened: Arc::new(opened) }).map_err(|error| to_python(py, error))
}

#[pyfunction]
#[pyo3(signature = (capture, buses, *, rate_hz = None, clock_mhz = None, recover_clock = false, columns = None, coded = true,
                    data_phases = false, events = false, window_us = None, rules = None, every = None, bus_mhz = None,
                    parameters = None, requests = false, problems = true, until = None, threads = 0, progress = None, wires = Vec::new(),
                    portable = false))]
#[allow(clippy::too_many_arguments)]
fn decode(
    py: Python<'_>,
    capture: &Capture,
    buses: Vec<PySpec>,
    rate_hz: Option<f64>,
    clock_mhz: Option<f64>,
    recover_clock: bool,
    columns: Option<Vec<String>>,
    coded: bool,
    data_phases: bool,
    events: bool,
    window_us: Option<f64>,
    rules: Option<Vec<String>>,
    every: Option<Vec<String>>,
    bus_mhz: Option<u32>,
    parameters: Option<(u64, f64)>,
    requests: bool,
    problems: bool,
    until: Option<u64>,
    threads: usize,
    progress: Option<Py<PyAny>>,
    wires: Vec<Py<Wire>>,
    portable: bool,
) -> PyResult<Vec<Decoded>> {
    let rules = rule_set(rules)?;
    let options = Options {
        rate_hz,
        clock_mhz,
        recover_clock,
        data_phases,
        events,
        window_us,
        rules,
        every: rule_set(every)?.unwrap_or_default(),
        bus_mhz: vec![bus_mhz; buses.len()],
        parameters: self::parameters(parameters),
        requests,
        forget_problems: !problems,
        until,
        threads,
        portable,
        ..Options::default()
    };
    let mut watch = Watch { hook: progress, raised: None };
    let mut sink = MemorySink::new(&Wanted { columns, coded }).map_err(|error| to_python(py, error))?;
    let mut scans = Vec::new();
    let wanted: Vec<WireSpec> = wires.iter().map(|wire| wire.get().spec.clone()).collect();
    let decoded = interruptible(py, || {
        let specs = buses.into_iter().map(|spec| spec.check(&capture.opened)).collect::<Result<Vec<_>>>()?;
        if let Data::Sampled(sampled) = &capture.opened.data {
            let scan = |spec: &WireSpec| WireScan::new(&capture.opened, sampled.as_ref(), spec, rate_hz);
            scans = wanted.iter().map(scan).collect::<Result<_>>()?;
        }
        decoding::decode(&capture.opened, &specs, &options, &mut scans, &mut sink, &mut |share| watch.step(share))
    });
    let decoded = match decoded {
        Ok(decoded) => decoded,
        Err(error) => return Err(watch.raised.unwrap_or(error)),
    };
    for (wire, scan) in wires.iter().zip(scans) {
        let frames = Py::new(py, Table::of_batches(scan.finish()))?;
        *wire.get().frames.lock().unwrap_or_else(PoisonError::into_inner) = Some(frames);
    }
    decoded.into_iter().zip(sink.buses).map(|(decoded, rows)| Decoded::of(py, decoded, Some(rows))).collect()
}

impl Decoded {
    /// Without rows, where these are elsewhere.
    pub fn of(py: Python<'_>, mut decoded: Decoding, rows: Option<BusRows>) -> PyResult<Self> {
        let none = || (SchemaRef::from(Schema::empty()), Vec::new());
        let (transactions, data_phases, events) = match rows {
            Some(mut rows) => (rows.transactions.take(), rows.data_phases.take(), rows.events.take()),
            None => (none(), none(), none()),
        };
        let mut all = Vec::new();
        append_windows(&mut all, decoded.windows.iter().map(|&(_, counts)| (0, counts)).collect());
        let all_clocks = tables::windows(&decoded.bus, &all, None, decoded.duration_us);
        Ok(Decoded {
            transactions: Py::new(py, Table::of_batches(transactions))?,
            data_phases: Py::new(py, Table::of_batches(data_phases))?,
            clocks: Py::new(py, Table::of(tables::clocks(&decoded)))?,
            all_clocks: Py::new(py, Table::of(all_clocks))?,
            events: Py::new(py, Table::of_batches(events))?,
            violations: match decoded.findings {
                Some(ref findings) => Some(Py::new(py, Table::of(tables::violations(&decoded.bus, Some(findings))))?),
                None => None,
            },
            judged: decoded.findings.as_ref().map(|findings| judged(py, findings)).transpose()?,
            requests: decoded.requests.take().map(|requests| {
                let name = |agent: u8| decoded.bus.layout.grant_names[usize::from(agent)].clone();
                let held = requests.held.iter().map(|(&(asks, has), &clocks)| ((name(asks), name(has)), clocks));
                (requests.arbitration, requests.acquisition, held.collect())
            }),
            clock_mhz: decoded.clock_mhz,
            duration_us: decoded.duration_us,
            problems: Py::new(py, Table::of_problems(&mut decoded))?,
        })
    }
}

/// Rules by their ids.
pub fn rule_set(ids: Option<Vec<String>>) -> PyResult<Option<RuleSet>> {
    let rules = ids.as_deref().map(RuleSet::named).transpose();
    rules.map_err(|id| PyValueError::new_err(format!("there is no rule {id}")))
}

/// What the specification leaves open: M23's number of transactions, E01's tolerance as a share.
pub fn parameters(given: Option<(u64, f64)>) -> Parameters {
    let of = |(repeat_within, clock_tolerance)| Parameters { repeat_within, clock_tolerance };
    given.map_or_else(Parameters::default, of)
}

/// How often each rule was broken, and over what.
fn judged(py: Python<'_>, findings: &Findings) -> PyResult<Py<PyDict>> {
    let of_rules = |counts: &[u64]| {
        let told = PyDict::new(py);
        for (rule, count) in RULES.iter().zip(counts) {
            told.set_item(rule.id(), count)?;
        }
        PyResult::Ok(told)
    };
    let judged = PyDict::new(py);
    judged.set_item("counts", of_rules(&findings.counts)?)?;
    judged.set_item("unjudged", of_rules(&findings.unjudged)?)?;
    judged.set_item("clocks", findings.clocks)?;
    judged.set_item("address_phases", findings.address_phases)?;
    judged.set_item("ungranted", findings.ungranted)?;
    let census = PyDict::new(py);
    census.set_item("clocks", findings.census.clocks)?;
    census.set_item("asserted", findings.census.asserted.to_vec())?;
    census.set_item("changes", findings.census.changes.to_vec())?;
    judged.set_item("census", census)?;
    Ok(judged.unbind())
}

#[pyfunction]
#[pyo3(signature = (capture, buses, *, transactions, data_phases = None, problems = None, events = None, rate_hz = None,
                    clock_mhz = None, recover_clock = false, threads = 0, progress = None, portable = false))]
#[allow(clippy::too_many_arguments)]
fn decode_to_files<'py>(
    py: Python<'py>,
    capture: &Capture,
    buses: Vec<PySpec>,
    transactions: PathBuf,
    data_phases: Option<PathBuf>,
    problems: Option<PathBuf>,
    events: Option<PathBuf>,
    rate_hz: Option<f64>,
    clock_mhz: Option<f64>,
    recover_clock: bool,
    threads: usize,
    progress: Option<Py<PyAny>>,
    portable: bool,
) -> PyResult<Bound<'py, PyDict>> {
    let options = Options {
        rate_hz,
        clock_mhz,
        recover_clock,
        data_phases: data_phases.is_some(),
        events: events.is_some(),
        threads,
        portable,
        ..Options::default()
    };
    let mut watch = Watch { hook: progress, raised: None };
    let decoded = interruptible(py, || {
        let specs = buses.into_iter().map(|spec| spec.check(&capture.opened)).collect::<Result<Vec<_>>>()?;
        let [data_phases, events, problems] = [&data_phases, &events, &problems].map(|path| path.as_deref());
        let mut sink = FileSink::new(&transactions, data_phases, events, problems, threads)?;
        let decoded =
            decoding::decode(&capture.opened, &specs, &options, &mut [], &mut sink, &mut |share| watch.step(share))?;
        let problems = sink.finish()?;
        Ok((decoded, problems))
    });
    let (decoded, problems) = match decoded {
        Ok(decoded) => decoded,
        Err(error) => return Err(watch.raised.unwrap_or(error)),
    };
    let summary = PyDict::new(py);
    for (decoded, problems) in decoded.iter().zip(problems) {
        let bus = PyDict::new(py);
        bus.set_item("transactions", decoded.transactions)?;
        bus.set_item("clock_mhz", decoded.clock_mhz)?;
        bus.set_item("duration_us", decoded.duration_us)?;
        bus.set_item("problems", problems.rows)?;
        bus.set_item("first_problem", problems.first.map(|first| problem(py, &decoded.bus, &first)).transpose()?)?;
        summary.set_item(&decoded.bus.name, bus)?;
    }
    Ok(summary)
}

fn problem<'py>(py: Python<'py>, bus: &BusTables, problem: &Problem) -> PyResult<Bound<'py, PyDict>> {
    let row = PyDict::new(py);
    row.set_item("kind", problem.what.kind())?;
    row.set_item("rule", problem.what.rule().map(crate::pci::rules::Rule::id))?;
    row.set_item("time_us", bus.time.us(problem.stamp))?;
    row.set_item("transaction", problem.concerns.transaction())?;
    row.set_item("count", problem.count)?;
    row.set_item("text", problem.what.text())?;
    Ok(row)
}

/// A wire of a capture: its frames are read by themselves, or in the same pass as buses.
#[pyclass(frozen, module = "pcitrace._kernel")]
pub struct Wire {
    spec: WireSpec,
    frames: Mutex<Option<Py<Table>>>,
}

#[pymethods]
impl Wire {
    #[new]
    fn new(py: Python<'_>, capture: &Capture, lines: HashMap<String, (usize, u32, bool)>) -> PyResult<Self> {
        let spec = wire_spec(&capture.opened, &lines).map_err(|error| to_python(py, error))?;
        Ok(Wire { spec, frames: Mutex::new(None) })
    }

    /// What a pass has found; None before there was one. Captures of changes are read by `read`.
    #[getter]
    fn frames(&self, py: Python<'_>) -> Option<Py<Table>> {
        self.frames.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(|frames| frames.clone_ref(py))
    }

    /// The frames, by a pass of their own.
    #[pyo3(signature = (capture, *, rate_hz = None))]
    fn read(&self, py: Python<'_>, capture: &Capture, rate_hz: Option<f64>) -> PyResult<Table> {
        interruptible(py, || frames(&capture.opened, &self.spec, rate_hz)).map(Table::of_batches)
    }
}

impl Wire {
    /// To read it by, in a sampled capture.
    pub fn scan(&self, capture: &Capture, rate_hz: Option<f64>) -> Result<WireScan> {
        match &capture.opened.data {
            Data::Sampled(sampled) => WireScan::new(&capture.opened, sampled.as_ref(), &self.spec, rate_hz),
            Data::Changes(_) => Err(Error::Decode("a file of changes has no stretches".into())),
        }
    }
}

fn wire_spec(capture: &Opened, lines: &HashMap<String, (usize, u32, bool)>) -> Result<WireSpec> {
    let source = |name: &str| lines.get(name).map(|&place| checked(capture, name, place)).transpose();
    let enable = source("TXEN")?.ok_or_else(|| Error::Decode("no channel is wired to TXEN".into()))?;
    let mut data = Vec::new();
    while let Some(line) = source(&format!("TXDATA{}", data.len()))? {
        data.push(line);
    }
    Ok(WireSpec { enable, clock: source("TXCLK")?, data })
}

/// When single lines change, each `(channel, bit)`.
#[pyfunction]
fn waves(py: Python<'_>, capture: &Capture, lines: Vec<(usize, u32)>) -> PyResult<Table> {
    let batches = interruptible(py, || {
        let place = |&(channel, bit): &(usize, u32)| checked(&capture.opened, "a line", (channel, bit, false));
        of_lines(&capture.opened, &lines.iter().map(place).collect::<Result<Vec<_>>>()?)
    })?;
    Ok(Table::of_batches(batches))
}

#[pyfunction]
#[pyo3(signature = (capture, clk, *, rate_hz = None))]
fn measure_clock(
    py: Python<'_>,
    capture: &Capture,
    clk: (usize, u32, bool),
    rate_hz: Option<f64>,
) -> PyResult<Option<f64>> {
    interruptible(py, || measured_mhz(&capture.opened, checked(&capture.opened, "CLK", clk)?, rate_hz))
}

#[pymodule]
fn _kernel(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("RULES", RULES.iter().map(|rule| rule.id()).collect::<Vec<_>>())?;
    module.add_class::<Capture>()?;
    module.add_class::<Table>()?;
    module.add_class::<Decoded>()?;
    module.add_class::<Stream>()?;
    module.add_class::<Wire>()?;
    module.add_function(wrap_pyfunction!(open, module)?)?;
    module.add_function(wrap_pyfunction!(from_samples, module)?)?;
    module.add_function(wrap_pyfunction!(open_raw, module)?)?;
    module.add_function(wrap_pyfunction!(decode, module)?)?;
    module.add_function(wrap_pyfunction!(decode_to_files, module)?)?;
    module.add_function(wrap_pyfunction!(waves, module)?)?;
    module.add_function(wrap_pyfunction!(measure_clock, module)?)?;
    parts::register_in(module)?;
    lines::register_in(module)?;
    stretch::register_in(module)?;
    crate::pyramid::python::register_in(module)?;
    module.add_function(wrap_pyfunction!(crate::lattice::python::read_lattice, module)?)?;
    module.add_function(wrap_pyfunction!(crate::lattice::python::lattice_bins, module)?)?;
    module.add_function(wrap_pyfunction!(crate::lattice::python::learn_costs, module)?)?;
    module.add_function(wrap_pyfunction!(crate::lattice::python::likeliest_kinds, module)?)?;
    module.add_function(wrap_pyfunction!(crate::lattice::python::segment_units, module)?)?;
    module.add_function(wrap_pyfunction!(crate::lattice::python::read_releases, module)?)?;
    module.add("LATTICE_BINS", crate::lattice::BINS)?;
    Ok(())
}
