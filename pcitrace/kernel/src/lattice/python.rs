//! `pcitrace._kernel.read_lattice`: tables and columns come as buffers, attribute by attribute.

use super::learned::{Prior, Seen, learn, likeliest};
use super::model::{ALONE, CONTEXTS, Costs, Items, Limits, Targets, TrackCosts};
use super::{BINS, read, releases};
use crate::python::interruptible;
use pyo3::buffer::{Element, PyBuffer};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes};

type Any<'a, 'py> = &'a Bound<'py, PyAny>;

/// The label, target, margins of each item and what bounds these as bytes of u8, i64, four f32 and one, and the cost of
/// the reading.
type Columns<'py> = (Bound<'py, PyBytes>, Bound<'py, PyBytes>, Bound<'py, PyBytes>, Bound<'py, PyBytes>, f64);

fn column<T: Element>(from: Any<'_, '_>, name: &str) -> PyResult<Vec<T>> {
    PyBuffer::<T>::get(&from.getattr(name)?)?.to_vec(from.py())
}

fn flags(from: Any<'_, '_>, name: &str) -> PyResult<Vec<bool>> {
    Ok(column::<u8>(from, name)?.into_iter().map(|flag| flag != 0).collect())
}

/// The rows of a table of costs.
fn rows<const N: usize>(from: Any<'_, '_>, name: &str, width: usize) -> PyResult<[Vec<f32>; N]> {
    let all: Vec<f32> = column(from, name)?;
    if width == 0 || all.len() != N * width {
        return Err(PyValueError::new_err(format!("{name} has {} costs, not {N} rows of {width}", all.len())));
    }
    Ok(std::array::from_fn(|row| all[row * width..(row + 1) * width].to_vec()))
}

/// One row of costs over times.
fn times(from: Any<'_, '_>, name: &str) -> PyResult<Vec<f32>> {
    let [row] = rows::<1>(from, name, BINS)?;
    Ok(row)
}

fn fixed<const N: usize>(all: &[f32]) -> [f32; N] {
    std::array::from_fn(|at| all[at])
}

/// Numbers as bytes, for numpy.
fn bytes<const N: usize>(all: impl ExactSizeIterator<Item = [u8; N]>) -> Vec<u8> {
    let mut out = vec![0; N * all.len()];
    out.chunks_exact_mut(N).zip(all).for_each(|(to, from)| to.copy_from_slice(&from));
    out
}

fn floats(all: &[f32]) -> Vec<u8> {
    bytes(all.iter().map(|one| one.to_ne_bytes()))
}

fn items(from: Any<'_, '_>) -> PyResult<Items> {
    let alone: Vec<f32> = column(from, "alone")?;
    let items = Items {
        begin_us: column(from, "begin_us")?,
        ready_us: column(from, "ready_us")?,
        end_us: column(from, "end_us")?,
        units: column(from, "units")?,
        cut: flags(from, "cut")?,
        place: column(from, "place")?,
        next_place: column(from, "next_place")?,
        alone: alone.chunks_exact(ALONE).map(fixed).collect(),
    };
    let count = items.len();
    let same = [items.ready_us.len(), items.end_us.len(), items.units.len(), items.cut.len(), items.place.len()];
    if same.iter().chain(&[items.next_place.len(), items.alone.len()]).any(|len| *len != count) {
        return Err(PyValueError::new_err("columns of items differ in length"));
    }
    Ok(items)
}

fn targets(from: Any<'_, '_>) -> PyResult<Targets> {
    let targets = Targets {
        time_us: column(from, "time_us")?,
        least: column(from, "least")?,
        most: column(from, "most")?,
        held: flags(from, "held")?,
        skip: column(from, "skip")?,
        after: from.getattr("after")?.extract()?,
        at_begin: from.getattr("at_begin")?.extract()?,
        bound_us: column(from, "bound_us")?,
        beyond: from.getattr("beyond")?.extract()?,
        again: from.getattr("again")?.extract()?,
    };
    let count = targets.time_us.len();
    let same = [targets.least.len(), targets.most.len(), targets.held.len(), targets.skip.len()];
    if same.iter().chain(&[targets.bound_us.len()]).any(|len| *len != count) {
        return Err(PyValueError::new_err("columns of targets differ in length"));
    }
    Ok(targets)
}

