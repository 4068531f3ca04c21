//! The command line.

use crate::control::ClockError;
use crate::frame::{Framing, Mac};
use crate::job::Limits;
use crate::key::Key;
use crate::plan::{Test, TestKind};
use crate::safety::Allowed;
use crate::step::Steps;
use crate::test_options::{Given, make_test, read_option};
use lexopt::prelude::{Long, Short, Value};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

#[derive(Clone, Debug)]
pub enum Command {
    Help,
    Version,
    Interfaces,
    Serve,
    Hello,
    Fetch,
    Pause,
    State,
    Switch,
    Test(TestKind),
}

/// Everything the options say; each command reads what concerns it.
#[derive(Clone, Debug)]
pub struct Options {
    pub command: Command,
    pub interface: Option<String>,
    pub peers: Vec<Mac>,
    /// Further nodes that count what they overhear.
    pub bystanders: Vec<Mac>,
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
    /// Of `serve`: where test frames come in, and nothing goes out.
    pub sink: Option<String>,
    pub clock_error: ClockError,
    pub key: Key,
    /// Of `switch`.
    pub plan: Option<PathBuf>,
    pub is_virtual: bool,
    pub seed: Option<u64>,
    /// Of `pause`.
    pub quanta: u16,
    pub link_mbit_s: Option<f64>,
}

pub fn number<T: FromStr>(option: &str, text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{option} {text}: not a number this option takes"))
}

/// A finite number above 0 (or from 0 on).
pub fn positive(option: &str, text: &str, zero: bool) -> Result<f64, String> {
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
        "fetch" => Command::Fetch,
        "pause" => Command::Pause,
        "state" => Command::State,
        "switch" => Command::Switch,
        _ => {
            let kind = TestKind::ALL.into_iter().find(|kind| kind.name() == word);
            Command::Test(kind.ok_or_else(|| format!("`{word}` is no command; `framegen --help` lists them"))?)
        }
    })
}

/// Read the arguments, the program's name first; an error is one line that says all there is to change.
pub fn parse(arguments: impl IntoIterator<Item = std::ffi::OsString>) -> Result<Options, String> {
    let mut options = Options {
        command: Command::Help,
        interface: None,
        peers: Vec::new(),
        bystanders: Vec::new(),
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
        sink: None,
        clock_error: ClockError::default(),
        key: Key::default(),
        plan: None,
        is_virtual: false,
        seed: None,
        quanta: u16::MAX,
        link_mbit_s: None,
    };
    let mut given = Given::default();
    let mut faults: Vec<String> = Vec::new();
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
        let taken = if name == "step-seconds" {
            positive(&option, &text, false).map(|seconds| {
                step_seconds = seconds;
                true
            })
        } else {
            general(&mut options, &name, &option, &text)
                .and_then(|taken| Ok(taken || read_option(&mut given, &name, &option, &text)?))
        };
        match taken {
            Ok(true) => {}
            Ok(false) => faults.push(format!("{option} is no option; `framegen --help` lists them")),
            Err(fault) => faults.push(fault),
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
    let by_itself = matches!(options.command, Command::Help | Command::Version | Command::Interfaces | Command::Switch);
    if !by_itself && options.interface.is_none() {
        faults.push("-i INTERFACE is missing; `framegen interfaces` lists them".into());
    }
    options.seed = given.seed;
    if let Command::Test(kind) = options.command {
        match make_test(kind, given, &options) {
            Ok(test) => options.test = Some(test),
            Err(more) => faults.extend(more),
        }
    }
    let mut refuse = |wrong: bool, text: &str| faults.extend(wrong.then(|| text.to_owned()));
    if matches!(options.command, Command::Switch) {
        refuse(options.plan.is_none(), "--plan FILE is missing; docs/switch.md has one to begin with");
        refuse(options.is_virtual && options.folder.is_none(), "-o DIR is missing: where the logs of a virtual run go");
    }
    refuse(options.sink.is_some() && !matches!(options.command, Command::Serve), "--sink is for serve");
    refuse(matches!(options.command, Command::Hello) && options.peers.len() != 1, "hello takes one -p PEER");
    refuse(
        matches!(options.command, Command::Fetch) && (options.peers.len() != 1 || options.folder.is_none()),
        "fetch takes one -p PEER, and -o DIR",
    );
    if faults.is_empty() { Ok(options) } else { Err(faults.join("; ")) }
}

/// Options without a value.
fn flag(options: &mut Options, name: &str) -> bool {
    let place = match name {
        "json" => &mut options.json,
        "with-parent" => &mut options.with_parent,
        "virtual" => &mut options.is_virtual,
        "dry-run" => &mut options.dry_run,
        "once" => &mut options.once,
        "allow-default-route" => &mut options.allowed.default_route,
        "allow-multicast" => &mut options.allowed.multicast,
        "allow-broadcast" => &mut options.allowed.broadcast,
        "allow-pause" => &mut options.allowed.pause,
        "allow-unknown" => &mut options.allowed.unknown,
        "ethertype" => {
            options.framing = Framing::Ethertype;
            return true;
        }
        "udp" => {
            options.framing = Framing::Udp;
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
        "bystander" => options.bystanders.push(text.parse()?),
        "sink" => options.sink = Some(text.into()),
        "key" => options.key = Key::read(std::path::Path::new(text))?,
        "quanta" => options.quanta = number(option, text)?,
        "link-mbit" => options.link_mbit_s = Some(positive(option, text, false)?),
        "plan" => options.plan = Some(text.into()),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Receive;

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
    fn all_mistakes_are_named_at_once() {
        let error = read("ping-pong --count x --sizes 20 --late slip --sink e --frobnicate 3").expect_err("wrong");
        for word in ["--count x", "20 bytes", "--late", "-i INTERFACE", "-p PEER", "--sink", "--frobnicate"] {
            assert!(error.contains(word), "{word}: {error}");
        }
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
            (format!("stream {peer} --bystander 02:00:00:00:00:02"), "twice"),
            (format!("ping-pong {peer} --bystander 02:00:00:00:00:03"), "does nothing"),
            (format!("stream {peer} --sink eth2"), "--sink"),
            (format!("stream {peer} --answers group"), "does nothing"),
            (format!("one-to-many {peer} --answers nobody"), "unicast, group"),
        ] {
            let error = read(&line).expect_err(&line);
            assert!(error.contains(word), "{line}: {error}");
        }
    }
}
