//! Answers of a registry over a file-based catalog: the calls of the gRPC API `api.Registry`.
//!
//! Messages are written as protobuf writes JSON: without empty fields.

use std::collections::BTreeMap;

use olm_fbc::{Bundle, Catalog, Channel, ChannelEntry, Deprecations, Gvk, Package, graph, property};

mod csv;
mod messages;
mod schemas;

pub use messages::{
    Api, BundleMessage, ChannelEntryMessage, ChannelMessage, DeprecationMessage, PackageMessage, TypedValue,
};
pub use schemas::{SchemaQueryError, custom_schemas};

/// A catalog, ready to be asked. The catalog is a valid one.
#[derive(Debug)]
pub struct Registry<'a> {
    packages: BTreeMap<&'a str, PackageContent<'a>>,
}

#[derive(Debug)]
struct PackageContent<'a> {
    package: &'a Package,
    channels: BTreeMap<&'a str, &'a Channel>,
    bundles: BTreeMap<&'a str, &'a Bundle>,
    deprecations: Option<&'a Deprecations>,
}

/// One entry of a channel with its bundle.
#[derive(Debug, Clone, Copy)]
struct ChannelMember<'a> {
    content: &'a PackageContent<'a>,
    channel: &'a Channel,
    entry: &'a ChannelEntry,
    bundle: &'a Bundle,
}

/// A call finds nothing. The gRPC status is `Unknown`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RegistryError {
    /// There is no such package.
    #[error("package \"{0}\" not found")]
    Package(String),
    /// There is no such package, in the words of `GetBundleThatReplaces`.
    #[error("package {0} not found")]
    ReplacedPackage(String),
    /// The package has no such channel.
    #[error("package \"{0}\", channel \"{1}\" not found")]
    Channel(String, String),
    /// The channel has no such bundle.
    #[error("package \"{0}\", channel \"{1}\", bundle \"{2}\" not found")]
    Bundle(String, String, String),
    /// Nothing in the channel replaces the bundle.
    #[error("no entry found for package \"{0}\", channel \"{1}\"")]
    Entry(String, String),
    /// Nothing replaces the bundle.
    #[error("no channel entries found that replace {0}")]
    Replacing(String),
    /// Nothing provides the API.
    #[error("no channel entries found that provide group:\"{0}\" version:\"{1}\" kind:\"{2}\"")]
    Providing(String, String, String),
    /// No head of a default channel provides the API.
    #[error("no entry found that provides group:\"{0}\" version:\"{1}\" kind:\"{2}\"")]
    Default(String, String, String),
}

impl<'a> Registry<'a> {
    /// Makes a catalog ready.
    pub fn new(catalog: &'a Catalog) -> Self {
        let mut packages: BTreeMap<&str, PackageContent<'_>> = catalog
            .packages
            .iter()
            .map(|package| {
                let content = PackageContent {
                    package,
                    channels: BTreeMap::new(),
                    bundles: BTreeMap::new(),
                    deprecations: None,
                };
                (package.name.as_str(), content)
            })
            .collect();
        for channel in &catalog.channels {
            if let Some(content) = packages.get_mut(channel.package.as_str()) {
                content.channels.insert(&channel.name, channel);
            }
        }
        for bundle in &catalog.bundles {
            if let Some(content) = packages.get_mut(bundle.package.as_str()) {
                content.bundles.insert(&bundle.name, bundle);
            }
        }
        for deprecations in &catalog.deprecations {
            if let Some(content) = packages.get_mut(deprecations.package.as_str()) {
                content.deprecations = Some(deprecations);
            }
        }
        Self { packages }
    }

