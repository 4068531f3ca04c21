//! A key shared out of band: each control frame is signed with it, and one that is not signed is nobody's.
//!
//! HMAC-SHA-256 (RFC 2104) over the whole frame, addresses and time stamp included, cut to 16 bytes (RFC 4868 does so).
//! Replays change nothing: session numbers are new for each session, requests and exchanges are numbered upwards.

use crate::control::Outgoing;
use crate::frame::{ETHERNET_HEADER, Frame, Framing, Mac, build, ethernet_header, stamp};
use hmac::{Hmac, Mac as _};
use sha2::Sha256;
use std::path::Path;

const TAG: usize = 16;
const LEAST_BYTES: usize = 16;

/// None: frames are neither signed nor checked.
#[derive(Clone, Default)]
pub struct Key(Option<Vec<u8>>);

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() { "Key(secret)" } else { "Key(none)" })
    }
}

/// The first bytes of an HMAC.
pub fn digest<const N: usize>(key: &[u8], parts: &[&[u8]]) -> [u8; N] {
    let mut hmac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of every length");
    parts.iter().for_each(|part| hmac.update(part));
    hmac.finalize().into_bytes()[..N].try_into().expect("at most 32 bytes")
}

impl Key {
    /// The content of a file is the key, line ends at its end left away.
    pub fn read(path: &Path) -> Result<Key, String> {
        let content = std::fs::read(path).map_err(|error| format!("--key {}: {error}", path.display()))?;
        let length = content.iter().rposition(|byte| !b"\r\n".contains(byte)).map_or(0, |at| at + 1);
        if length < LEAST_BYTES {
            return Err(format!("--key {}: {length} bytes; a key has {LEAST_BYTES} at least", path.display()));
        }
        Ok(Key(Some(content[..length].to_vec())))
    }

    /// Bytes it takes of each frame.
    pub fn room(&self) -> usize {
        if self.0.is_some() { TAG } else { 0 }
    }

    /// A control frame, stamped and signed.
    pub fn build(&self, to: Mac, from: Mac, framing: Framing, out: &Outgoing, now: i64) -> Vec<u8> {
        let mut payload = out.payload.clone();
        payload.resize(payload.len() + self.room(), 0);
        let mut frame = build(to, from, framing, &out.header, &payload);
        stamp(&mut frame, now);
        if let Some(key) = &self.0 {
            let (content, tag) = frame.split_at_mut(ETHERNET_HEADER + usize::from(user_bytes(&payload)) - TAG);
            tag.copy_from_slice(&digest::<TAG>(key, &[content]));
        }
        frame
    }

    /// The frame without its signature; None if that is wrong.
    pub fn open<'a>(&self, bytes: &'a [u8], frame: Frame<'a>) -> Option<Frame<'a>> {
        let Some(key) = &self.0 else {
            return Some(frame);
        };
        let content = frame.payload.len().checked_sub(TAG)?;
        let (payload, tag) = frame.payload.split_at(content);
        let (begin, user) = (ETHERNET_HEADER + frame.framing.header_bytes(), usize::from(frame.header.length));
        let mut hmac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of every length");
        hmac.update(&ethernet_header(frame.destination, frame.source, frame.framing, user));
        hmac.update(&bytes[begin..begin + user - TAG]);
        hmac.verify_truncated_left(tag).ok()?;
        Some(Frame { payload, ..frame })
    }
}

fn user_bytes(payload: &[u8]) -> u16 {
    (crate::frame::HEADER + payload.len()) as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::{Request, read_request, request};
    use crate::frame::parse;

    #[test]
    fn what_is_signed_is_taken_and_nothing_else() {
        let (key, other) = (Key(Some(vec![1; 32])), Key(Some(vec![2; 32])));
        let out = request(7, 3, &Request::Claim);
        let mut bytes = key.build(Mac([2; 6]), Mac([4; 6]), Framing::Length, &out, 99);
        bytes.resize(bytes.len().max(60), 0);
        let frame = parse(&bytes).expect("ours");
        let opened = key.open(&bytes, frame).expect("signed");
        assert_eq!(read_request(&opened), Some(Request::Claim));
        assert!(other.open(&bytes, frame).is_none());
        // Without a key the signature is rubbish behind the message.
        assert_eq!(read_request(&Key::default().open(&bytes, frame).expect("taken")), None);
        for at in [0, 6, 20, 30, 36, 55] {
            let mut forged = bytes.clone();
            forged[at] ^= 1;
            let opened = parse(&forged).ok().and_then(|frame| key.open(&forged, frame));
            assert!(opened.is_none(), "byte {at} is not signed");
        }
        let unsigned = Key::default().build(Mac([2; 6]), Mac([4; 6]), Framing::Length, &out, 99);
        assert!(key.open(&unsigned, parse(&unsigned).expect("ours")).is_none());
    }
}
