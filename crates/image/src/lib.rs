//! `olm-image`: images from and to registries.
//!
//! ```text
//! text ─► Reference ─► Pinned ─► Image ─► Tree
//!         parse        resolve   manifest  layers, verified and unpacked
//! ```
//!
//! What comes from a registry is hostile: every size, count, depth and time has a limit in [`Limits`], each with an error
//! of its own; digests are verified while bytes stream; names from an image never become names on disk.
//!
//! This crate knows nothing about catalogs, clusters or controllers. Start reading at [`Images`].

mod auth;
mod build;
mod bundle;
mod credentials;
mod digest;
mod flight;
#[doc(hidden)]
pub mod fuzz;
mod layer;
mod layout;
mod limits;
mod manifest;
mod policy;
mod pull;
mod push;
mod redirect;
mod reference;
mod registries;
mod registry;
mod settings;
mod transfer;
mod tree;
mod trust;

pub use build::{BuildError, BuiltImage, BuiltLayer, ImageBuilder, LayerBuilder};
pub use bundle::Bundle;
pub use credentials::{Credential, Credentials, CredentialsError};
pub use digest::{Digest, DigestError};
pub use layer::{LayerError, Selection};
pub use layout::{LayoutError, LocalImage};
pub use limits::Limits;
pub use policy::{Policy, PolicyError, Refusal};
pub use pull::{Access, Image, Images, Options, Platform, PullError};
pub use push::PushError;
pub use reference::{Pinned, Reference, ReferenceError};
pub use registries::{Endpoint, PlaceError, Registries, RegistriesError, Security};
pub use registry::{Missing, Obstacle, RegistryError, Unanswered};
pub use settings::{Settings, SettingsError};
pub use transfer::Blob;
pub use tree::{Astray, Content, ContentReader, Node, Resolved, Storage, Tree};
pub use trust::TrustError;

#[cfg(test)]
mod registry_tests;
