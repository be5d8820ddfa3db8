//! The audit of a run: after all units are settled, before their facts are folded.
//!
//! What the auditor finds replaces the facts of the missed units, each told as `audit`, and stays in
//! the statistic. Must not know how bounds are computed.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::Pass;
use super::backends::Backends;
use crate::audit::{
    Allotment, AuditReport, AuditedUnit, Finding, Outcome, Place, Reader, Stratum, allot, conclude,
    place, sample,
};
use crate::canonical::Canonical;
use crate::error::OperatorError;
use crate::eval::{Labels, read_labels};
use crate::event::Event;
use crate::fact::{Fact, FieldValue, Status};
use crate::id::{ContentHash, FactKey, UnitId};
use crate::index::Indexes;
use crate::infer::{Answer, Infer, InferError, InferJob, UnitOutcome};
use crate::ops::{Placed, Unit, map};
use crate::plan::{AUDIT_STAGE, AuditSpec, Auditor, Plan, Turn, Unknown};
use crate::record::read_source;
use crate::store::{Store, StoredAnswers, fact_key};
use crate::text::{self, UnitText};

/// A stratum's units, by position in the source.
type Members = BTreeMap<Stratum, Vec<(UnitId, u32)>>;

/// What the auditor says of one unit: a fact as it would have it, or none.
type Readings = HashMap<u32, Option<Fact>>;

/// The labels of an auditor that has read before.
pub(super) struct KnownLabels {
    path: String,
    hash: ContentHash,
    labels: Labels,
}

/// Reads the auditor's labels, before anything is asked; none where the auditor is a model.
///
/// # Errors
/// `FileInvalid` where a label is none of the field's; what reading the file may cause.
pub(super) fn known_labels(plan: &Plan) -> Result<Option<KnownLabels>, OperatorError> {
    let Some(spec) = &plan.audit else {
        return Ok(None);
    };
    let Auditor::Labels {
        path,
        id,
        label,
        map,
    } = &spec.auditor
    else {
        return Ok(None);
    };
    let file = plan.beside(path);
    let path = file.display().to_string();
    let (source, records, _) = read_source(&file, None)?;
    let labels = read_labels(&path, &records, id, label, map)?;
    let field = plan.field(&spec.field);
    for (unit_id, label) in &labels {
        if field.is_none_or(|field| field.label_index(label).is_none()) {
            let problem = format!(
                "unit {unit_id} is labelled {label:?}, which is no label of {}; rename it in the \
                 auditor's map",
                spec.field
            );
            return Err(OperatorError::FileInvalid {
                path,
                line: 0,
                problem,
            });
        }
    }
    Ok(Some(KnownLabels {
        path,
        hash: source.hash,
        labels,
    }))
}

impl Pass<'_, '_> {
    /// Audits the settled units as the plan declares; none where it declares nothing.
    pub(super) fn audit(
        &mut self,
        backends: &mut Backends<'_>,
        store: Option<&dyn Store>,
        indexes: &Indexes,
    ) -> Result<Option<AuditReport>, OperatorError> {
        let Some(spec) = &self.plan.audit else {
            return Ok(None);
        };
        let (found, members) = self.strata(spec, indexes)?;
        let strata: Vec<Stratum> = members.keys().cloned().collect();
        let drawn = draw(spec, &members);
        let (reader, readings) = match &self.labels {
            Some(known) => self.look_up(spec, known, &drawn),
            None => self.read_again(spec, &drawn, backends, store)?,
        };
        let mut outcomes: Vec<Outcome> = members
            .values()
            .map(|units| Outcome {
                population: units.len() as u64,
                audited: 0,
                missed: 0,
                unresolved: 0,
            })
            .collect();
        let mut units = Vec::new();
        for (stratum, unit_id, ordinal) in drawn {
            let reading = readings.get(&ordinal).and_then(Option::as_ref);
            let label = reading.and_then(|fact| fact.values.get(&spec.field));
            let finding = match label {
                Some(value) if value.label == spec.positive => Finding::Missed,
                Some(_) => Finding::Sound,
                None => Finding::Unresolved,
            };
            let outcome = &mut outcomes[stratum];
            outcome.audited += 1;
            outcome.missed += u64::from(finding == Finding::Missed);
            outcome.unresolved += u64::from(finding == Finding::Unresolved);
            if let (Finding::Missed, Some(reading)) = (finding, reading) {
                self.put_back(ordinal, reading);
            }
            units.push(AuditedUnit {
                unit_id,
                ordinal,
                stratum: u32::try_from(stratum).unwrap_or(u32::MAX),
                finding,
            });
        }
        let report = conclude(spec, reader, found, &strata, &outcomes, units);
        self.journal.log(Event::Audited {
            audited: report.statistic.audited,
            missed: report.statistic.missed,
            unresolved: report.statistic.unresolved,
        })?;
        Ok(Some(report))
    }

