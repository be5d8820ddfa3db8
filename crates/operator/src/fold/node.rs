//! A node of the tree: what is known of the units in a range of keys, and which bytes that rests on.
//!
//! Two hashes are kept apart. The *fact hash* names the decisions below the node and the reducers,
//! and thereby the states; the *provenance hash* names also the states as they were written, and
//! every source byte. A source edit that changes no decision therefore leaves all fact hashes, and
//! with them every folded state, as they were. Cost is beside both: it differs from run to run. Must not know how nodes are found.

use serde::{Deserialize, Serialize};

use super::{FoldSpec, KeyRange, LeafKey, UnitRef};
use crate::canonical::Canonical;
use crate::coverage::Coverage;
use crate::fact::Fact;
use crate::id::ContentHash;
use crate::infer::UnitUsage;
use crate::plan::FoldKey;
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
    /// The first key that the child may speak for.
    pub const fn start(&self) -> LeafKey {
        match self {
            Self::Leaf { unit, .. } => unit.key,
            Self::Node { range, .. } => range.start,
        }
    }

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
    /// Units below that back some state, named or not.
    pub cited_total: u64,
    /// What computing the answers below cost when they were computed.
    pub cost: UnitUsage,
    /// Names the decisions below and the states.
    #[serde(flatten)]
    pub hashes: Hashes,
}

impl Node {
    /// The units that the claims of this node would cite, at most `CITES_MAX`: the first of each
    /// state in turn, then the second, and so on.
    pub fn cited(&self, spec: &FoldSpec) -> Vec<&UnitRef> {
        let named = spec.reducers.iter().zip(&self.states);
        let named: Vec<Vec<&UnitRef>> = named
            .map(|(reducer, state)| state.named(reducer.cite_max() as usize))
            .collect();
        let most = named.iter().map(Vec::len).max().unwrap_or(0);
        let mut cited: Vec<&UnitRef> = Vec::with_capacity(most);
        for place in 0..most {
            for unit in named.iter().filter_map(|units| units.get(place)) {
                if cited.len() < CITES_MAX && cited.iter().all(|known| known.key != unit.key) {
                    cited.push(unit);
                }
            }
        }
        cited
    }
}

/// The fact hash of a node: it names the inputs, which determine the states. Known before the states
/// are, it is what they are looked up by.
pub fn hash_inputs(spec: &FoldSpec, range: KeyRange, children: &[Child]) -> ContentHash {
    let mut canonical = Canonical::new("operator 2026 fold node v1");
    canonical
        .bytes(spec.hash().as_bytes())
        .u32(spec.fan_in)
        .u128(range.start.get())
        .u32(range.height)
        // A leaf's hash and a node's are of different domains: which is which need not be said.
        .hashes(children.iter().map(|child| &child.hashes().fact_hash));
    // An id tells its own key; a position does not, and states name units with their keys.
    if spec.key == FoldKey::Ordinal {
        for child in children {
            canonical.u128(child.start().get());
        }
    }
    ContentHash::of(&canonical)
}

/// The provenance hash of a node: what came out, and every source byte that went in. The node's own
/// hashes and its cost are left out.
pub fn hash_node(node: &Node) -> ContentHash {
    let mut canonical = Canonical::new("operator 2026 fold provenance v1");
    let below = node.children.iter();
    canonical
        .bytes(node.hashes.fact_hash.as_bytes())
        .hashes(below.map(|child| &child.hashes().provenance_hash))
        .u32(node.version);
    node.coverage.encode(&mut canonical);
    canonical.list(node.states.len());
    for state in &node.states {
        state.encode(&mut canonical);
    }
    node.unsettled.encode(&mut canonical);
    canonical.u64(node.cited_total);
    ContentHash::of(&canonical)
}
