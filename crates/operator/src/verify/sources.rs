//! The records themselves, read again, and every fact and citation held against them.
//!
//! A plan's predicates are evaluated again by the one evaluator that there is.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use serde_json::{Map, Value};

use super::arranged::{self, Known};
use super::fields::{column_of, id_of, text_of};
use super::observations::Observations;
use super::{Place, Report, Subject};
use crate::error::OperatorError;
use crate::fact::{Cite, Evidence, Fact, Status};
use crate::group;
use crate::id::{ContentHash, UnitId};
use crate::index::{Indexes, Row, Rows};
use crate::ops::{partition, prefilter};
use crate::plan::{AUDIT_STAGE, Action, MAP_STAGE, Plan};
use crate::predicate::Standing;
use crate::record::read_bytes;

/// The units of a source by their id.
#[derive(Debug, Clone)]
pub struct Registry {
    path: String,
    hash: ContentHash,
    bytes: u64,
    records: HashMap<UnitId, Known>,
    /// What tools answered.
    observations: Observations,
    /// The plan's indexes, computed again; or why they cannot be.
    indexes: Result<Indexes, String>,
}

/// Where facts and citations can be looked up.
#[derive(Debug, Clone)]
pub enum Sources {
    /// In the records.
    Read(Registry),
    /// Nowhere, and why.
    Absent(String),
}

impl Registry {
    /// Reads a source again; `path` names it.
    ///
    /// # Errors
    /// Whatever reading records may cause; `FileInvalid` where a record has no id or another's.
    pub fn read(plan: &Plan, path: &str, bytes: &[u8]) -> Result<Self, OperatorError> {
        let (source, records, bad) = read_bytes(path, bytes, plan.input.format)?;
        let plain = plan.unit.is_plain();
        let partition = match plain {
            true => None,
            false => Some(partition(plan, source, records.clone(), bad.clone())?),
        };
        let mut known = HashMap::with_capacity(records.len() + bad.len());
        let mut add = |id: Option<String>, place: &str, record: Known| {
            let problem = match id {
                None => Some(format!("no id in {}", plan.input.id)),
                Some(id) => known
                    .insert(UnitId::new(&id), record)
                    .map(|_| format!("the id {id} is another record's, too")),
            };
            match problem {
                None => Ok(()),
                Some(problem) => Err(OperatorError::FileInvalid {
                    path: path.to_owned(),
                    line: 0,
                    problem: format!("{place}: {problem}"),
                }),
            }
        };
        for record in records {
            let read = Known::record(record.ordinal, record.fields);
            let id = read.fields.as_ref().and_then(|fields| id_of(plan, fields));
            add(id, &record.place, read)?;
        }
        for bad in bad {
            let unread = Known::unread(bad.ordinal, bad.hash);
            add(Some(format!("#{}", bad.ordinal)), &bad.place, unread)?;
        }
        if let Some(partition) = partition
            && let Some(units) = arranged::arrange(plan, &partition, &known)?
        {
            known = units;
        }
        let mut registry = Self {
            path: path.to_owned(),
            hash: ContentHash::of_bytes(bytes),
            bytes: bytes.len() as u64,
            records: known,
            observations: Observations::default(),
            indexes: Ok(Indexes::none()),
        };
        registry.indexes =
            Indexes::compute(plan, &registry, &|| 0).map_err(|error| error.to_string());
        Ok(registry)
    }

    /// Takes what tools answered, to which citations may lead as well.
    pub(super) fn take_observations(&mut self, observations: Observations) {
        self.observations = observations;
    }

    /// As `read`, from a file.
    ///
    /// # Errors
    /// `Io` where the file cannot be read, otherwise as `read`.
    pub fn load(plan: &Plan, path: &Path) -> Result<Self, OperatorError> {
        let shown = path.display().to_string();
        let bytes = std::fs::read(path).map_err(|source| OperatorError::Io {
            path: shown.clone(),
            action: "read",
            source,
        })?;
        Self::read(plan, &shown, &bytes)
    }

    /// Where a record stands in the plan's indexes; none where they cannot be computed again.
    pub(super) fn standing(&self, ordinal: u32) -> Option<Standing<'_>> {
        let indexes = self.indexes.as_ref().ok()?;
        Some(Standing { indexes, ordinal })
    }

    /// The decoded fields of a unit's record; none where there are none.
    pub(super) fn fields(&self, unit: &UnitId) -> Option<&Map<String, Value>> {
        self.records.get(unit)?.fields.as_ref()
    }

    /// The path as given.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Hash of the file's bytes.
    pub const fn hash(&self) -> ContentHash {
        self.hash
    }

    /// Size of the file.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How many units there are, unreadable ones included.
    pub fn len(&self) -> u64 {
        self.records.len() as u64
    }

    /// Whether there is no record; no source that can be read is so.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }
}

