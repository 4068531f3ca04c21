//! The cheapest reading of a sequence of items, and by how much every part of it is cheaper than any other.
//!
//! Items come in order of time. Each is left over, or belongs to a segment of one of two tracks: it begins the segment,
//! goes on in it, ends it, or is all of it. A segment claims one of its track's targets, which are claimed in their order
//! and may be skipped, or none. Costs are negative logarithms of probabilities, from tables that the caller fills; nothing
//! here knows what items, tracks and targets are. See `docs/how-it-decides.md`.
//!
//! The decoder is a Viterbi search whose states are bounded (`Limits`), so that its work is linear in the items. A
//! second pass, backwards, gives margins where they are asked for: how much the best reading costs more in which a label
//! differs (max-marginals: Wainwright and Jordan 2008, chapter 8).

pub mod learned;
mod model;
#[cfg(feature = "python")]
pub(crate) mod python;
pub mod releases;
mod search;
mod shared;
mod states;

pub use model::{BINS, Costs, Items, Limits, Targets, bin};
pub use search::{Reading, read};
