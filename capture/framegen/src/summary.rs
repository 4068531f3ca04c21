//! The account of a run: from reports and frame logs to summary.json.

use crate::control::Identity;
use crate::frame::{Mac, wire_bytes};
use crate::job::{Quality, Report};
use crate::log::{RECORD_CORRUPT, RECORD_DUPLICATE, Record, UNKNOWN_LATENESS};
use crate::plan::{Flow, Point, Test};
use crate::stats::{Distribution, distribution};
use crate::sync::ClockFit;
use crate::trips::Trips;
use serde::Serialize;
use std::collections::HashMap;

#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    pub format: u32,
    pub framegen: String,
    pub complete: bool,
    pub reason: Option<String>,
    pub suspect: bool,
    pub test: Test,
    pub nodes: Vec<Node>,
    pub clocks: Vec<ClockFit>,
    pub points: Vec<PointSummary>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Node {
    pub node: u16,
    pub mac: Mac,
    #[serde(flatten)]
    pub identity: Identity,
}

#[derive(Clone, Debug, Serialize)]
pub struct PointSummary {
    pub point: usize,
    pub length_bytes: u16,
    pub test_id: u32,
    pub started_unix_ns: i64,
    pub elapsed_s: f64,
    pub complete: bool,
    pub reason: Option<String>,
    pub suspect: bool,
    pub flows: Vec<FlowSummary>,
    pub round_trip_us: Vec<RoundTrip>,
    /// How often the answer of each node (column) came first, second ... (row).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub places: Option<Vec<Vec<u64>>>,
    pub quality: Vec<NodeQuality>,
    pub frame_logs: Vec<LogFile>,
}

#[derive(Clone, Debug, Serialize)]
pub struct FlowSummary {
    pub stream: u16,
    pub from: u16,
    pub to: u16,
    pub length_bytes: u16,
    pub planned: Option<u32>,
    /// Slots left empty (late frames, `skip`).
    pub skipped: Option<u64>,
    /// The kernel would not take these; they do not count as sent.
    pub failed: Option<u64>,
    pub sent: Option<u64>,
    pub received: Option<u64>,
    pub lost: Option<u64>,
    pub duplicated: Option<u64>,
    pub reordered: Option<u64>,
    pub corrupt: Option<u64>,
    pub loss: Option<Loss>,
    pub send_spacing_us: Option<Distribution>,
    pub lateness_us: Option<Distribution>,
    pub receive_spacing_us: Option<Distribution>,
    pub latency_us: Option<Distribution>,
    pub latency_sigma_us: Option<f64>,
    pub sent_rate: Option<Rate>,
    pub received_rate: Option<Rate>,
}

/// Where the lost frames were lost; the four add up to `lost`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Loss {
    /// Dropped by the sending interface after it had accepted them.
    pub sender: u64,
    /// Neither dropped here nor there.
    pub network: u64,
    /// Dropped by the receiving interface or at its full socket.
    pub kernel: u64,
    /// Arrived damaged, and were not counted as received.
    pub application: u64,
}

/// Over the N - 1 intervals between N frames.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Rate {
    pub frames_per_s: f64,
    pub user_mbit_s: f64,
    /// Preamble, header, padding, FCS and gap included.
    pub wire_mbit_s: f64,
    pub intervals: u64,
}

#[derive(Clone, Debug, Serialize)]
pub struct RoundTrip {
    pub node: u16,
    #[serde(flatten)]
    pub distribution: Distribution,
}

#[derive(Clone, Debug, Serialize)]
pub struct NodeQuality {
    pub node: u16,
    #[serde(flatten)]
    pub quality: Quality,
    pub foreign: u64,
    pub damaged: u64,
    pub marks: u64,
    /// Why the run is suspect.
    pub reasons: Vec<String>,
}

#[derive(Clone, Debug, Serialize)]
pub struct LogFile {
    pub file: String,
    pub node: u16,
    pub kind: &'static str,
    pub records: u64,
}

/// What one node left behind at a point. None: it could not be asked.
pub struct NodeResult<'a> {
    pub report: Option<Report>,
    pub sent: &'a [Record],
    pub received: &'a [Record],
}

/// In ns. A peer's times are what it says: any two must do.
fn difference(later: i64, earlier: i64) -> f64 {
    (i128::from(later) - i128::from(earlier)) as f64
}

