//! A state listing: one line a clock, with all lines of the bus.

use crate::pci::layout::Layout;
use crate::pci::word::Word;
use crate::samples::bits::{Backend, Bit};
use crate::samples::block::Block;
use crate::time::TimeBase;
use std::io::Write;
use std::ops::Range;

/// Which clocks are listed: both have to hold.
#[derive(Debug, Clone)]
pub struct Wanted {
    pub stamps: Range<u64>,
    pub clks: Range<u64>,
}

/// Writes the lines of one bus.
#[derive(Debug, Clone)]
pub struct ClockLines {
    layout: Layout,
    time: TimeBase,
    wanted: Wanted,
    /// Lines that are asserted seldom, by name.
    rare: Vec<(String, Bit)>,
    clk: u64,
    text: Vec<u8>,
}

impl ClockLines {
    pub fn new(layout: Layout, time: TimeBase, wanted: Wanted) -> Self {
        let named = |name: &str, bit: Option<Bit>| bit.map(|bit| (name.to_string(), bit));
        let mut rare: Vec<_> = [
            named("PAR64", layout.par64),
            named("PERR#", layout.perr),
            named("SERR#", layout.serr),
            named("LOCK#", layout.lock),
            named("REQ64#", layout.req64),
            named("ACK64#", layout.ack64),
            named("RST#", layout.rst),
        ]
        .into_iter()
        .flatten()
        .collect();
        for (name, agent) in layout.grant_names.iter().zip(&layout.agents) {
            rare.extend(named(&name.replacen("GNT", "REQ", 1), agent.request));
            rare.push((name.clone(), agent.grant));
        }
        rare.extend(layout.others.iter().cloned());
        ClockLines { layout, time, wanted, rare, clk: 0, text: Vec::new() }
    }

    /// The lines since the last time.
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.text)
    }

    #[inline(always)]
    pub fn push<B: Backend>(&mut self, block: &Block<B>, word: &Word) {
        let rare: Vec<u64> = self.rare.iter().map(|(_, bit)| block.line(*bit)).collect();
        let par = self.layout.par.map(|bit| block.line(bit));
        let unknown = |bit: Option<Bit>| bit.map_or(0, |bit| block.line(bit));
        let (no_ad, no_cbe) = (unknown(self.layout.ad_unknown), unknown(self.layout.cbe_unknown));
        let no_par = unknown(self.layout.par_unknown);
        for clock in 0..block.clocks() {
            let clk = self.clk + u64::from(clock);
            let stamp = block.stamp(clock);
            if !self.wanted.clks.contains(&clk) || !self.wanted.stamps.contains(&stamp) {
                continue;
            }
            let is = |word: u64| word >> clock & 1 != 0;
            let (us, out) = (self.time.us(stamp), &mut self.text);
            // A Vec takes all that is written.
            let _ = write!(out, "{us:>15.3} us {clk:>10}  ");
            let control = [('F', word.frame), ('I', word.irdy), ('T', word.trdy), ('S', word.stop), ('D', word.devsel)];
            let known = !is(word.unknown);
            out.extend(control.map(|(name, line)| match (known, is(line)) {
                (false, _) => b'?',
                (true, true) => name as u8,
                (true, false) => b'.',
            }));
            let sample = block.sample(clock);
            if let Some(ad) = &self.layout.ad {
                let high = self.layout.ad_high.as_ref().map(|high| high.get(sample) & 0xffff_ffff);
                let _ = match (is(no_ad), high) {
                    (true, _) => write!(out, "  ????????"),
                    (false, None) => write!(out, "  {:08x}", ad.get(sample) & 0xffff_ffff),
                    (false, Some(high)) => write!(out, "  {high:08x}_{:08x}", ad.get(sample) & 0xffff_ffff),
                };
            }
            if let Some(cbe) = &self.layout.cbe_word {
                let _ = match is(no_cbe) {
                    true => write!(out, "  ?"),
                    false => write!(out, "  {:x}", cbe.get(sample)),
                };
            }
            if let Some(par) = par {
                let _ = match is(no_par) {
                    true => write!(out, "  ?"),
                    false => write!(out, "  {}", u8::from(is(par))),
                };
            }
            out.extend_from_slice(b" ");
            for ((name, _), line) in self.rare.iter().zip(&rare) {
                if is(*line) {
                    let _ = write!(out, " {name}");
                }
            }
            let kept = out.iter().rposition(|&byte| byte != b' ').map_or(0, |last| last + 1);
            out.truncate(kept);
            out.push(b'\n');
        }
        self.clk += u64::from(block.clocks());
    }
}
