//! The value changes of a VCD: one pass over a piece of the body that checks every statement.
//! Ref: IEEE Std 1364-2005 section 18.2 (four-state VCD).

use super::header::Nets;
use super::packed::{Packed, Stamps, limb_width};

/// What a piece of the body holds.
#[derive(Debug, Default)]
pub struct Scan {
    /// One for each slot that was asked for.
    pub signals: Vec<Packed>,
    pub stamps: Stamps,
    pub first_time: Option<u64>,
    pub last_time: Option<u64>,
    /// When the simulator turned its dump off (false) and on (true).
    pub switches: Vec<(u64, bool)>,
    /// The piece ends within a comment or between a vector's value and its identifier.
    pub unfinished: bool,
}

impl Scan {
    #[inline(always)]
    fn at(&mut self, time: u64) {
        self.stamps.push(time);
        self.first_time.get_or_insert(time);
        self.last_time = Some(time);
    }

    /// With no more memory than it needs.
    pub fn shrunk(mut self) -> Self {
        self.signals = self.signals.into_iter().map(Packed::shrunk).collect();
        self
    }
}

/// What is wrong at which byte of the piece.
#[derive(Debug)]
pub struct Wrong {
    pub at: usize,
    pub what: String,
}

/// A net, and which 64 of its bits.
pub type NetLimb = (usize, u32);

/// Where the changes of a net go.
pub struct Slots {
    /// For each net its first slot, `None` where its changes are only checked; of a wide net more slots may follow.
    first: Vec<Option<u32>>,
    limbs: Vec<NetLimb>,
}

impl Slots {
    /// A slot for each limb; these are in order.
    pub fn new(nets: &Nets, limbs: &[NetLimb]) -> Self {
        let mut first = vec![None; nets.len()];
        for (slot, &(net, _)) in limbs.iter().enumerate().rev() {
            first[net] = Some(slot as u32);
        }
        Slots { first, limbs: limbs.into() }
    }

    /// The limbs of a net that have a slot, each with its slot.
    fn of(&self, net: usize) -> impl Iterator<Item = (usize, u32)> {
        let first = self.first[net].map_or(self.limbs.len(), |slot| slot as usize);
        let slots = self.limbs[first..].iter().take_while(move |&&(other, _)| other == net);
        slots.enumerate().map(move |(n, &(_, limb))| (first + n, limb))
    }
}

/// A file system that lost a part of a file leaves zeros there, which are no white space.
pub fn refuse_zeros(text: &[u8]) -> Result<(), Wrong> {
    let zero = memchr::memchr(0, text);
    zero.map_or(Ok(()), |at| Err(Wrong { at, what: "zeros stand here instead of text".into() }))
}

