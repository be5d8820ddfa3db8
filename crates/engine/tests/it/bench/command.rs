//! `engine bench prefix` as a user meets it.

use serde_json::Value;

use crate::cli::{PLAN, Place};
use crate::store::write_model;

pub fn model(place: &Place) -> String {
    let path = place.path().join("tiny.gguf");
    write_model(&path);
    path.to_string_lossy().into_owned()
}

fn bench<'a>(model: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let mut arguments = vec!["bench", "prefix", "--model", model, "--out", "out"];
    arguments.extend(more);
    arguments
}

#[test]
fn a_benchmark_ends_in_a_table_a_file_and_a_picture() {
    let place = Place::new();
    let model = model(&place);
    let lengths = [
        "--prefix-len",
        "60",
        "--record-len",
        "20",
        "--records",
        "5",
        "--rounds",
        "2",
        "--numerics",
        "f32",
    ];
    let ended = place.engine(&bench(&model, &lengths));
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    for part in [
        "shared",
        "unshared",
        "achieved/bound",
        "same answers",
        "margins",
    ] {
        assert!(ended.stdout.contains(part), "no {part}: {}", ended.stdout);
    }
    assert!(
        ended.stderr.contains("round 2/2  serial"),
        "{}",
        ended.stderr
    );
    let text = std::fs::read_to_string(place.path().join("out/bench.json")).unwrap();
    let report: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(report["schema"], 1);
    assert_eq!(report["rounds"], 2);
    assert_eq!(report["model"]["blake3"].as_str().unwrap().len(), 64);
    assert_eq!(report["work"]["prefix_tokens"], 60);
    assert_eq!(report["work"]["record_tokens"]["max"], 20.0);
    for key in ["cores", "isa", "architecture", "os"] {
        assert!(!report["machine"][key].is_null(), "machine.{key}");
    }
    for key in [
        "flop_ratio",
        "token_ratio",
        "shared_flops",
        "unshared_flops",
    ] {
        assert!(report["bound"][key].as_f64().unwrap() > 1.0, "bound.{key}");
    }
    let figures = report["figures"].as_array().unwrap();
    let arms: Vec<&str> = figures.iter().map(|f| f["arm"].as_str().unwrap()).collect();
    assert_eq!(arms, ["shared", "unshared", "salted", "nonce", "serial"]);
    for figures in figures {
        for key in [
            "records_per_s",
            "load_s",
            "prefix_s",
            "records_s",
            "p50_ms",
            "p90_ms",
            "p99_ms",
            "first_ms",
            "last_ms",
            "flops_per_s",
            "gemm_flops_per_s",
            "gemm_share",
        ] {
            for part in ["median", "min", "max"] {
                assert!(figures[key][part].is_f64(), "{key}.{part}: {figures}");
            }
        }
        let tokens = |key: &str| figures["tokens"][key].as_u64().unwrap();
        assert_eq!(tokens("computed") + tokens("cached"), tokens("logical"));
    }
    let samples = report["samples"].as_array().unwrap();
    assert_eq!(samples.len(), 10);
    // The arms take turns.
    assert_eq!(samples[0]["arm"], "shared");
    assert_eq!(samples[4]["arm"], "serial");
    assert_eq!(samples[5]["arm"], "shared");
    assert_eq!(samples[9]["latency_us"].as_array().unwrap().len(), 5);
    assert_eq!(report["equality"][0]["flips_above_margin"], 0);
    let svg = std::fs::read_to_string(place.path().join("out/bench.svg")).unwrap();
    assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
    for arm in arms {
        assert!(svg.contains(arm), "{arm} is in the picture");
    }
}

#[test]
fn a_plan_gives_the_texts_and_json_goes_to_standard_output() {
    let place = Place::new();
    let model = model(&place);
    let plan = place.write("plan.toml", PLAN);
    let input = place.write(
        "in.jsonl",
        "{\"id\":\"a\",\"text\":\"crimson\"}\n{\"id\":\"b\",\"text\":\"blue\"}\n",
    );
    let more = [
        "--plan",
        &plan,
        "--input",
        &input,
        "--arms",
        "unshared,shared",
        "--rounds",
        "1",
        "--json",
        "--output-len",
        "2",
    ];
    let ended = place.engine(&bench(&model, &more));
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let report: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(report["work"]["records"], 2);
    assert!(
        report["work"]["source"]
            .as_str()
            .unwrap()
            .contains("in.jsonl")
    );
    assert_eq!(report["work"]["questions"][0][0], "red");
    assert_eq!(report["equality"][0]["texts"], 2);
    let answers = report["samples"][0]["answers"].as_array().unwrap();
    assert_eq!(answers[1]["tokens"].as_array().unwrap().len(), 2);
}

#[test]
fn wrong_arguments_say_what_is_wrong_before_anything_runs() {
    let place = Place::new();
    let model = model(&place);
    for (arguments, code, parts) in [
        (vec!["--records", "0"], 2, vec!["--records", "0"]),
        (vec!["--concurrency", "0"], 2, vec!["--concurrency", "0"]),
        (vec!["--rounds", "0"], 2, vec!["--rounds", "0"]),
        (vec!["--batch-tokens", "0"], 2, vec!["--batch-tokens"]),
        (vec!["--arms", "fast"], 2, vec!["fast", "unshared"]),
        (
            vec!["--plan", "p", "--record-len", "9"],
            2,
            vec!["--record-len", "--plan"],
        ),
        (
            vec!["--prefix-len", "4000"],
            1,
            vec!["record 0", "4000", "4096"],
        ),
        (
            vec!["--prefix-len", "4040", "--record-len", "9"],
            1,
            vec!["4040", "4032"],
        ),
        (
            vec!["--prefix-len", "3"],
            1,
            vec!["--prefix-len 3", "least"],
        ),
        (vec!["--arms", "api"], 1, vec!["--url"]),
        (
            vec!["--url", "http://127.0.0.1:1/v1", "--arms", "shared"],
            1,
            vec!["--arms"],
        ),
        (vec!["--plan", "missing.toml"], 1, vec!["missing.toml"]),
    ] {
        let ended = place.engine(&bench(&model, &arguments));
        assert_eq!(ended.code, code, "{arguments:?}: {}", ended.stderr);
        assert!(ended.stdout.is_empty(), "{}", ended.stdout);
        for part in parts {
            assert!(
                ended.stderr.contains(part),
                "no {part:?} in: {}",
                ended.stderr
            );
        }
        assert!(!ended.stderr.contains("round 1"), "{}", ended.stderr);
        assert!(!place.path().join("out/bench.json").exists());
    }
}
