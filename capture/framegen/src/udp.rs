//! UDP over IPv4: the same frames behind 28 bytes more, sent by the kernel's stack to an address instead of a MAC.
//!
//! Frames are received by packet sockets as the raw ones are, so that their times are those of the interface, and a
//! bound socket that nobody reads keeps the kernel from answering "port unreachable". An IPv4 address is written as an
//! Ethernet address that no card has: 0E 55 (0F 55 for groups) and its four bytes.

use crate::frame::Mac;
use crate::socket::{check, set_option};
use std::ffi::CStr;
use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd};

/// Of both ends; below the range from which the kernel takes its own.
pub const PORT: u16 = 27719;
/// IPv4 without options (RFC 791) and UDP (RFC 768).
pub const HEADERS: usize = 28;
const PREFIX: u8 = 0x55;

pub fn address(ip: Ipv4Addr) -> Mac {
    let b = ip.octets();
    Mac([if ip.is_multicast() { 0x0F } else { 0x0E }, PREFIX, b[0], b[1], b[2], b[3]])
}

/// The IPv4 address that stands in an Ethernet address.
pub fn ip(mac: Mac) -> Option<Ipv4Addr> {
    let b = mac.0;
    (b[0] & 0xFE == 0x0E && b[1] == PREFIX).then(|| Ipv4Addr::new(b[2], b[3], b[4], b[5]))
}

/// Bytes that frames to an address have between Ethernet header and user data.
pub fn headers_to(mac: Mac) -> usize {
    if ip(mac).is_some() { HEADERS } else { 0 }
}

/// The Ethernet address to which a group's frames go (RFC 1112, section 6.4).
pub fn group_mac(group: Ipv4Addr) -> Mac {
    let b = group.octets();
    Mac([0x01, 0x00, 0x5E, b[1] & 0x7F, b[2], b[3]])
}

/// A socket that sends out of an interface, bound to a port (0: any).
pub fn socket(interface: u32, port: u16) -> io::Result<UdpSocket> {
    // SAFETY: creates a descriptor that the socket then owns.
    let socket = unsafe {
        UdpSocket::from_raw_fd(check(libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0))?)
    };
    let fd = socket.as_raw_fd();
    set_option(fd, libc::SOL_SOCKET, libc::SO_REUSEADDR, &1i32)?;
    set_option(fd, libc::SOL_SOCKET, libc::SO_BINDTOIFINDEX, &(interface as i32))?;
    let patience = libc::timeval { tv_sec: 0, tv_usec: 200_000 };
    set_option(fd, libc::SOL_SOCKET, libc::SO_SNDTIMEO, &patience)?;
    // SAFETY: all-zero is a valid sockaddr_in: any address.
    let mut any: libc::sockaddr_in = unsafe { std::mem::zeroed() };
    any.sin_family = libc::AF_INET as u16;
    any.sin_port = port.to_be();
    let length = std::mem::size_of_val(&any) as libc::socklen_t;
    // SAFETY: `any` is a sockaddr_in of `length` bytes.
    check(unsafe { libc::bind(fd, std::ptr::from_ref(&any).cast(), length) })?;
    Ok(socket)
}

/// Ask for a group's frames, as switches that watch IGMP want it.
pub fn join(socket: &UdpSocket, interface: u32, group: Ipv4Addr) -> io::Result<()> {
    let membership = libc::ip_mreqn {
        imr_multiaddr: libc::in_addr { s_addr: u32::from(group).to_be() },
        imr_address: libc::in_addr { s_addr: 0 },
        imr_ifindex: interface as i32,
    };
    set_option(socket.as_raw_fd(), libc::IPPROTO_IP, libc::IP_ADD_MEMBERSHIP, &membership)
}

/// The first IPv4 address of an interface.
pub fn address_of(interface: &str) -> io::Result<Option<Ipv4Addr>> {
    let mut list = std::ptr::null_mut();
    // SAFETY: the kernel's answer is a list that is freed below; names and addresses in it are valid until then.
    unsafe {
        check(libc::getifaddrs(&mut list))?;
        let (mut one, mut found) = (list, None);
        while !one.is_null() && found.is_none() {
            let (name, address) = (CStr::from_ptr((*one).ifa_name), (*one).ifa_addr);
            let is_ipv4 = !address.is_null() && i32::from((*address).sa_family) == libc::AF_INET;
            if is_ipv4 && name.to_bytes() == interface.as_bytes() {
                let inside = address.cast::<libc::sockaddr_in>().read_unaligned();
                found = Some(Ipv4Addr::from(u32::from_be(inside.sin_addr.s_addr)));
            }
            one = (*one).ifa_next;
        }
        libc::freeifaddrs(list);
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_they_are_written() {
        let (host, group) = (Ipv4Addr::new(10, 0, 0, 2), Ipv4Addr::new(239, 129, 71, 1));
        assert_eq!((ip(address(host)), ip(address(group))), (Some(host), Some(group)));
        assert!(address(group).is_multicast() && !address(host).is_multicast());
        assert_eq!("10.0.0.2".parse(), Ok(address(host)));
        assert_eq!(address(group).to_string(), "239.129.71.1");
        assert_eq!(ip(Mac([2, 0, 0, 0, 0, 1])), None);
        assert_eq!(group_mac(group), Mac([1, 0, 0x5E, 1, 71, 1]));
        assert_eq!(address_of("lo").expect("answers"), Some(Ipv4Addr::LOCALHOST));
    }
}
