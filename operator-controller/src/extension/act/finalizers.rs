//! The marks by which an extension stays until what it made is gone.

use kube::api::{Api, Patch, PatchParams};
use kube::{Client, Error};
use olm_api::ClusterExtension;
use olm_api::names::{field_manager, finalizer};
use serde_json::json;

/// Both are kept for those who look for them; one run takes both away.
pub const OURS: [&str; 2] = [
    finalizer::CLEANUP_UNPACK_CACHE,
    finalizer::CLEANUP_CONTENT_MANAGER_CACHE,
];

/// The list with ours in it, when it differs.
pub fn with_ours(extension: &ClusterExtension) -> Option<Vec<String>> {
    let mut list = extension.metadata.finalizers.clone().unwrap_or_default();
    let missing: Vec<&str> = OURS
        .into_iter()
        .filter(|name| !list.iter().any(|present| present == name))
        .collect();
    list.extend(missing.iter().map(|name| (*name).to_owned()));
    (!missing.is_empty()).then_some(list)
}

/// The list without ours, when it differs.
pub fn without_ours(extension: &ClusterExtension) -> Option<Vec<String>> {
    let list = extension.metadata.finalizers.clone().unwrap_or_default();
    let rest: Vec<String> = list
        .iter()
        .filter(|present| !OURS.contains(&present.as_str()))
        .cloned()
        .collect();
    (rest.len() < list.len()).then_some(rest)
}

/// Writes the list, unless the extension changed since it was read.
pub async fn write(client: &Client, extension: &ClusterExtension, list: &[String]) -> Result<(), Error> {
    let extensions: Api<ClusterExtension> = Api::all(client.clone());
    let version = &extension.metadata.resource_version;
    let patch = json!({"metadata": {"finalizers": list, "resourceVersion": version}});
    let params = PatchParams {
        field_manager: Some(field_manager::OPERATOR_CONTROLLER.to_owned()),
        ..PatchParams::default()
    };
    extensions
        .patch_metadata(extension.name(), &params, &Patch::Merge(&patch))
        .await
        .map(drop)
}

#[cfg(test)]
mod tests {
    use olm_api::cluster_extension::ClusterExtensionSpec;

    use super::*;

    #[test]
    fn finalizers_of_others_stay() {
        let mut extension = ClusterExtension::new("a", ClusterExtensionSpec::default());
        extension.metadata.finalizers = Some(vec!["other".to_owned()]);
        let with = with_ours(&extension).unwrap();
        assert_eq!(with, ["other", OURS[0], OURS[1]]);
        assert_eq!(without_ours(&extension), None);
        extension.metadata.finalizers = Some(with);
        assert_eq!(with_ours(&extension), None);
        assert_eq!(without_ours(&extension), Some(vec!["other".to_owned()]));
    }
}
