//! sigrok session files (`.sr`), versions 1 and 2.
//!
//! Ref: sigrok wiki, "File format:Sigrok/v2": a zip with `version`, `metadata` (ini) and the samples in `logic-1-1`,
//! `logic-1-2` ... or one `logic-1`; `probeN` names bit N - 1.

use super::archive::{Archive, Member};
use super::ini;
use super::names::number_repeated;
use crate::capture::{Capture, Channel, Chunk, Data, MAX_UNIT, Sampled};
use crate::error::{Error, Result};
use std::collections::BTreeMap;

/// Members up to this size are inflated whole, and in parallel; larger ones as a stream.
const WHOLE: u64 = 32 << 20;
/// Size of the pieces of a stream.
const PIECE: usize = 4 << 20;

struct Session {
    archive: Archive,
    /// The members with the samples, in order.
    members: Vec<Member>,
    unit: usize,
    bits: Vec<usize>,
    rate_hz: Option<f64>,
}

/// Opens the logic channels of a session's device, which is numbered `wanted` among those that have any.
pub fn open(archive: Archive, wanted: usize) -> Result<Capture> {
    let path = archive.path().to_path_buf();
    let wrong = |member: &str, message: String| Error::format(&path, message).within(member);
    let version = archive.text("version")?.unwrap_or_default();
    if !matches!(version.trim(), "1" | "2") {
        let found = version.trim();
        return Err(wrong("version", format!("session format {found:?}; formats 1 and 2 are read")));
    }
    let metadata = archive
        .text("metadata")?
        .ok_or_else(|| wrong("metadata", "missing; the file is not a whole sigrok session".into()))?;
    let sections = ini::parse(&metadata).map_err(|message| wrong("metadata", message))?;
    let devices = sections
        .iter()
        .filter(|section| section.name.starts_with("device"))
        .filter(|device| device.get("capturefile").is_some());
    let device = devices.clone().nth(wanted).ok_or_else(|| {
        wrong("metadata", "no logic channels (no capturefile); an analog-only session holds no bus".into())
    })?;
    let stem = device.get("capturefile").unwrap_or_default();
    if devices.clone().filter(|other| other.get("capturefile") == Some(stem)).count() > 1 {
        return Err(wrong("metadata", format!("several devices have the same capturefile={stem}; save it again")));
    }
    let captures = devices.count();

    let unit: usize = match device.get("unitsize").map(|text| text.trim().parse()) {
        Some(Ok(unit @ 1..=MAX_UNIT)) => unit,
        Some(_) => {
            let found = device.get("unitsize").unwrap_or_default();
            return Err(wrong("metadata", format!("unitsize={found}: it has to be from 1 to {MAX_UNIT} bytes")));
        }
        None => return Err(wrong("metadata", "no unitsize".into())),
    };
    let rate_hz = match device.get("samplerate") {
        None => None,
        Some(text) => Some(ini::parse_rate(text).filter(|rate| *rate > 0.0 && rate.is_finite()).ok_or_else(|| {
            wrong("metadata", format!("samplerate={text}: not a positive rate; remove the line and give --rate"))
        })?),
    };

    let mut probes = BTreeMap::new();
    // Channels without a bit in the samples: sigrok shows them without values, too.
    let mut beyond = Vec::new();
    for (key, name) in device.entries() {
        let Some(digits) = key.strip_prefix("probe") else { continue };
        // What is no number fits nowhere.
        let number = digits.parse().unwrap_or(usize::MAX);
        if number > 8 * unit && is_unnamed(name) {
            beyond.push(name.to_owned());
            continue;
        }
        if number == 0 || number > 8 * unit {
            return Err(wrong(
                "metadata",
                format!("{key}={name} does not fit into samples of {unit} bytes (probes 1 to {})", 8 * unit),
            ));
        }
        if probes.insert(number, name.to_owned()).is_some() {
            return Err(wrong("metadata", format!("{key} is there twice")));
        }
    }
    let mut notes = number_repeated(probes.values_mut());
    if let Some(first) = beyond.first() {
        let count = beyond.len();
        notes.push(format!(
            "samples of {unit} bytes have no bit for {count} of the channels, {first:?} the first; left out"
        ));
    }

    let members = sample_members(&archive, stem)?;
    if members.iter().map(|member| member.size).sum::<u64>() < unit as u64 {
        return Err(wrong(stem, "0 samples were recorded".into()));
    }
    let channels = probes.values().map(|name| Channel { name: name.clone(), width: 1 }).collect();
    let bits = probes.keys().map(|number| number - 1).collect();
    Ok(Capture {
        path,
        format: "sigrok",
        channels,
        notes,
        captures,
        data: Data::Sampled(Box::new(Session { archive, members, unit, bits, rate_hz })),
    })
}

