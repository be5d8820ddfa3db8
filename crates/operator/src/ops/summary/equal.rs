//! Which number of the claims a written one equals.
//!
//! Only numbers of one kind are compared: plain ones by being equal, percentages and shares also with
//! the ratio of two counts, ordinals with the places of a list. Must not know texts.

use super::amount::Amount;
use super::known::{Known, Named, Role};
use super::scan::Said;

/// The first number of the claims that the written one equals; of a label's or unit's own numbers
/// only, where one is given.
pub(super) fn equal(known: &Known, said: &Said, of: Option<&str>) -> Option<String> {
    let numbers = Numbers { known, of };
    match said {
        Said::Number(amount) => numbers.plain(*amount),
        Said::Percent(amount) => numbers.percent(*amount),
        Said::Share(part, whole) => numbers
            .ratio(|a, b| u128::from(a) * u128::from(*whole) == u128::from(b) * u128::from(*part)),
        Said::Ordinal(place) => numbers.place(*place),
        Said::Vague | Said::Unit(_) | Said::Quote(_) | Said::Odd(_) => None,
    }
}

struct Numbers<'k> {
    known: &'k Known,
    of: Option<&'k str>,
}

impl<'k> Numbers<'k> {
    fn own(&self) -> impl Iterator<Item = (usize, &'k Named)> {
        let of = self.of;
        let own = move |(_, named): &(usize, &Named)| of.is_none() || named.of.as_deref() == of;
        self.known.numbers.iter().enumerate().filter(own)
    }

    fn plain(&self, amount: Amount) -> Option<String> {
        let equal =
            |named: &&Named| !matches!(named.role, Role::Ppm(_)) && amount.equals(named.amount);
        let mut own = self.own().map(|(_, named)| named);
        own.find(equal).map(|named| named.name.clone())
    }

    fn percent(&self, amount: Amount) -> Option<String> {
        let share = |named: &&Named| matches!(named.role, Role::Ppm(ppm) if amount.is_percent_of(ppm, 1_000_000));
        let found = self.own().map(|(_, named)| named).find(share);
        let ratio = || self.ratio(|part, whole| amount.is_percent_of(part, whole));
        found.map(|named| named.name.clone()).or_else(ratio)
    }

    /// Two different counts, the first at most the second, of which something holds.
    fn ratio(&self, holds: impl Fn(u64, u64) -> bool) -> Option<String> {
        self.known
            .numbers
            .iter()
            .enumerate()
            .find_map(|(place, whole)| {
                let Role::Whole(all) = whole.role else {
                    return None;
                };
                self.own().find_map(|(other, part)| {
                    let (Role::Part(some) | Role::Whole(some)) = part.role else {
                        return None;
                    };
                    let fits = other != place && all > 0 && some <= all && holds(some, all);
                    fits.then(|| format!("{} of {}", part.name, whole.name))
                })
            })
    }

    fn place(&self, place: u64) -> Option<String> {
        if self.known.percentiles.contains(&place) {
            return Some(format!("{place} % of a quantile"));
        }
        let listed = (1..=self.known.places).contains(&place);
        listed.then(|| format!("place {place} of a list"))
    }
}
