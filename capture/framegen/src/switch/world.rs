//! Time that passes from event to event: nodes, cables and the switch between them.

use super::Ps;
use super::fabric::{Arrived, Departure, Fabric};
use super::nodes::Node;
use super::parcel::{PAUSE_ADDRESS, Parcel};
use super::ps;
use crate::frame::Header;
use std::collections::BTreeMap;

/// What somebody outside wants to know of.
pub enum Happening<W> {
    /// A node stamps a frame; the moment is [`World::now`].
    Received(usize, Parcel<Header>),
    /// A time somebody asked to be woken at.
    Wake(W),
}

enum Event<W> {
    /// A frame is at the card of its sender.
    Ready(usize, Parcel<Header>),
    /// A card may have become free.
    Look(usize),
    ToSwitch(Arrived<Header>),
    /// The last bit is at a node.
    Delivered(usize, Parcel<Header>),
    Stamped(usize, Parcel<Header>),
    Wake(W),
}

pub struct World<W> {
    pub now: Ps,
    pub nodes: Vec<Node>,
    /// None: a cable between the two nodes.
    pub fabric: Option<Fabric<Header>>,
    rates: Vec<f64>,
    /// Frames that a node's card has not begun with.
    backlog: Vec<usize>,
    events: BTreeMap<(Ps, u64), Event<W>>,
    made: u64,
}

impl<W> World<W> {
    pub fn new(nodes: Vec<Node>, fabric: Option<Fabric<Header>>, rates: Vec<f64>) -> World<W> {
        let backlog = vec![0; nodes.len()];
        World { now: 0, nodes, fabric, rates, backlog, events: BTreeMap::new(), made: 0 }
    }

    fn at(&mut self, time: Ps, event: Event<W>) {
        self.events.insert((time.max(self.now), self.made), event);
        self.made += 1;
    }

    pub fn wake(&mut self, time: Ps, what: W) {
        self.at(time, Event::Wake(what));
    }

    /// A node's program hands a frame, stamped at `time`, to its card.
    pub fn send(&mut self, node: usize, time: Ps, parcel: Parcel<Header>) {
        self.backlog[node] += 1;
        let ready = self.nodes[node].ready(time, parcel.user);
        self.at(ready, Event::Ready(node, parcel));
    }

    pub fn backlog(&self, node: usize) -> usize {
        self.backlog[node]
    }

    /// Let time pass until something happens that concerns somebody outside. None: nothing will.
    pub fn proceed(&mut self) -> Option<Happening<W>> {
        loop {
            let own = self.events.keys().next().map(|key| key.0);
            let switch = self.fabric.as_ref().and_then(Fabric::next_time);
            let time = own.into_iter().chain(switch).min()?;
            self.now = time;
            if switch == Some(time) {
                let mut departed = Vec::new();
                self.fabric.as_mut().expect("it has a time").advance(time, |departure| departed.push(departure));
                departed.into_iter().for_each(|departure| self.leave_switch(departure));
                continue;
            }
            let (_, event) = self.events.pop_first().expect("looked at");
            if let Some(happening) = self.act(event) {
                return Some(happening);
            }
        }
    }

    fn act(&mut self, event: Event<W>) -> Option<Happening<W>> {
        match event {
            Event::Ready(node, parcel) => {
                self.nodes[node].line.waiting.push_back(parcel);
                self.look(node);
            }
            Event::Look(node) => self.look(node),
            Event::ToSwitch(arrived) => self.fabric.as_mut()?.arrive(self.now, arrived),
            Event::Delivered(node, parcel) => self.deliver(node, parcel),
            Event::Stamped(node, parcel) => return Some(Happening::Received(node, parcel)),
            Event::Wake(what) => return Some(Happening::Wake(what)),
        }
        None
    }

    /// Let a node's next frame go if its cable is free.
    fn look(&mut self, number: usize) {
        let (now, node) = (self.now, &mut self.nodes[number]);
        let opens = node.line.opens_at();
        if node.line.waiting.is_empty() {
            return;
        }
        if opens > now {
            self.at(opens, Event::Look(number));
            return;
        }
        let parcel = node.line.waiting.pop_front().expect("not empty");
        self.backlog[number] -= 1;
        let last = node.line.begin(now, parcel.frame_bytes());
        let cable = ps(node.plan.cable_us);
        if !node.line.waiting.is_empty() {
            let opens = node.line.opens_at();
            self.at(opens, Event::Look(number));
        }
        let Some(fabric) = &self.fabric else {
            self.at(last + cable, Event::Delivered(1 - number, parcel));
            return;
        };
        let arrived = Arrived { parcel, port: number, first: now + cable, last: last + cable };
        let decided = fabric.decided_at(&arrived, self.rates[number]);
        self.at(decided, Event::ToSwitch(arrived));
    }

    fn leave_switch(&mut self, departure: Departure<Header>) {
        let node = departure.port;
        let last = departure.last + ps(self.nodes[node].plan.cable_us);
        self.at(last, Event::Delivered(node, departure.parcel));
    }

    /// A card takes what is for it; PAUSE frames it keeps for itself.
    fn deliver(&mut self, number: usize, parcel: Parcel<Header>) {
        let (now, node) = (self.now, &mut self.nodes[number]);
        if let Some(quanta) = parcel.pause.filter(|_| parcel.destination == PAUSE_ADDRESS) {
            if node.plan.honours_pause {
                node.line.pause(now, quanta);
                self.at(now, Event::Look(number));
            }
            return;
        }
        let stamped = node.received(now, parcel.user);
        self.at(stamped, Event::Stamped(number, parcel));
    }
}
