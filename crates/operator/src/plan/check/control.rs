//! Control: a rule fits its claim, no other claim would be partial, and an order can be had.

use std::ops::Range;

use toml::Spanned;

use super::{Fault, filled, within};
use crate::infer::PPM;
use crate::nearest::suggest;
use crate::plan::control::{ControlFile, StopFile};
use crate::plan::file::{PlanFile, Share};
use crate::plan::{Contract, Control, Measure, Operation, Reduce, Rule, StopRule};

const ATTEMPTS_MAX: u32 = 16;
const LOOKS_MAX: usize = 64;
const RULES_MAX: usize = 64;

/// Each rule with the keys that it must have.
const RULES: [(&str, &[&str]); 4] = [
    ("threshold", &["at_least"]),
    ("examples", &["k"]),
    ("top_k", &[]),
    ("confidence", &["half_width", "alpha", "looks", "seed"]),
];

pub(super) fn control(
    spanned: &Spanned<ControlFile>,
    reduces: &[Reduce],
    plan: &PlanFile,
) -> Result<Control, Fault> {
    let file = spanned.get_ref();
    let attempts = file.attempts_max.as_ref();
    let attempts_max = within(attempts, "control: attempts_max", 1..=ATTEMPTS_MAX)?.unwrap_or(1);
    let unit_ms = file.unit_ms_max.as_ref();
    let unit_ms_max = within(unit_ms, "control: unit_ms_max", 1..=u32::MAX)?;
    let mut stop: Vec<StopRule> = Vec::new();
    for spanned in &file.stop {
        let rule = rule(spanned, reduces)?;
        if stop.iter().any(|other| other.reduce == rule.reduce) {
            let problem = format!("stop: reduce {:?} has two rules; keep one", rule.reduce);
            return Err((spanned.span(), problem));
        }
        let mut ordering = stop.iter().filter(|other| other.rule.orders());
        if let Some(other) = ordering.next().filter(|_| rule.rule.orders()) {
            let problem = format!(
                "stop: {} and {} want units in different orders; put one into a plan of its own",
                other.describe(),
                rule.describe()
            );
            return Err((spanned.span(), problem));
        }
        stop.push(rule);
    }
    if let Some(further) = file.stop.get(RULES_MAX) {
        let problem = format!("stop: a plan has at most {RULES_MAX} rules; remove some");
        return Err((further.span(), problem));
    }
    if !stop.is_empty() {
        whole(plan, reduces, &stop)?;
    }
    Ok(Control {
        stop,
        attempts_max,
        unit_ms_max,
    })
}

/// Refuses what a run that stops early would leave partial without saying so.
fn whole(plan: &PlanFile, reduces: &[Reduce], stop: &[StopRule]) -> Result<(), Fault> {
    let rules: Vec<String> = stop.iter().map(StopRule::describe).collect();
    let rules = rules.join(" and ");
    for (file, reduce) in plan.reduce.iter().zip(reduces) {
        if stop.iter().all(|rule| rule.reduce != reduce.name) {
            let problem = format!(
                "reduce {:?} speaks of every unit, and the run stops by {rules}; give it a rule of its \
                 own in [control] stop, or put it into another plan",
                reduce.name
            );
            return Err((file.span(), problem));
        }
    }
    let others: [(Option<Range<usize>>, &str, &str); 3] = [
        (
            plan.audit.as_ref().map(Spanned::span),
            "[audit]",
            "certifies that all were found",
        ),
        (
            plan.effect.first().map(Spanned::span),
            "[[effect]]",
            "acts on all that match",
        ),
        (
            plan.pass.first().map(Spanned::span),
            "[[pass]]",
            "decides units again that a rule has counted",
        ),
    ];
    for (span, table, does) in others {
        if let Some(span) = span {
            let problem =
                format!("{table} {does}, and the run stops by {rules}; remove one of the two");
            return Err((span, problem));
        }
    }
    Ok(())
}

