//! What a catalog offers, prepared once for all resolutions.

use std::collections::{BTreeMap, BTreeSet};

use olm_fbc::Gvk;

use super::chain;
use super::entry::Entry;
use super::predicate::Predicate;
use crate::registry::{BundleMessage, PackageMessage};

/// The entries of a catalog, with indices.
#[derive(Debug, Clone, Default)]
pub struct Content {
    entries: Vec<Entry>,
    /// The entries of each channel; the channels are sorted by package and name.
    channels: Vec<Vec<usize>>,
    /// The channel of each entry, as an index of `channels`.
    channel_of: Vec<usize>,
    by_gvk: BTreeMap<Gvk, Vec<usize>>,
    /// The entries by the packages that their properties name.
    by_package: BTreeMap<String, Vec<usize>>,
}

impl Content {
    /// The content with these answers of `ListBundles` and of `GetPackage`. Several CatalogSources may share it.
    pub fn new(
        bundles: impl IntoIterator<Item = BundleMessage>,
        packages: &BTreeMap<String, PackageMessage>,
    ) -> Self {
        let entries = bundles.into_iter().filter_map(|bundle| {
            let package = packages.get(&bundle.package_name);
            // A bundle that cannot be read is not offered.
            Entry::of_bundle(&bundle, package).ok()
        });
        Self::of(entries.collect())
    }

    /// The content with these entries.
    pub(super) fn of(entries: Vec<Entry>) -> Self {
        let mut content = Self {
            entries,
            ..Self::default()
        };
        let mut channels: BTreeMap<[&str; 2], Vec<usize>> = BTreeMap::new();
        for (index, entry) in content.entries.iter().enumerate() {
            let key = [entry.package.as_str(), entry.channel.as_str()];
            channels.entry(key).or_default().push(index);
            for gvk in entry.gvks() {
                content.by_gvk.entry(gvk.clone()).or_default().push(index);
            }
            for (package, _) in entry.packages() {
                content.by_package.entry(package.clone()).or_default().push(index);
            }
        }
        content.channels = channels.into_values().collect();
        let mut of_entries: Vec<(usize, usize)> = Vec::new();
        for (channel, members) in content.channels.iter().enumerate() {
            of_entries.extend(members.iter().map(|index| (*index, channel)));
        }
        of_entries.sort_unstable();
        content.channel_of = of_entries.into_iter().map(|(_, channel)| channel).collect();
        content
    }

    /// All entries. They do not know their catalog.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The entries of a package, channel by channel.
    pub fn of_package<'a>(&'a self, package: &'a str) -> impl Iterator<Item = &'a Entry> {
        let package_of = |channel: &Vec<usize>| {
            let first = channel.first().and_then(|index| self.entries.get(*index));
            first.map_or("", |entry| entry.package.as_str())
        };
        let start = self
            .channels
            .partition_point(|channel| package_of(channel) < package);
        let channels = self.channels.get(start..).unwrap_or_default().iter();
        let channels = channels.take_while(move |channel| package_of(channel) == package);
        channels.flatten().filter_map(|index| self.entries.get(*index))
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

    /// The same, each once, sorted by name.
    pub(super) fn by_name(&self, wanted: &Predicate) -> Vec<&Entry> {
        let mut found: Vec<&Entry> = self.satisfying(wanted).map(|(_, entry)| entry).collect();
        found.sort_by_key(|entry| &entry.name);
        found.dedup_by_key(|entry| &entry.name);
        found
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
            let members: Vec<&Entry> = members.filter_map(|index| self.entries.get(*index)).collect();
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
            row("c", "x", "c1"),
        ];
        let content = Content::new(rows, &BTreeMap::new());
        let names = |package| -> Vec<&str> {
            content
                .of_package(package)
                .map(|entry| entry.name.as_str())
                .collect()
        };
        assert_eq!(names("a"), ["a1", "a2"]);
        assert_eq!(names("b"), ["b1"]);
        assert_eq!(names("bb"), Vec::<&str>::new());
        assert_eq!(content.entries().len(), 4);
    }
}
