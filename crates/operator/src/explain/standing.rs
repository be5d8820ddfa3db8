//! How a unit stands to a claim: whether it counts, as what, and whether it is cited.
//!
//! Whether a unit counts is asked of the reducer itself. Must not know trees or pages.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::lack::{Lack, Need, lacks, side_lacks};
use crate::answer::Claim;
use crate::fact::{Fact, Status};
use crate::fold::{FoldSpec, Reducer};
use crate::ops::reduce::aggregate;
use crate::plan::{KeySource, Operation, Plan, Reduce};

/// A unit beside a claim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    /// Name of the claim.
    pub claim: String,
    /// Its operation as a plan spells it.
    pub op: String,
    /// Its statement.
    pub text: String,
    /// Whether the unit went into the value.
    pub counted: bool,
    /// Its place among the claim's citations, from 1.
    pub cited: Option<u64>,
    /// Citations of the claim.
    pub cites: u64,
    /// Units that could have been cited.
    pub cites_total: u64,
    /// As what it went in, or is named in the value.
    pub roles: Vec<Role>,
    /// Why it does not count; empty when it does.
    pub lacks: Vec<Lack>,
    /// Claims from which a model wrote this one; empty when code folded it.
    pub written_from: Vec<String>,
}

/// What a claim makes of a unit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "as", rename_all = "snake_case")]
pub enum Role {
    /// It is listed.
    Listed,
    /// It is among the best.
    Ranked {
        /// Place, from 1.
        place: u64,
    },
    /// It is on this side of a join.
    Side {
        /// `left` or `right`.
        side: String,
    },
    /// It carries this key.
    Key {
        /// The key.
        key: String,
    },
    /// It stands for a cluster.
    Exemplar {
        /// The cluster.
        cluster: String,
    },
    /// It belongs to no cluster.
    Unclustered,
    /// It is named for it dissents.
    Dissent,
    /// It is named for it abstained.
    Abstention,
}

/// Finds how a unit stands to every claim, in the order of the claims.
pub fn standings(plan: &Plan, spec: &FoldSpec, claims: &[Claim], fact: &Fact) -> Vec<Standing> {
    claims
        .iter()
        .map(|claim| {
            let reduce = plan.reduces.iter().find(|reduce| reduce.name == claim.name);
            stand(plan, spec, reduce, claim, fact)
        })
        .collect()
}

/// Whether the reduction counts the fact; never so for a summary, which no code folds.
pub fn counts(plan: &Plan, spec: &FoldSpec, reduce: &Reduce, fact: &Fact) -> bool {
    aggregate(plan, reduce).is_some_and(|reducer| {
        let unit = spec.place(fact);
        reducer.absorb(&mut reducer.empty(), &unit, fact)
    })
}

fn stand(
    plan: &Plan,
    spec: &FoldSpec,
    reduce: Option<&Reduce>,
    claim: &Claim,
    fact: &Fact,
) -> Standing {
    let cited = claim
        .cites
        .iter()
        .position(|cite| cite.unit_id == fact.unit_id);
    let counted = reduce.is_some_and(|reduce| counts(plan, spec, reduce, fact));
    let written_from = match reduce.map(|reduce| &reduce.op) {
        Some(Operation::Summary { of, .. }) => of.clone(),
        _ => Vec::new(),
    };
    let lacks = match reduce {
        Some(reduce) if !counted && written_from.is_empty() => lacks(reduce, fact),
        _ => Vec::new(),
    };
    Standing {
        claim: claim.name.clone(),
        op: reduce.map_or_else(String::new, |reduce| reduce.op.as_str().to_owned()),
        text: claim.text.clone(),
        counted,
        cited: cited.map(|place| place as u64 + 1),
        cites: claim.cites.len() as u64,
        cites_total: claim.cites_total,
        roles: match reduce {
            Some(reduce) if counted => roles(reduce, claim, fact),
            _ => Vec::new(),
        },
        lacks,
        written_from,
    }
}

/// As what a counted unit went in, and where the claim's value names it.
fn roles(reduce: &Reduce, claim: &Claim, fact: &Fact) -> Vec<Role> {
    let id = fact.unit_id.as_str();
    let names = |value: &Value| {
        let items = value.as_array().into_iter().flatten();
        items.filter_map(Value::as_str).any(|unit| unit == id)
    };
    let key = |key: &KeySource| {
        key.read(fact).map(|key| Role::Key {
            key: key.into_owned(),
        })
    };
    match &reduce.op {
        Operation::Set { key: None, .. } => names(&claim.value)
            .then_some(Role::Listed)
            .into_iter()
            .collect(),
        Operation::TopK { .. } => {
            let rows = claim.value.as_array().into_iter().flatten();
            let place = (1..).zip(rows).find(|(_, row)| row["unit_id"] == id);
            place
                .map(|(place, _)| Role::Ranked { place })
                .into_iter()
                .collect()
        }
        Operation::Join { left, right, .. } => [("left", left), ("right", right)]
            .into_iter()
            .filter(|(_, side)| {
                side_lacks(None, &side.filter, Some(Need::Key(&side.key)), fact).is_empty()
            })
            .flat_map(|(name, side)| {
                let side_role = Role::Side {
                    side: name.to_owned(),
                };
                [Some(side_role), key(&side.key)]
            })
            .flatten()
            .collect(),
        Operation::CountBy { key: source, .. }
        | Operation::Set {
            key: Some(source), ..
        }
        | Operation::TopKeys { key: source, .. }
        | Operation::HeavyHitters { key: source, .. } => key(source).into_iter().collect(),
        Operation::Distinct(column) => key(&KeySource::Column(column.clone()))
            .into_iter()
            .collect(),
        Operation::Clusters {
            field, unclustered, ..
        } => {
            let mut roles = Vec::new();
            let label = fact.values.get(field).map(|value| value.label.as_str());
            if fact.status == Status::Decided
                && let Some(label) = label
            {
                if unclustered.as_deref() == Some(label) {
                    roles.push(Role::Unclustered);
                } else {
                    roles.push(Role::Key {
                        key: label.to_owned(),
                    });
                }
            }
            let clusters = claim.value["clusters"].as_array().into_iter().flatten();
            roles.extend(clusters.filter(|row| names(&row["exemplars"])).map(|row| {
                Role::Exemplar {
                    cluster: row["label"].as_str().unwrap_or_default().to_owned(),
                }
            }));
            roles.extend(names(&claim.value["dissent"]).then_some(Role::Dissent));
            roles.extend(names(&claim.value["abstained"]).then_some(Role::Abstention));
            roles
        }
        Operation::Components { field, .. } => {
            let mut roles: Vec<Role> = key(&KeySource::Label(field.clone())).into_iter().collect();
            roles.extend(names(&claim.value["dissent"]).then_some(Role::Dissent));
            roles
        }
        _ => Vec::new(),
    }
}
