//! Changes of facts.

use super::*;

pub const FACTS: &[Tamper] = tampers! {
    "a fact is left out" => |artifact| unit(&artifact.facts.remove(999)),
    "a fact is there twice" => |artifact| {
        let twice = artifact.facts[5].clone();
        artifact.facts.push(twice);
        unit(&artifact.facts[5])
    },
    "two facts change places" => |artifact| {
        artifact.facts.swap(5, 6);
        unit(&artifact.facts[5])
    },
    "an ordinal" => |artifact| {
        artifact.facts[7].ordinal = 2_000;
        unit(&artifact.facts[7])
    },
    "a schema" => |artifact| {
        artifact.facts[7].schema = 1;
        unit(&artifact.facts[7])
    },
    "a status" => |artifact| {
        let at = decided(artifact);
        artifact.facts[at].status = Status::Abstained;
        unit(&artifact.facts[at])
    },
    "a quote, its hash left" => |artifact| {
        let at = decided(artifact);
        artifact.facts[at].evidence[0].quote = Some(String::from("never written"));
        unit(&artifact.facts[at])
    },
    "a source hash" => |artifact| {
        artifact.facts[3].source_hash = OTHER;
        unit(&artifact.facts[3])
    },
    "a label" => |artifact| {
        let at = decided(artifact);
        artifact.facts[at].values.get_mut("blocker").unwrap().label = "maybe".to_owned();
        unit(&artifact.facts[at])
    },
    "a reason" => |artifact| {
        let at = find(artifact, |fact| fact.status == Status::Excluded);
        artifact.facts[at].reason = Some(String::from("nobody cares"));
        unit(&artifact.facts[at])
    },
    "a cost" => |artifact| {
        let at = decided(artifact);
        artifact.facts[at].cost.computed_tokens += 1;
        unit(&artifact.facts[at])
    },
    "a fact called remembered" => |artifact| {
        let at = decided(artifact);
        artifact.facts[at].remembered = true;
        unit(&artifact.facts[at])
    },
};

pub const FACTS_RESEALED: &[Tamper] = tampers! {
    "a source hash" => |artifact| {
        artifact.facts[3].source_hash = OTHER;
        unit(&artifact.facts[3])
    },
    "a quote with its hash" => |artifact| {
        let at = decided(artifact);
        let evidence = &mut artifact.facts[at].evidence[0];
        let quote = "x".repeat(evidence.quote.as_ref().unwrap().len());
        evidence.quote_hash = ContentHash::of_bytes(quote.as_bytes());
        evidence.quote = Some(quote);
        unit(&artifact.facts[at])
    },
    "a quote hash where the quote is redacted" => |artifact| {
        let at = decided(artifact);
        let evidence = &mut artifact.facts[at].evidence[0];
        evidence.quote_hash = OTHER;
        evidence.quote = None;
        unit(&artifact.facts[at])
    },
    "a span moved past its field" => |artifact| {
        let at = decided(artifact);
        let evidence = &mut artifact.facts[at].evidence[0];
        (evidence.start, evidence.end) = (evidence.start + 70_000, evidence.end + 70_000);
        unit(&artifact.facts[at])
    },
    "a span whose end is before its start" => |artifact| {
        let at = decided(artifact);
        let evidence = &mut artifact.facts[at].evidence[0];
        (evidence.start, evidence.end) = (9, 1);
        unit(&artifact.facts[at])
    },
    "a unit that no record is" => |artifact| {
        artifact.facts[9].unit_id = UnitId::new("999999");
        unit(&artifact.facts[9])
    },
    "an abstention called decided" => |artifact| {
        let at = find(artifact, |fact| fact.status == Status::Abstained);
        artifact.facts[at].status = Status::Decided;
        artifact.facts[at].reason = None;
        unit(&artifact.facts[at])
    },
    "a decision excluded by a predicate that does not match" => |artifact| {
        let at = decided(artifact);
        let fact = &mut artifact.facts[at];
        *fact = Fact {
            status: Status::Excluded,
            stage: String::from("prefilter:closed"),
            reason: Some(String::from("the issue is closed")),
            values: Default::default(),
            evidence: Vec::new(),
            simulated: false,
            backend: None,
            ..fact.clone()
        };
        unit(&artifact.facts[at])
    },
    "a decision of a model called that of a predicate" => |artifact| {
        let at = decided(artifact);
        artifact.facts[at].stage = String::from("prefilter:closed");
        unit(&artifact.facts[at])
    },
    "a simulated answer called real" => |artifact| {
        let at = decided(artifact);
        artifact.facts[at].simulated = false;
        unit(&artifact.facts[at])
    },
    "another backend" => |artifact| {
        let at = decided(artifact);
        artifact.facts[at].backend = Some(String::from("somebody"));
        unit(&artifact.facts[at])
    },
    "a column that the plan does not have" => |artifact| {
        let value = ColumnValue::Integer(3);
        artifact.facts[3].columns.insert(String::from("votes"), value);
        unit(&artifact.facts[3])
    },
    "a probability" => |artifact| {
        let at = decided(artifact);
        let value = artifact.facts[at].values.get_mut("blocker").unwrap();
        value.probability_ppm = Some(1_000_000);
        unit(&artifact.facts[at])
    },
    "a record called unreadable" => |artifact| {
        let fact = &mut artifact.facts[11];
        *fact = Fact::bare(
            fact.unit_id.clone(), fact.ordinal, fact.source_hash, Status::Errored, "partition",
            Some(String::from("malformed: element 12: it is cut off")),
        );
        unit(&artifact.facts[11])
    },
};
