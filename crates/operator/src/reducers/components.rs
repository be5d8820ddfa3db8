//! Components: which records belong together, from units that were decided pair by pair.
//!
//! Members of a unit that has the joining label are in one component, and so is all that is connected
//! through them. The partition is kept with the smallest id of each component for its root, so that it
//! does not depend on order or shape. Units with another label join nothing; one whose members ended up
//! in one component anyway is dissent, and is named. Too many members are an error, never a cut. Must
//! not know what the label means.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Folded, Ranked, Selection, cite};
use crate::canonical::Canonical;
use crate::error::OperatorError;
use crate::fact::Fact;
use crate::fold::{Leaves, Reducer, UnitRef};
use crate::group::by_id;
use crate::id::UnitId;
use crate::plan::KeySource;

/// Units with another label that are kept, for what they say of components.
const AGAINST_MAX: usize = 65_536;

/// Connects members of units.
#[derive(Debug, Clone)]
pub struct Components {
    /// Which decided facts are looked at.
    pub selection: Selection,
    /// The field that says whether members belong together.
    pub field: String,
    /// The label that joins.
    pub label: String,
    /// Most members of all components together.
    pub keys_max: u32,
    /// Units cited.
    pub cite_max: u32,
}

/// A partition of members, and who would have had it otherwise.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ComponentState {
    /// Units that join.
    pub joining: Ranked,
    /// Whether there were more members, or more units against, than are kept; then none are held.
    pub overflowed: bool,
    /// The smallest member of each member's component, by member.
    pub root_of: BTreeMap<String, String>,
    /// Units that join within a component, by its smallest member.
    pub pairs: BTreeMap<String, u64>,
    /// Units that have another label, by id.
    pub against: BTreeMap<String, Against>,
}

/// A unit that joins nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Against {
    /// The unit.
    pub unit: UnitRef,
    /// Its members.
    pub members: Vec<String>,
}

impl ComponentState {
    /// Writes the state into a hash.
    pub fn encode(&self, canonical: &mut Canonical) {
        self.joining.encode(canonical);
        canonical.bool(self.overflowed).list(self.root_of.len());
        for (member, root) in &self.root_of {
            canonical.text(member).text(root);
        }
        canonical.list(self.pairs.len());
        for (root, pairs) in &self.pairs {
            canonical.text(root).u64(*pairs);
        }
        canonical.list(self.against.len());
        for against in self.against.values() {
            canonical.text(against.unit.id.as_str());
            canonical.list(against.members.len());
            for member in &against.members {
                canonical.text(member);
            }
        }
    }

    pub(super) fn named(&self, max: usize) -> Vec<&UnitRef> {
        self.joining.units().take(max).collect()
    }

    fn overflow(&mut self) {
        self.overflowed = true;
        self.root_of.clear();
        self.pairs.clear();
        self.against.clear();
    }

    /// Units against whose members are all in one component, in the order of their ids.
    fn dissent(&self) -> Vec<&UnitRef> {
        let within = |against: &&Against| {
            let mut roots = against.members.iter().map(|m| self.root_of.get(m));
            let first = roots.next().flatten();
            first.is_some() && roots.all(|root| root == first)
        };
        let mut dissent: Vec<&UnitRef> = self
            .against
            .values()
            .filter(within)
            .map(|against| &against.unit)
            .collect();
        dissent.sort_by(|a, b| by_id(a.id.as_str(), b.id.as_str()));
        dissent
    }
}

impl Components {
    /// Units that the claim cites at most.
    pub const fn cite_max(&self) -> u32 {
        self.cite_max
    }

    /// Writes the parameters into a hash.
    pub fn encode(&self, canonical: &mut Canonical) {
        self.selection.encode(canonical);
        canonical
            .text(&self.field)
            .text(&self.label)
            .u32(self.keys_max)
            .u32(self.cite_max);
    }

    fn check(&self, state: &mut ComponentState) {
        if state.root_of.len() > self.keys_max as usize || state.against.len() > AGAINST_MAX {
            state.overflow();
        }
    }
}

