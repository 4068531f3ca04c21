//! What a node does with test frames: send a stream, receive and answer, ask and wait.

pub mod receiver;
pub mod requester;
pub mod sender;

use crate::control::SILENCE_NS;
use crate::socket::is_passing;
use crate::trips::Trips;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};
use std::thread::Thread;

/// A link may come back within this time; shorter than the peer's patience, so that the cause is told, not the silence.
const REFUSED_NS: i64 = 2 * SILENCE_NS / 3;

/// Frames the kernel did not take, one after the other.
#[derive(Debug, Default)]
pub struct Refusals {
    since: Option<i64>,
}

impl Refusals {
    /// One more. True if it is not to be expected that the next is taken.
    pub fn are_final(&mut self, error: &io::Error, now: i64) -> bool {
        let since = *self.since.get_or_insert(now);
        !is_passing(error) || now - since > REFUSED_NS
    }

    pub fn over(&mut self) {
        self.since = None;
    }
}

/// How often the answer of each node came at each place.
#[derive(Debug)]
pub struct Order {
    nodes: Vec<u16>,
    counts: Vec<AtomicU64>,
}

impl Order {
    pub fn of(nodes: Vec<u16>) -> Order {
        let counts = nodes.iter().flat_map(|_| &nodes).map(|_| AtomicU64::new(0)).collect();
        Order { nodes, counts }
    }

    /// An answer of `node` came after `before` others.
    pub fn came(&self, node: u16, before: usize) {
        if let Some(column) = self.nodes.iter().position(|&known| known == node)
            && let Some(count) = self.counts.get(before * self.nodes.len() + column)
        {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A row a place, from the first on; a column a node.
    pub fn places(&self) -> Vec<Vec<u64>> {
        let rows = self.counts.chunks(self.nodes.len().max(1));
        rows.map(|row| row.iter().map(|count| count.load(Ordering::Relaxed)).collect()).collect()
    }
}

/// What the threads of one job share.
#[derive(Debug)]
pub struct Shared {
    go: AtomicBool,
    stop: AtomicBool,
    done: AtomicBool,
    /// Who waits for the job.
    waiting: Thread,
    pub sent: AtomicU64,
    pub received: AtomicU64,
    pub switches: AtomicU64,
    pub drops: AtomicU64,
    pub unstamped: AtomicU64,
    /// Of an asking node, where round trips are counted instead of logged.
    pub trips: Mutex<Option<Trips>>,
    /// Of a node that asks several: how often each one's answer came first, second ...
    pub order: OnceLock<Order>,
    fault: Mutex<Option<String>>,
}

impl Shared {
    /// For the calling thread to watch. `done`: nothing is to be sent.
    pub fn new(done: bool) -> Shared {
        Shared {
            go: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            done: AtomicBool::new(done),
            waiting: std::thread::current(),
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
            switches: AtomicU64::new(0),
            drops: AtomicU64::new(0),
            unstamped: AtomicU64::new(0),
            trips: Mutex::new(None),
            order: OnceLock::new(),
            fault: Mutex::new(None),
        }
    }

    /// Everything is sent: the one who waits is woken.
    pub fn finish(&self) {
        self.done.store(true, Ordering::Release);
        self.waiting.unpark();
    }

    pub fn is_done(&self) -> bool {
        self.done.load(Ordering::Acquire)
    }

    pub fn start(&self) {
        self.go.store(true, Ordering::Release);
    }

    pub fn started(&self) -> bool {
        self.go.load(Ordering::Acquire)
    }

    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
    }

    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// The first fault is the one that is reported.
    pub fn fail(&self, text: String) {
        self.note(text);
        self.stop();
    }

    /// Report it, and go on.
    pub fn note(&self, text: String) {
        self.fault.lock().expect("no thread panics with it").get_or_insert(text);
    }

    pub fn fault(&self) -> Option<String> {
        self.fault.lock().expect("no thread panics with it").clone()
    }
}
