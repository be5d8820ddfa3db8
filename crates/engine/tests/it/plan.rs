//! `engine plan`: what it says before a run is what the run then does.

use serde_json::Value;

use crate::cli::{Ended, PLAN, Place};
use crate::store::write_model;
use crate::tiny::fixture;

/// A place with a tiny model that has a real tokenizer.
struct Planned {
    place: Place,
    model: String,
}

impl Planned {
    fn new() -> Self {
        let place = Place::new();
        let model = place.path().join("tiny.gguf");
        write_model(&model);
        let model = model.to_string_lossy().into_owned();
        Self { place, model }
    }

    fn engine(&self, command: &str, plan: &str, more: &[&str]) -> Ended {
        let mut arguments = vec![command, plan, "--model", &self.model, "--store", "a.redb"];
        arguments.extend(more);
        self.place.engine(&arguments)
    }

    fn plan(&self, plan: &str, more: &[&str]) -> Value {
        let more: Vec<&str> = more.iter().copied().chain(["--json"]).collect();
        let ended = self.engine("plan", plan, &more);
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        serde_json::from_str(&ended.stdout).unwrap()
    }

    fn run(&self, plan: &str, more: &[&str]) -> Value {
        let more: Vec<&str> = more.iter().copied().chain(["--out", "out"]).collect();
        let ended = self.engine("run", plan, &more);
        assert!([0, 3].contains(&ended.code), "{}", ended.stderr);
        self.usage()
    }

    fn usage(&self) -> Value {
        let text = std::fs::read(self.place.path().join("out/usage.json")).unwrap();
        serde_json::from_slice(&text).unwrap()
    }
}

fn counts(rungs: &Value) -> Vec<(String, u64, u64, u64, u64)> {
    let rungs = rungs.as_array().unwrap().iter();
    rungs
        .filter(|rung| rung["kind"] != "stage")
        .map(|rung| {
            let count = |key: &str| rung[key].as_u64().unwrap();
            (
                rung["name"].as_str().unwrap().to_owned(),
                count("seen"),
                count("decided"),
                count("excluded"),
                count("onward"),
            )
        })
        .collect()
}

#[test]
fn the_fixtures_numbers_are_known_before_a_run_and_the_run_has_them() {
    let planned = Planned::new();
    // Without its examples: a head is trained by the run, which what is known before it does not have.
    let text = std::fs::read_to_string(fixture("plans/auth-blockers.toml")).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with("examples = "));
    let text = lines.collect::<Vec<_>>().join("\n");
    let input = fixture("issues-1000.json");
    let text = text.replace("../issues-1000.json", input.to_str().unwrap());
    let plan = planned.place.write("plain.toml", text);
    let plan = plan.as_str();
    let outlook = planned.plan(plan, &[]);
    let golden = [
        ("closed", 1_000, 0, 330, 670),
        ("other-milestone", 670, 0, 215, 455),
        ("before-merge", 455, 0, 85, 370),
        ("other-area", 370, 0, 96, 274),
        ("duplicate", 274, 0, 30, 244),
        ("labelled-clock-skew", 244, 2, 0, 242),
        ("labelled-refresh-race", 242, 4, 0, 238),
        ("labelled-proxy-header", 238, 2, 0, 236),
    ];
    let golden = golden.map(|(name, a, b, c, d)| (name.to_owned(), a, b, c, d));
    assert_eq!(counts(&outlook["ladder"]), golden);
    assert_eq!(
        (&outlook["units"], &outlook["kept"]),
        (&1_000.into(), &236.into())
    );
    let stage = &outlook["stages"][0];
    assert_eq!(stage["asked"], 236);
    assert_eq!(stage["at_most"], false);
    let clipped = stage["clipped"].as_array().unwrap();
    let clipped: Vec<&str> = clipped
        .iter()
        .map(|unit| unit["unit"].as_str().unwrap())
        .collect();
    assert_eq!(clipped, ["4414", "3627"]);
    // No run yet, nothing measured: no time is made up.
    assert_eq!(outlook["expected"]["millis"], Value::Null);
    let usage = planned.run(plan, &[]);
    assert_eq!(counts(&usage["ladder"]), golden);
    assert_eq!(
        usage["computed_tokens"],
        outlook["expected"]["computed_tokens"]
    );
    assert_eq!(usage["prefix_tokens"], stage["shared_tokens"]);
    // Afterwards all is remembered.
    let after = planned.plan(plan, &["--out", "out"]);
    assert_eq!(after["stages"][0]["remembered"], 236);
    assert_eq!(after["expected"]["computed_tokens"], 0);
    assert_eq!(after["expected"]["millis"], 0);
}

