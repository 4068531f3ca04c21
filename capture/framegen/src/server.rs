//! The serving side of the control protocol, without sockets or time of its own: frames in, frames out.
//!
//! One master at a time. Hello gets a session number and binds nobody, so that no flood of it takes anything; the session
//! that is claimed first holds the node until it is released or has been silent for [`SILENCE_NS`]. What a lost master
//! left is kept until the next job, so that it can still be fetched. Requests are numbered: a repeated one gets the reply
//! of the first again, an older one nothing, so replays change nothing.

use crate::control::{
    Identity, Kept, LogKind, Outgoing, Progress, Refusal, Reply, Request, SILENCE_NS, SyncReply, log_piece,
    read_request, records_per_frame, reply, sync_reply,
};
use crate::frame::{FLAG_REPLY, Frame, Kind, Mac};
use crate::job::{Job, Report};
use crate::key::digest;
use crate::log::Record;
use crate::random::Random;

/// For how long an offered session can be claimed; at least, and at most twice as long.
const OFFER_NS: i64 = 8_000_000_000;
/// Pieces of a log sent for one request.
const MAX_PIECES: u16 = 64;
/// Answers a second to the hosts of a group that hold no session.
const STRANGERS_PER_S: u32 = 50;
const GROUPS: usize = 64;
/// A host is in one group of each division. It is answered while one of its groups is, so a flood from few addresses takes
/// nothing from others: they would have to share all their groups with it.
const DIVISIONS: usize = 4;

/// What does the work. Separate, so that the protocol can be tested without frames on a wire.
pub trait Workshop {
    /// Be ready to receive what `job` expects and to send on `start`.
    fn prepare(&mut self, master: Mac, job: &Job) -> Result<(), String>;
    fn start(&mut self);
    /// End the job, whatever its state.
    fn stop(&mut self) -> Report;
    /// Look at this host; the number of records its text takes.
    fn observe(&mut self, facts: bool) -> u64;
    fn log(&self, kind: LogKind) -> &[Record];
    fn progress(&self) -> Progress;
    /// Forget the job and its logs.
    fn clear(&mut self);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Claimed,
    Prepared,
    Started,
    Stopped,
}

#[derive(Debug)]
struct Session {
    master: Mac,
    id: u32,
    stage: Stage,
    last_seen: i64,
    last_number: u32,
    last_sync: u32,
    last_reply: Vec<Outgoing>,
}

/// What the caller may want to tell its user.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    Claimed(Mac),
    Prepared(Mac),
    Ended(Mac, Box<Report>),
    Released(Mac),
    /// The master was silent; the report if a job was under way.
    Lost(Mac, Option<Box<Report>>),
}

pub struct Server<W> {
    pub workshop: W,
    identity: Identity,
    /// Session numbers come from it, so that an offer needs no memory.
    secret: [u8; 16],
    /// Sessions so far: the offers of each are its own.
    claims: u64,
    session: Option<Session>,
    /// The job under way, then what is left of it.
    kept: Option<Kept>,
    /// Bytes of a control frame that a signature takes.
    pub signature: usize,
    strangers: [[u32; GROUPS]; DIVISIONS],
    second: i64,
    pub events: Vec<Event>,
}

impl<W: Workshop> Server<W> {
    pub fn new(workshop: W, identity: Identity, mut random: Random) -> Server<W> {
        let secret = u128::from(random.word()) << 64 | u128::from(random.word());
        Server {
            workshop,
            identity,
            secret: secret.to_be_bytes(),
            claims: 0,
            session: None,
            kept: None,
            signature: 0,
            strangers: [[0; GROUPS]; DIVISIONS],
            second: 0,
            events: Vec::new(),
        }
    }

    pub fn is_held(&self) -> bool {
        self.session.is_some()
    }

    /// End a session whose master has gone. To be called now and then.
    pub fn tick(&mut self, now: i64) {
        if self.session.as_ref().is_some_and(|session| now - session.last_seen > SILENCE_NS) {
            self.lose("the master has been silent");
        }
    }

    /// End the session because this program ends.
    pub fn shut_down(&mut self) {
        self.lose("this node was stopped");
    }

    fn lose(&mut self, why: &str) {
        let Some(session) = self.session.take() else {
            return;
        };
        let working = matches!(session.stage, Stage::Prepared | Stage::Started);
        let report = working.then(|| {
            let mut report = self.workshop.stop();
            report.fault.get_or_insert_with(|| why.to_owned());
            if let Some(kept) = &mut self.kept {
                kept.report = report.clone();
            }
            Box::new(report)
        });
        self.events.push(Event::Lost(session.master, report));
    }

