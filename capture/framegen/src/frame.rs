//! What a test frame looks like on the wire, and nothing else.
//!
//! ```text
//! Ethernet header (14)  destination, source, length of the user data (default) or EtherType 0x88B5
//! framegen header (36)  big-endian; the user data begins here
//!    0  4  magic          6C 46 47 B1
//!    4  1  version        1
//!    5  1  type
//!    6  2  flags
//!    8  4  test id
//!   12  2  stream
//!   14  2  node           who sent the frame; 0 steers the test
//!   16  4  sequence
//!   20  8  send time      ns of the sender's clock
//!   28  2  length         user bytes of this frame, this header included
//!   30  2  response       user bytes asked for in return
//!   32  4  CRC-32         of the 32 bytes before it (polynomial of IEEE 802.3, reflected)
//! payload               what the pattern says, to `length`
//! ```
//!
//! With a length field the first two bytes of user data are read as LLC service access points. 0x6C and 0x46 are
//! assigned to nobody and Linux gives them no special path (it does for FF FF, AA, 42, E0, FE and 00).

use crate::crc::crc32;
use crate::udp;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

pub const ETHERNET_HEADER: usize = 14;
pub const HEADER: usize = 36;
pub const MAGIC: [u8; 4] = [0x6C, 0x46, 0x47, 0xB1];
pub const VERSION: u8 = 1;
/// EtherType "local experimental 1" (IEEE Std 802, clause 9.2.4).
pub const ETHERTYPE: u16 = 0x88B5;
/// Largest value of the length field (IEEE Std 802.3, clause 3.2.6).
pub const MAX_LENGTH_FIELD: usize = 1500;
/// Preamble, header, FCS and gap: what a frame occupies on the wire beyond its user data.
pub const WIRE_OVERHEAD: usize = 8 + 14 + 4 + 12;
/// Shorter user data is padded to this.
pub const MIN_USER_ON_WIRE: usize = 46;

/// Byte times a frame of `user` bytes occupies on the wire, preamble and gap included.
pub fn wire_bytes(user: usize) -> u64 {
    (user.max(MIN_USER_ON_WIRE) + WIRE_OVERHEAD) as u64
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Mac(pub [u8; 6]);

impl Mac {
    pub const BROADCAST: Mac = Mac([0xFF; 6]);

    pub fn is_multicast(self) -> bool {
        self.0[0] & 1 == 1
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(ip) = udp::ip(*self) {
            return write!(f, "{ip}");
        }
        let b = self.0;
        write!(f, "{:02x}:{:02x}:{:02x}:{:02x}:{:02x}:{:02x}", b[0], b[1], b[2], b[3], b[4], b[5])
    }
}

impl fmt::Debug for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Mac {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(ip) = text.parse() {
            return Ok(udp::address(ip));
        }
        let mut mac = [0u8; 6];
        let mut parts = text.split([':', '-']);
        for byte in &mut mac {
            let part = parts.next().filter(|p| p.len() == 2 && p.bytes().all(|b| b.is_ascii_hexdigit()));
            *byte = part
                .and_then(|p| u8::from_str_radix(p, 16).ok())
                .ok_or_else(|| format!("`{text}` is no Ethernet address (six bytes, 02:00:00:00:00:01)"))?;
        }
        match parts.next() {
            None => Ok(Mac(mac)),
            Some(_) => Err(format!("`{text}` is no Ethernet address: more than six bytes")),
        }
    }
}

impl TryFrom<String> for Mac {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Mac> for String {
    fn from(mac: Mac) -> String {
        mac.to_string()
    }
}

/// What stands in the two bytes after the addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Framing {
    Length,
    Ethertype,
    /// UDP over IPv4.
    Udp,
}

impl Framing {
    /// Bytes between Ethernet header and user data.
    pub fn header_bytes(self) -> usize {
        if self == Framing::Udp { udp::HEADERS } else { 0 }
    }
}

/// EtherType of IPv4 (RFC 894).
const IPV4: u16 = 0x0800;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Control request or reply: CRC-32 and JSON.
    Control = 1,
    /// Clock exchange, keep-alive at the same time.
    Sync = 2,
    /// A piece of a frame log: CRC-32 and records.
    Log = 3,
    /// One frame of a stream.
    Data = 16,
    /// Asks for a response of `response` bytes.
    Request = 17,
    Response = 18,
    /// Carries [`MARK_WORD`] throughout; never counted.
    Mark = 19,
}

impl Kind {
    pub fn is_test(self) -> bool {
        self as u8 >= Kind::Data as u8
    }

    fn from_byte(byte: u8) -> Option<Kind> {
        Some(match byte {
            1 => Kind::Control,
            2 => Kind::Sync,
            3 => Kind::Log,
            16 => Kind::Data,
            17 => Kind::Request,
            18 => Kind::Response,
            19 => Kind::Mark,
            _ => return None,
        })
    }
}

