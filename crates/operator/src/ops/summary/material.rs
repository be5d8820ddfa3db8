//! What a summary is written from: the claims that it is of, and nothing else.
//!
//! The text of a record enters only as the quote of a citation. What stands apart (dissent,
//! abstentions, errors, refused claims) is kept beside the material and added to the text by code,
//! so that no writer can lose it. Must not know who writes.

use std::fmt::Write as _;

use serde::Serialize;

use super::known::{Known, units_named};
use crate::answer::{Claim, fill};
use crate::coverage::Counts;
use crate::fact::Cite;
use crate::id::UnitId;
use crate::plan::{Measure, Operation, Reduce};
use crate::reducers::{Ranked, Selection};

/// Most bytes of a material; more is refused, never cut.
pub const MATERIAL_BYTES_MAX: usize = 16_384;

/// The folded claims of a run, and what stands beside them.
pub struct Settled<'a> {
    /// The plan's reductions.
    pub reduces: &'a [Reduce],
    /// One claim per reduction that is no summary, in plan order.
    pub claims: &'a [Claim],
    /// Facts or members that each of them speaks of.
    pub counted: &'a [u64],
    /// Units per status.
    pub counts: Counts,
    /// Units that abstained or errored; none without units.
    pub unsettled: Option<&'a Ranked>,
    /// The source of a unit.
    pub source: &'a dyn Fn(&UnitId) -> Option<Cite>,
}

/// Something that a summary must not lose.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Apart {
    /// The claim that names it; none for the whole run.
    pub claim: Option<String>,
    /// `dissent`, `abstained`, `unsettled` or `refused`.
    pub kind: &'static str,
    /// The units, named up to the cap of whoever named them.
    pub units: Vec<UnitId>,
    /// How many there are.
    pub total: u64,
    /// Why a claim is refused.
    pub reason: Option<String>,
}

/// What one summary is written from and re-read against.
#[derive(Debug)]
pub struct Material {
    /// What the writer is given.
    pub text: String,
    /// What code adds to the text.
    pub apart: Vec<Apart>,
    pub(super) known: Known,
}

/// Gathers the claims that a summary is of.
///
/// # Errors
/// Why no summary can be written: nothing that it is of has an answer, or it is too much.
///
/// # Panics
/// If the reduction is no summary, or is of a name that no claim has: plans are checked.
pub fn gather(reduce: &Reduce, settled: &Settled<'_>) -> Result<Material, String> {
    let Operation::Summary {
        of, instruction, ..
    } = &reduce.op
    else {
        panic!("{} is no summary", reduce.name);
    };
    let mut known = Known::default();
    let mut apart = Vec::new();
    let mut facts = String::new();
    let mut sources: Vec<UnitId> = Vec::new();
    let folded = settled
        .reduces
        .iter()
        .filter(|reduce| !matches!(reduce.op, Operation::Summary { .. }));
    let folded: Vec<_> = folded.zip(settled.claims).zip(settled.counted).collect();
    let mut answered = 0;
    for name in of {
        let found = folded.iter().find(|((of, _), _)| of.name == *name);
        let Some(((of, claim), counted)) = found else {
            panic!("{} is of {name:?}, which is no claim", reduce.name);
        };
        if let Some(reason) = &claim.refused {
            apart.push(Apart {
                claim: Some(name.clone()),
                kind: "refused",
                units: Vec::new(),
                total: 0,
                reason: Some(reason.clone()),
            });
            continue;
        }
        answered += 1;
        known.add(of, claim, **counted);
        for unit in units_named(of, &claim.value) {
            if !known.units.contains_key(&unit)
                && let Some(cite) = (settled.source)(&unit)
            {
                known.units.insert(unit, cite);
            }
        }
        sources.extend(claim.cites.iter().map(|cite| cite.unit_id.clone()));
        apart.extend(outliers(claim));
        // Writing to a string cannot fail.
        let _ = writeln!(
            facts,
            "- {name}: {}",
            one_line(&meaning(of, claim, **counted))
        );
    }
    if answered == 0 {
        return Err(String::from(
            "none of the claims that it is of has an answer",
        ));
    }
    known.cover(settled.counts);
    apart.extend(settled.unsettled.and_then(unsettled));
    let text = render(instruction, &facts, &known, &sources, &apart);
    if text.len() > MATERIAL_BYTES_MAX {
        return Err(format!(
            "what it is of is {} bytes, at most {MATERIAL_BYTES_MAX} are given to a writer; name \
             fewer claims in `of`, or lower their cite_max or k",
            text.len()
        ));
    }
    Ok(Material { text, apart, known })
}