    /// Counts what was found and puts the rest into strata.
    fn strata(&self, spec: &AuditSpec, indexes: &Indexes) -> Result<(u64, Members), OperatorError> {
        let near = self.near(indexes)?;
        let (mut found, mut members) = (0, Members::new());
        for fact in self.facts.iter() {
            match place(spec, &fact, near.contains(&fact.ordinal)) {
                Place::Found => found += 1,
                Place::In(stratum) => members
                    .entry(stratum)
                    .or_default()
                    .push((fact.unit_id, fact.ordinal)),
            }
        }
        Ok((found, members))
    }

    /// Units that the prefilter which settled them calls near.
    fn near(&self, indexes: &Indexes) -> Result<BTreeSet<u32>, OperatorError> {
        let mut near = BTreeSet::new();
        if self
            .plan
            .prefilters
            .iter()
            .all(|filter| filter.near.is_none())
        {
            return Ok(near);
        }
        self.units.visit(&mut |placed| {
            if let Placed::Unit(unit, _) = placed
                && let Some(fact) = self.facts.get(unit.ordinal)
                && self.plan.is_near(&fact.stage, &unit.record, indexes)
            {
                near.insert(unit.ordinal);
            }
            Ok(())
        })?;
        Ok(near)
    }

    /// Takes the auditor's word from labels.
    fn look_up(
        &self,
        spec: &AuditSpec,
        known: &KnownLabels,
        drawn: &[(usize, UnitId, u32)],
    ) -> (Reader, Readings) {
        let mut readings = Readings::new();
        for (_, unit_id, ordinal) in drawn {
            let label = known.labels.get(unit_id);
            // The other values, where there are any, are still the run's own.
            let reading = label
                .zip(self.facts.get(*ordinal))
                .map(|(label, mut fact)| {
                    let value = FieldValue::set(label.clone());
                    fact.values.insert(spec.field.clone(), value);
                    fact
                });
            readings.insert(*ordinal, reading);
        }
        let reader = Reader {
            name: format!("the labels of {}", known.path),
            hash: known.hash,
            simulated: false,
        };
        (reader, readings)
    }

