//! Similar texts are found again, however many there are and however many threads look.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{plan, units_of};

/// A small generator of numbers, the same everywhere.
struct Draw(u64);

impl Draw {
    fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % most as u64) as usize
    }
}

/// Texts of 30 words out of 600; each of the first has a copy in which every fourth word is another,
/// and the words stand in another order.
fn planted(pairs: usize, strangers: usize) -> (Vec<Value>, BTreeSet<String>) {
    let mut draw = Draw(0x9e37_79b9_7f4a_7c15);
    let text = |draw: &mut Draw| -> Vec<String> {
        (0..30)
            .map(|_| format!("word{}", draw.below(600)))
            .collect()
    };
    let mut records = Vec::new();
    let mut wanted = BTreeSet::new();
    for pair in 0..pairs {
        let one = text(&mut draw);
        let mut other = one.clone();
        for place in (0..other.len()).step_by(4) {
            other[place] = format!("word{}", draw.below(600));
        }
        for place in (1..other.len()).rev() {
            other.swap(place, draw.below(place + 1));
        }
        for (id, words) in [(2 * pair, one), (2 * pair + 1, other)] {
            records.push(json!({ "number": id, "title": "ticket", "body": words.join(" ") }));
        }
        wanted.insert(format!("{}+{}", 2 * pair, 2 * pair + 1));
    }
    for stranger in 0..strangers {
        let words = text(&mut draw).join(" ");
        records.push(json!({ "number": 2 * pairs + stranger, "title": "ticket", "body": words }));
    }
    (records, wanted)
}

const NEAR: &str =
    "[unit]\nkind = \"group\"\n[group]\nby = \"similarity\"\nmost = 2\nat_least = 0.4";

#[test]
fn planted_pairs_are_found_among_strangers_and_hardly_anything_else() {
    let (records, wanted) = planted(120, 260);
    let units = units_of(&plan(NEAR), &records);
    let found: BTreeSet<String> = units
        .iter()
        .filter(|unit| unit.skip.is_none())
        .map(|unit| unit.id.to_string())
        .collect();
    let right = found.intersection(&wanted).count();
    assert!(
        right * 100 >= wanted.len() * 98,
        "{right} of {}",
        wanted.len()
    );
    assert!(
        found.len() - right <= 6,
        "{} are no pairs",
        found.len() - right
    );
}

#[test]
fn neither_threads_nor_repetition_show_in_what_is_similar() {
    let (records, _) = planted(40, 80);
    let told = || -> Vec<(String, Value)> {
        let plan = plan("[unit]\nkind = \"group\"\n[group]\nby = \"similarity\"\nat_least = 0.0");
        units_of(&plan, &records)
            .into_iter()
            .map(|unit| (unit.id.to_string(), unit.record.fields["unit"].clone()))
            .collect()
    };
    let pool = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
        pool.unwrap().install(told)
    };
    let one = pool(1);
    assert_eq!(one, pool(4));
    assert_eq!(one, told());
    let ppm = |unit: &Value| unit["similarity_ppm"].as_u64();
    assert!(
        one.iter()
            .all(|(_, unit)| ppm(unit).is_none_or(|ppm| ppm <= 1_000_000))
    );
}

#[test]
fn a_least_similarity_and_a_span_of_time_keep_records_apart() {
    let day = |day: u32| format!("2026-03-{day:02}");
    let record = |id: u32, at: u32| json!({ "number": id, "title": "token refresh fails", "body": "proxy drops it", "opened": day(at) });
    let mut records = vec![record(1, 1), record(2, 3), record(3, 20)];
    records.push(
        json!({ "number": 4, "title": "disk is full", "body": "on all hosts", "opened": day(1) }),
    );
    let near = |more: &str| -> Vec<String> {
        let unit = format!("[unit]\nkind = \"group\"\n[group]\nby = \"similarity\"\n{more}");
        let units = units_of(&plan(&unit), &records);
        units
            .iter()
            .filter(|unit| unit.skip.is_none())
            .map(|unit| unit.id.to_string())
            .collect()
    };
    assert_eq!(near("at_least = 0.9"), ["1+2", "1+3", "2+3"]);
    assert_eq!(near("within = \"7d\"\norder_by = \"opened\""), ["1+2"]);
}
