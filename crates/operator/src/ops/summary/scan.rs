//! A text as tokens: every number, id and quote in it, in whatever way it is written.
//!
//! Read as English. What could hide a number (digits of other scripts, fractions in one character,
//! digits grown together with letters, characters that do not show) is a token of its own, `Odd`,
//! and never passes. Must not know which tokens are true.

use super::amount::Amount;
use super::signs::{THIN, closing_quote, closing_single, digits, is_joint, is_word, odd, run};
use super::words::{self, Worded};

/// What is written at one place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Said {
    /// A number.
    Number(Amount),
    /// A number of hundredths.
    Percent(Amount),
    /// A place in an order.
    Ordinal(u64),
    /// So many parts of so many.
    Share(u64, u64),
    /// A number that is not said.
    Vague,
    /// A unit, by its id: in brackets, behind `#`, or bare.
    Unit(String),
    /// Words of somebody else.
    Quote(String),
    /// Something that may be none of these, with the reason why it is not read.
    Odd(&'static str),
}

/// One token with its bytes in the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) said: Said,
    pub(super) start: usize,
    pub(super) end: usize,
}

/// Words that are read as a whole although they hold digits or number words.
#[derive(Debug, Default)]
pub(super) struct Whole<'k> {
    /// Names, which say no number.
    names: Vec<&'k str>,
    /// Ids of units.
    ids: Vec<&'k str>,
}

impl<'k> Whole<'k> {
    /// Keeps of the given names and ids those that matter; one that is nothing but a number is left
    /// to be read as that, and one of several words has to be quoted.
    pub(super) fn of(
        names: impl Iterator<Item = &'k str>,
        ids: impl Iterator<Item = &'k str>,
    ) -> Self {
        let one_word = |text: &&str| !text.chars().any(char::is_whitespace);
        let mut names: Vec<&str> = names
            .filter(one_word)
            .filter(|name| !scan(name, &Self::default()).is_empty() && !is_only_number(name))
            .collect();
        let mut ids: Vec<&str> = ids
            .filter(one_word)
            .filter(|id| id.contains(|c: char| c.is_numeric()) && id.contains(char::is_alphabetic))
            .collect();
        for texts in [&mut names, &mut ids] {
            texts.sort_by_key(|text| std::cmp::Reverse(text.len()));
        }
        Self { names, ids }
    }
}

/// Whether a text says a number and has no other word.
pub(super) fn is_only_number(text: &str) -> bool {
    let tokens = scan(text, &Whole::default());
    let number =
        |token: &Token| !matches!(token.said, Said::Unit(_) | Said::Quote(_) | Said::Odd(_));
    let outside = text.char_indices().filter(|(at, _)| {
        !tokens
            .iter()
            .any(|token| (token.start..token.end).contains(at))
    });
    !tokens.is_empty()
        && tokens.iter().all(number)
        && !outside.into_iter().any(|(_, c)| c.is_alphanumeric())
}

/// Reads a text from front to end.
pub(super) fn scan(text: &str, whole: &Whole<'_>) -> Vec<Token> {
    let mut scanner = Scanner {
        text,
        at: 0,
        tokens: Vec::new(),
    };
    while scanner.step(whole) {}
    scanner.tokens
}

struct Scanner<'t> {
    text: &'t str,
    at: usize,
    tokens: Vec<Token>,
}

impl<'t> Scanner<'t> {
    fn step(&mut self, whole: &Whole<'_>) -> bool {
        let Some(c) = self.rest().chars().next() else {
            return false;
        };
        let word_before = self.before(0).is_some_and(is_word);
        if let Some(why) = odd(c) {
            self.push(Said::Odd(why), c.len_utf8());
        } else if self.rest().starts_with("://") {
            self.push(Said::Odd("it is an address"), 3);
        } else if let Some(closer) = closing_quote(c) {
            self.double_quote(c, closer);
        } else if let Some(closer) = closing_single(c).filter(|_| !word_before) {
            self.single_quote(c, closer);
        } else if c == '[' {
            self.brackets();
        } else if c == '#' && self.rest()[1..].starts_with(is_word) {
            self.hash();
        } else if is_word(c) {
            if !word_before && let Some(name) = self.starts_with_any(&whole.names) {
                self.at += name.len();
            } else if !word_before && let Some(id) = self.starts_with_any(&whole.ids) {
                self.push(Said::Unit(id.to_owned()), id.len());
            } else if c.is_ascii_digit() {
                self.number();
            } else {
                self.word();
            }
        } else {
            self.at += c.len_utf8();
        }
        true
    }

    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    /// The character so many places before this one.
    fn before(&self, places: usize) -> Option<char> {
        self.text[..self.at].chars().rev().nth(places)
    }

