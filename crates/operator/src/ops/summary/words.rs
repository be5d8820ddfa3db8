//! Number words of English: `seven`, `twenty-one`, `two hundred and five`, `third`, `two thirds`,
//! `half`, `dozen`.
//!
//! Vague ones (`dozens`, `hundreds`) are numbers that nothing can equal. Words that count without a
//! number (`most`, `all`, `none`, `both`, `twice`, `once`, `single`) are not read. Must not know
//! claims.

/// What a run of number words says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Worded {
    /// A number.
    Number(u64),
    /// A place in an order.
    Ordinal(u64),
    /// A share: so many parts of so many.
    Share(u64, u64),
    /// An unstated number.
    Vague,
}

const SMALL: [&str; 20] = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
];
const TENS: [&str; 8] = [
    "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety",
];
const SCALES: [(&str, u64); 5] = [
    ("dozen", 12),
    ("hundred", 100),
    ("thousand", 1_000),
    ("million", 1_000_000),
    ("billion", 1_000_000_000),
];
const ORDINALS: [&str; 20] = [
    "zeroth",
    "first",
    "second",
    "third",
    "fourth",
    "fifth",
    "sixth",
    "seventh",
    "eighth",
    "ninth",
    "tenth",
    "eleventh",
    "twelfth",
    "thirteenth",
    "fourteenth",
    "fifteenth",
    "sixteenth",
    "seventeenth",
    "eighteenth",
    "nineteenth",
];
const TENTHS: [&str; 8] = [
    "twentieth",
    "thirtieth",
    "fortieth",
    "fiftieth",
    "sixtieth",
    "seventieth",
    "eightieth",
    "ninetieth",
];
const VAGUE: [&str; 7] = [
    "tens",
    "dozens",
    "hundreds",
    "thousands",
    "millions",
    "billions",
    "umpteen",
];

/// The factor of a scale word, such as 1,000 for `thousand`.
pub(super) fn scale(word: &str) -> Option<u64> {
    let found = SCALES.iter().find(|(name, _)| *name == word);
    found.map(|(_, factor)| *factor)
}

/// Reads number words at the start of a list of words; returns what they say and how many they are.
///
/// Words are lower-case; `joined` tells of each whether only a space or a hyphen stands before it.
pub(super) fn read(words: &[&str], joined: &[bool]) -> Option<(Worded, usize)> {
    let next = |place: usize| match joined.get(place) {
        Some(true) => words.get(place).copied(),
        _ => None,
    };
    let first = *words.first()?;
    if VAGUE.contains(&first) {
        return Some((Worded::Vague, 1));
    }
    match first {
        "half" | "halves" => return Some((Worded::Share(1, 2), 1)),
        "quarter" | "quarters" => return Some((Worded::Share(1, 4), 1)),
        _ => {}
    }
    if let Some(place) = ordinal(first) {
        return Some((Worded::Ordinal(place), 1));
    }
    if first
        .strip_suffix('s')
        .and_then(ordinal)
        .is_some_and(|part| (3..=10).contains(&part))
    {
        return Some((Worded::Vague, 1));
    }
    // "a third of" is a share where "a third" alone is a place.
    if first == "a" || first == "an" {
        let part = next(1)
            .and_then(ordinal)
            .filter(|part| (3..=10).contains(part))?;
        return (next(2) == Some("of")).then_some((Worded::Share(1, part), 2));
    }
    let (number, used) = cardinal(words, &next)?;
    match next(used) {
        Some("half" | "halves") if used == 1 => Some((Worded::Share(number, 2), 2)),
        Some("quarter" | "quarters") => Some((Worded::Share(number, 4), used + 1)),
        Some(word) => {
            let plural = word.strip_suffix('s').and_then(ordinal);
            let single = ordinal(word).filter(|_| number == 1);
            if let Some(part) = plural.or(single).filter(|part| (3..=10).contains(part)) {
                return Some((Worded::Share(number, part), used + 1));
            }
            match ordinal(word) {
                Some(place) if number % 10 == 0 && number >= 20 && place < 10 => {
                    Some((Worded::Ordinal(number + place), used + 1))
                }
                _ => Some((Worded::Number(number), used)),
            }
        }
        None => Some((Worded::Number(number), used)),
    }
}

