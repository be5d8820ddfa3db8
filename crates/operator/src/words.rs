//! Words of a text, as search and classifiers count them.
//!
//! Source: Unicode Standard Annex 29, word boundaries. Must not know fields or records.

use unicode_segmentation::UnicodeSegmentation;

/// The words of a text in lower case; what holds neither a letter nor a digit is none.
pub fn words(text: &str) -> impl Iterator<Item = String> + '_ {
    text.unicode_words().map(str::to_lowercase)
}
