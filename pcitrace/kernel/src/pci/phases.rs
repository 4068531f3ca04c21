//! Data phases in tiles, as transactions are: a lane a field, and what is so of a phase or not as a bit of a word.

use crate::columns::{Few, GROUP, Many, Marks, Told};
use crate::pci::rows::DataPhase;
use crate::samples::block::below;
use std::fmt::{self, Debug, Formatter};
use std::ops::Range;

/// Rows of a tile.
const TILE: usize = GROUP;

/// The fields of some data phases, as they are in [`DataPhase`]. Where there is none anything may stand.
#[derive(Clone)]
pub struct PhaseTile {
    transaction: [u64; TILE],
    stamp: [u64; TILE],
    data: [u64; TILE],
    byte_enables: [u8; TILE],
    has_data: u64,
    has_enables: u64,
    parity_known: u64,
    parity_ok: u64,
}

impl PhaseTile {
    const EMPTY: PhaseTile = PhaseTile {
        transaction: [0; _],
        stamp: [0; _],
        data: [0; _],
        byte_enables: [0; _],
        has_data: 0,
        has_enables: 0,
        parity_known: 0,
        parity_ok: 0,
    };

    #[inline(always)]
    fn get(&self, at: usize) -> DataPhase {
        let is = |word: u64| word >> at & 1 != 0;
        DataPhase {
            transaction: self.transaction[at],
            stamp: self.stamp[at],
            data: is(self.has_data).then_some(self.data[at]),
            byte_enables: is(self.has_enables).then_some(self.byte_enables[at]),
            parity_ok: is(self.parity_known).then_some(is(self.parity_ok)),
        }
    }
}

/// Data phases of one transaction that follow each other, 64 at most.
pub struct Run<'a> {
    pub transaction: u64,
    pub stamps: &'a [u64],
    /// As many, or none where AD was not captured.
    pub data: &'a [u64],
    /// The same for all.
    pub byte_enables: Option<u8>,
}

/// Data phases that follow each other.
#[derive(Clone, Default)]
pub struct Phases {
    /// Of the last one not all need be there; in words, what is behind it is 0. More may follow whose room is used again.
    tiles: Vec<PhaseTile>,
    count: usize,
}

impl Phases {
    pub fn len(&self) -> usize {
        self.count
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// What they take.
    pub fn bytes(&self) -> usize {
        self.count * (size_of::<PhaseTile>() / TILE)
    }

    pub fn reserve(&mut self, more: usize) {
        self.tiles.reserve((self.count + more).div_ceil(TILE).saturating_sub(self.tiles.len()));
    }

    /// The tile that the next row is written to, and where.
    #[inline(always)]
    fn room(&mut self) -> (&mut PhaseTile, usize) {
        let (tile, at) = (self.count / TILE, self.count % TILE);
        if self.tiles.len() == tile {
            self.tiles.push(PhaseTile::EMPTY);
        }
        let tile = &mut self.tiles[tile];
        if at == 0 {
            (tile.has_data, tile.has_enables, tile.parity_known, tile.parity_ok) = (0, 0, 0, 0);
        }
        (tile, at)
    }

    #[inline(always)]
    pub fn push(&mut self, row: &DataPhase) {
        let (tile, at) = self.room();
        let bit = |is: bool| u64::from(is) << at;
        tile.transaction[at] = row.transaction;
        tile.stamp[at] = row.stamp;
        tile.data[at] = row.data.unwrap_or_default();
        tile.byte_enables[at] = row.byte_enables.unwrap_or_default();
        tile.has_data |= bit(row.data.is_some());
        tile.has_enables |= bit(row.byte_enables.is_some());
        tile.parity_known |= bit(row.parity_ok.is_some());
        tile.parity_ok |= bit(row.parity_ok == Some(true));
        self.count += 1;
    }

    /// Adds data phases of whose parity nothing is known yet.
    #[inline(always)]
    pub fn push_run(&mut self, run: &Run) {
        let mut from = 0;
        while from < run.stamps.len() {
            let (tile, at) = self.room();
            let count = (run.stamps.len() - from).min(TILE - at);
            let rows = below(count as u32) << at;
            tile.transaction[at..][..count].fill(run.transaction);
            tile.stamp[at..][..count].copy_from_slice(&run.stamps[from..][..count]);
            if !run.data.is_empty() {
                tile.data[at..][..count].copy_from_slice(&run.data[from..][..count]);
                tile.has_data |= rows;
            }
            if let Some(byte_enables) = run.byte_enables {
                tile.byte_enables[at..][..count].fill(byte_enables);
                tile.has_enables |= rows;
            }
            self.count += count;
            from += count;
        }
    }

    /// Of the last rows, as many as `count`, the parity is known, and right: a bit each.
    #[inline(always)]
    pub fn tell_parity(&mut self, count: usize, known: u64, ok: u64) {
        let from = self.count - count;
        let (tile, at) = (from / TILE, from % TILE);
        // The first tile's rows, and those of the one behind it.
        let words = |bits: u64| [bits << at, bits >> 1 >> (TILE - 1 - at)];
        for ((tile, known), ok) in self.tiles[tile..].iter_mut().zip(words(known)).zip(words(ok)) {
            tile.parity_known |= known;
            tile.parity_ok |= ok;
        }
    }

    #[inline(always)]
    pub fn get(&self, nth: usize) -> DataPhase {
        debug_assert!(nth < self.count);
        self.tiles[nth / TILE].get(nth % TILE)
    }

    pub fn first(&self) -> Option<DataPhase> {
        (self.count > 0).then(|| self.get(0))
    }

    pub fn iter(&self) -> impl Iterator<Item = DataPhase> {
        (0..self.count).map(|nth| self.get(nth))
    }

    /// The rows from one number on and before another, by the tiles that they lie in.
    pub fn some(&self, rows: Range<usize>) -> impl Iterator<Item = InPhases<'_>> {
        let tiles = rows.start / TILE..rows.end.div_ceil(TILE);
        tiles.map(move |tile| {
            let within = |row: usize| row.saturating_sub(tile * TILE).min(TILE);
            InPhases { tile: &self.tiles[tile], from: within(rows.start), to: within(rows.end) }
        })
    }

