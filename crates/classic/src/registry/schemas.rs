//! `ExperimentalListPackageCustomSchemas`: blobs of schemas that OLM does not know.

use olm_fbc::Catalog;
use serde_json::Value;

const PATTERN: &str = "^[a-zA-Z0-9][a-zA-Z0-9._-]*$";

/// A query that is refused. The gRPC status is `InvalidArgument`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SchemaQueryError {
    /// No schema is named.
    #[error("schema is required")]
    NoSchema,
    /// A name has another form.
    #[error("invalid custom schema query: invalid {0} \"{1}\": must match {PATTERN}")]
    Form(&'static str, String),
}

/// The blobs of a schema in a package, or of none. Without an acknowledgement that the call is an experiment there are
/// none.
///
/// # Errors
/// When the query is not one.
pub fn custom_schemas(
    catalog: &Catalog,
    schema: &str,
    package: &str,
    is_acknowledged: bool,
) -> Result<Vec<Value>, SchemaQueryError> {
    if !is_acknowledged {
        return Ok(Vec::new());
    }
    if schema.is_empty() {
        return Err(SchemaQueryError::NoSchema);
    }
    for (field, value) in [("schema", schema), ("packageName", package)] {
        if !value.is_empty() && !has_form(value) {
            return Err(SchemaQueryError::Form(field, value.to_owned()));
        }
    }
    let found = catalog
        .others
        .iter()
        .filter(|meta| meta.schema == schema && meta.package == package);
    Ok(found
        .filter_map(|meta| serde_json::from_str(meta.json()).ok())
        .collect())
}

fn has_form(text: &str) -> bool {
    let mut letters = text.chars();
    letters.next().is_some_and(|first| first.is_ascii_alphanumeric())
        && letters.all(|letter| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '_' | '-'))
}
