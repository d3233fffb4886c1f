//! The rules for deprecations.

use std::collections::HashSet;

use olm_version::quoted;

use super::catalog::Names;
use super::{BlobLocation, BundleFacts, ChannelFacts, Checker, DeprecationFacts, Object, Rule};
use crate::blob::deprecation::{DeprecationEntry, Reference};
use crate::{SCHEMA_BUNDLE, SCHEMA_CHANNEL, SCHEMA_PACKAGE};

impl Checker {
    pub(super) fn check_deprecations(&mut self, channels: &[ChannelFacts], bundles: &[BundleFacts]) {
        if self.deprecations.is_empty() {
            return;
        }
        let channels: Names<'_> = channels
            .iter()
            .map(|facts| (&*facts.channel.package, &*facts.channel.name))
            .collect();
        let bundles = Names::of(bundles);
        let mut seen: HashSet<String> = HashSet::new();
        for (index, facts) in std::mem::take(&mut self.deprecations).into_iter().enumerate() {
            let DeprecationFacts { deprecations, place } = facts;
            let package = deprecations.package.as_str();
            let object = Object::package(package);
            let mut find =
                |rule, message: String| self.find(rule, object.clone(), Some(place.clone()), message);
            if deprecations.name.is_some() {
                find(
                    Rule::DeprecationName,
                    "deprecations must not have a name".to_owned(),
                );
            }
            if deprecations.entries.is_empty() {
                find(Rule::DeprecationEmpty, "deprecations have no entries".to_owned());
            }
            if package.is_empty() {
                let message = format!("package name must be set for deprecation item {index}");
                find(Rule::DeprecationPackage, message);
                continue;
            }
            if !self.packages.contains_key(package) {
                let message = format!(
                    "cannot apply deprecations to an unknown package {}",
                    quoted(package)
                );
                self.find(Rule::DeprecationPackage, object, Some(place), message);
                continue;
            }
            if !seen.insert(package.to_owned()) {
                let message = format!(
                    "expected a maximum of one deprecation per package: {}",
                    quoted(package)
                );
                self.find(
                    Rule::DeprecationDuplicate,
                    object.clone(),
                    Some(place.clone()),
                    message,
                );
            }
            let mut references: HashSet<&Reference> = HashSet::new();
            for (index, entry) in deprecations.entries.iter().enumerate() {
                let is_first = references.insert(&entry.reference);
                let is_known = match entry.reference.schema.as_str() {
                    SCHEMA_CHANNEL => channels.contain(package, &entry.reference.name),
                    SCHEMA_BUNDLE => bundles.contain(package, &entry.reference.name),
                    _ => true,
                };
                self.check_deprecation(package, index, entry, &place);
                let quoted_package = quoted(package);
                if !is_first {
                    let message = format!(
                        "duplicate deprecation entry {} for package {quoted_package}",
                        shown(&entry.reference)
                    );
                    self.find(
                        Rule::DeprecationReference,
                        object.clone(),
                        Some(place.clone()),
                        message,
                    );
                }
                if !is_known {
                    let kind = entry.reference.schema.trim_start_matches("olm.");
                    let name = quoted(&entry.reference.name);
                    let message = format!(
                        "cannot deprecate {kind} {name} for package {quoted_package}: {kind} not found"
                    );
                    self.find(
                        Rule::DeprecationReference,
                        object.clone(),
                        Some(place.clone()),
                        message,
                    );
                }
            }
        }
    }

    fn check_deprecation(
        &mut self,
        package: &str,
        index: usize,
        entry: &DeprecationEntry,
        place: &BlobLocation,
    ) {
        let Reference { schema, name } = &entry.reference;
        let package_name = quoted(package);
        let object = match schema.as_str() {
            SCHEMA_CHANNEL => Object::channel(package, name),
            SCHEMA_BUNDLE => Object::bundle(package, name),
            _ => Object::package(package),
        };
        let problem = match schema.as_str() {
            "" => Some(format!(
                "schema must be set for deprecation entry [{index}] for package {package_name}"
            )),
            SCHEMA_PACKAGE if !name.is_empty() => Some(format!(
                "package name must be empty for deprecated package {package_name} (specified {})",
                quoted(name)
            )),
            SCHEMA_PACKAGE | SCHEMA_CHANNEL | SCHEMA_BUNDLE => None,
            _ => Some(format!(
                "cannot deprecate object {} referenced by entry {index} for package {package_name}: object schema unknown",
                shown(&entry.reference)
            )),
        };
        if let Some(problem) = problem {
            self.find(
                Rule::DeprecationReference,
                object.clone(),
                Some(place.clone()),
                problem,
            );
        }
        if entry.message.is_empty() {
            let message = "invalid deprecation: message must be set";
            self.find(Rule::DeprecationMessage, object, Some(place.clone()), message);
        }
    }
}

fn shown(reference: &Reference) -> String {
    format!("{} {}", reference.schema, quoted(&reference.name))
}
