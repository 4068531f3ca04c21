//! Columns side by side in one piece of memory, which is asked for at once: in large pages, where the system has them. To
//! touch small pages for the first time takes longer than to fill them.

use arrow_buffer::Buffer;
use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::fmt::{self, Debug, Formatter};
use std::mem::MaybeUninit;
use std::ops::{Deref, DerefMut};
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::Arc;

/// Lanes begin at multiples of it, as Arrow advises.
const ALIGNED: usize = 64;
/// Bytes of a large page.
pub const LARGE_PAGE: usize = 2 << 20;

/// Memory that lanes share; it is given back with the last of them.
struct Slab {
    start: NonNull<u8>,
    layout: Layout,
}

// Safety: each byte belongs to one lane.
unsafe impl Send for Slab {}
// Safety: as above.
unsafe impl Sync for Slab {}

impl Slab {
    /// So many bytes, one at least.
    fn new(bytes: usize) -> Arc<Self> {
        // A fault for each small page takes longer than to clear a large one. But all of a large one is taken: a long capture
        // whose chunks filled half a page each took nearly twice the memory of its rows.
        let whole = bytes.next_multiple_of(LARGE_PAGE);
        let bytes = if whole - bytes <= LARGE_PAGE / 8 { whole } else { bytes };
        let aligned = if bytes < LARGE_PAGE { ALIGNED } else { LARGE_PAGE };
        let layout = Layout::from_size_align(bytes.max(1), aligned).expect("no more bytes than can be addressed");
        // Safety: there are some bytes.
        let Some(start) = NonNull::new(unsafe { alloc(layout) }) else { handle_alloc_error(layout) };
        if aligned == LARGE_PAGE {
            // Safety: the bytes are ours.
            unsafe { ask_for_large_pages(start.as_ptr(), bytes / LARGE_PAGE * LARGE_PAGE) };
        }
        Arc::new(Slab { start, layout })
    }
}

