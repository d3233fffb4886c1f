//! Attacks on what the manifests promise, on a real API server: nobody gets more than they were given.
//! docs/design/security.md names the test of each claim.

mod actor;
mod catalogs;
mod claims;
mod content;
mod controller;
mod finalizers;
mod memory;
mod names;
mod overlays;
mod rbac;
mod running;
mod shipped;
mod slow;
mod takeover;

use std::time::Duration;

use olm_test::shared::Shared;
use olm_test::world::Lab;

/// How long tests wait for what takes a moment, on a machine with much else to do.
const SOON: Duration = Duration::from_mins(2);
/// The group of roles and bindings.
const RBAC: &str = "rbac.authorization.k8s.io";

/// An API server with everything that the base ships but the managers.
static LAB: Shared<Lab> = Shared::new(|| Box::pin(Lab::with_manifests("manifests/base")));