fn rate(first: Option<i64>, last: Option<i64>, frames: u64, (length, extra): (u16, usize)) -> Option<Rate> {
    let seconds = difference(last?, first?) / 1e9;
    if frames < 2 || seconds <= 0.0 {
        return None;
    }
    let frames_per_s = (frames - 1) as f64 / seconds;
    Some(Rate {
        frames_per_s,
        user_mbit_s: frames_per_s * f64::from(length) * 8e-6,
        wire_mbit_s: frames_per_s * wire_bytes(usize::from(length) + extra) as f64 * 8e-6,
        intervals: frames - 1,
    })
}

/// Intervals between one time and the next, µs.
fn spacing(times: impl Iterator<Item = i64>) -> Option<Distribution> {
    let times: Vec<i64> = times.collect();
    distribution(times.windows(2).map(|pair| difference(pair[1], pair[0]) / 1e3).collect())
}

/// `ns` of a node's clock on node 0's; None where the clocks were never compared.
fn on_ours(clocks: &[ClockFit], node: u16, ns: i64) -> Option<f64> {
    if node == 0 {
        return Some(ns as f64);
    }
    clocks.iter().find(|clock| clock.node == node).map(|clock| clock.to_ours(ns))
}

fn first_copies<'a>(records: &'a [Record], flow: &Flow) -> impl Iterator<Item = &'a Record> + use<'a> {
    let (stream, from) = (flow.stream, flow.from);
    let damaged = RECORD_CORRUPT | RECORD_DUPLICATE;
    records.iter().filter(move |r| r.stream == stream && r.node == from && r.flags & damaged == 0)
}

fn latency(received: &[Record], flow: &Flow, clocks: &[ClockFit]) -> Option<(Distribution, f64)> {
    // Both clocks minus a common time, so that a difference keeps its nanoseconds.
    let first = first_copies(received, flow).next()?;
    let zero = on_ours(clocks, flow.to, first.receive_ns)?;
    let mut middle = 0.0;
    let mut values = Vec::new();
    for record in first_copies(received, flow) {
        let arrived = on_ours(clocks, flow.to, record.receive_ns)? - zero;
        let left = on_ours(clocks, flow.from, record.send_ns)? - zero;
        values.push((arrived - left) / 1e3);
        middle += arrived;
    }
    let at = zero + middle / values.len() as f64;
    let peer = flow.from.max(flow.to);
    let sigma = clocks.iter().find(|clock| clock.node == peer)?.sigma_us(at);
    Some((distribution(values)?, sigma))
}

/// Round trips as the asking node saw them: first answer of each node to each request, µs.
pub fn round_trips(point: &Point, sent: &[Record], received: &[Record]) -> Vec<RoundTrip> {
    let every = trips_ns(point, sent, received).into_iter();
    let in_us = |trips: Vec<i64>| distribution(trips.into_iter().map(|ns| ns as f64 / 1e3).collect());
    every.filter_map(|(node, trips)| Some(RoundTrip { node, distribution: in_us(trips)? })).collect()
}

/// Of each node that answers: first answer minus request, in ns.
fn trips_ns(point: &Point, sent: &[Record], received: &[Record]) -> Vec<(u16, Vec<i64>)> {
    let left: HashMap<u32, i64> = sent.iter().map(|record| (record.sequence, record.send_ns)).collect();
    let trip = |answer: &Record| Some(answer.receive_ns - left.get(&answer.sequence)?);
    let answers = point.flows.iter().filter(|flow| flow.to == 0);
    answers.map(|flow| (flow.from, first_copies(received, flow).filter_map(trip).collect())).collect()
}

/// Their histograms, where logs were kept.
pub fn count_trips(point: &Point, sent: &[Record], received: &[Record], bin_ns: u32) -> Trips {
    let mut counted = Trips::new(bin_ns);
    for (node, trips) in trips_ns(point, sent, received) {
        trips.into_iter().for_each(|trip| counted.add(node, trip));
    }
    counted
}

/// The same from their histograms.
pub fn counted_trips(point: &Point, trips: &Trips) -> Vec<RoundTrip> {
    let nodes = point.flows.iter().filter(|flow| flow.to == 0).map(|flow| flow.from);
    nodes.filter_map(|node| Some(RoundTrip { node, distribution: trips.distribution(node)? })).collect()
}

