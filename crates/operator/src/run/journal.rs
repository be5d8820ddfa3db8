//! The run log on its way to the caller and to the run directory.
//!
//! Must not know what events mean.

use crate::error::OperatorError;
use crate::event::{EVENT_VERSION, Event, EventLine, EventSink};
use crate::run_directory::RunDirectory;

/// Numbers and times events, and passes them on.
pub(super) struct Journal<'o> {
    pub(super) events: &'o mut dyn EventSink,
    pub(super) directory: Option<&'o mut RunDirectory>,
    pub(super) clock: &'o dyn Fn() -> u64,
    pub(super) started_us: u64,
    pub(super) lines: u64,
}

impl Journal<'_> {
    /// Passes one event on.
    ///
    /// # Errors
    /// `Io` when the run directory cannot be written.
    pub(super) fn log(&mut self, event: Event) -> Result<(), OperatorError> {
        let line = EventLine {
            v: EVENT_VERSION,
            seq: self.lines,
            t_us: self.elapsed_us(),
            event,
        };
        self.lines += 1;
        self.events.receive(&line);
        match &mut self.directory {
            Some(directory) => directory.append_event(&line),
            None => Ok(()),
        }
    }

    /// Microseconds of the caller's clock since the run began.
    pub(super) fn elapsed_us(&self) -> u64 {
        (self.clock)().saturating_sub(self.started_us)
    }
}
