//! Frame logs: one record a frame, written by the thread that times frames, read by others while it runs.

use crate::frame::Header;
use crate::sync::Exchange;
use std::cell::UnsafeCell;
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// "Not known" in the time columns: the least number of the type, as numpy's NaT.
pub const UNKNOWN_NS: i64 = i64::MIN;
pub const UNKNOWN_LATENESS: i32 = i32::MIN;

/// Records whose memory is touched beforehand.
const TOUCHED: usize = 1 << 20;

/// The frame was damaged on the way.
pub const RECORD_CORRUPT: u32 = 1;
/// A copy of a frame already received.
pub const RECORD_DUPLICATE: u32 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    pub sequence: u32,
    pub stream: u16,
    /// Who sent the frame.
    pub node: u16,
    /// User bytes.
    pub length_bytes: u32,
    pub flags: u32,
    pub send_ns: i64,
    pub receive_ns: i64,
    pub lateness_ns: i32,
}

impl Record {
    pub const BYTES: usize = 36;

    /// Of a frame that was sent; when it was received is not known here.
    pub fn sent(header: &Header, length_bytes: u32, lateness_ns: i32) -> Record {
        Record {
            sequence: header.sequence,
            stream: header.stream,
            node: header.node,
            length_bytes,
            flags: 0,
            send_ns: header.send_ns,
            receive_ns: UNKNOWN_NS,
            lateness_ns,
        }
    }

    pub fn to_bytes(self) -> [u8; Record::BYTES] {
        let mut out = [0; Record::BYTES];
        out[0..4].copy_from_slice(&self.sequence.to_le_bytes());
        out[4..6].copy_from_slice(&self.stream.to_le_bytes());
        out[6..8].copy_from_slice(&self.node.to_le_bytes());
        out[8..12].copy_from_slice(&self.length_bytes.to_le_bytes());
        out[12..16].copy_from_slice(&self.flags.to_le_bytes());
        out[16..24].copy_from_slice(&self.send_ns.to_le_bytes());
        out[24..32].copy_from_slice(&self.receive_ns.to_le_bytes());
        out[32..36].copy_from_slice(&self.lateness_ns.to_le_bytes());
        out
    }

    pub fn from_bytes(bytes: &[u8; Record::BYTES]) -> Record {
        let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"));
        let u16_at = |at: usize| u16::from_le_bytes(bytes[at..at + 2].try_into().expect("2 bytes"));
        let i64_at = |at: usize| i64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
        Record {
            sequence: u32_at(0),
            stream: u16_at(4),
            node: u16_at(6),
            length_bytes: u32_at(8),
            flags: u32_at(12),
            send_ns: i64_at(16),
            receive_ns: i64_at(24),
            lateness_ns: u32_at(32) as i32,
        }
    }
}

/// Records of fixed capacity: pushed through the one [`LogWriter`], read as a growing prefix by everybody.
pub struct FrameLog {
    records: Vec<UnsafeCell<MaybeUninit<Record>>>,
    published: AtomicUsize,
    unlogged: AtomicU64,
}

// SAFETY: a record is written once, before `published` covers it, by the only writer; it is read only after.
unsafe impl Sync for FrameLog {}

pub struct LogWriter {
    log: Arc<FrameLog>,
    next: usize,
}

impl FrameLog {
    /// The memory for the first million records is touched here, so that no page fault falls into their measurement;
    /// what lies beyond takes memory only when it is used, and a fault every hundred records.
    pub fn new(capacity: usize) -> io::Result<(Arc<FrameLog>, LogWriter)> {
        let mut records: Vec<UnsafeCell<MaybeUninit<Record>>> = Vec::new();
        records
            .try_reserve_exact(capacity)
            .map_err(|_| io::Error::other(format!("no memory for a log of {capacity} frames")))?;
        // SAFETY: the capacity is there, and MaybeUninit needs no value.
        unsafe { records.set_len(capacity) };
        for record in records.iter_mut().take(TOUCHED) {
            *record.get_mut() = MaybeUninit::zeroed();
        }
        let log = Arc::new(FrameLog { records, published: AtomicUsize::new(0), unlogged: AtomicU64::new(0) });
        Ok((log.clone(), LogWriter { log, next: 0 }))
    }

    pub fn records(&self) -> &[Record] {
        let published = self.published.load(Ordering::Acquire);
        // SAFETY: the cells have the layout of Record; the published prefix is written and never written again.
        unsafe { std::slice::from_raw_parts(self.records.as_ptr().cast(), published) }
    }

    pub fn capacity(&self) -> usize {
        self.records.len()
    }

    /// Frames that came when the log was full.
    pub fn unlogged(&self) -> u64 {
        self.unlogged.load(Ordering::Relaxed)
    }
}

impl LogWriter {
    pub fn push(&mut self, record: Record) {
        let Some(place) = self.log.records.get(self.next) else {
            // A log without room is one that nobody wanted.
            let wanted = !self.log.records.is_empty();
            self.log.unlogged.fetch_add(u64::from(wanted), Ordering::Relaxed);
            return;
        };
        // SAFETY: not yet published, and this is the only writer.
        unsafe { place.get().write(MaybeUninit::new(record)) };
        self.next += 1;
        self.log.published.store(self.next, Ordering::Release);
    }
}

