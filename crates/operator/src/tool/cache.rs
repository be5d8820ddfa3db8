//! Observations that are kept from run to run, for as long as the plan lets them be believed.

use std::sync::Arc;

use super::Observation;
use crate::error::OperatorError;
use crate::id::ContentHash;
use crate::store::{ContentStore, Kind};

/// Keeps observations by what was asked.
pub trait ObservationCache {
    /// The latest under a key, however old; none where it is damaged.
    fn get(&self, key: &ContentHash) -> Option<Observation>;

    /// Keeps observations in place of earlier ones, all or none.
    ///
    /// # Errors
    /// `Store` when they cannot be written.
    fn put(&self, entries: &[(ContentHash, Arc<Observation>)]) -> Result<(), OperatorError>;
}

/// Observations in a store.
#[derive(Clone, Copy)]
pub struct StoredObservations<'s, S: ?Sized>(pub &'s S);

impl<S: ContentStore + ?Sized> ObservationCache for StoredObservations<'_, S> {
    fn get(&self, key: &ContentHash) -> Option<Observation> {
        let bytes = self.0.get_bytes(Kind::Observation, key.as_bytes())?;
        Observation::decode(&bytes)
    }

    fn put(&self, entries: &[(ContentHash, Arc<Observation>)]) -> Result<(), OperatorError> {
        let mut encoded = Vec::with_capacity(entries.len());
        for (key, observation) in entries {
            let bytes = observation.encode().map_err(|error| OperatorError::Store {
                path: "observations".to_owned(),
                problem: error.to_string(),
            })?;
            encoded.push((*key.as_bytes(), bytes));
        }
        self.0.put_bytes(Kind::Observation, &encoded)
    }
}
