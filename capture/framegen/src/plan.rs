//! What a test consists of: its options, its points, and the jobs of every node at each point.

use crate::engine::Extra;
use crate::frame::{Framing, Mac, wire_bytes};
use crate::job::{Expect, Job, Limits, PauseJob, Receive, SendJob, Transmit};
use crate::pacing::{Arrivals, Late};
use crate::payload::Payload;
use crate::roles::requester::Asking;
use serde::Serialize;
use std::sync::Arc;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum TestKind {
    RequestResponse,
    PingPong,
    Stream,
    MaxRate,
    Background,
    OneToMany,
    ManyToOne,
    Clock,
}

impl TestKind {
    pub const ALL: [TestKind; 8] = [
        TestKind::RequestResponse,
        TestKind::PingPong,
        TestKind::Stream,
        TestKind::MaxRate,
        TestKind::Background,
        TestKind::OneToMany,
        TestKind::ManyToOne,
        TestKind::Clock,
    ];

    pub fn name(self) -> &'static str {
        match self {
            TestKind::RequestResponse => "request-response",
            TestKind::PingPong => "ping-pong",
            TestKind::Stream => "stream",
            TestKind::MaxRate => "max-rate",
            TestKind::Background => "background",
            TestKind::OneToMany => "one-to-many",
            TestKind::ManyToOne => "many-to-one",
            TestKind::Clock => "clock",
        }
    }

    /// One thread asks and waits for the answers.
    pub fn asks(self) -> bool {
        matches!(self, TestKind::RequestResponse | TestKind::PingPong | TestKind::OneToMany)
    }

    pub fn takes_many_peers(self) -> bool {
        matches!(self, TestKind::OneToMany | TestKind::ManyToOne | TestKind::Clock)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    ToPeer,
    FromPeer,
    Both,
}

/// To whom those answer who were asked as a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answers {
    #[default]
    Unicast,
    Group,
}

/// A test as the command line asks for it; it stands like this in the summary.
#[derive(Clone, Debug, Serialize)]
pub struct Test {
    pub kind: TestKind,
    /// User bytes, one point each.
    pub sizes: Vec<u16>,
    pub count: u32,
    pub seconds: Option<f64>,
    pub spacing_us: f64,
    pub arrivals: Arrivals,
    pub seed: u64,
    pub burst: u32,
    pub late: Late,
    pub request_bytes: Option<u16>,
    pub direction: Direction,
    pub payload: Payload,
    pub framing: Framing,
    pub receive: Receive,
    pub transmit: Transmit,
    pub marks: u32,
    /// Round trips are counted in bins of this width, and not logged.
    pub histogram_ns: Option<u32>,
    pub timeout_ms: f64,
    pub drain_ms: f64,
    pub group: Option<Mac>,
    /// Whether the answers go to the group, too.
    pub answers: Answers,
    /// How many of the last nodes only count what they overhear of a stream that is for another.
    pub bystanders: u16,
    /// Frames go to an address nobody has answered from.
    pub unknown_peer: bool,
    /// The host that a stream goes to asks for a pause.
    #[serde(skip)]
    pub pause: Option<PauseJob>,
    #[serde(skip)]
    pub times_ns: Arc<[f64]>,
    #[serde(skip)]
    pub limits: Limits,
}

/// One stream of a point, for the accounts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    pub stream: u16,
    pub from: u16,
    pub to: u16,
    /// Frames intended; None where a time ends the stream.
    pub planned: Option<u32>,
    pub length: u16,
}

/// The jobs of one point.
#[derive(Clone, Debug)]
pub struct Point {
    pub test: u32,
    pub length: u16,
    pub local: Job,
    pub extra: Extra,
    /// Of node 1, 2, ...
    pub peers: Vec<Job>,
    pub flows: Vec<Flow>,
}

const TO_PEER: u16 = 1;
/// Streams from peers: this and the node's number.
const FROM_PEER: u16 = 100;

impl Test {
    /// Frames a stream has at most: with `seconds` what spacing and rate ceiling allow.
    pub fn planned(&self, length: u16) -> u32 {
        let Some(seconds) = self.seconds else {
            return self.count;
        };
        // A round trip is the request and its response.
        let wire = |length: u16| wire_bytes(usize::from(length) + self.framing.header_bytes());
        let request = if self.kind.asks() { wire(self.request_bytes.unwrap_or(length)) } else { 0 };
        let wire_ns = (request + wire(length)) as f64 * 8e3 / self.limits.max_rate_mbit;
        let by_rate = seconds * 1e9 / wire_ns + 1e6 / wire_ns + 2.0;
        let per_slot = if self.arrivals == Arrivals::Burst { f64::from(self.burst) } else { 1.0 };
        let slots = seconds * 1e6 / self.spacing_us + 1.0;
        // Poisson: the number scatters by its root.
        let by_spacing = if self.spacing_us > 0.0 { per_slot * (slots + 10.0 * slots.sqrt() + 10.0) } else { f64::MAX };
        let by_memory = self.limits.max_frames as f64;
        by_rate.min(by_spacing).min(by_memory) as u32
    }

    /// Peers send streams.
    pub fn peers_send(&self) -> bool {
        self.kind == TestKind::ManyToOne || (!self.kind.asks() && self.direction != Direction::ToPeer)
    }

