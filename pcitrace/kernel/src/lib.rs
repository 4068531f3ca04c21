//! The decode kernel of pcitrace: capture files in, PCI transactions out. See `docs/design.md`.

pub mod bits;
pub mod block;
pub mod capture;
pub mod cells;
pub mod clocking;
pub mod columns;
pub mod cut;
pub mod dense;
pub mod error;
pub mod events;
pub mod fst;
pub mod in_order;
pub mod interrupt;
pub mod keep;
pub mod lane;
mod lanes;
pub mod lattice;
pub mod layout;
pub mod lines;
pub mod listing;
mod look;
pub mod memory;
pub mod parts;
pub mod phases;
pub mod pipeline;
pub mod problems;
pub mod protocol;
pub mod pyramid;
pub mod read;
pub mod records;
pub mod recover;
pub mod rows;
pub mod rules;
pub mod steady;
pub mod stream;
pub mod stretch;
pub mod suspects;
pub mod tables;
pub mod tiles;
pub mod waves;
pub mod windows;
pub mod wire;
pub mod write;

#[cfg(feature = "python")]
mod python;
#[cfg(feature = "python")]
mod python_lines;
#[cfg(feature = "python")]
mod python_parts;
#[cfg(feature = "python")]
mod python_stretch;
