//! Index of the entries of a catalog, prepared once for all resolutions.

use std::collections::{BTreeMap, BTreeSet};

use olm_fbc::Gvk;

use super::chain;
use super::entry::Entry;
use super::predicate::Predicate;
use crate::registry::{BundleMessage, PackageMessage};

/// The entries of a catalog, with indices.
#[derive(Debug, Clone, Default)]
pub struct EntryIndex {
    entries: Vec<Entry>,
    /// The entries of each channel; the channels are sorted by package and name.
    channels: Vec<Vec<usize>>,
    /// The channel of each entry, as an index of `channels`.
    channel_of: Vec<usize>,
    by_gvk: BTreeMap<Gvk, Vec<usize>>,
    /// The entries by their package and by the packages that their properties name.
    by_package: BTreeMap<String, Vec<usize>>,
    /// Channel and name of the entries that are not the only ones with both.
    repeated: BTreeSet<(String, String)>,
}

impl EntryIndex {
    /// The index of these answers of `ListBundles` and of `GetPackage`. Several CatalogSources may share it.
    pub fn new(
        bundles: impl IntoIterator<Item = BundleMessage>,
        packages: &BTreeMap<String, PackageMessage>,
    ) -> Self {
        let entries = bundles.into_iter().filter_map(|bundle| {
            // A bundle that cannot be read, or whose package cannot be, is not offered.
            let package = packages.get(&bundle.package_name)?;
            Entry::of_bundle(&bundle, Some(package)).ok()
        });
        Self::of(entries.collect())
    }

    /// The index of these entries.
    pub(super) fn of(entries: Vec<Entry>) -> Self {
        let mut indexed = Self {
            entries,
            ..Self::default()
        };
        let mut channels: BTreeMap<[&str; 2], Vec<usize>> = BTreeMap::new();
        let mut places = BTreeSet::new();
        for (index, entry) in indexed.entries.iter().enumerate() {
            let key = [entry.package.as_str(), entry.channel.as_str()];
            channels.entry(key).or_default().push(index);
            for gvk in entry.gvks() {
                indexed.by_gvk.entry(gvk.clone()).or_default().push(index);
            }
            let named = entry.packages().iter().map(|(package, _)| package);
            let packages: BTreeSet<&String> = named.chain([&entry.package]).collect();
            for package in packages {
                indexed.by_package.entry(package.clone()).or_default().push(index);
            }
            let place = (entry.channel.clone(), entry.name.clone());
            if !places.insert(place.clone()) {
                indexed.repeated.insert(place);
            }
        }
        indexed.channels = channels.into_values().collect();
        let mut of_entries: Vec<(usize, usize)> = Vec::new();
        for (channel, members) in indexed.channels.iter().enumerate() {
            of_entries.extend(members.iter().map(|index| (*index, channel)));
        }
        of_entries.sort_unstable();
        indexed.channel_of = of_entries.into_iter().map(|(_, channel)| channel).collect();
        indexed
    }

    /// All entries. They do not know their catalog.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The entries of a package, by their place in the catalog or by their properties.
    pub fn of_package<'a>(&'a self, package: &str) -> impl Iterator<Item = &'a Entry> {
        let found = self.by_package.get(package).into_iter().flatten();
        found.filter_map(|index| self.entries.get(*index))
    }

    /// The names of its packages.
    pub(super) fn packages(&self) -> impl Iterator<Item = &str> {
        self.by_package.keys().map(String::as_str)
    }

    /// Whether no other entry has the same channel and name.
    pub(super) fn is_unique(&self, entry: &Entry) -> bool {
        !self
            .repeated
            .contains(&(entry.channel.clone(), entry.name.clone()))
    }

    /// The entries that satisfy a requirement.
    fn satisfying(&self, wanted: &Predicate) -> impl Iterator<Item = (usize, &Entry)> {
        let found: Vec<usize> = match wanted {
            Predicate::Gvk(gvk) => self.by_gvk.get(gvk).cloned().unwrap_or_default(),
            Predicate::Package(name, ..) => self.by_package.get(name).cloned().unwrap_or_default(),
            _ => (0..self.entries.len()).collect(),
        };
        let found = found.into_iter();
        let found = found.filter_map(|index| Some((index, self.entries.get(index)?)));
        found.filter(|(_, entry)| wanted.holds(entry))
    }

    /// The same in the order of preference: by channel, default channels first, then by chain.
    ///
    /// # Errors
    /// When a channel has not exactly one chain.
    pub(super) fn by_chain(&self, wanted: &Predicate) -> Result<Vec<&Entry>, String> {
        let channels: BTreeSet<(bool, usize)> = self
            .satisfying(wanted)
            .filter_map(|(index, entry)| Some((!entry.is_default_channel, *self.channel_of.get(index)?)))
            .collect();
        let mut providers = Vec::new();
        for (_, channel) in channels {
            let members = self.channels.get(channel).into_iter().flatten();
            let members = members.filter_map(|index| self.entries.get(*index));
            // Of the installed ones only those count that satisfy the requirement.
            let members: Vec<&Entry> = members
                .filter(|entry| !entry.is_existing() || wanted.holds(entry))
                .collect();
            let chain = chain::sorted(&members)?;
            providers.extend(chain.into_iter().filter(|entry| wanted.holds(entry)));
        }
        Ok(providers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_has_only_its_own_entries() {
        let row = |package: &str, channel: &str, name: &str| BundleMessage {
            package_name: package.to_owned(),
            channel_name: channel.to_owned(),
            csv_name: name.to_owned(),
            ..BundleMessage::default()
        };
        let rows = [
            row("b", "x", "b1"),
            row("a", "y", "a2"),
            row("a", "x", "a1"),
            row("unknown", "x", "c1"),
        ];
        let packages = ["a", "b"].map(|name| (name.to_owned(), PackageMessage::default()));
        let index = EntryIndex::new(rows, &packages.into_iter().collect());
        let names = |package| -> Vec<&str> {
            let found = index.of_package(package);
            found.map(|entry| entry.name.as_str()).collect()
        };
        assert_eq!(names("a"), ["a2", "a1"]);
        assert_eq!(names("b"), ["b1"]);
        assert_eq!(names("unknown"), Vec::<&str>::new());
        assert_eq!(index.entries().len(), 3);
    }

    #[test]
    fn an_entry_is_unique_in_its_channel() {
        let row = |package: &str, name: &str| BundleMessage {
            package_name: package.to_owned(),
            channel_name: "stable".to_owned(),
            csv_name: name.to_owned(),
            ..BundleMessage::default()
        };
        let packages = ["a", "b"].map(|name| (name.to_owned(), PackageMessage::default()));
        let rows = [row("a", "same"), row("b", "same"), row("b", "other")];
        let index = EntryIndex::new(rows, &packages.into_iter().collect());
        let unique: Vec<bool> = index
            .entries()
            .iter()
            .map(|entry| index.is_unique(entry))
            .collect();
        assert_eq!(unique, [false, false, true]);
    }
}
