//! Progress of a run on standard error: a bar on a terminal, a line now and then elsewhere.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use operator::event::{Event, EventLine, EventSink};
use operator::fact::Status;
use operator::plan::MAP_STAGE;

/// Seconds between two lines when standard error is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(15);

/// Shows events of a run as they come.
pub struct RunProgress {
    bar: ProgressBar,
    terminal: bool,
    started: Instant,
    last_line: Instant,
    total: u64,
    done: u64,
    abstained: u64,
    errored: u64,
}

impl RunProgress {
    /// Watches a run; quiet when asked.
    pub fn new(quiet: bool) -> Self {
        let terminal = std::io::stderr().is_terminal() && !quiet;
        Self {
            bar: ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::hidden()),
            terminal,
            started: Instant::now(),
            last_line: Instant::now(),
            total: 0,
            done: 0,
            abstained: 0,
            errored: 0,
        }
    }

    fn begin(&mut self, stage: &str, remembered: u64, asked: u64, duplicates: u64) {
        self.total = asked;
        self.done = 0;
        self.bar.finish_and_clear();
        let stage = match stage {
            MAP_STAGE => String::new(),
            stage => format!("{stage}: "),
        };
        self.started = Instant::now();
        self.last_line = self.started;
        if asked == 0 {
            eprintln!("{stage}nothing to ask: {remembered} answers are remembered");
            return;
        }
        let equal = match duplicates {
            0 => String::new(),
            equal => format!(", {equal} equal to one of them"),
        };
        eprintln!("{stage}asking the model about {asked} records ({remembered} remembered{equal})");
        if self.terminal {
            self.bar = ProgressBar::new(asked);
            let style = ProgressStyle::with_template(
                "  [{bar:32}] {pos}/{len}  {per_sec}  {msg}  {eta} left",
            );
            if let Ok(style) = style {
                self.bar.set_style(style.progress_chars("=> "));
            }
            self.bar.enable_steady_tick(Duration::from_millis(500));
        }
    }

    fn advance(&mut self, done: u64) {
        self.done = done;
        let message = format!("{} abstained, {} errored", self.abstained, self.errored);
        self.bar.set_position(self.done);
        self.bar.set_message(message.clone());
        if !self.terminal && self.last_line.elapsed() >= LINE_EVERY {
            self.last_line = Instant::now();
            let rate = self.done as f64 / self.started.elapsed().as_secs_f64();
            eprintln!(
                "  {}/{}  {rate:.2} records/s  {message}",
                self.done, self.total
            );
        }
    }
}

impl EventSink for RunProgress {
    fn receive(&mut self, line: &EventLine) {
        match &line.event {
            Event::PrefilterDone {
                excluded,
                decided,
                kept,
            } => {
                eprintln!(
                    "predicates: {excluded} excluded, {decided} decided, {kept} left for the model"
                );
            }
            Event::MapStarted {
                stage,
                remembered,
                asked,
                duplicates,
            } => self.begin(stage, *remembered, *asked, *duplicates),
            Event::Unit { status, .. } => match status {
                Status::Abstained => self.abstained += 1,
                Status::Errored => self.errored += 1,
                _ => {}
            },
            Event::Progress { done, .. } => self.advance(*done),
            Event::Summary { name, refused, .. } => match refused {
                None => eprintln!("summary {name}: written and re-read"),
                Some(reason) => eprintln!("summary {name}: refused: {reason}"),
            },
            Event::BreakerOpen { reason, .. } => eprintln!("{reason}; nothing more is asked"),
            Event::Audited {
                audited,
                missed,
                unresolved,
            } => eprintln!(
                "audit: {audited} read again, {missed} had been missed, {unresolved} undecided"
            ),
            Event::RunFinished { .. } => self.bar.finish_and_clear(),
            _ => {}
        }
    }
}
