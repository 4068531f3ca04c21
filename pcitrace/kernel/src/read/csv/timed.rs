//! A CSV whose first column is a time: each row holds from its time on.
//!
//! Times are kept in picoseconds. Where the first one is negative (Saleae counts from the trigger), it is time 0. Cells may
//! be numbers, numbers with a unit (`20 ns` and `4.860 530 ms`, as ScanaStudio writes), or dates with times of day (ISO
//! 8601, as Logic 2 can write), which count from the first one.

use super::layout::Layout;
use super::rows::{Blocks, read_bits, split_first, wrong_line};
use crate::capture::{Changes, Limb, Signal};
use crate::error::Result;
use crate::read::text::Text;

const PS_PER_SECOND: u64 = 1_000_000_000_000;

/// What the number in the time column says.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Clock {
    /// A time in parts of a second, so many to one.
    Parts(u64),
    /// The number of the sample times `step`, from 1 on; so many samples a second.
    Samples { step: i64, rate_hz: u64 },
}

pub struct Rows {
    text: Text,
    layout: Layout,
    clock: Clock,
    /// Ticks of the file that are time 0 of the capture; 0 or negative.
    origin: i64,
    end: u64,
}

impl Rows {
    /// Checks every row.
    pub fn open(text: Text, layout: Layout, clock: Clock) -> Result<Self> {
        let mut rows = Rows { text, layout, clock, origin: 0, end: 0 };
        let (mut origin, mut end) = (None, 0);
        rows.for_each(|time, _| {
            origin.get_or_insert(time.min(0));
            end = time;
        })?;
        rows.origin = origin.unwrap_or(0);
        rows.end = (end - rows.origin) as u64;
        Ok(rows)
    }

    /// Ticks and the channels' bits of every row.
    fn for_each(&self, mut row_is: impl FnMut(i64, &[u8])) -> Result<()> {
        let scale = match self.clock {
            Clock::Parts(parts) => (PS_PER_SECOND / parts) as i64,
            Clock::Samples { .. } => 1,
        };
        for_each_row(&self.text, &self.layout, scale, |time, unit| match self.clock {
            Clock::Parts(_) => row_is(time, unit),
            Clock::Samples { step, .. } => row_is(time / step - 1, unit),
        })
    }
}

/// Times, a unit of the column as `scale`, and the channels' bits of every row.
pub fn for_each_row(text: &Text, layout: &Layout, scale: i64, mut row_is: impl FnMut(i64, &[u8])) -> Result<()> {
    let Layout { separator, columns, body, first_line, .. } = *layout;
    let channels = layout.names.len();
    let mut unit = vec![0; channels.div_ceil(8)];
    let mut last = i64::MIN;
    let mut times = Times { scale, decimal: if separator == b',' { b'.' } else { b',' }, first: None };
    for block in Blocks::new(text, body, first_line)? {
        let block = block?;
        for (line, row) in block.rows() {
            let wrong = |what: String| wrong_line(text, line, what);
            let (time, cells) = split_first(row, separator);
            let ps = times.read(time).ok_or_else(|| {
                wrong(format!(
                    "`{}` is not a time; export times in seconds",
                    String::from_utf8_lossy(&time[..time.len().min(40)])
                ))
            })?;
            if ps < last {
                let seconds = |ps: i64| ps as f64 / PS_PER_SECOND as f64;
                let what =
                    format!("time runs backwards from {} s to {} s; export the file again", seconds(last), seconds(ps));
                return Err(wrong(what));
            }
            last = ps;
            unit.fill(0);
            read_bits(cells, separator, channels, columns - 1, &mut unit).map_err(wrong)?;
            row_is(ps, &unit);
        }
    }
    Ok(())
}

impl Changes for Rows {
    fn tick(&self) -> (u64, u64) {
        match self.clock {
            Clock::Parts(_) => (1, PS_PER_SECOND),
            Clock::Samples { rate_hz, .. } => (1, rate_hz),
        }
    }

