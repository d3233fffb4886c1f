//! The proving ground: a real control plane and registry, the runners of recorded cases and real data, the samples.

pub mod cluster;
pub mod e2e;
pub mod images;
pub mod registry;
pub mod run;
pub mod samples;
pub mod world;
