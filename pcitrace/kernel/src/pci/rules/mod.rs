//! The rules that a passive observer can check, on the clock words, in the same pass as the protocol.
//!
//! Ref: PCI Local Bus Specification 2.3; each rule's sentence and section is in `pcitrace/instrument/rules.toml`. A rule is an
//! expression on words of 64 clocks: which clocks break it. `masks` says where in a transaction each clock is; what
//! happened before the block is in `Past`s. Nothing here is shared with the protocol: a rule judges what the lines did,
//! also where no transaction can be read from them any more.

mod bus;
mod census;
mod clock;
mod control;
mod masks;
mod phases;
mod repeat;
mod requests;
mod upper;
mod words;

use crate::capture::Signal;
use crate::pci::layout::Layout;
use crate::pci::listing::clocks::ClockLines;
use crate::pci::word::Word;
use crate::samples::bits::Backend;
use crate::samples::block::{Block, Span, below, first, ones};
use crate::samples::places::Source;
use masks::{Masks, Pasts};
use words::{Past, Reader, Words};

pub use census::Census;
pub use clock::ClockLimits;
pub use requests::{Histogram, Requests};

macro_rules! rules {
    ($($name:ident)*) => {
        /// The rules, in the order of the catalogue.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
        pub enum Rule { $($name),* }

        pub const RULES: &[Rule] = &[$(Rule::$name),*];

        impl Rule {
            pub fn id(self) -> &'static str {
                match self { $(Rule::$name => stringify!($name)),* }
            }
        }
    };
}

rules! {
    M01 M02 M03 M04 M05 M06 M07 M08 M09 M10 M11 M12 M13 M14 M15 M16 M17 M18 M19 M20 M21 M22 M23
    T01 T02 T03 T04 T05 T06 T07 T08 T09 T10 T11 T12 T13 T14 T15
    A01 A02 A03 A06 P01 P02 P03 P04 P05 W01 W02 L01 L02 L03 E01
}

/// A set of rules.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct RuleSet(u64);

impl RuleSet {
    /// Of ids; the first that does not exist is the error.
    pub fn named(ids: &[String]) -> std::result::Result<Self, &String> {
        ids.iter().try_fold(RuleSet::default(), |set, id| {
            let rule = RULES.iter().find(|rule| rule.id() == id).ok_or(id)?;
            Ok(RuleSet(set.0 | 1 << *rule as u64))
        })
    }

    #[inline(always)]
    pub fn has(self, rule: Rule) -> bool {
        self.0 >> rule as u64 & 1 != 0
    }
}

/// What the specification leaves open.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Parameters {
    /// M23: a retried access that its initiator has not repeated after so many others was given up.
    pub repeat_within: u64,
    /// E01: so much shorter than the limit, as a share, is not told.
    pub clock_tolerance: f64,
}

impl Default for Parameters {
    fn default() -> Self {
        Parameters { repeat_within: 16, clock_tolerance: 1e-3 }
    }
}

/// One place where a rule was broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Violation {
    pub rule: Rule,
    pub clk: u64,
    pub stamp: u64,
    /// F I T S D asserted at this clock (bits 0 to 4) and at the one before (bits 8 to 12; bit 15: not known).
    pub lines: u16,
    /// What was seen, where a number says it: C/BE#, the bits of AD that changed, PAR (bit 1: PAR64), which GNT#, a
    /// time in stamps.
    pub value: Option<u64>,
}

/// What was found of one bus.
#[derive(Debug, Clone)]
pub struct Findings {
    pub violations: Vec<Violation>,
    /// Of each rule, all of them.
    pub counts: [u64; RULES.len()],
    /// Address phases, and those without any captured GNT# in the clock before.
    pub address_phases: u64,
    pub ungranted: u64,
    /// Of each rule, places that could not be judged, because whose they are or whether it asked is not known.
    pub unjudged: [u64; RULES.len()],
    /// Clocks that were judged.
    pub clocks: u64,
    /// How the control lines were over all clocks, those before the first idle one included.
    pub census: Census,
    /// So many places are kept of one rule; the others are counted.
    most: u64,
    /// Of these all are kept.
    pub every: RuleSet,
}

/// Of a violation that is told a clock late only the lines at its own clock are at hand.
const BEFORE_UNKNOWN: u16 = 1 << 15;

/// So many places of one rule are kept where nobody takes them while they are found.
const KEPT: u64 = 20_000;

