//! registry+v1 bundles: from the files of a bundle to the objects that are applied.
//!
//! The steps:
//!
//! 1. [`parse`] reads the files into a [`Bundle`]: annotations, the ClusterServiceVersion, the custom resource
//!    definitions, and other manifests.
//! 2. [`Bundle::check_support`] lists all features that this installation does not support.
//! 3. [`config`] checks the user's `spec.config.inline` against the schema that follows from the install modes.
//! 4. [`render`] validates the bundle and makes the objects, in a fixed order.
//!
//! Controllers call [`prepare`], which performs all steps. Nothing here accesses the file system: a bundle is a map
//! from path to bytes. Objects stay dynamic, so that no field is lost.
//!
//! The tools of authors (lint of a bundle that is not published yet, drafts, entries of catalogs) are in `olm-author`.

mod bundle;
pub mod config;
pub mod csv;
mod files;
mod install_modes;
pub mod lint;
pub mod metadata;
pub mod names;
pub mod object;
pub mod openshift;
mod parse;
mod prepare;
pub mod reader;
pub mod render;

pub use bundle::Bundle;
pub use files::{BundleFiles, DIRECTORIES};
pub use install_modes::{InstallMode, InstallModes, TargetError, TargetNamespaces};
pub use lint::support::{Dependencies, Scopes, Support, Unsupported, Webhooks};
pub use lint::{Rule, RuleViolation};
pub use metadata::{Annotations, Dependency, Property, REGISTRY_V1, annotation_keys, media_type};
pub use parse::{ParseError, parse};
pub use prepare::{PrepareError, Prepared, Request, prepare};
pub use render::certificates::UnknownProvider;
pub use render::{CertificateProvider, DeploymentConfig, Options, RenderError, Rendered, render, render_for};
