//! Steers a test: handshake, clocks, every point on every node, logs, summary.

use crate::clock::unix_ns;
use crate::control::{LogKind, Progress};
use crate::engine::{Engine, log_room};
use crate::folder::Files;
use crate::frame::Mac;
use crate::host::Host;
use crate::host_state::observe;
use crate::job::MOST_PAUSES;
use crate::keepalive::KeepAlive;
use crate::output::Output;
use crate::plan::{Test, TestKind};
use crate::plausible::doubt;
use crate::point::{Logged, RawPoint, summarise};
use crate::random::Random;
use crate::roles::Order;
use crate::session::{Session, SessionError};
use crate::signals;
use crate::step::{Step, Steps};
use crate::store::Store;
use crate::summary::{Node, PointSummary, Summary};
use crate::sync::{ClockFit, fit};
use serde_json::json;
use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

/// Clock exchanges with each peer before and after.
pub const EXCHANGES: usize = 200;
const TELL_EVERY: Duration = Duration::from_millis(250);
/// What ends a job by itself may be late by this.
const OVERTIME: Duration = Duration::from_millis(500);
const STORE_EVERY: Duration = Duration::from_millis(500);
/// A start that is told may be so far ahead: a peer takes silence for the end after three times that.
const LATEST_START_NS: i64 = 1_000_000_000;

pub struct Run<'a> {
    pub host: &'a Host,
    pub test: &'a Test,
    pub peers: &'a [Mac],
    pub output: &'a Output,
    pub steps: Steps,
    pub store: Store,
    sessions: Vec<Session>,
    begin: Instant,
    /// Node, whether before the test, file.
    states: Vec<(u16, bool, String)>,
    /// Node, rows of its `pauses.csv`.
    pauses: BTreeMap<u16, String>,
    /// Time spent waiting for the user does not count against the limit.
    waited: Duration,
    /// When the first point begins, ns of this host's clock: told at "ready".
    start_at: Option<i64>,
}