/// Connects what either of two partitions connects; the smallest member stays the root.
fn connect(into: &mut ComponentState, from: &ComponentState) {
    let links = || into.root_of.iter().chain(&from.root_of);
    let mut names: Vec<&String> = links().map(|(member, _)| member).collect();
    names.sort_unstable();
    names.dedup();
    // In the order of names, so that the smallest place is the smallest member.
    let place = |name: &String| names.binary_search(&name).unwrap_or_default();
    let mut root: Vec<usize> = (0..names.len()).collect();
    fn find(root: &mut [usize], mut at: usize) -> usize {
        while root[at] != at {
            root[at] = root[root[at]];
            at = root[at];
        }
        at
    }
    for (member, other) in links() {
        let (one, other) = (place(member), place(other));
        let (one, other) = (find(&mut root, one), find(&mut root, other));
        root[one.max(other)] = one.min(other);
    }
    let mut root_name = |name: &String| names[find(&mut root, place(name))].clone();
    let mut pairs = BTreeMap::new();
    for (name, count) in into.pairs.iter().chain(&from.pairs) {
        *pairs.entry(root_name(name)).or_insert(0) += count;
    }
    let root_of = names
        .iter()
        .map(|name| ((*name).clone(), root_name(name)))
        .collect();
    into.pairs = pairs;
    into.root_of = root_of;
}

impl Reducer for Components {
    type State = ComponentState;
    type Output = Folded;

    fn empty(&self) -> ComponentState {
        ComponentState::default()
    }

    fn absorb(&self, state: &mut ComponentState, unit: &UnitRef, fact: &Fact) -> bool {
        if !self.selection.admits(fact) || fact.members.len() < 2 {
            return false;
        }
        let Some(label) = KeySource::Label(self.field.clone()).read(fact) else {
            return false;
        };
        let members = || fact.members.iter().map(UnitId::to_string);
        let mut one = ComponentState::default();
        if label == self.label {
            one.joining.absorb(0, unit, self.cite_max as usize);
            if let Some(root) = members().min() {
                one.pairs.insert(root.clone(), 1);
                one.root_of = members().map(|member| (member, root.clone())).collect();
            }
        } else {
            let against = Against {
                unit: unit.clone(),
                members: members().collect(),
            };
            one.against.insert(unit.id.to_string(), against);
        }
        self.merge(state, &one);
        true
    }

    fn merge(&self, into: &mut ComponentState, from: &ComponentState) {
        into.joining.merge(&from.joining, self.cite_max as usize);
        if into.overflowed || from.overflowed {
            into.overflow();
            return;
        }
        if !from.root_of.is_empty() {
            connect(into, from);
        }
        let against = from.against.iter();
        into.against
            .extend(against.map(|(id, against)| (id.clone(), against.clone())));
        self.check(into);
    }

    fn finish(&self, state: &ComponentState, leaves: &Leaves<'_>) -> Result<Folded, OperatorError> {
        if state.overflowed {
            return Err(OperatorError::FoldOverflow {
                what: format!("members connected by {}", self.field),
                max: u64::from(self.keys_max),
                cure: "narrow its where, or raise keys_max",
            });
        }
        let mut components: BTreeMap<&String, Vec<&str>> = BTreeMap::new();
        for (member, root) in &state.root_of {
            components.entry(root).or_default().push(member);
        }
        let mut rows: Vec<(&String, Vec<&str>)> = components.into_iter().collect();
        for (_, members) in &mut rows {
            members.sort_by(|a, b| by_id(a, b));
        }
        rows.sort_by(|(_, a), (_, b)| b.len().cmp(&a.len()).then_with(|| by_id(a[0], b[0])));
        let listed: Vec<Value> = rows
            .iter()
            .map(|(root, members)| {
                let pairs = state.pairs.get(*root);
                json!({ "count": members.len(), "pairs": pairs, "members": members })
            })
            .collect();
        let dissent = state.dissent();
        let ids: Vec<&str> = dissent.iter().map(|unit| unit.id.as_str()).collect();
        // Who had it otherwise comes first: it is cited whatever else is.
        let cited = dissent.iter().copied().chain(state.joining.units());
        Ok(Folded {
            count: rows.len() as u64,
            cites: cite(cited, leaves, self.cite_max)?,
            cites_total: state.joining.total + dissent.len() as u64,
            value: json!({ "components": listed, "dissent": ids }),
        })
    }
}
