//! prefilter: a cheap pure predicate on one unit's fields.
//!
//! Law: pure and idempotent; the route of a unit does not depend on its neighbours. The first
//! prefilter that matches decides, in plan order; a unit that none matches goes to the model.

use std::collections::BTreeMap;

use crate::ops::Unit;
use crate::plan::{Action, Plan};

/// Where a unit goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Route<'a> {
    /// It is left out.
    Exclude {
        /// The prefilter that matched.
        prefilter: &'a str,
        /// Why.
        reason: &'a str,
    },
    /// It is decided without a model.
    Decide {
        /// The prefilter that matched.
        prefilter: &'a str,
        /// Why.
        reason: &'a str,
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
pub fn prefilter<'a>(plan: &'a Plan, unit: &Unit) -> Route<'a> {
    for filter in &plan.prefilters {
        match filter.when.matches(&unit.record.fields) {
            Ok(false) => {}
            Ok(true) => return routed(filter),
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

fn routed(filter: &crate::plan::Prefilter) -> Route<'_> {
    let (prefilter, reason) = (filter.name.as_str(), filter.reason.as_str());
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
