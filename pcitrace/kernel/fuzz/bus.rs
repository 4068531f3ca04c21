//! Any bits as a bus, decoded in every way: the rows must be the same.

use pcitrace_kernel::capture::{Capture, Channel, Data};
use pcitrace_kernel::error::Result;
use pcitrace_kernel::layout::{BusSpec, Source};
use pcitrace_kernel::pipeline::{BusTables, Decoded, Options, Sink, decode};
use pcitrace_kernel::rows::Rows;

/// One channel each, in this order.
pub const LINES: [&str; 16] = [
    "CLK", "FRAME#", "IRDY#", "TRDY#", "DEVSEL#", "STOP#", "CBE0#", "CBE1#", "CBE2#", "CBE3#", "GNT0#", "GNT1#",
    "PERR#", "RST#", "PAR", "REQ64#",
];

/// Lines 4 and up are there where `captured` has their bit.
pub fn bus(captured: u16) -> BusSpec {
    let lines = LINES.iter().enumerate().filter(|(n, _)| *n < 4 || captured >> n & 1 == 1);
    let source = |channel, name: &str| Source { channel, bit: 0, active_low: name.ends_with('#') };
    BusSpec { name: "A".into(), width: None, lines: lines.map(|(n, name)| ((*name).into(), source(n, name))).collect() }
}

pub fn capture(data: Data) -> Capture {
    let channels = LINES.iter().map(|name| Channel { name: (*name).into(), width: 1 }).collect();
    Capture { path: "fuzz".into(), format: "fuzz", channels, data }
}

#[derive(Default)]
struct Collected(String);

impl Sink for Collected {
    fn begin(&mut self, _: &[BusTables]) -> Result<()> {
        Ok(())
    }

    fn rows(&mut self, _: usize, rows: Rows) -> Result<()> {
        for transaction in rows.transactions {
            self.0 += &format!("{transaction:?}\n");
        }
        Ok(())
    }

    fn reached(&mut self, _: usize, _: u64) -> Result<()> {
        Ok(())
    }
}

/// Rows, problems and counts in words; `None` where there is nothing to decode.
pub fn decoded(capture: &Capture, spec: &BusSpec, options: &Options) -> Option<String> {
    let mut rows = Collected::default();
    let buses = decode(capture, std::slice::from_ref(spec), options, &mut rows, &mut |_| true).ok()?;
    let Decoded { transactions, problems, windows, .. } = &buses[0];
    Some(format!("{}{transactions}\n{problems:?}\n{windows:?}", rows.0))
}
