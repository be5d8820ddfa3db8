//! Facts for the fold, and the group-bys that it is compared with.

use std::collections::{HashMap, HashSet};

use operator::fact::{Evidence, Fact, FieldValue, Status};
use operator::id::{ContentHash, UnitId};
use operator::{OperatorError, Plan};

const PLAN: &str = r#"
version = 1
question = "How many issues are there per kind?"
rubric = "Classify one issue."
input = { id = "number", text = [{ field = "title" }] }
field = [{ name = "kind", question = "What is it?", labels = ["bug", "feature", "question"] }]
reduce = [{ name = "kinds", op = "count_by", field = "kind" }]
"#;

const KINDS: [&str; 3] = ["bug", "feature", "question"];
const CITED: usize = 8;

/// Count and first units of each group.
pub type Groups<'a> = HashMap<&'a str, (u64, Vec<&'a UnitId>)>;

/// A plan with one enum field and one `count_by`.
///
/// # Errors
/// None, while the plan above is valid.
pub fn plan() -> Result<Plan, OperatorError> {
    Plan::parse(PLAN, "kinds.toml")
}

/// The fact of one number; what it says is spread by a multiplicative hash.
pub fn fact(number: u32) -> Fact {
    let spread = number.wrapping_mul(2_654_435_761);
    let sure = 500_000 + spread % 500_000;
    let kind = (spread >> 16) as usize % KINDS.len();
    let quote = format!("title of issue {number}");
    let source_hash = ContentHash::of_bytes(&number.to_le_bytes());
    let id = UnitId::new(&number.to_string());
    let mut fact = Fact::bare(id, number, source_hash, Status::Decided, "map", None);
    let value = FieldValue {
        probability_ppm: Some(sure),
        margin_ppm: Some(2 * sure - 1_000_000),
        label_mass_ppm: Some(990_000),
        alternatives: vec![(KINDS[(kind + 1) % KINDS.len()].to_owned(), 1_000_000 - sure)],
        ..FieldValue::set(KINDS[kind])
    };
    fact.values.insert("kind".to_owned(), value);
    let end = quote.len() as u32;
    fact.evidence
        .push(Evidence::new("title", 0, end, quote, None));
    fact.cost.prompt_tokens = 600;
    fact
}

/// Groups facts by kind in a hash map, with counts and the first units of each.
pub fn group_by(facts: &[Fact]) -> Groups<'_> {
    let mut groups = Groups::new();
    for fact in facts.iter().filter(|fact| fact.status == Status::Decided) {
        if let Some(value) = fact.values.get("kind") {
            let (count, first) = groups.entry(&value.label).or_default();
            *count += 1;
            if first.len() < CITED {
                first.push(&fact.unit_id);
            }
        }
    }
    groups
}

/// As [`group_by`], refusing a unit that was delivered before, as the fold does.
pub fn group_by_units(facts: &[Fact]) -> Option<Groups<'_>> {
    let mut seen = HashSet::with_capacity(facts.len());
    let unseen = facts.iter().all(|fact| seen.insert(&fact.unit_id));
    unseen.then(|| group_by(facts))
}
