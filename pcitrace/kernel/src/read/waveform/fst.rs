//! The blocks of an FST file: whether they are all there, whether the sizes they declare are possible, and when the
//! simulator had its dump turned off (a gap).
//! Ref: GTKWave's block_format.txt.

use crate::read::text::GZIP_MAGIC;

const HEADER_BYTES: u64 = 329;
/// Best cases of the compressions that FST uses.
const ZLIB_EXPANSION: u64 = 1032;
const LZ4_EXPANSION: u64 = 255;

const HEADER: u8 = 0;
/// Value changes, without and with aliases of nets that change alike, in the order they were invented.
const VALUES: u8 = 1;
const VALUES_1: u8 = 5;
const VALUES_2: u8 = 8;
const BLACKOUT: u8 = 2;
const GEOMETRY: u8 = 3;
const HIERARCHY_GZIP: u8 = 4;
const HIERARCHY_LZ4: u8 = 6;
const HIERARCHY_LZ4_TWICE: u8 = 7;
const WRAPPER: u8 = 254;
const SKIP: u8 = 255;

/// Type, length, and length when inflated.
pub const WRAPPER_BYTES: usize = 17;

/// What is wrong at which byte.
#[derive(Debug)]
pub struct Wrong {
    pub at: usize,
    pub what: String,
}

/// Begins with a header block, whose length is always the same, or is wrapped.
pub fn is_fst(head: &[u8]) -> bool {
    head.len() >= 9 && head[0] == HEADER && head[1..9] == HEADER_BYTES.to_be_bytes() || is_wrapped(head)
}

/// All of it may be gzipped behind one block header (`vcd2fst --compress`).
pub fn is_wrapped(file: &[u8]) -> bool {
    file.first() == Some(&WRAPPER) && file.get(WRAPPER_BYTES..).is_some_and(|data| data.starts_with(GZIP_MAGIC))
}

/// The gaps, in ticks.
pub fn check(file: &[u8]) -> Result<Vec<(u64, u64)>, Wrong> {
    let mut gaps = Vec::new();
    let (mut geometry, mut hierarchy) = (None, false);
    let mut data = Vec::new();
    let mut at = 0;
    while at < file.len() {
        let wrong = |what: &str| Wrong { at, what: what.into() };
        let kind = file[at];
        let mut fields = Fields { bytes: &file[at + 1..] };
        let length = fields.u64().ok_or_else(|| wrong("the FST file is cut off; record it again"))?;
        let end = usize::try_from(length)
            .ok()
            .filter(|&length| length >= 8)
            .and_then(|length| (at + 1).checked_add(length))
            .filter(|&end| end <= file.len())
            .ok_or_else(|| {
                wrong("an FST block does not end within the file: it is damaged or cut off; record it again")
            })?;
        fields.bytes = &file[at + 9..end];
        let possible = match kind {
            HEADER => length == HEADER_BYTES,
            BLACKOUT => fields.blackouts(&mut gaps),
            GEOMETRY => {
                geometry = fields.geometry();
                geometry.is_some()
            }
            HIERARCHY_GZIP | HIERARCHY_LZ4 | HIERARCHY_LZ4_TWICE => {
                let first = !std::mem::replace(&mut hierarchy, true);
                first && fields.hierarchy(kind).is_some()
            }
            VALUES | VALUES_1 | VALUES_2 => {
                data.push((at, at + 9..end, kind));
                true
            }
            SKIP => {
                return Err(wrong("the FST file was not finished by its simulator; let it end and record again"));
            }
            other => {
                return Err(wrong(&format!("FST block type {other} is not known; the file is damaged")));
            }
        };
        if !possible {
            return Err(wrong("this FST block declares sizes that it cannot have; the file is damaged"));
        }
        at = end;
    }
    let Some(nets) = geometry.filter(|_| hierarchy) else {
        let what = "the FST file has no list of nets: it is cut off or its simulator did not finish it".into();
        return Err(Wrong { at, what });
    };
    for (at, range, kind) in data {
        let block = Fields { bytes: &file[range] };
        if block.value_changes(kind, nets).is_none() {
            let what = "this FST block of value changes declares sizes that it cannot have; the file is damaged";
            return Err(Wrong { at, what: what.into() });
        }
    }
    Ok(gaps)
}

/// Big-endian fields and variable-length integers, one after the other.
#[derive(Clone, Copy)]
struct Fields<'a> {
    bytes: &'a [u8],
}

