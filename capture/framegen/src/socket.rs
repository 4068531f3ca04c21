//! Packet sockets: opening, filtering, sending, receiving a batch.

use crate::clock::{Clock, Realtime};
use crate::frame::{ETHERNET_HEADER, ETHERTYPE, Framing, MAGIC, Mac, is_udp};
use crate::hardware::CardClock;
use crate::payload::MAX_USER;
use crate::udp;
use std::cell::{Cell, OnceCell};
use std::io;
use std::mem;
use std::net::UdpSocket;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// Room for the largest frame.
pub const MAX_FRAME: usize = ETHERNET_HEADER + udp::HEADERS + MAX_USER;
/// Frames taken from the kernel by one recvmmsg.
const BATCH: usize = 64;
/// Room for the control message of a timestamp, 64-bit words.
const CONTROL_WORDS: usize = 12;
const RECEIVE_BUFFER: libc::c_int = 16 << 20;
const PACKET_IGNORE_OUTGOING: libc::c_int = 23; // linux/if_packet.h, since Linux 4.20

/// Which of our frames a socket sees; everything else stays in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traffic {
    Control,
    Test,
    /// Whoever's frames: a switch.
    Everything,
}

pub struct PacketSocket {
    fd: OwnedFd,
    traffic: Traffic,
    interface: Cell<u32>,
    /// Made for the first frame that goes by UDP.
    udp: OnceCell<UdpSocket>,
}

pub fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

pub fn set_option<T>(fd: RawFd, level: libc::c_int, name: libc::c_int, value: &T) -> io::Result<()> {
    let length = mem::size_of::<T>() as libc::socklen_t;
    // SAFETY: `value` is a plain C structure of `length` bytes that outlives the call.
    check(unsafe { libc::setsockopt(fd, level, name, std::ptr::from_ref(value).cast(), length) }).map(drop)
}

