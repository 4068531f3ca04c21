//! What is read and what it costs.

/// Bins an octave of time.
const PER_OCTAVE: usize = 8;
/// Times below this, in us, are one bin.
const LEAST_US: f64 = 0.008;
/// Bins of one sign: 8 ns to a second.
const SIDE: i32 = 27 * PER_OCTAVE as i32;
/// Bins of a table over times: negative ones, about zero, positive ones.
pub const BINS: usize = 2 * SIDE as usize + 1;

/// Where one of the eight bins of an octave ends and the next begins: odd sixteenths of it.
const BETWEEN: [f64; PER_OCTAVE] = [
    1.0442737824274138,
    1.1387886347566916,
    1.241857812073484,
    1.3542555469368927,
    1.4768261459394993,
    1.6104903319492543,
    1.7562521603732995,
    1.9152065613971474,
];

/// The bin of a time: logarithmic, with its sign.
pub fn bin(us: f64) -> usize {
    let size = us.abs() / LEAST_US;
    if size.is_nan() || size <= 1.0 {
        return SIDE as usize;
    }
    // The exponent is the octave; the logarithm itself would cost more than all else of a step of the search.
    let bits = size.to_bits();
    let octave = (bits >> 52) as i32 - 1023;
    let mantissa = f64::from_bits(bits & ((1 << 52) - 1) | 1.0_f64.to_bits());
    let within = BETWEEN.iter().filter(|end| mantissa >= **end).count();
    let steps = octave.saturating_mul(PER_OCTAVE as i32).saturating_add(within as i32).min(SIDE);
    (SIDE + if us < 0.0 { -steps } else { steps }) as usize
}

/// The cheapest entry of a table over a span of times.
pub fn within(table: &[f32], least_us: f64, most_us: f64) -> f32 {
    let (low, high) = (bin(least_us), bin(most_us));
    if low >= high { table[high] } else { table[low..=high].iter().copied().fold(f32::INFINITY, f32::min) }
}

/// What an item costs by itself: so many values.
pub const ALONE: usize = 13;

/// The number that stands for no item and no target.
pub const NONE: u32 = u32::MAX;

/// The sequence: one value an item in each.
#[derive(Default)]
pub struct Items {
    pub begin_us: Vec<f64>,
    /// When it could have begun at the earliest, had nothing been in its way.
    pub ready_us: Vec<f64>,
    pub end_us: Vec<f64>,
    pub units: Vec<u32>,
    /// Whether somebody else ended it.
    pub cut: Vec<bool>,
    /// Where it begins and where what follows it would begin; -1 if unknown.
    pub place: Vec<i64>,
    pub next_place: Vec<i64>,
    /// What it costs by itself: left over, part of track 0 or 1, beginning in track 0 or 1, claiming nothing in 0 or 1;
    /// left over and of either kind; its time then, if something outside the sequence tells it; ending in track 0 or 1.
    pub alone: Vec<[f32; ALONE]>,
}

impl Items {
    pub fn len(&self) -> usize {
        self.begin_us.len()
    }

    pub fn is_empty(&self) -> bool {
        self.begin_us.is_empty()
    }
}

/// What the segments of one track may claim, in order of time.
#[derive(Default)]
pub struct Targets {
    pub time_us: Vec<f64>,
    /// Units of its segment, between two bounds.
    pub least: Vec<u32>,
    pub most: Vec<u32>,
    /// Which of the two tables of lags it goes by.
    pub held: Vec<bool>,
    /// Cost of claiming it with no segment.
    pub skip: Vec<f32>,
    /// Whether segments come after their targets, or before them.
    pub after: bool,
    /// Whether the lag is to the beginning of the segment, or to its end.
    pub at_begin: bool,
    /// Where a segment ends before it that comes after its target, or after it that comes before, it costs so much more.
    pub bound_us: Vec<f64>,
    pub beyond: f32,
    /// What goes on after a cut begins at the last multiple of so many units, but not before the item that was cut; 0: at
    /// the cut.
    pub again: u32,
}

/// How many of the units that a segment has are moved again by what goes on behind a cut: back to the last multiple of
/// `again`, but not before the item that was cut, which has so many units.
pub fn moved_again(reached: u32, item: u32, again: u32) -> u32 {
    if again > 0 { (reached % again).min(item) } else { 0 }
}