#[test]
fn indexes_over_the_fixture_have_known_members_and_survivors() {
    let planned = Planned::new();
    let plan = fixture("plans/proxies.toml");
    let outlook = planned.plan(plan.to_str().unwrap(), &[]);
    let indexes: Vec<_> = outlook["indexes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|index| {
            (
                index["name"].clone(),
                index["valued"].clone(),
                index["members"].clone(),
            )
        })
        .collect();
    let golden =
        |name: &str, valued: u64, members: u64| (name.into(), valued.into(), members.into());
    assert_eq!(
        indexes,
        [
            golden("same_title", 1_000, 1_000),
            golden("proxies", 1_000, 80)
        ]
    );
    let golden = [
        ("same_title", 1_000, 0, 0, 1_000),
        ("proxies", 1_000, 0, 0, 1_000),
        ("closed", 1_000, 0, 330, 670),
        ("elsewhere", 670, 0, 615, 55),
        ("in-passing", 55, 0, 17, 38),
    ];
    let golden = golden.map(|(name, a, b, c, d)| (name.to_owned(), a, b, c, d));
    assert_eq!(counts(&outlook["ladder"]), golden);
}

#[test]
fn equal_texts_long_ones_bad_records_and_limits_are_told_as_the_run_finds_them() {
    let planned = Planned::new();
    let text = PLAN.replace("max_chars = 100", "max_chars = 100000");
    let plan = planned.place.write("plan.toml", text);
    let mut records = String::from("{broken\n");
    for (id, text) in [
        ("a", "crimson"),
        ("b", "blue"),
        ("c", "crimson"),
        ("long", &"word after word ".repeat(2_000)),
        ("none", ""),
        ("d", "green"),
    ] {
        let record = serde_json::json!({ "id": id, "text": text });
        records.push_str(&format!("{record}\n"));
    }
    let input = planned.place.write("in.jsonl", records);
    let outlook = planned.plan(&plan, &["--input", &input]);
    let stage = &outlook["stages"][0];
    assert_eq!(outlook["unreadable"][0]["place"], "line 1");
    assert_eq!(outlook["kept"], 6);
    assert_eq!(
        (&stage["asked"], &stage["duplicates"]),
        (&3.into(), &1.into())
    );
    assert_eq!(stage["too_long"][0]["unit"], "long");
    let reason = stage["too_long"][0]["reason"].as_str().unwrap();
    assert!(reason.contains("clip the fields"), "{reason}");
    assert_eq!(stage["malformed"][0]["unit"], "none");
    let usage = planned.run(&plan, &["--input", &input]);
    assert_eq!(usage["duplicate_units"], 1);
    assert_eq!(
        usage["computed_tokens"],
        outlook["expected"]["computed_tokens"]
    );
    let map = &usage["ladder"][0];
    assert_eq!((&map["seen"], &map["errored"]), (&6.into(), &2.into()));
    // A changed record alone is asked again.
    let changed = std::fs::read_to_string(&input)
        .unwrap()
        .replace("green", "red");
    let input = planned.place.write("in.jsonl", changed);
    let outlook = planned.plan(&plan, &["--input", &input]);
    let stage = &outlook["stages"][0];
    assert_eq!(
        (&stage["remembered"], &stage["asked"]),
        (&3.into(), &1.into())
    );
    let outlook = planned.plan(&plan, &["--input", &input, "--limit", "2", "--no-store"]);
    assert_eq!(
        (&outlook["over_limit"], &outlook["stages"][0]["asked"]),
        (&4.into(), &2.into())
    );
}

#[test]
fn a_measured_sample_tells_a_time_and_remembers_nothing() {
    let planned = Planned::new();
    let plan = planned.place.write("plan.toml", PLAN);
    let records: String = (0..9)
        .map(|id| format!("{{\"id\":\"{id}\",\"text\":\"colour {id}\"}}\n"))
        .collect();
    let input = planned.place.write("in.jsonl", records);
    let outlook = planned.plan(&plan, &["--input", &input, "--measure", "3"]);
    let expected = &outlook["expected"];
    assert!(expected["millis"].is_u64(), "{expected}");
    assert_eq!(expected["time_from"], "3 records that were asked now");
    assert!(!planned.place.path().join("a.redb").exists());
    let outlook = planned.plan(&plan, &["--input", &input]);
    assert_eq!(outlook["stages"][0]["asked"], 9);
}

