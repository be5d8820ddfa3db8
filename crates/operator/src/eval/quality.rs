//! Whether probabilities can be believed: calibration, risk against coverage, and misses with a bound.
//!
//! Integers only, as in all of the evaluation. Values that a predicate set claim no probability and are
//! left out of calibration and coverage; they count among the misses. Must not know how facts came about.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Labels, percent, share};
use crate::audit::rate_upper_ppm;
use crate::fact::{Fact, Status};
use crate::id::UnitId;
use crate::infer::PPM;

/// Bins of the reliability curve, of equal width.
const BINS: u32 = 10;
/// Chance that a bound of misses is too low.
const ALPHA_PPM: u32 = 50_000;

/// A label that was claimed with a probability, beside the true one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Judgement<'a> {
    /// The unit; settles the order of equal probabilities.
    pub unit: &'a UnitId,
    /// The true label.
    pub truth: &'a str,
    /// The label claimed.
    pub label: &'a str,
    /// Its probability, in parts per million.
    pub probability_ppm: u32,
}

/// One bin of the reliability curve.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReliabilityBin {
    /// Probabilities of the bin are at least this.
    pub from_ppm: u32,
    /// Judgements in it.
    pub judged: u64,
    /// Their mean probability.
    pub probability_ppm: Option<u32>,
    /// The share of them that is right.
    pub right_ppm: Option<u32>,
}

/// Accuracy of the surest judgements.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CoveragePoint {
    /// Share of the judgements that is kept, in percent; the surest ones.
    pub coverage_percent: u32,
    /// How many that are.
    pub judged: u64,
    /// The lowest probability among them.
    pub probability_ppm: u32,
    /// The share of them that is right.
    pub right_ppm: Option<u32>,
}

/// What of a label was not found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Misses {
    /// The label.
    pub label: String,
    /// Units that have it and were decided or excluded.
    pub settled: u64,
    /// Those of them that were decided otherwise, or excluded.
    pub missed: u64,
    /// Those of these that were excluded: nobody looked at them.
    pub excluded: u64,
    /// `missed / settled`; none where nothing was settled.
    pub rate_ppm: Option<u32>,
    /// Exact upper bound of that rate at 95 % confidence, for records drawn as these were.
    pub rate_upper_ppm: Option<u32>,
}

/// How far probabilities can be believed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quality {
    /// Labelled units whose value has a probability.
    pub judged: u64,
    /// Expected calibration error: mean distance of probability and share right, over bins.
    pub calibration_error_ppm: Option<u32>,
    /// The reliability curve; bins without judgements are left out.
    pub reliability: Vec<ReliabilityBin>,
    /// Accuracy by coverage, from the surest tenth to all.
    pub coverage: Vec<CoveragePoint>,
    /// Misses per label, by name.
    pub misses: Vec<Misses>,
}

/// Measures one field of the facts against the labels.
pub fn evaluate_quality(facts: &[Fact], labels: &Labels, field: &str) -> Quality {
    let judgements: Vec<Judgement<'_>> = facts
        .iter()
        .filter_map(|fact| {
            let value = fact.values.get(field)?;
            Some(Judgement {
                unit: &fact.unit_id,
                truth: labels.get(&fact.unit_id)?,
                label: &value.label,
                probability_ppm: value.probability_ppm?,
            })
        })
        .collect();
    let settled = facts.iter().filter_map(|fact| {
        let truth = labels.get(&fact.unit_id)?.as_str();
        match fact.status {
            Status::Decided => Some((truth, Some(fact.values.get(field)?.label.as_str()))),
            Status::Excluded => Some((truth, None)),
            _ => None,
        }
    });
    let misses = count_misses(settled);
    Quality {
        misses,
        ..Quality::of(judgements)
    }
}

impl Quality {
    /// Measures judgements; misses are those of the judgements themselves.
    pub fn of(mut judgements: Vec<Judgement<'_>>) -> Self {
        judgements.sort_by(|a, b| {
            let surest = b.probability_ppm.cmp(&a.probability_ppm);
            surest.then_with(|| a.unit.cmp(b.unit))
        });
        let (reliability, distance) = reliability(&judgements);
        let judged = judgements.len() as u64;
        Self {
            judged,
            calibration_error_ppm: distance.checked_div(judged).map(|ppm| ppm as u32),
            reliability,
            coverage: coverage(&judgements),
            misses: count_misses(judgements.iter().map(|j| (j.truth, Some(j.label)))),
        }
    }
}

