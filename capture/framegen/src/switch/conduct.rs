//! Virtual tests from beginning to end, several at the same time: clocks, points, clocks again.

use super::parcel::{PAUSE_ADDRESS, Parcel, QUANTUM_BITS};
use super::plan::PausePlan;
use super::play::{Play, Wish, parcel, sync_header};
use super::world::{Happening, World};
use super::{Ps, ps};
use crate::control::{KEEP_ALIVE_NS, header};
use crate::frame::{FLAG_REPLY, Header, Kind, Mac};
use crate::plan::Test;
use crate::point::RawPoint;
use crate::random::Random;
use crate::run::EXCHANGES;
use crate::sync::Exchange;
use std::collections::HashMap;
use std::io;

/// From one clock exchange to the next.
const EXCHANGE_EVERY: Ps = 300_000_000;
/// From the end of a point to the next.
const BETWEEN: Ps = 1_000_000_000;
/// After the last answer, as real nodes wait for late ones.
const QUIET: Ps = 10_000_000_000;

/// What a test wants to be woken for.
#[derive(Clone, Copy, Debug)]
pub enum Token {
    Exchange(usize, usize),
    KeepAlive(usize),
    Start(usize),
    Act(usize, usize, u64),
    EndPoint(usize),
    EndTest(usize),
    Pause(usize, Ps),
}

pub struct Testing {
    pub test: Test,
    /// Round trips are counted in bins of this width when all is done, and not logged.
    pub histogram_ns: Option<u32>,
    /// Of node 0, 1, ... in the world.
    pub hosts: Vec<usize>,
    pub start_us: f64,
    play: Option<Play>,
    pub raw: Vec<RawPoint>,
    /// By peer.
    pub exchanges: Vec<Vec<Exchange>>,
    asked: HashMap<u32, Vec<Exchange>>,
    session: u32,
    number: u32,
    pub first_frame: Option<Ps>,
    finished: bool,
}

impl Testing {
    pub fn new(mut test: Test, hosts: Vec<usize>, start_us: f64, session: u32) -> Testing {
        let exchanges = vec![Vec::new(); hosts.len() - 1];
        Testing {
            histogram_ns: test.histogram_ns.take(),
            test,
            hosts,
            start_us,
            play: None,
            raw: Vec::new(),
            exchanges,
            asked: HashMap::new(),
            session,
            number: 0,
            first_frame: None,
            finished: false,
        }
    }

    /// Peers that answer.
    fn peers(&self) -> usize {
        if self.test.unknown_peer { 0 } else { self.hosts.len() - 1 }
    }
}

/// A PAUSE frame that a node has sent: its clock, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paused {
    pub node: usize,
    pub time_ns: i64,
    pub quanta: u16,
}

pub struct Conductor {
    pub world: World<Token>,
    pub tests: Vec<Testing>,
    pub pauses: Vec<(usize, PausePlan)>,
    pub paused: Vec<Paused>,
    pub rates: Vec<f64>,
    pub random: Random,
}

impl Conductor {
    pub fn run(&mut self) -> io::Result<()> {
        for index in 0..self.tests.len() {
            let after = self.exchanges(index, 0);
            let start = after + ps(self.tests[index].start_us);
            self.world.wake(start, Token::Start(index));
        }
        while let Some(happening) = self.world.proceed() {
            let now = self.world.now;
            if let Some(fabric) = &mut self.world.fabric {
                fabric.truth.advance(now)?;
            }
            match happening {
                Happening::Wake(token) => self.wake(token)?,
                Happening::Received(node, frame) => self.received(node, &frame),
            }
            if self.tests.iter().all(|test| test.finished) {
                break;
            }
        }
        self.world.fabric.as_mut().map_or(Ok(()), |fabric| fabric.truth.end())
    }

    /// Plan the exchanges before or after a test; when they are over.
    fn exchanges(&mut self, index: usize, begin: Ps) -> Ps {
        let peers = self.tests[index].peers();
        let mut time = begin;
        for _ in 0..EXCHANGES {
            for peer in 1..=peers {
                self.world.wake(time, Token::Exchange(index, peer));
                time += EXCHANGE_EVERY;
            }
        }
        time + BETWEEN
    }

    fn wake(&mut self, token: Token) -> io::Result<()> {
        let now = self.world.now;
        match token {
            Token::Exchange(test, peer) => self.ask_time(test, peer),
            Token::KeepAlive(index) => {
                if self.tests[index].play.is_some() {
                    (1..=self.tests[index].peers()).for_each(|peer| self.ask_time(index, peer));
                    self.world.wake(now + KEEP_ALIVE_NS * 1000, Token::KeepAlive(index));
                }
            }
            Token::Start(index) => self.start(index)?,
            Token::Act(index, node, wish) => {
                let Testing { play, .. } = &mut self.tests[index];
                if let Some(play) = play {
                    let wish = play.act(&mut self.world, node, Some(wish));
                    self.grant(index, node, wish);
                }
            }
            Token::EndPoint(index) => self.end_point(index),
            Token::EndTest(index) => self.tests[index].finished = true,
            Token::Pause(index, until) => self.pause(index, until),
        }
        Ok(())
    }

    fn ask_time(&mut self, index: usize, peer: usize) {
        let test = &mut self.tests[index];
        let (from, to) = (test.hosts[0], test.hosts[peer]);
        let sent = self.world.nodes[from].clock_ns(self.world.now);
        let blank = Exchange { request_sent: sent, request_received: 0, reply_sent: 0, reply_received: 0 };
        test.number += 1;
        test.asked.insert(test.number, vec![blank]);
        let header = sync_header(test.session, peer as u16, test.number, false, sent);
        let (source, destination, time) = (self.world.nodes[from].mac, self.world.nodes[to].mac, self.world.now);
        self.world.send(from, time, parcel(destination, source, header));
    }

