//! What is left of one point when its frames have gone, until the clocks of the whole run can be compared.

use crate::job::Report;
use crate::log::{FrameLog, Record};
use crate::plan::Point;
use crate::summary::{LogFile, NodeResult, PointSummary, counted_trips, flows, quality, round_trips};
use crate::sync::ClockFit;
use crate::trips::Trips;
use std::sync::Arc;

/// A point before its times can be compared: that needs the clocks of the whole run.
pub struct RawPoint {
    pub point: Point,
    pub index: usize,
    pub started_unix_ns: i64,
    pub elapsed_s: f64,
    /// Why it is not complete, the nearest cause first.
    pub reasons: Vec<String>,
    pub reports: Vec<Option<Report>>,
    pub sent: Vec<Logged>,
    pub received: Vec<Logged>,
    pub frame_logs: Vec<LogFile>,
    pub trips: Option<Trips>,
    /// How often each node's answer came first, second ...; None where one node answers.
    pub places: Option<Vec<Vec<u64>>>,
}

impl RawPoint {
    /// Add a reason, if it is not known yet.
    pub fn blame(&mut self, reason: Option<String>) {
        self.reasons.extend(reason.filter(|reason| !self.reasons.contains(reason)));
    }

    pub fn reason(&self) -> Option<String> {
        (!self.reasons.is_empty()).then(|| self.reasons.join("; "))
    }
}

pub enum Logged {
    Here(Arc<FrameLog>),
    Fetched(Vec<Record>),
}

impl Logged {
    pub fn records(&self) -> &[Record] {
        match self {
            Logged::Here(log) => log.records(),
            Logged::Fetched(records) => records,
        }
    }
}

/// The account of a point, its times on one clock.
pub fn summarise(raw: &RawPoint, clocks: &[ClockFit], asks: bool) -> PointSummary {
    let none: &[Record] = &[];
    let results: Vec<NodeResult> = raw
        .reports
        .iter()
        .enumerate()
        .map(|(node, report)| NodeResult {
            report: report.clone(),
            sent: raw.sent.get(node).map_or(none, Logged::records),
            received: raw.received.get(node).map_or(none, Logged::records),
        })
        .collect();
    let quality = quality(&results);
    PointSummary {
        point: raw.index,
        length_bytes: raw.point.length,
        test_id: raw.point.test,
        started_unix_ns: raw.started_unix_ns,
        elapsed_s: raw.elapsed_s,
        complete: raw.reasons.is_empty(),
        reason: raw.reason(),
        suspect: quality.iter().any(|node| !node.reasons.is_empty()),
        flows: flows(&raw.point, &results, clocks),
        round_trip_us: match &raw.trips {
            Some(trips) => counted_trips(&raw.point, trips),
            None if asks => round_trips(&raw.point, results[0].sent, results[0].received),
            None => Vec::new(),
        },
        places: raw.places.clone(),
        quality,
        frame_logs: raw.frame_logs.clone(),
    }
}
