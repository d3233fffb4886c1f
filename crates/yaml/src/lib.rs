//! YAML in the dialect of Kubernetes tooling.
//!
//! Kubernetes converts YAML to JSON first, with YAML 1.1 scalars: `yes` is a boolean, `017` is fifteen, `1e3` is the
//! integer 1000, the key `y:` is `"true"`, `<<` merges, the last of two equal keys wins. Other rules would change the
//! content of bundles, so this crate follows these rules exactly. It uses an event parser.
//!
//! - [`to_json`]: the first document of a text as a JSON value.
//! - [`documents`]: every document of a stream of YAML or JSON, one at a time.
//! - [`to_yaml`]: a JSON value as YAML text in the form of the same tooling.
//!
//! [`Limits`] bounds all input. The crate does no input or output, and no code path recurses over its input.

mod build;
mod documents;
mod emit;
mod error;
mod limits;
mod number;
mod order;
mod scalar;
mod timestamp;

pub use build::{to_json, to_json_with};
pub use documents::{Document, DocumentContent, Documents, documents, json_values};
pub use emit::to_yaml;
pub use error::{Error, ErrorKind, Position};
pub use limits::{DuplicateKeys, Limits};
pub use number::{json_float, yaml_float};
