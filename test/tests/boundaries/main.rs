//! Attacks on the guarantees of the manifests, on a real API server: no user gains rights. docs/design/security.md
//! lists the test of each claim.

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

/// The time limit for short waits on a busy machine.
const SOON: Duration = Duration::from_mins(2);
/// The group of roles and bindings.
const RBAC: &str = "rbac.authorization.k8s.io";

/// An API server with all objects of the base except the managers.
static LAB: Shared<Lab> = Shared::new(|| Box::pin(Lab::with_manifests("manifests/base")));