/// The bins that hold something, and the sum over them of judgements times distance, in ppm.
fn reliability(judgements: &[Judgement<'_>]) -> (Vec<ReliabilityBin>, u64) {
    let width = PPM / BINS;
    let (mut bins, mut distance) = (Vec::new(), 0);
    for bin in 0..BINS {
        let inside = judgements
            .iter()
            .filter(|j| (j.probability_ppm / width).min(BINS - 1) == bin);
        let (mut judged, mut sum, mut right) = (0, 0, 0);
        for judgement in inside {
            judged += 1;
            sum += u64::from(judgement.probability_ppm);
            right += u64::from(judgement.is_right());
        }
        distance += sum.abs_diff(right * u64::from(PPM));
        if judged > 0 {
            bins.push(ReliabilityBin {
                from_ppm: bin * width,
                judged,
                probability_ppm: u32::try_from((sum + judged / 2) / judged).ok(),
                right_ppm: share(right, judged),
            });
        }
    }
    (bins, distance)
}

/// Of judgements, the surest first.
fn coverage(judgements: &[Judgement<'_>]) -> Vec<CoveragePoint> {
    let all = judgements.len();
    let points = (1..=10).map(|tenth| {
        let kept = &judgements[..(all * tenth).div_ceil(10)];
        let right = kept.iter().filter(|j| j.is_right()).count() as u64;
        CoveragePoint {
            coverage_percent: tenth as u32 * 10,
            judged: kept.len() as u64,
            probability_ppm: kept.last().map_or(PPM, |j| j.probability_ppm),
            right_ppm: share(right, kept.len() as u64),
        }
    });
    points.collect()
}

impl Judgement<'_> {
    fn is_right(&self) -> bool {
        self.truth == self.label
    }
}

/// Misses of pairs of true and found label; none found is a miss.
fn count_misses<'a>(settled: impl Iterator<Item = (&'a str, Option<&'a str>)>) -> Vec<Misses> {
    let mut counts: BTreeMap<&str, (u64, u64, u64)> = BTreeMap::new();
    for (truth, found) in settled {
        let (settled, missed, excluded) = counts.entry(truth).or_default();
        *settled += 1;
        *missed += u64::from(found != Some(truth));
        *excluded += u64::from(found.is_none());
    }
    let misses = counts
        .into_iter()
        .map(|(label, (settled, missed, excluded))| Misses {
            label: label.to_owned(),
            settled,
            missed,
            excluded,
            rate_ppm: share(missed, settled),
            rate_upper_ppm: (settled > 0).then(|| rate_upper_ppm(settled, missed, ALPHA_PPM)),
        });
    misses.collect()
}

impl fmt::Display for Quality {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for misses in &self.misses {
            let excluded = match misses.excluded {
                0 => String::new(),
                excluded => format!(" ({excluded} of them excluded unread)"),
            };
            writeln!(
                f,
                "missed of {}: {} of {}{excluded}, {} (at most {} at 95 % confidence)",
                misses.label,
                misses.missed,
                misses.settled,
                percent(misses.rate_ppm),
                percent(misses.rate_upper_ppm),
            )?;
        }
        if self.judged == 0 {
            return write!(f, "no value has a probability");
        }
        writeln!(
            f,
            "calibration error {} over {} values with a probability",
            percent(self.calibration_error_ppm),
            self.judged
        )?;
        writeln!(
            f,
            "{:>11} {:>8} {:>9} {:>9}",
            "probability", "values", "mean", "right"
        )?;
        for bin in &self.reliability {
            writeln!(
                f,
                "{:>10}+ {:>8} {:>9} {:>9}",
                format!("{}%", bin.from_ppm / 10_000),
                bin.judged,
                percent(bin.probability_ppm),
                percent(bin.right_ppm),
            )?;
        }
        write!(f, "right among the surest:")?;
        for point in &self.coverage {
            let end = if point.coverage_percent == 100 {
                ""
            } else {
                ","
            };
            let (part, right) = (point.coverage_percent, percent(point.right_ppm));
            write!(f, " {part}% {right}{end}")?;
        }
        Ok(())
    }
}
