//! The server over real connections.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]
#![expect(unreachable_pub, reason = "the tests share their support")]

mod browse;
mod content;
mod hostile;
mod questions;
mod schema;
mod site;
mod support;
