//! What each rule has seen of the units in their turns, and whether it is met.
//!
//! Once met, a rule stays met: what it promises holds whatever the units left would say. Must not know
//! how units are asked or facts are kept.

use super::order::{Bound, Ordering, Turn, bound};
use super::report::{Interval, RuleReport};
use crate::audit::misses_upper;
use crate::fact::{Fact, Status};
use crate::infer::PPM;
use crate::plan::{FoldKey, Measure, Order, Plan, Reduce, Rule};
use crate::reducers::Selection;

/// What the rules look at in a fact.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) status: Status,
    /// For each rule, whether its reduction selects the fact; a plan has at most 64 rules.
    hits: u64,
    /// Its place among the best, where a rule ranks.
    bound: Option<Bound>,
}

/// All rules of a plan over one run.
pub(crate) struct Rules<'p> {
    plan: &'p Plan,
    pub(crate) ordering: Ordering<'p>,
    selections: Vec<Selection>,
    ranking: Option<Ranking<'p>>,
    states: Vec<State>,
    population: u64,
}

/// Where a rule's bound comes from.
struct Ranking<'p> {
    place: usize,
    reduce: &'p Reduce,
    by: &'p Measure,
    order: Order,
    key: FoldKey,
}

enum State {
    /// So many have to match.
    Matching { wanted: u64, matched: u64 },
    /// The best so far, best first, at most `k`.
    Best { k: usize, best: Vec<Bound> },
    /// A share, looked at now and then.
    Share(Share),
}

struct Share {
    half_width_ppm: u32,
    /// The probability of error that one side of one look may spend.
    alpha_ppm: u32,
    looks: Vec<u64>,
    sample: u64,
    matching: u64,
    unknown: u64,
    /// Whether some unit was never asked, so that what follows is no random sample.
    broken: bool,
    /// The latest look, or the first that was narrow enough.
    interval: Option<Interval>,
    met: bool,
}

impl<'p> Rules<'p> {
    /// The rules of a plan; none where it asks every unit.
    pub(crate) fn of(plan: &'p Plan) -> Option<Self> {
        let rules = &plan.control.stop;
        if rules.is_empty() {
            return None;
        }
        let reduce = |name: &str| plan.reduces.iter().find(|reduce| reduce.name == name);
        let selections = rules.iter().map(|rule| {
            let reduce = reduce(&rule.reduce);
            reduce.map_or_else(Selection::default, |reduce| Selection::of(&reduce.filter))
        });
        let mut ranking = None;
        let mut states = Vec::new();
        for (place, rule) in rules.iter().enumerate() {
            let matching = |wanted| State::Matching { wanted, matched: 0 };
            states.push(match &rule.rule {
                Rule::Threshold { at_least } => matching(*at_least),
                Rule::Examples { k } => matching(u64::from(*k)),
                Rule::TopK => {
                    let found = plan.ranking(&rule.reduce);
                    let k = found.map_or(0, |(_, _, k, _)| k as usize);
                    ranking = found.map(|(reduce, by, _, order)| Ranking {
                        place,
                        reduce,
                        by,
                        order,
                        key: plan.fold.key,
                    });
                    State::Best {
                        k,
                        best: Vec::new(),
                    }
                }
                Rule::Confidence {
                    half_width_ppm,
                    alpha_ppm,
                    looks,
                    ..
                } => State::Share(Share {
                    half_width_ppm: *half_width_ppm,
                    alpha_ppm: alpha_ppm / (2 * looks.len() as u32).max(1),
                    looks: looks.clone(),
                    sample: 0,
                    matching: 0,
                    unknown: 0,
                    broken: false,
                    interval: None,
                    met: false,
                }),
            });
        }
        Some(Self {
            plan,
            ordering: Ordering::of(plan),
            selections: selections.collect(),
            ranking,
            states,
            population: 0,
        })
    }

    /// What the rules look at in a fact.
    pub(crate) fn see(&self, fact: &Fact) -> Seen {
        let selected = |place: usize| self.selections[place].admits(fact);
        let hits = (0..self.selections.len())
            .filter(|place| selected(*place))
            .fold(0, |hits, place| hits | 1 << place);
        let bound = self.ranking.as_ref().and_then(|ranking| {
            let Ranking {
                reduce,
                by,
                order,
                key,
                ..
            } = *ranking;
            bound(reduce, by, order, key, fact)
        });
        Seen {
            status: fact.status,
            hits,
            bound,
        }
    }

