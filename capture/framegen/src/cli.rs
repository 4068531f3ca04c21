//! The command line.

use crate::control::ClockError;
use crate::frame::{Framing, HEADER, Mac};
use crate::job::{Limits, Receive, Transmit, largest_user};
use crate::pacing::{Arrivals, Late};
use crate::payload::Payload;
use crate::plan::{Direction, Test, TestKind, parse_sizes, parse_times};
use crate::safety::Allowed;
use crate::step::Steps;
use lexopt::prelude::{Long, Short, Value};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

pub const USAGE: &str = "\
framegen - raw IEEE 802.3 test frames: sends, receives, times and counts them

  framegen serve -i INTERFACE                      do what a master asks, until interrupted
  framegen TEST -i INTERFACE -p PEER [options]     steer a test from here
  framegen hello -i INTERFACE -p PEER              is the peer there?
  framegen interfaces                              what this host's interfaces can do

TEST
  request-response  a request of --request-bytes, a response of each of --sizes
  ping-pong         request and response of each of --sizes
  stream            frames one way (--direction), paced by --spacing-us and --arrivals
  max-rate          a stream without spacing, 1 s a size unless --count or --seconds
  background        a stream without frame logs, 1500 bytes every 28 us unless told otherwise
  one-to-many       a request to --group, a response from every -p
  many-to-one       every -p sends a stream here
  clock             compare the clocks

What is sent
  --sizes LIST          user bytes: 64,512 or 64:1500:1 (first:last:step) or 1000+-3; default 64
  --count N             frames or loops a size; default 1000
  --seconds S           a time instead of a count
  --spacing-us X        from frame to frame (burst to burst, request to request); default 100, round trips 0
  --arrivals HOW        regular (default), poisson, burst, file
  --seed N              of poisson; default 1
  --burst N             frames a burst; default 10
  --times FILE          departures in us, one a line (implies --arrivals file)
  --late HOW            slip (default), catch-up, skip
  --request-bytes N     of request-response and one-to-many; default 64
  --direction HOW       of a stream: to-peer (default), from-peer, both
  --payload HOW         random (default), ramp, constant
  --ethertype           EtherType 0x88B5 instead of a length field
  --marks N             MARK frames before and after; default 0
  --group ADDRESS       of one-to-many; default 03:00:00:46:47:01

