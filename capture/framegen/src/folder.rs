//! `run.toml`: what makes a run folder of the files a test leaves. The contract is docs/run-folder.md, format 2.

use crate::frame::Framing;
use crate::plan::{Test, TestKind};
use crate::store::HISTOGRAMS;
use crate::summary::Summary;
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use toml::{Table, Value};

pub const FORMAT: i64 = 2;

/// What a test leaves beside its frame logs and summary.
#[derive(Clone, Debug, Default)]
pub struct Files {
    /// Of the clock exchanges with a peer, by node.
    pub clocks: Vec<(u16, String)>,
    /// Node, whether before the test, file.
    pub states: Vec<(u16, bool, String)>,
    /// Of the PAUSE frames that a node sent on request.
    pub pauses: Vec<(u16, String)>,
    /// Width of the bins of `histograms.npy`, where there is one.
    pub histogram_ns: Option<u32>,
}

/// What run.toml says beside the summary.
pub struct Description {
    pub origin: &'static str,
    /// Of node 0, 1, ...
    pub hosts: Vec<String>,
    pub link_mbit_s: Option<f64>,
    pub files: Files,
    /// Whole tables: `path`, `switch`, `simulation`, `companions`, `histograms` ...
    pub more: Table,
}

fn table<const N: usize>(entries: [(&str, Value); N]) -> Value {
    Value::Table(entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
}

/// TOML has no null: what is not known is not there.
fn plain(value: &Json) -> Option<Value> {
    Some(match value {
        Json::Null => return None,
        Json::Bool(value) => Value::Boolean(*value),
        Json::Number(number) => {
            number.as_i64().map_or_else(|| number.as_f64().map(Value::Float), |n| Some(n.into()))?
        }
        Json::String(text) => Value::String(text.clone()),
        Json::Array(items) => Value::Array(items.iter().filter_map(plain).collect()),
        Json::Object(map) => Value::Table(map.iter().filter_map(|(k, v)| Some((k.clone(), plain(v)?))).collect()),
    })
}

/// `[test]`: the keys that every reader knows, the others as parameters.
fn test_table(test: &Test) -> Value {
    const KNOWN: [&str; 8] = ["kind", "sizes", "seconds", "spacing_us", "arrivals", "seed", "burst", "request_bytes"];
    let text = serde_json::to_value(test).unwrap_or_default();
    let (mut out, mut parameters) = (Table::new(), Table::new());
    for (key, value) in text.as_object().into_iter().flatten() {
        let place = if KNOWN.contains(&key.as_str()) { &mut out } else { &mut parameters };
        place.extend(plain(value).map(|value| (key.clone(), value)));
    }
    if test.seconds.is_none() && test.kind != TestKind::Clock {
        out.extend(parameters.remove("count").map(|count| ("count".to_owned(), count)));
    }
    if test.framing == Framing::Udp {
        out.insert("transport".into(), "udp".into());
        out.insert("header_bytes".into(), (test.framing.header_bytes() as i64).into());
    }
    out.insert("parameters".into(), Value::Table(parameters));
    Value::Table(out)
}

/// The content of run.toml.
pub fn describe(summary: &Summary, description: &Description) -> Table {
    let name = |node: u16| description.hosts.get(usize::from(node)).cloned().unwrap_or_else(|| format!("node{node}"));
    let mut run = Table::new();
    run.insert("format".into(), FORMAT.into());
    run.insert("origin".into(), description.origin.into());
    run.insert("complete".into(), summary.complete.into());
    run.extend(summary.reason.clone().map(|reason| ("reason".to_owned(), reason.into())));
    run.insert("versions".into(), table([("framegen", summary.framegen.clone().into())]));
    run.insert("frame_summary".into(), "summary.json".into());
    run.insert("test".into(), test_table(&summary.test));
    run.extend(description.link_mbit_s.map(|rate| ("link".to_owned(), table([("rate_mbit_s", rate.into())]))));
    let hosts = summary.nodes.iter().map(|node| {
        let mut facts = table([
            ("host", node.identity.host.clone().into()),
            ("kernel", node.identity.kernel.clone().into()),
            ("interface", node.identity.interface.clone().into()),
        ]);
        let address = node.mac.to_string();
        let mut host = Table::new();
        host.insert("node".into(), i64::from(node.node).into());
        if crate::udp::ip(node.mac).is_none() {
            host.insert("mac".into(), address.into());
        } else if let Value::Table(facts) = &mut facts {
            facts.insert("address".into(), address.into());
        }
        host.insert("facts".into(), facts);
        (name(node.node), Value::Table(host))
    });
    run.insert("hosts".into(), Value::Table(hosts.collect()));
    let logs = summary.points.iter().flat_map(|point| {
        point.frame_logs.iter().map(|log| {
            table([
                ("file", log.file.clone().into()),
                ("host", name(log.node).into()),
                ("kind", log.kind.into()),
                ("point", (point.point as i64).into()),
            ])
        })
    });
    run.insert("frame_logs".into(), Value::Array(logs.collect()));
    let clocks = description.files.clocks.iter().map(|(node, file)| {
        table([("file", file.clone().into()), ("host", name(*node).into()), ("reference", name(0).into())])
    });
    run.insert("clock_exchanges".into(), Value::Array(clocks.collect()));
    let mut states: BTreeMap<u16, Table> = BTreeMap::new();
    for (node, before, file) in &description.files.states {
        let entry =
            states.entry(*node).or_insert_with(|| [("host".to_owned(), name(*node).into())].into_iter().collect());
        entry.insert(if *before { "before" } else { "after" }.into(), file.clone().into());
    }
    if !states.is_empty() {
        run.insert("host_states".into(), Value::Array(states.into_values().map(Value::Table).collect()));
    }
    if !description.files.pauses.is_empty() {
        let pauses = description.files.pauses.iter();
        let entries = pauses.map(|(node, file)| table([("file", file.clone().into()), ("host", name(*node).into())]));
        run.insert("pauses".into(), Value::Array(entries.collect()));
    }
    if let Some(bin_ns) = description.files.histogram_ns {
        let entry = table([
            ("file", HISTOGRAMS.into()),
            ("quantity", "round_trip".into()),
            ("bin_ns", i64::from(bin_ns).into()),
        ]);
        run.insert("histograms".into(), Value::Array(vec![entry]));
    }
    run.extend(description.more.clone());
    run
}

/// Write it: whole or not at all.
pub fn write(folder: &Path, run: &Table) -> io::Result<()> {
    let text = toml::to_string(run).map_err(io::Error::other)?;
    crate::store::whole(folder, "run.toml", &text)
}
