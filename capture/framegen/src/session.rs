//! The steering side of the control protocol: one session with one peer.

use crate::clock::Clock;
use crate::control::{
    Identity, LogKind, Outgoing, Progress, Refusal, Reply, Request, header, read_log_piece, read_reply,
    read_sync_reply, records_per_frame, request,
};
use crate::frame::{Frame, Framing, Kind, Mac, Malformed, VERSION, build, parse, stamp};
use crate::host::Host;
use crate::job::{Job, Report, largest_user};
use crate::log::Record;
use crate::random::Random;
use crate::signals;
use crate::socket::{Batch, PacketSocket, Traffic, is_passing, wait_readable};
use crate::sync::Exchange;
use std::fmt;
use std::io;
use std::time::Duration;

/// Time a peer has for an answer, repetitions included.
const PATIENCE_NS: i64 = 2_000_000_000;
const FIRST_REPEAT_NS: i64 = 20_000_000;
const LONGEST_REPEAT_NS: i64 = 320_000_000;
/// Frames of log asked for at once.
const FETCH_FRAMES: u16 = 48;
const FETCH_WAIT_NS: i64 = 50_000_000;

#[derive(Debug)]
pub enum SessionError {
    /// No answer to hello.
    Absent(Mac),
    /// It answered once and does no longer.
    Silent(Mac),
    Version(Mac, u8),
    Refused(Mac, Refusal, String),
    /// An answer that does not belong to the question.
    Confused(Mac),
    Interrupted,
    Io(io::Error),
}

impl fmt::Display for SessionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SessionError::Absent(mac) => {
                write!(f, "peer {mac}: no answer; run `framegen serve` there, and check cable, interface and address")
            }
            SessionError::Silent(mac) => write!(f, "peer {mac}: no longer answers"),
            SessionError::Version(mac, version) => {
                write!(f, "peer {mac}: speaks protocol version {version}, this is {VERSION}; install equal versions")
            }
            SessionError::Refused(mac, Refusal::Busy, text) => {
                write!(f, "peer {mac}: busy: {text}; try again later")
            }
            SessionError::Refused(mac, _, text) => write!(f, "peer {mac}: refused: {text}"),
            SessionError::Confused(mac) => {
                write!(f, "peer {mac}: its answer does not belong to the question")
            }
            SessionError::Interrupted => write!(f, "interrupted"),
            SessionError::Io(error) => write!(f, "{error}"),
        }
    }
}

impl From<io::Error> for SessionError {
    fn from(error: io::Error) -> Self {
        SessionError::Io(error)
    }
}

pub struct Session {
    pub peer: Mac,
    pub node: u16,
    pub identity: Identity,
    /// Every clock exchange so far.
    pub exchanges: Vec<Exchange>,
    pub progress: Progress,
    own: Mac,
    framing: Framing,
    mtu: u32,
    socket: PacketSocket,
    clock: Clock,
    batch: Batch,
    id: u32,
    number: u32,
    /// It did not answer in time once: it is not waited for again.
    gone: bool,
}

impl Session {
    /// Shake hands with a peer, without binding it.
    pub fn hello(host: &Host, peer: Mac, framing: Framing, node: u16) -> Result<Session, SessionError> {
        let socket = PacketSocket::new(Traffic::Control)?;
        socket.timestamps()?;
        socket.bind(host.interface, Some(framing))?;
        let mut session = Session {
            peer,
            node,
            identity: host.identity(),
            exchanges: Vec::new(),
            progress: Progress::default(),
            own: host.mac,
            framing,
            mtu: host.mtu,
            socket,
            clock: host.clock.clone(),
            batch: Batch::default(),
            id: 0,
            number: (Random::from_kernel().word() >> 34) as u32,
            gone: false,
        };
        let hello = Request::Hello { program: env!("CARGO_PKG_VERSION").into() };
        let absent = |error| {
            if let SessionError::Silent(mac) = error { SessionError::Absent(mac) } else { error }
        };
        let (id, reply) = session.call(&hello).map_err(absent)?;
        let Reply::Welcome(identity) = reply else {
            return Err(SessionError::Confused(peer));
        };
        (session.id, session.identity) = (id, identity);
        Ok(session)
    }

