//! Plans: what is read, what is refused and how that is said, wording and identity.

use std::path::Path;

use operator::Plan;
use operator::infer::Labels;
use operator::plan::{Action, Operation};

use super::{PLAN, plan, plan_with};

/// The error of the plan with one piece replaced.
fn error(from: &str, to: &str) -> String {
    plan_with(from, to).unwrap_err().to_string()
}

#[test]
fn a_plan_is_read_with_its_defaults() {
    let plan = plan();
    assert_eq!(plan.fields[0].abstain_below_margin_ppm, 50_000);
    assert_eq!(plan.fields[0].scaffold, "blocker: ");
    assert_eq!(
        (&plan.reduces[0].op, plan.reduces[0].cite_max),
        (&Operation::Count, 8)
    );
    assert_eq!(
        (
            plan.prefilters[0].action,
            plan.prefilters[0].reason.as_str()
        ),
        (Action::Exclude, "closed")
    );
    let with_path = Plan::parse(
        &PLAN.replace("[input]", "[input]\npath = \"../i.json\""),
        "p/a.toml",
    );
    assert_eq!(
        with_path.unwrap().input_path().unwrap(),
        Path::new("p/../i.json")
    );
}

#[test]
fn mistakes_are_placed_and_come_with_the_nearest_name() {
    for (from, to, place, parts) in [
        (
            "when = {",
            "whn = {",
            "13:1",
            &["unknown field `whn`", "did you mean `when`?"][..],
        ),
        (
            "op = \"eq\"",
            "op = \"eqq\"",
            "13:32",
            &["unknown op \"eqq\"", "did you mean \"eq\"?"],
        ),
        (
            "field = \"state\"",
            "feild = \"state\"",
            "13:10",
            &["unknown field `feild`", "did you mean `field`?"],
        ),
        (
            "field = \"state\", ",
            "",
            "13:8",
            &["prefilter \"closed\"", "names no \"field\""],
        ),
        (
            ", value = \"CLOSED\"",
            "",
            "13:8",
            &["op \"eq\" needs a value"],
        ),
        (
            "op = \"eq\", value = \"CLOSED\"",
            "op = \"matches\", value = \"(a\"",
            "13:51",
            &["bad regular expression \"(a\"", "unclosed group"],
        ),
        (
            "op = \"eq\", value = \"CLOSED\"",
            "op = \"exists\", value = 1",
            "13:50",
            &["takes no value"],
        ),
        (
            "op = \"eq\", value = \"CLOSED\"",
            "op = \"before\", value = \"soon\"",
            "13:50",
            &["needs a date", "RFC 3339"],
        ),
        (
            "op = \"eq\", value = \"CLOSED\"",
            "op = \"lt\", value = \"a\"",
            "13:46",
            &["needs a number"],
        ),
        (
            "op = \"eq\", value = \"CLOSED\"",
            "op = \"in\", value = [1, \"a\"]",
            "13:46",
            &["list of one type"],
        ),
        (
            "value = \"CLOSED\" }",
            "value = \"CLOSED\", case = \"no\" }",
            "13:63",
            &["case is \"no\""],
        ),
        (
            "when = { field",
            "when = { all = [], field",
            "13:8",
            &["exactly one of"],
        ),
        (
            "action = \"exclude\"",
            "action = \"drop\"",
            "14:10",
            &["unknown variant `drop`"],
        ),
        (
            "action = \"exclude\"",
            "action = \"decide\"\nset = { blocker = \"yes\" }",
            "11:1",
            &["leaves out cause"],
        ),
        (
            "action = \"exclude\"",
            "action = \"keep\"\nset = { blocker = \"yes\" }",
            "11:1",
            &["only action = \"decide\""],
        ),
        (
            "action = \"exclude\"",
            "action = \"decide\"\nset = { blocker = \"yess\", cause = \"none\" }",
            "15:19",
            &[
                "field \"blocker\" has no label \"yess\"",
                "did you mean \"yes\"?",
                "yes, no",
            ],
        ),
        (
            "where = { blocker = \"yes\" }",
            "where = { blocker = \"maybe\" }",
            "31:21",
            &["no label \"maybe\"", "yes, no"],
        ),
        (
            "where = { blocker",
            "where = { bloker",
            "31:20",
            &["unknown field \"bloker\"", "did you mean \"blocker\"?"],
        ),
        (
            "op = \"count\"",
            "op = \"top_k\"",
            "28:1",
            &["op \"top_k\" needs \"field\""],
        ),
        (
            "op = \"count\"",
            "op = \"count\"\nk = 3",
            "31:5",
            &["op \"count\" has no \"k\""],
        ),
        (
            "op = \"count\"",
            "op = \"histogram\"\nfield = \"cause\"\nedges = [5, 5]",
            "32:9",
            &["edges must ascend"],
        ),
        (
            "op = \"count\"",
            "op = \"top_k\"\nfield = \"blocker\"\nlabel = \"maybe\"\nk = 2",
            "32:9",
            &["no label \"maybe\""],
        ),
        (
            "{value} block",
            "{valu} block",
            "32:9",
            &["placeholder {valu}", "did you mean \"value\"?"],
        ),
        (
            "version = 1",
            "version = 2",
            "1:11",
            &["plan version is 2, this program reads 1"],
        ),
        (
            "question = \"Which?\"",
            "question = \" \"",
            "2:12",
            &["question is empty"],
        ),
        ("id = \"id\"", "id = \"\"", "5:1", &["id is empty"]),
        (
            "text = [{ field = \"title\", max_chars = 80 },",
            "text = [{ max_chars = 80 },",
            "7:9",
            &["missing field `field`"],
        ),
        (
            "max_chars = 80",
            "max_chars = 0",
            "7:9",
            &["max_chars of \"title\" is 0"],
        ),
        (
            "field = \"body\"",
            "field = \"title\"",
            "7:46",
            &["two text fields are named \"title\""],
        ),
        (
            "evidence_lines_max = 12",
            "evidence_lines_max = 1",
            "5:1",
            &["evidence_lines_max is 1"],
        ),
        (
            "labels = [\"clock\", \"none\"]",
            "labels = [\"clock\"]",
            "22:1",
            &["1 given, from 2 to 64"],
        ),
        (
            "labels = [\"clock\", \"none\"]",
            "labels = [\"clock\", \"clock\"]",
            "25:20",
            &["two of the labels of field \"cause\"s", "\"clock\""],
        ),
        (
            "labels = [\"clock\", \"none\"]",
            "labels = [\"clock\", \"a\\nb\"]",
            "25:20",
            &["on one line"],
        ),
        (
            "name = \"cause\"",
            "name = \"blocker\"",
            "22:1",
            &["two fields are named \"blocker\""],
        ),
        (
            "name = \"cause\"",
            "name = \"evidence\"",
            "22:1",
            &["is reserved"],
        ),
        (
            "abstain_below_margin = 0.05",
            "abstain_below_margin = 1.5",
            "20:24",
            &["1.5 is not between 0 and 1"],
        ),
        (
            "means = \"it does\"",
            "mean = \"it does\"",
            "19:",
            &["unknown field `mean`", "did you mean `means`?"],
        ),
        ("rubric = ", "rubric = oops", "3:", &[]),
    ] {
        let text = error(from, to);
        assert!(
            text.starts_with(&format!("plan.toml:{place}")),
            "{to}: {text}"
        );
        for part in parts {
            assert!(text.contains(part), "{to}: {text} lacks {part}");
        }
    }
    let empty = Plan::parse(
        "version = 1\nquestion = \"q\"\nrubric = \"r\"\n[input]\nid = \"i\"\ntext = [{field=\"t\"}]\n",
        "p",
    );
    assert!(
        empty
            .unwrap_err()
            .to_string()
            .contains("add at least one [[field]]")
    );
}