fn cardinal<'w>(
    words: &[&'w str],
    next: &dyn Fn(usize) -> Option<&'w str>,
) -> Option<(u64, usize)> {
    let (mut total, mut current, mut used) = (0_u64, None::<u64>, 0);
    while let Some(word) = if used == 0 {
        words.first().copied()
    } else {
        next(used)
    } {
        if word == "and" {
            let follows = next(used + 1).is_some_and(|word| small(word).or(tens(word)).is_some());
            let open = used > 0 && scale(words[used - 1]).is_some_and(|factor| factor >= 100);
            if !(open && follows) {
                break;
            }
            used += 1;
            continue;
        }
        if let Some(number) = small(word) {
            match current {
                None => current = Some(number),
                Some(held) if held % 100 == 0 && held > 0 => current = Some(held + number),
                Some(held) if held % 10 == 0 && held % 100 >= 20 && (1..10).contains(&number) => {
                    current = Some(held + number);
                }
                Some(_) => break,
            }
        } else if let Some(number) = tens(word) {
            match current {
                None => current = Some(number),
                Some(held) if held % 100 == 0 && held > 0 => current = Some(held + number),
                Some(_) => break,
            }
        } else if let Some(factor) = scale(word) {
            let held = current.unwrap_or(1);
            if factor < 1_000 {
                current = Some(held.checked_mul(factor)?);
            } else {
                total = total.checked_add(held.checked_mul(factor)?)?;
                current = None;
            }
        } else {
            break;
        }
        used += 1;
    }
    (used > 0).then_some((total + current.unwrap_or(0), used))
}

fn small(word: &str) -> Option<u64> {
    place_of(&SMALL, word)
}

fn tens(word: &str) -> Option<u64> {
    place_of(&TENS, word).map(|place| (place + 2) * 10)
}

fn ordinal(word: &str) -> Option<u64> {
    let tens = || place_of(&TENTHS, word).map(|place| (place + 2) * 10);
    let scale = || word.strip_suffix("th").and_then(scale);
    place_of(&ORDINALS, word).or_else(tens).or_else(scale)
}

fn place_of(names: &[&str], word: &str) -> Option<u64> {
    let place = names.iter().position(|name| *name == word);
    place.map(|place| place as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str) -> Option<(Worded, usize)> {
        let words: Vec<&str> = text.split([' ', '-']).collect();
        let joined: Vec<bool> = (0..words.len()).map(|place| place > 0).collect();
        read(&words, &joined)
    }

    #[test]
    fn words_are_read_as_far_as_they_make_one_number() {
        use Worded::{Number, Ordinal, Share, Vague};
        for (text, wanted) in [
            ("seven issues", (Number(7), 1)),
            ("twenty-one issues", (Number(21), 2)),
            ("twenty twenty", (Number(20), 1)),
            ("one or two", (Number(1), 1)),
            ("one and two", (Number(1), 1)),
            ("two hundred and five", (Number(205), 4)),
            ("hundred and more", (Number(100), 1)),
            ("three hundred forty two thousand", (Number(342_000), 5)),
            ("one thousand and one", (Number(1_001), 4)),
            ("dozen issues", (Number(12), 1)),
            ("two dozen", (Number(24), 2)),
            ("third cause", (Ordinal(3), 1)),
            ("twenty-third", (Ordinal(23), 2)),
            ("hundredth", (Ordinal(100), 1)),
            ("half of them", (Share(1, 2), 1)),
            ("two thirds", (Share(2, 3), 2)),
            ("one third", (Share(1, 3), 2)),
            ("a third of", (Share(1, 3), 2)),
            ("three quarters", (Share(3, 4), 2)),
            ("hundreds of", (Vague, 1)),
            ("thirds", (Vague, 1)),
        ] {
            assert_eq!(said(text), Some(wanted), "{text}");
        }
        for text in [
            "issues",
            "a cause",
            "a third cause",
            "and",
            "someone",
            "tend",
        ] {
            assert_eq!(said(text), None, "{text}");
        }
    }
}
