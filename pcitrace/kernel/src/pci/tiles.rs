//! Transactions in tiles of a lane a field: what is told of several side by side is written side by side, and a column is made
//! of one lane.

use crate::bus::Origin;
use crate::columns::{Few, GROUP, Many, Told};
use crate::pci::rows::{Flags, Termination, Transaction};
use crate::samples::bits::bits_of_block;
use crate::samples::block::below;
use crate::samples::lanes::EIGHT;
use std::fmt::{self, Debug, Formatter};
use std::ops::Range;

/// Rows of a tile.
const TILE: usize = GROUP;
/// Eight rows that are written at once may go beyond a tile's end.
pub const ROOM: usize = TILE + EIGHT;

/// What stands in a lane of codes where there is none; no bus has so many lines.
pub const NONE: u8 = u8::MAX;

/// What a transaction may have or not: a bit of `has` each.
#[derive(Debug, Clone, Copy)]
pub enum Has {
    Address,
    Data,
    Claim,
    Initiator,
    Command,
    Message,
}

impl Has {
    /// Its bit, where it `is` there.
    #[inline(always)]
    pub const fn bit(self, is: bool) -> u8 {
        (is as u8) << self as u8
    }
}

macro_rules! lanes {
    ($($lane:ident: $value:ty),*) => {
        /// The fields of some transactions, as they are in [`Transaction`]. Of a code that one need not have there is [`NONE`],
        /// and 0 of clocks to DEVSEL#; what else may be missing is there where `has` says so.
        #[derive(Clone)]
        pub struct Tile {
            $(pub $lane: [$value; ROOM],)*
        }

        impl Tile {
            const EMPTY: Tile = Tile { $($lane: [0; _],)* };

            /// Takes rows of another one, from one of its own on.
            fn copy(&mut self, at: usize, other: &Tile, rows: Range<usize>) {
                $(self.$lane[at..][..rows.len()].copy_from_slice(&other.$lane[rows.clone()]);)*
            }
        }
    };
}

lanes! {
    start: u64, end: u64, start_clk: u64, clocks: u64, address: u64, data_phases: u64, first_data: u64, last_data: u64,
    bytes: u64, target_wait_clks: u64, initiator_wait_clks: u64, devsel_clks: u64, message: u32, address_phases: u8,
    command: u8, termination: u8, initiator: u8, idsel: u8, flags_set: u8, flags_known: u8, has: u8
}

impl Tile {
    #[inline(always)]
    pub fn get(&self, at: usize) -> Transaction {
        let has = |what: Has| self.has[at] & what.bit(true) != 0;
        // Whether there is one is often not to be foreseen: no branch asks.
        let code = |lane: &[u8; ROOM]| Some(lane[at]).filter(|&code| code != NONE);
        Transaction {
            start: self.start[at],
            end: self.end[at],
            start_clk: self.start_clk[at],
            clocks: self.clocks[at],
            command: code(&self.command),
            address: has(Has::Address).then_some(self.address[at]),
            address_phases: self.address_phases[at],
            data_phases: self.data_phases[at],
            first_data: self.first_data[at],
            last_data: self.last_data[at],
            bytes: self.bytes[at],
            target_wait_clks: self.target_wait_clks[at],
            initiator_wait_clks: self.initiator_wait_clks[at],
            devsel_clks: Some(self.devsel_clks[at] as u32).filter(|&clks| clks > 0),
            termination: Termination::of(self.termination[at]),
            initiator: code(&self.initiator),
            flags: Flags { set: self.flags_set[at], known: self.flags_known[at] },
            idsel: code(&self.idsel),
            message: has(Has::Message).then_some(self.message[at]),
        }
    }

    fn set(&mut self, at: usize, row: &Transaction) {
        self.start[at] = row.start;
        self.end[at] = row.end;
        self.start_clk[at] = row.start_clk;
        self.clocks[at] = row.clocks;
        self.command[at] = row.command.unwrap_or(NONE);
        self.address[at] = row.address.unwrap_or_default();
        self.address_phases[at] = row.address_phases;
        self.data_phases[at] = row.data_phases;
        self.first_data[at] = row.first_data;
        self.last_data[at] = row.last_data;
        self.bytes[at] = row.bytes;
        self.target_wait_clks[at] = row.target_wait_clks;
        self.initiator_wait_clks[at] = row.initiator_wait_clks;
        self.devsel_clks[at] = row.devsel_clks.unwrap_or_default().into();
        self.termination[at] = row.termination as u8;
        self.initiator[at] = row.initiator.unwrap_or(NONE);
        self.flags_set[at] = row.flags.set;
        self.flags_known[at] = row.flags.known;
        self.idsel[at] = row.idsel.unwrap_or(NONE);
        self.message[at] = row.message.unwrap_or_default();
        self.has[at] = Has::Address.bit(row.address.is_some())
            | Has::Data.bit(row.data_phases > 0)
            | Has::Claim.bit(row.devsel_clks.is_some())
            | Has::Initiator.bit(row.initiator.is_some())
            | Has::Command.bit(row.command.is_some())
            | Has::Message.bit(row.message.is_some());
    }
}

