//! What is the same for all states in which an item is tried.

use super::model::{CONTEXTS, Items, NONE, Targets};

/// What depends on the item under way and a number only: it is worked out once for all states that ask for it.
pub struct Known {
    /// The item that it is known for, and what it is.
    of: Vec<(u32, f32)>,
}

impl Known {
    fn new(numbers: usize) -> Self {
        Self { of: vec![(NONE, 0.0); numbers] }
    }

    #[inline(always)]
    pub fn get(&mut self, number: usize, item: usize, find: impl FnOnce() -> f32) -> f32 {
        let known = &mut self.of[number];
        if known.0 != item as u32 {
            *known = (item as u32, find());
        }
        known.1
    }
}

/// Costs of time that states share.
pub struct Shared {
    /// Of an item that is left over, all that hangs on its kind, and before one that begins in a track: by context.
    pub other: Known,
    pub begins: [Known; 2],
    /// Before one that goes on after others, and before one that goes on: by the item it goes on from.
    pub after_others: [Known; 2],
    pub goes_on: [Known; 2],
    /// Of a target, and whether it was held up: to its segment's beginning, by `lag` and by `claims`; to its end.
    pub lag: [Known; 2],
    pub claims: [Known; 2],
    pub ends: [Known; 2],
    /// Of a target: to its segment's end, at the least, from the end of the item on.
    pub ahead: [Known; 2],
}

impl Shared {
    pub fn new(items: &Items, targets: &[Targets; 2]) -> Self {
        let each = |numbers: [usize; 2]| numbers.map(Known::new);
        let held = || each([0, 1].map(|t| 2 * targets[t].time_us.len()));
        Self {
            other: Known::new(CONTEXTS),
            begins: each([CONTEXTS; 2]),
            after_others: each([1; 2]),
            goes_on: each([items.len(); 2]),
            lag: held(),
            claims: held(),
            ends: held(),
            ahead: each([0, 1].map(|t| targets[t].time_us.len())),
        }
    }
}