    /// Takes a unit that was settled before any was asked.
    pub(crate) fn settled(&mut self, seen: &Seen) {
        let ranking = self.ranking.as_ref().map(|ranking| ranking.place);
        for (place, state) in self.states.iter_mut().enumerate() {
            let hit = seen.hits >> place & 1 == 1;
            match state {
                State::Matching { matched, .. } => *matched += u64::from(hit),
                State::Best { k, best } if hit && ranking == Some(place) => {
                    if let Some(bound) = seen.bound {
                        best.insert(best.partition_point(|held| *held < bound), bound);
                        best.truncate(*k);
                    }
                }
                State::Best { .. } | State::Share(_) => {}
            }
        }
    }

    /// Says how many units have a turn, once that is known.
    pub(crate) fn begin(&mut self, population: u64) {
        self.population = population;
    }

    /// Takes the unit whose turn it is.
    pub(crate) fn observe(&mut self, seen: &Seen) {
        self.settled(seen);
        for (place, state) in self.states.iter_mut().enumerate() {
            if let State::Share(share) = state {
                share.observe(seen.hits >> place & 1 == 1, seen.status, self.population);
            }
        }
    }

    /// Whether neither the unit of this turn nor any after it can matter.
    pub(crate) fn met(&self, next: &Turn) -> bool {
        self.states.iter().all(|state| state.met(next))
    }

    /// The next number of units after which some rule wants to look, past `after`.
    pub(crate) fn look_after(&self, after: u64) -> Option<u64> {
        let looks = self.states.iter().filter_map(|state| match state {
            State::Share(share) => share.looks.iter().copied().find(|look| *look > after),
            _ => None,
        });
        looks.min()
    }

    /// What each rule has come to.
    pub(crate) fn report(&self) -> Vec<RuleReport> {
        let rules = self.plan.control.stop.iter();
        rules
            .zip(&self.states)
            .map(|(rule, state)| RuleReport {
                reduce: rule.reduce.clone(),
                rule: rule.rule.as_str().to_owned(),
                interval: match state {
                    State::Share(share) => share.interval.clone(),
                    _ => None,
                },
            })
            .collect()
    }
}

impl State {
    fn met(&self, next: &Turn) -> bool {
        match (self, next) {
            (Self::Matching { wanted, matched }, _) => matched >= wanted,
            (Self::Best { k, best }, Turn::Bounded(bound, _)) => {
                best.len() == *k && best.last().is_some_and(|worst| worst < bound)
            }
            // Its columns keep the unit out, and all that come after it.
            (Self::Best { .. }, _) => true,
            (Self::Share(share), _) => share.met,
        }
    }
}

impl Share {
    fn observe(&mut self, hit: bool, status: Status, population: u64) {
        self.sample += 1;
        self.matching += u64::from(hit);
        let unknown = matches!(status, Status::Abstained | Status::Errored);
        self.unknown += u64::from(unknown);
        self.broken |= matches!(status, Status::Cancelled | Status::NotRun);
        let looks = self.looks.contains(&self.sample) || self.sample == population;
        if !looks || self.met || self.broken {
            return;
        }
        let interval = self.look(population);
        let width = u64::from(interval.high_ppm - interval.low_ppm);
        self.met = width <= 2 * u64::from(self.half_width_ppm);
        self.interval = Some(interval);
    }

    /// The exact interval for the share in the whole population; a unit without a decision counts as
    /// whatever makes it wider. Of the whole population it says what was found.
    fn look(&self, population: u64) -> Interval {
        let (sample, alpha) = (self.sample, self.alpha_ppm);
        let low = population - misses_upper(population, sample, sample - self.matching, alpha);
        let high = misses_upper(population, sample, self.matching + self.unknown, alpha);
        let ppm = |units: u64| u128::from(units) * u128::from(PPM);
        let whole = u128::from(population.max(1));
        Interval {
            sample,
            matching: self.matching,
            unknown: self.unknown,
            low,
            high,
            low_ppm: u32::try_from(ppm(low) / whole).unwrap_or(PPM),
            high_ppm: u32::try_from(ppm(high).div_ceil(whole)).unwrap_or(PPM),
        }
    }
}
