//! The PCI bus: which lines there are, what goes on on them, which rules hold, and the rows that come of it.

pub mod clocking;
pub mod decoding;
pub mod events;
pub mod layout;
pub mod listing;
mod packing;
pub mod phases;
pub mod problems;
pub mod protocol;
pub mod rows;
pub mod rules;
pub mod suspects;
pub mod tables;
pub mod tiles;
pub mod windows;
pub mod word;
