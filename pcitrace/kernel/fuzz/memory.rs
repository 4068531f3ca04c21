//! An allocator that counts, so that a target can assert how much memory its input may take.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    /// Bytes that this thread has taken and not given back, and the most that were at a time.
    static HELD: Cell<isize> = const { Cell::new(0) };
    static MOST: Cell<isize> = const { Cell::new(0) };
}

struct Counting;

fn count(bytes: isize) {
    // A thread that ends gives back when its counters are gone.
    let _ = HELD.try_with(|held| {
        held.set(held.get() + bytes);
        let _ = MOST.try_with(|most| most.set(most.get().max(held.get())));
    });
}

// Safety: everything is left to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size as isize - layout.size() as isize);
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// What any work may take: buffers of a fixed size, tables of codes.
const ANYWAY: usize = 24 << 20;
/// What it may take of each byte that goes in or comes out.
const EACH: usize = 32;

/// Does `work` on `input` bytes; it says how many bytes came out. Asserts that this thread took a small multiple of both.
pub fn bounded(input: usize, work: impl FnOnce() -> usize) {
    let before = HELD.get();
    MOST.set(before);
    let output = work();
    let took = (MOST.get() - before).max(0) as usize;
    let allowed = ANYWAY + EACH * (input + output);
    assert!(took <= allowed, "{took} bytes taken for {input} bytes in and {output} out: {allowed} are allowed");
}