How
  --receive HOW         busy, batch, ring, or hardware (the card's timestamps); default busy for round trips,
                        ring for streams
  --transmit HOW        send (default) or ring
  --timeout-ms X        for a response; default 100
  --drain-ms X          for the last frames of a stream; default 200
  --cpu A[,B]           CPU of the sending thread, and of the receiving one
  --priority N          SCHED_FIFO priority of both

What comes out
  -o, --output DIR      summary.json and the frame logs
  --json                events as JSON, one a line
  --step                wait for a line on standard input at \"ready\" and at \"sent\"
  --step-seconds S      for at most this long; default 60
  --with-parent         end when the process that started this one ends

Bounds and permissions
  --max-seconds S       of the whole run; default 60
  --max-frames N        of a stream; default 10000000
  --max-bytes N         on the wire, of a stream; default 16e9
  --max-rate-mbit X     on the wire, averaged over 1 ms; default 1000
  --allow-default-route --allow-multicast --allow-broadcast
  --allow-unknown       send a stream to an address without a handshake
  --dry-run             say what would be sent, send nothing

serve only
  --only ADDRESS        serve this master only
  --once                end after one session
  --seconds S           end after this time

For tests of this program
  --clock-offset-us X, --clock-drift-ppm X    a synthetic error of this node's clock
";

#[derive(Clone, Debug)]
pub enum Command {
    Help,
    Version,
    Interfaces,
    Serve,
    Hello,
    Test(TestKind),
}

/// Everything the options say; each command reads what concerns it.
#[derive(Clone, Debug)]
pub struct Options {
    pub command: Command,
    pub interface: Option<String>,
    pub peers: Vec<Mac>,
    pub test: Option<Test>,
    pub limits: Limits,
    pub allowed: Allowed,
    pub framing: Framing,
    pub cpus: Vec<usize>,
    pub priority: Option<i32>,
    pub folder: Option<PathBuf>,
    pub json: bool,
    pub steps: Steps,
    pub with_parent: bool,
    pub dry_run: bool,
    pub only: Option<Mac>,
    pub once: bool,
    pub seconds: Option<f64>,
    pub clock_error: ClockError,
}

/// The options of a test as they were given.
#[derive(Default)]
struct Given {
    sizes: Option<Vec<u16>>,
    count: Option<u32>,
    spacing_us: Option<f64>,
    arrivals: Option<Arrivals>,
    seed: Option<u64>,
    burst: Option<u32>,
    times_ns: Option<Arc<[f64]>>,
    late: Option<Late>,
    request_bytes: Option<u16>,
    direction: Option<Direction>,
    payload: Option<Payload>,
    receive: Option<Receive>,
    transmit: Option<Transmit>,
    marks: Option<u32>,
    timeout_ms: Option<f64>,
    drain_ms: Option<f64>,
    group: Option<Mac>,
}

fn choice<T: Copy>(option: &str, text: &str, choices: &[(&str, T)]) -> Result<T, String> {
    let found = choices.iter().find(|(name, _)| *name == text);
    let names = || choices.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    found.map(|(_, value)| *value).ok_or_else(|| format!("{option} {text}: one of {}", names()))
}

fn number<T: FromStr>(option: &str, text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{option} {text}: not a number this option takes"))
}

/// A finite number above 0 (or from 0 on).
fn positive(option: &str, text: &str, zero: bool) -> Result<f64, String> {
    let value: f64 = number(option, text)?;
    let good = value.is_finite() && (value > 0.0 || (zero && value == 0.0));
    if good { Ok(value) } else { Err(format!("{option} {text}: a number {} 0", if zero { "from" } else { "above" })) }
}

fn command(word: &str) -> Result<Command, String> {
    Ok(match word {
        "help" => Command::Help,
        "interfaces" => Command::Interfaces,
        "serve" => Command::Serve,
        "hello" => Command::Hello,
        _ => {
            let kind = TestKind::ALL.into_iter().find(|kind| kind.name() == word);
            Command::Test(kind.ok_or_else(|| format!("`{word}` is no command; `framegen --help` lists them"))?)
        }
    })
}

/// Read the arguments, the program's name first; an error is one line that says what to change.
pub fn parse(arguments: impl IntoIterator<Item = std::ffi::OsString>) -> Result<Options, String> {
    let mut options = Options {
        command: Command::Help,
        interface: None,
        peers: Vec::new(),
        test: None,
        limits: Limits::default(),
        allowed: Allowed::default(),
        framing: Framing::Length,
        cpus: Vec::new(),
        priority: None,
        folder: None,
        json: false,
        steps: Steps(None),
        with_parent: false,
        dry_run: false,
        only: None,
        once: false,
        seconds: None,
        clock_error: ClockError::default(),
    };
    let mut given = Given::default();
    let mut word = None;
    let mut step_seconds = 60.0;
    let mut parser = lexopt::Parser::from_iter(arguments);
    while let Some(argument) = parser.next().map_err(|error| error.to_string())? {
        let name = match argument {
            Value(value) if word.is_none() => {
                word = Some(value.to_string_lossy().into_owned());
                continue;
            }
            Value(value) => {
                return Err(format!("`{}` is one word too many", value.to_string_lossy()));
            }
            Short('i') => "interface".to_owned(),
            Short('p') => "peer".to_owned(),
            Short('o') => "output".to_owned(),
            Short('h') => "help".to_owned(),
            Short('V') => "version".to_owned(),
            Short(other) => {
                return Err(format!("-{other} is no option; `framegen --help` lists them"));
            }
            Long(name) => name.to_owned(),
        };
        if flag(&mut options, &name) {
            continue;
        }
        let option = format!("--{name}");
        if name == "help" || name == "version" {
            word = Some(name);
            continue;
        }
        let value = parser.value().map_err(|_| format!("{option} is no option, or its value is missing"))?;
        let text = value.into_string().map_err(|_| format!("{option}: its value is not text"))?;
        if name == "step-seconds" {
            step_seconds = positive(&option, &text, false)?;
        } else if !general(&mut options, &name, &option, &text)? && !testing(&mut given, &name, &option, &text)? {
            return Err(format!("{option} is no option; `framegen --help` lists them"));
        }
    }
    if options.steps.wanted() {
        options.steps = Steps(Some(Duration::from_secs_f64(step_seconds)));
    }
    options.command = match word.as_deref() {
        Some("version") => Command::Version,
        Some(word) => command(word)?,
        None => return Err("no command; `framegen --help` lists them".into()),
    };
    if matches!(options.command, Command::Serve | Command::Hello | Command::Test(_)) && options.interface.is_none() {
        return Err("-i INTERFACE is missing; `framegen interfaces` lists them".into());
    }
    if let Command::Test(kind) = options.command {
        options.test = Some(test(kind, given, &options)?);
    }
    if matches!(options.command, Command::Hello) && options.peers.len() != 1 {
        return Err("hello takes one -p PEER".into());
    }
    Ok(options)
}

/// Options without a value.
fn flag(options: &mut Options, name: &str) -> bool {
    let place = match name {
        "json" => &mut options.json,
        "with-parent" => &mut options.with_parent,
        "dry-run" => &mut options.dry_run,
        "once" => &mut options.once,
        "allow-default-route" => &mut options.allowed.default_route,
        "allow-multicast" => &mut options.allowed.multicast,
        "allow-broadcast" => &mut options.allowed.broadcast,
        "allow-unknown" => &mut options.allowed.unknown,
        "ethertype" => {
            options.framing = Framing::Ethertype;
            return true;
        }
        "step" => {
            options.steps = Steps(Some(Duration::MAX));
            return true;
        }
        _ => return false,
    };
    *place = true;
    true
}

/// Options of every command.
fn general(options: &mut Options, name: &str, option: &str, text: &str) -> Result<bool, String> {
    match name {
        "interface" => options.interface = Some(text.into()),
        "peer" => options.peers.push(text.parse()?),
        "output" => options.folder = Some(text.into()),
        "only" => options.only = Some(text.parse()?),
        "seconds" => options.seconds = Some(positive(option, text, false)?),
        "max-seconds" => options.limits.max_seconds = positive(option, text, false)?,
        "max-frames" => options.limits.max_frames = number(option, text)?,
        "max-bytes" => options.limits.max_bytes = positive(option, text, false)? as u64,
        "max-rate-mbit" => options.limits.max_rate_mbit = positive(option, text, false)?,
        "priority" => options.priority = Some(number(option, text)?),
        "clock-offset-us" => options.clock_error.offset_ns = (number::<f64>(option, text)? * 1e3) as i64,
        "clock-drift-ppm" => options.clock_error.drift_ppm = number(option, text)?,
        "cpu" => {
            options.cpus = text.split(',').map(|cpu| number(option, cpu)).collect::<Result<_, _>>()?;
            if options.cpus.len() > 2 || options.cpus.iter().any(|&cpu| cpu >= libc::CPU_SETSIZE as usize) {
                return Err(format!("{option} {text}: one CPU number or two"));
            }
        }
        _ => return Ok(false),
    }
    Ok(true)
}

/// Options of a test.
fn testing(given: &mut Given, name: &str, option: &str, text: &str) -> Result<bool, String> {
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
            given.transmit = Some(choice(option, text, &[("send", Transmit::Send), ("ring", Transmit::Ring)])?);
        }
        "marks" => given.marks = Some(number(option, text)?),
        "timeout-ms" => given.timeout_ms = Some(positive(option, text, false)?),
        "drain-ms" => given.drain_ms = Some(positive(option, text, true)?),
        "group" => given.group = Some(text.parse()?),
        _ => return Ok(false),
    }
    Ok(true)
}

