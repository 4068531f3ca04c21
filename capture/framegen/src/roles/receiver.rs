//! Receives, checks and counts test frames, and answers requests.

use super::Shared;
use crate::clock::Clock;
use crate::frame::{ETHERNET_HEADER, Frame, HEADER, Header, Kind, Mac, Malformed, ethernet_header, parse};
use crate::hardware::CardClock;
use crate::host::{Host, Role, involuntary_switches};
use crate::job::{Expect, Job, Receive, Received, Sent};
use crate::log::{LogWriter, RECORD_CORRUPT, RECORD_DUPLICATE, Record, UNKNOWN_LATENESS};
use crate::payload::Pattern;
use crate::ring::{ReceiveRing, SpinRing};
use crate::socket::{Batch, PacketSocket, Traffic, wait_readable};
use crate::tally::Tally;
use std::io;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// After stop, frames on their way are still taken until it has been quiet for this long.
const QUIET_NS: i64 = 10_000_000;
/// And no longer than this: a flood must not hold the node.
const DRAIN_NS: i64 = 500_000_000;
const WAIT: Duration = Duration::from_millis(10);

/// The way frames come out of the kernel.
pub struct Source {
    socket: PacketSocket,
    mode: Mode,
}

enum Mode {
    Busy(SpinRing),
    Batch(Batch),
    Ring(ReceiveRing),
}

impl Source {
    /// Receiving from now on: what comes before the thread runs is kept by the kernel.
    pub fn open(host: &Host, job: &Job) -> io::Result<Source> {
        let socket = PacketSocket::new(Traffic::Test)?;
        let mode = match job.receive {
            Receive::Busy => Mode::Busy(SpinRing::new(&socket, host.mtu as usize)?),
            Receive::Batch => {
                socket.timestamps()?;
                Mode::Batch(Batch::default())
            }
            Receive::Hardware => Mode::Batch(Batch::with_card(CardClock::enable(&socket, &host.name)?)),
            Receive::Ring => Mode::Ring(ReceiveRing::new(&socket)?),
        };
        if let Some(group) = job.group {
            socket.join(host.interface, group)?;
        }
        if job.expect.iter().any(|expect| expect.overheard.is_some()) {
            socket.overhear(host.interface)?;
        }
        socket.bind(host.interface, Some(job.framing))?;
        Ok(Source { socket, mode })
    }

    /// What has come, each with its arrival time; waits a little if that is this mode's way.
    pub fn receive(&mut self, clock: &mut Clock, mut each: impl FnMut(&[u8], i64)) -> io::Result<usize> {
        match &mut self.mode {
            Mode::Busy(ring) => {
                let count = ring.receive(clock, &mut each);
                if ring.is_long_empty() {
                    wait_readable(&[self.socket.raw()], Duration::ZERO)?;
                }
                Ok(count)
            }
            Mode::Batch(batch) => {
                let count = batch.receive(&self.socket, clock, &mut each)?;
                if count == 0 {
                    wait_readable(&[self.socket.raw()], WAIT)?;
                }
                Ok(count)
            }
            Mode::Ring(ring) => {
                let count = ring.receive(clock, &mut each);
                if count == 0 {
                    ring.wait(&self.socket, WAIT)?;
                }
                Ok(count)
            }
        }
    }
}

impl Source {
    /// Leave behind what only the socket knows.
    pub fn account(&self, shared: &Shared) {
        shared.drops.store(self.socket.drops().unwrap_or(0), Ordering::Relaxed);
        if let Mode::Batch(batch) = &self.mode {
            shared.unstamped.store(batch.unstamped, Ordering::Relaxed);
        }
    }
}

/// One expected stream and what came of it.
pub struct Stream {
    expect: Expect,
    tally: Tally,
    first_ns: Option<i64>,
    last_ns: Option<i64>,
}

/// What decides to which stream a frame belongs, and whether it is whole.
pub struct Seen<'a> {
    pub destination: Mac,
    pub source: Mac,
    pub header: Header,
    /// None: of a frame that has none to be damaged.
    pub payload: Option<&'a [u8]>,
}

