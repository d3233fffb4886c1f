//! YAML as Kubernetes tooling reads and writes it.
//!
//! Kubernetes reads YAML by turning it into JSON first, with YAML 1.1 scalars: `yes` is a boolean, `017` is
//! fifteen, `1e3` is the integer 1000, the key `y:` is `"true"`, `<<` merges, the last of two equal keys wins.
//! A different reading of a bundle would install something else, so this crate follows those rules to the
//! letter over an event parser of its own choice.
//!
//! - [`to_json`]: the first document of a text as a JSON value.
//! - [`documents`]: every document of a stream of YAML or JSON, one at a time.
//! - [`to_yaml`]: a JSON value as YAML text in the form the same tooling writes.
//!
//! Everything read is bounded by [`Limits`]. The crate does no input or output by itself, and no code path
//! recurses over its input.

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
pub use documents::{Content, Document, Documents, documents, json_values};
pub use emit::to_yaml;
pub use error::{Error, ErrorKind, Position};
pub use limits::{DuplicateKeys, Limits};
pub use number::{json_float, yaml_float};
