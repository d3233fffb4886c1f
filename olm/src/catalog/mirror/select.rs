//! The part of a catalog that is mirrored.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, anyhow};
use olm_fbc::property::{TYPE_PACKAGE, TYPE_PACKAGE_REQUIRED};
use olm_fbc::{Bundle, Catalog, SCHEMA_BUNDLE, SCHEMA_CHANNEL};
use olm_version::masterminds::Constraint;
use olm_version::{BuildMetadata, VersionRelease};

use crate::hint::Hint;
use crate::source::no_package;

/// A package, and the versions that are wanted.
#[derive(Debug, Clone)]
pub(crate) struct PackageSelector {
    package: String,
    range: Option<(String, Constraint)>,
}

impl std::str::FromStr for PackageSelector {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (package, range) = match text.split_once('@') {
            Some((package, range)) => (package, Some(range)),
            None => (text, None),
        };
        if package.is_empty() {
            return Err("write PACKAGE or PACKAGE@RANGE".to_owned());
        }
        let parse = |range: &str| match Constraint::parse(range) {
            Ok(parsed) => Ok((range.to_owned(), parsed)),
            Err(error) => Err(format!("{range:?} is not a version range: {error}")),
        };
        Ok(Self {
            package: package.to_owned(),
            range: range.map(parse).transpose()?,
        })
    }
}

impl PackageSelector {
    fn has(&self, bundle: &Bundle) -> bool {
        let Some((_, range)) = &self.range else {
            return true;
        };
        let property = bundle.properties.iter().find(|one| one.kind == TYPE_PACKAGE);
        let declared = property.and_then(|property| property.package().ok());
        let version = declared
            .and_then(|declared| VersionRelease::parse(&declared.version, BuildMetadata::Release).ok());
        version.is_some_and(|version| range.check(&version.version))
    }
}

/// The chosen packages with the chosen bundles. Channels lose the entries of the others; a channel without any is left
/// out.
///
/// # Errors
/// A package is missing, or none of its bundles or of its default channel's entries remains.
pub(crate) fn select(
    mut catalog: Catalog,
    wanted: &[PackageSelector],
    source: &str,
) -> anyhow::Result<Catalog> {
    for one in wanted {
        if !catalog.packages.iter().any(|package| package.name == one.package) {
            let names = catalog.packages.iter().map(|package| package.name.as_str());
            return Err(no_package(&one.package, source, names));
        }
    }
    let is_wanted = |package: &str| wanted.iter().any(|one| one.package == package);
    let has = |bundle: &Bundle| {
        let mut of_package = wanted.iter().filter(|one| one.package == bundle.package);
        of_package.any(|one| one.has(bundle))
    };
    catalog.packages.retain(|package| is_wanted(&package.name));
    catalog.bundles.retain(has);
    catalog.others.retain(|other| is_wanted(&other.package));
    let mut kept: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for bundle in &catalog.bundles {
        kept.entry(&bundle.package).or_default().insert(&bundle.name);
    }
    if let Some(one) = wanted.iter().find(|one| !kept.contains_key(one.package.as_str())) {
        let range = one
            .range
            .as_ref()
            .map(|(text, _)| text.as_str())
            .unwrap_or_default();
        return Err(anyhow!("package {:?} has no bundle in {range:?}", one.package));
    }
    catalog.channels.retain(|channel| is_wanted(&channel.package));
    for channel in &mut catalog.channels {
        let entries = std::mem::take(&mut channel.entries).into_vec().into_iter();
        let names = kept.get(channel.package.as_str());
        channel.entries = entries
            .filter(|entry| names.is_some_and(|names| names.contains(entry.name.as_str())))
            .collect();
    }
    catalog.channels.retain(|channel| !channel.entries.is_empty());
    for package in &catalog.packages {
        let default = &package.default_channel;
        let mut channels = catalog.channels.iter();
        if !channels.any(|channel| channel.package == package.name && channel.name == *default) {
            let error = anyhow!(
                "no chosen bundle of package {:?} is in its default channel {default:?}",
                package.name
            );
            return Err(error.context(Hint("choose a wider range".to_owned())));
        }
    }
    catalog.deprecations.retain(|one| is_wanted(&one.package));
    for deprecations in &mut catalog.deprecations {
        let entries = std::mem::take(&mut deprecations.entries).into_vec().into_iter();
        let package = deprecations.package.as_str();
        let channels = &catalog.channels;
        deprecations.entries = entries
            .filter(|entry| {
                let name = entry.reference.name.as_str();
                match entry.reference.schema.as_str() {
                    SCHEMA_BUNDLE => kept.get(package).is_some_and(|names| names.contains(name)),
                    SCHEMA_CHANNEL => channels
                        .iter()
                        .any(|channel| channel.package == package && channel.name == name),
                    _ => true,
                }
            })
            .collect();
    }
    Ok(catalog)
}

