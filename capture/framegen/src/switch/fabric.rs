//! What the switch does with each frame. No sockets and no clock of its own: whoever moves the frames gives the times.
//!
//! A frame that has come in (its last bit, or its header where the switch cuts through) passes the impairments of its
//! cable, is learned from, finds its ports, is dropped where a limit is reached, crosses the backplane, one frame at a
//! time, and waits for its output. It is counted in the buffers from the decision until its first bit leaves.

use super::impairment::Impairment;
use super::line::Line;
use super::parcel::{PAUSE_ADDRESS, Parcel};
use super::plan::{FabricPlan, Mode, PortPlan};
use super::table::Table;
use super::truth::{Action, Reason, Row, Truth};
use super::{Ps, duration, ps};
use crate::frame::Mac;
use crate::random::Random;
use std::collections::{BTreeMap, BTreeSet};

/// A frame with the times of its first and last bit at the port where it came in.
#[derive(Clone, Debug)]
pub struct Arrived<C> {
    pub parcel: Parcel<C>,
    pub port: usize,
    pub first: Ps,
    pub last: Ps,
}

/// A frame that leaves.
#[derive(Clone, Debug)]
pub struct Departure<C> {
    pub parcel: Parcel<C>,
    pub port: usize,
    pub first: Ps,
    pub last: Ps,
}

enum Event<C> {
    Enter(Arrived<C>),
    /// At an output, its way through the fabric behind it.
    Ready(Waiting<C>, usize),
    /// An output may have become free.
    Look(usize),
}

struct Waiting<C> {
    parcel: Parcel<C>,
    port_in: usize,
    arrived: Ps,
}

#[derive(Clone, Copy, Debug, Default)]
struct Filled {
    frames: u64,
    bytes: u64,
}

struct Port<C> {
    line: Line<Waiting<C>>,
    impairment: Impairment,
    module: Option<u32>,
    most: [Option<u64>; 2],
    filled: Filled,
    /// Ports whose senders were asked to wait for this output.
    holding: BTreeSet<usize>,
}

pub struct Fabric<C> {
    plan: FabricPlan,
    ports: Vec<Port<C>>,
    table: Table,
    shared: Filled,
    backplane_free: Ps,
    /// By time, then in the order in which they were made.
    events: BTreeMap<(Ps, u64), Event<C>>,
    made: u64,
    pub truth: Truth,
    /// Makes the content of a PAUSE frame.
    pause_content: fn(u16) -> C,
}

impl<C: Clone> Fabric<C> {
    pub fn new(plan: &FabricPlan, ports: &[PortPlan], seed: u64, truth: Truth, pause_content: fn(u16) -> C) -> Self {
        let ports = (1u64..).zip(ports).map(|(number, port)| Port {
            line: Line::new(port.rate_mbit_s),
            impairment: Impairment::new(port, Random::new(seed ^ number.wrapping_mul(0xD134_2543_DE82_EF95))),
            module: port.module,
            most: [port.frames.or(plan.port_frames), port.bytes.or(plan.port_bytes)],
            filled: Filled::default(),
            holding: BTreeSet::new(),
        });
        Fabric {
            plan: plan.clone(),
            ports: ports.collect(),
            table: Table::default(),
            shared: Filled::default(),
            backplane_free: Ps::MIN,
            events: BTreeMap::new(),
            made: 0,
            truth,
            pause_content,
        }
    }

    fn at(&mut self, time: Ps, event: Event<C>) {
        self.events.insert((time, self.made), event);
        self.made += 1;
    }

    /// A frame comes in. To be told when it is decided about, in the order of those times.
    pub fn decided_at(&self, arrived: &Arrived<C>, rate_mbit_s: f64) -> Ps {
        match self.plan.mode {
            Mode::StoreAndForward => arrived.last,
            Mode::CutThrough => {
                arrived.last.min(arrived.first + duration(u64::from(self.plan.header_bytes), rate_mbit_s))
            }
        }
    }

    /// See [`decided_at`](Self::decided_at) for when to call it.
    pub fn arrive(&mut self, now: Ps, arrived: Arrived<C>) {
        let port = arrived.port;
        let Some(entry) = self.ports[port].impairment.pass(now) else {
            self.tell(now, &arrived, None, Action::Drop, Reason::Loss);
            return;
        };
        if entry.held {
            self.tell(now, &arrived, None, Action::Delay, Reason::None);
        }
        let shifted = |by: Ps| Arrived { first: arrived.first + by, last: arrived.last + by, ..arrived.clone() };
        if entry.copy {
            self.tell(now, &arrived, None, Action::Duplicate, Reason::None);
            self.at(entry.at, Event::Enter(shifted(entry.at - now)));
        }
        self.at(entry.at, Event::Enter(shifted(entry.at - now)));
    }

