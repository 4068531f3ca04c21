//! The rows a decoder produces, before they become tables.

use crate::bus::{Counted, Origin};
use crate::pci::events::Event;
use crate::pci::phases::{InPhases, Phases};
use crate::pci::problems::Problems;
use crate::pci::tiles::{InTile, Transactions};

/// How a transaction ended. The names are those of `pci-reference` and of the column `termination`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Termination {
    Completion,
    Retry,
    DisconnectWithData,
    DisconnectWithoutData,
    TargetAbort,
    MasterAbort,
    SpecialCycle,
    Truncated,
    Unknown,
}

impl Termination {
    /// In the order of their numbers.
    pub const ALL: [Termination; 9] = [
        Termination::Completion,
        Termination::Retry,
        Termination::DisconnectWithData,
        Termination::DisconnectWithoutData,
        Termination::TargetAbort,
        Termination::MasterAbort,
        Termination::SpecialCycle,
        Termination::Truncated,
        Termination::Unknown,
    ];

    /// By its number.
    #[inline(always)]
    pub fn of(number: u8) -> Self {
        Self::ALL.get(usize::from(number)).copied().unwrap_or(Termination::Unknown)
    }

    pub fn name(self) -> &'static str {
        match self {
            Termination::Completion => "completion",
            Termination::Retry => "retry",
            Termination::DisconnectWithData => "disconnect_with_data",
            Termination::DisconnectWithoutData => "disconnect_without_data",
            Termination::TargetAbort => "target_abort",
            Termination::MasterAbort => "master_abort",
            Termination::SpecialCycle => "special_cycle",
            Termination::Truncated => "truncated",
            Termination::Unknown => "unknown",
        }
    }
}

/// Names of the sixteen bus commands.
pub const COMMAND_NAMES: [&str; 16] = [
    "interrupt_acknowledge",
    "special_cycle",
    "io_read",
    "io_write",
    "reserved_4",
    "reserved_5",
    "memory_read",
    "memory_write",
    "reserved_8",
    "reserved_9",
    "config_read",
    "config_write",
    "memory_read_multiple",
    "dual_address_cycle",
    "memory_read_line",
    "memory_write_invalidate",
];

/// What is so of a transaction or not, or not known. The names are those of the columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flag {
    Dac,
    /// Every byte enable that counts was captured and known.
    BytesExact,
    FastBackToBack,
    AddressParityOk,
    Perr,
    Serr,
    Suspect,
}

/// Which flags are set, and which are known, a bit each: columns of them are made of these bytes, and not one by one.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Flags {
    pub set: u8,
    pub known: u8,
}

impl Flags {
    #[inline(always)]
    pub fn get(self, flag: Flag) -> Option<bool> {
        let at = |bits: u8| bits >> flag as u8 & 1 != 0;
        at(self.known).then_some(at(self.set))
    }

    #[inline(always)]
    pub fn tell(&mut self, flag: Flag, told: Option<bool>) {
        let bit = |is: bool| u8::from(is) << flag as u8;
        self.set = self.set & !bit(true) | bit(told == Some(true));
        self.known = self.known & !bit(true) | bit(told.is_some());
    }

    /// Known and set.
    #[inline(always)]
    pub fn is(self, flag: Flag) -> bool {
        self.set >> flag as u8 & 1 != 0
    }

    /// Sets it where it `is` so, if anything is known of it.
    #[inline(always)]
    pub fn also(&mut self, flag: Flag, is: bool) {
        self.set |= u8::from(is) << flag as u8 & self.known;
    }

    /// Unsets it where it `is` not so.
    #[inline(always)]
    pub fn only(&mut self, flag: Flag, is: bool) {
        self.set &= !(u8::from(!is) << flag as u8);
    }
}

/// One transaction. Stamps are sample numbers, or ticks of a capture of changes.
#[derive(Debug, Clone, PartialEq)]
pub struct Transaction {
    pub start: u64,
    pub end: u64,
    pub start_clk: u64,
    pub clocks: u64,
    /// The real command after a dual address cycle.
    pub command: Option<u8>,
    pub address: Option<u64>,
    pub address_phases: u8,
    pub data_phases: u64,
    /// Mean nothing where no data moved.
    pub first_data: u64,
    pub last_data: u64,
    /// Enabled bytes; lanes whose byte enable is not known count as enabled.
    pub bytes: u64,
    /// Cannot be told where STOP# was not captured.
    pub target_wait_clks: u64,
    pub initiator_wait_clks: u64,
    pub devsel_clks: Option<u32>,
    pub termination: Termination,
    /// Index into the bus's GNT# lines.
    pub initiator: Option<u8>,
    pub flags: Flags,
    /// Of a configuration access: index into the bus's IDSEL lines.
    pub idsel: Option<u8>,
    /// Of a special cycle: AD in the first clock with IRDY#.
    pub message: Option<u32>,
}

