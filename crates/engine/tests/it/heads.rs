//! Heads trained and used with a whole model: keys, refusals, and answers that equal direct computation.

use std::path::Path;

use engine::calibrate::{Source, gather, turn_of};
use engine::head::{Candidate, Head, Options, Reading, train};
use engine::infer::{LocalInfer, bond};
use engine::local::{self, Device};
use engine::model::linear::Numerics;
use engine::models::LocalModel;
use engine::runner::RunnerOptions;
use operator::Plan;
use operator::eval::{Labels, read_labels};
use operator::infer::{Answer, CancelFlag, Infer, InferJob, UnitOutcome};
use operator::ops::{Partition, partition};
use operator::record::read_bytes;
use operator::text::render_for;

use crate::cli::{PLAN, Place};
use crate::store::write_deep_model;

const LAYERS: [usize; 2] = [0, 2];

/// Labelled records: reds are named by words that the others never have.
fn records(from: usize, count: usize) -> String {
    let reds = ["crimson", "scarlet", "ruby"];
    let others = ["sky", "moss", "sand"];
    let mut lines = String::new();
    for id in from..from + count {
        let (word, red) = match id % 2 {
            0 => (reds[id / 2 % 3], "yes"),
            _ => (others[id / 2 % 3], "no"),
        };
        lines.push_str(&format!(
            "{{\"id\":\"{id}\",\"text\":\"the paint is {word}, can {id}\",\"red\":\"{red}\"}}\n"
        ));
    }
    lines
}

fn open(path: &Path, numerics: Numerics) -> LocalInfer {
    let bytes = std::fs::read(path).unwrap();
    let model = LocalModel {
        name: "tiny".into(),
        path: path.into(),
        blake3: blake3::hash(&bytes).to_hex().to_string(),
        bytes: bytes.len() as u64,
        verified: true,
    };
    local::open(&model, Device::Cpu, numerics, RunnerOptions::default()).unwrap()
}

fn units(plan: &Plan, lines: &str) -> (Partition, Labels) {
    let (artifact, records, bad) = read_bytes("in.jsonl", lines.as_bytes(), None).unwrap();
    let labels = read_labels("in.jsonl", &records, "id", "red", &Default::default()).unwrap();
    (partition(plan, artifact, records, bad).unwrap(), labels)
}

fn trained(plan: &Plan, infer: &mut LocalInfer, lines: &str, seed: u64) -> (Head, Vec<Vec<f64>>) {
    let (units, labels) = units(plan, lines);
    let turn = turn_of(plan, "red").unwrap();
    let source = Source {
        plan,
        units: &units,
        labels: &labels,
        turn: &turn,
        field: "red",
        group_by: None,
        layers: &LAYERS,
    };
    let gathered = gather(source, infer, &CancelFlag::new()).unwrap();
    let options = Options {
        candidates: vec![Candidate {
            readings: vec![
                Reading::Answer(2),
                Reading::Mean(0),
                Reading::Final,
                Reading::Words,
            ],
            own: 0.0,
        }],
        penalties: vec![0.03, 0.01],
        folds: 4,
        seed,
        recall: None,
    };
    let bond = bond(infer.identity(), &turn.rubric, &turn.questions[0], None).unwrap();
    let head = train(&gathered.examples, bond, &options).unwrap().head;
    let direct = (0..gathered.examples.len())
        .map(|place| head.judge_example(&gathered.examples, place))
        .collect();
    (head, direct)
}

fn answers(plan: &Plan, infer: &mut LocalInfer, lines: &str) -> Vec<Answer> {
    let (units, _) = units(plan, lines);
    let turn = turn_of(plan, "red").unwrap();
    let texts: Vec<_> = units
        .units
        .iter()
        .map(|unit| render_for(plan, unit, &[], turn.evidence).unwrap())
        .collect();
    let mut found = vec![None; texts.len()];
    let job = InferJob {
        rubric: &turn.rubric,
        questions: &turn.questions,
        units: &texts,
        cancel: &CancelFlag::new(),
    };
    infer
        .infer(job, &mut |completion| {
            let place = texts
                .iter()
                .position(|text| text.unit_id == completion.unit_id);
            if let UnitOutcome::Answered(answers) = completion.outcome {
                found[place.unwrap()] = Some(answers[0].clone());
            }
        })
        .unwrap();
    found.into_iter().map(Option::unwrap).collect()
}