#[test]
fn nothing_left_means_no_tokens_and_no_model_means_no_guess() {
    let planned = Planned::new();
    let filter = "[[prefilter]]\nname = \"all\"\naction = \"exclude\"\n\
                  when = { field = \"id\", op = \"exists\" }\n[[field]]";
    let plan = planned
        .place
        .write("plan.toml", PLAN.replacen("[[field]]", filter, 1));
    let input = planned
        .place
        .write("in.jsonl", "{\"id\":\"a\",\"text\":\"x\"}\n");
    let outlook = planned.plan(&plan, &["--input", &input]);
    assert_eq!(
        (&outlook["kept"], &outlook["expected"]["computed_tokens"]),
        (&0.into(), &0.into())
    );
    let usage = planned.run(&plan, &["--input", &input]);
    assert_eq!(usage["computed_tokens"], 0);
    let ended = planned
        .place
        .engine(&["plan", &plan, "--input", &input, "--json"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let outlook: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert!(
        outlook["without_model"]
            .as_str()
            .unwrap()
            .contains("qwen2.5-coder-0.5b")
    );
    assert_eq!(
        (&outlook["stages"][0]["asked"], &outlook["expected"]),
        (&Value::Null, &Value::Null)
    );
}

#[test]
fn an_invalid_plan_or_statement_ends_in_wrong_usage() {
    let planned = Planned::new();
    let input = planned
        .place
        .write("in.jsonl", "{\"id\":\"a\",\"text\":\"x\"}\n");
    let plan = planned
        .place
        .write("plan.toml", PLAN.replace("\"count\"", "\"cuont\""));
    let ended = planned.engine("plan", &plan, &["--input", &input]);
    assert_eq!(ended.code, 2);
    assert!(
        ended.stderr.contains("did you mean \"count\"?"),
        "{}",
        ended.stderr
    );
    let index = "[[index]]\nname = \"x\"\nkind = \"sql\"\nstatement = \"SELECT _id FROM record\"\n";
    let plan = planned.place.write("plan.toml", format!("{PLAN}{index}"));
    for command in ["plan", "run"] {
        let ended = planned.engine(command, &plan, &["--input", &input]);
        assert_ne!(ended.code, 0);
        assert!(ended.stderr.contains("plan.toml:20:13"), "{}", ended.stderr);
        assert!(
            ended.stderr.contains("no such table: record"),
            "{}",
            ended.stderr
        );
        // Told before a model is loaded.
        assert!(!ended.stderr.contains("loaded"), "{}", ended.stderr);
    }
}

#[test]
fn a_saved_classifier_routes_as_the_labels_did_and_missing_files_leave_routes_unchecked() {
    let planned = Planned::new();
    let mut records = String::new();
    let mut labels = String::from("id,colour\n");
    for number in 0..40 {
        let (word, colour) = match number % 2 {
            0 => ("crimson scarlet", "red"),
            _ => ("azure navy", "blue"),
        };
        records.push_str(&format!(
            "{{\"id\":\"{number}\",\"text\":\"{word} {number}\"}}\n"
        ));
        if number < 20 {
            labels.push_str(&format!("{number},{colour}\n"));
        }
    }
    let input = planned.place.write("in.jsonl", records);
    planned.place.write("labels.csv", labels);
    let index = |source: &str| {
        format!(
            "[[index]]\nname = \"colour\"\nkind = \"classifier\"\nfields = [\"text\"]\n\
             classes = [\"red\", \"blue\"]\n{source}\n[[prefilter]]\nname = \"blue\"\n\
             action = \"decide\"\nset = {{ red = \"no\" }}\n\
             when = {{ index = \"colour\", label = \"blue\", op = \"at_least\", value = 0.6 }}\n[[field]]"
        )
    };
    let labelled = index("labels = \"labels.csv\"\nid = \"id\"\nfield = \"colour\"");
    let plan = planned
        .place
        .write("plan.toml", PLAN.replacen("[[field]]", &labelled, 1));
    let saved = planned.place.path().join("colour.json");
    let save = format!("colour={}", saved.display());
    let before = planned.plan(&plan, &["--input", &input, "--save-classifier", &save]);
    assert_eq!(before["ladder"][1]["decided"], 10);
    assert_eq!(before["indexes"][0]["learned"]["not_judged"], 20);
    let stored = index("model = \"colour.json\"");
    let other = planned
        .place
        .write("stored.toml", PLAN.replacen("[[field]]", &stored, 1));
    let after = planned.plan(&other, &["--input", &input]);
    assert_eq!(counts(&after["ladder"]), counts(&before["ladder"]));
    planned.run(&other, &["--input", &input]);
    assert_eq!(planned.place.engine(&["verify", "out"]).code, 0);
    std::fs::remove_file(saved).unwrap();
    let ended = planned.place.engine(&["verify", "out"]);
    assert_eq!(ended.code, 5, "{}", ended.stdout);
    assert!(
        ended.stdout.contains("colour.json: cannot read"),
        "{}",
        ended.stdout
    );
}
