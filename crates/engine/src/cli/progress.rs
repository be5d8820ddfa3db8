//! Progress of a run on standard error: a grid of all units on a terminal, a line now and then elsewhere.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use operator::event::{Event, EventLine, EventSink};
use operator::fact::Status;
use operator::plan::MAP_STAGE;

use super::grid::{Grid, LEGEND};

/// Seconds between two lines when standard error is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(15);
/// Least time between two drawings of the grid.
const DRAW_EVERY: Duration = Duration::from_millis(150);

/// How much is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Grid,
    Lines,
    /// Only what stops or breaks a run.
    Quiet,
}

/// Shows events of a run as they come.
pub struct RunProgress {
    mode: Mode,
    bar: ProgressBar,
    grid: Grid,
    started: Instant,
    last_told: Instant,
    stage: String,
    total: u64,
    done: u64,
    abstained: u64,
    errored: u64,
}

impl RunProgress {
    /// Watches a run; quiet when asked.
    pub fn new(quiet: bool) -> Self {
        let mode = match (quiet, std::io::stderr().is_terminal()) {
            (true, _) => Mode::Quiet,
            (false, true) => Mode::Grid,
            (false, false) => Mode::Lines,
        };
        Self {
            mode,
            bar: ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::hidden()),
            grid: Grid::new(0, 0, false),
            started: Instant::now(),
            last_told: Instant::now(),
            stage: String::new(),
            total: 0,
            done: 0,
            abstained: 0,
            errored: 0,
        }
    }

    /// Says something that stays on the screen.
    fn say(&self, text: &str) {
        match self.mode {
            Mode::Grid => self.bar.suspend(|| eprintln!("{text}")),
            Mode::Lines => eprintln!("{text}"),
            Mode::Quiet => {}
        }
    }

    /// Says what must be known even where nothing else is to be told.
    fn warn(&self, text: &str) {
        self.bar.suspend(|| eprintln!("{text}"));
    }

    fn open(&mut self, units: u64) {
        if self.mode != Mode::Grid {
            return;
        }
        let coloured = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        self.grid = Grid::new(usize::try_from(units).unwrap_or(0), columns(), coloured);
    }

    fn begin(&mut self, stage: &str, asked: u64) {
        (self.total, self.done) = (asked, 0);
        self.stage = match stage {
            MAP_STAGE => String::new(),
            stage => format!("{stage}: "),
        };
        self.started = Instant::now();
        self.last_told = self.started;
        self.bar.finish_and_clear();
        if self.mode == Mode::Grid && asked > 0 {
            self.bar = ProgressBar::new(asked);
            let template = "{msg}\n  {prefix}{pos}/{len}  {per_sec}  {eta} left";
            if let Ok(style) = ProgressStyle::with_template(template) {
                self.bar.set_style(style);
            }
            self.bar.set_prefix(self.stage.clone());
            self.draw();
        }
    }

    fn draw(&self) {
        let counts = format!("{} abstained, {} errored", self.abstained, self.errored);
        self.bar
            .set_message(format!("{}  {LEGEND}\n  {counts}", self.grid.draw()));
    }

    fn advance(&mut self, done: u64) {
        self.done = done;
        let due = match self.mode {
            Mode::Grid => DRAW_EVERY,
            Mode::Lines => LINE_EVERY,
            Mode::Quiet => return,
        };
        let last = done == self.total;
        if self.last_told.elapsed() < due && !(last && self.mode == Mode::Grid) {
            return;
        }
        self.last_told = Instant::now();
        if self.mode == Mode::Grid {
            self.bar.set_position(done);
            self.draw();
        } else {
            let rate = done as f64 / self.started.elapsed().as_secs_f64().max(1e-3);
            let (stage, total) = (&self.stage, self.total);
            let (abstained, errored) = (self.abstained, self.errored);
            eprintln!(
                "  {stage}{done}/{total}  {rate:.2} records/s  {abstained} abstained, {errored} errored"
            );
        }
    }

    fn unit(&mut self, place: u32, status: Status) {
        self.grid.settle(place as usize, status);
        match status {
            Status::Abstained => self.abstained += 1,
            Status::Errored => self.errored += 1,
            _ => {}
        }
    }
}

/// Columns of the terminal that progress goes to.
fn columns() -> usize {
    match rustix::termios::tcgetwinsize(std::io::stderr()) {
        Ok(size) if size.ws_col > 0 => size.ws_col.into(),
        _ => 80,
    }
}

impl EventSink for RunProgress {
    fn receive(&mut self, line: &EventLine) {
        match &line.event {
            Event::RunStarted { units, .. } => self.open(*units),
            Event::PrefilterDone {
                excluded,
                decided,
                kept,
            } => self.say(&format!(
                "predicates: {excluded} excluded, {decided} decided, {kept} left for the model"
            )),
            Event::MapStarted {
                stage,
                remembered,
                asked,
                duplicates,
            } => {
                self.begin(stage, *asked);
                let stage = &self.stage;
                let equal = match duplicates {
                    0 => String::new(),
                    equal => format!(", {equal} equal to one of them"),
                };
                self.say(&match asked {
                    0 => format!("{stage}nothing to ask: {remembered} answers are remembered"),
                    asked => format!(
                        "{stage}asking the model about {asked} records ({remembered} remembered{equal})"
                    ),
                });
            }
            Event::ToolStarted {
                stage,
                tool,
                requests,
            } => {
                self.begin(stage, *requests);
                self.say(&format!("{stage}: calling {tool} for {requests} records"));
            }
            Event::ToolDone { stage, usage } => self.say(&format!(
                "{stage}: {} calls, {} of them repeated, {} requests shared a call, {} were remembered",
                usage.calls, usage.retries, usage.duplicates, usage.remembered
            )),
            Event::PartsDone {
                stage,
                answers,
                parts,
                kept,
            } => self.say(&format!(
                "{stage}: {answers} long answers in {parts} parts, {kept} of them kept"
            )),
            Event::Retried {
                stage,
                units,
                attempt,
            } => self.say(&format!("{stage}: asking {units} records again (attempt {attempt})")),
            Event::Unit { place, status, .. } => self.unit(*place, *status),
            Event::Progress { done, .. } => self.advance(*done),
            Event::Summary { name, refused, .. } => self.say(&match refused {
                None => format!("summary {name}: written and re-read"),
                Some(reason) => format!("summary {name}: refused: {reason}"),
            }),
            Event::BreakerOpen { reason, .. } => {
                self.warn(&format!("{reason}; nothing more is asked"));
            }
            Event::Audited {
                audited,
                missed,
                unresolved,
            } => self.say(&format!(
                "audit: {audited} read again, {missed} had been missed, {unresolved} undecided"
            )),
            Event::RunFinished { .. } => self.bar.finish_and_clear(),
            _ => {}
        }
    }
}
