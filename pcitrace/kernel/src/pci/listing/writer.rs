//! How a line is written: in columns, with its colours, and not wider than the terminal.

use super::Options;
use super::line::Phase;
use std::io::Write;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    Plain,
    Read,
    Write,
    Configuration,
    Name,
    Notable,
    Problem,
}

impl Style {
    /// Ref: ECMA-48, section 8.3.117 (SGR).
    fn code(self) -> &'static str {
        match self {
            Style::Plain => "",
            Style::Read => "\x1b[32m",
            Style::Write => "\x1b[34m",
            Style::Configuration => "\x1b[35m",
            Style::Name => "\x1b[36m",
            Style::Notable => "\x1b[33m",
            Style::Problem => "\x1b[1;31m",
        }
    }
}

/// Writes one line, not wider than the terminal.
pub struct Writer<'a> {
    out: &'a mut Vec<u8>,
    /// Where the line begins in `out`.
    start: usize,
    width: Option<usize>,
    /// Where each style begins and ends, if there are to be colours.
    styles: Option<Vec<(usize, usize, Style)>>,
    /// Columns written.
    pub at: usize,
}

impl<'a> Writer<'a> {
    pub fn new(out: &'a mut Vec<u8>, options: &Options) -> Self {
        let styles = options.colour.then(Vec::new);
        Writer { start: out.len(), out, width: options.width, styles, at: 0 }
    }

    pub fn text(&mut self, style: Style, text: &str) {
        let from = self.out.len();
        self.out.extend_from_slice(text.as_bytes());
        self.written(style, from);
    }

    pub fn texts<const N: usize>(&mut self, style: Style, texts: [&str; N]) {
        let from = self.out.len();
        texts.iter().for_each(|text| self.out.extend_from_slice(text.as_bytes()));
        self.written(style, from);
    }

    pub fn formatted(&mut self, style: Style, text: std::fmt::Arguments) {
        let from = self.out.len();
        // A Vec takes all that is written.
        let _ = self.out.write_fmt(text);
        self.written(style, from);
    }

    fn written(&mut self, style: Style, from: usize) {
        let written = &self.out[from..];
        // Names come from files: a column a character is right for all but the rarest.
        self.at += if written.is_ascii() { written.len() } else { String::from_utf8_lossy(written).chars().count() };
        if let Some(styles) = self.styles.as_mut().filter(|_| style != Style::Plain) {
            match styles.last_mut() {
                Some((_, end, before)) if *end == from && *before == style => *end = self.out.len(),
                _ => styles.push((from, self.out.len(), style)),
            }
        }
    }

