//! The texts of summaries: what passes as true, and the token by which a lie is refused.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::writer::{Truth, claim, composed, run_writing, truth, written};

#[test]
fn a_true_text_is_stated_with_its_numbers_units_and_what_stands_apart() {
    let truth = truth();
    let (cause, count) = &truth.causes[0];
    let percent = (count * 1_000 + truth.blockers * 5) / (truth.blockers * 10);
    let text = format!(
        "{} issues block the release. {cause} is behind {count} of them ({percent} %), such as \
         \"{}\" [{}].",
        truth.blockers, truth.quote, truth.unit
    );
    let claim = written(&text);
    assert_eq!(claim.refused, None, "{}", claim.text);
    assert_eq!(claim.value["prose"], text);
    assert_eq!(claim.value["cited_units"], json!([truth.unit]));
    let equals: Vec<&str> = claim.value["checked_numbers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|number| number["equals"].as_str().unwrap())
        .collect();
    assert_eq!(equals[0], "blockers");
    assert_eq!(equals[1], format!("causes, {cause}"));
    assert!(equals[2].contains(" of "), "{equals:?}");
    assert_eq!(claim.cites.len(), 1);
    assert_eq!(claim.cites_total, 1);
    assert_eq!(claim.cites[0].unit_id.as_str(), truth.unit);
    assert!(
        claim.text.contains(
            "prose of the model script; checked: 3 numbers, 1 units; meaning not checked"
        ),
        "{}",
        claim.text
    );
    assert!(
        claim.text.contains("of 60 units 2 abstained, 1 errored"),
        "{}",
        claim.text
    );
}

#[test]
fn a_lie_is_refused_by_its_token() {
    let truth = truth();
    let Truth {
        blockers,
        other,
        unit,
        quote,
        ..
    } = &truth;
    let lies = [
        (
            format!("{} issues block.", blockers + 100),
            format!("{:?}", (blockers + 100).to_string()),
        ),
        (
            String::from("Some 1,234 issues block."),
            String::from("\"1,234\""),
        ),
        (
            String::from("Some 1'234 issues block."),
            String::from("\"1'234\""),
        ),
        (
            String::from("Some 1\u{2009}234 issues block."),
            String::from("234\""),
        ),
        (
            String::from("Some 12.75 issues block."),
            String::from("\"12.75\""),
        ),
        (String::from("It is -3 issues."), String::from("\"3\"")),
        (String::from("It is 4.0.1 now."), String::from("\"4.0.1\"")),
        (String::from("It is 007."), String::from("\"007\"")),
        (String::from("It is 9k."), String::from("\"9k\"")),
        (String::from("See GH-99."), String::from("\"99\"")),
        (
            String::from("It is 9 thousand."),
            String::from("\"9 thousand\""),
        ),
        (
            String::from("Seventy-seven issues block."),
            String::from("\"Seventy-seven\""),
        ),
        (
            String::from("Two hundred and five block."),
            String::from("\"Two hundred and five\""),
        ),
        (
            String::from("Hundreds of issues block."),
            String::from("\"Hundreds\""),
        ),
        (
            String::from("A dozen dozen block."),
            String::from("\"dozen dozen\""),
        ),
        (
            String::from("The 77th cause is new."),
            String::from("\"77th\""),
        ),
        (
            String::from("The nineteenth cause is new."),
            String::from("\"nineteenth\""),
        ),
        (
            String::from("That is 98.76 % of all."),
            String::from("\"98.76 %\""),
        ),
        (
            String::from("That is 98.76 per cent."),
            String::from("\"98.76 per cent\""),
        ),
        (
            String::from("Two sevenths block."),
            String::from("\"Two sevenths\""),
        ),
        (String::from("See [9999]."), String::from("\"9999\"")),
        (format!("See [{unit}, 9999]."), String::from("\"9999\"")),
        (String::from("See #9999."), String::from("\"#9999\"")),
        (format!("See [{other}]."), format!("{other:?}")),
        (format!("See #{other}."), format!("\"#{other}\"")),
        (
            String::from("They say \"all is lost\"."),
            String::from("\"all is lost\""),
        ),
        (
            String::from("They say \u{201c}all is lost\u{201d}."),
            String::from("\"all is lost\""),
        ),
        (
            String::from("They say 'all is lost'."),
            String::from("\"all is lost\""),
        ),
        (
            String::from("They say `all is lost`."),
            String::from("\"all is lost\""),
        ),
        (
            String::from("They say \u{ab}all is lost\u{bb}."),
            String::from("\"all is lost\""),
        ),
        (
            String::from("It is \"777\" issues."),
            String::from("\"777\""),
        ),
        (String::from("They say \"it."), String::from("\\\"")),
        (String::from("See [4."), String::from("\"[\"")),
        (
            String::from("It is \u{bd} of them."),
            String::from("\u{bd}"),
        ),
        (
            String::from("It is \u{663} of them."),
            String::from("\u{663}"),
        ),
        (String::from("It is\u{200b} hidden."), String::from("200b")),
        (String::from("\u{1b}[2J"), String::from("1b")),
        (
            String::from("See https://example.org."),
            String::from("://"),
        ),
        (
            String::from("It was seven_ty_nine."),
            String::from("seven_ty_nine"),
        ),
        (String::from(" \n "), String::from("empty")),
        (
            format!("{quote} never ends \u{fffd}"),
            String::from("\u{fffd}"),
        ),
    ];
    for (text, token) in lies {
        let claim = written(&text);
        let Some(reason) = &claim.refused else {
            panic!("{text:?} passed: {}", claim.value);
        };
        assert!(
            reason.contains(&token),
            "{text:?} needs {token} in: {reason}"
        );
        assert!(claim.value.is_null() && claim.cites.is_empty());
        assert!(
            claim.text.starts_with("in-short is not answered: "),
            "{}",
            claim.text
        );
    }
}

#[test]
fn a_true_number_under_a_wrong_label_is_refused() {
    let Truth {
        blockers, causes, ..
    } = truth();
    let [(one, first), (two, second), ..] = causes.as_slice() else {
        panic!("two causes at least: {causes:?}");
    };
    assert!(first != second && *first != blockers, "{causes:?}");
    for text in [
        format!("{second} issues are of {one}."),
        format!("It is {one} in {second} cases and {two} in {first}."),
        format!("Of {blockers} issues {second} are of {one}."),
        format!("There are {second} issues, which are all of {one}."),
        format!("{}: {second} and more.", one.to_uppercase()),
    ] {
        let refused = written(&text).refused;
        let Some(reason) = refused else {
            panic!("{text:?} passed");
        };
        assert!(
            reason.contains(&format!("of {one:?}, of which the claims say {first}")),
            "{text:?}: {reason}"
        );
    }
    let refused = written("60 units have abstained.").refused.unwrap();
    assert!(
        refused.contains("of \"abstained\", of which the claims say 2"),
        "{refused}"
    );
    for text in [
        String::from("Of 60 units 2 have abstained."),
        format!("{first} issues are of {one}."),
        format!("It is {one} in {first} cases and {two} in {second}."),
        format!("Of {blockers} issues {first} are of {one}, {second} others are not."),
        format!("There are {second} others, whatever {one} says."),
    ] {
        assert_eq!(written(&text).refused, None, "{text:?}");
    }
}

#[test]
fn words_without_a_number_pass_and_say_that_their_meaning_is_not_checked() {
    let claim = written("The users' tokens don't last.\nThat is all.");
    assert_eq!(claim.refused, None);
    assert_eq!(claim.value["checked_numbers"], json!([]));
    assert!(
        claim
            .text
            .starts_with("The users' tokens don't last. That is all. |"),
        "one line: {}",
        claim.text
    );
    assert!(
        claim
            .text
            .contains("checked: 0 numbers, 0 units; meaning not checked"),
        "{}",
        claim.text
    );
}

#[test]
fn true_numbers_pass_however_they_are_written() {
    let Truth {
        blockers,
        unit,
        causes,
        ..
    } = truth();
    let entries = causes.len();
    let places = ["first", "2nd", "third"][..entries].join(", ");
    for text in [
        format!("There are {blockers}.0 of them."),
        format!("In all {blockers}: see #{unit}, that is [#{unit}] and unit {unit}."),
        format!("The {places} of the causes."),
        String::from("The coverage is 60 units, sixty in all."),
        String::from("All of \"causes v1\" and of \"causes\"."),
        String::from("Exactly \"60\" units."),
        String::from("It is 2 of 60 that abstained, 3.3 %."),
    ] {
        let claim = written(&text);
        assert_eq!(claim.refused, None, "{text:?}");
    }
    assert!(
        written("All of causes v1.")
            .refused
            .unwrap()
            .contains("\"v1\""),
        "a name of two words has to be quoted"
    );
}

/// One way to write a number, in a sentence.
fn phrase() -> impl Strategy<Value = (u64, String)> {
    (0..400_u64, 0..6_usize).prop_map(|(number, way)| {
        let text = match way {
            0 => format!("There are {number} of them."),
            1 => format!("({number})"),
            2 => format!("exactly {number}-fold trouble;"),
            3 => format!("\u{201c}{number}\u{201d} they say,"),
            4 => format!("it is {number}.00 now:"),
            _ => format!("from {number} to more"),
        };
        (number, text)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_text_passes_unless_all_its_numbers_belong(phrases in prop::collection::vec(phrase(), 1..4)) {
        let text: Vec<&str> = phrases.iter().map(|(_, text)| text.as_str()).collect();
        let (outcome, _, given) = run_writing(&|_| composed(&text.join(" and ")), None);
        let summary = claim(&outcome, "in-short");
        // What belongs is read off the printed material, by other code than the one under test.
        let belongs: Vec<u64> = given[0]
            .lines()
            .skip_while(|line| *line != "Numbers:")
            .take_while(|line| *line != "Sources:")
            .filter_map(|line| line.rsplit_once(" = ")?.1.parse().ok())
            .collect();
        let all = phrases.iter().all(|(number, _)| belongs.contains(number));
        prop_assert_eq!(summary.refused.is_none(), all, "{:?} {:?}", text, summary.refused);
        if all {
            let checked = summary.value["checked_numbers"].as_array().map_or(0, Vec::len);
            prop_assert_eq!(checked, phrases.len());
        }
    }

    #[test]
    fn any_text_at_all_is_read_to_its_end(text in "\\PC{0,60}", tail in prop::sample::select(vec![
        "", "[", "#", "\"", "'", "1.", "1,", ".5", "-", "%", "one-", "a third", "\u{2018}x", "1\u{a0}%",
    ])) {
        let summary = written(&format!("{text}{tail}"));
        prop_assert_eq!(summary.refused.is_some(), summary.value == Value::Null);
    }
}