impl Fields<'_> {
    fn u64(&mut self) -> Option<u64> {
        let (field, rest) = self.bytes.split_first_chunk()?;
        self.bytes = rest;
        Some(u64::from_be_bytes(*field))
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.bytes.split_first()?;
            self.bytes = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    fn signed_varint(&mut self) -> Option<i64> {
        let before = self.bytes;
        let value = self.varint()?;
        let bits = 7 * (before.len() - self.bytes.len()) as u32;
        let shift = 64u32.saturating_sub(bits);
        Some((value << shift) as i64 >> shift)
    }

    fn skip(&mut self, count: u64) -> Option<()> {
        self.bytes = self.bytes.get(usize::try_from(count).ok()?..)?;
        Some(())
    }

    /// The last `count` bytes, taken off.
    fn tail(&mut self, count: u64) -> Option<Self> {
        let at = self.bytes.len().checked_sub(usize::try_from(count).ok()?)?;
        let (rest, tail) = self.bytes.split_at(at);
        self.bytes = rest;
        Some(Fields { bytes: tail })
    }

    /// Times at which the dump was turned off (0) and on (1).
    fn blackouts(mut self, gaps: &mut Vec<(u64, u64)>) -> bool {
        let mut read = || {
            let count = self.varint()?;
            let (mut time, mut off) = (0u64, None);
            for _ in 0..count {
                let (&on, rest) = self.bytes.split_first()?;
                self.bytes = rest;
                time = time.checked_add(self.varint()?)?;
                match (on, off) {
                    (0, None) => off = Some(time),
                    (1.., Some(since)) => {
                        gaps.push((since, time));
                        off = None;
                    }
                    _ => {}
                }
            }
            if let Some(since) = off {
                gaps.push((since, u64::MAX));
            }
            self.bytes.is_empty().then_some(())
        };
        read().is_some()
    }

    /// The number of nets.
    fn geometry(mut self) -> Option<u64> {
        let (inflated, nets) = (self.u64()?, self.u64()?);
        (nets <= inflated && self.can_inflate_to(inflated, ZLIB_EXPANSION)).then_some(nets)
    }

    fn hierarchy(mut self, kind: u8) -> Option<()> {
        let inflated = self.u64()?;
        let possible = match kind {
            HIERARCHY_GZIP => self.bytes.len() >= 10 && self.can_inflate_to(inflated, ZLIB_EXPANSION),
            HIERARCHY_LZ4 => self.can_inflate_to(inflated, LZ4_EXPANSION),
            _ => {
                let once = self.varint()?;
                self.can_inflate_to(once, LZ4_EXPANSION) && inflated <= once.saturating_mul(LZ4_EXPANSION)
            }
        };
        possible.then_some(())
    }

    fn value_changes(mut self, kind: u8, nets: u64) -> Option<()> {
        self.skip(3 * 8)?;
        let (frame_inflated, frame_length, frame_nets) = (self.varint()?, self.varint()?, self.varint()?);
        let frame = Fields { bytes: self.bytes.get(..usize::try_from(frame_length).ok()?)? };
        self.skip(frame_length)?;
        // From the end: the time table, then the chain that says where each net's changes are.
        let mut sizes = self.tail(24)?;
        let (times_inflated, times_length, times) = (sizes.u64()?, sizes.u64()?, sizes.u64()?);
        let time_table = self.tail(times_length)?;
        let chain_length = self.tail(8)?.u64()?;
        let chain = self.tail(chain_length)?;
        let chain_nets = self.varint()?;
        // How many nets the frame says it has means nothing: NVC writes 1 there, and readers go by the geometry.
        let possible = frame_nets <= nets
            && chain_nets == nets
            && frame.can_inflate_to(frame_inflated, ZLIB_EXPANSION)
            && times <= times_inflated
            && time_table.can_inflate_to(times_inflated, ZLIB_EXPANSION)
            && self.nets_can_inflate(&chain.starts(nets, kind)?)?;
        possible.then_some(())
    }

    /// Where each net's changes start, as the chain says; `None` if it goes beyond the nets.
    fn starts(mut self, nets: u64, kind: u8) -> Option<Vec<u64>> {
        let mut starts = Vec::new();
        let (mut net, mut start) = (0u64, 0u64);
        while let Some(&first) = self.bytes.first() {
            let step = if kind == VALUES_2 && first & 1 == 1 {
                net += 1;
                // Not above 0: an alias of another net.
                u64::try_from(self.signed_varint()? >> 1).unwrap_or(0)
            } else {
                let entry = self.varint()?;
                if entry == 0 && kind != VALUES_2 {
                    self.varint()?; // the number of the net that this one is an alias of
                }
                // Odd: a step; even: a run of nets without changes.
                let is_run = entry & 1 == 0 && entry > 0;
                net = net.checked_add(if is_run { entry >> 1 } else { 1 })?;
                if is_run { 0 } else { entry >> 1 }
            };
            if step > 0 {
                start = start.checked_add(step)?;
                starts.push(start);
            }
        }
        (net <= nets).then_some(starts)
    }

    /// Each net's changes begin with their length when inflated, or 0 if they are stored as they are.
    fn nets_can_inflate(&self, starts: &[u64]) -> Option<bool> {
        let ends = starts.iter().copied().skip(1).chain([self.bytes.len() as u64]);
        for (&start, end) in starts.iter().zip(ends) {
            let range = usize::try_from(start).ok()?..usize::try_from(end).ok()?;
            let mut changes = Fields { bytes: self.bytes.get(range)? };
            let inflated = changes.varint()?;
            if !changes.can_inflate_to(inflated, ZLIB_EXPANSION) {
                return Some(false);
            }
        }
        Some(true)
    }

    /// Equal lengths mean stored as it is.
    fn can_inflate_to(&self, inflated: u64, expansion: u64) -> bool {
        inflated <= (self.bytes.len() as u64).saturating_mul(expansion)
    }
}