    /// A whole number, right-aligned in so many columns. Formatting it would take several times as long.
    pub fn number(&mut self, value: u64, width: usize) {
        let mut digits = [b' '; 20];
        let (mut rest, mut at) = (value, digits.len());
        while at == digits.len() || rest > 0 {
            at -= 1;
            digits[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        let shown = &digits[at.min(digits.len() - width)..];
        self.out.extend_from_slice(shown);
        self.at += shown.len();
    }

    /// So many digits in hex, more where it needs more.
    pub fn hex(&mut self, style: Style, value: u64, width: usize) {
        let needed = (u64::BITS - value.leading_zeros()).div_ceil(4) as usize;
        let from = self.out.len();
        let digits = width.max(needed);
        self.out.extend((0..digits).rev().map(|place| b"0123456789abcdef"[(value >> (4 * place) & 15) as usize]));
        self.written(style, from);
    }

    /// Microseconds with three decimals, right-aligned in so many columns behind the mark.
    pub fn time(&mut self, style: Style, mark: u8, us: f64, width: usize) {
        let from = self.out.len();
        let ns = (us * 1e3).round();
        if ns.abs() < 1e15 {
            // Ten times as fast as the formatting of floats, and half of a line's time otherwise.
            let mut digits = [b' '; 20];
            let (mut rest, mut at) = ((ns as i64).unsigned_abs(), digits.len());
            for place in 0.. {
                if place == 3 {
                    at -= 1;
                    digits[at] = b'.';
                }
                at -= 1;
                digits[at] = b'0' + (rest % 10) as u8;
                rest /= 10;
                if rest == 0 && place >= 3 {
                    break;
                }
            }
            if ns < 0.0 {
                at -= 1;
                digits[at] = b'-';
            }
            self.out.push(mark);
            self.out.extend_from_slice(&digits[at.min(digits.len() - width)..]);
        } else {
            let _ = write!(self.out, "{}{us:>width$.3}", char::from(mark));
        }
        self.out.extend_from_slice(b" us  ");
        self.written(style, from);
    }

    /// A text in a column of its own, where that has a width.
    pub fn column(&mut self, style: Style, text: &str, width: usize) {
        if width > 0 {
            let end = self.at + width + 2;
            self.text(style, text);
            self.pad(end);
        }
    }

    /// Spaces up to a column.
    pub fn pad(&mut self, column: usize) {
        let more = column.saturating_sub(self.at);
        self.out.resize(self.out.len() + more, b' ');
        self.at += more;
    }

    /// Data in hex; bytes that are not enabled as dots.
    pub fn data(&mut self, phase: &Phase, bytes: u64) {
        let Some(data) = phase.data else { return self.text(Style::Plain, "?") };
        let disabled = phase.enables.unwrap_or(0);
        let mut text = [b'.'; 16];
        for lane in 0..bytes as usize {
            if disabled >> lane & 1 == 0 {
                let byte = (data >> (8 * lane)) as u8;
                let at = 2 * (bytes as usize - 1 - lane);
                text[at] = b"0123456789abcdef"[usize::from(byte >> 4)];
                text[at + 1] = b"0123456789abcdef"[usize::from(byte & 15)];
            }
        }
        self.text(Style::Plain, std::str::from_utf8(&text[..2 * bytes as usize]).unwrap_or("?"));
    }

    /// Another text from this column on; what stands there is cut.
    pub fn ends_with(&mut self, other: Writer, column: usize) {
        self.cut(column);
        self.pad(column);
        let (from, offset) = (other.start, self.out.len());
        let moved = |at: usize| at - from + offset;
        if let (Some(styles), Some(others)) = (self.styles.as_mut(), other.styles) {
            styles.extend(others.into_iter().map(|(from, to, style)| (moved(from), moved(to), style)));
        }
        self.out.extend_from_slice(&other.out[from..]);
        self.at += other.at;
    }

    /// Cuts what is longer than so many columns, visibly.
    fn cut(&mut self, columns: usize) {
        if self.at <= columns || columns == 0 {
            return;
        }
        let line = String::from_utf8_lossy(&self.out[self.start..]);
        let Some((cut, _)) = line.char_indices().nth(columns - 1) else { return };
        self.out.truncate(self.start + cut);
        self.out.extend_from_slice("…".as_bytes());
        self.at = columns;
        if let Some(styles) = &mut self.styles {
            let end = self.out.len();
            styles.retain(|&(from, ..)| from < self.start + cut);
            styles.iter_mut().filter(|(_, to, _)| *to > self.start + cut).for_each(|(_, to, _)| *to = end);
        }
    }

    /// Ends the line: no spaces at its end, cut where the terminal ends, with its colours.
    pub fn end(mut self) {
        let kept = self.out[self.start..].iter().rposition(|&byte| byte != b' ').map_or(0, |last| last + 1);
        self.at -= self.out.len() - self.start - kept;
        self.out.truncate(self.start + kept);
        if let Some(width) = self.width {
            self.cut(width);
        }
        if let Some(styles) = self.styles {
            let line = self.out.split_off(self.start);
            let mut done = 0;
            for (from, to, style) in styles {
                let (from, to) = (from - self.start, (to - self.start).min(line.len()));
                if from < to {
                    self.out.extend_from_slice(&line[done..from]);
                    self.out.extend_from_slice(style.code().as_bytes());
                    self.out.extend_from_slice(&line[from..to]);
                    self.out.extend_from_slice(b"\x1b[0m");
                    done = to;
                }
            }
            self.out.extend_from_slice(&line[done..]);
        }
        self.out.push(b'\n');
    }
}
