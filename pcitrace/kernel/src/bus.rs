//! One bus of a capture, whatever its protocol: what its tables need to know of it, and what its numbers count from.

use crate::time::TimeBase;
use serde::{Deserialize, Serialize};

/// What the tables of one bus need to know of it, whose lines lie in the samples as `L` says.
#[derive(Debug, Clone)]
pub struct BusTables<L> {
    pub name: String,
    /// Its place among the buses.
    pub index: usize,
    pub layout: L,
    pub time: TimeBase,
}

/// What transaction numbers and clocks in rows count from, in a capture that several decoders make up.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    pub clocks: u64,
    pub transactions: u64,
}

/// A row with numbers that count from its decoder's own start.
pub trait Counted {
    /// They count from the start of the capture, after this.
    fn counted_from(self, origin: Origin) -> Self;
}
