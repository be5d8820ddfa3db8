//! The fold's own check: what it promises, tried on a known corpus without a model.
//!
//! Answers are made from the corpus's oracle and therefore marked as simulated. The artifact holds
//! everything that a verifier needs, and a witness of what was tried: orders, shapes, one changed
//! record, outliers that must survive, citations that must resolve, and an audit of what the
//! predicates excluded. Must not know files.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Mutex;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::answer::CitedAnswer;
use crate::audit;
use crate::canonical::Canonical;
use crate::error::OperatorError;
use crate::fact::{Fact, Status};
use crate::fold::{
    CITES_MAX, FoldSpec, FoldWork, Leaves, Node, NodeCache, NodeRecord, StoredStates, fold,
    record_nodes,
};
use crate::id::{ContentHash, UnitId};
use crate::infer::CancelFlag;
use crate::ops::{self, reduce};
use crate::plan::Plan;
use crate::record::read_bytes;
use crate::replay::Replay;
use crate::run::{RunOptions, run};

/// Format of the artifact.
pub const FORMAT: &str = "provenance fold v1";

/// Excluded records that are read back.
const AUDITED: usize = 25;
/// One minus the confidence of the audit's bound, in parts per million.
const ALPHA_PPM: u32 = 50_000;
/// Orders in which the facts are delivered, besides their own and its reverse.
pub(crate) const SHUFFLES: u64 = 20;
/// Other widths of the tree.
pub(crate) const FAN_INS: [u32; 2] = [13, 3];

/// What the oracle says of one record.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct OracleRow {
    /// The record's id.
    pub number: u64,
    /// Whether it is a blocker.
    pub blocker: bool,
    /// Its cause.
    pub cause: String,
    /// The kind of record that the generator made.
    pub stratum: String,
}

/// What is checked.
#[derive(Debug, Clone, Copy)]
pub struct Corpus<'a> {
    /// The plan's text.
    pub plan: &'a str,
    /// The records' file.
    pub records: &'a [u8],
    /// The oracle, one `OracleRow` per line.
    pub oracle: &'a str,
}

/// Everything that was folded, and what was tried with it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Artifact {
    /// `FORMAT`.
    pub format: String,
    /// The plan as it was read.
    pub plan: String,
    /// Hash of the records' file.
    pub source_hash: ContentHash,
    /// One fact per record.
    pub facts: Vec<Fact>,
    /// The tree, parents before children.
    pub nodes: Vec<NodeRecord>,
    /// The claims.
    pub answer: CitedAnswer,
    /// What was tried.
    pub witness: Witness,
}

/// What was tried, and what came of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Witness {
    /// Leaves of the tree.
    pub leaves: u64,
    /// Inner nodes.
    pub nodes: u64,
    /// Levels of inner nodes.
    pub levels: u64,
    /// Inputs of the widest node.
    pub inputs_max: u64,
    /// Citations of the node that has most.
    pub citations_max: u64,
    /// Citations that a node may have.
    pub citations_cap: u64,
    /// Hash of the answer.
    pub result_hash: ContentHash,
    /// The same hash under other orders and widths: name and hash.
    pub variants: Vec<(String, ContentHash)>,
    /// Units named as dissent in the answer.
    pub dissent: Vec<UnitId>,
    /// Units named as abstaining in the answer.
    pub abstained: Vec<UnitId>,
    /// Different units cited by the answer.
    pub cited: Vec<UnitId>,
    /// One record whose decision changed.
    pub mutation: Mutation,
    /// One record that changed and whose decision did not.
    pub edit: Mutation,
    /// The audit of excluded records.
    pub audit: Audit,
}

/// One changed record, and the work of folding again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mutation {
    /// The record.
    pub unit: UnitId,
    /// What was made and what was kept.
    #[serde(flatten)]
    pub work: FoldWork,
}

/// What reading some excluded records back proves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Audit {
    /// Seed of the draw.
    pub seed: String,
    /// Excluded records.
    pub population: u64,
    /// Records read back.
    pub audited: Vec<UnitId>,
    /// Blockers among them.
    pub misses: Vec<UnitId>,
    /// Upper bound of blockers among all excluded, at `confidence_ppm`.
    pub misses_upper: u64,
    /// Upper bound of their share, in parts per million.
    pub rate_upper_ppm: u32,
    /// Confidence of both bounds.
    pub confidence_ppm: u32,
}

