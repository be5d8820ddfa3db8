//! `engine bench decode` as a user meets it, and that it tells texts apart.

use engine::bench::decode::{DecodeReport, DecodeTask, run};
use engine::bench::report::ModelNote;
use engine::error::EngineError;
use engine::local::{self, Device};
use engine::model::linear::Numerics;
use engine::model::{Batch, Model, ModelConfig, States};
use kvcache::KvCache;
use serde_json::Value;

use super::command::model;
use super::{SHAPE, Tiny};
use crate::cli::Place;

const LENGTHS: [&str; 12] = [
    "--prefix-len",
    "60",
    "--prompt-len",
    "20",
    "--output-len",
    "4",
    "--requests",
    "5",
    "--rounds",
    "2",
    "--numerics",
    "f32",
];

fn bench<'a>(model: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let arguments = ["bench", "decode", "--model", model, "--out", "out"];
    [arguments.as_slice(), &LENGTHS, more].concat()
}

#[test]
fn decoding_is_measured_in_turns_and_ends_in_a_table_and_a_file() {
    let place = Place::new();
    let model = model(&place);
    let ended = place.engine(&bench(&model, &["--slots", "1,3,1"]));
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    for part in ["tokens/s", "x 1 slot", "20 of 20", "1.00"] {
        assert!(ended.stdout.contains(part), "no {part}: {}", ended.stdout);
    }
    assert!(
        ended.stderr.contains("round 2/2    3 slots"),
        "{}",
        ended.stderr
    );
    let text = std::fs::read_to_string(place.path().join("out/bench.json")).unwrap();
    let report: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(report["benchmark"], "decode");
    assert_eq!(report["rounds"], 2);
    assert_eq!(report["model"]["numerics"], "f32");
    assert_eq!(report["work"]["prefix_tokens"], 60);
    assert_eq!(report["work"]["prompt_tokens"]["min"], 20.0);
    let figures = report["figures"].as_array().unwrap();
    assert_eq!(figures.len(), 2, "a number is measured once");
    for (figures, (slots, forwards)) in figures.iter().zip([(1, 20), (3, 8)]) {
        assert_eq!(figures["slots"], slots);
        // Five prompts, and three of the four tokens of each.
        assert_eq!(figures["rows"], 5 * 20 + 5 * 3);
        assert_eq!(figures["forwards"], forwards);
        assert_eq!(figures["texts_differing"], 0);
        assert!(figures["tokens_per_s"]["median"].as_f64().unwrap() > 0.0);
    }
    assert_eq!(figures[0]["times_one_slot"], 1.0);
    let samples = report["samples"].as_array().unwrap();
    let turns: Vec<u64> = samples
        .iter()
        .map(|s| s["slots"].as_u64().unwrap())
        .collect();
    assert_eq!(turns, [1, 3, 1, 3]);
    assert!(samples.iter().all(|sample| sample["generated"] == 20));
    // The first token of a text comes with its prompt, and the last two texts leave a slot empty.
    let steady = samples
        .iter()
        .map(|s| s["steady_generated"].as_u64().unwrap());
    assert_eq!(steady.collect::<Vec<_>>(), [15, 9, 15, 9]);
    assert_eq!(figures[0]["steady_times_one_slot"], 1.0);
}

#[test]
fn the_report_goes_to_standard_output_as_json_and_claims_no_ratio_without_one_slot() {
    let place = Place::new();
    let model = model(&place);
    let ended = place.engine(&bench(&model, &["--slots", "2,9", "--json"]));
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let report: Value = serde_json::from_str(&ended.stdout).unwrap();
    for figures in report["figures"].as_array().unwrap() {
        assert!(figures["times_one_slot"].is_null());
        // Five prompts never fill nine slots.
        let steady = &figures["steady_tokens_per_s"];
        assert_eq!(steady.is_null(), figures["slots"] == 9, "{figures}");
    }
}

#[test]
fn what_cannot_be_decoded_is_refused_before_anything_runs() {
    let place = Place::new();
    let model = model(&place);
    for (name, value, code, parts) in [
        ("--slots", "0", 2, ["--slots", "0"]),
        ("--slots", "1,x", 2, ["--slots", "x"]),
        ("--requests", "0", 2, ["--requests", "0"]),
        ("--prompt-len", "1", 1, ["--prompt-len 1", "least"]),
        ("--prefix-len", "2", 1, ["--prefix-len 2", "least"]),
        ("--output-len", "5000", 1, ["record 0", "4096"]),
    ] {
        let ended = place.engine(&[
            "bench", "decode", "--model", &model, "--out", "out", name, value,
        ]);
        assert_eq!(ended.code, code, "{name}: {}", ended.stderr);
        for part in parts {
            assert!(ended.stderr.contains(part), "{name}: {}", ended.stderr);
        }
        assert!(!ended.stderr.contains("round 1"), "{}", ended.stderr);
    }
}

/// A model whose choice depends on how many are asked beside it.
struct Swayed(Box<dyn Model>);

impl Model for Swayed {
    fn config(&self) -> &ModelConfig {
        self.0.config()
    }

    fn tier(&self) -> String {
        self.0.tier()
    }

    fn forward_tapped(
        &mut self,
        batch: &Batch<'_>,
        cache: &mut KvCache,
    ) -> Result<States, EngineError> {
        self.0.forward_tapped(batch, cache)
    }

    fn logits(&mut self, hidden: &[f32]) -> Result<Vec<f32>, EngineError> {
        let mut logits = self.0.logits(hidden)?;
        let vocab = self.0.config().vocab;
        let rows = logits.len() / vocab;
        for row in logits.chunks_exact_mut(vocab) {
            row[100 + rows] = 1e6;
        }
        Ok(logits)
    }

    fn rows_forwarded(&self) -> u64 {
        self.0.rows_forwarded()
    }

    fn forwards(&self) -> u64 {
        self.0.forwards()
    }
}

#[test]
fn texts_that_depend_on_their_company_are_counted() {
    let tiny = Tiny::new();
    let task = DecodeTask {
        work: tiny.work(SHAPE).unwrap(),
        output_len: 3,
        slots: vec![1, 9],
        rounds: 2,
        batch_tokens: 512,
    };
    let report = |swayed: bool| {
        let mut model = local::open_forward(&tiny.files, Device::Cpu, Numerics::F32).unwrap();
        if swayed {
            model = Box::new(Swayed(model));
        }
        let samples = run(model, &task, &mut |_, _| {}).unwrap();
        let note = ModelNote::new("tiny", "", &tiny.files.config);
        DecodeReport::of(&task, note, samples)
    };
    assert_eq!(report(false).texts_differing(), 0);
    let swayed = report(true);
    let by_slots = swayed.figures.iter().map(|figures| figures.texts_differing);
    // All nine of them, in both rounds with one slot.
    assert_eq!(by_slots.collect::<Vec<u64>>(), [18, 0]);
}
