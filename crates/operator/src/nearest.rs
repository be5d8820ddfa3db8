//! The nearest of several names, for messages that name a cure.

/// The candidate with the smallest edit distance, if it is close enough to be meant.
pub(crate) fn nearest<'a>(name: &str, candidates: &[&'a str]) -> Option<&'a str> {
    candidates
        .iter()
        .map(|candidate| (distance(name, candidate), *candidate))
        .filter(|(distance, candidate)| *distance <= 1 + candidate.chars().count() / 3)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// `; did you mean X` where there is a near name, and then the list of all.
pub(crate) fn suggest(name: &str, candidates: &[&str]) -> String {
    let list = candidates.join(", ");
    match nearest(name, candidates) {
        Some(near) => format!("; did you mean {near:?}? (known: {list})"),
        None => format!("; known: {list}"),
    }
}

/// Levenshtein distance in characters.
fn distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (i, a) in left.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in right.iter().enumerate() {
            let substituted = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_found_and_far_ones_are_not() {
        assert_eq!(nearest("whn", &["name", "when", "set"]), Some("when"));
        assert_eq!(nearest("quux", &["name", "when", "set"]), None);
        assert_eq!(distance("kitten", "sitting"), 3);
    }
}
