//! Asks and waits: request-response, ping-pong, one-to-many. Request and reply are timed by one thread.

use super::receiver::{Counting, Source};
use super::{Order, Refusals, Shared};
use crate::frame::{ETHERNET_HEADER, HEADER, Header, Kind, Mac, build, ethernet_header};
use crate::host::{Host, Role, involuntary_switches};
use crate::job::{Job, Sent};
use crate::log::{LogWriter, Record};
use crate::pacing::Ceiling;
use crate::payload::{Pattern, mark};
use crate::socket::PacketSocket;
use crate::trips::Trips;
use std::sync::atomic::Ordering;

/// What the steering node asks, beside its [`Job`] (which says whom it expects to answer).
#[derive(Clone, Debug)]
pub struct Asking {
    /// One peer or a group.
    pub destination: Mac,
    pub loops: u32,
    pub seconds: Option<f64>,
    pub request_length: u16,
    pub response_length: u16,
    /// From one request to the next, at least.
    pub spacing_ns: i64,
    /// A response that has not come by then is lost.
    pub timeout_ns: i64,
    pub max_rate_mbit: f64,
    pub marks: u32,
    /// Count round trips in bins of this width.
    pub histogram_ns: Option<u32>,
}

pub struct Requester {
    pub host: Host,
    pub job: Job,
    pub asking: Asking,
    pub socket: PacketSocket,
    pub source: Source,
    pub log: LogWriter,
}

impl Requester {
    /// Until every loop is done, the time is up or `shared` says stop.
    pub fn run(mut self, counting: &mut Counting, shared: &Shared) -> Sent {
        let before = involuntary_switches();
        if let Err(error) = self.host.settle(Role::Send) {
            shared.fail(error.to_string());
        }
        while !shared.started() && !shared.stopped() {
            std::thread::sleep(std::time::Duration::from_micros(200));
        }
        self.marks(shared);
        let sent = self.loops(counting, shared);
        self.marks(shared);
        shared.switches.fetch_add(involuntary_switches() - before, Ordering::Relaxed);
        self.source.account(shared);
        shared.finish();
        sent
    }

    fn header(&self, kind: Kind) -> Header {
        Header {
            kind,
            flags: 0,
            test: self.job.test,
            stream: 1,
            node: self.job.node,
            sequence: 0,
            send_ns: 0,
            length: self.asking.request_length,
            response: self.asking.response_length,
        }
    }

    fn marks(&mut self, shared: &Shared) {
        let payload = mark(usize::from(self.asking.request_length) - HEADER);
        for sequence in 0..self.asking.marks {
            std::thread::sleep(std::time::Duration::from_millis(1));
            let header = Header { sequence, send_ns: self.host.clock.now(), ..self.header(Kind::Mark) };
            let frame = build(self.asking.destination, self.host.mac, self.job.framing, &header, &payload);
            if let Err(error) = self.socket.send(&frame) {
                shared.fail(format!("MARK frame {sequence}: {}", self.host.refusal(&error)));
            }
        }
    }

    fn loops(&mut self, counting: &mut Counting, shared: &Shared) -> Sent {
        let asking = &self.asking;
        let user = usize::from(asking.request_length);
        let pattern = Pattern::new(self.job.payload, self.job.test);
        let mut header = self.header(Kind::Request);
        let mut frame = ethernet_header(asking.destination, self.host.mac, self.job.framing, user).to_vec();
        frame.resize(ETHERNET_HEADER + user, 0);
        let mut clock = self.host.clock.clone();
        let start = clock.now();
        let end = start + (self.job.max_seconds * 1e9) as i64;
        let asked_end = asking.seconds.map(|seconds| start + (seconds * 1e9) as i64);
        let responders = self.job.expect.len();
        let mut ceiling = Ceiling::new(asking.max_rate_mbit);
        let extra = self.job.framing.header_bytes();
        let exchange_bytes = crate::frame::wire_bytes(user + extra)
            + responders as u64 * crate::frame::wire_bytes(usize::from(asking.response_length) + extra);
        let mut sent = Sent { stream: header.stream, ..Sent::default() };
        let mut next = start;
        let mut refusals = Refusals::default();
        let mut trips = asking.histogram_ns.map(Trips::new);
        let order = shared.order.get_or_init(|| Order::of(self.job.expect.iter().map(|expect| expect.node).collect()));

        while header.sequence < asking.loops && !shared.stopped() {
            frame[ETHERNET_HEADER + HEADER..].copy_from_slice(pattern.of(header.sequence, user - HEADER));
            let earliest = next.max(ceiling.not_before());
            if asked_end.is_some_and(|end| earliest >= end) {
                break;
            }
            if earliest >= end {
                shared.fail("the limit of time (--max-seconds) came before the last loop".into());
                break;
            }
            let now = clock.wait_until(earliest, || !shared.stopped());
            if shared.stopped() || asked_end.is_some_and(|end| now >= end) {
                break;
            }
            header.send_ns = now;
            header.write(&mut frame[ETHERNET_HEADER..]);
            match self.socket.send(&frame) {
                Ok(()) => {
                    refusals.over();
                    sent.sent += 1;
                    sent.first_ns.get_or_insert(now);
                    sent.last_ns = Some(now);
                    shared.sent.store(sent.sent, Ordering::Relaxed);
                    let lateness_ns = (now - earliest).clamp(0, i64::from(i32::MAX)) as i32;
                    self.log.push(Record::sent(&header, user as u32, lateness_ns));
                }
                // Like a request that got lost: the next one follows when its time to be answered is over.
                Err(error) => {
                    sent.failed += 1;
                    if refusals.are_final(&error, now) {
                        shared.fail(self.host.refusal(&error));
                    }
                }
            }
            ceiling.sent(now, exchange_bytes);
            next = now + asking.spacing_ns;

            let mut waiting = responders;
            let give_up = now + asking.timeout_ns;
            while waiting > 0 && !shared.stopped() && clock.now() < give_up {
                let result = self.source.receive(&mut clock, |bytes, time| {
                    let answer = counting.arrived(bytes, time, Kind::Response);
                    if answer.is_some_and(|(answer, first)| first && answer.header.sequence == header.sequence) {
                        if let Some((answer, _)) = answer {
                            order.came(answer.header.node, responders - waiting);
                            if let Some(trips) = &mut trips {
                                trips.add(answer.header.node, time - now);
                            }
                        }
                        waiting -= 1;
                    }
                });
                if let Err(error) = result {
                    shared.fail(format!("receiving on {}: {error}", self.host.name));
                }
            }
            shared.received.store(counting.received, Ordering::Relaxed);
            header.sequence += 1;
        }
        *shared.trips.lock().expect("no thread panics with it") = trips;
        // Responses that come after their timeout are late, not lost.
        let quiet = clock.now() + asking.timeout_ns.min(10_000_000);
        while clock.now() < quiet {
            let late = self.source.receive(&mut clock, |bytes, time| {
                counting.arrived(bytes, time, Kind::Response);
            });
            if late.is_err() {
                break;
            }
        }
        sent
    }
}
