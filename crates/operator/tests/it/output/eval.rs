//! Evaluation against figures worked out by hand.

use std::collections::BTreeMap;

use operator::answer::Claim;
use operator::audit::rate_upper_ppm;
use operator::eval::{
    ClaimReport, Judgement, Labels, Quality, evaluate, evaluate_claim, evaluate_quality,
    read_labels,
};
use operator::id::UnitId;
use operator::infer::FailReason;
use operator::record::read_bytes;

use super::script::{Act, Script, issues, plan, run_simply, units};

#[test]
fn figures_equal_those_worked_out_by_hand() {
    let partition = units(&plan(), &issues(10));
    let script = Script::with([(8, Act::Doubt), (9, Act::Fail(FailReason::Backend))]);
    let mut facts = run_simply(&partition, &mut { script }).facts;
    // Unit 0 is excluded, 8 abstained, 9 errored; the rest is decided as: yes yes yes yes no no no.
    for (id, label) in [
        (1, "yes"),
        (2, "yes"),
        (3, "yes"),
        (4, "yes"),
        (5, "no"),
        (6, "no"),
        (7, "no"),
    ] {
        facts[id].values.get_mut("blocker").unwrap().label = label.to_owned();
    }
    // Truth: 0 no, 1 yes, 2 yes, 3 yes, 4 no, 5 no, 6 no, 7 yes, 8 yes, 9 null, 77 unknown unit.
    let csv = "id;truth\n0;false\n1;true\n2;true\n3;true\n4;false\n5;false\n6;false\n7;true\n8;true\n9;\n77;true\n";
    let (_, records, _) = read_bytes("labels.csv", csv.as_bytes(), None).unwrap();
    let map = BTreeMap::from([("true", "yes"), ("false", "no")].map(|(a, b)| (a.into(), b.into())));
    let labels = read_labels("labels.csv", &records, "id", "truth", &map).unwrap();
    let report = evaluate(&facts, &labels, "blocker");
    assert_eq!((report.labelled, report.decided, report.correct), (9, 7, 5));
    assert_eq!(report.accuracy_decided_ppm, Some(714_286));
    assert_eq!(report.accuracy_labelled_ppm, Some(555_556));
    let class = |name: &str| {
        report
            .classes
            .iter()
            .find(|class| class.label == name)
            .unwrap()
    };
    let (yes, no) = (class("yes"), class("no"));
    assert_eq!((yes.support, yes.predicted, yes.correct), (5, 4, 3));
    assert_eq!(
        (yes.precision_ppm, yes.recall_ppm),
        (Some(750_000), Some(600_000))
    );
    assert_eq!(yes.f1_ppm, Some(666_667));
    assert_eq!((no.support, no.predicted, no.correct), (4, 3, 2));
    assert_eq!(
        (no.precision_ppm, no.recall_ppm),
        (Some(666_667), Some(500_000))
    );
    assert_eq!(no.f1_ppm, Some(571_429));
    assert_eq!(report.macro_f1_ppm, Some(619_048));
    let row = report
        .confusion
        .iter()
        .find(|row| row.label == "yes")
        .unwrap();
    assert_eq!(
        row.decided,
        BTreeMap::from([("yes".into(), 3), ("no".into(), 1)])
    );
    assert_eq!(row.undecided, BTreeMap::from([("abstained".into(), 1)]));
    let row = report
        .confusion
        .iter()
        .find(|row| row.label == "no")
        .unwrap();
    assert_eq!(row.undecided, BTreeMap::from([("excluded".into(), 1)]));
    assert_eq!(report.unlabelled, [UnitId::new("9")]);
    assert_eq!(report.without_fact, [UnitId::new("77")]);
    // The excluded unit is truly a no: it is settled and not found.
    let quality = evaluate_quality(&facts, &labels, "blocker");
    let (no, yes) = (&quality.misses[0], &quality.misses[1]);
    assert_eq!((no.label.as_str(), no.settled, no.missed), ("no", 4, 2));
    assert_eq!(
        (yes.settled, yes.missed, yes.rate_ppm),
        (4, 1, Some(250_000))
    );
    assert_eq!(yes.rate_upper_ppm, Some(rate_upper_ppm(4, 1, 50_000)));
    let table = report.to_string();
    assert!(
        table.contains("71.43% of decided, 55.56% of all; macro F1 61.90%"),
        "{table}"
    );
    assert!(
        table.contains("yes   -> no 1, yes 3, (abstained) 1"),
        "{table}"
    );
}

#[test]
fn a_missing_label_field_names_the_fields_there_are() {
    let (_, records, _) = read_bytes("l.csv", b"id,kind\n1,bug\n2,bug\n", None).unwrap();
    let error = read_labels("l.csv", &records, "id", "sort", &BTreeMap::new()).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("no record has a label in sort; fields: id, kind"),
        "{error}"
    );
    let error = read_labels("l.csv", &records, "kind", "id", &BTreeMap::new()).unwrap_err();
    assert!(error.to_string().contains("same id"), "{error}");
}

