//! The binary as a user meets it: what bad input says and how it exits.

use std::path::Path;
use std::process::Command;

use assert_cmd::cargo::cargo_bin;

use crate::tiny::fixture;

pub const PLAN: &str = r#"
version = 1
question = "Which records are red?"
rubric = "Say whether the record is red."
[input]
id = "id"
text = [{ field = "text", max_chars = 100 }]
evidence = "first_line"
[[field]]
name = "red"
question = "Is it red?"
labels = ["yes", "no"]
[[reduce]]
name = "reds"
op = "count"
where = { red = "yes" }
"#;

pub struct Place {
    directory: tempfile::TempDir,
}

pub struct Ended {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Place {
    pub fn new() -> Self {
        Self {
            directory: tempfile::tempdir().unwrap(),
        }
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    pub fn write(&self, name: &str, text: impl AsRef<[u8]>) -> String {
        let path = self.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_string_lossy().into_owned()
    }

    /// The binary, not yet started, with nothing of the user's own in reach.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(cargo_bin("engine"));
        command
            .args(arguments)
            .env_clear()
            .env("HOME", self.path())
            .env("HF_HUB_OFFLINE", "1")
            .env("ENGINE_PYTHON", self.path().join("no-python"))
            .current_dir(self.path());
        command
    }