/// The units of segments whose items lie one behind the other, without what was moved again after cuts.
#[cfg(feature = "python")]
pub fn segment_units(units: &[u32], cut: &[bool], begins: &[bool], again: u32) -> Vec<u32> {
    let mut out: Vec<u32> = Vec::new();
    for (item, units_here) in units.iter().enumerate() {
        match out.last_mut() {
            Some(reached) if !begins[item] => {
                let moved = if cut[item - 1] { moved_again(*reached, units[item - 1], again) } else { 0 };
                *reached = (*reached - moved).saturating_add(*units_here);
            }
            _ => out.push(*units_here),
        }
    }
    out
}

/// What was before an item: left over for long; inside a segment, the end of one, of either track; the first and the
/// second item left over behind each of these; one left over that was cut.
pub const CONTEXTS: usize = 14;

/// The context after an item that is left over.
pub fn left_over(context: u8, cut: bool) -> u8 {
    match context {
        _ if cut => 13,
        inside @ 1..=4 => 3 + 2 * inside,
        first @ 5..=12 if first % 2 == 1 => first + 1,
        _ => 0,
    }
}

/// Whether the item before was left over.
pub fn is_left_over(context: u8) -> bool {
    !(1..=4).contains(&context)
}

/// Whether the item before ended a segment.
pub fn is_end(context: u8) -> bool {
    matches!(context, 2 | 4)
}

/// The row of `Costs::follows`: the context, and which tracks have a segment open.
pub fn following(context: u8, open: [bool; 2]) -> usize {
    4 * context as usize + usize::from(open[0]) + 2 * usize::from(open[1])
}

/// Costs of one track.
#[derive(Default)]
pub struct TrackCosts {
    /// Pause before an item that goes on, after one that was not cut and one that was.
    pub goes_on: [Vec<f32>; 2],
    /// The same where others came between: then it says which segment goes on, and the next the time since these.
    pub resumes: [Vec<f32>; 2],
    pub after_others: Vec<f32>,
    /// Pause before an item that begins, by context.
    pub begins: [Vec<f32>; CONTEXTS],
    /// Lag between segment and target: the usual, and where the target was held up.
    pub lag: [Vec<f32>; 2],
    /// The same where the time of the segment is told by what was before it: then the lag says which target it is.
    pub claims: [Vec<f32>; 2],
    /// Units beyond the target's bounds, from `-excess_zero` on; of segments that were never cut, and others.
    pub excess: [Vec<f32>; 2],
    pub excess_zero: i64,
    /// Units of an item that is not its segment's last: of one that was not cut, of one that was, and of one that was not
    /// and has all units so far; the last entry is for all larger.
    pub middle: [Vec<f32>; 3],
    /// Whether the last units of segments come one by one: then what is before them has the size that is left.
    pub singles: bool,
    /// Units of the first of two buffers, which may end like that, too; 0 if there is one.
    pub header: u32,
    /// Units of a segment that claims nothing; the last entry is for all larger.
    pub unclaimed: Vec<f32>,
    /// An item goes on in place, a little before it, or elsewhere.
    pub places: [f32; 3],
}

/// All costs.
pub struct Costs {
    pub tracks: [TrackCosts; 2],
    /// Pause before an item that is left over, by context and kind.
    pub other: [[Vec<f32>; 2]; CONTEXTS],
    /// Units of an item that is left over, by context: a pair for its two kinds; the last is for all larger.
    pub other_units: [Vec<f32>; CONTEXTS],
    /// What comes after what: by [`following`], left over, begins in 0 or 1, goes on in 0 or 1.
    pub follows: [[f32; 5]; 4 * CONTEXTS],
    /// An item goes on "a little before" up to so many places back, each unit being so many places.
    pub back: i64,
    pub unit: i64,
    /// An item begins where the last one of an open segment ended, and is no part of it; or where a segment ended just
    /// before, and is left over; or where one that is left over ended, and goes on with a segment; or a segment goes on
    /// elsewhere before it has `joined` places.
    pub apart: f32,
    pub joined: i64,
}

/// What bounds the work.
pub struct Limits {
    /// States kept an item.
    pub states: usize,
    /// How much more than the best a state may cost; margins are no larger.
    pub cost: f32,
    /// Items after which a decision is made even if several states are left.
    pub items: usize,
    /// Whether margins are asked for. Without them the reading is the same, and found in two thirds of the time.
    pub margins: bool,
}
