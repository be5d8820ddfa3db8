//! Cutting one field's text: which lines are kept, as byte ranges of the original.
//!
//! Cuts fall between characters, and not before a combining mark, a variation selector, a skin tone
//! or next to a zero-width joiner, so that no visible character is halved.

use std::ops::Range;

use crate::plan::ClipPolicy;

/// How far back a cut looks for a place between visible characters, in bytes.
const CLUSTER_BYTES_MAX: usize = 64;

/// What one field may take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) max_chars: u32,
    pub(super) policy: ClipPolicy,
    /// Longest line in bytes and most lines; `None` leaves lines as they are.
    pub(super) lines: Option<(usize, u32)>,
}

/// The kept lines; what lies between `head` and `tail` was left out.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Clip {
    pub(super) head: Vec<Range<usize>>,
    pub(super) tail: Vec<Range<usize>>,
    pub(super) left_out_bytes: u64,
}

/// Clips a text; the error says which limit a text under [`ClipPolicy::Error`] exceeds.
pub(super) fn clip(text: &str, limits: Limits) -> Result<Clip, String> {
    let chars = text.chars().count();
    let chars_max = limits.max_chars as usize;
    let (head_end, tail_start) = if chars <= chars_max {
        (text.len(), text.len())
    } else {
        match limits.policy {
            ClipPolicy::Error => {
                return Err(format!(
                    "has {chars} characters, at most {chars_max} are allowed"
                ));
            }
            ClipPolicy::Head => (cut_before(text, byte_of(text, chars_max)), text.len()),
            ClipPolicy::HeadTail => {
                let tail_chars = chars_max / 3;
                let head_end = cut_before(text, byte_of(text, chars_max - tail_chars));
                let tail_start = cut_after(text, byte_of(text, chars - tail_chars));
                (head_end, tail_start.max(head_end))
            }
        }
    };
    let line_bytes = limits.lines.map(|(bytes, _)| bytes);
    let mut head = lines(text, 0..head_end, line_bytes);
    let mut tail = lines(text, tail_start..text.len(), line_bytes);
    let mut clipped = head_end < text.len();
    if let Some((_, lines_max)) = limits.lines {
        let lines_max = lines_max as usize;
        let found = head.len() + tail.len();
        if found > lines_max {
            if limits.policy == ClipPolicy::Error {
                return Err(format!(
                    "has {found} lines, at most {lines_max} are allowed"
                ));
            }
            drop_lines(&mut head, &mut tail, lines_max, limits.policy);
            clipped = true;
        }
    }
    let from = head.last().map_or(0, |line| line.end);
    let to = tail.first().map_or(text.len(), |line| line.start);
    let left_out_bytes = if clipped { (to - from) as u64 } else { 0 };
    Ok(Clip {
        head,
        tail,
        left_out_bytes,
    })
}

/// Keeps `lines_max` lines: two thirds from the start and one third from the end, or all from the
/// start.
fn drop_lines(
    head: &mut Vec<Range<usize>>,
    tail: &mut Vec<Range<usize>>,
    lines_max: usize,
    policy: ClipPolicy,
) {
    if policy == ClipPolicy::HeadTail && tail.is_empty() {
        let tail_lines = lines_max / 3;
        *tail = head.split_off(head.len() - tail_lines);
    }
    let wanted = (lines_max - lines_max / 3).max(lines_max - tail.len().min(lines_max));
    head.truncate(wanted);
    let rest = lines_max - head.len();
    let surplus = tail.len().saturating_sub(rest);
    tail.drain(..surplus);
}

/// The lines inside a range that are not blank, trimmed, and split where they are too long.
fn lines(text: &str, range: Range<usize>, line_bytes: Option<usize>) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut start = range.start;
    // CRLF yields an empty line between CR and LF, which is dropped like every blank line.
    for line in text[range].split(['\n', '\r']) {
        let mut piece = trim(text, start..start + line.len());
        start += line.len() + 1;
        while let Some(bytes) = line_bytes.filter(|bytes| piece.len() > *bytes) {
            let cut = piece.start + split_point(&text[piece.clone()], bytes);
            found.push(trim(text, piece.start..cut));
            piece = trim(text, cut..piece.end);
        }
        if !piece.is_empty() {
            found.push(piece);
        }
    }
    found.retain(|line| !line.is_empty());
    found
}

fn trim(text: &str, range: Range<usize>) -> Range<usize> {
    let slice = &text[range.clone()];
    let start = range.start + (slice.len() - slice.trim_start().len());
    let end = start + slice.trim().len();
    start..end
}

/// Where to split a line longer than `bytes`: after a sentence, else after a space, else between
/// visible characters. Always greater than 0.
fn split_point(line: &str, bytes: usize) -> usize {
    let window = &line[..line.floor_char_boundary(bytes)];
    let half = window.len() / 2;
    let sentence = window
        .char_indices()
        .filter(|(_, c)| matches!(c, '.' | '!' | '?' | '\u{3002}' | '\u{ff01}' | '\u{ff1f}'))
        .map(|(at, c)| (at + c.len_utf8(), c))
        .filter(|(end, c)| !c.is_ascii() || line[*end..].starts_with(' '))
        .map(|(end, _)| end)
        .rfind(|end| *end > half);
    let space = || window.rfind(' ').filter(|at| *at > half);
    sentence.or_else(space).unwrap_or_else(|| {
        let cut = cut_before(line, window.len());
        if cut == 0 {
            cut_after(line, window.len().max(1)).max(1)
        } else {
            cut
        }
    })
}

/// Byte offset of the `index`-th character.
fn byte_of(text: &str, index: usize) -> usize {
    text.char_indices()
        .nth(index)
        .map_or(text.len(), |(at, _)| at)
}

