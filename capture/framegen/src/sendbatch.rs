//! Several frames by one system call.

use crate::socket::{MAX_FRAME, check};
use std::io;
use std::mem;
use std::os::fd::RawFd;

/// Frames kept back at most. More save little: a frame's share of the call is then a few per cent of its way.
const ROOM: usize = 16;

/// Frames that wait for `sendmmsg`, in the order of sending.
pub struct SendBatch {
    frames: Vec<Vec<u8>>,
    waiting: usize,
}

impl Default for SendBatch {
    fn default() -> Self {
        SendBatch { frames: (0..ROOM).map(|_| Vec::with_capacity(MAX_FRAME)).collect(), waiting: 0 }
    }
}

impl SendBatch {
    /// Queue one frame; the kernel gets it at once, or when the batch is full or flushed if `hold`. A frame for which
    /// this is an error is not queued; those before it still are.
    pub fn send(&mut self, socket: RawFd, frame: &[u8], hold: bool) -> io::Result<()> {
        if self.waiting == ROOM {
            self.flush(socket)?;
        }
        let place = &mut self.frames[self.waiting];
        place.clear();
        place.extend_from_slice(frame);
        self.waiting += 1;
        if hold && self.waiting < ROOM {
            return Ok(());
        }
        match self.flush(socket) {
            Err(error) if self.waiting > 0 => {
                self.waiting -= 1;
                Err(error)
            }
            result => result,
        }
    }

    /// Give the kernel all that waits. What it did not take after an error waits on.
    pub fn flush(&mut self, socket: RawFd) -> io::Result<()> {
        // SAFETY: all-zero is valid for these structures.
        let mut vectors: [libc::iovec; ROOM] = unsafe { mem::zeroed() };
        let mut messages: [libc::mmsghdr; ROOM] = unsafe { mem::zeroed() };
        for ((vector, message), frame) in vectors.iter_mut().zip(&mut messages).zip(&self.frames[..self.waiting]) {
            *vector = libc::iovec { iov_base: frame.as_ptr().cast_mut().cast(), iov_len: frame.len() };
            message.msg_hdr.msg_iov = vector;
            message.msg_hdr.msg_iovlen = 1;
        }
        let mut taken = 0;
        let mut result = Ok(());
        while taken < self.waiting {
            let (first, count) = (&mut messages[taken], (self.waiting - taken) as u32);
            // SAFETY: `count` messages from `first` on point at frames that live until the end of this function; the
            // kernel only reads them.
            match check(unsafe { libc::sendmmsg(socket, first, count, 0) }) {
                Ok(sent) => taken += sent as usize,
                Err(error) => {
                    result = Err(error);
                    break;
                }
            }
        }
        self.frames[..self.waiting].rotate_left(taken);
        self.waiting -= taken;
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::os::fd::AsRawFd;

    #[test]
    fn a_frame_that_is_refused_is_not_queued() {
        // Frames without an address: it takes none. What it would need for packets is a permission.
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
        let mut batch = SendBatch::default();
        assert!(batch.send(socket.as_raw_fd(), &[0; 60], false).is_err());
        assert_eq!(batch.waiting, 0);
        for _ in 0..ROOM - 1 {
            batch.send(socket.as_raw_fd(), &[9; 60], true).expect("held");
        }
        assert!(batch.send(socket.as_raw_fd(), &[0; 60], true).is_err());
        assert_eq!(batch.waiting, ROOM - 1);
        assert!(batch.flush(socket.as_raw_fd()).is_err());
        assert_eq!(batch.waiting, ROOM - 1);
        socket.connect(socket.local_addr().expect("bound")).expect("to itself");
        for frame in 0..2 {
            batch.send(socket.as_raw_fd(), &[frame; 60], true).expect("taken");
        }
        batch.flush(socket.as_raw_fd()).expect("taken");
        let mut seen = Vec::new();
        for _ in 0..ROOM + 1 {
            let mut frame = [0; 80];
            let length = socket.recv(&mut frame).expect("one for each");
            seen.push((length, frame[0]));
        }
        assert!(seen[..ROOM - 1].iter().all(|&one| one == (60, 9)));
        assert_eq!(seen[ROOM - 1..], [(60, 0), (60, 1)]);
    }
}
