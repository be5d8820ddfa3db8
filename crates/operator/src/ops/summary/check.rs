//! Re-reads a written text: every number, unit and quote in it must be one of the claims'.
//!
//! A number passes by being equal to a number of the same kind that the claims or the coverage
//! have: a plain number equals one of theirs, a percentage or share equals one of their shares or
//! the ratio of two counts at the precision in which it is printed, an ordinal names a place of a
//! list. Of what a number is said is checked as far as `clause` can tell; what the words mean is not.

use serde::Serialize;

use super::clause;
use super::equal::equal;
use super::known::Known;
use super::material::{Material, one_line};
use super::scan::{Said, Token, Whole, is_only_number, scan};
use crate::id::UnitId;

/// A number of the text, with what it equals.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CheckedNumber {
    /// As it stands in the text.
    pub written: String,
    /// The first number of the claims that it equals.
    pub equals: String,
}

/// A text that passed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checked {
    /// Its numbers, in order.
    pub numbers: Vec<CheckedNumber>,
    /// The units that it names or quotes, each once, in order.
    pub units: Vec<UnitId>,
}

/// Re-reads a text.
///
/// # Errors
/// What is wrong with it, naming the first token that is not of the claims.
pub fn check(prose: &str, material: &Material) -> Result<Checked, String> {
    if prose.trim().is_empty() {
        return Err(String::from("the text is empty"));
    }
    let known = &material.known;
    let ids = known.units.keys().map(UnitId::as_str);
    let whole = Whole::of(known.names.iter().map(String::as_str), ids);
    let tokens = scan(prose, &whole);
    let mut reading = Reading {
        known,
        checked: Checked {
            numbers: Vec::new(),
            units: Vec::new(),
        },
    };
    // Units first: a number may stand for one that is named as such elsewhere in the text.
    for token in &tokens {
        if let Said::Unit(id) = &token.said {
            reading.unit(id)?;
        }
    }
    for token in &tokens {
        reading.token(prose, token)?;
    }
    clause::check(prose, &tokens, known)?;
    Ok(reading.checked)
}

struct Reading<'k> {
    known: &'k Known,
    checked: Checked,
}

impl Reading<'_> {
    fn token(&mut self, text: &str, token: &Token) -> Result<(), String> {
        let written = &text[token.start..token.end];
        match &token.said {
            Said::Unit(_) => return Ok(()),
            Said::Quote(quoted) => return self.quote(quoted),
            Said::Odd(why) => {
                return Err(format!(
                    "the text has {written:?}, which is not read: {why}"
                ));
            }
            _ => {}
        }
        let unit = || {
            let named = self.checked.units.iter();
            let mut named = named.filter(|unit| unit.as_str() == written);
            named.next().map(|unit| format!("unit [{unit}]"))
        };
        let equals = equal(self.known, &token.said, None).or_else(unit);
        let Some(equals) = equals else {
            return Err(format!(
                "the text says {written:?}, which is no number of the claims that it is of"
            ));
        };
        self.checked.numbers.push(CheckedNumber {
            written: written.to_owned(),
            equals,
        });
        Ok(())
    }

    fn unit(&mut self, written: &str) -> Result<(), String> {
        let bare = written.strip_prefix('#').unwrap_or(written);
        let found = [written, bare]
            .into_iter()
            .map(UnitId::new)
            .find(|id| self.known.units.contains_key(id));
        let Some(unit) = found else {
            return Err(format!(
                "the text names {written:?}, which is no unit of the claims that it is of"
            ));
        };
        self.cite(unit);
        Ok(())
    }

    fn cite(&mut self, unit: UnitId) {
        if !self.checked.units.contains(&unit) {
            self.checked.units.push(unit);
        }
    }

    /// Quoted words are a name, or stand in a source; a number in quotes is still a number.
    fn quote(&mut self, quoted: &str) -> Result<(), String> {
        if self.known.names.contains(quoted) {
            return Ok(());
        }
        if is_only_number(quoted) {
            for token in scan(quoted, &Whole::default()) {
                self.token(quoted, &token)?;
            }
            return Ok(());
        }
        let line = one_line(quoted);
        let words = line.trim();
        // A sentence's own punctuation may stand inside the quotes.
        let bare = words.trim_end_matches(['.', ',', ';', ':', '!', '?', '\u{2026}']);
        match [words, bare]
            .into_iter()
            .find_map(|words| self.source_of(words))
        {
            Some(unit) => {
                self.cite(unit);
                Ok(())
            }
            None => Err(format!(
                "the text quotes {quoted:?}, which stands in no source of the claims"
            )),
        }
    }

    /// A unit whose source has these words; one that the text names, where there is one.
    fn source_of(&self, words: &str) -> Option<UnitId> {
        if words.is_empty() {
            return None;
        }
        let has = |unit: &&UnitId| {
            let span = self
                .known
                .units
                .get(*unit)
                .and_then(|cite| cite.span.as_ref());
            let quote = span.and_then(|span| span.quote.as_ref());
            quote.is_some_and(|quote| one_line(quote).contains(words))
        };
        let named = self.checked.units.iter().find(has);
        named.or_else(|| self.known.units.keys().find(has)).cloned()
    }
}