impl PacketSocket {
    /// Open unbound, so that nothing arrives before filter and ring are in place; [`bind`](Self::bind) follows.
    pub fn new(traffic: Traffic) -> io::Result<PacketSocket> {
        // SAFETY: creates a descriptor that `OwnedFd` then owns.
        let fd = unsafe {
            let fd = check(libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0))?;
            OwnedFd::from_raw_fd(fd)
        };
        let socket = PacketSocket { fd, traffic, interface: Cell::new(0), udp: OnceCell::new() };
        if traffic != Traffic::Everything {
            socket.attach(&filter(traffic))?;
        }
        // FORCE needs CAP_NET_ADMIN; without it the system's limit applies.
        let size = RECEIVE_BUFFER;
        if set_option(socket.raw(), libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &size).is_err() {
            set_option(socket.raw(), libc::SOL_SOCKET, libc::SO_RCVBUF, &size)?;
        }
        // A card that stopped taking frames must not hold a sender for ever.
        let patience = libc::timeval { tv_sec: 0, tv_usec: 200_000 };
        set_option(socket.raw(), libc::SOL_SOCKET, libc::SO_SNDTIMEO, &patience)?;
        Ok(socket)
    }

    pub fn raw(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// Receive frames of this framing from an interface, or none (to send only).
    pub fn bind(&self, interface: u32, framing: Option<Framing>) -> io::Result<()> {
        match framing {
            Some(Framing::Udp) => self.attach(&udp_filter(self.traffic))?,
            Some(Framing::Length) => self.attach(&length_filter(self.traffic))?,
            _ => {}
        }
        let protocol = match framing {
            Some(Framing::Udp) => libc::ETH_P_IP as u16,
            Some(Framing::Length) => self.come_before()?,
            Some(Framing::Ethertype) => ETHERTYPE,
            None => 0,
        };
        self.bind_to(interface, protocol)
    }

    /// The protocol to bind to for frames with a length field. Linux's LLC, where it is loaded (bridges load it), copies
    /// each of them before sockets of 802.2 see it; sockets of all protocols come before it.
    fn come_before(&self) -> io::Result<u16> {
        set_option(self.raw(), libc::SOL_PACKET, PACKET_IGNORE_OUTGOING, &1i32)?;
        Ok(libc::ETH_P_ALL as u16)
    }

    fn bind_to(&self, interface: u32, protocol: u16) -> io::Result<()> {
        self.interface.set(interface);
        // SAFETY: all-zero is a valid sockaddr_ll.
        let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = protocol.to_be();
        address.sll_ifindex = interface as i32;
        let length = mem::size_of_val(&address) as libc::socklen_t;
        // SAFETY: `address` is a sockaddr_ll of `length` bytes.
        check(unsafe { libc::bind(self.raw(), std::ptr::from_ref(&address).cast(), length) }).map(drop)
    }

    /// Receive every frame that comes in at an interface, to whomever it is addressed, and none that goes out there.
    pub fn listen_to_all(&self, interface: u32) -> io::Result<()> {
        set_option(self.raw(), libc::SOL_PACKET, PACKET_IGNORE_OUTGOING, &1i32)?;
        self.overhear(interface)?;
        self.bind_to(interface, libc::ETH_P_ALL as u16)
    }

    /// Let the interface take frames for others, as long as this socket is open.
    pub fn overhear(&self, interface: u32) -> io::Result<()> {
        let membership = libc::packet_mreq {
            mr_ifindex: interface as i32,
            mr_type: libc::PACKET_MR_PROMISC as u16,
            mr_alen: 0,
            mr_address: [0; 8],
        };
        set_option(self.raw(), libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &membership)
    }

    fn attach(&self, program: &[libc::sock_filter]) -> io::Result<()> {
        let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_ptr().cast_mut() };
        set_option(self.raw(), libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)
    }

    pub fn join(&self, interface: u32, group: Mac) -> io::Result<()> {
        self.interface.set(interface);
        let group = match udp::ip(group) {
            Some(ip) => {
                udp::join(self.by_udp()?, interface, ip)?;
                udp::group_mac(ip)
            }
            None => group,
        };
        let mut address = [0u8; 8];
        address[..6].copy_from_slice(&group.0);
        let membership = libc::packet_mreq {
            mr_ifindex: interface as i32,
            mr_type: libc::PACKET_MR_MULTICAST as u16,
            mr_alen: 6,
            mr_address: address,
        };
        set_option(self.raw(), libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &membership)
    }

    pub fn timestamps(&self) -> io::Result<()> {
        set_option(self.raw(), libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, &1i32)
    }

    fn by_udp(&self) -> io::Result<&UdpSocket> {
        if self.udp.get().is_none() {
            let _ = self.udp.set(udp::socket(self.interface.get(), 0)?);
        }
        Ok(self.udp.get().expect("just set"))
    }

    /// Send a frame: of ours by UDP where it is one, as it is where others' frames are passed on.
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        if self.traffic != Traffic::Everything && is_udp(frame) {
            let to = Mac(frame[..6].try_into().expect("6 bytes"));
            let ip = udp::ip(to).ok_or_else(|| io::Error::other(format!("{to} is no IPv4 address")))?;
            return self.by_udp()?.send_to(&frame[ETHERNET_HEADER..], (ip, udp::PORT)).map(drop);
        }
        // SAFETY: reads `frame` only.
        let sent = unsafe { libc::send(self.raw(), frame.as_ptr().cast(), frame.len(), 0) };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Frames the kernel dropped because this socket was full, since the last call.
    pub fn drops(&self) -> io::Result<u64> {
        // tpacket_stats_v3 begins as tpacket_stats does, and the kernel writes what the ring's version has.
        let mut statistics = [0u32; 3];
        let mut length = mem::size_of_val(&statistics) as libc::socklen_t;
        // SAFETY: the kernel writes at most `length` bytes.
        check(unsafe {
            let place = statistics.as_mut_ptr().cast();
            libc::getsockopt(self.raw(), libc::SOL_PACKET, libc::PACKET_STATISTICS, place, &mut length)
        })?;
        Ok(u64::from(statistics[1]))
    }
}

/// The kernel may take the next frame.
pub fn is_passing(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOBUFS | libc::EAGAIN | libc::EINTR | libc::ENETDOWN))
}

