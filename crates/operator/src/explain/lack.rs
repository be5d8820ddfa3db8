//! What a unit lacks to be counted by a reduction, read off the plan's terms.
//!
//! Empty exactly where the reducer counts the unit. Must not know claims, trees or pages.

use serde::{Deserialize, Serialize};

use crate::column::ColumnValue;
use crate::fact::{Fact, Status};
use crate::plan::{Filter, KeySource, Measure, Operation, Reduce};

/// What a unit would need to count.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "lacks", rename_all = "snake_case")]
pub enum Lack {
    /// It is not decided.
    Decision {
        /// How it ended.
        found: Status,
    },
    /// A field or column is another one.
    Value {
        /// Side of a join; none elsewhere.
        side: Option<String>,
        /// The field or column.
        name: String,
        /// What the claim wants.
        wanted: String,
        /// What the unit has; none where it has no value.
        found: Option<String>,
    },
    /// It has no value for what the claim counts by or measures.
    Measure {
        /// Side of a join; none elsewhere.
        side: Option<String>,
        /// The field or column.
        name: String,
    },
}

/// What the fact lacks to be counted; empty exactly when it is.
pub fn lacks(reduce: &Reduce, fact: &Fact) -> Vec<Lack> {
    match &reduce.op {
        // Named as an outlier: that counts.
        Operation::Clusters { .. } if fact.status == Status::Abstained => Vec::new(),
        Operation::Join { left, right, .. } => {
            let lacks_left =
                side_lacks(Some("left"), &left.filter, Some(Need::Key(&left.key)), fact);
            let lacks_right = side_lacks(
                Some("right"),
                &right.filter,
                Some(Need::Key(&right.key)),
                fact,
            );
            if lacks_left.is_empty() || lacks_right.is_empty() {
                return Vec::new();
            }
            let mut lacks = lacks_left;
            lacks.extend(
                lacks_right
                    .into_iter()
                    .filter(|lack| !matches!(lack, Lack::Decision { .. })),
            );
            lacks
        }
        Operation::Clusters { field, .. } | Operation::Components { field, .. } => {
            let key = KeySource::Label(field.clone());
            side_lacks(None, &reduce.filter, Some(Need::Key(&key)), fact)
        }
        Operation::CountBy { key, .. }
        | Operation::Set { key: Some(key), .. }
        | Operation::TopKeys { key, .. }
        | Operation::HeavyHitters { key, .. } => {
            side_lacks(None, &reduce.filter, Some(Need::Key(key)), fact)
        }
        Operation::Distinct(column) => {
            let key = KeySource::Column(column.clone());
            side_lacks(None, &reduce.filter, Some(Need::Key(&key)), fact)
        }
        Operation::TopK { by, .. } | Operation::Histogram { by, .. } => {
            side_lacks(None, &reduce.filter, Some(Need::Number(by)), fact)
        }
        Operation::Min(column)
        | Operation::Max(column)
        | Operation::Sum(column)
        | Operation::Mean(column)
        | Operation::Quantiles { column, .. } => {
            let measure = Measure::Column(column.clone());
            side_lacks(None, &reduce.filter, Some(Need::Number(&measure)), fact)
        }
        Operation::Count | Operation::Set { key: None, .. } | Operation::Summary { .. } => {
            side_lacks(None, &reduce.filter, None, fact)
        }
    }
}

/// What a reduction reads besides its filter.
pub(super) enum Need<'a> {
    Key(&'a KeySource),
    Number(&'a Measure),
}

pub(super) fn side_lacks(
    side: Option<&str>,
    filter: &Filter,
    need: Option<Need<'_>>,
    fact: &Fact,
) -> Vec<Lack> {
    if fact.status != Status::Decided {
        return vec![Lack::Decision { found: fact.status }];
    }
    let side = side.map(str::to_owned);
    let labels = filter.labels.iter().map(|(field, wanted)| {
        let found = fact.values.get(field).map(|value| value.label.clone());
        (field, wanted, found)
    });
    let columns = filter.columns.iter().map(|(name, wanted)| {
        let found = fact.columns.get(name).map(|value| match value {
            ColumnValue::Text(text) => text.clone(),
            ColumnValue::Integer(integer) => integer.to_string(),
        });
        (name, wanted, found)
    });
    let mut lacks: Vec<Lack> = labels
        .chain(columns)
        .filter(|(_, wanted, found)| found.as_ref() != Some(*wanted))
        .map(|(name, wanted, found)| Lack::Value {
            side: side.clone(),
            name: name.clone(),
            wanted: wanted.clone(),
            found,
        })
        .collect();
    let missing = match need {
        Some(Need::Key(key)) => key.read(fact).is_none().then(|| key.name()),
        Some(Need::Number(measure)) => measure.read(fact).is_none().then(|| measure.name()),
        None => None,
    };
    lacks.extend(missing.map(|name| Lack::Measure {
        side,
        name: name.to_owned(),
    }));
    lacks
}
