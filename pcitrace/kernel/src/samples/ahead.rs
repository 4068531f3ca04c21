//! Samples that are asked for before they are looked at. Memory gives only so much at once: who asks while these are looked at,
//! and a little at a time while something is done with them, gets more of it than who asks for all in one go.

/// Bytes that are asked for ahead of what is looked at.
const FAR: usize = 12 << 10;
/// The same while nothing is looked at, at most. On a Zen 4 the time is the same within 3 % with two thirds or the double of
/// the one, or half of the other.
const MOST: usize = 48 << 10;
/// Bytes of a line of the cache.
const LINE: usize = 64;
/// Bytes of a page of memory, where pages are small, and how many of them are looked up in one go.
const PAGE: usize = 4 << 10;
const PAGES: usize = 32;

/// How far samples were asked for, and how far they may be: addresses. To begin with nothing is asked for.
#[derive(Debug, Clone, Copy, Default)]
pub struct Ahead {
    next: usize,
    end: usize,
    /// How often samples were gone to since something was done with any.
    alone: usize,
}

impl Ahead {
    /// So many bytes from here on are looked at next.
    #[inline(always)]
    pub fn go_to(&mut self, from: *const u8, bytes: usize) {
        look_up_pages(from, bytes);
        let from = from as usize;
        self.end = from + bytes + MOST;
        if !(from..=self.end).contains(&self.next) {
            self.next = from + FAR;
        }
        self.alone += 1;
    }

    /// So many lines from here on are looked at now: as many are asked for where no more have come already. Not where samples are
    /// only looked at: a processor sees that these follow each other, and asks for the next ones better by itself.
    #[inline(always)]
    pub fn look_at(&mut self, from: *const u8, lines: usize) {
        if self.alone < 2 && self.next < from as usize + FAR {
            self.ask_on(lines);
        }
    }

    /// Asks for so many lines more, while something is done with samples.
    #[inline(always)]
    pub fn ask(&mut self, lines: usize) {
        self.alone = 0;
        if self.next < self.end {
            self.ask_on(lines);
        }
    }

    #[inline(always)]
    fn ask_on(&mut self, lines: usize) {
        (0..lines).for_each(|line| ask_for(self.next + LINE * line));
        self.next += LINE * lines;
    }
}

/// Has pages far behind these bytes looked up, many at once and therefore only now and then: who comes to a page that was not
/// waits until that is done, but a processor looks up several side by side.
#[inline(always)]
pub fn look_up_pages(from: *const u8, bytes: usize) {
    let behind = from as usize + bytes + MOST;
    if behind % (PAGE * PAGES) < bytes {
        (0..PAGES).for_each(|page| ask_for(behind + PAGE * page));
    }
}

/// Asks for the line at an address.
#[inline(always)]
#[cfg_attr(not(target_arch = "x86_64"), allow(unused_variables))]
fn ask_for(address: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        // Safety: nothing need be there. It comes as far as the second cache: some processors read what they were asked to put
        // into the first one more slowly than what nobody asked for.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(address as *const i8) };
    }
}
