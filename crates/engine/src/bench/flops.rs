//! Floating-point operations that answers need, from the model's shape: the bound of any speed-up.
//!
//! Linear layers: [`ModelConfig::linear_flops_per_token`] for each row; in the last layer only the
//! rows whose output is read pass beyond the attention. Attention: `4 * layers * heads * head_dim`
//! for each pair of a row and a position that it sees. Output matrix: `2 * hidden * vocab` for each
//! row read. Norms, rotations and softmax are left out, as is usual.

use serde::{Deserialize, Serialize};

use super::work::Work;
use crate::error::EngineError;
use crate::model::ModelConfig;

/// Operations and tokens of the whole work, with and without a shared prefix.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Bound {
    /// Operations when the prefix is computed once.
    pub shared_flops: f64,
    /// Operations when every record computes its whole prompt.
    pub unshared_flops: f64,
    /// Their ratio: the largest speed-up that sharing can give at an equal rate.
    pub flop_ratio: f64,
    /// The same ratio counted in rows that enter layer 0.
    pub token_ratio: f64,
}

/// What follows the prompt of every record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Tail {
    /// Rows after the record's own tokens.
    rows: usize,
    /// Rows whose output is read.
    read: usize,
}

impl Bound {
    /// Counts the work; with `output` above 0, generating replaces the questions.
    ///
    /// # Errors
    /// `BadQuestion` where a question has no tree.
    pub fn of(config: &ModelConfig, work: &Work, output: usize) -> Result<Self, EngineError> {
        let trees = work.trees()?;
        let tail = match output {
            0 => Tail {
                rows: trees.iter().map(|tree| tree.tokens()).sum(),
                read: trees.iter().map(|tree| tree.nodes().len()).sum(),
            },
            // The last token generated enters no layer.
            _ => Tail {
                rows: output - 1,
                read: output,
            },
        };
        let prefix = work.prefix.len();
        let mut shared = rows_flops(config, 0, prefix, 0);
        let mut unshared = 0.0;
        let mut own_rows = 0;
        for record in &work.records {
            let own = record.len() + tail.rows;
            let head = (2 * config.hidden * config.vocab * tail.read) as f64;
            shared += rows_flops(config, prefix, own, tail.read) + head;
            unshared += rows_flops(config, 0, prefix + own, tail.read) + head;
            own_rows += own;
        }
        Ok(Self {
            shared_flops: shared,
            unshared_flops: unshared,
            flop_ratio: unshared / shared,
            token_ratio: (work.records.len() * prefix + own_rows) as f64
                / (prefix + own_rows) as f64,
        })
    }
}

/// Operations of `rows` rows that begin at position `start`, without the output matrix.
fn rows_flops(config: &ModelConfig, start: usize, rows: usize, read: usize) -> f64 {
    let beyond =
        config.heads * config.head_dim * config.hidden + 3 * config.hidden * config.feed_forward;
    let spared = 2 * beyond * rows.saturating_sub(read);
    let linear = config.linear_flops_per_token() as f64 * rows as f64 - spared as f64;
    let seen: usize = (start + 1..=start + rows).sum();
    let pair = 4 * config.layers * config.heads * config.head_dim;
    linear + pair as f64 * seen as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::work::Question;
    use crate::model::config::Architecture;

    fn qwen() -> ModelConfig {
        ModelConfig {
            architecture: Architecture::Qwen2,
            layers: 24,
            hidden: 896,
            feed_forward: 4864,
            heads: 14,
            kv_heads: 2,
            head_dim: 64,
            vocab: 151_936,
            norm_epsilon: 1e-6,
            rope_base: 1e6,
            context: 32_768,
        }
    }

    fn work(prefix: usize, record: usize, records: usize) -> Work {
        Work {
            shape: None,
            prefix: vec![1; prefix],
            records: vec![vec![2; record]; records],
            nonces: Vec::new(),
            nonce_at: 0,
            questions: vec![Question {
                field: "answer".into(),
                labels: vec!["yes".into(), "no".into()],
                tokens: vec![vec![3, 4], vec![3, 5]],
            }],
            terminator: 0,
            system: String::new(),
            users: Vec::new(),
        }
    }

    #[test]
    fn one_row_costs_its_matrices_and_the_positions_that_it_sees() {
        let config = qwen();
        let linear = config.linear_flops_per_token() as f64;
        assert_eq!(linear, 715_653_120.0);
        assert_eq!(rows_flops(&config, 0, 1, 1), linear + 86_016.0);
        assert_eq!(rows_flops(&config, 699, 1, 1), linear + 86_016.0 * 700.0);
    }

    #[test]
    fn rows_cost_the_same_in_one_piece_or_two() {
        let config = qwen();
        let whole = rows_flops(&config, 0, 850, 850);
        let parts = rows_flops(&config, 0, 700, 700) + rows_flops(&config, 700, 150, 150);
        assert!((whole - parts).abs() / whole < 1e-12);
    }

    #[test]
    fn the_bound_grows_with_the_records_and_nears_the_ratio_of_their_tokens() {
        let config = qwen();
        let ratio = |records| {
            let work = work(700, 165, records);
            Bound::of(&config, &work, 0).unwrap()
        };
        let one = ratio(1);
        assert!((one.flop_ratio - 1.0).abs() < 0.01, "{one:?}");
        let many = ratio(1000);
        assert!(many.flop_ratio > 4.5 && many.flop_ratio < 5.2, "{many:?}");
        assert!(many.flop_ratio < many.token_ratio, "{many:?}");
    }
}
