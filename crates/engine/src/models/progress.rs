//! What a pull says while it runs, and how that is shown in a terminal or a log.
//!
//! Knows no files and no network: events come in, lines and bars go out.

use std::io::{self, IsTerminal, Write};
use std::path::Path;

use indicatif::{HumanBytes, ProgressBar, ProgressStyle};

use super::SourceError;

/// One thing that happened. Byte counts are of the step named, not of the whole pull.
#[derive(Debug)]
pub enum PullEvent<'a> {
    /// Another process pulls the same model; this one waits for it.
    Waiting {
        /// The lock file that is held.
        lock: &'a Path,
    },
    /// A source is about to be asked.
    SourceTried {
        /// The source in words.
        source: &'a str,
    },
    /// A source gave nothing; the next one follows, if there is one.
    SourceFailed {
        /// The source in words.
        source: &'a str,
        /// Why.
        reason: &'a SourceError,
    },
    /// Bytes arrive. Reported many times.
    Downloading {
        /// File or package under way.
        what: &'a str,
        /// Number of this part, from 1.
        part: u32,
        /// How many parts there are.
        parts: u32,
        /// Bytes here.
        done: u64,
        /// Bytes in all, where the source tells.
        total: Option<u64>,
    },
    /// Parts are being joined into the file, and hashed. Reported many times.
    Joining {
        /// Bytes written.
        done: u64,
        /// Bytes in all.
        total: u64,
    },
    /// A file is being hashed. Reported many times.
    Hashing {
        /// Bytes read.
        done: u64,
        /// Bytes in all.
        total: u64,
    },
    /// The manifest has no BLAKE3 for this model: the one seen now was recorded and will be
    /// enforced.
    FirstUse {
        /// The model's file.
        path: &'a Path,
        /// What was recorded.
        blake3: &'a str,
        /// Whether the manifest's SHA-256 vouches for the file all the same.
        sha256_matched: bool,
    },
    /// The record could not be kept, because the models directory is read-only.
    RecordNotKept {
        /// Where it should have gone.
        path: &'a Path,
        /// What the system said.
        error: &'a io::Error,
    },
    /// The model is in place and verified.
    Done {
        /// Its file.
        path: &'a Path,
        /// Its BLAKE3.
        blake3: &'a str,
    },
}

/// Hears what a pull does.
pub trait PullReporter {
    /// Takes one event; called often while bytes move, so it should be cheap.
    fn report(&mut self, event: PullEvent<'_>);
}

/// Says nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct SilentReporter;

impl PullReporter for SilentReporter {
    fn report(&mut self, _event: PullEvent<'_>) {}
}

/// Shows a pull on standard error: a bar in a terminal, a line now and then elsewhere.
pub struct TerminalReporter {
    /// Where lines go when there is no bar.
    out: Box<dyn Write>,
    terminal: bool,
    bar: Option<ProgressBar>,
    /// The step shown last and how many lines of progress it has had.
    step: (String, u64),
}

/// Least number of bytes between two lines of progress.
const STRIDE: u64 = 64 << 20;

impl TerminalReporter {
    /// Reports on this process's standard error.
    pub fn stderr() -> Self {
        let stderr = io::stderr();
        let terminal = stderr.is_terminal();
        Self::new(Box::new(stderr), terminal)
    }

    fn new(out: Box<dyn Write>, terminal: bool) -> Self {
        Self {
            out,
            terminal,
            bar: None,
            step: (String::new(), 0),
        }
    }

    fn line(&mut self, text: &str) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
        self.step.0.clear();
        // Progress that cannot be shown is no reason to stop the work.
        let _ = writeln!(self.out, "{text}");
    }