fn render(
    instruction: &str,
    facts: &str,
    known: &Known,
    sources: &[UnitId],
    apart: &[Apart],
) -> String {
    let mut text = format!("Claims:\n{facts}\nNumbers:\n");
    for number in &known.numbers {
        let _ = writeln!(text, "{} = {}", one_line(&number.name), number.shown);
    }
    text.push_str("\nSources:\n");
    let mut seen: Vec<&UnitId> = Vec::new();
    for unit in sources {
        if seen.contains(&unit) {
            continue;
        }
        seen.push(unit);
        let span = known.units.get(unit).and_then(|cite| cite.span.as_ref());
        let _ = match span.and_then(|span| span.quote.as_ref()) {
            Some(quote) => writeln!(text, "[{unit}] {}", one_line(quote)),
            None => writeln!(text, "[{unit}]"),
        };
    }
    if !apart.is_empty() {
        text.push_str("\nAdded after your text by code, do not repeat:\n");
        for apart in apart {
            let _ = writeln!(text, "{apart}");
        }
    }
    // Last, for a small model heeds best what it has just read.
    let _ = write!(text, "\nTask: {}", instruction.trim());
    text
}

/// What a claim says, with ids in brackets: bare ones would be read as numbers.
fn meaning(reduce: &Reduce, claim: &Claim, counted: u64) -> String {
    let what = match &reduce.op {
        Operation::Set { key: None, .. } => String::from("decided units"),
        Operation::TopK { by, order, .. } => match by {
            Measure::Probability { field, label } => {
                let label = label.as_deref().unwrap_or("its label");
                format!("the units most probably {field} = {label}")
            }
            Measure::Column(column) => {
                format!("the units with the {} {}", order.as_str(), column.name)
            }
        },
        Operation::Clusters { field, .. } => format!("examples of the clusters of {field}"),
        _ => return claim.text.clone(),
    };
    let ids: Vec<String> = units_named(reduce, &claim.value)
        .iter()
        .map(|unit| format!("[{unit}]"))
        .collect();
    let ids = ids.join(", ");
    match &reduce.claim {
        Some(wording) => fill(wording, &ids, counted),
        None => {
            let selection = Selection::of(&reduce.filter).to_string();
            let with = if selection.is_empty() { "" } else { " with " };
            format!("{what}{with}{selection}: {ids}")
        }
    }
}

fn outliers(claim: &Claim) -> Vec<Apart> {
    let mut found = Vec::new();
    for kind in ["dissent", "abstained"] {
        let units = claim.value.get(kind).and_then(serde_json::Value::as_array);
        let ids = units
            .into_iter()
            .flatten()
            .filter_map(serde_json::Value::as_str);
        let units: Vec<UnitId> = ids.map(UnitId::new).collect();
        if !units.is_empty() {
            found.push(Apart {
                claim: Some(claim.name.clone()),
                kind,
                total: units.len() as u64,
                units,
                reason: None,
            });
        }
    }
    found
}

fn unsettled(units: &Ranked) -> Option<Apart> {
    (units.total > 0).then(|| Apart {
        claim: None,
        kind: "unsettled",
        units: units.units().map(|unit| unit.id.clone()).collect(),
        total: units.total,
        reason: None,
    })
}

impl std::fmt::Display for Apart {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(claim) = &self.claim {
            write!(f, "{claim}, ")?;
        }
        write!(f, "{}", self.kind)?;
        if let Some(reason) = &self.reason {
            return write!(f, ": {}", one_line(reason));
        }
        write!(f, " ({}):", self.total)?;
        for unit in &self.units {
            write!(f, " [{}]", one_line(unit.as_str()))?;
        }
        match self.total.saturating_sub(self.units.len() as u64) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

/// Text on one line: control characters and line separators become spaces.
pub(super) fn one_line(text: &str) -> String {
    let space = |c: char| c.is_control() || c == '\u{2028}' || c == '\u{2029}';
    text.chars()
        .map(|c| if space(c) { ' ' } else { c })
        .collect()
}