    /// `ListPackages`: the names of the packages, sorted.
    pub fn list_packages(&self) -> Vec<&'a str> {
        self.packages.keys().copied().collect()
    }

    /// `GetPackage`.
    ///
    /// # Errors
    /// When there is no such package.
    pub fn get_package(&self, name: &str) -> Result<PackageMessage, RegistryError> {
        let content = self.content(name)?;
        let channels = content.channels.values().map(|channel| ChannelMessage {
            name: channel.name.clone(),
            csv_name: head(channel).unwrap_or_default().to_owned(),
            deprecation: content.deprecation(olm_fbc::SCHEMA_CHANNEL, &channel.name),
        });
        Ok(PackageMessage {
            name: content.package.name.clone(),
            channels: channels.collect(),
            default_channel_name: content.package.default_channel.clone(),
            deprecation: content.deprecation(olm_fbc::SCHEMA_PACKAGE, ""),
        })
    }

    /// `ListBundles`: one message for each entry of each channel, by channel, package and name. A bundle with an image
    /// has no manifests.
    pub fn list_bundles(&self) -> Vec<BundleMessage> {
        let mut members: Vec<ChannelMember<'_>> = self.members().collect();
        members.sort_by_key(|member| {
            (
                member.channel.name.as_str(),
                member.bundle.package.as_str(),
                member.bundle.name.as_str(),
            )
        });
        let messages = members.into_iter().map(|member| {
            if member.bundle.image.is_empty() {
                member.message()
            } else {
                member.message_without_manifests()
            }
        });
        messages.collect()
    }

    /// `GetBundle`: without the name of the bundle that it replaces.
    ///
    /// # Errors
    /// When there is no such bundle in the channel.
    pub fn get_bundle(
        &self,
        package: &str,
        channel: &str,
        name: &str,
    ) -> Result<BundleMessage, RegistryError> {
        let mut members = self.channel(package, channel)?;
        let found = members.find(|member| member.entry.name == name);
        let found = found
            .ok_or_else(|| RegistryError::Bundle(package.to_owned(), channel.to_owned(), name.to_owned()))?;
        Ok(found.alone())
    }

    /// `GetBundleForChannel`: the head of the channel.
    ///
    /// # Errors
    /// When there is no such channel.
    pub fn get_bundle_for_channel(
        &self,
        package: &str,
        channel: &str,
    ) -> Result<BundleMessage, RegistryError> {
        let mut members = self.channel(package, channel)?;
        let found = members.find(|member| head(member.channel) == Some(member.entry.name.as_str()));
        let found = found
            .ok_or_else(|| RegistryError::Bundle(package.to_owned(), channel.to_owned(), String::new()))?;
        Ok(found.alone())
    }

    /// `GetChannelEntriesThatReplace`: those that replace or skip a bundle.
    ///
    /// # Errors
    /// When there is none.
    pub fn entries_that_replace(&self, name: &str) -> Result<Vec<ChannelEntryMessage>, RegistryError> {
        let mut entries = Vec::new();
        for member in self.members() {
            let replaced = member.entry.replaces().unwrap_or_default();
            let skips = member.entry.skips.iter();
            let skips = skips.filter(|skip| *skip == name && *skip != replaced).count();
            let count = usize::from(replaced == name) + skips;
            entries.extend((0..count).map(|_| member.named(replaced)));
        }
        if entries.is_empty() {
            return Err(RegistryError::Replacing(name.to_owned()));
        }
        Ok(entries)
    }

    /// `GetBundleThatReplaces`: the first by name that replaces or skips a bundle in a channel.
    ///
    /// # Errors
    /// When there is none.
    pub fn get_bundle_that_replaces(
        &self,
        name: &str,
        package: &str,
        channel: &str,
    ) -> Result<BundleMessage, RegistryError> {
        if !self.packages.contains_key(package) {
            return Err(RegistryError::ReplacedPackage(package.to_owned()));
        }
        let members = self.channel(package, channel)?;
        let replacing = members.filter(|member| {
            member.entry.replaces().unwrap_or_default() == name
                || member.entry.skips.iter().any(|skip| skip == name)
        });
        let found = replacing.min_by_key(|member| member.entry.name.as_str());
        let found = found.ok_or_else(|| RegistryError::Entry(package.to_owned(), channel.to_owned()))?;
        Ok(found.alone())
    }

    /// `GetChannelEntriesThatProvide`: all entries whose bundle provides an API, once for each entry that it replaces
    /// or skips.
    ///
    /// # Errors
    /// When there is none.
    pub fn entries_that_provide(&self, api: &Gvk) -> Result<Vec<ChannelEntryMessage>, RegistryError> {
        let members = self.members().filter(|member| member.provides(api));
        some(members.flat_map(|member| member.edges(false)).collect(), api)
    }

    /// `GetLatestChannelEntriesThatProvide`: the heads of channels that provide an API. A skipped entry counts where
    /// the channel has it.
    ///
    /// # Errors
    /// When there is none.
    pub fn latest_entries_that_provide(&self, api: &Gvk) -> Result<Vec<ChannelEntryMessage>, RegistryError> {
        let heads = self.members().filter(|member| {
            member.provides(api) && head(member.channel) == Some(member.entry.name.as_str())
        });
        some(heads.flat_map(|member| member.edges(true)).collect(), api)
    }

    /// `GetDefaultBundleThatProvides`: the head of the default channel of the first package by name that provides an
    /// API.
    ///
    /// # Errors
    /// When there is none.
    pub fn default_bundle_that_provides(&self, api: &Gvk) -> Result<BundleMessage, RegistryError> {
        for entry in self.latest_entries_that_provide(api)? {
            let content = self.content(&entry.package_name)?;
            if content.package.default_channel == entry.channel_name {
                return self.get_bundle(&entry.package_name, &entry.channel_name, &entry.bundle_name);
            }
        }
        let Gvk { group, version, kind } = api.clone();
        Err(RegistryError::Default(group, version, kind))
    }

    fn content(&self, name: &str) -> Result<&PackageContent<'a>, RegistryError> {
        let content = self.packages.get(name);
        content.ok_or_else(|| RegistryError::Package(name.to_owned()))
    }

    fn members(&self) -> impl Iterator<Item = ChannelMember<'_>> {
        self.packages.values().flat_map(|content| {
            let channels = content.channels.values();
            channels.flat_map(move |channel| content.members(channel))
        })
    }

    fn channel(
        &self,
        package: &str,
        channel: &str,
    ) -> Result<impl Iterator<Item = ChannelMember<'_>>, RegistryError> {
        let content = self.content(package)?;
        let found = content.channels.get(channel);
        let missing = || RegistryError::Channel(package.to_owned(), channel.to_owned());
        Ok(content.members(found.ok_or_else(missing)?))
    }
}

