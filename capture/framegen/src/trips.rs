//! Round trips as histograms: for scans whose logs would not fit anywhere.

use crate::log::Row;
use crate::stats::{Distribution, distribution};
use std::collections::BTreeMap;

/// Round trips of one point, counted in bins of `bin_ns`; nothing lies outside.
#[derive(Clone, Debug)]
pub struct Trips {
    bin_ns: i64,
    /// By node and bin.
    counts: BTreeMap<(u16, i64), u64>,
}

/// One bin that is not empty, as a row of `histograms.npy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bin {
    pub point: u32,
    pub length_bytes: u32,
    pub node: u16,
    pub stream: u16,
    pub low_ns: i64,
    pub count: u64,
}

impl Row for Bin {
    const DTYPE: &str = "[('point', '<u4'), ('length_bytes', '<u4'), ('node', '<u2'), ('stream', '<u2'), \
                         ('low_ns', '<i8'), ('count', '<u8')]";
    const BYTES: usize = 28;

    fn write(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.point.to_le_bytes());
        out.extend_from_slice(&self.length_bytes.to_le_bytes());
        out.extend_from_slice(&self.node.to_le_bytes());
        out.extend_from_slice(&self.stream.to_le_bytes());
        out.extend_from_slice(&self.low_ns.to_le_bytes());
        out.extend_from_slice(&self.count.to_le_bytes());
    }
}

impl Trips {
    pub fn new(bin_ns: u32) -> Trips {
        Trips { bin_ns: i64::from(bin_ns.max(1)), counts: BTreeMap::new() }
    }

    pub fn add(&mut self, node: u16, trip_ns: i64) {
        *self.counts.entry((node, trip_ns.div_euclid(self.bin_ns))).or_default() += 1;
    }

    pub fn rows(&self, point: u32, length_bytes: u32) -> Vec<Bin> {
        let row = |(&(node, bin), &count): (&(u16, i64), &u64)| Bin {
            point,
            length_bytes,
            node,
            stream: 1,
            low_ns: bin * self.bin_ns,
            count,
        };
        self.counts.iter().map(row).collect()
    }

    /// Of one node, in µs, as if each value were the middle of its bin.
    pub fn distribution(&self, node: u16) -> Option<Distribution> {
        let mut values = Vec::new();
        for (&(_, bin), &count) in self.counts.range((node, i64::MIN)..=(node, i64::MAX)) {
            let middle = (bin as f64 + 0.5) * self.bin_ns as f64 / 1e3;
            values.extend(std::iter::repeat_n(middle, count as usize));
        }
        distribution(values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_in_one_bin() {
        let mut trips = Trips::new(10);
        for ns in [0, 9, 10, 10, 1_000_000_007] {
            trips.add(1, ns);
        }
        trips.add(2, 5);
        let rows: Vec<(u16, i64, u64)> =
            trips.rows(3, 64).iter().map(|row| (row.node, row.low_ns, row.count)).collect();
        assert_eq!(rows, [(1, 0, 2), (1, 10, 2), (1, 1_000_000_000, 1), (2, 0, 1)]);
        assert_eq!(trips.distribution(1).map(|d| (d.n, d.min)), Some((5, 0.005)));
        assert_eq!(trips.distribution(3), None);
        let mut bytes = Vec::new();
        trips.rows(3, 64)[0].write(&mut bytes);
        assert_eq!(bytes.len(), Bin::BYTES);
    }
}
