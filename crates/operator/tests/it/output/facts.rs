//! Facts without a model, and a plan with every operation that code folds.

use std::collections::BTreeMap;

use operator::column::ColumnValue;
use operator::fact::{Evidence, Fact, FieldValue, Status};
use operator::fold::{FoldSpec, Leaves, Node, NodeCache, StoredStates, fold};
use operator::id::{ContentHash, UnitId};
use operator::ops::reduce::{Reduction, reduce, spec};
use operator::plan::Plan;
use proptest::prelude::*;

pub const EVERY_OPERATION: &str = r#"
version = 1
question = "Which issues block the release, and why?"
rubric = "Judge one issue."

[input]
id = "number"
text = [{ field = "title" }]

[unit]
kind = "group"

[group]
by = "similarity"

[fold]
outliers_max = 100

[[field]]
name = "blocker"
question = "Does it block the release?"
labels = ["yes", "no"]

[[field]]
name = "cause"
question = "What causes it?"
labels = ["token", "session", "security", "none"]

[[column]]
name = "comments"
type = "integer"

[[column]]
name = "author"
type = "text"

[[column]]
name = "opened"
type = "time"

[[reduce]]
name = "blockers"
op = "count"
where = { blocker = "yes" }
claim = "{count} issues block the release"

[[reduce]]
name = "ids"
op = "set"
where = { blocker = "yes" }
cite_max = 3

[[reduce]]
name = "authors"
op = "set"
field = "author"

[[reduce]]
name = "by-cause"
op = "count_by"
field = "cause"

[[reduce]]
name = "by-author"
op = "count_by"
field = "author"
keys_max = 5

[[reduce]]
name = "causes"
op = "top_keys"
field = "cause"
k = 2
where = { blocker = "yes" }

[[reduce]]
name = "surest"
op = "top_k"
field = "blocker"
label = "yes"
k = 5

[[reduce]]
name = "quietest"
op = "top_k"
field = "comments"
order = "smallest"
k = 3

[[reduce]]
name = "spread"
op = "histogram"
field = "blocker"
label = "yes"
edges = [250000, 750000]

[[reduce]]
name = "talk"
op = "histogram"
field = "comments"
edges = [-5, 0, 5]

[[reduce]]
name = "first"
op = "min"
field = "opened"

[[reduce]]
name = "most"
op = "max"
field = "comments"

[[reduce]]
name = "all-comments"
op = "sum"
field = "comments"

[[reduce]]
name = "mean-comments"
op = "mean"
field = "comments"

[[reduce]]
name = "quantiles"
op = "quantiles"
field = "comments"
at = [0, 50, 90, 100]

[[reduce]]
name = "frequent"
op = "heavy_hitters"
field = "author"
k = 2

[[reduce]]
name = "different"
op = "distinct"
field = "author"

[[reduce]]
name = "both"
op = "join"
kind = "inner"
left = { where = { blocker = "yes" }, key = "author" }
right = { where = { blocker = "no" }, key = "author" }

[[reduce]]
name = "only"
op = "join"
kind = "anti"
left = { where = { blocker = "yes" }, key = "author" }
right = { where = { blocker = "no" }, key = "author" }

[[reduce]]
name = "clusters"
op = "clusters"
field = "cause"
taxonomy = "causes v1"
unclustered = "none"
dissent = ["security"]
exemplars = 2

[[reduce]]
name = "connected"
op = "components"
field = "blocker"
label = "yes"
keys_max = 12
"#;

pub const CAUSES: [&str; 4] = ["token", "session", "security", "none"];
const AUTHORS: [&str; 7] = ["ada", "bo", "cy", "di", "eve", "fay", "gil"];

pub fn every_operation() -> Plan {
    Plan::parse(EVERY_OPERATION, "every.toml").unwrap()
}

/// What a random fact is made of.
#[derive(Debug, Clone)]
pub struct Draw {
    pub status: usize,
    pub tenths: u32,
    pub cause: usize,
    pub certain: bool,
    pub comments: Option<i64>,
    pub author: usize,
}

/// Decided twice as often as the rest, since only decided facts reach most reducers; few distinct
/// values, so that ties are common.
pub fn draw() -> impl Strategy<Value = Draw> {
    let comments = prop::option::of(prop_oneof![-9..9_i64, Just(i64::MAX), Just(i64::MIN)]);
    let one = (
        0..12_usize,
        0..=10_u32,
        0..4_usize,
        any::<bool>(),
        comments,
        0..9_usize,
    );
    one.prop_map(|(status, tenths, cause, certain, comments, author)| Draw {
        status: if status > 5 { 1 } else { status },
        tenths,
        cause,
        certain,
        comments,
        author,
    })
}

