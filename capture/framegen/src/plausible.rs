//! What a peer says of its work, held against what it was asked for and what this node knows itself.

use crate::frame::wire_bytes;
use crate::job::{Job, Report, Sent};

/// A ceiling of the rate is one over windows of a millisecond; two of them, and the receiver's own bunching.
const SLACK_NS: f64 = 10e6;

/// Why a peer's report cannot be true; None where it can. `sent_here`: what this node sent it. `took_s`: how long the
/// point took.
pub fn doubt(job: &Job, report: &Report, sent_here: Option<&Sent>, max_rate_mbit: f64, took_s: f64) -> Option<String> {
    let beyond_time = |first: Option<i64>, last: Option<i64>, frames: u64, length: u16| {
        let (first, last) = first.zip(last)?;
        let took_ns = i128::from(last) - i128::from(first);
        let least_ns = frames.saturating_sub(1) as f64 * wire_bytes(usize::from(length)) as f64 * 8e3 / max_rate_mbit;
        if took_ns < 0 || took_ns as f64 > took_s * 1.1e9 + 5e9 {
            return Some(format!("{frames} frames in {:.6} s of a point of {took_s:.3} s", took_ns as f64 / 1e9));
        }
        (took_ns as f64 + SLACK_NS < 0.5 * least_ns)
            .then(|| format!("{frames} frames in {:.6} s: faster than {max_rate_mbit} Mbit/s", took_ns as f64 / 1e9))
    };
    if let Some(sent) = &report.sent {
        let most = match &job.send {
            Some(send) => u64::from(send.planned),
            // Each copy of a request may be answered.
            None => job.expect.iter().map(|expect| u64::from(expect.planned) * 2).sum(),
        };
        if sent.sent > most {
            return Some(format!("{} frames sent of at most {most}", sent.sent));
        }
        let length = job.send.as_ref().map_or(0, |send| send.length);
        if let Some(text) = beyond_time(sent.first_ns, sent.last_ns, sent.sent, length) {
            return Some(text);
        }
    }
    for (received, expect) in report.received.iter().zip(&job.expect) {
        let (counts, planned) = (&received.counts, u64::from(expect.planned));
        let known = sent_here.filter(|sent| sent.stream == expect.stream).map_or(planned, |sent| sent.sent);
        // What the kernel took but did not acknowledge may be one more.
        let most = planned.min(known + 1);
        if received.stream != expect.stream {
            return Some(format!("stream {} where {} was sent", received.stream, expect.stream));
        }
        if counts.received > most {
            return Some(format!("{} frames received of {known} sent", counts.received));
        }
        if counts.reordered > counts.received {
            return Some(format!("{} frames reordered of {} received", counts.reordered, counts.received));
        }
        if let Some(text) = beyond_time(received.first_ns, received.last_ns, counts.received, expect.length) {
            return Some(text);
        }
    }
    (report.received.len() > job.expect.len()).then(|| format!("{} streams received", report.received.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Received;
    use crate::job::tests::example;
    use crate::tally::Counts;

    fn report(received: u64, first_ns: i64, last_ns: i64) -> Report {
        let counts = Counts { received, ..Counts::default() };
        let received = Received { stream: 2, counts, first_ns: Some(first_ns), last_ns: Some(last_ns) };
        Report { received: vec![received], ..Report::default() }
    }

    #[test]
    fn more_than_was_sent_and_faster_than_the_wire_are_doubted() {
        let mut job = example();
        job.send = None;
        let sent = Sent { stream: 2, sent: 10, ..Sent::default() };
        let doubt = |report: &Report| doubt(&job, report, Some(&sent), 1000.0, 1.0);
        assert_eq!(doubt(&report(10, 0, 1_000_000)), None);
        assert!(doubt(&report(1000, 0, 1_000_000)).expect("doubted").contains("1000 frames received of 10"));
        assert!(doubt(&report(10, 0, -5)).is_some());
        assert!(doubt(&report(10, 0, i64::MAX)).is_some());
        let all = Sent { stream: 2, sent: 1000, ..Sent::default() };
        let mut long = job.clone();
        long.expect[0].length = 1500;
        let fast = super::doubt(&long, &report(1000, 0, 1), Some(&all), 100.0, 1.0);
        assert!(fast.expect("doubted").contains("faster than 100 Mbit/s"));
        let twice = Report { received: vec![report(1, 0, 0).received[0].clone(); 2], ..Report::default() };
        assert!(doubt(&twice).expect("doubted").contains("2 streams"));
    }
}
