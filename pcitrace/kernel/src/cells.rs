//! The cells of a column, as they come: values in lanes, bits in words.

use crate::columns::{Context, Part};
use crate::lane::{Lane, Rooms};
use arrow::array::{ArrayRef, ArrowPrimitiveType, DictionaryArray, PrimitiveArray, StringArray};
use arrow::buffer::{BooleanBuffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::datatypes::UInt8Type;
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
    pub lists: Arc<Vec<Vec<Name>>>,
    pub floats: Lane<f64>,
    pub integers: Lane<u64>,
    /// Small numbers, or places in the list of names.
    pub bytes: Lane<u8>,
    pub texts: Lane<u8>,
    /// Where in `texts` each text begins, and the last one ends.
    pub offsets: Lane<i32>,
    pub flags: Bits,
    pub valid: Bits,
}

impl Cells {
    /// Room for so many rows of texts.
    pub fn make_text_room(&mut self, rows: usize, rooms: &mut Rooms) {
        let longest = self.lists.iter().flatten().map(|name| name.text.len()).max().unwrap_or(0);
        // Half of what fits in one go is the mean of long names; and what is copied in one go needs room at the end.
        let bytes = rows * longest.min(NAME_BYTES / 2) + rows.min(AT_ONCE) * longest.max(NAME_BYTES);
        rooms.make(&mut self.texts, bytes);
        rooms.make(&mut self.offsets, rows + 1);
    }

    pub fn texts<R>(&mut self, part: &Part<R>, cell: impl for<'a> Fn(&Context<'a>, &R) -> Option<&'a str>) {
        for (context, row) in rows(part) {
            self.texts.extend_from_slice(cell(&context, row).unwrap_or_default().as_bytes());
            self.offsets.push(self.texts.len() as i32);
        }
        self.validity(part, |context, row| cell(context, row).is_some());
    }

    #[inline(always)]
    pub fn names<R>(&mut self, part: &Part<R>, cell: impl Fn(&Context, &R) -> Option<u8>) {
        if self.coded {
            self.bytes.extend(rows(part).map(|(context, row)| cell(&context, row).unwrap_or_default()));
        } else {
            let names = self.lists[part.0.bus.index].as_slice();
            let count = part.1.len();
            let before = self.texts.len();
            let mut end = before;
            // Of a name all of the padding is copied, as far as it is there; what is behind its end is written over.
            let longest = names.iter().map(|name| name.text.len()).max().unwrap_or(0).max(NAME_BYTES);
            self.texts.reserve(count * longest);
            let texts = self.texts.spare().as_mut_ptr().cast::<u8>();
            self.offsets.extend(rows(part).map(|(context, row)| {
                if let Some(code) = cell(&context, row) {
                    // Safety: there is room for so many bytes of each of these rows.
                    end += unsafe { names[usize::from(code)].write_to(texts.add(end - before)) };
                }
                end as i32
            }));
            // Safety: so many were written.
            unsafe { self.texts.wrote(end - before) };
        }
        self.validity(part, |context, row| cell(context, row).is_some());
    }

    #[inline(always)]
    pub fn floats<R>(&mut self, part: &Part<R>, cell: impl Fn(&Context, &R) -> Option<f64>) {
        self.floats.extend(rows(part).map(|(context, row)| cell(&context, row).unwrap_or_default()));
        self.validity(part, |context, row| cell(context, row).is_some());
    }

    #[inline(always)]
    pub fn integers<R>(&mut self, part: &Part<R>, cell: impl Fn(&Context, &R) -> Option<u64>) {
        self.integers.extend(rows(part).map(|(context, row)| cell(&context, row).unwrap_or_default()));
        self.validity(part, |context, row| cell(context, row).is_some());
    }

    #[inline(always)]
    pub fn bytes<R>(&mut self, part: &Part<R>, cell: impl Fn(&Context, &R) -> Option<u8>) {
        self.bytes.extend(rows(part).map(|(context, row)| cell(&context, row).unwrap_or_default()));
        self.validity(part, |context, row| cell(context, row).is_some());
    }

    #[inline(always)]
    pub fn flags<R>(&mut self, part: &Part<R>, cell: impl Fn(&Context, &R) -> Option<bool>) {
        self.flags.extend(part, |context, row| cell(context, row) == Some(true));
        self.validity(part, |context, row| cell(context, row).is_some());
    }

    #[inline(always)]
    fn validity<R>(&mut self, part: &Part<R>, known: impl Fn(&Context, &R) -> bool) {
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
    }

    pub fn into_codes(self, bus: usize) -> ArrayRef {
        let names = StringArray::from_iter_values(self.lists[bus].iter().map(|name| name.text.as_str()));
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

/// The rows of a part, each with its own context.
#[inline(always)]
fn rows<'a, R>(&(context, rows): &Part<'a, R>) -> impl ExactSizeIterator<Item = (Context<'a>, &'a R)> {
    rows.iter().enumerate().map(move |(nth, row)| (Context { number: context.number + nth as u64, ..context }, row))
}

