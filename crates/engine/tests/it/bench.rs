//! The prefix-reuse benchmark on a tiny model: what each arm computes, and that all answer alike.

mod api;
mod command;
mod decode;

use std::collections::HashSet;
use std::path::PathBuf;

use engine::bench::arms::{self, Sample, Task};
use engine::bench::equality;
use engine::bench::work::{Asked, Shape, Texts, Work};
use engine::bench::{Arm, BenchError};
use engine::local::{self, Device};
use engine::model::ModelFiles;
use engine::model::linear::Numerics;
use engine::runner::{Runner, RunnerOptions};
use kvcache::Namespace;

use crate::store::write_model;
use crate::tiny::portable_device;

const SHAPE: Shape = Shape {
    prefix_len: 90,
    record_len: 21,
    records: 9,
    seed: 5,
};

struct Tiny {
    files: ModelFiles,
    _directory: tempfile::TempDir,
}

impl Tiny {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path: PathBuf = directory.path().join("tiny.gguf");
        write_model(&path);
        Self {
            files: ModelFiles::open(&path).unwrap(),
            _directory: directory,
        }
    }

    fn work(&self, shape: Shape) -> Result<Work, BenchError> {
        let (tokenizer, template) = local::open_text(&self.files).unwrap();
        Work::synthetic(&tokenizer, &template, shape)
    }

    fn run(&self, task: &Task) -> Result<Sample, BenchError> {
        let model = local::open_forward(&self.files, Device::Cpu, Numerics::F32).unwrap();
        let mut last = 0;
        let sample = arms::run(model, task, &mut |done| {
            assert_eq!(done, last + 1, "progress goes up one by one");
            last = done;
        })?;
        assert_eq!(last, task.work.records.len());
        Ok(sample)
    }
}

fn task(arm: Arm, work: Work) -> Task {
    Task {
        arm,
        work,
        output_len: 0,
        concurrency: 4,
        batch_tokens: 64,
    }
}

#[test]
fn every_arm_computes_what_it_says_and_all_answer_alike() {
    let tiny = Tiny::new();
    let work = tiny.work(SHAPE).unwrap();
    let branches: usize = work.trees().unwrap().iter().map(|tree| tree.tokens()).sum();
    let (prefix, own) = (90, 9 * (21 + branches) as u64);
    let samples: Vec<Sample> = Arm::LOCAL
        .map(|arm| tiny.run(&task(arm, work.clone())).unwrap())
        .to_vec();
    for sample in &samples {
        let tokens = sample.tokens.unwrap();
        let name = sample.arm.name();
        assert_eq!(tokens.logical, 9 * prefix + own, "{name}");
        assert_eq!(tokens.computed + tokens.cached, tokens.logical, "{name}");
        let (computed, sealed) = match sample.arm {
            Arm::Shared | Arm::Serial => (prefix + own, prefix),
            Arm::Unshared => (9 * prefix + own, 0),
            _ => (9 * prefix + own, 9 * prefix),
        };
        assert_eq!(
            (tokens.computed, tokens.sealed),
            (computed, sealed),
            "{name}"
        );
        // Two forwards of at most 64 tokens seal a prefix of 90.
        let forwards = match sample.arm {
            Arm::Shared => 2 + 5,
            Arm::Unshared => 9,
            Arm::Serial => 2 + 9,
            _ => 3 * 9,
        };
        assert_eq!(sample.forwards, forwards, "{name}");
        assert_eq!(sample.latency_us.len(), 9);
        assert_eq!(sample.done_us.len(), 9);
        assert!(sample.done_us.is_sorted());
        assert_eq!(sample.prefix_us > 0, sample.arm != Arm::Unshared, "{name}");
    }
    let compared = equality::compare(&samples);
    let arms: Vec<Arm> = compared.iter().map(|equality| equality.arm).collect();
    assert_eq!(arms, [Arm::Shared, Arm::Salted, Arm::Serial]);
    for equality in compared {
        assert_eq!((equality.decisions, equality.flips), (9, 0));
        assert!(equality.largest_difference_ppm <= 100, "{equality:?}");
    }
    let nonce = &samples[3];
    assert_ne!(
        nonce.answers, samples[1].answers,
        "other prompts have other answers"
    );
}

