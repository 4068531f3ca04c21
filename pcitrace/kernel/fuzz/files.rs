//! What every reader target does with its input: open it as a file and read all there is. `tests/fuzz_smoke.rs` does
//! the same to fixed inputs.

use super::memory::bounded;
use pcitrace_kernel::capture::{Channel, Data, Limb, Signal};
use pcitrace_kernel::read;
use std::collections::BTreeMap;
use std::path::Path;

/// Reads `bytes` as a capture file; errors are what damaged files should give, and what is read must be sound.
pub fn read_file(bytes: &[u8]) {
    let name = format!("pcitrace-fuzz-{}-{:?}", std::process::id(), std::thread::current().id());
    let path = std::env::temp_dir().join(name);
    std::fs::write(&path, bytes).expect("the temporary folder can be written");
    bounded(bytes.len(), || read_path(&path));
    std::fs::remove_file(&path).expect("the file is still there");
}

/// How many bytes there are in it.
fn read_path(path: &Path) -> usize {
    let Ok(capture) = read::open(path, &Default::default()) else {
        return 0;
    };
    match &capture.data {
        Data::Sampled(sampled) => {
            let mut buffer = Vec::new();
            let mut at = 0;
            for chunk in sampled.chunks() {
                let Ok(chunk) = chunk else { return at as usize };
                assert_eq!(chunk.offset, at, "chunks follow each other");
                let Ok(bytes) = chunk.bytes(&mut buffer) else {
                    return at as usize;
                };
                at += bytes.len() as u64;
            }
            assert!(sampled.total_bytes().is_none_or(|total| total == at), "as many bytes as stated");
            assert!(sampled.bits().iter().all(|&bit| bit < 8 * sampled.unit_size()), "channels are in the unit");
            assert!(sampled.rate_hz().is_none_or(|hz| hz > 0.0 && hz.is_finite()), "rates are positive");
            at as usize
        }
        Data::Changes(changes) => {
            let limbs = |(channel, found): (usize, &Channel)| {
                (0..found.width.div_ceil(64).min(4)).map(move |index| Limb { channel, index })
            };
            let all: Vec<Limb> = capture.channels.iter().enumerate().flat_map(limbs).collect();
            let Ok(signals) = changes.signals(&all) else {
                return 0;
            };
            let (numerator, denominator) = changes.tick();
            assert!(numerator > 0 && denominator > 0, "time has a unit");
            for (signal, limb) in signals.iter().zip(&all) {
                check_signal(signal, capture.channels[limb.channel].width - 64 * limb.index, changes.end());
            }
            signals.iter().map(|signal| 16 * signal.times.len()).sum()
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

/// A zip whose members are stored, not compressed, and whose directory and CRCs are right.
pub fn zip(members: &BTreeMap<&[u8], &[u8]>) -> Vec<u8> {
    let mut file = Vec::new();
    let mut directory = Vec::new();
    for (name, content) in members {
        let offset = file.len() as u32;
        let mut fields = vec![0; 10];
        fields.extend(crc32(content).to_le_bytes());
        fields.extend((content.len() as u32).to_le_bytes());
        fields.extend((content.len() as u32).to_le_bytes());
        fields.extend((name.len() as u16).to_le_bytes());
        fields.extend([0; 2]);
        file.extend(b"PK\x03\x04");
        file.extend(&fields);
        file.extend(*name);
        file.extend(*content);
        directory.extend(b"PK\x01\x02\x14\x00");
        directory.extend(&fields);
        directory.extend([0; 10]);
        directory.extend(offset.to_le_bytes());
        directory.extend(*name);
    }
    let start = file.len() as u32;
    file.extend(&directory);
    file.extend(b"PK\x05\x06\x00\x00\x00\x00");
    file.extend((members.len() as u16).to_le_bytes());
    file.extend((members.len() as u16).to_le_bytes());
    file.extend((directory.len() as u32).to_le_bytes());
    file.extend(start.to_le_bytes());
    file.extend([0; 2]);
    file
}

fn crc32(bytes: &[u8]) -> u32 {
    !bytes
        .iter()
        .fold(!0, |crc, &byte| (0..8).fold(crc ^ u32::from(byte), |crc, _| crc >> 1 ^ (0xedb8_8320 * (crc & 1))))
}
