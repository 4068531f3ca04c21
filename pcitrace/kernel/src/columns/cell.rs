//! The cells of a column, as they come: values in lanes, bits in words.

use crate::columns::{Context, Told};
use crate::lane::{Lane, Rooms};
use crate::samples::bits::{Bit, has_fast_path, line_of_block};
use arrow_array::types::UInt8Type;
use arrow_array::{ArrayRef, ArrowPrimitiveType, DictionaryArray, PrimitiveArray, StringArray};
use arrow_buffer::{BooleanBuffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use std::iter::repeat_n;
use std::ptr::copy_nonoverlapping;
use std::sync::Arc;

/// The cells of one column. Only what its type needs is ever filled.
#[derive(Clone, Default)]
pub struct Cells {
    pub coded: bool,
    pub nullable: bool,
    /// Null in all rows: nothing is filled.
    pub untold: bool,
    /// The names that cells may hold, by bus.
    pub lists: Arc<Vec<Names>>,
    pub floats: Lane<f64>,
    pub integers: Lane<u64>,
    /// Small numbers, or places in the list of names.
    pub bytes: Lane<u8>,
    pub texts: Lane<u8>,
    /// Where in `texts` each text begins, and the last one ends.
    pub offsets: Lane<i32>,
    pub flags: Bits,
    pub valid: Bits,
    /// Of a text that is the same in all rows of a bus: so many rows of which bus follow each other. It is written at last.
    pub same: Vec<(usize, usize)>,
}

impl Cells {
    /// Without rows, for the same ones.
    pub fn empty(&self) -> Self {
        let mut cells = Cells {
            coded: self.coded,
            nullable: self.nullable,
            untold: self.untold,
            lists: self.lists.clone(),
            ..Cells::default()
        };
        if let Some(&first) = self.offsets.first() {
            cells.offsets.push(first);
        }
        cells
    }

    /// So many more rows of this bus, of a text that is the same in all of them.
    pub fn same(&mut self, bus: usize, rows: usize) {
        match self.same.last_mut() {
            Some((last, count)) if *last == bus => *count += rows,
            _ => self.same.push((bus, rows)),
        }
    }

    /// The text that is the same in all rows, and the bus that they are of.
    pub fn one_text(&self) -> Option<(usize, &str)> {
        match self.same[..] {
            [(bus, _)] if !self.coded => Some((bus, &self.lists[bus].texts[0])),
            _ => None,
        }
    }

    pub fn write_same(&mut self) {
        for (bus, count) in std::mem::take(&mut self.same) {
            if self.coded {
                self.bytes.extend(repeat_n(0, count));
                continue;
            }
            for _ in 0..count {
                self.texts.extend_from_slice(self.lists[bus].texts[0].as_bytes());
                self.offsets.push(self.texts.len() as i32);
            }
        }
    }

    /// Room for so many rows of texts.
    pub fn make_text_room(&mut self, rows: usize, rooms: &mut Rooms) {
        let longest = self.lists.iter().map(|names| names.longest).max().unwrap_or(0);
        // What is copied in one go needs room at the end.
        let bytes = rows * longest.min(MEAN_BYTES) + rows.min(AT_ONCE) * longest.max(NAME_BYTES);
        rooms.make(&mut self.texts, bytes);
        rooms.make(&mut self.offsets, rows + 1);
    }

    pub fn texts<F: Told, L>(
        &mut self,
        part: &Part<F, L>,
        cell: impl for<'a> Fn(&Context<'a, L>, &F::Row) -> Option<&'a str>,
    ) {
        for text in told(part, &cell) {
            self.texts.extend_from_slice(text.unwrap_or_default().as_bytes());
            self.offsets.push(self.texts.len() as i32);
        }
        self.validity(part, |context, row| cell(context, row).is_some());
    }

    #[inline(always)]
    pub fn names<F: Told, L>(&mut self, part: &Part<F, L>, cell: impl Fn(&Context<L>, &F::Row) -> Option<u8>) {
        if self.coded {
            self.bytes.extend(told(part, &cell).map(Option::unwrap_or_default));
        } else {
            let names = &self.lists[part.0.bus.index];
            self.texts.reserve(part.1.count() * names.longest.max(NAME_BYTES));
            // Safety: there is room for so many bytes of each of these rows.
            unsafe { names.write_all(told(part, &cell), &mut self.texts, &mut self.offsets) };
        }
        self.validity(part, |context, row| cell(context, row).is_some());
    }

    #[inline(always)]
    pub fn floats<F: Told, L>(&mut self, part: &Part<F, L>, cell: impl Fn(&Context<L>, &F::Row) -> Option<f64>) {
        fill(&mut self.floats, part, |context, row| cell(context, row).unwrap_or_default());
        self.validity(part, |context, row| cell(context, row).is_some());
    }

    #[inline(always)]
    pub fn integers<F: Told, L>(&mut self, part: &Part<F, L>, cell: impl Fn(&Context<L>, &F::Row) -> Option<u64>) {
        fill(&mut self.integers, part, |context, row| cell(context, row).unwrap_or_default());
        self.validity(part, |context, row| cell(context, row).is_some());
    }

    #[inline(always)]
    pub fn bytes<F: Told, L>(&mut self, part: &Part<F, L>, cell: impl Fn(&Context<L>, &F::Row) -> Option<u8>) {
        fill(&mut self.bytes, part, |context, row| cell(context, row).unwrap_or_default());
        self.validity(part, |context, row| cell(context, row).is_some());
    }

    #[inline(always)]
    pub fn flags<F: Told, L>(&mut self, part: &Part<F, L>, cell: impl Fn(&Context<L>, &F::Row) -> Option<bool>) {
        self.flags.extend(part, |context, row| cell(context, row) == Some(true));
        self.validity(part, |context, row| cell(context, row).is_some());
    }

    #[inline(always)]
    fn validity<F: Told, L>(&mut self, part: &Part<F, L>, known: impl Fn(&Context<L>, &F::Row) -> bool) {
        if self.nullable {
            self.valid.extend(part, known);
        }
    }

    pub fn append(&mut self, more: &Cells) {
        let before = self.texts.len() as i32;
        self.floats.extend_from_slice(&more.floats);
        self.integers.extend_from_slice(&more.integers);
        self.bytes.extend_from_slice(&more.bytes);
        self.texts.extend_from_slice(&more.texts);
        self.offsets.extend(more.offsets.iter().skip(1).map(|offset| before + offset));
        self.flags.append(&more.flags);
        self.valid.append(&more.valid);
        more.same.iter().for_each(|&(bus, rows)| self.same(bus, rows));
    }

    pub fn into_codes(self, bus: usize) -> ArrayRef {
        let names = StringArray::from_iter_values(self.lists[bus].texts.iter());
        let codes = PrimitiveArray::<UInt8Type>::new(self.bytes.into_buffer().into(), self.valid.into_nulls());
        Arc::new(DictionaryArray::new(codes, Arc::new(names)))
    }

    pub fn into_texts(self) -> ArrayRef {
        // Safety: each offset is the length of the texts when it was pushed, and the texts are whole strings.
        unsafe {
            let offsets = OffsetBuffer::new_unchecked(ScalarBuffer::from(self.offsets.into_buffer()));
            Arc::new(StringArray::new_unchecked(offsets, self.texts.into_buffer(), self.valid.into_nulls()))
        }
    }
}