    fn progress(&mut self, step: &str, done: u64, total: Option<u64>) {
        if self.step.0 != step {
            self.step = (step.to_owned(), 0);
            if let Some(bar) = self.bar.take() {
                bar.finish_and_clear();
            }
        }
        if self.terminal {
            let bar = self.bar.get_or_insert_with(|| new_bar(step, total));
            if let Some(total) = total {
                bar.set_length(total);
            }
            bar.set_position(done);
            return;
        }
        let stride = total.map_or(STRIDE, |total| total.div_ceil(10).max(STRIDE));
        let reached = done / stride;
        if reached > self.step.1 {
            self.step.1 = reached;
            let of = total
                .map(|t| format!(" of {}", HumanBytes(t)))
                .unwrap_or_default();
            let _ = writeln!(self.out, "  {step}: {}{of}", HumanBytes(done));
        }
    }
}

impl PullReporter for TerminalReporter {
    fn report(&mut self, event: PullEvent<'_>) {
        match event {
            PullEvent::Waiting { lock } => {
                self.line(&format!("waiting for another pull ({})", lock.display()));
            }
            PullEvent::SourceTried { source } => self.line(&format!("trying {source}")),
            PullEvent::SourceFailed { source, reason } => {
                self.line(&format!("  {source}: {reason}"));
            }
            PullEvent::Downloading {
                what,
                part,
                parts,
                done,
                total,
            } => {
                let step = match parts {
                    1 => what.to_owned(),
                    _ => format!("{what} ({part}/{parts})"),
                };
                self.progress(&step, done, total);
            }
            PullEvent::Joining { done, total } => self.progress("joining", done, Some(total)),
            PullEvent::Hashing { done, total } => self.progress("verifying", done, Some(total)),
            PullEvent::FirstUse {
                path,
                blake3,
                sha256_matched,
            } => {
                let basis = match sha256_matched {
                    true => "the manifest's sha256 matched",
                    false => "nothing else vouches for this file",
                };
                self.line(&format!(
                    "first use: recorded blake3 {blake3} for {}, not pinned by the manifest; \
                     {basis}",
                    path.display()
                ));
            }
            PullEvent::RecordNotKept { path, error } => self.line(&format!(
                "cannot keep {} ({error}): the model is hashed at each start",
                path.display()
            )),
            PullEvent::Done { path, blake3 } => {
                self.line(&format!("{} (blake3 {blake3})", path.display()));
            }
        }
    }
}

impl Drop for TerminalReporter {
    fn drop(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

fn new_bar(step: &str, total: Option<u64>) -> ProgressBar {
    let (bar, template) = match total {
        Some(total) => (
            ProgressBar::new(total),
            "{msg} [{wide_bar}] {bytes}/{total_bytes} {binary_bytes_per_sec} ({eta})",
        ),
        None => (
            ProgressBar::new_spinner(),
            "{spinner} {msg} {bytes} {binary_bytes_per_sec}",
        ),
    };
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.with_message(step.to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Sink(Arc<Mutex<Vec<u8>>>);

    impl Write for Sink {
        fn write(&mut self, data: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(data)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn without_a_terminal_a_step_gets_at_most_a_line_per_tenth() {
        let sink = Sink::default();
        let mut reporter = TerminalReporter::new(Box::new(sink.clone()), false);
        reporter.report(PullEvent::SourceTried { source: "hub a/b" });
        let total = 1000 * STRIDE;
        for done in (0..=total).step_by(1 << 24) {
            reporter.report(PullEvent::Joining { done, total });
        }
        for done in 0..=1000 {
            reporter.report(PullEvent::Hashing { done, total: 1000 });
        }
        for done in (0..=3 * STRIDE).step_by(1 << 20) {
            let (part, parts, total) = (2, 6, None);
            reporter.report(PullEvent::Downloading {
                what: "p",
                part,
                parts,
                done,
                total,
            });
        }
        let text = String::from_utf8(sink.0.lock().unwrap().clone()).unwrap();
        assert_eq!(text.lines().next(), Some("trying hub a/b"));
        assert_eq!(text.matches("joining").count(), 10, "{text}");
        assert_eq!(
            text.matches("verifying").count(),
            0,
            "small files are not worth a line"
        );
        assert_eq!(text.matches("p (2/6): ").count(), 3, "{text}");
    }
}