/// The packages that bundles of the catalog require and the catalog lacks, with the first bundle that requires each.
pub(crate) fn lacking(catalog: &Catalog) -> anyhow::Result<BTreeMap<String, String>> {
    let mut found = BTreeMap::new();
    for bundle in &catalog.bundles {
        let properties = bundle.properties.iter();
        for property in properties.filter(|one| one.kind == TYPE_PACKAGE_REQUIRED) {
            let required = property.package_required_in_any_spelling();
            let required = required.with_context(|| format!("cannot read what {} requires", bundle.name))?;
            let name = required.package_name;
            if !catalog.packages.iter().any(|package| package.name == name) {
                found.entry(name).or_insert_with(|| bundle.name.clone());
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use olm_fbc::meta::limits;

    use super::*;

    const CATALOG: &str = r#"
{"schema":"olm.package","name":"greeter","defaultChannel":"stable"}
{"schema":"olm.channel","package":"greeter","name":"stable","entries":[{"name":"greeter.v1.0.0"},{"name":"greeter.v1.1.0","replaces":"greeter.v1.0.0"}]}
{"schema":"olm.channel","package":"greeter","name":"old","entries":[{"name":"greeter.v1.0.0"}]}
{"schema":"olm.bundle","package":"greeter","name":"greeter.v1.0.0","image":"a","properties":[{"type":"olm.package","value":{"packageName":"greeter","version":"1.0.0"}}]}
{"schema":"olm.bundle","package":"greeter","name":"greeter.v1.1.0","image":"b","properties":[{"type":"olm.package","value":{"packageName":"greeter","version":"1.1.0"}},{"type":"olm.package.required","value":{"packageName":"memcached","versionRange":">=1.0.0"}}]}
{"schema":"olm.deprecations","package":"greeter","entries":[{"reference":{"schema":"olm.channel","name":"old"},"message":"m"},{"reference":{"schema":"olm.package"},"message":"m"}]}
{"schema":"olm.package","name":"memcached","defaultChannel":"stable"}
"#;

    fn selected(wanted: &[&str]) -> anyhow::Result<Catalog> {
        let mut catalog = Catalog::default();
        catalog.load(CATALOG.as_bytes(), &limits())?;
        let wanted: Vec<PackageSelector> = wanted.iter().filter_map(|text| text.parse().ok()).collect();
        select(catalog, &wanted, "here")
    }

    #[test]
    fn what_is_left_names_nothing_that_is_not_there() {
        let catalog = selected(&["greeter@>=1.1.0"]).unwrap();
        let names: Vec<&str> = catalog
            .bundles
            .iter()
            .map(|bundle| bundle.name.as_str())
            .collect();
        assert_eq!(names, ["greeter.v1.1.0"]);
        let channels: Vec<(&str, usize)> = catalog
            .channels
            .iter()
            .map(|channel| (channel.name.as_str(), channel.entries.len()))
            .collect();
        assert_eq!(channels, [("stable", 1)]);
        assert_eq!(catalog.deprecations.first().map(|one| one.entries.len()), Some(1));
        assert_eq!(
            lacking(&catalog).unwrap(),
            BTreeMap::from([("memcached".to_owned(), "greeter.v1.1.0".to_owned())])
        );
    }

    #[test]
    fn what_is_not_there_is_an_error() {
        let refused = |wanted: &str| format!("{:#}", selected(&[wanted]).unwrap_err());
        assert!(refused("redis").contains("package \"redis\" not found"));
        assert!(refused("greeter@>9").contains("package \"greeter\" has no bundle in \">9\""));
        assert!("greeter@x y".parse::<PackageSelector>().is_err());
    }
}
