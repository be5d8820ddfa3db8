//! Stages: what happens, in plan order, to the units that the predicates leave.
//!
//! ```toml
//! [[stage]]
//! name = "route"
//! op = "select"                # a tiny context chooses what comes next
//! why = "no label or path says whether an issue is about the new login"
//! rubric = "You decide what has to be read before an issue can be judged."
//! question = "What has to be done with this issue?"
//! options = [
//!   { name = "judge", means = "the text says enough", run = ["judge"] },
//!   { name = "comments", means = "the text leaves it open", run = ["comments", "judge"] },
//!   { name = "unrelated", means = "it is about something else", then = "exclude" },
//! ]
//! unclear = { margin_below = 0.1, option = "judge" }
//!
//! [[stage]]
//! name = "comments"
//! op = "tool"                  # a declared tool is called; later stages read its answer
//! tool = "issue_comments"
//! fields = ["body"]            # of each object of its JSON; the whole text without
//! max_chars = 600
//! split = { over_chars = 600, rubric = "...", question = "Does it say how bad the fault is?", labels = ["yes", "no"], keep = "yes" }
//!
//! [[stage]]
//! name = "judge"
//! op = "map"                   # the plan's fields are asked, under the plan's rubric
//!
//! [[pass]]                     # only control opens another pass, with a smaller budget
//! name = "second_look"
//! units_max = 50
//!
//! [[stage]]
//! name = "reread"
//! op = "map"
//! pass = "second_look"
//! when = { abstained = true }
//! model = "larger"
//! ```
//!
//! A stage that an option runs takes the units that chose it; any other stage takes all. `when` narrows
//! both. Without any `[[stage]]` there is one map stage named `map`.

use std::collections::BTreeMap;

use super::{ClipPolicy, EvidenceMode, Field, Label, Plan};
use crate::infer::{Question, Rubric};

/// Name of the only stage of a plan that declares none.
pub const MAP_STAGE: &str = "map";

/// Name of the second stage of a plan of adaptive units that declares none.
pub const WIDENED_STAGE: &str = "widened";

/// One stage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stage {
    /// Name, unique among stages, fields and columns.
    pub name: String,
    /// Which pass it belongs to: 0 for the first, else the place in [`Plan::passes`] from 1.
    pub pass: usize,
    /// Which units it takes.
    pub when: Condition,
    /// What it does.
    pub op: StageOp,
}

/// What a stage does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StageOp {
    /// A model chooses one of the declared options.
    Select(Select),
    /// A model answers fields of the plan.
    Map(MapStage),
    /// A declared tool is called, and its answer is shown to later stages.
    Tool(ToolStage),
}

impl StageOp {
    /// The operator as a plan spells it.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Select(_) => "select",
            Self::Map(_) => "map",
            Self::Tool(_) => "tool",
        }
    }
}

/// A choice of what comes next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Select {
    /// What the selector reads before the record.
    pub rubric: String,
    /// What it is asked.
    pub question: String,
    /// Why no predicate, index or classifier could decide this.
    pub why: String,
    /// What it may choose, at least two; never anything else.
    pub options: Vec<SelectOption>,
    /// The option that is taken where the margin is too small.
    pub unclear: Option<Unclear>,
    /// Whether the larger model chooses.
    pub larger: bool,
}

/// Something a selector may choose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SelectOption {
    /// Its name and what it means.
    pub label: Label,
    /// What then happens to the unit.
    pub then: Then,
}

/// What happens to a unit that chose an option.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Then {
    /// It is left out.
    Exclude,
    /// It abstains.
    Abstain,
    /// It goes through these stages, all after the selector.
    Run(Vec<String>),
}

/// What is done where a choice is not clear.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unclear {
    /// Below this margin, in parts per million,
    pub margin_below_ppm: u32,
    /// this option is taken.
    pub option: String,
}

/// Fields that are asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MapStage {
    /// Another rubric than the plan's.
    pub rubric: Option<String>,
    /// Names of the fields, in plan order; at least one.
    pub fields: Vec<String>,
    /// Whether the larger model answers.
    pub larger: bool,
    /// Whether units are shown with their neighbours beside them.
    pub widen: bool,
}

/// A tool that is called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolStage {
    /// Name of the `[[tool]]`.
    pub tool: String,
    /// Paths in the objects of its JSON answer whose values are read; the whole text where empty.
    pub fields: Vec<String>,
    /// Most characters of its answer that later stages read.
    pub max_chars: u32,
    /// What happens to a longer one.
    pub policy: ClipPolicy,
    /// How a long answer is cut into parts, of which a model keeps some.
    pub split: Option<Split>,
}

/// How a long answer of a tool becomes records of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Split {
    /// Longer answers are cut up; characters.
    pub over_chars: u32,
    /// Most characters of a part.
    pub part_chars: u32,
    /// Most parts of one answer; one with more is an error of its unit.
    pub parts_max: u32,
    /// Most cuts one inside the other, from 1 (the items of a list, or paragraphs).
    pub depth_max: u32,
    /// What the model reads before a part.
    pub rubric: String,
    /// What it is asked.
    pub question: String,
    /// What it may answer, at least two.
    pub labels: Vec<Label>,
    /// The answer that keeps a part.
    pub keep: String,
}

