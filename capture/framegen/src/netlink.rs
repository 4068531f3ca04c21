//! Which interfaces exist, what lies on top of what, and which of them the default route uses.
//!
//! Asked of the kernel by rtnetlink: /sys shows the interfaces of the namespace that mounted it, not always ours, and
//! /proc/net/route only the main table.

use crate::frame::Mac;
use crate::socket::check;
use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

const HEADER: usize = 16; // struct nlmsghdr
const IFLA_CARRIER_CHANGES: u16 = 35; // linux/if_link.h, since Linux 3.15

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    pub index: u32,
    pub name: String,
    /// ARPHRD_ETHER with a six-byte address.
    pub mac: Option<Mac>,
    pub mtu: u32,
    pub up: bool,
    pub carrier: bool,
    /// The bridge or bond it belongs to.
    master: Option<u32>,
    /// The interface it lies on (VLAN, macvlan), within this namespace.
    lower: Option<u32>,
    pub counters: Counters,
}

/// Interface counters, as ifconfig shows them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Counters {
    pub rx_packets: u64,
    pub tx_packets: u64,
    pub rx_errors: u64,
    pub tx_errors: u64,
    pub rx_dropped: u64,
    pub tx_dropped: u64,
    /// Came while the card had no buffer (rx_missed_errors, rx_fifo_errors, rx_over_errors).
    pub rx_missed: u64,
    /// Times the carrier came or went.
    pub carrier_changes: u32,
}

impl Counters {
    pub fn since(self, before: Counters) -> Counters {
        Counters {
            rx_packets: self.rx_packets.wrapping_sub(before.rx_packets),
            tx_packets: self.tx_packets.wrapping_sub(before.tx_packets),
            rx_errors: self.rx_errors.wrapping_sub(before.rx_errors),
            tx_errors: self.tx_errors.wrapping_sub(before.tx_errors),
            rx_dropped: self.rx_dropped.wrapping_sub(before.rx_dropped),
            tx_dropped: self.tx_dropped.wrapping_sub(before.tx_dropped),
            rx_missed: self.rx_missed.wrapping_sub(before.rx_missed),
            carrier_changes: self.carrier_changes.wrapping_sub(before.carrier_changes),
        }
    }
}

pub fn links() -> io::Result<Vec<Link>> {
    // struct ifinfomsg: 16 bytes.
    Ok(dump(libc::RTM_GETLINK, &[0; 16])?.iter().filter_map(|message| link(message)).collect())
}

/// Interfaces that carry a default route of IPv4 or IPv6, in any routing table, with all that lies under them.
pub fn default_route_interfaces(links: &[Link]) -> io::Result<BTreeSet<u32>> {
    let mut carriers = BTreeSet::new();
    for family in [libc::AF_INET, libc::AF_INET6] {
        // struct rtmsg: 12 bytes, the family first.
        let mut request = [0; 12];
        request[0] = family as u8;
        for message in dump(libc::RTM_GETROUTE, &request)? {
            carriers.extend(default_route(&message));
        }
    }
    grow(&mut carriers, links);
    Ok(carriers)
}

/// Add what lies under the interfaces of the set: ports of a bridge or bond, the carrier of a VLAN.
fn grow(carriers: &mut BTreeSet<u32>, links: &[Link]) {
    loop {
        let before = carriers.len();
        for link in links {
            if link.master.is_some_and(|master| carriers.contains(&master)) {
                carriers.insert(link.index);
            }
            if carriers.contains(&link.index) {
                carriers.extend(link.lower);
            }
        }
        if carriers.len() == before {
            return;
        }
    }
}