impl Findings {
    fn new() -> Self {
        Findings {
            violations: Vec::new(),
            counts: [0; RULES.len()],
            address_phases: 0,
            ungranted: 0,
            unjudged: [0; RULES.len()],
            clocks: 0,
            census: Census::default(),
            most: KEPT,
            every: RuleSet::default(),
        }
    }

    /// Takes the violations that were found since the last time; from now on all of them are told.
    pub fn take(&mut self) -> Vec<Violation> {
        self.most = u64::MAX;
        std::mem::take(&mut self.violations)
    }

    fn add(&mut self, violation: Violation) {
        let count = &mut self.counts[violation.rule as usize];
        *count += 1;
        if *count <= self.most || self.every.has(violation.rule) {
            self.violations.push(violation);
        }
    }
}

/// Judges the clocks of one bus.
#[derive(Debug, Clone)]
pub struct Rules {
    wanted: RuleSet,
    layout: Layout,
    reader: Reader,
    parameters: Parameters,
    limits: Option<ClockLimits>,
    clock: clock::ClockWatch,
    /// In step: an idle clock was seen since the start, a gap, a reset or an unknown level.
    in_step: bool,
    clk: u64,
    last_stamp: u64,
    past: Pasts,
    /// Of the present block.
    commands: phases::Commands,
    upper: upper::Upper,
    /// Which rules were broken in the clocks before, where a breach of several clocks counts once.
    broken: [Past; RULES.len()],
    grants: bus::Grants,
    lock: bus::Lock,
    repeat: repeat::Repeats,
    pub findings: Findings,
    /// Writes a line for each clock, where asked for.
    pub lines: Option<ClockLines>,
    /// Measures how long agents wait, where asked for.
    pub requests: Option<Requests>,
}

/// Up to 64 clocks in step of one block.
struct Stretch<'a, 'b, B> {
    block: &'a Block<'b, B>,
    /// Of the block.
    from: u32,
    clocks: u32,
}

impl<B: Backend> Stretch<'_, '_, B> {
    #[inline(always)]
    fn sample(&self, clock: u32) -> &[u8] {
        self.block.sample(self.from + clock)
    }
}

impl Rules {
    pub fn new(layout: Layout, wanted: RuleSet, limits: Option<ClockLimits>, parameters: Parameters) -> Self {
        Rules {
            wanted,
            reader: Reader::new(&layout),
            grants: bus::Grants::new(layout.agents.len().min(words::AGENTS)),
            layout,
            parameters,
            limits,
            clock: clock::ClockWatch::default(),
            in_step: false,
            clk: 0,
            last_stamp: 0,
            past: Pasts::default(),
            commands: phases::Commands::default(),
            upper: upper::Upper::default(),
            broken: [Past::default(); RULES.len()],
            lock: bus::Lock::default(),
            repeat: repeat::Repeats::default(),
            findings: Findings::new(),
            lines: None,
            requests: None,
        }
    }

    /// The next samples, for CLK itself.
    #[inline(always)]
    pub fn watch_clock<B: Backend>(&mut self, span: &Span, samples: usize) {
        let Some(limits) = self.limits() else { return };
        let mut found = Vec::new();
        self.clock.watch::<B>(span, samples, limits, &mut found);
        found.into_iter().for_each(|violation| self.findings.add(violation));
    }

    /// The same of a capture of changes, all of it.
    pub fn watch_changes(&mut self, clk: &Signal, source: Source, gaps: &[(u64, u64)]) {
        let Some(limits) = self.limits() else { return };
        let mut found = Vec::new();
        self.clock.watch_changes(clk, source, gaps, limits, &mut found);
        found.into_iter().for_each(|violation| self.findings.add(violation));
    }

    /// Does anything ask for the edges of CLK?
    fn limits(&self) -> Option<ClockLimits> {
        self.limits.filter(|_| self.wanted.has(Rule::E01))
    }

    /// The next block of clocks.
    #[inline(always)]
    pub fn push<B: Backend>(&mut self, block: &Block<B>, word: &Word) {
        let n = block.clocks();
        if n == 0 {
            return;
        }
        if let Some(lines) = &mut self.lines {
            lines.push(block, word);
        }
        let words = self.reader.read(block);
        self.findings.census.push(word, n);
        let bad = word.unknown | word.reset | words[words::line::DEVSEL_UNKNOWN];
        if bad == 0 && self.in_step {
            self.judge(&Stretch { block, from: 0, clocks: n }, word, &words);
        } else {
            self.push_in_parts(block, word, &words, bad);
        }
        self.clk += u64::from(n);
        self.last_stamp = block.stamp(n - 1);
    }

