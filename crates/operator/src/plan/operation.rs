//! Reductions: what is folded over the decided units, with everything that a reducer has to know.
//!
//! An [`Operation`] names its keys and measures by where they stand in a fact, so that no reducer
//! looks anything up in the plan. A plan writes a reduction as `[[reduce]]` with `name`, `op`, the
//! keys below, and optionally `claim`, `cite_max` (8, at most 64) and, but for `join` and
//! `summary`, `where = { FIELD = "label", TEXT_COLUMN = "exact text" }`:
//!
//! | `op` | keys; those with a value may be left out |
//! |---|---|
//! | `count` | |
//! | `count_by` | `field` (field or text column), `keys_max = 4096` (column only) |
//! | `set` | optionally `field` (field or text column), `keys_max = 4096` (column only) |
//! | `top_keys` | `field` (field or text column), `k`, `keys_max = 4096` (column only) |
//! | `top_k` | `field` and `label`, or `field` (integer or time column) and `order = "largest"`; `k` |
//! | `histogram` | `field` and optionally `label`, or `field` (integer or time column); `edges` |
//! | `min`, `max` | `field` (integer or time column) |
//! | `sum`, `mean` | `field` (integer column) |
//! | `quantiles` | `field` (integer or time column), `at = [50, 90, 99]` (percent) |
//! | `heavy_hitters` | `field` (field or text column), `k` |
//! | `distinct` | `field` (column) |
//! | `join` | `left` and `right` (`{ where = {...}, key = NAME or "id" }`), `kind` (`"inner"`, `"outer"`, `"anti"`) |
//! | `clusters` | `field`, `taxonomy` (its version), `exemplars = 2`, optionally `unclustered` (a label), `dissent` (labels) |
//! | `summary` | `of` (earlier reductions), `instruction`, `tokens_max = 160` |

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::column::ColumnType;

/// One reduction over the decided units.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reduce {
    /// Name, unique among reductions.
    pub name: String,
    /// What is computed.
    pub op: Operation,
    /// Which units count; always empty for `join`, whose sides select, and for `summary`.
    pub filter: Filter,
    /// What the claim promises of units without an answer.
    pub contract: Contract,
    /// Wording of the claim, with `{value}` and `{count}`.
    pub claim: Option<String>,
    /// Most citations that are printed; at most 64.
    pub cite_max: u32,
}

/// What a claim promises of units without an answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Contract {
    /// It speaks of what was decided, and says beside it what was not.
    #[default]
    Decided,
    /// It says "all" or "none", and is refused while some unit has no answer.
    Exhaustive,
}

/// A conjunction of equalities; empty selects every decided unit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// Label that a field must carry, by field.
    pub labels: BTreeMap<String, String>,
    /// Exact text that a text column must hold, by column.
    pub columns: BTreeMap<String, String>,
}

impl Filter {
    /// True when every decided unit is selected.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.columns.is_empty()
    }
}

/// A column by name, with its type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColumnRef {
    /// The column's name.
    pub name: String,
    /// The column's type.
    pub kind: ColumnType,
}

/// Where a unit's key comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeySource {
    /// The label chosen for this field.
    Label(String),
    /// The value of a column.
    Column(ColumnRef),
    /// The unit's id; as the key of a join only.
    Id,
}

impl KeySource {
    /// The type of the keys; two sides of a join must agree on it.
    pub const fn kind(&self) -> ColumnType {
        match self {
            Self::Label(_) | Self::Id => ColumnType::Text,
            Self::Column(column) => column.kind,
        }
    }

    /// The name as a plan spells it.
    pub fn name(&self) -> &str {
        match self {
            Self::Label(field) => field,
            Self::Column(column) => &column.name,
            Self::Id => super::ID_KEY,
        }
    }
}

/// Where a unit's number comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Measure {
    /// The probability of a label, in parts per million.
    Probability {
        /// The field.
        field: String,
        /// The label; none takes the one that was chosen.
        label: Option<String>,
    },
    /// The value of an integer or time column, in its own units.
    Column(ColumnRef),
}

impl Measure {
    /// The name of the field or column.
    pub fn name(&self) -> &str {
        match self {
            Self::Probability { field, .. } => field,
            Self::Column(column) => &column.name,
        }
    }
}

/// Which end of an order is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Largest first.
    Largest,
    /// Smallest first.
    Smallest,
}

impl Order {
    /// The order as a plan spells it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Largest => "largest",
            Self::Smallest => "smallest",
        }
    }
}

/// One side of a join.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JoinSide {
    /// Which units are on this side.
    pub filter: Filter,
    /// What they are matched by.
    pub key: KeySource,
}