    fn start(&mut self, index: usize) -> io::Result<()> {
        let test = &mut self.tests[index];
        let Some(&length) = test.test.sizes.get(test.raw.len()) else {
            return Ok(());
        };
        let id = (self.random.word() >> 32) as u32;
        let macs: Vec<Mac> = test.hosts.iter().map(|&host| self.world.nodes[host].mac).collect();
        let point = test.test.point(id, length, macs[0], &macs[1..], test.test.limits.max_seconds);
        let drain = if test.test.kind.asks() { QUIET } else { ps(test.test.drain_ms * 1e3) };
        let hosts = &test.hosts[..=test.peers()];
        let play = Play::new(test.raw.len(), point, hosts, &self.world, drain)?;
        let nodes = play.nodes();
        test.play = Some(play);
        let now = self.world.now;
        if test.raw.is_empty() {
            test.first_frame = Some(now);
            self.world.wake(now + KEEP_ALIVE_NS * 1000, Token::KeepAlive(index));
        }
        for node in 0..nodes {
            self.act(index, node);
        }
        if index == 0 {
            for (number, (_, pause)) in self.pauses.iter().enumerate() {
                let begin = now + ps(pause.start_us);
                self.world.wake(begin, Token::Pause(number, begin + ps(pause.duration_us)));
            }
        }
        Ok(())
    }

    fn act(&mut self, index: usize, node: usize) {
        if let Some(play) = &mut self.tests[index].play {
            let wish = play.act(&mut self.world, node, None);
            self.grant(index, node, wish);
        }
    }

    fn grant(&mut self, index: usize, node: usize, wish: Wish) {
        if let Some((time, wish)) = wish {
            self.world.wake(time, Token::Act(index, node, wish));
        } else if let Some(play) = self.tests[index].play.as_mut()
            && play.ends()
        {
            self.world.wake(self.world.now + play.drain, Token::EndPoint(index));
        }
    }

    fn end_point(&mut self, index: usize) {
        let now = self.world.now;
        let test = &mut self.tests[index];
        test.raw.extend(test.play.take().map(|play| play.end(now)));
        if test.raw.len() < test.test.sizes.len() {
            self.world.wake(now + BETWEEN, Token::Start(index));
            self.world.wake(now + BETWEEN + KEEP_ALIVE_NS * 1000, Token::KeepAlive(index));
            return;
        }
        let end = self.exchanges(index, now + BETWEEN);
        self.world.wake(end, Token::EndTest(index));
    }

    fn received(&mut self, node: usize, frame: &Parcel<Header>) {
        let header = frame.content;
        for index in 0..self.tests.len() {
            let test = &mut self.tests[index];
            let Some(role) = test.hosts.iter().position(|&host| host == node) else {
                continue;
            };
            if header.kind == Kind::Sync && header.test == test.session {
                self.sync(index, node, frame);
            } else if let Some(play) = test.play.as_mut().filter(|play| play.takes(header.test, role)) {
                let wish = play.received(&mut self.world, role, frame);
                self.grant(index, role, wish);
            }
        }
    }

    fn sync(&mut self, index: usize, node: usize, frame: &Parcel<Header>) {
        let (now, header) = (self.world.now, frame.content);
        let test = &mut self.tests[index];
        if frame.destination != self.world.nodes[node].mac {
            return; // flooded
        }
        let time = self.world.nodes[node].clock_ns(now);
        // A request that came twice is answered twice; each reply tells its own times.
        let Some(answers) = test.asked.get_mut(&header.sequence) else {
            return;
        };
        if header.flags & FLAG_REPLY != 0 {
            let its_own = answers.iter().find(|exchange| exchange.reply_sent == header.send_ns);
            test.exchanges[usize::from(header.node) - 1]
                .extend(its_own.map(|&exchange| Exchange { reply_received: time, ..exchange }));
            test.asked.remove(&header.sequence);
            return;
        }
        let at = self.world.nodes[node].answered(now);
        let reply_sent = self.world.nodes[node].clock_ns(at);
        answers.push(Exchange { request_received: time, reply_sent, ..answers[0] });
        let reply = sync_header(header.test, header.node, header.sequence, true, reply_sent);
        let own = self.world.nodes[node].mac;
        self.world.send(node, at, parcel(frame.source, own, reply));
    }

    /// Send a PAUSE frame, and the next before its time is over.
    fn pause(&mut self, number: usize, until: Ps) {
        let now = self.world.now;
        let (node, plan) = (self.pauses[number].0, &self.pauses[number].1);
        let quanta = if now < until { plan.quanta } else { 0 };
        let time_ns = self.world.nodes[node].clock_ns(now);
        self.paused.push(Paused { node, time_ns, quanta });
        let mut frame = parcel(PAUSE_ADDRESS, self.world.nodes[node].mac, header(Kind::Control, 0, 0, 0));
        (frame.user, frame.pause) = (46, Some(quanta));
        self.world.send(node, now, frame);
        if quanta > 0 {
            let length = f64::from(quanta) * QUANTUM_BITS as f64 * 1e6 / self.rates[node];
            let next = (now + (0.8 * length) as Ps).max(now + 1_000_000).min(until);
            self.world.wake(next, Token::Pause(number, until));
        }
    }
}
