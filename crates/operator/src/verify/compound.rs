//! What joins and clusters conclude, which put several groups together.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::conclusions::{Stated, overflow, owned};
use super::states::{in_turn, listed};
use crate::coverage::Counts;
use crate::fold::UnitRef;
use crate::plan::JoinKind;
use crate::reducers::{ClusterState, Groups, JoinState, Ranked};

const MORE_OUTLIERS: &str =
    "raise outliers_max under [fold]: outliers are named or nothing is answered";

pub(super) fn join(
    kind: JoinKind,
    sides: &JoinState,
    counts: Counts,
    most: usize,
) -> Result<Stated, String> {
    let missing = counts.errored + counts.cancelled + counts.not_run;
    if kind != JoinKind::Inner && missing > 0 {
        return Err(format!(
            "a join that names keys without a partner needs every unit, and {missing} of {} have \
             no answer; run them, or ask for an inner join",
            counts.units
        ));
    }
    let units = |side: &Groups, key: &str| side.groups.get(key).map_or(0, |units| units.total);
    let keys: BTreeSet<&String> = match kind {
        JoinKind::Outer | JoinKind::Inner => sides
            .left
            .groups
            .keys()
            .chain(sides.right.groups.keys())
            .collect(),
        JoinKind::Anti => sides.left.groups.keys().collect(),
    };
    let keys: Vec<&String> = keys
        .into_iter()
        .filter(|key| {
            let both = units(&sides.left, key) > 0 && units(&sides.right, key) > 0;
            match kind {
                JoinKind::Inner => both,
                JoinKind::Outer => true,
                JoinKind::Anti => !both,
            }
        })
        .collect();
    let rows: Vec<Value> = keys
        .iter()
        .map(|key| {
            let (left, right) = (units(&sides.left, key), units(&sides.right, key));
            let pairs = left.saturating_mul(right);
            json!({ "label": key, "left": left, "right": right, "pairs": pairs })
        })
        .collect();
    let of = |side: &Groups| -> Vec<UnitRef> {
        let mut units = owned(in_turn(keys.iter().filter_map(|key| side.groups.get(*key))));
        units.truncate(most);
        units
    };
    let total = |side: &Groups| -> u64 { keys.iter().map(|key| units(side, key)).sum() };
    Ok(Stated {
        count: rows.len() as u64,
        value: Value::Array(rows),
        units: [of(&sides.left), of(&sides.right)].concat(),
        total: total(&sides.left) + total(&sides.right),
    })
}

/// What a plan says of its clusters.
pub(super) struct Taxonomy<'a> {
    pub(super) field: &'a str,
    pub(super) labels: &'a [String],
    pub(super) version: &'a str,
    pub(super) unclustered: Option<&'a str>,
    pub(super) outliers_max: u32,
}

pub(super) fn clusters(
    taxonomy: &Taxonomy<'_>,
    held: &ClusterState,
    cited: Vec<&UnitRef>,
) -> Result<Stated, String> {
    let ids = |units: &Ranked| -> Vec<String> {
        listed(units)
            .into_iter()
            .map(|unit| unit.id.to_string())
            .collect()
    };
    for (what, units) in [
        ("dissenting", &held.dissent),
        ("abstaining", &held.abstained),
    ] {
        if units.total > u64::from(taxonomy.outliers_max) {
            let what = format!("{what} units of {}", taxonomy.field);
            return Err(overflow(&what, taxonomy.outliers_max, MORE_OUTLIERS));
        }
    }
    let none = Ranked::default();
    let of = |label: &str| held.clusters.groups.get(label).unwrap_or(&none);
    let rows: Vec<Value> = taxonomy
        .labels
        .iter()
        .filter(|label| Some(label.as_str()) != taxonomy.unclustered)
        .map(|label| {
            let units = of(label);
            json!({ "label": label, "count": units.total, "exemplars": ids(units) })
        })
        .collect();
    Ok(Stated {
        value: json!({
            "taxonomy": taxonomy.version,
            "clusters": rows,
            "unclustered": taxonomy.unclustered.map_or(0, |label| of(label).total),
            "dissent": ids(&held.dissent),
            "abstained": ids(&held.abstained),
        }),
        count: held.clusters.total,
        units: owned(cited),
        total: held.clusters.total + held.abstained.total,
    })
}
