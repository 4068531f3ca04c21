//! Messages of the control protocol and how they become frames. The rules are in docs/framegen.md.
//!
//! Control payload: CRC-32 (4 bytes, big-endian) of what follows, then JSON. A request's number is the header's
//! sequence; its reply carries the same. Log payload: the same CRC, then records.

use crate::crc::crc32;
use crate::frame::{FLAG_REPLY, Frame, HEADER, Header, Kind, Mac};
use crate::job::{Job, Report};
use crate::log::Record;
use serde::{Deserialize, Serialize};

/// Silence after which a partner counts as gone; longer than a request is repeated.
pub const SILENCE_NS: i64 = 3_000_000_000;
/// Time between keep-alives.
pub const KEEP_ALIVE_NS: i64 = 250_000_000;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    Hello {
        program: String,
    },
    Claim,
    Prepare(Box<Job>),
    Start,
    Stop,
    Fetch {
        log: LogKind,
        first: u64,
        frames: u16,
    },
    /// Look at the host; `facts` that do not change too.
    Observe {
        facts: bool,
    },
    /// What is there of a job whose master was lost?
    Recall,
    Release,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Reply {
    Welcome(Identity),
    Claimed,
    Ready,
    Started,
    Stopped(Box<Report>),
    Kept(Box<Kept>),
    /// Records of its text, ready to be fetched.
    Observed {
        records: u64,
    },
    Released,
    Refused {
        why: Refusal,
        text: String,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// Another host holds this one.
    Busy,
    /// The job goes beyond a limit or cannot be done here.
    Job,
    /// The request does not fit the state (start before prepare).
    Order,
    Version,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogKind {
    Sent,
    Received,
    /// The text of the last observation.
    State,
}

/// What a node kept of a job whose master was lost; its records can be fetched.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Kept {
    pub test: u32,
    pub point: u32,
    pub node: u16,
    pub report: Report,
}

/// Who a node is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    pub program: String,
    pub host: String,
    pub kernel: String,
    pub interface: String,
    pub mtu: u32,
    /// Where its test frames go, if not to the address that answers: an interface that never sends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sink: Option<Mac>,
}

impl Identity {
    /// A peer's words, so that they are nothing but words: one line, not too long.
    pub fn cleaned(self) -> Identity {
        let Identity { program, host, kernel, interface, mtu, sink } = self;
        let [program, host, kernel, interface] = [program, host, kernel, interface].map(|word| one_line(&word));
        Identity { program, host, kernel, interface, mtu, sink }
    }
}

const LONGEST_WORDS: usize = 300;

/// Texts of peers come from the wire: without line ends and what else moves a terminal's cursor.
pub fn one_line(text: &str) -> String {
    text.chars().take(LONGEST_WORDS).map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// A synthetic error of a node's clock, for tests of the clock synchronisation: it shows t + offset + drift t.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ClockError {
    pub offset_ns: i64,
    pub drift_ppm: f64,
}

/// A frame to send; its send time is filled in at the last moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outgoing {
    pub header: Header,
    pub payload: Vec<u8>,
}

pub fn header(kind: Kind, flags: u16, session: u32, sequence: u32) -> Header {
    Header { kind, flags, test: session, stream: 0, node: 0, sequence, send_ns: 0, length: 0, response: 0 }
}

fn protect(content: &[u8]) -> Vec<u8> {
    let mut payload = crc32(content).to_be_bytes().to_vec();
    payload.extend_from_slice(content);
    payload
}

fn unprotect(payload: &[u8]) -> Option<&[u8]> {
    let (crc, content) = payload.split_first_chunk::<4>()?;
    (u32::from_be_bytes(*crc) == crc32(content)).then_some(content)
}

pub fn request(session: u32, number: u32, request: &Request) -> Outgoing {
    let payload = protect(&serde_json::to_vec(request).expect("a request is plain data"));
    Outgoing { header: header(Kind::Control, 0, session, number), payload }
}

