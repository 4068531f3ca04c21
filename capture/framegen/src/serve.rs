//! `framegen serve`: waits for a master and does what it asks, within this node's own limits.

use crate::clock::Clock;
use crate::control::{LogKind, Outgoing, Progress, Refusal, Reply, reply};
use crate::engine::{Engine, Extra};
use crate::frame::{Frame, Framing, Mac, Malformed, addresses, parse};
use crate::host::Host;
use crate::host_state::{observe, to_records};
use crate::job::{Job, Limits, Report};
use crate::log::Record;
use crate::output::Output;
use crate::random::Random;
use crate::server::{Event, Server, Workshop};
use crate::signals;
use crate::socket::{Batch, PacketSocket, Traffic, wait_readable};
use serde_json::json;
use std::io;
use std::time::Duration;

/// Streams one job of a peer can expect, so that its report fits a frame.
const MAX_PEER_STREAMS: usize = 2;

#[derive(Clone, Debug)]
pub struct Serving {
    pub limits: Limits,
    /// Serve this host only.
    pub only: Option<Mac>,
    /// End after one session.
    pub once: bool,
    /// End after this time.
    pub seconds: Option<f64>,
    pub allow_multicast: bool,
    pub allow_broadcast: bool,
    pub allow_pause: bool,
    /// The host as test frames reach it, where nothing is sent.
    pub sink: Option<Host>,
}

struct Shop {
    host: Host,
    sink: Option<Host>,
    limits: Limits,
    allow_multicast: bool,
    allow_broadcast: bool,
    allow_pause: bool,
    engine: Option<Engine>,
    state: Vec<Record>,
}

impl Workshop for Shop {
    fn prepare(&mut self, master: Mac, job: &Job) -> Result<(), String> {
        job.check(&self.limits, self.host.mtu)?;
        if job.expect.len() > MAX_PEER_STREAMS {
            return Err(format!("{} streams expected: a peer takes {MAX_PEER_STREAMS}", job.expect.len()));
        }
        let elsewhere = |mac: Mac| mac != master;
        if job.send.as_ref().is_some_and(|send| elsewhere(send.destination)) {
            return Err("a peer sends to its master only".into());
        }
        if job.expect.iter().any(|expect| elsewhere(expect.source)) {
            return Err("a peer receives from its master only".into());
        }
        if job.send.is_some() && job.respond {
            return Err("a peer sends a stream or answers, not both".into());
        }
        if job.group.is_some() && !self.allow_multicast {
            return Err("this node joins no multicast group: it was started without --allow-multicast".into());
        }
        if job.answer_group && job.group == Some(Mac::BROADCAST) && !self.allow_broadcast {
            return Err("this node answers no broadcast with one: it was started without --allow-broadcast".into());
        }
        if job.pause.is_some() && !self.allow_pause {
            return Err("this node sends no PAUSE frames: it was started without --allow-pause".into());
        }
        if self.sink.is_some()
            && (job.pause.is_some() || job.send.is_some() || job.respond || job.framing == Framing::Udp)
        {
            return Err("this node is a sink: it receives streams of raw frames, and sends nothing".into());
        }
        let receiving = self.sink.as_ref().unwrap_or(&self.host);
        let engine = receiving.speaking(job.framing).and_then(|host| Engine::prepare(&host, job, Extra::Nothing));
        self.engine = Some(engine.map_err(|error| error.to_string())?);
        Ok(())
    }

    fn start(&mut self) {
        if let Some(engine) = &self.engine {
            engine.start();
        }
    }

    fn stop(&mut self) -> Report {
        self.engine.as_mut().map(Engine::finish).unwrap_or_default()
    }

    fn observe(&mut self, facts: bool) -> u64 {
        self.state = to_records(&observe(&self.host, facts).to_string());
        self.state.len() as u64
    }

    fn log(&self, kind: LogKind) -> &[Record] {
        if kind == LogKind::State {
            return &self.state;
        }
        let Some(engine) = &self.engine else {
            return &[];
        };
        match kind {
            LogKind::Sent => engine.sent_log.records(),
            LogKind::Received => engine.received_log.records(),
            LogKind::State => &[],
        }
    }

    fn progress(&self) -> Progress {
        self.engine.as_ref().map(Engine::progress).unwrap_or_default()
    }

    fn clear(&mut self) {
        self.engine = None;
    }
}

