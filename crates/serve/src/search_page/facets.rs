//! The number of packages for each value of a filter.

use std::collections::{BTreeMap, BTreeSet};

use crate::package_summary::PackageSummary;

/// The values of one filter that are counted at most.
const MOST: usize = 1_000;

/// A filter whose values are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Facet {
    Catalog = 1,
    Category = 2,
    InstallMode = 4,
    Api = 8,
    Capability = 16,
    Deprecated = 32,
}

impl Facet {
    /// All filters, in the order of the page.
    pub(crate) const ALL: [Self; 6] = [
        Self::Catalog,
        Self::Category,
        Self::Capability,
        Self::InstallMode,
        Self::Api,
        Self::Deprecated,
    ];

    /// The parameter that sets it.
    pub(crate) fn parameter(self) -> &'static str {
        match self {
            Self::Catalog => "catalog",
            Self::Category => "category",
            Self::InstallMode => "installMode",
            Self::Api => "api",
            Self::Capability => "capability",
            Self::Deprecated => "deprecated",
        }
    }

    /// The bit of the filter in a set of filters.
    pub(crate) fn bit(self) -> u8 {
        self as u8
    }
}

/// A value of a filter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FacetValue {
    /// The value, in the spelling of the first catalog.
    pub(crate) name: String,
    /// The number of packages with the value.
    pub(crate) count: usize,
}

/// The counted values of all filters.
#[derive(Debug, Default)]
pub(crate) struct Facets {
    counted: BTreeMap<u8, BTreeMap<String, FacetValue>>,
}

impl Facets {
    /// Counts a package. `missed` has the bits of the filters that it does not pass: it counts for a filter if no other
    /// filter excludes it.
    pub(crate) fn add(&mut self, catalog: &str, facts: &PackageSummary, missed: u8) {
        for facet in Facet::ALL.into_iter().filter(|facet| missed & !facet.bit() == 0) {
            match facet {
                Facet::Catalog => self.count(facet, [catalog]),
                Facet::Category => self.count(facet, facts.categories.iter().map(String::as_str)),
                Facet::InstallMode => self.count(facet, facts.install_modes.iter().map(String::as_str)),
                Facet::Api => {
                    let groups: BTreeSet<&str> =
                        facts.provided_apis.iter().map(|api| api.group.as_str()).collect();
                    self.count(facet, groups);
                }
                Facet::Capability => self.count(facet, [facts.capability.as_str()]),
                Facet::Deprecated => {
                    self.count(
                        facet,
                        [if facts.deprecated.is_empty() {
                            "false"
                        } else {
                            "true"
                        }],
                    );
                }
            }
        }
    }

    fn count<'a>(&mut self, facet: Facet, values: impl IntoIterator<Item = &'a str>) {
        let counted = self.counted.entry(facet.bit()).or_default();
        for value in values.into_iter().filter(|value| !value.is_empty()) {
            let key = value.to_lowercase();
            let has_room = counted.len() < MOST;
            match counted.get_mut(&key) {
                Some(known) => known.count += 1,
                None if has_room => {
                    let name = value.to_owned();
                    counted.insert(key, FacetValue { name, count: 1 });
                }
                None => {}
            }
        }
    }

    /// The values of a filter: the most frequent first, then by name.
    pub(crate) fn values(&self, facet: Facet) -> Vec<&FacetValue> {
        let counted = self.counted.get(&facet.bit());
        let mut values: Vec<&FacetValue> = counted.into_iter().flat_map(BTreeMap::values).collect();
        values.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.name.cmp(&b.name)));
        values
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(category: &str, capability: &str) -> PackageSummary {
        PackageSummary {
            categories: vec![category.to_owned()],
            capability: capability.to_owned(),
            ..PackageSummary::default()
        }
    }

    #[test]
    fn a_value_counts_what_the_other_filters_let_through() {
        let mut facets = Facets::default();
        facets.add("a", &facts("Database", "Basic Install"), 0);
        facets.add("a", &facts("database", "Auto Pilot"), Facet::Capability.bit());
        facets.add("b", &facts("Storage", "Auto Pilot"), Facet::Capability.bit());
        facets.add("b", &facts("Storage", "Auto Pilot"), 255);
        let shown = |facet| {
            let values = facets.values(facet).into_iter();
            values
                .map(|value| (value.name.as_str(), value.count))
                .collect::<Vec<_>>()
        };
        assert_eq!(shown(Facet::Category), [("Database", 1)]);
        assert_eq!(
            shown(Facet::Capability),
            [("Auto Pilot", 2), ("Basic Install", 1)]
        );
        assert_eq!(shown(Facet::Catalog), [("a", 1)]);
        assert_eq!(shown(Facet::Deprecated), [("false", 1)]);
    }

    #[test]
    fn letter_case_does_not_divide_a_value_and_there_is_an_end_to_them() {
        let mut facets = Facets::default();
        for category in ["Database", "database"] {
            facets.add("a", &facts(category, ""), 0);
        }
        assert_eq!(facets.values(Facet::Category)[0].count, 2);
        for number in 0..2 * MOST {
            facets.add("a", &facts(&number.to_string(), ""), 0);
        }
        assert_eq!(facets.values(Facet::Category).len(), MOST);
    }
}