/// Transactions that follow each other.
#[derive(Clone, Default)]
pub struct Transactions {
    /// All are full but the last ones, which may be empty.
    tiles: Vec<Tile>,
    count: usize,
}

impl Transactions {
    pub fn len(&self) -> usize {
        self.count
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// What they take.
    pub fn bytes(&self) -> usize {
        self.count * (size_of::<Tile>() / ROOM)
    }

    pub fn reserve(&mut self, more: usize) {
        self.tiles.reserve((self.count + more).div_ceil(TILE).saturating_sub(self.tiles.len()));
    }

    /// The tile that eight more rows may be written to, and from where on.
    #[inline(always)]
    pub fn room(&mut self) -> (&mut Tile, usize) {
        let tile = self.count / TILE;
        // The next one, too, for what goes beyond its end.
        while self.tiles.len() < tile + 2 {
            self.tiles.push(Tile::EMPTY);
        }
        (&mut self.tiles[tile], self.count % TILE)
    }

    /// So many of the eight were written, and count.
    #[inline(always)]
    pub fn wrote(&mut self, count: usize) {
        let tile = self.count / TILE;
        if self.count % TILE + count > TILE
            && let [before, next] = &mut self.tiles[tile..][..2]
        {
            next.copy(0, before, TILE..ROOM);
        }
        self.count += count;
    }

    #[inline(always)]
    pub fn push(&mut self, row: &Transaction) {
        let (tile, at) = self.room();
        tile.set(at, row);
        self.count += 1;
    }

    pub fn extend(&mut self, some: InTile) {
        let mut from = some.from;
        while from < some.to {
            let (tile, at) = self.room();
            let to = some.to.min(from + TILE - at);
            tile.copy(at, some.tile, from..to);
            self.count += to - from;
            from = to;
        }
    }

    #[inline(always)]
    pub fn get(&self, nth: usize) -> Transaction {
        debug_assert!(nth < self.count);
        self.tiles[nth / TILE].get(nth % TILE)
    }

    pub fn last(&self) -> Option<Transaction> {
        Some(self.get(self.count.checked_sub(1)?))
    }

    pub fn set_flags(&mut self, nth: usize, flags: Flags) {
        let (tile, at) = (&mut self.tiles[nth / TILE], nth % TILE);
        (tile.flags_set[at], tile.flags_known[at]) = (flags.set, flags.known);
    }

    pub fn iter(&self) -> impl Iterator<Item = Transaction> {
        (0..self.count).map(|nth| self.get(nth))
    }

    /// The transactions from one number on and before another, by the tiles that they lie in.
    pub fn some(&self, rows: Range<usize>) -> impl Iterator<Item = InTile<'_>> {
        let tiles = rows.start / TILE..rows.end.div_ceil(TILE);
        tiles.map(move |tile| {
            let within = |row: usize| row.saturating_sub(tile * TILE).min(TILE);
            InTile { tile: &self.tiles[tile], from: within(rows.start), to: within(rows.end) }
        })
    }

    /// How many from the first on begin at this clock or before.
    pub fn begun(&self, clk: u64) -> usize {
        let full = self.tiles[..self.count.div_ceil(TILE)].partition_point(|tile| tile.start_clk[0] <= clk);
        let Some(tile) = full.checked_sub(1) else { return 0 };
        let rows = (self.count - tile * TILE).min(TILE);
        tile * TILE + self.tiles[tile].start_clk[..rows].partition_point(|&start| start <= clk)
    }

    /// Forgets so many of the first ones: nearly all. The room stays.
    pub fn forget(&mut self, gone: usize) {
        if gone == 0 {
            return;
        }
        let left = gone..std::mem::take(&mut self.count);
        for nth in left {
            let row = self.tiles[nth / TILE].get(nth % TILE);
            self.push(&row);
        }
    }

    /// Their clocks count from the start of the capture, after this.
    pub fn count_from(&mut self, origin: Origin) {
        self.tiles.iter_mut().flat_map(|tile| &mut tile.start_clk).for_each(|clk| *clk += origin.clocks);
    }
}

impl Many<Transaction> for Transactions {
    fn count(&self) -> usize {
        self.len()
    }

    fn push(&mut self, row: Transaction) {
        self.push(&row);
    }

    fn into_rows(self) -> impl Iterator<Item = Transaction> {
        (0..self.count).map(move |nth| self.get(nth))
    }

