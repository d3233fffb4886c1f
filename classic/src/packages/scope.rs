//! Scope of a request: packages of a namespace, by name, by label.

use olm_classic::package_manifest::{label_selector, name_of_field_selector};
use olm_resolve::Selector;

use super::item::Item;

/// Packages that a request sees.
#[derive(Debug, Clone, Default)]
pub(super) struct Scope {
    /// The namespace; empty for all.
    pub(super) namespace: String,
    /// The namespace whose catalogs every namespace sees.
    pub(super) global: String,
    /// The name; nothing for all.
    pub(super) name: Option<String>,
    labels: Selector,
}

/// A selector that cannot be read.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct SelectorError(String);

impl Scope {
    /// Reads selectors as clients write them.
    pub(super) fn new(
        namespace: &str,
        global: &str,
        fields: &str,
        labels: &str,
    ) -> Result<Self, SelectorError> {
        Ok(Self {
            namespace: namespace.to_owned(),
            global: global.to_owned(),
            name: name_of_field_selector(fields).map_err(|error| SelectorError(error.to_string()))?,
            labels: label_selector(labels).map_err(|error| SelectorError(error.to_string()))?,
        })
    }

    /// Whether catalogs of a namespace are seen.
    pub(super) fn sees_catalogs_of(&self, namespace: &str) -> bool {
        self.namespace.is_empty() || namespace == self.namespace || namespace == self.global
    }

    /// Whether a package of a seen catalog has the name that is asked for.
    pub(super) fn is_named(&self, item: &Item) -> bool {
        self.name.as_deref().is_none_or(|name| name == &*item.name)
    }

    /// Whether a package has the labels that are asked for.
    pub(super) fn is_labelled(&self, item: &Item) -> bool {
        self.labels == Selector::default() || self.labels.matches(&item.labels())
    }

    /// The namespace that a package is shown in.
    pub(super) fn shown_in<'a>(&'a self, item: &'a Item) -> &'a str {
        if self.namespace.is_empty() {
            &item.source.namespace
        } else {
            &self.namespace
        }
    }
}
