//! What claims say and how many facts they could cite.

use operator::answer::Claim;
use operator::column::ColumnValue;
use operator::fact::Fact;
use operator::plan::Plan;

use super::facts::{Draw, every_operation, fact, reduced};

fn decided(number: u32, comments: i64) -> Fact {
    let draw = Draw {
        status: 1,
        tenths: 9,
        cause: 0,
        certain: false,
        comments: Some(comments),
        author: 0,
    };
    fact(&number.to_string(), number, &draw)
}

fn claim(plan: &Plan, facts: &[Fact], name: &str) -> Claim {
    let claims = reduced(plan, facts, 8).claims;
    claims.into_iter().find(|claim| claim.name == name).unwrap()
}

#[test]
fn an_extreme_tells_how_many_units_share_it_beyond_those_that_it_cites() {
    let mut facts: Vec<Fact> = (0..40).map(|number| decided(number, 7)).collect();
    facts.extend((40..60).map(|number| decided(number, 3)));
    let most = claim(&every_operation(), &facts, "most");
    assert_eq!(most.value, 7);
    assert_eq!((most.cites.len(), most.cites_total), (8, 40));
    facts.push(decided(60, 8));
    let most = claim(&every_operation(), &facts, "most");
    assert_eq!((most.cites.len(), most.cites_total), (1, 1));
    assert_eq!(most.cites[0].unit_id.as_str(), "60");
}

#[test]
fn a_key_that_is_called_like_a_part_of_another_value_is_counted_like_any_other() {
    for keys in [
        ["mean_milli", "units"],
        ["estimate", "standard_error_ppm"],
        ["quantiles", "error_max_ppm"],
        ["clusters", "dissent"],
    ] {
        let name = |(number, key): (u32, &str)| {
            let mut fact = decided(number, 0);
            let author = ColumnValue::Text(key.to_owned());
            fact.columns.insert(String::from("author"), author);
            fact
        };
        let facts: Vec<Fact> = (0..).zip([keys[0], keys[1], keys[1]]).map(name).collect();
        let counted = claim(&every_operation(), &facts, "by-author");
        let wanted = format!("by author: {} 2, {} 1", keys[1], keys[0]);
        assert!(counted.text.ends_with(&wanted), "{}", counted.text);
    }
}