    pub fn next_time(&self) -> Option<Ps> {
        self.events.keys().next().map(|key| key.0)
    }

    /// Do what is due by `now`; frames that leave are given to `out`.
    pub fn advance(&mut self, now: Ps, mut out: impl FnMut(Departure<C>)) {
        while let Some((&(time, _), _)) = self.events.first_key_value()
            && time <= now
        {
            let (_, event) = self.events.pop_first().expect("looked at");
            match event {
                Event::Enter(arrived) => self.enter(time, arrived),
                Event::Ready(waiting, port) => {
                    self.ports[port].line.waiting.push_back(waiting);
                    self.look(time, port, &mut out);
                }
                Event::Look(port) => self.look(time, port, &mut out),
            }
        }
    }

    /// Frames that wait somewhere in the switch.
    pub fn held(&self) -> u64 {
        self.shared.frames
    }

    fn enter(&mut self, now: Ps, arrived: Arrived<C>) {
        let port_in = arrived.port;
        if self.plan.learn && self.table.learn(arrived.parcel.source, port_in, now) {
            self.tell(now, &arrived, None, Action::Learn, Reason::None);
        }
        if let Some(quanta) = arrived.parcel.pause.filter(|_| arrived.parcel.destination == PAUSE_ADDRESS) {
            self.tell(now, &arrived, None, Action::Pause, Reason::Received);
            if self.plan.honours_pause {
                self.ports[port_in].line.pause(now, quanta);
                let opens = self.ports[port_in].line.opens_at();
                self.at(opens.max(now), Event::Look(port_in));
            }
            return; // never forwarded (IEEE 802.1D, clause 7.12.6)
        }
        let (ports_out, flood) = self.route(now, &arrived);
        let admitted: Vec<usize> = ports_out.into_iter().filter(|&out| self.admit(now, &arrived, out, flood)).collect();
        if admitted.is_empty() {
            return;
        }
        let ready = self.cross(now, &arrived, &admitted);
        for port in admitted {
            let waiting = Waiting { parcel: arrived.parcel.clone(), port_in, arrived: arrived.last };
            self.at(ready, Event::Ready(waiting, port));
        }
    }

    /// Where a frame has to go, and whether that is everywhere.
    fn route(&mut self, now: Ps, arrived: &Arrived<C>) -> (Vec<usize>, Option<Reason>) {
        let destination = arrived.parcel.destination;
        let others = (0..self.ports.len()).filter(|&port| port != arrived.port).collect();
        if destination == Mac::BROADCAST {
            return (others, Some(Reason::Broadcast));
        }
        if destination.is_multicast() {
            return (others, Some(Reason::Multicast));
        }
        let known = self.table.find(destination, now, ps(self.plan.ageing_s * 1e6)).unwrap_or_else(|port| {
            self.tell(now, arrived, Some(port), Action::Age, Reason::None);
            None
        });
        match known {
            Some(port) if port == arrived.port => {
                self.tell(now, arrived, None, Action::Drop, Reason::SamePort);
                (Vec::new(), None)
            }
            Some(port) => (vec![port], None),
            None if self.plan.flood_unknown => (others, Some(Reason::Unknown)),
            None => {
                self.tell(now, arrived, None, Action::Drop, Reason::NoPort);
                (Vec::new(), None)
            }
        }
    }

    /// Make room for a frame at an output, or drop it.
    fn admit(&mut self, now: Ps, arrived: &Arrived<C>, out: usize, flood: Option<Reason>) -> bool {
        let bytes = arrived.parcel.frame_bytes();
        let port = &self.ports[out];
        let beyond = |most: Option<u64>, would_be: u64| most.is_some_and(|most| would_be > most);
        let reason = if beyond(port.most[0], port.filled.frames + 1) {
            Some(Reason::PortFrames)
        } else if beyond(port.most[1], port.filled.bytes + bytes) {
            Some(Reason::PortBytes)
        } else if beyond(self.plan.shared_frames, self.shared.frames + 1) {
            Some(Reason::SharedFrames)
        } else if beyond(self.plan.shared_bytes, self.shared.bytes + bytes) {
            Some(Reason::SharedBytes)
        } else {
            None
        };
        if let Some(reason) = reason {
            self.tell(now, arrived, Some(out), Action::Drop, reason);
            return false;
        }
        if let Some(reason) = flood {
            self.tell(now, arrived, Some(out), Action::Flood, reason);
        }
        for filled in [&mut self.ports[out].filled, &mut self.shared] {
            filled.frames += 1;
            filled.bytes += bytes;
        }
        let above = self.plan.pause_above_frames.is_some_and(|above| self.ports[out].filled.frames >= above);
        if above && self.ports[out].holding.insert(arrived.port) {
            self.send_pause(now, arrived.port, self.plan.pause_quanta);
        }
        true
    }

