//! The server: one kernel that owns the model, and an HTTP front that existing clients know.
//!
//! | module | job |
//! |---|---|
//! | [`job`] | what is asked of the kernel and what it tells: the seam between front and kernel |
//!
//! The kernel is one thread with the model; the front is asynchronous and knows no tensor.

pub mod job;
