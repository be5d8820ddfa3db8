//! The promises of breakers and audits, over many seeded runs.

use operator::breaker::{EProcess, EProcessSpec};
use operator::trials::{Rubric, audit_trials, canary_trials};

/// Every answer is wrong with this probability: all that the breaker is to tolerate.
const NOISE_PPM: u32 = 50_000;

#[test]
fn an_inverted_rubric_stops_95_of_100_runs_within_12_canaries() {
    let trials = canary_trials(100, Rubric::Inverted, NOISE_PPM).unwrap();
    assert!(trials.opened_within(12) >= 95, "{trials:?}");
}

#[test]
fn a_sound_rubric_stops_at_most_2_of_100_runs() {
    let trials = canary_trials(100, Rubric::Sound, NOISE_PPM).unwrap();
    assert!(trials.opened <= 2, "{trials:?}");
}

#[test]
fn the_bound_of_an_audit_holds_in_95_of_100_of_2000_populations() {
    for strata_max in [1, 5] {
        let trials = audit_trials(2_000, strata_max);
        assert!(trials.held * 20 >= trials.runs * 19, "{trials:?}");
        // It is a bound of use: not so low that it could not fail.
        let (bound, recall) = (trials.mean_bound_ppm(), trials.mean_recall_ppm());
        assert!(bound * 2 > recall, "{trials:?}");
    }
    let tight = audit_trials(2_000, 1);
    assert!(
        tight.held < tight.runs,
        "of one stratum it is exact, and fails now and then"
    );
}

/// Probability that the process opens within `trials`, every one missed with `rate`: all ways summed.
fn opens(spec: EProcessSpec, rate: f64, trials: u64) -> f64 {
    // By number of misses so far, the probability of not having opened yet.
    let mut closed = vec![1.0];
    let mut opened = 0.0;
    for trial in 0..trials {
        let mut next = vec![0.0; closed.len() + 1];
        for (misses, share) in closed.iter().enumerate() {
            next[misses] += share * (1.0 - rate);
            next[misses + 1] += share * rate;
        }
        for (misses, share) in next.iter_mut().enumerate() {
            // Evidence depends on the counts alone.
            let mut process = EProcess::new(spec, 1);
            (0..misses).for_each(|_| {
                process.observe(true);
            });
            let misses_evidence = process.evidence_nano();
            let mut hits = EProcess::new(spec, 1);
            (misses as u64..=trial).for_each(|_| {
                hits.observe(false);
            });
            if misses_evidence + hits.evidence_nano() >= process.threshold_nano() {
                opened += *share;
                *share = 0.0;
            }
        }
        closed = next;
    }
    opened
}

#[test]
fn a_false_alarm_is_no_more_probable_than_declared_and_a_bad_rubric_is_noticed() {
    let spec = EProcessSpec::default();
    let alarm = opens(spec, 0.05, 200);
    assert!((0.003..=0.01).contains(&alarm), "{alarm}");
    assert!(opens(spec, 0.03, 200) < alarm);
    let noticed = opens(spec, 0.30, 50);
    assert!(noticed > 0.97, "{noticed}");
    assert!(opens(spec, 0.95, 12) > 0.999);
    let other = EProcessSpec {
        p0_ppm: 100_000,
        p1_ppm: 500_000,
        alpha_ppm: 50_000,
    };
    assert!(opens(other, 0.10, 200) <= 0.05);
}

#[test]
fn the_process_opens_on_three_misses_in_a_row_and_stays_open() {
    let mut process = EProcess::new(EProcessSpec::default(), 1);
    assert_eq!(process.least(), 3);
    assert!(!process.observe(true) && !process.observe(true));
    assert!(process.observe(true));
    assert!((0..1_000).all(|_| process.observe(false)), "it stays open");
    assert_eq!((process.judged(), process.misses()), (1_003, 3));
    // Two rubrics that are watched at once share what may be a false alarm.
    assert_eq!(EProcess::new(EProcessSpec::default(), 2).least(), 3);
    assert!(
        EProcess::new(EProcessSpec::default(), 2).threshold_nano()
            > EProcess::new(EProcessSpec::default(), 1).threshold_nano()
    );
}