/// Runs the check and returns its artifact; whether it holds is told by `Witness::problems` and by
/// verification.
///
/// # Errors
/// `Plan`, `FileInvalid` and whatever a run may meet.
pub fn check(corpus: Corpus<'_>) -> Result<Artifact, OperatorError> {
    let plan = Plan::parse(corpus.plan, "fold-selfcheck.toml")?;
    let oracle = read_oracle(corpus.oracle)?;
    let recording = recording(&oracle);
    let (facts, answer) = decide(&plan, corpus.records, &recording)?;
    let spec = reduce::spec(&plan);
    let leaves = Leaves::arrange(&spec, &facts)?;
    let nodes = Mutex::new(Vec::new());
    let (root, _) = fold(&leaves, &(), &|node: &Node, _| {
        lock(&nodes).push(node.clone());
    })?;
    let nodes = nodes.into_inner().unwrap_or_else(|held| held.into_inner());
    let mut known = Known::default();
    known.learn(&facts, &nodes);
    let records = match &root {
        Some(root) => record_nodes(root, nodes, &leaves)?,
        None => Vec::new(),
    };
    let witness = Witness {
        leaves: facts.len() as u64,
        nodes: records.len() as u64,
        levels: most(records.iter().map(|record| record.path.len())),
        inputs_max: most(records.iter().map(|record| record.node.children.len())),
        citations_max: most(records.iter().map(|record| record.citations.len())),
        citations_cap: CITES_MAX as u64,
        result_hash: answer.result_hash,
        variants: variants(&plan, &facts, &answer)?,
        dissent: outliers(&answer, "dissent"),
        abstained: outliers(&answer, "abstained"),
        cited: cited(&answer),
        mutation: mutate(&plan, corpus.records, &recording, &facts, &known, true)?,
        edit: mutate(&plan, corpus.records, &recording, &facts, &known, false)?,
        audit: audit_excluded(&facts, &oracle),
    };
    Ok(Artifact {
        format: FORMAT.to_owned(),
        plan: corpus.plan.to_owned(),
        source_hash: ContentHash::of_bytes(corpus.records),
        facts,
        nodes: records,
        answer,
        witness,
    })
}

impl Witness {
    /// What does not hold of the promises; empty when all do.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let mut demand = |holds: bool, what: String| {
            if !holds {
                problems.push(what);
            }
        };
        for (name, hash) in &self.variants {
            demand(
                *hash == self.result_hash,
                format!(
                    "{name}: the result hashes to {hash}, not to {}",
                    self.result_hash
                ),
            );
        }
        demand(
            self.citations_max <= self.citations_cap,
            format!(
                "a node cites {} units, {} may be",
                self.citations_max, self.citations_cap
            ),
        );
        for (kind, units) in [("dissent", &self.dissent), ("abstention", &self.abstained)] {
            let cited = units.iter().all(|unit| self.cited.contains(unit));
            demand(
                units.len() == 1 && cited,
                format!("of one planted {kind}, the answer names {units:?}"),
            );
        }
        let path = self.levels;
        let (mutation, edit) = (&self.mutation.work, &self.edit.work);
        let whole = self.leaves + self.nodes;
        demand(
            (mutation.leaves_computed, mutation.nodes_computed) == (1, path)
                && mutation.leaves_reused + mutation.nodes_reused == whole - 1 - path,
            format!("one changed decision made and kept {mutation:?}"),
        );
        demand(
            (edit.leaves_computed, edit.nodes_computed) == (1, 0),
            format!("one edit without a changed decision made and kept {edit:?}"),
        );
        demand(
            self.audit.misses.is_empty(),
            format!("the predicates excluded blockers: {:?}", self.audit.misses),
        );
        problems
    }
}

/// Folds known inputs by look-up.
#[derive(Default)]
struct Known {
    leaves: HashSet<ContentHash>,
    nodes: HashMap<ContentHash, StoredStates>,
}

impl Known {
    fn learn(&mut self, facts: &[Fact], nodes: &[Node]) {
        self.leaves.extend(facts.iter().map(Fact::provenance_hash));
        for node in nodes {
            let states = StoredStates {
                states: node.states.clone(),
                unsettled: node.unsettled.clone(),
                cited_total: node.cited_total,
            };
            self.nodes.insert(node.hashes.fact_hash, states);
        }
    }
}

