//! Samples to bitmaps of clocks. Nothing here knows which bus it is.

pub mod ahead;
pub mod bits;
pub mod block;
pub mod changes;
pub mod dense;
pub(crate) mod lanes;
pub(crate) mod look;
pub mod places;
pub mod steady;
pub mod taken;

/// Samples that are read in one go: as many as a bitmap has bits.
pub const BLOCK: usize = 64;
