//! A finished run, read back from its directory: plan, facts, tree and answer, with look-ups.
//!
//! What is read is what the run wrote: files that do not hash to what the manifest says are refused,
//! and so is a tree that was folded under other reductions than the plan's. Whether the facts are
//! true of the source is not asked here. Must not know how a run is explained or compared.

use std::collections::HashMap;
use std::path::Path;

use crate::answer::{ANSWER_VERSION, CitedAnswer};
use crate::error::OperatorError;
use crate::fact::{FACT_SCHEMA, Fact};
use crate::fold::{Child, FoldSpec, KeyRange, LeafKey, NODE_VERSION, NodeRecord, UnitRef};
use crate::id::UnitId;
use crate::ops::reduce;
use crate::plan::{Operation, Plan, Reduce};
use crate::run::RunUsage;
use crate::run_directory::{
    MANIFEST_VERSION, Manifest, read_answer, read_facts, read_manifest, read_nodes, read_usage,
    verify_files,
};

/// The content of a run directory.
///
/// Memory: all facts and nodes.
#[derive(Debug)]
pub struct RecordedRun {
    /// The directory as given.
    pub path: String,
    /// What the other files are.
    pub manifest: Manifest,
    /// The plan that the run followed.
    pub plan: Plan,
    /// One fact per unit, in source order.
    pub facts: Vec<Fact>,
    /// The tree, parents before children; empty without units.
    pub nodes: Vec<NodeRecord>,
    /// The claims.
    pub answer: CitedAnswer,
    /// What the run cost.
    pub usage: RunUsage,
    spec: FoldSpec,
    units: HashMap<UnitId, usize>,
    ranges: HashMap<(LeafKey, u32), usize>,
}

impl RecordedRun {
    /// Reads a run directory.
    ///
    /// # Errors
    /// `RunInvalid` when it is no run's directory, the run did not finish, was written by another
    /// version, or its files do not agree; `Io`, `FileInvalid` and `Plan` name the file at fault.
    pub fn open(directory: &Path) -> Result<Self, OperatorError> {
        let path = directory.display().to_string();
        let invalid = |problem: String| OperatorError::RunInvalid {
            path: path.clone(),
            problem,
        };
        if !directory.is_dir() {
            return Err(invalid(String::from(
                "is no directory; name the one that `engine run` wrote",
            )));
        }
        if !directory.join("manifest.json").exists() {
            return Err(invalid(String::from(
                "holds no manifest.json, so no run wrote it; name the directory that `engine run` \
                 wrote",
            )));
        }
        let manifest = read_manifest(directory)?;
        check_version(&path, "manifest.json", manifest.version, MANIFEST_VERSION)?;
        if !manifest.finished {
            return Err(invalid(String::from(
                "the run did not finish: there is no answer yet; let it end, or run it again",
            )));
        }
        if let Some(problem) = verify_files(directory)?.into_iter().next() {
            return Err(invalid(format!(
                "{problem}; the files are not those that the run wrote"
            )));
        }
        let plan = Plan::parse(&manifest.plan_text, &manifest.plan_path)?;
        if plan.hash() != manifest.plan_hash {
            return Err(invalid(format!(
                "the plan in manifest.json hashes to {}, the run followed {}; another version wrote \
                 it",
                plan.hash(),
                manifest.plan_hash
            )));
        }
        let answer = read_answer(directory)?;
        check_version(&path, "answer.json", answer.version, ANSWER_VERSION)?;
        let facts = read_facts(&directory.join("facts.jsonl"))?;
        for fact in &facts {
            check_version(&path, "facts.jsonl", fact.schema, FACT_SCHEMA)?;
        }
        let nodes = read_nodes(directory)?;
        let spec = reduce::spec(&plan);
        for record in &nodes {
            check_version(&path, "nodes.jsonl", record.node.version, NODE_VERSION)?;
            if record.node.spec != spec.hash() {
                return Err(invalid(format!(
                    "node {} of nodes.jsonl was folded under other reductions than the plan's",
                    node_name(&record.node.range)
                )));
            }
        }
        let units = (0..)
            .zip(&facts)
            .map(|(place, fact)| (fact.unit_id.clone(), place))
            .collect();
        let ranges = (0..)
            .zip(&nodes)
            .map(|(place, record)| (named(&record.node.range), place))
            .collect();
        let usage = read_usage(directory)?;
        Ok(Self {
            path,
            manifest,
            plan,
            facts,
            nodes,
            answer,
            usage,
            spec,
            units,
            ranges,
        })
    }

    /// What the facts were folded with.
    pub const fn spec(&self) -> &FoldSpec {
        &self.spec
    }

    /// The reductions that code folds, in the order of a node's states.
    pub fn reductions(&self) -> impl Iterator<Item = &Reduce> {
        let folded = |reduce: &&Reduce| !matches!(reduce.op, Operation::Summary { .. });
        self.plan.reduces.iter().filter(folded)
    }

    /// The fact of a unit.
    pub fn fact(&self, unit: &UnitId) -> Option<&Fact> {
        self.units.get(unit).map(|place| &self.facts[*place])
    }

    /// The root of the tree; none without units.
    pub fn root(&self) -> Option<&NodeRecord> {
        self.nodes.first()
    }

    /// The node of a range.
    pub fn node(&self, range: &KeyRange) -> Option<&NodeRecord> {
        self.ranges
            .get(&named(range))
            .map(|place| &self.nodes[*place])
    }

    /// The node of a name as `node_name` writes it.
    pub fn node_named(&self, name: &str) -> Option<&NodeRecord> {
        self.nodes
            .iter()
            .find(|record| node_name(&record.node.range) == name)
    }

    /// The nodes whose provenance hash begins with these hex digits.
    pub fn nodes_hashed(&self, digits: &str) -> Vec<&NodeRecord> {
        let hash = |record: &NodeRecord| record.node.hashes.provenance_hash.to_string();
        self.nodes
            .iter()
            .filter(|record| hash(record).starts_with(digits))
            .collect()
    }

    /// The nodes above a unit, from the root down to the one that has it as its input.
    pub fn path(&self, unit: &UnitRef) -> Vec<&NodeRecord> {
        let mut path = Vec::new();
        let mut next = self.root();
        while let Some(record) = next {
            path.push(record);
            next = record.node.children.iter().find_map(|child| match child {
                Child::Node { range, .. } if range.holds(unit.key, self.spec.fan_in) => {
                    self.node(range)
                }
                _ => None,
            });
        }
        path
    }

    /// The nodes that cite a unit, parents before children.
    pub fn citing(&self, unit: &UnitId) -> Vec<&NodeRecord> {
        self.nodes
            .iter()
            .filter(|record| record.citations.iter().any(|cite| cite.unit_id == *unit))
            .collect()
    }

    /// The facts below a node, in source order.
    pub fn below(&self, range: &KeyRange) -> Vec<&Fact> {
        self.facts
            .iter()
            .filter(|fact| range.holds(self.spec.place(fact).key, self.spec.fan_in))
            .collect()
    }
}

/// The name of a node: the first key of its range, and its height.
pub fn node_name(range: &KeyRange) -> String {
    format!("{}/{}", range.start, range.height)
}

fn named(range: &KeyRange) -> (LeafKey, u32) {
    (range.start, range.height)
}

fn check_version(path: &str, file: &str, found: u32, known: u32) -> Result<(), OperatorError> {
    if found == known {
        return Ok(());
    }
    Err(OperatorError::RunInvalid {
        path: path.to_owned(),
        problem: format!(
            "{file} is of version {found}, this program reads {known}; run it again, or read it \
             with the version that wrote it"
        ),
    })
}
