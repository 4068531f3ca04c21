//! What a picture draws where its pixels are wider than rows: time in equal bins, and in bins of twice, four times ... that.
//!
//! Of spans (transactions) it is the share of each bin's time that they cover; coarser bins follow by adding. Of a line it is
//! the level where it keeps one through a bin, and that it changes where it does not; the coarser bins are given, too.

/// A line that changes within a bin; the levels are those of `waves`.
pub const CHANGES: u8 = 3;

/// Equal bins from `first` to before `last`, in samples or ticks.
#[derive(Debug, Clone, Copy)]
pub struct Bins {
    pub first: u64,
    pub last: u64,
    pub count: usize,
}

impl Bins {
    /// `stamp` in bins from the first one.
    fn place(&self, stamp: u64) -> f64 {
        let within = stamp.clamp(self.first, self.last) - self.first;
        within as f64 * self.count as f64 / (self.last - self.first).max(1) as f64
    }
}

/// The share of each bin that spans cover, kind after kind, in 1/65535; never 0 where a span touches the bin.
///
/// # Panics
/// `start`, `end` and `kind` are not of one length, or a kind is not below `kinds`.
pub fn coverage(start: &[u64], end: &[u64], kind: &[u8], kinds: usize, bins: Bins) -> Vec<u16> {
    assert!(start.len() == end.len() && start.len() == kind.len());
    let mut covered = vec![0f64; kinds * bins.count];
    for ((&start, &end), &kind) in start.iter().zip(end).zip(kind) {
        let of = &mut covered[usize::from(kind) * bins.count..][..bins.count];
        let (from, to) = (bins.place(start), bins.place(end));
        let (begin, stop) = ((from as usize).min(bins.count - 1), (to as usize).min(bins.count - 1));
        for (bin, share) in of.iter_mut().enumerate().take(stop + 1).skip(begin) {
            let inside = to.min((bin + 1) as f64) - from.max(bin as f64);
            *share += inside.max(f64::MIN_POSITIVE);
        }
    }
    covered.iter().map(|share| (share * 65535.0).ceil().min(65535.0) as u16).collect()
}

/// What a line is at in each bin, then in each two of them, and so on to one for all.
///
/// # Panics
/// The number of bins is no power of two, or `stamps` and `levels` are not of one length.
pub fn levels(stamps: &[u64], levels: &[u8], bins: Bins) -> Vec<u8> {
    assert!(bins.count.is_power_of_two() && stamps.len() == levels.len());
    let mut out = Vec::with_capacity(2 * bins.count);
    let (mut next, mut level) = (0, crate::waves::UNKNOWN);
    for bin in 0..bins.count {
        // A change at the very begin of a bin is none within it.
        while next < stamps.len() && bins.place(stamps[next]) <= bin as f64 {
            level = levels[next];
            next += 1;
        }
        let mut seen = level;
        while next < stamps.len() && bins.place(stamps[next]) < (bin + 1) as f64 {
            (seen, level) = (CHANGES, levels[next]);
            next += 1;
        }
        out.push(seen);
    }
    let (mut at, mut count) = (0, bins.count);
    while count > 1 {
        for pair in 0..count / 2 {
            let (one, other) = (out[at + 2 * pair], out[at + 2 * pair + 1]);
            out.push(if one == other { one } else { CHANGES });
        }
        (at, count) = (at + count, count / 2);
    }
    out
}

#[cfg(feature = "python")]
pub mod python {
    //! Of `pcitrace._kernel`.

    use super::Bins;
    use pyo3::buffer::PyBuffer;
    use pyo3::exceptions::PyValueError;
    use pyo3::prelude::*;
    use pyo3::types::PyBytes;

