//! Hashing of whole files and of streams on their way into one.
//!
//! Knows bytes only; what the hashes are compared with is not its concern.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use super::sha256::Sha256;
use super::{PullEvent, PullReporter};

/// Bytes read at a time: large enough for BLAKE3 to use all cores.
const CHUNK: usize = 8 << 20;

/// What a file's bytes amount to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Digest {
    pub(super) bytes: u64,
    /// 64 lower-case hex digits.
    pub(super) blake3: String,
    /// 64 lower-case hex digits, where it was asked for.
    pub(super) sha256: Option<String>,
}

/// Hashes under way over one stream.
pub(super) struct Digester {
    bytes: u64,
    blake3: blake3::Hasher,
    sha256: Option<Sha256>,
}

impl Digester {
    pub(super) fn new(with_sha256: bool) -> Self {
        Self {
            bytes: 0,
            blake3: blake3::Hasher::new(),
            sha256: with_sha256.then(Sha256::new),
        }
    }

    pub(super) fn update(&mut self, data: &[u8]) {
        self.bytes += data.len() as u64;
        self.blake3.update_rayon(data);
        if let Some(sha256) = &mut self.sha256 {
            sha256.update(data);
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn finish(self) -> Digest {
        Digest {
            bytes: self.bytes,
            blake3: self.blake3.finalize().to_hex().to_string(),
            sha256: self.sha256.map(Sha256::finish),
        }
    }
}

/// Hashes a file whole, reporting how far it has come.
pub(super) fn hash_file(
    path: &Path,
    with_sha256: bool,
    reporter: &mut dyn PullReporter,
) -> io::Result<Digest> {
    let mut file = File::open(path)?;
    let total = file.metadata()?.len();
    let mut digester = Digester::new(with_sha256);
    for_each_chunk(&mut file, |chunk| {
        digester.update(chunk);
        reporter.report(PullEvent::Hashing {
            done: digester.bytes(),
            total,
        });
        Ok(())
    })?;
    Ok(digester.finish())
}

/// Reads to the end in full chunks (the last may be shorter), handing each on.
pub(super) fn for_each_chunk(
    reader: &mut dyn Read,
    mut consume: impl FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let mut buffer = vec![0; CHUNK];
    loop {
        let mut filled = 0;
        while filled < buffer.len() {
            match reader.read(&mut buffer[filled..]) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        if filled == 0 {
            return Ok(());
        }
        consume(&buffer[..filled])?;
    }
}
