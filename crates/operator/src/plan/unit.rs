//! Units: which pieces of the records get an answer of their own, and who are neighbours.
//!
//! ```toml
//! [unit]
//! kind = "group"              # "record" (default), "field", "group" or "adaptive"
//!
//! [group]                     # who belongs together; of groups, and of records that are widened
//! by = "similarity"           # or "key", "links", "window"
//! shape = "pair"              # or "cluster"; of kind "group" only
//! fields = ["title", "body"]  # whose texts are compared; the plan's text fields where left out
//! at_least = 0.3              # least cosine of two texts
//! most = 5                    # neighbours of a record
//! within = "90d"              # and not further apart than this, by
//! order_by = "createdAt"
//! ```
//!
//! | by | neighbours | keys |
//! |---|---|---|
//! | `similarity` | the most similar texts | `fields`, `at_least`, `most`, `within` |
//! | `key` | records with the same text in `field`, next to each other | `field`, `most` |
//! | `links` | records that name the other's id in `field`, or in their texts after `pattern` | `field`, `pattern` |
//! | `window` | records not further apart than `within` | `within`, `most` |
//!
//! A field of the plan may say which relations its answer needs, `requires = ["duplicates"]`. A unit
//! that lacks one is widened by its neighbours where `widen = true` (or `kind = "adaptive"`) allows it
//! and they provide it; otherwise it abstains without being asked.

use regex::Regex;
use serde::{Deserialize, Serialize};

use super::{Field, Plan, StageOp, TextField};

/// What a plan says of its units.
#[derive(Debug, Clone)]
pub struct UnitPlan {
    /// What a unit is.
    pub kind: Granularity,
    /// With [`Granularity::Field`]: the fields that become units, at least one; otherwise empty.
    pub fields: Vec<TextField>,
    /// Whether records that lack a relation are read again with their neighbours.
    pub widen: bool,
    /// Who are neighbours; there wherever `kind` or `widen` needs it.
    pub group: Option<GroupPlan>,
}

impl Default for UnitPlan {
    fn default() -> Self {
        Self {
            kind: Granularity::Record,
            fields: Vec::new(),
            widen: false,
            group: None,
        }
    }
}

impl UnitPlan {
    /// Whether units are the records as they are, without neighbours.
    pub fn is_plain(&self) -> bool {
        self.kind == Granularity::Record && self.group.is_none()
    }

    /// The relations that a unit has as it is.
    pub fn provided(&self) -> &'static [Relation] {
        match (self.kind, &self.group) {
            (Granularity::Group, Some(group)) => group.provides(),
            _ => &[],
        }
    }

    /// The relations that a unit has once it was widened.
    pub fn provided_widened(&self) -> &'static [Relation] {
        match &self.group {
            Some(group) if self.widen => group.provides(),
            _ => self.provided(),
        }
    }
}

/// What a unit is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Granularity {
    /// A record.
    Record,
    /// One field of a record.
    Field,
    /// Some records that belong together.
    Group,
    /// A record, and where that is not enough, a record with its neighbours.
    Adaptive,
}

impl Granularity {
    /// The kind as a plan spells it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Record => "record",
            Self::Field => "field",
            Self::Group => "group",
            Self::Adaptive => "adaptive",
        }
    }
}

/// Something that an answer depends on and a single record does not show.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Relation {
    /// Whether another record says the same.
    Duplicates,
    /// Whether another record says the opposite.
    Contradictions,
    /// What came before and after.
    Order,
    /// Which records refer to each other.
    Thread,
    /// How it compares with its like.
    Ranking,
}

impl Relation {
    /// All of them, as plans spell them.
    pub const ALL: [Relation; 5] = [
        Self::Duplicates,
        Self::Contradictions,
        Self::Order,
        Self::Thread,
        Self::Ranking,
    ];

    /// The relation as a plan spells it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Duplicates => "duplicates",
            Self::Contradictions => "contradictions",
            Self::Order => "order",
            Self::Thread => "thread",
            Self::Ranking => "ranking",
        }
    }
}

