//! The changes of a piece of the body in fewer bytes than they have in the file: what is kept of the check at opening.
//!
//! A number has seven bits a byte, the lowest first; the top bit says that it goes on.

use crate::capture::Signal;

/// A number has no more bytes.
const LONGEST: usize = 10;
const MORE: u8 = 0x80;

#[inline(always)]
fn append(bytes: &mut Vec<u8>, mut number: u64) {
    bytes.reserve(LONGEST);
    let end = bytes.spare_capacity_mut();
    let mut count = 0;
    while number >= u64::from(MORE) && count < LONGEST - 1 {
        end[count].write(number as u8 | MORE);
        number >>= 7;
        count += 1;
    }
    end[count].write(number as u8);
    // Safety: so many were written.
    unsafe { bytes.set_len(bytes.len() + count + 1) };
}

#[inline(always)]
fn read(bytes: &mut impl Iterator<Item = u8>) -> u64 {
    let (mut number, mut shift) = (0, 0);
    for byte in bytes {
        number |= u64::from(byte & !MORE) << shift;
        if byte & MORE == 0 {
            break;
        }
        shift += 7;
    }
    number
}

/// The times in a piece, each as what it is more than the one before.
#[derive(Debug, Clone, Default)]
pub struct Stamps {
    bytes: Vec<u8>,
    last: u64,
    count: u64,
}

impl Stamps {
    #[inline(always)]
    pub fn push(&mut self, time: u64) {
        append(&mut self.bytes, time - self.last);
        self.last = time;
        self.count += 1;
    }

    /// How many there are: the number of what comes next.
    #[inline(always)]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The last one, or 0.
    pub fn last(&self) -> u64 {
        self.last
    }

    /// Bytes that they take.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// All of them, behind time 0 for what comes before the first.
    pub fn times(&self) -> Vec<u64> {
        let mut bytes = self.bytes.iter().copied();
        let mut time = 0;
        let all = (0..self.count).map(|_| {
            time += read(&mut bytes);
            time
        });
        std::iter::once(0).chain(all).collect()
    }
}

/// Bits of the first byte of a change that say what the value is: of a single bit all that there is to say, of several whether
/// there are unknown ones. The others are of the number of stamps since the change before.
const STATE: u32 = 2;
const MASKS: u32 = 1;

/// Bits of a net of `width` that its limb has: what they are packed by is what they are unpacked by.
#[inline(always)]
pub fn limb_width(width: u32, limb: u32) -> u32 {
    (width - 64 * limb).min(64)
}

/// Changes of up to 64 bits: the stamp of each, and the values of more than one bit.
#[derive(Debug, Clone, Default)]
pub struct Packed {
    bytes: Vec<u8>,
    last: u64,
    count: usize,
}

impl Packed {
    /// How many there are.
    #[cfg(test)]
    pub fn count(&self) -> usize {
        self.count
    }

    /// Bytes that it takes.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// A change of a single bit to 0, 1, unknown or z, by these numbers; `stamp` is the count of stamps up to it.
    #[inline(always)]
    pub fn push_state(&mut self, stamp: u64, state: u8) {
        self.begin::<STATE>(stamp, state);
    }

    /// A change of a limb of `width` bits.
    #[inline(always)]
    pub fn push(&mut self, width: u32, stamp: u64, (ones, unknown, high_z): (u64, u64, u64)) {
        if width == 1 {
            let state = ones | (unknown | high_z) << 1 | high_z;
            self.push_state(stamp, state as u8);
            return;
        }
        let has_masks = unknown | high_z != 0;
        self.begin::<MASKS>(stamp, u8::from(has_masks));
        append(&mut self.bytes, ones);
        if has_masks {
            append(&mut self.bytes, unknown);
            append(&mut self.bytes, high_z);
        }
    }

    #[inline(always)]
    fn begin<const BITS: u32>(&mut self, stamp: u64, state: u8) {
        let since = stamp - self.last;
        self.last = stamp;
        self.count += 1;
        let left = 7 - BITS;
        let low = (since as u8 & ((1 << left) - 1)) << BITS | state;
        let rest = since >> left;
        if rest == 0 {
            self.bytes.push(low);
        } else {
            self.bytes.push(low | MORE);
            append(&mut self.bytes, rest);
        }
    }

    /// With no more memory than it needs.
    pub fn shrunk(mut self) -> Self {
        self.bytes.shrink_to_fit();
        self
    }

    /// Appends the changes to those of a limb of `width` bits; `times` are those of the stamps.
    pub fn unpack(&self, width: u32, times: &[u64], signal: &mut Signal) {
        let mut bytes = self.bytes.iter().copied();
        let mut stamp = 0;
        for _ in 0..self.count {
            if width == 1 {
                let state = Self::read_first::<STATE>(&mut bytes, &mut stamp);
                signal.push(times[stamp], u64::from(state == 1), u64::from(state == 2), u64::from(state == 3));
            } else {
                let has_masks = Self::read_first::<MASKS>(&mut bytes, &mut stamp) == 1;
                let ones = read(&mut bytes);
                let (unknown, high_z) = if has_masks { (read(&mut bytes), read(&mut bytes)) } else { (0, 0) };
                signal.push(times[stamp], ones, unknown, high_z);
            }
        }
    }

    #[inline(always)]
    fn read_first<const BITS: u32>(bytes: &mut impl Iterator<Item = u8>, stamp: &mut usize) -> u8 {
        let low = bytes.next().unwrap_or_default();
        let mut since = u64::from((low & !MORE) >> BITS);
        if low & MORE != 0 {
            since |= read(bytes) << (7 - BITS);
        }
        *stamp += since as usize;
        low & ((1 << BITS) - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_was_packed_comes_out(
            wide: bool,
            steps in proptest::collection::vec((0u32..64, any::<u64>(), 0usize..200, 0u32..64, any::<u64>(), 0u8..4), 0..50),
        ) {
            let (mut stamps, mut packed, mut expected) = (Stamps::default(), Packed::default(), Signal::default());
            let width = if wide { 64 } else { 1 };
            let mut time = 0u64;
            for (far, since, more, large, value, state) in steps {
                // Times that are not this net's, too.
                for _ in 0..more / 4 {
                    time = time.saturating_add(since >> far);
                    stamps.push(time);
                }
                if wide {
                    let ones = value >> large;
                    let masks = if state == 3 { (!ones & 0xff, !ones & 0xff00) } else { (0, 0) };
                    packed.push(width, stamps.count(), (ones, masks.0, masks.1));
                    expected.push(time, ones, masks.0, masks.1);
                } else {
                    let (one, unknown, high_z) = (u64::from(state == 1), u64::from(state == 2), u64::from(state == 3));
                    if value & 1 == 0 {
                        packed.push_state(stamps.count(), state);
                    } else {
                        packed.push(width, stamps.count(), (one, unknown, high_z));
                    }
                    expected.push(time, one, unknown, high_z);
                }
            }
            let mut signal = Signal::default();
            packed.shrunk().unpack(width, &stamps.times(), &mut signal);
            prop_assert_eq!(signal, expected);
        }
    }
}
