//! What the decoder and the rules work on.

/// The control lines at every clock of a block, 1 = asserted.
#[derive(Debug, Clone, Copy)]
pub struct Word {
    pub frame: u64,
    pub irdy: u64,
    pub trdy: u64,
    pub stop: u64,
    pub devsel: u64,
    /// No known level on FRAME#, IRDY#, TRDY# or STOP#.
    pub unknown: u64,
    pub reset: u64,
    /// A control line differs between the last two samples before the edge.
    pub suspect: u64,
}
