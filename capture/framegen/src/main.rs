use framegen::cli::{self, Command, Options};
use framegen::clock::Clock;
use framegen::control::LogKind;
use framegen::folder::{Description, Files, describe as describe_run};
use framegen::frame::Mac;
use framegen::hardware::clock_number;
use framegen::host::Host;
use framegen::host_state::observe;
use framegen::interfaces::{Query, interfaces};
use framegen::job::{Receive, largest_user};
use framegen::output::{Output, printable};
use framegen::plan::Test;
use framegen::run::Run;
use framegen::safety;
use framegen::serve::{Serving, serve};
use framegen::session::{Session, SessionError};
use framegen::signals;
use framegen::store::{Store, whole};
use framegen::summary::Summary;
use framegen::switch::live::Live;
use framegen::switch::plan::SwitchPlan;
use framegen::switch::virtual_run;
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
        Command::Switch => return switch(options, &output),
        _ => {}
    }
    if options.with_parent {
        signals::end_with_parent().map_err(not_started)?;
    }
    signals::install().map_err(not_started)?;
    let mut host = host(options)?;
    let sink = options.sink.as_deref().map(|name| self::sink(options, name, &mut host)).transpose()?;
    for &peer in &options.peers {
        let is_ip = framegen::udp::ip(peer).is_some();
        let udp = options.framing == framegen::frame::Framing::Udp;
        if is_ip != udp {
            let text = if udp { "with --udp -p is an IPv4 address" } else { "-p of an IPv4 address needs --udp" };
            return Err(Failure::Usage(format!("{peer}: {text}")));
        }
    }
    for &peer in options.peers.iter().chain(&options.bystanders) {
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
                allow_broadcast: options.allowed.broadcast,
                allow_pause: options.allowed.pause,
                sink,
            };
            let whole = serve(host, &serving, &output).map_err(raw_frames)?;
            if whole { Ok(()) } else { Err(Failure::Incomplete("a test was cut short".into())) }
        }
        (Command::Pause, _) => pause(options, &host, &output),
        (Command::Fetch, _) => recall(options, &host, &output),
        (Command::State, _) => states(options, &host, &output),
        (_, Some(test)) => steer(options, test, host, &output),
        _ => greet(options, &host, &output),
    }
}

/// The interface and the clock; refused where safety says so.
fn host(options: &Options) -> Result<Host, Failure> {
    let name = options.interface.as_deref().unwrap_or_default();
    let silent = matches!(options.command, Command::State) && options.peers.is_empty();
    let link = if silent { safety::named(name) } else { safety::interface(name, options.allowed) };
    let link = link.map_err(not_started)?.map_err(Failure::NotStarted)?;
    let host = Host {
        interface: link.index,
        name: link.name,
        mac: link.mac.unwrap_or(Mac([0; 6])),
        mtu: link.mtu,
        clock: Clock::calibrate(options.clock_error),
        cpus: options.cpus.clone(),
        priority: options.priority,
        key: options.key.clone(),
        ip: framegen::udp::address_of(name).map_err(not_started)?,
        port: None,
        sink: None,
    };
    if options.test.is_none() {
        host.could_settle().map_err(not_started)?;
    }
    host.speaking(options.framing).map_err(not_started)
}