/// Some rows, with what the first of them needs besides itself.
type Part<'a, F, L> = (Context<'a, L>, F);

/// What is told of each row of a part, in its own context.
#[inline(always)]
fn told<'a, F: Told, L, T>(
    &(context, few): &Part<'a, F, L>,
    tell: impl Fn(&Context<'a, L>, &F::Row) -> T,
) -> impl ExactSizeIterator<Item = T> {
    (0..few.count())
        .map(move |nth| few.told(nth, |row| tell(&Context { number: context.number + nth as u64, ..context }, row)))
}

/// Appends what is told of each row, by the processor's vector instructions where it has them.
#[inline(always)]
fn fill<F: Told, L, T: Copy>(lane: &mut Lane<T>, part: &Part<F, L>, tell: impl Fn(&Context<L>, &F::Row) -> T) {
    #[cfg(target_arch = "x86_64")]
    if has_fast_path() {
        #[target_feature(enable = "avx2,bmi1,bmi2,popcnt,lzcnt")]
        fn by_vectors<F: Told, L, T: Copy>(
            lane: &mut Lane<T>,
            part: &Part<F, L>,
            tell: impl Fn(&Context<L>, &F::Row) -> T,
        ) {
            lane.extend(told(part, tell));
        }
        // Safety: the processor has these features.
        return unsafe { by_vectors(lane, part, tell) };
    }
    lane.extend(told(part, tell));
}