/// Large pages that lie in some memory come as such when they are touched first.
///
/// # Safety
/// The bytes are the caller's.
unsafe fn ask_for_large_pages(start: *mut u8, bytes: usize) {
    #[cfg(target_os = "linux")]
    {
        // What the system maps begins a few bytes before what it was asked for. To ask changes no byte, whosever it is.
        const PAGE: usize = 4096;
        let before = start as usize % PAGE;
        // Safety: the pages of these bytes are mapped. Where it fails, they are small.
        unsafe { libc::madvise(start.wrapping_sub(before).cast(), before + bytes, libc::MADV_HUGEPAGE) };
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (start, bytes);
}

/// So many zeros that nobody has touched yet, in large pages as far as they fill such.
pub fn fresh(bytes: usize) -> Vec<u8> {
    let mut fresh = vec![0; bytes];
    if bytes >= LARGE_PAGE {
        // Safety: the vector's own bytes.
        unsafe { ask_for_large_pages(fresh.as_mut_ptr(), bytes) };
    }
    fresh
}

impl Drop for Slab {
    fn drop(&mut self) {
        // Safety: it was allocated so.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}

/// What is left of a large page, where it is kept from one table to the next: those of fewer bytes follow each other in it.
#[derive(Default)]
pub struct Page {
    is_kept: bool,
    rest: Option<(Arc<Slab>, usize)>,
}

impl Page {
    /// Fewer bytes are not worth a page.
    const FEW: usize = LARGE_PAGE / 16;

    pub fn kept(self) -> Self {
        Page { is_kept: true, ..self }
    }

    /// How many bytes the next table may have: what is left, if that is not little, or a page.
    pub fn left(&self) -> usize {
        let left = self.rest.as_ref().map_or(0, |(_, used)| LARGE_PAGE - used);
        if left < LARGE_PAGE / 4 { LARGE_PAGE } else { left }
    }

    /// Room for so many bytes in all, in what is left, or in a new page of which more is left.
    pub fn room(&mut self, bytes: usize) -> Rooms {
        if !self.is_kept || !(Self::FEW..=LARGE_PAGE).contains(&bytes) {
            return Rooms::of(bytes);
        }
        let rest = self.rest.take().filter(|(_, used)| used + bytes <= LARGE_PAGE);
        let (slab, from) = rest.unwrap_or_else(|| (Slab::new(LARGE_PAGE), 0));
        self.rest = Some((slab.clone(), (from + bytes.next_multiple_of(ALIGNED)).min(LARGE_PAGE)));
        Rooms { slab: Some(slab), from, bytes: 0 }
    }
}

/// Makes room for lanes in one slab; without a slab it only counts how many bytes they need.
#[derive(Default)]
pub struct Rooms {
    slab: Option<Arc<Slab>>,
    /// Where in the slab the room begins.
    from: usize,
    pub bytes: usize,
}

impl Rooms {
    /// Room for so many bytes in all.
    pub fn of(bytes: usize) -> Self {
        Rooms { slab: Some(Slab::new(bytes)), from: 0, bytes: 0 }
    }

    /// Room for so many values of a lane, which moves there; no fewer than it has.
    pub fn make<T: Copy>(&mut self, lane: &mut Lane<T>, values: usize) {
        let from = self.from + self.bytes;
        let values = values.max(lane.len);
        self.bytes += (values * size_of::<T>()).next_multiple_of(ALIGNED);
        let Some(slab) = &self.slab else { return };
        assert!(self.from + self.bytes <= slab.layout.size().next_multiple_of(ALIGNED), "the room was counted");
        // Safety: these bytes of the slab were given to no other lane, and they are aligned for anything of a few numbers.
        unsafe {
            let start = slab.start.add(from).cast::<T>();
            ptr::copy_nonoverlapping(lane.start.as_ptr(), start.as_ptr(), lane.len);
            *lane = Lane { start, len: lane.len, room: values, slab: Some(slab.clone()) };
        }
    }
}

/// The values of a column as they come.
pub struct Lane<T> {
    start: NonNull<T>,
    len: usize,
    /// How many values there is room for.
    room: usize,
    slab: Option<Arc<Slab>>,
}

// Safety: a lane owns its values.
unsafe impl<T: Send> Send for Lane<T> {}
// Safety: as above.
unsafe impl<T: Sync> Sync for Lane<T> {}

impl<T> Default for Lane<T> {
    fn default() -> Self {
        Lane { start: NonNull::dangling(), len: 0, room: 0, slab: None }
    }
}

impl<T: Copy> Clone for Lane<T> {
    fn clone(&self) -> Self {
        let mut lane = Lane::default();
        lane.extend_from_slice(self);
        lane
    }
}

impl<T: PartialEq> PartialEq for Lane<T> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<T: Debug> Debug for Lane<T> {
    fn fmt(&self, to: &mut Formatter) -> fmt::Result {
        (**self).fmt(to)
    }
}

impl<T: Copy> FromIterator<T> for Lane<T> {
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Self {
        let mut lane = Lane::default();
        values.into_iter().for_each(|value| lane.push(value));
        lane
    }
}

impl<T> Deref for Lane<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // Safety: so many values were written.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl<T> DerefMut for Lane<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // Safety: so many values were written.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl<T: Copy> Lane<T> {
    /// Makes room for so many more values.
    #[inline(always)]
    pub fn reserve(&mut self, more: usize) {
        if self.room - self.len < more {
            self.grow(more);
        }
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self, more: usize) {
        let values = (self.len + more).max(2 * self.room);
        Rooms::of(values * size_of::<T>()).make(self, values);
    }

    /// The room behind the values.
    #[inline(always)]
    pub fn spare(&mut self) -> &mut [MaybeUninit<T>] {
        // Safety: the room is the lane's, and nobody says that it is written.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr().add(self.len).cast(), self.room - self.len) }
    }

    /// So many more values are there.
    ///
    /// # Safety
    /// They were written to the room behind the others.
    #[inline(always)]
    pub unsafe fn wrote(&mut self, more: usize) {
        debug_assert!(more <= self.room - self.len);
        self.len += more;
    }

    #[inline(always)]
    pub fn extend(&mut self, values: impl ExactSizeIterator<Item = T>) {
        let more = values.len();
        self.reserve(more);
        let mut wrote = 0;
        for (to, value) in self.spare()[..more].iter_mut().zip(values) {
            to.write(value);
            wrote += 1;
        }
        // Safety: so many were written.
        unsafe { self.wrote(wrote) };
    }

    #[inline(always)]
    pub fn push(&mut self, value: T) {
        self.extend(std::iter::once(value));
    }

    /// The same where it `is` one: without a branch, so that what cannot be foreseen is not guessed.
    #[inline(always)]
    pub fn push_if(&mut self, value: T, is: bool) {
        self.reserve(1);
        self.spare()[0].write(value);
        // Safety: one was written, which counts or does not.
        unsafe { self.wrote(usize::from(is)) };
    }

    /// Forgets the values; the room stays.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    pub fn extend_from_slice(&mut self, values: &[T]) {
        self.extend(values.iter().copied());
    }

    /// The values as Arrow has them, without a copy.
    pub fn into_buffer(self) -> Buffer {
        match self.slab {
            // Safety: the slab holds these values, and nobody writes to them any more.
            Some(slab) => unsafe { Buffer::from_custom_allocation(self.start.cast(), self.len * size_of::<T>(), slab) },
            None => Buffer::from_vec(Vec::<u64>::new()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// However much room there was, also for lanes that share it.
        #[test]
        fn lanes_hold_what_was_put_in(
            rooms in (0usize..50, 0usize..50),
            pieces in proptest::collection::vec((proptest::collection::vec(any::<u64>(), 0..40), any::<u8>()), 0..8),
        ) {
            let (mut wide, mut narrow) = (Lane::<u64>::default(), Lane::<u8>::default());
            narrow.push(7);
            let lay_out = |made: &mut Rooms, wide: &mut _, narrow: &mut _| {
                made.make(narrow, rooms.0);
                made.make(wide, rooms.1);
            };
            let mut counted = Rooms::default();
            lay_out(&mut counted, &mut wide, &mut narrow);
            lay_out(&mut Rooms::of(counted.bytes), &mut wide, &mut narrow);
            let (mut all, mut few) = (Vec::new(), vec![7]);
            for (values, one) in &pieces {
                wide.extend_from_slice(values);
                narrow.push(*one);
                all.extend_from_slice(values);
                few.push(*one);
            }
            prop_assert_eq!((&*wide, &*narrow), (&*all, &*few));
            prop_assert_eq!(&*wide.clone(), &*all);
            let buffer = wide.into_buffer();
            drop(narrow);
            prop_assert_eq!(buffer.typed_data::<u64>(), &*all);
        }
    }

    #[test]
    fn tables_follow_each_other_in_a_page() {
        let mut page = Page::default().kept();
        let lanes: Vec<Lane<u64>> = (0..9u64)
            .map(|nth| {
                let mut lane = Lane::default();
                page.room(LARGE_PAGE / 4).make(&mut lane, LARGE_PAGE / 32);
                lane.extend(std::iter::repeat_n(nth, LARGE_PAGE / 32));
                lane
            })
            .collect();
        for (nth, lane) in lanes.iter().enumerate() {
            assert_eq!((lane.as_ptr() as usize - lanes[nth / 4 * 4].as_ptr() as usize), nth % 4 * LARGE_PAGE / 4);
            assert!(lane.iter().all(|&value| value == nth as u64));
        }
    }

    #[test]
    fn much_room_is_in_large_pages() {
        let mut lane = Lane::<u64>::default();
        lane.push(1);
        Rooms::of(3 * LARGE_PAGE).make(&mut lane, 3 * LARGE_PAGE / 8);
        assert_eq!(
            (lane.as_ptr() as usize % LARGE_PAGE, lane.spare().len(), &*lane),
            (0, 3 * LARGE_PAGE / 8 - 1, &[1][..])
        );
    }
}