impl NodeCache for Known {
    fn states(&self, fact_hash: &ContentHash) -> Option<StoredStates> {
        self.nodes.get(fact_hash).cloned()
    }

    fn has_leaf(&self, provenance_hash: &ContentHash) -> bool {
        self.leaves.contains(provenance_hash)
    }
}

/// Reads the oracle.
///
/// # Errors
/// `FileInvalid` with the line.
pub fn read_oracle(text: &str) -> Result<Vec<OracleRow>, OperatorError> {
    (1_u64..)
        .zip(text.lines())
        .map(|(line, row)| {
            serde_json::from_str(row).map_err(|error| OperatorError::FileInvalid {
                path: String::from("oracle"),
                line,
                problem: format!("is not a row of the oracle: {error}"),
            })
        })
        .collect()
}

/// Answers as the oracle has them, earlier rows surer than later ones; the first two ordinary
/// records that a model would read become the one dissent and the one abstention.
fn recording(oracle: &[OracleRow]) -> BTreeMap<u64, Value> {
    let mut ordinary = oracle
        .iter()
        .filter(|row| row.stratum.starts_with("residual") && !row.blocker)
        .map(|row| row.number);
    let (dissent, abstained) = (ordinary.next(), ordinary.next());
    (0_u32..)
        .zip(oracle)
        .map(|(place, row)| {
            let sure = 990_000 - place * 100;
            let number = Some(row.number);
            let blocker = row.blocker || number == dissent;
            let cause = if number == dissent {
                "security"
            } else {
                &row.cause
            };
            let cause = if number == abstained {
                json!({ "none": 510_000, "other": 490_000 })
            } else {
                shares(cause, sure, "none", "other")
            };
            let label = if blocker { "yes" } else { "no" };
            let answers = json!({ "blocker": shares(label, sure, "no", "yes"), "cause": cause });
            (row.number, answers)
        })
        .collect()
}

/// A label with its probability; the rest goes to the first other of two labels.
fn shares(label: &str, sure: u32, one: &str, other: &str) -> Value {
    let rest = if label == one { other } else { one };
    json!({ label: sure, rest: 1_000_000 - sure })
}

fn decide(
    plan: &Plan,
    records: &[u8],
    recording: &BTreeMap<u64, Value>,
) -> Result<(Vec<Fact>, CitedAnswer), OperatorError> {
    let (source, records, bad) = read_bytes("issues-1000.json", records, plan.input.format)?;
    let partition = ops::partition(plan, source, records, bad)?;
    let rows: String = recording
        .iter()
        .map(|(number, answers)| {
            let row = json!({ "unit_id": number.to_string(), "answers": answers });
            format!("{row}\n")
        })
        .collect();
    let mut replay = Replay::parse(&rows, "answers made from the oracle")?;
    let cancel = CancelFlag::new();
    let options = RunOptions {
        limit: None,
        redact: false,
        clock: &|| 0,
        cancel: &cancel,
        larger: None,
        tools: None,
    };
    let outcome = run(plan, partition, &mut replay, None, options, &mut (), None)?;
    Ok((outcome.facts, outcome.answer))
}

/// Folds the same facts in other orders and widths.
fn variants(
    plan: &Plan,
    facts: &[Fact],
    answer: &CitedAnswer,
) -> Result<Vec<(String, ContentHash)>, OperatorError> {
    let reducers = reduce::spec(plan).reducers;
    let mut found = Vec::new();
    let mut fold_again = |name: String, facts: Vec<Fact>, fan_in: u32| {
        let spec = FoldSpec::new(reducers.clone(), fan_in, plan.fold.key);
        let leaves = Leaves::arrange(&spec, &facts)?;
        let folded = reduce::reduce(plan, &leaves, &(), &|_, _| {})?;
        let mut again = answer.clone();
        again.claims = folded.claims;
        again.coverage = folded.counts;
        found.push((name, again.hash_result()));
        Ok::<(), OperatorError>(())
    };
    let fan_in = reduce::spec(plan).fan_in;
    fold_again(
        "reversed".to_owned(),
        facts.iter().rev().cloned().collect(),
        fan_in,
    )?;
    for seed in 1..=SHUFFLES {
        fold_again(format!("shuffled {seed}"), shuffle(facts, seed), fan_in)?;
    }
    for fan_in in FAN_INS {
        fold_again(format!("fan-in {fan_in}"), facts.to_vec(), fan_in)?;
    }
    Ok(found)
}

