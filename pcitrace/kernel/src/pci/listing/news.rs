//! The configuration accesses that may change what anything is called. They are few of all that there are, and who gives
//! names looks at no other.

use crate::pci::decoding::parts::Part;
use arrow_array::cast::AsArray;
use arrow_array::types::{ArrowPrimitiveType, Float64Type, UInt8Type, UInt64Type};
use arrow_array::{Array, PrimitiveArray, RecordBatch};
use std::collections::{HashMap, HashSet};

const CONFIG_READ: u8 = 0xA;
const CONFIG_WRITE: u8 = 0xB;

/// Time, data and byte enables of a data phase.
pub type Moved = (f64, u64, u8);

/// A configuration access whose data is known.
pub struct Access {
    /// Of the part.
    pub row: usize,
    pub bus: String,
    pub transaction: u64,
    pub command: u8,
    pub address: u64,
    pub moved: Vec<Moved>,
}

/// What the accesses so far have told of each bus.
pub struct News {
    /// A bit for each dword of a header that places a window, and for each that says who is there.
    windows: u64,
    identity: u64,
    buses: HashMap<String, Told>,
}

#[derive(Default)]
struct Told {
    /// Addresses that were accessed since a device changed its name.
    named: HashSet<u64>,
    /// The last access to each dword that places a window.
    last: HashMap<u64, (u8, u64, u8)>,
    /// What was read of each dword that says who is there: its value, and the bits of it that are known.
    read: HashMap<u64, (u64, u64)>,
}

impl News {
    /// The byte offsets of the dwords that place windows, and of those that say who is there.
    pub fn new(windows: &[u32], identity: &[u32]) -> Self {
        let bits = |offsets: &[u32]| offsets.iter().fold(0, |bits, offset| bits | 1 << (offset / 4 % 64));
        News { windows: bits(windows), identity: bits(identity), buses: HashMap::new() }
    }

    /// The first access from this row on that tells more than those before it did; the error is the column that is missing.
    pub fn next(&mut self, part: &Part, from: usize) -> Result<Option<Access>, String> {
        let rows = &part.transactions;
        let (command, address) = (column::<UInt8Type>(rows, "command")?, column::<UInt64Type>(rows, "address")?);
        let (data, enables) =
            (column::<UInt64Type>(&part.data_phases, "data")?, column::<UInt8Type>(&part.data_phases, "byte_enables")?);
        let times = column::<Float64Type>(&part.data_phases, "time_us")?;
        let number = column::<UInt64Type>(rows, "transaction")?;
        let buses = rows.column_by_name("bus").and_then(|bus| bus.as_string_opt::<i32>()).ok_or("bus")?;
        let asked = |row: &usize| {
            matches!(command.value(*row), CONFIG_READ | CONFIG_WRITE)
                && command.is_valid(*row)
                && address.is_valid(*row)
        };
        for row in (from..rows.num_rows()).filter(asked) {
            let known = |&nth: &usize| data.is_valid(nth) && enables.is_valid(nth);
            let moved: Vec<_> = part
                .phases_of(row)
                .filter(known)
                .map(|nth| (times.value(nth), data.value(nth), enables.value(nth)))
                .collect();
            let told = match self.buses.get_mut(buses.value(row)) {
                Some(told) => told,
                None => self.buses.entry(buses.value(row).into()).or_default(),
            };
            let (command, address) = (command.value(row), address.value(row));
            if told.is_new(self.windows, self.identity, command, address, &moved) {
                let (bus, transaction) = (buses.value(row).into(), number.value(row));
                return Ok(Some(Access { row, bus, transaction, command, address, moved }));
            }
        }
        Ok(None)
    }

    /// A device has another name since this address was accessed: its registers are called otherwise, each from its next
    /// access on.
    pub fn renamed(&mut self, bus: &str, address: u64) {
        if let Some(told) = self.buses.get_mut(bus) {
            told.named = HashSet::from([address]);
        }
    }
}

