//! A question's allowed labels as a tree over canonical tokens.
//!
//! The whole answer text (scaffold and label) is tokenised in one piece, so there is no seam inside
//! it. A node is a place where the labels part; between nodes every token is forced and costs no
//! decision. A label that is a prefix of another ends in the end-of-turn token.

use crate::error::EngineError;

/// Where a choice leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// The label is decided: its index.
    Label(usize),
    /// Another node follows.
    Node(usize),
}

/// One allowed continuation of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Choice {
    /// The token.
    pub token: u32,
    /// What it decides.
    pub target: Target,
}

/// A place where labels part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Tokens between the parent's end and this node: its choice, then forced ones. The root's are
    /// the scaffold and whatever all labels share; only they may be empty.
    pub tokens: Vec<u32>,
    /// The node before; none for the root.
    pub parent: Option<usize>,
    /// At least two, each with another token.
    pub choices: Vec<Choice>,
}

/// The tree of one question; node 0 is the root, parents come before children.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabelTree {
    nodes: Vec<Node>,
    labels: usize,
}

impl LabelTree {
    /// Builds the tree from each label's canonical tokens, scaffold included, terminator excluded.
    ///
    /// # Errors
    /// `BadQuestion` when there are fewer than two labels or two of them have the same tokens.
    pub fn new(field: &str, labels: &[Vec<u32>], terminator: u32) -> Result<Self, EngineError> {
        let bad = |problem: String| EngineError::BadQuestion {
            field: field.into(),
            problem,
        };
        if labels.len() < 2 {
            return Err(bad(format!(
                "{} labels, at least 2 are needed",
                labels.len()
            )));
        }
        let ended: Vec<Vec<u32>> = labels
            .iter()
            .map(|label| label.iter().copied().chain([terminator]).collect())
            .collect();
        for (index, label) in ended.iter().enumerate() {
            if let Some(other) = ended[..index].iter().position(|other| other == label) {
                return Err(bad(format!(
                    "labels {other} and {index} are the same tokens"
                )));
            }
        }
        let mut tree = Self {
            nodes: Vec::new(),
            labels: labels.len(),
        };
        tree.grow(&ended, &(0..labels.len()).collect::<Vec<_>>(), 0, None);
        Ok(tree)
    }

    /// Adds the node of labels that agree up to `depth`; returns its index.
    fn grow(
        &mut self,
        labels: &[Vec<u32>],
        members: &[usize],
        depth: usize,
        parent: Option<usize>,
    ) -> usize {
        let first = &labels[members[0]];
        let mut end = depth;
        while members
            .iter()
            .all(|&member| labels[member].get(end) == first.get(end))
        {
            end += 1;
        }
        let index = self.nodes.len();
        self.nodes.push(Node {
            tokens: first[depth..end].to_vec(),
            parent,
            choices: Vec::new(),
        });
        let mut groups: Vec<(u32, Vec<usize>)> = Vec::new();
        for &member in members {
            let token = labels[member][end];
            match groups.iter_mut().find(|(known, _)| *known == token) {
                Some((_, group)) => group.push(member),
                None => groups.push((token, vec![member])),
            }
        }
        for (token, group) in groups {
            let target = match group.as_slice() {
                [label] => Target::Label(*label),
                _ => Target::Node(self.grow(labels, &group, end, Some(index))),
            };
            self.nodes[index].choices.push(Choice { token, target });
        }
        index
    }

    /// Nodes, root first.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Labels.
    pub fn labels(&self) -> usize {
        self.labels
    }

    /// Tokens that scoring adds to a record.
    pub fn tokens(&self) -> usize {
        self.nodes.iter().map(|node| node.tokens.len()).sum()
    }

    /// Probability of each label: the product, along its path, of the softmax over each node's
    /// allowed tokens. This is the distribution of decoding with all other tokens masked, and it
    /// sums to 1. `logits_of(node)` gives the full row of logits at a node.
    pub fn probabilities<'a>(&self, logits_of: impl Fn(usize) -> &'a [f32]) -> Vec<f64> {
        let mut reach = vec![0.0; self.nodes.len()];
        let mut out = vec![0.0; self.labels];
        reach[0] = 1.0;
        for (index, node) in self.nodes.iter().enumerate() {
            let logits = logits_of(index);
            let scores: Vec<f64> = node
                .choices
                .iter()
                .map(|choice| f64::from(logits[choice.token as usize]))
                .collect();
            let total = log_sum_exp(scores.iter().copied());
            for (choice, score) in node.choices.iter().zip(scores) {
                let probability = reach[index] * (score - total).exp();
                match choice.target {
                    Target::Label(label) => out[label] = probability,
                    Target::Node(next) => reach[next] = probability,
                }
            }
        }
        out
    }

    /// Share of the whole vocabulary's probability that the root's allowed tokens hold.
    pub fn mass(&self, root_logits: &[f32]) -> f64 {
        let allowed = log_sum_exp(
            self.nodes[0]
                .choices
                .iter()
                .map(|choice| f64::from(root_logits[choice.token as usize])),
        );
        let all = log_sum_exp(root_logits.iter().map(|&logit| f64::from(logit)));
        (allowed - all).exp().min(1.0)
    }
}

