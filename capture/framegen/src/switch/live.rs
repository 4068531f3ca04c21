//! Real frames through the switch: a packet socket a port, one thread that spins while frames are on their way.

use super::fabric::{Arrived, Departure, Fabric};
use super::parcel::{PREAMBLE, Parcel, pause_frame};
use super::plan::SwitchPlan;
use super::truth::{Action, Reason, Row, Truth};
use super::{PS_PER_NS, Ps, duration};
use crate::clock::Clock;
use crate::control::ClockError;
use crate::frame::Mac;
use crate::job::Limits;
use crate::netlink::Link;
use crate::signals;
use crate::socket::{Batch, PacketSocket, Traffic, wait_readable};
use serde::Serialize;
use std::io;
use std::path::Path;
use std::time::Duration;

/// Closer than this to the next departure it does not sleep.
const SPIN_NS: i64 = 2_000_000;
const IDLE: Duration = Duration::from_millis(20);

#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Passed {
    pub received: u64,
    pub sent: u64,
    /// The interface would not take these.
    pub refused: u64,
}

pub struct Live {
    sockets: Vec<PacketSocket>,
    rates: Vec<f64>,
    fabric: Fabric<Vec<u8>>,
    clock: Clock,
    origin_ns: i64,
    /// The truth is told up to here: what the kernel saw earlier counts as of now.
    told: Ps,
    limits: Limits,
    passed: Passed,
}

fn pause_content(quanta: u16) -> Vec<u8> {
    pause_frame(Mac([0x02, 0, 0, 0x46, 0x47, 0]), quanta)
}

impl Live {
    /// Open the ports. From here on what comes in waits in their sockets.
    pub fn open(plan: &SwitchPlan, links: &[Link], limits: Limits, folder: Option<&Path>) -> io::Result<Live> {
        let mut clock = Clock::calibrate(ClockError::default());
        let origin_ns = clock.now();
        let mut sockets = Vec::new();
        for link in links {
            let socket = PacketSocket::new(Traffic::Everything)?;
            socket.timestamps()?;
            socket.listen_to_all(link.index)?;
            sockets.push(socket);
        }
        let truth = Truth::create(folder.map(|folder| folder.join("switch.csv")).as_deref(), origin_ns)?;
        let fabric_plan = plan.switch.clone().unwrap_or_default();
        let fabric = Fabric::new(&fabric_plan, &plan.ports, plan.seed, truth, pause_content);
        let rates = plan.ports.iter().map(|port| port.rate_mbit_s).collect();
        Ok(Live { sockets, rates, fabric, clock, origin_ns, told: 0, limits, passed: Passed::default() })
    }

    fn now(&mut self) -> i64 {
        (self.clock.now() - self.origin_ns) * PS_PER_NS
    }

    /// Until a signal, the time or the limits of frames end it; what waits in the switch then is lost.
    pub fn run(mut self, seconds: f64) -> io::Result<Passed> {
        let descriptors: Vec<_> = self.sockets.iter().map(PacketSocket::raw).collect();
        let end = (seconds * 1e12) as i64;
        let mut batch = Batch::default();
        loop {
            let now = self.now();
            if signals::stop_requested() || now >= end || self.passed.sent >= self.limits.max_frames {
                self.fabric.truth.end()?;
                return Ok(self.passed);
            }
            let came = self.take(&mut batch)?;
            let now = self.now();
            let mut leaving = Vec::new();
            self.fabric.advance(now, |departure| leaving.push(departure));
            leaving.into_iter().for_each(|departure| self.send(&departure));
            self.told = now;
            self.fabric.truth.advance(now)?;
            let wait = match self.fabric.next_time() {
                Some(next) if next - now < SPIN_NS * PS_PER_NS => Duration::ZERO,
                Some(next) => IDLE.min(Duration::from_nanos(((next - now) / PS_PER_NS - SPIN_NS / 2) as u64)),
                None => IDLE,
            };
            if came == 0 && !wait.is_zero() {
                // A link that went down may come back.
                let _ = wait_readable(&descriptors, wait);
            }
        }
    }

    fn take(&mut self, batch: &mut Batch) -> io::Result<usize> {
        let mut came: Vec<(usize, Vec<u8>, i64)> = Vec::new();
        for (port, socket) in self.sockets.iter().enumerate() {
            let got = batch.receive(socket, &mut self.clock, |bytes, time| came.push((port, bytes.to_vec(), time)));
            if let Err(error) = got
                && error.raw_os_error() != Some(libc::ENETDOWN)
            {
                return Err(error);
            }
        }
        // In the order in which the kernel saw them, whatever the port.
        came.sort_by_key(|frame| frame.2);
        let count = came.len();
        for (port, bytes, time) in came {
            let Some(parcel) = Parcel::read(&bytes) else {
                continue;
            };
            self.passed.received += 1;
            let last = ((time - self.origin_ns) * PS_PER_NS).max(self.told);
            let first = last - duration(PREAMBLE + parcel.frame_bytes(), self.rates[port]);
            let mut leaving = Vec::new();
            self.fabric.advance(last, |departure| leaving.push(departure));
            leaving.into_iter().for_each(|departure| self.send(&departure));
            self.fabric.arrive(last, Arrived { parcel, port, first, last });
        }
        Ok(count)
    }

    fn send(&mut self, departure: &Departure<Vec<u8>>) {
        match self.sockets[departure.port].send(&departure.parcel.content) {
            Ok(()) => self.passed.sent += 1,
            Err(_) => {
                self.passed.refused += 1;
                self.fabric.truth.add(Row {
                    time: departure.first,
                    port_in: None,
                    port_out: Some(departure.port),
                    action: Action::Drop,
                    reason: Reason::Refused,
                    tag: departure.parcel.tag,
                    arrival: None,
                });
            }
        }
    }
}
