//! What every arm computes: one prefix, its records, the questions, all as tokens.
//!
//! Either words of the model's vocabulary in lengths asked for, from a seed, or given texts. The
//! prefix holds the chat template's markup, and a record ends with it, as in every real job.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::BenchError;
use crate::error::EngineError;
use crate::label_tree::LabelTree;
use crate::prompt::PromptTemplate;
use crate::runner::{Runner, ScoreRequest};
use crate::tokenizer::Tokenizer;

/// Tokens of one nonce.
const NONCE_TOKENS: usize = 4;
/// Words that texts are made from, at most and at least.
const WORDS_MAX: usize = 4096;
const WORDS_MIN: usize = 16;

/// Lengths of synthetic work, in tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    /// The shared prefix, markup included.
    pub prefix_len: usize,
    /// A record after the prefix, up to where the answer begins, markup included.
    pub record_len: usize,
    /// Records.
    pub records: usize,
    /// Where the words come from.
    pub seed: u64,
}

/// Given texts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Texts {
    /// The instruction that all records share.
    pub system: String,
    /// The records.
    pub records: Vec<String>,
    /// The questions.
    pub questions: Vec<Asked>,
}

/// One question with fixed labels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// Name of the field.
    pub field: String,
    /// What stands before the label.
    pub scaffold: String,
    /// The labels, at least two.
    pub labels: Vec<String>,
}

impl Asked {
    /// The question of synthetic work: it has no meaning, but two labels with a margin.
    pub fn yes_or_no() -> Self {
        Self {
            field: "answer".into(),
            scaffold: "answer: ".into(),
            labels: vec!["yes".into(), "no".into()],
        }
    }
}

/// One question as tokens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    /// Name of the field.
    pub field: String,
    /// The labels as words.
    pub labels: Vec<String>,
    /// Scaffold and label of each label.
    pub tokens: Vec<Vec<u32>>,
}

/// The work of all arms.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Work {
    /// Lengths asked for; none where texts were given.
    pub shape: Option<Shape>,
    /// Tokens that all records share.
    pub prefix: Vec<u32>,
    /// Tokens of each record after the prefix, up to where the answer begins.
    pub records: Vec<Vec<u32>>,
    /// For each record, what stands in the prefix from `nonce_at` on in the arm `nonce`.
    pub nonces: Vec<Vec<u32>>,
    /// First token of the prefix that is no markup.
    pub nonce_at: usize,
    /// The questions.
    pub questions: Vec<Question>,
    /// Ends a label that is the beginning of another.
    pub terminator: u32,
    /// The instruction as text.
    pub system: String,
    /// The records as text.
    pub users: Vec<String>,
}

/// Where a template puts an instruction.
struct Frame {
    head: Vec<u32>,
    tail: Vec<u32>,
    close: Vec<u32>,
}

impl Work {
    /// Makes words in the lengths asked for.
    ///
    /// # Errors
    /// `TooShort` where the markup alone is longer, `Nothing` without records, `NoWords`, and
    /// tokenizer or template trouble.
    pub fn synthetic(
        tokenizer: &Tokenizer,
        template: &PromptTemplate,
        shape: Shape,
    ) -> Result<Self, BenchError> {
        let words = words(tokenizer)?;
        let frame = Frame::of(tokenizer, template, &words)?;
        let mut draw = Draw(shape.seed);
        let markup = frame.head.len() + frame.tail.len();
        let instruction = draw.words(
            &words,
            room("--prefix-len", shape.prefix_len, markup, NONCE_TOKENS)?,
        );
        let text = room("--record-len", shape.record_len, frame.close.len(), 1)?;
        let records: Vec<Vec<u32>> = (0..shape.records)
            .map(|_| draw.words(&words, text))
            .collect();
        let users = records.iter().map(|record| spoken(tokenizer, record));
        let prefix = [frame.head.as_slice(), &instruction, &frame.tail].concat();
        let work = Self {
            shape: Some(shape),
            prefix,
            nonces: nonces(&words, shape.records, NONCE_TOKENS),
            nonce_at: frame.head.len(),
            questions: vec![question(tokenizer, &Asked::yes_or_no())?],
            terminator: tokenizer.eos_ids().first().copied().unwrap_or(0),
            system: spoken(tokenizer, &instruction),
            users: users.collect(),
            records: records
                .into_iter()
                .map(|record| [record.as_slice(), &frame.close].concat())
                .collect(),
        };
        work.check_amounts()?;
        Ok(work)
    }

