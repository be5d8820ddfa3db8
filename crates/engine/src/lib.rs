//! A self-hosted inference engine with micro-context batching built in.
//!
//! Layers, each importing only from those above it:
//!
//! | module | job |
//! |---|---|
//! | [`error`] | what can go wrong with files, devices and forwards |
//! | [`models`] | the manifest: names to verified local files |
//! | [`tokenizer`], [`prompt`], [`label_tree`] | text to tokens; the seam between rubric and unit; labels as a token tree |
//! | [`model`] | the packed forward, behind one trait: `cpu` (fast) and `portable` (candle, any device) |
//! | [`runner`] | seals the prefix, forks it, packs records, reads answers, continues a prompt |
//! | [`head`] | heads trained from few labels: what they read, how they are fitted, their file |
//! | [`infer`] | implements the operator's `Infer` and `Compose`; the only module that knows both crates |
//! | [`calibrate`] | labelled records to a trained head |
//! | [`tools`] | carries out the tools that a plan declares: files, SQL, HTTP, processes, MCP servers |
//! | [`local`] | opens a model by name or path and joins the pieces |
//! | [`effects`] | does what a verified run comes to, on trackers of files and over HTTP |
//! | [`serve`] | the server: a kernel thread that owns the model, and an HTTP front |
//! | [`mod@bench`] | measures prefix reuse against its controls; knows the runner and texts, not the operator |

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod bench;
pub mod calibrate;
pub mod effects;
pub mod error;
pub mod head;
pub mod infer;
pub mod label_tree;
pub mod local;
pub mod model;
pub mod models;
pub mod prompt;
pub mod runner;
pub mod serve;
pub mod tokenizer;
pub mod tools;