/// Wait until one of `fds` has something to read, or a signal came. A socket's own error (the link went down) is one here.
pub fn wait_readable(fds: &[RawFd], timeout: Duration) -> io::Result<()> {
    let mut polls: Vec<libc::pollfd> =
        fds.iter().map(|&fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 }).collect();
    // SAFETY: `polls` is a valid array of its length.
    let ready = unsafe { libc::poll(polls.as_mut_ptr(), polls.len() as libc::nfds_t, timeout.as_millis() as i32) };
    match check(ready) {
        Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
        _ => {}
    }
    polls.iter().filter(|poll| poll.revents & libc::POLLERR != 0).try_for_each(|poll| take_error(poll.fd))
}

/// The error waiting at a socket, taken from it.
fn take_error(fd: RawFd) -> io::Result<()> {
    let mut error: libc::c_int = 0;
    let mut length = mem::size_of_val(&error) as libc::socklen_t;
    let place = std::ptr::from_mut(&mut error).cast();
    // SAFETY: the kernel writes at most `length` bytes.
    check(unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_ERROR, place, &mut length) })?;
    if error == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(error)) }
}

/// A batch of frames with the kernel's timestamps, or the card's.
pub struct Batch {
    card: Option<CardClock>,
    /// Frames without a stamp, timed by this program when it saw them.
    pub unstamped: u64,
    buffers: Box<[[u8; MAX_FRAME]]>,
    controls: Box<[[u64; CONTROL_WORDS]; BATCH]>,
}

impl Default for Batch {
    fn default() -> Self {
        Batch {
            card: None,
            unstamped: 0,
            buffers: vec![[0; MAX_FRAME]; BATCH].into_boxed_slice(),
            controls: Box::new([[0; CONTROL_WORDS]; BATCH]),
        }
    }
}

impl Batch {
    pub fn with_card(card: CardClock) -> Batch {
        Batch { card: Some(card), ..Batch::default() }
    }

    /// Take what is there and give each frame, with its time, to `each`. Returns how many there were.
    pub fn receive(
        &mut self,
        socket: &PacketSocket,
        clock: &mut Clock,
        mut each: impl FnMut(&[u8], i64),
    ) -> io::Result<usize> {
        // SAFETY: all-zero is valid for these structures.
        let mut vectors: [libc::iovec; BATCH] = unsafe { mem::zeroed() };
        let mut messages: [libc::mmsghdr; BATCH] = unsafe { mem::zeroed() };
        for i in 0..BATCH {
            vectors[i] = libc::iovec { iov_base: self.buffers[i].as_mut_ptr().cast(), iov_len: MAX_FRAME };
            messages[i].msg_hdr.msg_iov = &mut vectors[i];
            messages[i].msg_hdr.msg_iovlen = 1;
            messages[i].msg_hdr.msg_control = self.controls[i].as_mut_ptr().cast();
            messages[i].msg_hdr.msg_controllen = mem::size_of_val(&self.controls[i]) as _;
        }
        let (count, flags) = (BATCH as u32, libc::MSG_DONTWAIT);
        // SAFETY: every message points at buffers that live until the end of this function.
        let got =
            unsafe { libc::recvmmsg(socket.raw(), messages.as_mut_ptr(), count, flags as _, std::ptr::null_mut()) };
        if got < 0 {
            return match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
                error if error.kind() == io::ErrorKind::Interrupted => Ok(0),
                error => Err(error),
            };
        }
        let conversion = Realtime::read();
        for (i, message) in messages[..got as usize].iter().enumerate() {
            let stamp = stamp_of(&message.msg_hdr);
            let realtime = match (&mut self.card, stamp) {
                (Some(card), Some(stamp)) => Some(card.to_realtime(stamp, clock.now())?),
                (_, stamp) => stamp,
            };
            let time = match realtime {
                Some(realtime) => clock.of_kernel(conversion, realtime),
                None => {
                    self.unstamped += 1;
                    clock.now()
                }
            };
            each(&self.buffers[i][..message.msg_len as usize], time);
        }
        Ok(got as usize)
    }
}

