//! The rows of `nodes.jsonl` between their making and their place.
//!
//! A fold makes nodes children before parents; the file has them the other way round. Rows are kept
//! in a file of their own meanwhile, and only their places in memory, so that a tree of any size is
//! written. Must not know how nodes are folded.

use std::fs::File;
use std::io::{BufReader, BufWriter, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use super::replace::Draft;
use super::{io, unwritable};
use crate::error::OperatorError;
use crate::fold::{KeyRange, NodeRecord, visit_paths};

/// How every row begins whose path is not known yet.
const NO_PATH: &[u8] = b"{\"path\":[]";

/// Where a row lies in a draft.
#[derive(Debug, Clone, Copy)]
pub struct NodeRow {
    start: u64,
    bytes: u32,
}

/// Rows in the order in which their nodes were made; removed when it is dropped.
#[derive(Debug)]
pub struct NodeDraft {
    path: PathBuf,
    file: BufWriter<File>,
    end: u64,
}

impl NodeDraft {
    pub(super) fn create(path: PathBuf) -> Result<Self, OperatorError> {
        let mut options = File::options();
        let options = options.read(true).write(true).create(true).truncate(true);
        let file = options
            .open(&path)
            .map_err(|source| io(&path, "write", source))?;
        Ok(Self {
            path,
            file: BufWriter::new(file),
            end: 0,
        })
    }

    /// A record without a path as a row to be added; apart, because several threads make rows.
    ///
    /// # Errors
    /// `FileInvalid` when it cannot be written as JSON.
    ///
    /// # Panics
    /// If the record has a path.
    pub fn row_of(record: &NodeRecord) -> Result<Vec<u8>, OperatorError> {
        let row = serde_json::to_vec(record)
            .map_err(|error| unwritable(Path::new(super::NODES), &error))?;
        assert!(row.starts_with(NO_PATH), "a path is written with its row");
        Ok(row)
    }

    /// Keeps a row.
    ///
    /// # Errors
    /// `Io` when it cannot be written.
    pub fn add(&mut self, row: &[u8]) -> Result<NodeRow, OperatorError> {
        let rest = &row[NO_PATH.len()..];
        self.file
            .write_all(rest)
            .map_err(|source| io(&self.path, "write", source))?;
        let place = NodeRow {
            start: self.end,
            bytes: u32::try_from(rest.len()).unwrap_or(u32::MAX),
        };
        self.end += rest.len() as u64;
        Ok(place)
    }

    /// Writes all rows with their paths, parents before children, in key order.
    pub(super) fn copy_in_order(
        mut self,
        rows: Vec<(KeyRange, NodeRow)>,
        fan_in: u32,
        into: &mut Draft<'_>,
    ) -> Result<(), OperatorError> {
        self.file
            .flush()
            .map_err(|source| io(&self.path, "write", source))?;
        let mut reader = BufReader::new(self.file.get_ref());
        let (mut line, mut at) = (Vec::new(), u64::MAX);
        visit_paths(rows, fan_in, |path, row| {
            line.clear();
            line.extend_from_slice(b"{\"path\":");
            let written = serde_json::to_writer(&mut line, path);
            written.map_err(|error| unwritable(&self.path, &error))?;
            let head = line.len();
            line.resize(head + row.bytes as usize, 0);
            let read = match at == row.start {
                true => Ok(0),
                false => reader.seek(SeekFrom::Start(row.start)),
            };
            read.and_then(|_| reader.read_exact(&mut line[head..]))
                .map_err(|source| io(&self.path, "read", source))?;
            at = row.start + u64::from(row.bytes);
            line.push(b'\n');
            into.write(&line)
        })
    }
}

impl Drop for NodeDraft {
    fn drop(&mut self) {
        // A draft that stays is overwritten by the next run; it is listed nowhere.
        let _ = std::fs::remove_file(&self.path);
    }
}
