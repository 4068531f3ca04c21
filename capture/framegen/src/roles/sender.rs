//! Sends one stream: waits for each frame's time, stamps it, hands it to the kernel.

use super::{Refusals, Shared};
use crate::clock::Clock;
use crate::frame::{ETHERNET_HEADER, HEADER, Header, Kind, build, ethernet_header, wire_bytes};
use crate::host::{Host, Role, involuntary_switches};
use crate::job::{Job, SendJob, Sent, Transmit};
use crate::log::{LogWriter, Record};
use crate::pacing::{Ceiling, Pacer, Schedule};
use crate::payload::{Pattern, mark};
use crate::ring::TransmitRing;
use crate::sendbatch::SendBatch;
use crate::socket::PacketSocket;
use std::io;
use std::sync::atomic::Ordering;
use std::time::Duration;

const MARK_SPACING_NS: i64 = 1_000_000;
/// From the start to the first frame: time for the last preparations.
const LEAD_NS: i64 = 100_000;
/// Beyond this a wait sleeps first; it then spins for the last millisecond.
const SLEEP_NS: i64 = 3_000_000;

/// The way a frame takes into the kernel.
pub enum Transmitter {
    Send(PacketSocket),
    Batch(PacketSocket, SendBatch),
    Ring(PacketSocket, TransmitRing),
}

impl Transmitter {
    pub fn open(host: &Host, transmit: Transmit) -> io::Result<Transmitter> {
        let socket = PacketSocket::new(crate::socket::Traffic::Test)?;
        let ring = (transmit == Transmit::Ring).then(|| TransmitRing::new(&socket)).transpose()?;
        socket.bind(host.interface, None)?;
        Ok(match (ring, transmit) {
            (Some(ring), _) => Transmitter::Ring(socket, ring),
            (None, Transmit::Batch) => Transmitter::Batch(socket, SendBatch::default()),
            (None, _) => Transmitter::Send(socket),
        })
    }

    fn send(&mut self, frame: &[u8], hold: bool) -> io::Result<()> {
        match self {
            Transmitter::Send(socket) => socket.send(frame),
            Transmitter::Batch(socket, batch) => batch.send(socket.raw(), frame, hold),
            Transmitter::Ring(socket, ring) => ring.send(socket, frame, hold),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Transmitter::Send(_) => Ok(()),
            Transmitter::Batch(socket, batch) => batch.flush(socket.raw()),
            Transmitter::Ring(socket, ring) => ring.flush(socket),
        }
    }
}

pub struct Sender {
    pub host: Host,
    pub job: Job,
    pub send: SendJob,
    pub times_ns: std::sync::Arc<[f64]>,
    pub transmitter: Transmitter,
    pub log: LogWriter,
}

impl Sender {
    /// Send until the plan is done, the time is up or `shared` says stop.
    pub fn run(mut self, shared: &Shared) -> Sent {
        let mut sent = Sent { stream: self.send.stream, ..Sent::default() };
        let before = involuntary_switches();
        match self.host.settle(Role::Send) {
            Ok(()) => {
                while !shared.started() && !shared.stopped() {
                    std::thread::sleep(Duration::from_micros(200));
                }
                let mut clock = self.host.clock.clone();
                self.marks(&mut clock, shared);
                self.frames(&mut clock, shared, &mut sent);
                self.marks(&mut clock, shared);
            }
            Err(error) => shared.fail(error.to_string()),
        }
        shared.switches.fetch_add(involuntary_switches() - before, Ordering::Relaxed);
        shared.finish();
        sent
    }

    fn header(&self, kind: Kind) -> Header {
        Header {
            kind,
            flags: 0,
            test: self.job.test,
            stream: self.send.stream,
            node: self.job.node,
            sequence: 0,
            send_ns: 0,
            length: self.send.length,
            response: 0,
        }
    }

