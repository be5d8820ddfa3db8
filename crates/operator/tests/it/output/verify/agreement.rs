//! What the verifier derives is what the fold made, for every operation, tree and order.

use std::collections::BTreeSet;

use operator::Plan;
use operator::answer::{
    ANSWER_VERSION, AnswerBackend, AnswerSource, CitedAnswer, TreeSummary, count_reasons,
};
use operator::fact::Fact;
use operator::fold::{Leaves, NodeRecord, record_nodes};
use operator::id::ContentHash;
use operator::verify::{Place, Report, Sources, Subject, verify};
use proptest::prelude::*;

use super::super::facts::{EVERY_OPERATION, every_operation, facts, folded, reduced, spec_of};

/// The plan under another width.
pub fn under(fan_in: u32) -> Plan {
    let text = EVERY_OPERATION.replace("[fold]", &format!("[fold]\nfan_in = {fan_in}"));
    Plan::parse(&text, "every.toml").unwrap()
}

/// What the fold makes of facts.
pub fn made(plan: &Plan, facts: &[Fact]) -> (Vec<NodeRecord>, CitedAnswer) {
    let facts = facts.to_vec();
    let fan_in = plan.fold.fan_in as u32;
    let spec = spec_of(plan, fan_in);
    let leaves = Leaves::arrange(&spec, &facts).unwrap();
    let (root, nodes) = folded(&spec, &facts);
    let nodes = root
        .as_ref()
        .map_or_else(Vec::new, |root| record_nodes(root, nodes, &leaves).unwrap());
    let reduction = reduced(plan, &facts, fan_in);
    let none = ContentHash::from_bytes([0; 32]);
    let mut answer = CitedAnswer {
        version: ANSWER_VERSION,
        question: plan.question.clone(),
        plan_hash: plan.hash(),
        source: AnswerSource {
            path: String::from("none"),
            hash: none,
            records: facts.len() as u64,
        },
        backend: AnswerBackend {
            name: String::from("nobody"),
            digest: none,
            simulated: false,
        },
        simulated: false,
        complete: reduction.counts.complete(),
        stop: reduction.stop,
        result_hash: none,
        tree: root.map(|root| TreeSummary {
            hashes: root.hashes,
            fan_in,
            levels: nodes.iter().map(|node| node.path.len()).max().unwrap_or(0) as u64,
            nodes: nodes.len() as u64,
        }),
        coverage: reduction.counts,
        coverage_by_reason: count_reasons(&facts),
        claims: reduction.claims,
        selections: operator::answer::selections(plan, facts),
        audit: None,
        quarantine: None,
    };
    answer.result_hash = answer.hash_result();
    (nodes, answer)
}

/// Everything found but for the facts themselves, which are drawn without regard to the plan.
fn beside_units(plan: &Plan, facts: &[Fact]) -> Vec<String> {
    let (nodes, answer) = made(plan, facts);
    let subject = Subject {
        plan,
        facts,
        nodes: &nodes,
        answer: &answer,
    };
    let report: Report = verify(subject, &Sources::Absent(String::from("there are none")));
    assert_eq!(report.checked.nodes, nodes.len() as u64);
    assert_eq!(report.checked.claims, plan.reduces.len() as u64);
    let findings = report.findings.into_iter();
    findings
        .filter(|finding| !matches!(finding.place, Place::Unit(_)))
        .map(|finding| finding.to_string())
        .collect()
}

#[test]
fn every_operation_that_code_folds_is_in_the_plan_of_these_tests() {
    let plan = every_operation();
    let ops: BTreeSet<&str> = plan
        .reduces
        .iter()
        .map(|reduce| reduce.op.as_str())
        .collect();
    // All seventeen but the summary, which is no fold.
    assert_eq!(ops.len(), 16);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_flat_pass_gives_what_the_fold_gives(facts in facts(150), fan_in in 2..=16_u32) {
        prop_assert_eq!(beside_units(&under(fan_in), &facts), Vec::<String>::new());
    }

    #[test]
    fn ids_that_are_no_numbers_are_placed_alike(facts in facts(60), fan_in in 2..=16_u32) {
        let mut facts = facts;
        for fact in &mut facts {
            if fact.ordinal % 3 != 0 {
                fact.unit_id = operator::id::UnitId::new(&format!("0{}-ü", fact.unit_id));
            }
        }
        prop_assert_eq!(beside_units(&under(fan_in), &facts), Vec::<String>::new());
    }
}

/// One test per operation, so that a disagreement names it.
macro_rules! agrees {
    ($($test:ident $op:literal),* $(,)?) => {
        $(proptest! {
            #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

            #[test]
            fn $test(facts in facts(90), fan_in in 2..=16_u32) {
                let mut plan = under(fan_in);
                plan.reduces.retain(|reduce| reduce.op.as_str() == $op);
                prop_assert!(!plan.reduces.is_empty());
                prop_assert_eq!(beside_units(&plan, &facts), Vec::<String>::new());
            }
        })*
    };
}

agrees! {
    a_count_agrees "count",
    a_count_by_agrees "count_by",
    a_set_agrees "set",
    a_top_k_agrees "top_k",
    top_keys_agree "top_keys",
    a_histogram_agrees "histogram",
    a_min_agrees "min",
    a_max_agrees "max",
    a_sum_agrees "sum",
    a_mean_agrees "mean",
    quantiles_agree "quantiles",
    heavy_hitters_agree "heavy_hitters",
    a_distinct_agrees "distinct",
    a_join_agrees "join",
    clusters_agree "clusters",
    components_agree "components",
}

#[test]
fn past_their_bounds_quantiles_and_distinct_counts_agree() {
    use operator::column::ColumnValue;
    let draw = super::super::facts::Draw {
        status: 1,
        tenths: 9,
        cause: 0,
        certain: true,
        comments: None,
        author: 0,
    };
    let facts: Vec<Fact> = (0..101_000_u32)
        .map(|id| {
            let mut fact = super::super::facts::fact(&id.to_string(), id, &draw);
            let comments = i64::from(id.wrapping_mul(2_654_435_761) >> 4) - 90_000_000;
            let author = format!("author {}", id % 30_000);
            fact.columns
                .insert("comments".into(), ColumnValue::Integer(comments));
            fact.columns
                .insert("author".into(), ColumnValue::Text(author));
            fact
        })
        .collect();
    let mut plan = under(16);
    plan.reduces
        .retain(|reduce| ["quantiles", "different"].contains(&reduce.name.as_str()));
    assert_eq!(beside_units(&plan, &facts), Vec::<String>::new());
}
