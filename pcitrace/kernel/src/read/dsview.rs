//! DSView session files (`.dsl`, format version 3): a zip with an ini `header` and, for each channel, blocks
//! `L-<channel>/<block>` of one bit a sample (2^24 samples in all but the last).

use super::archive::{Archive, Member};
use super::ini;
use super::names::number_repeated;
use crate::capture::{Capture, Channel, Chunk, Data, Sampled};
use crate::error::{Error, Result};
use std::sync::{Arc, Mutex, PoisonError};

/// A block is handed out in pieces of this many samples, so that decoding begins before it is all transposed.
const CHUNK_SAMPLES: u64 = 1 << 20;

/// Blocks are held whole, those of all channels at once. DSView writes 2 MiB.
const MAX_BLOCK_BYTES: u64 = 8 << 20;

struct DsView {
    archive: Archive,
    unit_size: usize,
    bits: Vec<usize>,
    rate_hz: Option<f64>,
    blocks: Vec<Block>,
    samples: u64,
}

struct Block {
    first_sample: u64,
    samples: u64,
    /// One a channel.
    members: Vec<Member>,
}

/// The inflated members of a block, shared by its chunks.
type Planes = Arc<Mutex<Option<Arc<Vec<Vec<u8>>>>>>;

/// A zip with a `header` member.
pub fn open(archive: Archive) -> Result<Capture> {
    let path = archive.path().to_owned();
    let wrong = |what: String| Error::format(&path, what).within("header");
    let text = archive.text("header")?.ok_or_else(|| wrong("is missing; is this a DSView file?".into()))?;
    let sections = ini::parse(&text).map_err(|what| wrong(what + "; save the file again"))?;
    let find = |section: &str, key: &str| sections.iter().filter(|s| s.name == section).find_map(|s| s.get(key));
    match find("version", "version") {
        Some("3") => {}
        other => {
            return Err(wrong(format!(
                "the format version is {}; version 3 is read, which DSView 1.0 and later write: save the file with such a one",
                other.unwrap_or("not given")
            )));
        }
    }
    let number = |key: &str| -> Result<u64> {
        let value = find("header", key).ok_or_else(|| wrong(format!("`{key}` is missing; save the file again")))?;
        value.parse().map_err(|_| wrong(format!("`{key} = {value}` is not a number; save the file again")))
    };
    if number("device mode")? != 0 {
        return Err(wrong("holds analog samples (device mode is not 0); record logic channels".into()));
    }
    let rate_hz = match find("header", "samplerate") {
        None => None,
        Some(value) => Some(
            ini::parse_rate(value)
                .filter(|&hz| hz > 0.0)
                .ok_or_else(|| wrong(format!("`samplerate = {value}` is not a positive rate; save the file again")))?,
        ),
    };
    let header = sections.iter().filter(|s| s.name == "header").flat_map(|s| s.entries());
    let mut probes: Vec<(usize, String)> =
        header.filter_map(|(key, name)| Some((key.strip_prefix("probe")?.parse().ok()?, name.into()))).collect();
    probes.sort_unstable();
    check_probes(&probes, number("total probes")?).map_err(wrong)?;
    let notes = number_repeated(probes.iter_mut().map(|(_, name)| name));
    let samples = number("total samples")?;
    if samples == 0 {
        return Err(wrong("`total samples = 0`: the capture is empty; record it again".into()));
    }
    let blocks = find_blocks(&archive, &probes, number("total blocks")?, samples)?;
    Ok(Capture {
        path,
        format: "dsview",
        channels: probes.iter().map(|(_, name)| Channel { name: name.clone(), width: 1 }).collect(),
        notes,
        captures: 1,
        data: Data::Sampled(Box::new(DsView {
            archive,
            unit_size: probes.len().div_ceil(8).next_power_of_two(),
            bits: (0..probes.len()).collect(),
            rate_hz,
            blocks,
            samples,
        })),
    })
}