/// Which units a stage takes, by what is known of them so far; all parts must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Condition {
    /// The unit has this label of the field.
    pub labels: BTreeMap<String, String>,
    /// The margin of the field is below this, in parts per million; a field not yet asked has none.
    pub margin_below_ppm: BTreeMap<String, u32>,
    /// Whether the unit abstains as it stands.
    pub abstained: Option<bool>,
}

/// A further pass over units that an earlier one left uncertain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PassSpec {
    /// Name, unique among passes.
    pub name: String,
    /// Most units that it takes, in source order; fewer than the pass before may take.
    pub units_max: u64,
    /// Most tokens that it may compute.
    pub tokens_max: Option<u64>,
}

/// What a model is asked at a stage.
#[derive(Debug, Clone)]
pub struct Turn {
    /// The shared instruction.
    pub rubric: Rubric,
    /// The questions, in order.
    pub questions: Vec<Question>,
    /// The fields that they fill.
    pub fields: Vec<Field>,
    /// Where citations come from.
    pub evidence: EvidenceMode,
}

impl Stage {
    /// The only stage of a plan that declares none.
    pub(super) fn implicit(fields: &[Field]) -> Self {
        Self {
            name: MAP_STAGE.to_owned(),
            pass: 0,
            when: Condition::default(),
            op: StageOp::Map(MapStage {
                rubric: None,
                fields: fields.iter().map(|field| field.name.clone()).collect(),
                larger: false,
                widen: false,
            }),
        }
    }

    /// The second stage of adaptive units: what abstains is read again with its neighbours.
    pub(super) fn widened(fields: &[Field]) -> Self {
        Self {
            name: WIDENED_STAGE.to_owned(),
            pass: 0,
            when: Condition {
                abstained: Some(true),
                ..Condition::default()
            },
            op: StageOp::Map(MapStage {
                rubric: None,
                fields: fields.iter().map(|field| field.name.clone()).collect(),
                larger: false,
                widen: true,
            }),
        }
    }

    /// Whether the larger model is asked here.
    pub fn larger(&self) -> bool {
        match &self.op {
            StageOp::Select(select) => select.larger,
            StageOp::Map(map) => map.larger,
            StageOp::Tool(_) => false,
        }
    }
}

impl Plan {
    /// Whether the plan names its stages itself; only then facts have a path.
    pub fn is_staged(&self) -> bool {
        self.staged
    }

    /// The stage of that name.
    pub fn stage(&self, name: &str) -> Option<&Stage> {
        self.stages.iter().find(|stage| stage.name == name)
    }

    /// Whether some option of a selector runs the stage, so that only units which chose it go there.
    pub fn is_chosen(&self, stage: &str) -> bool {
        self.stages.iter().any(|other| match &other.op {
            StageOp::Select(select) => select.options.iter().any(
                |option| matches!(&option.then, Then::Run(names) if names.iter().any(|name| name == stage)),
            ),
            StageOp::Map(_) | StageOp::Tool(_) => false,
        })
    }

    /// What a model is asked of each part of a tool's long answer.
    pub fn part_turn(&self, stage: &str, split: &Split) -> Turn {
        let field = Field {
            name: stage.to_owned(),
            question: split.question.clone(),
            labels: split.labels.clone(),
            abstain_below_margin_ppm: 0,
            label_mass_min_ppm: 0,
            reasons: Vec::new(),
            scaffold: format!("{stage}: "),
            requires: Vec::new(),
            head: None,
            examples: None,
        };
        let (fields, evidence) = (vec![field], EvidenceMode::None);
        let questions = super::wording::questions(&fields, evidence);
        Turn {
            rubric: super::wording::rubric_of_parts(&split.rubric, &fields, &questions),
            questions,
            fields,
            evidence,
        }
    }

    /// The tool stage of that name.
    pub fn tool_stage(&self, name: &str) -> Option<&ToolStage> {
        match &self.stage(name)?.op {
            StageOp::Tool(tool) => Some(tool),
            StageOp::Select(_) | StageOp::Map(_) => None,
        }
    }

    /// Whether some stage calls a tool.
    pub fn calls_tools(&self) -> bool {
        let mut stages = self.stages.iter();
        stages.any(|stage| matches!(stage.op, StageOp::Tool(_)))
    }

    /// What a model is asked at a stage; none at a stage without a model.
    pub fn turn(&self, stage: &Stage) -> Option<Turn> {
        let (task, fields, evidence) = match &stage.op {
            StageOp::Tool(_) => return None,
            StageOp::Select(select) => {
                let labels = select.options.iter().map(|option| option.label.clone());
                let field = Field {
                    name: stage.name.clone(),
                    question: select.question.clone(),
                    labels: labels.collect(),
                    abstain_below_margin_ppm: 0,
                    label_mass_min_ppm: 0,
                    reasons: Vec::new(),
                    scaffold: format!("{}: ", stage.name),
                    requires: Vec::new(),
                    head: None,
                    examples: None,
                };
                (&select.rubric, vec![field], EvidenceMode::None)
            }
            StageOp::Map(map) => {
                let asked = |field: &&Field| map.fields.contains(&field.name);
                let fields = self.fields.iter().filter(asked).cloned().collect();
                let task = map.rubric.as_ref().unwrap_or(&self.task);
                (task, fields, self.input.evidence)
            }
        };
        let questions = super::wording::questions(&fields, evidence);
        Some(Turn {
            rubric: super::wording::rubric(&self.unit, task, &fields, evidence, &questions),
            questions,
            fields,
            evidence,
        })
    }
}