/// Serve until told to end (a signal, `once`, `seconds`). Returns false if a job was cut short by it.
pub fn serve(host: Host, serving: &Serving, output: &Output) -> io::Result<bool> {
    let mut sockets = Vec::new();
    let spoken = [Framing::Length, Framing::Ethertype, Framing::Udp];
    for framing in spoken.into_iter().filter(|&framing| framing != Framing::Udp || host.ip.is_some()) {
        let socket = PacketSocket::new(Traffic::Control)?;
        socket.timestamps()?;
        socket.bind(host.interface, Some(framing))?;
        sockets.push((socket, framing, host.speaking(framing)?));
    }
    let descriptors: Vec<_> = sockets.iter().map(|(socket, ..)| socket.raw()).collect();
    let identity = host.identity();
    let sink =
        serving.sink.as_ref().map_or(String::new(), |sink| format!("; test frames to {} ({})", sink.name, sink.mac));
    output.event(
        "listening",
        &json!({"sink": host.sink, "interface": host.name, "mac": host.mac, "ip": host.ip, "host": identity.host, "version": identity.program,
                "clock": host.clock.source()}),
        &match host.ip {
            Some(ip) => format!("listening on {} ({}, {ip} for --udp){sink}", host.name, host.mac),
            None => format!("listening on {} ({}){sink}", host.name, host.mac),
        },
    );
    let shop = Shop {
        host: host.clone(),
        sink: serving.sink.clone(),
        limits: serving.limits,
        allow_multicast: serving.allow_multicast,
        allow_broadcast: serving.allow_broadcast,
        allow_pause: serving.allow_pause,
        engine: None,
        state: Vec::new(),
    };
    let mut server = Server::new(shop, identity, Random::from_kernel());
    server.signature = host.key.room();
    let mut clock = host.clock.clone();
    let mut batch = Batch::default();
    let end = serving.seconds.map(|seconds| clock.now() + (seconds * 1e9) as i64);
    let mut whole = true;
    loop {
        match wait_readable(&descriptors, Duration::from_millis(100)) {
            // The link may come back.
            Err(error) if error.raw_os_error() != Some(libc::ENETDOWN) => return Err(error),
            _ => {}
        }
        for (socket, framing, host) in &sockets {
            exchange(&mut server, serving, host, &mut clock, &mut batch, socket, *framing)?;
        }
        server.tick(clock.now());
        let mut ended = false;
        for event in std::mem::take(&mut server.events) {
            ended |= matches!(event, Event::Released(_) | Event::Lost(..));
            whole &= !matches!(event, Event::Lost(_, Some(_)));
            tell(output, &event);
        }
        let late = end.is_some_and(|end| clock.now() >= end && !server.is_held());
        if signals::stop_requested() || late || (ended && serving.once) {
            break;
        }
    }
    server.shut_down();
    for event in std::mem::take(&mut server.events) {
        whole &= !matches!(event, Event::Lost(_, Some(_)));
        tell(output, &event);
    }
    Ok(whole)
}

/// Read one socket's frames and send the answers over it.
fn exchange(
    server: &mut Server<Shop>,
    serving: &Serving,
    host: &Host,
    clock: &mut Clock,
    batch: &mut Batch,
    socket: &PacketSocket,
    framing: Framing,
) -> io::Result<()> {
    let mut sending = clock.clone();
    let mut send = |to: Mac, out: Outgoing| {
        let frame = host.key.build(to, host.mac, framing, &out, sending.now());
        // What cannot be sent is asked for again.
        let _ = socket.send(&frame);
    };
    let result = batch.receive(socket, clock, |bytes, time| match parse(bytes) {
        Ok(frame) if is_for(&frame, host.mac, serving.only) => {
            let signed = host.key.open(bytes, frame);
            for out in signed.map_or(Vec::new(), |frame| server.handle(&frame, time)) {
                send(frame.source, out);
            }
        }
        Err(Malformed::Version(version)) => {
            let (destination, source, begin) = addresses(bytes).expect("parse saw the addresses");
            if destination == host.mac
                && !source.is_multicast()
                && host.key.room() == 0
                && server.admit_stranger(source, time)
            {
                let text = format!("this node speaks version {}, not {version}", crate::frame::VERSION);
                // Bound to the request, as far as another version lets it be found.
                let number =
                    bytes.get(begin + 16..begin + 20).map_or(0, |b| u32::from_be_bytes([b[0], b[1], b[2], b[3]]));
                send(source, reply(0, number, &Reply::Refused { why: Refusal::Version, text }));
            }
        }
        _ => {}
    });
    match result {
        Ok(_) => Ok(()),
        Err(error) if error.raw_os_error() == Some(libc::ENETDOWN) => Ok(()),
        Err(error) => Err(error),
    }
}

fn is_for(frame: &Frame, own: Mac, only: Option<Mac>) -> bool {
    frame.destination == own && only.is_none_or(|only| only == frame.source)
}

fn tell(output: &Output, event: &Event) {
    match event {
        Event::Claimed(master) => output.event("claimed", &json!({"master": master}), &format!("claimed by {master}")),
        Event::Prepared(master) => {
            output.event("prepared", &json!({"master": master}), &format!("job of {master} prepared"));
        }
        Event::Ended(master, report) => {
            output.event(
                "ended",
                &json!({"master": master, "report": report}),
                &format!("job ended: {}", words(report)),
            );
        }
        Event::Released(master) => {
            output.event("released", &json!({"master": master}), &format!("released by {master}"));
        }
        Event::Lost(master, report) => {
            let text = report.as_ref().map_or(String::new(), |report| format!(", job ended: {}", words(report)));
            output.event("lost", &json!({"master": master, "report": report}), &format!("{master} is gone{text}"));
        }
    }
}

fn words(report: &Report) -> String {
    let sent = report.sent.as_ref().map_or(0, |sent| sent.sent);
    let received: u64 = report.received.iter().map(|received| received.counts.received).sum();
    let fault = report.fault.as_ref().map_or(String::new(), |fault| format!(" ({fault})"));
    format!("{sent} frames sent, {received} received{fault}")
}
