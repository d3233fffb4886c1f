//! The command line as users run it: the binary, on directories made for each test.
#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "outside of the test functions too, a test fails where it stands"
)]

mod access;
mod bundle;
mod bundle_validate;
mod catalog;
mod crd;
mod docs;
mod images;
mod push;
mod resolve;
mod search;
mod support;
mod tools;
