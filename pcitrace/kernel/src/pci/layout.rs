//! Where the lines of one bus are in a sample, as the decoder needs them.

use crate::bus;
use crate::error::{Error, Result};
use crate::samples::bits::Bit;
use crate::samples::places::{Gather, Parity, Source};
use std::collections::BTreeMap;

/// Lines whose changes are rows, in the order of `Layout::events`.
pub const EVENT_LINES: [&str; 5] = ["INTA#", "INTB#", "INTC#", "INTD#", "LOCK#"];

/// The lines of one bus by their canonical names (`FRAME#`, `AD0`, `CBE0#`, `GNT_NIC#` ...).
#[derive(Debug, Clone)]
pub struct BusSpec {
    pub name: String,
    /// Data width where the user stated it.
    pub width: Option<u32>,
    pub lines: BTreeMap<String, Source>,
}

impl BusSpec {
    pub fn line(&self, name: &str) -> Result<Source> {
        self.lines.get(name).copied().ok_or_else(|| {
            Error::Decode(format!(
                "bus {}: no channel is wired to {name}; CLK FRAME# IRDY# TRDY# are the minimum",
                self.name
            ))
        })
    }

    /// Lines whose names are `stem` + number or `_name` (+ `#`), sorted by number, then name.
    pub fn agents(&self, stem: &str) -> Vec<(String, Source)> {
        let number = |name: &str| name.trim_start_matches(stem).trim_end_matches('#').parse().unwrap_or(u32::MAX);
        let mut found: Vec<_> = self
            .lines
            .iter()
            .filter(|(name, _)| name.starts_with(stem))
            .map(|(name, &source)| (name.clone(), source))
            .collect();
        found.sort_by_key(|(name, _)| (number(name), name.clone()));
        found
    }

    /// All of `stem0..stemN` + `suffix`, or nothing where one of them is missing.
    fn group(&self, stem: &str, range: std::ops::Range<u32>, suffix: &str) -> Option<Vec<Source>> {
        range.map(|i| self.lines.get(&format!("{stem}{i}{suffix}")).copied()).collect()
    }
}

/// What the tables of a PCI bus need to know of it.
pub type BusTables = bus::BusTables<Layout>;

/// Lines of one bus in a sample. Bitmap lines read 1 when asserted; `cbe` bits read as they are on the bus.
#[derive(Debug, Clone)]
pub struct Layout {
    pub unit: usize,
    /// None in state mode, where every sample is a clock.
    pub clk: Option<Bit>,
    pub frame: Bit,
    pub irdy: Bit,
    pub trdy: Bit,
    pub stop: Option<Bit>,
    pub devsel: Option<Bit>,
    pub rst: Option<Bit>,
    /// Set where F, I, T or S has no known value (captures of changes).
    pub unknown: Option<Bit>,
    pub perr: Option<Bit>,
    pub serr: Option<Bit>,
    pub req64: Option<Bit>,
    pub ack64: Option<Bit>,
    pub par: Option<Bit>,
    pub par64: Option<Bit>,
    /// One bit a byte lane, 0 = enabled; 4 or 8 of them.
    pub cbe: Vec<Bit>,
    pub cbe_word: Option<Gather>,
    pub ad: Option<Gather>,
    pub ad_high: Option<Gather>,
    /// What PAR covers: AD[31:0] and C/BE[3:0]#.
    pub parity: Option<Parity>,
    /// What PAR64 covers: AD[63:32] and C/BE[7:4]#.
    pub parity_high: Option<Parity>,
    pub grants: Option<Gather>,
    pub grant_names: Vec<String>,
    /// Captures of changes: set where AD[31:0], AD[63:32], C/BE[3:0]#, C/BE[7:4]# or PAR has no known value.
    pub ad_unknown: Option<Bit>,
    pub ad_high_unknown: Option<Bit>,
    pub cbe_unknown: Option<Bit>,
    pub cbe_high_unknown: Option<Bit>,
    pub par_unknown: Option<Bit>,
    pub par64_unknown: Option<Bit>,
    /// The same for DEVSEL#, PERR#, SERR# and any GNT#.
    pub devsel_unknown: Option<Bit>,
    pub perr_unknown: Option<Bit>,
    pub serr_unknown: Option<Bit>,
    pub grants_unknown: Option<Bit>,
    /// IDSEL of the devices that have it captured, as names and bits; set where one has no known value.
    pub idsels: Option<Gather>,
    pub idsel_names: Vec<String>,
    pub idsels_unknown: Option<Bit>,
    /// The lines of [`EVENT_LINES`], each with what is set where it has no known value.
    pub events: [Option<(Bit, Option<Bit>)>; EVENT_LINES.len()],
    /// The user stated a width of 64.
    pub wide: bool,
    /// What only the rules look at: LOCK#, AD[1:0], and the agents' own lines in the order of `grant_names`.
    pub lock: Option<Bit>,
    pub ad_order: [Option<Bit>; 2],
    pub agents: Vec<Agent>,
    /// Lines that only a listing of clocks shows, by name: INTA#, IDSEL ...
    pub others: Vec<(String, Bit)>,
}