    /// Asks a model about the drawn units, under the auditor's instruction.
    fn read_again(
        &mut self,
        spec: &AuditSpec,
        drawn: &[(usize, UnitId, u32)],
        backends: &mut Backends<'_>,
        store: Option<&dyn Store>,
    ) -> Result<(Reader, Readings), OperatorError> {
        let turn = self.plan.audit_turn(spec);
        let mut infer = backends.watch_auditor(spec)?;
        let identity = infer.identity().clone();
        let store = store.filter(|_| !identity.simulated);
        let wanted: BTreeSet<u32> = drawn.iter().map(|(.., ordinal)| *ordinal).collect();
        let mut read = BTreeMap::new();
        self.units.visit(&mut |placed| {
            if let Placed::Unit(unit, _) = placed
                && wanted.contains(&unit.ordinal)
            {
                let shown = text::render_for(self.plan, &unit, &[], turn.evidence);
                if let Ok(shown) = shown {
                    read.insert(unit.id.clone(), (unit, shown));
                }
            }
            Ok(())
        })?;
        let key = |shown: &UnitText| fact_key(&identity, &turn.rubric, &turn.questions, shown);
        let mut readings = Readings::new();
        let mut asked: Vec<UnitText> = Vec::new();
        for (unit, shown) in read.values() {
            let stored = store.and_then(|store| store.get(&key(shown)));
            let stored =
                stored.filter(|stored| map::check(&turn.questions, shown, &stored.answers).is_ok());
            match stored {
                Some(stored) => {
                    let fact = self.reading(&turn, unit, shown, &stored.answers);
                    readings.insert(unit.ordinal, fact);
                }
                None => asked.push(shown.clone()),
            }
        }
        let mut answered: Vec<(UnitId, StoredAnswers)> = Vec::new();
        if !asked.is_empty() {
            let job = InferJob {
                rubric: &turn.rubric,
                questions: &turn.questions,
                units: &asked,
                cancel: self.options.cancel,
            };
            let result = infer.infer(job, &mut |done| {
                if let UnitOutcome::Answered(answers) = done.outcome {
                    let cost = done.usage;
                    answered.push((done.unit_id, StoredAnswers { answers, cost }));
                }
            });
            self.heed(&mut infer)?;
            match result {
                Ok(usage) => self.usage.job += usage,
                // What it did not read stays unresolved.
                Err(InferError::Failed(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let mut known: Vec<(FactKey, StoredAnswers)> = Vec::new();
        for (unit_id, stored) in answered {
            let Some((unit, shown)) = read.get(&unit_id) else {
                let unit_id = unit_id.to_string();
                return Err(OperatorError::UnknownCompletion { unit_id });
            };
            if map::check(&turn.questions, shown, &stored.answers).is_ok() {
                let fact = self.reading(&turn, unit, shown, &stored.answers);
                readings.insert(unit.ordinal, fact);
                known.push((key(shown), stored));
            }
        }
        if let Some(store) = store {
            store.exchange(&known, &[])?;
        }
        let name = match &spec.auditor {
            Auditor::Model { .. } => identity.name.clone(),
            _ => format!("{} under the auditor's rubric", identity.name),
        };
        let mut hash = Canonical::new("operator 2026 auditor v1");
        hash.bytes(&identity.digest)
            .bytes(turn.rubric.hash.as_bytes());
        let reader = Reader {
            name,
            hash: ContentHash::of(&hash),
            simulated: identity.simulated,
        };
        Ok((reader, readings))
    }

    /// The fact that an auditor's answers come to; none where they are too uncertain to count.
    fn reading(
        &self,
        turn: &Turn,
        unit: &Unit,
        shown: &UnitText,
        answers: &[Answer],
    ) -> Option<Fact> {
        let fact = map::derive(self.plan, AUDIT_STAGE, turn, unit, shown, answers);
        (fact.status == Status::Decided).then_some(fact)
    }

    /// Puts a missed unit into the answer: decided as the auditor reads it, and told as such. What it
    /// went through and what that cost stays.
    fn put_back(&mut self, ordinal: u32, reading: &Fact) {
        let Some(mut fact) = self.facts.get(ordinal) else {
            return;
        };
        fact.reason = Some(format!("missed by {} and found by the audit", fact.stage));
        fact.status = Status::Decided;
        AUDIT_STAGE.clone_into(&mut fact.stage);
        fact.same_as = None;
        fact.values.clone_from(&reading.values);
        if !reading.evidence.is_empty() {
            fact.evidence.clone_from(&reading.evidence);
        }
        self.amend(fact);
    }
}

/// Draws the units to be read: stratum, unit and position.
fn draw(spec: &AuditSpec, members: &Members) -> Vec<(usize, UnitId, u32)> {
    let sizes: Vec<Allotment> = members
        .iter()
        .map(|(stratum, units)| Allotment {
            population: units.len() as u64,
            near: stratum.near,
            unknown: stratum.unknown,
        })
        .collect();
    let given = allot(&sizes, spec.units_max, spec.unknown == Unknown::Inspect);
    let mut drawn = Vec::new();
    for (stratum, (units, size)) in members.values().zip(given).enumerate() {
        let ordinals: HashMap<&UnitId, u32> =
            units.iter().map(|(id, ordinal)| (id, *ordinal)).collect();
        let chosen = sample(&spec.seed, units.iter().map(|(id, _)| id), size as usize);
        drawn.extend(
            chosen
                .into_iter()
                .map(|id| (stratum, id.clone(), ordinals[id])),
        );
    }
    drawn
}
