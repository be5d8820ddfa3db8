//! The audit: its label exists, its bound can be met, and one auditor is named.

use std::collections::BTreeMap;

use toml::Spanned;

use super::names::{known_field, known_label};
use super::{Fault, filled, within};
use crate::infer::PPM;
use crate::nearest::suggest;
use crate::plan::audit::{AuditFile, AuditorFile};
use crate::plan::file::Share;
use crate::plan::{AUDIT_STAGE, AuditSpec, Auditor, Field, Stage, Unknown};

const ALPHA_DEFAULT_PPM: u32 = 50_000;
const NEAR_MARGIN_DEFAULT_PPM: u32 = 200_000;
const UNITS_MAX: u32 = 100_000;

pub(super) fn audit(
    spanned: &Spanned<AuditFile>,
    fields: &[Field],
    stages: &[Stage],
) -> Result<AuditSpec, Fault> {
    let file = spanned.get_ref();
    if stages.iter().any(|stage| stage.name == AUDIT_STAGE) {
        let problem = format!("audit: a stage is named {AUDIT_STAGE:?} too; rename the stage");
        return Err((spanned.span(), problem));
    }
    let what = "audit";
    let field = known_field(file.field.get_ref(), fields, what, file.field.span())?;
    let positive = known_label(&file.positive, field, what)?;
    let target_recall_ppm = open(
        "target_recall",
        Some(&file.target_recall),
        ALPHA_DEFAULT_PPM,
    )?;
    let units = within(Some(&file.units_max), "audit: units_max", 1..=UNITS_MAX)?;
    Ok(AuditSpec {
        field: field.name.clone(),
        positive,
        target_recall_ppm,
        alpha_ppm: open("alpha", file.alpha.as_ref(), ALPHA_DEFAULT_PPM)?,
        units_max: units.unwrap_or(UNITS_MAX).into(),
        seed: filled("audit: seed", &file.seed)?,
        near_margin_ppm: file
            .near_margin
            .as_ref()
            .map_or(NEAR_MARGIN_DEFAULT_PPM, |margin| margin.get_ref().0),
        unknown: file.unknown.unwrap_or(Unknown::Count),
        auditor: auditor(&file.auditor, field)?,
    })
}

fn open(key: &str, given: Option<&Spanned<Share>>, default: u32) -> Result<u32, Fault> {
    let Some(given) = given else {
        return Ok(default);
    };
    match given.get_ref().0 {
        0 | PPM => {
            let problem = format!("audit: {key} must be between 0 and 1, and neither");
            Err((given.span(), problem))
        }
        ppm => Ok(ppm),
    }
}

fn auditor(spanned: &Spanned<AuditorFile>, field: &Field) -> Result<Auditor, Fault> {
    let file = spanned.get_ref();
    let fault = |problem: &str| (spanned.span(), format!("auditor: {problem}"));
    let rubric = match &file.rubric {
        Some(rubric) => Some(filled("auditor: rubric", rubric)?),
        None => None,
    };
    let of_labels = file.id.is_some() || file.label.is_some() || !file.map.is_empty();
    match (&file.labels, rubric, &file.model) {
        (Some(path), None, None) => {
            let need = |key: &str, given: &Option<String>| {
                let given = given.clone().filter(|name| !name.is_empty());
                given.ok_or_else(|| fault(&format!("labels need {key:?}; add it")))
            };
            let mut map = BTreeMap::new();
            for (from, to) in &file.map {
                let to = known_label(to, field, "map of the auditor")?;
                map.insert(from.clone(), to);
            }
            Ok(Auditor::Labels {
                path: path.clone(),
                id: need("id", &file.id)?,
                label: need("label", &file.label)?,
                map,
            })
        }
        (None, _, _) if of_labels => Err(fault("id, label and map belong to labels; name a file")),
        (None, Some(rubric), None) => Ok(Auditor::Rubric { rubric }),
        (None, rubric, Some(model)) => match model.get_ref().as_str() {
            "larger" => Ok(Auditor::Model { rubric }),
            other => {
                let problem = format!(
                    "auditor: model is {other:?}{}; \"larger\" is the one that the command line names",
                    suggest(other, &["larger"])
                );
                Err((model.span(), problem))
            }
        },
        (None, None, None) => Err(fault("name labels, a rubric, or model = \"larger\"")),
        (Some(_), ..) => Err(fault("labels stand alone; remove rubric and model")),
    }
}
