//! Frame logs on disk: this node's grow while it runs, the peers' follow.

use crate::control::LogKind;
use crate::log::{FrameLog, NpyFile, Record};
use crate::summary::LogFile;
use crate::sync::Exchange;
use crate::trips::Bin;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The logs of one point under way.
struct Growing {
    log: Arc<FrameLog>,
    file: NpyFile<Record>,
    name: String,
    kind: LogKind,
}

impl Growing {
    fn append(&mut self) -> io::Result<()> {
        self.file.append(&self.log.records()[self.file.rows() as usize..])
    }
}

/// Writes to a folder, or nowhere.
pub struct Store {
    folder: Option<PathBuf>,
    growing: Vec<Growing>,
    files: Vec<LogFile>,
    histograms: Option<NpyFile<Bin>>,
}

pub const HISTOGRAMS: &str = "histograms.npy";

/// The files of a point, and why they do not hold all of it.
pub struct Stored {
    pub files: Vec<LogFile>,
    pub fault: Option<io::Error>,
}

fn name(point: usize, node: u16, kind: LogKind) -> String {
    format!("p{point:03}-node{node}-{}.npy", word(kind))
}

fn word(kind: LogKind) -> &'static str {
    match kind {
        LogKind::Sent => "sent",
        LogKind::Received => "received",
        LogKind::State => "state",
    }
}

fn named(path: &Path, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

impl Store {
    pub fn new(folder: Option<PathBuf>) -> io::Result<Store> {
        if let Some(folder) = &folder {
            std::fs::create_dir_all(folder).map_err(|error| named(folder, error))?;
        }
        Ok(Store { folder, growing: Vec::new(), files: Vec::new(), histograms: None })
    }

    /// Node 0's logs of a point; a log without room is not kept.
    pub fn begin(&mut self, point: usize, sent: &Arc<FrameLog>, received: &Arc<FrameLog>) -> io::Result<()> {
        let Some(folder) = &self.folder else {
            return Ok(());
        };
        for (kind, log) in [(LogKind::Sent, sent), (LogKind::Received, received)] {
            if log.capacity() > 0 {
                let name = name(point, 0, kind);
                let path = folder.join(&name);
                let file = NpyFile::create(&path).map_err(|error| named(&path, error))?;
                self.growing.push(Growing { log: log.clone(), file, name, kind });
            }
        }
        Ok(())
    }

    /// Write what has come since, to every log that takes it; the first that does not is named.
    pub fn append(&mut self) -> io::Result<()> {
        let Some(folder) = &self.folder else {
            return Ok(());
        };
        let append = |log: &mut Growing| log.append().map_err(|error| named(&folder.join(&log.name), error));
        self.growing.iter_mut().map(append).fold(Ok(()), io::Result::and)
    }

    /// The log of a peer.
    pub fn fetched(&mut self, point: usize, node: u16, kind: LogKind, records: &[Record]) -> io::Result<()> {
        let Some(folder) = self.folder.as_ref().filter(|_| !records.is_empty()) else {
            return Ok(());
        };
        let name = name(point, node, kind);
        let path = folder.join(&name);
        let write = || NpyFile::create(&path)?.append(records);
        write().map_err(|error| named(&path, error))?;
        self.files.push(LogFile { file: name, node, kind: word(kind), records: records.len() as u64 });
        Ok(())
    }

    /// Everything of the point that there is room for; what could not be written once is tried again.
    pub fn end(&mut self) -> Stored {
        let fault = self.append().err();
        let own = self.growing.drain(..).map(|log| LogFile {
            file: log.name,
            node: 0,
            kind: word(log.kind),
            records: log.file.rows(),
        });
        Stored { files: own.chain(self.files.drain(..)).collect(), fault }
    }

    /// The raw exchanges with each peer: `nodeN-clock.npy`.
    pub fn clocks(&self, exchanges: &[(u16, &[Exchange])]) -> io::Result<Vec<(u16, String)>> {
        let Some(folder) = &self.folder else {
            return Ok(Vec::new());
        };
        let mut files = Vec::new();
        for &(node, exchanges) in exchanges.iter().filter(|(_, exchanges)| !exchanges.is_empty()) {
            let name = format!("node{node}-clock.npy");
            let path = folder.join(&name);
            let write = || NpyFile::create(&path)?.append(exchanges);
            write().map_err(|error| named(&path, error))?;
            files.push((node, name));
        }
        Ok(files)
    }

    /// PAUSE frames that each node sent: `nodeN-pauses.csv`.
    pub fn pauses(&self, rows: &BTreeMap<u16, String>) -> io::Result<Vec<(u16, String)>> {
        let Some(folder) = &self.folder else {
            return Ok(Vec::new());
        };
        let each = rows.iter().filter(|(_, rows)| !rows.is_empty()).map(|(&node, rows)| {
            let name = format!("node{node}-pauses.csv");
            whole(folder, &name, &format!("time_ns,quanta\n{rows}")).map(|()| (node, name))
        });
        each.collect()
    }

    /// What a host says of itself: `nodeN-before.json`, `nodeN-after.json`.
    pub fn state(&self, node: u16, before: bool, state: &serde_json::Value) -> io::Result<Option<(u16, bool, String)>> {
        let Some(folder) = &self.folder else {
            return Ok(None);
        };
        let name = format!("node{node}-{}.json", if before { "before" } else { "after" });
        whole(folder, &name, &format!("{state:#}\n"))?;
        Ok(Some((node, before, name)))
    }

    /// The histograms of a point, appended to `histograms.npy`.
    pub fn histogram(&mut self, rows: &[Bin]) -> io::Result<()> {
        let Some(folder) = self.folder.as_ref().filter(|_| !rows.is_empty()) else {
            return Ok(());
        };
        let path = folder.join(HISTOGRAMS);
        if self.histograms.is_none() {
            self.histograms = Some(NpyFile::create(&path).map_err(|error| named(&path, error))?);
        }
        let append = self.histograms.as_mut().map_or(Ok(()), |file| file.append(rows));
        append.map_err(|error| named(&path, error))
    }

    pub fn has_histograms(&self) -> bool {
        self.histograms.is_some()
    }

    pub fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }
}

/// A text file, whole or not at all.
pub fn whole(folder: &Path, name: &str, text: &str) -> io::Result<()> {
    let (path, partial) = (folder.join(name), folder.join(format!("{name}.partial")));
    std::fs::write(&partial, text).and_then(|()| std::fs::rename(&partial, &path)).map_err(|error| named(&path, error))
}
