//! registry+v1 bundles: from the files of a bundle to the objects that are applied.
//!
//! The way through the crate is the way of a bundle:
//!
//! 1. [`parse`] reads the files into a [`Bundle`]: annotations, the one ClusterServiceVersion, the custom resource
//!    definitions, everything else.
//! 2. [`Bundle::check_support`] says what in it cannot be installed by us, all of it at once.
//! 3. [`config`] checks the user's `spec.config.inline` against the schema that follows from the install modes.
//! 4. [`render`] validates the bundle and makes the objects, in a fixed order.
//!
//! For catalogs, [`catalog`] turns a bundle into an `olm.bundle` blob, and [`package_manifest`] a directory of the legacy
//! format into a whole catalog. [`draft`] is what authors begin with, [`format`](mod@format), [`validators`] and [`publish`]
//! what they check before they publish.
//!
//! [`prepare`] does the four in a row and is what a controller calls. Nothing here touches the file system: a
//! bundle is a map from path to bytes. Objects stay dynamic, so that no field is lost.

mod admission;
mod annotations;
mod bundle;
pub mod catalog;
pub mod config;
pub mod csv;
mod decode;
mod dependencies;
pub mod draft;
pub mod format;
mod install_modes;
pub mod media_type;
mod members;
pub mod names;
pub mod openshift;
pub mod package_manifest;
mod parse;
mod prepare;
mod properties;
pub mod publish;
pub mod remarks;
pub mod render;
mod shape;
pub mod validate;
pub mod validators;

pub use admission::{Dependencies, Scopes, Support, Unsupported, Webhooks};
pub use annotations::{Annotations, REGISTRY_V1, annotation_keys};
pub use bundle::Bundle;
pub use dependencies::Dependency;
pub use install_modes::{InstallMode, InstallModes, TargetError, TargetNamespaces};
pub use parse::{BundleFiles, ParseError, parse};
pub use prepare::{Prepared, Refusal, Request, prepare};
pub use properties::Property;
pub use render::certificates::UnknownProvider;
pub use render::{CertificateProvider, DeploymentConfig, Options, RenderError, Rendered, render, render_for};
pub use validate::{Finding, Rule};
