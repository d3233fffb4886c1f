//! `olm`.
fn main() {}
