//! Whose turn it is to be asked.
//!
//! Turns order the asking alone; facts stay in source order. Must not know what was answered.

use crate::canonical::Canonical;
use crate::fact::Fact;
use crate::fold::LeafKey;
use crate::group;
use crate::id::{ContentHash, UnitId};
use crate::plan::{ColumnRef, FoldKey, KeySource, Measure, Order, Plan, Reduce, Rule};

/// A unit's turn; smaller ones come first, and no two are equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Turn {
    /// As it stands in the source.
    Plain(u32),
    /// By its bound.
    Bounded(Bound, u32),
    /// After all that have a bound: it has none.
    Unbounded(u32),
    /// Drawn from a seed.
    Drawn([u8; 32], u32),
}

/// A place among the best; smaller ones are better.
///
/// The total order is that of the reducer: the number turned so that the best comes first, then the key
/// of the leaf.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Bound {
    pub(crate) rank: i64,
    pub(crate) key: LeafKey,
}

/// How a plan orders its units.
pub(crate) enum Ordering<'p> {
    Plain,
    Bounded {
        reduce: &'p Reduce,
        by: &'p Measure,
        order: Order,
        key: FoldKey,
    },
    Drawn(&'p str),
}

impl<'p> Ordering<'p> {
    pub(crate) fn of(plan: &'p Plan) -> Self {
        let rules = plan.control.stop.iter();
        let mut found = rules.filter_map(|rule| match &rule.rule {
            Rule::Confidence { seed, .. } => Some(Self::Drawn(seed)),
            Rule::TopK => {
                let (reduce, by, _, order) = plan.ranking(&rule.reduce)?;
                let key = plan.fold.key;
                Some(Self::Bounded {
                    reduce,
                    by,
                    order,
                    key,
                })
            }
            Rule::Threshold { .. } | Rule::Examples { .. } => None,
        });
        // A plan has at most one rule that orders.
        found.next().unwrap_or(Self::Plain)
    }

    /// The turn of a unit by its fact, decided or not: only id, position and columns are looked at.
    pub(crate) fn turn(&self, fact: &Fact) -> Turn {
        match self {
            Self::Plain => Turn::Plain(fact.ordinal),
            Self::Drawn(seed) => Turn::Drawn(draw(seed, &fact.unit_id), fact.ordinal),
            Self::Bounded {
                reduce,
                by,
                order,
                key,
            } => match bound(reduce, by, *order, *key, fact) {
                Some(bound) => Turn::Bounded(bound, fact.ordinal),
                None => Turn::Unbounded(fact.ordinal),
            },
        }
    }
}

/// A unit's place among the best, were it decided as the reduction wants it; none where its columns
/// alone keep it out.
pub(crate) fn bound(
    reduce: &Reduce,
    by: &Measure,
    order: Order,
    key: FoldKey,
    fact: &Fact,
) -> Option<Bound> {
    let carries = |(name, text): (&String, &String)| {
        let column = KeySource::Column(ColumnRef {
            name: name.clone(),
            kind: crate::column::ColumnType::Text,
        });
        column.read(fact).is_some_and(|found| found == *text)
    };
    if !reduce.filter.columns.iter().all(carries) {
        return None;
    }
    let number = by.read(fact)?;
    Some(Bound {
        rank: match order {
            Order::Largest => !number,
            Order::Smallest => number,
        },
        key: match key {
            FoldKey::Id => LeafKey::of_id(&fact.unit_id),
            FoldKey::Ordinal => LeafKey::of_ordinal(fact.ordinal),
        },
    })
}

/// Whether a unit went past the predicates; it then has a turn, whether it came or not.
pub(crate) fn past(fact: &Fact) -> bool {
    let stage = fact.stage.as_str();
    !stage.starts_with("prefilter:") && stage != "partition" && stage != group::STAGE
}

fn draw(seed: &str, unit: &UnitId) -> [u8; 32] {
    let mut canonical = Canonical::new("operator 2026 asking order v1");
    canonical.text(seed).text(unit.as_str());
    *ContentHash::of(&canonical).as_bytes()
}
