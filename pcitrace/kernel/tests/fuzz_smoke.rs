//! Damaged captures of every format, the same ones each time: errors are fine, panics and unsound results are not.
//! The coverage-guided search is in `fuzz/`.

#[path = "../fuzz/bus.rs"]
mod bus;
#[path = "../fuzz/files.rs"]
mod files;
#[path = "../fuzz/memory.rs"]
mod memory;

use std::collections::BTreeMap;
use std::path::Path;

const ROUNDS: usize = 2000;

/// xorshift64*, so that the inputs never change.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() >> 16) as usize % limit.max(1)
    }
}

fn damage(bytes: &mut Vec<u8>, random: &mut Random) {
    for _ in 0..=random.below(4) {
        let at = random.below(bytes.len());
        let length = random.below(16).min(bytes.len() - at);
        match random.below(7) {
            0 => bytes.truncate(at),
            1 => drop(bytes.drain(at..at + length)),
            2 => {
                let copy = bytes[at..at + length].to_vec();
                let to = random.below(bytes.len());
                bytes.splice(to..to, copy);
            }
            3 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
            4 if at < bytes.len() => bytes[at] = random.next() as u8,
            5 if at < bytes.len() => bytes[at] = *b"\0\xff\x7f\x80 0-#".get(random.below(8)).unwrap_or(&0),
            _ => bytes.insert(at, b"\0\x01\xff09 \n,xz"[random.below(10)]),
        }
    }
}

fn try_damaged(seed: &[u8]) {
    files::read_file(seed);
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for _ in 0..ROUNDS {
        let mut bytes = seed.to_vec();
        damage(&mut bytes, &mut random);
        files::read_file(&bytes);
    }
}

fn seed(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds");
    std::fs::read(folder.join(name)).unwrap()
}

/// What the search has found, by target.
fn crashes(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/crashes").join(target);
    let files = std::fs::read_dir(folder).unwrap();
    let inputs: Vec<_> = files.map(|file| std::fs::read(file.unwrap().path()).unwrap()).collect();
    assert!(!inputs.is_empty());
    inputs
}

#[test]
fn past_crashes() {
    crashes("files").iter().for_each(|input| files::read_file(input));
    crashes("samples").iter().for_each(|input| {
        bus::check_samples(input);
        bus::check_stream(input);
    });
}

/// The bits of past crashes are a bus of a kind; as samples and as changes, whole and damaged.
#[test]
fn damaged_buses() {
    let mut random = Random(7);
    for seed in crashes("samples") {
        for _ in 0..ROUNDS / 50 {
            let mut bytes = seed.clone();
            damage(&mut bytes, &mut random);
            bus::check_samples(&bytes);
            bus::check_changes(&bytes);
            bus::check_stream(&bytes);
        }
    }
}

#[test]
fn damaged_vcd() {
    try_damaged(&seed("mini.vcd"));
}

#[test]
fn damaged_fst() {
    try_damaged(&seed("mini.fst"));
}

#[test]
fn damaged_ghw() {
    try_damaged(&seed("mini.ghw"));
}

#[test]
fn damaged_csv() {
    try_damaged(b"; Channels (2/2): CLK, FRAME#\n; Samplerate: 33.333333 MHz\nlogic,logic\n1,0\n0,1\n1,1\n");
    try_damaged(b"; Channels (2/2): A, B\n; Samplerate: 1 MHz\nTime,A,B,Trigger\n1,1,0,0\n3,0,1,0\n");
    try_damaged(b"Time[s], Channel 0, \"Channel, 1\"\n-0.5, 1, 0\n1e-3, 0, 1\n");
}

#[test]
fn damaged_saleae() {
    let chunk = |times: &[f64]| {
        let begin = times.iter().flat_map(|t| t.to_le_bytes());
        begin.collect::<Vec<u8>>()
    };
    let version0 =
        [b"<SALEAE>", &[0; 12][..], &chunk(&[0.0, 1.0]), &[2, 0, 0, 0, 0, 0, 0, 0], &chunk(&[0.25, 0.5])].concat();
    try_damaged(&version0);
    let part = [&[1, 0, 0, 0][..], &chunk(&[1e9, 0.0, 0.0]), &[0; 8]].concat();
    let version1 = [b"<SALEAE>", &[1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0][..], &part, &part].concat();
    try_damaged(&version1);
}

/// Damage to the zip, and damage to what is in it behind right CRCs.
#[test]
fn damaged_zip() {
    let sigrok: [(&str, &str); 4] = [
        ("version", "2"),
        (
            "metadata",
            "[global]\nsigrok version=0.5.2\n\n[device 1]\ncapturefile=logic-1\ntotal probes=9\n\
             samplerate=100 MHz\ntotal analog=0\nprobe1=CLK\nprobe9=FRAME#\nunitsize=2\n",
        ),
        ("logic-1-1", "abcdefg"),
        ("logic-1-2", "hijklmnopqrs\n"),
    ];
    let dsview: [(&str, &str); 5] = [
        (
            "header",
            "[version]\nversion = 3\n[header]\ndevice mode = 0\ntotal samples = 27\ntotal probes = 2\n\
             total blocks = 2\nsamplerate = 100 MHz\nprobe0 = CLK\nprobe1 = FRAME#\n",
        ),
        ("L-0/0", "ab"),
        ("L-0/1", "cd"),
        ("L-1/0", "ef"),
        ("L-1/1", "gh"),
    ];
    for members in [&sigrok[..], &dsview[..]] {
        let members: BTreeMap<&[u8], &[u8]> =
            members.iter().map(|(name, content)| (name.as_bytes(), content.as_bytes())).collect();
        try_damaged(&files::zip(&members));
        let mut random = Random(1);
        for _ in 0..ROUNDS {
            let mut members: Vec<(Vec<u8>, Vec<u8>)> =
                members.iter().map(|(name, content)| (name.to_vec(), content.to_vec())).collect();
            let chosen = random.below(members.len());
            damage(&mut members[chosen].1, &mut random);
            if random.below(4) == 0 {
                damage(&mut members[chosen].0, &mut random);
            }
            let members = members.iter().map(|(name, content)| (name.as_slice(), content.as_slice())).collect();
            files::read_file(&files::zip(&members));
        }
    }
}