    /// Answer a frame received at `now`.
    pub fn handle(&mut self, frame: &Frame, now: i64) -> Vec<Outgoing> {
        let header = &frame.header;
        if header.flags & FLAG_REPLY != 0 || frame.source.is_multicast() {
            return Vec::new();
        }
        let held = self.session.as_mut().filter(|s| s.master == frame.source && s.id == header.test);
        if let Some(session) = held {
            return match header.kind {
                // One that comes again, or too late, is a copy: it tells nothing of the clocks.
                Kind::Sync if header.sequence > session.last_sync => {
                    session.last_sync = header.sequence;
                    session.last_seen = session.last_seen.max(now);
                    vec![self.sync(frame, now)]
                }
                Kind::Control => self.numbered(frame, now),
                _ => Vec::new(),
            };
        }
        if header.kind != Kind::Control || !self.admit_stranger(frame.source, now) {
            return Vec::new();
        }
        let answer = match read_request(frame) {
            Some(Request::Hello { .. }) => return vec![self.offer(frame, now)],
            Some(Request::Claim) => self.claim(frame, now),
            _ => None,
        };
        let Some(answer) = answer else {
            return Vec::new();
        };
        let out = vec![reply(header.test, header.sequence, &answer)];
        if let Some(session) = self.session.as_mut().filter(|_| answer == Reply::Claimed) {
            session.last_reply = out.clone();
        }
        out
    }

    /// A limit on what a flood can make this node send.
    pub fn admit_stranger(&mut self, source: Mac, now: i64) -> bool {
        let second = now.div_euclid(1_000_000_000);
        if second != self.second {
            (self.second, self.strangers) = (second, [[0; GROUPS]; DIVISIONS]);
        }
        let places = digest::<DIVISIONS>(&self.secret, &[&source.0]);
        let counts = self.strangers.iter_mut().zip(places).map(|(groups, place)| {
            let count = &mut groups[usize::from(place) % GROUPS];
            *count += 1;
            *count
        });
        counts.min() <= Some(STRANGERS_PER_S)
    }

    /// The session number that a host is offered now, or was offered `earlier` periods ago.
    fn offered(&self, source: Mac, now: i64, earlier: i64) -> u32 {
        let period = now.div_euclid(OFFER_NS) - earlier;
        let parts = [&source.0[..], &period.to_be_bytes(), &self.claims.to_be_bytes()];
        u32::from_be_bytes(digest(&self.secret, &parts))
    }

    fn offer(&mut self, frame: &Frame, now: i64) -> Outgoing {
        let id = self.offered(frame.source, now, 0);
        reply(id, frame.header.sequence, &Reply::Welcome(self.identity.clone()))
    }

    fn claim(&mut self, frame: &Frame, now: i64) -> Option<Reply> {
        if let Some(session) = &self.session {
            let text = format!("{} is in a test with {}", self.identity.host, session.master);
            return Some(Reply::Refused { why: Refusal::Busy, text });
        }
        [0, 1].iter().find(|&&earlier| self.offered(frame.source, now, earlier) == frame.header.test)?;
        self.claims += 1;
        self.session = Some(Session {
            master: frame.source,
            id: frame.header.test,
            stage: Stage::Claimed,
            last_seen: now,
            last_number: frame.header.sequence,
            last_sync: frame.header.sequence,
            last_reply: Vec::new(),
        });
        self.events.push(Event::Claimed(frame.source));
        Some(Reply::Claimed)
    }

    fn sync(&self, frame: &Frame, now: i64) -> Outgoing {
        let request_sent_ns = frame.header.send_ns;
        let content = SyncReply { request_sent_ns, request_received_ns: now, progress: self.workshop.progress() };
        sync_reply(frame.header.test, frame.header.sequence, content)
    }

