//! The proving ground: a real control plane and registry, the runners of recorded cases and real data, the samples.

pub mod bench;
pub mod cluster;
pub mod conformance;
pub mod dist;
pub mod docs;
pub mod e2e;
pub mod extensions;
pub mod fuzz;
pub mod gitops;
pub mod realdata;
pub mod registry;
pub mod run;
pub mod samples;
pub mod world;

pub use cluster::objects;
pub use dist::images;
pub use world::{classic, faults, masks, shared};
