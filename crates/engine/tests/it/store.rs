//! `engine store` and what `engine run` does with the file of remembered answers.

use std::path::{Path, PathBuf};

use candle_core::quantized::gguf_file::{self, Value};
use candle_core::quantized::{GgmlDType, QTensor};
use engine::local::{self, Device};
use engine::model::ModelConfig;
use engine::model::config::Architecture;
use engine::model::linear::Numerics;
use engine::models::{self, Environment, SilentReporter};
use engine::runner::RunnerOptions;
use operator::Plan;
use operator::infer::CancelFlag;
use operator::ops::partition;
use operator::record::read_source;
use operator::run::RunOptions;
use operator::store::{ContentStore, Kind, RedbStore, StoreOptions};

use crate::cli::{Ended, PLAN, Place};
use crate::tiny;

const RECORDS: &str = "{\"id\":\"a\",\"text\":\"crimson\"}\n{\"id\":\"b\",\"text\":\"blue\"}\n";

fn open(path: &Path, today: fn() -> u32) -> RedbStore {
    let options = StoreOptions {
        today,
        retention_days: None,
    };
    RedbStore::open(path, options).unwrap()
}

/// A store of facts 1 to 9, written on day 100.
fn facts(place: &Place) -> (PathBuf, String) {
    let path = place.path().join("facts.redb");
    let entries: Vec<_> = (1..10)
        .map(|byte| ([byte; 32], format!("fact number {byte}").into_bytes()))
        .collect();
    let store = open(&path, || 100);
    store.put_bytes(Kind::Fact, &entries).unwrap();
    let shown = path.to_string_lossy().into_owned();
    (path, shown)
}

fn json(ended: &Ended) -> serde_json::Value {
    serde_json::from_str(&ended.stdout).unwrap()
}

/// Random weights under a real tokenizer and template: a whole model file that loads in no time.
pub fn write_model(path: &Path) {
    write_deep_model(path, 1);
}

/// The same with so many layers.
pub fn write_deep_model(path: &Path, layers: usize) {
    let mut metadata = crate::tokenizer::metadata("smollm2");
    let config = ModelConfig {
        vocab: metadata["tokenizer.ggml.tokens"].to_vec().unwrap().len(),
        layers,
        ..tiny::config(Architecture::Llama, 64)
    };
    metadata.extend(tiny::metadata(&config));
    let tensors = tiny::gguf_tensors(&config, &tiny::tensors(&config, 3));
    let tensors: Vec<(String, QTensor)> = tensors
        .into_iter()
        .map(|(name, tensor)| (name, QTensor::quantize(&tensor, GgmlDType::F32).unwrap()))
        .collect();
    let metadata: Vec<(&str, &Value)> = metadata.iter().map(|(k, v)| (k.as_str(), v)).collect();
    let tensors: Vec<(&str, &QTensor)> = tensors.iter().map(|(k, v)| (k.as_str(), v)).collect();
    let mut file = std::fs::File::create(path).unwrap();
    gguf_file::write(&mut file, &metadata, &tensors).unwrap();
}

/// Answers the plan over the records inside this process, on a day long ago.
fn run_on_day_100(place: &Place, model: &str, plan: &str, input: &str, store: &Path) {
    let home = place.path().to_owned();
    let environment = Environment::from_lookup(|key| (key == "HOME").then(|| home.clone().into()));
    let model = models::resolve(model, &environment.unwrap(), true, &mut SilentReporter).unwrap();
    let options = RunnerOptions::default();
    let mut infer = local::open(&model, Device::Cpu, Numerics::default(), options).unwrap();
    let plan = Plan::load(Path::new(plan)).unwrap();
    let (artifact, records, bad) = read_source(Path::new(input), None).unwrap();
    let parts = partition(&plan, artifact, records, bad).unwrap();
    let store = open(store, || 100);
    let options = RunOptions {
        redact: false,
        limit: None,
        clock: &|| 0,
        cancel: &CancelFlag::new(),
        larger: None,
        tools: None,
    };
    let memo = Some(&store as _);
    let outcome = operator::run::run(&plan, parts, &mut infer, memo, options, &mut (), None);
    assert_eq!(outcome.unwrap().usage.remembered_units, 0);
}