/// Scans `text`, which begins between two statements. Changes before the first time stamp are at time 0.
pub fn scan(text: &[u8], nets: &Nets, slots: &Slots) -> Result<Scan, Wrong> {
    refuse_zeros(text)?;
    let mut out = Scan { signals: vec![Packed::default(); slots.limbs.len()], ..Scan::default() };
    let mut tokens = Tokens { text, at: 0 };
    loop {
        tokens.at = plain(text, tokens.at, nets, slots, &mut out);
        let Some(start) = tokens.next_start() else { break };
        let wrong = |what: String| Err(Wrong { at: start, what });
        match text[start] {
            b'#' => {
                let token = tokens.token();
                let Some(stamp) = parse_time(&token[1..]) else {
                    let why = match token.contains(&b'.') {
                        true => "is not a whole number of `$timescale`; write the file with a finer one",
                        false => "is not a time",
                    };
                    return wrong(format!("`{}` {why}", show(token)));
                };
                if let Some(last) = out.last_time.filter(|&last| stamp < last) {
                    return wrong(format!("time runs backwards from {last} to {stamp}"));
                }
                out.at(stamp);
            }
            c if bit(c).is_some() => {
                tokens.at += 1;
                let id = tokens.token();
                let Some(net) = nets.find(id) else {
                    return wrong(unknown_id(&text[start..tokens.at], id));
                };
                for (slot, limb) in slots.of(net) {
                    let width = limb_width(nets.width(net), limb);
                    let value = match c {
                        b'0' | b'1' => (if limb == 0 { u64::from(c & 1) } else { 0 }, 0, 0),
                        _ => extend(&[c], width),
                    };
                    out.signals[slot].push(width, out.stamps.count(), value);
                }
            }
            b'b' | b'B' => {
                tokens.at += 1;
                let digits = tokens.token();
                // As Python and its hardware libraries write a binary number.
                let digits = digits.strip_prefix(b"0b").unwrap_or(digits);
                let Some(id_start) = tokens.next_start() else {
                    out.unfinished = true;
                    break;
                };
                let id = tokens.token();
                let Some(net) = nets.find(id) else {
                    return Err(Wrong { at: id_start, what: unknown_id(&text[start..tokens.at], id) });
                };
                let width = nets.width(net);
                // A net of no width has no value; some write `b` for it, others `b0`.
                if width == 0 && digits.len() <= 1 {
                    continue;
                }
                if digits.is_empty() || digits.len() > width as usize {
                    return wrong(format!(
                        "`{}` is {} bits for a net of {width}",
                        show(&text[start..tokens.at]),
                        digits.len()
                    ));
                }
                // The lowest limb is read in any case: that checks it.
                let Some(lowest) = limb_of(digits, width, 0) else {
                    return wrong(format!("`b{}` is not a value", show(digits)));
                };
                for (slot, limb) in slots.of(net) {
                    let value = match limb {
                        0 => lowest,
                        _ => limb_of(digits, width, limb).unwrap_or_default(),
                    };
                    out.signals[slot].push(limb_width(width, limb), out.stamps.count(), value);
                }
            }
            // Reals and strings carry no bits; their nets are not channels.
            b'r' | b'R' | b's' | b'S' => {
                tokens.token();
                if tokens.next_start().is_none() {
                    out.unfinished = true;
                    break;
                }
                let id = tokens.token();
                if nets.find(id).is_none() {
                    return wrong(unknown_id(&text[start..tokens.at], id));
                }
            }
            b'$' => match tokens.token() {
                b"$comment" => {
                    if !tokens.skip_to_end() {
                        out.unfinished = true;
                        break;
                    }
                }
                b"$dumpoff" => out.switches.push((out.last_time.unwrap_or(0), false)),
                b"$dumpon" => out.switches.push((out.last_time.unwrap_or(0), true)),
                b"$dumpvars" | b"$dumpall" | b"$end" => {}
                other => {
                    return wrong(format!("`{}` has no place among the value changes", show(other)));
                }
            },
            _ => {
                let token = tokens.token();
                return wrong(format!("`{}` is neither a time nor a value change", show(token)));
            }
        }
    }
    Ok(out)
}

/// Bytes that a statement may have to be read at once.
const AT_ONCE: usize = 96;

/// Reads statements as simulators write most of them: a time, the level of a net of one bit, a vector of up to 64, each with an
/// identifier of one or two bytes. Where it came to; what begins there is read by [`scan`], which says what is wrong, too.
fn plain(text: &[u8], mut at: usize, nets: &Nets, slots: &Slots, out: &mut Scan) -> usize {
    while let Some(rest) = text.get(at..).and_then(|rest| rest.first_chunk::<AT_ONCE>()) {
        let read = match rest[0] {
            b'\n' => Some(1),
            b'#' => stamp(rest, out),
            b'b' => binary(rest, nets, slots, out),
            c => level(rest, KINDS[usize::from(c)], nets, slots, out),
        };
        match read {
            Some(length) => at += length,
            None => break,
        }
    }
    at
}

/// What a character is within a value: 0, 1, unknown, z, or nothing of them.
const KINDS: [u8; 256] = {
    let mut kinds = [OTHER; 256];
    let mut c = 0;
    while c < 256 {
        if let Some(bit) = bit(c as u8) {
            kinds[c] = bit as u8;
        }
        c += 1;
    }
    kinds
};
const OTHER: u8 = 4;

