//! The journal's file: appended to by one process at a time, each line on disk before it counts.
//!
//! Must not know trackers.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use super::line::{Entry, JOURNAL_VERSION, Line, parse_lines};
use super::recover::{Recovered, Standing, recover};
use super::request::EffectRequest;
use crate::error::OperatorError;
use crate::id::{ContentHash, EffectKey};

/// Its name in the run directory.
pub const JOURNAL: &str = "effects.jsonl";

/// A journal that this process alone writes; the operating system ends that with the process.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    lines: u64,
    head: ContentHash,
    recovered: Recovered,
}

impl Journal {
    /// Opens the journal of a run directory, or makes it; a last line that a crash cut is removed.
    ///
    /// # Errors
    /// `RunInvalid` where another process writes it, `FileInvalid` with the line where it was
    /// changed by hand, `Io` where it cannot be read or written.
    pub fn open(directory: &Path) -> Result<Self, OperatorError> {
        let path = directory.join(JOURNAL);
        let mut file = File::options()
            .read(true)
            .append(true)
            .create(true)
            .open(&path)
            .map_err(|source| io(&path, "open", source))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(std::fs::TryLockError::WouldBlock) => {
                return Err(OperatorError::RunInvalid {
                    path: path.display().to_string(),
                    problem: "another process does the effects of this run; wait until it ends"
                        .to_owned(),
                });
            }
            Err(std::fs::TryLockError::Error(source)) => return Err(io(&path, "lock", source)),
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)
            .map_err(|source| io(&path, "read", source))?;
        let (lines, whole) = parse(&path, &bytes)?;
        if whole < bytes.len() {
            file.set_len(whole as u64)
                .and_then(|()| file.seek(SeekFrom::End(0)))
                .map_err(|source| io(&path, "write", source))?;
        }
        // The name has to outlast a power cut as well as the lines do.
        file.sync_all()
            .and_then(|()| sync_directory(directory))
            .map_err(|source| io(&path, "write", source))?;
        Ok(Self {
            recovered: recovered(&path, &lines)?,
            lines: lines.len() as u64,
            head: head(&bytes[..whole]),
            path,
            file,
        })
    }

    /// Says that a process starts on the effects of a verified answer.
    ///
    /// # Errors
    /// As [`Journal::append`].
    pub fn begin(
        &mut self,
        answer: ContentHash,
        plan: ContentHash,
        allowed: &[String],
    ) -> Result<(), OperatorError> {
        let allowed = allowed.to_vec();
        self.append(Entry::Begun {
            answer,
            plan,
            allowed,
        })
    }

    /// Writes one line; it is on disk when this returns.
    ///
    /// # Errors
    /// `Io` where it cannot be written, `FileInvalid` where it cannot follow; nothing may be done
    /// then of what it announces.
    pub fn append(&mut self, entry: Entry) -> Result<(), OperatorError> {
        self.recovered
            .step(&entry)
            .map_err(|problem| invalid(&self.path, self.lines + 1, problem))?;
        let line = Line {
            v: JOURNAL_VERSION,
            seq: self.lines,
            prev: self.head,
            entry,
        };
        let mut bytes = serde_json::to_vec(&line)
            .map_err(|error| invalid(&self.path, self.lines + 1, error.to_string()))?;
        bytes.push(b'\n');
        self.file
            .write_all(&bytes)
            .and_then(|()| self.file.sync_data())
            .map_err(|source| io(&self.path, "write", source))?;
        self.lines += 1;
        self.head = ContentHash::of_bytes(&bytes);
        Ok(())
    }

    /// Where an effect stands; none where it was never intended.
    pub fn standing(&self, key: &EffectKey) -> Option<&Standing> {
        self.recovered.standings.get(key)
    }

    /// Where every effect stands.
    pub fn standings(&self) -> &BTreeMap<EffectKey, Standing> {
        &self.recovered.standings
    }

    /// The version that an issue is expected at; see [`Recovered::expected`].
    pub fn expected(&self, request: &EffectRequest) -> Option<String> {
        self.recovered.expected(request)
    }

    /// Lines so far.
    pub fn lines(&self) -> u64 {
        self.lines
    }

    /// Hash of the last line, by which all before it are named.
    pub fn head(&self) -> ContentHash {
        self.head
    }
}

/// Puts a directory's names on disk, where the system has that.
///
/// # Errors
/// Where the directory cannot be opened or written.
pub fn sync_directory(directory: &Path) -> std::io::Result<()> {
    match cfg!(unix) {
        true => File::open(directory)?.sync_all(),
        false => Ok(()),
    }
}

/// Reads a journal without writing it, also while another process does; the file's lines, where the
/// effects stand, and the hash of the last line. Without a file there are none.
///
/// # Errors
/// As [`Journal::open`], but for the lock.
pub fn read_journal(
    directory: &Path,
) -> Result<(Vec<Line>, Recovered, ContentHash), OperatorError> {
    let path = directory.join(JOURNAL);
    let bytes = match std::fs::read(&path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        Err(source) => return Err(io(&path, "read", source)),
    };
    let (lines, whole) = parse(&path, &bytes)?;
    let recovered = recovered(&path, &lines)?;
    Ok((lines, recovered, head(&bytes[..whole])))
}

fn parse(path: &Path, bytes: &[u8]) -> Result<(Vec<Line>, usize), OperatorError> {
    parse_lines(bytes).map_err(|(line, problem)| invalid(path, line, problem))
}

fn recovered(path: &Path, lines: &[Line]) -> Result<Recovered, OperatorError> {
    recover(lines.iter().map(|line| &line.entry))
        .map_err(|(line, problem)| invalid(path, line, problem))
}

fn head(whole: &[u8]) -> ContentHash {
    let last = whole.split_inclusive(|byte| *byte == b'\n').next_back();
    ContentHash::of_bytes(last.unwrap_or_default())
}

fn invalid(path: &Path, line: u64, problem: String) -> OperatorError {
    OperatorError::FileInvalid {
        path: path.display().to_string(),
        line,
        problem,
    }
}

fn io(path: &Path, action: &'static str, source: std::io::Error) -> OperatorError {
    OperatorError::Io {
        path: path.display().to_string(),
        action,
        source,
    }
}