    /// Runs the binary to its end.
    pub fn engine(&self, arguments: &[&str]) -> Ended {
        let output = self.command(arguments).output().unwrap();
        Ended {
            code: output.status.code().unwrap(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// Expects a failure whose message holds every given part, and no answer anywhere.
    pub fn refuses(&self, arguments: &[&str], parts: &[&str]) {
        let ended = self.engine(arguments);
        assert_ne!(ended.code, 0, "{}", ended.stderr);
        assert!(ended.stdout.is_empty(), "{}", ended.stdout);
        for part in parts {
            assert!(
                ended.stderr.contains(part),
                "no {part:?} in: {}",
                ended.stderr
            );
        }
        assert!(!self.path().join("out/answer.json").exists());
    }
}

fn replay(records: &[(&str, u32)]) -> String {
    records
        .iter()
        .map(|(id, yes)| {
            let no = 1_000_000 - yes;
            format!(
                "{{\"unit_id\":\"{id}\",\"answers\":{{\"red\":{{\"yes\":{yes},\"no\":{no}}}}}}}\n"
            )
        })
        .collect()
}

#[test]
fn bad_input_names_place_and_cure() {
    let place = Place::new();
    let plan = place.write("plan.toml", PLAN);
    let answers = place.write("answers.jsonl", replay(&[("a", 900_000)]));
    let run = |input: &str, parts: &[&str]| {
        let arguments = [
            "run", &plan, "--input", input, "--replay", &answers, "--out", "out",
        ];
        place.refuses(&arguments, parts);
    };
    run(
        &place.write("prose.json", "this is no JSON at all"),
        &["prose.json"],
    );
    run(
        &place.write("cut.json", r#"[{"id": "a", "text": "x"}, {"id": "b", "te"#),
        &["cut.json", ":1:"],
    );
    run(
        &place.write("noid.jsonl", "{\"text\":\"x\"}\n"),
        &["noid.jsonl", "id", "line 1"],
    );
    run(
        &place.write(
            "twice.jsonl",
            "{\"id\":\"a\",\"text\":\"x\"}\n{\"id\":\"a\",\"text\":\"y\"}\n",
        ),
        &["twice.jsonl", "line 1", "line 2", "a"],
    );
    run(
        &place.write("field.jsonl", "{\"id\":\"a\",\"body\":\"x\"}\n"),
        &["field.jsonl", "text"],
    );
    run(
        &place.path().join("gone.jsonl").to_string_lossy(),
        &["gone.jsonl"],
    );
}

#[test]
fn bad_plans_name_line_and_labels() {
    let place = Place::new();
    let input = place.write("in.jsonl", "{\"id\":\"a\",\"text\":\"x\"}\n");
    for (from, to, parts) in [
        (
            "red = \"yes\"",
            "red = \"maybe\"",
            vec!["maybe", "yes", "no"],
        ),
        (
            "question = \"Which",
            "qestion = \"Which",
            vec!["qestion", "question"],
        ),
        ("op = \"count\"", "op = \"cuont\"", vec!["cuont", "count"]),
    ] {
        let plan = place.write("plan.toml", PLAN.replace(from, to));
        let mut wanted = vec!["plan.toml:"];
        wanted.extend(parts);
        place.refuses(&["run", &plan, "--input", &input, "--out", "out"], &wanted);
    }
}

#[test]
fn bad_models_name_file_and_cure() {
    let place = Place::new();
    let plan = place.write("plan.toml", PLAN);
    let input = place.write("in.jsonl", "{\"id\":\"a\",\"text\":\"x\"}\n");
    let run = |model: &str, parts: &[&str]| {
        let arguments = [
            "run", &plan, "--input", &input, "--model", model, "--out", "out",
        ];
        place.refuses(&arguments, parts);
    };
    run("smollm2-135", &["smollm2-135", "smollm2-135m"]);
    run("./gone.gguf", &["gone.gguf"]);
    run(
        &place.write("text.gguf", "no model"),
        &["text.gguf", "GGUF", "--model"],
    );
    // A header that promises a tensor the file does not hold.
    let config = crate::tiny::config(engine::model::config::Architecture::Llama, 64);
    let whole = place.path().join("whole.gguf");
    crate::tiny::write_gguf(
        &whole,
        &config,
        &crate::tiny::tensors(&config, 1),
        candle_core::quantized::GgmlDType::F32,
    );
    let bytes = std::fs::read(&whole).unwrap();
    run(
        &place.write("cut.gguf", &bytes[..bytes.len() - 1000]),
        &["cut.gguf", "tensor", "truncated"],
    );
    run("smollm2-135m", &["smollm2-135m", "engine pull"]);
    // A file of the right name whose bytes are not the pinned ones.
    let directory = place.path().join(".cache/engine/models/smollm2-135m");
    std::fs::create_dir_all(&directory).unwrap();
    std::fs::write(
        directory.join("SmolLM2-135M-Instruct.Q4_1.gguf"),
        "other bytes",
    )
    .unwrap();
    run("smollm2-135m", &["SmolLM2-135M-Instruct.Q4_1.gguf"]);
}

#[test]
fn a_device_that_was_not_built_names_its_feature() {
    let place = Place::new();
    let plan = place.write("plan.toml", PLAN);
    let input = place.write("in.jsonl", "{\"id\":\"a\",\"text\":\"x\"}\n");
    let model = fixture("reference/tiny-llama")
        .to_string_lossy()
        .into_owned();
    for (device, built) in [
        ("cuda", cfg!(feature = "cuda")),
        ("metal", cfg!(feature = "metal")),
    ] {
        if built {
            continue;
        }
        let arguments = [
            "run", &plan, "--input", &input, "--model", &model, "--device", device, "--out", "out",
        ];
        place.refuses(&arguments, &[&format!("--features {device}")]);
    }
}

#[test]
fn a_replayed_run_is_marked_everywhere() {
    let place = Place::new();
    let plan = place.write("plan.toml", PLAN);
    let input = place.write(
        "in.jsonl",
        "{\"id\":\"a\",\"text\":\"crimson\"}\n{\"id\":\"b\",\"text\":\"blue\"}\n",
    );
    let answers = place.write("answers.jsonl", replay(&[("a", 900_000), ("b", 100_000)]));
    let run = [
        "run", &plan, "--input", &input, "--replay", &answers, "--out", "out",
    ];
    let ended = place.engine(&run);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(ended.stdout.starts_with("SIMULATED"), "{}", ended.stdout);
    assert!(ended.stdout.contains("crimson"), "{}", ended.stdout);
    let read = |name: &str| std::fs::read_to_string(place.path().join("out").join(name)).unwrap();
    let answer: serde_json::Value = serde_json::from_str(&read("answer.json")).unwrap();
    assert_eq!(answer["simulated"], true);
    assert_eq!(answer["coverage"]["decided"], 2);
    assert_eq!(answer["claims"][0]["value"], 1);
    assert_eq!(answer["claims"][0]["cites"][0]["quote"], "crimson");
    assert!(read("answer.md").contains("SIMULATED"));
    for line in read("facts.jsonl").lines() {
        let fact: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(fact["simulated"], true);
    }
    let usage: serde_json::Value = serde_json::from_str(&read("usage.json")).unwrap();
    for key in [
        "prompt_tokens",
        "computed_tokens",
        "cached_tokens",
        "prefix_tokens",
        "forks",
        "scored_positions",
        "generated_tokens",
        "forwards",
        "wall_ms",
    ] {
        assert!(usage[key].is_u64(), "{key}: {usage}");
    }
    for name in ["manifest.json", "events.jsonl"] {
        assert!(!read(name).is_empty());
    }
    let eval = place.engine(&[
        "eval", "out", "--labels", &answers, "--field", "red", "--id", "unit_id",
    ]);
    assert_ne!(eval.code, 0, "labels without the field are refused");
    let labels = place.write("labels.csv", "id,red\na,yes\nb,yes\n");
    let eval = place.engine(&[
        "eval", "out", "--labels", &labels, "--field", "red", "--id", "id",
    ]);
    assert_eq!(eval.code, 0, "{}", eval.stderr);
    assert!(eval.stdout.contains("accuracy 50.00%"), "{}", eval.stdout);
}

#[test]
fn a_record_without_an_answer_makes_the_run_incomplete() {
    let place = Place::new();
    let plan = place.write("plan.toml", PLAN);
    let input = place.write("in.jsonl", "{\"id\":\"a\",\"text\":\"x\"}\nnot json\n");
    let answers = place.write("answers.jsonl", replay(&[("a", 900_000)]));
    let ended = place.engine(&[
        "run", &plan, "--input", &input, "--replay", &answers, "--out", "out",
    ]);
    assert_eq!(ended.code, 3, "{}", ended.stderr);
    assert!(ended.stdout.contains("INCOMPLETE"), "{}", ended.stdout);
    assert!(ended.stderr.contains("line 2"), "{}", ended.stderr);
}

#[test]
fn pairs_of_records_are_shown_asked_scored_and_verified_and_records_alone_abstain() {
    let place = Place::new();
    let unit = "\n[unit]\nkind = \"group\"\n[group]\nby = \"similarity\"\nat_least = 0.1\n";
    let asks = PLAN.replace(
        "question = \"Is it red?\"",
        "question = \"Is it red?\"\nrequires = [\"duplicates\"]",
    );
    let pairs = place.write("pairs.toml", format!("{asks}{unit}"));
    let records = place.write("records.toml", &asks);
    let input = place.write(
        "records.jsonl",
        "{\"id\":\"a\",\"text\":\"token expired\"}\n{\"id\":\"b\",\"text\":\"the token expired\"}\n\
         {\"id\":\"c\",\"text\":\"disk full\"}\n",
    );
    let shown = place.engine(&["units", &pairs, "--input", &input, "--text"]);
    assert_eq!(shown.code, 0, "{}", shown.stderr);
    assert!(
        shown
            .stderr
            .contains("3 records, 2 units: 1 with nothing to ask about")
    );
    assert!(
        shown.stdout.contains("text of b: the token expired"),
        "{}",
        shown.stdout
    );
    let answers = place.write("answers.jsonl", replay(&[("a+b", 900_000)]));
    let run = |plan: &str, out: &str| {
        place.engine(&[
            "run", plan, "--input", &input, "--replay", &answers, "--out", out,
        ])
    };
    assert_eq!(run(&pairs, "out").code, 0);
    assert_eq!(
        run(&records, "alone").code,
        0,
        "whoever abstains has an answer"
    );
    assert_eq!(place.engine(&["verify", "out"]).code, 0);
    assert_eq!(place.engine(&["verify", "alone"]).code, 0);
    let labels = place.write("labelled.jsonl", "{\"id\":\"a\",\"duplicateOf\":[\"b\"]}\n");
    let score = |out: &str| {
        place.engine(&[
            "eval", out, "--pairs", &labels, "--id", "id", "--field", "red",
        ])
    };
    let found = score("out");
    assert!(
        found.stdout.contains("100.00%   100.00%   100.00%"),
        "{}",
        found.stdout
    );
    let alone = score("alone");
    assert!(
        alone.stdout.contains("units: 3 abstained"),
        "{}",
        alone.stdout
    );
    assert!(
        alone.stdout.contains("0 labelled pairs stand side by side"),
        "{}",
        alone.stdout
    );
    let neither = place.engine(&["eval", "out", "--field", "red"]);
    assert_eq!(
        neither.code, 2,
        "labels or pairs have to be named: {}",
        neither.stderr
    );
}
