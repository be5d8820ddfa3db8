//! Units on their way to the model: read ahead of the forwards, in order, and never many at once.

use std::sync::atomic::{AtomicUsize, Ordering};

use engine::runner::Reuse;
use operator::id::{ContentHash, UnitId};
use operator::infer::{
    CancelFlag, Completion, FailReason, Infer, InferJob, JobUsage, Labels, Question, Rubric,
    UnitOutcome, UnitTexts,
};
use operator::text::{Line, TextProblem, UnitText};

use super::compose::Place;

/// More than ever wait, are read and are forwarded together.
const UNDER_WAY: usize = 320;

/// Units that are made when they are read; counts how many were, and how many have ended.
struct Made {
    ids: Vec<UnitId>,
    read: AtomicUsize,
    ended: AtomicUsize,
    most: AtomicUsize,
    /// A unit that cannot be read.
    gone: Option<usize>,
}

impl Made {
    fn new(units: usize) -> Self {
        Self {
            ids: (0..units)
                .map(|place| UnitId::new(&place.to_string()))
                .collect(),
            read: AtomicUsize::new(0),
            ended: AtomicUsize::new(0),
            most: AtomicUsize::new(0),
            gone: None,
        }
    }
}

fn text_of(place: usize) -> UnitText {
    let lines = 1 + place % 3;
    let text = format!("line {}{}", place * 37 % 101, "\nmore".repeat(lines - 1));
    UnitText {
        unit_id: UnitId::new(&place.to_string()),
        source_hash: ContentHash::of_bytes(b""),
        text_hash: ContentHash::of_bytes(text.as_bytes()),
        text,
        lines: (1..=lines as u32)
            .map(|number| Line {
                field: String::from("body"),
                start: 0,
                end: 1,
                number,
            })
            .collect(),
        clipped_bytes: 0,
    }
}

impl UnitTexts for Made {
    fn len(&self) -> usize {
        self.ids.len()
    }

    fn id(&self, place: usize) -> &UnitId {
        &self.ids[place]
    }

    fn text(&self, place: usize) -> Result<UnitText, TextProblem> {
        let read = self.read.fetch_add(1, Ordering::SeqCst) + 1;
        let under_way = read - self.ended.load(Ordering::SeqCst);
        self.most.fetch_max(under_way, Ordering::SeqCst);
        if self.gone == Some(place) {
            return Err(TextProblem {
                reason: FailReason::Malformed,
                message: String::from("gone"),
            });
        }
        Ok(text_of(place))
    }
}

fn questions() -> Vec<Question> {
    let question = |field: &str, labels| Question {
        field: field.to_owned(),
        scaffold: format!("{field}: "),
        line_count: labels == Labels::Lines,
        labels,
    };
    let fixed = ["yes", "no"].map(String::from).to_vec();
    vec![
        question("kind", Labels::Fixed(fixed)),
        question("evidence", Labels::Lines),
    ]
}

/// Runs a job; `seen` is shown each completion as it comes.
fn run(
    place: &Place,
    units: &dyn UnitTexts,
    seen: &mut dyn FnMut(&Completion, &CancelFlag),
) -> (Vec<Completion>, JobUsage) {
    let cancel = CancelFlag::new();
    let system = String::from("Judge one line.");
    let rubric = Rubric {
        hash: ContentHash::of_bytes(system.as_bytes()),
        system,
    };
    let questions = questions();
    let job = InferJob {
        rubric: &rubric,
        questions: &questions,
        units,
        cancel: &cancel,
    };
    let mut completions = Vec::new();
    let usage = place
        .infer(None, Reuse::Shared)
        .infer(job, &mut |completion| {
            seen(&completion, &cancel);
            completions.push(completion);
        })
        .unwrap();
    (completions, usage)
}

fn ids(completions: &[Completion]) -> Vec<&str> {
    completions
        .iter()
        .map(|completion| completion.unit_id.as_str())
        .collect()
}

#[test]
fn a_job_of_any_length_has_few_units_under_way_and_answers_them_in_order() {
    let place = Place::new();
    let units = Made::new(700);
    let (completions, usage) = run(&place, &units, &mut |_, _| {
        units.ended.fetch_add(1, Ordering::SeqCst);
    });
    let wanted: Vec<String> = (0..700).map(|place| place.to_string()).collect();
    assert_eq!(ids(&completions), wanted);
    let most = units.most.load(Ordering::SeqCst);
    assert!(most <= UNDER_WAY, "{most} units were under way at once");
    assert_eq!(units.read.load(Ordering::SeqCst), 700, "each is read once");
    assert_eq!(usage.forks, 700);
    for (place_of, completion) in completions.iter().enumerate().step_by(97) {
        let alone = run(&place, &vec![text_of(place_of)], &mut |_, _| {}).0;
        assert_eq!(alone[0].outcome, completion.outcome, "unit {place_of}");
        assert!(matches!(&alone[0].outcome, UnitOutcome::Answered(answers) if answers.len() == 2));
    }
}

#[test]
fn a_cancelled_job_ends_every_unit_once_and_reads_no_further() {
    let place = Place::new();
    let units = Made::new(700);
    let (completions, _) = run(&place, &units, &mut |completion, cancel| {
        units.ended.fetch_add(1, Ordering::SeqCst);
        if completion.unit_id.as_str() == "20" {
            cancel.cancel();
        }
    });
    let wanted: Vec<String> = (0..700).map(|place| place.to_string()).collect();
    assert_eq!(ids(&completions), wanted);
    // Those that waited for a forward are cancelled, those that were never read for one not run.
    let ended = |outcome: &UnitOutcome| {
        let alike = completions
            .iter()
            .filter(|completion| completion.outcome == *outcome);
        alike.count()
    };
    let (cancelled, not_run) = (ended(&UnitOutcome::Cancelled), ended(&UnitOutcome::NotRun));
    let left = cancelled + not_run;
    assert!((600..=679).contains(&left), "{left}");
    assert!(not_run >= 700 - 100 - UNDER_WAY, "{not_run}");
    for (place, completion) in completions.iter().enumerate().skip(700 - left) {
        let right = match place < 700 - not_run {
            true => UnitOutcome::Cancelled,
            false => UnitOutcome::NotRun,
        };
        assert_eq!(completion.outcome, right, "unit {place}");
    }
    assert!(units.read.load(Ordering::SeqCst) <= 100 + UNDER_WAY);
}

#[test]
fn a_unit_that_cannot_be_read_any_more_fails_alone() {
    let place = Place::new();
    let mut units = Made::new(90);
    units.gone = Some(41);
    let (completions, _) = run(&place, &units, &mut |_, _| {});
    assert_eq!(completions.len(), 90);
    for completion in completions {
        match completion.outcome {
            UnitOutcome::Failed { reason, message } => {
                assert_eq!(completion.unit_id.as_str(), "41");
                assert_eq!((reason, message.as_str()), (FailReason::Malformed, "gone"));
            }
            UnitOutcome::Answered(_) => assert_ne!(completion.unit_id.as_str(), "41"),
            other => panic!("{other:?}"),
        }
    }
}