/// Flag of Control, Sync and Log frames: this is the answer.
pub const FLAG_REPLY: u16 = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub kind: Kind,
    pub flags: u16,
    pub test: u32,
    pub stream: u16,
    pub node: u16,
    pub sequence: u32,
    pub send_ns: i64,
    pub length: u16,
    pub response: u16,
}

/// Why bytes are not a frame of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// Shorter than the headers, or without the magic: somebody else's.
    Foreign,
    /// The magic is there, but another version wrote the rest.
    Version(u8),
    /// CRC, type or length disagree: damaged on the way.
    Damaged,
}

/// A received frame: its addresses, header and payload, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    pub destination: Mac,
    pub source: Mac,
    pub framing: Framing,
    pub header: Header,
    pub payload: &'a [u8],
}

impl Header {
    /// Write the 36 bytes at the start of `out`.
    pub fn write(&self, out: &mut [u8]) {
        let out: &mut [u8; HEADER] = (&mut out[..HEADER]).try_into().expect("36 bytes");
        out[..4].copy_from_slice(&MAGIC);
        out[4] = VERSION;
        out[5] = self.kind as u8;
        out[6..8].copy_from_slice(&self.flags.to_be_bytes());
        out[8..12].copy_from_slice(&self.test.to_be_bytes());
        out[12..14].copy_from_slice(&self.stream.to_be_bytes());
        out[14..16].copy_from_slice(&self.node.to_be_bytes());
        out[16..20].copy_from_slice(&self.sequence.to_be_bytes());
        out[20..28].copy_from_slice(&self.send_ns.to_be_bytes());
        out[28..30].copy_from_slice(&self.length.to_be_bytes());
        out[30..32].copy_from_slice(&self.response.to_be_bytes());
        let crc = crc32(&out[..32]);
        out[32..].copy_from_slice(&crc.to_be_bytes());
    }
}

/// The 14 bytes before the user data.
pub fn ethernet_header(destination: Mac, source: Mac, framing: Framing, user: usize) -> [u8; ETHERNET_HEADER] {
    let mut out = [0; ETHERNET_HEADER];
    out[..6].copy_from_slice(&destination.0);
    out[6..12].copy_from_slice(&source.0);
    let field = match framing {
        Framing::Length => u16::try_from(user).expect("user data fits the length field"),
        Framing::Ethertype => ETHERTYPE,
        Framing::Udp => IPV4,
    };
    out[12..].copy_from_slice(&field.to_be_bytes());
    out
}

/// A whole frame, for everything that is not sent in a loop.
pub fn build(destination: Mac, source: Mac, framing: Framing, header: &Header, payload: &[u8]) -> Vec<u8> {
    let header = Header { length: (HEADER + payload.len()) as u16, ..*header };
    let mut out = ethernet_header(destination, source, framing, HEADER + payload.len()).to_vec();
    out.resize(ETHERNET_HEADER + HEADER, 0);
    header.write(&mut out[ETHERNET_HEADER..]);
    out.extend_from_slice(payload);
    out
}

/// Put the send time into a built frame, at the last moment before it is sent.
pub fn stamp(frame: &mut [u8], send_ns: i64) {
    let header = &mut frame[ETHERNET_HEADER..ETHERNET_HEADER + HEADER];
    header[20..28].copy_from_slice(&send_ns.to_be_bytes());
    let crc = crc32(&header[..32]);
    header[32..].copy_from_slice(&crc.to_be_bytes());
}

/// Whether a frame that is built goes by UDP.
pub fn is_udp(frame: &[u8]) -> bool {
    frame.get(12..14) == Some(&IPV4.to_be_bytes()[..])
}

/// Destination and source of a frame as the packet socket gives it, and where its user data begins.
pub fn addresses(bytes: &[u8]) -> Option<(Mac, Mac, usize)> {
    if is_udp(bytes) {
        let ip = |at: usize| Some(udp::address(<[u8; 4]>::try_from(bytes.get(at..at + 4)?).ok()?.into()));
        return Some((ip(30)?, ip(26)?, ETHERNET_HEADER + udp::HEADERS));
    }
    let mac = |at: usize| Some(Mac(bytes.get(at..at + 6)?.try_into().ok()?));
    Some((mac(0)?, mac(6)?, ETHERNET_HEADER))
}

