//! What every reader target does with its input: open it as a file and read all there is.

use pcitrace_kernel::capture::{Data, Signal};
use pcitrace_kernel::read;
use std::path::PathBuf;

/// Reads `bytes` as a capture file; errors are what damaged files should give, and what is read must be sound.
pub fn read_file(bytes: &[u8]) {
    let path = input_path();
    std::fs::write(&path, bytes).expect("the temporary folder can be written");
    let Ok(capture) = read::open(&path) else {
        return;
    };
    match &capture.data {
        Data::Sampled(sampled) => {
            let mut buffer = Vec::new();
            let mut at = 0;
            for chunk in sampled.chunks() {
                let Ok(chunk) = chunk else { return };
                assert_eq!(chunk.offset, at, "chunks follow each other");
                let Ok(bytes) = chunk.bytes(&mut buffer) else { return };
                at += bytes.len() as u64;
            }
            assert!(sampled.total_bytes().is_none_or(|total| total == at), "as many bytes as stated");
            assert!(sampled.bits().iter().all(|&bit| bit < 8 * sampled.unit_size()), "channels are in the unit");
            assert!(sampled.rate_hz().is_none_or(|hz| hz > 0.0 && hz.is_finite()), "rates are positive");
        }
        Data::Changes(changes) => {
            let all: Vec<usize> = (0..capture.channels.len()).collect();
            let Ok(signals) = changes.signals(&all) else { return };
            let (numerator, denominator) = changes.tick();
            assert!(numerator > 0 && denominator > 0, "time has a unit");
            for (signal, channel) in signals.iter().zip(&capture.channels) {
                check_signal(signal, channel.width, changes.end());
            }
        }
    }
}

fn check_signal(signal: &Signal, width: u32, end: u64) {
    let count = signal.times.len();
    assert!(signal.times.is_sorted(), "time does not run backwards");
    assert!(signal.times.last().is_none_or(|&last| last <= end), "changes are in the capture");
    assert_eq!(signal.values.len(), count);
    let mask = if width >= 64 { u64::MAX } else { (1 << width) - 1 };
    for (states, name) in [(&signal.unknown, "unknown"), (&signal.high_z, "high_z")] {
        assert!(states.is_empty() || states.len() == count, "{name} is all or nothing");
        for (value, state) in signal.values.iter().zip(states) {
            assert_eq!(value & state, 0, "{name} bits read 0");
            assert_eq!(state & !mask, 0, "{name} is within the width");
        }
    }
    assert!(signal.values.iter().all(|value| value & !mask == 0), "values are within the width");
}

fn input_path() -> PathBuf {
    std::env::temp_dir().join(format!("pcitrace-fuzz-{}", std::process::id()))
}
