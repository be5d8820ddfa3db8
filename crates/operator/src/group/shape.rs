//! Pairs and clusters of neighbours, and who is left alone.
//!
//! Law: every entry is in at least one shape; one without a neighbour is a shape of its own.

use std::collections::BTreeMap;

use crate::plan::{GroupPlan, Nearness, Shape};

use super::gather::{Entry, Gathered};
use super::near::{Neighbour, in_order, keyed};

/// Members of one unit, in the order in which it shows them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Group {
    pub(super) members: Vec<u32>,
    /// Of a pair: how similar its texts are, where they were compared.
    pub(super) similarity_ppm: Option<u32>,
    /// Which part of a larger group this is, from 1, and of how many.
    pub(super) part: (u32, u32),
}

impl Group {
    fn whole(members: Vec<u32>) -> Self {
        Self {
            members,
            similarity_ppm: None,
            part: (1, 1),
        }
    }
}

/// Makes units of neighbours: in the order of their first members' ids, those alone last.
pub(super) fn shape(group: &GroupPlan, gathered: &Gathered, near: &[Vec<Neighbour>]) -> Vec<Group> {
    let entries = &gathered.entries;
    let mut groups = match group.shape {
        Shape::Pair => pairs(entries, near),
        Shape::Cluster => {
            let wholes = match &group.by {
                Nearness::Key { .. } => keyed(entries, &gathered.marks).into_values().collect(),
                _ => connected(entries, near),
            };
            let wholes = wholes.into_iter().filter(|whole| whole.len() > 1);
            wholes
                .flat_map(|whole| cut(&whole, group.members_max as usize))
                .collect()
        }
    };
    let mut taken = vec![false; entries.len()];
    for member in groups.iter().flat_map(|group| &group.members) {
        taken[*member as usize] = true;
    }
    let alone = (0_u32..).zip(taken).filter(|(_, taken)| !taken);
    groups.extend(alone.map(|(entry, _)| Group::whole(vec![entry])));
    groups
}

/// Every two of which one is among the other's neighbours.
fn pairs(entries: &[Entry], near: &[Vec<Neighbour>]) -> Vec<Group> {
    let mut pairs: BTreeMap<(u32, u32), Option<u32>> = BTreeMap::new();
    for (place, neighbours) in (0_u32..).zip(near) {
        for neighbour in neighbours {
            let pair = (place.min(neighbour.entry), place.max(neighbour.entry));
            pairs.insert(pair, neighbour.similarity_ppm);
        }
    }
    let pairs = pairs.into_iter().map(|((one, other), similarity_ppm)| {
        let mut members = [one as usize, other as usize];
        in_order(entries, &mut members);
        Group {
            similarity_ppm,
            ..Group::whole(members.iter().map(|member| *member as u32).collect())
        }
    });
    pairs.collect()
}

/// Entries that neighbours connect, each group in order.
fn connected(entries: &[Entry], near: &[Vec<Neighbour>]) -> Vec<Vec<usize>> {
    let mut root: Vec<usize> = (0..entries.len()).collect();
    fn find(root: &mut [usize], mut place: usize) -> usize {
        while root[place] != place {
            root[place] = root[root[place]];
            place = root[place];
        }
        place
    }
    for (place, neighbours) in near.iter().enumerate() {
        for neighbour in neighbours {
            let one = find(&mut root, place);
            let other = find(&mut root, neighbour.entry as usize);
            // The smaller one stays, so that the root is the first by id.
            root[one.max(other)] = one.min(other);
        }
    }
    let mut groups: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for place in 0..entries.len() {
        groups
            .entry(find(&mut root, place))
            .or_default()
            .push(place);
    }
    let mut groups: Vec<Vec<usize>> = groups.into_values().collect();
    groups.iter_mut().for_each(|group| in_order(entries, group));
    groups
}

/// Cuts a group into parts of equal size to within one; a part says that it is one.
fn cut(whole: &[usize], most: usize) -> Vec<Group> {
    let parts = whole.len().div_ceil(most);
    let (size, longer) = (whole.len() / parts, whole.len() % parts);
    let (mut rest, mut groups) = (whole, Vec::with_capacity(parts));
    for part in 0..parts {
        let (members, after) = rest.split_at(size + usize::from(part < longer));
        rest = after;
        groups.push(Group {
            part: (part as u32 + 1, parts as u32),
            ..Group::whole(members.iter().map(|member| *member as u32).collect())
        });
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_that_is_too_large_is_cut_into_even_parts_that_say_so() {
        let whole: Vec<usize> = (0..10).collect();
        let parts = cut(&whole, 4);
        let sizes: Vec<usize> = parts.iter().map(|part| part.members.len()).collect();
        assert_eq!(sizes, [4, 3, 3]);
        let members: Vec<u32> = parts.iter().flat_map(|part| part.members.clone()).collect();
        assert_eq!(members, (0..10).collect::<Vec<u32>>());
        assert_eq!(parts[2].part, (3, 3));
        assert_eq!(cut(&whole[..4], 4).len(), 1);
        // A part of one would have lost every neighbour.
        assert!((2..200).all(|n| {
            let whole: Vec<usize> = (0..n).collect();
            (2..=64).all(|most| {
                cut(&whole, most)
                    .iter()
                    .all(|part| part.members.len() > 1 || most < 3)
            })
        }));
    }
}
