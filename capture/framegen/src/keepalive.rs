//! Keeps sessions alive while frames run: sparse clock exchanges from a thread of its own.

use crate::control::{KEEP_ALIVE_NS, Progress, SILENCE_NS};
use crate::frame::Mac;
use crate::session::Session;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

#[derive(Default)]
struct State {
    end: bool,
    progress: Vec<Progress>,
    silent: Option<Mac>,
}

pub struct KeepAlive {
    state: Arc<Mutex<State>>,
    thread: JoinHandle<Vec<Session>>,
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().expect("no thread panics with it")
}

impl KeepAlive {
    /// Look after the sessions until [`finish`](Self::finish).
    pub fn start(mut sessions: Vec<Session>) -> io::Result<KeepAlive> {
        let progress = sessions.iter().map(|session| session.progress).collect();
        let state = Arc::new(Mutex::new(State { progress, ..State::default() }));
        let shared = state.clone();
        let thread = std::thread::Builder::new().name("keep-alive".into()).spawn(move || {
            let mut heard: Vec<Instant> = vec![Instant::now(); sessions.len()];
            loop {
                std::thread::park_timeout(Duration::from_nanos(KEEP_ALIVE_NS as u64));
                if lock(&shared).end {
                    return sessions;
                }
                for (index, session) in sessions.iter_mut().enumerate() {
                    if session.exchange(KEEP_ALIVE_NS).unwrap_or(false) {
                        heard[index] = Instant::now();
                    }
                    let mut state = lock(&shared);
                    state.progress[index] = session.progress;
                    if heard[index].elapsed() > Duration::from_nanos(SILENCE_NS as u64) {
                        state.silent = Some(session.peer);
                    }
                }
            }
        })?;
        Ok(KeepAlive { state, thread })
    }

    /// A peer that has been silent for too long.
    pub fn silent(&self) -> Option<Mac> {
        lock(&self.state).silent
    }

    pub fn progress(&self) -> Vec<Progress> {
        lock(&self.state).progress.clone()
    }

    /// Ask again now rather than at the next interval.
    pub fn hurry(&self) {
        self.thread.thread().unpark();
    }

    pub fn finish(self) -> Vec<Session> {
        lock(&self.state).end = true;
        self.thread.thread().unpark();
        self.thread.join().expect("the keep-alive does not panic")
    }
}