/// Which keys of a join are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JoinKind {
    /// Keys that both sides have.
    Inner,
    /// Keys that either side has.
    Outer,
    /// Keys of the left side that the right side lacks.
    Anti,
}

impl JoinKind {
    /// The kind as a plan spells it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Inner => "inner",
            Self::Outer => "outer",
            Self::Anti => "anti",
        }
    }
}

/// What a reduction computes. Columns where a number is needed are of type integer or time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// How many units.
    Count,
    /// How many units per key.
    CountBy {
        /// The key; never the id.
        key: KeySource,
        /// All labels of the field, in the plan's order; empty for a column.
        labels: Vec<String>,
        /// More different keys than this are an error.
        keys_max: u32,
    },
    /// Which units or, given a key, which keys occur.
    Set {
        /// The key; never the id.
        key: Option<KeySource>,
        /// More different keys than this are an error; without a key nothing is limited.
        keys_max: u32,
    },
    /// The units at one end of a measure's order.
    TopK {
        /// What orders; a probability is always of a named label.
        by: Measure,
        /// How many.
        k: u32,
        /// Which end; [`Order::Largest`] for a probability.
        order: Order,
    },
    /// The keys with the most units.
    TopKeys {
        /// The key; never the id.
        key: KeySource,
        /// How many.
        k: u32,
        /// More different keys than this are an error.
        keys_max: u32,
    },
    /// How many units per bucket of a measure.
    Histogram {
        /// What is measured.
        by: Measure,
        /// Bucket edges, strictly ascending, at least one; parts per million for a probability,
        /// the column's own units otherwise.
        edges: Vec<i64>,
    },
    /// The smallest value.
    Min(ColumnRef),
    /// The largest value.
    Max(ColumnRef),
    /// The sum of an integer column.
    Sum(ColumnRef),
    /// The mean of an integer column.
    Mean(ColumnRef),
    /// The values below which given shares of the units lie.
    Quantiles {
        /// What is measured.
        column: ColumnRef,
        /// Percent, strictly ascending, 1 to 16 of them, each at most 100.
        at: Vec<u8>,
    },
    /// Every key that more than one in `k + 1` of the units carry.
    HeavyHitters {
        /// The key; never the id.
        key: KeySource,
        /// Counters, 1 to 4,096.
        k: u32,
    },
    /// How many different values a column of any type has.
    Distinct(ColumnRef),
    /// Two selections of the same units, matched by key.
    Join {
        /// The left side.
        left: JoinSide,
        /// The right side; its key has the type of the left one's.
        right: JoinSide,
        /// Which keys are kept.
        kind: JoinKind,
    },
    /// The units by label, each label with exemplars, and by name all that fit no cluster.
    Clusters {
        /// The field whose labels are the taxonomy.
        field: String,
        /// All labels of the field, in the plan's order; those that are neither `unclustered` nor
        /// in `dissent` are the clusters, at least one.
        labels: Vec<String>,
        /// Version of the taxonomy.
        taxonomy: String,
        /// Units shown per cluster, 1 to 16.
        exemplars: u32,
        /// The label of units that belong to no cluster.
        unclustered: Option<String>,
        /// Labels whose units are named one by one.
        dissent: Vec<String>,
    },
    /// Which members of units belong together, from what was decided unit by unit.
    Components {
        /// The field that says so.
        field: String,
        /// The label that joins members.
        label: String,
        /// Most members of all components together.
        keys_max: u32,
    },
    /// A text that the model writes from other claims alone.
    Summary {
        /// Names of earlier reductions, at least one, none of them a summary.
        of: Vec<String>,
        /// What to write.
        instruction: String,
        /// Most tokens of the text, 16 to 1,024.
        tokens_max: u32,
    },
}

impl Operation {
    /// The operation as a plan spells it.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Count => "count",
            Self::CountBy { .. } => "count_by",
            Self::Set { .. } => "set",
            Self::TopK { .. } => "top_k",
            Self::TopKeys { .. } => "top_keys",
            Self::Histogram { .. } => "histogram",
            Self::Min(_) => "min",
            Self::Max(_) => "max",
            Self::Sum(_) => "sum",
            Self::Mean(_) => "mean",
            Self::Quantiles { .. } => "quantiles",
            Self::HeavyHitters { .. } => "heavy_hitters",
            Self::Distinct(_) => "distinct",
            Self::Join { .. } => "join",
            Self::Clusters { .. } => "clusters",
            Self::Components { .. } => "components",
            Self::Summary { .. } => "summary",
        }
    }
}