#[test]
fn generating_replaces_the_questions_and_adds_up_as_well() {
    let tiny = Tiny::new();
    let work = tiny.work(SHAPE).unwrap();
    let mut samples = Vec::new();
    for arm in Arm::LOCAL {
        let mut task = task(arm, work.clone());
        task.output_len = 3;
        let sample = tiny.run(&task).unwrap();
        let tokens = sample.tokens.unwrap();
        // The last of three generated tokens enters no layer.
        assert_eq!(tokens.logical, 9 * (90 + 21 + 2), "{}", arm.name());
        let expected = if arm.shares() { 90 + 9 * 23 } else { 9 * 113 };
        assert_eq!(tokens.computed, expected, "{}", arm.name());
        assert!(sample.answers.iter().all(|answer| answer.tokens.len() == 3));
        assert!(sample.done_us.is_sorted());
        // Two seal the prefix. Of four in flight, three prompts fit a forward of 64 rows beside
        // one that is decoded; alone, each of the nine takes three forwards.
        match arm {
            Arm::Shared => assert_eq!(sample.forwards, 2 + 9),
            Arm::Serial => assert_eq!(sample.forwards, 2 + 27),
            _ => {}
        }
        samples.push(sample);
    }
    for equality in equality::compare(&samples) {
        assert_eq!((equality.texts, equality.texts_differing), (9, 0));
        assert_eq!(equality.decisions, 0);
    }
}

#[test]
fn records_in_flight_change_the_packing_and_no_answer() {
    let tiny = Tiny::new();
    let work = tiny.work(SHAPE).unwrap();
    let packed = |concurrency, batch_tokens| {
        let task = Task {
            concurrency,
            batch_tokens,
            ..task(Arm::Shared, work.clone())
        };
        tiny.run(&task).unwrap()
    };
    let (one, three, all) = (packed(1, 512), packed(3, 512), packed(100, 512));
    // One forward for the prefix, then as many records as may be in flight.
    assert_eq!((one.forwards, three.forwards, all.forwards), (10, 4, 2));
    for other in [&three, &all] {
        for (answer, alone) in other.answers.iter().zip(&one.answers) {
            let pairs = answer.labels_ppm[0].iter().zip(&alone.labels_ppm[0]);
            assert!(pairs.into_iter().all(|(a, b)| a.abs_diff(*b) <= 100));
        }
    }
    assert_eq!(all.latency_us.iter().min(), all.latency_us.iter().max());
}

#[test]
fn the_portable_path_is_measured_in_the_same_way() {
    let tiny = Tiny::new();
    let shape = Shape {
        records: 3,
        ..SHAPE
    };
    let work = tiny.work(shape).unwrap();
    let run = |device, arm| {
        let model = local::open_forward(&tiny.files, device, Numerics::F32).unwrap();
        arms::run(model, &task(arm, work.clone()), &mut |_| {}).unwrap()
    };
    for arm in Arm::LOCAL {
        let (fast, portable) = (run(Device::Cpu, arm), run(portable_device(), arm));
        assert_eq!(fast.tokens, portable.tokens, "{}", arm.name());
        assert_eq!(fast.forwards, portable.forwards, "{}", arm.name());
    }
}

#[test]
fn an_evicted_prefix_is_gone_and_computed_again() {
    let tiny = Tiny::new();
    for device in [Device::Cpu, portable_device()] {
        let model = local::open_forward(&tiny.files, device, Numerics::F32).unwrap();
        let mut runner = Runner::new(model, RunnerOptions::default()).unwrap();
        let namespace = Namespace([1; 32]);
        let tokens: Vec<u32> = (100..140).collect();
        let (prefix, computed) = runner.seal(&namespace, &tokens).unwrap();
        assert_eq!((computed, runner.cache_stats().prefixes), (40, 1));
        runner.evict(&prefix).unwrap();
        assert_eq!(runner.cache_stats().prefixes, 0);
        assert!(runner.evict(&prefix).is_err());
        drop(prefix);
        assert_eq!(runner.seal(&namespace, &tokens).unwrap().1, 40);
    }
}

