//! `catalogd`.
fn main() {}