/// Lines that have places of their own in a layout; those that begin with `AD`, `CBE`, `GNT`, `REQ` are among them.
const KNOWN: [&str; 14] = [
    "CLK", "FRAME#", "IRDY#", "TRDY#", "STOP#", "DEVSEL#", "RST#", "PERR#", "SERR#", "REQ64#", "ACK64#", "PAR",
    "PAR64", "LOCK#",
];

/// The lines between one agent and the arbiter.
#[derive(Debug, Clone, Copy)]
pub struct Agent {
    pub grant: Bit,
    pub request: Option<Bit>,
}

impl Layout {
    /// `place` turns a channel bit into its position in the sample.
    pub fn new(spec: &BusSpec, unit: usize, state_mode: bool, place: impl Fn(Source) -> usize) -> Result<Self> {
        let bit = |s: Source| Bit::new(place(s), s.active_low);
        let optional = |name: &str| spec.lines.get(name).copied().map(bit);
        // C/BE# is named active low but read as it is on the bus.
        let as_on_bus = |s: Source| (place(s), !s.active_low);
        let as_stated = |s: Source| (place(s), s.active_low);
        let gather = |sources: Option<Vec<Source>>, how: &dyn Fn(Source) -> (usize, bool)| {
            sources.map(|s| Gather::new(&s.into_iter().map(how).collect::<Vec<_>>()))
        };
        let gather_all = |named: &[(String, Source)]| {
            let places: Vec<_> = named.iter().map(|(_, source)| as_stated(*source)).collect();
            (!places.is_empty()).then(|| Gather::new(&places))
        };
        let cbe_low = spec.group("CBE", 0..4, "#");
        let cbe_high = spec.group("CBE", 4..8, "#");
        let cbe: Vec<Source> = match (&cbe_low, &cbe_high) {
            (Some(low), Some(high)) => low.iter().chain(high).copied().collect(),
            (Some(low), None) => low.clone(),
            _ => Vec::new(),
        };
        let ad_low = spec.group("AD", 0..32, "");
        let grants = spec.agents("GNT");
        if grants.len() > 64 {
            return Err(Error::Decode(format!("bus {}: more than 64 GNT# lines", spec.name)));
        }
        let idsels = spec.agents("IDSEL");
        if idsels.len() > 64 {
            return Err(Error::Decode(format!("bus {}: more than 64 IDSEL lines", spec.name)));
        }
        let ad_high = spec.group("AD", 32..64, "");
        let parity = |ad: &Option<Vec<Source>>, cbe: &Option<Vec<Source>>| {
            let (ad, cbe) = (ad.as_ref()?, cbe.as_ref()?);
            Some(Parity::new(ad.iter().map(|&s| as_stated(s)).chain(cbe.iter().map(|&s| as_on_bus(s)))))
        };
        let (parity_low, parity_high) = (parity(&ad_low, &cbe_low), parity(&ad_high, &cbe_high));
        let agents = grants
            .iter()
            .map(|(name, source)| Agent { grant: bit(*source), request: optional(&name.replacen("GNT", "REQ", 1)) });
        let is_other = |name: &str| {
            !KNOWN.contains(&name) && !["AD", "CBE", "GNT", "REQ"].iter().any(|stem| name.starts_with(stem))
        };
        let others = spec.lines.iter().filter(|(name, _)| is_other(name));
        Ok(Layout {
            others: others.map(|(name, &source)| (name.clone(), bit(source))).collect(),
            agents: agents.collect(),
            lock: optional("LOCK#"),
            ad_order: [optional("AD0"), optional("AD1")],
            unit,
            clk: if state_mode { None } else { Some(bit(spec.line("CLK")?)) },
            frame: bit(spec.line("FRAME#")?),
            irdy: bit(spec.line("IRDY#")?),
            trdy: bit(spec.line("TRDY#")?),
            stop: optional("STOP#"),
            devsel: optional("DEVSEL#"),
            rst: optional("RST#"),
            unknown: None,
            perr: optional("PERR#"),
            serr: optional("SERR#"),
            req64: optional("REQ64#"),
            ack64: optional("ACK64#"),
            par: optional("PAR"),
            par64: optional("PAR64"),
            cbe: cbe.iter().map(|&s| Bit::new(place(s), !s.active_low)).collect(),
            cbe_word: (!cbe.is_empty()).then(|| Gather::new(&cbe.iter().map(|&s| as_on_bus(s)).collect::<Vec<_>>())),
            ad: gather(ad_low, &as_stated),
            ad_high: gather(ad_high, &as_stated),
            parity: parity_low,
            parity_high,
            grants: gather_all(&grants),
            grant_names: grants.into_iter().map(|(name, _)| name).collect(),
            ad_unknown: None,
            ad_high_unknown: None,
            cbe_unknown: None,
            cbe_high_unknown: None,
            par_unknown: None,
            par64_unknown: None,
            devsel_unknown: None,
            perr_unknown: None,
            serr_unknown: None,
            grants_unknown: None,
            idsels: gather_all(&idsels),
            idsel_names: idsels.into_iter().map(|(name, _)| name).collect(),
            idsels_unknown: None,
            events: EVENT_LINES.map(|name| optional(name).map(|bit| (bit, None))),
            wide: spec.width == Some(64),
        })
    }

