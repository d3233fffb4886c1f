//! The version and release of a bundle.

use std::collections::HashMap;

use memchr::memmem;
use olm_version::{Release, ReleaseError, Version, VersionRelease, VersionReleaseError, blang, quoted};

use crate::blob::bundle::Bundle;
use crate::blob::property::{PackageProperty, TYPE_CSV_METADATA, TYPE_PACKAGE};
use crate::decode::{ShapeError, decode, decode_object};

/// The annotation of a bundle that substitutes for another one.
const SUBSTITUTES_FOR: &str = "olm.substitutesFor";

/// The reason why the version of a bundle is unknown.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BundleVersionError {
    /// The bundle has no property with its version.
    #[error("no \"olm.package\" property found for bundle {}", quoted(.0))]
    Missing(String),
    /// The bundle has several properties with its version.
    #[error("must be exactly one property of type \"olm.package\"")]
    Several,
    /// The value of that property has the wrong shape.
    #[error("unable to unmarshal \"olm.package\" property for bundle {}: {error}", quoted(.bundle))]
    Shape {
        /// The bundle.
        bundle: String,
        /// The fault.
        error: ShapeError,
    },
    /// The version is not semantic.
    #[error("invalid semver version {} in \"olm.package\" property for bundle {}: {fault}", quoted(.text), quoted(.bundle))]
    Version {
        /// The bundle.
        bundle: String,
        /// The version.
        text: String,
        /// The fault.
        fault: blang::VersionError,
    },
    /// The release is not one.
    #[error("invalid release {} in \"olm.package\" property for bundle {}: {fault}", quoted(.text), quoted(.bundle))]
    Release {
        /// The bundle.
        bundle: String,
        /// The release.
        text: String,
        /// The fault.
        fault: ReleaseError,
    },
    /// The build metadata must be the release, and is not valid.
    #[error("unable to convert build metadata to release for bundle {}: {fault}", quoted(.bundle))]
    BuildMetadata {
        /// The bundle.
        bundle: String,
        /// The fault.
        fault: ReleaseError,
    },
}

impl Bundle {
    /// The version and release of the bundle, by its `olm.package` property.
    ///
    /// Build metadata of the version is the release if the property has none and the bundle's `ClusterServiceVersion`
    /// substitutes for another one.
    ///
    /// # Errors
    /// When the property does not occur exactly once or cannot be read.
    pub fn version_release(&self) -> Result<VersionRelease, BundleVersionError> {
        let bundle = || self.name.clone();
        let mut properties = self
            .properties
            .iter()
            .filter(|property| property.kind == TYPE_PACKAGE);
        let property = properties
            .next()
            .ok_or_else(|| BundleVersionError::Missing(bundle()))?;
        let property = property.package().map_err(|error| BundleVersionError::Shape {
            bundle: bundle(),
            error,
        })?;
        let (version, release) = self.version_of(&property).map_err(|error| match error {
            VersionReleaseError::Version { text, fault } => BundleVersionError::Version {
                bundle: bundle(),
                text,
                fault,
            },
            VersionReleaseError::Release { text, fault } => BundleVersionError::Release {
                bundle: bundle(),
                text,
                fault,
            },
        })?;
        if properties.next().is_some() {
            return Err(BundleVersionError::Several);
        }
        if release.is_empty()
            && !version.build.is_empty()
            && self.substitutes()
            && let Err(fault) = Release::parse(version.build.as_str())
        {
            return Err(BundleVersionError::BuildMetadata {
                bundle: bundle(),
                fault,
            });
        }
        Ok(VersionRelease {
            version,
            release: Some(release).filter(|release| !release.is_empty()),
        })
    }

    /// The version and release in a property. Build metadata that is not a release stays in the version.
    pub(crate) fn version_of(
        &self,
        property: &PackageProperty,
    ) -> Result<(Version, Release), VersionReleaseError> {
        let VersionRelease { mut version, release } =
            VersionRelease::explicit(&property.version, &property.release)?;
        let release = release.unwrap_or_default();
        if release.is_empty()
            && !version.build.is_empty()
            && self.substitutes()
            && let Ok(release) = Release::parse(version.build.as_str())
        {
            let plain = property.version.split('+').next().unwrap_or_default();
            version = blang::parse_version(plain).unwrap_or(version);
            return Ok((version, release));
        }
        Ok((version, release))
    }

