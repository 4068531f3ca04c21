//! What one node has to do at one point of a test, and what it reports afterwards. Both travel in control messages.

use crate::frame::{Framing, HEADER, MAX_LENGTH_FIELD, Mac, wire_bytes};
use crate::netlink::Counters;
use crate::pacing::{Arrivals, Late};
use crate::payload::{MAX_USER, Payload};
use crate::tally::Counts;
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Receive {
    /// Spin on a ring of single frames; time stamped by this program.
    Busy,
    /// recvmmsg; time stamped by the kernel.
    Batch,
    /// recvmmsg; time stamped by the card.
    Hardware,
    /// TPACKET_V3; time stamped by the kernel.
    Ring,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Transmit {
    /// One system call a frame.
    Send,
    /// sendmmsg: where there is nothing to wait for, one system call for several frames.
    Batch,
    /// A ring shared with the kernel.
    Ring,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    pub test: u32,
    /// Which of the test's points this is.
    #[serde(default)]
    pub point: u32,
    /// The node that does this.
    pub node: u16,
    pub framing: Framing,
    pub payload: Payload,
    pub receive: Receive,
    pub send: Option<SendJob>,
    pub expect: Vec<Expect>,
    /// Answer each request.
    pub respond: bool,
    /// The group requests are sent to.
    pub group: Option<Mac>,
    /// Answers go to the group, too.
    #[serde(default)]
    pub answer_group: bool,
    /// Ask for a pause of the port that the frames come from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause: Option<PauseJob>,
    /// Keep one record a frame.
    pub log: bool,
    /// The job ends by itself after this time.
    pub max_seconds: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SendJob {
    pub destination: Mac,
    pub stream: u16,
    /// Frames to send; with `seconds` the most that can be.
    pub planned: u32,
    /// End after this time rather than after `planned` frames.
    pub seconds: Option<f64>,
    pub length: u16,
    pub arrivals: Arrivals,
    pub spacing_ns: f64,
    pub seed: u64,
    pub burst: u32,
    pub late: Late,
    pub transmit: Transmit,
    pub max_rate_mbit: f64,
    /// MARK frames before the first and after the last frame.
    pub marks: u32,
}

/// PAUSE frames of a node that receives.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PauseJob {
    /// From the start on.
    pub after_s: f64,
    pub seconds: f64,
    pub quanta: u16,
    pub link_mbit: f64,
}

/// A master hears nothing of a node behind a paused port, and takes it for gone after three seconds.
pub const LONGEST_PAUSE_S: f64 = 1.0;

/// PAUSE frames of one job: their times fit its report.
pub const MOST_PAUSES: usize = 48;

impl PauseJob {
    /// Refuse, in words, what a master would take for a death, or what no report holds.
    pub fn check(&self) -> Result<(), String> {
        let time = |value: f64| (0.0..=LONGEST_PAUSE_S).contains(&value);
        if !time(self.seconds) || self.seconds == 0.0 || !(self.after_s >= 0.0 && self.after_s.is_finite()) {
            return Err(format!("a pause of {} s: it is at most {LONGEST_PAUSE_S} s", self.seconds));
        }
        if self.quanta == 0 || !(self.link_mbit > 0.0 && self.link_mbit.is_finite()) {
            return Err("a pause of no quanta, or on a link without a rate".into());
        }
        let frames = self.seconds * 1e9 / crate::pause::every_ns(self.quanta, self.link_mbit) as f64 + 2.0;
        if frames > MOST_PAUSES as f64 {
            return Err(format!("{frames:.0} PAUSE frames: at most {MOST_PAUSES}; fewer seconds, or more quanta"));
        }
        Ok(())
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expect {
    pub source: Mac,
    pub stream: u16,
    pub node: u16,
    pub planned: u32,
    pub length: u16,
    /// Frames for this address, not this node's: what a switch floods is counted.
    #[serde(default)]
    pub overheard: Option<Mac>,
}

/// What this program is willing to do, whoever asks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    pub max_seconds: f64,
    pub max_frames: u64,
    pub max_bytes: u64,
    pub max_rate_mbit: f64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { max_seconds: 60.0, max_frames: 10_000_000, max_bytes: 16_000_000_000, max_rate_mbit: 1000.0 }
    }
}

/// Streams one node can expect at once.
const MAX_STREAMS: usize = 64;

/// User bytes a frame may have on an interface.
pub fn largest_user(framing: Framing, mtu: u32) -> usize {
    let most = if framing == Framing::Length { MAX_LENGTH_FIELD } else { MAX_USER };
    most.min((mtu as usize).saturating_sub(framing.header_bytes()))
}

impl Job {
    /// Refuse, in words, what goes beyond `limits` or makes no sense. A peer's job comes from the wire.
    pub fn check(&self, limits: &Limits, mtu: u32) -> Result<(), String> {
        let largest = largest_user(self.framing, mtu);
        let length = |length: u16| {
            let fits = (HEADER..=largest).contains(&usize::from(length));
            fits.then_some(())
                .ok_or_else(|| format!("length {length}: a frame has {HEADER} to {largest} user bytes here"))
        };
        let frames = |planned: u32| {
            let few = u64::from(planned) <= limits.max_frames && planned > 0;
            few.then_some(()).ok_or_else(|| format!("{planned} frames: the limit is 1 to {}", limits.max_frames))
        };
        let seconds = |value: f64, name: &str| {
            let short = value > 0.0 && value <= limits.max_seconds;
            short.then_some(()).ok_or_else(|| format!("{name} {value} s: the limit is {} s", limits.max_seconds))
        };
        seconds(self.max_seconds, "a job of")?;
        if self.expect.len() > MAX_STREAMS {
            return Err(format!("{} streams expected: the limit is {MAX_STREAMS}", self.expect.len()));
        }
        for expect in &self.expect {
            length(expect.length)?;
            frames(expect.planned)?;
        }
        let together: u64 = self.expect.iter().map(|expect| u64::from(expect.planned)).sum();
        if together > limits.max_frames {
            return Err(format!(
                "{together} frames in {} streams: the limit is {}",
                self.expect.len(),
                limits.max_frames
            ));
        }
        self.pause.as_ref().map_or(Ok(()), PauseJob::check)?;
        if self.group.is_some_and(|group| !group.is_multicast()) {
            return Err("the group is not a multicast address".into());
        }
        if self.answer_group && self.group.is_none() {
            return Err("answers to a group, and no group".into());
        }
        if let Some(send) = &self.send {
            length(send.length)?;
            frames(send.planned)?;
            send.seconds.map_or(Ok(()), |value| seconds(value, "sending for"))?;
            if send.spacing_ns.is_nan() || !(0.0..=limits.max_seconds * 1e9).contains(&send.spacing_ns) {
                return Err(format!("a spacing of {} ns: it is 0 to {} s", send.spacing_ns, limits.max_seconds));
            }
            if send.burst == 0 || send.marks > 1000 {
                return Err(format!("bursts of {} frames, {} marks: at least 1, at most 1000", send.burst, send.marks));
            }
            if send.max_rate_mbit.is_nan() || send.max_rate_mbit <= 0.0 || send.max_rate_mbit > limits.max_rate_mbit {
                return Err(format!("{} Mbit/s: the ceiling is {}", send.max_rate_mbit, limits.max_rate_mbit));
            }
            // With `seconds` the number planned is only a bound; the ceiling bounds the bytes.
            let bytes = u64::from(send.planned) * wire_bytes(usize::from(send.length) + self.framing.header_bytes());
            let by_rate = send.seconds.map_or(u64::MAX, |s| (s * send.max_rate_mbit * 125e3) as u64);
            if bytes.min(by_rate) > limits.max_bytes {
                return Err(format!("{} bytes: the limit is {}", bytes.min(by_rate), limits.max_bytes));
            }
        }
        Ok(())
    }
}

/// What a node did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    pub sent: Option<Sent>,
    pub received: Vec<Received>,
    /// Frames of ours whose header was damaged, so that their stream is not known.
    pub damaged: u64,
    /// Test frames that belong to no stream of this test.
    pub foreign: u64,
    pub marks: u64,
    /// PAUSE frames: when the first was sent, and each of the others after the one before, ns.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pauses_ns: Vec<i64>,
    pub quality: Quality,
    /// Records in the two logs, ready to be fetched.
    pub sent_records: u64,
    pub received_records: u64,
    /// Why it ended before its work was done.
    pub fault: Option<String>,
}

