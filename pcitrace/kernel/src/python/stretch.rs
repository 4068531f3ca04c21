//! Stretches of a capture, for Python: see [`crate::pipeline::stretch`].

use crate::error::{Error, Result};
use crate::pci::decoding::memory::MemorySink;
use crate::pci::decoding::{Left, Options, stretch};
use crate::pci::tables::Wanted;
use crate::pipeline::stretch::{Span, edges};
use crate::python::{Capture, Decoded, PySpec, Table, Wire, interruptible, to_python};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;

/// One bus of a stretch.
#[pyclass(frozen, module = "pcitrace._kernel")]
struct StretchRows {
    #[pyo3(get)]
    transactions: Py<Table>,
    #[pyo3(get)]
    data_phases: Py<Table>,
    /// For `join_stretches`.
    #[pyo3(get)]
    left: Vec<u8>,
}

/// Bytes of a capture at which stretches may begin, without the first.
#[pyfunction]
fn stretch_edges(capture: &Capture, count: u64) -> Vec<u64> {
    edges(&capture.opened, count)
}

/// The rows of a stretch, numbered from its start, and the frames of its wires.
#[pyfunction]
#[pyo3(signature = (capture, buses, span, *, columns = None, data_phases = false, rate_hz = None, clock_mhz = None,
                    wires = Vec::new()))]
#[allow(clippy::too_many_arguments)]
fn decode_stretch(
    py: Python<'_>,
    capture: &Capture,
    buses: Vec<PySpec>,
    span: (u64, Option<u64>),
    columns: Option<Vec<String>>,
    data_phases: bool,
    rate_hz: Option<f64>,
    clock_mhz: Option<f64>,
    wires: Vec<Py<Wire>>,
) -> PyResult<(Vec<StretchRows>, Vec<Table>)> {
    let options = Options { rate_hz, clock_mhz, data_phases, ..Options::default() };
    let span = Span { from: span.0, to: span.1.unwrap_or(u64::MAX) };
    let mut sink = MemorySink::new(&Wanted { columns, coded: true }).map_err(|error| to_python(py, error))?;
    let scans = wires.iter().map(|wire| wire.get().scan(capture, rate_hz)).collect::<Result<Vec<_>>>();
    let mut scans = scans.map_err(|error| to_python(py, error))?;
    let left = interruptible(py, || {
        let specs = buses.into_iter().map(|spec| spec.check(&capture.opened)).collect::<Result<Vec<_>>>()?;
        stretch::decode(&capture.opened, &specs, &options, span, &mut sink, &mut scans)
    })?;
    let finish = if span.from == 0 { crate::wire::WireScan::finish } else { crate::wire::WireScan::finish_in_step };
    let frames = scans.into_iter().map(|scan| Table::of_batches(finish(scan))).collect();
    let stretches = left.into_iter().zip(sink.buses).map(|(left, mut rows)| {
        Ok(StretchRows {
            transactions: Py::new(py, Table::of_batches(rows.transactions.take()))?,
            data_phases: Py::new(py, Table::of_batches(rows.data_phases.take()))?,
            left: serde_json::to_vec(&left).expect("numbers and names"),
        })
    });
    Ok((stretches.collect::<PyResult<_>>()?, frames))
}

/// All but the rows, of each bus, from what its stretches left: `left` has of each stretch what is left of each bus.
#[pyfunction]
#[pyo3(signature = (capture, buses, left, *, rate_hz = None, clock_mhz = None))]
fn join_stretches(
    py: Python<'_>,
    capture: &Capture,
    buses: Vec<PySpec>,
    left: Vec<Vec<PyBackedBytes>>,
    rate_hz: Option<f64>,
    clock_mhz: Option<f64>,
) -> PyResult<Vec<Decoded>> {
    let read = |bytes: &PyBackedBytes| -> Result<Left> {
        serde_json::from_slice(bytes).map_err(|error| Error::Decode(format!("what a stretch left is damaged: {error}")))
    };
    let joined = interruptible(py, || {
        let specs = buses.into_iter().map(|spec| spec.check(&capture.opened)).collect::<Result<Vec<_>>>()?;
        let left = left.iter().map(|buses| buses.iter().map(read).collect()).collect::<Result<Vec<_>>>()?;
        let options = Options { rate_hz, clock_mhz, ..Options::default() };
        stretch::join(&capture.opened, &specs, &options, left)
    })?;
    joined.into_iter().map(|decoded| Decoded::of(py, decoded, None)).collect()
}

pub fn register_in(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<StretchRows>()?;
    module.add_function(wrap_pyfunction!(stretch_edges, module)?)?;
    module.add_function(wrap_pyfunction!(decode_stretch, module)?)?;
    module.add_function(wrap_pyfunction!(join_stretches, module)?)
}
