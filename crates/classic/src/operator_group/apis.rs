//! The APIs that operators provide: keys, sets of them, and the forms in which annotations and labels have them.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::cluster::{items, text};
use crate::csv::ClusterServiceVersion;
use crate::{hash, names};

/// An API. With and without a plural it is two keys.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ApiKey {
    /// The group; the core group is empty.
    pub group: String,
    /// The version.
    pub version: String,
    /// The kind.
    pub kind: String,
    /// The plural of the kind; empty where it does not matter.
    pub plural: String,
}

impl ApiKey {
    /// The key written as `Kind.version.group`; `None` with fewer than two dots. The plural stays empty.
    pub fn parse(text: &str) -> Option<Self> {
        let (kind, rest) = text.split_once('.')?;
        let (version, group) = rest.split_once('.')?;
        Some(Self {
            group: group.to_owned(),
            version: version.to_owned(),
            kind: kind.to_owned(),
            plural: String::new(),
        })
    }

    /// The text `Kind.version.group`.
    pub fn gvk(&self) -> String {
        format!("{}.{}.{}", self.kind, self.version, self.group)
    }

    /// The hash that stands for the API in labels.
    pub fn hash(&self) -> String {
        hash::fnv(&self.gvk())
    }

    /// The label that adds a role for this API to the role of an OperatorGroup with the same suffix: `admin`, `edit` or
    /// `view`.
    pub fn aggregation_label(&self, suffix: &str) -> String {
        format!("{}{}-{suffix}", names::GROUP_AGGREGATION_PREFIX, self.hash())
    }

    /// The key without its plural.
    #[must_use]
    pub fn without_plural(&self) -> Self {
        Self {
            plural: String::new(),
            ..self.clone()
        }
    }
}

/// A set of APIs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ApiSet(BTreeSet<ApiKey>);

impl ApiSet {
    /// The APIs that the annotation `olm.providedAPIs` lists, separated by commas. Blanks do not count, and texts of
    /// another form than `Kind.version.group` are left out.
    pub fn parse(annotation: &str) -> Self {
        annotation
            .replace(' ', "")
            .split(',')
            .filter_map(ApiKey::parse)
            .collect()
    }

    /// The value of the annotation `olm.providedAPIs`: the texts of all keys, sorted.
    pub fn annotation(&self) -> String {
        let mut texts: Vec<String> = self.0.iter().map(ApiKey::gvk).collect();
        texts.sort();
        texts.join(",")
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Number of APIs.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the key is in the set.
    pub fn contains(&self, api: &ApiKey) -> bool {
        self.0.contains(api)
    }

    /// The keys in order.
    pub fn iter(&self) -> impl Iterator<Item = &ApiKey> {
        self.0.iter()
    }

    /// APIs of either set.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        Self(self.0.union(&other.0).cloned().collect())
    }

    /// APIs of both sets.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        Self(self.0.intersection(&other.0).cloned().collect())
    }

    /// APIs of this set only.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        Self(self.0.difference(&other.0).cloned().collect())
    }

    /// Whether the other has all of this one.
    pub fn is_subset(&self, other: &Self) -> bool {
        self.0.is_subset(&other.0)
    }

    /// The same without plurals.
    #[must_use]
    pub fn without_plurals(&self) -> Self {
        self.0.iter().map(ApiKey::without_plural).collect()
    }

    /// The labels that mark a ClusterServiceVersion as the provider of these APIs. The runner of the recorded cases calls
    /// it.
    pub fn provider_labels(&self) -> BTreeMap<String, String> {
        let key = |api: &ApiKey| format!("{}{}", names::API_LABEL_PREFIX, api.hash());
        self.0
            .iter()
            .map(|api| (key(api), "provided".to_owned()))
            .collect()
    }
}

impl FromIterator<ApiKey> for ApiSet {
    fn from_iter<T: IntoIterator<Item = ApiKey>>(keys: T) -> Self {
        Self(keys.into_iter().collect())
    }
}

/// The name of a CustomResourceDefinition has no group.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("error parsing crd name: {0}")]
pub struct DefinitionNameError(pub String);

/// The APIs that a ClusterServiceVersion brings.
///
/// # Errors
/// When the name of an owned or required CustomResourceDefinition has no group.
pub fn provided_by(csv: &ClusterServiceVersion) -> Result<ApiSet, DefinitionNameError> {
    let definitions = &csv.spec.custom_resource_definitions;
    for required in &definitions.required {
        plural_and_group(&required.name)?;
    }
    let mut apis = ApiSet::default();
    for owned in &definitions.owned {
        let (plural, group) = plural_and_group(&owned.name)?;
        apis.0.insert(ApiKey {
            group: group.to_owned(),
            version: owned.version.clone(),
            kind: owned.kind.clone(),
            plural: plural.to_owned(),
        });
    }
    let services = csv.spec.api_service_definitions.owned.iter();
    apis.0.extend(services.map(|owned| ApiKey {
        group: owned.group.clone(),
        version: owned.version.clone(),
        kind: owned.kind.clone(),
        plural: owned.name.clone(),
    }));
    Ok(apis)
}

