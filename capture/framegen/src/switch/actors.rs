//! The programs of virtual nodes: the same plans, paces and counts as those that send real frames.

use super::Ps;
use crate::frame::{Header, Kind, wire_bytes};
use crate::job::{Job, SendJob, Sent};
use crate::pacing::{Ceiling, Pacer, Schedule};
use crate::roles::requester::Asking;
use std::sync::Arc;

/// Frames a card takes before the program has to wait.
const CARD_QUEUE: usize = 64;
const LEAD_NS: i64 = 100_000;

/// What a program does next; times are of its node's clock.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Next {
    /// This frame, and how late it is.
    Send(Header, i32),
    Wait(i64),
    /// The card's queue is full.
    WaitForCard,
    /// It waits for an answer until then.
    WaitForAnswer(i64),
    Done,
}

pub struct Streamer {
    pub send: SendJob,
    node: u16,
    test: u32,
    pacer: Pacer,
    ceiling: Ceiling,
    end: i64,
    asked_end: Option<i64>,
    spacing_ns: i64,
    free_at: i64,
    sequence: u32,
    pub sent: Sent,
}

impl Streamer {
    pub fn new(job: &Job, send: &SendJob, times_ns: Arc<[f64]>, now: i64, spacing_ns: i64) -> Streamer {
        let start = now + LEAD_NS;
        let schedule = Schedule::new(send.arrivals, send.spacing_ns, send.seed, send.burst, times_ns);
        Streamer {
            send: send.clone(),
            node: job.node,
            test: job.test,
            pacer: Pacer::new(schedule, send.late, start),
            ceiling: Ceiling::new(send.max_rate_mbit),
            end: start + (job.max_seconds * 1e9) as i64,
            asked_end: send.seconds.map(|seconds| start + (seconds * 1e9) as i64),
            spacing_ns,
            free_at: start,
            sequence: 0,
            sent: Sent { stream: send.stream, ..Sent::default() },
        }
    }

    pub fn next(&mut self, now: i64, backlog: usize) -> Next {
        let left = self.send.planned - self.sequence - self.pacer.skipped;
        self.pacer.skip_missed(now, left.saturating_sub(1));
        self.sent.skipped = u64::from(self.pacer.skipped);
        if self.sequence + self.pacer.skipped >= self.send.planned {
            return Next::Done;
        }
        let deadline = self.pacer.deadline();
        let earliest = deadline.max(self.ceiling.not_before()).max(self.free_at);
        if earliest >= self.end || self.asked_end.is_some_and(|end| earliest.max(now) >= end) {
            return Next::Done;
        }
        if now < earliest {
            return Next::Wait(earliest);
        }
        if backlog >= CARD_QUEUE {
            return Next::WaitForCard;
        }
        let header = Header {
            kind: Kind::Data,
            flags: 0,
            test: self.test,
            stream: self.send.stream,
            node: self.node,
            sequence: self.sequence,
            send_ns: now,
            length: self.send.length,
            response: 0,
        };
        self.sequence += 1;
        self.free_at = now + self.spacing_ns;
        self.ceiling.sent(now, wire_bytes(usize::from(self.send.length)));
        self.pacer.sent(now);
        count(&mut self.sent, now);
        Next::Send(header, (now - deadline).clamp(i64::from(i32::MIN + 1), i64::from(i32::MAX)) as i32)
    }
}

pub fn count(sent: &mut Sent, now: i64) {
    sent.sent += 1;
    sent.first_ns.get_or_insert(now);
    sent.last_ns = Some(now);
}

pub struct Requester {
    pub asking: Asking,
    node: u16,
    test: u32,
    responders: usize,
    ceiling: Ceiling,
    asked_end: Option<i64>,
    end: i64,
    sequence: u32,
    next: i64,
    waiting: usize,
    give_up: i64,
    pub sent: Sent,
}

impl Requester {
    pub fn new(job: &Job, asking: &Asking, now: i64) -> Requester {
        Requester {
            asking: asking.clone(),
            node: job.node,
            test: job.test,
            responders: job.expect.len(),
            ceiling: Ceiling::new(asking.max_rate_mbit),
            asked_end: asking.seconds.map(|seconds| now + (seconds * 1e9) as i64),
            end: now + (job.max_seconds * 1e9) as i64,
            sequence: 0,
            next: now,
            waiting: 0,
            give_up: now,
            sent: Sent { stream: 1, ..Sent::default() },
        }
    }

    /// The first copy of an answer has come.
    pub fn answered(&mut self, sequence: u32) {
        if self.waiting > 0 && sequence + 1 == self.sequence {
            self.waiting -= 1;
        }
    }

    pub fn next(&mut self, now: i64) -> Next {
        if self.waiting > 0 && now < self.give_up {
            return Next::WaitForAnswer(self.give_up);
        }
        self.waiting = 0;
        let earliest = self.next.max(self.ceiling.not_before());
        let over = self.asked_end.is_some_and(|end| earliest.max(now) >= end) || earliest >= self.end;
        if self.sequence >= self.asking.loops || over {
            return Next::Done;
        }
        if now < earliest {
            return Next::Wait(earliest);
        }
        let header = Header {
            kind: Kind::Request,
            flags: 0,
            test: self.test,
            stream: 1,
            node: self.node,
            sequence: self.sequence,
            send_ns: now,
            length: self.asking.request_length,
            response: self.asking.response_length,
        };
        let exchange = wire_bytes(usize::from(self.asking.request_length))
            + self.responders as u64 * wire_bytes(usize::from(self.asking.response_length));
        self.ceiling.sent(now, exchange);
        self.sequence += 1;
        self.next = now + self.asking.spacing_ns;
        self.give_up = now + self.asking.timeout_ns;
        self.waiting = self.responders;
        count(&mut self.sent, now);
        Next::Send(header, 0)
    }
}

/// Either, or neither: a node that only receives.
pub enum Program {
    Stream(Box<Streamer>),
    Ask(Box<Requester>),
    Listen,
}

impl Program {
    pub fn next(&mut self, now: i64, backlog: usize) -> Next {
        match self {
            Program::Stream(streamer) => streamer.next(now, backlog),
            Program::Ask(requester) => requester.next(now),
            Program::Listen => Next::Done,
        }
    }

    pub fn sent(&self) -> Option<&Sent> {
        match self {
            Program::Stream(streamer) => Some(&streamer.sent),
            Program::Ask(requester) => Some(&requester.sent),
            Program::Listen => None,
        }
    }
}

/// How long to wait for a full card: one frame of the largest size at 1 Gbit/s.
pub const CARD_WAIT: Ps = 12_304_000;
