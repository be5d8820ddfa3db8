//! Canaries: records with known answers, asked among the real ones and never counted with them.
//!
//! They are read from the plan or a file beside it, rendered as every record is, and planted at
//! places that follow from the seed and the input. Each is planted at most once under a rubric: the
//! same question again would only repeat its answer. Their ids hold a control character, which no
//! record's id may, so that nothing that is kept by id can meet one. Must not know who answers.

mod judge;
mod planted;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::breaker::EProcess;
use crate::canonical::Canonical;
use crate::error::OperatorError;
use crate::id::{ContentHash, UnitId};
use crate::ops::{Unit, UnitKind};
use crate::plan::{CanarySpec, EvidenceMode, Plan, StageOp};
use crate::record::{Record, read_source};
use crate::text::{self, TextProblem, UnitText};

pub use judge::Verdict;
pub(crate) use judge::judge;
pub(crate) use planted::{Draw, MARK, Planted};

/// A record whose answer is known.
#[derive(Debug, Clone)]
pub struct Canary {
    /// The record as a unit.
    unit: Unit,
    /// The label that each of these fields, or selectors, must choose.
    pub expect: BTreeMap<String, String>,
}

impl Canary {
    /// Where the plan or the file has it, for a person.
    pub fn place(&self) -> &str {
        &self.unit.record.place
    }

    /// Its id, which no record can have.
    pub fn id(&self) -> &UnitId {
        &self.unit.id
    }

    /// What a model is shown of it, as of any record at a stage.
    pub(crate) fn show(
        &self,
        plan: &Plan,
        evidence: EvidenceMode,
    ) -> Result<UnitText, TextProblem> {
        text::render_for(plan, &self.unit, &[], evidence)
    }
}

/// All canaries of a plan.
#[derive(Debug, Clone)]
pub struct Canaries {
    /// Those of the plan, then those of its file, each in order.
    pub list: Vec<Canary>,
    /// Hash over all of them with what is expected.
    pub hash: ContentHash,
}

/// Reads a plan's canaries; none where it has none.
///
/// # Errors
/// `FileInvalid` naming the canary where one expects what there is not, cannot be shown or cannot be
/// read, and where there are too few to ever open the breaker; what reading the file may cause.
pub fn load(plan: &Plan) -> Result<Option<Canaries>, OperatorError> {
    let Some(spec) = &plan.canary else {
        return Ok(None);
    };
    let mut list = Vec::new();
    for (row, inline) in (1..).zip(&spec.records) {
        let place = format!("[[canary.record]] {row}");
        let (fields, expect) = (inline.fields.clone(), inline.expect.clone());
        list.push(canary(list.len(), place, fields, expect));
    }
    if let Some(path) = &spec.path {
        read(plan, &plan.beside(path), &mut list)?;
    }
    for canary in &list {
        if let Err(problem) = canary.show(plan, plan.input.evidence) {
            let problem = format!("canary at {}: {}", canary.place(), problem.message);
            return Err(invalid(plan, spec, problem));
        }
    }
    check_number(plan, spec, &list)?;
    let mut canonical = Canonical::new("operator 2026 canaries v1");
    canonical.list(list.len());
    for canary in &list {
        canonical.fields(&canary.unit.record.fields);
        canonical.map(canary.expect.len());
        for (field, label) in &canary.expect {
            canonical.text(field).text(label);
        }
    }
    let hash = ContentHash::of(&canonical);
    Ok(Some(Canaries { list, hash }))
}

/// Refuses a plan whose breaker could not open even if every canary of a stage were missed.
fn check_number(plan: &Plan, spec: &CanarySpec, list: &[Canary]) -> Result<(), OperatorError> {
    let stages = watched(plan, list);
    let shares = u32::try_from(stages.len().max(1)).unwrap_or(u32::MAX);
    let least = EProcess::new(spec.process, shares).least();
    if stages.is_empty() {
        let problem = "no stage asks what the canaries expect".to_owned();
        return Err(invalid(plan, spec, problem));
    }
    for stage in &stages {
        let known = list.iter().filter(|canary| concerns(canary, plan, stage));
        let asked = known.count() as u64;
        if asked < least {
            let problem = format!(
                "{asked} canaries speak of stage {stage:?}; the breaker cannot open before {least} are \
                 missed, so add {} or more",
                least - asked
            );
            return Err(invalid(plan, spec, problem));
        }
    }
    Ok(())
}

/// Names of the stages that some canary has an expectation of.
pub(crate) fn watched(plan: &Plan, list: &[Canary]) -> Vec<String> {
    let stages = plan.stages.iter().map(|stage| &stage.name);
    stages
        .filter(|stage| list.iter().any(|canary| concerns(canary, plan, stage)))
        .cloned()
        .collect()
}

fn concerns(canary: &Canary, plan: &Plan, stage: &str) -> bool {
    let fields = match plan.stage(stage).map(|stage| &stage.op) {
        Some(StageOp::Map(map)) => map.fields.as_slice(),
        Some(StageOp::Select(_)) => return canary.expect.contains_key(stage),
        _ => &[],
    };
    fields.iter().any(|field| canary.expect.contains_key(field))
}

fn canary(
    row: usize,
    place: String,
    fields: Map<String, Value>,
    expect: BTreeMap<String, String>,
) -> Canary {
    let record = Record {
        ordinal: u32::try_from(row).unwrap_or(u32::MAX),
        place,
        fields,
        warnings: Vec::new(),
    };
    let unit = Unit {
        id: UnitId::new(&format!("{MARK}canary/{row}")),
        kind: UnitKind::Record,
        ordinal: record.ordinal,
        source_hash: record.source_hash(),
        record: Arc::new(record),
        neighbourhood: Vec::new(),
        texts: None,
        skip: None,
    };
    Canary { unit, expect }
}

/// Reads the canaries of a file: records with an `expect` object, or in CSV with `expect.FIELD` columns.
fn read(plan: &Plan, path: &Path, list: &mut Vec<Canary>) -> Result<(), OperatorError> {
    let shown = path.display().to_string();
    let invalid = |place: &str, problem: &str| OperatorError::FileInvalid {
        path: shown.clone(),
        line: 0,
        problem: format!("canary at {place}: {problem}"),
    };
    let (_, records, bad) = read_source(path, None)?;
    if let Some(bad) = bad.first() {
        return Err(invalid(&bad.place, &bad.problem));
    }
    for record in records {
        let mut fields = record.fields;
        let expect = take_expected(&mut fields);
        let expect = plan
            .check_expected(&expect)
            .map_err(|problem| invalid(&record.place, &problem))?;
        list.push(canary(list.len(), record.place, fields, expect));
    }
    Ok(())
}

/// Takes what is expected out of a record, so that no model is shown it.
fn take_expected(fields: &mut Map<String, Value>) -> Value {
    if let Some(expect) = fields.remove("expect") {
        return expect;
    }
    let mut expect = Map::new();
    let names: Vec<String> = fields.keys().cloned().collect();
    for name in names {
        if let Some(field) = name.strip_prefix("expect.")
            && let Some(label) = fields.remove(&name)
        {
            expect.insert(field.to_owned(), label);
        }
    }
    Value::Object(expect)
}

fn invalid(plan: &Plan, spec: &CanarySpec, problem: String) -> OperatorError {
    let path = match &spec.path {
        Some(path) => plan.beside(path).display().to_string(),
        None => plan.path.clone(),
    };
    OperatorError::FileInvalid {
        path,
        line: 0,
        problem,
    }
}