pub fn primitive<T: ArrowPrimitiveType>(values: Lane<T::Native>, valid: Bits) -> ArrayRef {
    Arc::new(PrimitiveArray::<T>::new(values.into_buffer().into(), valid.into_nulls()))
}

/// Most names are shorter; they are copied in one go.
const NAME_BYTES: usize = 24;
/// Rows that are added at a time, mostly no more.
const AT_ONCE: usize = 1024;

pub struct Name {
    text: String,
    padded: [u8; NAME_BYTES],
}

impl Name {
    pub fn new(text: &str) -> Self {
        let mut padded = [0; NAME_BYTES];
        padded.iter_mut().zip(text.bytes()).for_each(|(to, byte)| *to = byte);
        Name { text: text.into(), padded }
    }

    /// Writes it, and what it is padded with; its length.
    ///
    /// # Safety
    /// There has to be room for both.
    #[inline(always)]
    unsafe fn write_to(&self, to: *mut u8) -> usize {
        let length = self.text.len();
        // Safety: as the caller says.
        unsafe {
            if length > NAME_BYTES {
                copy_nonoverlapping(self.text.as_ptr(), to, length);
            } else {
                copy_nonoverlapping(self.padded.as_ptr(), to, NAME_BYTES);
            }
        }
        length
    }
}

/// A column of bits, 64 at a time.
#[derive(Clone, Default)]
pub struct Bits {
    pub words: Lane<u64>,
    count: usize,
}

impl Bits {
    #[inline(always)]
    fn extend<R>(&mut self, part: &Part<R>, bit: impl Fn(&Context, &R) -> bool) {
        let (context, rows) = part;
        for (nth, group) in rows.chunks(64).enumerate() {
            let mut bytes = [0u8; 64];
            for (at, (byte, row)) in bytes.iter_mut().zip(group).enumerate() {
                let context = Context { number: context.number + (64 * nth + at) as u64, ..*context };
                *byte = u8::from(bit(&context, row));
            }
            self.push(packed(&bytes), group.len());
        }
    }

    /// Appends the lowest `count` bits, 64 at most; those above are 0.
    fn push(&mut self, bits: u64, count: usize) {
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

/// Bytes that are 0 or 1 as bits, the first one lowest.
#[inline(always)]
fn packed(bytes: &[u8; 64]) -> u64 {
    let eights = bytes.as_chunks::<8>().0.iter();
    // The product moves bit 0 of byte i to bit 56 + i; no two of its terms meet.
    let byte = |eight: &[u8; 8]| u64::from_le_bytes(*eight).wrapping_mul(0x0102_0408_1020_4080) >> 56;
    eights.enumerate().fold(0, |word, (nth, eight)| word | byte(eight) << (8 * nth))
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
    fn sixty_four_bytes_are_one_word() {
        let bytes = std::array::from_fn(|at| u8::from(at % 3 == 1 || at == 63));
        let expected = (0..64).fold(0, |word, at| word | u64::from(bytes[at]) << at);
        assert_eq!(packed(&bytes), expected);
    }
}