    fn marks(&mut self, clock: &mut Clock, shared: &Shared) {
        let payload = mark(usize::from(self.send.length) - HEADER);
        for sequence in 0..self.send.marks {
            let next = clock.now() + MARK_SPACING_NS;
            let now = pause(clock, next, shared);
            let header = Header { sequence, send_ns: now, ..self.header(Kind::Mark) };
            let frame = build(self.send.destination, self.host.mac, self.job.framing, &header, &payload);
            if shared.stopped() {
                return;
            }
            if let Err(error) = self.transmitter.send(&frame, false) {
                shared.fail(format!("MARK frame {sequence}: {}", self.host.refusal(&error)));
            }
        }
        if self.send.marks > 0 {
            let next = clock.now() + MARK_SPACING_NS;
            pause(clock, next, shared);
        }
    }

    fn frames(&mut self, clock: &mut Clock, shared: &Shared, sent: &mut Sent) {
        let send = &self.send;
        let user = usize::from(send.length);
        let pattern = Pattern::new(self.job.payload, self.job.test);
        let mut header = self.header(Kind::Data);
        let mut frame = ethernet_header(send.destination, self.host.mac, self.job.framing, user).to_vec();
        frame.resize(ETHERNET_HEADER + user, 0);

        let schedule = Schedule::new(send.arrivals, send.spacing_ns, send.seed, send.burst, self.times_ns.clone());
        let start = clock.now() + LEAD_NS;
        let mut pacer = Pacer::new(schedule, send.late, start);
        let mut ceiling = Ceiling::new(send.max_rate_mbit);
        let end = start + (self.job.max_seconds * 1e9) as i64;
        let asked_end = send.seconds.map(|seconds| start + (seconds * 1e9) as i64);
        let unpaced = send.spacing_ns == 0.0;
        let mut refusals = Refusals::default();

        loop {
            let left = send.planned - header.sequence - pacer.skipped;
            pacer.skip_missed(clock.now(), left.saturating_sub(1));
            if header.sequence + pacer.skipped >= send.planned {
                break;
            }
            let deadline = pacer.deadline();
            let earliest = deadline.max(ceiling.not_before());
            if asked_end.is_some_and(|end| earliest >= end) {
                break;
            }
            if earliest >= end {
                shared.fail("the limit of time (--max-seconds) came before the last frame".into());
                break;
            }
            frame[ETHERNET_HEADER + HEADER..].copy_from_slice(pattern.of(header.sequence, user - HEADER));
            let now = pause(clock, earliest, shared);
            if shared.stopped() || asked_end.is_some_and(|end| now >= end) {
                break;
            }
            header.send_ns = now;
            header.write(&mut frame[ETHERNET_HEADER..]);
            match self.transmitter.send(&frame, unpaced) {
                Ok(()) => {
                    refusals.over();
                    sent.sent += 1;
                    sent.first_ns.get_or_insert(now);
                    sent.last_ns = Some(now);
                    shared.sent.store(sent.sent, Ordering::Relaxed);
                    let lateness_ns = (now - deadline).clamp(i64::from(i32::MIN + 1), i64::from(i32::MAX)) as i32;
                    self.log.push(Record::sent(&header, u32::from(send.length), lateness_ns));
                }
                Err(error) => {
                    sent.failed += 1;
                    if refusals.are_final(&error, now) {
                        shared.fail(self.host.refusal(&error));
                    }
                }
            }
            ceiling.sent(now, wire_bytes(user + self.job.framing.header_bytes()));
            pacer.sent(now);
            header.sequence += 1;
        }
        sent.skipped = u64::from(pacer.skipped);
        if let Err(error) = self.transmitter.flush() {
            shared.fail(self.host.refusal(&error));
        }
    }
}

/// Wait for `deadline`: asleep while it is far away, spinning at the end.
fn pause(clock: &mut Clock, deadline: i64, shared: &Shared) -> i64 {
    loop {
        let ahead = deadline - clock.now();
        if ahead <= SLEEP_NS || shared.stopped() {
            return clock.wait_until(deadline, || !shared.stopped());
        }
        std::thread::sleep(Duration::from_nanos((ahead - SLEEP_NS / 3).min(20_000_000) as u64));
    }
}
