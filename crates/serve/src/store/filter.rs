//! The blobs that a request selects.

/// A selection of blobs; an absent field selects all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// The blob's `schema`, exactly.
    pub schema: Option<String>,
    /// The blob's `package` field, exactly. An `olm.package` blob has none.
    pub package: Option<String>,
    /// The blob's `name`, exactly.
    pub name: Option<String>,
}

impl Filter {
    pub(crate) fn as_index_filter(&self) -> olm_fbc::index::Filter<'_> {
        fn text(field: Option<&String>) -> &str {
            field.map(String::as_str).unwrap_or_default()
        }
        olm_fbc::index::Filter {
            schema: text(self.schema.as_ref()),
            package: text(self.package.as_ref()),
            name: text(self.name.as_ref()),
        }
    }
}