/// What a `.npy` file has a row of.
pub trait Row: Copy {
    const DTYPE: &str;
    const BYTES: usize;
    fn write(self, out: &mut Vec<u8>);
}

impl Row for Record {
    const DTYPE: &str = "[('sequence', '<u4'), ('stream', '<u2'), ('node', '<u2'), ('length_bytes', '<u4'), \
                         ('flags', '<u4'), ('send_ns', '<i8'), ('receive_ns', '<i8'), ('lateness_ns', '<i4')]";
    const BYTES: usize = Record::BYTES;

    fn write(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to_bytes());
    }
}

impl Row for Exchange {
    const DTYPE: &str = "[('request_sent_ns', '<i8'), ('request_received_ns', '<i8'), ('reply_sent_ns', '<i8'), \
                         ('reply_received_ns', '<i8')]";
    const BYTES: usize = 32;

    fn write(self, out: &mut Vec<u8>) {
        for time in [self.request_sent, self.request_received, self.reply_sent, self.reply_received] {
            out.extend_from_slice(&time.to_le_bytes());
        }
    }
}

/// A `.npy` file (format 1.0) that is whole after every [`append`](NpyFile::append).
pub struct NpyFile<R> {
    file: File,
    rows: u64,
    kind: PhantomData<R>,
}

impl<R: Row> NpyFile<R> {
    /// Magic, version and a header padded so that the row count can be rewritten in place.
    const HEADER: usize = 320;

    /// Under its name it is never without a header, whenever this program is killed.
    pub fn create(path: &Path) -> io::Result<NpyFile<R>> {
        let partial = path.with_extension("npy.partial");
        let mut file = File::create(&partial)?;
        file.write_all(&Self::header(0))?;
        std::fs::rename(&partial, path)?;
        Ok(NpyFile { file, rows: 0, kind: PhantomData })
    }

    fn header(rows: u64) -> Vec<u8> {
        let text = format!("{{'descr': {}, 'fortran_order': False, 'shape': ({rows},), }}", R::DTYPE);
        let mut out = b"\x93NUMPY\x01\x00".to_vec();
        out.extend_from_slice(&((Self::HEADER - 10) as u16).to_le_bytes());
        out.extend_from_slice(text.as_bytes());
        assert!(out.len() < Self::HEADER, "the header has room for every row count");
        out.resize(Self::HEADER - 1, b' ');
        out.push(b'\n');
        out
    }

    pub fn rows(&self) -> u64 {
        self.rows
    }

    pub fn append(&mut self, records: &[R]) -> io::Result<()> {
        if records.is_empty() {
            return Ok(());
        }
        let mut bytes = Vec::with_capacity(records.len() * R::BYTES);
        records.iter().for_each(|record| record.write(&mut bytes));
        self.file.seek(SeekFrom::Start(Self::HEADER as u64 + self.rows * R::BYTES as u64))?;
        self.file.write_all(&bytes)?;
        // The rows are there before the header counts them.
        self.rows += records.len() as u64;
        self.file.seek(SeekFrom::Start(0))?;
        self.file.write_all(&Self::header(self.rows))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(sequence: u32) -> Record {
        Record {
            sequence,
            stream: 2,
            node: 3,
            length_bytes: 1500,
            flags: RECORD_DUPLICATE,
            send_ns: -7,
            receive_ns: UNKNOWN_NS,
            lateness_ns: -9,
        }
    }

    #[test]
    fn bytes_there_and_back() {
        assert_eq!(Record::from_bytes(&record(5).to_bytes()), record(5));
    }

    #[test]
    fn a_full_log_counts_what_it_leaves_out() {
        let (log, mut writer) = FrameLog::new(2).expect("memory");
        for sequence in 0..5 {
            writer.push(record(sequence));
        }
        assert_eq!(log.records(), [record(0), record(1)]);
        assert_eq!(log.unlogged(), 3);
    }

    #[test]
    fn the_prefix_is_whole_while_it_grows() {
        let (log, mut writer) = FrameLog::new(100_000).expect("memory");
        let pushing = std::thread::spawn(move || (0..100_000).for_each(|i| writer.push(record(i))));
        let mut seen = 0;
        while seen < 100_000 {
            let records = log.records();
            assert!(records.len() >= seen);
            for (i, r) in records[seen..].iter().enumerate() {
                assert_eq!(*r, record((seen + i) as u32));
            }
            seen = records.len();
        }
        pushing.join().expect("no panic");
    }

    #[test]
    fn the_file_is_whole_after_every_append() {
        let path = std::env::temp_dir().join(format!("framegen-npy-{}", std::process::id()));
        let mut file = NpyFile::create(&path).expect("created");
        let mut rows = 0;
        for count in [0usize, 1, 3, 100] {
            file.append(&vec![record(1); count]).expect("written");
            rows += count;
            let bytes = std::fs::read(&path).expect("read");
            assert_eq!(bytes.len(), NpyFile::<Record>::HEADER + rows * Record::BYTES);
            let header = String::from_utf8_lossy(&bytes[10..NpyFile::<Record>::HEADER]).into_owned();
            assert!(header.contains(&format!("'shape': ({rows},)")), "{header}");
            assert!(header.ends_with('\n') && NpyFile::<Record>::HEADER.is_multiple_of(64));
        }
        std::fs::remove_file(&path).expect("removed");
    }
}