    /// Were lines captured that tell more than what happens when, by whom: data, errors, the width of the bus?
    pub fn has_data(&self) -> bool {
        let lines = [self.perr, self.serr, self.req64, self.ack64, self.par];
        self.wide
            || !self.cbe.is_empty()
            || self.ad.is_some()
            || self.devsel_unknown.or(self.grants_unknown).is_some()
            || lines.into_iter().any(|line| line.is_some())
    }

    /// Captures of changes: a level may not be known.
    pub fn has_unknown(&self) -> bool {
        let control = [self.unknown, self.devsel_unknown, self.perr_unknown, self.serr_unknown];
        let data = [self.ad_unknown, self.cbe_unknown, self.grants_unknown, self.idsels_unknown];
        control.into_iter().chain(data).any(|line| line.is_some())
    }

    /// Bytes of the sample that hold the lines a decoder looks at clock by clock, with the bits of those lines.
    pub fn control_bytes(&self) -> Vec<(usize, u8)> {
        let mut bytes: BTreeMap<usize, u8> = BTreeMap::new();
        for bit in [Some(self.frame), Some(self.irdy), Some(self.trdy), self.stop, self.devsel].into_iter().flatten() {
            *bytes.entry(bit.byte).or_default() |= bit.mask;
        }
        bytes.into_iter().collect()
    }
}
