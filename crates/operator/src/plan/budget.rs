//! Limits of a run: units, seconds, tokens, and money as tokens cost it.
//!
//! ```toml
//! [budget]
//! units_max = 1000
//! tokens_max = 500000
//! money_max_micros = 2_000_000    # two units of whatever currency the price is in
//! price = { prompt_per_million_micros = 150_000, cached_per_million_micros = 75_000 }
//! ```
//!
//! All are integers. Like every limit they are no part of the plan's hash, for they say how far, not
//! what.

use serde::Deserialize;

use crate::infer::PPM;

/// Limits of a run; they are not part of the plan's hash, for they say how far, not what.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "BudgetFile")]
pub struct Budget {
    /// Most units sent to the model.
    pub units_max: Option<u64>,
    /// Most seconds.
    pub seconds_max: Option<u64>,
    /// Most computed tokens.
    pub tokens_max: Option<u64>,
    /// Most calls of all tools together, retries included.
    pub tool_calls_max: Option<u64>,
    /// Most that the run's tokens may cost, in millionths of the price's currency.
    pub money_max_micros: Option<u64>,
    /// What tokens cost.
    pub price: Option<Price>,
}

/// What a million tokens cost, in millionths of a currency.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Price {
    /// A million prompt tokens that are computed.
    pub prompt_per_million_micros: u64,
    /// A million prompt tokens whose keys and values are reused.
    #[serde(default)]
    pub cached_per_million_micros: u64,
    /// A million tokens that are generated.
    #[serde(default)]
    pub generated_per_million_micros: u64,
}

impl Price {
    /// What so many tokens cost, rounded up to a whole millionth.
    pub fn of(&self, computed_tokens: u64, cached_tokens: u64, generated_tokens: u64) -> u64 {
        let cost = |tokens: u64, per_million: u64| u128::from(tokens) * u128::from(per_million);
        let parts = [
            cost(computed_tokens, self.prompt_per_million_micros),
            cost(cached_tokens, self.cached_per_million_micros),
            cost(generated_tokens, self.generated_per_million_micros),
        ];
        let sum = parts.into_iter().fold(0_u128, u128::saturating_add);
        let micros = sum.div_ceil(u128::from(PPM));
        u64::try_from(micros).unwrap_or(u64::MAX)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BudgetFile {
    units_max: Option<u64>,
    seconds_max: Option<u64>,
    tokens_max: Option<u64>,
    tool_calls_max: Option<u64>,
    money_max_micros: Option<u64>,
    price: Option<Price>,
}

impl TryFrom<BudgetFile> for Budget {
    type Error = &'static str;

    fn try_from(file: BudgetFile) -> Result<Self, Self::Error> {
        if file.money_max_micros.is_some() && file.price.is_none() {
            return Err(
                "budget: money_max_micros needs to know what tokens cost; add price = { \
                 prompt_per_million_micros = ... }",
            );
        }
        Ok(Self {
            units_max: file.units_max,
            seconds_max: file.seconds_max,
            tokens_max: file.tokens_max,
            tool_calls_max: file.tool_calls_max,
            money_max_micros: file.money_max_micros,
            price: file.price,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_price_is_rounded_up_and_never_overflows() {
        let price = Price {
            prompt_per_million_micros: 150_000,
            cached_per_million_micros: 75_000,
            generated_per_million_micros: 600_000,
        };
        assert_eq!(price.of(0, 0, 0), 0);
        assert_eq!(price.of(1, 0, 0), 1);
        assert_eq!(price.of(1_000_000, 2_000_000, 0), 300_000);
        assert_eq!(price.of(100, 100, 1), 24);
        let dear = Price {
            prompt_per_million_micros: u64::MAX,
            cached_per_million_micros: u64::MAX,
            generated_per_million_micros: u64::MAX,
        };
        assert_eq!(dear.of(u64::MAX, u64::MAX, u64::MAX), u64::MAX);
    }
}
