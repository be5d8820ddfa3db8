//! What tools answered, held against the facts that rest on it.
//!
//! Whether a tool still answers so is not asked: an answer is what was read at its time. That every
//! text hashes to what the facts name, that parts leave nothing out, and that what was shown is what
//! was kept, is.

use std::collections::{BTreeMap, HashMap};

use super::{Place, Report, Subject};
use crate::id::{ContentHash, UnitId};
use crate::plan::ToolStage;
use crate::run_directory::ObservationRow;

/// What units were shown, by unit and stage; none where the run keeps no quotes.
#[derive(Debug, Clone, Default)]
pub struct Observations(HashMap<UnitId, BTreeMap<String, Option<String>>>);

impl Observations {
    /// What a unit was shown, by stage.
    pub(super) fn of(&self, unit: &UnitId) -> Option<&BTreeMap<String, Option<String>>> {
        self.0.get(unit)
    }
}

/// Checks the rows and that facts and rows name each other.
pub(super) fn check(
    subject: Subject<'_>,
    rows: &[ObservationRow],
    report: &mut Report,
) -> Observations {
    let mut texts: HashMap<ContentHash, &str> = HashMap::new();
    let mut stated: HashMap<(&UnitId, &str), ContentHash> = HashMap::new();
    for fact in subject.facts {
        for step in &fact.path {
            if subject.plan.tool_stage(&step.stage).is_some()
                && let Some(hash) = step.observed
            {
                stated.insert((&fact.unit_id, &step.stage), hash);
            }
        }
    }
    let mut observations = Observations::default();
    for row in rows {
        let mut wrong = |problem: String| {
            let problem = format!("what {} answered at {}: {problem}", row.tool, row.stage);
            report.content(Place::Unit(row.unit_id.clone()), problem);
        };
        if let Some(text) = &row.text {
            texts.insert(row.text_hash, text);
        }
        let Some(tool) = subject.plan.tool_stage(&row.stage) else {
            wrong("the plan has no such tool stage".to_owned());
            continue;
        };
        if tool.tool != row.tool {
            wrong(format!("the stage calls {}", tool.tool));
        }
        match stated.remove(&(&row.unit_id, row.stage.as_str())) {
            Some(hash) if hash == row.shown_hash => {}
            Some(hash) => wrong(format!("its fact was shown {hash}, not {}", row.shown_hash)),
            None => wrong("its fact was shown nothing, or it is told twice".to_owned()),
        }
        let text = texts.get(&row.text_hash).copied();
        let shown = text.map(|text| match shown(tool, row, text) {
            Ok(shown) => shown,
            Err(problem) => {
                wrong(problem);
                String::new()
            }
        });
        let of_unit = observations.0.entry(row.unit_id.clone()).or_default();
        of_unit.insert(row.stage.clone(), shown);
    }
    let mut missing: Vec<(&UnitId, &str)> = stated.into_keys().collect();
    missing.sort_unstable();
    for (unit, stage) in missing {
        let problem = format!("was shown something at {stage}, and nothing says what");
        report.content(Place::Unit(unit.clone()), problem);
    }
    observations
}

/// What of a text a unit was shown.
fn shown(tool: &ToolStage, row: &ObservationRow, text: &str) -> Result<String, String> {
    let hash = ContentHash::of_bytes(text.as_bytes());
    if hash != row.text_hash {
        return Err(format!("its text hashes to {hash}, not {}", row.text_hash));
    }
    let over = |split: &crate::plan::Split| text.chars().count() > split.over_chars as usize;
    let split = tool.split.as_ref().filter(|split| over(split));
    let shown = match split {
        None if row.parts.is_empty() => text.to_owned(),
        None => return Err("it was cut up, and the plan does not want that".to_owned()),
        Some(split) => {
            let mut kept = Vec::new();
            let mut end = 0;
            for part in &row.parts {
                let range = usize::try_from(part.start)
                    .ok()
                    .zip(usize::try_from(part.end).ok());
                let cut = range.and_then(|(from, to)| {
                    let (gap, piece) = (text.get(end..from)?, text.get(from..to)?);
                    end = to;
                    (gap.trim().is_empty() && !piece.is_empty()).then_some(piece)
                });
                let Some(piece) = cut else {
                    return Err(format!(
                        "its part {}..{} leaves something out, or is no part",
                        part.start, part.end
                    ));
                };
                let label = &part.value.label;
                if piece.chars().count() > split.part_chars as usize
                    || !split.labels.iter().any(|known| known.name == *label)
                {
                    return Err(format!(
                        "its part {}..{} is too long or labelled {label:?}, which is no label",
                        part.start, part.end
                    ));
                }
                if *label == split.keep {
                    kept.push(piece);
                }
            }
            if !text[end..].trim().is_empty() || row.parts.len() > split.parts_max as usize {
                return Err("its parts leave out its end, or are too many".to_owned());
            }
            kept.join("\n")
        }
    };
    let hash = ContentHash::of_bytes(shown.as_bytes());
    match hash == row.shown_hash {
        true => Ok(shown),
        false => Err(format!(
            "what was kept hashes to {hash}, not {}",
            row.shown_hash
        )),
    }
}