    fn end(&self) -> u64 {
        self.end
    }

    fn gaps(&self) -> &[(u64, u64)] {
        &[]
    }

    fn signals(&self, limbs: &[Limb]) -> Result<Vec<Signal>> {
        let mut signals = vec![Signal::default(); limbs.len()];
        self.for_each(|time, unit| {
            for (signal, &Limb { channel: k, .. }) in signals.iter_mut().zip(limbs) {
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

/// Is a cell a time that says its unit itself: `20 ns`, or a date with a time of day?
pub fn is_written_time(cell: &[u8]) -> bool {
    Times { scale: 1, decimal: b',', first: None }.with_unit(cell).is_some() || parse_date(cell).is_some()
}

/// The cells of a time column.
struct Times {
    /// Picoseconds a unit of a number without one.
    scale: i64,
    /// What a decimal point may look like besides.
    decimal: u8,
    /// The first date, as of [`parse_date`].
    first: Option<(i64, i64)>,
}

impl Times {
    fn read(&mut self, cell: &[u8]) -> Option<i64> {
        self.number(cell, self.scale).or_else(|| self.with_unit(cell)).or_else(|| {
            let date = parse_date(cell)?;
            let first = *self.first.get_or_insert(date);
            (date.0 - first.0).checked_mul(PS_PER_SECOND as i64)?.checked_add(date.1 - first.1)
        })
    }

    fn number(&self, text: &[u8], scale: i64) -> Option<i64> {
        match text.iter().position(|&c| c == self.decimal).filter(|_| self.decimal != b'.') {
            None => parse_time(text, scale),
            Some(at) => {
                let mut text = text.to_vec();
                text[at] = b'.';
                parse_time(&text, scale)
            }
        }
    }

    /// `20 ns`; ScanaStudio puts blanks between groups of digits: `4.860 530 ms`.
    fn with_unit(&self, cell: &[u8]) -> Option<i64> {
        let digits = cell.iter().rposition(u8::is_ascii_digit)? + 1;
        let number: Vec<u8> = cell[..digits].iter().copied().filter(|&c| c != b' ').collect();
        let exponent = match cell[digits..].trim_ascii_start() {
            b"s" => 12,
            b"ms" => 9,
            b"us" | b"\xc2\xb5s" | b"\xce\xbcs" => 6,
            b"ns" => 3,
            b"ps" => 0,
            _ => return None,
        };
        self.number(&number, 10i64.pow(exponent))
    }
}

/// `2026-11-21T15:00:00.123456789+00:00` as seconds since 1970 and picoseconds, of UTC where it says how far it is ahead: that
/// may change within a capture. Ref: ISO 8601; days as in the Gregorian calendar.
fn parse_date(cell: &[u8]) -> Option<(i64, i64)> {
    let text = std::str::from_utf8(cell).ok()?;
    let (date, time) = text.split_once(['T', ' '])?;
    let mut fields = date.splitn(3, '-').map(|field| field.parse::<u32>().ok());
    let (year, month, day) = (i64::from(fields.next()??), i64::from(fields.next()??), i64::from(fields.next()??));
    let (time, zone) = time.split_at(time.find(['Z', '+', '-']).unwrap_or(time.len()));
    let mut fields = time.splitn(3, ':');
    let (hour, minute) = (fields.next()?.parse::<u8>().ok()?, fields.next()?.parse::<u8>().ok()?);
    let second = parse_time(fields.next()?.as_bytes(), PS_PER_SECOND as i64)?;
    let ps = PS_PER_SECOND as i64;
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        2 => 28 + i64::from(leap),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    // Of a leap second there is one more.
    if !(1970..=9999).contains(&year)
        || !(1..=12).contains(&month)
        || !(1..=days).contains(&day)
        || hour > 23
        || minute > 59
        || second >= 61 * ps
    {
        return None;
    }
    // Years begin in March here, so that the leap day is the last of one.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5 + day - 719_469;
    let local = days * 86_400 + i64::from(hour) * 3600 + i64::from(minute) * 60 + second / ps;
    Some((local - parse_zone(zone)?, second % ps))
}

/// How many seconds `+01:00`, `+0100` or `+01` is ahead of UTC; 0 for `Z`, and where nothing is said.
fn parse_zone(text: &str) -> Option<i64> {
    let (sign, ahead) = match text.as_bytes() {
        [] | [b'Z'] => return Some(0),
        [b'-', ahead @ ..] => (-1, ahead),
        [_, ahead @ ..] => (1, ahead),
    };
    let (hours, minutes) = match *ahead {
        [a, b] => ([a, b], [b'0'; 2]),
        [a, b, c, d] | [a, b, b':', c, d] => ([a, b], [c, d]),
        _ => return None,
    };
    let two = |[a, b]: [u8; 2]| {
        (a.is_ascii_digit() && b.is_ascii_digit()).then(|| i64::from(a - b'0') * 10 + i64::from(b - b'0'))
    };
    let (hours, minutes) = (two(hours)?, two(minutes)?);
    (hours < 24 && minutes < 60).then_some(sign * (hours * 3600 + minutes * 60))
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
    fn times_with_units_decimal_commas_and_dates() {
        let read = |decimal, cells: &[&str]| -> Vec<Option<i64>> {
            let mut times = Times { scale: 1_000_000_000_000, decimal, first: None };
            cells.iter().map(|cell| times.read(cell.as_bytes())).collect()
        };
        assert_eq!(
            read(b'.', &["0 ns", "20 ns", "1.5 us", "2ms", "-3 ps", "1 h"]),
            [Some(0), Some(20_000), Some(1_500_000), Some(2_000_000_000), Some(-3), None]
        );
        assert_eq!(
            read(b',', &["4.860 530 ms", "1 234.5 us", "4,860 530 ms", "1 2"]),
            [Some(4_860_530_000), Some(1_234_500_000), Some(4_860_530_000), None]
        );
        assert_eq!(
            read(b',', &["0,000000001", "1,5 us", "0.5"]),
            [Some(1_000), Some(1_500_000), Some(500_000_000_000)]
        );
        let dates =
            ["2024-02-28T23:59:59.999999999+00:00", "2024-02-29T00:00:00.000000000+00:00", "2024-03-01T00:00:00Z"];
        let day = 86_400_000_000_000_000;
        assert_eq!(read(b'.', &dates), [Some(0), Some(1_000), Some(day + 1_000)]);
        assert_eq!(parse_date(b"1970-01-01T00:00:00Z"), Some((0, 0)));
        assert_eq!(parse_date(b"2026-11-21T15:00:00.5Z"), Some((1_795_273_200, 500_000_000_000)));
        for bad in ["2026-13-01T00:00:00Z", "2026-11-21", "15:00:00", "2026-11-21Tnoon", "2026-02-29T00:00:00Z"] {
            assert_eq!(parse_date(bad.as_bytes()), None, "{bad}");
        }
        for bad in
            ["2026-11-21T00:00:61Z", "2026-11-21T00:00:00+1", "2026-11-21T00:00:00+24:00", "2026-11-21T00:00:00+0é0"]
        {
            assert_eq!(parse_date(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn a_clock_that_is_put_on_within_a_capture_says_so() {
        let mut times = Times { scale: 1_000_000_000_000, decimal: b'.', first: None };
        let cells = [
            "2026-03-29T01:59:59.9+01:00",
            "2026-03-29T03:00:00+0200",
            "2026-03-28T20:30:00.5-04:30",
            "2026-03-29T01:00:01Z",
        ];
        let read: Vec<_> = cells.iter().map(|cell| times.read(cell.as_bytes())).collect();
        let tenth = 100_000_000_000;
        assert_eq!(read, [Some(0), Some(tenth), Some(6 * tenth), Some(11 * tenth)]);
    }

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
