//! One bus in several formats, and one file through two readers, must give the same changes.

use pcitrace_kernel::capture::{Capture, Changes, Data, Limb, Signal};
use pcitrace_kernel::read::{self, How};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

type Change = (u128, u64, u64, u64);

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(name)
}

fn changes(capture: &Capture) -> &dyn Changes {
    match &capture.data {
        Data::Changes(changes) => &**changes,
        Data::Sampled(_) => panic!("{} is sampled", capture.path.display()),
    }
}

/// What holds from when (in attoseconds) on: the last of the changes at a time, and only if it differs.
fn settled(signal: &Signal, tick: (u64, u64)) -> Vec<Change> {
    let at = |mask: &[u64], n: usize| mask.get(n).copied().unwrap_or(0);
    let mut out: Vec<Change> = Vec::new();
    for (n, (&time, &value)) in signal.times.iter().zip(&signal.values).enumerate() {
        let time = u128::from(time) * u128::from(tick.0) * 10u128.pow(18) / u128::from(tick.1);
        let change = (time, value, at(&signal.unknown, n), at(&signal.high_z, n));
        out.pop_if(|last| last.0 == time);
        if out.last().is_none_or(|last| (last.1, last.2, last.3) != (change.1, change.2, change.3)) {
            out.push(change);
        }
    }
    out
}

/// All channels by name (in lower case: VHDL has no other), without the scope.
fn by_name(capture: &Capture) -> BTreeMap<String, (u32, Vec<Change>)> {
    let all: Vec<usize> = (0..capture.channels.len()).collect();
    let data = changes(capture);
    let signals = data.signals(&Limb::lowest(&all)).unwrap();
    let names = capture.channels.iter().map(|c| c.name.rsplit('.').next().unwrap().to_lowercase().replace('#', ""));
    names
        .zip(&capture.channels)
        .zip(&signals)
        .map(|((name, channel), signal)| (name, (channel.width, settled(signal, data.tick()))))
        .collect()
}

#[test]
fn vcd_fst_and_ghw_of_one_bus_agree() {
    let vcd = read::open(&fixture("readers/bus.vcd.gz"), &How::default()).unwrap();
    let expected = by_name(&vcd);
    assert!(expected.len() > 10 && expected.values().any(|(width, _)| *width == 32));
    for name in ["readers/bus.fst", "readers/bus.ghw.gz"] {
        let other = read::open(&fixture(name), &How::default()).unwrap();
        let found = by_name(&other);
        assert_eq!(found.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>(), "{name}");
        for (net, changes) in &expected {
            assert_eq!(&found[net], changes, "{name}, {net}");
        }
    }
}

/// wellen reads VCD too.
fn through_wellen(path: &Path) -> BTreeMap<String, Vec<Change>> {
    let mut waves = wellen::simple::read(path).unwrap();
    let vars: Vec<_> = waves.hierarchy().all_vars().collect();
    let signals: Vec<_> = vars.iter().map(|&var| waves.hierarchy()[var].signal_ref()).collect();
    waves.load_signals(&signals);
    let timescale = waves.hierarchy().timescale().unwrap();
    let unit = 10u64.pow(timescale.unit.to_exponent().unwrap().unsigned_abs().into());
    let mut out = BTreeMap::new();
    for (&var, &signal) in vars.iter().zip(&signals) {
        let mut converted = Signal::default();
        for (time, value) in waves.get_signal(signal).unwrap().iter_changes() {
            let (mut ones, mut unknown, mut high_z) = (0, 0, 0);
            for c in value.to_bit_string().unwrap().chars() {
                ones = ones << 1 | u64::from(c == '1');
                unknown = unknown << 1 | u64::from(c == 'x');
                high_z = high_z << 1 | u64::from(c == 'z');
            }
            converted.push(waves.time_table()[time as usize], ones, unknown, high_z);
        }
        let name = waves.hierarchy()[var].name(waves.hierarchy()).to_lowercase();
        out.insert(name, settled(&converted, (timescale.factor.into(), unit)));
    }
    out
}

#[test]
fn vcd_is_read_as_wellen_reads_it() {
    for trace in ["blue33_seq1", "blue66_seq1", "blue33_seq6"] {
        let path = fixture("traces").join(trace).join("bus.vcd.gz");
        let ours: BTreeMap<_, _> = by_name(&read::open(&path, &How::default()).unwrap())
            .into_iter()
            .map(|(name, (_, changes))| (name.split('[').next().unwrap().to_owned(), changes))
            .collect();

        let plain = std::env::temp_dir().join(format!("pcitrace-{}-{trace}.vcd", std::process::id()));
        let mut gz = flate2::read::GzDecoder::new(std::fs::File::open(&path).unwrap());
        std::io::copy(&mut gz, &mut std::fs::File::create(&plain).unwrap()).unwrap();
        let theirs = through_wellen(&plain);
        std::fs::remove_file(&plain).unwrap();

        assert_eq!(ours.keys().collect::<Vec<_>>(), theirs.keys().collect::<Vec<_>>(), "{trace}");
        for (net, changes) in &theirs {
            assert_eq!(&ours[net], changes, "{trace}, {net}");
        }
    }
}