    /// A request of the session's master: new, repeated or old.
    fn numbered(&mut self, frame: &Frame, now: i64) -> Vec<Outgoing> {
        let Some(session) = &mut self.session else {
            return Vec::new();
        };
        let (id, number) = (frame.header.test, frame.header.sequence);
        if number == session.last_number {
            session.last_seen = session.last_seen.max(now);
            return session.last_reply.clone();
        }
        if number < session.last_number {
            return Vec::new();
        }
        let Some(request) = read_request(frame) else {
            return Vec::new();
        };
        session.last_seen = session.last_seen.max(now);
        session.last_number = number;
        session.last_reply.clear();
        let (master, stage) = (session.master, session.stage);
        let order = |text: &str| Reply::Refused { why: Refusal::Order, text: text.to_owned() };
        let (next, out) = match (request, stage) {
            (Request::Hello { .. } | Request::Claim, _) => (stage, vec![reply(id, number, &Reply::Claimed)]),
            (Request::Prepare(job), Stage::Claimed | Stage::Stopped) => {
                self.workshop.clear();
                self.kept = None;
                match self.workshop.prepare(master, &job) {
                    Ok(()) => {
                        let Job { test, point, node, .. } = *job;
                        self.kept = Some(Kept { test, point, node, report: Report::default() });
                        self.events.push(Event::Prepared(master));
                        (Stage::Prepared, vec![reply(id, number, &Reply::Ready)])
                    }
                    Err(text) => (Stage::Claimed, vec![reply(id, number, &Reply::Refused { why: Refusal::Job, text })]),
                }
            }
            (Request::Prepare(_), _) => (stage, vec![reply(id, number, &order("a job is under way"))]),
            (Request::Start, Stage::Prepared) => {
                self.workshop.start();
                (Stage::Started, vec![reply(id, number, &Reply::Started)])
            }
            (Request::Start, _) => (stage, vec![reply(id, number, &order("nothing is prepared"))]),
            (Request::Stop, Stage::Prepared | Stage::Started) => {
                let report = Box::new(self.workshop.stop());
                self.events.push(Event::Ended(master, report.clone()));
                if let Some(kept) = &mut self.kept {
                    kept.report = (*report).clone();
                }
                (Stage::Stopped, vec![reply(id, number, &Reply::Stopped(report))])
            }
            (Request::Stop, _) => (stage, vec![reply(id, number, &order("nothing is under way"))]),
            (Request::Observe { facts }, Stage::Claimed | Stage::Stopped) => {
                let records = self.workshop.observe(facts);
                (stage, vec![reply(id, number, &Reply::Observed { records })])
            }
            (Request::Observe { .. }, _) => (stage, vec![reply(id, number, &order("a job is under way"))]),
            (Request::Fetch { log: LogKind::State, first, frames }, Stage::Claimed) => {
                (stage, self.pieces(id, number, LogKind::State, first, frames))
            }
            (Request::Fetch { log, first, frames }, Stage::Stopped) => {
                (stage, self.pieces(id, number, log, first, frames))
            }
            (Request::Fetch { .. }, _) => (stage, vec![reply(id, number, &order("a log is there after stop"))]),
            (Request::Recall, Stage::Claimed) => match &self.kept {
                Some(kept) => (Stage::Stopped, vec![reply(id, number, &Reply::Kept(Box::new(kept.clone())))]),
                None => (stage, vec![reply(id, number, &order("no records of an earlier job are kept"))]),
            },
            (Request::Recall, _) => (stage, vec![reply(id, number, &order("a job is under way"))]),
            (Request::Release, _) => {
                if matches!(stage, Stage::Prepared | Stage::Started) {
                    let report = Box::new(self.workshop.stop());
                    self.events.push(Event::Ended(master, report));
                }
                // A master that was only here to ask leaves what is kept.
                if stage != Stage::Claimed {
                    self.workshop.clear();
                    self.kept = None;
                }
                self.session = None;
                self.events.push(Event::Released(master));
                return vec![reply(id, number, &Reply::Released)];
            }
        };
        if let Some(session) = &mut self.session {
            session.stage = next;
            // Pieces of a log are asked for by number of record: a repetition is a new request.
            session.last_reply =
                if out.first().is_some_and(|o| o.header.kind == Kind::Log) { Vec::new() } else { out.clone() };
        }
        out
    }

    fn pieces(&self, id: u32, number: u32, log: LogKind, first: u64, frames: u16) -> Vec<Outgoing> {
        let behind = self.session.as_ref().map_or(0, |session| crate::udp::headers_to(session.master));
        let user = crate::job::largest_user(crate::frame::Framing::Length, self.identity.mtu) - behind - self.signature;
        let records = self.workshop.log(log);
        let wanted = usize::try_from(first).ok().and_then(|first| records.get(first..)).unwrap_or_default();
        wanted
            .chunks(records_per_frame(user))
            .take(usize::from(frames.min(MAX_PIECES)))
            .enumerate()
            .map(|(index, piece)| log_piece(id, number, index as u16, piece))
            .collect()
    }
}
