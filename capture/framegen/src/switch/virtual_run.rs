//! `framegen switch --virtual`: from a plan to the run folders that real nodes would have left.

use super::conduct::{Conductor, Paused, Testing};
use super::fabric::Fabric;
use super::nodes::{Node, ORIGIN_NS};
use super::plan::{SwitchPlan, TestPlan};
use super::truth::Truth;
use super::world::World;
use crate::cli::{self, Options};
use crate::control::{Identity, LogKind, header};
use crate::folder::{Description, Files, describe};
use crate::frame::{Framing, Kind, Mac};
use crate::plan::Test;
use crate::point::{RawPoint, summarise};
use crate::random::Random;
use crate::store::{Store, whole};
use crate::summary::{Node as NodeSummary, Summary, count_trips};
use crate::sync::fit;
use std::io;
use std::path::Path;
use toml::{Table, Value};

/// framegen's command line for a test of the plan, and what it makes of it.
fn read_test(plan: &TestPlan, macs: &[Mac]) -> Result<Test, String> {
    let mut words: Vec<String> = ["framegen", &plan.kind, "-i", "virtual"].map(str::to_owned).to_vec();
    let (peers, bystanders) = macs.split_at(plan.peers.len());
    words.extend(peers.iter().flat_map(|mac| ["-p".to_owned(), mac.to_string()]));
    words.extend(bystanders.iter().flat_map(|mac| ["--bystander".to_owned(), mac.to_string()]));
    for (key, value) in &plan.options {
        let option = format!("--{}", key.replace('_', "-"));
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        match value {
            Value::Boolean(true) => words.push(option),
            Value::Boolean(false) => {}
            Value::Array(rules) if key == "allow" => {
                words.extend(rules.iter().map(|rule| format!("--allow-{}", text(rule))));
            }
            Value::Array(items) => words.extend([option, items.iter().map(text).collect::<Vec<_>>().join(",")]),
            value => words.extend([option, text(value)]),
        }
    }
    let options: Options = cli::parse(words.into_iter().map(Into::into))?;
    if options.framing == Framing::Udp {
        return Err("udp: virtual hosts send raw frames only".into());
    }
    if options.test.as_ref().is_some_and(|test| test.pause.is_some()) {
        return Err("pause_seconds: virtual hosts pause as the plan's [[pauses]] say".into());
    }
    let test = options.test.ok_or_else(|| format!("`{}` is no test", plan.kind))?;
    if test.times_ns.is_empty() && test.arrivals == crate::pacing::Arrivals::File {
        return Err("times: a file with one time in µs a line".into());
    }
    for &length in &test.sizes {
        let point = test.point(0, length, Mac([2; 6]), macs, options.limits.max_seconds);
        for job in point.peers.iter().chain([&point.local]) {
            job.check(&options.limits, u32::MAX)?;
        }
    }
    Ok(test)
}

fn index_of(plan: &SwitchPlan, name: &str) -> usize {
    plan.nodes.iter().position(|node| node.name == name).expect("the plan was checked")
}

/// Carry out a plan and write `folder`. Words: what is wrong with the plan.
pub fn run(plan: &SwitchPlan, text: &str, folder: &Path) -> Result<io::Result<()>, Vec<String>> {
    let count = plan.nodes.len();
    let ports = plan.all_ports(count);
    let rates: Vec<f64> = ports.iter().map(|port| port.rate_mbit_s).collect();
    let nodes: Vec<Node> =
        (0..count).map(|number| Node::new(number, &plan.nodes[number], rates[number], plan.seed)).collect();
    let mut random = Random::new(plan.seed ^ 0x5851_F42D_4C95_7F2D);
    let (mut tests, mut faults) = (Vec::new(), Vec::new());
    for (number, test) in plan.tests.iter().enumerate() {
        let hosts: Vec<usize> = test.nodes().map(|name| index_of(plan, name)).collect();
        let macs: Vec<Mac> = hosts[1..].iter().map(|&host| nodes[host].mac).collect();
        let session = (random.word() >> 32) as u32;
        match read_test(test, &macs) {
            Ok(read) => tests.push(Testing::new(read, hosts, test.start_us, session)),
            Err(error) => faults.push(format!("tests[{number}]: {error}")),
        }
    }
    if !faults.is_empty() {
        return Err(faults);
    }
    Ok(carry_out(plan, text, folder, (nodes, rates, tests, random)))
}

