//! Nodes as records: one row of `nodes.jsonl` per node, each telling the whole of its provenance.
//!
//! A record adds to a node what only its surroundings tell: the path from the root, and for each
//! unit that it names the source hash and the span. Quotes are left to `facts.jsonl`; the records
//! hold their hashes.

use std::cmp::Reverse;
use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::{Child, KeyRange, Leaves, Node};
use crate::error::OperatorError;
use crate::fact::Cite;
use crate::id::ContentHash;
use crate::reducers::cite;

/// One row of `nodes.jsonl`; every column always present.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRecord {
    /// Ranges from the root down to the node itself.
    pub path: Vec<KeyRange>,
    /// The node.
    #[serde(flatten)]
    pub node: Node,
    /// Sources of the units that the node cites, without quotes; `cited_total` could be.
    pub citations: Vec<Cite>,
}

/// Makes the records of a tree, parents before children, in key order.
///
/// # Errors
/// What reading a fact may cause.
///
/// # Panics
/// If a node below the root is not among `nodes`.
pub fn record_nodes(
    root: &Node,
    nodes: impl IntoIterator<Item = Node>,
    leaves: &Leaves<'_>,
) -> Result<Vec<NodeRecord>, OperatorError> {
    let mut nodes: HashMap<ContentHash, Node> = nodes
        .into_iter()
        .map(|node| (node.hashes.provenance_hash, node))
        .collect();
    let mut records = Vec::with_capacity(nodes.len());
    let mut open = vec![(root.hashes.provenance_hash, Vec::new())];
    while let Some((hash, above)) = open.pop() {
        let Some(node) = nodes.remove(&hash) else {
            panic!("node {hash} is named by its parent and was never made");
        };
        let mut path: Vec<KeyRange> = above;
        path.push(node.range);
        for child in node.children.iter().rev() {
            if let Child::Node { hashes, .. } = child {
                open.push((hashes.provenance_hash, path.clone()));
            }
        }
        records.push(record_node(path, node, leaves)?);
    }
    Ok(records)
}

/// Makes the record of one node.
///
/// # Errors
/// What reading a fact may cause.
pub fn record_node(
    path: Vec<KeyRange>,
    node: Node,
    leaves: &Leaves<'_>,
) -> Result<NodeRecord, OperatorError> {
    let mut citations = cite(node.cited(leaves.spec()), leaves, u32::MAX)?;
    for span in citations
        .iter_mut()
        .flat_map(|cite| cite.span.iter_mut().chain(&mut cite.also))
    {
        span.quote = None;
    }
    Ok(NodeRecord {
        path,
        node,
        citations,
    })
}

/// Visits what is kept of each node of one tree with the ranges from the root down to it, parents
/// before children, in key order: the order of [`record_nodes`] without the nodes.
///
/// # Errors
/// What the visitor returns.
pub fn visit_paths<T>(
    mut nodes: Vec<(KeyRange, T)>,
    fan_in: u32,
    mut visitor: impl FnMut(&[KeyRange], T) -> Result<(), OperatorError>,
) -> Result<(), OperatorError> {
    // A node's range begins where that of its first child does, and is the wider of the two.
    nodes.sort_by_key(|(range, _)| (range.start, Reverse(range.height)));
    let mut path: Vec<KeyRange> = Vec::new();
    for (range, kept) in nodes {
        while path
            .last()
            .is_some_and(|above| !above.holds(range.start, fan_in))
        {
            path.pop();
        }
        path.push(range);
        visitor(&path, kept)?;
    }
    Ok(())
}
