//! Indexes in plans: mistakes have a place and a cure, and what they mean is in the plan's hash.

use operator::plan::Plan;

use super::plan_text;

const SEARCH: &str =
    "[[index]]\nname = \"near\"\nkind = \"search\"\nfields = [\"title\"]\nquery = \"login\"\n";
const SQL: &str =
    "[[index]]\nname = \"crowd\"\nkind = \"sql\"\nstatement = \"SELECT _id FROM records\"\n";
const CLASSES: &str = "[[index]]\nname = \"kind\"\nkind = \"classifier\"\nfields = [\"title\"]\n\
    classes = [\"bug\", \"wish\"]\nmodel = \"m.json\"\n";

fn when(test: &str) -> String {
    format!("[[prefilter]]\nname = \"by-index\"\naction = \"exclude\"\nwhen = {{ {test} }}\n")
}

fn parse(indexes: &str, test: &str) -> Result<Plan, String> {
    let filter = if test.is_empty() {
        String::new()
    } else {
        when(test)
    };
    Plan::parse(&plan_text(indexes, &filter), "plan.toml").map_err(|error| error.to_string())
}

fn all() -> String {
    format!("{SEARCH}{SQL}{CLASSES}")
}

#[test]
fn every_test_of_an_index_can_be_written() {
    for test in [
        "index = \"near\", op = \"member\"",
        "index = \"near\", op = \"at_least\", value = 2.5",
        "index = \"near\", op = \"below\", value = 1",
        "index = \"near\", op = \"top\", value = 10",
        "index = \"crowd\", op = \"at_least\", value = -3",
        "index = \"kind\", label = \"bug\", op = \"at_least\", value = 0.9",
        "index = \"kind\", label = \"bug\", op = \"member\"",
        "index = \"kind\", label = \"wish\", op = \"top\", value = 5",
        "index = \"kind\", op = \"margin_below\", value = 0.2",
        "not = { any = [{ index = \"near\", op = \"member\" }, { field = \"state\", op = \"eq\", value = \"x\" }] }",
    ] {
        parse(&all(), test).unwrap_or_else(|error| panic!("{test}: {error}"));
    }
}

#[test]
fn mistakes_in_tests_of_an_index_are_placed_and_cured() {
    for (test, word) in [
        (
            "index = \"naer\", op = \"member\"",
            "did you mean \"near\"?",
        ),
        (
            "index = \"near\", op = \"membre\"",
            "did you mean \"member\"?",
        ),
        (
            "index = \"near\", op = \"member\", value = 1",
            "takes no value",
        ),
        ("index = \"near\", op = \"top\"", "needs a value"),
        ("index = \"near\", op = \"top\", value = 0", "at least 1"),
        (
            "index = \"near\", op = \"top\", value = 1.5",
            "needs an integer",
        ),
        (
            "index = \"near\", op = \"at_least\", value = \"x\"",
            "needs a number",
        ),
        (
            "index = \"near\", label = \"bug\", op = \"member\"",
            "has no label",
        ),
        (
            "index = \"near\", op = \"margin_below\", value = 0.1",
            "is of classifiers",
        ),
        ("index = \"near\"", "has no \"op\""),
        (
            "index = \"near\", field = \"title\", op = \"member\"",
            "not both",
        ),
        (
            "index = \"near\", op = \"member\", case = \"ignore\"",
            "has no case",
        ),
        ("label = \"bug\", op = \"member\"", "add index"),
        (
            "index = \"crowd\", op = \"at_least\", value = 0.5",
            "needs an integer",
        ),
        ("index = \"kind\", op = \"member\"", "say which label"),
        (
            "index = \"kind\", label = \"bgu\", op = \"member\"",
            "did you mean \"bug\"?",
        ),
        (
            "index = \"kind\", label = \"bug\", op = \"margin_below\", value = 0.1",
            "has no label",
        ),
        (
            "index = \"kind\", label = \"bug\", op = \"at_least\", value = 90",
            "from 0 to 1",
        ),
    ] {
        let error = parse(&all(), test).unwrap_err();
        assert!(error.starts_with("plan.toml:"), "{error}");
        assert!(
            error.contains("prefilter \"by-index\"") && error.contains(word),
            "{test}: {error}"
        );
    }
    let error = parse("", "index = \"near\", op = \"member\"").unwrap_err();
    assert!(error.contains("declares no [[index]]"), "{error}");
}