/// The host as test frames reach it at an interface that never sends; `host` learns its address.
fn sink(options: &Options, name: &str, host: &mut Host) -> Result<Host, Failure> {
    let link = safety::interface(name, options.allowed).map_err(not_started)?.map_err(Failure::NotStarted)?;
    let mac = link.mac.unwrap_or(Mac([0; 6]));
    if link.index == host.interface {
        return Err(Failure::Usage(format!("--sink {name}: another interface than -i, which sends")));
    }
    host.sink = Some(mac);
    Ok(Host { interface: link.index, name: link.name, mac, mtu: link.mtu, ip: None, ..host.clone() })
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

/// A switch as its plan says: of real frames, or of those the plan makes up.
fn switch(options: &Options, output: &Output) -> Outcome {
    let path = options.plan.as_deref().unwrap_or(std::path::Path::new(""));
    let text =
        std::fs::read_to_string(path).map_err(|error| Failure::NotStarted(format!("{}: {error}", path.display())))?;
    let refused = |faults: Vec<String>| Failure::Usage(format!("{}: {}", path.display(), faults.join("; ")));
    let mut plan = SwitchPlan::parse(&text, options.is_virtual).map_err(refused)?;
    plan.seed = options.seed.unwrap_or(plan.seed);
    let folder = options.folder.as_deref();
    if let Some(folder) = folder.filter(|_| options.is_virtual) {
        virtual_run::run(&plan, &text, folder).map_err(refused)?.map_err(not_started)?;
        let folder = folder.display();
        output.event("written", &json!({"folder": folder.to_string()}), &format!("{folder}: written"));
        return Ok(());
    }
    signals::install().map_err(not_started)?;
    let mut links = Vec::new();
    for name in plan.ports.iter().filter_map(|port| port.interface.as_deref()) {
        let link = safety::interface(name, options.allowed).map_err(not_started)?;
        links.push(link.map_err(Failure::NotStarted)?);
    }
    if (1..links.len()).any(|i| links[..i].iter().any(|link| link.index == links[i].index)) {
        return Err(Failure::Usage("[[ports]]: an interface is named twice".into()));
    }
    let limit = options.limits.max_seconds;
    let seconds = options.seconds.unwrap_or(limit);
    if seconds > limit {
        return Err(Failure::Usage(format!("--seconds {seconds}: the limit is --max-seconds {limit}")));
    }
    let prepare = |folder| std::fs::create_dir_all(folder).and_then(|()| whole(folder, "switch.toml", &text));
    folder.map_or(Ok(()), prepare).map_err(not_started)?;
    let live = Live::open(&plan, &links, options.limits, folder).map_err(raw_frames)?;
    let names: Vec<&str> = links.iter().map(|link| link.name.as_str()).collect();
    let text = format!("switching between {} for {seconds} s at most", names.join(", "));
    output.event("switching", &json!({"ports": names, "seconds": seconds}), &text);
    let passed = live.run(seconds).map_err(not_started)?;
    let text = format!("{} frames came, {} left, {} refused", passed.received, passed.sent, passed.refused);
    output.event("switched", &json!(passed), &text);
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

fn pause(options: &Options, host: &Host, output: &Output) -> Outcome {
    if !options.allowed.pause {
        return Err(Failure::NotStarted(
            "PAUSE frames stop whatever is behind this cable; --allow-pause if that is meant".into(),
        ));
    }
    let limit = options.limits.max_seconds;
    let seconds = options.seconds.unwrap_or(1.0);
    if seconds > limit {
        return Err(Failure::Usage(format!("--seconds {seconds}: the limit is --max-seconds {limit}")));
    }
    let speed = || interfaces().ok()?.into_iter().find(|link| link.name == host.name)?.speed_mbit_s;
    // Not known, as on a veth: a slower link would have been paused for longer.
    let link = options.link_mbit_s.or_else(|| speed().map(f64::from)).unwrap_or(1000.0);
    output.event(
        "pausing",
        &json!({"interface": host.name, "quanta": options.quanta, "link_mbit_s": link, "seconds": seconds}),
        &format!("pausing the partner of {} for {seconds} s", host.name),
    );
    let sent =
        framegen::pause::pause(host, options.quanta, link, seconds, signals::stop_requested).map_err(raw_frames)?;
    if let Some(folder) = &options.folder {
        let rows: String = sent.iter().map(|sent| format!("{},{}\n", sent.time_ns, sent.quanta)).collect();
        std::fs::create_dir_all(folder)
            .and_then(|()| whole(folder, "pauses.csv", &format!("time_ns,quanta\n{rows}")))
            .map_err(|error| Failure::Incomplete(error.to_string()))?;
    }
    output.event("paused", &json!({"frames": sent.len()}), &format!("{} PAUSE frames sent", sent.len()));
    Ok(())
}

/// What this host says of itself, and then each peer; null of one that does not.
fn states(options: &Options, host: &Host, output: &Output) -> Outcome {
    let tell = |node: usize, state: Option<serde_json::Value>| {
        let text = state.as_ref().map_or_else(|| format!("node {node} does not tell"), |state| format!("{state:#}"));
        output.event("state", &json!({"node": node, "state": state}), &text);
    };
    tell(0, Some(observe(host, true)));
    for (node, &peer) in (1..).zip(&options.peers) {
        let mut session = Session::hello(host, peer, options.framing, node).map_err(no_session)?;
        session.claim().map_err(no_session)?;
        let state = session.observe(true);
        // Free at once; the silence would free it too.
        drop(session.release());
        tell(usize::from(node), state.map_err(no_session)?);
    }
    Ok(())
}

/// The records that a peer kept of a test whose master was lost.
fn recall(options: &Options, host: &Host, output: &Output) -> Outcome {
    let mut session = Session::hello(host, options.peers[0], options.framing, 1).map_err(no_session)?;
    session.claim().map_err(no_session)?;
    let kept = session.recall().map_err(|error| {
        // Free at once; the silence would free it too.
        drop(session.release());
        no_session(error)
    })?;
    let mut store = Store::new(options.folder.clone()).map_err(not_started)?;
    let report = &kept.report;
    let most = usize::try_from(options.limits.max_frames).unwrap_or(usize::MAX).saturating_mul(2);
    let mut fault = None;
    for (kind, count) in [(LogKind::Sent, report.sent_records), (LogKind::Received, report.received_records)] {
        let mut records = Vec::new();
        let fetched = session.fetch(kind, count, most, &mut records);
        store.fetched(kept.point as usize, kept.node, kind, &records).map_err(not_started)?;
        fault = fault.or(fetched.err());
    }
    let files = store.end().files;
    let fields = json!({"test_id": kept.test, "point": kept.point, "node": kept.node, "report": report,
                        "frame_logs": files});
    if let Some(folder) = &options.folder {
        let name = format!("p{:03}-node{}-recalled.json", kept.point, kept.node);
        whole(folder, &name, &format!("{fields:#}\n")).map_err(not_started)?;
    }
    let records: u64 = files.iter().map(|file| file.records).sum();
    output.event("fetched", &fields, &format!("test {}: {records} records fetched", kept.test));
    match fault {
        // It stays there to be fetched again.
        Some(error) => Err(Failure::Incomplete(error.to_string())),
        None => session.release().map_err(no_session),
    }
}

fn steer(options: &Options, test: &Test, host: Host, output: &Output) -> Outcome {
    let (wrong, refused) = refused(options, test, &host);
    let all = [refused.as_slice(), &wrong].concat().join("; ");
    match (wrong.is_empty(), refused.is_empty()) {
        (true, true) => {}
        (false, true) => return Err(Failure::Usage(all)),
        _ => return Err(Failure::NotStarted(all)),
    }
    if options.dry_run {
        describe(test, &options.peers, &host, output);
        return Ok(());
    }
    let store = Store::new(options.folder.clone()).map_err(not_started)?;
    let everybody: Vec<Mac> = options.peers.iter().chain(&options.bystanders).copied().collect();
    let run = Run::open(&host, test, &everybody, output, options.steps, store).map_err(no_session)?;
    let (summary, files) = run.run();
    finish(options, &summary, files, output)
}

/// All for which a test does not begin: what is wrong with it, and what this host refuses.
fn refused(options: &Options, test: &Test, host: &Host) -> (Vec<String>, Vec<String>) {
    let largest = largest_user(test.framing, host.mtu);
    let (fitting, long): (Vec<u16>, Vec<u16>) = test.sizes.iter().partition(|&&size| usize::from(size) <= largest);
    let everybody: Vec<Mac> = options.peers.iter().chain(&options.bystanders).copied().collect();
    let point = |&length: &u16| test.point(0, length, host.mac, &everybody, options.limits.max_seconds);
    let points: Vec<_> = fitting.iter().map(point).collect();

    let mut wrong = Vec::new();
    let group = test.group.filter(|group| !group.is_multicast());
    wrong.extend(group.map(|group| format!("--group {group} is not a multicast address")));
    let beyond = long.iter().chain(&test.request_bytes).find(|&&size| usize::from(size) > largest);
    wrong.extend(beyond.map(|size| format!("{size} bytes: {} takes at most {largest}", host.name)));
    let jobs = points.iter().flat_map(|point| point.peers.iter().chain([&point.local]));
    wrong.extend(jobs.filter_map(|job| job.check(&options.limits, host.mtu).err()));
    wrong.dedup();
    let least: f64 = test.sizes.iter().map(|&length| test.duration_s(length)).sum();
    let limit = options.limits.max_seconds;
    let overtime =
        (least > limit).then(|| format!("the test takes {least:.1} s at least; the limit is --max-seconds {limit}"));
    wrong.extend(overtime);

    let mut refused: Vec<String> = host.could_settle().err().iter().map(ToString::to_string).collect();
    refused.extend(test.group.and_then(|group| safety::destination(group, host.mac, options.allowed).err()));
    let to_groups = options.peers.iter().any(|peer| peer.is_multicast()) && !options.allowed.unknown;
    let unheard = "a group does not answer a handshake; --allow-unknown if that is meant";
    refused.extend(to_groups.then(|| unheard.to_owned()));
    let stamped = points.iter().any(|p| p.local.receive == Receive::Hardware && !p.local.expect.is_empty());
    let clock = stamped.then(|| Query::new().and_then(|query| clock_number(&query, &host.name)));
    refused.extend(clock.and_then(Result::err).map(|error| error.to_string()));
    (wrong, refused)
}

/// What would be sent.
fn describe(test: &Test, peers: &[Mac], host: &Host, output: &Output) {
    let peers: Vec<String> = peers.iter().map(Mac::to_string).collect();
    for (index, &length) in test.sizes.iter().enumerate() {
        let (frames, seconds) = (test.planned(length), test.duration_s(length));
        let wire = u64::from(frames) * framegen::frame::wire_bytes(usize::from(length) + test.framing.header_bytes());
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

fn finish(options: &Options, summary: &Summary, files: Files, output: &Output) -> Outcome {
    let value = serde_json::to_value(summary).map_err(|error| Failure::Incomplete(error.to_string()))?;
    output.event("summary", &json!({"summary": value}), &words(summary));
    if let Some(folder) = &options.folder {
        let interface = options.interface.as_deref().unwrap_or_default();
        let speed = interfaces().unwrap_or_default().into_iter().find(|link| link.name == interface);
        let description = Description {
            origin: "captured",
            hosts: Vec::new(),
            link_mbit_s: speed.and_then(|link| link.speed_mbit_s).map(f64::from),
            files,
            more: toml::Table::new(),
        };
        whole(folder, "summary.json", &format!("{value:#}\n"))
            .and_then(|()| framegen::folder::write(folder, &describe_run(summary, &description)))
            .map_err(|error| Failure::Incomplete(error.to_string()))?;
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
