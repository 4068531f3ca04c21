//! The steering side of the control protocol: one session with one peer.

use crate::clock::Clock;
use crate::control::{
    Identity, Kept, LogKind, Outgoing, Progress, Refusal, Reply, Request, one_line, read_log_piece, read_reply,
    read_sync_reply, records_per_frame, request, sync_request,
};
use crate::frame::{Frame, Framing, Mac, Malformed, VERSION, addresses, parse};
use crate::host::Host;
use crate::host_state::from_records;
use crate::job::{Job, Report, largest_user};
use crate::key::Key;
use crate::log::Record;
use crate::random::Random;
use crate::signals;
use crate::socket::{Batch, PacketSocket, Traffic, is_passing, wait_readable};
use crate::sync::Exchange;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::time::Duration;

/// Time a peer has for an answer, repetitions included.
const PATIENCE_NS: i64 = 2_000_000_000;
const FIRST_REPEAT_NS: i64 = 20_000_000;
const LONGEST_REPEAT_NS: i64 = 320_000_000;
const OBSERVE_PATIENCE_NS: i64 = 500_000_000;
/// Records that the text of an observation may take.
const MOST_STATE: usize = 1 << 16;
/// Clock exchanges that are still waited for.
const MOST_UNANSWERED: usize = 16;
/// Frames of log asked for at once.
const FETCH_FRAMES: u16 = 48;
const FETCH_WAIT_NS: i64 = 50_000_000;
/// Records a second; a peer that gives fewer is not waited for.
const SLOWEST_FETCH: f64 = 5_000.0;

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
    /// It says what cannot be.
    Implausible(Mac, String),
    /// The limit of the whole run, s.
    Overtime(f64),
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
            SessionError::Implausible(mac, why) => write!(f, "peer {mac}: implausible: {why}"),
            SessionError::Overtime(seconds) => write!(f, "the limit of {seconds} s was reached (--max-seconds)"),
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
    key: Key,
    /// Clock exchanges without a reply so far: number and time of the request. A reply that waited in a paused port's
    /// buffer comes after others were asked for, and is as good.
    unanswered: VecDeque<(u32, i64)>,
    /// Frames of another version came from its address.
    other_version: Option<u8>,
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
            key: host.key.clone(),
            unanswered: VecDeque::new(),
            other_version: None,
            gone: false,
        };
        let hello = Request::Hello { program: env!("CARGO_PKG_VERSION").into() };
        let answer = session.call(&hello);
        let version = session.other_version;
        // Anybody can forge a frame of another version: it is believed only where nothing better came.
        let absent = |error| match (error, version) {
            (SessionError::Silent(mac), Some(version)) => SessionError::Version(mac, version),
            (SessionError::Silent(mac), None) => SessionError::Absent(mac),
            (error, _) => error,
        };
        let (id, reply) = answer.map_err(absent)?;
        let Reply::Welcome(identity) = reply else {
            return Err(SessionError::Confused(peer));
        };
        (session.id, session.identity) = (id, identity.cleaned());
        Ok(session)
    }

    /// Where its test frames go: its own address, or that of its sink.
    pub fn target(&self) -> Mac {
        self.identity.sink.unwrap_or(self.peer)
    }

    /// Hold the peer: nobody else can use it until it is released.
    pub fn claim(&mut self) -> Result<(), SessionError> {
        self.expect(&Request::Claim, |reply| matches!(reply, Reply::Claimed))
    }

    pub fn prepare(&mut self, job: Job) -> Result<(), SessionError> {
        self.progress = Progress::default();
        self.expect(&Request::Prepare(Box::new(job)), |reply| matches!(reply, Reply::Ready))
    }

    pub fn start(&mut self) -> Result<(), SessionError> {
        self.expect(&Request::Start, |reply| matches!(reply, Reply::Started))
    }

    pub fn stop(&mut self) -> Result<Report, SessionError> {
        match self.call(&Request::Stop)?.1 {
            Reply::Stopped(report) => Ok(report.cleaned()),
            _ => Err(SessionError::Confused(self.peer)),
        }
    }

    /// What the peer's host says of itself; None where it does not: a measurement does not fail by that.
    pub fn observe(&mut self, facts: bool) -> Result<Option<serde_json::Value>, SessionError> {
        let Some((_, Reply::Observed { records: count })) =
            self.ask(&Request::Observe { facts }, OBSERVE_PATIENCE_NS)?
        else {
            return Ok(None);
        };
        let mut records = Vec::new();
        self.fetch(LogKind::State, count, MOST_STATE, &mut records)?;
        Ok(from_records(&records))
    }

    /// What the peer kept of a job whose master was lost.
    pub fn recall(&mut self) -> Result<Kept, SessionError> {
        match self.call(&Request::Recall)?.1 {
            Reply::Kept(kept) => Ok(*kept),
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
        match self.ask(message, PATIENCE_NS)? {
            Some(answer) => Ok(answer),
            None => Err(self.silent()),
        }
    }

    /// The same; None if it does not come in time.
    fn ask(&mut self, message: &Request, patience_ns: i64) -> Result<Option<(u32, Reply)>, SessionError> {
        self.number += 1;
        let (id, number) = (self.id, self.number);
        let out = request(id, number, message);
        let hello = matches!(message, Request::Hello { .. });
        let begin = self.clock.now();
        let mut repeat = FIRST_REPEAT_NS;
        while !self.gone && self.clock.now() - begin < patience_ns {
            self.send(&out)?;
            let until = self.clock.now() + repeat;
            let answer = self.listen(until, |frame, _| {
                let ours = frame.header.sequence == number && (hello || frame.header.test == id);
                read_reply(frame).filter(|_| ours).map(|reply| (frame.header.test, reply))
            })?;
            match answer {
                Some((_, Reply::Refused { why, text })) => {
                    return Err(SessionError::Refused(self.peer, why, one_line(&text)));
                }
                Some(answer) => return Ok(Some(answer)),
                None => repeat = (2 * repeat).min(LONGEST_REPEAT_NS),
            }
            if signals::stop_requested() && hello {
                return Err(SessionError::Interrupted);
            }
        }
        Ok(None)
    }

    fn silent(&mut self) -> SessionError {
        self.gone = true;
        SessionError::Silent(self.peer)
    }

    fn send(&mut self, out: &Outgoing) -> io::Result<i64> {
        let now = self.clock.now();
        let frame = self.key.build(self.peer, self.own, self.framing, out, now);
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
        loop {
            let mut found = None;
            let key = &self.key;
            self.batch
                .receive(&self.socket, &mut self.clock, |bytes, time| match parse(bytes) {
                    Ok(frame) if frame.source == self.peer && frame.destination == self.own && found.is_none() => {
                        found = key.open(bytes, frame).and_then(|frame| each(&frame, time));
                    }
                    Err(Malformed::Version(other))
                        if addresses(bytes).is_some_and(|(to, from, _)| from == self.peer && to == self.own) =>
                    {
                        self.other_version = Some(other);
                    }
                    _ => {}
                })
                .or_else(|error| if error.raw_os_error() == Some(libc::ENETDOWN) { Ok(0) } else { Err(error) })?;
            if found.is_some() {
                return Ok(found);
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
        let (id, number) = (self.id, self.number);
        let sent = self.send(&sync_request(id, number))?;
        let mut unanswered = std::mem::take(&mut self.unanswered);
        unanswered.truncate(MOST_UNANSWERED - 1);
        unanswered.push_front((number, sent));
        let mut late = Vec::new();
        let answer = self.listen(sent + wait_ns, |frame, received| {
            let reply = read_sync_reply(frame).filter(|_| frame.header.test == id)?;
            let asked = (frame.header.sequence, reply.request_sent_ns);
            let place = unanswered.iter().position(|&one| one == asked)?;
            unanswered.remove(place);
            let exchange = Exchange {
                request_sent: reply.request_sent_ns,
                request_received: reply.request_received_ns,
                reply_sent: frame.header.send_ns,
                reply_received: received,
            };
            if asked.0 == number {
                return Some((exchange, reply.progress));
            }
            late.push(exchange);
            None
        });
        self.unanswered = unanswered;
        if !late.is_empty() {
            self.exchanges.append(&mut late);
            self.exchanges.sort_by_key(|exchange| exchange.request_sent);
        }
        let Some((exchange, progress)) = answer? else {
            return Ok(false);
        };
        self.exchanges.push(exchange);
        self.progress = progress;
        Ok(true)
    }

    /// A series of exchanges to know the peer's clock by.
    pub fn synchronise(&mut self, count: usize) -> Result<(), SessionError> {
        let mut heard = self.clock.now();
        let mut done = 0;
        while done < count {
            if self.exchange(FETCH_WAIT_NS)? {
                done += 1;
                heard = self.clock.now();
            } else if self.gone || self.clock.now() - heard > PATIENCE_NS {
                return Err(self.silent());
            }
            // Awake in between: a CPU that slept is slower in one direction only.
            let next = self.clock.now() + 200_000;
            self.clock.wait_until(next, || true);
        }
        Ok(())
    }

    /// The peer's frame log: `count` records as it reports, of which there can be `room`. What has come stays in
    /// `records`, whatever ends it: a peer that falls silent or dawdles, or a signal.
    pub fn fetch(
        &mut self,
        log: LogKind,
        count: u64,
        room: usize,
        records: &mut Vec<Record>,
    ) -> Result<(), SessionError> {
        if count > room as u64 {
            return Err(SessionError::Confused(self.peer));
        }
        let signals_before = signals::count();
        let mut begin = self.clock.now();
        let end = begin + PATIENCE_NS + (count as f64 / SLOWEST_FETCH * 1e9) as i64;
        while (records.len() as u64) < count {
            self.number += 1;
            let (id, number, first) = (self.id, self.number, records.len() as u64);
            self.send(&request(id, number, &Request::Fetch { log, first, frames: FETCH_FRAMES }))?;
            let user = largest_user(Framing::Length, self.mtu.min(self.identity.mtu)) - self.framing.header_bytes();
            let per_frame = records_per_frame(user - self.key.room());
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
            let now = self.clock.now();
            if signals::count() > signals_before {
                return Err(SessionError::Interrupted);
            }
            if records.len() as u64 > first && now < end {
                begin = now;
            } else if self.gone || now - begin > PATIENCE_NS || now >= end {
                return Err(self.silent());
            }
        }
        records.truncate(count as usize);
        Ok(())
    }
}