/// As analysers call their channels (`8`, `D8`): nothing was connected there. Of a channel with a name of its own the
/// values are missed, and where it has no bit the unit size may be wrong.
fn is_unnamed(name: &str) -> bool {
    let digits = name.strip_prefix('D').unwrap_or(name);
    !digits.is_empty() && digits.bytes().all(|c| c.is_ascii_digit())
}

/// `stem`, or `stem-1`, `stem-2` ... without a hole.
fn sample_members(archive: &Archive, stem: &str) -> Result<Vec<Member>> {
    let mut numbered: BTreeMap<u64, &Member> = BTreeMap::new();
    for member in archive.members() {
        let number =
            member.name.strip_prefix(stem).and_then(|rest| rest.strip_prefix('-')).and_then(|n| n.parse().ok());
        if let Some(number) = number
            && let Some(other) = numbered.insert(number, member).or(archive.member(stem))
        {
            let what = format!("holds samples, and so does {}; which of them count cannot be told", other.name);
            return Err(Error::format(archive.path(), what).within(&member.name));
        }
    }
    if let Some(whole) = archive.member(stem) {
        return Ok(vec![whole.clone()]);
    }
    let missing = (1..).zip(numbered.keys()).find(|(expected, found)| expected != *found);
    match (numbered.is_empty(), missing) {
        (true, _) => Err(Error::format(archive.path(), "holds no samples: the session is incomplete").within(stem)),
        (_, Some((expected, _))) => Err(Error::format(
            archive.path(),
            "missing between other chunks of samples; the file was not written or copied whole",
        )
        .within(format!("{stem}-{expected}"))),
        _ => Ok(numbered.into_values().cloned().collect()),
    }
}

impl Session {
    /// Members with the byte of the capture at which each begins.
    fn placed(&self) -> impl Iterator<Item = (u64, &Member)> + Send {
        let mut offset = 0;
        self.members.iter().map(move |member| {
            let start = offset;
            offset += member.size;
            (start, member)
        })
    }
}

impl Sampled for Session {
    fn unit_size(&self) -> usize {
        self.unit
    }

    fn bits(&self) -> &[usize] {
        &self.bits
    }

    fn rate_hz(&self) -> Option<f64> {
        self.rate_hz
    }

    fn total_bytes(&self) -> Option<u64> {
        Some(self.members.iter().map(|member| member.size).sum())
    }

    fn chunks(&self) -> Box<dyn Iterator<Item = Result<Chunk<'_>>> + Send + '_> {
        self.chunks_from(0)
    }

    fn starts(&self) -> Vec<u64> {
        self.placed().map(|(start, _)| start).collect()
    }

    fn chunks_from(&self, from: u64) -> Box<dyn Iterator<Item = Result<Chunk<'_>>> + Send + '_> {
        Box::new(self.placed().skip_while(move |&(start, _)| start < from).flat_map(move |(start, member)| {
            if member.size <= WHOLE {
                let whole = Chunk::load(start, move |buffer| self.archive.inflate(member, buffer));
                Box::new(std::iter::once(Ok(whole))) as Box<dyn Iterator<Item = _> + Send>
            } else {
                Box::new(Pieces { stream: Some(self.archive.stream(member)), offset: start, left: member.size })
            }
        }))
    }
}

/// A large member, inflated piece by piece.
struct Pieces<'a> {
    stream: Option<super::archive::MemberStream<'a>>,
    offset: u64,
    left: u64,
}

impl<'a> Iterator for Pieces<'a> {
    type Item = Result<Chunk<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        let stream = self.stream.as_mut()?;
        let mut piece = vec![0; PIECE.min(self.left as usize)];
        match stream.fill(&mut piece) {
            Err(error) => {
                self.stream = None;
                Some(Err(error))
            }
            Ok(0) => {
                self.stream = None;
                None
            }
            Ok(length) => {
                piece.truncate(length);
                let offset = self.offset;
                self.offset += length as u64;
                self.left -= length as u64;
                Some(Ok(Chunk::ready(offset, piece)))
            }
        }
    }
}
