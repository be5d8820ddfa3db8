//! The fold's own check on the fixture corpus.

use operator::selfcheck::{Artifact, Corpus, check};

pub fn artifact() -> Artifact {
    check(Corpus {
        plan: include_str!("../../../../../fixtures/plans/fold-selfcheck.toml"),
        records: include_bytes!("../../../../../fixtures/issues-1000.json"),
        oracle: include_str!("../../../../../fixtures/oracle/issues-1000.oracle.jsonl"),
    })
    .unwrap()
}

#[test]
fn what_the_fold_promises_holds_on_a_thousand_records() {
    let artifact = artifact();
    let witness = &artifact.witness;
    assert_eq!(witness.problems(), Vec::<String>::new());
    assert_eq!(
        (witness.leaves, witness.nodes, witness.levels),
        (1_000, 144, 4)
    );
    assert_eq!((witness.inputs_max, witness.citations_max), (8, 10));
    assert_eq!(witness.citations_cap, 64);
    assert_eq!(witness.variants.len(), 23);
    assert_eq!(witness.cited.len(), 10);
    let work = witness.mutation.work;
    assert_eq!(work.leaves_computed + work.nodes_computed, 5);
    assert_eq!(work.leaves_reused + work.nodes_reused, 1_139);
    assert_eq!(witness.audit.audited.len(), 25);
    assert!(artifact.answer.simulated);
}

#[test]
fn a_broken_promise_is_told() {
    let mut witness = artifact().witness;
    witness.variants[3].1 = operator::id::ContentHash::from_bytes([0; 32]);
    witness.dissent.clear();
    witness.mutation.work.nodes_computed += 1;
    witness.audit.misses.push(operator::id::UnitId::new("7"));
    let problems = witness.problems();
    assert_eq!(problems.len(), 4, "{problems:?}");
    assert!(problems[0].starts_with("shuffled 3"), "{problems:?}");
}
