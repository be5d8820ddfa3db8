//! Paths of sound runs pass whatever happened in them, and a plan without stages has none.

use operator::infer::FailReason;
use proptest::prelude::*;

use super::super::script::Act;
use super::{STAGES, Told, issues, plan, sound};

/// What a run may meet: per unit a choice, margins and an act at some stage.
#[derive(Debug, Clone)]
struct Fate {
    choice: usize,
    clear: u32,
    blocker: (usize, u32),
    again: (usize, u32),
    act: Option<(usize, usize)>,
}

fn fate() -> impl Strategy<Value = Fate> {
    let margin = || prop::sample::select(vec![20_000_u32, 60_000, 150_000, 700_000]);
    let value = move || (0..2_usize, margin());
    let act = prop::option::weighted(0.3, (0..5_usize, 0..4_usize));
    (0..4_usize, margin(), value(), value(), act).prop_map(
        |(choice, clear, blocker, again, act)| Fate {
            choice,
            clear,
            blocker,
            again,
            act,
        },
    )
}

const OPTIONS: [&str; 4] = ["judge", "both", "unrelated", "unsure"];
const LABELS: [&str; 2] = ["no", "yes"];
const STAGE_NAMES: [&str; 5] = ["route", "judge", "detail", "reread", "last"];

fn told(mut told: Told, fates: &[Fate]) -> Told {
    for (unit, fate) in (1..).zip(fates) {
        let say = |told: Told, stage: &str, (label, margin): (usize, u32)| {
            told.say(stage, unit, "blocker", LABELS[label], margin)
        };
        told = told.choose(unit, OPTIONS[fate.choice], fate.clear);
        told = say(told, "judge", fate.blocker);
        told = say(told, "reread", fate.again);
        if let Some((stage, act)) = fate.act {
            let act = [
                Act::Fail(FailReason::TooLarge),
                Act::Misshapen,
                Act::Cancel,
                Act::Skip,
            ][act]
                .clone();
            told = told.act(STAGE_NAMES[stage], unit, act);
        }
    }
    told
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn every_run_with_stages_has_paths_that_follow_from_its_plan(
        fates in prop::collection::vec(fate(), 9),
        lost in prop::option::weighted(0.3, (0..5_usize, 0..4_usize)),
        cancelled in prop::option::weighted(0.3, (0..5_usize, 1..10_u32)),
    ) {
        let plan = plan(STAGES);
        let stop = |mut told: Told| {
            told.breaks = lost.map(|(stage, after)| (STAGE_NAMES[stage].to_owned(), after));
            told.cancels =
                cancelled.map(|(stage, unit)| (STAGE_NAMES[stage].to_owned(), unit.to_string()));
            told
        };
        let mut main = stop(told(Told::new(&plan), &fates));
        let mut larger = stop(told(Told::larger(&plan), &fates));
        // Verifies the directory.
        let outcome = sound(&plan, &issues(10), &mut main, Some(&mut larger));
        prop_assert_eq!(outcome.facts.len(), 10);
    }
}
