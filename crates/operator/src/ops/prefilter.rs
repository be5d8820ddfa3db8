//! prefilter: a cheap pure predicate on one unit's fields.
//!
//! Law: pure and idempotent given the plan's indexes; beyond what these say of it, the route of a unit
//! does not depend on its neighbours. The first prefilter that matches decides, in plan order; a unit
//! that none matches goes to the model.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::index::Indexes;
use crate::ops::Unit;
use crate::plan::{Action, Plan, Prefilter};
use crate::predicate::Standing;

/// Where a unit goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Route<'a> {
    /// It is left out.
    Exclude {
        /// The prefilter that matched.
        prefilter: &'a str,
        /// Why, with what an index said of it.
        reason: Cow<'a, str>,
    },
    /// It is decided without a model.
    Decide {
        /// The prefilter that matched.
        prefilter: &'a str,
        /// Why, with what an index said of it.
        reason: Cow<'a, str>,
        /// A label for every field of the plan.
        set: &'a BTreeMap<String, String>,
    },
    /// It goes to the model.
    Model {
        /// The prefilter that kept it, where one did.
        prefilter: Option<&'a str>,
    },
    /// A predicate met a value of the wrong type; the unit is errored as malformed.
    Malformed {
        /// The prefilter that was tried.
        prefilter: &'a str,
        /// Field, value and what was expected.
        message: String,
    },
}

/// Routes one unit.
///
/// # Panics
/// If a predicate refers to an index that was not computed.
pub fn prefilter<'a>(plan: &'a Plan, unit: &Unit, indexes: &Indexes) -> Route<'a> {
    prefilter_watched(plan, unit, indexes, &mut |_| {})
}

/// As [`prefilter`]; `asked` is called with the place of every prefilter that was asked, after it.
pub fn prefilter_watched<'a>(
    plan: &'a Plan,
    unit: &Unit,
    indexes: &Indexes,
    asked: &mut dyn FnMut(usize),
) -> Route<'a> {
    let standing = Standing {
        indexes,
        ordinal: unit.ordinal,
    };
    for (place, filter) in plan.prefilters.iter().enumerate() {
        let matched = filter.when.matches(&unit.record.fields, standing);
        asked(place);
        match matched {
            Ok(false) => {}
            Ok(true) => return routed(filter, standing),
            Err(error) => {
                return Route::Malformed {
                    prefilter: &filter.name,
                    message: error.to_string(),
                };
            }
        }
    }
    Route::Model { prefilter: None }
}

/// Why a prefilter settles a unit: its own reason, and what the indexes that it asked said.
pub(crate) fn reason<'a>(filter: &'a Prefilter, standing: Standing<'_>) -> Cow<'a, str> {
    match filter.when.looked_up(standing) {
        None => Cow::Borrowed(filter.reason.as_str()),
        Some(said) => Cow::Owned(format!("{}{INDEX_SAID}{said}]", filter.reason)),
    }
}

/// What stands in a reason before what an index said.
const INDEX_SAID: &str = " [index ";

/// The part of a predicate's reason that all units share which it settles.
pub(crate) fn shared_reason(reason: &str) -> &str {
    match (said(reason), reason.rsplit_once(INDEX_SAID)) {
        (Some(_), Some((shared, _))) => shared,
        _ => reason,
    }
}

/// What an index said of a unit, out of the reason that a predicate gave; none where none was asked.
pub(crate) fn said(reason: &str) -> Option<&str> {
    let (_, said) = reason.rsplit_once(INDEX_SAID)?;
    said.strip_suffix(']')
}

fn routed<'a>(filter: &'a Prefilter, standing: Standing<'_>) -> Route<'a> {
    let (prefilter, reason) = (filter.name.as_str(), reason(filter, standing));
    match filter.action {
        Action::Exclude => Route::Exclude { prefilter, reason },
        Action::Decide => Route::Decide {
            prefilter,
            reason,
            set: &filter.set,
        },
        Action::Keep => Route::Model {
            prefilter: Some(prefilter),
        },
    }
}
