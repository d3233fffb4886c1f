//! ClusterObjectSets on a real control plane: the controller runs in this process with the rights in the shipped
//! manifests. All tests share one cluster and one controller; each has its own namespace.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

mod content;
mod ownership;
mod removal;
mod rights;
mod rollout;
mod upkeep;
mod world;
