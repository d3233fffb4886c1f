//! The bundle that an extension gets, and the text of the refusal if it gets none.

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
