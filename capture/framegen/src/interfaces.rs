//! What the interfaces of this host are good for.

use crate::netlink::{default_route_interfaces, links};
use crate::socket::{PacketSocket, Traffic, check};
use serde::Serialize;
use std::ffi::{CStr, c_char};
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

#[derive(Clone, Debug, Serialize)]
pub struct Interface {
    pub name: String,
    pub index: u32,
    pub mac: Option<crate::frame::Mac>,
    pub mtu: u32,
    pub up: bool,
    pub carrier: bool,
    pub speed_mbit_s: Option<u32>,
    pub ethernet: bool,
    pub default_route: bool,
    pub driver: Option<String>,
    pub timestamping: Option<Timestamping>,
    pub raw_frames: bool,
    pub usable: bool,
    pub why: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Timestamping {
    pub software_receive: bool,
    pub hardware_receive: bool,
    pub hardware_transmit: bool,
    /// Number of the card's clock (/dev/ptpN).
    pub phc: Option<u32>,
}

pub fn interfaces() -> io::Result<Vec<Interface>> {
    let links = links()?;
    let carriers = default_route_interfaces(&links)?;
    let raw = PacketSocket::new(Traffic::Control);
    let query = Query::new()?;
    let describe = |link: &crate::netlink::Link| {
        let default_route = carriers.contains(&link.index);
        let obstacle = if link.mac.is_none() {
            Some("not an Ethernet interface".to_owned())
        } else if let Err(error) = &raw {
            Some(format!("raw frames are not allowed ({error}); run as root or `setcap cap_net_raw+ep` on framegen"))
        } else if !link.up {
            Some("down".to_owned())
        } else if !link.carrier {
            Some("no carrier".to_owned())
        } else if default_route {
            Some("carries the default route: only with --allow-default-route".to_owned())
        } else {
            None
        };
        Interface {
            name: link.name.clone(),
            index: link.index,
            mac: link.mac,
            mtu: link.mtu,
            up: link.up,
            carrier: link.carrier,
            speed_mbit_s: query.speed(&link.name),
            ethernet: link.mac.is_some(),
            default_route,
            driver: query.driver(&link.name),
            timestamping: query.timestamping(&link.name),
            raw_frames: raw.is_ok() && link.mac.is_some(),
            usable: obstacle.is_none(),
            why: obstacle.unwrap_or_else(|| "can send and receive test frames".into()),
        }
    };
    Ok(links.iter().map(describe).collect())
}

// linux/ethtool.h; the structures have been frozen since they were published.
const ETHTOOL_GSET: u32 = 0x01;
const ETHTOOL_GDRVINFO: u32 = 0x03;
const ETHTOOL_GSTRINGS: u32 = 0x1b;
const ETHTOOL_GSTATS: u32 = 0x1d;
/// Drivers have hundreds; more is no answer.
const MAX_STATISTICS: usize = 10_000;
const ETHTOOL_GET_TS_INFO: u32 = 0x41;
const SIOCETHTOOL: libc::c_ulong = 0x8946;
const RX_SOFTWARE: u32 = 1 << 3;
const TX_HARDWARE: u32 = 1 << 0;
const RX_HARDWARE: u32 = 1 << 2;

#[repr(C)]
struct Request {
    name: [c_char; libc::IFNAMSIZ],
    data: *mut u32,
    padding: [u8; 16],
}

/// Questions about interfaces, by ioctl.
pub struct Query {
    socket: OwnedFd,
}

impl Query {
    pub fn new() -> io::Result<Query> {
        // SAFETY: creates a descriptor that `OwnedFd` then owns.
        let socket = unsafe {
            OwnedFd::from_raw_fd(check(libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0))?)
        };
        Ok(Query { socket })
    }

    /// The answer to an ethtool command: `words` 32-bit words, of which the first is the command.
    fn ask<const WORDS: usize>(&self, name: &str, command: u32) -> Option<[u32; WORDS]> {
        let mut answer = [0u32; WORDS];
        answer[0] = command;
        self.request(name, SIOCETHTOOL, &mut answer).ok()?;
        Some(answer)
    }

