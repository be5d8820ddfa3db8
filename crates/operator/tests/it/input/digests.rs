//! Pinned digests: a change of the encoding shows here before it silently misses every stored fact.

use operator::canonical::Canonical;
use operator::id::{ContentHash, FactKey, UnitId};
use operator::infer::Answer;
use operator::record::BadRecord;
use operator::text::render;
use serde_json::json;

use super::{plan, read, split};

const DOMAIN: &str = "operator test v1";

fn digest(write: impl FnOnce(&mut Canonical) -> &mut Canonical) -> ContentHash {
    let mut canonical = Canonical::new(DOMAIN);
    write(&mut canonical);
    ContentHash::of(&canonical)
}

#[test]
fn golden_digests() {
    let unit =
        split(r#"[{"id":1,"title":"Login","body":"a\r\nb","n":[1,-2,2.5,true,null,{"k":"v"}]}]"#)
            .unwrap()
            .units
            .remove(0);
    let (_, bad) = read("{\"a\":1}\n{\"a\":\n");
    let BadRecord { hash: bad_hash, .. } = bad[0];
    let canonical = digest(|c| {
        c.u64(1)
            .i64(-1)
            .bool(true)
            .text("t")
            .bytes(b"b")
            .list(1)
            .map(0)
            .none()
            .some()
            .u32(2)
    });
    let found = [
        ("canonical", canonical),
        ("record", unit.source_hash),
        ("unreadable record", bad_hash),
        ("unit text", render(&plan(), &unit).unwrap().text_hash),
        ("rubric", plan().rubric().hash),
        ("plan", plan().hash()),
        ("file", ContentHash::of_bytes(b"abc")),
    ];
    let golden = include_str!("digests.txt");
    let found: String = found
        .iter()
        .map(|(name, hash)| format!("{hash} {name}\n"))
        .collect();
    assert_eq!(found, golden);
}

#[test]
fn lengths_tags_and_domains_keep_values_apart() {
    assert_ne!(
        digest(|c| c.text("ab").text("c")),
        digest(|c| c.text("a").text("bc"))
    );
    assert_ne!(digest(|c| c.text("a")), digest(|c| c.bytes(b"a")));
    assert_ne!(digest(|c| c.none()), digest(|c| c.text("")));
    assert_ne!(digest(|c| c.u64(1)), digest(|c| c.i64(1)));
    assert_ne!(
        digest(|c| c),
        ContentHash::of(&Canonical::new("operator test v2"))
    );
    let value = |value| digest(|c| c.value(&value));
    assert_eq!(
        value(json!({"a": 1, "b": 2})),
        value(json!({"b": 2, "a": 1}))
    );
    assert_ne!(value(json!([1, 2])), value(json!([2, 1])));
    assert_ne!(value(json!("1")), value(json!(1)));
    assert_ne!(value(json!(null)), value(json!("")));
    assert_ne!(value(json!([[1], 2])), value(json!([[1, 2]])));
}

#[test]
fn hashes_print_and_parse_as_hex() {
    let hash = ContentHash::of_bytes(b"abc");
    assert_eq!(hash.to_string().parse::<ContentHash>().unwrap(), hash);
    let key = FactKey::from_bytes(*hash.as_bytes());
    assert_eq!(serde_json::to_value(key).unwrap(), json!(hash.to_string()));
    assert_eq!(
        serde_json::from_value::<FactKey>(json!(hash.to_string())).unwrap(),
        key
    );
    assert!("zz".parse::<FactKey>().is_err());
    assert!("\u{e9}".repeat(32).parse::<FactKey>().is_err());
    assert_eq!(serde_json::to_value(UnitId::new("7")).unwrap(), json!("7"));
}

#[test]
fn probabilities_round_to_exactly_one_million() {
    let thirds = Answer::from_weights(&[1.0, 1.0, 1.0], 0.5).unwrap();
    assert_eq!(thirds.probabilities, [333_334, 333_333, 333_333]);
    assert_eq!(
        (thirds.chosen, thirds.margin_ppm, thirds.label_mass_ppm),
        (0, 1, 500_000)
    );
    let tie = Answer::from_weights(&[0.25, 0.375, 0.375], 1.0).unwrap();
    assert_eq!((tie.chosen, tie.margin_ppm), (1, 0));
    let one = Answer::from_weights(&[0.1], 1.0).unwrap();
    assert_eq!((one.chosen, one.margin_ppm), (0, 1_000_000));
    for bad in [
        &[][..],
        &[0.0, 0.0],
        &[f64::NAN, 1.0],
        &[-1.0, 2.0],
        &[f64::INFINITY, 1.0],
    ] {
        assert_eq!(Answer::from_weights(bad, 1.0), None, "{bad:?}");
    }
    assert_eq!(Answer::from_ppm(vec![1, 2], 0), None);
    for seed in 1..200_u32 {
        let weights: Vec<f64> = (1..=7)
            .map(|i| f64::from(seed * i % 97 + 1).recip())
            .collect();
        let answer = Answer::from_weights(&weights, 1.0).unwrap();
        assert_eq!(answer.probabilities.iter().sum::<u32>(), 1_000_000);
    }
}