/// The APIs that a ClusterServiceVersion requires of others.
pub fn required_by(csv: &ClusterServiceVersion) -> BTreeSet<ApiKey> {
    let definitions = csv.spec.custom_resource_definitions.required.iter();
    let definitions = definitions.map(|api| {
        let (plural, group) = api.name.split_once('.').unwrap_or_default();
        (plural, group, api)
    });
    let services = csv.spec.api_service_definitions.required.iter();
    let services = services.map(|api| (api.name.as_str(), api.group.as_str(), api));
    let keys = definitions.chain(services).map(|(plural, group, api)| ApiKey {
        group: group.to_owned(),
        version: api.version.clone(),
        kind: api.kind.clone(),
        plural: plural.to_owned(),
    });
    keys.collect()
}

/// The plural and the group in the name of a CustomResourceDefinition.
pub(super) fn plural_and_group(name: &str) -> Result<(&str, &str), DefinitionNameError> {
    name.split_once('.')
        .ok_or_else(|| DefinitionNameError(name.to_owned()))
}

/// The labels by which providers and users of a CustomResourceDefinition's APIs are found: for each version one set for
/// the providers and one for those that require it. The runner of the recorded cases calls it.
pub fn definition_labels(definition: &Value) -> Vec<BTreeMap<String, String>> {
    let mut sets = Vec::new();
    for version in items(definition, "/spec/versions") {
        let api = ApiKey {
            group: text(definition, "/spec/group").to_owned(),
            version: text(version, "/name").to_owned(),
            kind: text(definition, "/spec/names/kind").to_owned(),
            plural: String::new(),
        };
        let key = format!("{}{}", names::API_LABEL_PREFIX, api.hash());
        for role in ["provided", "required"] {
            sets.push(BTreeMap::from([(key.clone(), role.to_owned())]));
        }
    }
    sets
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_annotation_is_read_without_blanks_and_without_what_is_no_api() {
        let apis = ApiSet::parse(" B.v1.x.y , A.v2. ,C.v1,,");
        assert_eq!(apis.len(), 2);
        assert_eq!(apis.annotation(), "A.v2.,B.v1.x.y");
        assert!(ApiSet::parse("").is_empty());
    }

    #[test]
    fn a_plural_makes_another_key_with_the_same_hash() {
        let plain = ApiKey::parse("K.v1.g").unwrap();
        let plural = ApiKey {
            plural: "ks".to_owned(),
            ..plain.clone()
        };
        let both: ApiSet = [plain.clone(), plural.clone()].into_iter().collect();
        assert_eq!(both.len(), 2);
        assert_eq!(both.without_plurals().len(), 1);
        assert_eq!(plain.hash(), plural.hash());
        assert_eq!(
            plain.aggregation_label("edit"),
            format!("olm.opgroup.permissions/aggregate-to-{}-edit", plain.hash())
        );
    }

    #[test]
    fn a_definition_without_a_group_is_an_error_also_where_it_is_required() {
        let csv = json!({"spec": {"customresourcedefinitions": {
            "owned": [{"name": "as.g", "version": "v1", "kind": "A"}],
            "required": [{"name": "bs", "version": "v1", "kind": "B"}],
        }}});
        let csv = ClusterServiceVersion::read(&csv).unwrap();
        let error = provided_by(&csv).unwrap_err();
        assert_eq!(error.to_string(), "error parsing crd name: bs");
    }

    #[test]
    fn aggregated_apis_are_provided_too() {
        let csv = json!({"spec": {
            "customresourcedefinitions": {"owned": [{"name": "as.g.h", "version": "v1", "kind": "A"}]},
            "apiservicedefinitions": {"owned": [{"name": "bs", "group": "i", "version": "v2", "kind": "B"}]},
        }});
        let csv = ClusterServiceVersion::read(&csv).unwrap();
        let apis = provided_by(&csv).unwrap();
        assert_eq!(apis.annotation(), "A.v1.g.h,B.v2.i");
        assert_eq!(apis.provider_labels().len(), 2);
    }

    #[test]
    fn each_version_of_a_definition_has_two_sets_of_labels() {
        let definition = json!({"spec": {"group": "g", "names": {"kind": "K"}, "versions": [
            {"name": "v1"}, {"name": "v2"},
        ]}});
        assert_eq!(definition_labels(&definition).len(), 4);
    }
}
