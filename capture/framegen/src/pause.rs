//! `framegen pause`: asks the other end of the cable to stop sending, as IEEE 802.3 annex 31B says, and says when.
//!
//! The longest pause of one frame is 65535 quanta of 512 bit times, 33.5 ms at 1 Gbit/s: it is asked for again before it
//! is over, and taken back at the end.

use crate::host::Host;
use crate::signals;
use crate::socket::{PacketSocket, Traffic};
use crate::switch::parcel::{QUANTUM_BITS, pause_frame};
use std::io;
use std::time::Duration;

/// A PAUSE frame that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    pub time_ns: i64,
    pub quanta: u16,
}

/// Share of a pause after which the next is asked for.
const AGAIN: f64 = 0.8;

/// Pause the link partner for `seconds`, or until a signal.
pub fn pause(host: &Host, quanta: u16, link_mbit_s: f64, seconds: f64) -> io::Result<Vec<Sent>> {
    let socket = PacketSocket::new(Traffic::Test)?;
    socket.bind(host.interface, None)?;
    let mut clock = host.clock.clone();
    let mut sent = Vec::new();
    let mut send = |quanta: u16, time_ns: i64| {
        socket.send(&pause_frame(host.mac, quanta))?;
        sent.push(Sent { time_ns, quanta });
        Ok::<(), io::Error>(())
    };
    let end = clock.now() + (seconds * 1e9) as i64;
    let every = (AGAIN * f64::from(quanta) * QUANTUM_BITS as f64 * 1e3 / link_mbit_s).max(20_000.0) as i64;
    let mut next = clock.now();
    while next < end && !signals::stop_requested() {
        let ahead = next - clock.now();
        if ahead > 0 {
            std::thread::sleep(Duration::from_nanos(ahead.min(10_000_000) as u64));
            continue;
        }
        send(quanta, clock.now())?;
        next += every;
    }
    while clock.now() < end && !signals::stop_requested() {
        std::thread::sleep(Duration::from_millis(1));
    }
    send(0, clock.now())?;
    Ok(sent)
}