#[test]
fn labels_may_be_written_without_quotes() {
    let text = PLAN
        .replace(
            "labels = [\"clock\", \"none\"]",
            "labels = [true, { name = false, means = \"not\" }]",
        )
        .replace("where = { blocker = \"yes\" }", "where = { cause = true }");
    let plan = Plan::parse(&text, "p").unwrap();
    assert_eq!(plan.fields[1].labels[0].name, "true");
    assert_eq!(plan.reduces[0].filter.labels["cause"], "true");
}

#[test]
fn edges_are_percent_or_parts_per_million() {
    let edges = |list: &str| {
        let to = format!("op = \"histogram\"\nfield = \"cause\"\nedges = {list}");
        match &plan_with("op = \"count\"", &to).unwrap().reduces[0].op {
            Operation::Histogram { edges, .. } => edges.clone(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(edges("[10, 100]"), [100_000, 1_000_000]);
    assert_eq!(edges("[10, 500000]"), [10, 500_000]);
}

#[test]
fn rubric_and_questions_say_the_same_in_the_same_order() {
    let plan = plan();
    let rubric = plan.rubric();
    assert!(rubric.system.starts_with("Judge the record.\n"));
    let form = "Answer with exactly these lines and nothing else:\nblocker: <yes|no>\ncause: <clock|none>\n\
                cause_reason: <stated|implied>\nevidence line: <number>";
    assert!(rubric.system.ends_with(form), "{}", rubric.system);
    assert!(
        rubric
            .system
            .contains("blocker - Does it block?\n- yes: it does\n- no\n")
    );
    let fields: Vec<_> = plan
        .questions()
        .into_iter()
        .map(|question| question.field)
        .collect();
    assert_eq!(fields, ["blocker", "cause", "cause_reason", "evidence"]);
    let last = plan.questions().pop().unwrap();
    assert_eq!((last.labels, last.line_count), (Labels::Lines, true));
    let plain = plan_with("evidence = \"model\"", "evidence = \"first_line\"").unwrap();
    assert_eq!(plain.questions().len(), 3);
    assert!(!plain.rubric().system.contains("evidence"));
    assert_ne!(plain.rubric().hash, rubric.hash);
}

#[test]
fn the_hash_follows_the_meaning_and_nothing_else() {
    let base = plan().hash();
    let same = format!(
        "# note\n{}\n[budget]\nunits_max = 5\n",
        PLAN.replace("id = \"id\"", "id   = 'id'\npath = \"x\"")
    );
    assert_eq!(Plan::parse(&same, "elsewhere.toml").unwrap().hash(), base);
    for (from, to) in [
        ("Which?", "Who?"),
        ("Judge the", "Judge this"),
        ("id = \"id\"", "id = \"key\""),
        ("max_chars = 300", "max_chars = 301"),
        ("head_tail", "head"),
        ("evidence = \"model\"", "evidence = \"none\""),
        ("evidence_lines_max = 12", "evidence_lines_max = 13"),
        ("value = \"CLOSED\"", "value = \"closed\""),
        (
            "value = \"CLOSED\"",
            "value = \"CLOSED\", case = \"ignore\"",
        ),
        ("op = \"eq\"", "op = \"ne\""),
        ("action = \"exclude\"", "action = \"keep\""),
        ("means = \"it does\"", "means = \"it might\""),
        ("0.05", "0.06"),
        ("\"implied\"]", "\"guessed\"]"),
        ("{value} block", "{count} block"),
        (
            "where = { blocker = \"yes\" }",
            "where = { blocker = \"no\" }",
        ),
    ] {
        assert_ne!(plan_with(from, to).unwrap().hash(), base, "{to}");
    }
}

#[test]
fn the_shipped_plans_are_valid() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/plans");
    for (name, fields) in [
        ("auth-blockers", 2),
        ("auth-blockers-watched", 2),
        ("issue-kind", 1),
        ("security", 1),
    ] {
        let plan = Plan::load(&directory.join(format!("{name}.toml"))).unwrap();
        assert_eq!(plan.fields.len(), fields, "{name}");
        let words = plan.rubric().system.split_whitespace().count();
        assert!((150..650).contains(&words), "{name}: {words} words");
    }
}
