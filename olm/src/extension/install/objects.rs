//! The objects of an installation, as manifests and as text. Pure.

use std::fmt::Write as _;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use olm_api::ClusterExtension;
use olm_api::names::label;
use olm_api::object::{qualified_name, text as text_at};
use olm_cluster::identity::AccountName;
use olm_preflight::permissions::{describe, granted_rules};
use serde_json::{Value, json};

use crate::extension::choose::ChosenBundle;

/// The objects to create.
pub(super) struct InstallObjects {
    /// The namespace, if it is missing.
    pub(super) namespace: Option<String>,
    /// The account, if it is missing.
    pub(super) account: Option<AccountName>,
    /// The roles and bindings with the rights that the account lacks, as YAML documents.
    pub(super) roles: String,
    pub(super) extension: ClusterExtension,
}

/// A selector for catalogs of these names; none for all catalogs.
pub(super) fn selector(catalogs: &[String]) -> Option<LabelSelector> {
    match catalogs {
        [] => None,
        [one] => Some(LabelSelector {
            match_labels: Some([(label::METADATA_NAME.to_owned(), one.clone())].into()),
            ..LabelSelector::default()
        }),
        several => Some(LabelSelector {
            match_expressions: Some(vec![LabelSelectorRequirement {
                key: label::METADATA_NAME.to_owned(),
                operator: "In".to_owned(),
                values: Some(several.to_vec()),
            }]),
            ..LabelSelector::default()
        }),
    }
}

/// The objects in the order in which they are applied: an extension finds its account with its rights.
pub(super) fn manifests(planned: &InstallObjects) -> anyhow::Result<Vec<Value>> {
    let mut objects = Vec::new();
    objects.extend(
        planned
            .namespace
            .as_ref()
            .map(|name| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})),
    );
    objects.extend(planned.account.as_ref().map(|account| {
        let metadata = json!({"name": account.name, "namespace": account.namespace});
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})
    }));
    objects.extend(crate::rbac::parsed(&planned.roles)?);
    let mut extension = serde_json::to_value(&planned.extension)?;
    let source = extension.pointer_mut("/spec/source/catalog");
    if let Some(source) = source.and_then(Value::as_object_mut) {
        // This is the default of the API. The manifest contains only requested fields.
        source.remove("upgradeConstraintPolicy");
    }
    objects.push(extension);
    Ok(objects)
}

/// Kind, namespace and name of an object.
pub(super) fn object_label(object: &Value) -> String {
    format!("{} {}", text_at(object, "/kind"), qualified_name(object))
}

/// `kind.group/name` and the end of the line, as `kubectl -o name` prints it.
pub(super) fn resource_name(object: &Value) -> String {
    let kind = text_at(object, "/kind").to_lowercase();
    let group = text_at(object, "/apiVersion").split_once('/');
    let name = text_at(object, "/metadata/name");
    match group {
        Some((group, _)) => format!("{kind}.{group}/{name}\n"),
        None => format!("{kind}/{name}\n"),
    }
}

/// The namespace and the account that exist already, a line each.
pub(super) fn existing(planned: &InstallObjects) -> Vec<String> {
    let spec = &planned.extension.spec;
    let namespace = &spec.namespace;
    let mut lines = Vec::new();
    if planned.namespace.is_none() {
        lines.push(format!("Namespace {namespace} (exists)"));
    }
    if let Some(account) = spec
        .service_account
        .as_ref()
        .filter(|_| planned.account.is_none())
    {
        lines.push(format!(
            "ServiceAccount {namespace}/{} (exists; it may have more rights than the bundle needs)",
            account.name
        ));
    }
    lines
}

/// The bundle, each object that exists, and each that is created, with the rules of roles.
pub(super) fn text(chosen: &ChosenBundle, planned: &InstallObjects, objects: &[Value]) -> String {
    let bundle = &chosen.bundle;
    let mut text = format!(
        "{} {} ({} of catalog {})\n",
        bundle.package, bundle.metadata.version, bundle.metadata.name, chosen.catalog
    );
    for (what, value) in [
        ("image", bundle.image.clone()),
        ("channels", chosen.channels.join(", ")),
    ] {
        let _ = writeln!(text, "{what:<10}{value}");
    }
    if let Some(held) = &chosen.held {
        let _ = writeln!(text, "{held}");
    }
    let existing = existing(planned);
    if !existing.is_empty() {
        text.push_str("\nUses:\n");
    }
    for line in existing {
        let _ = writeln!(text, "= {line}");
    }
    text.push_str("\nCreates:\n");
    for object in objects {
        let _ = writeln!(text, "+ {}", object_label(object));
        for line in details(object) {
            let _ = writeln!(text, "    {line}");
        }
    }
    text
}