pub fn reply(session: u32, number: u32, reply: &Reply) -> Outgoing {
    let payload = protect(&serde_json::to_vec(reply).expect("a reply is plain data"));
    Outgoing { header: header(Kind::Control, FLAG_REPLY, session, number), payload }
}

pub fn read_request(frame: &Frame) -> Option<Request> {
    let ours = frame.header.kind == Kind::Control && frame.header.flags & FLAG_REPLY == 0;
    serde_json::from_slice(unprotect(frame.payload).filter(|_| ours)?).ok()
}

pub fn read_reply(frame: &Frame) -> Option<Reply> {
    let ours = frame.header.kind == Kind::Control && frame.header.flags & FLAG_REPLY != 0;
    serde_json::from_slice(unprotect(frame.payload).filter(|_| ours)?).ok()
}

/// Records that fit a frame of `user` bytes.
pub fn records_per_frame(user: usize) -> usize {
    (user.saturating_sub(HEADER + 4) / Record::BYTES).max(1)
}

/// Piece `index` of the answer to fetch request `number`.
pub fn log_piece(session: u32, number: u32, index: u16, records: &[Record]) -> Outgoing {
    let content: Vec<u8> = records.iter().flat_map(|record| record.to_bytes()).collect();
    let header = Header { stream: index, ..header(Kind::Log, FLAG_REPLY, session, number) };
    Outgoing { header, payload: protect(&content) }
}

pub fn read_log_piece(frame: &Frame) -> Option<(u16, Vec<Record>)> {
    let ours = frame.header.kind == Kind::Log && frame.header.flags & FLAG_REPLY != 0;
    let (records, rest) = unprotect(frame.payload).filter(|_| ours)?.as_chunks::<{ Record::BYTES }>();
    rest.is_empty().then(|| (frame.header.stream, records.iter().map(Record::from_bytes).collect()))
}

/// What a Sync reply carries besides its own send time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SyncReply {
    /// Send time of the request, returned: the requester needs no memory.
    pub request_sent_ns: i64,
    pub request_received_ns: i64,
    pub progress: Progress,
}

/// How far a job is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    pub sent: u64,
    pub received: u64,
    /// Everything this node had to send is sent.
    pub done: bool,
}

/// Bytes of a clock exchange's payload, either way: frames of equal length take equally long.
pub const SYNC_PAYLOAD: usize = 4 + 5 * 8;

pub fn sync_request(session: u32, number: u32) -> Outgoing {
    Outgoing { header: header(Kind::Sync, 0, session, number), payload: vec![0; SYNC_PAYLOAD] }
}

pub fn sync_reply(session: u32, number: u32, content: SyncReply) -> Outgoing {
    let mut bytes = content.request_sent_ns.to_be_bytes().to_vec();
    bytes.extend_from_slice(&content.request_received_ns.to_be_bytes());
    for word in [content.progress.sent, content.progress.received, u64::from(content.progress.done)] {
        bytes.extend_from_slice(&word.to_be_bytes());
    }
    Outgoing { header: header(Kind::Sync, FLAG_REPLY, session, number), payload: protect(&bytes) }
}

pub fn read_sync_reply(frame: &Frame) -> Option<SyncReply> {
    let ours = frame.header.kind == Kind::Sync && frame.header.flags & FLAG_REPLY != 0;
    let (words, rest) = unprotect(frame.payload).filter(|_| ours)?.as_chunks::<8>();
    let &[request_sent, request_received, sent, received, done] = words else {
        return None;
    };
    rest.is_empty().then_some(SyncReply {
        request_sent_ns: i64::from_be_bytes(request_sent),
        request_received_ns: i64::from_be_bytes(request_received),
        progress: Progress {
            sent: u64::from_be_bytes(sent),
            received: u64::from_be_bytes(received),
            done: u64::from_be_bytes(done) != 0,
        },
    })
}