/// Read a frame as the packet socket gives it, padding and all.
pub fn parse(bytes: &[u8]) -> Result<Frame<'_>, Malformed> {
    let (destination, source, begin) = addresses(bytes).ok_or(Malformed::Foreign)?;
    let Some((ethernet, user)) = bytes.split_at_checked(begin) else {
        return Err(Malformed::Foreign);
    };
    if user.len() < HEADER || user[..4] != MAGIC {
        return Err(Malformed::Foreign);
    }
    let h = &user[..HEADER];
    let u16_at = |at: usize| u16::from_be_bytes([h[at], h[at + 1]]);
    let u32_at = |at: usize| u32::from_be_bytes(h[at..at + 4].try_into().expect("4 bytes"));
    if h[4] != VERSION {
        return Err(Malformed::Version(h[4]));
    }
    if crc32(&h[..32]) != u32_at(32) {
        return Err(Malformed::Damaged);
    }
    let kind = Kind::from_byte(h[5]).ok_or(Malformed::Damaged)?;
    let length = u16_at(28);
    let payload = user.get(HEADER..usize::from(length)).ok_or(Malformed::Damaged)?;
    let framing = match u16::from_be_bytes([ethernet[12], ethernet[13]]) {
        ETHERTYPE => Framing::Ethertype,
        IPV4 => Framing::Udp,
        field if field == length => Framing::Length,
        _ => return Err(Malformed::Damaged),
    };
    Ok(Frame {
        destination,
        source,
        framing,
        header: Header {
            kind,
            flags: u16_at(6),
            test: u32_at(8),
            stream: u16_at(12),
            node: u16_at(14),
            sequence: u32_at(16),
            send_ns: i64::from_be_bytes(h[20..28].try_into().expect("8 bytes")),
            length,
            response: u16_at(30),
        },
        payload,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(kind: Kind) -> Header {
        Header {
            kind,
            flags: 0x8001,
            test: 0xDEAD_BEEF,
            stream: 3,
            node: 7,
            sequence: 1_234_567,
            send_ns: -5,
            length: 0,
            response: 1500,
        }
    }

    #[test]
    fn what_is_built_is_read_back() {
        let (a, b) = (Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 2]));
        for framing in [Framing::Length, Framing::Ethertype] {
            for payload in [&[][..], b"x", &[7u8; 1464]] {
                let mut bytes = build(b, a, framing, &header(Kind::Request), payload);
                bytes.resize(bytes.len().max(60), 0);
                let frame = parse(&bytes).expect("our own frame");
                assert_eq!((frame.destination, frame.source, frame.framing), (b, a, framing));
                assert_eq!(frame.payload, payload);
                assert_eq!(frame.header, Header { length: (HEADER + payload.len()) as u16, ..header(Kind::Request) });
            }
        }
    }

    #[test]
    fn what_goes_by_udp_is_read_behind_its_headers() {
        let (a, b) = (udp::address([10, 0, 0, 1].into()), udp::address([10, 0, 0, 2].into()));
        let built = build(b, a, Framing::Udp, &header(Kind::Data), b"payload");
        assert!(is_udp(&built));
        // As the interface shows it: IPv4 from a to b, 8 bytes of UDP.
        let mut bytes = [&[2; 12][..], &IPV4.to_be_bytes(), &[0x45; 12], &[10, 0, 0, 1, 10, 0, 0, 2], &[0; 8]].concat();
        bytes.extend_from_slice(&built[ETHERNET_HEADER..]);
        let frame = parse(&bytes).expect("our own frame");
        assert_eq!((frame.destination, frame.source, frame.framing), (b, a, Framing::Udp));
        assert_eq!(frame.payload, b"payload");
        for cut in 0..bytes.len() {
            assert!(parse(&bytes[..cut]).is_err(), "cut at {cut}");
        }
    }

    #[test]
    fn every_single_bit_of_the_header_is_protected() {
        let good = build(Mac([2; 6]), Mac([4; 6]), Framing::Length, &header(Kind::Data), &[1; 28]);
        for bit in (12 * 8)..((ETHERNET_HEADER + HEADER) * 8) {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(parse(&bad).is_err(), "bit {bit} was flipped unnoticed");
        }
    }

    #[test]
    fn a_length_beyond_the_frame_is_damage() {
        let good = build(Mac([2; 6]), Mac([4; 6]), Framing::Length, &header(Kind::Data), &[1; 28]);
        for cut in 0..good.len() {
            assert!(parse(&good[..cut]).is_err(), "cut at {cut}");
        }
    }

    #[test]
    fn addresses() {
        assert_eq!("02:00:00:0a:0b:0c".parse(), Ok(Mac([2, 0, 0, 10, 11, 12])));
        assert_eq!(Mac([2, 0, 0, 10, 11, 12]).to_string(), "02:00:00:0a:0b:0c");
        for wrong in
            ["", "02:00:00:00:00", "02:00:00:00:00:01:02", "+2:00:00:00:00:01", "2:0:0:0:0:1", "zz:00:00:00:00:00"]
        {
            assert!(wrong.parse::<Mac>().is_err(), "{wrong}");
        }
    }
}