impl<'a> Run<'a> {
    /// Shake hands with every peer and hold it.
    pub fn open(
        host: &'a Host,
        test: &'a Test,
        peers: &'a [Mac],
        output: &'a Output,
        steps: Steps,
        store: Store,
    ) -> Result<Run<'a>, SessionError> {
        let mut sessions: Vec<Session> = Vec::new();
        if !test.unknown_peer {
            for (node, &peer) in (1..).zip(peers) {
                sessions.push(Session::hello(host, peer, test.framing, node)?);
            }
            for index in 0..sessions.len() {
                if let Err(error) = sessions[index].claim() {
                    // Those already held are free again at once; the silence would free them too.
                    sessions[..index].iter_mut().for_each(|session| drop(session.release()));
                    return Err(error);
                }
            }
        }
        let begin = Instant::now();
        let (states, pauses, waited) = (Vec::new(), BTreeMap::new(), Duration::ZERO);
        Ok(Run { host, test, peers, output, steps, store, sessions, begin, states, pauses, waited, start_at: None })
    }

    /// The whole test, and the files it left beside the frame logs. What went wrong stands in the summary.
    pub fn run(mut self) -> (Summary, Files) {
        let mut reason = self.prologue().err().map(|error| error.to_string());
        let mut raw: Vec<RawPoint> = Vec::new();
        if reason.is_none() {
            let mut random = Random::from_kernel();
            for (index, &length) in self.test.sizes.iter().enumerate() {
                let id = (random.word() >> 32) as u32;
                match self.point(index, id, length) {
                    Ok(point) => {
                        reason = point.reason();
                        raw.push(point);
                    }
                    Err(error) => reason = Some(error.to_string()),
                }
                if reason.is_some() {
                    break;
                }
            }
        }
        if let Err(error) = self.epilogue(reason.is_some()) {
            reason.get_or_insert(error.to_string());
        }
        let exchanges: Vec<_> =
            self.sessions.iter().map(|session| (session.node, session.exchanges.as_slice())).collect();
        let clocks = self.store.clocks(&exchanges).unwrap_or_else(|error| {
            reason.get_or_insert(error.to_string());
            Vec::new()
        });
        let pauses = self.store.pauses(&self.pauses).unwrap_or_else(|error| {
            reason.get_or_insert(error.to_string());
            Vec::new()
        });
        let histogram_ns = self.test.histogram_ns.filter(|_| self.store.has_histograms());
        let files = Files { clocks, states: std::mem::take(&mut self.states), pauses, histogram_ns };
        (self.summary(&raw, reason), files)
    }

    fn prologue(&mut self) -> Result<(), SessionError> {
        for session in &mut self.sessions {
            let (mac, identity) = (session.peer, &session.identity);
            self.output.event(
                "peer",
                &json!({"node": session.node, "mac": mac, "host": identity.host, "version": identity.program,
                        "kernel": identity.kernel, "interface": identity.interface}),
                &format!("peer {mac}: {} ({}), framegen {}", identity.host, identity.interface, identity.program),
            );
            session.synchronise(EXCHANGES)?;
        }
        self.observe(true)?;
        self.tell_clocks();
        self.pause(Step::Ready)?;
        match self.test.seconds {
            Some(seconds) if self.test.kind == TestKind::Clock => self.wait(seconds),
            _ => Ok(()),
        }
    }

    /// Only the keep-alives' exchanges, for a while.
    fn wait(&mut self, seconds: f64) -> Result<(), SessionError> {
        let begin = Instant::now();
        let alive = KeepAlive::start(std::mem::take(&mut self.sessions))?;
        let mut result = Ok(());
        while result.is_ok() && begin.elapsed().as_secs_f64() < seconds {
            std::thread::sleep(Duration::from_millis(10));
            result = attention(&alive);
        }
        self.sessions = alive.finish();
        result
    }

    /// Clocks again, peers released. After a failure only those who still answer.
    fn epilogue(&mut self, failed: bool) -> Result<(), SessionError> {
        let mut result = if failed { Ok(()) } else { self.pause(Step::Sent) };
        result = result.and_then(|()| self.observe(false));
        for session in &mut self.sessions {
            let again = session.synchronise(EXCHANGES).and_then(|()| session.release());
            if !failed && result.is_ok() {
                result = again;
            }
        }
        self.tell_clocks();
        result
    }

    /// What every host says of itself, before the test or after it.
    fn observe(&mut self, before: bool) -> Result<(), SessionError> {
        if self.store.folder().is_none() {
            return Ok(());
        }
        let own = observe(self.host, before);
        self.states.extend(self.store.state(0, before, &own)?);
        for session in &mut self.sessions {
            if let Some(state) = session.observe(before)? {
                self.states.extend(self.store.state(session.node, before, &state)?);
            }
        }
        Ok(())
    }

    fn tell_clocks(&self) {
        for clock in self.clocks() {
            let text =
                format!("clock of node {}: {:+.3} µs ± {:.3}", clock.node, clock.offset_us, clock.offset_sigma_us);
            self.output.event("clock", &json!(clock), &text);
        }
    }

    fn clocks(&self) -> Vec<ClockFit> {
        self.sessions.iter().filter_map(|session| fit(session.node, &session.exchanges)).collect()
    }

    /// Wait for the user at a step, keeping the peers.
    fn pause(&mut self, step: Step) -> Result<(), SessionError> {
        if !self.steps.wanted() {
            return Ok(());
        }
        let begin = Instant::now();
        let alive = KeepAlive::start(std::mem::take(&mut self.sessions))?;
        let result = self.steps.wait(step, self.output, || attention(&alive));
        self.sessions = alive.finish();
        self.waited += begin.elapsed();
        self.start_at = result?;
        Ok(())
    }

    fn point(&mut self, index: usize, id: u32, length: u16) -> Result<RawPoint, SessionError> {
        let used = (self.begin.elapsed() - self.waited).as_secs_f64();
        let left = self.test.limits.max_seconds - used;
        let targets: Vec<Mac> = self.sessions.iter().map(Session::target).collect();
        let reachable = if self.test.unknown_peer { self.peers } else { &targets };
        let mut point = self.test.point(id, length, self.host.mac, reachable, left.max(1e-3));
        point.peers.iter_mut().for_each(|job| job.point = index as u32);
        let mut raw = RawPoint {
            index,
            started_unix_ns: unix_ns(),
            elapsed_s: 0.0,
            reasons: Vec::new(),
            reports: Vec::new(),
            sent: Vec::new(),
            received: Vec::new(),
            frame_logs: Vec::new(),
            trips: None,
            places: None,
            point,
        };
        if left <= 0.0 {
            raw.blame(Some(format!("the limit of {} s was reached", self.test.limits.max_seconds)));
            raw.reports = vec![None; reachable.len() + 1];
            return Ok(raw);
        }
        for (session, job) in self.sessions.iter_mut().zip(&raw.point.peers) {
            session.prepare(job.clone())?;
        }
        let mut engine = Engine::prepare(self.host, &raw.point.local, raw.point.extra.clone())?;
        self.store.begin(index, &engine.sent_log, &engine.received_log)?;
        // Those that only receive first, so that a common start is one of frames.
        let mut senders = Vec::new();
        for (session, job) in self.sessions.iter_mut().zip(&raw.point.peers) {
            if job.send.is_some() { senders.push(session) } else { session.start()? }
        }
        wait_for(self.start_at.take(), self.host)?;
        raw.started_unix_ns = unix_ns();
        for session in senders {
            session.start()?;
        }
        let begin = Instant::now();
        let alive = KeepAlive::start(std::mem::take(&mut self.sessions))?;
        engine.start();
        let watched = self.watch(index, &engine, &alive, Duration::from_secs_f64(left.max(0.0)) + OVERTIME);
        self.sessions = alive.finish();
        if watched.is_ok() {
            self.drain(&engine);
        }
        raw.elapsed_s = begin.elapsed().as_secs_f64();
        let local = engine.finish();
        raw.blame(local.fault.clone());
        raw.trips = engine.shared.trips.lock().expect("no thread panics with it").take();
        raw.places = places(&engine);
        let rows = raw.trips.as_ref().map_or_else(Vec::new, |trips| trips.rows(index as u32, u32::from(length)));
        raw.blame(self.store.histogram(&rows).err().map(|error| error.to_string()));
        raw.blame(watched.err().map(|error| error.to_string()));
        raw.reports.push(Some(local));
        raw.sent.push(Logged::Here(engine.sent_log.clone()));
        raw.received.push(Logged::Here(engine.received_log.clone()));
        self.collect(&mut raw);
        let stored = self.store.end();
        raw.frame_logs = stored.files;
        raw.blame(stored.fault.map(|error| error.to_string()));
        Ok(raw)
    }

    /// Until everything is sent, or something ends it.
    fn watch(&mut self, index: usize, engine: &Engine, alive: &KeepAlive, most: Duration) -> Result<(), SessionError> {
        let begin = Instant::now();
        let (mut told, mut stored) = (Instant::now(), Instant::now());
        loop {
            let peers = alive.progress();
            let local = engine.progress();
            let ended = engine.shared.stopped();
            let waiting_for_peers = self.test.peers_send() && !peers.iter().all(|peer| peer.done);
            if ended || (local.done && !waiting_for_peers) {
                self.tell_progress(index, (local, places(engine)), &peers);
                return Ok(());
            }
            attention(alive)?;
            if begin.elapsed() > most {
                return Err(SessionError::Overtime(self.test.limits.max_seconds));
            }
            if told.elapsed() >= TELL_EVERY {
                told = Instant::now();
                self.tell_progress(index, (local, places(engine)), &peers);
            }
            if stored.elapsed() >= STORE_EVERY {
                stored = Instant::now();
                self.store.append()?;
            }
            if local.done {
                alive.hurry();
                std::thread::sleep(Duration::from_millis(10));
            } else {
                // Its threads wake this one when they end; waking often would disturb them.
                std::thread::park_timeout(Duration::from_millis(20));
            }
        }
    }

    fn tell_progress(&self, index: usize, (local, places): (Progress, Option<Vec<Vec<u64>>>), peers: &[Progress]) {
        let planned: u64 = self.test.sizes.get(index).map_or(0, |&length| u64::from(self.test.planned(length)));
        let (sent, received): (u64, u64) = if self.test.peers_send() && local.sent == 0 {
            (total(peers.iter().map(|peer| peer.sent)), local.received)
        } else if self.test.kind.asks() {
            (local.sent, local.received)
        } else {
            let meant = peers.len().saturating_sub(usize::from(self.test.bystanders));
            (local.sent, total(peers[..meant].iter().map(|peer| peer.received)))
        };
        let mut fields = json!({"point": index, "points": self.test.sizes.len(), "sent": sent, "received": received,
                            "planned": planned, "elapsed_s": (self.begin.elapsed() - self.waited).as_secs_f64()});
        let mut text = format!("point {} of {}: {sent} sent, {received} received", index + 1, self.test.sizes.len());
        if let Some(places) = places {
            text += &format!("; first of nodes 1, 2 ...: {:?}", places[0]);
            fields["places"] = json!(places);
        }
        self.output.event("progress", &fields, &text);
    }

    /// Until what was sent has come, or it has had time enough.
    fn drain(&mut self, engine: &Engine) {
        let begin = Instant::now();
        let patience = Duration::from_secs_f64(self.test.drain_ms / 1e3);
        while begin.elapsed() < patience && !self.sessions.is_empty() && !self.test.kind.asks() {
            for session in &mut self.sessions {
                // Silence shows soon enough when the peer is asked to stop.
                let _ = session.exchange(5_000_000);
            }
            let local = engine.progress();
            let sent = total(self.sessions.iter().map(|session| session.progress.sent));
            let meant = self.sessions.len() - usize::from(self.test.bystanders);
            let all = |sent: u64, received: u64| received >= sent;
            if all(sent, local.received) && self.sessions[..meant].iter().all(|s| all(local.sent, s.progress.received))
            {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Reports and logs of the peers; what a peer no longer gives stays unknown.
    fn collect(&mut self, raw: &mut RawPoint) {
        // A peer's log holds one stream, or requests and answers apart.
        let room = log_room(self.test.planned(raw.point.length) as usize);
        for session in &mut self.sessions {
            let mut logs = [Vec::new(), Vec::new()];
            let report = session.stop().and_then(|report| {
                for (kind, records, log) in
                    [(LogKind::Sent, report.sent_records, 0), (LogKind::Received, report.received_records, 1)]
                {
                    // What has come before something ends it is kept too.
                    let fetched = session.fetch(kind, records, room, &mut logs[log]);
                    let stored = self.store.fetched(raw.index, session.node, kind, &logs[log]);
                    raw.blame(stored.err().map(|error| error.to_string()));
                    fetched?;
                }
                Ok(report)
            });
            let job = &raw.point.peers[usize::from(session.node) - 1];
            let pause = job.pause;
            let here = raw.reports[0].as_ref().and_then(|report| report.sent.as_ref());
            let rate = self.test.limits.max_rate_mbit;
            let doubt = report.as_ref().ok().and_then(|report| doubt(job, report, here, rate, raw.elapsed_s));
            let report = doubt.map_or(report, |why| Err(SessionError::Implausible(session.peer, why)));
            raw.blame(match &report {
                Ok(report) => report.fault.as_ref().map(|fault| format!("node {}: {fault}", session.node)),
                Err(error) => Some(error.to_string()),
            });
            if let (Ok(report), Some(pause)) = (&report, pause) {
                let told = &report.pauses_ns[..report.pauses_ns.len().min(MOST_PAUSES)];
                *self.pauses.entry(session.node).or_default() += &crate::pause::rows(told, pause.quanta);
            }
            raw.reports.push(report.ok());
            let [sent, received] = logs;
            raw.sent.push(Logged::Fetched(sent));
            raw.received.push(Logged::Fetched(received));
        }
        for _ in raw.reports.len()..=raw.point.peers.len() {
            raw.reports.push(None);
        }
    }

    fn summary(&self, raw: &[RawPoint], reason: Option<String>) -> Summary {
        let clocks = self.clocks();
        let points: Vec<PointSummary> = raw.iter().map(|raw| summarise(raw, &clocks, self.test.kind.asks())).collect();
        let node = |node: u16, mac: Mac, identity| Node { node, mac, identity };
        let own = node(0, self.host.mac, self.host.identity());
        let peers = self.sessions.iter().map(|session| node(session.node, session.peer, session.identity.clone()));
        Summary {
            format: 1,
            framegen: env!("CARGO_PKG_VERSION").into(),
            complete: reason.is_none(),
            suspect: points.iter().any(|point| point.suspect),
            reason,
            test: self.test.clone(),
            nodes: std::iter::once(own).chain(peers).collect(),
            clocks,
            points,
        }
    }
}

/// In which order several nodes answer, so far.
fn places(engine: &Engine) -> Option<Vec<Vec<u64>>> {
    engine.shared.order.get().map(Order::places).filter(|places| places.len() > 1)
}

/// Counts of peers are what they say.
fn total(counts: impl Iterator<Item = u64>) -> u64 {
    counts.fold(0, u64::saturating_add)
}

/// Until a time of this host's clock; one that has passed is over.
fn wait_for(start_ns: Option<i64>, host: &Host) -> Result<(), SessionError> {
    let mut clock = host.clock.clone();
    let Some(left) = start_ns.map(|start| start - clock.now()).filter(|&left| left > 0) else {
        return Ok(());
    };
    if left > LATEST_START_NS {
        let text = format!("a start in {:.1} s: it is at most 1 s after \"ready\"", left as f64 / 1e9);
        return Err(SessionError::Io(io::Error::other(text)));
    }
    clock.wait_until(start_ns.unwrap_or_default(), || !signals::stop_requested());
    Ok(())
}

/// What ends a run from outside.
fn attention(alive: &KeepAlive) -> Result<(), SessionError> {
    match alive.silent() {
        Some(mac) => Err(SessionError::Silent(mac)),
        None if signals::stop_requested() => Err(SessionError::Interrupted),
        None => Ok(()),
    }
}
