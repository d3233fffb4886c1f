//! Sets of namespaces. The one name `""` stands for all namespaces.

use std::collections::BTreeSet;

/// A set of namespaces. Only the set of the one name `""` is all namespaces; among others `""` is a name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NamespaceSet(BTreeSet<String>);

impl NamespaceSet {
    /// The names in a list separated by commas. Blanks belong to the names, and the empty text is all namespaces.
    pub fn parse(list: &str) -> Self {
        list.split(',').map(str::to_owned).collect()
    }

    /// Whether it is all namespaces.
    pub fn is_all(&self) -> bool {
        self.0.len() == 1 && self.0.contains("")
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the namespace is in the set.
    pub fn contains(&self, namespace: &str) -> bool {
        self.is_all() || self.0.contains(namespace)
    }

    /// The names in order.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    /// The namespaces in either.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        if self.is_all() {
            self.clone()
        } else if other.is_all() {
            other.clone()
        } else {
            Self(self.0.union(&other.0).cloned().collect())
        }
    }

    /// The namespaces in both. All namespaces and none have none in common.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        if self.is_all() {
            other.clone()
        } else if other.is_all() {
            self.clone()
        } else {
            Self(self.0.intersection(&other.0).cloned().collect())
        }
    }
}

impl FromIterator<String> for NamespaceSet {
    fn from_iter<T: IntoIterator<Item = String>>(names: T) -> Self {
        Self(names.into_iter().collect())
    }
}

/// Whether the namespaces that an OperatorGroup selects differ from those in its status. The order does not matter.
///
/// A recorded list with a name twice counts as longer than it is; the status is written by OLM alone and has none.
pub fn changed(current: &[String], recorded: &[String]) -> bool {
    current.len() != recorded.len() || recorded.iter().any(|name| !current.contains(name))
}

/// The namespaces that were added or removed, sorted. All namespaces are no namespace to look at.
pub fn added_or_removed(recorded: &[String], current: &[String]) -> BTreeSet<String> {
    let mut differing: BTreeSet<&str> = recorded.iter().map(String::as_str).collect();
    for name in current {
        // A name that comes twice is looked at once too often rather than not at all.
        if !differing.remove(name.as_str()) {
            differing.insert(name);
        }
    }
    differing.remove("");
    differing.into_iter().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(names: &[&str]) -> NamespaceSet {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn list(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn only_the_empty_name_alone_is_all_namespaces() {
        assert!(set(&[""]).contains("x"));
        assert!(!set(&["", "y"]).contains("x"));
        assert!(NamespaceSet::parse("").is_all());
        assert!(NamespaceSet::parse("x, y").contains(" y"));
    }

    #[test]
    fn all_namespaces_meet_every_set_that_has_some() {
        assert_eq!(set(&[""]).intersection(&set(&["x"])), set(&["x"]));
        assert_eq!(set(&["x", "y"]).intersection(&set(&[""])), set(&["x", "y"]));
        assert!(set(&[]).intersection(&set(&[""])).is_empty());
        assert_eq!(set(&["x"]).union(&set(&[""])), set(&[""]));
    }

    #[test]
    fn the_order_of_namespaces_is_no_change() {
        assert!(!changed(&list(&["x", "y"]), &list(&["y", "x"])));
        assert!(changed(&list(&["x", "y"]), &list(&["x", "z"])));
        assert!(changed(&list(&["x"]), &list(&[])));
    }

    #[test]
    fn added_and_removed_namespaces_are_looked_at() {
        let differing = added_or_removed(&list(&["", "x", "y"]), &list(&["y", "z"]));
        assert_eq!(differing.into_iter().collect::<Vec<_>>(), ["x", "z"]);
    }
}
