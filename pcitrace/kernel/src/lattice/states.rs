//! The states of the search, and where each of them is.

use super::model::NONE;

/// One track of a state: what was claimed, and the segment that is open.
#[derive(Clone, Copy)]
pub struct Track {
    /// The first target that is neither claimed nor skipped.
    pub next: u32,
    /// The target of the open segment; NONE for one that claims nothing.
    pub claimed: u32,
    /// Units of the open segment; 0 if none is open.
    pub units: u32,
    /// The last item of the track.
    pub last: u32,
    /// Whether an item of the open segment was cut before.
    pub was_cut: bool,
}

#[derive(Clone, Copy)]
pub struct State {
    pub tracks: [Track; 2],
    /// What the last item was, as far as costs depend on it.
    pub context: u8,
}

impl State {
    /// How far it has come: targets dealt with, and what is open.
    pub fn reached(&self) -> [(u32, bool); 2] {
        self.tracks.map(|track| (track.next, track.units > 0))
    }

    /// All but whether there were cuts, in five words.
    #[inline(always)]
    fn words(&self) -> [u64; 5] {
        let word = |a: u32, b: u32| u64::from(a) << 32 | u64::from(b);
        let [one, two] = &self.tracks;
        [
            word(one.next, one.claimed),
            word(one.units, one.last),
            word(two.next, two.claimed),
            word(two.units, two.last),
            u64::from(self.context),
        ]
    }

    /// A number that differs for nearly all states, in its upper bits.
    #[inline(always)]
    fn scattered(&self) -> u64 {
        self.words().iter().zip(SCATTER).fold(0, |sum, (word, by)| sum.wrapping_add(word.wrapping_mul(by)))
    }
}

/// Without a branch for each of its parts: that took a tenth of the time of the search.
impl PartialEq for State {
    #[inline(always)]
    fn eq(&self, other: &Self) -> bool {
        let cut = |state: &Self| state.tracks.map(|track| track.was_cut);
        let differ = self.words().iter().zip(other.words()).fold(0, |sum, (one, other)| sum | (one ^ other));
        (differ == 0) & (cut(self) == cut(other))
    }
}

/// Odd numbers whose bits are as if drawn: multiples of the golden ratio.
const SCATTER: [u64; 5] =
    [0x9e37_79b9_7f4a_7c15, 0xdaa6_6d2c_7ddf_743f, 0x1715_609d_7c74_6c69, 0x5384_540f_7b09_6493, 0x8ff3_4781_799e_5cbd];

/// Where each state of a column is. States are looked up at every step, and a column has hundreds at the most: a table that
/// is that small, and cleared as a whole, is quicker than a map.
pub struct Index {
    /// The place of a state, or NONE, and what its bits are as [`State::scattered`]: most states that are not the one looked
    /// for differ in that. A power of two of them, at least twice as many as states.
    slots: Vec<(u32, u32)>,
}

impl Index {
    const FREE: (u32, u32) = (NONE, 0);

    pub fn new() -> Self {
        Self { slots: vec![Self::FREE; 1024] }
    }

    pub fn clear(&mut self) {
        self.slots.fill(Self::FREE);
    }

    /// The slot of a state: its own, or the free one that it may have.
    fn slot(&self, states: &[State], state: &State, scattered: u64) -> usize {
        let mut at = (scattered >> (64 - self.slots.len().trailing_zeros())) as usize;
        loop {
            let (place, bits) = self.slots[at];
            if place == NONE || bits == (scattered >> 32) as u32 && states[place as usize] == *state {
                return at;
            }
            at = (at + 1) & (self.slots.len() - 1);
        }
    }

    /// The place of a state among `states`, to which it is added if it is not there.
    #[inline(always)]
    pub fn place(&mut self, states: &mut Vec<State>, state: State) -> u32 {
        let scattered = state.scattered();
        let at = self.slot(states, &state, scattered);
        let (place, _) = self.slots[at];
        if place != NONE {
            return place;
        }
        self.slots[at] = (states.len() as u32, (scattered >> 32) as u32);
        states.push(state);
        if 2 * states.len() > self.slots.len() {
            self.grow(states);
        }
        states.len() as u32 - 1
    }

    #[cold]
    fn grow(&mut self, states: &[State]) {
        self.slots = vec![Self::FREE; 2 * self.slots.len()];
        for (place, state) in states.iter().enumerate() {
            let scattered = state.scattered();
            let at = self.slot(states, state, scattered);
            self.slots[at] = (place as u32, (scattered >> 32) as u32);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_found_again_however_many_there_are() {
        let (mut index, mut states) = (Index::new(), Vec::new());
        let of = |number: u32| {
            let track = |next, last| Track { next, claimed: NONE, units: number % 3, last, was_cut: number % 2 == 1 };
            State { tracks: [track(number / 50, number), track(number % 50, NONE)], context: (number % 5) as u8 }
        };
        for _ in 0..2 {
            for number in 0..3000 {
                assert_eq!(index.place(&mut states, of(number)), number);
            }
            assert_eq!(states.len(), 3000);
        }
        // What its bits do not show is told apart, too.
        let mut cut = of(6);
        cut.tracks[0].was_cut = true;
        assert_eq!(index.place(&mut states, cut), 3000);
        assert_eq!(index.place(&mut states, of(6)), 6);
        index.clear();
        states.clear();
        assert_eq!(index.place(&mut states, of(7)), 0);
    }
}
