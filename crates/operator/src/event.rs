//! The run log: a closed set of events, one JSON line each; progress bars and reports are views.
//!
//! Only additions are made within a version. Must not know where lines go; time is handed in.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::breaker::Trip;
use crate::canary::Verdict;
use crate::coverage::Counts;
use crate::fact::Status;
use crate::fold::{FoldWork, Hashes};
use crate::id::{ContentHash, UnitId};
use crate::index::IndexReport;
use crate::tool::ToolUsage;

/// Version of the line format.
pub const EVENT_VERSION: u32 = 1;

/// Something that happened in a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Event {
    /// The run began; nothing was asked yet.
    RunStarted {
        /// Hash of the plan's meaning-bearing parts.
        plan_hash: ContentHash,
        /// Hash of the source file.
        source_hash: ContentHash,
        /// Name of the backend.
        backend: String,
        /// True when the backend replays or scripts its answers.
        simulated: bool,
        /// Units of the partition.
        units: u64,
    },
    /// An index was computed over all records.
    IndexDone {
        /// What it took and gave.
        #[serde(flatten)]
        report: IndexReport,
    },
    /// A tool is about to be called.
    ToolStarted {
        /// Name of the stage.
        stage: String,
        /// Name of the tool.
        tool: String,
        /// Requests, identical ones counted each.
        requests: u64,
    },
    /// Every request of a tool stage has its outcome.
    ToolDone {
        /// Name of the stage.
        stage: String,
        /// What they came to.
        #[serde(flatten)]
        usage: ToolUsage,
    },
    /// Long answers of a tool were cut into parts, and all parts were read.
    PartsDone {
        /// Name of the stage.
        stage: String,
        /// Answers that were cut.
        answers: u64,
        /// Their parts.
        parts: u64,
        /// Parts that were kept.
        kept: u64,
    },
    /// Every predicate was evaluated.
    PrefilterDone {
        /// Units left out.
        excluded: u64,
        /// Units decided by predicates.
        decided: u64,
        /// Units that go on to the memory and the model.
        kept: u64,
    },
    /// The memory was consulted; the rest is about to be asked.
    MapStarted {
        /// Name of the stage.
        #[serde(default)]
        stage: String,
        /// Units whose answers are remembered.
        remembered: u64,
        /// Units to ask.
        asked: u64,
        /// Units whose text equals that of an earlier one, whose answer they get.
        duplicates: u64,
    },
    /// Units are asked again whose backend could not be reached.
    Retried {
        /// Name of the stage.
        stage: String,
        /// Units.
        units: u64,
        /// Which attempt begins; the first is 1.
        attempt: u32,
    },
    /// A unit got its fact.
    Unit {
        /// The unit.
        id: UnitId,
        /// Its place among the units, from 0.
        #[serde(default)]
        place: u32,
        /// How it ended.
        status: Status,
        /// Where it ended.
        stage: String,
        /// True when its answer was looked up.
        remembered: bool,
    },
    /// Asked units answered so far.
    Progress {
        /// Units that completed.
        done: u64,
        /// Units asked.
        asked: u64,
    },
    /// A canary was judged; it is no unit, and in no other event.
    Canary {
        /// Where the plan or its file has it.
        place: String,
        /// Hash of the rubric under which it was asked.
        rubric: ContentHash,
        /// What its answer counts as.
        verdict: Verdict,
        /// The labels that it got, by field.
        got: BTreeMap<String, String>,
        /// The labels that are right.
        expected: BTreeMap<String, String>,
        /// Canaries judged under the rubric so far.
        judged: u64,
        /// Of these, missed.
        misses: u64,
        /// Evidence against the rubric so far, in nano-nats.
        evidence_nano: i64,
    },
    /// A breaker opened: nothing more is asked, and nothing of the run stands as a fact.
    BreakerOpen {
        /// Which, and why.
        trip: Trip,
        /// The same for a person.
        reason: String,
    },
    /// A sample of what was not found was read again.
    Audited {
        /// Units that were read.
        audited: u64,
        /// Of these, missed before, and now in the answer.
        missed: u64,
        /// Of these, without an answer from the auditor.
        unresolved: u64,
    },
    /// The facts were folded.
    Folded {
        /// Leaves and nodes that were made and that were looked up.
        #[serde(flatten)]
        work: FoldWork,
        /// Hashes of the root; none without units.
        root: Option<Hashes>,
    },
    /// A summary was written and re-read, or was refused.
    Summary {
        /// Name of the plan's reduction.
        name: String,
        /// Why there is none.
        refused: Option<String>,
        /// What was written and refused, for who wants to know; it is no part of the answer.
        refused_text: Option<String>,
        /// True when its text was looked up.
        remembered: bool,
        /// Logical prompt tokens of what was written in this run.
        prompt_tokens: u64,
        /// Tokens generated in this run.
        generated_tokens: u64,
    },
    /// The run ended and its answer is complete.
    RunFinished {
        /// Final counts.
        coverage: Counts,
        /// True when no unit errored, was cancelled or was left unasked.
        complete: bool,
        /// Hash of the answer.
        result_hash: ContentHash,
    },
}

/// An event with its place in the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventLine {
    /// Version of the format, `EVENT_VERSION`.
    pub v: u32,
    /// Position in the log, from 0, without gaps.
    pub seq: u64,
    /// Microseconds of the caller's clock since the run began.
    pub t_us: u64,
    /// What happened.
    #[serde(flatten)]
    pub event: Event,
}

/// Receives the events of a run in order.
pub trait EventSink {
    /// Takes one line.
    fn receive(&mut self, line: &EventLine);
}

/// Keeps every line, for tests and for callers that report afterwards.
impl EventSink for Vec<EventLine> {
    fn receive(&mut self, line: &EventLine) {
        self.push(line.clone());
    }
}

/// Drops every line.
impl EventSink for () {
    fn receive(&mut self, _line: &EventLine) {}
}