/// The stamp of a received message, ns: CLOCK_REALTIME (SCM_TIMESTAMPNS) or the card's clock (the third time of
/// SCM_TIMESTAMPING, 0 where there is none).
fn stamp_of(message: &libc::msghdr) -> Option<i64> {
    // SAFETY: the kernel filled in the control buffer and its length; the macros stay within it.
    unsafe {
        let mut control = libc::CMSG_FIRSTHDR(message);
        while !control.is_null() {
            let times = libc::CMSG_DATA(control).cast::<libc::timespec>();
            let index = match ((*control).cmsg_level, (*control).cmsg_type) {
                (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => Some(0),
                (libc::SOL_SOCKET, libc::SCM_TIMESTAMPING) => Some(2),
                _ => None,
            };
            if let Some(index) = index {
                let time = times.add(index).read_unaligned();
                #[allow(clippy::useless_conversion)] // 32-bit hosts
                let ns = i64::from(time.tv_sec) * 1_000_000_000 + i64::from(time.tv_nsec);
                return (ns != 0).then_some(ns);
            }
            control = libc::CMSG_NXTHDR(message, control);
        }
    }
    None
}

/// Classic BPF: the magic, then the type byte against the first type of test traffic.
fn filter(traffic: Traffic) -> [libc::sock_filter; 6] {
    const LOAD_WORD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const LOAD_BYTE: u16 = (libc::BPF_LD | libc::BPF_B | libc::BPF_ABS) as u16;
    const EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const AT_LEAST: u16 = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let (at_least, below) = if traffic == Traffic::Test { (0, 1) } else { (1, 0) };
    [
        step(LOAD_WORD, 0, 0, ETHERNET_HEADER as u32),
        step(EQUAL, 0, 3, u32::from_be_bytes(MAGIC)),
        step(LOAD_BYTE, 0, 0, ETHERNET_HEADER as u32 + 5),
        step(AT_LEAST, at_least, below, 16),
        step(RETURN, 0, 0, u32::MAX),
        step(RETURN, 0, 0, 0),
    ]
}

/// The same behind a length field: an EtherType is at least 0x600.
fn length_filter(traffic: Traffic) -> [libc::sock_filter; 8] {
    const LOAD_HALF: u16 = (libc::BPF_LD | libc::BPF_H | libc::BPF_ABS) as u16;
    const AT_LEAST: u16 = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let [magic, is_ours, kind, which, take, leave] = filter(traffic);
    let field = step(LOAD_HALF, 0, 0, ETHERNET_HEADER as u32 - 2);
    [field, step(AT_LEAST, 5, 0, 0x600), magic, is_ours, kind, which, take, leave]
}

/// The same behind IPv4 without options, unfragmented, and UDP to our port.
fn udp_filter(traffic: Traffic) -> [libc::sock_filter; 14] {
    const LOAD: u16 = (libc::BPF_LD | libc::BPF_ABS) as u16;
    const JUMP: u16 = (libc::BPF_JMP | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let (byte, half, word) = (LOAD | libc::BPF_B as u16, LOAD | libc::BPF_H as u16, LOAD | libc::BPF_W as u16);
    let (equal, at_least, any) =
        (JUMP | libc::BPF_JEQ as u16, JUMP | libc::BPF_JGE as u16, JUMP | libc::BPF_JSET as u16);
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let user = (ETHERNET_HEADER + udp::HEADERS) as u32;
    let (test, control) = if traffic == Traffic::Test { (0, 1) } else { (1, 0) };
    [
        step(byte, 0, 0, 14), // version and length of the header
        step(equal, 0, 11, 0x45),
        step(byte, 0, 0, 23), // protocol
        step(equal, 0, 9, libc::IPPROTO_UDP as u32),
        step(half, 0, 0, 20), // more fragments, or not the first
        step(any, 7, 0, 0x3FFF),
        step(half, 0, 0, 36), // destination port
        step(equal, 0, 5, u32::from(udp::PORT)),
        step(word, 0, 0, user),
        step(equal, 0, 3, u32::from_be_bytes(MAGIC)),
        step(byte, 0, 0, user + 5),
        step(at_least, test, control, 16),
        step(RETURN, 0, 0, u32::MAX),
        step(RETURN, 0, 0, 0),
    ]
}
