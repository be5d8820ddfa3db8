//! Indexes: what is computed over all records before the predicates, which may refer to it.
//!
//! ```toml
//! [[index]]
//! name = "crowded"
//! kind = "sql"              # one SELECT over the table `records`, read-only
//! statement = "SELECT _id, COUNT(*) OVER (PARTITION BY component) FROM records"
//!
//! [[index]]
//! name = "similar"
//! kind = "search"           # BM25 over the text of these fields
//! fields = ["title", "body"]
//! query = "login session expired"
//! top = 50                  # members are the 50 best; without it, all that have a word of the query
//! k1 = 1.2
//! b = 0.75
//!
//! [[index]]
//! name = "kind"
//! kind = "classifier"       # TF-IDF and logistic regression, trained from labels or read from a file
//! fields = ["title", "body"]
//! classes = ["bug", "feature"]
//! labels = "labels.csv"     # or model = "kind.json", which `engine plan --save-classifier` writes
//! id = "number"
//! field = "kind"
//! ```
//!
//! A record that a classifier learned from is not judged by it.

use std::path::PathBuf;

use crate::canonical::Canonical;

/// One index of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Index {
    /// Name, unique among indexes.
    pub name: String,
    /// What is computed.
    pub kind: IndexKind,
    /// Line of the plan where it, or its statement, stands, from 1.
    pub line: u64,
    /// Column there, from 1.
    pub column: u64,
}

/// What an index computes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IndexKind {
    /// The rows of a SELECT statement.
    Sql(SqlIndex),
    /// How well a text fits the words of a query.
    Search(SearchIndex),
    /// How probable each of some classes is.
    Classifier(ClassifierIndex),
}

impl IndexKind {
    /// The kind as a plan spells it.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Sql(_) => "sql",
            Self::Search(_) => "search",
            Self::Classifier(_) => "classifier",
        }
    }
}

/// A statement over all records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SqlIndex {
    /// One SELECT; its first column is `_id`, its second, if any, an integer.
    pub statement: String,
    /// Most steps of the SQL engine's machine.
    pub steps_max: u64,
}

/// A ranking of texts by a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchIndex {
    /// Field paths whose texts are searched as one.
    pub fields: Vec<String>,
    /// The words.
    pub query: String,
    /// BM25's k1, in thousandths.
    pub k1_thousandths: u32,
    /// BM25's b, in thousandths.
    pub b_thousandths: u32,
    /// How many of the best are members; all with a word of the query where absent.
    pub top: Option<u32>,
}

/// A trained judgement of texts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClassifierIndex {
    /// Field paths whose texts are judged as one.
    pub fields: Vec<String>,
    /// The classes, at least two.
    pub classes: Vec<String>,
    /// Where it has learned them.
    pub source: ClassifierSource,
}

/// Where a classifier comes from; paths are relative to the plan file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClassifierSource {
    /// It is trained on the records that a file names a class for.
    Labels {
        /// The file: JSON, JSON lines or CSV.
        path: PathBuf,
        /// The file's field with the id of a record.
        id: String,
        /// The file's field with the class.
        field: String,
    },
    /// It was trained before.
    Model {
        /// The file.
        path: PathBuf,
    },
}

impl Index {
    /// Writes what is computed; not the paths of files, whose bytes are in an index's identity.
    pub(crate) fn encode(&self, canonical: &mut Canonical) {
        canonical.text(&self.name).text(self.kind.as_str());
        match &self.kind {
            IndexKind::Sql(sql) => {
                canonical.text(&sql.statement);
            }
            IndexKind::Search(search) => {
                encode_texts(canonical, &search.fields);
                canonical
                    .text(&search.query)
                    .u32(search.k1_thousandths)
                    .u32(search.b_thousandths);
                match search.top {
                    Some(top) => canonical.some().u32(top),
                    None => canonical.none(),
                };
            }
            IndexKind::Classifier(classifier) => {
                encode_texts(canonical, &classifier.fields);
                encode_texts(canonical, &classifier.classes);
                match &classifier.source {
                    ClassifierSource::Labels { id, field, .. } => {
                        canonical.text("labels").text(id).text(field)
                    }
                    ClassifierSource::Model { .. } => canonical.text("model"),
                };
            }
        }
    }
}

fn encode_texts(canonical: &mut Canonical, texts: &[String]) {
    canonical.list(texts.len());
    for text in texts {
        canonical.text(text);
    }
}
