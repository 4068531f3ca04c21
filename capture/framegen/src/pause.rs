//! `framegen pause`: asks the other end of the cable to stop sending, as IEEE 802.3 annex 31B says, and says when.
//!
//! The longest pause of one frame is 65535 quanta of 512 bit times, 33.5 ms at 1 Gbit/s: it is asked for again before it
//! is over, and taken back at the end.

use crate::host::Host;
use crate::job::PauseJob;
use crate::roles::Shared;
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

/// Time from one PAUSE frame to the next, ns.
pub fn every_ns(quanta: u16, link_mbit_s: f64) -> i64 {
    (AGAIN * f64::from(quanta) * QUANTUM_BITS as f64 * 1e3 / link_mbit_s).max(20_000.0) as i64
}

/// Pause the link partner for `seconds`, or until `stopped`.
pub fn pause(
    host: &Host,
    quanta: u16,
    link_mbit_s: f64,
    seconds: f64,
    stopped: impl Fn() -> bool,
) -> io::Result<Vec<Sent>> {
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
    let every = every_ns(quanta, link_mbit_s);
    let mut next = clock.now();
    while next < end && !stopped() {
        let ahead = next - clock.now();
        if ahead > 0 {
            std::thread::sleep(Duration::from_nanos(ahead.min(10_000_000) as u64));
            continue;
        }
        send(quanta, clock.now())?;
        next += every;
    }
    while clock.now() < end && !stopped() {
        std::thread::sleep(Duration::from_millis(1));
    }
    send(0, clock.now())?;
    Ok(sent)
}

/// The same within a job, from its start on; as a report tells it.
pub fn of_job(host: &Host, job: PauseJob, shared: &Shared) -> io::Result<Vec<i64>> {
    let mut clock = host.clock.clone();
    let mut begin = None;
    while !shared.stopped() {
        if shared.started() && clock.now() >= *begin.get_or_insert(clock.now() + (job.after_s * 1e9) as i64) {
            let sent = pause(host, job.quanta, job.link_mbit, job.seconds, || shared.stopped())?;
            let times = sent.iter().map(|sent| sent.time_ns);
            let before = std::iter::once(0).chain(times.clone());
            return Ok(times.zip(before).map(|(time, before)| time - before).collect());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(Vec::new())
}

/// Rows of `pauses.csv`: all frames but the last ask for `quanta`, the last takes the pause back.
pub fn rows(pauses_ns: &[i64], quanta: u16) -> String {
    let mut time_ns = 0i64;
    let last = pauses_ns.len().saturating_sub(1);
    let row = |(place, after): (usize, &i64)| {
        time_ns = time_ns.saturating_add(*after);
        format!("{time_ns},{}\n", if place == last { 0 } else { quanta })
    };
    pauses_ns.iter().enumerate().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::rows;

    #[test]
    fn the_last_frame_takes_the_pause_back() {
        assert_eq!(rows(&[1000, 10, 5], 7), "1000,7\n1010,7\n1015,0\n");
        assert_eq!(rows(&[], 7), "");
    }
}
