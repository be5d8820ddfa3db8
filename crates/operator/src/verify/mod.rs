//! Checks a folded answer against its facts and records, without any code that made it.
//!
//! ```text
//! facts.rs, units.rs, sources.rs, fields.rs,
//!   arranged.rs                      every fact, against the plan and its record or records
//! path.rs, steps.rs, answerers.rs    every unit's way through the stages
//! shape.rs, states.rs, derive.rs     every node, described again from the facts below it
//! spec.rs, hash.rs                   every hash, from its documented encoding
//! nodes.rs                           the recorded tree against the derived one
//! conclusions.rs, compound.rs,
//!   wording.rs, claims.rs            every claim, from all facts at once
//! observations.rs                    what tools answered, against the facts that rest on it
//! summaries.rs, prose.rs             a model's text: what stands apart, its units, its numbers
//! selections.rs                      what selectors chose and what came of it
//! stopping.rs, share.rs, promise.rs  where a run may have stopped early, and what it may then claim
//! audit.rs, quarantine.rs            what a sample proves; what an open breaker leaves
//! answer.rs                          coverage and the head of the answer
//! witness.rs, directory.rs           the two forms in which a fold is kept
//! lineage.rs                         which units a claim rests on
//! ```
//!
//! What construction and this module share is the encoding: the types as plain data, `Canonical`,
//! the plan as parsed and hashed, and how a file is cut into records. Only predicates and dates are
//! evaluated by the code that evaluated them before. A node's state is computed from the facts below
//! it in one flat pass, never by merging; the counters of `heavy_hitters` alone, which depend on the
//! tree, are replayed along it. The text of a claim is worded again, so that no number and no word
//! of it is taken from the answer. What a model should have decided is not judged here, nor how many
//! bytes it was not shown; everything else has to follow from what it did decide.

mod answer;
mod answerers;
mod arranged;
mod audit;
mod claims;
mod components;
mod compound;
mod conclusions;
mod derive;
mod difference;
mod directory;
mod facts;
mod fields;
mod hash;
mod lineage;
mod nodes;
mod observations;
mod path;
mod promise;
mod prose;
mod quarantine;
mod read;
mod selections;
mod shape;
mod share;
mod sources;
mod spec;
mod states;
mod steps;
mod stopping;
mod summaries;
mod units;
mod witness;
mod wording;

pub use directory::{RunFiles, verify_directory};
pub use lineage::backing;
pub use sources::{Registry, Sources};
pub use witness::verify_artifact;

use std::fmt;

use crate::answer::{CitedAnswer, Claim};
use crate::fact::Fact;
use crate::fold::{KeyRange, NodeRecord};
use crate::id::UnitId;
use crate::plan::Plan;

/// What is verified.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    /// The plan that was answered.
    pub plan: &'a Plan,
    /// One fact per record, in source order.
    pub facts: &'a [Fact],
    /// The tree, parents before children.
    pub nodes: &'a [NodeRecord],
    /// The answer.
    pub answer: &'a CitedAnswer,
}

/// What a finding speaks of; displayed as a name that a reader can look up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// A unit and its fact.
    Unit(UnitId),
    /// A node of the tree.
    Node {
        /// Its range, under which rows of the tree are found.
        range: KeyRange,
        /// Ranges from the root down to the node itself.
        path: Vec<KeyRange>,
    },
    /// A claim by its name.
    Claim(String),
    /// The answer as a whole.
    Answer,
    /// What a check of the fold says that it tried.
    Witness,
    /// A file.
    File(String),
}

/// Writes a range as its first key and its height, such as `4824/1`.
struct Named<'a>(&'a KeyRange);

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.0.start, self.0.height)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unit(unit) => write!(f, "unit {unit}"),
            Self::Node { range, path } => {
                write!(f, "node {}", Named(range))?;
                let path: Vec<String> = path.iter().map(|range| Named(range).to_string()).collect();
                match path.len() {
                    0 | 1 => Ok(()),
                    _ => write!(f, " (path {})", path.join(" > ")),
                }
            }
            Self::Claim(name) => write!(f, "claim {name}"),
            Self::Answer => f.write_str("answer"),
            Self::Witness => f.write_str("witness"),
            Self::File(name) => f.write_str(name),
        }
    }
}

