//! An input's bytes, read from any place of it: a file is never whole in memory.
//!
//! Must not know formats.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::sync::Mutex;

/// Bytes that one read asks for.
pub(super) const READ_BYTES: usize = 256 << 10;

/// Most bytes of one record; a longer one is a bad record, of which no more is kept.
pub const RECORD_BYTES_MAX: u64 = 256 << 20;

/// Bytes that can be read again from any place.
pub(crate) trait Bytes: Sync {
    /// Reads some bytes from a place on; none at the end.
    fn read_at(&self, at: u64, buffer: &mut [u8]) -> io::Result<usize>;
}

impl Bytes for &[u8] {
    fn read_at(&self, at: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let at = usize::try_from(at).unwrap_or(usize::MAX);
        (&self[at.min(self.len())..]).read(buffer)
    }
}

impl Bytes for Vec<u8> {
    fn read_at(&self, at: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.as_slice().read_at(at, buffer)
    }
}

impl Bytes for Mutex<File> {
    fn read_at(&self, at: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let mut file = self.lock().unwrap_or_else(|held| held.into_inner());
        file.seek(SeekFrom::Start(at))?;
        file.read(buffer)
    }
}

/// Reads on from a place, and hashes what it reads where it is given a hasher.
pub(super) struct Reading<'a> {
    bytes: &'a dyn Bytes,
    at: u64,
    hasher: Option<&'a mut blake3::Hasher>,
}

impl<'a> Reading<'a> {
    pub(super) fn new(bytes: &'a dyn Bytes, at: u64) -> Self {
        Self {
            bytes,
            at,
            hasher: None,
        }
    }

    pub(super) fn hashing(mut self, hasher: &'a mut blake3::Hasher) -> Self {
        self.hasher = Some(hasher);
        self
    }

    pub(super) fn buffered(self) -> BufReader<Self> {
        BufReader::with_capacity(READ_BYTES, self)
    }
}

impl Read for Reading<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.bytes.read_at(self.at, buffer)?;
        self.at += read as u64;
        if let Some(hasher) = &mut self.hasher {
            hasher.update(&buffer[..read]);
        }
        Ok(read)
    }
}

/// Reads the bytes of a span; fewer where the input ends before.
pub(super) fn read_span(bytes: &dyn Bytes, start: u64, length: u64) -> io::Result<Vec<u8>> {
    let mut read = Vec::new();
    while let left @ 1.. = length - read.len() as u64 {
        // As much as comes: a length that was noted before a file was cut is not taken at its word.
        let at = read.len();
        read.resize(at + left.min(READ_BYTES as u64) as usize, 0);
        let more = bytes.read_at(start + at as u64, &mut read[at..])?;
        read.truncate(at + more);
        if more == 0 {
            break;
        }
    }
    Ok(read)
}

/// The plain hash of the bytes of a span.
pub(super) fn hash_span(bytes: &dyn Bytes, start: u64, length: u64) -> io::Result<[u8; 32]> {
    let mut hasher = blake3::Hasher::new();
    let mut reading = Reading::new(bytes, start).hashing(&mut hasher).take(length);
    io::copy(&mut reading, &mut io::sink())?;
    Ok(*hasher.finalize().as_bytes())
}

/// The bytes of one record as they come in: all of them, or their hash where they are too many.
pub(super) struct Piece {
    pub(super) kept: Vec<u8>,
    pub(super) length: u64,
    most: u64,
    overlong: Option<blake3::Hasher>,
}

impl Piece {
    /// Nothing yet, and `most` bytes at most.
    pub(super) fn new(most: u64) -> Self {
        Self {
            kept: Vec::new(),
            length: 0,
            most,
            overlong: None,
        }
    }

    /// Forgets the record before.
    pub(super) fn clear(&mut self) {
        // One enormous record is no reason to hold as much for all that follow.
        if self.kept.capacity() > READ_BYTES {
            self.kept = Vec::new();
        }
        self.kept.clear();
        self.length = 0;
        self.overlong = None;
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.length += bytes.len() as u64;
        if let Some(hasher) = &mut self.overlong {
            hasher.update(bytes);
        } else if self.length > self.most {
            let mut hasher = blake3::Hasher::new();
            hasher.update(&self.kept);
            hasher.update(bytes);
            self.overlong = Some(hasher);
            self.kept = Vec::new();
        } else {
            self.kept.extend_from_slice(bytes);
        }
    }

    /// The plain hash of a record that is too long; none where it is not.
    pub(super) fn overlong(&self) -> Option<[u8; 32]> {
        let hasher = self.overlong.as_ref()?;
        Some(*hasher.finalize().as_bytes())
    }

    /// Takes the rest of a line, its end included; false where the input has ended.
    pub(super) fn push_line(&mut self, reader: &mut impl BufRead) -> io::Result<bool> {
        let before = self.length;
        loop {
            let buffer = reader.fill_buf()?;
            let end = buffer.iter().position(|byte| *byte == b'\n');
            let taken = end.map_or(buffer.len(), |end| end + 1);
            self.push(&buffer[..taken]);
            reader.consume(taken);
            if end.is_some() || taken == 0 {
                return Ok(self.length > before);
            }
        }
    }
}
