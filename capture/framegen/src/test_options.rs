//! The options of a test, and the test they make.

use crate::cli::{Options, number, positive};
use crate::frame::{Framing, HEADER, Mac};
use crate::job::{PauseJob, Receive, Transmit, largest_user};
use crate::lists::{parse_sizes, parse_times};
use crate::pacing::{Arrivals, Late};
use crate::payload::Payload;
use crate::plan::{Answers, Direction, Test, TestKind};
use crate::udp;
use std::sync::Arc;

/// The options of a test as they were given.
#[derive(Default)]
pub struct Given {
    sizes: Option<Vec<u16>>,
    count: Option<u32>,
    spacing_us: Option<f64>,
    arrivals: Option<Arrivals>,
    pub seed: Option<u64>,
    burst: Option<u32>,
    times_ns: Option<Arc<[f64]>>,
    late: Option<Late>,
    request_bytes: Option<u16>,
    request_same: bool,
    direction: Option<Direction>,
    payload: Option<Payload>,
    receive: Option<Receive>,
    transmit: Option<Transmit>,
    marks: Option<u32>,
    histogram_ns: Option<u32>,
    timeout_ms: Option<f64>,
    drain_ms: Option<f64>,
    group: Option<Mac>,
    answers: Option<Answers>,
    pause_seconds: Option<f64>,
    pause_after_ms: Option<f64>,
}

fn choice<T: Copy>(option: &str, text: &str, choices: &[(&str, T)]) -> Result<T, String> {
    let found = choices.iter().find(|(name, _)| *name == text);
    let names = || choices.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    found.map(|(_, value)| *value).ok_or_else(|| format!("{option} {text}: one of {}", names()))
}

/// Take an option of a test; false if it is none.
pub fn read_option(given: &mut Given, name: &str, option: &str, text: &str) -> Result<bool, String> {
    match name {
        "sizes" => given.sizes = Some(parse_sizes(text).map_err(|error| format!("{option}: {error}"))?),
        "count" => given.count = Some(number(option, text)?),
        "spacing-us" => given.spacing_us = Some(positive(option, text, true)?),
        "arrivals" => {
            let choices = [
                ("regular", Arrivals::Regular),
                ("poisson", Arrivals::Poisson),
                ("burst", Arrivals::Burst),
                ("file", Arrivals::File),
            ];
            given.arrivals = Some(choice(option, text, &choices)?);
        }
        "seed" => given.seed = Some(number(option, text)?),
        "burst" => given.burst = Some(number(option, text)?),
        "times" => {
            let content = std::fs::read_to_string(text).map_err(|error| format!("{option} {text}: {error}"))?;
            given.times_ns = Some(parse_times(&content).map_err(|error| format!("{option} {text}: {error}"))?);
        }
        "late" => {
            let choices = [("slip", Late::Slip), ("catch-up", Late::CatchUp), ("skip", Late::Skip)];
            given.late = Some(choice(option, text, &choices)?);
        }
        "request-bytes" if text == "same" => given.request_same = true,
        "request-bytes" => given.request_bytes = Some(number(option, text)?),
        "direction" => {
            let choices =
                [("to-peer", Direction::ToPeer), ("from-peer", Direction::FromPeer), ("both", Direction::Both)];
            given.direction = Some(choice(option, text, &choices)?);
        }
        "payload" => {
            let choices = [("random", Payload::Random), ("ramp", Payload::Ramp), ("constant", Payload::Constant)];
            given.payload = Some(choice(option, text, &choices)?);
        }
        "receive" => {
            let choices = [
                ("busy", Receive::Busy),
                ("batch", Receive::Batch),
                ("ring", Receive::Ring),
                ("hardware", Receive::Hardware),
            ];
            given.receive = Some(choice(option, text, &choices)?);
        }
        "transmit" => {
            let choices = [("send", Transmit::Send), ("batch", Transmit::Batch), ("ring", Transmit::Ring)];
            given.transmit = Some(choice(option, text, &choices)?);
        }
        "histogram-ns" => given.histogram_ns = Some(number(option, text)?).filter(|&ns| ns > 0),
        "marks" => given.marks = Some(number(option, text)?),
        "timeout-ms" => given.timeout_ms = Some(positive(option, text, false)?),
        "drain-ms" => given.drain_ms = Some(positive(option, text, true)?),
        "pause-seconds" => given.pause_seconds = Some(positive(option, text, false)?),
        "pause-after-ms" => given.pause_after_ms = Some(positive(option, text, true)?),
        "group" => given.group = Some(text.parse()?),
        "answers" => {
            given.answers = Some(choice(option, text, &[("unicast", Answers::Unicast), ("group", Answers::Group)])?);
        }
        _ => return Ok(false),
    }
    Ok(true)
}