#[test]
fn a_backend_with_a_head_answers_what_the_head_makes_of_the_states() {
    let place = Place::new();
    let path = place.path().join("tiny.gguf");
    write_deep_model(&path, 3);
    let plan = Plan::parse(PLAN, "plan.toml").unwrap();
    for numerics in [Numerics::F32, Numerics::Auto] {
        let lines = records(0, 36);
        let mut infer = open(&path, numerics);
        let (head, direct) = trained(&plan, &mut infer, &lines, 1);
        let mut with_head = open(&path, numerics).with_heads(vec![head]).unwrap();
        let answers = answers(&plan, &mut with_head, &lines);
        assert_eq!(answers.len(), direct.len());
        for (answer, direct) in answers.iter().zip(&direct) {
            for (ppm, share) in answer.probabilities.iter().zip(direct) {
                let want = share * 1e6;
                assert!((f64::from(*ppm) - want).abs() < 2.0, "{ppm} {want}");
            }
        }
    }
}

#[test]
fn a_head_is_part_of_the_identity_and_of_no_other_backend_or_question() {
    let place = Place::new();
    let path = place.path().join("tiny.gguf");
    write_deep_model(&path, 3);
    let plan = Plan::parse(PLAN, "plan.toml").unwrap();
    let mut infer = open(&path, Numerics::F32);
    let plain = infer.identity().clone();
    let (one, _) = trained(&plan, &mut infer, &records(0, 36), 1);
    let (two, _) = trained(&plan, &mut infer, &records(2, 36), 1);
    let named = |heads: Vec<Head>| {
        let infer = open(&path, Numerics::F32).with_heads(heads).unwrap();
        infer.identity().clone()
    };
    let (first, second) = (named(vec![one.clone()]), named(vec![two.clone()]));
    assert_eq!(named(vec![one.clone()]), first);
    assert_eq!(named(Vec::new()), plain);
    assert!(plain.digest != first.digest && first.digest != second.digest);
    assert!(first.describe.contains("for red"), "{}", first.describe);
    let refused = |infer: LocalInfer, heads: Vec<Head>| {
        let refused = infer.with_heads(heads).map(|_| ());
        refused.unwrap_err().to_string()
    };
    let other_tier = refused(open(&path, Numerics::Int16), vec![one.clone()]);
    assert!(
        other_tier.contains("it was trained with tiny"),
        "{other_tier}"
    );
    let both = refused(open(&path, Numerics::F32), vec![one.clone(), two]);
    assert!(both.contains("two heads answer it"), "{both}");

    let infer = open(&path, Numerics::F32).with_heads(vec![one]).unwrap();
    let check = |plan: &Plan| {
        let turn = turn_of(plan, &plan.fields[0].name).unwrap();
        let turns = [(&turn.rubric, &*turn.questions)];
        infer.heads().check(turns.into_iter())
    };
    assert!(check(&plan).is_ok());
    for (from, to, problem) in [
        (
            "Is it red?",
            "Is it truly red?",
            "have changed since it was trained",
        ),
        ("\"red\"", "\"rosy\"", "asks no such field"),
    ] {
        let text = PLAN.replace(from, to).replace("{ red =", "{ rosy =");
        let text = match to {
            "\"rosy\"" => text,
            _ => text.replace("{ rosy =", "{ red ="),
        };
        let error = check(&Plan::parse(&text, "plan.toml").unwrap()).unwrap_err();
        assert!(error.to_string().contains(problem), "{error}");
    }
}