fn carry_out(
    plan: &SwitchPlan,
    text: &str,
    folder: &Path,
    (nodes, rates, tests, random): (Vec<Node>, Vec<f64>, Vec<Testing>, Random),
) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    whole(folder, "switch.toml", text)?;
    let fabric = match &plan.switch {
        Some(fabric) => {
            let truth = Truth::create(Some(&folder.join("switch.csv")), ORIGIN_NS)?;
            let blank = |_| header(Kind::Control, 0, 0, 0);
            Some(Fabric::new(fabric, &plan.all_ports(nodes.len()), plan.seed, truth, blank))
        }
        None => None,
    };
    let pauses = plan.pauses.iter().map(|pause| (index_of(plan, &pause.node), pause.clone())).collect();
    let world = World::new(nodes, fabric, rates.clone());
    let mut conductor = Conductor { world, tests, pauses, paused: Vec::new(), rates, random };
    conductor.run()?;
    let names: Vec<String> = (1..plan.tests.len()).map(|number| companion(plan, number)).collect();
    let Conductor { world, tests, paused, .. } = conductor;
    write_pauses(plan, &paused, folder)?;
    let first = tests[0].first_frame;
    let mut companions = Vec::new();
    for (number, test) in tests.into_iter().enumerate().rev() {
        let place = if number == 0 { folder.to_owned() } else { folder.join(&names[number - 1]) };
        let mut more = tables(plan, number);
        if number > 0 {
            let lag = test.first_frame.zip(first).map(|(own, first)| (own - first) as f64 / 1e6);
            let mut entry = Table::new();
            entry.insert("folder".into(), names[number - 1].clone().into());
            entry.insert("role".into(), plan.tests[number].role.clone().unwrap_or_else(|| "other".into()).into());
            entry.extend(lag.map(|lag| ("lag_us".to_owned(), lag.into())));
            companions.insert(0, Value::Table(entry));
        } else {
            if !companions.is_empty() {
                more.insert("companions".into(), Value::Array(std::mem::take(&mut companions)));
            }
        }
        let pauses = paused_hosts(plan, &paused, &test.hosts, number);
        more.extend(pauses.map(|pauses| ("pauses".to_owned(), pauses)));
        write_test(plan, &world.nodes, test, &place, more)?;
    }
    Ok(())
}

fn companion(plan: &SwitchPlan, number: usize) -> String {
    let named = plan.tests[number].name.clone().unwrap_or_else(|| format!("test{number}"));
    format!("companions/{named}")
}

/// What the plan says about all tests.
fn tables(plan: &SwitchPlan, number: usize) -> Table {
    let up = if number == 0 { "" } else { "../../" };
    let mut out = Table::new();
    let mut path = Table::new();
    path.insert("kind".into(), if plan.switch.is_some() { "switch" } else { "direct" }.into());
    if let Some(fabric) = &plan.switch {
        path.insert("devices".into(), Value::Array(vec![fabric.name.clone().into()]));
        let test = &plan.tests[number];
        let (from, to) = (index_of(plan, &test.steering), index_of(plan, &test.peers[0]));
        let pair = |a: String, b: String| Value::Array(vec![Value::Array(vec![a.into(), b.into()])]);
        path.insert("ports".into(), pair(from.to_string(), to.to_string()));
        let module = |port: usize| plan.ports.get(port).and_then(|port| port.module);
        if let Some((a, b)) = module(from).zip(module(to)) {
            path.insert("modules".into(), pair(a.to_string(), b.to_string()));
        }
        let ports = plan.nodes.iter().enumerate().map(|(port, node)| (node.name.clone(), (port as i64).into()));
        let mut switch = Table::new();
        switch.insert("truth".into(), format!("{up}switch.csv").into());
        switch.insert("plan".into(), format!("{up}switch.toml").into());
        switch.insert("ports".into(), Value::Table(ports.collect()));
        out.insert("switch".into(), Value::Table(switch));
    }
    out.insert("path".into(), Value::Table(path));
    let mut simulation = Table::new();
    simulation.insert("preset".into(), "framegen switch --virtual".into());
    simulation.insert("seed".into(), (plan.seed as i64).into());
    out.insert("simulation".into(), Value::Table(simulation));
    out
}