fn check_probes(probes: &[(usize, String)], total: u64) -> std::result::Result<(), String> {
    if probes.is_empty() || probes.len() as u64 != total {
        return Err(format!("`total probes = {total}`, but {} are named; save the file again", probes.len()));
    }
    Ok(())
}

fn find_blocks(archive: &Archive, probes: &[(usize, String)], count: u64, samples: u64) -> Result<Vec<Block>> {
    let by_name: std::collections::HashMap<&str, &Member> =
        archive.members().iter().map(|m| (m.name.as_str(), m)).collect();
    let mut blocks = Vec::new();
    let mut first_sample = 0;
    for block in 0..count {
        let members = probes
            .iter()
            .map(|(probe, _)| {
                let name = format!("L-{probe}/{block}");
                by_name.get(name.as_str()).map(|&m| m.clone()).ok_or_else(|| {
                    Error::format(archive.path(), "this block of samples is missing; save the file again").within(name)
                })
            })
            .collect::<Result<Vec<_>>>()?;
        let size = members[0].size;
        if let Some(other) = members.iter().find(|m| m.size != size) {
            let what =
                format!("is {} bytes long where {} has {size}; save the file again", other.size, members[0].name);
            return Err(Error::format(archive.path(), what).within(&other.name));
        }
        if size > MAX_BLOCK_BYTES {
            let what = format!("is a block of {size} bytes; DSView's have 2 MiB: the file is damaged");
            return Err(Error::format(archive.path(), what).within(&members[0].name));
        }
        // The last block is padded to whole bytes or words.
        let here = (size * 8).min(samples - first_sample);
        blocks.push(Block { first_sample, samples: here, members });
        first_sample += here;
    }
    if first_sample < samples {
        let what = format!("`total samples = {samples}`, but the blocks hold {first_sample}; save the file again");
        return Err(Error::format(archive.path(), what).within("header"));
    }
    Ok(blocks)
}

impl Sampled for DsView {
    fn unit_size(&self) -> usize {
        self.unit_size
    }

    fn bits(&self) -> &[usize] {
        &self.bits
    }

    fn rate_hz(&self) -> Option<f64> {
        self.rate_hz
    }

    fn total_bytes(&self) -> Option<u64> {
        Some(self.samples * self.unit_size as u64)
    }

    fn starts(&self) -> Vec<u64> {
        self.blocks.iter().map(|block| block.first_sample * self.unit_size as u64).collect()
    }

    fn chunks(&self) -> Box<dyn Iterator<Item = Result<Chunk<'_>>> + Send + '_> {
        let unit = self.unit_size as u64;
        Box::new(self.blocks.iter().flat_map(move |block| {
            let planes = Planes::default();
            (0..block.samples).step_by(CHUNK_SAMPLES as usize).map(move |start| {
                let planes = planes.clone();
                let end = block.samples.min(start + CHUNK_SAMPLES);
                Ok(Chunk::load((block.first_sample + start) * unit, move |out| {
                    let planes = self.inflate(block, &planes)?;
                    transpose(&planes, start as usize, end as usize, self.unit_size, out);
                    Ok(())
                }))
            })
        }))
    }
}

impl DsView {
    /// The first chunk of a block that is loaded inflates it for all.
    fn inflate(&self, block: &Block, planes: &Planes) -> Result<Arc<Vec<Vec<u8>>>> {
        let mut shared = planes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(planes) = &*shared {
            return Ok(planes.clone());
        }
        let inflate = |member| {
            let mut plane = Vec::new();
            self.archive.inflate(member, &mut plane).map(|()| plane)
        };
        let planes = Arc::new(block.members.iter().map(inflate).collect::<Result<Vec<_>>>()?);
        *shared = Some(planes.clone());
        Ok(planes)
    }
}