/// The account of each flow of a point. `results` is by node.
pub fn flows(point: &Point, results: &[NodeResult], clocks: &[ClockFit]) -> Vec<FlowSummary> {
    // Drops of a receiver that several streams share are theirs in turn.
    let mut drops: Vec<u64> = results
        .iter()
        .map(|result| {
            result.report.as_ref().map_or(0, |report| {
                let interface = report.quality.interface;
                let dropped = interface.rx_dropped.saturating_add(interface.rx_missed);
                report.quality.socket_drops.saturating_add(dropped)
            })
        })
        .collect();
    let extra = point.local.framing.header_bytes();
    point.flows.iter().map(|flow| summarise((flow, extra), results, clocks, &mut drops)).collect()
}

fn summarise(
    (flow, extra): (&Flow, usize),
    results: &[NodeResult],
    clocks: &[ClockFit],
    drops: &mut [u64],
) -> FlowSummary {
    let lengths = (flow.length, extra);
    let (from, to) = (&results[usize::from(flow.from)], &results[usize::from(flow.to)]);
    let sent = from.report.as_ref().and_then(|report| report.sent.as_ref()).filter(|sent| sent.stream == flow.stream);
    let received = to.report.as_ref().and_then(|report| {
        let mine = |index: usize| report.received[index].stream == flow.stream;
        // Answers of several nodes share a stream and stand in the order of the nodes.
        let index = (0..report.received.len()).filter(|&index| mine(index));
        let nth =
            if flow.to == 0 && report.received.iter().all(|r| r.stream == flow.stream) { flow.from - 1 } else { 0 };
        index.clone().nth(usize::from(nth)).map(|index| (&report.received[index], report))
    });
    // With one stream a damaged header can only have been one of it.
    let corrupt = received.map(|(r, report)| {
        let damaged = if report.received.len() == 1 { report.damaged } else { 0 };
        r.counts.corrupt.saturating_add(damaged)
    });
    let lost = sent.zip(received).map(|(sent, (received, _))| sent.sent.saturating_sub(received.counts.received));
    let loss = lost.zip(corrupt).map(|(lost, corrupt)| {
        let mut left = lost;
        let mut take = |available: u64| {
            let taken = left.min(available);
            left -= taken;
            taken
        };
        let interface = from.report.as_ref().map(|report| report.quality.interface).unwrap_or_default();
        let application = take(corrupt);
        // What the interface refused it may have counted as dropped: such frames were not sent, so not lost.
        let refused = sent.map_or(0, |sent| sent.failed);
        let sender = take(interface.tx_dropped.saturating_add(interface.tx_errors).saturating_sub(refused));
        let pool = &mut drops[usize::from(flow.to)];
        let kernel = take(*pool);
        *pool -= kernel;
        Loss { sender, network: left, kernel, application }
    });
    let departures = || from.sent.iter().filter(|record| record.stream == flow.stream);
    let lateness = departures().filter(|r| r.lateness_ns != UNKNOWN_LATENESS).map(|r| f64::from(r.lateness_ns) / 1e3);
    let latency = latency(to.received, flow, clocks);
    FlowSummary {
        stream: flow.stream,
        from: flow.from,
        to: flow.to,
        length_bytes: flow.length,
        planned: flow.planned,
        skipped: sent.map(|sent| sent.skipped),
        failed: sent.map(|sent| sent.failed),
        sent: sent.map(|sent| sent.sent),
        received: received.map(|(r, _)| r.counts.received),
        lost,
        duplicated: received.map(|(r, _)| r.counts.duplicated),
        reordered: received.map(|(r, _)| r.counts.reordered),
        corrupt,
        loss,
        send_spacing_us: spacing(departures().map(|record| record.send_ns)),
        lateness_us: distribution(lateness.collect()),
        receive_spacing_us: spacing(first_copies(to.received, flow).map(|record| record.receive_ns)),
        latency_sigma_us: latency.as_ref().map(|(_, sigma)| *sigma),
        latency_us: latency.map(|(distribution, _)| distribution),
        sent_rate: sent.and_then(|s| rate(s.first_ns, s.last_ns, s.sent, lengths)),
        received_rate: received.and_then(|(r, _)| rate(r.first_ns, r.last_ns, r.counts.received, lengths)),
    }
}