/// `pauses-NAME.csv` of each node that sent PAUSE frames.
fn write_pauses(plan: &SwitchPlan, paused: &[Paused], folder: &Path) -> io::Result<()> {
    for (number, node) in plan.nodes.iter().enumerate() {
        let rows: Vec<String> = paused
            .iter()
            .filter(|pause| pause.node == number)
            .map(|pause| format!("{},{}\n", pause.time_ns, pause.quanta))
            .collect();
        if rows.is_empty() {
            continue;
        }
        whole(folder, &format!("pauses-{}.csv", node.name), &format!("time_ns,quanta\n{}", rows.concat()))?;
    }
    Ok(())
}

/// Those of them that are hosts of a test.
fn paused_hosts(plan: &SwitchPlan, paused: &[Paused], hosts: &[usize], test: usize) -> Option<Value> {
    let up = if test == 0 { "" } else { "../../" };
    let entry = |&host: &usize| {
        let name = &plan.nodes[host].name;
        let file = format!("{up}pauses-{name}.csv");
        Value::Table([("file".to_owned(), file.into()), ("host".to_owned(), name.clone().into())].into_iter().collect())
    };
    let mine: Vec<Value> =
        hosts.iter().filter(|&&host| paused.iter().any(|pause| pause.node == host)).map(entry).collect();
    (!mine.is_empty()).then_some(Value::Array(mine))
}

fn write_test(plan: &SwitchPlan, nodes: &[Node], mut test: Testing, folder: &Path, more: Table) -> io::Result<()> {
    let mut store = Store::new(Some(folder.to_owned()))?;
    for raw in &mut test.raw {
        match test.histogram_ns {
            Some(bin_ns) => store_histogram(&mut store, raw, bin_ns)?,
            None => store_logs(&mut store, raw)?,
        }
    }
    test.test.histogram_ns = test.histogram_ns;
    let exchanges: Vec<_> = (1..).zip(test.exchanges.iter().map(Vec::as_slice)).collect();
    let clock_files = store.clocks(&exchanges)?;
    let clocks: Vec<_> = exchanges.iter().filter_map(|&(node, exchanges)| fit(node, exchanges)).collect();
    let points: Vec<_> = test.raw.iter().map(|raw| summarise(raw, &clocks, test.test.kind.asks())).collect();
    let names: Vec<String> = test.hosts.iter().map(|&host| plan.nodes[host].name.clone()).collect();
    let identity = |host: usize| Identity {
        program: env!("CARGO_PKG_VERSION").into(),
        host: plan.nodes[host].name.clone(),
        kernel: "none: simulated".into(),
        interface: format!("port{host}"),
        mtu: 1500,
        sink: None,
    };
    let summary = Summary {
        format: 1,
        framegen: env!("CARGO_PKG_VERSION").into(),
        complete: true,
        reason: None,
        suspect: false,
        test: test.test.clone(),
        nodes: (0u16..)
            .zip(&test.hosts)
            .map(|(node, &host)| NodeSummary { node, mac: nodes[host].mac, identity: identity(host) })
            .collect(),
        clocks,
        points,
    };
    let description = Description {
        origin: "simulated",
        hosts: names,
        link_mbit_s: Some(plan.all_ports(nodes.len())[test.hosts[0]].rate_mbit_s),
        files: Files { clocks: clock_files, histogram_ns: test.histogram_ns, ..Files::default() },
        more,
    };
    let value = serde_json::to_value(&summary).map_err(io::Error::other)?;
    whole(folder, "summary.json", &format!("{value:#}\n"))?;
    crate::folder::write(folder, &describe(&summary, &description))
}

fn store_histogram(store: &mut Store, raw: &mut RawPoint, bin_ns: u32) -> io::Result<()> {
    let trips = count_trips(&raw.point, raw.sent[0].records(), raw.received[0].records(), bin_ns);
    store.histogram(&trips.rows(raw.index as u32, u32::from(raw.point.length)))?;
    raw.trips = Some(trips);
    Ok(())
}

fn store_logs(store: &mut Store, raw: &mut RawPoint) -> io::Result<()> {
    for node in 0..raw.sent.len() {
        for (kind, log) in [(LogKind::Sent, &raw.sent[node]), (LogKind::Received, &raw.received[node])] {
            store.fetched(raw.index, node as u16, kind, log.records())?;
        }
    }
    raw.frame_logs = store.end().files;
    Ok(())
}
