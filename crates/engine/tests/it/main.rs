//! One integration binary, so that candle links once.

#![allow(clippy::unwrap_used, missing_docs)]

mod packing;
mod reference;
mod tiny;
