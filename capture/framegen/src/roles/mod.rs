//! What a node does with test frames: send a stream, receive and answer, ask and wait.

pub mod receiver;
pub mod requester;
pub mod sender;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What the threads of one job share.
#[derive(Debug, Default)]
pub struct Shared {
    go: AtomicBool,
    stop: AtomicBool,
    pub sent: AtomicU64,
    pub received: AtomicU64,
    pub switches: AtomicU64,
    pub drops: AtomicU64,
    pub unstamped: AtomicU64,
    fault: Mutex<Option<String>>,
}

impl Shared {
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