impl Report {
    /// Of a peer: its words are one line.
    pub fn cleaned(mut self) -> Report {
        self.fault = self.fault.as_deref().map(crate::control::one_line);
        self.quality.clock = crate::control::one_line(&self.quality.clock);
        self
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sent {
    pub stream: u16,
    pub sent: u64,
    /// The kernel would not take these.
    pub failed: u64,
    /// Slots left empty (late frames, `skip`).
    pub skipped: u64,
    /// Departure of the first and last frame, ns of the node's clock.
    pub first_ns: Option<i64>,
    pub last_ns: Option<i64>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Received {
    pub stream: u16,
    pub counts: Counts,
    /// Arrival of the first and last frame counted in `received`, ns of the node's clock.
    pub first_ns: Option<i64>,
    pub last_ns: Option<i64>,
}

/// What disturbed the run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Quality {
    /// Times the kernel took the CPU away from a thread that keeps time.
    pub involuntary_switches: u64,
    /// CPU time the hypervisor gave to others, all CPUs together.
    pub stolen_ms: u64,
    /// Frames that found the receiving socket full.
    pub socket_drops: u64,
    /// Frames that came without the timestamp the way of receiving promises.
    pub unstamped: u64,
    pub interface: Counters,
    /// Frames that found the log full.
    pub unlogged: u64,
    pub clock: String,
    /// The kernel takes the CPU away from real-time threads for a part of each period (sched_rt_runtime_us).
    #[serde(default)]
    pub throttled: bool,
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub fn example() -> Job {
        let peer = Mac([2, 0, 0, 0, 0, 1]);
        Job {
            test: 0xDEAD_BEEF,
            point: 0,
            node: 1,
            framing: Framing::Length,
            payload: Payload::Random,
            receive: Receive::Ring,
            send: Some(SendJob {
                destination: peer,
                stream: 1,
                planned: 1000,
                seconds: None,
                length: 1500,
                arrivals: Arrivals::Poisson,
                spacing_ns: 22_000.0,
                seed: u64::MAX,
                burst: 1,
                late: Late::CatchUp,
                transmit: Transmit::Send,
                max_rate_mbit: 1000.0,
                marks: 0,
            }),
            expect: vec![Expect { source: peer, stream: 2, node: 0, planned: 1000, length: 64, overheard: None }],
            respond: true,
            group: Some(Mac([3, 0, 0, 0, 0, 1])),
            answer_group: false,
            pause: None,
            log: true,
            max_seconds: 60.0,
        }
    }

    #[test]
    fn a_report_with_all_its_pauses_fits_a_frame() {
        let counts = Counts { received: u64::from(u32::MAX), ..Counts::default() };
        let received = Received { stream: 1, counts, first_ns: Some(i64::MAX), last_ns: Some(i64::MAX) };
        let quality = Quality { clock: "clock_gettime".into(), ..Quality::default() };
        let mut report = Report { received: vec![received], quality, ..Report::default() };
        report.pauses_ns = std::iter::once(i64::MAX).chain(std::iter::repeat_n(26_843_136, MOST_PAUSES - 1)).collect();
        report.fault = Some("x".repeat(100));
        let text = serde_json::to_string(&crate::control::Reply::Stopped(Box::new(report))).expect("JSON");
        assert!(text.len() < 1500 - 36 - 4 - 16 - 100, "{}", text.len());
    }

    #[test]
    fn a_pause_is_shorter_than_the_patience_of_a_master() {
        let limits = Limits::default();
        let check = |after_s, seconds, quanta, link_mbit| {
            let pause = Some(PauseJob { after_s, seconds, quanta, link_mbit });
            Job { pause, ..example() }.check(&limits, 1500)
        };
        assert_eq!(check(0.2, 0.4, u16::MAX, 1000.0), Ok(()));
        assert_eq!(check(0.0, 1.0, u16::MAX, 1000.0), Ok(()));
        for (after_s, seconds, quanta, link_mbit) in [
            (0.0, 1.1, u16::MAX, 1000.0),
            (0.0, f64::NAN, u16::MAX, 1000.0),
            (0.0, 0.0, u16::MAX, 1000.0),
            (-1.0, 0.1, u16::MAX, 1000.0),
            (0.0, 0.1, 0, 1000.0),
            (0.0, 0.1, u16::MAX, 0.0),
            (0.0, 1.0, 1000, 1000.0),
        ] {
            assert!(check(after_s, seconds, quanta, link_mbit).is_err(), "{after_s} {seconds} {quanta} {link_mbit}");
        }
    }

    #[test]
    fn what_goes_beyond_the_limits_is_refused_by_name() {
        let limits = Limits::default();
        assert_eq!(example().check(&limits, 1500), Ok(()));
        let refused = |change: fn(&mut Job, &mut SendJob), word: &str| {
            let mut job = example();
            let mut send = job.send.take().expect("sends");
            change(&mut job, &mut send);
            job.send = Some(send);
            let text = job.check(&limits, 1500).expect_err(word);
            assert!(text.contains(word), "{text}");
        };
        refused(|_, send| send.length = 1501, "length 1501");
        refused(|_, send| send.length = 35, "length 35");
        refused(|_, send| send.planned = u32::MAX, "frames");
        refused(|_, send| send.planned = 0, "0 frames");
        refused(|_, send| send.spacing_ns = f64::NAN, "spacing");
        refused(|_, send| send.spacing_ns = -1.0, "spacing");
        refused(|_, send| send.burst = 0, "bursts");
        refused(|_, send| send.max_rate_mbit = 1e6, "Mbit/s");
        refused(|_, send| send.max_rate_mbit = f64::NAN, "Mbit/s");
        refused(|_, send| send.seconds = Some(61.0), "sending for 61");
        refused(|job, _| job.max_seconds = f64::INFINITY, "a job of");
        refused(|job, _| job.expect[0].planned = u32::MAX, "frames");
        refused(|job, _| job.expect = vec![job.expect[0].clone(); 65], "65 streams");
        refused(|job, _| job.group = Some(Mac([2; 6])), "group");
        refused(|job, _| (job.group, job.answer_group) = (None, true), "no group");
    }

    #[test]
    fn bytes_are_bounded() {
        let mut job = example();
        job.send.as_mut().expect("sends").planned = 10_000_000;
        let limits = Limits { max_bytes: 1_000_000, ..Limits::default() };
        assert!(job.check(&limits, 1500).expect_err("too many").contains("bytes"));
    }
}