/// The important facts about an object besides its name.
fn details(object: &Value) -> Vec<String> {
    let rules = granted_rules(object);
    let mut lines: Vec<String> = rules.iter().map(|rule| describe(rule, None)).collect();
    if let Some(role) = object.get("roleRef") {
        lines.push(format!("{} {}", text_at(role, "/kind"), text_at(role, "/name")));
    }
    if let Some(spec) = object.get("spec") {
        let version = text_at(spec, "/source/catalog/version");
        let version = if version.is_empty() {
            "any, upgrades automatically; an upgrade that needs more rights waits"
        } else {
            version
        };
        lines.push(format!("namespace {}", text_at(spec, "/namespace")));
        lines.push(format!(
            "service account {}",
            text_at(spec, "/serviceAccount/name")
        ));
        lines.push(format!("version {version}"));
        let watched = text_at(spec, "/config/inline/watchNamespace");
        if !watched.is_empty() {
            lines.push(format!("watches namespace {watched} alone"));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use olm_api::cluster_extension::{BundleMetadata, ClusterExtensionSpec, ServiceAccountReference};
    use olm_plan::BundleIdentity;

    use super::*;

    const ROLES: &str = "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\n\
                         metadata: {name: r, namespace: greeter-system}\n\
                         rules: [{apiGroups: [''], resources: [configmaps], verbs: [get]}]\n---\n\
                         apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\n\
                         metadata: {name: r, namespace: greeter-system}\n\
                         roleRef: {kind: Role, name: r}\n";

    fn install_objects(is_new: bool) -> InstallObjects {
        let account = AccountName {
            namespace: "greeter-system".to_owned(),
            name: "greeter-installer".to_owned(),
        };
        InstallObjects {
            namespace: is_new.then(|| "greeter-system".to_owned()),
            account: is_new.then_some(account),
            roles: if is_new { ROLES.to_owned() } else { String::new() },
            extension: ClusterExtension::new(
                "greeter",
                ClusterExtensionSpec {
                    namespace: "greeter-system".to_owned(),
                    ..ClusterExtensionSpec::default()
                },
            ),
        }
    }

    #[test]
    fn existing_objects_are_not_created() {
        let names = |is_new| -> Vec<String> {
            let objects = manifests(&install_objects(is_new)).unwrap();
            objects.iter().map(resource_name).collect()
        };
        assert_eq!(
            names(false),
            ["clusterextension.olm.operatorframework.io/greeter\n"]
        );
        assert_eq!(
            names(true),
            [
                "namespace/greeter-system\n",
                "serviceaccount/greeter-installer\n",
                "role.rbac.authorization.k8s.io/r\n",
                "rolebinding.rbac.authorization.k8s.io/r\n",
                "clusterextension.olm.operatorframework.io/greeter\n"
            ]
        );
    }

    fn chosen() -> ChosenBundle {
        ChosenBundle {
            bundle: BundleIdentity {
                package: "greeter".to_owned(),
                metadata: BundleMetadata {
                    name: "greeter.v1".to_owned(),
                    version: "1.0.0".to_owned(),
                    release: None,
                },
                image: "registry.example/greeter".to_owned(),
            },
            catalog: "one".to_owned(),
            channels: vec!["stable".to_owned()],
            default_channel: None,
            edge: None,
            passed: Vec::new(),
            held: None,
        }
    }

    #[test]
    fn the_text_shows_every_rule() {
        let shown = |is_new| {
            let planned = install_objects(is_new);
            text(&chosen(), &planned, &manifests(&planned).unwrap())
        };
        assert_eq!(
            shown(true),
            "greeter 1.0.0 (greeter.v1 of catalog one)\nimage     registry.example/greeter\nchannels  stable\n\n\
             Creates:\n\
             + Namespace greeter-system\n+ ServiceAccount greeter-system/greeter-installer\n\
             + Role greeter-system/r\n    get configmaps\n\
             + RoleBinding greeter-system/r\n    Role r\n+ ClusterExtension greeter\n    namespace greeter-system\n    \
             service account \n    \
             version any, upgrades automatically; an upgrade that needs more rights waits\n"
        );
    }

    #[test]
    fn existing_objects_are_listed() {
        let mut planned = install_objects(false);
        let name = "greeter-installer".to_owned();
        planned.extension.spec.service_account = Some(ServiceAccountReference { name });
        assert_eq!(
            existing(&planned),
            [
                "Namespace greeter-system (exists)",
                "ServiceAccount greeter-system/greeter-installer (exists; it may have more rights than the bundle needs)"
            ]
        );
        assert_eq!(existing(&install_objects(true)), [""; 0]);
        let shown = text(&chosen(), &planned, &manifests(&planned).unwrap());
        assert!(
            shown.contains("\n\nUses:\n= Namespace greeter-system (exists)\n")
                && shown.contains("\n\nCreates:\n+ "),
            "{shown}"
        );
    }

    #[test]
    fn catalogs_are_selected_by_name() {
        assert_eq!(selector(&[]), None);
        let both = selector(&["a".to_owned(), "b".to_owned()]).unwrap();
        let expressions = both.match_expressions.unwrap();
        assert_eq!(
            expressions[0].values.as_deref(),
            Some(&["a".to_owned(), "b".to_owned()][..])
        );
    }
}