    /// What bins cover, as little-endian u16.
    #[pyfunction]
    fn coverage<'py>(
        py: Python<'py>,
        start: PyBuffer<u64>,
        end: PyBuffer<u64>,
        kind: PyBuffer<u8>,
        kinds: usize,
        bins: (u64, u64, usize),
    ) -> PyResult<Bound<'py, PyBytes>> {
        let (start, end, kind) = (start.to_vec(py)?, end.to_vec(py)?, kind.to_vec(py)?);
        if start.len() != end.len() || start.len() != kind.len() {
            return Err(PyValueError::new_err("start, end and kind are not of one length"));
        }
        if kind.iter().any(|&kind| usize::from(kind) >= kinds) {
            return Err(PyValueError::new_err("a kind is not below kinds"));
        }
        let made = super::coverage(&start, &end, &kind, kinds, checked(bins)?);
        Ok(PyBytes::new(py, &made.iter().flat_map(|share| share.to_le_bytes()).collect::<Vec<_>>()))
    }

    /// What a line is at in bins, in bins of twice their length, and so on.
    #[pyfunction]
    fn line_levels<'py>(
        py: Python<'py>,
        stamps: PyBuffer<u64>,
        levels: PyBuffer<u8>,
        bins: (u64, u64, usize),
    ) -> PyResult<Bound<'py, PyBytes>> {
        let (stamps, levels) = (stamps.to_vec(py)?, levels.to_vec(py)?);
        if stamps.len() != levels.len() {
            return Err(PyValueError::new_err("stamps and levels are not of one length"));
        }
        Ok(PyBytes::new(py, &super::levels(&stamps, &levels, checked(bins)?)))
    }

    fn checked((first, last, count): (u64, u64, usize)) -> PyResult<Bins> {
        if count.is_power_of_two() && first < last {
            return Ok(Bins { first, last, count });
        }
        Err(PyValueError::new_err("bins: first, last behind it, and how many, a power of two"))
    }

    pub fn register_in(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add_function(wrap_pyfunction!(coverage, module)?)?;
        module.add_function(wrap_pyfunction!(line_levels, module)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn random(state: &mut u64, below: u64) -> u64 {
        *state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (*state >> 33) % below
    }

    #[test]
    fn bins_cover_what_counting_sample_by_sample_says() {
        let mut state = 5;
        for _ in 0..30 {
            let bins = Bins { first: random(&mut state, 50), last: 700, count: 1 << random(&mut state, 6) };
            let (mut start, mut end, mut kind, mut at) = (vec![], vec![], vec![], bins.first);
            while at < 640 {
                start.push(at + random(&mut state, 40));
                end.push((start.last().unwrap() + random(&mut state, 90)).min(699));
                kind.push(random(&mut state, 3) as u8);
                at = *end.last().unwrap() + 1;
            }
            let made = coverage(&start, &end, &kind, 3, bins);
            let wide = (bins.last - bins.first) as f64 / bins.count as f64;
            for (number, share) in made.iter().enumerate() {
                let (of, bin) = (number / bins.count, number % bins.count);
                let (low, high) = (bins.first as f64 + bin as f64 * wide, bins.first as f64 + (bin + 1) as f64 * wide);
                let mut sum = 0.0;
                let mut touched = false;
                for row in (0..start.len()).filter(|&row| usize::from(kind[row]) == of) {
                    for sample in start[row]..end[row] {
                        sum += (high.min((sample + 1) as f64) - low.max(sample as f64)).max(0.0) / wide;
                    }
                    touched |= (start[row] as f64) < high && end[row] as f64 >= low;
                }
                assert!((f64::from(*share) / 65535.0 - sum).abs() < 2e-5, "{share} {sum}");
                assert_eq!(*share > 0, touched, "{bins:?} {number}");
            }
        }
    }

    #[test]
    fn a_line_is_what_its_samples_are() {
        let mut state = 9;
        for _ in 0..30 {
            let (count, length) = (1usize << random(&mut state, 6), 1 + random(&mut state, 900));
            let bins = Bins { first: 0, last: length, count };
            let samples: Vec<u8> = (0..length)
                .scan(0, |level, _| {
                    if random(&mut state, 20) == 0 {
                        *level = random(&mut state, 3) as u8;
                    }
                    Some(*level)
                })
                .collect();
            let stamps: Vec<u64> =
                (0..length).filter(|&at| at == 0 || samples[at as usize] != samples[at as usize - 1]).collect();
            let to: Vec<u8> = stamps.iter().map(|&at| samples[at as usize]).collect();
            let made = levels(&stamps, &to, bins);
            let (mut at, mut many) = (0, count);
            loop {
                for bin in 0..many {
                    // Samples whose time lies in the bin, the one that goes on into it included.
                    let from = (bin as u64 * length / many as u64) as usize;
                    let until = ((bin as u64 + 1) * length).div_ceil(many as u64) as usize;
                    let seen = &samples[from..until];
                    let wanted = if seen.iter().all(|one| *one == seen[0]) { seen[0] } else { CHANGES };
                    assert_eq!(made[at + bin], wanted, "{bin} of {many}, {length} samples");
                }
                if many == 1 {
                    break;
                }
                (at, many) = (at + many, many / 2);
            }
            assert_eq!(made.len(), at + 1);
        }
    }
}