/// Who are neighbours, and how they are put together.
#[derive(Debug, Clone)]
pub struct GroupPlan {
    /// What makes two records neighbours.
    pub by: Nearness,
    /// What is made of them.
    pub shape: Shape,
    /// Most neighbours of a record, 1 to 64.
    pub most: u32,
    /// Most members of a cluster, 2 to 64.
    pub members_max: u32,
    /// The field that orders members: a date or a whole number.
    pub order_by: Option<String>,
}

impl GroupPlan {
    /// The relations that are seen where such neighbours stand side by side.
    pub const fn provides(&self) -> &'static [Relation] {
        use Relation::{Contradictions, Duplicates, Order, Ranking, Thread};
        match (&self.by, &self.order_by) {
            (Nearness::Similarity { .. }, _) => &[Duplicates, Contradictions],
            (Nearness::Links { .. }, _) => &[Duplicates, Contradictions, Thread],
            (Nearness::Key { .. }, None) => &[Duplicates, Contradictions, Ranking],
            (Nearness::Key { .. }, Some(_)) => &[Duplicates, Contradictions, Ranking, Order],
            (Nearness::Window { .. }, _) => &[Order],
        }
    }
}

impl GroupPlan {
    /// The fields of records by which neighbours are found and ordered.
    pub fn fields(&self) -> impl Iterator<Item = &str> {
        let (many, one): (&[String], Option<&String>) = match &self.by {
            Nearness::Similarity { fields, .. } => (fields, None),
            Nearness::Key { field } => (&[], Some(field)),
            Nearness::Links { field, .. } => (&[], field.as_ref()),
            Nearness::Window { .. } => (&[], None),
        };
        let order_by = self.order_by.as_ref();
        many.iter().chain(one).chain(order_by).map(String::as_str)
    }
}

/// What makes two records neighbours.
#[derive(Debug, Clone)]
pub enum Nearness {
    /// Similar texts.
    Similarity {
        /// Paths of the texts, at least one.
        fields: Vec<String>,
        /// Least cosine, in parts per million.
        at_least_ppm: u32,
        /// Most seconds between them, by `order_by`.
        within_seconds: Option<i64>,
    },
    /// The same text in a field.
    Key {
        /// Its path.
        field: String,
    },
    /// One names the other.
    Links {
        /// A field that holds ids.
        field: Option<String>,
        /// What precedes or holds an id in the plan's text fields; its first group is the id.
        pattern: Option<Regex>,
    },
    /// Closeness in time, by `order_by`.
    Window {
        /// Most seconds between them.
        within_seconds: i64,
    },
}

impl Nearness {
    /// What makes neighbours, as a plan spells it.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Similarity { .. } => "similarity",
            Self::Key { .. } => "key",
            Self::Links { .. } => "links",
            Self::Window { .. } => "window",
        }
    }
}

/// What is made of neighbours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Shape {
    /// Every two neighbours are a unit.
    Pair,
    /// All that are connected are a unit, cut where it has too many members.
    Cluster,
}

impl Shape {
    /// The shape as a plan spells it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pair => "pair",
            Self::Cluster => "cluster",
        }
    }
}

/// The relations that the answers of some fields need, each once.
pub fn required<'f>(fields: impl IntoIterator<Item = &'f Field>) -> Vec<Relation> {
    let mut relations: Vec<Relation> = fields
        .into_iter()
        .flat_map(|field| field.requires.iter().copied())
        .collect();
    relations.sort_unstable();
    relations.dedup();
    relations
}

impl Plan {
    /// The relations that some field of the plan needs.
    pub fn required_relations(&self) -> Vec<Relation> {
        required(&self.fields)
    }

    /// Whether some stage reads units with their neighbours beside them.
    pub fn widens(&self) -> bool {
        let of_stage = self.stages.iter().any(|stage| match &stage.op {
            StageOp::Map(map) => map.widen,
            StageOp::Select(_) | StageOp::Tool(_) => false,
        });
        self.unit.widen || of_stage
    }
}