    /// Hold the peer: nobody else can use it until it is released.
    pub fn claim(&mut self) -> Result<(), SessionError> {
        self.expect(&Request::Claim, |reply| matches!(reply, Reply::Claimed))
    }

    pub fn prepare(&mut self, job: Job) -> Result<(), SessionError> {
        self.progress = Progress::default();
        self.expect(&Request::Prepare(job), |reply| matches!(reply, Reply::Ready))
    }

    pub fn start(&mut self) -> Result<(), SessionError> {
        self.expect(&Request::Start, |reply| matches!(reply, Reply::Started))
    }

    pub fn stop(&mut self) -> Result<Report, SessionError> {
        match self.call(&Request::Stop)?.1 {
            Reply::Stopped(report) => Ok(*report),
            _ => Err(SessionError::Confused(self.peer)),
        }
    }

    pub fn release(&mut self) -> Result<(), SessionError> {
        self.expect(&Request::Release, |reply| matches!(reply, Reply::Released))
    }

    fn expect(&mut self, request: &Request, wanted: impl Fn(&Reply) -> bool) -> Result<(), SessionError> {
        let (_, reply) = self.call(request)?;
        if wanted(&reply) { Ok(()) } else { Err(SessionError::Confused(self.peer)) }
    }

    /// Send a request until its reply comes; with the reply, the session it names.
    fn call(&mut self, message: &Request) -> Result<(u32, Reply), SessionError> {
        self.number += 1;
        let (id, number) = (self.id, self.number);
        let out = request(id, number, message);
        let hello = matches!(message, Request::Hello { .. });
        let begin = self.clock.now();
        let mut repeat = FIRST_REPEAT_NS;
        while !self.gone && self.clock.now() - begin < PATIENCE_NS {
            self.send(&out)?;
            let until = self.clock.now() + repeat;
            let answer = self.listen(until, |frame, _| {
                let ours = frame.header.sequence == number && (hello || frame.header.test == id);
                read_reply(frame).filter(|_| ours).map(|reply| (frame.header.test, reply))
            })?;
            match answer {
                Some((_, Reply::Refused { why, text })) => {
                    return Err(SessionError::Refused(self.peer, why, text));
                }
                Some(answer) => return Ok(answer),
                None => repeat = (2 * repeat).min(LONGEST_REPEAT_NS),
            }
            if signals::stop_requested() && hello {
                return Err(SessionError::Interrupted);
            }
        }
        Err(self.silent())
    }

    fn silent(&mut self) -> SessionError {
        self.gone = true;
        SessionError::Silent(self.peer)
    }

    fn send(&mut self, out: &Outgoing) -> io::Result<i64> {
        let mut frame = build(self.peer, self.own, self.framing, &out.header, &out.payload);
        let now = self.clock.now();
        stamp(&mut frame, now);
        match self.socket.send(&frame) {
            // What the kernel does not take now is sent again like what the wire loses.
            Err(error) if !is_passing(&error) => Err(error),
            _ => Ok(now),
        }
    }

    /// Give the peer's frames to `each` until it has found what it looks for, or until `deadline`.
    fn listen<T>(
        &mut self,
        deadline: i64,
        mut each: impl FnMut(&Frame, i64) -> Option<T>,
    ) -> Result<Option<T>, SessionError> {
        let mut version = None;
        loop {
            let mut found = None;
            self.batch
                .receive(&self.socket, &mut self.clock, |bytes, time| match parse(bytes) {
                    Ok(frame) if frame.source == self.peer && frame.destination == self.own && found.is_none() => {
                        found = each(&frame, time);
                    }
                    Err(Malformed::Version(other)) if bytes[6..12] == self.peer.0 && bytes[..6] == self.own.0 => {
                        version = Some(other);
                    }
                    _ => {}
                })
                .or_else(|error| if error.raw_os_error() == Some(libc::ENETDOWN) { Ok(0) } else { Err(error) })?;
            if found.is_some() {
                return Ok(found);
            }
            if let Some(version) = version {
                return Err(SessionError::Version(self.peer, version));
            }
            let left = deadline - self.clock.now();
            if left <= 0 {
                return Ok(None);
            }
            // Rounded up to whole milliseconds: poll knows no less.
            let wait = Duration::from_millis((left as u64).div_ceil(1_000_000));
            match wait_readable(&[self.socket.raw()], wait) {
                Err(error) if error.raw_os_error() != Some(libc::ENETDOWN) => {
                    return Err(error.into());
                }
                _ => {}
            }
        }
    }