fn rule(spanned: &Spanned<StopFile>, reduces: &[Reduce]) -> Result<StopRule, Fault> {
    let file = spanned.get_ref();
    let name = file.reduce.get_ref();
    let Some(reduce) = reduces.iter().find(|reduce| reduce.name == *name) else {
        let known: Vec<&str> = reduces.iter().map(|reduce| reduce.name.as_str()).collect();
        let problem = format!("stop: unknown reduce {name:?}{}", suggest(name, &known));
        return Err((file.reduce.span(), problem));
    };
    let spelled = file.rule.get_ref();
    let Some((kind, keys)) = RULES.iter().find(|(kind, _)| kind == spelled) else {
        let known: Vec<&str> = RULES.iter().map(|(kind, _)| *kind).collect();
        let problem = format!("stop: unknown rule {spelled:?}{}", suggest(spelled, &known));
        return Err((file.rule.span(), problem));
    };
    let what = format!("stop: {kind} of {name:?}");
    for (key, span) in given(file) {
        match (keys.contains(&key), span) {
            (true, None) => {
                return Err((spanned.span(), format!("{what} needs {key:?}; add it")));
            }
            (false, Some(span)) => {
                return Err((span, format!("{what} has no {key:?}; remove it")));
            }
            _ => {}
        }
    }
    if reduce.contract == Contract::Exhaustive {
        let problem = format!(
            "{what}: the claim is declared exhaustive and speaks of every unit; remove its contract or \
             the rule"
        );
        return Err((spanned.span(), problem));
    }
    fits(kind, reduce).map_err(|cure| {
        let op = reduce.op.as_str();
        let problem = format!("{what}: op {op:?} {cure}");
        (file.rule.span(), problem)
    })?;
    Ok(StopRule {
        reduce: name.clone(),
        rule: build(file, &what)?,
    })
}

/// Whether a rule can stand for a claim; otherwise what is wrong and what to do.
fn fits(kind: &str, reduce: &Reduce) -> Result<(), &'static str> {
    match (kind, &reduce.op) {
        ("threshold", Operation::Count) | ("examples", Operation::Set { key: None, .. }) => Ok(()),
        ("top_k", Operation::TopK { by, .. }) => match by {
            Measure::Column(_) => Ok(()),
            Measure::Probability { .. } => Err(
                "by probability: no bound is known before a unit is asked; order by an integer or time \
                 column, or remove the rule",
            ),
        },
        ("confidence", Operation::Count) if !reduce.filter.labels.is_empty() => Ok(()),
        ("confidence", Operation::Count) => Err(
            "without a label in its where has no share to estimate; add where = { FIELD = LABEL }",
        ),
        ("threshold", _) => Err("has no number that could be \"at least\"; the rule is for count"),
        ("examples", _) => Err("names no units as examples; the rule is for set without a field"),
        ("top_k", _) => Err("ranks no units; the rule is for top_k by a column"),
        _ => Err("is no share of units; the rule is for count with a where"),
    }
}

fn build(file: &StopFile, what: &str) -> Result<Rule, Fault> {
    let number = |key: &str, given: &Option<Spanned<u32>>| {
        within(given.as_ref(), &format!("{what}: {key}"), 1..=u32::MAX)
    };
    if let Some(at_least) = number("at_least", &file.at_least)? {
        let at_least = at_least.into();
        return Ok(Rule::Threshold { at_least });
    }
    if let Some(k) = number("k", &file.k)? {
        return Ok(Rule::Examples { k });
    }
    let (Some(half), Some(alpha), Some(looks), Some(seed)) =
        (&file.half_width, &file.alpha, &file.looks, &file.seed)
    else {
        return Ok(Rule::TopK);
    };
    let (half_width_ppm, alpha_ppm) =
        (open("half_width", half, what)?, open("alpha", alpha, what)?);
    let sizes = looks.get_ref();
    let ascend = sizes.windows(2).all(|pair| pair[0] < pair[1]);
    if sizes.is_empty() || sizes.len() > LOOKS_MAX || !ascend || sizes[0] == 0 {
        let problem = format!(
            "{what}: looks are sample sizes, 1 to {LOOKS_MAX} of them, at least 1 and strictly ascending"
        );
        return Err((looks.span(), problem));
    }
    // Each look has its share of alpha, half of it on either side.
    if u64::from(alpha_ppm) < 2 * sizes.len() as u64 {
        let problem = format!(
            "{what}: alpha is too small to be shared by {} looks",
            sizes.len()
        );
        return Err((alpha.span(), problem));
    }
    Ok(Rule::Confidence {
        half_width_ppm,
        alpha_ppm,
        looks: sizes.iter().copied().map(u64::from).collect(),
        seed: filled(&format!("{what}: seed"), seed)?,
    })
}

fn open(key: &str, given: &Spanned<Share>, what: &str) -> Result<u32, Fault> {
    match given.get_ref().0 {
        0 | PPM => {
            let problem = format!("{what}: {key} must be between 0 and 1, and neither");
            Err((given.span(), problem))
        }
        ppm => Ok(ppm),
    }
}

/// The keys that belong to some rules only, and where they stand.
fn given(file: &StopFile) -> [(&'static str, Option<Range<usize>>); 6] {
    fn span<T>(key: &Option<Spanned<T>>) -> Option<Range<usize>> {
        key.as_ref().map(Spanned::span)
    }
    [
        ("at_least", span(&file.at_least)),
        ("k", span(&file.k)),
        ("half_width", span(&file.half_width)),
        ("alpha", span(&file.alpha)),
        ("looks", span(&file.looks)),
        ("seed", span(&file.seed)),
    ]
}
