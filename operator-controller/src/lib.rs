//! `operator-controller`.
