//! Windows of the accounting.

/// Consecutive windows of equal length, for the accounting.
#[derive(Debug, Clone, Copy)]
pub struct Windows {
    /// In stamps; infinite for one window over the whole capture.
    pub length: f64,
}

impl Windows {
    pub const WHOLE: Windows = Windows { length: f64::INFINITY };

    /// First stamp of window `number`.
    pub fn start(&self, number: u64) -> u64 {
        match number {
            0 => 0,
            // A stamp that rounding puts a hair before the window's start is its first.
            _ => (number as f64 * self.length - 1e-6).ceil() as u64,
        }
    }

    pub fn number_of(&self, stamp: u64) -> u64 {
        let mut number = (stamp as f64 / self.length) as u64;
        while self.start(number + 1) <= stamp {
            number += 1;
        }
        while self.start(number) > stamp {
            number -= 1;
        }
        number
    }
}
