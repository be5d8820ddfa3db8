//! A node of the tree: what is known of the units in a range of keys, and which bytes that rests on.
//!
//! Two hashes are kept apart. The *fact hash* names what was decided below the node and what the
//! reducers made of it; the *provenance hash* also names every source byte. A source edit that
//! changes no decision therefore leaves all fact hashes, and with them every folded state, as they
//! were. Cost is beside both: it differs from run to run. Must not know how nodes are found.

use serde::{Deserialize, Serialize};

use super::{FoldSpec, KeyRange, UnitRef};
use crate::canonical::Canonical;
use crate::coverage::Coverage;
use crate::fact::Fact;
use crate::id::ContentHash;
use crate::infer::UnitUsage;
use crate::reducers::{AggregateState, Ranked};

/// Version of the node's format and of how nodes are hashed.
pub const NODE_VERSION: u32 = 1;

/// Most units that one node cites; the total stands beside them.
pub const CITES_MAX: usize = 64;

/// The two hashes of a leaf or node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Hashes {
    /// Names the decisions.
    pub fact_hash: ContentHash,
    /// Names the decisions and the bytes that they were made from.
    pub provenance_hash: ContentHash,
}

impl Hashes {
    /// Stands in a node until its hashes are computed.
    pub(super) const NONE: Self = Self {
        fact_hash: ContentHash::from_bytes([0; 32]),
        provenance_hash: ContentHash::from_bytes([0; 32]),
    };

    /// The hashes of a fact, which are those of its leaf.
    pub fn of(fact: &Fact) -> Self {
        let fact_hash = fact.fact_hash();
        Self {
            fact_hash,
            provenance_hash: fact.provenance_hash_under(fact_hash),
        }
    }
}

/// What a node was made from: one of its at most `fan_in` inputs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Child {
    /// The fact of one unit.
    Leaf {
        /// The unit.
        unit: UnitRef,
        /// Its fact's hashes.
        #[serde(flatten)]
        hashes: Hashes,
    },
    /// A node over a part of the range.
    Node {
        /// Its range.
        range: KeyRange,
        /// Its hashes.
        #[serde(flatten)]
        hashes: Hashes,
    },
}

impl Child {
    /// The child's hashes.
    pub const fn hashes(&self) -> &Hashes {
        match self {
            Self::Leaf { hashes, .. } | Self::Node { hashes, .. } => hashes,
        }
    }
}

/// An inner node of the tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Format, `NODE_VERSION`.
    pub version: u32,
    /// Names the reducers, their versions and parameters.
    pub spec: ContentHash,
    /// Keys that the node speaks for.
    pub range: KeyRange,
    /// Inputs in key order: two at least, `fan_in` at most, but for the root of a single leaf.
    pub children: Vec<Child>,
    /// Units below, counted per status.
    pub coverage: Coverage,
    /// One state per reducer, in plan order.
    pub states: Vec<AggregateState>,
    /// Units below that abstained or errored, named up to the cap.
    pub unsettled: Ranked,
    /// Units that the states name, in plan order, at most `CITES_MAX`; each has its source below.
    pub cited: Vec<UnitRef>,
    /// Units below that back some state, named or not.
    pub cited_total: u64,
    /// What computing the answers below cost when they were computed.
    pub cost: UnitUsage,
    /// Names the decisions below and the states.
    #[serde(flatten)]
    pub hashes: Hashes,
}

/// Names the inputs of a node before its states are known: equal inputs have equal states, which
/// can then be looked up instead of computed.
pub fn input_key(spec: &FoldSpec, range: KeyRange, children: &[Child]) -> ContentHash {
    let mut canonical = Canonical::new("operator 2026 fold inputs v1");
    encode_inputs(&mut canonical, spec, range, children);
    ContentHash::of(&canonical)
}

fn encode_inputs(canonical: &mut Canonical, spec: &FoldSpec, range: KeyRange, children: &[Child]) {
    canonical
        .u32(NODE_VERSION)
        .bytes(spec.hash().as_bytes())
        .u32(spec.fan_in)
        .bytes(&range.start.get().to_le_bytes())
        .u32(range.height)
        .list(children.len());
    for child in children {
        canonical
            .bool(matches!(child, Child::Leaf { .. }))
            .bytes(child.hashes().fact_hash.as_bytes());
    }
}

/// Hashes a node: what went in, and what came out. The node's own hashes and its cost are left out.
pub fn hash_node(spec: &FoldSpec, node: &Node) -> Hashes {
    let mut canonical = Canonical::new("operator 2026 fold node v1");
    encode_inputs(&mut canonical, spec, node.range, &node.children);
    node.coverage.encode(&mut canonical);
    canonical.list(node.states.len());
    for state in &node.states {
        state.encode(&mut canonical);
    }
    node.unsettled.encode(&mut canonical);
    canonical.u64(node.cited_total).list(node.cited.len());
    for unit in &node.cited {
        canonical.text(unit.id.as_str());
    }
    let fact_hash = ContentHash::of(&canonical);
    let mut canonical = Canonical::new("operator 2026 fold provenance v1");
    canonical
        .bytes(fact_hash.as_bytes())
        .list(node.children.len());
    for child in &node.children {
        canonical.bytes(child.hashes().provenance_hash.as_bytes());
    }
    Hashes {
        fact_hash,
        provenance_hash: ContentHash::of(&canonical),
    }
}
