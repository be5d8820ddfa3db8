//! Changes of the answer and of the artifact around it.

use super::*;

pub const ANSWER: &[Tamper] = tampers! {
    "result_hash" => |artifact| {
        artifact.answer.result_hash = OTHER;
        Place::Answer
    },
    "the hash of the tree" => |artifact| {
        artifact.answer.tree.as_mut().unwrap().hashes.fact_hash = OTHER;
        Place::Answer
    },
    "who answered" => |artifact| {
        artifact.answer.backend.digest = OTHER;
        Place::Answer
    },
    "a quote of a claim" => |artifact| {
        let span = claim_mut(artifact, "blockers").cites[0].span.as_mut();
        span.unwrap().quote = Some(String::from("never written"));
        claim("blockers")
    },
    "the format" => |artifact| {
        artifact.format = String::from("provenance fold v0");
        artifact_file()
    },
    "the plan" => |artifact| {
        artifact.plan = artifact.plan.replace("k = 3", "k = 2");
        artifact_file()
    },
    "the hash of the records" => |artifact| {
        artifact.source_hash = OTHER;
        artifact_file()
    },
};

pub const ANSWER_RESEALED: &[Tamper] = tampers! {
    "a value" => |artifact| {
        let claim_of = claim_mut(artifact, "blockers");
        claim_of.value = json!(claim_of.value.as_u64().unwrap() + 1);
        claim("blockers")
    },
    "a number in a text" => |artifact| {
        let claim_of = claim_mut(artifact, "blockers");
        claim_of.text = format!("9{}", claim_of.text);
        claim("blockers")
    },
    "a word in a text" => |artifact| {
        let claim_of = claim_mut(artifact, "blockers");
        claim_of.text = claim_of.text.replace(" are release", " are no release");
        claim("blockers")
    },
    "an exemplar" => |artifact| {
        let value = &mut claim_mut(artifact, "causes").value;
        value["clusters"][0]["exemplars"][0] = json!("999999");
        claim("causes")
    },
    "a dissenting unit dropped" => |artifact| {
        claim_mut(artifact, "causes").value["dissent"] = json!([]);
        claim("causes")
    },
    "a cite is left out" => |artifact| {
        claim_mut(artifact, "causes").cites.remove(3);
        claim("causes")
    },
    "a cite of another unit" => |artifact| {
        let other = claim_mut(artifact, "causes").cites[4].clone();
        claim_mut(artifact, "blockers").cites[0] = other;
        claim("blockers")
    },
    "a cite of a unit that is none" => |artifact| {
        claim_mut(artifact, "blockers").cites[0].unit_id = UnitId::new("999999");
        claim("blockers")
    },
    "the span of a cite" => |artifact| {
        let span = claim_mut(artifact, "blockers").cites[0].span.as_mut();
        span.unwrap().start += 1;
        claim("blockers")
    },
    "cites change places" => |artifact| {
        claim_mut(artifact, "causes").cites.swap(0, 1);
        claim("causes")
    },
    "how many could be cited" => |artifact| {
        claim_mut(artifact, "causes").cites_total -= 1;
        claim("causes")
    },
    "a refusal" => |artifact| {
        claim_mut(artifact, "surest").refused = Some(String::from("too many"));
        claim("surest")
    },
    "a claim is left out" => |artifact| {
        claim(&artifact.answer.claims.remove(2).name)
    },
    "a claim too many" => |artifact| {
        let mut more = artifact.answer.claims[1].clone();
        more.name = String::from("praise");
        artifact.answer.claims.push(more);
        claim("praise")
    },
    "a claim is there twice" => |artifact| {
        let twice = artifact.answer.claims[1].clone();
        artifact.answer.claims.push(twice);
        claim("blockers")
    },
    "claims change places" => |artifact| {
        artifact.answer.claims.swap(1, 3);
        claim("blockers")
    },
    "coverage" => |artifact| {
        artifact.answer.coverage.excluded -= 1;
        artifact.answer.coverage.decided += 1;
        Place::Answer
    },
    "coverage by reason" => |artifact| {
        artifact.answer.coverage_by_reason.swap(0, 1);
        Place::Answer
    },
    "complete" => |artifact| {
        artifact.answer.complete = false;
        Place::Answer
    },
    "simulated" => |artifact| {
        artifact.answer.simulated = false;
        Place::Answer
    },
    "simulated, and so the backend" => |artifact| {
        artifact.answer.simulated = false;
        artifact.answer.backend.simulated = false;
        let at = decided(artifact);
        unit(&artifact.facts[at])
    },
    "the question" => |artifact| {
        artifact.answer.question.push('?');
        Place::Answer
    },
    "the plan's hash" => |artifact| {
        artifact.answer.plan_hash = OTHER;
        Place::Answer
    },
    "the source's hash" => |artifact| {
        artifact.answer.source.hash = OTHER;
        Place::Answer
    },
    "how many records there are" => |artifact| {
        artifact.answer.source.records = 999;
        Place::Answer
    },
    "the levels of the tree" => |artifact| {
        artifact.answer.tree.as_mut().unwrap().levels = 3;
        Place::Answer
    },
    "the width of the tree" => |artifact| {
        artifact.answer.tree.as_mut().unwrap().fan_in = 13;
        Place::Answer
    },
    "no tree" => |artifact| {
        artifact.answer.tree = None;
        Place::Answer
    },
    "a version" => |artifact| {
        artifact.answer.version = 1;
        Place::Answer
    },
};
