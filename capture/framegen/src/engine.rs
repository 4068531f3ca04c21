//! One job on one node: its sockets, logs and threads, from preparation to report.

use crate::control::Progress;
use crate::host::{Host, Role, realtime_is_throttled, stolen_ms};
use crate::job::{Job, Quality, Report, Sent};
use crate::log::FrameLog;
use crate::netlink::Counters;
use crate::roles::Shared;
use crate::roles::receiver::{self, Counting, Responder, Source};
use crate::roles::requester::{Asking, Requester};
use crate::roles::sender::{Sender, Transmitter};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

/// What only the steering node has beside its job.
#[derive(Clone, Debug)]
pub enum Extra {
    Nothing,
    /// Times of a stream from a file, ns.
    Times(Arc<[f64]>),
    Asking(Asking),
}

/// Records there is room for where `frames` are planned: duplicates may add a quarter.
pub fn log_room(frames: usize) -> usize {
    if frames == 0 { 0 } else { frames + frames / 4 + 1024 }
}

pub struct Engine {
    pub shared: Arc<Shared>,
    pub sent_log: Arc<FrameLog>,
    pub received_log: Arc<FrameLog>,
    host: Host,
    sender: Option<JoinHandle<Sent>>,
    receiver: Option<JoinHandle<Report>>,
    pauser: Option<JoinHandle<io::Result<Vec<i64>>>>,
    counters: Counters,
    stolen_ms: u64,
}

impl Engine {
    /// Open sockets, make room for the logs, start the threads: from here on the node receives.
    pub fn prepare(host: &Host, job: &Job, extra: Extra) -> io::Result<Engine> {
        let shared = Arc::new(Shared::new(job.send.is_none() && !matches!(extra, Extra::Asking(_))));
        let expected: usize = job.expect.iter().map(|expect| expect.planned as usize).sum();
        let answers = if job.respond { expected } else { 0 };
        let planned = job.send.as_ref().map_or(0, |send| send.planned as usize);
        let asked = if let Extra::Asking(asking) = &extra { asking.loops as usize } else { 0 };
        let room = |frames: usize| if job.log { log_room(frames) } else { 0 };
        let (sent_log, sent_writer) = FrameLog::new(room(planned.max(answers).max(asked)))?;
        let (received_log, received_writer) = FrameLog::new(room(expected))?;
        let counters = host.counters()?;
        let stolen = stolen_ms();

        let mut engine = Engine {
            shared: shared.clone(),
            sent_log,
            received_log,
            host: host.clone(),
            sender: None,
            receiver: None,
            pauser: None,
            counters,
            stolen_ms: stolen,
        };
        if let Some(pause) = job.pause {
            let (host, shared) = (host.clone(), shared.clone());
            engine.pauser = Some(spawn("pauser", move || crate::pause::of_job(&host, pause, &shared))?);
        }
        let receiving = !job.expect.is_empty();
        let mut counting = Counting::new(host.mac, job, received_writer);
        match (extra, &job.send) {
            (Extra::Asking(asking), _) => {
                let requester = Requester {
                    host: host.clone(),
                    job: job.clone(),
                    asking,
                    socket: {
                        let socket = crate::socket::PacketSocket::new(crate::socket::Traffic::Test)?;
                        socket.bind(host.interface, None)?;
                        socket
                    },
                    source: Source::open(host, job)?,
                    log: sent_writer,
                };
                engine.receiver = Some(spawn("requester", move || {
                    let sent = requester.run(&mut counting, &shared);
                    Report { sent: Some(sent), ..counted(&counting) }
                })?);
            }
            (extra, send) => {
                let source = if receiving { Some(Source::open(host, job)?) } else { None };
                let mut responder = None;
                if let Some(send) = send {
                    let times_ns = if let Extra::Times(times) = extra { times } else { Arc::new([]) };
                    let transmitter = Transmitter::open(host, send.transmit)?;
                    let (host, job, send) = (host.clone(), job.clone(), send.clone());
                    let sender = Sender { host, job, send, times_ns, transmitter, log: sent_writer };
                    let shared = shared.clone();
                    engine.sender = Some(spawn("sender", move || sender.run(&shared))?);
                } else if job.respond {
                    responder = Some(Responder::new(host, job, sent_writer)?);
                }
                if let Some(source) = source {
                    let role = if send.is_some() { Role::ReceiveBesideSender } else { Role::Receive };
                    let host = host.clone();
                    engine.receiver = Some(spawn("receiver", move || {
                        receiver::run(&host, role, source, &mut counting, responder.as_mut(), &shared);
                        let sent = responder.map(|responder| responder.result());
                        Report { sent, ..counted(&counting) }
                    })?);
                }
            }
        }
        Ok(engine)
    }

    pub fn start(&self) {
        self.shared.start();
    }

    pub fn progress(&self) -> Progress {
        Progress {
            sent: self.shared.sent.load(Ordering::Relaxed),
            received: self.shared.received.load(Ordering::Relaxed),
            done: self.shared.is_done(),
        }
    }

    /// End the threads and say what they did. The logs stay.
    pub fn finish(&mut self) -> Report {
        self.shared.stop();
        let sent = self.sender.take().map(|thread| thread.join().expect("the sender does not panic"));
        let caught = self.receiver.take().map(|thread| thread.join().expect("the receiver does not panic"));
        let mut report = caught.unwrap_or_default();
        report.sent = sent.or(report.sent);
        match self.pauser.take().map(|thread| thread.join().expect("the pauser does not panic")) {
            Some(Ok(times)) => report.pauses_ns = times,
            Some(Err(error)) => self.shared.note(format!("PAUSE frames: {error}")),
            None => {}
        }
        report.sent_records = self.sent_log.records().len() as u64;
        report.received_records = self.received_log.records().len() as u64;
        let counters = self.host.counters().map(|now| now.since(self.counters));
        match &counters {
            Ok(counters) if counters.carrier_changes > 0 => {
                self.shared.note(format!("{} lost its carrier", self.host.name));
            }
            Ok(_) => {}
            Err(error) => self.shared.note(error.to_string()),
        }
        report.quality = Quality {
            involuntary_switches: self.shared.switches.load(Ordering::Relaxed),
            stolen_ms: stolen_ms().saturating_sub(self.stolen_ms),
            socket_drops: self.shared.drops.load(Ordering::Relaxed),
            unstamped: self.shared.unstamped.load(Ordering::Relaxed),
            interface: counters.unwrap_or_default(),
            unlogged: self.sent_log.unlogged() + self.received_log.unlogged(),
            clock: self.host.clock.source().to_owned(),
            throttled: self.host.priority.is_some() && realtime_is_throttled(),
        };
        report.fault = self.shared.fault();
        report
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.shared.stop();
    }
}

fn spawn<T: Send + 'static>(name: &str, work: impl FnOnce() -> T + Send + 'static) -> io::Result<JoinHandle<T>> {
    std::thread::Builder::new().name(name.into()).spawn(work)
}

fn counted(counting: &Counting) -> Report {
    Report {
        received: counting.results(),
        damaged: counting.damaged,
        foreign: counting.foreign,
        marks: counting.marks,
        ..Report::default()
    }
}