    /// Whether the bundle's `ClusterServiceVersion` substitutes for another bundle.
    fn substitutes(&self) -> bool {
        // A catalog may contain hundreds of manifests of a package, and parsing one takes far longer than a search.
        let names_it = |text: &[u8]| memmem::find(text, SUBSTITUTES_FOR.as_bytes()).is_some();
        let metadata = self
            .properties
            .iter()
            .filter(|property| property.kind == TYPE_CSV_METADATA && names_it(property.value.as_bytes()));
        let annotated = metadata.filter_map(|property| property.parse::<Annotated>().ok());
        let carried = self.objects().unwrap_or_default();
        let carried = carried.iter().filter(|object| names_it(object));
        let carried = carried.filter_map(|object| {
            let value = olm_yaml::to_json(object).ok()?;
            let manifest = decode::<Manifest>(&serde_json::to_string(&value).ok()?).ok()?;
            Some(manifest)
                .filter(|manifest| manifest.kind == "ClusterServiceVersion")
                .map(|manifest| manifest.metadata)
        });
        annotated.chain(carried).any(|annotated| {
            annotated
                .annotations
                .get(SUBSTITUTES_FOR)
                .is_some_and(|name| !name.is_empty())
        })
    }
}

#[derive(Default)]
struct Manifest {
    kind: String,
    metadata: Annotated,
}
decode_object!(Manifest { "kind" => kind, "metadata" => metadata });

#[derive(Default)]
struct Annotated {
    annotations: HashMap<String, String>,
}
decode_object!(Annotated { "annotations" => annotations });

#[cfg(test)]
mod tests {
    use crate::base64_text;
    use crate::blob::bundle::Bundle;
    use crate::blob::property::Property;

    fn check(properties: &[(&str, &str)], expected: Result<(&str, &str), &str>) {
        let bundle = Bundle {
            name: "b".to_owned(),
            properties: properties
                .iter()
                .map(|(kind, value)| Property::new(*kind, *value))
                .collect(),
            ..Bundle::default()
        };
        let found = bundle
            .version_release()
            .map_err(|error| error.to_string())
            .map(|found| {
                (
                    found.version.to_string(),
                    found
                        .release
                        .map(|release| release.to_string())
                        .unwrap_or_default(),
                )
            });
        let expected = expected
            .map(|(version, release)| (version.to_owned(), release.to_owned()))
            .map_err(str::to_owned);
        assert_eq!(found, expected, "{properties:?}");
    }

    const BUILD: (&str, &str) = ("olm.package", r#"{"packageName":"p","version":"1.0.0+2"}"#);

    #[test]
    fn the_release_comes_from_the_property() {
        check(
            &[("olm.package", r#"{"version":"1.0.0","release":"2"}"#)],
            Ok(("1.0.0", "2")),
        );
        check(&[("olm.package", r#"{"version":"1.0.0"}"#)], Ok(("1.0.0", "")));
    }

    #[test]
    fn build_metadata_is_the_release_of_a_substitute_only() {
        check(&[BUILD], Ok(("1.0.0+2", "")));
        check(
            &[
                BUILD,
                (
                    "olm.csv.metadata",
                    r#"{"annotations":{"olm.substitutesFor":"a"}}"#,
                ),
            ],
            Ok(("1.0.0", "2")),
        );
        check(
            &[
                BUILD,
                ("olm.csv.metadata", r#"{"annotations":{"olm.substitutesFor":""}}"#),
            ],
            Ok(("1.0.0+2", "")),
        );
        let carried = |kind: &str| {
            let manifest = format!("kind: {kind}\nmetadata:\n  annotations:\n    olm.substitutesFor: a\n");
            format!(r#"{{"data":"{}"}}"#, base64_text::encode(manifest.as_bytes()))
        };
        check(
            &[BUILD, ("olm.bundle.object", &carried("ClusterServiceVersion"))],
            Ok(("1.0.0", "2")),
        );
        check(
            &[BUILD, ("olm.bundle.object", &carried("ConfigMap"))],
            Ok(("1.0.0+2", "")),
        );
    }

    #[test]
    fn build_metadata_of_a_substitute_has_to_be_a_release() {
        let substitute = (
            "olm.csv.metadata",
            r#"{"annotations":{"olm.substitutesFor":"a"}}"#,
        );
        check(
            &[("olm.package", r#"{"version":"1.0.0+01"}"#), substitute],
            Err(
                "unable to convert build metadata to release for bundle \"b\": invalid release \"01\": segment 0: \
                 Numeric PreRelease version must not contain leading zeroes \"01\"",
            ),
        );
    }

    #[test]
    fn the_property_holds_a_version_and_a_release() {
        for (value, expected) in [
            (
                r#"{"version":"1.0"}"#,
                "invalid semver version \"1.0\" in \"olm.package\" property for bundle \"b\": \
                 No Major.Minor.Patch elements found",
            ),
            (
                r#"{"version":"1.0.0","release":".a"}"#,
                "invalid release \".a\" in \"olm.package\" property for bundle \"b\": \
                 invalid release \".a\": segment 0: Prerelease is empty",
            ),
            (
                "[]",
                "unable to unmarshal \"olm.package\" property for bundle \"b\": must be an object, not a list",
            ),
        ] {
            check(&[("olm.package", value)], Err(expected));
        }
    }

    #[test]
    fn the_property_is_there_once() {
        check(&[], Err("no \"olm.package\" property found for bundle \"b\""));
        check(
            &[BUILD, BUILD],
            Err("must be exactly one property of type \"olm.package\""),
        );
    }
}
