//! Semantic clusters: how many units each label of a versioned taxonomy got, and who stands apart.
//!
//! Clustering has two phases. The taxonomy is fixed first, as the labels of a field; then every
//! record is classified by an ordinary, remembered map stage. What is left for the fold is exact:
//! each decided unit is in exactly one cluster or among the unclustered; exemplars are the surest
//! units of each cluster; dissenting units and abstentions are named one by one and cannot
//! disappear: too many to name is an error, never a silent cut. Whether the clusters are *good* is
//! a question for labels, not for a fold.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Folded, Groups, Ranked, Selection, cite};
use crate::canonical::Canonical;
use crate::error::OperatorError;
use crate::fact::{Fact, Status};
use crate::fold::{Leaves, Reducer, UnitRef};
use crate::plan::{KeySource, Measure};

/// Counts units per cluster, with exemplars and named outliers.
#[derive(Debug, Clone)]
pub struct Clusters {
    /// Which decided facts are clustered.
    pub selection: Selection,
    /// The field whose labels are the taxonomy.
    pub field: String,
    /// Version of the taxonomy.
    pub taxonomy: String,
    /// The labels, in plan order.
    pub labels: Vec<String>,
    /// The label that stands for "none of these".
    pub unclustered: Option<String>,
    /// Labels whose units are named one by one.
    pub dissent: Vec<String>,
    /// Exemplars per cluster.
    pub exemplars: u32,
    /// Most outliers of a kind; more is an error.
    pub outliers_max: u32,
    /// Units cited in all.
    pub cite_max: u32,
}

/// Units per cluster and the outliers, all of them named.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterState {
    /// Units by label, the surest first.
    pub clusters: Groups,
    /// Dissenting units in key order.
    pub dissent: Ranked,
    /// Abstaining units in key order.
    pub abstained: Ranked,
}

impl ClusterState {
    /// Writes the state into a hash.
    pub fn encode(&self, canonical: &mut Canonical) {
        self.clusters.encode(canonical);
        self.dissent.encode(canonical);
        self.abstained.encode(canonical);
    }

    /// Outliers come first: they must be cited whatever else is.
    pub(super) fn named(&self, max: usize) -> Vec<&UnitRef> {
        let keys = self.clusters.groups.keys().map(String::as_str);
        let outliers = self.dissent.units().chain(self.abstained.units());
        let units = outliers.chain(self.clusters.in_turn(keys, max));
        let mut named: Vec<&UnitRef> = Vec::new();
        for unit in units {
            if named.len() < max && !named.contains(&unit) {
                named.push(unit);
            }
        }
        named
    }
}

impl Clusters {
    /// Units that the claim cites at most.
    pub const fn cite_max(&self) -> u32 {
        self.cite_max
    }

    /// Writes the parameters into a hash.
    pub fn encode(&self, canonical: &mut Canonical) {
        self.selection.encode(canonical);
        canonical.text(&self.field).text(&self.taxonomy);
        for labels in [&self.labels, &self.dissent] {
            canonical.list(labels.len());
            for label in labels {
                canonical.text(label);
            }
        }
        canonical
            .optional_text(self.unclustered.as_deref())
            .u32(self.exemplars)
            .u32(self.outliers_max)
            .u32(self.cite_max);
    }

    /// Room for one more than allowed, so that a state past the bound can be told from a full one.
    fn outliers_kept(&self) -> usize {
        self.outliers_max as usize + 1
    }

    fn outliers(&self, what: &str, units: &Ranked) -> Result<Vec<Value>, OperatorError> {
        if units.total > u64::from(self.outliers_max) {
            return Err(OperatorError::FoldOverflow {
                what: format!("{what} units of {}", self.field),
                max: u64::from(self.outliers_max),
                cure: "raise outliers_max under [fold]: outliers are named or nothing is answered",
            });
        }
        Ok(units
            .units()
            .map(|unit| Value::from(unit.id.as_str()))
            .collect())
    }
}

impl Reducer for Clusters {
    type State = ClusterState;
    type Output = Folded;

    fn empty(&self) -> ClusterState {
        ClusterState::default()
    }

    fn absorb(&self, state: &mut ClusterState, unit: &UnitRef, fact: &Fact) -> bool {
        if fact.status == Status::Abstained {
            state.abstained.absorb(0, unit, self.outliers_kept());
            return true;
        }
        if !self.selection.admits(fact) {
            return false;
        }
        let field = self.field.clone();
        let Some(label) = KeySource::Label(field.clone()).read(fact) else {
            return false;
        };
        let sure = Measure::Probability { field, label: None }.read(fact);
        let rank = !sure.unwrap_or(0);
        let exemplars = self.exemplars as usize;
        state
            .clusters
            .absorb(&label, rank, unit, exemplars, usize::MAX);
        if self.dissent.iter().any(|dissent| *dissent == label) {
            state.dissent.absorb(0, unit, self.outliers_kept());
        }
        true
    }

    fn merge(&self, into: &mut ClusterState, from: &ClusterState) {
        let exemplars = self.exemplars as usize;
        into.clusters.merge(&from.clusters, exemplars, usize::MAX);
        into.dissent.merge(&from.dissent, self.outliers_kept());
        into.abstained.merge(&from.abstained, self.outliers_kept());
    }

    fn finish(&self, state: &ClusterState, leaves: &Leaves<'_>) -> Result<Folded, OperatorError> {
        let rows: Vec<Value> = self
            .labels
            .iter()
            .filter(|label| Some(*label) != self.unclustered.as_ref())
            .map(|label| {
                let exemplars: Vec<&str> = state
                    .clusters
                    .get(label)
                    .into_iter()
                    .flat_map(Ranked::units)
                    .map(|unit| unit.id.as_str())
                    .collect();
                json!({
                    "label": label,
                    "count": state.clusters.count(label),
                    "exemplars": exemplars,
                })
            })
            .collect();
        let unclustered = self.unclustered.as_ref();
        let value = json!({
            "taxonomy": self.taxonomy,
            "clusters": rows,
            "unclustered": unclustered.map_or(0, |label| state.clusters.count(label)),
            "dissent": self.outliers("dissenting", &state.dissent)?,
            "abstained": self.outliers("abstaining", &state.abstained)?,
        });
        Ok(Folded {
            value,
            count: state.clusters.total,
            cites: cite(state.named(self.cite_max as usize), leaves, self.cite_max)?,
            cites_total: state.clusters.total + state.abstained.total,
        })
    }
}