    fn some(&self, rows: Range<usize>) -> impl Iterator<Item = InTile<'_>> {
        self.some(rows)
    }
}

impl PartialEq for Transactions {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Debug for Transactions {
    fn fmt(&self, to: &mut Formatter) -> fmt::Result {
        to.debug_list().entries(self.iter()).finish()
    }
}

/// Some transactions of a tile.
#[derive(Clone, Copy)]
pub struct InTile<'a> {
    pub tile: &'a Tile,
    pub from: usize,
    pub to: usize,
}

impl InTile<'_> {
    /// Each bit of their values in a lane, as a word.
    #[inline(always)]
    pub fn bits(self, lane: &[u8; ROOM]) -> [u64; 8] {
        let all = bits_of_block(lane.first_chunk().expect("a tile is not longer"));
        all.map(|bits| bits >> (self.from % TILE) & below(self.count() as u32))
    }
}

impl Told for InTile<'_> {
    type Row = Transaction;

    #[inline(always)]
    fn count(self) -> usize {
        self.to - self.from
    }

    #[inline(always)]
    fn told<T>(self, nth: usize, tell: impl FnOnce(&Transaction) -> T) -> T {
        tell(&self.tile.get(self.from + nth))
    }
}

impl Told for &Tile {
    type Row = Transaction;

    #[inline(always)]
    fn count(self) -> usize {
        TILE
    }

    #[inline(always)]
    fn told<T>(self, nth: usize, tell: impl FnOnce(&Transaction) -> T) -> T {
        tell(&self.get(nth))
    }
}

impl<'a> Few for InTile<'a> {
    type Group = &'a Tile;

    #[inline(always)]
    fn split_at(self, at: usize) -> (Self, Self) {
        let middle = self.from + at;
        (InTile { to: middle, ..self }, InTile { from: middle, ..self })
    }

    #[inline(always)]
    fn group(self) -> Option<&'a Tile> {
        (self.count() == TILE).then_some(self.tile)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pci::rows::Flag;
    use proptest::prelude::*;

    fn row(nth: u64) -> Transaction {
        let mut flags = Flags::default();
        flags.tell(Flag::Suspect, (!nth.is_multiple_of(3)).then_some(nth % 3 == 1));
        let some = |every: u64| (!nth.is_multiple_of(every)).then_some(nth % 200);
        Transaction {
            start: 7 * nth,
            end: 7 * nth + 5,
            start_clk: 2 * nth,
            clocks: 1 + nth % 9,
            command: some(2).map(|number| number as u8),
            address: some(3),
            address_phases: 1 + (nth % 2) as u8,
            data_phases: nth % 4,
            first_data: 7 * nth + 1,
            last_data: 7 * nth + 2,
            bytes: nth % 31,
            target_wait_clks: nth % 11,
            initiator_wait_clks: nth % 13,
            devsel_clks: some(5).map(|clks| 1 + clks as u32),
            termination: Termination::of((nth % 9) as u8),
            initiator: some(7).map(|number| number as u8),
            flags,
            idsel: some(8).map(|number| number as u8),
            message: some(9).map(|number| number as u32),
        }
    }

    proptest! {
        /// However they come: one by one, some of them out of other tiles, or eight at a time of which a few count.
        #[test]
        fn transactions_come_back(steps in proptest::collection::vec((0u8..4, 0usize..150, 0usize..9), 0..40)) {
            let (mut all, mut expected, mut next) = (Transactions::default(), Vec::<Transaction>::new(), 0);
            for (step, many, few) in steps {
                let count = if step == 1 { many } else { few };
                let rows: Vec<_> = (next..next + count as u64).map(row).collect();
                next += count as u64;
                expected.extend(rows.iter().cloned());
                match step {
                    0 => rows.iter().for_each(|row| all.push(row)),
                    1 => {
                        let mut others = Transactions::default();
                        (0..few as u64).map(row).chain(rows).for_each(|row| others.push(&row));
                        others.some(few..few + count).for_each(|some| all.extend(some));
                    }
                    2 => {
                        let (tile, at) = all.room();
                        (0..EIGHT).for_each(|lane| tile.set(at + lane, rows.get(lane).unwrap_or(&row(0))));
                        all.wrote(count);
                    }
                    _ => {
                        rows.iter().for_each(|row| all.push(row));
                        let gone = many.min(expected.len());
                        all.forget(gone);
                        expected.drain(..gone);
                    }
                }
                let begun = expected.iter().filter(|row| row.start_clk <= next).count();
                prop_assert_eq!((all.len(), all.begun(next)), (expected.len(), begun));
                prop_assert!(all.iter().eq(expected.iter().cloned()));
            }
        }
    }
}
