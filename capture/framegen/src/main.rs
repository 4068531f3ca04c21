use framegen::cli::{self, Command, Options};
use framegen::clock::Clock;
use framegen::frame::Mac;
use framegen::host::Host;
use framegen::interfaces::interfaces;
use framegen::job::largest_user;
use framegen::output::{Output, printable};
use framegen::plan::Test;
use framegen::run::Run;
use framegen::safety;
use framegen::serve::{Serving, serve};
use framegen::session::{Session, SessionError};
use framegen::signals;
use framegen::store::Store;
use framegen::summary::Summary;
use serde_json::json;
use std::process::ExitCode;

/// How the program ends, beside success.
enum Failure {
    /// It ran, but not to its end.
    Incomplete(String),
    Usage(String),
    /// No test frame was sent.
    NotStarted(String),
}

type Outcome = Result<(), Failure>;

fn main() -> ExitCode {
    let outcome = cli::parse(std::env::args_os()).map_err(Failure::Usage).and_then(|options| execute(&options));
    let (text, code) = match outcome {
        Ok(()) => return ExitCode::SUCCESS,
        Err(Failure::Incomplete(text)) => (text, 1),
        Err(Failure::Usage(text)) => (text, 2),
        Err(Failure::NotStarted(text)) => (text, 3),
    };
    eprintln!("framegen: {}", printable(&text).replace('\n', " "));
    ExitCode::from(code)
}

fn not_started(error: impl std::fmt::Display) -> Failure {
    Failure::NotStarted(error.to_string())
}

fn execute(options: &Options) -> Outcome {
    let output = Output { json: options.json };
    match options.command {
        Command::Help => {
            print!("{}", framegen::usage::USAGE);
            return Ok(());
        }
        Command::Version => {
            println!("framegen {}", env!("CARGO_PKG_VERSION"));
            return Ok(());
        }
        Command::Interfaces => return list_interfaces(&output),
        _ => {}
    }
    if options.with_parent {
        signals::end_with_parent().map_err(not_started)?;
    }
    signals::install().map_err(not_started)?;
    let host = host(options)?;
    for &peer in &options.peers {
        safety::destination(peer, host.mac, options.allowed).map_err(Failure::NotStarted)?;
    }
    match (&options.command, &options.test) {
        (Command::Serve, _) => {
            let serving = Serving {
                limits: options.limits,
                only: options.only,
                once: options.once,
                seconds: options.seconds,
                allow_multicast: options.allowed.multicast,
            };
            let whole = serve(host, &serving, &output).map_err(raw_frames)?;
            if whole { Ok(()) } else { Err(Failure::Incomplete("a test was cut short".into())) }
        }
        (_, Some(test)) => steer(options, test, host, &output),
        _ => greet(options, &host, &output),
    }
}

/// The interface and the clock; refused where safety says so.
fn host(options: &Options) -> Result<Host, Failure> {
    let name = options.interface.as_deref().unwrap_or_default();
    let link = safety::interface(name, options.allowed).map_err(not_started)?.map_err(Failure::NotStarted)?;
    Ok(Host {
        interface: link.index,
        name: link.name,
        mac: link.mac.unwrap_or(Mac([0; 6])),
        mtu: link.mtu,
        clock: Clock::calibrate(options.clock_error),
        cpus: options.cpus.clone(),
        priority: options.priority,
    })
}

fn raw_frames(error: std::io::Error) -> Failure {
    if error.kind() == std::io::ErrorKind::PermissionDenied {
        return not_started("raw frames are not allowed; run as root or `setcap cap_net_raw+ep` on framegen");
    }
    not_started(error)
}

fn no_session(error: SessionError) -> Failure {
    match error {
        SessionError::Io(error) => raw_frames(error),
        error => not_started(error),
    }
}

fn list_interfaces(output: &Output) -> Outcome {
    let list = interfaces().map_err(not_started)?;
    if output.json {
        println!("{}", json!({"interfaces": list}));
        return Ok(());
    }
    for interface in list {
        let speed = interface.speed_mbit_s.map_or("speed unknown".into(), |speed| format!("{speed} Mbit/s"));
        let mac = interface.mac.map_or("no Ethernet address".into(), |mac| mac.to_string());
        println!("{}  {mac}  MTU {}  {speed}  {}", interface.name, interface.mtu, interface.why);
    }
    Ok(())
}

fn greet(options: &Options, host: &Host, output: &Output) -> Outcome {
    let mut clock = host.clock.clone();
    let begin = clock.now();
    let session = Session::hello(host, options.peers[0], options.framing, 1).map_err(no_session)?;
    let round_trip_us = (clock.now() - begin) as f64 / 1e3;
    let identity = &session.identity;
    output.event(
        "peer",
        &json!({"mac": session.peer, "host": identity.host, "version": identity.program, "kernel": identity.kernel,
                "interface": identity.interface, "round_trip_us": round_trip_us}),
        &format!("{}: {} ({}), framegen {}", session.peer, identity.host, identity.interface, identity.program),
    );
    Ok(())
}

