//! What fills a frame behind its header: always a slice of one table, so that filling and checking are a copy and a
//! comparison however the pattern is made.

use crate::random::Random;
use serde::{Deserialize, Serialize};

/// Largest user data of any frame (a jumbo frame).
pub const MAX_USER: usize = 9216;
/// Offsets into the table that consecutive frames use.
const OFFSETS: usize = 1024;
/// Content of MARK frames. Whatever the alignment, a trace of AD shows a rotation of it; two of its bytes are never equal.
pub const MARK_WORD: [u8; 4] = [0xA5, 0x5A, 0xC3, 0x3C];

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Payload {
    /// 0x55 throughout.
    Constant,
    /// Byte i of frame n is (n + i) mod 256.
    Ramp,
    /// Pseudo-random from the test id; another stretch for every frame.
    Random,
}

pub struct Pattern {
    table: Vec<u8>,
    stride: usize,
}

impl Pattern {
    pub fn new(payload: Payload, test: u32) -> Pattern {
        let length = OFFSETS + MAX_USER;
        match payload {
            Payload::Constant => Pattern { table: vec![0x55; length], stride: 0 },
            Payload::Ramp => Pattern { table: (0..length).map(|i| i as u8).collect(), stride: 1 },
            Payload::Random => {
                let mut random = Random::new(u64::from(test));
                Pattern { table: (0..length).map(|_| (random.word() >> 32) as u8).collect(), stride: 61 }
            }
        }
    }

    /// The payload of frame `sequence`, `length` bytes of it.
    pub fn of(&self, sequence: u32, length: usize) -> &[u8] {
        let offset = sequence as usize % OFFSETS * self.stride % OFFSETS;
        &self.table[offset..offset + length]
    }
}

/// The payload of a MARK frame.
pub fn mark(length: usize) -> Vec<u8> {
    MARK_WORD.iter().copied().cycle().take(length).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ramp_counts_on() {
        let pattern = Pattern::new(Payload::Ramp, 1);
        for sequence in [0u32, 1, 255, 256, 1023, 1024, u32::MAX] {
            let first = pattern.of(sequence, 3)[0];
            assert_eq!(first, sequence as u8);
            assert_eq!(pattern.of(sequence, 3)[2], first.wrapping_add(2));
        }
    }

    #[test]
    fn random_depends_on_test_and_frame() {
        let (a, b) = (Pattern::new(Payload::Random, 1), Pattern::new(Payload::Random, 2));
        assert_ne!(a.of(0, 64), b.of(0, 64));
        assert_ne!(a.of(0, 64), a.of(1, 64));
        assert_eq!(a.of(5, 64), Pattern::new(Payload::Random, 1).of(5, 64));
    }
}