impl Rows for Registry {
    fn source_hash(&self) -> ContentHash {
        self.hash
    }

    fn len(&self) -> u32 {
        u32::try_from(self.records.len()).unwrap_or(u32::MAX)
    }

    fn visit(
        &self,
        visitor: &mut dyn FnMut(Row<'_>) -> Result<(), OperatorError>,
    ) -> Result<(), OperatorError> {
        let mut rows: Vec<Row<'_>> = self
            .records
            .iter()
            .filter_map(|(id, known)| {
                Some(Row {
                    ordinal: known.ordinal,
                    id: id.as_str(),
                    fields: known.fields.as_ref()?,
                })
            })
            .collect();
        rows.sort_unstable_by_key(|row| row.ordinal);
        rows.into_iter().try_for_each(visitor)
    }
}

/// Holds every fact and every citation against its record.
pub(super) fn check(subject: Subject<'_>, sources: &Sources, report: &mut Report) {
    let registry = match sources {
        Sources::Read(registry) => registry,
        Sources::Absent(reason) => {
            report.sources_absent = Some(reason.clone());
            return;
        }
    };
    if let Err(problem) = &registry.indexes {
        report.indexes_absent = Some(problem.clone());
    }
    let mut without: HashMap<&UnitId, &Known> = registry.records.iter().collect();
    for fact in subject.facts {
        without.remove(&fact.unit_id);
        let place = Place::Unit(fact.unit_id.clone());
        let Some(known) = registry.records.get(&fact.unit_id) else {
            report.content(
                place,
                format!("has a fact, and no record of {} is its", registry.path),
            );
            continue;
        };
        report.checked.records += 1;
        report.checked.spans += fact.evidence.len() as u64;
        let mut problems = Vec::new();
        let indexes = registry.indexes.as_ref().ok();
        let seen = known.seen_with(&fact.members);
        check_record(subject.plan, indexes, fact, seen, &mut problems);
        if let Some(fields) = &seen.fields {
            let texts = Texts {
                fields,
                observed: registry.observations.of(&fact.unit_id),
            };
            let spans = fact.evidence.iter();
            problems.extend(spans.filter_map(|span| check_span(span, texts)));
        }
        for problem in problems {
            report.content(place.clone(), problem);
        }
    }
    let mut without: Vec<(&UnitId, &Known)> = without.into_iter().collect();
    without.sort_by_key(|(_, known)| known.ordinal);
    for (unit, _) in without {
        let problem = format!("is a record of {}, and has no fact", registry.path);
        report.content(Place::Unit(unit.clone()), problem);
    }
    let facts = subject.facts.iter();
    let members_of: HashMap<&UnitId, &[UnitId]> = facts
        .map(|fact| (&fact.unit_id, fact.members.as_slice()))
        .collect();
    for claim in &subject.answer.claims {
        for cite in &claim.cites {
            let members = members_of.get(&cite.unit_id).copied().unwrap_or_default();
            if let Some(problem) = check_cite(cite, members, registry) {
                let problem = format!("cites unit {}: {problem}", cite.unit_id);
                report.content(Place::Claim(claim.name.clone()), problem);
            }
        }
    }
}

fn check_record(
    plan: &Plan,
    indexes: Option<&Indexes>,
    fact: &Fact,
    known: &Known,
    problems: &mut Vec<String>,
) {
    if fact.members != known.members {
        let names = |members: &[UnitId]| -> Vec<String> {
            members.iter().map(ToString::to_string).collect()
        };
        let (found, right) = (names(&fact.members), names(&known.members));
        problems.push(format!("its members are {found:?}, {right:?} is right"));
    }
    if fact.ordinal != known.ordinal {
        let (found, right) = (fact.ordinal, known.ordinal);
        problems.push(format!("its ordinal is {found}, its record's is {right}"));
    }
    if fact.source_hash != known.hash {
        let (found, right) = (fact.source_hash, known.hash);
        problems.push(format!(
            "its source_hash is {found}, its record hashes to {right}"
        ));
    }
    let ended = super::audit::ended(fact);
    let Some(fields) = &known.fields else {
        if ended != "partition" {
            problems.push(format!("ended at {ended}, its record cannot be read"));
        }
        return;
    };
    if ended == "partition" {
        problems.push("is called unreadable, its record can be read".to_owned());
        return;
    }
    for column in &plan.columns {
        let (found, right) = (fact.columns.get(&column.name), column_of(fields, column));
        if found != right.as_ref() {
            let name = &column.name;
            problems.push(format!(
                "its column {name} is {found:?}, its record has {right:?}"
            ));
        }
    }
    if let Some(reason) = &known.skip {
        let wanted = (group::STAGE, Status::Excluded, Some(reason));
        if (fact.stage.as_str(), fact.status, fact.reason.as_ref()) != wanted {
            problems.push(format!(
                "is {} at {}, and nothing is asked about it: {reason}",
                fact.status, fact.stage
            ));
        }
        return;
    }
    let Some(indexes) = indexes else { return };
    let standing = Standing {
        indexes,
        ordinal: known.ordinal,
    };
    let stage = stage_of(plan, fields, standing);
    if stage == MAP_STAGE && plan.stage(ended).is_some() {
        return;
    }
    if ended != stage {
        problems.push(format!("ended at {ended}, its record belongs to {stage}"));
    } else if fact.stage != AUDIT_STAGE
        && stage != MAP_STAGE
        && (fact.status == Status::Errored) == routes(plan, fields, standing)
    {
        problems.push(format!("is {} at {stage}, its record is not", fact.status));
    } else if let Some(name) = stage.strip_prefix("prefilter:")
        && fact.status != Status::Errored
        && let Some(filter) = plan.prefilters.iter().find(|filter| filter.name == name)
    {
        let right = prefilter::reason(filter, standing);
        let said = fact.reason.as_deref().unwrap_or_default();
        if filter.when.is_indexed() && said != right {
            problems.push(format!("its reason is {said:?}, its record has {right:?}"));
        }
    }
}

/// Where the plan's predicates end a record.
fn stage_of(plan: &Plan, fields: &Map<String, Value>, standing: Standing<'_>) -> String {
    for filter in &plan.prefilters {
        match filter.when.matches(fields, standing) {
            Ok(false) => continue,
            Ok(true) if filter.action == Action::Keep => break,
            Ok(true) | Err(_) => return format!("prefilter:{}", filter.name),
        }
    }
    String::from("map")
}

/// Whether every predicate that is asked about a record can say.
fn routes(plan: &Plan, fields: &Map<String, Value>, standing: Standing<'_>) -> bool {
    for filter in &plan.prefilters {
        match filter.when.matches(fields, standing) {
            Ok(false) => continue,
            Ok(true) => return true,
            Err(_) => return false,
        }
    }
    true
}

fn check_cite(cite: &Cite, members: &[UnitId], registry: &Registry) -> Option<String> {
    let Some(known) = registry.records.get(&cite.unit_id) else {
        return Some(format!("is no record of {}", registry.path));
    };
    let known = known.seen_with(members);
    if cite.source_hash != known.hash {
        let (found, right) = (cite.source_hash, known.hash);
        return Some(format!(
            "its source_hash is {found}, its record hashes to {right}"
        ));
    }
    let mut spans = cite.span.iter().chain(&cite.also).peekable();
    spans.peek()?;
    match &known.fields {
        Some(fields) => {
            let observed = registry.observations.of(&cite.unit_id);
            let texts = Texts { fields, observed };
            spans.find_map(|span| check_span(span, texts))
        }
        None => Some("is quoted, its record cannot be read".to_owned()),
    }
}

/// Where the bytes of a unit's citations stand.
#[derive(Clone, Copy)]
struct Texts<'a> {
    fields: &'a Map<String, Value>,
    observed: Option<&'a BTreeMap<String, Option<String>>>,
}

fn check_span(span: &Evidence, texts: Texts<'_>) -> Option<String> {
    let observed = texts
        .observed
        .and_then(|observed| observed.get(&span.field));
    let text = match observed {
        // A redacted run keeps no text to look the bytes up in.
        Some(None) => return None,
        Some(Some(text)) => text.clone(),
        None => text_of(texts.fields, &span.field),
    };
    let place = format!("bytes {}..{} of {}", span.start, span.end, span.field);
    let Some(bytes) = text.get(span.start as usize..span.end as usize) else {
        return Some(format!("{place} are not in its record"));
    };
    let hash = ContentHash::of_bytes(bytes.as_bytes());
    if hash != span.quote_hash {
        let right = span.quote_hash;
        return Some(format!(
            "{place} hash to {hash} in its record, the quote to {right}"
        ));
    }
    let quoted = span.quote.as_ref()?;
    (quoted != bytes).then(|| format!("{place} are {bytes:?} in its record, quoted is {quoted:?}"))
}
