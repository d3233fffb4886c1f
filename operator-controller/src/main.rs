//! `operator-controller`.
fn main() {}
