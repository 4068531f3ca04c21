//! One bus over all the decoders that make it up, and what is left of it when its rows are gone.

use crate::bus::Origin;
use crate::error::{Error, Result};
use crate::pci::clocking::Decoder;
use crate::pci::decoding::{Options, Sink};
use crate::pci::layout::BusTables;
use crate::pci::problems::{Concerns, Problem, Problems, What};
use crate::pci::protocol::PciX;
use crate::pci::rows::{WindowCounts, append_windows};
use crate::pci::rules::{Findings, Requests};
use crate::pipeline::Gather;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// What is left of a bus when its rows are gone.
#[derive(Debug, Clone)]
pub struct Decoded {
    pub bus: BusTables,
    pub transactions: u64,
    /// In the order in which they were found.
    pub problems: Problems,
    pub windows: WindowCounts,
    pub window_us: Option<f64>,
    /// Length of the capture.
    pub duration_us: f64,
    /// Mean over the whole capture.
    pub clock_mhz: Option<f64>,
    /// Where rules were asked for.
    pub findings: Option<Findings>,
    /// Where they were to be measured.
    pub requests: Option<Requests>,
}

/// The rows and counts of one bus, over all the decoders that make it up.
pub(super) struct Track<G> {
    pub(super) bus: BusTables,
    /// To gather rows in.
    empty: G,
    forget_problems: bool,
    /// Clocks and transactions of the decoders before the present one.
    origin: Origin,
    problems: Problems,
    windows: WindowCounts,
    first_clock: Option<u64>,
    last_clock: Option<u64>,
    pcix: PciX,
    findings: Option<Findings>,
    requests: Option<Requests>,
}

/// What a stretch of the capture leaves of a bus besides its rows. Its numbers count from the start of the stretch.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Left {
    origin: Origin,
    problems: Vec<Problem>,
    windows: WindowCounts,
    first_clock: Option<u64>,
    last_clock: Option<u64>,
    pcix: PciX,
}

impl<G: Gather<Decoder>> Track<G> {
    pub(super) fn new(bus: BusTables, empty: G, options: &Options) -> Self {
        Track {
            bus,
            empty,
            forget_problems: options.forget_problems,
            origin: Origin::default(),
            problems: Problems::default(),
            windows: Vec::new(),
            first_clock: None,
            last_clock: None,
            pcix: PciX::default(),
            findings: None,
            requests: None,
        }
    }

    /// Passes on what the decoder has finished.
    pub(super) fn drain(&mut self, decoder: &mut Decoder, sink: &mut impl Sink<Gathered = G>) -> Result<()> {
        let mut rows = self.empty.clone();
        rows.take(decoder);
        self.pass_on(decoder, rows, sink)
    }

    /// Passes on the rows of a decoder, and what else it has found.
    pub(super) fn pass_on<S: Sink<Gathered = G>>(
        &mut self,
        decoder: &mut Decoder,
        rows: G,
        sink: &mut S,
    ) -> Result<()> {
        let begun = self.origin.transactions + decoder.protocol.transactions();
        let mut found = std::mem::take(&mut decoder.protocol.rows.problems);
        found.count_from(self.origin);
        self.tell(found, begun, sink)?;
        if let Some(rules) = decoder.rules.as_mut().filter(|_| sink.takes_violations()) {
            // Rules look back, so that one decoder goes through all samples: its numbers count from their start.
            debug_assert_eq!(self.origin, Origin::default());
            sink.violations(self.bus.index, rules.findings.take(), decoder.protocol.on_bus())?;
            if let Some(lines) = &mut rules.lines {
                sink.clock_lines(lines.take())?;
            }
        }
        if rows.counts().iter().any(|&count| count > 0) {
            sink.rows(self.bus.index, self.origin, rows)?;
        }
        sink.reached(self.bus.index, decoder.reached())
    }

