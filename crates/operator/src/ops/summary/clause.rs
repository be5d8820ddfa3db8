//! Whether a number is said of what it is the number of, as far as code can tell.
//!
//! A clause that names a label of the claims and says numbers has to say one that is the label's
//! own, unless every number in it is that of a unit which the clause names. This catches a true
//! number under a wrong label; it cannot catch one that is swapped in words without a label. Must
//! not know which tokens are true.

use super::equal::equal;
use super::known::Known;
use super::scan::{Said, Token};

/// Checks every clause of a text.
///
/// # Errors
/// The first clause whose label has none of its numbers.
pub(super) fn check(prose: &str, tokens: &[Token], known: &Known) -> Result<(), String> {
    let mut labels: Vec<&str> = known
        .numbers
        .iter()
        .filter_map(|named| named.of.as_deref())
        .filter(|label| label.contains(char::is_alphabetic))
        .collect();
    labels.sort_unstable();
    labels.dedup();
    for (start, end) in clauses(prose, tokens) {
        let inside = |token: &&Token| token.start >= start && token.end <= end;
        let tokens: Vec<&Token> = tokens.iter().filter(inside).collect();
        let is_number = |token: &&Token| {
            matches!(
                token.said,
                Said::Number(_) | Said::Percent(_) | Said::Share(..)
            )
        };
        let numbers: Vec<&Token> = tokens.iter().copied().filter(is_number).collect();
        let is_of = |number: &Token, of: &str| equal(known, &number.said, Some(of)).is_some();
        let units: Vec<&str> = tokens.iter().filter_map(|token| unit(token)).collect();
        let of_a_unit = |number: &&Token| units.iter().any(|unit| is_of(number, unit));
        if numbers.iter().all(of_a_unit) {
            continue;
        }
        let words = plain_words(prose, start, end, &tokens);
        for label in &labels {
            let named = words.contains(&format!(" {} ", spelled(label)));
            if named && !numbers.iter().any(|number| is_of(number, label)) {
                let said: Vec<&str> = numbers
                    .iter()
                    .map(|token| &prose[token.start..token.end])
                    .collect();
                let own: Vec<&str> = known
                    .numbers
                    .iter()
                    .filter(|named| named.of.as_deref() == Some(*label))
                    .map(|named| named.shown.as_str())
                    .collect();
                return Err(format!(
                    "the text says {:?} of {label:?}, of which the claims say {}",
                    said.join(", "),
                    own.join(", ")
                ));
            }
        }
    }
    Ok(())
}

fn unit(token: &Token) -> Option<&str> {
    match &token.said {
        Said::Unit(id) => Some(id.strip_prefix('#').unwrap_or(id)),
        _ => None,
    }
}

/// Cuts a text at its punctuation, but for the colon between a label and its number, and at the words that join clauses, never inside a token.
fn clauses(prose: &str, tokens: &[Token]) -> Vec<(usize, usize)> {
    let free = |at: &usize| {
        !tokens
            .iter()
            .any(|token| (token.start..token.end).contains(at))
    };
    let marks = prose.match_indices(['.', ',', ';', '!', '?', '(', ')', '\n', '\u{2014}']);
    // "1,000 units, which are severe" says the number of what follows.
    let relative = [", which ", ", who ", ", that ", ", of which "];
    let marks = marks.filter(|(at, _)| !relative.iter().any(|word| prose[*at..].starts_with(word)));
    let joints = [" and ", " but ", " while ", " whereas "];
    let joints = joints.iter().flat_map(|joint| prose.match_indices(joint));
    let mut cuts: Vec<usize> = marks.chain(joints).map(|(at, _)| at).filter(free).collect();
    cuts.push(prose.len());
    cuts.sort_unstable();
    let mut start = 0;
    cuts.into_iter()
        .map(|end| (std::mem::replace(&mut start, end), end))
        .collect()
}

/// The words of a clause outside its tokens, between single spaces.
fn plain_words(prose: &str, start: usize, end: usize, tokens: &[&Token]) -> String {
    let outside = |at: usize| {
        !tokens
            .iter()
            .any(|token| (token.start..token.end).contains(&at))
    };
    let text: String = prose[start..end]
        .char_indices()
        .map(|(at, c)| if outside(start + at) { c } else { ' ' })
        .collect();
    format!(" {} ", spelled(&text))
}

/// Lower case, with everything but letters and digits as one space.
fn spelled(text: &str) -> String {
    let lower = text.to_lowercase();
    let words = lower.split(|c: char| !c.is_alphanumeric());
    words
        .filter(|word| !word.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
}