    pub fn extend(&mut self, some: InPhases) {
        for at in some.from..some.to {
            self.push(&some.tile.get(at));
        }
    }

    /// Forgets so many of the first ones: nearly all. The room stays.
    pub fn forget(&mut self, gone: usize) {
        if gone == 0 {
            return;
        }
        let left: Vec<_> = (gone..self.count).map(|nth| self.get(nth)).collect();
        self.count = 0;
        left.iter().for_each(|row| self.push(row));
    }

    /// Their transactions count from the start of the capture, after so many.
    pub fn count_from(&mut self, transactions: u64) {
        self.tiles.iter_mut().flat_map(|tile| &mut tile.transaction).for_each(|number| *number += transactions);
    }
}

impl Many<DataPhase> for Phases {
    fn count(&self) -> usize {
        self.len()
    }

    fn push(&mut self, row: DataPhase) {
        self.push(&row);
    }

    fn into_rows(self) -> impl Iterator<Item = DataPhase> {
        (0..self.count).map(move |nth| self.get(nth))
    }

    fn some(&self, rows: Range<usize>) -> impl Iterator<Item = InPhases<'_>> {
        self.some(rows)
    }
}

impl FromIterator<DataPhase> for Phases {
    fn from_iter<I: IntoIterator<Item = DataPhase>>(rows: I) -> Self {
        let mut phases = Phases::default();
        rows.into_iter().for_each(|row| phases.push(&row));
        phases
    }
}

impl PartialEq for Phases {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Debug for Phases {
    fn fmt(&self, to: &mut Formatter) -> fmt::Result {
        to.debug_list().entries(self.iter()).finish()
    }
}

/// Some data phases of a tile.
#[derive(Clone, Copy)]
pub struct InPhases<'a> {
    tile: &'a PhaseTile,
    from: usize,
    to: usize,
}

impl InPhases<'_> {
    /// The marks of these rows: that the parity is right, that it is known, and that there are data and byte enables.
    #[inline(always)]
    pub fn marks(self) -> Marks {
        let PhaseTile { parity_ok, parity_known, has_data, has_enables, .. } = *self.tile;
        let mut marks = Marks::default();
        for (mark, word) in marks[0].iter_mut().zip([parity_ok, parity_known, has_data, has_enables]) {
            *mark = word >> (self.from % TILE) & below(self.count() as u32);
        }
        marks
    }
}

impl Told for InPhases<'_> {
    type Row = DataPhase;

    #[inline(always)]
    fn count(self) -> usize {
        self.to - self.from
    }

    #[inline(always)]
    fn told<T>(self, nth: usize, tell: impl FnOnce(&DataPhase) -> T) -> T {
        tell(&self.tile.get(self.from + nth))
    }
}

impl Told for &PhaseTile {
    type Row = DataPhase;

    #[inline(always)]
    fn count(self) -> usize {
        TILE
    }

    #[inline(always)]
    fn told<T>(self, nth: usize, tell: impl FnOnce(&DataPhase) -> T) -> T {
        tell(&self.get(nth))
    }
}

impl<'a> Few for InPhases<'a> {
    type Group = &'a PhaseTile;

    #[inline(always)]
    fn split_at(self, at: usize) -> (Self, Self) {
        let middle = self.from + at;
        (InPhases { to: middle, ..self }, InPhases { from: middle, ..self })
    }