/// The payloads of all messages that answer a dump request.
fn dump(kind: u16, body: &[u8]) -> io::Result<Vec<Vec<u8>>> {
    // SAFETY: creates a descriptor that `OwnedFd` then owns.
    let fd = unsafe {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
        OwnedFd::from_raw_fd(check(libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_ROUTE))?)
    };
    let mut request = ((HEADER + body.len()) as u32).to_ne_bytes().to_vec();
    request.extend_from_slice(&kind.to_ne_bytes());
    request.extend_from_slice(&((libc::NLM_F_REQUEST | libc::NLM_F_DUMP) as u16).to_ne_bytes());
    request.extend_from_slice(&[0; 8]); // sequence, port
    request.extend_from_slice(body);
    // SAFETY: reads `request` only.
    let sent = unsafe { libc::send(fd.as_raw_fd(), request.as_ptr().cast(), request.len(), 0) };
    if sent < 0 {
        return Err(io::Error::last_os_error());
    }
    let mut messages = Vec::new();
    let mut buffer = vec![0u8; 64 << 10];
    loop {
        // SAFETY: writes at most the buffer's length.
        let got = unsafe { libc::recv(fd.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), 0) };
        if got < 0 {
            return Err(io::Error::last_os_error());
        }
        let mut rest = &buffer[..got as usize];
        while rest.len() >= HEADER {
            let length = u32::from_ne_bytes(rest[..4].try_into().expect("4 bytes")) as usize;
            if length < HEADER || length > rest.len() {
                return Err(io::Error::other("netlink: a message longer than what was received"));
            }
            match i32::from(u16::from_ne_bytes([rest[4], rest[5]])) {
                libc::NLMSG_DONE => return Ok(messages),
                libc::NLMSG_ERROR => {
                    return Err(io::Error::other("netlink: the kernel refused the question"));
                }
                _ => messages.push(rest[HEADER..length].to_vec()),
            }
            rest = &rest[rest.len().min(length.next_multiple_of(4))..];
        }
    }
}

/// Type and content of each attribute.
fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(u16::from_ne_bytes([*bytes.first()?, *bytes.get(1)?]));
        let content = bytes.get(4..length)?;
        let kind = u16::from_ne_bytes([bytes[2], bytes[3]]);
        bytes = &bytes[bytes.len().min(length.next_multiple_of(4))..];
        Some((kind & 0x3FFF, content))
    })
}

fn u32_of(content: &[u8]) -> Option<u32> {
    Some(u32::from_ne_bytes(content.get(..4)?.try_into().ok()?))
}

fn link(message: &[u8]) -> Option<Link> {
    let kind = u16::from_ne_bytes([*message.get(2)?, *message.get(3)?]);
    let flags = u32_of(message.get(8..)?)?;
    let mut link = Link {
        index: u32_of(message.get(4..)?)?,
        name: String::new(),
        mac: None,
        mtu: 0,
        up: flags & libc::IFF_UP as u32 != 0,
        // Not IFF_RUNNING: the kernel brings that up to date a second later.
        carrier: flags & libc::IFF_LOWER_UP as u32 != 0,
        master: None,
        lower: None,
        counters: Counters::default(),
    };
    let mut elsewhere = false;
    for (attribute, content) in attributes(message.get(16..)?) {
        match attribute {
            libc::IFLA_IFNAME => {
                link.name = String::from_utf8_lossy(content.strip_suffix(&[0]).unwrap_or(content)).into_owned();
            }
            libc::IFLA_ADDRESS if kind == libc::ARPHRD_ETHER => link.mac = content.try_into().ok().map(Mac),
            libc::IFLA_MTU => link.mtu = u32_of(content)?,
            libc::IFLA_MASTER => link.master = u32_of(content),
            libc::IFLA_LINK => link.lower = u32_of(content),
            libc::IFLA_LINK_NETNSID => elsewhere = true,
            libc::IFLA_STATS64 => {
                link.counters = Counters { carrier_changes: link.counters.carrier_changes, ..counters(content)? };
            }
            IFLA_CARRIER_CHANGES => link.counters.carrier_changes = u32_of(content)?,
            _ => {}
        }
    }
    if elsewhere {
        link.lower = None;
    }
    Some(link)
}

