//! The units of a job with canaries among them.
//!
//! Every block of units gets one canary, before a unit of it that follows from seed, input and
//! rubric: spread over the whole job, and at no place that the records could know. Must not know what
//! canaries are expected to answer.

use crate::canonical::Canonical;
use crate::id::{ContentHash, UnitId};
use crate::infer::UnitTexts;
use crate::text::{TextProblem, UnitText};

/// What the id of a canary begins with, and that of no record.
pub(crate) const MARK: char = '\u{1}';

/// What places and order follow from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Draw<'a> {
    pub(crate) seed: &'a str,
    pub(crate) source: ContentHash,
    pub(crate) rubric: ContentHash,
}

impl Draw<'_> {
    /// A number that nothing but the draw and its name decides.
    fn number(&self, name: &str, index: u64) -> u64 {
        let mut canonical = Canonical::new("operator 2026 canary draw v1");
        canonical
            .text(self.seed)
            .bytes(self.source.as_bytes())
            .bytes(self.rubric.as_bytes())
            .text(name)
            .u64(index);
        let hash = ContentHash::of(&canonical);
        let mut short = [0; 8];
        short.copy_from_slice(&hash.as_bytes()[..8]);
        u64::from_le_bytes(short)
    }

    /// The order in which canaries are planted.
    pub(crate) fn order(&self, canaries: impl Iterator<Item = usize>) -> Vec<usize> {
        let mut order: Vec<usize> = canaries.collect();
        order.sort_by_key(|canary| (self.number("order", *canary as u64), *canary));
        order
    }
}

/// The units of a job, and canaries before some of them.
pub(crate) struct Planted<'a> {
    units: &'a dyn UnitTexts,
    /// Place in the mixed job, index and text, in order of place.
    canaries: Vec<(usize, usize, UnitText)>,
}

impl<'a> Planted<'a> {
    /// Plants canaries, given by index and text, one in every block of units while there are any.
    ///
    /// `from` canaries were planted under the rubric before, so that a second job draws other places.
    pub(crate) fn new(
        units: &'a dyn UnitTexts,
        canaries: Vec<(usize, UnitText)>,
        every: usize,
        draw: Draw<'_>,
        from: usize,
    ) -> Self {
        let mut planted = Vec::with_capacity(canaries.len());
        for (block, (canary, text)) in canaries.into_iter().enumerate() {
            let start = block * every;
            let length = units.len().saturating_sub(start).min(every).max(1) as u64;
            let drawn = draw.number("place", (from + block) as u64) % length;
            planted.push((start + drawn as usize + block, canary, text));
        }
        Self {
            units,
            canaries: planted,
        }
    }

    /// Blocks of units that get a canary each; one where canaries are asked alone.
    pub(crate) fn blocks(units: usize, every: usize) -> usize {
        units.div_ceil(every).max(1)
    }

    /// The canary of an id: its index and text.
    pub(crate) fn canary(&self, id: &UnitId) -> Option<(usize, &UnitText)> {
        if !id.as_str().starts_with(MARK) {
            return None;
        }
        let mut canaries = self.canaries.iter();
        let found = canaries.find(|(_, _, text)| text.unit_id == *id);
        found.map(|(_, canary, text)| (*canary, text))
    }

    /// What is at a place: a canary's text, or the place of a unit.
    fn at(&self, place: usize) -> Result<&UnitText, usize> {
        match self.canaries.binary_search_by_key(&place, |(at, ..)| *at) {
            Ok(found) => Ok(&self.canaries[found].2),
            Err(before) => Err(place - before),
        }
    }
}

impl UnitTexts for Planted<'_> {
    fn len(&self) -> usize {
        self.units.len() + self.canaries.len()
    }

    fn id(&self, place: usize) -> &UnitId {
        match self.at(place) {
            Ok(canary) => &canary.unit_id,
            Err(unit) => self.units.id(unit),
        }
    }

    fn text(&self, place: usize) -> Result<UnitText, TextProblem> {
        match self.at(place) {
            Ok(canary) => Ok(canary.clone()),
            Err(unit) => self.units.text(unit),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn text(id: String) -> UnitText {
        UnitText {
            unit_id: UnitId::new(&id),
            source_hash: ContentHash::from_bytes([0; 32]),
            text: id,
            lines: Vec::new(),
            clipped_bytes: 0,
            text_hash: ContentHash::from_bytes([0; 32]),
        }
    }

    #[test]
    fn every_unit_stays_once_and_in_order_and_every_block_has_its_canary() {
        let mut places = BTreeSet::new();
        for (count, every) in [(0, 5), (1, 5), (4, 5), (5, 5), (23, 5), (7, 1), (100, 20)] {
            for seed in ["a", "b", "c"] {
                let draw = Draw {
                    seed,
                    source: ContentHash::from_bytes([1; 32]),
                    rubric: ContentHash::from_bytes([2; 32]),
                };
                let units: Vec<UnitText> = (0..count).map(|n| text(n.to_string())).collect();
                let blocks = Planted::blocks(count, every);
                let wanted: Vec<String> = (0..blocks).map(|n| format!("\u{1}{n}")).collect();
                let canaries = wanted.iter().map(|id| text(id.clone())).enumerate();
                let mixed = Planted::new(&units, canaries.collect(), every, draw, 0);
                let ids = (0..mixed.len()).map(|place| mixed.id(place).as_str());
                let (found, rest): (Vec<&str>, Vec<&str>) =
                    ids.clone().partition(|id| id.starts_with('\u{1}'));
                assert_eq!(found, wanted);
                assert_eq!(rest, (0..count).map(|n| n.to_string()).collect::<Vec<_>>());
                let mut before = 0;
                for (place, id) in ids.enumerate() {
                    assert_eq!(mixed.text(place).unwrap().text, id);
                    match id.strip_prefix('\u{1}') {
                        Some(block) => {
                            let block: usize = block.parse().unwrap();
                            assert!(count == 0 || before / every == block, "{count} {every}");
                            places.insert((count == 100).then_some(before % every));
                        }
                        None => before += 1,
                    }
                }
            }
        }
        assert!(places.len() > 5, "places are drawn, not fixed: {places:?}");
    }
}