    /// Encodes given texts.
    ///
    /// # Errors
    /// `Nothing` without records or questions, tokenizer or template trouble, and a question that
    /// cannot be scored.
    pub fn of_texts(
        tokenizer: &Tokenizer,
        template: &PromptTemplate,
        texts: Texts,
    ) -> Result<Self, BenchError> {
        let words = words(tokenizer)?;
        let frame = Frame::of(tokenizer, template, &words)?;
        let split = template
            .split(tokenizer, &texts.system)
            .map_err(EngineError::from)?;
        let records = texts
            .records
            .iter()
            .map(|text| {
                let text = tokenizer.encode_text(text).map_err(EngineError::from)?;
                Ok([text.as_slice(), &split.close].concat())
            })
            .collect::<Result<Vec<_>, BenchError>>()?;
        let length = NONCE_TOKENS.min(split.prefix.len() - frame.head.len());
        let work = Self {
            shape: None,
            nonces: nonces(&words, records.len(), length),
            nonce_at: frame.head.len(),
            prefix: split.prefix,
            questions: texts
                .questions
                .iter()
                .map(|asked| question(tokenizer, asked))
                .collect::<Result<_, _>>()?,
            terminator: tokenizer.eos_ids().first().copied().unwrap_or(0),
            records,
            system: texts.system,
            users: texts.records,
        };
        work.check_amounts()?;
        Ok(work)
    }

    fn check_amounts(&self) -> Result<(), BenchError> {
        for (what, amount) in [
            ("the number of records", self.records.len()),
            ("the number of questions", self.questions.len()),
        ] {
            if amount == 0 {
                return Err(BenchError::Nothing { what });
            }
        }
        // What cannot be asked is found before any arm starts.
        self.trees()?;
        Ok(())
    }

    /// The label trees of the questions.
    ///
    /// # Errors
    /// `BadQuestion` where labels cannot be told apart.
    pub fn trees(&self) -> Result<Vec<Arc<LabelTree>>, EngineError> {
        self.questions
            .iter()
            .map(|question| {
                let tree = LabelTree::new(&question.field, &question.tokens, self.terminator)?;
                Ok(Arc::new(tree))
            })
            .collect()
    }

    /// The records as the runner takes them.
    ///
    /// # Errors
    /// As for [`Work::trees`].
    pub fn requests(&self) -> Result<Vec<ScoreRequest>, EngineError> {
        let trees = self.trees()?;
        Ok(self
            .records
            .iter()
            .map(|tokens| ScoreRequest {
                tokens: tokens.clone(),
                trees: trees.clone(),
                // Forwards are measured: none is repeated for an unclear answer.
                decisive: vec![false; trees.len()],
            })
            .collect())
    }

    /// The prefix of a record in the arm `nonce`: of the same length, its own from the first word.
    pub fn nonce_prefix(&self, record: usize) -> Vec<u32> {
        let mut prefix = self.prefix.clone();
        let nonce = &self.nonces[record];
        prefix[self.nonce_at..self.nonce_at + nonce.len()].copy_from_slice(nonce);
        prefix
    }

