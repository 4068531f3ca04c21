//! The declarations of a VCD: time unit, nets and the names they have.
//! Ref: IEEE Std 1364-2005 section 18.2.3.

use super::scan::{NetLimb, Tokens, Wrong, refuse_zeros, show};
use crate::capture::Channel;
use crate::read::names::{count_bytes, number_repeated};
use std::collections::HashMap;

/// Far deeper than any design, and names stay short.
const MAX_SCOPES: usize = 1000;

#[derive(Debug)]
pub struct Header {
    /// Seconds per time unit: numerator, denominator.
    pub tick: (u64, u64),
    pub channels: Vec<Channel>,
    /// The net of each channel; several names may have the same.
    pub channel_nets: Vec<usize>,
    pub nets: Nets,
    /// As of [`Capture`](crate::capture::Capture).
    pub notes: Vec<String>,
}

/// Nets by identifier code, as fast as the value changes need it.
#[derive(Debug)]
pub struct Nets {
    /// Net + 1 of each code of one or two bytes, 0 for none.
    short: Vec<u32>,
    long: HashMap<Box<[u8]>, u32>,
    widths: Vec<u32>,
}

impl Nets {
    fn new() -> Self {
        Nets { short: vec![0; 1 << 16], long: HashMap::new(), widths: Vec::new() }
    }

    /// The net of an identifier of one byte, or of two of which the first is the upper half of `code`.
    #[inline(always)]
    pub fn find_short(&self, code: u16) -> Option<usize> {
        (self.short[usize::from(code)] as usize).checked_sub(1)
    }

    #[inline]
    pub fn find(&self, id: &[u8]) -> Option<usize> {
        let found = match *id {
            [c] => self.short[usize::from(c)],
            [c, d] => self.short[usize::from(c) << 8 | usize::from(d)],
            _ => *self.long.get(id)?,
        };
        (found as usize).checked_sub(1)
    }

    /// 0 for a net whose values are not bits.
    #[inline]
    pub fn width(&self, net: usize) -> u32 {
        self.widths[net]
    }

    pub fn len(&self) -> usize {
        self.widths.len()
    }

    /// All bits of all nets.
    pub fn limbs(&self) -> impl Iterator<Item = NetLimb> {
        let of_net = |(net, &width): (usize, &u32)| (0..width.div_ceil(64)).map(move |limb| (net, limb));
        self.widths.iter().enumerate().flat_map(of_net)
    }

    fn add(&mut self, id: &[u8], width: u32) -> usize {
        self.widths.push(width);
        let found = self.widths.len() as u32;
        match *id {
            [c] => self.short[usize::from(c)] = found,
            [c, d] => self.short[usize::from(c) << 8 | usize::from(d)] = found,
            _ => {
                self.long.insert(id.into(), found);
            }
        }
        found as usize - 1
    }
}