    /// An interface request whose data is the whole structure that `code` reads and writes.
    pub fn request(&self, name: &str, code: libc::c_ulong, data: &mut [u32]) -> io::Result<()> {
        let mut request = Request { name: [0; libc::IFNAMSIZ], data: data.as_mut_ptr(), padding: [0; 16] };
        for (place, byte) in request.name[..libc::IFNAMSIZ - 1].iter_mut().zip(name.bytes()) {
            *place = byte as c_char;
        }
        // SAFETY: a struct ifreq whose data points at the whole structure.
        check(unsafe { libc::ioctl(self.socket.as_raw_fd(), code as _, &mut request) }).map(drop)
    }

    /// Mbit/s, where the card knows.
    fn speed(&self, name: &str) -> Option<u32> {
        // struct ethtool_cmd: 44 bytes; speed is a u16 at 12, its upper half one at 28.
        let answer: [u32; 11] = self.ask(name, ETHTOOL_GSET)?;
        let bytes: Vec<u8> = answer.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let half = |at: usize| u32::from(u16::from_ne_bytes([bytes[at], bytes[at + 1]]));
        let speed = half(28) << 16 | half(12);
        (speed != 0 && speed != 0xFFFF && speed != u32::MAX).then_some(speed)
    }

    fn driver(&self, name: &str) -> Option<String> {
        // struct ethtool_drvinfo: 196 bytes; the driver's name is 32 characters at 4.
        let answer: [u32; 49] = self.ask(name, ETHTOOL_GDRVINFO)?;
        let bytes: Vec<u8> = answer[1..9].iter().flat_map(|word| word.to_ne_bytes()).collect();
        Some(CStr::from_bytes_until_nul(&bytes).ok()?.to_string_lossy().into_owned())
    }

    /// What the driver counts (`ethtool -S`); None where it counts nothing.
    pub fn statistics(&self, name: &str) -> Option<Vec<(String, serde_json::Value)>> {
        // struct ethtool_drvinfo: the number of counters is the word at 180.
        let information: [u32; 49] = self.ask(name, ETHTOOL_GDRVINFO)?;
        let count = information[45] as usize;
        if count == 0 || count > MAX_STATISTICS {
            return None;
        }
        // struct ethtool_gstrings: command, set (1: statistics), length, then names of 32 bytes.
        let mut names = vec![0u32; 3 + count * 8];
        names[..3].copy_from_slice(&[ETHTOOL_GSTRINGS, 1, count as u32]);
        self.request(name, SIOCETHTOOL, &mut names).ok()?;
        // struct ethtool_stats: command, number, then counters of 64 bits.
        let mut values = vec![0u32; 2 + count * 2];
        values[..2].copy_from_slice(&[ETHTOOL_GSTATS, count as u32]);
        self.request(name, SIOCETHTOOL, &mut values).ok()?;
        let bytes: Vec<u8> = names[3..].iter().flat_map(|word| word.to_ne_bytes()).collect();
        let label = |raw: &[u8]| {
            let text = String::from_utf8_lossy(raw.split(|&byte| byte == 0).next().unwrap_or_default());
            text.trim().to_owned()
        };
        let value = |pair: &[u32]| {
            let [a, b] = [pair[0].to_ne_bytes(), pair[1].to_ne_bytes()];
            u64::from_ne_bytes([a[0], a[1], a[2], a[3], b[0], b[1], b[2], b[3]])
        };
        Some(bytes.chunks(32).map(label).zip(values[2..].chunks(2).map(|pair| value(pair).into())).collect())
    }

    pub fn timestamping(&self, name: &str) -> Option<Timestamping> {
        // struct ethtool_ts_info: command, capabilities, clock, transmit types, 3 reserved, filters, 3 reserved.
        let answer: [u32; 11] = self.ask(name, ETHTOOL_GET_TS_INFO)?;
        Some(Timestamping {
            software_receive: answer[1] & RX_SOFTWARE != 0,
            hardware_receive: answer[1] & RX_HARDWARE != 0,
            hardware_transmit: answer[1] & TX_HARDWARE != 0,
            phc: u32::try_from(answer[2] as i32).ok(),
        })
    }
}

const _: () = assert!(mem::size_of::<Request>() >= 32 && mem::offset_of!(Request, data) == 16);
