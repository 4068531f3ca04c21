//! Rings shared with the kernel: TPACKET_V3 to receive streams, TPACKET_V2 to spin on single frames and to send.

use crate::clock::{Clock, Realtime};
use crate::socket::{MAX_FRAME, PacketSocket, check, set_option, wait_readable};
use std::io;
use std::mem;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

struct Mapping {
    base: *mut u8,
    length: usize,
}

// SAFETY: the mapping is owned, and used by one thread at a time like any owned memory.
unsafe impl Send for Mapping {}

impl Mapping {
    fn new(fd: RawFd, length: usize) -> io::Result<Mapping> {
        let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_POPULATE);
        // SAFETY: a new mapping at an address the kernel chooses.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), length, access, flags, fd, 0) };
        if base == libc::MAP_FAILED {
            Err(io::Error::last_os_error())
        } else {
            Ok(Mapping { base: base.cast(), length })
        }
    }

    /// The status word at byte `at`: the kernel writes it too.
    fn status(&self, at: usize) -> &AtomicU32 {
        debug_assert!(at + 4 <= self.length && at.is_multiple_of(4));
        // SAFETY: within the mapping and aligned; both sides access it as one word.
        unsafe { AtomicU32::from_ptr(self.base.add(at).cast()) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: what `new` mapped; no reference to it outlives `self`.
        unsafe { libc::munmap(self.base.cast(), self.length) };
    }
}

/// Receives block by block; a block is handed over when full or after [`ReceiveRing::RETIRE_MS`].
pub struct ReceiveRing {
    ring: Mapping,
    block: usize,
}

// Offsets in struct tpacket_block_desc (version and offset_to_priv, then struct tpacket_hdr_v1) and tpacket3_hdr.
const BLOCK_STATUS: usize = 8;
const BLOCK_COUNT: usize = 12;
const BLOCK_FIRST: usize = 16;
const PACKET_NEXT: usize = 0;
const PACKET_SECONDS: usize = 4;
const PACKET_NANOSECONDS: usize = 8;
const PACKET_CAPTURED: usize = 12;
const PACKET_MAC: usize = 24;

impl ReceiveRing {
    const BLOCKS: usize = 128;
    const BLOCK_BYTES: usize = 256 << 10;
    pub const RETIRE_MS: u32 = 2;

    /// Give `socket` a receive ring; before it is bound.
    pub fn new(socket: &PacketSocket) -> io::Result<ReceiveRing> {
        let frame = MAX_FRAME.next_power_of_two();
        let request = libc::tpacket_req3 {
            tp_block_size: Self::BLOCK_BYTES as u32,
            tp_block_nr: Self::BLOCKS as u32,
            tp_frame_size: frame as u32,
            tp_frame_nr: (Self::BLOCKS * Self::BLOCK_BYTES / frame) as u32,
            tp_retire_blk_tov: Self::RETIRE_MS,
            tp_sizeof_priv: 0,
            tp_feature_req_word: 0,
        };
        set_option(socket.raw(), libc::SOL_PACKET, libc::PACKET_VERSION, &libc::tpacket_versions::TPACKET_V3)?;
        set_option(socket.raw(), libc::SOL_PACKET, libc::PACKET_RX_RING, &request)?;
        let ring = Mapping::new(socket.raw(), Self::BLOCKS * Self::BLOCK_BYTES)?;
        Ok(ReceiveRing { ring, block: 0 })
    }

    /// The next block, if the kernel has handed it over: each frame and its time go to `each`.
    pub fn receive(&mut self, clock: &mut Clock, mut each: impl FnMut(&[u8], i64)) -> usize {
        let block = self.block * Self::BLOCK_BYTES;
        let status = self.ring.status(block + BLOCK_STATUS);
        if status.load(Ordering::Acquire) & libc::TP_STATUS_USER == 0 {
            return 0;
        }
        let conversion = Realtime::read();
        let word = |at: usize| {
            assert!(at + 4 <= self.ring.length, "the kernel's offsets stay in the ring");
            // SAFETY: inside the mapping (checked); the block is ours until its status is given back.
            unsafe { self.ring.base.add(at).cast::<u32>().read_unaligned() }
        };
        let count = word(block + BLOCK_COUNT) as usize;
        let mut packet = block + word(block + BLOCK_FIRST) as usize;
        for _ in 0..count {
            let start = packet + (word(packet + PACKET_MAC) & 0xFFFF) as usize;
            let length = word(packet + PACKET_CAPTURED) as usize;
            assert!(start + length <= self.ring.length, "the kernel's offsets stay in the ring");
            // SAFETY: as above.
            let frame = unsafe { std::slice::from_raw_parts(self.ring.base.add(start), length) };
            let realtime =
                i64::from(word(packet + PACKET_SECONDS)) * 1_000_000_000 + i64::from(word(packet + PACKET_NANOSECONDS));
            each(frame, clock.of_kernel(conversion, realtime));
            packet += word(packet + PACKET_NEXT) as usize;
        }
        status.store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.block = (self.block + 1) % Self::BLOCKS;
        count
    }

    pub fn wait(&self, socket: &PacketSocket, timeout: Duration) -> io::Result<()> {
        wait_readable(&[socket.raw()], timeout).map(drop)
    }
}

/// Shows each frame as soon as the kernel has it, without a system call.
pub struct SpinRing {
    ring: Mapping,
    slot: usize,
    slot_bytes: usize,
    slots: usize,
    /// Times nothing was there, in a row.
    empty: u32,
}

// Offsets in struct tpacket2_hdr.
const SLOT_CAPTURED: usize = 8;
const SLOT_MAC: usize = 12;

impl SpinRing {
    const BYTES: usize = 8 << 20;
    const BLOCK_BYTES: usize = 256 << 10;

