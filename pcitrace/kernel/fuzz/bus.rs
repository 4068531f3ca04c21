//! Any bits as a bus, decoded in every way: the rows must be the same.

use pcitrace_kernel::capture::{Capture, Changes, Channel, Chunk, Data, Limb, Sampled, Signal};
use pcitrace_kernel::error::Result;
use pcitrace_kernel::layout::{BusSpec, Source};
use pcitrace_kernel::pipeline::{BusTables, Decoded, Options, Sink, decode};
use pcitrace_kernel::rows::{Origin, Rows};

/// One channel each, in this order.
const LINES: [&str; 16] = [
    "CLK", "FRAME#", "IRDY#", "TRDY#", "DEVSEL#", "STOP#", "CBE0#", "CBE1#", "CBE2#", "CBE3#", "GNT0#", "GNT1#",
    "PERR#", "RST#", "PAR", "REQ64#",
];

/// Lines 4 and up are there where `captured` has their bit.
fn bus(captured: u16) -> BusSpec {
    let lines = LINES.iter().enumerate().filter(|(n, _)| *n < 4 || captured >> n & 1 == 1);
    let source = |channel, name: &str| Source { channel, bit: 0, active_low: name.ends_with('#') };
    BusSpec { name: "A".into(), width: None, lines: lines.map(|(n, name)| ((*name).into(), source(n, name))).collect() }
}

fn capture_of(data: Data) -> Capture {
    let channels = LINES.iter().map(|name| Channel { name: (*name).into(), width: 1 }).collect();
    Capture { path: "fuzz".into(), format: "fuzz", channels, data, notes: Vec::new(), captures: 1 }
}

#[derive(Default)]
struct Collected(String);

impl Sink for Collected {
    type Gathered = Rows;

    fn begin(&mut self, buses: &[BusTables]) -> Result<Vec<Rows>> {
        Ok(vec![Rows::default(); buses.len()])
    }

    fn rows(&mut self, _: usize, origin: Origin, rows: Rows) -> Result<()> {
        for transaction in rows.counted_from(origin).transactions {
            self.0 += &format!("{transaction:?}\n");
        }
        Ok(())
    }

    fn reached(&mut self, _: usize, _: u64) -> Result<()> {
        Ok(())
    }
}

/// Rows, problems and counts in words; `None` where there is nothing to decode.
fn decoded(capture: &Capture, spec: &BusSpec, options: &Options) -> Option<String> {
    let mut rows = Collected::default();
    let buses = decode(capture, std::slice::from_ref(spec), options, &mut rows, &mut |_| true).ok()?;
    let Decoded { transactions, problems, windows, .. } = &buses[0];
    Some(format!("{}{transactions}\n{problems:?}\n{windows:?}", rows.0))
}

struct Samples {
    bytes: Vec<u8>,
    chunk_bytes: usize,
    bits: Vec<usize>,
}

impl Sampled for Samples {
    fn unit_size(&self) -> usize {
        2
    }

    fn bits(&self) -> &[usize] {
        &self.bits
    }

    fn rate_hz(&self) -> Option<f64> {
        Some(1e8)
    }

    fn total_bytes(&self) -> Option<u64> {
        Some(self.bytes.len() as u64)
    }

    fn chunks(&self) -> Box<dyn Iterator<Item = Result<Chunk<'_>>> + Send + '_> {
        let chunks = self.bytes.chunks(self.chunk_bytes).enumerate();
        Box::new(chunks.map(|(n, chunk)| Ok(Chunk::ready((n * self.chunk_bytes) as u64, chunk))))
    }
}

/// Rows do not depend on the processor's instructions, nor on how the capture is cut. The input is options (mode, lines,
/// cuts), then samples of two bytes.
pub fn check_samples(input: &[u8]) {
    let Some((&[mode, low, high, cut], bytes)) = input.split_first_chunk() else {
        return;
    };
    let spec = bus(u16::from_le_bytes([low, high]));
    // Long enough to be split, although short inputs are found sooner.
    let bytes = bytes.repeat(usize::from(mode >> 4) * 8 + 1);
    let capture = |chunk_bytes| {
        capture_of(Data::Sampled(Box::new(Samples { bytes: bytes.clone(), chunk_bytes, bits: (0..16).collect() })))
    };
    let options = |threads, portable| Options {
        clock_mhz: (mode & 1 == 1).then_some(33.0),
        recover_clock: mode & 3 == 2,
        data_phases: true,
        window_us: (mode & 4 == 4).then_some(1.0),
        threads,
        portable,
        ..Options::default()
    };
    let whole = bytes.len().max(1);
    let expected = decoded(&capture(whole), &spec, &options(1, false));
    assert_eq!(decoded(&capture(whole), &spec, &options(1, true)), expected, "portable");
    let chunk_bytes = usize::from(cut) * 7 + 1;
    assert_eq!(decoded(&capture(chunk_bytes), &spec, &options(3, false)), expected, "cut, three threads");
}

struct Recorded {
    signals: Vec<Signal>,
    gaps: Vec<(u64, u64)>,
    end: u64,
}

impl Changes for Recorded {
    fn tick(&self) -> (u64, u64) {
        (1, 1_000_000_000)
    }

    fn end(&self) -> u64 {
        self.end
    }

    fn gaps(&self) -> &[(u64, u64)] {
        &self.gaps
    }

    fn signals(&self, limbs: &[Limb]) -> Result<Vec<Signal>> {
        Ok(limbs.iter().map(|limb| self.signals[limb.channel].clone()).collect())
    }
}

/// Unknown and undriven levels and gaps. The input is options, then changes of two bytes: time since the last one, line
/// and level.
pub fn check_changes(input: &[u8]) {
    let Some((&[mode, low, high], bytes)) = input.split_first_chunk() else {
        return;
    };
    let spec = bus(u16::from_le_bytes([low, high]));
    let mut recorded = Recorded { signals: vec![Signal::default(); 16], gaps: Vec::new(), end: 0 };
    for change in bytes.chunks_exact(2) {
        let since = recorded.end;
        recorded.end += u64::from(change[0] & 15);
        if change[0] >> 4 == 15 && since < recorded.end {
            recorded.gaps.push((since, recorded.end));
        }
        let (one, unknown, high_z) = match change[1] >> 4 {
            15 => (0, 1, 0),
            14 => (0, 0, 1),
            level => (u64::from(level & 1), 0, 0),
        };
        recorded.signals[usize::from(change[1] & 15)].push(recorded.end, one, unknown, high_z);
    }
    let options = |portable| Options {
        data_phases: true,
        window_us: (mode & 1 == 1).then_some(1.0),
        portable,
        ..Options::default()
    };
    let capture = capture_of(Data::Changes(Box::new(recorded)));
    assert_eq!(decoded(&capture, &spec, &options(true)), decoded(&capture, &spec, &options(false)), "portable");
}
