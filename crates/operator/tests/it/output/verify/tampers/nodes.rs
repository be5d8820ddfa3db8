//! Changes of nodes.

use super::*;

pub const NODES: &[Tamper] = tampers! {
    "a node is left out" => |artifact| {
        let place = node(artifact, 30);
        artifact.nodes.remove(30);
        place
    },
    "a node is there twice" => |artifact| {
        let twice = artifact.nodes[30].clone();
        artifact.nodes.insert(31, twice);
        node(artifact, 30)
    },
    "a node too many" => |artifact| {
        let mut more = artifact.nodes[30].clone();
        more.node.range.start = LeafKey::of_ordinal(80_000);
        more.path.pop();
        more.path.push(more.node.range);
        artifact.nodes.push(more);
        node(artifact, artifact.nodes.len() - 1)
    },
    "nodes change places" => |artifact| {
        let place = node(artifact, 40);
        artifact.nodes.swap(30, 40);
        place
    },
    "the hash of an input" => |artifact| {
        if let Child::Leaf { hashes, .. } = &mut artifact.nodes[40].node.children[2] {
            hashes.fact_hash = OTHER;
        }
        node(artifact, 40)
    },
    "its own hash" => |artifact| {
        artifact.nodes[40].node.hashes.fact_hash = OTHER;
        node(artifact, 40)
    },
    "its own provenance hash" => |artifact| {
        artifact.nodes[40].node.hashes.provenance_hash = OTHER;
        node(artifact, 40)
    },
    "a path" => |artifact| {
        let place = node(artifact, 40);
        artifact.nodes[40].path.remove(0);
        place
    },
    "a state" => |artifact| {
        let row = citing(artifact);
        match &mut artifact.nodes[row].node.states[1] {
            AggregateState::Count(units) => units.total ^= 1,
            other => panic!("{other:?}"),
        }
        node(artifact, row)
    },
    "the span of a citation" => |artifact| {
        let row = citing(artifact);
        artifact.nodes[row].citations[0].span.as_mut().unwrap().end += 1;
        node(artifact, row)
    },
    "the source hash of a citation" => |artifact| {
        let row = citing(artifact);
        artifact.nodes[row].citations[0].source_hash = OTHER;
        node(artifact, row)
    },
    "a citation is left out" => |artifact| {
        let row = citing(artifact);
        artifact.nodes[row].citations.pop();
        node(artifact, row)
    },
    "the name of what is folded" => |artifact| {
        artifact.nodes[40].node.spec = OTHER;
        node(artifact, 40)
    },
    "a cost" => |artifact| {
        artifact.nodes[2].node.cost.prompt_tokens += 1;
        node(artifact, 2)
    },
};

pub const NODES_RESEALED: &[Tamper] = tampers! {
    "two inputs change places" => |artifact| {
        artifact.nodes[40].node.children.swap(1, 2);
        node(artifact, 40)
    },
    "an input is left out" => |artifact| {
        artifact.nodes[40].node.children.pop();
        node(artifact, 40)
    },
    "more inputs than the plan allows" => |artifact| {
        let row = artifact.nodes.iter().position(|record| record.node.children.len() == 8);
        let row = row.unwrap();
        let more = artifact.nodes[row].node.children[7].clone();
        artifact.nodes[row].node.children.push(more);
        node(artifact, row)
    },
    "an input of another unit" => |artifact| {
        if let Child::Leaf { unit, .. } = &mut artifact.nodes[40].node.children[2] {
            unit.id = UnitId::new("999999");
        }
        node(artifact, 40)
    },
    "where its range starts" => |artifact| {
        let place = node(artifact, 40);
        artifact.nodes[40].node.range.start = LeafKey::of_ordinal(80_000);
        place
    },
    "the height of its range" => |artifact| {
        let place = node(artifact, 40);
        artifact.nodes[40].node.range.height = 9;
        place
    },
    "how many units it counts" => |artifact| {
        artifact.nodes[40].node.coverage.counts.units -= 1;
        node(artifact, 40)
    },
    "how its units ended" => |artifact| {
        let counts = &mut artifact.nodes[0].node.coverage.counts;
        counts.abstained -= 1;
        counts.decided += 1;
        node(artifact, 0)
    },
    "its first unit" => |artifact| {
        let coverage = &mut artifact.nodes[40].node.coverage;
        coverage.first.clone_from(&coverage.last);
        node(artifact, 40)
    },
    "its last unit" => |artifact| {
        artifact.nodes[40].node.coverage.last = None;
        node(artifact, 40)
    },
    "an abstaining unit dropped from what is unsettled" => |artifact| {
        let row = holder(artifact, &artifact.witness.abstained[0].clone());
        artifact.nodes[row].node.unsettled.best.clear();
        node(artifact, row)
    },
    "an abstaining unit dropped from the outliers" => |artifact| {
        let row = holder(artifact, &artifact.witness.abstained[0].clone());
        match &mut artifact.nodes[row].node.states[0] {
            AggregateState::Clusters(held) => held.abstained.best.clear(),
            other => panic!("{other:?}"),
        }
        node(artifact, row)
    },
    "a dissenting unit dropped from the outliers" => |artifact| {
        let row = holder(artifact, &artifact.witness.dissent[0].clone());
        match &mut artifact.nodes[row].node.states[0] {
            AggregateState::Clusters(held) => held.dissent = Default::default(),
            other => panic!("{other:?}"),
        }
        node(artifact, row)
    },
    "a count in a state" => |artifact| {
        let row = citing(artifact);
        match &mut artifact.nodes[row].node.states[1] {
            AggregateState::Count(units) => units.total += 1,
            other => panic!("{other:?}"),
        }
        node(artifact, row)
    },
    "states change places" => |artifact| {
        artifact.nodes[0].node.states.swap(1, 2);
        node(artifact, 0)
    },
    "a state is left out" => |artifact| {
        artifact.nodes[0].node.states.pop();
        node(artifact, 0)
    },
    "a unit cited that is none" => |artifact| {
        let row = citing(artifact);
        artifact.nodes[row].citations[0].unit_id = UnitId::new("999999");
        node(artifact, row)
    },
    "a cited unit is left out" => |artifact| {
        let row = citing(artifact);
        artifact.nodes[row].citations.pop();
        node(artifact, row)
    },
    "cited units change places" => |artifact| {
        let row = citing(artifact);
        artifact.nodes[row].citations.swap(0, 1);
        node(artifact, row)
    },
    "how many could be cited" => |artifact| {
        artifact.nodes[0].node.cited_total += 1;
        node(artifact, 0)
    },
    "a version" => |artifact| {
        artifact.nodes[40].node.version = 2;
        node(artifact, 40)
    },
};
