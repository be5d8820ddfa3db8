//! The one error type of the crate.
//!
//! An error stops a run: the world or the caller was wrong. Trouble with one record is a status
//! with a reason inside the answer, never an error; a broken law of our own is an assertion.

use crate::infer::InferError;

/// Everything that can stop the operator: bad files, bad plans, and a backend that broke its
/// contract.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OperatorError {
    /// A stage asks the larger model, and none was given.
    #[error("stage {stage:?} asks the larger model, and none was named; pass --larger NAME")]
    NoLargerModel {
        /// The stage.
        stage: String,
    },
    /// A stage calls a tool that the command line does not allow.
    #[error(
        "stage {stage:?} calls the tool {tool:?}, which {reach}; pass --allow {tool} to allow it"
    )]
    ToolNotAllowed {
        /// The stage.
        stage: String,
        /// The tool.
        tool: String,
        /// What it reaches.
        reach: String,
    },
    /// No record can be put in order.
    #[error(
        "{path}: no record has a date or a whole number in {field:?}, by which the plan's [group] orders \
         them; name another field as order_by"
    )]
    NoTime {
        /// The input file.
        path: String,
        /// The field.
        field: String,
    },
    /// A plan makes more units of its records than can be numbered.
    #[error(
        "{path}: its records make more units than 32 bits number; name fewer fields, or neighbours"
    )]
    TooManyUnits {
        /// The input file.
        path: String,
    },
    /// A file could not be read or written.
    #[error("{path}: cannot {action}")]
    Io {
        /// The file or directory.
        path: String,
        /// What was tried, as a verb: "read", "write", "rename".
        action: &'static str,
        /// The operating system's answer.
        #[source]
        source: std::io::Error,
    },
    /// The input is of a known format, but broken as a whole.
    #[error("{path}:{line}:{column}: {problem}")]
    SourceInvalid {
        /// The input file.
        path: String,
        /// Line, from 1.
        line: u64,
        /// Column in bytes, from 1.
        column: u64,
        /// What is wrong and what to do about it.
        problem: String,
    },
    /// The input is none of the formats that are read.
    #[error(
        "{path}:1:1: starts with {starts_with:?}, which is neither a JSON array of objects, nor \
         JSON lines, nor CSV with a header row; convert the file, or name its format in the \
         plan's [input]"
    )]
    SourceUnrecognised {
        /// The input file.
        path: String,
        /// The first characters of the file.
        starts_with: String,
    },
    /// The input holds no record at all.
    #[error("{path}: holds no record; an input needs at least one (read as {format})")]
    SourceEmpty {
        /// The input file.
        path: String,
        /// The format that it was read as.
        format: String,
    },
    /// The input is no longer what it was when the run began.
    #[error(
        "{path}: changed while it was read; run again when nothing writes to it, or on a copy of it"
    )]
    SourceChanged {
        /// The input file.
        path: String,
    },
    /// Every single record of the input is malformed.
    #[error("{path}: none of the {bad} records can be read; the first, {place}: {problem}")]
    NoUsableRecord {
        /// The input file.
        path: String,
        /// How many malformed records there are.
        bad: u64,
        /// Where the first is.
        place: String,
        /// What is wrong with it.
        problem: String,
    },
    /// Two CSV columns have the same name.
    #[error(
        "{path}: columns {first} and {second} are both named {name:?}; rename one, for a field \
         must mean one column"
    )]
    DuplicateColumn {
        /// The input file.
        path: String,
        /// The repeated header.
        name: String,
        /// First column, from 1.
        first: u32,
        /// Second column, from 1.
        second: u32,
    },
    /// Two records have the same id, so no citation could name one of them.
    #[error(
        "{path}: {first} and {second} have the same id {id:?} in field {field:?}; remove one or \
         choose another id field"
    )]
    DuplicateId {
        /// The input file.
        path: String,
        /// The plan's id field.
        field: String,
        /// The repeated id.
        id: String,
        /// Place of the first record.
        first: String,
        /// Place of the second record.
        second: String,
    },
    /// A record has no usable id.
    #[error(
        "{path}: {place}: id field {field:?} {problem}; every record needs a text or an integer \
         there"
    )]
    MissingId {
        /// The input file.
        path: String,
        /// The plan's id field.
        field: String,
        /// Place of the record.
        place: String,
        /// What is there instead.
        problem: String,
    },
    /// A text field of the plan occurs in no record.
    #[error(
        "{path}: no record has the text field {field:?} that the plan reads; fields are {known}"
    )]
    MissingTextField {
        /// The input file.
        path: String,
        /// The plan's text field.
        field: String,
        /// Fields that do occur, separated by commas.
        known: String,
    },
    /// Ordinals of good and bad records do not tile `0..n`.
    #[error("{path}: record ordinals do not tile the input: expected {expected}, found {found}")]
    OrdinalGap {
        /// The input file.
        path: String,
        /// The ordinal that had to follow.
        expected: u32,
        /// The ordinal that did.
        found: u32,
    },
    /// A plan file is not valid.
    #[error("{path}:{line}:{column}: {problem}")]
    Plan {
        /// The plan file.
        path: String,
        /// Line, from 1.
        line: u64,
        /// Column in bytes, from 1.
        column: u64,
        /// What is wrong and what to do about it.
        problem: String,
    },
    /// The backend refused the job or failed.
    #[error("the backend stopped")]
    Infer(#[from] InferError),
    /// The backend completed a unit that was not in the job.
    #[error("the backend completed unit {unit_id:?}, which is not in the job")]
    UnknownCompletion {
        /// The unit named by the completion.
        unit_id: String,
    },
    /// The backend completed a unit twice.
    #[error("the backend completed unit {unit_id:?} twice")]
    DuplicateCompletion {
        /// The unit named by both completions.
        unit_id: String,
    },
    /// Two folded parts share a unit, so counts would be wrong.
    #[error("unit {unit_id:?} is in both parts of a merge; parts must be disjoint")]
    CoverageOverlap {
        /// The shared unit.
        unit_id: String,
    },
    /// The folded units are not the partition's units.
    #[error(
        "coverage holds {found} units, the partition {expected}; first difference: {unit_id:?}"
    )]
    CoverageMismatch {
        /// Units of the partition.
        expected: u64,
        /// Units of the coverage.
        found: u64,
        /// First unit that only one of them has.
        unit_id: String,
    },
    /// A reduction met more than its declared bound, so an exact result cannot be given.
    #[error("more than {max} {what}; {cure}")]
    FoldOverflow {
        /// What there were too many of.
        what: String,
        /// The declared bound.
        max: u64,
        /// What to change.
        cure: &'static str,
    },
    /// A claim about what is absent was asked of a run in which some units have no answer.
    #[error(
        "{what} needs every unit, and {missing} of {units} have no answer; run them, or ask for \
         an inner join"
    )]
    NotSealed {
        /// What was asked for.
        what: &'static str,
        /// Units without an answer.
        missing: u64,
        /// Units in all.
        units: u64,
    },
    /// An exhaustive claim was asked of a run in which some units have no answer.
    #[error(
        "an exhaustive claim speaks of every unit, and of {units} units {missing}; run again until all \
         have an answer"
    )]
    NotExhaustive {
        /// Units in all.
        units: u64,
        /// How many have no answer, by how they ended.
        missing: String,
    },
    /// The fact store cannot be opened, read or written.
    #[error("fact store {path}: {problem}")]
    Store {
        /// The store's file.
        path: String,
        /// What went wrong and what to do about it.
        problem: String,
    },
    /// A directory is not that of a finished run, or its files do not agree.
    #[error("{path}: {problem}")]
    RunInvalid {
        /// The directory.
        path: String,
        /// What is wrong and what to do about it.
        problem: String,
    },
    /// A run has no unit, node or claim of the name that was given.
    #[error("{path}: {wanted:?} is {problem}")]
    NotRecorded {
        /// The run's directory.
        path: String,
        /// What was looked for.
        wanted: String,
        /// What was searched, and what comes closest.
        problem: String,
    },
    /// A file that a run wrote, or a label or replay file, is not valid.
    #[error("{path}: line {line}: {problem}")]
    FileInvalid {
        /// The file.
        path: String,
        /// Line, from 1; 0 where the whole file is meant.
        line: u64,
        /// What is wrong and what to do about it.
        problem: String,
    },
}
