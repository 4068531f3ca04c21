//! Sampled captures: rows do not depend on the processor's instructions, nor on how the capture is cut.
//! The input is options (mode, lines, cuts), then samples of two bytes.
#![no_main]

use pcitrace_kernel::capture::{Chunk, Data, Sampled};
use pcitrace_kernel::error::Result;
use pcitrace_kernel::pipeline::Options;
use pcitrace_kernel_fuzz::bus;

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

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let Some((&[mode, low, high, cut], bytes)) = input.split_first_chunk() else {
        return;
    };
    let spec = bus::bus(u16::from_le_bytes([low, high]));
    // Long enough to be split, although short inputs are found sooner.
    let bytes = bytes.repeat(usize::from(mode >> 4) * 8 + 1);
    let capture = |chunk_bytes| {
        bus::capture(Data::Sampled(Box::new(Samples { bytes: bytes.clone(), chunk_bytes, bits: (0..16).collect() })))
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
    let expected = bus::decoded(&capture(whole), &spec, &options(1, false));
    assert_eq!(bus::decoded(&capture(whole), &spec, &options(1, true)), expected, "portable");
    let chunk_bytes = usize::from(cut) * 7 + 1;
    assert_eq!(bus::decoded(&capture(chunk_bytes), &spec, &options(3, false)), expected, "cut, three threads");
});
