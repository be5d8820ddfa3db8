//! Finds the text of special tokens in trusted markup. Must never be given text of a record or of a
//! rubric.

use std::collections::HashMap;

/// A stretch of markup.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece<'a> {
    /// Ordinary text.
    Text(&'a str),
    /// A special token.
    Special(u32),
}

/// The special tokens of a vocabulary, by text.
pub(super) struct Markup {
    ids: HashMap<String, u32>,
    /// For each first byte, the texts that begin with it, longest first.
    by_first: HashMap<u8, Vec<String>>,
}

impl Markup {
    /// Collects special tokens; none is empty. Of two with one text, the lower id counts.
    pub(super) fn new<'a>(tokens: impl Iterator<Item = (&'a str, u32)>) -> Self {
        let mut ids = HashMap::new();
        let mut by_first: HashMap<u8, Vec<String>> = HashMap::new();
        for (text, id) in tokens {
            let Some(&first) = text.as_bytes().first() else {
                continue;
            };
            if ids.contains_key(text) {
                continue;
            }
            ids.insert(text.to_owned(), id);
            by_first.entry(first).or_default().push(text.to_owned());
        }
        for texts in by_first.values_mut() {
            texts.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        }
        Self { ids, by_first }
    }

    /// The id of the special token with exactly this text.
    pub(super) fn id(&self, text: &str) -> Option<u32> {
        self.ids.get(text).copied()
    }

    /// Cuts markup at its special tokens: the leftmost first, the longest of those that begin at
    /// one place. Empty stretches are left out.
    pub(super) fn split<'a>(&self, markup: &'a str) -> Vec<Piece<'a>> {
        let mut pieces = Vec::new();
        let (mut start, mut at) = (0, 0);
        while at < markup.len() {
            let rest = &markup.as_bytes()[at..];
            let texts = self.by_first.get(&rest[0]).map_or(&[][..], Vec::as_slice);
            let Some(text) = texts.iter().find(|text| rest.starts_with(text.as_bytes())) else {
                at += 1;
                continue;
            };
            if start < at {
                pieces.push(Piece::Text(&markup[start..at]));
            }
            pieces.push(Piece::Special(self.ids[text]));
            at += text.len();
            start = at;
        }
        if start < markup.len() {
            pieces.push(Piece::Text(&markup[start..]));
        }
        pieces
    }
}

#[cfg(test)]
mod tests {
    use super::{Markup, Piece};

    #[test]
    fn the_longest_token_at_the_leftmost_place_is_taken() {
        let markup =
            Markup::new([("<a>", 1), ("<a><b>", 2), ("<b>", 3), ("\u{e9}!", 4)].into_iter());
        assert_eq!(
            markup.split("x<a><b><b>y<a>\u{e9}\u{e9}!"),
            [
                Piece::Text("x"),
                Piece::Special(2),
                Piece::Special(3),
                Piece::Text("y"),
                Piece::Special(1),
                Piece::Text("\u{e9}"),
                Piece::Special(4),
            ]
        );
        assert!(markup.split("").is_empty());
        assert_eq!(markup.split("<a"), [Piece::Text("<a")]);
    }
}