fn log_sum_exp(values: impl Iterator<Item = f64> + Clone) -> f64 {
    let max = values.clone().fold(f64::NEG_INFINITY, f64::max);
    max + values.map(|value| (value - max).exp()).sum::<f64>().ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decodes label by label, masking every token that no remaining label allows.
    fn brute_force(labels: &[Vec<u32>], terminator: u32, vocab: usize) -> Vec<f64> {
        let ended: Vec<Vec<u32>> = labels
            .iter()
            .map(|l| l.iter().copied().chain([terminator]).collect())
            .collect();
        ended
            .iter()
            .map(|label| {
                let mut probability = 1.0;
                for at in 0..label.len() {
                    let logits = logits_after(&label[..at], vocab);
                    let mut allowed: Vec<u32> = ended
                        .iter()
                        .filter(|other| other.len() > at && other[..at] == label[..at])
                        .map(|other| other[at])
                        .collect();
                    allowed.sort_unstable();
                    allowed.dedup();
                    let sum: f64 = allowed
                        .iter()
                        .map(|&t| f64::from(logits[t as usize]).exp())
                        .sum();
                    probability *= f64::from(logits[label[at] as usize]).exp() / sum;
                }
                probability
            })
            .collect()
    }

    /// Any function of the tokens before will do.
    fn logits_after(path: &[u32], vocab: usize) -> Vec<f32> {
        let seed = path
            .iter()
            .fold(17u32, |seed, &t| seed.wrapping_mul(31).wrapping_add(t + 1));
        (0..vocab as u32)
            .map(|t| {
                (seed.wrapping_mul(2_654_435_761).wrapping_add(t * 40_503) >> 20) as f32 / 900.0
            })
            .collect()
    }

    fn tree_probabilities(tree: &LabelTree, vocab: usize) -> Vec<f64> {
        let rows: Vec<Vec<f32>> = (0..tree.nodes().len())
            .map(|index| {
                let mut path = Vec::new();
                let mut at = Some(index);
                while let Some(node) = at {
                    path.splice(0..0, tree.nodes()[node].tokens.iter().copied());
                    at = tree.nodes()[node].parent;
                }
                logits_after(&path, vocab)
            })
            .collect();
        tree.probabilities(|index| &rows[index])
    }

    #[test]
    fn probabilities_equal_brute_force_and_sum_to_one() {
        let cases: [&[&[u32]]; 5] = [
            &[&[5, 1], &[5, 2], &[5, 3]],
            &[&[5, 1], &[5, 1, 2], &[5, 1, 2, 3], &[5, 4]],
            &[&[1], &[2]],
            &[
                &[9, 1, 1, 1],
                &[9, 1, 1, 2],
                &[9, 2, 1, 1],
                &[9, 2, 1, 2],
                &[9, 2],
            ],
            &[&[7, 1], &[7, 1, 0], &[7, 1, 1], &[7, 2], &[7, 2, 0]],
        ];
        for labels in cases {
            let labels: Vec<Vec<u32>> = labels.iter().map(|l| l.to_vec()).collect();
            let tree = LabelTree::new("f", &labels, 30).unwrap();
            let got = tree_probabilities(&tree, 31);
            let want = brute_force(&labels, 30, 31);
            for (got, want) in got.iter().zip(&want) {
                assert!((got - want).abs() < 1e-12, "{got} {want}");
            }
            assert!((got.iter().sum::<f64>() - 1.0).abs() < 1e-12);
        }
    }

    #[test]
    fn forced_tokens_cost_no_node() {
        let labels = vec![vec![5, 6, 1, 8, 8], vec![5, 6, 2, 9]];
        let tree = LabelTree::new("f", &labels, 30).unwrap();
        assert_eq!(tree.nodes().len(), 1);
        assert_eq!(tree.nodes()[0].tokens, [5, 6]);
        assert_eq!(tree.tokens(), 2);
    }

    #[test]
    fn equal_labels_are_refused() {
        let error = LabelTree::new("kind", &[vec![1], vec![2], vec![1]], 30).unwrap_err();
        assert!(error.to_string().contains("kind"), "{error}");
        assert!(LabelTree::new("kind", &[vec![1]], 30).is_err());
    }

    #[test]
    fn mass_is_the_allowed_share() {
        let tree = LabelTree::new("f", &[vec![0], vec![1]], 3).unwrap();
        assert!((tree.mass(&[0.0, 0.0, 0.0, 0.0]) - 0.5).abs() < 1e-9);
    }
}
