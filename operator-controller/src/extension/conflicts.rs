//! Two extensions never own one package or one CustomResourceDefinition (requirements 5.04, 7.51).

use std::collections::{BTreeMap, BTreeSet};

use olm_api::ClusterExtension;
use olm_api::names::{CLUSTER_EXTENSION, label};
use serde_json::Value;

use super::failure::{Severity, StageError};

/// Another extension was first.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConflictError {
    /// It has the same package.
    #[error(
        "package {package:?} belongs to ClusterExtension {owner:?}: a package is installed once on a cluster"
    )]
    Package {
        /// The package.
        package: String,
        /// The other extension.
        owner: String,
    },
    /// It has the same kinds.
    #[error("other extensions provide kinds of this bundle: {}; a kind is provided by one extension", list(.0))]
    Kinds(BTreeMap<String, String>),
    /// The cluster could not be asked.
    #[error("cannot read CustomResourceDefinition {name:?}")]
    Read {
        /// Its name.
        name: String,
        /// Why not.
        #[source]
        cause: Cause,
    },
}

/// Why the cluster could not be asked, as text: the answer is compared and kept.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Cause(pub String);

fn list(kinds: &BTreeMap<String, String>) -> String {
    let item = |(definition, owner): (&String, &String)| {
        format!("CustomResourceDefinition {definition:?} belongs to ClusterExtension {owner:?}")
    };
    kinds.iter().map(item).collect::<Vec<_>>().join(", ")
}

impl StageError for ConflictError {
    fn severity(&self) -> Severity {
        match self {
            Self::Package { .. } | Self::Kinds(_) => Severity::Waiting,
            Self::Read { .. } => Severity::Transient,
        }
    }
}

/// An extension that wants a package.
#[derive(Debug, Clone, Copy)]
pub struct Claim<'a> {
    /// The extension.
    pub extension: &'a ClusterExtension,
    /// Whether it has revisions.
    pub standing: Standing,
}

/// Whether an extension has revisions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// It has.
    Established,
    /// It has not.
    New,
}

/// The package is ours unless another extension has a better claim to it: one with revisions comes before one without,
/// then the older one, then the name.
pub fn package(ours: Claim<'_>, others: &[Claim<'_>]) -> Result<(), ConflictError> {
    fn wanted<'a>(claim: &Claim<'a>) -> Option<&'a str> {
        Some(
            claim
                .extension
                .spec
                .source
                .catalog
                .as_ref()?
                .package_name
                .as_str(),
        )
    }
    let rank = |claim: &Claim<'_>| {
        let created = claim
            .extension
            .metadata
            .creation_timestamp
            .as_ref()
            .map(|time| time.0);
        (claim.standing, created, claim.extension.name().to_owned())
    };
    let Some(package) = wanted(&ours) else {
        return Ok(());
    };
    let rival = others
        .iter()
        .filter(|other| other.extension.name() != ours.extension.name() && wanted(other) == Some(package))
        .min_by_key(|other| rank(other));
    match rival {
        Some(rival) if rank(rival) < rank(&ours) => Err(ConflictError::Package {
            package: package.to_owned(),
            owner: rival.extension.name().to_owned(),
        }),
        _ => Ok(()),
    }
}

/// The names of the CustomResourceDefinitions among objects.
pub fn definitions(objects: &[Value]) -> BTreeSet<&str> {
    objects
        .iter()
        .filter(|object| object.get("kind").and_then(Value::as_str) == Some("CustomResourceDefinition"))
        .filter_map(|object| object.pointer("/metadata/name")?.as_str())
        .collect()
}

/// The other extension that the labels of an existing object name.
pub fn other_owner<'a>(labels: &'a BTreeMap<String, String>, extension: &str) -> Option<&'a str> {
    let value = |key: &str| labels.get(key).map(String::as_str);
    (value(label::OWNER_KIND) == Some(CLUSTER_EXTENSION)).then_some(())?;
    value(label::OWNER_NAME).filter(|owner| !owner.is_empty() && *owner != extension)
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use olm_api::Time;
    use olm_api::cluster_extension::{CatalogFilter, ClusterExtensionSpec};
    use serde_json::json;

    use super::*;

    fn extension(name: &str, package: &str, second: i64) -> ClusterExtension {
        let mut spec = ClusterExtensionSpec::default();
        spec.source.catalog = Some(CatalogFilter {
            package_name: package.to_owned(),
            ..CatalogFilter::default()
        });
        let mut extension = ClusterExtension::new(name, spec);
        extension.metadata.creation_timestamp = Some(Time(Timestamp::from_second(second).unwrap()));
        extension
    }

    #[test]
    fn requirement_5_04_a_package_belongs_to_the_first_extension() {
        let (old, new, other) = (
            extension("b", "p", 1),
            extension("a", "p", 2),
            extension("c", "q", 0),
        );
        let claim = |extension, standing| Claim { extension, standing };
        let all = [
            claim(&old, Standing::New),
            claim(&new, Standing::New),
            claim(&other, Standing::Established),
        ];
        assert_eq!(package(all[0], &all), Ok(()));
        assert_eq!(package(all[2], &all), Ok(()));
        let refused = ConflictError::Package {
            package: "p".to_owned(),
            owner: "b".to_owned(),
        };
        assert_eq!(package(all[1], &all), Err(refused));
        let all = [claim(&old, Standing::New), claim(&new, Standing::Established)];
        assert_eq!(package(all[1], &all), Ok(()), "what is installed is not given up");
        assert!(package(all[0], &all).is_err());
    }

    #[test]
    fn requirement_7_51_a_definition_tells_whose_it_is() {
        let labels = |kind: &str, name: &str| {
            BTreeMap::from([
                (label::OWNER_KIND.to_owned(), kind.to_owned()),
                (label::OWNER_NAME.to_owned(), name.to_owned()),
            ])
        };
        assert_eq!(other_owner(&labels("ClusterExtension", "x"), "a"), Some("x"));
        assert_eq!(other_owner(&labels("ClusterExtension", "a"), "a"), None);
        assert_eq!(other_owner(&labels("Other", "x"), "a"), None);
        assert_eq!(other_owner(&BTreeMap::new(), "a"), None);
        let objects = [
            json!({"kind": "CustomResourceDefinition", "metadata": {"name": "x.y"}}),
            json!({"kind": "ConfigMap", "metadata": {"name": "z"}}),
        ];
        assert_eq!(definitions(&objects).into_iter().collect::<Vec<_>>(), ["x.y"]);
    }
}