/// The net of an identifier of one or two bytes with a white space behind it, and the bytes of both.
#[inline(always)]
fn short_id(rest: &[u8; AT_ONCE], at: usize, nets: &Nets) -> Option<(usize, usize)> {
    let [first, second, third] = *rest[at..].first_chunk()?;
    let (code, length) = match (second <= b' ', third <= b' ') {
        (true, _) => (u16::from(first), 2),
        (false, true) => (u16::from(first) << 8 | u16::from(second), 3),
        _ => return None,
    };
    if first <= b' ' { None } else { Some((nets.find_short(code)?, length)) }
}

#[inline(always)]
fn level(rest: &[u8; AT_ONCE], kind: u8, nets: &Nets, slots: &Slots, out: &mut Scan) -> Option<usize> {
    if kind == OTHER {
        return None;
    }
    let (net, length) = short_id(rest, 1, nets)?;
    if nets.width(net) != 1 {
        return None;
    }
    if let Some(slot) = slots.first[net] {
        out.signals[slot as usize].push_state(out.stamps.count(), kind);
    }
    Some(1 + length)
}

#[inline(always)]
fn stamp(rest: &[u8; AT_ONCE], out: &mut Scan) -> Option<usize> {
    let mut stamp = 0u64;
    let mut at = 1;
    // 16 digits cannot be too large.
    for _ in 0..2 {
        let (digits, value) = decimal(eight(rest, at));
        stamp = stamp * POWERS[digits] + value;
        at += digits;
        if digits < 8 {
            break;
        }
    }
    if at == 1 || rest[at] > b' ' || out.last_time.is_some_and(|last| stamp < last) {
        return None;
    }
    out.at(stamp);
    Some(at + 1)
}

const POWERS: [u64; 9] = [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000];

/// Eight bytes, the first one lowest.
#[inline(always)]
fn eight(rest: &[u8; AT_ONCE], at: usize) -> u64 {
    rest[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// How many of eight characters are digits before one that is none, and the number that they are.
#[inline(always)]
fn decimal(word: u64) -> (usize, u64) {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let digits = word ^ (0x30 * ONES);
    // The top bit of each byte that is more than 9.
    let others = (digits.wrapping_add(0x76 * ONES) | digits) & (0x80 * ONES);
    let count = others.trailing_zeros() as usize / 8;
    if count == 0 {
        return (0, 0);
    }
    // Zeros before them make them eight; then neighbours are put together, three times.
    let digits = digits << (64 - 8 * count);
    let pairs = (digits * 10 + (digits >> 8)) & 0x00ff_00ff_00ff_00ff;
    let fours = (pairs * 100 + (pairs >> 16)) & 0x0000_ffff_0000_ffff;
    (count, (fours * 10_000 + (fours >> 32)) & 0xffff_ffff)
}

#[inline(always)]
fn binary(rest: &[u8; AT_ONCE], nets: &Nets, slots: &Slots, out: &mut Scan) -> Option<usize> {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let (mut ones, mut unknown, mut high_z) = (0u64, 0u64, 0u64);
    let mut digits = 0;
    // Zeros and ones up to eight at a time.
    while digits < 64 {
        let word = eight(rest, 1 + digits).swap_bytes();
        let count = (word & !ONES ^ (0x30 * ONES)).leading_zeros() as usize / 8;
        // Bit 0 of each byte, gathered with the last digit lowest.
        let gathered = (word & ONES).wrapping_mul(0x0102_0408_1020_4080) >> 56;
        ones = ones << count | gathered >> (8 - count);
        digits += count;
        if count < 8 {
            break;
        }
    }
    while rest[1 + digits] > b' ' {
        let kind = KINDS[usize::from(rest[1 + digits])];
        if kind == OTHER || digits == 64 {
            return None;
        }
        ones = ones << 1 | u64::from(kind == Bit::One as u8);
        unknown = unknown << 1 | u64::from(kind == Bit::Unknown as u8);
        high_z = high_z << 1 | u64::from(kind == Bit::HighZ as u8);
        digits += 1;
    }
    if digits == 0 {
        return None;
    }
    let (net, length) = short_id(rest, 2 + digits, nets)?;
    let width = nets.width(net);
    if digits > width as usize || width > 64 {
        return None;
    }
    // The first digit goes on to the left where it is x or z.
    let left = (!0 >> (64 - width)) & (!0u64).checked_shl(digits as u32).unwrap_or(0);
    match KINDS[usize::from(rest[1])] {
        kind if kind == Bit::Unknown as u8 => unknown |= left,
        kind if kind == Bit::HighZ as u8 => high_z |= left,
        _ => {}
    }
    if let Some(slot) = slots.first[net] {
        out.signals[slot as usize].push(width, out.stamps.count(), (ones, unknown, high_z));
    }
    Some(2 + digits + length)
}

pub struct Tokens<'a> {
    pub text: &'a [u8],
    pub at: usize,
}

impl<'a> Tokens<'a> {
    /// Skips white space; where the next token begins.
    #[inline]
    pub fn next_start(&mut self) -> Option<usize> {
        while *self.text.get(self.at)? <= b' ' {
            self.at += 1;
        }
        Some(self.at)
    }

    /// From here to the next white space; empty if it is here.
    #[inline]
    pub fn token(&mut self) -> &'a [u8] {
        let rest = &self.text[self.at..];
        let length = rest.iter().position(|&c| c <= b' ').unwrap_or(rest.len());
        self.at += length;
        &rest[..length]
    }

    /// Behind the next `$end`; false if there is none.
    pub fn skip_to_end(&mut self) -> bool {
        while self.next_start().is_some() {
            if self.token() == b"$end" {
                return true;
            }
        }
        false
    }
}