    /// Checks that every prompt, its questions or its output fit the context.
    ///
    /// # Errors
    /// `NoRoom` naming the first that does not; `RubricTooLong` for a prefix that cannot be sealed.
    pub fn check_room(&self, context: usize, output: usize) -> Result<(), BenchError> {
        let branches = match output {
            0 => self.trees()?.iter().map(|tree| tree.tokens()).sum(),
            _ => 0,
        };
        let tokens_max = Runner::prefix_tokens_max(context);
        let too_long =
            |tokens: &Vec<u32>| self.prefix.len() + tokens.len() + branches + output > context;
        match self.records.iter().position(too_long) {
            None if self.prefix.len() > tokens_max => Err(EngineError::RubricTooLong {
                tokens: self.prefix.len(),
                tokens_max,
            }
            .into()),
            None => Ok(()),
            Some(record) => Err(BenchError::NoRoom {
                record,
                prefix: self.prefix.len(),
                tokens: self.records[record].len(),
                branches,
                output,
                context,
            }),
        }
    }
}

impl Frame {
    /// Finds the markup by what the prompts of two different instructions have in common.
    fn of(
        tokenizer: &Tokenizer,
        template: &PromptTemplate,
        words: &[u32],
    ) -> Result<Self, EngineError> {
        let split = |word: u32| template.split(tokenizer, &tokenizer.decode(&[word]));
        let (one, other) = (split(words[0])?, split(words[1])?);
        let same = |(a, b): &(&u32, &u32)| a == b;
        let head = one.prefix.iter().zip(&other.prefix);
        let head = head.take_while(same).count();
        let tail = one.prefix.iter().rev().zip(other.prefix.iter().rev());
        let tail = one.prefix.len() - tail.take_while(same).count().min(one.prefix.len() - head);
        Ok(Self {
            head: one.prefix[..head].to_vec(),
            tail: one.prefix[tail..].to_vec(),
            close: one.close,
        })
    }
}

/// A splitmix generator: the same words on every machine.
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn words(&mut self, words: &[u32], count: usize) -> Vec<u32> {
        (0..count)
            .map(|_| words[(self.next() % words.len() as u64) as usize])
            .collect()
    }
}

/// Tokens that are a space and a word of lower-case letters: text made of them is cut into the same
/// tokens again.
fn words(tokenizer: &Tokenizer) -> Result<Vec<u32>, BenchError> {
    let is_word = |id: &u32| {
        tokenizer
            .token_bytes(*id)
            .strip_prefix(b" ")
            .is_some_and(|word| word.len() > 2 && word.iter().all(u8::is_ascii_lowercase))
    };
    let found: Vec<u32> = (0..tokenizer.vocab_size())
        .filter(is_word)
        .take(WORDS_MAX)
        .collect();
    if found.len() < WORDS_MIN {
        return Err(BenchError::NoWords {
            found: found.len(),
            least: WORDS_MIN,
        });
    }
    Ok(found)
}

/// Different sequences of words, one for each record: its index, written in words.
fn nonces(words: &[u32], records: usize, length: usize) -> Vec<Vec<u32>> {
    (0..records)
        .map(|record| {
            (0..length as u32)
                .map(|digit| words[record / words.len().pow(digit) % words.len()])
                .collect()
        })
        .collect()
}

fn question(tokenizer: &Tokenizer, asked: &Asked) -> Result<Question, EngineError> {
    Ok(Question {
        field: asked.field.clone(),
        labels: asked.labels.clone(),
        tokens: asked
            .labels
            .iter()
            .map(|label| tokenizer.encode_text(&format!("{}{label}", asked.scaffold)))
            .collect::<Result<_, _>>()?,
    })
}

fn spoken(tokenizer: &Tokenizer, tokens: &[u32]) -> String {
    tokenizer.decode(tokens).trim_start().to_owned()
}

/// Tokens that are left for words.
fn room(
    option: &'static str,
    asked: usize,
    markup: usize,
    least: usize,
) -> Result<usize, BenchError> {
    match asked.checked_sub(markup) {
        Some(left) if left >= least => Ok(left),
        _ => Err(BenchError::TooShort {
            option,
            asked,
            least: markup + least,
            why: format!("the chat template takes {markup} tokens"),
        }),
    }
}
