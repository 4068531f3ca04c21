//! What the fuzz targets share.

pub mod bus;
pub mod files;
pub mod memory;