impl Told {
    fn is_new(&mut self, windows: u64, identity: u64, command: u8, address: u64, moved: &[Moved]) -> bool {
        let mut news = self.named.insert(address);
        for (dword, &(_, data, enables)) in (place(address) >> 2..).zip(moved) {
            let register = 1u64 << (dword & 63);
            if windows & register != 0 {
                let said = (command, data, enables);
                news |= self.last.insert(dword, said) != Some(said);
            } else if identity & register != 0 && command == CONFIG_READ {
                let mask = enabled_bits(enables);
                let (value, known) = self.read.get(&dword).copied().unwrap_or_default();
                news |= mask & !known != 0 || (value ^ data) & mask != 0;
                self.read.insert(dword, (value & !mask | data & mask, known | mask));
            }
        }
        news
    }
}

/// The address without the lower ones of the lines that carry IDSEL: a device that is selected by other lines than before
/// is the same one.
fn place(address: u64) -> u64 {
    const SELECT: u64 = 0xffff_f800;
    match address & SELECT {
        select if address & 3 == 0 && select != 0 => 1 << select.ilog2() | address & !SELECT,
        _ => address,
    }
}

/// Bits of a dword whose byte lanes are enabled.
fn enabled_bits(enables: u8) -> u64 {
    (0..4).filter(|lane| enables >> lane & 1 == 0).map(|lane| 0xff << (8 * lane)).sum()
}

fn column<'a, T: ArrowPrimitiveType>(batch: &'a RecordBatch, name: &str) -> Result<&'a PrimitiveArray<T>, String> {
    batch.column_by_name(name).and_then(|column| column.as_primitive_opt()).ok_or_else(|| name.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: u8 = CONFIG_READ;

    /// Whether each of some accesses of one dword with all bytes enabled is news.
    fn news(accesses: &[(u8, u64, u64)]) -> Vec<bool> {
        let rules = News::new(&[0x10, 0x14], &[0x00]);
        let mut told = Told::default();
        let mut is_new = |&(command, address, data): &(u8, u64, u64)| {
            told.is_new(rules.windows, rules.identity, command, address, &[(0.0, data, 0)])
        };
        accesses.iter().map(&mut is_new).collect()
    }

    #[test]
    fn another_value_of_a_window_is_news_and_the_same_one_is_not() {
        let [write, ones, again] = [(CONFIG_WRITE, 0x810, 1), (CONFIG_WRITE, 0x810, 2), (READ, 0x810, 2)];
        assert_eq!(news(&[write, write, ones, again, again, write]), [true, false, true, true, false, true]);
    }

    #[test]
    fn who_is_there_is_news_when_it_is_read_otherwise() {
        let [one, written, other] = [(READ, 0x800, 5), (CONFIG_WRITE, 0x800, 6), (READ, 0x800, 6)];
        assert_eq!(news(&[one, one, written, one, other]), [true, false, false, false, true]);
    }

    #[test]
    fn other_lines_may_select_the_same_device() {
        let [one, other] = [(CONFIG_WRITE, 1 << 20 | 0x10, 1), (CONFIG_WRITE, 1 << 20 | 1 << 12 | 0x10, 2)];
        assert_eq!(news(&[one, one, other, one, one]), [true, false, true, true, false]);
    }

    #[test]
    fn of_other_registers_the_first_access_is_news() {
        assert_eq!(news(&[(READ, 0x804, 1), (READ, 0x804, 2), (READ, 0x808, 2)]), [true, false, true]);
    }

    #[test]
    fn a_byte_that_was_not_enabled_tells_nothing_until_it_is() {
        let rules = News::new(&[], &[0x08]);
        let mut told = Told::default();
        let mut read = |data, enables| told.is_new(rules.windows, rules.identity, READ, 0x808, &[(0.0, data, enables)]);
        assert_eq!(
            [read(0x11, 0b1110), read(0x2211, 0b1110), read(0x2211, 0b1101), read(0x2211, 0b1100)],
            [true, false, true, false]
        );
    }
}