/// struct rtnl_link_stats64.
fn counters(content: &[u8]) -> Option<Counters> {
    let field = |n: usize| Some(u64::from_ne_bytes(content.get(n * 8..n * 8 + 8)?.try_into().ok()?));
    Some(Counters {
        rx_packets: field(0)?,
        tx_packets: field(1)?,
        rx_errors: field(4)?,
        tx_errors: field(5)?,
        rx_dropped: field(6)?,
        tx_dropped: field(7)?,
        rx_missed: field(11)? + field(14)? + field(15)?, // over, fifo, missed
        carrier_changes: 0,                              // an attribute of its own
    })
}

/// Outgoing interfaces of a route message (struct rtmsg), if it is a default route.
fn default_route(message: &[u8]) -> Vec<u32> {
    let (Some(&destination_bits), Some(&kind)) = (message.get(1), message.get(7)) else {
        return Vec::new();
    };
    if destination_bits != 0 || kind != libc::RTN_UNICAST {
        return Vec::new();
    }
    let mut out = Vec::new();
    for (attribute, content) in attributes(message.get(12..).unwrap_or_default()) {
        match attribute {
            libc::RTA_OIF => out.extend(u32_of(content)),
            libc::RTA_MULTIPATH => {
                // struct rtnexthop: length u16, flags u8, hops u8, interface i32, then attributes.
                let mut hops = content;
                while hops.len() >= 8 {
                    out.extend(u32_of(&hops[4..]));
                    let length = usize::from(u16::from_ne_bytes([hops[0], hops[1]]));
                    hops = &hops[hops.len().min(length.max(8).next_multiple_of(4))..];
                }
            }
            _ => {}
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(index: u32, master: Option<u32>, lower: Option<u32>) -> Link {
        let name = format!("if{index}");
        let counters = Counters::default();
        Link { index, name, mac: None, mtu: 1500, up: true, carrier: true, master, lower, counters }
    }

    #[test]
    fn loopback_is_found() {
        let links = links().expect("netlink answers");
        let loopback = links.iter().find(|link| link.name == "lo").expect("lo");
        assert_eq!((loopback.index, loopback.mac), (1, None));
    }

    #[test]
    fn default_routes_with_one_and_many_hops() {
        let route = |bits: u8, attributes: &[u8]| {
            let mut message = vec![2, bits, 0, 0, 254, 3, 0, libc::RTN_UNICAST, 0, 0, 0, 0];
            message.extend_from_slice(attributes);
            message
        };
        let attribute = |kind: u16, content: &[u8]| {
            let mut out = ((content.len() + 4) as u16).to_ne_bytes().to_vec();
            out.extend_from_slice(&kind.to_ne_bytes());
            out.extend_from_slice(content);
            out
        };
        let oif = attribute(libc::RTA_OIF, &7u32.to_ne_bytes());
        assert_eq!(default_route(&route(0, &oif)), [7]);
        assert!(default_route(&route(24, &oif)).is_empty());
        let hop = |index: u32| [&8u16.to_ne_bytes()[..], &[0, 0], &index.to_ne_bytes()].concat();
        let multipath = attribute(libc::RTA_MULTIPATH, &[hop(3), hop(4)].concat());
        assert_eq!(default_route(&route(0, &multipath)), [3, 4]);
    }

    #[test]
    fn what_lies_under_the_default_route_is_part_of_it() {
        // 5 is a VLAN on bridge 4 with ports 2 and 3; 6 is apart.
        let links = [link(2, Some(4), None), link(3, Some(4), None), link(4, None, None), link(5, None, Some(4))];
        let mut carriers = BTreeSet::from([5]);
        grow(&mut carriers, &links);
        assert_eq!(carriers, BTreeSet::from([2, 3, 4, 5]));
        let mut apart = BTreeSet::from([6]);
        grow(&mut apart, &links);
        assert_eq!(apart, BTreeSet::from([6]));
    }
}