/// Bit planes to samples `start..end` (`start` a multiple of 8): channel k becomes bit k of each unit.
fn transpose(planes: &[Vec<u8>], start: usize, end: usize, unit_size: usize, out: &mut Vec<u8>) {
    let eights = (end - start).div_ceil(8);
    let planes: Vec<&[u8]> = planes.iter().map(|plane| &plane[start / 8..][..eights]).collect();
    out.resize(eights * 8 * unit_size, 0);
    // With the unit known the loops unroll.
    match unit_size {
        1 => transpose_eights(&planes, 1, out),
        2 => transpose_eights(&planes, 2, out),
        4 => transpose_eights(&planes, 4, out),
        8 => transpose_eights(&planes, 8, out),
        _ => transpose_eights(&planes, unit_size, out),
    }
    out.truncate((end - start) * unit_size);
}

#[inline(always)]
fn transpose_eights(planes: &[&[u8]], unit_size: usize, out: &mut [u8]) {
    for (eight, units) in out.chunks_exact_mut(8 * unit_size).enumerate() {
        units.fill(0);
        for (byte, group) in planes.chunks(8).enumerate() {
            let rows = group.iter().rev().fold(0, |rows, plane| rows << 8 | u64::from(plane[eight]));
            for (sample, column) in transpose8(rows).to_le_bytes().into_iter().enumerate() {
                units[sample * unit_size + byte] = column;
            }
        }
    }
}