#[test]
fn a_run_remembers_and_a_retention_asks_again() {
    let place = Place::new();
    let plan = place.write("plan.toml", PLAN);
    let input = place.write("in.jsonl", RECORDS);
    let (model, store) = (place.path().join("tiny.gguf"), place.path().join("a.redb"));
    write_model(&model);
    let (model, shown) = (model.to_string_lossy(), store.to_string_lossy());
    run_on_day_100(&place, &model, &plan, &input, &store);
    let run = |more: &[&str]| {
        let mut arguments = vec!["run", &plan, "--input", &input, "--model", &model];
        arguments.extend(["--out", "out", "--store", &shown]);
        arguments.extend(more);
        let ended = place.engine(&arguments);
        assert!(ended.code == 0 || ended.code == 3, "{}", ended.stderr);
        let remembered = ended
            .stdout
            .lines()
            .find_map(|line| line.strip_prefix("remembered "));
        remembered.unwrap().trim().to_owned()
    };
    assert_eq!(run(&[]), "2 records");
    assert_eq!(run(&["--no-store"]), "0 records");
    assert_eq!(run(&["--retention-days", "30"]), "0 records");
    // They were written anew, on the day that it is.
    assert_eq!(run(&["--retention-days", "30"]), "2 records");

    let stats = json(&place.engine(&["store", "stats", "--store", &shown, "--json"]));
    assert_eq!(stats["tables"][0]["table"], "answers v2");
    assert_eq!(stats["tables"][0]["entries"], 2);
    assert!(stats["tables"][0]["oldest_day"].as_u64().unwrap() > 20_000);
    let text = place.engine(&["store", "stats", "--store", &shown]).stdout;
    assert!(
        text.contains("a.redb") && text.contains("answers v2"),
        "{text}"
    );
}

#[test]
fn damage_is_named_and_removed() {
    let place = Place::new();
    let (path, shown) = facts(&place);
    let verify = ["store", "verify", "--store", &shown];
    let ended = place.engine(&verify);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(ended.stdout.contains("9 entries read, 0 damaged"));

    let mut bytes = std::fs::read(&path).unwrap();
    let fact = b"fact number 7";
    let at = bytes.windows(fact.len()).position(|window| window == fact);
    bytes[at.unwrap()] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let ended = place.engine(&verify);
    assert_eq!(ended.code, 1, "{}", ended.stderr);
    let key = "07".repeat(32);
    for part in ["1 damaged", "facts v1", &key, "checksum", "engine store gc"] {
        assert!(ended.stdout.contains(part), "no {part:?}: {}", ended.stdout);
    }
    let ended = place.engine(&[&verify[..], &["--json"]].concat());
    assert_eq!(ended.code, 1, "{}", ended.stderr);
    assert_eq!(json(&ended)["damaged"][0]["key"], key);

    let gc = ["store", "gc", "--store", &shown, "--json"];
    let dry = json(&place.engine(&[&gc[..], &["--dry-run"]].concat()));
    assert_eq!(dry["removed"][1]["damaged"], 1);
    assert_eq!(place.engine(&verify).code, 1, "a dry run removes nothing");
    let report = json(&place.engine(&gc));
    assert_eq!(
        (&report["removed"], &dry["dry_run"]),
        (&dry["removed"], &true.into())
    );
    let ended = place.engine(&verify);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(ended.stdout.contains("8 entries read, 0 damaged"));

    let ended = place.engine(&["store", "gc", "--store", &shown, "--older-than", "30"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(ended.stdout.contains("smaller"), "{}", ended.stdout);
    assert!(place.engine(&verify).stdout.contains("0 entries read"));
}

#[test]
fn a_store_in_use_is_read_and_not_written() {
    let place = Place::new();
    let (path, shown) = facts(&place);
    let plan = place.write("plan.toml", PLAN);
    let input = place.write("in.jsonl", RECORDS);
    let held = open(&path, || 100);
    let run = [
        "run",
        &plan,
        "--input",
        &input,
        "--model",
        "gone.gguf",
        "--out",
        "out",
        "--store",
        &shown,
    ];
    // The store is asked for before the model is.
    place.refuses(&run, &["facts.redb", "in use", "--store", "--no-store"]);
    place.refuses(
        &["store", "gc", "--store", &shown],
        &["facts.redb", "in use"],
    );
    for command in ["stats", "verify"] {
        let ended = place.engine(&["store", command, "--store", &shown]);
        assert_eq!(ended.code, 0, "{}", ended.stderr);
    }
    drop(held);
    place.refuses(&run, &["gone.gguf"]);
}

#[test]
fn a_file_that_is_no_store_is_named_and_left_alone() {
    let place = Place::new();
    let notes = place.write("notes.txt", "not a store");
    for command in ["stats", "verify", "gc"] {
        place.refuses(&["store", command], &["answers.redb", "no such file"]);
        place.refuses(
            &["store", command, "--store", &notes],
            &["notes.txt", "not a store"],
        );
    }
    assert_eq!(std::fs::read_to_string(&notes).unwrap(), "not a store");
    assert!(!place.path().join(".cache/engine/answers.redb").exists());
}
