//! `olm-image`: images from and to registries.
//!
//! ```text
//! text ─► Reference ─► Pinned ─► Image ─► Tree
//!         parse        resolve   manifest  layers, verified and unpacked
//! ```
//!
//! All data from a registry is hostile: every size, count, depth and time has a limit in [`Limits`], each with an error
//! of its own; digests are verified while bytes stream; names from an image never become names on disk.
//!
//! This crate knows nothing about catalogs, clusters or controllers. Start reading at [`Images`].

mod access;
mod build;
mod digest;
#[doc(hidden)]
pub mod fuzz;
mod layer;
mod layout;
mod limits;
mod manifest;
mod mirror;
mod platform;
mod pull;
mod push;
mod reference;
mod registry;

pub use access::Access;
pub use access::credentials::{Credential, Credentials, CredentialsError};
pub use access::current::CurrentPolicy;
pub use access::policy::{Approval, ImagePolicy, Policy, PolicyError, PolicyRejection, Rule, Rules};
pub use access::registries::{Endpoint, PlaceError, Registries, RegistriesError, Security};
pub use access::settings::{Settings, SettingsError};
pub use access::verification::{CachedVerification, SignatureStatus, Verification};
pub use build::{BuildError, BuiltImage, BuiltLayer, ImageBuilder, LayerBuilder};
pub use digest::{Digest, DigestError};
pub use layer::tree::{ContentReader, FileContent, Node, Resolved, Storage, Tree, UnusableLink};
pub use layer::{LayerError, Selection};
pub use layout::{LayoutError, LocalImage};
pub use limits::Limits;
pub use manifest::Blob;
pub use mirror::layout::{Layout, LayoutEntry};
pub use mirror::{Copied, MirrorError, Origin, Outline, Target};
pub use olm_transport::Obstacle;
pub use platform::Platform;
pub use pull::contents::{Contents, LostLink};
pub use pull::permits::{Bounds, RequestPermit, RequestPermits};
pub use pull::{AcceptedImage, Image, Images, Options, PullError};
pub use push::{PushError, Pushed};
pub use reference::{Pinned, Reference, ReferenceError};
pub use registry::clients::TrustError;
pub use registry::error::{Missing, RegistryError, Unreachable};