/// Transposes an 8 x 8 bit matrix: bit c of byte r becomes bit r of byte c, by swapping ever larger blocks.
fn transpose8(mut m: u64) -> u64 {
    for (shift, mask) in [(7, 0x00aa_00aa_00aa_00aa), (14, 0x0000_cccc_0000_cccc), (28, 0x0000_0000_f0f0_f0f0)] {
        let swapped = (m ^ (m >> shift)) & mask;
        m ^= swapped ^ (swapped << shift);
    }
    m
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::archive::testing::zip;
    use crate::read::testing::TempFile;

    fn header(probes: &[(usize, &str)], samples: usize, blocks: usize) -> String {
        let mut text = format!(
            "[version]\nversion = 3\n[header]\ndriver = DSLogic\ndevice mode = 0\ncapturefile = data\n\
             total samples = {samples}\ntotal probes = {}\ntotal blocks = {blocks}\nsamplerate = 100 MHz\n\
             trigger pos = 0\n",
            probes.len()
        );
        for (number, name) in probes {
            text += &format!("probe{number} = {name}\n");
        }
        text
    }

    fn open_members(members: &[(&str, &[u8])]) -> Result<(TempFile, Capture)> {
        let file = TempFile::new("a.dsl", &zip(members));
        let capture = open(Archive::open(file.path())?)?;
        Ok((file, capture))
    }

    fn samples(capture: &Capture) -> (usize, Vec<u8>) {
        let Data::Sampled(sampled) = &capture.data else {
            panic!("DSView files are sampled");
        };
        let mut all = Vec::new();
        let mut buffer = vec![1; 5];
        for chunk in sampled.chunks() {
            let chunk = chunk.unwrap();
            assert_eq!(chunk.offset, all.len() as u64);
            all.extend(&*chunk.bytes(&mut buffer).unwrap());
        }
        assert_eq!(sampled.total_bytes(), Some(all.len() as u64));
        (sampled.unit_size(), all)
    }

    #[test]
    fn planes_become_samples() {
        let header = header(&[(0, "CLK"), (2, "FRAME#"), (11, "IRDY#")], 19, 2);
        let members: [(&str, &[u8]); 7] = [
            ("header", header.as_bytes()),
            ("L-0/0", &[0b0101_0101, 0xff]),
            ("L-2/0", &[0b0000_1111, 0x00]),
            ("L-11/0", &[0b1000_0000, 0x0f]),
            ("L-0/1", &[0b0000_0001]),
            ("L-2/1", &[0b0000_0010]),
            ("L-11/1", &[0b1111_1111]),
        ];
        let (_file, capture) = open_members(&members).unwrap();
        let names: Vec<_> = capture.channels.iter().map(|c| c.name.as_str()).collect();
        assert_eq!(names, ["CLK", "FRAME#", "IRDY#"]);
        let expected = [3, 2, 3, 2, 1, 0, 1, 4, 5, 5, 5, 5, 1, 1, 1, 1, 5, 6, 4];
        assert_eq!(samples(&capture), (1, expected.to_vec()));
    }

    #[test]
    fn many_channels_over_chunk_and_block_ends() {
        const CHANNELS: usize = 33;
        let bit = |channel: usize, sample: usize| (sample * 7 + channel * 13) % 11 < 5;
        let counts = [CHUNK_SAMPLES as usize + 24, 8, 13];
        let total: usize = counts.iter().sum();
        let mut members = Vec::new();
        for channel in 0..CHANNELS {
            let mut first = 0;
            for (block, count) in counts.iter().enumerate() {
                let mut plane = vec![0; count.div_ceil(8)];
                for sample in 0..*count {
                    plane[sample / 8] |= u8::from(bit(channel, first + sample)) << (sample % 8);
                }
                members.push((format!("L-{channel}/{block}"), plane));
                first += count;
            }
        }
        let names: Vec<String> = (0..CHANNELS).map(|n| format!("D{n}")).collect();
        let probes: Vec<(usize, &str)> = names.iter().map(String::as_str).enumerate().collect();
        let header = header(&probes, total, counts.len());
        let mut all = vec![("header", header.as_bytes())];
        all.extend(members.iter().map(|(name, plane)| (name.as_str(), plane.as_slice())));
        let (_file, capture) = open_members(&all).unwrap();
        let (unit_size, bytes) = samples(&capture);
        assert_eq!((unit_size, bytes.len()), (8, total * 8));
        for (sample, unit) in bytes.chunks(8).enumerate() {
            let unit = u64::from_le_bytes(unit.try_into().unwrap());
            let expected = (0..CHANNELS).fold(0, |all, channel| all | u64::from(bit(channel, sample)) << channel);
            assert_eq!(unit, expected, "{sample}");
        }
    }

    #[test]
    fn headers_and_blocks_that_cannot_be() {
        let good = header(&[(0, "A"), (1, "B")], 16, 1);
        let refusal = |header: &str, blocks: &[(&str, &[u8])]| {
            let mut members = vec![("header", header.as_bytes())];
            members.extend(blocks);
            open_members(&members).map(|_| ()).unwrap_err().to_string()
        };
        let blocks: [(&str, &[u8]); 2] = [("L-0/0", b"ab"), ("L-1/0", b"cd")];
        let with = |part: &str, other: &str| refusal(&good.replace(part, other), &blocks);
        assert!(with("version = 3", "version = 2").contains("the format version is 2"));
        assert!(with("device mode = 0", "device mode = 1").contains("analog"));
        assert!(with("100 MHz", "0 Hz").contains("`samplerate = 0 Hz` is not a positive rate; save the file again"));
        assert!(with("total samples = 16", "total samples = 0").contains("the capture is empty; record it again"));
        assert!(with("total samples = 16", "total samples = 17").contains("but the blocks hold 16"));
        assert!(with("total samples = 16\n", "").contains("`total samples` is missing"));
        assert!(with("total blocks = 1", "total blocks = 2").contains("L-0/1: this block of samples is missing"));
        assert!(with("total probes = 2", "total probes = 3").contains("but 2 are named"));
        assert!(refusal(&good, &blocks[..1]).contains("L-1/0: this block of samples is missing"));
        let uneven: [(&str, &[u8]); 2] = [("L-0/0", b"ab"), ("L-1/0", b"c")];
        assert!(refusal(&good, &uneven).contains("L-1/0: is 1 bytes long where L-0/0 has 2"));
    }
}
