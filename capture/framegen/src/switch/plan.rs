//! The plan of a switch, as TOML. What each key means is in docs/switch.md.

use crate::frame::Mac;
use serde::Deserialize;

/// More would be no help to anybody, and bounds what a flood becomes.
const MAX_PORTS: usize = 64;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SwitchPlan {
    pub format: u32,
    #[serde(default = "one")]
    pub seed: u64,
    /// None: the two nodes are joined by a cable.
    pub switch: Option<FabricPlan>,
    #[serde(default)]
    pub ports: Vec<PortPlan>,
    /// What only a virtual run has.
    #[serde(default)]
    pub nodes: Vec<NodePlan>,
    #[serde(default)]
    pub tests: Vec<TestPlan>,
    #[serde(default)]
    pub pauses: Vec<PausePlan>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    #[default]
    StoreAndForward,
    CutThrough,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FabricPlan {
    pub name: String,
    pub mode: Mode,
    /// From the last bit in (cut-through: from the last bit of the header) until the backplane is asked for.
    pub latency_us: f64,
    /// None: crossing it takes no time.
    pub backplane_mbit_s: Option<f64>,
    /// The backplane carries whole cells of so many bytes.
    pub cell_bytes: Option<u32>,
    /// Bytes of a frame, beyond its user data, that go into cells.
    pub cell_header_bytes: u32,
    /// Cut-through: bytes, preamble included, that are read before a frame goes on.
    pub header_bytes: u32,
    pub learn: bool,
    pub ageing_s: f64,
    pub flood_unknown: bool,
    pub shared_frames: Option<u64>,
    pub shared_bytes: Option<u64>,
    /// Of each port that does not say otherwise.
    pub port_frames: Option<u64>,
    pub port_bytes: Option<u64>,
    /// Whether a PAUSE frame that comes in holds the port's output.
    pub honours_pause: bool,
    /// Frames waiting for one output from which on its senders are sent PAUSE frames, and below which they go on.
    pub pause_above_frames: Option<u64>,
    pub pause_below_frames: u64,
    pub pause_quanta: u16,
}

impl Default for FabricPlan {
    fn default() -> FabricPlan {
        FabricPlan {
            name: "switch".into(),
            mode: Mode::StoreAndForward,
            latency_us: 0.0,
            backplane_mbit_s: None,
            cell_bytes: None,
            cell_header_bytes: 0,
            header_bytes: 22,
            learn: true,
            ageing_s: 300.0,
            flood_unknown: true,
            shared_frames: None,
            shared_bytes: None,
            port_frames: None,
            port_bytes: None,
            honours_pause: true,
            pause_above_frames: None,
            pause_below_frames: 0,
            pause_quanta: 0xFFFF,
        }
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PortPlan {
    /// Real frames: the interface that is this port.
    pub interface: Option<String>,
    pub rate_mbit_s: f64,
    /// Frames between ports of one module do not cross the backplane.
    pub module: Option<u32>,
    pub frames: Option<u64>,
    pub bytes: Option<u64>,
    /// What the cable does to frames that come in: probabilities, and times in µs.
    pub loss: f64,
    /// Frames lost in a row, in the mean.
    pub loss_burst: f64,
    pub duplicate: f64,
    pub reorder: f64,
    pub reorder_us: f64,
    pub delay_us: f64,
    /// Mean of an exponential delay on top.
    pub jitter_us: f64,
}

impl Default for PortPlan {
    fn default() -> PortPlan {
        PortPlan {
            interface: None,
            rate_mbit_s: 1000.0,
            module: None,
            frames: None,
            bytes: None,
            loss: 0.0,
            loss_burst: 1.0,
            duplicate: 0.0,
            reorder: 0.0,
            reorder_us: 100.0,
            delay_us: 0.0,
            jitter_us: 0.0,
        }
    }
}

/// A host that exists in the plan only. Node n is wired to port n.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NodePlan {
    pub name: String,
    pub mac: Option<Mac>,
    /// From the time stamp of a frame to its first bit on the wire, and what each user byte adds.
    pub send_us: f64,
    pub send_us_per_byte: f64,
    /// From the last bit on the wire to the time stamp.
    pub receive_us: f64,
    pub receive_us_per_byte: f64,
    /// From a request's time stamp to that of its response.
    pub respond_us: f64,
    /// Standard deviation of each of the three.
    pub jitter_us: f64,
    /// From one sending to the next, at least: what the host manages.
    pub spacing_us: f64,
    pub cable_us: f64,
    pub honours_pause: bool,
    pub clock_offset_us: f64,
    pub clock_drift_ppm: f64,
    /// Times are multiples of this.
    pub clock_step_ns: i64,
}

impl Default for NodePlan {
    fn default() -> NodePlan {
        NodePlan {
            name: String::new(),
            mac: None,
            send_us: 1.0,
            send_us_per_byte: 0.0,
            receive_us: 1.0,
            receive_us_per_byte: 0.0,
            respond_us: 1.0,
            jitter_us: 0.0,
            spacing_us: 0.0,
            cable_us: 0.0,
            honours_pause: true,
            clock_offset_us: 0.0,
            clock_drift_ppm: 0.0,
            clock_step_ns: 1,
        }
    }
}

/// One test between some of the nodes: its own run folder.
#[derive(Clone, Debug, Deserialize)]
pub struct TestPlan {
    pub kind: String,
    /// The node that steers, and its peers.
    pub steering: String,
    pub peers: Vec<String>,
    /// Nodes that count what the switch floods to them.
    #[serde(default)]
    pub bystanders: Vec<String>,
    /// Of a companion: what it is to the first test.
    pub role: Option<String>,
    pub name: Option<String>,
    #[serde(default)]
    pub start_us: f64,
    /// framegen's options.
    #[serde(flatten)]
    pub options: toml::Table,
}

impl TestPlan {
    /// Node 0, 1, ...
    pub fn nodes(&self) -> impl Iterator<Item = &String> {
        std::iter::once(&self.steering).chain(&self.peers).chain(&self.bystanders)
    }
}

/// PAUSE frames that a node sends.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PausePlan {
    pub node: String,
    /// From the first frame of the first test.
    pub start_us: f64,
    pub duration_us: f64,
    #[serde(default = "longest")]
    pub quanta: u16,
}

fn one() -> u64 {
    1
}

fn longest() -> u16 {
    0xFFFF
}

impl SwitchPlan {
    /// Read and check a plan; all that is wrong with it, in words.
    pub fn parse(text: &str, is_virtual: bool) -> Result<SwitchPlan, Vec<String>> {
        let plan: SwitchPlan = toml::from_str(text).map_err(|error| vec![error.to_string()])?;
        let faults = plan.faults(is_virtual);
        if faults.is_empty() { Ok(plan) } else { Err(faults) }
    }

    fn faults(&self, is_virtual: bool) -> Vec<String> {
        let mut faults = Vec::new();
        let mut refuse = |wrong: bool, text: &str| {
            if wrong {
                faults.push(text.to_owned());
            }
        };
        refuse(self.format != 1, &format!("format = {}: this framegen reads format 1", self.format));
        refuse(self.ports.len() > MAX_PORTS || self.nodes.len() > MAX_PORTS, "more than 64 ports");
        if is_virtual {
            refuse(self.nodes.len() < 2, "[[nodes]]: a virtual run has two nodes at least");
            refuse(self.tests.is_empty(), "[[tests]]: nothing is sent");
            refuse(self.switch.is_none() && self.nodes.len() != 2, "a cable joins two nodes: add [switch]");
            refuse(self.switch.is_some() && self.ports.len() > self.nodes.len(), "[[ports]]: node n is on port n");
            let names: Vec<&str> = self.nodes.iter().map(|node| node.name.as_str()).collect();
            refuse((1..names.len()).any(|i| names[..i].contains(&names[i])), "[[nodes]]: two have the same name");
            for name in self.tests.iter().flat_map(TestPlan::nodes) {
                refuse(!names.contains(&name.as_str()), &format!("[[tests]]: there is no node {name}"));
            }
            for pause in &self.pauses {
                refuse(!names.contains(&pause.node.as_str()), &format!("[[pauses]]: there is no node {}", pause.node));
            }
        } else {
            refuse(self.switch.is_none(), "[switch] is missing");
            refuse(self.ports.len() < 2, "[[ports]]: a switch has two ports at least");
            refuse(self.ports.iter().any(|port| port.interface.is_none()), "[[ports]]: interface is missing");
            refuse(!self.nodes.is_empty() || !self.tests.is_empty(), "[[nodes]] and [[tests]] are for --virtual");
        }
        for (index, port) in self.ports.iter().enumerate() {
            port.faults(&mut |wrong, key| refuse(wrong, &format!("ports[{index}].{key}")));
        }
        for node in &self.nodes {
            node.faults(&mut |wrong, key| refuse(wrong, &format!("node {}: {key}", node.name)));
        }
        if let Some(fabric) = &self.switch {
            fabric.faults(&mut |wrong, key| refuse(wrong, &format!("switch.{key}")));
        }
        faults
    }

    /// The ports of a switch with `count` of them; those the plan does not describe are plain.
    pub fn all_ports(&self, count: usize) -> Vec<PortPlan> {
        (0..count).map(|index| self.ports.get(index).cloned().unwrap_or_default()).collect()
    }
}

fn is_time(value: f64) -> bool {
    (0.0..=1e9).contains(&value)
}

impl FabricPlan {
    fn faults(&self, refuse: &mut impl FnMut(bool, &str)) {
        refuse(!is_time(self.latency_us), "latency_us: from 0 to 1e9");
        let rate_is_wrong = self.backplane_mbit_s.is_some_and(|rate| !(1.0..=1e9).contains(&rate));
        refuse(rate_is_wrong, "backplane_mbit_s: from 1 to 1e9");
        refuse(self.cell_bytes == Some(0), "cell_bytes: at least 1");
        refuse(self.cell_bytes.is_some() && self.backplane_mbit_s.is_none(), "cell_bytes: needs backplane_mbit_s");
        refuse(!(0.0..=1e9).contains(&self.ageing_s), "ageing_s: from 0 to 1e9");
        let never = self.pause_above_frames.is_some_and(|above| above <= self.pause_below_frames);
        refuse(never, "pause_above_frames: more than pause_below_frames");
    }

    /// Time to cross the backplane.
    pub fn crossing(&self, user: u32) -> super::Ps {
        let Some(rate) = self.backplane_mbit_s else {
            return 0;
        };
        let bytes = user + self.cell_header_bytes;
        let whole = self.cell_bytes.map_or(bytes, |cell| bytes.div_ceil(cell) * cell);
        super::duration(u64::from(whole), rate)
    }
}

impl PortPlan {
    fn faults(&self, refuse: &mut impl FnMut(bool, &str)) {
        refuse(!(0.001..=1e6).contains(&self.rate_mbit_s), "rate_mbit_s: from 0.001 to 1e6");
        for (key, value) in [("loss", self.loss), ("duplicate", self.duplicate), ("reorder", self.reorder)] {
            refuse(!(0.0..=1.0).contains(&value), &format!("{key}: a probability"));
        }
        refuse(!(1.0..=1e6).contains(&self.loss_burst), "loss_burst: at least 1");
        for (key, value) in
            [("delay_us", self.delay_us), ("jitter_us", self.jitter_us), ("reorder_us", self.reorder_us)]
        {
            refuse(!is_time(value), &format!("{key}: from 0 to 1e9"));
        }
    }
}

impl NodePlan {
    fn faults(&self, refuse: &mut impl FnMut(bool, &str)) {
        refuse(self.name.is_empty(), "a node without a name");
        for (key, value) in [
            ("send_us", self.send_us),
            ("send_us_per_byte", self.send_us_per_byte),
            ("receive_us", self.receive_us),
            ("receive_us_per_byte", self.receive_us_per_byte),
            ("respond_us", self.respond_us),
            ("jitter_us", self.jitter_us),
            ("spacing_us", self.spacing_us),
            ("cable_us", self.cable_us),
        ] {
            refuse(!is_time(value), &format!("{key}: from 0 to 1e9"));
        }
        refuse(self.clock_offset_us.abs() > 1e12 || self.clock_offset_us.is_nan(), "clock_offset_us: at most 1e12");
        refuse(self.clock_drift_ppm.abs() > 1e4 || self.clock_drift_ppm.is_nan(), "clock_drift_ppm: at most 1e4");
        refuse(!(1..=1_000_000_000).contains(&self.clock_step_ns), "clock_step_ns: from 1 to 1e9");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "format = 1\n[switch]\n[[nodes]]\nname = 'A'\n[[nodes]]\nname = 'B'\n\
                        [[tests]]\nkind = 'stream'\nsteering = 'A'\npeers = ['B']\nsizes = [64]\n";

    #[test]
    fn everything_wrong_is_named_at_once() {
        let plan = SwitchPlan::parse(GOOD, true).expect("good");
        assert_eq!(plan.tests[0].options["sizes"].as_array().map(Vec::len), Some(1));
        let text = GOOD.replace("'B']", "'C']").replace("[switch]", "[switch]\nlatency_us = -1\ncell_bytes = 0");
        let faults = SwitchPlan::parse(&text, true).expect_err("wrong").join("; ");
        for word in ["no node C", "latency_us", "cell_bytes: at least", "needs backplane"] {
            assert!(faults.contains(word), "{word}: {faults}");
        }
        let misspelt = GOOD.replace("[switch]", "[switch]\nlatencyus = 1");
        assert!(SwitchPlan::parse(&misspelt, true).expect_err("wrong")[0].contains("latencyus"));
        assert!(SwitchPlan::parse(GOOD, false).is_err());
    }

    #[test]
    fn cells_are_whole() {
        let fabric = FabricPlan { backplane_mbit_s: Some(512.0), cell_bytes: Some(64), ..FabricPlan::default() };
        // 64 bytes at 512 Mbit/s: 1 us.
        assert_eq!([64, 65, 128].map(|user| fabric.crossing(user)), [1_000_000, 2_000_000, 2_000_000]);
        let plain = FabricPlan { cell_bytes: None, ..fabric };
        assert_eq!(plain.crossing(65), 1_015_625);
    }
}
