//! One point of a virtual test: the programs of its nodes and what they count.

use super::Ps;
use super::actors::{CARD_WAIT, Next, Program, Requester, Streamer, count};
use super::parcel::{Parcel, Tag};
use super::world::World;
use crate::clock::unix_ns;
use crate::control::SYNC_PAYLOAD;
use crate::engine::{Extra, log_room};
use crate::frame::{FLAG_REPLY, HEADER, Header, Kind, Mac};
use crate::job::{Job, Quality, Report, Sent};
use crate::log::{FrameLog, LogWriter, Record, UNKNOWN_LATENESS};
use crate::plan::Point;
use crate::point::{Logged, RawPoint};
use crate::roles::receiver::{Counting, Seen};
use std::io;
use std::sync::Arc;

pub fn parcel(destination: Mac, source: Mac, header: Header) -> Parcel<Header> {
    let counted = header.kind.is_test() && header.kind != Kind::Mark;
    Parcel {
        destination,
        source,
        user: u32::from(header.length),
        tag: counted.then_some(Tag {
            test: header.test,
            stream: header.stream,
            node: header.node,
            sequence: header.sequence,
            length: header.length,
        }),
        pause: None,
        content: header,
    }
}

/// A node in a point.
struct Part {
    job: Job,
    /// Its number in the world.
    host: usize,
    program: Program,
    counting: Counting,
    sent_log: Arc<FrameLog>,
    sent_writer: LogWriter,
    received_log: Arc<FrameLog>,
    answered: Sent,
    /// Only the last wish to be woken counts.
    wish: u64,
    done: bool,
}

pub struct Play {
    point: Point,
    parts: Vec<Part>,
    index: usize,
    started: Ps,
    /// After the last frame: time for those that are on their way.
    pub drain: Ps,
    ending: bool,
}

/// When a node's program wants to be woken, and which wish that is.
pub type Wish = Option<(Ps, u64)>;

impl Play {
    /// `hosts`: of node 0 and of the peers that take part.
    pub fn new<W>(index: usize, point: Point, hosts: &[usize], world: &World<W>, drain: Ps) -> io::Result<Play> {
        let mut parts = Vec::new();
        for (node, &host) in hosts.iter().enumerate() {
            let job = if node == 0 { &point.local } else { &point.peers[node - 1] };
            let now = world.nodes[host].clock_ns(world.now);
            let spacing_ns = (world.nodes[host].plan.spacing_us * 1e3) as i64;
            let (mut times, mut asking) = (Arc::from([]), None);
            match &point.extra {
                Extra::Times(known) if node == 0 => times = known.clone(),
                Extra::Asking(asks) if node == 0 => asking = Some(asks),
                _ => {}
            }
            let program = match (asking, &job.send) {
                (Some(asking), _) => Program::Ask(Box::new(Requester::new(job, asking, now))),
                (None, Some(send)) => Program::Stream(Box::new(Streamer::new(job, send, times, now, spacing_ns))),
                (None, None) => Program::Listen,
            };
            let expected: usize = job.expect.iter().map(|expect| expect.planned as usize).sum();
            let sends = match &program {
                Program::Stream(streamer) => streamer.send.planned as usize,
                Program::Ask(requester) => requester.asking.loops as usize,
                Program::Listen if job.respond => expected,
                Program::Listen => 0,
            };
            let room = |frames: usize| if job.log { log_room(frames) } else { 0 };
            let (sent_log, sent_writer) = FrameLog::new(room(sends))?;
            let (received_log, received_writer) = FrameLog::new(room(expected))?;
            parts.push(Part {
                job: job.clone(),
                host,
                done: matches!(program, Program::Listen),
                program,
                counting: Counting::new(world.nodes[host].mac, job, received_writer),
                sent_log,
                sent_writer,
                received_log,
                answered: Sent { stream: job.expect.first().map_or(0, |expect| expect.stream), ..Sent::default() },
                wish: 0,
            });
        }
        Ok(Play { point, parts, index, started: world.now, drain, ending: false })
    }

    /// Whether a frame of test `id` is of this point, for the node that has it.
    pub fn takes(&self, id: u32, node: usize) -> bool {
        id == self.point.test && node < self.parts.len()
    }

    pub fn nodes(&self) -> usize {
        self.parts.len()
    }

    /// Everything that was to be sent is sent; true once.
    pub fn ends(&mut self) -> bool {
        self.parts.iter().all(|part| part.done) && !std::mem::replace(&mut self.ending, true)
    }