/// A column of one text.
pub fn text_in_all(text: &str, rows: usize) -> ArrayRef {
    assert!(i32::try_from(rows * text.len()).is_ok(), "a batch is not that long");
    let offsets: Vec<i32> = (0..=rows).map(|row| (row * text.len()) as i32).collect();
    let texts = text.repeat(rows).into_bytes();
    // Safety: each text ends where the next one begins, and they are whole strings.
    unsafe {
        let offsets = OffsetBuffer::new_unchecked(ScalarBuffer::from(offsets));
        Arc::new(StringArray::new_unchecked(offsets, texts.into(), None))
    }
}

pub fn primitive<T: ArrowPrimitiveType>(values: Lane<T::Native>, valid: Bits) -> ArrayRef {
    Arc::new(PrimitiveArray::<T>::new(values.into_buffer().into(), valid.into_nulls()))
}

/// Most names are shorter; they are copied in one go, in two sizes.
const NAME_BYTES: usize = 32;
const SHORT_BYTES: usize = 8;
/// The mean of long names is not longer.
const MEAN_BYTES: usize = 12;
/// Rows of whose names there is room for the longest, so that they are mostly longer than the mean without a move.
const AT_ONCE: usize = 1024;

/// The names that a column may hold.
pub struct Names {
    texts: Vec<String>,
    /// The beginning of each; behind them an empty one, of cells without a name.
    padded: Vec<Name>,
    pub longest: usize,
}

struct Name {
    bytes: [u8; NAME_BYTES],
    length: usize,
}

impl Names {
    pub fn new(texts: &[&str]) -> Self {
        let name = |text: &str| {
            let mut bytes = [0; NAME_BYTES];
            bytes.iter_mut().zip(text.bytes()).for_each(|(to, byte)| *to = byte);
            Name { bytes, length: text.len() }
        };
        Names {
            texts: texts.iter().map(|&text| text.into()).collect(),
            padded: texts.iter().chain(&[""]).map(|text| name(text)).collect(),
            longest: texts.iter().map(|text| text.len()).max().unwrap_or(0),
        }
    }

    /// Writes the names with these codes.
    ///
    /// # Safety
    /// There has to be room for [`NAME_BYTES`] of each, and for the longest name.
    #[inline(always)]
    unsafe fn write_all(
        &self,
        codes: impl ExactSizeIterator<Item = Option<u8>>,
        texts: &mut Lane<u8>,
        offsets: &mut Lane<i32>,
    ) {
        if self.longest <= SHORT_BYTES {
            // Safety: as the caller says, here and below.
            return unsafe { self.write::<SHORT_BYTES>(codes, texts, offsets) };
        }
        #[cfg(target_arch = "x86_64")]
        if has_fast_path() {
            #[target_feature(enable = "avx2,bmi1,bmi2,popcnt,lzcnt")]
            unsafe fn by_vectors(
                names: &Names,
                codes: impl ExactSizeIterator<Item = Option<u8>>,
                texts: &mut Lane<u8>,
                offsets: &mut Lane<i32>,
            ) {
                unsafe { names.write::<NAME_BYTES>(codes, texts, offsets) };
            }
            // Safety: the processor has these features.
            return unsafe { by_vectors(self, codes, texts, offsets) };
        }
        unsafe { self.write::<NAME_BYTES>(codes, texts, offsets) };
    }

