//! What units are called that are not records: names derived from those of their members.
//!
//! `12+15` is a pair, `12#title` a field. A character that would make two names one is escaped.

use crate::canonical::Canonical;
use crate::id::{UnitId, hex};
use crate::ops::partition::ID_BYTES_MAX;

/// Members whose ids are written out.
const WRITTEN_MAX: usize = 4;

/// The id of a group; its members come in the order in which it shows them.
pub(crate) fn of_group(members: &[UnitId]) -> UnitId {
    let written: Vec<String> = members.iter().map(|id| escape(id.as_str())).collect();
    let joined = written.join("+");
    if members.len() <= WRITTEN_MAX && joined.len() <= ID_BYTES_MAX {
        return UnitId::new(&joined);
    }
    let mut canonical = Canonical::new("operator 2026 group id v1");
    canonical.list(members.len());
    for member in members {
        canonical.text(member.as_str());
    }
    let digest = hex(&canonical.digest()[..16]);
    let others = members.len() - 1;
    let first = written.first().filter(|first| first.len() <= 64);
    UnitId::new(&match first {
        Some(first) => format!("{first}+{others}~{digest}"),
        None => format!("{others}~{digest}"),
    })
}

/// The id of one field of a record.
pub(super) fn of_field(record: &UnitId, field: &str) -> UnitId {
    let joined = format!("{}#{field}", escape(record.as_str()));
    if joined.len() <= ID_BYTES_MAX {
        return UnitId::new(&joined);
    }
    let mut canonical = Canonical::new("operator 2026 field id v1");
    canonical.text(record.as_str()).text(field);
    UnitId::new(&format!("~{}", hex(&canonical.digest()[..16])))
}

fn escape(id: &str) -> String {
    let mut escaped = String::with_capacity(id.len());
    for character in id.chars() {
        match character {
            '%' => escaped.push_str("%25"),
            '+' => escaped.push_str("%2B"),
            '#' => escaped.push_str("%23"),
            '~' => escaped.push_str("%7E"),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(ids: &[&str]) -> String {
        let ids: Vec<UnitId> = ids.iter().map(|id| UnitId::new(id)).collect();
        of_group(&ids).to_string()
    }

    #[test]
    fn different_members_make_different_ids() {
        assert_eq!(group(&["12", "15"]), "12+15");
        let groups: [&[&str]; 8] = [
            &["a+b", "c"],
            &["a", "b+c"],
            &["a", "b", "c"],
            &["a%2Bb", "c"],
            &["1", "2", "3", "4", "5"],
            &["1", "2", "3", "4", "6"],
            &["5", "2", "3", "4", "1"],
            &["1"],
        ];
        let ids: std::collections::BTreeSet<String> = groups.iter().map(|ids| group(ids)).collect();
        assert_eq!(ids.len(), groups.len());
    }

    #[test]
    fn an_id_stays_within_its_bound_whatever_its_members_are_called() {
        let long = "x".repeat(ID_BYTES_MAX);
        assert!(group(&[&long, "1"]).len() <= ID_BYTES_MAX);
        assert!(group(&[&long, &long, "3", "4", "5", "6"]).len() <= ID_BYTES_MAX);
        let field = of_field(&UnitId::new(&long), "title");
        assert!(field.as_str().len() <= ID_BYTES_MAX);
        assert_ne!(field, of_field(&UnitId::new(&long), "body"));
        let (one, other) = (UnitId::new("a#b"), UnitId::new("a"));
        assert_ne!(of_field(&one, "c"), of_field(&other, "b#c"));
    }
}
