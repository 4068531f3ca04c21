//! The time column of sigrok's CSV. sigrok counts it up by its sampling period, of which it drops what is behind the
//! point: at 625 kHz each sample is 1 us later, not 1.6, and the first one is at 1. So the rate that it states counts.

use super::layout::Layout;
use super::rows::wrong_line;
use super::timed::{Clock, for_each_row};
use crate::error::Result;
use crate::read::text::Text;

/// What the rows are.
#[derive(Debug, PartialEq)]
pub enum Counted {
    /// A sample each. The note says how the times disagree with the rate, if they do by more than their own digits.
    EachRow(Option<String>),
    /// The samples that differ from those before them (sigrok's option `dedup`), by number.
    Changed(Clock),
}

/// Goes through the times: `parts` of a second are their unit.
pub fn look(text: &Text, layout: &Layout, parts: u64, rate_hz: f64) -> Result<Counted> {
    let period = parts as f64 / rate_hz;
    let step = (period as i64).max(1);
    let (mut before, mut last): (Option<i64>, Vec<u8>) = (None, Vec::new());
    let (mut repeats, mut shortest, mut longest, mut counted) = (false, i64::MAX, 0, true);
    for_each_row(text, layout, 1, |time, unit| {
        if let Some(before) = before {
            repeats |= last == unit;
            shortest = shortest.min(time - before);
            longest = longest.max(time - before);
        }
        counted &= time >= step && time % step == 0;
        before = Some(time);
        last.clear();
        last.extend_from_slice(unit);
    })?;
    let apart = |time: i64| (time as f64 - period).abs();
    let follows = before.is_none() || shortest > longest || apart(shortest) < 1.0 && apart(longest) < 1.0;
    if follows {
        return Ok(Counted::EachRow(None));
    }
    // Where rows repeat none was left out.
    if repeats {
        let between = if shortest == longest { shortest.to_string() } else { format!("{shortest} to {longest}") };
        return Ok(Counted::EachRow(Some(format!(
            "its times are {between} of 1/{parts} s apart, but the rate of {rate_hz} Hz that it states makes that {period}: the \
             rate was taken"
        ))));
    }
    // A tick is a period, so it has to be a whole part of a second.
    let whole = rate_hz.fract() == 0.0 && rate_hz < u64::MAX as f64;
    if counted && whole {
        return Ok(Counted::Changed(Clock::Samples { step, rate_hz: rate_hz as u64 }));
    }
    let what = format!(
        "the times do not fit the rate of {rate_hz} Hz that the file states: they would be multiples of {step}; correct the \
         rate or export without `dedup`"
    );
    Err(wrong_line(text, layout.first_line, what))
}
