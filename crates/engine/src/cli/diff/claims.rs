//! The claims of a difference: before and after, the citations, and the units behind them.

use std::fmt::Write as _;

use operator::diff::{ClaimDifference, ClaimSide, Difference};

use crate::cli::words::{clip, indented, list};

/// Units named on one line.
const UNITS: usize = 8;
/// Longest claim shown, in characters.
const CHARS: usize = 600;

/// Appends the section.
pub fn render(out: &mut String, difference: &Difference) {
    let _ = writeln!(
        out,
        "\nclaims: {} same, {} changed",
        difference.claims_same,
        difference.claims.len()
    );
    for claim in &difference.claims {
        render_claim(out, claim);
    }
}

fn render_claim(out: &mut String, claim: &ClaimDifference) {
    let mut what = Vec::new();
    match (&claim.before, &claim.after) {
        (None, _) => what.push("new"),
        (_, None) => what.push("gone"),
        (Some(before), Some(after)) if claim.value_changed || before.text != after.text => {
            what.push(if claim.value_changed {
                "other value"
            } else {
                "same value in other words"
            });
        }
        _ => what.push("same value, other citations"),
    }
    if claim.reduction_changed && claim.before.is_some() && claim.after.is_some() {
        what.push("its reduction changed");
    }
    let _ = writeln!(out, "  {}: {}", claim.claim, what.join(", "));
    let text = |side: &Option<ClaimSide>| side.as_ref().map(|side| clip(&side.text, CHARS));
    match (text(&claim.before), text(&claim.after)) {
        (Some(before), Some(after)) if before == after => {
            indented(out, "      ", 6, &before);
        }
        (before, after) => {
            for (sign, text) in [("    - ", before), ("    + ", after)] {
                if let Some(text) = text {
                    indented(out, sign, 6, &text);
                }
            }
        }
    }
    let total = |side: &Option<ClaimSide>| side.as_ref().map(|side| side.cites_total);
    let mut cites: Vec<String> = [
        ("added", &claim.cites_added),
        ("removed", &claim.cites_removed),
        ("other bytes of", &claim.cites_changed),
    ]
    .into_iter()
    .filter(|(_, units)| !units.is_empty())
    .map(|(what, units)| format!("{what} {}", list(units, UNITS, units.len() as u64)))
    .collect();
    if let (Some(before), Some(after)) = (total(&claim.before), total(&claim.after))
        && before != after
    {
        cites.push(format!("could cite {before} -> {after}"));
    }
    if !cites.is_empty() {
        indented(out, "      cites: ", 13, &cites.join("; "));
    }
    if claim.behind_total > 0 {
        let units = list(&claim.behind, UNITS, claim.behind_total);
        indented(out, "      behind it: ", 17, &units);
    }
}