    /// Rules rest until the first idle clock, and from a clock on that has no known level or lies in a reset.
    #[cold]
    fn push_in_parts<B: Backend>(&mut self, block: &Block<B>, word: &Word, words: &Words, bad: u64) {
        let n = block.clocks();
        let (start, mut from) = (self.clk, 0);
        while from < n {
            if !self.in_step {
                from = first(!(word.frame | word.irdy | bad), from, n);
                self.forget();
                self.in_step = from < n;
                continue;
            }
            let to = first(bad, from, n);
            if to > from {
                let cut = |word: u64| word >> from & below(to - from);
                let part = Word {
                    frame: cut(word.frame),
                    irdy: cut(word.irdy),
                    trdy: cut(word.trdy),
                    stop: cut(word.stop),
                    devsel: cut(word.devsel),
                    ..*word
                };
                if from > 0 {
                    self.last_stamp = block.stamp(from - 1);
                }
                self.clk = start + u64::from(from);
                self.judge(&Stretch { block, from, clocks: to - from }, &part, &words.map(cut));
            }
            self.in_step = to == n;
            from = to;
        }
        self.clk = start;
    }

    /// Nothing is known of what was before.
    fn forget(&mut self) {
        self.past = Pasts::default();
        self.broken = [Past::default(); RULES.len()];
        self.grants.forget();
        self.lock = bus::Lock::default();
        self.repeat = repeat::Repeats::default();
        if let Some(requests) = &mut self.requests {
            requests.forget();
        }
    }

    /// Nothing is known between the last clock and the next one.
    pub fn gap(&mut self) {
        self.in_step = false;
        self.clock = clock::ClockWatch::default();
    }

    /// Clocks in step: each of them is judged.
    #[inline(always)]
    fn judge<B: Backend>(&mut self, stretch: &Stretch<B>, word: &Word, words: &Words) {
        let masks = self.masks(word, words, stretch.clocks);
        self.control(stretch, &masks);
        self.upper = self.upper_half(&masks, words, stretch.clocks);
        self.commands(stretch, &masks, words);
        self.tell_owners(stretch, &masks, words);
        if self.requests.is_some() {
            self.follow_requests(&masks, words);
        }
        self.stability(stretch, &masks, words);
        self.arbitration(stretch, &masks, words);
        self.parity(stretch, &masks, words);
        self.extensions(stretch, &masks, words);
        self.lock_rules(stretch, &masks, words);
        self.repeats(stretch, &masks, words);
        self.findings.clocks += u64::from(stretch.clocks);
        self.past.advance(&masks, words, stretch.clocks);
        self.grants.advance(words, stretch.clocks);
    }

    /// The rule is broken at each of these clocks.
    #[inline(always)]
    fn say<B: Backend>(&mut self, rule: Rule, at: u64, stretch: &Stretch<B>, masks: &Masks) {
        if at != 0 {
            self.say_each(rule, at, 0, stretch, masks, |_| None);
        }
    }

    /// The same, where a breach of several clocks in a row counts once.
    #[inline(always)]
    fn say_once<B: Backend>(&mut self, rule: Rule, at: u64, stretch: &Stretch<B>, masks: &Masks) {
        let new = Self::first(&mut self.broken[rule as usize], at, stretch.clocks);
        self.say(rule, new, stretch, masks);
    }

    /// The first clocks of breaches of several clocks.
    #[inline(always)]
    fn first(past: &mut Past, at: u64, clocks: u32) -> u64 {
        let new = at & !past.back(at, 1);
        past.advance(at, clocks);
        new
    }

    /// Broken `earlier` clocks (0 or 1) before each of the clocks `at`; `value` says what was seen.
    #[cold]
    #[inline(never)]
    fn say_each<B: Backend>(
        &mut self,
        rule: Rule,
        at: u64,
        earlier: u32,
        stretch: &Stretch<B>,
        masks: &Masks,
        value: impl Fn(u32) -> Option<u64>,
    ) {
        if !self.wanted.has(rule) {
            return;
        }
        for clock in ones(at) {
            let stamp = match clock.checked_sub(earlier) {
                Some(clock) => stretch.block.stamp(stretch.from + clock),
                None => self.last_stamp,
            };
            let lines = match earlier {
                0 => masks.lines(clock),
                _ => masks.lines(clock) >> 8 | BEFORE_UNKNOWN,
            };
            let clk = self.clk + u64::from(clock) - u64::from(earlier);
            self.findings.add(Violation { rule, clk, stamp, lines, value: value(clock) });
        }
    }
}
