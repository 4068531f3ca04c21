//! A capture of PCI buses, decoded.

mod file_problems;
pub mod files;
pub mod memory;