pub fn fact(id: &str, ordinal: u32, draw: &Draw) -> Fact {
    let text = format!("line of {id}");
    let yes_ppm = draw.tenths * 100_000;
    let (label, other) = if yes_ppm >= 500_000 {
        ("yes", "no")
    } else {
        ("no", "yes")
    };
    let best = yes_ppm.max(1_000_000 - yes_ppm);
    let judged = FieldValue {
        probability_ppm: Some(best),
        margin_ppm: Some(2 * best - 1_000_000),
        label_mass_ppm: Some(1_000_000),
        alternatives: vec![(other.to_owned(), 1_000_000 - best)],
        ..FieldValue::set(label)
    };
    let blocker = if draw.certain {
        FieldValue::set(label)
    } else {
        judged
    };
    let status = Status::ALL[draw.status];
    let source_hash = ContentHash::of_bytes(text.as_bytes());
    let mut fact = Fact::bare(UnitId::new(id), ordinal, source_hash, status, "map", None);
    if matches!(status, Status::Decided | Status::Abstained) {
        fact.values = BTreeMap::from([
            (String::from("blocker"), blocker),
            (String::from("cause"), FieldValue::set(CAUSES[draw.cause])),
        ]);
    }
    if let Some(comments) = draw.comments {
        let value = ColumnValue::Integer(comments);
        fact.columns.insert(String::from("comments"), value);
    }
    if let Some(author) = AUTHORS.get(draw.author) {
        let value = ColumnValue::Text((*author).to_owned());
        fact.columns.insert(String::from("author"), value);
    }
    let opened = ColumnValue::Integer(1_700_000_000 + i64::from(ordinal % 7));
    fact.columns.insert(String::from("opened"), opened);
    if draw.author != draw.cause {
        let members = [draw.author, draw.cause].map(|n| UnitId::new(&format!("m{}", n * 7)));
        fact.members = members.to_vec();
    }
    fact.evidence = vec![Evidence::new("title", 0, text.len() as u32, text, Some(1))];
    fact.cost.prompt_tokens = u64::from(ordinal) + 1;
    fact.cost.computed_tokens = 1;
    fact.cost.cached_tokens = u64::from(ordinal);
    fact
}

/// Random facts of distinct units: numbers with gaps, in order.
pub fn facts(most: usize) -> impl Strategy<Value = Vec<Fact>> {
    prop::collection::vec((draw(), 1..40_u32), 0..most).prop_map(|rows| {
        let mut number = 0;
        (0..)
            .zip(rows)
            .map(|(ordinal, (draw, gap))| {
                number += gap;
                fact(&number.to_string(), ordinal, &draw)
            })
            .collect()
    })
}

/// Random facts and the same facts in another order.
pub fn shuffled(most: usize) -> impl Strategy<Value = (Vec<Fact>, Vec<Fact>)> {
    facts(most).prop_flat_map(|facts| (Just(facts.clone()), Just(facts).prop_shuffle()))
}

/// The plan's reducers under another width of the tree.
pub fn spec_of(plan: &Plan, fan_in: u32) -> FoldSpec {
    FoldSpec::new(spec(plan).reducers, fan_in, plan.fold.key)
}

pub fn reduced(plan: &Plan, facts: &[Fact], fan_in: u32) -> Reduction {
    let facts = facts.to_vec();
    let spec = spec_of(plan, fan_in);
    reduce(
        plan,
        &Leaves::arrange(&spec, &facts).unwrap(),
        &(),
        &|_, _| {},
    )
    .unwrap()
}

/// Folds and keeps every node, children before parents.
pub fn folded(spec: &FoldSpec, facts: &[Fact]) -> (Option<Node>, Vec<Node>) {
    let facts = facts.to_vec();
    let nodes = std::sync::Mutex::new(Vec::new());
    let (root, _) = fold(&Leaves::arrange(spec, &facts).unwrap(), &(), &|node, _| {
        nodes.lock().unwrap().push(node.clone());
    })
    .unwrap();
    (root, nodes.into_inner().unwrap())
}

/// Remembers every leaf and node of earlier folds.
#[derive(Default)]
pub struct Memory {
    leaves: std::collections::HashSet<ContentHash>,
    nodes: std::collections::HashMap<ContentHash, StoredStates>,
}

impl Memory {
    pub fn learn(&mut self, spec: &FoldSpec, facts: &[Fact]) {
        self.leaves.extend(facts.iter().map(Fact::provenance_hash));
        for node in folded(spec, facts).1 {
            let states = StoredStates {
                states: node.states,
                unsettled: node.unsettled,
                cited_total: node.cited_total,
            };
            self.nodes.insert(node.hashes.fact_hash, states);
        }
    }
}

impl NodeCache for Memory {
    fn states(&self, fact_hash: &ContentHash) -> Option<StoredStates> {
        self.nodes.get(fact_hash).cloned()
    }

    fn has_leaf(&self, provenance_hash: &ContentHash) -> bool {
        self.leaves.contains(provenance_hash)
    }
}