/// Sorts frames into streams and counts them.
pub struct Counting {
    own: Mac,
    job: Job,
    pattern: Pattern,
    streams: Vec<Stream>,
    pub received: u64,
    pub damaged: u64,
    pub foreign: u64,
    pub marks: u64,
    log: LogWriter,
}

impl Counting {
    pub fn new(own: Mac, job: &Job, log: LogWriter) -> Counting {
        let stream = |expect: &Expect| Stream {
            expect: expect.clone(),
            tally: Tally::new(expect.planned),
            first_ns: None,
            last_ns: None,
        };
        Counting {
            own,
            job: job.clone(),
            pattern: Pattern::new(job.payload, job.test),
            streams: job.expect.iter().map(stream).collect(),
            received: 0,
            damaged: 0,
            foreign: 0,
            marks: 0,
            log,
        }
    }

    /// Count a frame that arrived at `time`; given back if it is ours and whole, with whether it is the first copy.
    pub fn arrived<'f>(&mut self, bytes: &'f [u8], time: i64, kind: Kind) -> Option<(Frame<'f>, bool)> {
        let frame = match parse(bytes) {
            Ok(frame) => frame,
            Err(Malformed::Damaged) => {
                self.damaged += 1;
                return None;
            }
            Err(Malformed::Foreign | Malformed::Version(_)) => {
                self.foreign += 1;
                return None;
            }
        };
        let seen = Seen {
            destination: frame.destination,
            source: frame.source,
            header: frame.header,
            payload: Some(frame.payload),
        };
        self.counted(&seen, time, kind).map(|first| (frame, first))
    }

    /// Count a frame of ours; whether it is the first copy, if it is of a stream of this test and whole.
    pub fn counted(&mut self, seen: &Seen, time: i64, kind: Kind) -> Option<bool> {
        let header = seen.header;
        let to_group = Some(seen.destination) == self.job.group;
        let overheard = |expect: &Expect| expect.overheard == Some(seen.destination);
        let for_us = seen.destination == self.own || to_group || self.job.expect.iter().any(overheard);
        if header.test != self.job.test || !for_us {
            self.foreign += 1;
            return None;
        }
        if to_group && self.job.respond && header.kind == Kind::Response {
            return None; // what others answer to the group
        }
        if header.kind == Kind::Mark {
            self.marks += 1;
            return None;
        }
        let stream = self.streams.iter_mut().find(|stream| {
            let e = &stream.expect;
            (e.stream, e.node, e.source) == (header.stream, header.node, seen.source)
        });
        let Some(stream) = stream.filter(|_| header.kind == kind) else {
            self.foreign += 1;
            return None;
        };
        let intact = header.length == stream.expect.length
            && seen.payload.is_none_or(|payload| payload == self.pattern.of(header.sequence, payload.len()));
        let first = stream.tally.arrived(header.sequence, intact);
        if first {
            self.received += 1;
            stream.first_ns.get_or_insert(time);
            stream.last_ns = Some(time);
        }
        if header.sequence < stream.expect.planned {
            self.log.push(Record {
                sequence: header.sequence,
                stream: header.stream,
                node: header.node,
                length_bytes: u32::from(header.length),
                flags: if !intact {
                    RECORD_CORRUPT
                } else if !first {
                    RECORD_DUPLICATE
                } else {
                    0
                },
                send_ns: header.send_ns,
                receive_ns: time,
                lateness_ns: UNKNOWN_LATENESS,
            });
        }
        (intact && header.sequence < stream.expect.planned).then_some(first)
    }

    pub fn results(&self) -> Vec<Received> {
        self.streams
            .iter()
            .map(|stream| Received {
                stream: stream.expect.stream,
                counts: stream.tally.counts.clone(),
                first_ns: stream.first_ns,
                last_ns: stream.last_ns,
            })
            .collect()
    }
}