fn track(from: Any<'_, '_>) -> PyResult<TrackCosts> {
    let excess: Vec<f32> = column(from, "excess")?;
    let middle: Vec<f32> = column(from, "middle")?;
    let unclaimed: Vec<f32> = column(from, "unclaimed")?;
    let places: Vec<f32> = column(from, "places")?;
    if places.len() != 3 || unclaimed.is_empty() {
        return Err(PyValueError::new_err("places are three costs, unclaimed at least one"));
    }
    Ok(TrackCosts {
        goes_on: rows(from, "goes_on", BINS)?,
        resumes: rows(from, "resumes", BINS)?,
        after_others: times(from, "after_others")?,
        begins: rows(from, "begins", BINS)?,
        lag: rows(from, "lag", BINS)?,
        claims: rows(from, "claims", BINS)?,
        excess: rows(from, "excess", excess.len() / 2)?,
        excess_zero: from.getattr("excess_zero")?.extract()?,
        middle: rows(from, "middle", middle.len() / 3)?,
        singles: from.getattr("singles")?.extract()?,
        header: from.getattr("header")?.extract()?,
        unclaimed,
        places: fixed(&places),
    })
}

fn costs(from: Any<'_, '_>) -> PyResult<Costs> {
    let follows = rows::<{ 4 * CONTEXTS }>(from, "follows", 5)?;
    let other: [Vec<f32>; 2 * CONTEXTS] = rows(from, "other", BINS)?;
    let other_units: Vec<f32> = column(from, "other_units")?;
    let (first, second): (Bound<'_, PyAny>, Bound<'_, PyAny>) = from.getattr("tracks")?.extract()?;
    Ok(Costs {
        tracks: [track(&first)?, track(&second)?],
        other: std::array::from_fn(|row| [other[2 * row].clone(), other[2 * row + 1].clone()]),
        other_units: rows(from, "other_units", other_units.len() / CONTEXTS)?,
        follows: std::array::from_fn(|row| fixed(&follows[row])),
        back: from.getattr("back")?.extract()?,
        unit: from.getattr("unit")?.extract::<i64>()?.max(1),
        apart: from.getattr("apart")?.extract()?,
        joined: from.getattr("joined")?.extract()?,
    })
}

/// Read a sequence of items at the least cost; see `pcitrace.lattice`.
#[pyfunction]
#[pyo3(signature = (sequence, goals, table, *, states, cost, block, margins))]
#[allow(clippy::too_many_arguments)] // Python's keywords
pub fn read_lattice<'py>(
    py: Python<'py>,
    sequence: Any<'_, 'py>,
    goals: (Bound<'py, PyAny>, Bound<'py, PyAny>),
    table: Any<'_, 'py>,
    states: usize,
    cost: f32,
    block: usize,
    margins: bool,
) -> PyResult<Columns<'py>> {
    let sequence = items(sequence)?;
    let goals = [targets(&goals.0)?, targets(&goals.1)?];
    let table = costs(table)?;
    let limits = Limits { states: states.max(1), cost, items: block.max(1), margins };
    let reading = interruptible(py, || read(&sequence, &goals, &table, &limits))?;
    let target = bytes(reading.target.iter().map(|target| target.to_ne_bytes()));
    let margins = PyBytes::new(py, &floats(reading.margins.as_flattened()));
    let bound = PyBytes::new(py, &floats(&reading.bound));
    Ok((PyBytes::new(py, &reading.label), PyBytes::new(py, &target), margins, bound, reading.cost))
}

/// The units of segments, without what was moved again after cuts; see `pcitrace.lattice`.
#[pyfunction]
pub fn segment_units<'py>(
    py: Python<'py>,
    units: PyBuffer<u32>,
    cut: PyBuffer<u8>,
    begins: PyBuffer<u8>,
    again: u32,
) -> PyResult<Bound<'py, PyBytes>> {
    let set = |flags: PyBuffer<u8>| flags.to_vec(py).map(|all| all.iter().map(|flag| *flag != 0).collect::<Vec<_>>());
    let (units, cut, begins) = (units.to_vec(py)?, set(cut)?, set(begins)?);
    if [cut.len(), begins.len()] != [units.len(); 2] {
        return Err(PyValueError::new_err("columns of items differ in length"));
    }
    let found = super::model::segment_units(&units, &cut, &begins, again);
    Ok(PyBytes::new(py, &bytes(found.into_iter().map(|one| i64::from(one).to_ne_bytes()))))
}

/// Which of two kinds each item is; see `pcitrace.lattice`.
#[pyfunction]
pub fn likeliest_kinds<'py>(
    py: Python<'py>,
    costs: PyBuffer<f32>,
    group: PyBuffer<i64>,
) -> PyResult<Bound<'py, PyBytes>> {
    let (costs, group) = (costs.to_vec(py)?, group.to_vec(py)?);
    let costs: Vec<[f32; 2]> = costs.chunks_exact(2).map(fixed).collect();
    if costs.len() != group.len() {
        return Err(PyValueError::new_err("each item has two costs and a group"));
    }
    Ok(PyBytes::new(py, &likeliest(&costs, &group)))
}

