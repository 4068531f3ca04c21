//! What a host says of itself before and after a test: docs/run-folder.md, `[[host_states]]`. Unknown is null.

use crate::clock::unix_ns;
use crate::host::Host;
use crate::interfaces::{Query, interfaces};
use crate::log::Record;
use serde_json::{Map, Value, json};

fn read(path: &str) -> Option<String> {
    std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
}

/// Everything, as one object; facts that do not change only where they are asked for.
pub fn observe(host: &Host, facts: bool) -> Value {
    let stat = read("/proc/stat").unwrap_or_default();
    let snmp = [read("/proc/net/snmp"), read("/proc/net/netstat")].map(Option::unwrap_or_default);
    let mut state = json!({
        "unix_ns": unix_ns(),
        "cpu_ms": cpu_ms(&stat),
        "interrupts": interrupts(&read("/proc/interrupts").unwrap_or_default()),
        "interrupts_total": first_number(&stat, "intr"),
        "context_switches": first_number(&stat, "ctxt"),
        "snmp": snmp_counters(&snmp.join("\n")),
        "interface": host.counters().ok(),
        "ethtool": Query::new().ok().and_then(|query| query.statistics(&host.name)).map(Map::from_iter),
    });
    if let Some(object) = state.as_object_mut().filter(|_| facts) {
        object.insert("facts".into(), host_facts(host));
    }
    state
}

fn host_facts(host: &Host) -> Value {
    let identity = host.identity();
    let link = interfaces().unwrap_or_default().into_iter().find(|link| link.name == host.name);
    let cpuinfo = read("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": ")).map(|pair| pair.1);
    let class = format!("/sys/class/net/{}", host.name);
    let device = std::fs::canonicalize(format!("{class}/device")).ok();
    json!({
        "host": identity.host,
        "kernel": identity.kernel,
        "cpu": model,
        "cpus": std::thread::available_parallelism().ok().map(usize::from),
        "governor": read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "clocksource": read("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
        "interface": {
            "name": host.name,
            "mac": host.mac,
            "mtu": host.mtu,
            "speed_mbit_s": link.as_ref().and_then(|link| link.speed_mbit_s),
            "duplex": read(&format!("{class}/duplex")),
            "driver": link.and_then(|link| link.driver),
            "device": device.as_ref().and_then(|path| path.file_name()).map(|name| name.to_string_lossy()),
        },
    })
}

fn cpu_ms(stat: &str) -> Value {
    const STATES: [&str; 8] = ["user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal"];
    // SAFETY: no preconditions.
    let per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1) as u64;
    let line = stat.lines().find(|line| line.starts_with("cpu ")).unwrap_or_default();
    let ticks = line.split_whitespace().skip(1).map(|word| word.parse::<u64>().ok());
    let ms = ticks.map(|ticks| json!(ticks.map(|ticks| ticks * 1000 / per_second)));
    Value::Object(STATES.iter().map(|&state| state.to_owned()).zip(ms).collect())
}

fn first_number(stat: &str, name: &str) -> Option<u64> {
    stat.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next()?.parse().ok())
}

/// Lines of /proc/interrupts: counts of all CPUs together, and who it is; those that never came are left out.
fn interrupts(text: &str) -> Value {
    let cpus = text.lines().next().map_or(0, |line| line.split_whitespace().count());
    let mut out = Map::new();
    for line in text.lines().skip(1) {
        let Some((name, rest)) = line.split_once(':') else {
            continue;
        };
        let words: Vec<&str> = rest.split_whitespace().collect();
        let counts = words.iter().take(cpus).map_while(|word| word.parse::<u64>().ok());
        let (number, count) = counts.fold((0, 0), |(number, sum), count| (number + 1, sum + count));
        if count > 0 {
            out.insert(name.trim().to_owned(), json!({"count": count, "name": words[number..].join(" ")}));
        }
    }
    Value::Object(out)
}

/// Pairs of lines, names and numbers, each headed by its protocol; counters that are 0 are left out.
fn snmp_counters(text: &str) -> Value {
    let mut out = Map::new();
    let lines: Vec<&str> = text.lines().collect();
    for pair in lines.windows(2) {
        let (Some((name, keys)), Some((same, values))) = (pair[0].split_once(':'), pair[1].split_once(':')) else {
            continue;
        };
        let is_number = |word: &str| word.parse::<i64>().is_ok();
        if name != same || !values.split_whitespace().all(is_number) || keys.split_whitespace().all(is_number) {
            continue;
        }
        let numbers = values.split_whitespace().filter_map(|word| word.parse::<i64>().ok());
        let counters = keys.split_whitespace().zip(numbers).filter(|(_, value)| *value != 0);
        out.insert(name.to_owned(), counters.map(|(key, value)| (key.to_owned(), json!(value))).collect());
    }
    Value::Object(out)
}

/// Text as records, the way logs travel; blanks fill the last.
pub fn to_records(text: &str) -> Vec<Record> {
    let mut bytes = text.as_bytes().to_vec();
    bytes.resize(bytes.len().next_multiple_of(Record::BYTES), b' ');
    bytes.as_chunks::<{ Record::BYTES }>().0.iter().map(Record::from_bytes).collect()
}

/// An object that came as records; None if it is none.
pub fn from_records(records: &[Record]) -> Option<Value> {
    let bytes: Vec<u8> = records.iter().flat_map(|record| record.to_bytes()).collect();
    serde_json::from_slice(&bytes).ok().filter(Value::is_object)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_files_are_read() {
        let stat = "cpu  100 2 30 4000 5 6 7 8 0 0\nintr 12345 1 2\nctxt 99\n";
        assert_eq!(cpu_ms(stat)["idle"], 40_000);
        assert_eq!((first_number(stat, "intr"), first_number(stat, "ctxt")), (Some(12345), Some(99)));
        let text = "     CPU0   CPU1\n  24:   10   20   PCI-MSI 1  eth1-rx-0\n ERR:  0\n  25: 0 0 x y\n";
        assert_eq!(interrupts(text), json!({"24": {"count": 30, "name": "PCI-MSI 1 eth1-rx-0"}}));
        let snmp = "Udp: InDatagrams InErrors\nUdp: 7 0\nTcp: MaxConn Active\nTcp: -1 3\n";
        assert_eq!(snmp_counters(snmp), json!({"Udp": {"InDatagrams": 7}, "Tcp": {"MaxConn": -1, "Active": 3}}));
    }

    #[test]
    fn text_travels_as_records() {
        for text in ["{}", "{\"a\": [1, 2, \"a longer text than one record holds\"]}"] {
            assert_eq!(from_records(&to_records(text)), serde_json::from_str(text).ok());
        }
        assert_eq!(from_records(&to_records("[1]")), None);
        assert_eq!(from_records(&to_records("\u{1b}")), None);
    }
}