/// Answers requests with frames of the length they ask for.
pub struct Responder {
    own: Mac,
    socket: PacketSocket,
    job: Job,
    pattern: Pattern,
    largest: usize,
    frame: Vec<u8>,
    pub sent: u64,
    failed: u64,
    first_ns: Option<i64>,
    last_ns: Option<i64>,
    log: LogWriter,
}

impl Responder {
    pub fn new(host: &Host, job: &Job, log: LogWriter) -> io::Result<Responder> {
        let socket = PacketSocket::new(Traffic::Test)?;
        socket.bind(host.interface, None)?;
        Ok(Responder {
            own: host.mac,
            socket,
            job: job.clone(),
            pattern: Pattern::new(job.payload, job.test),
            largest: crate::job::largest_user(job.framing, host.mtu),
            frame: Vec::new(),
            sent: 0,
            failed: 0,
            first_ns: None,
            last_ns: None,
            log,
        })
    }

    pub fn result(&self) -> Sent {
        Sent {
            stream: self.job.expect.first().map_or(0, |expect| expect.stream),
            sent: self.sent,
            failed: self.failed,
            skipped: 0,
            first_ns: self.first_ns,
            last_ns: self.last_ns,
        }
    }

    fn answer(&mut self, request: &Frame, clock: &mut Clock) {
        let user = usize::from(request.header.response).clamp(HEADER, self.largest);
        self.frame.clear();
        let to = self.job.group.filter(|_| self.job.answer_group).unwrap_or(request.source);
        self.frame.extend_from_slice(&ethernet_header(to, self.own, self.job.framing, user));
        self.frame.resize(ETHERNET_HEADER + HEADER, 0);
        self.frame.extend_from_slice(self.pattern.of(request.header.sequence, user - HEADER));
        let header = Header {
            kind: Kind::Response,
            node: self.job.node,
            send_ns: clock.now(),
            length: user as u16,
            response: 0,
            ..request.header
        };
        header.write(&mut self.frame[ETHERNET_HEADER..]);
        if self.socket.send(&self.frame).is_err() {
            self.failed += 1;
            return;
        }
        self.sent += 1;
        self.first_ns.get_or_insert(header.send_ns);
        self.last_ns = Some(header.send_ns);
        self.log.push(Record::sent(&header, user as u32, UNKNOWN_LATENESS));
    }
}

/// The receiving thread: until told to stop, and then until it is quiet.
pub fn run(
    host: &Host,
    role: Role,
    mut source: Source,
    counting: &mut Counting,
    mut responder: Option<&mut Responder>,
    shared: &Shared,
) {
    let before = involuntary_switches();
    if let Err(error) = host.settle(role) {
        shared.fail(error.to_string());
    }
    let mut clock = host.clock.clone();
    let mut answering = clock.clone();
    let kind = if responder.is_some() { Kind::Request } else { Kind::Data };
    let (mut stopped_at, mut last_arrival) = (None, clock.now());
    loop {
        // Before the look at what is there: a thread that loses its CPU after it must not take its absence for quiet.
        let now = clock.now();
        let count = source.receive(&mut clock, |bytes, time| {
            let frame = counting.arrived(bytes, time, kind);
            if let (Some(responder), Some((frame, _))) = (responder.as_deref_mut(), frame) {
                responder.answer(&frame, &mut answering);
                shared.sent.store(responder.sent, Ordering::Relaxed);
            }
        });
        match count {
            Ok(0) => {}
            Ok(_) => {
                last_arrival = clock.now();
                shared.received.store(counting.received, Ordering::Relaxed);
            }
            Err(error) if error.raw_os_error() == Some(libc::ENETDOWN) => {
                // Reported once by the kernel when the link goes; it may come back within the test.
                shared.note(format!("{} went down", host.name));
            }
            Err(error) => shared.fail(format!("receiving on {}: {error}", host.name)),
        }
        if shared.stopped() {
            let since = *stopped_at.get_or_insert(now);
            if now - last_arrival.max(since) > QUIET_NS || now - since > DRAIN_NS {
                break;
            }
        }
    }
    shared.switches.fetch_add(involuntary_switches() - before, Ordering::Relaxed);
    source.account(shared);
}