fn some(
    entries: Vec<ChannelEntryMessage>,
    Gvk { group, version, kind }: &Gvk,
) -> Result<Vec<ChannelEntryMessage>, RegistryError> {
    if entries.is_empty() {
        return Err(RegistryError::Providing(
            group.clone(),
            version.clone(),
            kind.clone(),
        ));
    }
    Ok(entries)
}

/// The name of the head of a channel.
fn head(channel: &Channel) -> Option<&str> {
    graph::head(&channel.entries)
        .ok()
        .map(|entry| entry.name.as_str())
}

impl<'a> PackageContent<'a> {
    /// The entries of a channel whose bundles the catalog has, by name.
    fn members(&'a self, channel: &'a Channel) -> impl Iterator<Item = ChannelMember<'a>> {
        let entries: BTreeMap<&str, &ChannelEntry> = channel
            .entries
            .iter()
            .map(|entry| (entry.name.as_str(), entry))
            .collect();
        entries.into_values().filter_map(move |entry| {
            Some(ChannelMember {
                content: self,
                channel,
                entry,
                bundle: self.bundles.get(entry.name.as_str())?,
            })
        })
    }

    fn deprecation(&self, schema: &str, name: &str) -> Option<DeprecationMessage> {
        let mut entries = self.deprecations?.entries.iter();
        let found = entries.find(|entry| entry.reference.schema == schema && entry.reference.name == name)?;
        Some(DeprecationMessage {
            message: found.message.clone(),
        })
    }
}

impl ChannelMember<'_> {
    fn provides(&self, api: &Gvk) -> bool {
        let mut properties = self.bundle.properties.iter();
        properties.any(|property| {
            property.kind == property::TYPE_GVK && property.gvk().is_ok_and(|found| found == *api)
        })
    }

    fn named(&self, replaces: &str) -> ChannelEntryMessage {
        ChannelEntryMessage {
            package_name: self.content.package.name.clone(),
            channel_name: self.channel.name.clone(),
            bundle_name: self.entry.name.clone(),
            replaces: replaces.to_owned(),
        }
    }

    /// One entry for the bundle that it replaces, and one for each other that it skips; of those only the ones in the
    /// channel if asked.
    fn edges(&self, is_within: bool) -> Vec<ChannelEntryMessage> {
        let replaced = self.entry.replaces().unwrap_or_default();
        let mut edges = vec![self.named(replaced)];
        for skip in &self.entry.skips {
            let is_there = self.channel.entries.iter().any(|entry| entry.name == *skip);
            if skip != replaced && (is_there || !is_within) {
                edges.push(self.named(skip));
            }
        }
        edges
    }

    /// The message without the replaced bundle.
    fn alone(&self) -> BundleMessage {
        let mut message = self.message();
        message.replaces.clear();
        message.skips.clear();
        message
    }

    fn message(&self) -> BundleMessage {
        let mut message = self.message_without_manifests();
        let manifests = csv::manifests(self.content.package, self.bundle, &message.version);
        message.csv_json = manifests.csv;
        message.object = manifests.objects;
        message
    }

    fn message_without_manifests(&self) -> BundleMessage {
        let Self {
            content,
            channel,
            entry,
            bundle,
        } = self;
        let mut message = messages::of_bundle(bundle);
        channel.name.clone_into(&mut message.channel_name);
        entry
            .replaces()
            .unwrap_or_default()
            .clone_into(&mut message.replaces);
        message.skips = entry.skips.to_vec();
        entry
            .skip_range()
            .unwrap_or_default()
            .clone_into(&mut message.skip_range);
        message.deprecation = content.deprecation(olm_fbc::SCHEMA_BUNDLE, &bundle.name);
        message
    }
}
