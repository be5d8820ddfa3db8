//! The fold of a run: with what the store knows, and leaving behind what it learnt.
//!
//! Leaves and nodes are stored under what they are made of, so that a later run whose facts partly
//! agree looks up every node below which nothing changed. Must not know who answered.

use std::sync::Mutex;

use crate::answer::TreeSummary;
use crate::error::OperatorError;
use crate::fact::Fact;
use crate::fold::{Leaves, Node, NodeCache, NodeRecord, SealedFacts, StoredStates, record_nodes};
use crate::id::ContentHash;
use crate::infer::UnitUsage;
use crate::ops::reduce::{self, Reduction};
use crate::plan::Plan;
use crate::store::{Kind, Store};

/// A folded run.
pub(super) struct Folded {
    /// Claims and root.
    pub(super) reduction: Reduction,
    /// Every node, parents before children.
    pub(super) records: Vec<NodeRecord>,
    /// What the answer says of its tree.
    pub(super) tree: Option<TreeSummary>,
}

/// The store as the fold sees it.
struct Known<'a>(&'a dyn Store);

impl NodeCache for Known<'_> {
    fn states(&self, fact_hash: &ContentHash) -> Option<StoredStates> {
        let bytes = self.0.get_bytes(Kind::Node, fact_hash.as_bytes())?;
        serde_json::from_slice(&bytes).ok()
    }

    fn has_leaf(&self, provenance_hash: &ContentHash) -> bool {
        self.0.has(Kind::Fact, provenance_hash.as_bytes())
    }
}

/// Folds the facts of a run.
///
/// # Errors
/// `Store` when what was learnt cannot be written; what reading a fact may cause.
pub(super) fn fold(
    plan: &Plan,
    facts: &SealedFacts,
    store: Option<&dyn Store>,
) -> Result<Folded, OperatorError> {
    let spec = reduce::spec(plan);
    let leaves = &Leaves::arrange(&spec, facts)?;
    let made = Mutex::new(Vec::new());
    let sink = |node: &Node, reused: bool| {
        let mut made = made.lock().unwrap_or_else(|held| held.into_inner());
        made.push((node.clone(), reused));
    };
    let reduction = match store {
        Some(store) => reduce::reduce(plan, leaves, &Known(store), &sink)?,
        None => reduce::reduce(plan, leaves, &(), &sink)?,
    };
    let made = made.into_inner().unwrap_or_else(|held| held.into_inner());
    if let Some(store) = store {
        remember(store, facts, made.iter().filter(|(_, reused)| !reused))?;
    }
    let Some(root) = &reduction.root else {
        return Ok(Folded {
            reduction,
            records: Vec::new(),
            tree: None,
        });
    };
    let records = record_nodes(root, made.into_iter().map(|(node, _)| node), leaves)?;
    let tree = Some(TreeSummary {
        hashes: root.hashes,
        fan_in: leaves.spec().fan_in,
        levels: records
            .iter()
            .map(|record| record.path.len())
            .max()
            .unwrap_or(0) as u64,
        nodes: records.len() as u64,
    });
    Ok(Folded {
        reduction,
        records,
        tree,
    })
}

fn remember<'n>(
    store: &dyn Store,
    facts: &SealedFacts,
    made: impl Iterator<Item = &'n (Node, bool)>,
) -> Result<(), OperatorError> {
    let mut leaves = Vec::new();
    for (fact, hashes) in facts.iter() {
        let key = hashes.provenance_hash.as_bytes();
        if !store.has(Kind::Fact, key) {
            leaves.push((*key, encode(&stripped(fact))?));
        }
    }
    store.put_bytes(Kind::Fact, &leaves)?;
    let mut nodes = Vec::new();
    for (node, _) in made {
        let states = StoredStates {
            states: node.states.clone(),
            unsettled: node.unsettled.clone(),
            cited_total: node.cited_total,
        };
        nodes.push((*node.hashes.fact_hash.as_bytes(), encode(&states)?));
    }
    store.put_bytes(Kind::Node, &nodes)
}

/// The fact without what only this run knows, and without the record's text.
fn stripped(fact: &Fact) -> Fact {
    let mut fact = fact.clone();
    fact.usage = UnitUsage::default();
    fact.remembered = false;
    for evidence in &mut fact.evidence {
        evidence.quote = None;
    }
    fact
}

fn encode<T: serde::Serialize>(value: &T) -> Result<Vec<u8>, OperatorError> {
    serde_json::to_vec(value).map_err(|error| OperatorError::Store {
        path: String::from("content"),
        problem: error.to_string(),
    })
}
