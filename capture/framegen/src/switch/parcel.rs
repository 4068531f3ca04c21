//! A frame inside the switch: what decides about it, and its content, which does not.

use crate::frame::{Frame, Kind, MIN_USER_ON_WIRE, Mac, parse};

pub const PREAMBLE: u64 = 8;
pub const GAP: u64 = 12;
const HEADER_AND_FCS: u64 = 18;
/// IEEE 802.3 annex 31B: where PAUSE frames go, their EtherType and their opcode.
pub const PAUSE_ADDRESS: Mac = Mac([0x01, 0x80, 0xC2, 0x00, 0x00, 0x01]);
pub const MAC_CONTROL: u16 = 0x8808;
const PAUSE_OPCODE: u16 = 1;
/// Bits of a pause quantum.
pub const QUANTUM_BITS: u64 = 512;

/// Of a test frame, for the truth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tag {
    pub test: u32,
    pub stream: u16,
    pub node: u16,
    pub sequence: u32,
    pub length: u16,
}

#[derive(Clone, Debug)]
pub struct Parcel<C> {
    pub destination: Mac,
    pub source: Mac,
    /// User bytes behind the Ethernet header.
    pub user: u32,
    /// None: not a frame of a test.
    pub tag: Option<Tag>,
    /// Quanta that a PAUSE frame asks for.
    pub pause: Option<u16>,
    pub content: C,
}

impl<C> Parcel<C> {
    /// Header, user data with its padding, FCS: what a buffer holds of it.
    pub fn frame_bytes(&self) -> u64 {
        u64::from(self.user).max(MIN_USER_ON_WIRE as u64) + HEADER_AND_FCS
    }
}

impl Parcel<Vec<u8>> {
    /// As it came from a socket: without preamble and FCS. None: too short for a frame.
    pub fn read(bytes: &[u8]) -> Option<Parcel<Vec<u8>>> {
        let address = |at: usize| Some(Mac(bytes.get(at..at + 6)?.try_into().ok()?));
        let (destination, source) = (address(0)?, address(6)?);
        let user = bytes.len().checked_sub(14)? as u32;
        let word = |at: usize| Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
        let is_pause = word(12) == Some(MAC_CONTROL) && word(14) == Some(PAUSE_OPCODE);
        Some(Parcel {
            destination,
            source,
            user,
            tag: parse(bytes).ok().as_ref().and_then(tag),
            pause: word(16).filter(|_| is_pause),
            content: bytes.to_vec(),
        })
    }
}

fn tag(frame: &Frame) -> Option<Tag> {
    let header = &frame.header;
    let counted = header.kind.is_test() && header.kind != Kind::Mark;
    counted.then_some(Tag {
        test: header.test,
        stream: header.stream,
        node: header.node,
        sequence: header.sequence,
        length: header.length,
    })
}

/// A PAUSE frame of 60 bytes, as it is given to a socket.
pub fn pause_frame(source: Mac, quanta: u16) -> Vec<u8> {
    let mut out = PAUSE_ADDRESS.0.to_vec();
    out.extend_from_slice(&source.0);
    for word in [MAC_CONTROL, PAUSE_OPCODE, quanta] {
        out.extend_from_slice(&word.to_be_bytes());
    }
    out.resize(60, 0);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{Framing, build};

    #[test]
    fn a_pause_frame_is_read_back() {
        let parcel = Parcel::read(&pause_frame(Mac([2; 6]), 0xFFFF)).expect("a frame");
        assert_eq!((parcel.pause, parcel.destination, parcel.tag), (Some(0xFFFF), PAUSE_ADDRESS, None));
        assert_eq!(parcel.frame_bytes(), 64);
    }

    #[test]
    fn a_test_frame_is_told_from_others() {
        let mut header = crate::control::header(Kind::Data, 0, 7, 9);
        header.stream = 1;
        let bytes = build(Mac([2; 6]), Mac([4; 6]), Framing::Length, &header, &[0; 100]);
        let parcel = Parcel::read(&bytes).expect("a frame");
        assert_eq!(parcel.tag, Some(Tag { test: 7, stream: 1, node: 0, sequence: 9, length: 136 }));
        assert_eq!(parcel.frame_bytes(), 154);
        assert!(Parcel::read(&bytes[..13]).is_none());
        assert_eq!(Parcel::read(&bytes[..40]).expect("a frame").tag, None);
    }
}
