//! The decode kernel of pcitrace: capture files in, PCI transactions out. See `docs/design.md`.

pub mod bits;
pub mod block;
pub mod capture;
pub mod clocking;
pub mod cut;
pub mod error;
pub mod in_order;
pub mod layout;
pub mod memory;
pub mod pipeline;
pub mod protocol;
pub mod read;
pub mod records;
pub mod recover;
pub mod rows;
pub mod steady;
pub mod tables;
pub mod windows;
pub mod wire;
pub mod write;

#[cfg(feature = "python")]
mod python;
