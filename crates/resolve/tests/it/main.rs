//! Which bundle an extension gets, and what the refusal says when it gets none.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "the catalogs of these tests are well-formed"
)]

mod choice;
mod common;
mod dependencies;
mod explanations;
mod fleet;
mod joint_update;
mod large;
mod update_paths;
mod updates;