    /// One clock exchange, which also keeps the session alive. False if no answer came within `wait_ns`.
    pub fn exchange(&mut self, wait_ns: i64) -> Result<bool, SessionError> {
        self.number += 1;
        let number = self.number;
        let sent = self.send(&Outgoing { header: header(Kind::Sync, 0, self.id, number), payload: Vec::new() })?;
        let id = self.id;
        let answer = self.listen(sent + wait_ns, |frame, received| {
            let ours = frame.header.sequence == number && frame.header.test == id;
            let reply = read_sync_reply(frame).filter(|reply| ours && reply.request_sent_ns == sent)?;
            let exchange = Exchange {
                request_sent: sent,
                request_received: reply.request_received_ns,
                reply_sent: frame.header.send_ns,
                reply_received: received,
            };
            Some((exchange, reply.progress))
        })?;
        let Some((exchange, progress)) = answer else {
            return Ok(false);
        };
        self.exchanges.push(exchange);
        self.progress = progress;
        Ok(true)
    }

    /// A series of exchanges to know the peer's clock by.
    pub fn synchronise(&mut self, count: usize) -> Result<(), SessionError> {
        let begin = self.clock.now();
        let mut done = 0;
        while done < count {
            if self.exchange(FETCH_WAIT_NS)? {
                done += 1;
            } else if self.gone || self.clock.now() - begin > PATIENCE_NS {
                return Err(self.silent());
            }
            // Awake in between: a CPU that slept is slower in one direction only.
            let next = self.clock.now() + 200_000;
            self.clock.wait_until(next, || true);
        }
        Ok(())
    }

    /// The peer's frame log: `count` records as it reports, of which there can be `room`.
    pub fn fetch(&mut self, log: LogKind, count: u64, room: usize) -> Result<Vec<Record>, SessionError> {
        if count > room as u64 {
            return Err(SessionError::Confused(self.peer));
        }
        let mut records: Vec<Record> = Vec::new();
        let mut begin = self.clock.now();
        while (records.len() as u64) < count {
            self.number += 1;
            let (id, number, first) = (self.id, self.number, records.len() as u64);
            self.send(&request(id, number, &Request::Fetch { log, first, frames: FETCH_FRAMES }))?;
            let per_frame = records_per_frame(largest_user(Framing::Length, self.mtu.min(self.identity.mtu)));
            let frames = (count - first).div_ceil(per_frame as u64).min(u64::from(FETCH_FRAMES)) as usize;
            let mut pieces: Vec<Option<Vec<Record>>> = vec![None; frames];
            let mut missing = frames;
            let until = self.clock.now() + FETCH_WAIT_NS;
            self.listen(until, |frame, _| {
                if frame.header.sequence != number || frame.header.test != id {
                    return None;
                }
                let (index, piece) = read_log_piece(frame)?;
                let place = pieces.get_mut(usize::from(index)).filter(|place| place.is_none())?;
                *place = Some(piece);
                missing -= 1;
                (missing == 0).then_some(())
            })?;
            // Up to the first gap; the rest is asked for again.
            for piece in pieces.into_iter().map_while(|piece| piece) {
                records.extend(piece);
            }
            if records.len() as u64 > first {
                begin = self.clock.now();
            } else if self.gone || self.clock.now() - begin > PATIENCE_NS {
                return Err(self.silent());
            }
        }
        Ok(records)
    }
}