fn parse_time(text: &[u8]) -> Option<u64> {
    // `#32.0` is as whole as `#32`.
    let point = text.iter().position(|&c| c == b'.').unwrap_or(text.len());
    let (digits, fraction) = text.split_at(point);
    if fraction.iter().skip(1).any(|&c| c != b'0') {
        return None;
    }
    if digits.is_empty() {
        return None;
    }
    if digits.len() < 20 && digits.iter().all(u8::is_ascii_digit) {
        return Some(digits.iter().fold(0, |time, &c| 10 * time + u64::from(c - b'0')));
    }
    digits.iter().try_fold(0u64, |time, &c| {
        let digit = c.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        time.checked_mul(10)?.checked_add(digit.into())
    })
}

/// In the order in which [`Packed`] numbers the states of a bit.
#[derive(Clone, Copy)]
enum Bit {
    Zero,
    One,
    Unknown,
    HighZ,
}

/// Four states, and the nine of std_logic that VHDL simulators write.
#[inline]
const fn bit(c: u8) -> Option<Bit> {
    match c {
        b'0' | b'l' | b'L' => Some(Bit::Zero),
        b'1' | b'h' | b'H' => Some(Bit::One),
        b'x' | b'X' | b'u' | b'U' | b'w' | b'W' | b'-' => Some(Bit::Unknown),
        b'z' | b'Z' => Some(Bit::HighZ),
        _ => None,
    }
}

/// 64 bits of a vector of `width` as (ones, unknown, high_z); `None` if a digit is no value.
#[inline]
fn limb_of(digits: &[u8], width: u32, limb: u32) -> Option<(u64, u64, u64)> {
    if width <= 64 {
        return vector(digits, width);
    }
    if !digits.iter().all(|&c| bit(c).is_some()) {
        return None;
    }
    let width = limb_width(width, limb);
    match digits.len().checked_sub(64 * limb as usize).filter(|&end| end > 0) {
        Some(end) => vector(&digits[end.saturating_sub(64)..end], width),
        None => Some(match digits.first() {
            Some(&first) if !matches!(bit(first), Some(Bit::Zero | Bit::One)) => extend(&[first], width),
            _ => (0, 0, 0),
        }),
    }
}