    /// When the frame is at its outputs: after the latency, and the backplane, which carries one frame at a time.
    fn cross(&mut self, now: Ps, arrived: &Arrived<C>, out: &[usize]) -> Ps {
        let ready = now + ps(self.plan.latency_us);
        let module = self.ports[arrived.port].module;
        let inside = module.is_some() && out.iter().all(|&port| self.ports[port].module == module);
        let crossing = self.plan.crossing(arrived.parcel.user);
        if inside || crossing == 0 {
            return ready;
        }
        self.backplane_free = ready.max(self.backplane_free) + crossing;
        self.backplane_free
    }

    /// Let the next frame go if the output is free.
    fn look(&mut self, now: Ps, out: usize, departed: &mut impl FnMut(Departure<C>)) {
        let port = &mut self.ports[out];
        let opens = port.line.opens_at();
        let Some(next) = port.line.waiting.front() else {
            return;
        };
        // What leaves faster than it comes in must not overtake its own last bit.
        let bytes = next.parcel.frame_bytes();
        let first = opens.max(next.arrived - port.line.length(bytes));
        if first > now {
            self.at(first, Event::Look(out));
            return;
        }
        let next = port.line.waiting.pop_front().expect("looked at");
        let last = port.line.begin(now, bytes);
        let free = port.line.opens_at();
        if !port.line.waiting.is_empty() {
            self.at(free, Event::Look(out));
        }
        let sent_pause = next.parcel.pause.is_some();
        self.truth.add(Row {
            time: now,
            port_in: (!sent_pause).then_some(next.port_in),
            port_out: Some(out),
            action: if sent_pause { Action::Pause } else { Action::Forward },
            reason: if sent_pause { Reason::Sent } else { Reason::None },
            tag: next.parcel.tag,
            arrival: (!sent_pause).then_some(next.arrived),
        });
        if !sent_pause {
            self.release(now, out, bytes);
        }
        departed(Departure { parcel: next.parcel, port: out, first: now, last });
    }

    fn release(&mut self, now: Ps, out: usize, bytes: u64) {
        for filled in [&mut self.ports[out].filled, &mut self.shared] {
            filled.frames -= 1;
            filled.bytes -= bytes;
        }
        if self.ports[out].filled.frames <= self.plan.pause_below_frames {
            for port in std::mem::take(&mut self.ports[out].holding) {
                self.send_pause(now, port, 0);
            }
        }
    }

    /// Ahead of what waits there; it holds no buffer.
    fn send_pause(&mut self, now: Ps, port: usize, quanta: u16) {
        let parcel = Parcel {
            destination: PAUSE_ADDRESS,
            source: Mac([0x02, 0, 0, 0x46, 0x47, port as u8]),
            user: 46,
            tag: None,
            pause: Some(quanta),
            content: (self.pause_content)(quanta),
        };
        self.ports[port].line.waiting.push_front(Waiting { parcel, port_in: port, arrived: now });
        self.at(now, Event::Look(port));
    }

