//! BM25: how well the text of a record fits the words of a query.
//!
//! Source: Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond" (2009), with
//! the inverse document frequency kept above zero as ln(1 + (N - n + 0.5) / (n + 0.5)). The sum is taken in
//! the order of the query's words and then rounded to thousandths, so that equal input gives equal scores.

use super::{Made, Rows, Table};
use crate::error::OperatorError;
use crate::plan::SearchIndex;
use crate::text::text_at;
use crate::words::words;

/// A record in which at least one word of the query stands.
struct Hit {
    ordinal: u32,
    /// Words of its text.
    length: u32,
    /// How often each word of the query stands in it.
    counts: Vec<u32>,
}

pub(super) fn compute(spec: &SearchIndex, rows: &dyn Rows) -> Result<Made, OperatorError> {
    let terms = terms(&spec.query);
    let (mut hits, mut misses) = (Vec::new(), Vec::new());
    let (mut records, mut unreadable, mut total) = (0_u64, 0_u64, 0_u64);
    rows.visit(&mut |row| {
        records += 1;
        let mut hit = Hit {
            ordinal: row.ordinal,
            length: 0,
            counts: vec![0; terms.len()],
        };
        for field in &spec.fields {
            let Ok(text) = text_at(row.fields, field) else {
                unreadable += 1;
                return Ok(());
            };
            for word in words(text.as_deref().unwrap_or_default()) {
                hit.length += 1;
                if let Some(term) = terms.iter().position(|term| *term == word) {
                    hit.counts[term] += 1;
                }
            }
        }
        total += u64::from(hit.length);
        match hit.counts.iter().any(|count| *count > 0) {
            true => hits.push(hit),
            false => misses.push(row.ordinal),
        }
        Ok(())
    })?;
    let readable = hits.len() + misses.len();
    let weights: Vec<f64> = (0..terms.len())
        .map(|term| {
            let found = hits.iter().filter(|hit| hit.counts[term] > 0).count() as f64;
            (1.0 + (readable as f64 - found + 0.5) / (found + 0.5)).ln()
        })
        .collect();
    let mean = total as f64 / readable.max(1) as f64;
    let scored = hits
        .iter()
        .map(|hit| (hit.ordinal, Some(score(spec, hit, &weights, mean)), true));
    // A record without any of the words scores 0, which is not the same as no value.
    let unscored = misses.iter().map(|ordinal| (*ordinal, Some(0), false));
    Ok(Made {
        table: Table::of_members(rows.len(), scored.chain(unscored), spec.top),
        records,
        unreadable,
        learned: None,
    })
}

/// The words of a query, each once.
fn terms(query: &str) -> Vec<String> {
    let mut terms: Vec<String> = Vec::new();
    for word in words(query) {
        if !terms.contains(&word) {
            terms.push(word);
        }
    }
    terms
}

/// A score in thousandths.
fn score(spec: &SearchIndex, hit: &Hit, weights: &[f64], mean: f64) -> i64 {
    let k1 = f64::from(spec.k1_thousandths) / 1_000.0;
    let b = f64::from(spec.b_thousandths) / 1_000.0;
    let norm = k1 * (1.0 - b + b * f64::from(hit.length) / mean);
    let mut sum = 0.0;
    for (count, weight) in hit.counts.iter().zip(weights) {
        let count = f64::from(*count);
        // Also with k1 = 0, where every word counts once: a word that is absent adds nothing.
        if count > 0.0 {
            sum += weight * count * (k1 + 1.0) / (count + norm);
        }
    }
    (sum * 1_000.0).round() as i64
}