impl Transaction {
    /// Number of the device that a configuration access is to: of type 0 the one line of AD[31:11] that carries IDSEL, less 11
    /// (host bridges drive AD[11 + n] for device n: Intel 440BX datasheet, 3.2.2), of type 1 what the address says.
    ///
    /// Ref: PCI Local Bus Specification 2.3, 3.2.2.3.
    pub fn device(&self) -> Option<u8> {
        let address = self.address.filter(|_| matches!(self.command, Some(0xa | 0xb)))? as u32;
        match address & 3 {
            0 => Some(address >> 11)
                .filter(|select| select.is_power_of_two())
                .map(|select| select.trailing_zeros() as u8),
            1 => Some((address >> 11 & 31) as u8),
            _ => None,
        }
    }
}

/// One data phase in which data moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DataPhase {
    /// Number of its transaction within the bus.
    pub transaction: u64,
    pub stamp: u64,
    pub data: Option<u64>,
    pub byte_enables: Option<u8>,
    pub parity_ok: Option<bool>,
}

/// Clocks of one window by class (`pci-reference`, "Exact clock accounting").
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Counts {
    pub unknown: u64,
    pub idle: u64,
    pub address: u64,
    pub data: u64,
    pub stop: u64,
    pub abort: u64,
    pub turnaround: u64,
    pub decode: u64,
    pub both: u64,
    pub target: u64,
    pub initiator: u64,
    /// As in [`Transaction`].
    pub bytes: u64,
    /// Data phases in which a lane counted as enabled without being known.
    pub inexact_phases: u64,
}

impl Counts {
    pub fn wait(&self) -> u64 {
        self.turnaround + self.decode + self.both + self.target + self.initiator
    }

    pub fn busy(&self) -> u64 {
        self.address + self.data + self.stop + self.abort + self.wait()
    }

    pub fn total(&self) -> u64 {
        self.unknown + self.idle + self.busy()
    }

    pub fn add(&mut self, other: &Counts) {
        self.unknown += other.unknown;
        self.idle += other.idle;
        self.address += other.address;
        self.data += other.data;
        self.stop += other.stop;
        self.abort += other.abort;
        self.turnaround += other.turnaround;
        self.decode += other.decode;
        self.both += other.both;
        self.target += other.target;
        self.initiator += other.initiator;
        self.bytes += other.bytes;
        self.inexact_phases += other.inexact_phases;
    }
}

/// What one decoder found. Numbers count from the decoder's own start.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Rows {
    pub transactions: Transactions,
    pub data_phases: Phases,
    pub events: Vec<Event>,
    pub problems: Problems,
}

/// Takes the rows of a decoder as they come.
pub trait TakeRows {
    /// `first`: number of the first of the transactions. Numbers count from the decoder's own start.
    fn take<'a>(
        &mut self,
        first: u64,
        transactions: impl Iterator<Item = InTile<'a>>,
        data_phases: impl Iterator<Item = InPhases<'a>>,
        events: &[Event],
    );
}

impl TakeRows for Rows {
    fn take<'a>(
        &mut self,
        _first: u64,
        transactions: impl Iterator<Item = InTile<'a>>,
        data_phases: impl Iterator<Item = InPhases<'a>>,
        events: &[Event],
    ) {
        transactions.for_each(|some| self.transactions.extend(some));
        data_phases.for_each(|some| self.data_phases.extend(some));
        self.events.extend_from_slice(events);
    }
}

impl Counted for Transaction {
    fn counted_from(self, origin: Origin) -> Self {
        Transaction { start_clk: self.start_clk + origin.clocks, ..self }
    }
}

impl Counted for DataPhase {
    fn counted_from(self, origin: Origin) -> Self {
        DataPhase { transaction: self.transaction + origin.transactions, ..self }
    }
}

impl Counted for Event {
    fn counted_from(self, origin: Origin) -> Self {
        let transaction = self.transaction.map(|number| number + origin.transactions);
        Event { clk: self.clk + origin.clocks, transaction, begun: self.begun + origin.transactions, ..self }
    }
}

impl Rows {
    /// The same, with numbers that count from the start of the capture.
    pub fn counted_from(mut self, origin: Origin) -> Self {
        self.transactions.count_from(origin);
        self.data_phases.count_from(origin.transactions);
        self.events.iter_mut().for_each(|row| *row = row.counted_from(origin));
        self
    }
}

/// Class counts of consecutive windows: `(window number, counts)`.
pub type WindowCounts = Vec<(u64, Counts)>;

/// Appends `more`; the first of it may continue the last window there is.
pub fn append_windows(windows: &mut WindowCounts, more: WindowCounts) {
    for (number, counts) in more {
        match windows.last_mut() {
            Some((last, sum)) if *last == number => sum.add(&counts),
            _ => windows.push((number, counts)),
        }
    }
}