    /// Give `socket` a ring for frames of an interface with this MTU; before it is bound.
    pub fn new(socket: &PacketSocket, mtu: usize) -> io::Result<SpinRing> {
        // The kernel's header and address, and a frame that may be longer than its own header says.
        let slot_bytes = (mtu + 256).next_power_of_two();
        let slots = Self::BYTES / slot_bytes;
        let request = libc::tpacket_req {
            tp_block_size: Self::BLOCK_BYTES as u32,
            tp_block_nr: (Self::BYTES / Self::BLOCK_BYTES) as u32,
            tp_frame_size: slot_bytes as u32,
            tp_frame_nr: slots as u32,
        };
        set_option(socket.raw(), libc::SOL_PACKET, libc::PACKET_VERSION, &libc::tpacket_versions::TPACKET_V2)?;
        set_option(socket.raw(), libc::SOL_PACKET, libc::PACKET_RX_RING, &request)?;
        Ok(SpinRing { ring: Mapping::new(socket.raw(), Self::BYTES)?, slot: 0, slot_bytes, slots, empty: 0 })
    }

    /// True now and then while nothing comes: time to ask the socket whether it has an error.
    pub fn is_long_empty(&self) -> bool {
        self.empty > 0 && self.empty.is_multiple_of(1 << 16)
    }

    /// The next frame, if it is there: given to `each` with the time at which it was seen.
    pub fn receive(&mut self, clock: &mut Clock, mut each: impl FnMut(&[u8], i64)) -> usize {
        let at = self.slot * self.slot_bytes;
        let status = self.ring.status(at);
        if status.load(Ordering::Acquire) & libc::TP_STATUS_USER == 0 {
            self.empty = self.empty.wrapping_add(1);
            return 0;
        }
        let now = clock.now();
        self.empty = 0;
        // SAFETY: the slot lies in the mapping and is ours until its status is given back.
        let (captured, mac) = unsafe {
            let header = self.ring.base.add(at);
            let captured = header.add(SLOT_CAPTURED).cast::<u32>().read() as usize;
            (captured, usize::from(header.add(SLOT_MAC).cast::<u16>().read()))
        };
        assert!(mac + captured <= self.slot_bytes, "the kernel's offsets stay in the slot");
        // SAFETY: as above.
        each(unsafe { std::slice::from_raw_parts(self.ring.base.add(at + mac), captured) }, now);
        status.store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.slot = (self.slot + 1) % self.slots;
        1
    }
}

/// Sends from memory the kernel reads directly: one system call can move many frames.
pub struct TransmitRing {
    ring: Mapping,
    slot: usize,
    pending: usize,
}

impl TransmitRing {
    const SLOTS: usize = 1024;
    const SLOT_BYTES: usize = MAX_FRAME.next_power_of_two();
    const BLOCK_BYTES: usize = 256 << 10;
    // struct tpacket2_hdr: status, length; the frame follows the header at its aligned end.
    const LENGTH: usize = 4;
    const DATA: usize = (mem::size_of::<libc::tpacket2_hdr>() + 15) & !15;

    /// Give `socket` a transmit ring; it can then only send through it.
    pub fn new(socket: &PacketSocket) -> io::Result<TransmitRing> {
        let bytes = Self::SLOTS * Self::SLOT_BYTES;
        let request = libc::tpacket_req {
            tp_block_size: Self::BLOCK_BYTES as u32,
            tp_block_nr: (bytes / Self::BLOCK_BYTES) as u32,
            tp_frame_size: Self::SLOT_BYTES as u32,
            tp_frame_nr: Self::SLOTS as u32,
        };
        set_option(socket.raw(), libc::SOL_PACKET, libc::PACKET_VERSION, &libc::tpacket_versions::TPACKET_V2)?;
        set_option(socket.raw(), libc::SOL_PACKET, libc::PACKET_TX_RING, &request)?;
        Ok(TransmitRing { ring: Mapping::new(socket.raw(), bytes)?, slot: 0, pending: 0 })
    }

    /// Queue one frame; the kernel is told at once, or with [`flush`](Self::flush) when `hold`.
    pub fn send(&mut self, socket: &PacketSocket, frame: &[u8], hold: bool) -> io::Result<()> {
        let at = self.slot * Self::SLOT_BYTES;
        const TAKEN: u32 = libc::TP_STATUS_SEND_REQUEST | libc::TP_STATUS_SENDING;
        while self.ring.status(at).load(Ordering::Acquire) & TAKEN != 0 {
            self.flush(socket)?;
        }
        let room = Self::SLOT_BYTES - Self::DATA;
        assert!(frame.len() <= room, "a frame fits its slot");
        // SAFETY: the slot is ours (status above), and the copy stays within it.
        unsafe {
            self.ring.base.add(at + Self::LENGTH).cast::<u32>().write(frame.len() as u32);
            std::ptr::copy_nonoverlapping(frame.as_ptr(), self.ring.base.add(at + Self::DATA), frame.len());
        }
        self.ring.status(at).store(libc::TP_STATUS_SEND_REQUEST, Ordering::Release);
        self.slot = (self.slot + 1) % Self::SLOTS;
        self.pending += 1;
        if hold && self.pending < Self::SLOTS / 16 { Ok(()) } else { self.flush(socket) }
    }

    pub fn flush(&mut self, socket: &PacketSocket) -> io::Result<()> {
        self.pending = 0;
        // SAFETY: no buffer is passed; the kernel reads the ring.
        let sent = unsafe { libc::send(socket.raw(), std::ptr::null(), 0, 0) };
        check(if sent < 0 { -1 } else { 0 }).map(drop)
    }
}
