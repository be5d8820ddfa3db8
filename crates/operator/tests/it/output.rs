//! The output side: laws of the fold, runs with a scripted backend, store, replay, evaluation.

mod audit;
mod claims;
mod diff;
mod diff_given;
mod duplicates;
mod eval;
mod explain;
mod explain_tree;
mod facts;
mod flights;
mod incremental;
mod laws;
mod recorded;
mod replay;
mod runs;
mod script;
mod selfcheck;
mod store;
mod store_file;
mod store_maintenance;
mod summary;
mod summary_memory;
mod summary_texts;
mod trees;
mod verify;
mod writer;
