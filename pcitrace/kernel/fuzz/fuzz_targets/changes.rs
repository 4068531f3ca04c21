//! Captures of changes, with unknown and undriven levels and gaps. The input is options, then changes of two bytes:
//! time since the last one, line and level.
#![no_main]

use pcitrace_kernel::capture::{Changes, Data, Signal};
use pcitrace_kernel::error::Result;
use pcitrace_kernel::pipeline::Options;
use pcitrace_kernel_fuzz::bus;

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

    fn signals(&self, channels: &[usize]) -> Result<Vec<Signal>> {
        Ok(channels.iter().map(|&channel| self.signals[channel].clone()).collect())
    }
}

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let Some((&[mode, low, high], bytes)) = input.split_first_chunk() else {
        return;
    };
    let spec = bus::bus(u16::from_le_bytes([low, high]));
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
    let capture = bus::capture(Data::Changes(Box::new(recorded)));
    assert_eq!(
        bus::decoded(&capture, &spec, &options(true)),
        bus::decoded(&capture, &spec, &options(false)),
        "portable"
    );
});
