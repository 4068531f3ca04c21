//! A CSV whose first column is a time: each row holds from its time on.
//!
//! Times are kept in picoseconds. Where the first one is negative (Saleae counts from the trigger), it is time 0.

use super::layout::{Layout, TimeUnit};
use super::rows::{Blocks, read_bits, wrong_line};
use crate::capture::{Changes, Signal};
use crate::error::Result;
use crate::read::text::Text;

const PS_PER_SECOND: u64 = 1_000_000_000_000;

pub struct Rows {
    text: Text,
    layout: Layout,
    unit: TimeUnit,
    /// Picoseconds of the file that are time 0 of the capture; 0 or negative.
    origin: i64,
    end: u64,
}

impl Rows {
    /// Checks every row.
    pub fn open(text: Text, layout: Layout, unit: TimeUnit) -> Result<Self> {
        let mut rows = Rows { text, layout, unit, origin: 0, end: 0 };
        let (mut origin, mut end) = (None, 0);
        rows.for_each(|time, _| {
            origin.get_or_insert(time.min(0));
            end = time;
        })?;
        rows.origin = origin.unwrap_or(0);
        rows.end = (end - rows.origin) as u64;
        Ok(rows)
    }

    /// Time in picoseconds and the channels' bits of every row.
    fn for_each(&self, mut row_is: impl FnMut(i64, &[u8])) -> Result<()> {
        let Layout { separator, columns, body, first_line, .. } = self.layout;
        let channels = self.layout.names.len();
        let scale = (PS_PER_SECOND / self.unit.denominator) as i64;
        let mut unit = vec![0; channels.div_ceil(8)];
        let mut last = i64::MIN;
        for block in Blocks::new(&self.text, body, first_line)? {
            let block = block?;
            for (line, row) in block.rows() {
                let wrong = |what: String| wrong_line(&self.text, line, what);
                let cut = row.iter().position(|&c| c == separator);
                let (time, cells) = row.split_at(cut.unwrap_or(row.len()));
                let ps = parse_time(time.trim_ascii(), scale).ok_or_else(|| {
                    wrong(format!(
                        "`{}` is not a time as a number; export relative times in seconds",
                        String::from_utf8_lossy(&time[..time.len().min(40)])
                    ))
                })?;
                if ps < last {
                    let seconds = |ps: i64| ps as f64 / PS_PER_SECOND as f64;
                    let what = format!(
                        "time runs backwards from {} s to {} s; export the file again",
                        seconds(last),
                        seconds(ps)
                    );
                    return Err(wrong(what));
                }
                last = ps;
                unit.fill(0);
                // `cells` begins with the separator, if there are any.
                read_bits(cells.get(1..).unwrap_or(&[]), separator, channels, columns - 1, &mut unit).map_err(wrong)?;
                row_is(ps, &unit);
            }
        }
        Ok(())
    }
}

impl Changes for Rows {
    fn tick(&self) -> (u64, u64) {
        (1, PS_PER_SECOND)
    }

    fn end(&self) -> u64 {
        self.end
    }

    fn gaps(&self) -> &[(u64, u64)] {
        &[]
    }

    fn signals(&self, channels: &[usize]) -> Result<Vec<Signal>> {
        let mut signals = vec![Signal::default(); channels.len()];
        self.for_each(|time, unit| {
            for (signal, &k) in signals.iter_mut().zip(channels) {
                let value = u64::from(unit[k / 8] >> (k % 8) & 1);
                if signal.values.last() != Some(&value) {
                    signal.times.push((time - self.origin) as u64);
                    signal.values.push(value);
                }
            }
        })?;
        Ok(signals)
    }
}

/// A decimal number times `scale`, rounded; exact where written without an exponent.
fn parse_time(text: &[u8], scale: i64) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    };
    if digits.iter().any(|c| matches!(c, b'e' | b'E')) {
        let ps = std::str::from_utf8(text).ok()?.parse::<f64>().ok()? * scale as f64;
        return (ps.abs() < i64::MAX as f64).then(|| ps.round() as i64);
    }
    let mut whole: i64 = 0;
    let mut point = false;
    // What the next decimal is worth; below 1 ps only the first one counts, for rounding.
    let mut worth = scale;
    let mut fraction: i64 = 0;
    let mut round_up = None;
    let mut any = false;
    for &c in digits {
        match c {
            b'.' if !point => point = true,
            b'0'..=b'9' => {
                any = true;
                let digit = i64::from(c - b'0');
                if !point {
                    whole = whole.checked_mul(10)?.checked_add(digit)?;
                } else if worth >= 10 {
                    worth /= 10;
                    fraction += digit * worth;
                } else {
                    round_up.get_or_insert(digit >= 5);
                }
            }
            _ => return None,
        }
    }
    let ps = whole.checked_mul(scale)?.checked_add(fraction + i64::from(round_up == Some(true)))?;
    any.then_some(if negative { -ps } else { ps })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_exact_decimals() {
        let seconds = |text: &str| parse_time(text.as_bytes(), 1_000_000_000_000);
        assert_eq!(seconds("0.000000000"), Some(0));
        assert_eq!(seconds("289.692741059"), Some(289_692_741_059_000));
        assert_eq!(seconds("-0.5"), Some(-500_000_000_000));
        assert_eq!(seconds("0.000000041666667"), Some(41_667));
        assert_eq!(seconds("1"), Some(1_000_000_000_000));
        assert_eq!(seconds("4.82e-06"), Some(4_820_000));
        assert_eq!(parse_time(b"30", 1_000), Some(30_000));
        assert_eq!(parse_time(b"30.4999", 1), Some(30));
        for bad in ["", "-", ".", "1.2.3", "x", "2026-11-21T15:00:00", "99999999999999999999", "1e300"] {
            assert_eq!(seconds(bad), None, "{bad}");
        }
    }
}
