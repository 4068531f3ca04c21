//! What addresses and initiators are called, as it was given.

use rustc_hash::FxHashMap;

/// Addresses that one device claims.
#[derive(Debug, Clone)]
pub struct Window {
    pub io: bool,
    pub base: u64,
    /// Where it was not read, the most that it can be taken to be.
    pub size: u64,
    pub size_known: bool,
    /// `eth0 BAR1`.
    pub name: String,
    /// Transactions in which this is so.
    pub since: u64,
    pub until: u64,
    /// In order of their offsets.
    pub registers: Vec<Register>,
}

#[derive(Debug, Clone)]
pub struct Register {
    pub offset: u64,
    pub size: u64,
    pub name: String,
    pub fields: Vec<Field>,
}

/// Bits of a register that mean something by themselves.
#[derive(Debug, Clone)]
pub struct Field {
    pub name: String,
    pub shift: u32,
    pub width: u32,
    /// Values that have names.
    pub values: Vec<(u64, String)>,
}

impl Field {
    fn value(&self, word: u64) -> u64 {
        let mask = if self.width >= 64 { u64::MAX } else { (1 << self.width) - 1 };
        word.checked_shr(self.shift).unwrap_or(0) & mask
    }
}

impl Register {
    /// A value of the register in words: the fields that are not 0.
    pub fn in_words(&self, word: u64) -> String {
        let told = self.fields.iter().filter_map(|field| {
            let value = field.value(word);
            match field.values.iter().find(|(number, _)| *number == value) {
                Some((_, name)) => Some(format!("{}={name}", field.name)),
                None if value == 0 => None,
                None if field.width == 1 => Some(field.name.clone()),
                None => Some(format!("{}={value:#x}", field.name)),
            }
        });
        told.collect::<Vec<_>>().join(" ")
    }
}

/// The names of all buses.
#[derive(Debug, Clone, Default)]
pub struct Names {
    windows: FxHashMap<String, Vec<Window>>,
    /// By bus and GNT# line.
    initiators: FxHashMap<String, FxHashMap<String, String>>,
    /// What configuration addresses lead to, by bus: `00:09.0 BAR0`.
    places: FxHashMap<String, FxHashMap<u64, String>>,
}

/// What an address is: its window, the offset, and the register there.
pub struct Place<'a> {
    pub window: &'a Window,
    pub offset: u64,
    pub register: Option<&'a Register>,
}

impl Names {
    pub fn set_windows(&mut self, bus: String, windows: Vec<Window>) {
        self.windows.insert(bus, windows);
    }

    pub fn set_initiator(&mut self, bus: String, line: String, name: String) {
        self.initiators.entry(bus).or_default().insert(line, name);
    }

    pub fn set_place(&mut self, bus: String, address: u64, name: String) {
        self.places.entry(bus).or_default().insert(address, name);
    }

    pub fn initiator<'a>(&'a self, bus: &str, line: &'a str) -> &'a str {
        self.initiators.get(bus).and_then(|names| names.get(line)).map_or(line, String::as_str)
    }

    /// What a configuration address leads to.
    pub fn configured(&self, bus: &str, address: u64) -> Option<&str> {
        self.places.get(bus)?.get(&address).map(String::as_str)
    }

    /// The window of the same space that is nearest to an address; None where none is known.
    pub fn nearest(&self, bus: &str, io: bool, address: u64, transaction: u64) -> Option<&Window> {
        let there = |window: &&Window| {
            window.io == io && window.size > 0 && (window.since..window.until).contains(&transaction)
        };
        let away = |window: &&Window| {
            let end = window.base + (window.size - 1);
            window.base.saturating_sub(address) + address.saturating_sub(end)
        };
        self.windows.get(bus)?.iter().filter(there).min_by_key(away)
    }

    /// What an address of memory or I/O is for a transaction.
    pub fn place(&self, bus: &str, io: bool, address: u64, transaction: u64) -> Option<Place<'_>> {
        let window = self.windows.get(bus)?.iter().find(|window| {
            let there = window.io == io && (window.since..window.until).contains(&transaction);
            there && address.checked_sub(window.base).is_some_and(|offset| offset < window.size)
        })?;
        let offset = address - window.base;
        let behind = window.registers.partition_point(|register| register.offset <= offset);
        let register = behind.checked_sub(1).map(|at| &window.registers[at]);
        Some(Place { window, offset, register: register.filter(|one| offset < one.offset + one.size) })
    }
}
