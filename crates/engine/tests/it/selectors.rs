//! What selectors chose, as the binary tells it: after a run, in its page, against labels, verified.

use serde_json::Value;

use crate::cli::Place;

const PLAN: &str = r#"
version = 1
question = "Which reports are bugs?"
rubric = "Judge a report."

[input]
id = "id"
text = [{ field = "text", max_chars = 100 }]
evidence = "first_line"

[[field]]
name = "bug"
question = "Is it a bug?"
labels = ["yes", "no"]

[[stage]]
name = "route"
op = "select"
why = "nothing but the text tells a question from a report"
rubric = "You route reports."
question = "What is to be done?"
options = [{ name = "judge", run = ["judge"] }, { name = "drop", then = "exclude" }]
unclear = { margin_below = 0.2, option = "judge" }

[[stage]]
name = "judge"
op = "map"

[[reduce]]
name = "bugs"
op = "count"
where = { bug = "yes" }
"#;

#[test]
fn a_run_with_a_selector_shows_its_matrix_and_labels_are_held_against_it() {
    let place = Place::new();
    let plan = place.write("plan.toml", PLAN);
    let line = |id: &str, judge: u32, yes: u32| {
        let (drop, no) = (1_000_000 - judge, 1_000_000 - yes);
        format!(
            "{{\"unit_id\":\"{id}\",\"answers\":{{\"route\":{{\"judge\":{judge},\"drop\":{drop}}},\
             \"bug\":{{\"yes\":{yes},\"no\":{no}}}}}}}\n"
        )
    };
    let answers = [
        line("a", 900_000, 900_000),
        line("b", 100_000, 900_000),
        line("c", 450_000, 200_000),
        line("d", 700_000, 800_000),
    ];
    let answers = place.write("answers.jsonl", answers.concat());
    let records =
        ["a", "b", "c", "d"].map(|id| format!("{{\"id\":\"{id}\",\"text\":\"it {id}\"}}\n"));
    let input = place.write("in.jsonl", records.concat());
    let ran = place.engine(&[
        "run", &plan, "--input", &input, "--replay", &answers, "--out", "out",
    ]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let told = "selector route chose for 4 units, 1 of them unclear; asked because nothing but the text \
                tells a question from a report";
    let row = |text: &str, cells: &[&str]| {
        let mut lines = text.lines().map(|line| line.replace('|', " "));
        lines.any(|line| line.split_whitespace().eq(cells.iter().copied()))
    };
    let page = std::fs::read_to_string(place.path().join("out/answer.md")).unwrap();
    for shown in [&ran.stdout, &page] {
        assert!(shown.contains(told), "{shown}");
        assert!(
            row(shown, &["judge", "3", "1", "0", "3", "1", "2"]),
            "{shown}"
        );
        assert!(
            row(shown, &["drop", "1", "0", "1", "0", "0", "0"]),
            "{shown}"
        );
        assert!(
            shown.contains("closest: c took judge at 45.0 %, drop had 55.0 %"),
            "{shown}"
        );
    }
    let verified = place.engine(&["verify", "out"]);
    assert_eq!(verified.code, 0, "{}{}", verified.stdout, verified.stderr);
    let labels = place.write("labels.csv", "id,bug\na,yes\nb,yes\nc,no\n");
    let eval = [
        "eval", "out", "--labels", &labels, "--field", "bug", "--id", "id",
    ];
    let shown = place.engine(&eval);
    let wanted = "selector route, option -> true labels (1 units without a label)\n\
                  drop  -> yes 1\njudge -> no 1, yes 1\n";
    assert!(shown.stdout.contains(wanted), "{}", shown.stdout);
    let json = place.engine(&[&eval[..], &["--json"]].concat());
    let json: Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(json["field"], "bug");
    assert_eq!(json["choices"][0]["options"]["judge"]["no"], 1);
}
