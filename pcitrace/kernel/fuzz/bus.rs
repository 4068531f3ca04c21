//! Any bits as a bus, decoded in every way: the rows must be the same.

use arrow_array::RecordBatch;
use arrow_select::concat::concat_batches;
use pcitrace_kernel::bus::Origin;
use pcitrace_kernel::capture::{Capture, Changes, Channel, Chunk, Data, Limb, Sampled, Signal};
use pcitrace_kernel::error::Result;
use pcitrace_kernel::pci::decoding::memory::MemorySink;
use pcitrace_kernel::pci::decoding::stream::{Found, Stream};
use pcitrace_kernel::pci::decoding::{Decoded, Options, Sink, decode};
use pcitrace_kernel::pci::layout::{BusSpec, BusTables};
use pcitrace_kernel::pci::rows::Rows;
use pcitrace_kernel::pci::tables::Wanted;
use pcitrace_kernel::samples::places::Source;

/// One channel each, in this order.
const LINES: [&str; 16] = [
    "CLK", "FRAME#", "IRDY#", "TRDY#", "DEVSEL#", "STOP#", "CBE0#", "CBE1#", "CBE2#", "CBE3#", "GNT0#", "GNT1#",
    "PERR#", "RST#", "PAR", "REQ64#",
];

/// Lines 4 and up are there where `captured` has their bit.
fn bus(captured: u16) -> BusSpec {
    let lines = LINES.iter().enumerate().filter(|(n, _)| *n < 4 || captured >> n & 1 == 1);
    let source = |channel, name: &str| Source { channel, bit: 0, active_low: name.ends_with('#') };
    // The channel of PAR, seen the other way round, is a line whose changes are rows as well.
    let beside = ("INTA#".to_string(), Source { channel: 14, bit: 0, active_low: true });
    let lines = lines.map(|(n, name)| ((*name).into(), source(n, name))).chain([beside]).collect();
    BusSpec { name: "A".into(), width: None, lines }
}

fn capture_of(data: Data) -> Capture {
    let channels = LINES.iter().map(|name| Channel { name: (*name).into(), width: 1 }).collect();
    Capture { path: "fuzz".into(), format: "fuzz", channels, data, notes: Vec::new(), captures: 1 }
}

#[derive(Default)]
struct Collected(String, String);

impl Sink for Collected {
    type Gathered = Rows;

    fn begin(&mut self, buses: &[BusTables]) -> Result<Vec<Rows>> {
        Ok(vec![Rows::default(); buses.len()])
    }

    fn rows(&mut self, _: usize, origin: Origin, rows: Rows) -> Result<()> {
        let rows = rows.counted_from(origin);
        rows.transactions.iter().for_each(|transaction| self.0 += &format!("{transaction:?}\n"));
        rows.events.iter().for_each(|event| self.1 += &format!("{event:?}\n"));
        Ok(())
    }

    fn reached(&mut self, _: usize, _: u64) -> Result<()> {
        Ok(())
    }
}

/// Rows, problems and counts in words; `None` where there is nothing to decode.
fn decoded(capture: &Capture, spec: &BusSpec, options: &Options) -> Option<String> {
    let mut rows = Collected::default();
    let buses = decode(capture, std::slice::from_ref(spec), options, &mut [], &mut rows, &mut |_| true).ok()?;
    let Decoded { transactions, problems, windows, .. } = &buses[0];
    let problems = problems.clone().in_order();
    Some(format!("{}{}{transactions}\n{problems:?}\n{windows:?}", rows.0, rows.1))
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
        events: true,
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

/// Samples that are pushed give the rows that all of them give at once, wherever they are cut. The input is as of
/// [`check_samples`]; the pieces are as long as its bytes say.
pub fn check_stream(input: &[u8]) {
    let Some((&[mode, low, high, cut], bytes)) = input.split_first_chunk() else {
        return;
    };
    let spec = bus(u16::from_le_bytes([low, high]));
    let bytes = bytes.repeat(usize::from(mode >> 4) * 8 + 1);
    let options = Options {
        rate_hz: Some(1e8),
        clock_mhz: (mode & 1 == 1).then_some(33.0),
        data_phases: true,
        events: true,
        window_us: (mode & 4 == 4).then_some(1.0),
        threads: 1,
        ..Options::default()
    };
    let samples = Samples { bytes: bytes.clone(), chunk_bytes: bytes.len().max(1), bits: (0..16).collect() };
    let capture = capture_of(Data::Sampled(Box::new(samples)));
    let mut sink = MemorySink::new(&Wanted::default()).expect("all columns are there");
    let whole = decode(&capture, std::slice::from_ref(&spec), &options, &mut [], &mut sink, &mut |_| true);

    let mut live = Stream::new(2, std::slice::from_ref(&spec), options, &Wanted::default()).expect("there is a rate");
    let mut found = Vec::new();
    let mut rest = bytes.as_slice();
    let mut lengths = input.iter().cycle();
    while !rest.is_empty() {
        let length = (usize::from(cut) + usize::from(*lengths.next().unwrap_or(&1)) + 1).min(rest.len());
        let (piece, behind) = rest.split_at(length);
        found.push(live.feed(piece).expect("samples that are there can be decoded"));
        rest = behind;
    }
    let last = live.finish();
    assert_eq!(last.is_ok(), whole.is_ok(), "both are refused, or none");
    let (Ok((last, _)), Ok(whole)) = (last, whole) else { return };
    found.push(last);
    let rows = &mut sink.buses[0];
    let tables = [rows.transactions.take(), rows.data_phases.take(), rows.events.take()];
    let parts = |table: fn(&Found) -> &RecordBatch| found.iter().map(table).collect::<Vec<_>>();
    let pushed = [parts(|found| &found.transactions), parts(|found| &found.data_phases), parts(|found| &found.events)];
    for ((schema, batches), pushed) in tables.into_iter().zip(pushed) {
        let whole = concat_batches(&schema, &batches).expect("batches of one schema");
        assert_eq!(concat_batches(&schema, pushed).expect("batches of one schema"), whole, "pushed");
    }
    let problems: usize = found.iter().map(|found| found.problems.num_rows()).sum();
    assert_eq!(problems, whole[0].problems.len(), "problems");
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
        events: true,
        window_us: (mode & 1 == 1).then_some(1.0),
        portable,
        ..Options::default()
    };
    let capture = capture_of(Data::Changes(Box::new(recorded)));
    assert_eq!(decoded(&capture, &spec, &options(true)), decoded(&capture, &spec, &options(false)), "portable");
}