/// The test these options make, or why they make none.
fn test(kind: TestKind, given: Given, options: &Options) -> Result<Test, String> {
    let streams = matches!(kind, TestKind::Stream | TestKind::MaxRate | TestKind::Background | TestKind::ManyToOne);
    let (asks, name) = (kind.asks(), kind.name());
    let only_for = |given: bool, fits: bool, option: &str| {
        if given && !fits { Err(format!("{option} does nothing in {name}")) } else { Ok(()) }
    };
    only_for(
        given.request_bytes.is_some(),
        matches!(kind, TestKind::RequestResponse | TestKind::OneToMany),
        "--request-bytes",
    )?;
    only_for(given.direction.is_some(), matches!(kind, TestKind::Stream | TestKind::MaxRate), "--direction")?;
    only_for(given.group.is_some(), kind == TestKind::OneToMany, "--group")?;
    only_for(given.timeout_ms.is_some(), asks, "--timeout-ms")?;
    only_for(given.drain_ms.is_some(), streams, "--drain-ms")?;
    only_for(given.transmit.is_some(), streams, "--transmit")?;
    for (set, option) in [
        (given.arrivals.is_some(), "--arrivals"),
        (given.seed.is_some(), "--seed"),
        (given.burst.is_some(), "--burst"),
        (given.times_ns.is_some(), "--times"),
        (given.late.is_some(), "--late"),
    ] {
        only_for(set, streams && kind != TestKind::MaxRate, option)?;
    }
    only_for(given.spacing_us.is_some(), kind != TestKind::MaxRate && kind != TestKind::Clock, "--spacing-us")?;

    if options.peers.is_empty() {
        return Err("-p PEER is missing: the Ethernet address that `framegen serve` prints there".into());
    }
    if options.peers.len() > 1 && !kind.takes_many_peers() {
        return Err(format!("{name} takes one -p PEER"));
    }
    if (1..options.peers.len()).any(|i| options.peers[..i].contains(&options.peers[i])) {
        return Err("a -p PEER is named twice".into());
    }
    let times = given.times_ns.unwrap_or_else(|| Arc::new([]));
    let arrivals = given.arrivals.unwrap_or(if times.is_empty() { Arrivals::Regular } else { Arrivals::File });
    if (arrivals == Arrivals::File) == times.is_empty() {
        return Err("--arrivals file and --times FILE belong together".into());
    }
    let direction = given.direction.unwrap_or(Direction::ToPeer);
    if !times.is_empty() && (direction != Direction::ToPeer || kind == TestKind::ManyToOne) {
        return Err("--times FILE is known on this host only: the stream must go from here to the peer".into());
    }
    if options.allowed.unknown && (!streams || kind == TestKind::ManyToOne || direction != Direction::ToPeer) {
        return Err("--allow-unknown is for a stream to the peer: everything else needs its answers".into());
    }
    // max-rate: a second of each size, as the published tests; background: what they ran beside them.
    let seconds = options.seconds.or((kind == TestKind::MaxRate && given.count.is_none()).then_some(1.0));
    if options.seconds.is_some() && given.count.is_some() {
        return Err("--count or --seconds, not both".into());
    }
    let background = kind == TestKind::Background;
    let sizes = given.sizes.unwrap_or_else(|| vec![if background { 1500 } else { 64 }]);
    let largest = largest_user(options.framing, u32::MAX);
    for &size in sizes.iter().chain(&given.request_bytes) {
        if !(HEADER..=largest).contains(&usize::from(size)) {
            return Err(format!("{size} bytes: a frame has {HEADER} to {largest} user bytes"));
        }
    }
    let default_spacing = if asks || kind == TestKind::MaxRate {
        0.0
    } else if background {
        28.0
    } else {
        100.0
    };
    let request = given.request_bytes.unwrap_or(64);
    let count = given.count.unwrap_or(if times.is_empty() { 1000 } else { times.len() as u32 });
    if !times.is_empty() && count as usize > times.len() {
        return Err(format!("--count {count}: the file has {} times", times.len()));
    }
    let group = Mac([3, 0, 0, 0x46, 0x47, 1]);
    let test = Test {
        kind,
        sizes: if kind == TestKind::Clock { Vec::new() } else { sizes },
        count,
        seconds,
        spacing_us: given.spacing_us.unwrap_or(default_spacing),
        arrivals,
        seed: given.seed.unwrap_or(1),
        burst: given.burst.unwrap_or(10),
        late: given.late.unwrap_or(Late::Slip),
        request_bytes: matches!(kind, TestKind::RequestResponse | TestKind::OneToMany).then_some(request),
        direction,
        payload: given.payload.unwrap_or(Payload::Random),
        framing: options.framing,
        receive: given.receive.unwrap_or(if asks { Receive::Busy } else { Receive::Ring }),
        transmit: given.transmit.unwrap_or(Transmit::Send),
        marks: given.marks.unwrap_or(0),
        timeout_ms: given.timeout_ms.unwrap_or(100.0),
        drain_ms: given.drain_ms.unwrap_or(200.0),
        group: (kind == TestKind::OneToMany).then_some(given.group.unwrap_or(group)),
        unknown_peer: options.allowed.unknown,
        times_ns: times,
        limits: options.limits,
    };
    Ok(test)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Options, String> {
        let words = std::iter::once("framegen").chain(line.split_whitespace());
        parse(words.map(std::ffi::OsString::from))
    }

    #[test]
    fn a_test_with_its_defaults() {
        let options = read("request-response -i eth1 -p 02:00:00:00:00:02 --sizes 64:1500:4").expect("good");
        let test = options.test.expect("a test");
        assert_eq!((test.kind, test.count, test.request_bytes), (TestKind::RequestResponse, 1000, Some(64)));
        assert_eq!((test.sizes.len(), test.receive, test.spacing_us), (360, Receive::Busy, 0.0));
        let test = read("max-rate -i eth1 -p 02:00:00:00:00:02").expect("good").test.expect("a test");
        assert_eq!((test.seconds, test.spacing_us), (Some(1.0), 0.0));
    }

    #[test]
    fn every_mistake_is_named() {
        let peer = "-i eth1 -p 02:00:00:00:00:02";
        for (line, word) in [
            ("".to_owned(), "no command"),
            ("strean".into(), "strean"),
            ("stream -p 02:00:00:00:00:02".into(), "-i INTERFACE"),
            ("stream -i eth1".into(), "-p PEER"),
            ("stream -i eth1 -p nobody".into(), "nobody"),
            (format!("stream {peer} --sizes 35"), "35 bytes"),
            (format!("stream {peer} --sizes 1501"), "1501 bytes"),
            (format!("stream {peer} --spacing-us -1"), "--spacing-us"),
            (format!("stream {peer} --spacing-us nan"), "--spacing-us"),
            (format!("stream {peer} --arrivals sometimes"), "regular, poisson"),
            (format!("stream {peer} --arrivals file"), "--times"),
            (format!("stream {peer} --count 5 --seconds 1"), "not both"),
            (format!("stream {peer} --frobnicate 3"), "--frobnicate"),
            (format!("stream {peer} --request-bytes 64"), "does nothing"),
            (format!("stream {peer} -p 02:00:00:00:00:03"), "one -p"),
            (format!("many-to-one {peer} -p 02:00:00:00:00:02"), "twice"),
            (format!("ping-pong {peer} --late slip"), "does nothing"),
            (format!("ping-pong {peer} --allow-unknown"), "--allow-unknown"),
            (format!("stream {peer} --max-seconds 0"), "--max-seconds"),
            (format!("stream {peer} extra"), "too many"),
            (format!("stream {peer} --cpu 1,2,3"), "--cpu"),
        ] {
            let error = read(&line).expect_err(&line);
            assert!(error.contains(word), "{line}: {error}");
        }
    }
}
