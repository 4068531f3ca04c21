//! `switch.csv`: what happened to every frame, in the order of its times.

use super::parcel::Tag;
use super::{PS_PER_NS, Ps};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

pub const COLUMNS: &str = "time_ns,port_in,port_out,sequence,action,reason,length_bytes,stream,node,test_id,arrival_ns";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Action {
    Forward,
    Flood,
    Drop,
    Duplicate,
    Delay,
    Pause,
    Learn,
    Age,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    None,
    Loss,
    PortFrames,
    PortBytes,
    SharedFrames,
    SharedBytes,
    SamePort,
    NoPort,
    Unknown,
    Broadcast,
    Multicast,
    Received,
    Sent,
    Refused,
}

impl Action {
    fn name(self) -> &'static str {
        match self {
            Action::Forward => "forward",
            Action::Flood => "flood",
            Action::Drop => "drop",
            Action::Duplicate => "duplicate",
            Action::Delay => "delay",
            Action::Pause => "pause",
            Action::Learn => "learn",
            Action::Age => "age",
        }
    }
}

impl Reason {
    fn name(self) -> &'static str {
        match self {
            Reason::None => "",
            Reason::Loss => "loss",
            Reason::PortFrames => "port_frames",
            Reason::PortBytes => "port_bytes",
            Reason::SharedFrames => "shared_frames",
            Reason::SharedBytes => "shared_bytes",
            Reason::SamePort => "same_port",
            Reason::NoPort => "no_port",
            Reason::Unknown => "unknown",
            Reason::Broadcast => "broadcast",
            Reason::Multicast => "multicast",
            Reason::Received => "received",
            Reason::Sent => "sent",
            Reason::Refused => "refused",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Row {
    pub time: Ps,
    pub port_in: Option<usize>,
    pub port_out: Option<usize>,
    pub action: Action,
    pub reason: Reason,
    pub tag: Option<Tag>,
    pub arrival: Option<Ps>,
}

/// Rows that may still be overtaken by earlier ones wait here.
pub struct Truth {
    waiting: BinaryHeap<Reverse<(Ps, u64, Row)>>,
    next: u64,
    out: Option<BufWriter<File>>,
    /// Added to the times.
    origin_ns: i64,
    pub written: u64,
}

impl Truth {
    /// To a file, or nowhere.
    pub fn create(path: Option<&Path>, origin_ns: i64) -> io::Result<Truth> {
        let out = path.map(File::create).transpose()?.map(BufWriter::new);
        let mut truth = Truth { waiting: BinaryHeap::new(), next: 0, out, origin_ns, written: 0 };
        if let Some(out) = &mut truth.out {
            writeln!(out, "{COLUMNS}")?;
        }
        Ok(truth)
    }

    pub fn add(&mut self, row: Row) {
        if self.out.is_some() {
            self.waiting.push(Reverse((row.time, self.next, row)));
            self.next += 1;
        }
    }

    /// Nothing before `now` will be added.
    pub fn advance(&mut self, now: Ps) -> io::Result<()> {
        let Some(out) = &mut self.out else {
            return Ok(());
        };
        while let Some(&Reverse((time, _, row))) = self.waiting.peek()
            && time < now
        {
            self.waiting.pop();
            write(out, &row, self.origin_ns)?;
            self.written += 1;
        }
        Ok(())
    }

    pub fn end(&mut self) -> io::Result<()> {
        self.advance(Ps::MAX)?;
        self.out.as_mut().map_or(Ok(()), Write::flush)
    }
}

fn text<T: ToString>(value: Option<T>) -> String {
    value.map_or(String::new(), |value| value.to_string())
}

fn write(out: &mut impl Write, row: &Row, origin_ns: i64) -> io::Result<()> {
    let ns = |time: Ps| origin_ns + time.div_euclid(PS_PER_NS);
    let tag = row.tag;
    writeln!(
        out,
        "{},{},{},{},{},{},{},{},{},{},{}",
        ns(row.time),
        text(row.port_in),
        text(row.port_out),
        text(tag.map(|tag| tag.sequence)),
        row.action.name(),
        row.reason.name(),
        text(tag.map(|tag| tag.length)),
        text(tag.map(|tag| tag.stream)),
        text(tag.map(|tag| tag.node)),
        text(tag.map(|tag| tag.test)),
        text(row.arrival.map(ns)),
    )
}
