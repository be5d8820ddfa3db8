//! The signs of a text: what belongs to a word or a number, what opens and closes a quote, and what
//! is never read because a number could hide in it.
//!
//! Must not know tokens.

/// Spaces that stand inside numbers, and between a number and its sign.
pub(super) const THIN: [char; 4] = ['\u{a0}', '\u{2007}', '\u{2009}', '\u{202f}'];

/// The number at the start of a text: its bytes, the digits before the point without separators,
/// and those behind it. Points that make no number give the bytes alone.
pub(super) fn digits(rest: &str) -> Result<(usize, String, &str), usize> {
    let mut at = run(rest, |c| c.is_ascii_digit());
    let mut whole = rest[..at].to_owned();
    let group = |at: usize| {
        let separator = rest[at..].chars().next()?;
        let digits = run(&rest[at + separator.len_utf8()..], |c| c.is_ascii_digit());
        Some((separator, digits)).filter(|(_, digits)| *digits > 0)
    };
    if at <= 3 {
        while let Some((separator, 3)) = group(at)
            && (",'\u{2019}".contains(separator) || THIN.contains(&separator))
        {
            let from = at + separator.len_utf8();
            whole.push_str(&rest[from..from + 3]);
            at = from + 3;
        }
    }
    let mut points = Vec::new();
    while let Some(('.', length)) = group(at) {
        points.push(&rest[at + 1..at + 1 + length]);
        at += 1 + length;
    }
    match points.as_slice() {
        [] => Ok((at, whole, "")),
        [decimals] => Ok((at, whole, decimals)),
        groups if whole.len() <= 3 && groups.iter().all(|group| group.len() == 3) => {
            whole.extend(groups.iter().copied());
            Ok((at, whole, ""))
        }
        _ => Err(at),
    }
}

pub(super) fn run(text: &str, belongs: impl Fn(char) -> bool) -> usize {
    text.find(|c| !belongs(c)).unwrap_or(text.len())
}

pub(super) fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

pub(super) fn is_joint(c: char) -> bool {
    c.is_whitespace() || "-\u{2010}\u{2011}".contains(c)
}

/// The end of a quote that begins here; `None` inside for a sign that only ends one.
pub(super) fn closing_quote(c: char) -> Option<Option<char>> {
    match c {
        '"' => Some(Some('"')),
        '\u{201c}' => Some(Some('\u{201d}')),
        '\u{201e}' => Some(Some('\u{201c}')),
        '\u{ab}' => Some(Some('\u{bb}')),
        '\u{2039}' => Some(Some('\u{203a}')),
        '\u{201d}' | '\u{bb}' | '\u{203a}' => Some(None),
        _ => None,
    }
}

pub(super) fn closing_single(c: char) -> Option<char> {
    match c {
        '\'' | '`' => Some(c),
        '\u{2018}' | '\u{201a}' => Some('\u{2019}'),
        _ => None,
    }
}

/// Why a character is never read; none for ordinary ones.
pub(super) fn odd(c: char) -> Option<&'static str> {
    match c {
        '\n' => None,
        '\u{2030}' | '\u{2031}' => Some("it is a sign for shares other than per cent"),
        '\u{ad}'
        | '\u{180e}'
        | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{feff}' => Some("it does not show"),
        '\u{fffd}' => Some("it stands for bytes that are no text"),
        c if c.is_control() => Some("it is a control character"),
        c if c.is_numeric() && !c.is_ascii_digit() => Some("it is a number in one character"),
        _ => None,
    }
}