    /// Let a node's program do what it wants to do now. `wish`: None, or the one that is granted.
    pub fn act<W>(&mut self, world: &mut World<W>, node: usize, wish: Option<u64>) -> Wish {
        let part = &mut self.parts[node];
        if wish.is_some_and(|wish| wish != part.wish) || part.done {
            return None;
        }
        let now = world.nodes[part.host].clock_ns(world.now);
        let next = loop {
            match part.program.next(now, world.backlog(part.host)) {
                Next::Send(header, lateness) => {
                    let destination = match &part.program {
                        Program::Stream(streamer) => streamer.send.destination,
                        Program::Ask(requester) => requester.asking.destination,
                        Program::Listen => continue,
                    };
                    let (own, time) = (world.nodes[part.host].mac, world.now);
                    world.send(part.host, time, parcel(destination, own, header));
                    part.sent_writer.push(Record::sent(&header, u32::from(header.length), lateness));
                }
                Next::Wait(ns) | Next::WaitForAnswer(ns) => break Some(world.nodes[part.host].when(ns)),
                Next::WaitForCard => break Some(world.now + CARD_WAIT),
                Next::Done => break None,
            }
        };
        part.done = next.is_none();
        part.wish += 1;
        next.map(|time| (time.max(world.now + 1), part.wish))
    }

    /// A node stamps a frame of this point. What its program wishes now.
    pub fn received<W>(&mut self, world: &mut World<W>, node: usize, frame: &Parcel<Header>) -> Wish {
        let part = &mut self.parts[node];
        let time = world.nodes[part.host].clock_ns(world.now);
        let kind = match &part.program {
            Program::Ask(_) => Kind::Response,
            _ if part.job.respond => Kind::Request,
            _ => Kind::Data,
        };
        let header = frame.content;
        let seen = Seen { destination: frame.destination, source: frame.source, header, payload: None };
        let first = part.counting.counted(&seen, time, kind)?;
        if let Program::Ask(requester) = &mut part.program {
            if first {
                requester.answered(header.sequence);
            }
            return self.act(world, node, None);
        }
        if part.job.respond {
            let at = world.nodes[part.host].answered(world.now);
            let answer = Header {
                kind: Kind::Response,
                node: part.job.node,
                send_ns: world.nodes[part.host].clock_ns(at),
                length: header.response,
                response: 0,
                ..header
            };
            let own = world.nodes[part.host].mac;
            let to = part.job.group.filter(|_| part.job.answer_group).unwrap_or(frame.source);
            world.send(part.host, at, parcel(to, own, answer));
            count(&mut part.answered, answer.send_ns);
            part.sent_writer.push(Record::sent(&answer, u32::from(answer.length), UNKNOWN_LATENESS));
        }
        None
    }

    /// What every node reports, as real ones do.
    pub fn end(self, now: Ps) -> RawPoint {
        let peers = self.point.peers.len();
        let mut raw = RawPoint {
            index: self.index,
            started_unix_ns: unix_ns(),
            elapsed_s: (now - self.started) as f64 / 1e12,
            reasons: Vec::new(),
            reports: Vec::new(),
            sent: Vec::new(),
            received: Vec::new(),
            frame_logs: Vec::new(),
            trips: None,
            places: None,
            point: self.point,
        };
        for part in self.parts {
            let answered = part.job.respond.then_some(part.answered);
            raw.reports.push(Some(Report {
                sent: part.program.sent().cloned().or(answered),
                received: part.counting.results(),
                damaged: 0,
                foreign: part.counting.foreign,
                marks: 0,
                pauses_ns: Vec::new(),
                quality: Quality {
                    clock: "virtual".into(),
                    unlogged: part.sent_log.unlogged() + part.received_log.unlogged(),
                    ..Quality::default()
                },
                sent_records: part.sent_log.records().len() as u64,
                received_records: part.received_log.records().len() as u64,
                fault: None,
            }));
            raw.sent.push(Logged::Here(part.sent_log));
            raw.received.push(Logged::Here(part.received_log));
        }
        raw.reports.resize(peers + 1, None);
        raw
    }
}

/// Header of a clock exchange's frame: the request, or the reply to it.
pub fn sync_header(session: u32, peer: u16, number: u32, reply: bool, send_ns: i64) -> Header {
    Header {
        kind: Kind::Sync,
        flags: if reply { FLAG_REPLY } else { 0 },
        test: session,
        stream: 0,
        node: peer,
        sequence: number,
        send_ns,
        length: (HEADER + SYNC_PAYLOAD) as u16,
        response: 0,
    }
}