fn steer(options: &Options, test: &Test, host: Host, output: &Output) -> Outcome {
    if let Some(group) = test.group {
        safety::destination(group, host.mac, options.allowed).map_err(Failure::NotStarted)?;
        if !group.is_multicast() {
            return Err(Failure::Usage(format!("--group {group} is not a multicast address")));
        }
    }
    let handshake_possible = options.peers.iter().all(|peer| !peer.is_multicast());
    if !handshake_possible && !options.allowed.unknown {
        return Err(Failure::NotStarted(
            "a group does not answer a handshake; --allow-unknown if that is meant".into(),
        ));
    }
    let largest = largest_user(test.framing, host.mtu);
    if let Some(size) = test.sizes.iter().chain(&test.request_bytes).find(|&&size| usize::from(size) > largest) {
        return Err(Failure::Usage(format!("{size} bytes: {} takes at most {largest}", host.name)));
    }
    for &length in &test.sizes {
        let point = test.point(0, length, host.mac, &options.peers, options.limits.max_seconds);
        for job in point.peers.iter().chain([&point.local]) {
            job.check(&options.limits, host.mtu).map_err(Failure::Usage)?;
        }
    }
    let least: f64 = test.sizes.iter().map(|&length| test.duration_s(length)).sum();
    if least > options.limits.max_seconds {
        let limit = options.limits.max_seconds;
        return Err(Failure::Usage(format!(
            "the test takes {least:.1} s at least; the limit is --max-seconds {limit}"
        )));
    }
    if options.dry_run {
        describe(test, &options.peers, &host, output);
        return Ok(());
    }
    let store = Store::new(options.folder.clone()).map_err(not_started)?;
    let run = Run::open(&host, test, &options.peers, output, options.steps, store).map_err(no_session)?;
    finish(options, &run.run(), output)
}

/// What would be sent.
fn describe(test: &Test, peers: &[Mac], host: &Host, output: &Output) {
    let peers: Vec<String> = peers.iter().map(Mac::to_string).collect();
    for (index, &length) in test.sizes.iter().enumerate() {
        let (frames, seconds) = (test.planned(length), test.duration_s(length));
        let wire = u64::from(frames) * framegen::frame::wire_bytes(usize::from(length));
        output.event(
            "would_send",
            &json!({"point": index, "kind": test.kind, "interface": host.name, "peers": peers, "group": test.group,
                    "length_bytes": length, "frames_at_most": frames, "wire_bytes_at_most": wire,
                    "least_seconds": seconds, "max_rate_mbit": test.limits.max_rate_mbit}),
            &format!(
                "would run {} over {} with {}: {length} bytes, at most {frames} frames ({wire} bytes on the wire), \
                 {seconds:.3} s or more",
                test.kind.name(),
                host.name,
                peers.join(" ")
            ),
        );
    }
}

fn finish(options: &Options, summary: &Summary, output: &Output) -> Outcome {
    let value = serde_json::to_value(summary).map_err(|error| Failure::Incomplete(error.to_string()))?;
    output.event("summary", &json!({"summary": value}), &words(summary));
    if let Some(folder) = &options.folder {
        Store::summary(folder, &format!("{value:#}\n")).map_err(|error| Failure::Incomplete(error.to_string()))?;
    }
    match &summary.reason {
        None => Ok(()),
        Some(reason) if summary.points.is_empty() => Err(Failure::NotStarted(reason.clone())),
        Some(reason) => Err(Failure::Incomplete(reason.clone())),
    }
}

fn words(summary: &Summary) -> String {
    let mut lines = Vec::new();
    let known = |count: Option<u64>| count.map_or("unknown".to_owned(), |count| count.to_string());
    for point in &summary.points {
        for flow in &point.flows {
            lines.push(format!(
                "{} bytes, node {} to {}: {} sent, {} received, {} lost, {} duplicated, {} reordered, {} corrupt",
                flow.length_bytes,
                flow.from,
                flow.to,
                known(flow.sent),
                known(flow.received),
                known(flow.lost),
                known(flow.duplicated),
                known(flow.reordered),
                known(flow.corrupt)
            ));
            if let Some(latency) = &flow.latency_us {
                lines.push(format!("  latency µs: p50 {:.2}, p99 {:.2}", latency.p50, latency.p99));
            }
            if let Some(rate) = flow.received_rate {
                lines.push(format!("  {:.0} frames/s, {:.1} Mbit/s of user data", rate.frames_per_s, rate.user_mbit_s));
            }
        }
        for trip in &point.round_trip_us {
            let d = &trip.distribution;
            lines.push(format!("  round trip µs: p50 {:.2}, mean {:.2}, p99 {:.2}", d.p50, d.mean, d.p99));
        }
        for node in &point.quality {
            for reason in &node.reasons {
                lines.push(format!("  suspect, node {}: {reason}", node.node));
            }
        }
    }
    lines.join("\n")
}