/// The test these options make, or everything for which they make none.
pub fn make_test(kind: TestKind, given: Given, options: &Options) -> Result<Test, Vec<String>> {
    let mut faults = Vec::new();
    let streams = matches!(kind, TestKind::Stream | TestKind::MaxRate | TestKind::Background | TestKind::ManyToOne);
    let (asks, name) = (kind.asks(), kind.name());
    let mut refuse = |wrong: bool, text: &str| faults.extend(wrong.then(|| text.to_owned()));
    let mut only_for = |given: bool, fits: bool, option: &str| {
        refuse(given && !fits, &format!("{option} does nothing in {name}"));
    };
    only_for(
        given.request_bytes.is_some() || given.request_same,
        matches!(kind, TestKind::RequestResponse | TestKind::OneToMany),
        "--request-bytes",
    );
    only_for(given.direction.is_some(), matches!(kind, TestKind::Stream | TestKind::MaxRate), "--direction");
    only_for(given.group.is_some(), kind == TestKind::OneToMany, "--group");
    only_for(given.answers.is_some(), kind == TestKind::OneToMany, "--answers");
    only_for(
        !options.bystanders.is_empty(),
        matches!(kind, TestKind::Stream | TestKind::MaxRate) && given.direction.is_none_or(|d| d == Direction::ToPeer),
        "--bystander",
    );
    let to_peer = matches!(kind, TestKind::Stream | TestKind::MaxRate | TestKind::Background)
        && given.direction.is_none_or(|direction| direction == Direction::ToPeer);
    only_for(given.pause_seconds.is_some(), to_peer && !options.allowed.unknown, "--pause-seconds");
    only_for(given.timeout_ms.is_some(), asks, "--timeout-ms");
    only_for(given.histogram_ns.is_some(), asks, "--histogram-ns");
    only_for(given.drain_ms.is_some(), streams, "--drain-ms");
    only_for(given.transmit.is_some(), streams, "--transmit");
    for (set, option) in [
        (given.arrivals.is_some(), "--arrivals"),
        (given.seed.is_some(), "--seed"),
        (given.burst.is_some(), "--burst"),
        (given.times_ns.is_some(), "--times"),
        (given.late.is_some(), "--late"),
    ] {
        only_for(set, streams && kind != TestKind::MaxRate, option);
    }
    only_for(given.spacing_us.is_some(), kind != TestKind::MaxRate && kind != TestKind::Clock, "--spacing-us");

    refuse(options.peers.is_empty(), "-p PEER is missing: the Ethernet address that `framegen serve` prints there");
    refuse(options.peers.len() > 1 && !kind.takes_many_peers(), &format!("{name} takes one -p PEER"));
    let everybody: Vec<Mac> = options.peers.iter().chain(&options.bystanders).copied().collect();
    refuse(
        (1..everybody.len()).any(|i| everybody[..i].contains(&everybody[i])),
        "a -p PEER or --bystander is named twice",
    );
    refuse(given.pause_after_ms.is_some() && given.pause_seconds.is_none(), "--pause-after-ms: and --pause-seconds");
    refuse(
        given.pause_seconds.is_some() && !options.allowed.pause,
        "PAUSE frames stop whatever is behind the peer's cable; --allow-pause if that is meant",
    );
    let pause = given.pause_seconds.map(|seconds| PauseJob {
        after_s: given.pause_after_ms.unwrap_or(0.0) / 1e3,
        seconds,
        quanta: options.quanta,
        link_mbit: options.link_mbit_s.unwrap_or(1000.0),
    });
    if let Some(Err(text)) = pause.as_ref().map(PauseJob::check) {
        refuse(true, &text);
    }
    let times = given.times_ns.unwrap_or_else(|| Arc::new([]));
    let arrivals = given.arrivals.unwrap_or(if times.is_empty() { Arrivals::Regular } else { Arrivals::File });
    refuse((arrivals == Arrivals::File) == times.is_empty(), "--arrivals file and --times FILE belong together");
    let direction = given.direction.unwrap_or(Direction::ToPeer);
    refuse(
        !times.is_empty() && (direction != Direction::ToPeer || kind == TestKind::ManyToOne),
        "--times FILE is known on this host only: the stream must go from here to the peer",
    );
    refuse(
        !options.bystanders.is_empty() && (options.allowed.unknown || options.framing == Framing::Udp),
        "--bystander: with raw frames, and a peer that answers, only",
    );
    refuse(
        options.allowed.unknown && (!streams || kind == TestKind::ManyToOne || direction != Direction::ToPeer),
        "--allow-unknown is for a stream to the peer: everything else needs its answers",
    );
    // max-rate: a second of each size, as the published tests; background: what they ran beside them.
    let seconds = options.seconds.or((kind == TestKind::MaxRate && given.count.is_none()).then_some(1.0));
    refuse(options.seconds.is_some() && given.count.is_some(), "--count or --seconds, not both");
    let background = kind == TestKind::Background;
    let sizes =
        given.sizes.unwrap_or_else(|| vec![if background { 1500 - options.framing.header_bytes() as u16 } else { 64 }]);
    let largest = largest_user(options.framing, u32::MAX);
    let fits = |size: u16| (HEADER..=largest).contains(&usize::from(size));
    let beyond = sizes.iter().chain(&given.request_bytes).find(|&&size| !fits(size));
    refuse(
        beyond.is_some(),
        &format!("{} bytes: a frame has {HEADER} to {largest} user bytes", beyond.copied().unwrap_or_default()),
    );
    let default_spacing = if asks || kind == TestKind::MaxRate {
        0.0
    } else if background {
        28.0
    } else {
        100.0
    };
    let request = given.request_bytes.unwrap_or(64);
    let count = given.count.unwrap_or(if times.is_empty() { 1000 } else { times.len() as u32 });
    refuse(
        !times.is_empty() && count as usize > times.len(),
        &format!("--count {count}: the file has {} times", times.len()),
    );
    let udp = options.framing == Framing::Udp;
    let at_once = if kind == TestKind::MaxRate && !udp { Transmit::Batch } else { Transmit::Send };
    let transmit = given.transmit.unwrap_or(at_once);
    refuse(
        udp && transmit != Transmit::Send,
        "--transmit batch and ring send raw frames only; --udp goes by the kernel's stack",
    );
    refuse(
        given.group.is_some_and(|group| udp::ip(group).is_some() != udp),
        if udp { "--group: with --udp an IPv4 address" } else { "--group: an IPv4 address needs --udp" },
    );
    let group = if udp { udp::address([239, 255, 70, 71].into()) } else { Mac([3, 0, 0, 0x46, 0x47, 1]) };
    let test = Test {
        kind,
        pause,
        sizes: if kind == TestKind::Clock { Vec::new() } else { sizes },
        count,
        seconds,
        spacing_us: given.spacing_us.unwrap_or(default_spacing),
        arrivals,
        seed: given.seed.unwrap_or(1),
        burst: given.burst.unwrap_or(10),
        late: given.late.unwrap_or(Late::Slip),
        request_bytes: (matches!(kind, TestKind::RequestResponse | TestKind::OneToMany) && !given.request_same)
            .then_some(request),
        direction,
        payload: given.payload.unwrap_or(Payload::Random),
        framing: options.framing,
        receive: given.receive.unwrap_or(if asks { Receive::Busy } else { Receive::Ring }),
        transmit,
        marks: given.marks.unwrap_or(0),
        histogram_ns: given.histogram_ns,
        timeout_ms: given.timeout_ms.unwrap_or(100.0),
        drain_ms: given.drain_ms.unwrap_or(200.0),
        group: (kind == TestKind::OneToMany).then_some(given.group.unwrap_or(group)),
        answers: given.answers.unwrap_or_default(),
        bystanders: options.bystanders.len() as u16,
        unknown_peer: options.allowed.unknown,
        times_ns: times,
        limits: options.limits,
    };
    if faults.is_empty() { Ok(test) } else { Err(faults) }
}
