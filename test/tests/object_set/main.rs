//! ClusterObjectSets on a real control plane: the controller runs in this process with the rights that the shipped
//! manifests give it. All tests share one cluster and one controller, each in a namespace of its own.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

mod content;
mod ownership;
mod removal;
mod rights;
mod rollout;
mod upkeep;
mod world;