/// The facts in the order of a hash of seed and id.
fn shuffle(facts: &[Fact], seed: u64) -> Vec<Fact> {
    let mut shuffled = facts.to_vec();
    shuffled.sort_by_cached_key(|fact| {
        let mut canonical = Canonical::new("operator 2026 selfcheck order v1");
        canonical.u64(seed).text(fact.unit_id.as_str());
        canonical.digest()
    });
    shuffled
}

/// Changes one record that a model reads, decides everything anew and folds with what is known.
fn mutate(
    plan: &Plan,
    records: &[u8],
    recording: &BTreeMap<u64, Value>,
    facts: &[Fact],
    known: &Known,
    decision: bool,
) -> Result<Mutation, OperatorError> {
    let invalid = |problem: &str| OperatorError::FileInvalid {
        path: String::from("issues-1000.json"),
        line: 0,
        problem: problem.to_owned(),
    };
    let kept: Vec<&Fact> = facts
        .iter()
        .filter(|fact| fact.stage == ops::map::STAGE && fact.status == Status::Decided)
        .collect();
    let target = kept
        .get(kept.len() / 2)
        .ok_or_else(|| invalid("nothing is decided"))?;
    let number: u64 = target.unit_id.as_str().parse().unwrap_or_default();
    let mut changed: Vec<Value> =
        serde_json::from_slice(records).map_err(|error| invalid(&error.to_string()))?;
    for record in &mut changed {
        if record["number"] == number {
            record["title"] = json!("This title was edited");
        }
    }
    let bytes = serde_json::to_vec(&changed).map_err(|error| invalid(&error.to_string()))?;
    let mut recording = recording.clone();
    if decision {
        let blocker = target
            .values
            .get("blocker")
            .map(|value| value.label.as_str());
        let label = if blocker == Some("yes") { "no" } else { "yes" };
        let answers = json!({ "blocker": label, "cause": "other" });
        recording.insert(number, answers);
    }
    let (facts, _) = decide(plan, &bytes, &recording)?;
    let spec = reduce::spec(plan);
    let (_, work) = fold(&Leaves::arrange(&spec, &facts)?, known, &|_, _| {})?;
    Ok(Mutation {
        unit: target.unit_id.clone(),
        work,
    })
}

fn audit_excluded(facts: &[Fact], oracle: &[OracleRow]) -> Audit {
    let blockers: HashSet<UnitId> = oracle
        .iter()
        .filter(|row| row.blocker)
        .map(|row| UnitId::new(&row.number.to_string()))
        .collect();
    let excluded: Vec<&UnitId> = facts
        .iter()
        .filter(|fact| fact.status == Status::Excluded)
        .map(|fact| &fact.unit_id)
        .collect();
    let seed = "fold selfcheck";
    let audited = audit::sample(seed, excluded.iter().copied(), AUDITED);
    let misses: Vec<UnitId> = audited
        .iter()
        .filter(|unit| blockers.contains(**unit))
        .map(|unit| (*unit).clone())
        .collect();
    let (population, read, found) = (
        excluded.len() as u64,
        audited.len() as u64,
        misses.len() as u64,
    );
    Audit {
        seed: seed.to_owned(),
        population,
        audited: audited.into_iter().cloned().collect(),
        misses,
        misses_upper: audit::misses_upper(population, read, found, ALPHA_PPM),
        rate_upper_ppm: audit::rate_upper_ppm(read, found, ALPHA_PPM),
        confidence_ppm: 1_000_000 - ALPHA_PPM,
    }
}

fn outliers(answer: &CitedAnswer, kind: &str) -> Vec<UnitId> {
    let values = answer
        .claims
        .iter()
        .filter_map(|claim| claim.value.get(kind));
    values
        .filter_map(Value::as_array)
        .flatten()
        .filter_map(Value::as_str)
        .map(UnitId::new)
        .collect()
}

fn cited(answer: &CitedAnswer) -> Vec<UnitId> {
    let cites = answer.claims.iter().flat_map(|claim| &claim.cites);
    let units: BTreeSet<UnitId> = cites.map(|cite| cite.unit_id.clone()).collect();
    units.into_iter().collect()
}

fn most(counts: impl Iterator<Item = usize>) -> u64 {
    counts.max().unwrap_or(0) as u64
}

fn lock<T>(held: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    held.lock().unwrap_or_else(|held| held.into_inner())
}