#[test]
fn mistakes_in_indexes_are_placed_and_cured() {
    for (from, to, word) in [
        (
            "kind = \"search\"",
            "kind = \"serach\"",
            "did you mean \"search\"?",
        ),
        (
            "query = \"login\"",
            "quer = \"login\"",
            "did you mean `query`?",
        ),
        ("query = \"login\"", "query = \"?!\"", "has 0 words"),
        ("query = \"login\"", "", "needs query"),
        (
            "query = \"login\"",
            "query = \"login\"\nk1 = -1",
            "from 0 to 10",
        ),
        (
            "query = \"login\"",
            "query = \"login\"\nb = 1.1",
            "from 0 to 1",
        ),
        (
            "query = \"login\"",
            "query = \"login\"\ntop = 0",
            "at least 1",
        ),
        (
            "query = \"login\"",
            "query = \"login\"\nstatement = \"x\"",
            "a search index has no statement",
        ),
        ("fields = [\"title\"]", "fields = []", "name at least one"),
        (
            "fields = [\"title\"]",
            "fields = [\"title\", \"title\"]",
            "rename one",
        ),
        ("name = \"near\"", "name = \"Near\"", "lower-case"),
        (
            "name = \"near\"",
            "name = \"crowd\"",
            "two index tables are named",
        ),
        (
            "statement = \"SELECT _id FROM records\"",
            "statement = \" \"",
            "is empty",
        ),
        (
            "statement = \"SELECT _id FROM records\"",
            "steps_max = 5",
            "needs statement",
        ),
        (
            "classes = [\"bug\", \"wish\"]",
            "classes = [\"bug\"]",
            "2 to 64",
        ),
        ("model = \"m.json\"", "", "name either labels"),
        (
            "model = \"m.json\"",
            "model = \"m.json\"\nlabels = \"l.csv\"",
            "name either labels",
        ),
        (
            "model = \"m.json\"",
            "labels = \"l.csv\"\nid = \"n\"",
            "needs field",
        ),
        (
            "model = \"m.json\"",
            "model = \"m.json\"\nid = \"n\"",
            "has neither",
        ),
    ] {
        let text = all();
        assert!(text.contains(from), "{from}");
        let error = parse(&text.replacen(from, to, 1), "").unwrap_err();
        assert!(error.starts_with("plan.toml:"), "{error}");
        assert!(error.contains(word), "{to}: {error}");
    }
}

#[test]
fn what_an_index_means_is_in_the_plans_hash_and_its_budget_is_not() {
    let test = "index = \"near\", op = \"top\", value = 5";
    let first = parse(&all(), test).unwrap().hash();
    for (from, to) in [
        ("query = \"login\"", "query = \"logout\""),
        ("query = \"login\"", "query = \"login\"\nk1 = 1.3"),
        ("query = \"login\"", "query = \"login\"\ntop = 3"),
        ("SELECT _id FROM records", "SELECT _id FROM records WHERE 1"),
        (
            "classes = [\"bug\", \"wish\"]",
            "classes = [\"wish\", \"bug\"]",
        ),
    ] {
        let other = parse(&all().replacen(from, to, 1), test).unwrap();
        assert_ne!(other.hash(), first, "{to}");
    }
    let steps = all().replacen("kind = \"sql\"", "kind = \"sql\"\nsteps_max = 9", 1);
    assert_eq!(parse(&steps, test).unwrap().hash(), first);
    let other = parse(&all(), "index = \"near\", op = \"top\", value = 6").unwrap();
    assert_ne!(other.hash(), first);
}