#[test]
fn a_calibrated_plan_answers_records_that_it_has_not_seen_and_remembers_by_head() {
    let place = Place::new();
    let model = place.path().join("tiny.gguf");
    write_deep_model(&model, 2);
    let model = model.to_string_lossy().into_owned();
    let plan = place.write("plan.toml", PLAN);
    let labels = place.write("labels.jsonl", records(0, 60));
    let calibrate = |more: &[&str]| {
        let mut arguments = vec!["calibrate", &plan, "--labels", &labels, "--input", &labels];
        arguments.extend(["--model", &model]);
        arguments.extend(more);
        place.engine(&arguments)
    };
    let ended = calibrate(&["--out", "red.safetensors"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(
        ended.stdout.contains("accuracy 100.00%"),
        "{}",
        ended.stdout
    );
    let before = std::fs::read(place.path().join("red.safetensors")).unwrap();
    calibrate(&["--out", "again.safetensors"]);
    let again = std::fs::read(place.path().join("again.safetensors")).unwrap();
    assert_eq!(before, again, "the same labels give the same head");

    let input = place.write("in.jsonl", records(600, 20));
    let run = |plan: &str, more: &[&str]| {
        let mut arguments = vec!["run", plan, "--input", &input, "--model", &model];
        arguments.extend(["--out", "out", "--store", "facts.redb"]);
        arguments.extend(more);
        let ended = place.engine(&arguments);
        assert!(ended.code == 0 || ended.code == 3, "{}", ended.stderr);
        let remembered = ended
            .stdout
            .lines()
            .find_map(|line| line.strip_prefix("remembered "));
        remembered.unwrap().trim().to_owned()
    };
    assert_eq!(run(&plan, &[]), "0 records");
    assert_eq!(run(&plan, &["--head", "red.safetensors"]), "0 records");
    let eval = place.engine(&[
        "eval", "out", "--labels", &input, "--field", "red", "--id", "id",
    ]);
    assert!(eval.stdout.contains("accuracy 100.00%"), "{}", eval.stdout);
    assert!(eval.stdout.contains("calibration error"), "{}", eval.stdout);
    assert!(
        eval.stdout.contains("missed of yes: 0 of 10"),
        "{}",
        eval.stdout
    );
    // The plan may name the head as well; its path says nothing about the answers.
    let named = PLAN.replace("labels = ", "head = \"again.safetensors\"\nlabels = ");
    assert_eq!(run(&place.write("named.toml", named), &[]), "20 records");

    let trials = calibrate(&["--trials", "2", "--json"]);
    assert_eq!(trials.code, 0, "{}", trials.stderr);
    let trials: serde_json::Value = serde_json::from_str(&trials.stdout).unwrap();
    let first = &trials["trials"][0];
    assert_eq!(
        (&first["learned"], &first["tested"]),
        (&40.into(), &20.into())
    );
    assert_eq!(first["head"]["accuracy"], 1_000_000);
}

#[test]
fn what_cannot_be_calibrated_says_what_is_needed() {
    let place = Place::new();
    let model = place.path().join("tiny.gguf");
    write_deep_model(&model, 1);
    let model = model.to_string_lossy().into_owned();
    let plan = place.write("plan.toml", PLAN);
    let few = place.write("few.jsonl", records(0, 6));
    let wrong = place.write("wrong.jsonl", records(0, 6).replace("\"no\"", "\"never\""));
    let many = place.write("many.jsonl", records(0, 60));
    let refuse = |labels: &str, more: &[&str], parts: &[&str]| {
        let mut arguments = vec!["calibrate", &plan, "--labels", labels, "--input", labels];
        arguments.extend(["--model", &model]);
        arguments.extend(more);
        place.refuses(&arguments, parts);
    };
    refuse(
        &few,
        &[],
        &["has 3 labelled records", "5 or more are needed"],
    );
    refuse(&wrong, &[], &["\"never\"", "yes, no", "--map never=LABEL"]);
    refuse(
        &many,
        &["--recall", "yes=0.9"],
        &["29 are needed", "label about"],
    );
    refuse(
        &many,
        &["--recall", "maybe=0.9"],
        &["the labels of red are yes, no"],
    );
    refuse(&many, &["--field", "blue"], &["no field \"blue\"", "red"]);
    refuse(&many, &["--layers", "7"], &["layer 7", "the model has 1"]);
    refuse(
        &many,
        &["--group-by", "id"],
        &["first field that the plan shows"],
    );
    let no_head = place.write("no.safetensors", "nothing");
    place.refuses(
        &[
            "run", &plan, "--input", &many, "--model", &model, "--head", &no_head, "--out", "out",
        ],
        &["no.safetensors", "is no head"],
    );
}