    /// The least time a point takes, s.
    pub fn duration_s(&self, length: u16) -> f64 {
        if let Some(seconds) = self.seconds {
            return seconds;
        }
        if self.arrivals == Arrivals::File && !self.kind.asks() {
            return self.times_ns.last().copied().unwrap_or(0.0) / 1e9;
        }
        let groups = if self.arrivals == Arrivals::Burst { self.count.div_ceil(self.burst) } else { self.count };
        let by_spacing = f64::from(groups.saturating_sub(1)) * self.spacing_us / 1e6;
        let bits = f64::from(self.count) * wire_bytes(usize::from(length) + self.framing.header_bytes()) as f64 * 8.0;
        by_spacing.max(bits / (self.limits.max_rate_mbit * 1e6))
    }

    /// The jobs of a point. `left_s` bounds them in time.
    pub fn point(&self, test: u32, length: u16, own: Mac, peers: &[Mac], left_s: f64) -> Point {
        let job = |node: u16| Job {
            test,
            point: 0,
            node,
            framing: self.framing,
            payload: self.payload,
            receive: self.receive,
            send: None,
            expect: Vec::new(),
            respond: false,
            group: None,
            answer_group: false,
            pause: None,
            log: self.kind != TestKind::Background && self.histogram_ns.is_none(),
            max_seconds: left_s,
        };
        let nodes = 1..=peers.len() as u16;
        let mut point = Point {
            test,
            length,
            local: job(0),
            extra: Extra::Nothing,
            peers: nodes.clone().map(job).collect(),
            flows: Vec::new(),
        };
        let planned = self.planned(length);
        let counted = self.seconds.is_none().then_some(planned);
        if self.kind.asks() {
            self.exchanges(&mut point, own, peers, planned, counted);
            return point;
        }
        if self.kind == TestKind::Clock {
            return point;
        }
        let to_peer = self.kind != TestKind::ManyToOne && self.direction != Direction::FromPeer;
        let meant = peers.len().saturating_sub(usize::from(self.bystanders));
        for job in &mut point.peers[meant..] {
            let overheard = peers.first().copied();
            job.expect.push(Expect { source: own, stream: TO_PEER, node: 0, planned, length, overheard });
        }
        for (node, (&peer, peer_job)) in nodes.zip(peers[..meant].iter().zip(&mut point.peers)) {
            if to_peer {
                point.local.send = Some(self.send_job(peer, TO_PEER, planned, length, self.seed));
                point.extra = Extra::Times(self.times_ns.clone());
                let overheard = None;
                peer_job.pause = self.pause;
                peer_job.expect.push(Expect { source: own, stream: TO_PEER, node: 0, planned, length, overheard });
                point.flows.push(Flow { stream: TO_PEER, from: 0, to: node, planned: counted, length });
            }
            if self.peers_send() {
                let stream = FROM_PEER + node;
                // Each sender its own sequence of intervals.
                let seed = self.seed.wrapping_add(u64::from(node));
                peer_job.send = Some(self.send_job(own, stream, planned, length, seed));
                let overheard = None;
                point.local.expect.push(Expect { source: peer, stream, node, planned, length, overheard });
                point.flows.push(Flow { stream, from: node, to: 0, planned: counted, length });
            }
        }
        point
    }

    fn exchanges(&self, point: &mut Point, own: Mac, peers: &[Mac], planned: u32, counted: Option<u32>) {
        let response = point.length;
        let request = self.request_bytes.unwrap_or(response);
        for (node, (&peer, peer_job)) in (1..).zip(peers.iter().zip(&mut point.peers)) {
            // A peer answers at once or not at all: it always spins.
            peer_job.receive = Receive::Busy;
            peer_job.respond = true;
            peer_job.group = self.group;
            peer_job.answer_group = self.answers == Answers::Group;
            let expect =
                |source, node, length| Expect { source, stream: TO_PEER, node, planned, length, overheard: None };
            peer_job.expect.push(expect(own, 0, request));
            point.local.expect.push(expect(peer, node, response));
            point.flows.push(Flow { stream: TO_PEER, from: 0, to: node, planned: counted, length: request });
            point.flows.push(Flow { stream: TO_PEER, from: node, to: 0, planned: counted, length: response });
        }
        if self.answers == Answers::Group {
            (point.local.group, point.local.answer_group) = (self.group, true);
        }
        point.extra = Extra::Asking(Asking {
            destination: self.group.unwrap_or(peers[0]),
            loops: planned,
            seconds: self.seconds,
            request_length: request,
            response_length: response,
            spacing_ns: (self.spacing_us * 1e3) as i64,
            timeout_ns: (self.timeout_ms * 1e6) as i64,
            max_rate_mbit: self.limits.max_rate_mbit,
            marks: self.marks,
            histogram_ns: self.histogram_ns,
        });
    }

    fn send_job(&self, destination: Mac, stream: u16, planned: u32, length: u16, seed: u64) -> SendJob {
        SendJob {
            destination,
            stream,
            planned,
            seconds: self.seconds,
            length,
            arrivals: self.arrivals,
            spacing_ns: self.spacing_us * 1e3,
            seed,
            burst: self.burst,
            late: self.late,
            transmit: self.transmit,
            max_rate_mbit: self.limits.max_rate_mbit,
            marks: self.marks,
        }
    }
}