    #[inline(always)]
    fn group(self) -> Option<&'a PhaseTile> {
        (self.count() == TILE).then_some(self.tile)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::columns::{Context, batch};
    use crate::pci::layout::{BusSpec, BusTables, Layout};
    use crate::pci::tables;
    use crate::samples::places::Source;
    use crate::time::TimeBase;
    use proptest::prelude::*;
    use std::sync::Arc;

    /// A bus of whose data phases everything can be told.
    fn bus() -> BusTables {
        let control = ["CLK", "FRAME#", "IRDY#", "TRDY#", "CBE0#", "CBE1#", "CBE2#", "CBE3#", "PAR"];
        let ad = (0..32).map(|nth| format!("AD{nth}"));
        let names = control.map(String::from).into_iter().chain(ad).enumerate();
        let lines = names.map(|(channel, name)| (name, Source { channel, bit: 0, active_low: false })).collect();
        let spec = BusSpec { name: "PCI".into(), width: None, lines };
        let layout = Layout::new(&spec, 8, false, |source| source.channel).expect("a bus");
        BusTables { name: spec.name, index: 0, layout, time: TimeBase::per_second(1e8).expect("a rate") }
    }

    fn row(nth: u64) -> DataPhase {
        let some = |every: u64| (!nth.is_multiple_of(every)).then_some(nth % 16);
        DataPhase {
            transaction: nth / 3,
            stamp: 7 * nth,
            data: some(2),
            byte_enables: some(3).map(|number| number as u8),
            parity_ok: some(5).map(|number| number % 2 == 0),
        }
    }

    proptest! {
        /// However they come: one by one, out of other tiles, or as runs whose parity is told behind them.
        #[test]
        fn data_phases_come_back(steps in proptest::collection::vec((0u8..4, 0usize..150, any::<(u64, u64)>()), 0..40)) {
            let (mut all, mut expected, mut next) = (Phases::default(), Vec::new(), 0);
            for (step, many, (known, ok)) in steps {
                let count = if step == 2 { many % 65 } else { many };
                let mut rows: Vec<_> = (next..next + count as u64).map(row).collect();
                next += count as u64;
                match step {
                    0 => rows.iter().for_each(|row| all.push(row)),
                    1 => {
                        let others: Phases = (0..9).map(row).chain(rows.iter().copied()).collect();
                        others.some(9..9 + count).for_each(|some| all.extend(some));
                    }
                    2 => {
                        let (known, ok) = (known & below(count as u32), ok & known & below(count as u32));
                        let stamps: Vec<_> = rows.iter().map(|row| row.stamp).collect();
                        let data = if many % 3 == 0 { Vec::new() } else { stamps.clone() };
                        let byte_enables = (many % 2 == 0).then_some(9);
                        for (nth, row) in rows.iter_mut().enumerate() {
                            let is = |word: u64| word >> nth & 1 != 0;
                            row.transaction = 5;
                            row.data = data.get(nth).copied();
                            row.byte_enables = byte_enables;
                            row.parity_ok = is(known).then_some(is(ok));
                        }
                        all.push_run(&Run { transaction: 5, stamps: &stamps, data: &data, byte_enables });
                        all.tell_parity(count, known, ok);
                    }
                    _ => {
                        rows.iter().for_each(|row| all.push(row));
                        let gone = many.min(expected.len());
                        all.forget(gone);
                        expected.drain(..gone);
                    }
                }
                expected.extend(rows);
                prop_assert_eq!(all.len(), expected.len());
                prop_assert!(all.iter().eq(expected.iter().copied()));
            }
        }
    }

    proptest! {
        /// Columns of whole tiles, of what is left where they are split, and of each row by itself.
        #[test]
        fn columns_are_the_same_however_rows_are_split(count in 0usize..400, cuts in proptest::collection::vec(0usize..64, 1..9)) {
            let (bus, rows) = (bus(), (0..count as u64).map(row).collect::<Phases>());
            let context = Context { bus: &bus, number: 0 };
            let (mut pieces, mut at) = (Vec::new(), cuts.iter().cycle());
            for few in rows.some(0..count) {
                let (first, rest) = few.split_at(few.count().min(*at.next().expect("a cycle")));
                pieces.extend([(context, first), (context, rest)]);
            }
            let whole: Vec<_> = rows.some(0..count).map(|few| (context, few)).collect();
            let each: Vec<_> = (0..count).flat_map(|row| rows.some(row..row + 1)).map(|few| (context, few)).collect();
            let (columns, buses) = (Arc::new(tables::data_phases()), [bus.clone()]);
            let table = batch(&columns, &buses, &each);
            prop_assert_eq!(&batch(&columns, &buses, &pieces), &table);
            prop_assert_eq!(&batch(&columns, &buses, &whole), &table);
        }
    }
}