#[test]
fn synthetic_work_has_the_lengths_asked_for_and_is_its_own_text() {
    let tiny = Tiny::new();
    let (tokenizer, template) = local::open_text(&tiny.files).unwrap();
    let work = tiny.work(SHAPE).unwrap();
    assert_eq!(work, tiny.work(SHAPE).unwrap());
    assert_ne!(work, tiny.work(Shape { seed: 6, ..SHAPE }).unwrap());
    assert_eq!(work.prefix.len(), 90);
    assert!(work.records.iter().all(|record| record.len() == 21));
    // A server that is given the texts gets the same tokens, but for the space before a first word.
    let split = template
        .split(&tokenizer, &format!(" {}", work.system))
        .unwrap();
    assert_eq!(split.prefix, work.prefix);
    let text = tokenizer
        .encode_text(&format!(" {}", work.users[4]))
        .unwrap();
    assert_eq!([text, split.close].concat(), work.records[4]);
    let prefixes: HashSet<Vec<u32>> = (0..9).map(|record| work.nonce_prefix(record)).collect();
    assert_eq!(prefixes.len(), 9);
    for prefix in &prefixes {
        assert_eq!(prefix.len(), 90);
        assert_eq!(prefix[..work.nonce_at], work.prefix[..work.nonce_at]);
        assert_eq!(
            prefix[work.nonce_at + 4..],
            work.prefix[work.nonce_at + 4..]
        );
    }
}

#[test]
fn given_texts_become_the_prompts_of_a_run() {
    let tiny = Tiny::new();
    let (tokenizer, template) = local::open_text(&tiny.files).unwrap();
    let texts = Texts {
        system: "Say whether it is red.".into(),
        records: vec!["crimson".into(), "blue as the sky".into()],
        questions: vec![Asked::yes_or_no()],
    };
    let work = Work::of_texts(&tokenizer, &template, texts.clone()).unwrap();
    let split = template.split(&tokenizer, &texts.system).unwrap();
    assert_eq!(work.prefix, split.prefix);
    for (record, text) in work.records.iter().zip(&texts.records) {
        let text = tokenizer.encode_text(text).unwrap();
        assert_eq!(*record, [text, split.close.clone()].concat());
    }
    for arm in Arm::LOCAL {
        tiny.run(&task(arm, work.clone())).unwrap();
    }
    let empty = Texts {
        questions: Vec::new(),
        ..texts
    };
    let error = Work::of_texts(&tokenizer, &template, empty).unwrap_err();
    assert!(error.to_string().contains("questions"), "{error}");
}

#[test]
fn what_cannot_be_measured_is_refused_with_both_sides_named() {
    let tiny = Tiny::new();
    let refused = |shape: Shape, parts: &[&str]| {
        let error = tiny.work(shape).unwrap_err().to_string();
        for part in parts {
            assert!(error.contains(part), "no {part:?} in: {error}");
        }
    };
    let (prefix_len, record_len, records) = (2, 1, 0);
    refused(
        Shape {
            prefix_len,
            ..SHAPE
        },
        &["--prefix-len 2", "least"],
    );
    refused(
        Shape {
            record_len,
            ..SHAPE
        },
        &["--record-len 1", "least"],
    );
    refused(Shape { records, ..SHAPE }, &["records is 0"]);
    let work = tiny.work(SHAPE).unwrap();
    let no_flight = Task {
        concurrency: 0,
        ..task(Arm::Shared, work.clone())
    };
    let error = tiny.run(&no_flight).unwrap_err().to_string();
    assert!(error.contains("in flight is 0"), "{error}");
    work.check_room(4096, 0).unwrap();
    let error = work.check_room(100, 0).unwrap_err().to_string();
    for part in ["record 0", "90 tokens", "21 of the record", "holds 100"] {
        assert!(error.contains(part), "no {part:?} in: {error}");
    }
    // The prefix leaves less room than any sealed prefix must.
    let error = work.check_room(150, 0).unwrap_err().to_string();
    assert!(error.contains("holds 86"), "{error}");
    assert!(work.check_room(4096, 4000).is_err());
}