/// The bin of each time in a table of costs over times.
#[pyfunction]
pub fn lattice_bins<'py>(py: Python<'py>, times_us: PyBuffer<f64>) -> PyResult<Bound<'py, PyBytes>> {
    let bins = bytes(times_us.to_vec(py)?.into_iter().map(|us| (super::bin(us) as u16).to_ne_bytes()));
    Ok(PyBytes::new(py, &bins))
}

/// Learn a table of costs, a row a group, from the entries that were seen; and what learning it cost. See
/// `pcitrace.lattice.Learner`.
#[pyfunction]
#[pyo3(signature = (values, group, prior, *, rows, columns, weight, times, kept = None))]
#[allow(clippy::too_many_arguments)] // Python's keywords
pub fn learn_costs<'py>(
    py: Python<'py>,
    values: PyBuffer<i64>,
    group: PyBuffer<i64>,
    prior: PyBuffer<f32>,
    rows: usize,
    columns: usize,
    weight: f64,
    times: bool,
    kept: Option<PyBuffer<u8>>,
) -> PyResult<(Bound<'py, PyByteArray>, f64)> {
    let (entry, row, first) = (values.to_vec(py)?, group.to_vec(py)?, prior.to_vec(py)?);
    let kept = kept.map(|kept| kept.to_vec(py)).transpose()?;
    let (seen, prior) = (Seen { entry: &entry, row: &row, rows }, Prior { costs: &first, columns, weight, times });
    let (costs, nats) = learn(&seen, &prior, kept.as_deref())
        .ok_or_else(|| PyValueError::new_err("something was seen of no entry, or columns differ in length"))?;
    Ok((PyByteArray::new(py, &floats(&costs)), nats))
}

/// The first and last item that release each target, two margins each, the margin of each item, the cost.
type Released<'py> = (Bound<'py, PyBytes>, Bound<'py, PyBytes>, Bound<'py, PyBytes>, Bound<'py, PyBytes>, f64);

/// Read which items release which targets; see `pcitrace.releases`.
#[pyfunction]
#[pyo3(signature = (sequence, goals, table, *, nodes, cost, margins))]
#[allow(clippy::too_many_arguments)] // Python's keywords
pub fn read_releases<'py>(
    py: Python<'py>,
    sequence: Any<'_, 'py>,
    goals: Any<'_, 'py>,
    table: Any<'_, 'py>,
    nodes: usize,
    cost: f64,
    margins: bool,
) -> PyResult<Released<'py>> {
    let place: Vec<f32> = column(sequence, "place")?;
    let items = releases::Items {
        time_us: column(sequence, "time_us")?,
        other: column(sequence, "other")?,
        beyond: column(sequence, "beyond")?,
        place: place.chunks_exact(releases::PLACES).map(fixed).collect(),
        joins: column(sequence, "joins")?,
        count: column(sequence, "count")?,
        key: column(sequence, "key")?,
    };
    let targets = releases::Targets {
        time_us: column(goals, "time_us")?,
        ready_us: column(goals, "ready_us")?,
        free_us: column(goals, "free_us")?,
        waited: column(goals, "waited")?,
        skip: column(goals, "skip")?,
        key: column(goals, "key")?,
    };
    let width: usize = table.getattr("longest")?.extract()?;
    let shape: Vec<f32> = column(table, "shape")?;
    let same = [items.other.len(), items.beyond.len(), items.place.len(), items.joins.len(), items.count.len()];
    let alike = [targets.ready_us.len(), targets.free_us.len(), targets.waited.len()];
    if same.iter().chain(&[items.key.len()]).any(|len| *len != items.time_us.len())
        || alike.iter().chain(&[targets.skip.len(), targets.key.len()]).any(|len| *len != targets.time_us.len())
        || width == 0
        || shape.len() < width
    {
        return Err(PyValueError::new_err("columns of items or targets differ in length, or there is no shape"));
    }
    if width.max(shape.len() / width) > releases::LONGEST {
        let most = releases::LONGEST;
        return Err(PyValueError::new_err(format!("a segment has at most {most} items, and releases as many targets")));
    }
    let costs = releases::Costs {
        lag: times(table, "lag")?,
        shape: shape.chunks_exact(width).map(<[f32]>::to_vec).collect(),
        keys: table.getattr("keys")?.extract()?,
        miscount: table.getattr("miscount")?.extract()?,
        before: table.getattr("before")?.extract()?,
    };
    let limits = releases::Limits { nodes: nodes.max(1), cost, margins };
    let found = interruptible(py, || releases::read(&items, &targets, &costs, &limits))?;
    let numbers = |all: &[u32]| bytes(all.iter().map(|one| (*one as i32).to_ne_bytes()));
    Ok((
        PyBytes::new(py, &numbers(&found.first)),
        PyBytes::new(py, &numbers(&found.last)),
        PyBytes::new(py, &floats(found.margins.as_flattened())),
        PyBytes::new(py, &floats(&found.item)),
        found.cost,
    ))
}