/// The nearest place at or before `at` that halves no visible character.
fn cut_before(text: &str, at: usize) -> usize {
    let at = text.floor_char_boundary(at);
    let mut cut = at;
    while at - cut <= CLUSTER_BYTES_MAX {
        if !joins(text, cut) {
            return cut;
        }
        cut = text.floor_char_boundary(cut - 1);
    }
    at
}

/// The nearest place at or after `at` that halves no visible character.
fn cut_after(text: &str, at: usize) -> usize {
    let at = text.ceil_char_boundary(at);
    let mut cut = at;
    while cut - at <= CLUSTER_BYTES_MAX {
        if !joins(text, cut) {
            return cut;
        }
        cut = text.ceil_char_boundary(cut + 1);
    }
    at
}

/// Whether the characters on both sides of an offset belong to one visible character.
fn joins(text: &str, at: usize) -> bool {
    let (Some(before), Some(after)) = (text[..at].chars().next_back(), text[at..].chars().next())
    else {
        return false;
    };
    let extends = matches!(
        after,
        '\u{300}'..='\u{36f}'
            | '\u{483}'..='\u{489}'
            | '\u{591}'..='\u{5bd}'
            | '\u{610}'..='\u{61a}'
            | '\u{64b}'..='\u{65f}'
            | '\u{93a}'..='\u{94f}'
            | '\u{e31}'
            | '\u{e34}'..='\u{e3a}'
            | '\u{e47}'..='\u{e4e}'
            | '\u{1ab0}'..='\u{1aff}'
            | '\u{1dc0}'..='\u{1dff}'
            | '\u{200d}'
            | '\u{20d0}'..='\u{20ff}'
            | '\u{3099}'..='\u{309a}'
            | '\u{fe00}'..='\u{fe0f}'
            | '\u{fe20}'..='\u{fe2f}'
            | '\u{1f3fb}'..='\u{1f3ff}'
            | '\u{e0020}'..='\u{e007f}'
            | '\u{e0100}'..='\u{e01ef}'
    );
    let flag = |c: char| ('\u{1f1e6}'..='\u{1f1ff}').contains(&c);
    // Flags are pairs: a cut is inside one if an odd number of flag letters stands before it.
    let halves_flag =
        flag(after) && text[..at].chars().rev().take_while(|c| flag(*c)).count() % 2 == 1;
    extends || before == '\u{200d}' || halves_flag || (before == '\r' && after == '\n')
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: Limits = Limits {
        max_chars: 3,
        policy: ClipPolicy::Head,
        lines: None,
    };

    fn kept(text: &str, limits: Limits) -> (Vec<&str>, Vec<&str>, u64) {
        let clip = clip(text, limits).unwrap();
        let read = |ranges: Vec<Range<usize>>| ranges.into_iter().map(|r| &text[r]).collect();
        (read(clip.head), read(clip.tail), clip.left_out_bytes)
    }

    #[test]
    fn a_cut_never_halves_a_visible_character() {
        // Family emoji (joined), e with acute as two characters, a flag, a skin tone.
        for cluster in [
            "\u{1f468}\u{200d}\u{1f469}",
            "e\u{301}",
            "\u{1f1e9}\u{1f1ea}",
            "\u{1f44d}\u{1f3fd}",
        ] {
            let text = format!("ab{cluster}cd");
            let (head, _, left_out) = kept(&text, HEAD);
            assert_eq!(head, ["ab"], "{cluster}");
            assert_eq!(left_out as usize, text.len() - 2);
        }
        let flags = "\u{1f1e9}\u{1f1ea}\u{1f1eb}\u{1f1f7}";
        assert_eq!(kept(flags, HEAD).0, ["\u{1f1e9}\u{1f1ea}"]);
    }

    #[test]
    fn head_tail_keeps_both_ends_and_counts_the_gap() {
        let limits = Limits {
            max_chars: 9,
            policy: ClipPolicy::HeadTail,
            lines: None,
        };
        assert_eq!(
            kept("abcdefghijklmnop", limits),
            (vec!["abcdef"], vec!["nop"], 7)
        );
        assert_eq!(kept("abcdefghi", limits), (vec!["abcdefghi"], vec![], 0));
    }

    #[test]
    fn too_many_lines_lose_the_middle() {
        let text = "a\nb\r\n\r\nc\rd\ne\nf\ng";
        let limits = Limits {
            max_chars: 99,
            policy: ClipPolicy::HeadTail,
            lines: Some((160, 3)),
        };
        assert_eq!(
            kept(text, limits),
            (vec!["a", "b"], vec!["g"], (text.len() - 1 - 3) as u64)
        );
        let head = Limits {
            policy: ClipPolicy::Head,
            ..limits
        };
        assert_eq!(
            kept(text, head),
            (vec!["a", "b", "c"], vec![], (text.len() - 8) as u64)
        );
        let error = Limits {
            policy: ClipPolicy::Error,
            ..limits
        };
        assert_eq!(
            clip(text, error).unwrap_err(),
            "has 7 lines, at most 3 are allowed"
        );
    }

    #[test]
    fn long_lines_split_at_sentences_then_spaces_then_anywhere() {
        let limits = |bytes| Limits {
            max_chars: 9999,
            policy: ClipPolicy::HeadTail,
            lines: Some((bytes, 99)),
        };
        assert_eq!(
            kept("One two. Three four five", limits(12)).0,
            ["One two.", "Three four", "five"]
        );
        assert_eq!(kept("abcdefghij", limits(4)).0, ["abcd", "efgh", "ij"]);
        // A cluster longer than the line is taken whole rather than looping for ever.
        let marks = format!("e{}", "\u{301}".repeat(20));
        assert_eq!(kept(&marks, limits(4)).0.concat(), marks);
    }
}