/// Whether a finding is of content, or only of a hash over content that may be found elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Something is said that is not so.
    Content,
    /// A hash is not that of what it names.
    Hash,
}

/// One thing that does not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Whether content or a hash is wrong.
    pub kind: Kind,
    /// Where.
    pub place: Place,
    /// What is there, and what would be right.
    pub problem: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.problem)
    }
}

/// How much was checked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Checked {
    /// Facts compared with the plan.
    pub facts: u64,
    /// Nodes derived again.
    pub nodes: u64,
    /// States of nodes computed again.
    pub states: u64,
    /// Claims computed again.
    pub claims: u64,
    /// Citations of claims looked up.
    pub cites: u64,
    /// Records whose hash was computed from the source.
    pub records: u64,
    /// Spans read back from a record.
    pub spans: u64,
}

/// What verification found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Everything that does not hold: content first, then hashes; each from the facts to the top.
    pub findings: Vec<Finding>,
    /// How much was checked.
    pub checked: Checked,
    /// Why nothing was compared with the records; none when they were at hand.
    pub sources_absent: Option<String>,
    /// Why the routes that predicates gave were not checked; none when the plan's indexes, if it has any,
    /// could be computed again.
    pub indexes_absent: Option<String>,
}

impl Report {
    /// True when nothing wrong was found; ask `sources_absent` how far that reaches.
    pub fn holds(&self) -> bool {
        self.findings.is_empty()
    }

    fn content(&mut self, place: Place, problem: impl Into<String>) {
        self.add(Kind::Content, place, problem.into());
    }

    fn hash(&mut self, place: Place, problem: impl Into<String>) {
        self.add(Kind::Hash, place, problem.into());
    }

    fn add(&mut self, kind: Kind, place: Place, problem: String) {
        self.findings.push(Finding {
            kind,
            place,
            problem,
        });
    }

    fn sort(&mut self) {
        // Stable: within a kind the order of the checks stays.
        self.findings.sort_by_key(|finding| finding.kind);
    }
}

/// Verifies an answer, its tree and its facts; finds everything that does not hold.
pub fn verify(subject: Subject<'_>, sources: &Sources) -> Report {
    let mut report = Report::default();
    check(subject, sources, &mut report);
    report.sort();
    report
}

/// As `verify`, into a report that has more in it.
fn check(subject: Subject<'_>, sources: &Sources, report: &mut Report) -> Derived {
    facts::check(subject, report);
    path::check(subject, report);
    sources::check(subject, sources, report);
    let leaves = shape::arrange(subject.plan, subject.facts);
    let stop = stopping::derive(subject);
    let (claims, counted) = claims::derive(subject.plan, &leaves, stop.as_ref())
        .into_iter()
        .unzip();
    let derived = Derived {
        nodes: derive::nodes(subject.plan, &leaves),
        claims,
        counted,
    };
    nodes::check(subject, &derived.nodes, report);
    quarantine::check(subject, report);
    if subject.answer.quarantine.is_none() {
        claims::check(subject, &derived.claims, report);
        let counts = derive::tally(subject.facts.iter());
        summaries::check(subject, &derived, counts, report);
    }
    selections::check(subject, report);
    stopping::check(subject, stop.as_ref(), report);
    audit::check(subject, sources, report);
    let complete = stop.map(|stop| stop.complete);
    answer::check(subject, &derived.nodes, complete, sources, report);
    derived
}

/// What was derived again, for those who compare more than the answer with it.
struct Derived {
    nodes: Vec<NodeRecord>,
    /// One claim per reduction that is no summary, in plan order.
    claims: Vec<Claim>,
    /// Facts or members that each of these speaks of.
    counted: Vec<u64>,
}