/// Parses `text`, which ends with `$enddefinitions $end`. A time unit that is given (like `10 ns`) wins over the file's.
pub fn parse(text: &[u8], timescale: Option<&str>) -> Result<Header, Wrong> {
    refuse_zeros(text)?;
    let mut tick = None;
    let mut scopes: Vec<String> = Vec::new();
    let mut channels = Vec::new();
    let mut channel_nets = Vec::new();
    let mut nets = Nets::new();
    let mut by_name: HashMap<String, usize> = HashMap::new();
    let mut name_bytes = 0;
    let mut tokens = Tokens { text, at: 0 };
    while let Some(at) = tokens.next_start() {
        let wrong = |what: String| Wrong { at, what };
        let keyword = tokens.token();
        if !keyword.starts_with(b"$") {
            return Err(wrong(format!("`{}` stands where the header needs a `$` keyword", show(keyword))));
        }
        let body = body(&mut tokens).ok_or_else(|| wrong(format!("`{}` has no `$end`", show(keyword))))?;
        match keyword {
            b"$enddefinitions" => break,
            b"$timescale" => {
                let text = body.concat();
                tick = parse_timescale(&text);
                // Whoever gives another one knows better.
                if tick.is_none() && timescale.is_none() {
                    let what = "is not a number and a unit from s to as, like `1 ns`; give it with --timescale";
                    return Err(wrong(format!("`$timescale {}` {what}", show(&text))));
                }
            }
            b"$scope" if scopes.len() == MAX_SCOPES => {
                return Err(wrong(format!("scopes are nested more than {MAX_SCOPES} deep")));
            }
            b"$scope" => scopes.push(scope_name(&body)),
            b"$upscope" => {
                scopes.pop();
            }
            b"$var" => {
                let var = Var::parse(&body).ok_or_else(|| {
                    wrong(format!("`$var {}` is not type, width, identifier, name", show(&body.join(&b' '))))
                })?;
                let net = match nets.find(var.id) {
                    Some(net) if nets.width(net) == var.width => net,
                    Some(net) => {
                        return Err(wrong(format!(
                            "identifier `{}` is declared with {} and with {} bits",
                            show(var.id),
                            nets.width(net),
                            var.width
                        )));
                    }
                    None => nets.add(var.id, var.width),
                };
                if var.width == 0 {
                    continue;
                }
                let name = full_name(&scopes, &var.name);
                count_bytes(&mut name_bytes, &name).map_err(wrong)?;
                // One net may be declared under one name again.
                if by_name.insert(name.clone(), net) != Some(net) {
                    channels.push(Channel { name, width: var.width });
                    channel_nets.push(net);
                }
            }
            // Date, version, comments, and what simulators add of their own.
            _ => {}
        }
    }
    let mut notes = number_repeated(channels.iter_mut().map(|channel: &mut Channel| &mut channel.name));
    if let Some(given) = timescale {
        let unit = parse_timescale(given.replace(' ', "").as_bytes()).ok_or_else(|| Wrong {
            at: 0,
            what: format!(
                "the timescale {given:?} that was given is not a number and a unit from s to as, like `1 ns`"
            ),
        })?;
        if let Some((number, parts)) = tick.filter(|&stated| stated != unit) {
            notes.push(format!("its `$timescale` is {number}/{parts} s, but {given} was given: that was taken"));
        }
        tick = Some(unit);
    }
    let tick = tick.ok_or_else(|| Wrong {
        at: 0,
        what: "there is no `$timescale` (like `$timescale 1 ns $end`), so times have no unit; give it with --timescale"
            .into(),
    })?;
    Ok(Header { tick, channels, channel_nets, nets, notes })
}

/// The tokens up to `$end`.
fn body<'a>(tokens: &mut Tokens<'a>) -> Option<Vec<&'a [u8]>> {
    let mut body = Vec::new();
    loop {
        tokens.next_start()?;
        match tokens.token() {
            b"$end" => return Some(body),
            token => body.push(token),
        }
    }
}

/// `1ps`, `10 ns`: as a fraction of a second in lowest terms.
fn parse_timescale(text: &[u8]) -> Option<(u64, u64)> {
    let text = std::str::from_utf8(text).ok()?;
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit())?);
    let number: u64 = number.parse().ok()?;
    let denominator = 10u64.pow(match unit {
        "s" => 0,
        "ms" => 3,
        "us" => 6,
        "ns" => 9,
        "ps" => 12,
        "fs" => 15,
        "as" => 18,
        _ => return None,
    });
    (1..=1_000_000).contains(&number).then(|| {
        let divisor = gcd(number, denominator);
        (number / divisor, denominator / divisor)
    })
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

fn scope_name(body: &[&[u8]]) -> String {
    body.get(1).map_or_else(String::new, |name| plain(name))
}

fn full_name(scopes: &[String], name: &str) -> String {
    let mut parts: Vec<&str> = scopes.iter().map(String::as_str).filter(|s| !s.is_empty()).collect();
    parts.push(name);
    parts.join(".")
}

/// Without the backslash of an escaped identifier.
fn plain(name: &[u8]) -> String {
    String::from_utf8_lossy(name.strip_prefix(b"\\").unwrap_or(name)).into_owned()
}

struct Var<'a> {
    /// 0 where the values are not bits.
    width: u32,
    id: &'a [u8],
    name: String,
}

impl<'a> Var<'a> {
    fn parse(body: &[&'a [u8]]) -> Option<Self> {
        let [kind, width, id, name, more @ ..] = body else {
            return None;
        };
        let width: u32 = std::str::from_utf8(width).ok()?.parse().ok()?;
        let has_bits =
            !matches!(*kind, b"real" | b"realtime" | b"shortreal" | b"real_parameter" | b"string" | b"event");
        let mut name = plain(name);
        for part in more {
            // `AD [31:0]` and even `AD [31 : 0]` are the net AD[31:0]; other blanks belong to the name.
            let in_range = name.contains('[') && !name.ends_with(']');
            if !part.starts_with(b"[") && !in_range {
                name.push(' ');
            }
            name.push_str(&String::from_utf8_lossy(part));
        }
        Some(Var { width: if has_bits { width } else { 0 }, id, name })
    }
}