    /// Writes the names with these codes. Of each name `BYTES` are copied in one go, padding and all; what is behind its end is
    /// written over. Whether there is a name is often not to be foreseen: no branch asks.
    ///
    /// # Safety
    /// There has to be room for so many bytes of each, and for the longest name.
    #[inline(always)]
    unsafe fn write<const BYTES: usize>(
        &self,
        codes: impl ExactSizeIterator<Item = Option<u8>>,
        texts: &mut Lane<u8>,
        offsets: &mut Lane<i32>,
    ) {
        let (names, none, has_long) = (self.padded.as_slice(), self.texts.len(), self.longest > NAME_BYTES);
        let before = texts.len();
        let to = texts.spare().as_mut_ptr().cast::<u8>();
        let mut length = 0;
        offsets.extend(codes.map(|code| {
            let place = code.map_or(none, usize::from);
            let name = &names[place];
            // Safety: as the caller says.
            unsafe {
                copy_nonoverlapping(name.bytes.as_ptr(), to.add(length), BYTES);
                if has_long && name.length > NAME_BYTES {
                    copy_nonoverlapping(self.texts[place].as_ptr(), to.add(length), name.length);
                }
            }
            length += name.length;
            (before + length) as i32
        }));
        // Safety: so many were written.
        unsafe { texts.wrote(length) };
    }
}

/// A column of bits, 64 at a time.
#[derive(Clone, Default)]
pub struct Bits {
    pub words: Lane<u64>,
    count: usize,
}

impl Bits {
    /// Of a group of rows, or fewer.
    #[inline(always)]
    fn extend<F: Told, L>(&mut self, part: &Part<F, L>, bit: impl Fn(&Context<L>, &F::Row) -> bool) {
        self.push(word_of(told(part, bit)), part.1.count());
    }

    /// Appends the lowest `count` bits, 64 at most; those above are 0.
    #[inline(always)]
    pub fn push(&mut self, bits: u64, count: usize) {
        let used = self.count % 64;
        match self.words.last_mut().filter(|_| used > 0) {
            Some(last) => {
                *last |= bits << used;
                if used + count > 64 {
                    self.words.push(bits >> (64 - used));
                }
            }
            None => self.words.push(bits),
        }
        self.count += count;
    }

    fn append(&mut self, more: &Bits) {
        for (nth, &word) in more.words.iter().enumerate() {
            self.push(word, (more.count - 64 * nth).min(64));
        }
    }

    pub fn finish(self) -> BooleanBuffer {
        BooleanBuffer::new(self.words.into_buffer(), 0, self.count)
    }

    /// As validity: None where there is no null.
    pub fn into_nulls(self) -> Option<NullBuffer> {
        (self.count > 0).then(|| NullBuffer::new(self.finish())).filter(|nulls| nulls.null_count() > 0)
    }
}

/// What is so of 64 rows or fewer, the first one lowest.
#[inline(always)]
pub fn word<R>(rows: &[R], is: impl Fn(&R) -> bool) -> u64 {
    word_of(rows.iter().map(is))
}

#[inline(always)]
fn word_of(is: impl Iterator<Item = bool>) -> u64 {
    let mut bytes = [0; 64];
    bytes.iter_mut().zip(is).for_each(|(byte, is)| *byte = u8::from(is));
    line_of_block(&bytes, 1, Bit::new(0, false))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn bits_come_back_however_they_are_pushed(pieces in proptest::collection::vec(proptest::collection::vec(any::<bool>(), 1..150), 0..8)) {
            let (mut all, mut appended) = (Bits::default(), Bits::default());
            for piece in &pieces {
                let mut own = Bits::default();
                for group in piece.chunks(64) {
                    let bits = group.iter().enumerate().fold(0, |word, (at, &bit)| word | u64::from(bit) << at);
                    all.push(bits, group.len());
                    own.push(bits, group.len());
                }
                appended.append(&own);
            }
            let expected: Vec<bool> = pieces.concat();
            prop_assert_eq!(all.finish().iter().collect::<Vec<_>>(), expected.clone());
            prop_assert_eq!(appended.finish().iter().collect::<Vec<_>>(), expected);
        }
    }

    #[test]
    fn sixty_four_rows_are_one_word() {
        let rows: [usize; 64] = std::array::from_fn(|at| at);
        let is = |at: &usize| at % 3 == 1 || *at == 63;
        for count in [0, 1, 40, 64] {
            let expected = (0..count).fold(0, |word, at| word | u64::from(is(&at)) << at);
            assert_eq!(word(&rows[..count], is), expected);
        }
    }
}