/// All bits of a vector of up to 64, likewise.
#[inline]
fn vector(digits: &[u8], width: u32) -> Option<(u64, u64, u64)> {
    let mut ones = 0u64;
    let mut eights = digits.chunks_exact(8);
    for eight in &mut eights {
        let word = u64::from_be_bytes(eight.try_into().expect("eight bytes"));
        if word & !0x0101_0101_0101_0101 != 0x3030_3030_3030_3030 {
            return digits.iter().all(|&c| bit(c).is_some()).then(|| extend(digits, width));
        }
        // Bit 0 of each byte, gathered into the top byte with the last digit lowest.
        let gathered = (word & 0x0101_0101_0101_0101).wrapping_mul(0x0102_0408_1020_4080) >> 56;
        ones = ones << 8 | gathered;
    }
    for &c in eights.remainder() {
        if c & !1 != b'0' {
            return digits.iter().all(|&c| bit(c).is_some()).then(|| extend(digits, width));
        }
        ones = ones << 1 | u64::from(c & 1);
    }
    Some((ones, 0, 0))
}

/// Left-extends a value as the standard says: with x or z if that comes first, else with 0.
fn extend(digits: &[u8], width: u32) -> (u64, u64, u64) {
    let (mut ones, mut unknown, mut high_z) = match digits.first().and_then(|&c| bit(c)) {
        Some(Bit::Unknown) => (0, u64::MAX, 0),
        Some(Bit::HighZ) => (0, 0, u64::MAX),
        _ => (0, 0, 0),
    };
    for &c in digits {
        (ones, unknown, high_z) = (ones << 1, unknown << 1, high_z << 1);
        match bit(c) {
            Some(Bit::One) => ones |= 1,
            Some(Bit::HighZ) => high_z |= 1,
            Some(Bit::Zero) => {}
            Some(Bit::Unknown) | None => unknown |= 1,
        }
    }
    let mask = if width >= 64 { u64::MAX } else { (1 << width) - 1 };
    (ones & mask, unknown & mask, high_z & mask)
}

fn unknown_id(statement: &[u8], id: &[u8]) -> String {
    if id.is_empty() {
        return format!("`{}` changes no net: its identifier is missing", show(statement));
    }
    format!("`{}` changes a net `{}` that the header does not declare", show(statement), show(id))
}

/// A token for a message, at most 40 bytes of it.
pub fn show(token: &[u8]) -> String {
    let short = String::from_utf8_lossy(&token[..token.len().min(40)]).into_owned();
    if token.len() > 40 { short + "..." } else { short }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Digit by digit, for comparison.
    fn slow(digits: &str, width: u32, limb: u32) -> (u64, u64, u64) {
        let first = digits.chars().next().unwrap();
        let fill = if "1hl".contains(first) { '0' } else { first };
        let full = fill.to_string().repeat(width as usize - digits.len()) + digits;
        let mask = |of: &str| {
            let ones: String = full.chars().map(|c| if of.contains(c) { '1' } else { '0' }).collect();
            (u128::from_str_radix(&ones, 2).unwrap() >> (64 * limb)) as u64
        };
        (mask("1hH"), mask("xXuUwW-"), mask("zZ"))
    }

    #[test]
    fn vectors_by_eights_equal_digit_by_digit() {
        for width in [1u32, 2, 7, 8, 9, 31, 32, 33, 64, 65, 100, 127, 128] {
            for length in (1..=width).filter(|n| n % 7 < 3 || *n == width) {
                for alphabet in ["01", "1", "0", "01xz", "zz01", "lh01", "uw-x"] {
                    let digits: String =
                        alphabet.chars().cycle().skip(length as usize % 3).take(length as usize).collect();
                    for limb in 0..width.div_ceil(64) {
                        let found = limb_of(digits.as_bytes(), width, limb);
                        assert_eq!(found, Some(slow(&digits, width, limb)), "{digits} in {width}, limb {limb}");
                    }
                }
            }
        }
        for bad in ["2", "0000000/", "0101010a0", "x2", "\u{7f}0000000"] {
            assert_eq!(limb_of(bad.as_bytes(), 64, 0), None, "{bad}");
            assert_eq!(limb_of(bad.as_bytes(), 100, 0), None, "{bad}");
        }
    }
}