    fn tell(&mut self, now: Ps, arrived: &Arrived<C>, out: Option<usize>, action: Action, reason: Reason) {
        self.truth.add(Row {
            time: now,
            port_in: Some(arrived.port),
            port_out: out,
            action,
            reason,
            tag: arrived.parcel.tag,
            arrival: Some(arrived.last),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(number: u8) -> Mac {
        Mac([2, 0, 0, 0, 0, number])
    }

    fn parcel(from: u8, to: Mac, user: u32) -> Parcel<()> {
        Parcel { destination: to, source: host(from), user, tag: None, pause: None, content: () }
    }

    fn fabric(plan: FabricPlan, ports: usize) -> Fabric<()> {
        let ports = vec![PortPlan::default(); ports];
        Fabric::new(&plan, &ports, 1, Truth::create(None, 0).expect("nowhere"), |_| ())
    }

    /// Send at these times (ps); where and when frames leave.
    fn pass(fabric: &mut Fabric<()>, frames: &[(Ps, usize, Parcel<()>)]) -> Vec<(usize, Ps, Ps)> {
        let mut out = Vec::new();
        for (first, port, parcel) in frames {
            let last = first + duration(8 + parcel.frame_bytes(), 1000.0);
            let arrived = Arrived { parcel: parcel.clone(), port: *port, first: *first, last };
            let now = fabric.decided_at(&arrived, 1000.0);
            fabric.advance(now, |departure| out.push((departure.port, departure.first, departure.last)));
            fabric.arrive(now, arrived);
        }
        fabric.advance(10_000_000_000_000, |departure| out.push((departure.port, departure.first, departure.last)));
        out
    }

    /// From the last bit in to the first bit out (RFC 1242).
    #[test]
    fn store_and_forward_waits_for_the_last_bit() {
        let plan = FabricPlan {
            latency_us: 2.0,
            backplane_mbit_s: Some(512.0),
            cell_bytes: Some(64),
            ..FabricPlan::default()
        };
        let mut switch = fabric(plan, 3);
        let (hello, frame) = (parcel(2, Mac::BROADCAST, 46), parcel(1, host(2), 1500));
        let out = pass(&mut switch, &[(0, 1, hello), (1_000_000_000, 0, frame)]);
        let last = 1_000_000_000 + (8 + 1518) * 8_000;
        // 24 cells of 1 us.
        let begins = last + 2_000_000 + 24_000_000;
        assert_eq!(out[2..], [(1, begins, begins + 1526 * 8_000)]);
    }

    #[test]
    fn cut_through_begins_after_the_header() {
        let mut switch = fabric(FabricPlan { mode: Mode::CutThrough, ..FabricPlan::default() }, 2);
        let frames = [(0, 1, parcel(2, Mac::BROADCAST, 46)), (1_000_000_000, 0, parcel(1, host(2), 1500))];
        let out = pass(&mut switch, &frames);
        assert_eq!(out[1].1, 1_000_000_000 + 22 * 8_000);
    }

    #[test]
    fn unlearned_addresses_are_flooded_until_they_speak() {
        let mut switch = fabric(FabricPlan { ageing_s: 0.5, ..FabricPlan::default() }, 4);
        let ports = |out: Vec<(usize, Ps, Ps)>| out.into_iter().map(|leaves| leaves.0).collect::<Vec<_>>();
        assert_eq!(ports(pass(&mut switch, &[(0, 0, parcel(1, host(2), 64))])), [1, 2, 3]);
        let answer = (2_000_000_000_000, 1, parcel(2, host(1), 64));
        // Host 1 was heard of more than half a second ago.
        assert_eq!(ports(pass(&mut switch, &[answer])), [0, 2, 3]);
    }

    #[test]
    fn a_held_output_keeps_what_its_limit_says() {
        for (frames, bytes, user, kept) in
            [(Some(7), None, 64, 7), (None, Some(10_000), 1500, 6), (Some(7), Some(820), 64, 7)]
        {
            let plan = FabricPlan { port_frames: frames, port_bytes: bytes, ..FabricPlan::default() };
            let mut switch = fabric(plan, 2);
            let pause = Parcel { pause: Some(0xFFFF), ..parcel(2, PAUSE_ADDRESS, 46) };
            let mut traffic = vec![(0, 1, pause)];
            traffic.extend((0..100).map(|i| (1_000_000 + i * 20_000_000, 0, parcel(1, host(2), user))));
            let out = pass(&mut switch, &traffic);
            assert_eq!(out.iter().filter(|leaves| leaves.0 == 1).count(), kept, "{frames:?} {bytes:?}");
            assert!(out[0].1 >= 33_553_920_000, "not before the pause has ended");
            assert_eq!(switch.held(), 0);
        }
    }

    #[test]
    fn senders_are_paused_above_the_mark_and_go_on_below_it() {
        let plan = FabricPlan { pause_above_frames: Some(3), pause_below_frames: 1, ..FabricPlan::default() };
        let mut switch = fabric(plan, 3);
        let mut traffic = vec![(0, 2, parcel(3, Mac::BROADCAST, 46))];
        for i in 0..6 {
            traffic.push((1_000_000 + i * 12_304_000, 0, parcel(1, host(3), 1500)));
            traffic.push((1_000_001 + i * 12_304_000, 1, parcel(2, host(3), 1500)));
        }
        let out = pass(&mut switch, &traffic);
        // Each is asked to wait and, later, to go on.
        let pauses = |port: usize| out.iter().skip(2).filter(|leaves| leaves.0 == port).count();
        assert_eq!((pauses(0), pauses(1), pauses(2)), (2, 2, 12));
    }
}
