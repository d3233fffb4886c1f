//! The deprecations that concern an installed extension.

use std::collections::HashSet;

use olm_fbc::{Deprecations, SCHEMA_BUNDLE, SCHEMA_CHANNEL, SCHEMA_PACKAGE};

use crate::package::Package;

/// The messages for users, by subject.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Messages {
    /// About the package.
    pub package: Vec<String>,
    /// About the channels.
    pub channels: Vec<String>,
    /// About the installed bundle.
    pub bundle: Vec<String>,
}

impl Messages {
    /// All messages: package, channels, bundle.
    pub fn all(&self) -> impl Iterator<Item = &str> {
        self.package
            .iter()
            .chain(&self.channels)
            .chain(&self.bundle)
            .map(String::as_str)
    }
}

/// The messages about an extension that follows `channels` of a package and has `bundle` installed.
///
/// A channel that the user names counts in any case. Without names, the channels that hold the bundle count (all if
/// none holds it), but only if every one of them is deprecated. An extension does not have to leave a channel while
/// another one is not deprecated.
///
/// An entry without a message still deprecates its subject.
pub fn messages(package: &Package, channels: &[String], bundle: Option<&str>) -> Messages {
    let mut messages = Messages::default();
    let Some(deprecations) = package.deprecations() else {
        return messages;
    };
    let followed = if channels.is_empty() {
        without_alternative(package, deprecations, bundle)
    } else {
        channels.iter().map(String::as_str).collect()
    };
    for entry in &deprecations.entries {
        let name = entry.reference.name.as_str();
        let (messages, subject) = match entry.reference.schema.as_str() {
            SCHEMA_PACKAGE => (
                &mut messages.package,
                format!("package {} is deprecated", deprecations.package),
            ),
            SCHEMA_CHANNEL if followed.contains(name) => {
                (&mut messages.channels, format!("channel {name} is deprecated"))
            }
            SCHEMA_BUNDLE if bundle == Some(name) => {
                (&mut messages.bundle, format!("bundle {name} is deprecated"))
            }
            _ => continue,
        };
        messages.push(if entry.message.is_empty() {
            subject
        } else {
            entry.message.clone()
        });
    }
    messages
}

/// The channels that hold a bundle, all if none holds it; empty if one of them is not deprecated.
fn without_alternative<'a>(
    package: &'a Package,
    deprecations: &Deprecations,
    bundle: Option<&str>,
) -> HashSet<&'a str> {
    let holding: HashSet<&str> = bundle
        .map(|bundle| package.channels_of(bundle).collect())
        .unwrap_or_default();
    let followed = if holding.is_empty() {
        package.channels().collect()
    } else {
        holding
    };
    let entries = deprecations.entries.iter().map(|entry| &entry.reference);
    let deprecated: HashSet<&str> = entries
        .filter(|reference| reference.schema == SCHEMA_CHANNEL)
        .map(|reference| reference.name.as_str())
        .collect();
    if followed.is_subset(&deprecated) {
        followed
    } else {
        HashSet::new()
    }
}