/// Quality of each node that could be asked, with what makes it suspect.
pub fn quality(results: &[NodeResult]) -> Vec<NodeQuality> {
    let of_node = |(node, result): (u16, &NodeResult)| {
        let report = result.report.as_ref()?;
        let quality = &report.quality;
        let mut reasons = Vec::new();
        let mut note = |count: u64, text: &str| {
            if count > 0 {
                reasons.push(format!("{count} {text}"));
            }
        };
        note(quality.involuntary_switches, "involuntary context switches of a timing thread");
        note(quality.stolen_ms, "ms of CPU time stolen by the hypervisor");
        note(quality.socket_drops, "frames dropped at a full socket");
        note(quality.unstamped, "frames without a timestamp of kernel or card");
        note(quality.unlogged, "frames without a record: the log was full");
        if quality.throttled {
            reasons.push(
                "the kernel stops real-time threads for a part of each second; \
                 `sysctl kernel.sched_rt_runtime_us=-1` before the test, or no --priority"
                    .into(),
            );
        }
        Some(NodeQuality {
            node,
            quality: quality.clone(),
            foreign: report.foreign,
            damaged: report.damaged,
            marks: report.marks,
            reasons,
        })
    };
    (0..).zip(results).filter_map(of_node).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{Received, Sent};
    use crate::netlink::Counters;
    use crate::tally::Counts;

    /// Node 0 sent 100 frames in each of two streams to node 1, which has 80 and 90 of them.
    fn account(corrupt: u64, sender: Quality, receiver: Quality) -> [(u64, Loss); 2] {
        let sent = |stream| Report {
            sent: Some(Sent { stream, sent: 100, failed: 3, ..Sent::default() }),
            quality: sender.clone(),
            ..Report::default()
        };
        let received = |stream, received, corrupt| Received {
            stream,
            counts: Counts { received, corrupt, ..Counts::default() },
            first_ns: None,
            last_ns: None,
        };
        let report = Report {
            received: vec![received(1, 80, corrupt), received(2, 90, 0)],
            quality: receiver,
            ..Report::default()
        };
        let mut drops = [0, report.quality.socket_drops + report.quality.interface.rx_dropped];
        [1, 2].map(|stream| {
            let results = [Some(sent(stream)), Some(report.clone())].map(|report| NodeResult {
                report,
                sent: &[],
                received: &[],
            });
            let flow = Flow { stream, from: 0, to: 1, planned: Some(100), length: 64 };
            let flow = summarise((&flow, 0), &results, &[], &mut drops);
            (flow.lost.unwrap(), flow.loss.unwrap())
        })
    }

    #[test]
    fn every_loss_has_one_place() {
        let none = Quality::default;
        let network = |network| Loss { network, ..Loss::default() };
        assert_eq!(account(0, none(), none()), [(20, network(20)), (10, network(10))]);

        // Each in its turn; 22 that the receiver dropped are of the first stream as far as it has room, then of the next.
        let full = Quality {
            socket_drops: 15,
            interface: Counters { rx_dropped: 7, ..Counters::default() },
            ..Quality::default()
        };
        // Of the 7 the interface dropped 3 had been refused, so were not sent.
        let blocked = Quality { interface: Counters { tx_dropped: 7, ..Counters::default() }, ..Quality::default() };
        let first = Loss { application: 3, kernel: 13, sender: 4, network: 0 };
        let second = Loss { application: 0, kernel: 6, sender: 4, network: 0 };
        assert_eq!(account(3, blocked, full), [(20, first), (10, second)]);
    }

    #[test]
    fn what_disturbs_the_times_is_named() {
        let quality_of = |quality| {
            let report = Some(Report { quality, ..Report::default() });
            super::quality(&[NodeResult { report, sent: &[], received: &[] }])[0].reasons.clone()
        };
        assert!(quality_of(Quality::default()).is_empty());
        let disturbed = Quality { involuntary_switches: 2, stolen_ms: 30, ..Quality::default() };
        assert_eq!(
            quality_of(disturbed),
            ["2 involuntary context switches of a timing thread", "30 ms of CPU time stolen by the hypervisor"]
        );
    }
}