fn claim(value: serde_json::Value) -> Claim {
    Claim {
        name: String::from("found"),
        text: String::new(),
        value,
        refused: None,
        cites: Vec::new(),
        cites_total: 0,
    }
}

fn truth(pairs: &[(&str, &str)]) -> Labels {
    let pairs = pairs.iter();
    pairs
        .map(|(id, label)| (UnitId::new(id), String::from(*label)))
        .collect()
}

#[test]
fn a_claim_that_names_units_is_measured_against_those_that_truly_have_the_label() {
    let labels = truth(&[
        ("1", "yes"),
        ("2", "yes"),
        ("3", "no"),
        ("4", "yes"),
        ("5", "no"),
    ]);
    let named = claim(serde_json::json!(["1", "2", "3", "9"]));
    let Ok(ClaimReport::Units(report)) = evaluate_claim(&named, &labels, "yes", &[]) else {
        panic!("units are named");
    };
    assert_eq!((report.named, report.support, report.confirmed), (3, 3, 2));
    assert_eq!(report.wrong, [UnitId::new("3")]);
    assert_eq!(report.missed, [UnitId::new("4")]);
    assert_eq!(report.unlabelled, [UnitId::new("9")]);
    assert_eq!(report.precision_ppm, Some(666_667));
    assert_eq!(report.recall_ppm, Some(666_667));
    assert_eq!(report.f1_ppm, Some(666_667));
}

#[test]
fn a_claim_that_counts_labels_is_measured_against_the_most_frequent_ones() {
    let labels = truth(&[
        ("1", "clock"),
        ("2", "clock"),
        ("3", "race"),
        ("4", "race"),
        ("5", "race"),
        ("6", "header"),
        ("7", "none"),
        ("8", "none"),
        ("9", "none"),
        ("10", "none"),
    ]);
    let counted = claim(serde_json::json!([
        { "label": "race", "count": 9 },
        { "label": "header", "count": 4 },
    ]));
    let ignored = [String::from("none")];
    let Ok(ClaimReport::Keys(report)) = evaluate_claim(&counted, &labels, "yes", &ignored) else {
        panic!("labels are counted");
    };
    assert_eq!(report.most_frequent, ["race", "clock"]);
    assert_eq!(report.right, 1);
    assert_eq!((report.keys[0].claimed, report.keys[0].support), (9, 3));
    assert_eq!((report.keys[1].claimed, report.keys[1].support), (4, 1));
}

#[test]
fn a_claim_without_units_or_counts_is_refused_with_a_cure() {
    let labels = truth(&[("1", "yes")]);
    for value in [serde_json::json!(3), serde_json::json!([{ "key": 1 }])] {
        let error = evaluate_claim(&claim(value), &labels, "yes", &[]).unwrap_err();
        assert!(error.to_string().contains("op set"), "{error}");
    }
    let mut refused = claim(serde_json::json!(["1"]));
    refused.refused = Some(String::from("too many keys"));
    let error = evaluate_claim(&refused, &labels, "yes", &[]).unwrap_err();
    assert!(error.to_string().contains("too many keys"), "{error}");
}

#[test]
fn calibration_and_coverage_equal_those_worked_out_by_hand() {
    let ids: Vec<UnitId> = (0..5).map(|id| UnitId::new(&id.to_string())).collect();
    let rows = [
        ("a", "a", 950_000),
        ("a", "b", 900_000),
        ("b", "b", 550_000),
        ("b", "b", 1_000_000),
        ("a", "b", 520_000),
    ];
    let judgements = rows.iter().zip(&ids).map(|(row, unit)| Judgement {
        unit,
        truth: row.0,
        label: row.1,
        probability_ppm: row.2,
    });
    let quality = Quality::of(judgements.collect());
    assert_eq!(quality.judged, 5);
    let bins: Vec<_> = quality
        .reliability
        .iter()
        .map(|bin| (bin.from_ppm, bin.judged, bin.probability_ppm, bin.right_ppm))
        .collect();
    assert_eq!(
        bins,
        [
            (500_000, 2, Some(535_000), Some(500_000)),
            (900_000, 3, Some(950_000), Some(666_667)),
        ]
    );
    // |1,070,000 - 1,000,000| + |2,850,000 - 2,000,000|, over 5.
    assert_eq!(quality.calibration_error_ppm, Some(184_000));
    // Surest first: right, right, wrong, right, wrong.
    let points: Vec<_> = quality
        .coverage
        .iter()
        .filter(|point| point.coverage_percent % 20 == 0)
        .map(|point| (point.judged, point.probability_ppm, point.right_ppm))
        .collect();
    assert_eq!(
        points,
        [
            (1, 1_000_000, Some(1_000_000)),
            (2, 950_000, Some(1_000_000)),
            (3, 900_000, Some(666_667)),
            (4, 550_000, Some(750_000)),
            (5, 520_000, Some(600_000)),
        ]
    );
    let empty = Quality::of(Vec::new());
    assert_eq!((empty.judged, empty.calibration_error_ppm), (0, None));
}
