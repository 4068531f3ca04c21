//! The decode kernel of pcitrace: capture files in, PCI transactions out. See `docs/design.md`.
//!
//! `read` gives the samples of a file, `samples` makes bitmaps of clocks of them, `pci` makes rows of these, `columns` and
//! `write` make tables of rows; `pipeline` drives decoders through a capture. What knows PCI is in `pci`.

pub mod bus;
pub mod capture;
pub mod columns;
pub mod error;
pub mod fst;
pub mod in_order;
pub mod interrupt;
pub mod lane;
pub mod lattice;
pub mod lines;
pub mod memory;
pub mod pci;
pub mod pipeline;
pub mod pyramid;
pub mod read;
pub mod samples;
pub mod time;
pub mod waves;
pub mod wire;
pub mod write;

#[cfg(feature = "python")]
mod python;

// Tests of the whole, which know it by its name. They are part of the one test program: by themselves they would need all of
// the kernel compiled once more.
#[cfg(test)]
extern crate self as pcitrace_kernel;
#[cfg(test)]
#[path = "../tests/fuzz_smoke.rs"]
mod fuzz_smoke;
#[cfg(test)]
#[path = "../tests/readers_agree.rs"]
mod readers_agree;
