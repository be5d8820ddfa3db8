//! The output side: laws of the fold, runs with a scripted backend, memory, replay, evaluation.

mod audit;
mod eval;
mod laws;
mod memory;
mod replay;
mod runs;
mod script;