    fn push(&mut self, said: Said, bytes: usize) {
        let (start, end) = (self.at, self.at + bytes);
        self.tokens.push(Token { said, start, end });
        self.at = end;
    }

    fn starts_with_any<'k>(&self, texts: &[&'k str]) -> Option<&'k str> {
        let rest = self.rest();
        let whole = |text: &&&str| {
            rest.strip_prefix(**text)
                .is_some_and(|after| !after.starts_with(is_word))
        };
        texts.iter().find(whole).copied()
    }

    fn double_quote(&mut self, opener: char, closer: Option<char>) {
        let open = opener.len_utf8();
        let inside = &self.rest()[open..];
        match closer.and_then(|closer| Some((closer, inside.find(closer)?))) {
            Some((closer, length)) => {
                let quoted = inside[..length].to_owned();
                self.push(Said::Quote(quoted), open + length + closer.len_utf8());
            }
            None => self.push(Said::Odd("the quote has one end only"), open),
        }
    }

    /// A single quote that is never closed is an apostrophe.
    fn single_quote(&mut self, opener: char, closer: char) {
        let open = opener.len_utf8();
        let inside = &self.rest()[open..];
        let ends = inside.match_indices(closer).find(|(place, _)| {
            let (quoted, after) = (&inside[..*place], &inside[*place + closer.len_utf8()..]);
            !quoted.is_empty()
                && !quoted.ends_with(char::is_whitespace)
                && !after.starts_with(is_word)
        });
        match ends.filter(|_| !inside.starts_with(char::is_whitespace)) {
            Some((length, _)) => {
                let quoted = inside[..length].to_owned();
                self.push(Said::Quote(quoted), open + length + closer.len_utf8());
            }
            None => self.at += open,
        }
    }

    fn brackets(&mut self) {
        let Some(end) = self.rest().find(']') else {
            return self.push(Said::Odd("the bracket is not closed"), 1);
        };
        let start = self.at;
        for id in self.rest()[1..end].replace(" and ", ",").split([',', ';']) {
            let token = Token {
                said: Said::Unit(id.trim().to_owned()),
                start,
                end: start + end + 1,
            };
            self.tokens.push(token);
        }
        self.at = start + end + 1;
    }

    fn hash(&mut self) {
        let rest = self.rest();
        let mut length = 1 + run(&rest[1..], is_word);
        while let Some(joint) = rest[length..]
            .chars()
            .next()
            .filter(|c| "-./_".contains(*c))
        {
            match run(&rest[length + joint.len_utf8()..], is_word) {
                0 => break,
                more => length += joint.len_utf8() + more,
            }
        }
        self.push(Said::Unit(rest[..length].to_owned()), length);
    }

    fn number(&mut self) {
        let (rest, start) = (self.rest(), self.at);
        let before = (self.before(0), self.before(1));
        let (written, whole, decimals) = match digits(rest) {
            Ok(read) => read,
            Err(length) => return self.push(Said::Odd("its points make no number"), length),
        };
        let joined = before.0.is_some_and(|c| "-./".contains(c));
        if joined && before.1.is_some_and(|c| is_word(c) && !c.is_ascii_digit()) {
            return self.push(Said::Odd("digits are grown together with letters"), written);
        }
        if before.0 == Some('.') && !before.1.is_some_and(is_word) {
            return self.push(Said::Odd("no digit stands before the point"), written);
        }
        let minus = before.0.is_some_and(|c| "-\u{2212}\u{2013}".contains(c));
        let negative = minus && !before.1.is_some_and(is_word);
        let amount = Amount::parse(&whole, decimals, negative);
        let suffix = run(&rest[written..], is_word);
        if suffix > 0 {
            let place = whole
                .parse()
                .ok()
                .filter(|_| decimals.is_empty() && !negative);
            let letters = rest[written..written + suffix].to_lowercase();
            let said = match (letters.as_str(), place) {
                ("st" | "nd" | "rd" | "th", Some(place)) => Said::Ordinal(place),
                _ => Said::Odd("digits are grown together with letters"),
            };
            return self.push(said, written + suffix);
        }
        let Some(mut amount) = amount else {
            return self.push(
                Said::Odd("it has too many digits or begins with 0"),
                written,
            );
        };
        self.at += written;
        while let Some((factor, length)) = self.scale_word() {
            self.at += length;
            match amount.times(factor) {
                Some(product) => amount = product,
                None => return self.close(Said::Odd("it has too many digits"), start),
            }
        }
        let said = self.percent_or_number(amount);
        self.close(said, start);
    }

    /// Ends a token at the present place.
    fn close(&mut self, said: Said, start: usize) {
        let end = self.at;
        self.tokens.push(Token { said, start, end });
    }

    fn scale_word(&self) -> Option<(u64, usize)> {
        let (gap, word) = self.next_word()?;
        Some((words::scale(&word.to_lowercase())?, gap + word.len()))
    }

    /// The word behind one space or hyphen, with the length of that.
    fn next_word(&self) -> Option<(usize, &'t str)> {
        let rest = self.rest();
        let joint = rest.chars().next().filter(|c| is_joint(*c))?;
        let word = &rest[joint.len_utf8()..];
        let length = run(word, char::is_alphabetic);
        (length > 0).then(|| (joint.len_utf8(), &word[..length]))
    }

    fn percent_or_number(&mut self, amount: Amount) -> Said {
        let rest = self.rest();
        let spaces = run(rest, |c| c == ' ' || THIN.contains(&c));
        if rest[spaces..].starts_with('%') {
            self.at += spaces + 1;
            return Said::Percent(amount);
        }
        let Some((gap, word)) = self.next_word() else {
            return Said::Number(amount);
        };
        let held = self.at;
        self.at += gap + word.len();
        match word.to_lowercase().as_str() {
            "percent" | "pct" | "percentage" => return Said::Percent(amount),
            "per" => {
                if let Some((gap, "cent")) = self.next_word() {
                    self.at += gap + "cent".len();
                    return Said::Percent(amount);
                }
            }
            _ => {}
        }
        self.at = held;
        Said::Number(amount)
    }

    fn word(&mut self) {
        let (rest, start) = (self.rest(), self.at);
        let length = run(rest, is_word);
        let first = &rest[..length];
        if first.contains(char::is_numeric) {
            return self.push(Said::Odd("digits are grown together with letters"), length);
        }
        let hidden = |piece: &str| words::read(&[&piece.to_lowercase()], &[false]).is_some();
        if first.contains('_') && first.split('_').any(hidden) {
            return self.push(
                Said::Odd("a number word is grown together with others"),
                length,
            );
        }
        let (list, ends) = following(rest, length);
        let texts: Vec<&str> = list.iter().map(String::as_str).collect();
        let joined: Vec<bool> = (0..texts.len()).map(|place| place > 0).collect();
        let Some((worded, used)) = words::read(&texts, &joined) else {
            self.at += length;
            return;
        };
        self.at += ends[used - 1];
        let said = match worded {
            Worded::Number(number) => self.percent_or_number(Amount::whole(i128::from(number))),
            Worded::Ordinal(place) => Said::Ordinal(place),
            Worded::Share(part, whole) => Said::Share(part, whole),
            Worded::Vague => Said::Vague,
        };
        self.close(said, start);
    }
}

/// A few words from here on, in lower case, while single spaces or hyphens join them; and where each
/// ends.
fn following(rest: &str, first: usize) -> (Vec<String>, Vec<usize>) {
    const WORDS_MAX: usize = 16;
    let (mut list, mut ends) = (vec![rest[..first].to_lowercase()], vec![first]);
    let mut at = first;
    while list.len() < WORDS_MAX
        && let Some(joint) = rest[at..].chars().next().filter(|c| is_joint(*c))
    {
        let word = &rest[at + joint.len_utf8()..];
        let length = run(word, char::is_alphabetic);
        if length == 0 || word[length..].starts_with(is_word) {
            break;
        }
        at += joint.len_utf8() + length;
        list.push(word[..length].to_lowercase());
        ends.push(at);
    }
    (list, ends)
}
