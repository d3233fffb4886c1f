//! What of an installed extension is deprecated.

use olm_fbc::{Deprecations, SCHEMA_BUNDLE, SCHEMA_CHANNEL, SCHEMA_PACKAGE};

/// The messages for users, those of package, channels and bundle apart.
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
    /// All of them: package, channels, bundle.
    pub fn all(&self) -> impl Iterator<Item = &str> {
        self.package
            .iter()
            .chain(&self.channels)
            .chain(&self.bundle)
            .map(String::as_str)
    }
}

/// The messages about an extension that follows `channels` (all, when empty) and has `bundle` installed.
///
/// An entry without a text still says that its subject is deprecated.
pub fn messages(deprecations: &Deprecations, channels: &[String], bundle: Option<&str>) -> Messages {
    let mut messages = Messages::default();
    for entry in &deprecations.entries {
        let name = entry.reference.name.as_str();
        let (messages, subject) = match entry.reference.schema.as_str() {
            SCHEMA_PACKAGE => (
                &mut messages.package,
                format!("package {} is deprecated", deprecations.package),
            ),
            SCHEMA_CHANNEL if channels.is_empty() || channels.iter().any(|channel| channel == name) => {
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
