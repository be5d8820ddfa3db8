//! A forger's tools: after a change every hash is made to fit, so that only content can tell.

use std::collections::HashMap;

use operator::fact::Fact;
use operator::fold::{Child, FoldSpec, Hashes, hash_inputs, hash_node};
use operator::id::UnitId;
use operator::ops::reduce::spec;
use operator::selfcheck::Artifact;

use super::plan;

/// Seals an artifact again: leaves, nodes up to the root, the answer and the witness.
pub fn reseal(artifact: &mut Artifact) {
    let spec: FoldSpec = spec(&plan());
    let facts: HashMap<UnitId, Hashes> = artifact
        .facts
        .iter()
        .map(|fact: &Fact| (fact.unit_id.clone(), Hashes::of(fact)))
        .collect();
    let mut sealed = HashMap::new();
    for record in artifact.nodes.iter_mut().rev() {
        for child in &mut record.node.children {
            match child {
                Child::Leaf { unit, hashes } => *hashes = *facts.get(&unit.id).unwrap_or(hashes),
                Child::Node { range, hashes } => {
                    *hashes = *sealed.get(&(range.start, range.height)).unwrap_or(hashes);
                }
            }
        }
        let node = &mut record.node;
        node.hashes.fact_hash = hash_inputs(&spec, node.range, &node.children);
        node.hashes.provenance_hash = hash_node(node);
        let range = record.node.range;
        sealed.insert((range.start, range.height), record.node.hashes);
    }
    if let (Some(tree), Some(root)) = (&mut artifact.answer.tree, artifact.nodes.first()) {
        tree.hashes = root.node.hashes;
    }
    artifact.answer.result_hash = artifact.answer.hash_result();
    artifact.witness.result_hash = artifact.answer.result_hash;
    for (_, hash) in &mut artifact.witness.variants {
        *hash = artifact.answer.result_hash;
    }
}

#[test]
fn resealing_what_was_not_changed_changes_nothing() {
    let mut artifact = super::ARTIFACT.clone();
    reseal(&mut artifact);
    assert!(artifact == *super::ARTIFACT);
}
