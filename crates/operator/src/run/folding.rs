//! The fold of a run: with what the store knows, and leaving behind what it learnt.
//!
//! Leaves and nodes are stored under what they are made of, so that a later run whose facts partly
//! agree looks up every node below which nothing changed. Nodes leave memory as soon as they are made.
//! Must not know who answered.

use std::sync::Mutex;

use rayon::prelude::*;

use crate::answer::TreeSummary;
use crate::error::OperatorError;
use crate::fact::{Fact, Facts};
use crate::fold::{
    Hashes, KeyRange, Leaves, Node, NodeCache, StoredStates, record_node, visit_paths,
};
use crate::id::ContentHash;
use crate::infer::UnitUsage;
use crate::ops::reduce::{self, Reduction};
use crate::plan::Plan;
use crate::run_directory::{NodeDraft, NodeRow, RunDirectory};
use crate::store::{Kind, Store};

/// Leaves or nodes that are put into the store at once: a put waits for the disk.
const PUT_ENTRIES: u32 = 4_096;

/// A folded run.
pub(super) struct Folded {
    /// Claims and root.
    pub(super) reduction: Reduction,
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

/// Nodes on their way out of memory, from whichever thread made them.
struct Made<'a> {
    store: Option<&'a dyn Store>,
    draft: Option<NodeDraft>,
    places: Vec<(KeyRange, Option<NodeRow>)>,
    unput: Vec<([u8; 32], Vec<u8>)>,
}

impl Made<'_> {
    fn take(
        &mut self,
        node: &Node,
        reused: bool,
        row: Option<Vec<u8>>,
    ) -> Result<(), OperatorError> {
        let place = match (&mut self.draft, row) {
            (Some(draft), Some(row)) => Some(draft.add(&row)?),
            _ => None,
        };
        self.places.push((node.range, place));
        if let Some(store) = self.store.filter(|_| !reused) {
            let states = StoredStates {
                states: node.states.clone(),
                unsettled: node.unsettled.clone(),
                cited_total: node.cited_total,
            };
            self.unput
                .push((*node.hashes.fact_hash.as_bytes(), encode(&states)?));
            if self.unput.len() >= PUT_ENTRIES as usize {
                store.put_bytes(Kind::Node, &self.unput)?;
                self.unput.clear();
            }
        }
        Ok(())
    }
}

/// Folds the facts of a run and writes the nodes into its directory.
///
/// # Errors
/// `Store` when what was learnt cannot be written, `Io` when the nodes cannot be; what reading a fact
/// may cause.
pub(super) fn fold(
    plan: &Plan,
    facts: &Facts,
    store: Option<&dyn Store>,
    directory: Option<&mut RunDirectory>,
) -> Result<Folded, OperatorError> {
    let spec = reduce::spec(plan);
    let leaves = &Leaves::arrange(&spec, facts)?;
    let draft = match &directory {
        Some(directory) => Some(directory.draft_nodes()?),
        None => None,
    };
    let drafts = draft.is_some();
    let made = Mutex::new(Ok(Made {
        store,
        draft,
        places: Vec::new(),
        unput: Vec::new(),
    }));
    let sink = |node: &Node, reused: bool| {
        // The fold takes no error from its sink: the first one is kept, and nothing is taken after.
        let record = drafts.then(|| record_node(Vec::new(), node.clone(), leaves));
        let row = record.map(|record| NodeDraft::row_of(&record?)).transpose();
        let mut made = made.lock().unwrap_or_else(|held| held.into_inner());
        let taken = match &mut *made {
            Ok(made) => row.and_then(|row| made.take(node, reused, row)),
            Err(_) => Ok(()),
        };
        if let Err(error) = taken {
            *made = Err(error);
        }
    };
    let reduction = match store {
        Some(store) => reduce::reduce(plan, leaves, &Known(store), &sink)?,
        None => reduce::reduce(plan, leaves, &(), &sink)?,
    };
    let made = made.into_inner().unwrap_or_else(|held| held.into_inner())?;
    if let Some(store) = store {
        remember(store, facts)?;
        store.put_bytes(Kind::Node, &made.unput)?;
    }
    let tree = match &reduction.root {
        Some(root) => {
            let fan_in = leaves.spec().fan_in;
            let (nodes, mut levels) = (made.places.len() as u64, 0);
            let ranges = made.places.iter().map(|(range, _)| (*range, ())).collect();
            visit_paths(ranges, fan_in, |path, ()| {
                levels = levels.max(path.len() as u64);
                Ok(())
            })?;
            Some(TreeSummary {
                hashes: root.hashes,
                fan_in,
                levels,
                nodes,
            })
        }
        None => None,
    };
    if let (Some(directory), Some(draft)) = (directory, made.draft) {
        let rows = made.places.into_iter();
        let rows = rows.filter_map(|(range, row)| Some((range, row?)));
        directory.write_nodes(draft, rows.collect(), leaves.spec().fan_in)?;
    }
    Ok(Folded { reduction, tree })
}

/// Puts the facts that the store does not have, some at a time.
fn remember(store: &dyn Store, facts: &Facts) -> Result<(), OperatorError> {
    let units = u32::try_from(facts.len()).unwrap_or(u32::MAX);
    for start in (0..units).step_by(PUT_ENTRIES as usize) {
        let end = units.min(start.saturating_add(PUT_ENTRIES));
        let leaves = (start..end)
            .into_par_iter()
            .filter_map(|ordinal| facts.get(ordinal))
            .map(|fact| (*Hashes::of(&fact).provenance_hash.as_bytes(), fact))
            .filter(|(key, _)| !store.has(Kind::Fact, key))
            .map(|(key, fact)| Ok((key, encode(&stripped(fact))?)))
            .collect::<Result<Vec<_>, OperatorError>>()?;
        store.put_bytes(Kind::Fact, &leaves)?;
    }
    Ok(())
}

/// The fact without what only this run knows, and without the record's text.
fn stripped(mut fact: Fact) -> Fact {
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
