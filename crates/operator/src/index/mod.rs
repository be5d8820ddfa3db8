//! Indexes: what is computed over all records, before the predicates that refer to it.
//!
//! Law: an index is a pure function of the plan, the records and the files that the plan names for it;
//! neither the order of its computation nor the machine's threads matter. Its values are integers. A
//! plan without an index pays nothing. Must not know routes or facts.

pub mod classifier;
mod rows;
mod search;
mod sql;
mod table;

use serde::{Deserialize, Serialize};

use crate::canonical::Canonical;
use crate::error::OperatorError;
use crate::id::ContentHash;
use crate::plan::{Index, IndexKind, Plan};

pub use rows::{Row, Rows, UnitRows};
pub use table::Table;

/// The computed indexes of a plan, in plan order.
#[derive(Debug, Clone, Default)]
pub struct Indexes {
    tables: Vec<Table>,
    reports: Vec<IndexReport>,
}

/// What computing an index took and gave.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexReport {
    /// Its name.
    pub name: String,
    /// Its kind, as a plan spells it.
    pub kind: String,
    /// Hash of all that it was computed from: what the plan says, the files it names, the source.
    pub identity: ContentHash,
    /// Records that it saw.
    pub records: u64,
    /// Records of which it says something.
    pub valued: u64,
    /// Its members; of a classifier, the records that it judges.
    pub members: u64,
    /// Records whose text it cannot read: a field is an object.
    pub unreadable: u64,
    /// What it learned from; none where it learns nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub learned: Option<Learned>,
    /// Microseconds of the caller's clock.
    pub micros: u64,
}

/// What a classifier learned from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Learned {
    /// Records that it was trained on.
    pub records: u64,
    /// Those of them that are among the input: it does not judge them.
    pub not_judged: u64,
    /// Labelled ids without a record.
    pub unknown: u64,
    /// The first of these.
    pub unknown_ids: Vec<String>,
}

impl Indexes {
    /// The indexes of a plan that has none.
    pub fn none() -> Self {
        Self::default()
    }

    /// Computes the plan's indexes over all records; `clock` is the caller's, in microseconds.
    ///
    /// Memory: 24 bytes per record, and per class of a classifier; while it is computed, for an `sql` index
    /// also the ids and the columns that its statement reads, for `search` 4 bytes per word of the query
    /// and record with any of them, for a classifier the words of the records that it learns from.
    ///
    /// # Errors
    /// [`OperatorError::Plan`] at the index, with the SQL engine's own words, where a statement is
    /// refused or broken; errors of the files that it names, and of reading the records.
    pub fn compute(
        plan: &Plan,
        rows: &dyn Rows,
        clock: &dyn Fn() -> u64,
    ) -> Result<Self, OperatorError> {
        let mut indexes = Self::none();
        for index in &plan.indexes {
            let started = clock();
            let (table, mut report) = compute(plan, index, rows)?;
            report.micros = clock().saturating_sub(started);
            indexes.tables.push(table);
            indexes.reports.push(report);
        }
        Ok(indexes)
    }

    /// What computing each took and gave, in plan order.
    pub fn reports(&self) -> &[IndexReport] {
        &self.reports
    }

    /// The index at a place of the plan.
    ///
    /// # Panics
    /// If it was not computed.
    pub fn table(&self, place: usize) -> &Table {
        assert!(
            place < self.tables.len(),
            "a plan's indexes are computed before its predicates are asked"
        );
        &self.tables[place]
    }
}

/// Checks what of the plan's indexes can be refused before anything is computed: that statements are
/// compiled, and that files are there.
///
/// # Errors
/// As [`Indexes::compute`].
pub fn check(plan: &Plan, rows: &dyn Rows) -> Result<(), OperatorError> {
    plan.indexes.iter().try_for_each(|index| match &index.kind {
        IndexKind::Sql(spec) => sql::check(plan, index, spec, rows),
        IndexKind::Search(_) => Ok(()),
        IndexKind::Classifier(spec) => classifier::check(plan, spec),
    })
}

fn compute(
    plan: &Plan,
    index: &Index,
    rows: &dyn Rows,
) -> Result<(Table, IndexReport), OperatorError> {
    let mut canonical = Canonical::new("operator 2026 index v1");
    index.encode(&mut canonical);
    canonical.bytes(rows.source_hash().as_bytes());
    let made = match &index.kind {
        IndexKind::Sql(sql) => sql::compute(plan, index, sql, rows)?,
        IndexKind::Search(search) => search::compute(search, rows)?,
        IndexKind::Classifier(spec) => {
            let (made, file_hash) = classifier::compute(plan, spec, rows)?;
            canonical.bytes(file_hash.as_bytes());
            made
        }
    };
    let report = IndexReport {
        name: index.name.clone(),
        kind: index.kind.as_str().to_owned(),
        identity: ContentHash::of(&canonical),
        records: made.records,
        valued: made.table.valued(),
        members: made.table.members(),
        unreadable: made.unreadable,
        learned: made.learned,
        micros: 0,
    };
    Ok((made.table, report))
}

/// A computed index, before it is reported.
struct Made {
    table: Table,
    records: u64,
    unreadable: u64,
    learned: Option<Learned>,
}
