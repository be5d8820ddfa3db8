//! Who is whose neighbour.
//!
//! Every list is ordered, the nearest first, ties by id; neither the order of the records nor the
//! number of threads shows in it. Must not know texts.

use std::collections::{BTreeMap, HashMap};

use rayon::prelude::*;

use crate::plan::{GroupPlan, Nearness, Plan};

use super::gather::{Entry, Gathered, Marks};
use super::sketch::{Sketch, Term};

/// A term that more records have than this proposes no neighbour; it still counts in the comparison.
const COMMON: usize = 256;
/// Proposals that are compared in full beyond `most`.
const SPARE: usize = 64;

/// A neighbour of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Neighbour {
    pub(super) entry: u32,
    /// How similar the texts are; none where they were not compared.
    pub(super) similarity_ppm: Option<u32>,
}

impl Neighbour {
    fn plain(entry: usize) -> Self {
        Self {
            entry: index(entry),
            similarity_ppm: None,
        }
    }
}

/// The neighbours of every entry.
pub(super) fn near(group: &GroupPlan, gathered: &Gathered) -> Vec<Vec<Neighbour>> {
    let entries = &gathered.entries;
    let most = group.most as usize;
    match (&group.by, &gathered.marks) {
        (
            Nearness::Similarity {
                at_least_ppm,
                within_seconds,
                ..
            },
            Marks::Sketches(sketches),
        ) => similar(entries, sketches, *at_least_ppm, *within_seconds, most),
        (Nearness::Links { .. }, Marks::Links(links)) => linked(entries, links),
        (Nearness::Window { within_seconds }, _) => {
            let mut all: Vec<usize> = (0..entries.len())
                .filter(|place| entries[*place].time.is_some())
                .collect();
            in_order(entries, &mut all);
            let close = |a: usize, b: usize| {
                apart(&entries[a], &entries[b]).is_some_and(|apart| apart <= *within_seconds)
            };
            let mut lists = vec![Vec::new(); entries.len()];
            beside(&all, most, &close, &mut lists);
            lists
        }
        (_, marks) => {
            let mut lists = vec![Vec::new(); entries.len()];
            for members in keyed(entries, marks).into_values() {
                beside(&members, most, &|_, _| true, &mut lists);
            }
            lists
        }
    }
}

/// Entries by the text that they share, each in order.
pub(super) fn keyed<'g>(entries: &[Entry], marks: &'g Marks) -> BTreeMap<&'g str, Vec<usize>> {
    let mut by_key: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    if let Marks::Keys(keys) = marks {
        for (place, key) in keys.iter().enumerate() {
            if let Some(key) = key {
                by_key.entry(key).or_default().push(place);
            }
        }
    }
    for members in by_key.values_mut() {
        in_order(entries, members);
    }
    by_key
}

/// Puts neighbours in the order in which they are shown: by time where the plan orders them, else the
/// nearest first.
pub(super) fn in_order_of_plan(plan: &Plan, entries: &[Entry], places: &mut [usize]) {
    if plan
        .unit
        .group
        .as_ref()
        .is_some_and(|g| g.order_by.is_some())
    {
        in_order(entries, places);
    }
}

/// Puts entries in order: by time, those without one last, then by id.
pub(super) fn in_order(entries: &[Entry], places: &mut [usize]) {
    places.sort_unstable_by_key(|place| {
        let time = entries[*place].time;
        (time.is_none(), time, *place)
    });
}

/// Makes neighbours of those that stand at most `most` places from each other; of them the nearest.
fn beside(
    row: &[usize],
    most: usize,
    close: &dyn Fn(usize, usize) -> bool,
    lists: &mut [Vec<Neighbour>],
) {
    for (at, place) in row.iter().enumerate() {
        for steps in 1..=most {
            let before = at.checked_sub(steps).map(|other| row[other]);
            let after = row.get(at + steps).copied();
            for other in [before, after].into_iter().flatten() {
                if lists[*place].len() < most && close(*place, other) {
                    lists[*place].push(Neighbour::plain(other));
                }
            }
        }
    }
}

/// Links count in both directions and are never cut: a link that someone wrote is not dropped.
fn linked(entries: &[Entry], links: &[Vec<String>]) -> Vec<Vec<Neighbour>> {
    let by_id: HashMap<&str, usize> = entries
        .iter()
        .enumerate()
        .map(|(place, entry)| (entry.id.as_str(), place))
        .collect();
    let mut joined = vec![Vec::new(); entries.len()];
    for (place, named) in links.iter().enumerate() {
        for other in named.iter().filter_map(|id| by_id.get(id.as_str())) {
            if *other != place {
                joined[place].push(*other);
                joined[*other].push(place);
            }
        }
    }
    let in_turn = joined.into_iter().map(|mut others: Vec<usize>| {
        others.sort_unstable();
        others.dedup();
        others.into_iter().map(Neighbour::plain).collect()
    });
    in_turn.collect()
}

fn similar(
    entries: &[Entry],
    sketches: &[Sketch],
    at_least_ppm: u32,
    within_seconds: Option<i64>,
    most: usize,
) -> Vec<Vec<Neighbour>> {
    let mut by_term: HashMap<Term, Vec<(u32, u32)>> = HashMap::new();
    for (place, sketch) in sketches.iter().enumerate() {
        for (term, weight) in sketch.terms() {
            by_term
                .entry(term)
                .or_default()
                .push((index(place), weight));
        }
    }
    by_term.retain(|_, having| having.len() <= COMMON);
    let close = |place: usize, other: u32| match within_seconds {
        None => true,
        Some(most) => {
            apart(&entries[place], &entries[other as usize]).is_some_and(|apart| apart <= most)
        }
    };
    let nearest = |place: usize| {
        let sketch = &sketches[place];
        let mut shared: HashMap<u32, u64> = HashMap::new();
        for (term, weight) in sketch.terms() {
            for (other, theirs) in by_term.get(&term).into_iter().flatten() {
                if *other != index(place) && close(place, *other) {
                    *shared.entry(*other).or_default() += u64::from(weight) * u64::from(*theirs);
                }
            }
        }
        let mut proposed: Vec<(u32, u64)> = shared.into_iter().collect();
        proposed.sort_unstable_by_key(|(other, weight)| (std::cmp::Reverse(*weight), *other));
        proposed.truncate(4 * most + SPARE);
        let compared = proposed.into_iter().map(|(other, _)| {
            let similarity = sketch.similarity(&sketches[other as usize]);
            (other, similarity)
        });
        let mut found: Vec<(u32, u32)> = compared.filter(|(_, ppm)| *ppm >= at_least_ppm).collect();
        found.sort_unstable_by_key(|(other, ppm)| (std::cmp::Reverse(*ppm), *other));
        found.truncate(most);
        found
            .into_iter()
            .map(|(entry, ppm)| Neighbour {
                entry,
                similarity_ppm: Some(ppm),
            })
            .collect()
    };
    (0..sketches.len()).into_par_iter().map(nearest).collect()
}

/// Seconds between two entries; none where one has no time.
fn apart(one: &Entry, other: &Entry) -> Option<i64> {
    i64::try_from(one.time?.abs_diff(other.time?)).ok()
}

fn index(place: usize) -> u32 {
    // Ordinals of records are 32 bits, and every entry is a record.
    u32::try_from(place).unwrap_or(u32::MAX)
}