    /// Gives on or keeps what was wrong where so many transactions had begun.
    fn tell<S: Sink>(&mut self, found: Problems, begun: u64, sink: &mut S) -> Result<()> {
        if S::TAKES_PROBLEMS {
            return sink.problems(self.bus.index, found, begun);
        }
        if !self.forget_problems {
            self.problems.append(found);
        }
        Ok(())
    }

    /// The problems that will not go on, of those that there are so far.
    pub(super) fn closed_problems(&mut self, decoder: &Decoder) -> Vec<Problem> {
        self.problems.take_closed(self.origin.transactions + decoder.protocol.transactions())
    }

    /// After so many samples there are a few bytes more; the last decoder is over.
    pub(super) fn ends_within_a_sample(&mut self, samples: u64, sink: &mut impl Sink) -> Result<()> {
        let last = self.origin.clocks.saturating_sub(1);
        let mut found = Problems::default();
        found.push(Problem {
            stamp: samples,
            what: What::EndsWithinSample,
            concerns: Concerns::NoneAfter(self.origin.transactions),
            lines: 0,
            first_clk: last,
            last_clk: last,
            count: 1,
        });
        self.tell(found, self.origin.transactions, sink)
    }

    /// The present decoder is over; the next one counts from here.
    pub(super) fn absorb(&mut self, decoder: Decoder) {
        (self.findings, self.requests) =
            decoder.rules.map(|rules| (Some(rules.findings), rules.requests)).unwrap_or_default();
        self.origin.clocks += decoder.protocol.clk;
        self.origin.transactions += decoder.protocol.transactions();
        self.pcix.add(decoder.protocol.pcix);
        self.first_clock = self.first_clock.or(decoder.first_clock);
        self.last_clock = decoder.last_clock_stamp.or(self.last_clock);
        append_windows(&mut self.windows, decoder.protocol.into_windows());
    }

    /// What is to be told of it elsewhere.
    pub(super) fn left(self) -> Left {
        Left {
            origin: self.origin,
            problems: self.problems.rows().collect(),
            windows: self.windows,
            first_clock: self.first_clock,
            last_clock: self.last_clock,
            pcix: self.pcix,
        }
    }

    /// The stretch behind this was decoded elsewhere.
    pub(super) fn go_on(&mut self, left: Left) {
        let mut found = Problems::of(left.problems);
        found.count_from(self.origin);
        self.problems.append(found);
        self.origin.clocks += left.origin.clocks;
        self.origin.transactions += left.origin.transactions;
        self.pcix.add(left.pcix);
        self.first_clock = self.first_clock.or(left.first_clock);
        self.last_clock = left.last_clock.or(self.last_clock);
        append_windows(&mut self.windows, left.windows);
    }

    pub(super) fn result(
        self,
        sink: &mut impl Sink,
        options: &Options,
        duration_us: f64,
        path: &Path,
    ) -> Result<Decoded> {
        sink.reached(self.bus.index, u64::MAX)?;
        if self.origin.clocks == 0 {
            return Err(Error::Decode(format!(
                "{}: bus {}: CLK never rises in this capture; check the wiring of CLK",
                path.display(),
                self.bus.name
            )));
        }
        if let Some(why) = self.pcix.told_by() {
            return Err(Error::Decode(format!(
                "{}: bus {}: this is PCI-X, not PCI: {why}; PCI-X is not decoded, set the bus to PCI mode",
                path.display(),
                self.bus.name
            )));
        }
        let span =
            self.first_clock.zip(self.last_clock).map(|(first, last)| self.bus.time.us(last) - self.bus.time.us(first));
        Ok(Decoded {
            clock_mhz: options.clock_mhz.or(span.filter(|&us| us > 0.0).map(|us| (self.origin.clocks - 1) as f64 / us)),
            transactions: self.origin.transactions,
            problems: self.problems,
            windows: self.windows,
            window_us: options.window_us,
            duration_us,
            findings: self.findings,
            requests: self.requests,
            bus: self.bus,
        })
    }
}
