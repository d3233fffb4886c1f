//! The facts of a cluster that decide whether its Subscriptions can move. Pure: the objects stay as the server returned
//! them.

use jiff::Timestamp;
pub use olm_api::object::{list, text};
use olm_api::{ClusterCatalog, ClusterExtension, names};
use serde_json::Value;

/// The objects of OLM classic and of OLM v1 on a cluster.
#[derive(Debug, Clone, Default)]
pub struct ClassicObjects {
    /// Subscriptions.
    pub subscriptions: Vec<Value>,
    /// ClusterServiceVersions, without their copies in other namespaces.
    pub versions: Vec<Value>,
    /// OperatorGroups.
    pub groups: Vec<Value>,
    /// InstallPlans.
    pub plans: Vec<Value>,
    /// CatalogSources.
    pub sources: Vec<Value>,
    /// OperatorConditions.
    pub conditions: Vec<Value>,
    /// ClusterCatalogs.
    pub catalogs: Vec<ClusterCatalog>,
    /// ClusterExtensions.
    pub extensions: Vec<ClusterExtension>,
    /// The certificates of webhooks and aggregated APIs: Secrets without their keys.
    pub certificates: Vec<Value>,
    /// The time at which all of it was read.
    pub now: Timestamp,
}

/// The name of an object.
pub fn name(object: &Value) -> &str {
    text(object, "/metadata/name")
}

/// The namespace of an object.
pub fn namespace(object: &Value) -> &str {
    text(object, "/metadata/namespace")
}

/// An annotation of an object.
pub fn annotation<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object.get("metadata")?.get("annotations")?.get(key)?.as_str()
}

/// The objects of a namespace.
pub fn within<'a>(objects: &'a [Value], place: &'a str) -> impl Iterator<Item = &'a Value> {
    objects.iter().filter(move |object| namespace(object) == place)
}

/// The object of that namespace and name.
pub fn find<'a>(objects: &'a [Value], place: &'a str, wanted: &str) -> Option<&'a Value> {
    within(objects, place).find(|object| name(object) == wanted)
}

/// A Subscription with all objects that decide on its move.
#[derive(Debug, Clone, Copy)]
pub struct Case<'a> {
    /// All that was read.
    pub facts: &'a ClassicObjects,
    /// The Subscription.
    pub subscription: &'a Value,
}

impl<'a> Case<'a> {
    /// The namespace of the Subscription.
    pub fn namespace(&self) -> &'a str {
        namespace(self.subscription)
    }

    /// `NAMESPACE/NAME` of the Subscription.
    pub fn key(&self) -> String {
        format!("{}/{}", self.namespace(), name(self.subscription))
    }

    /// The package.
    pub fn package(&self) -> &'a str {
        text(self.subscription, "/spec/name")
    }

    /// The name of the installed ClusterServiceVersion; empty if there is none.
    pub fn installed(&self) -> &'a str {
        text(self.subscription, "/status/installedCSV")
    }

    /// The installed ClusterServiceVersion.
    pub fn version(&self) -> Option<&'a Value> {
        find(&self.facts.versions, self.namespace(), self.installed())
    }

    /// The installed version; empty if unknown.
    pub fn number(&self) -> &'a str {
        self.version()
            .map(|version| text(version, "/spec/version"))
            .unwrap_or_default()
    }

    /// The OperatorGroup, if the namespace has exactly one.
    pub fn group(&self) -> Option<&'a Value> {
        let mut groups = within(&self.facts.groups, self.namespace());
        let first = groups.next();
        first.filter(|_| groups.next().is_none())
    }

    /// The namespaces that the operator watches; an empty text stands for all.
    pub fn targets(&self) -> Vec<&'a str> {
        let Some(group) = self.group() else {
            return Vec::new();
        };
        let (seen, asked) = (
            list(group, "/status/namespaces"),
            list(group, "/spec/targetNamespaces"),
        );
        let targets = if seen.is_empty() { asked } else { seen };
        let targets: Vec<&str> = targets.iter().filter_map(Value::as_str).collect();
        if targets.is_empty() { vec![""] } else { targets }
    }

    /// The CatalogSource.
    pub fn source(&self) -> Option<&'a Value> {
        let (place, wanted) = (
            text(self.subscription, "/spec/sourceNamespace"),
            text(self.subscription, "/spec/source"),
        );
        find(&self.facts.sources, place, wanted)
    }

    /// The ClusterCatalog that serves the image of the CatalogSource, by tag or by digest.
    pub fn catalog(&self) -> Option<&'a ClusterCatalog> {
        let image = text(self.source()?, "/spec/image");
        if image.is_empty() {
            return None;
        }
        let image = tagged(image);
        self.facts.catalogs.iter().find(|catalog| {
            let asked = catalog
                .spec
                .source
                .image
                .as_ref()
                .map(|image| tagged(&image.reference));
            let resolved = catalog.status.as_ref();
            let resolved = resolved.and_then(|status| status.resolved_source.as_ref()?.image.as_ref());
            asked.as_deref() == Some(image.as_str()) || resolved.is_some_and(|found| found.reference == image)
        })
    }

    /// The image of the installed bundle, as the InstallPlan that installed it names it, or the Subscription that has
    /// come back.
    pub fn bundle_image(&self) -> Option<&'a str> {
        let plans = within(&self.facts.plans, self.namespace());
        let planned = plans
            .flat_map(|plan| list(plan, "/status/bundleLookups"))
            .find(|lookup| text(lookup, "/identifier") == self.installed())
            .map(|lookup| text(lookup, "/path"))
            .filter(|path| !path.is_empty());
        let noted = || {
            let of = annotation(self.subscription, names::annotation::BUNDLE_NAME)?;
            let image = annotation(self.subscription, names::annotation::BUNDLE_REFERENCE);
            image.filter(|_| of == self.installed())
        };
        planned.or_else(noted)
    }

    /// The ClusterExtension that was made from the Subscription.
    pub fn successor(&self) -> Option<&'a ClusterExtension> {
        successor(self.facts, &self.key())
    }
}

/// The ClusterExtension that was made from the Subscription called `NAMESPACE/NAME`.
pub fn successor<'a>(facts: &'a ClassicObjects, key: &str) -> Option<&'a ClusterExtension> {
    let mut extensions = facts.extensions.iter();
    extensions.find(|extension| extension.annotation(names::migration::SUBSCRIPTION) == Some(key))
}

/// Restores the earlier spec of Subscriptions whose migration has begun.
pub fn restore(facts: &mut ClassicObjects) {
    let extensions = std::mem::take(&mut facts.extensions);
    for subscription in &mut facts.subscriptions {
        let key = format!("{}/{}", namespace(subscription), name(subscription));
        let made = |extension: &&ClusterExtension| {
            extension.annotation(names::migration::SUBSCRIPTION) == Some(&key)
        };
        let spec = extensions.iter().find(made);
        let spec = spec.and_then(|extension| extension.annotation(names::migration::SUBSCRIPTION_BACKUP));
        let spec: Option<Value> = spec.and_then(|spec| serde_json::from_str(spec).ok());
        if let (Some(spec), Some(subscription)) = (spec, subscription.as_object_mut()) {
            subscription.insert("spec".to_owned(), spec);
        }
    }
    facts.extensions = extensions;
}

/// An image reference, with the tag `latest` if it has neither tag nor digest.
pub fn tagged(reference: &str) -> String {
    let last = reference.rsplit('/').next().unwrap_or_default();
    if last.contains([':', '@']) {
        reference.to_owned()
    } else {
        format!("{reference}:latest")
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::json;

    use super::*;

    /// An idle operator of OLM classic whose catalog is also a ClusterCatalog.
    pub(crate) fn facts() -> ClassicObjects {
        let at = |name: &str| json!({"name": name, "namespace": "databases"});
        let mut owned = at("install-1");
        owned["ownerReferences"] = json!([{"kind": "Subscription", "name": "postgres", "uid": "s"}]);
        let catalog = json!({
            "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterCatalog", "metadata": {"name": "databasesware"},
            "spec": {"source": {"type": "Image", "image": {"ref": "r.example/databases:latest"}}},
            "status": {
                "resolvedSource": {"type": "Image", "image": {"ref": "r.example/databases@sha256:1"}},
                "conditions": [{
                    "type": "Serving", "status": "True", "reason": "Available", "message": "",
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                }],
            },
        });
        ClassicObjects {
            subscriptions: vec![json!({
                "metadata": at("postgres"),
                "spec": {
                    "name": "postgres", "channel": "stable", "source": "databases", "sourceNamespace": "olm",
                    "installPlanApproval": "Automatic",
                },
                "status": {"state": "AtLatestKnown", "installedCSV": "postgres.v1.0.0", "currentCSV": "postgres.v1.0.0"},
            })],
            versions: vec![json!({
                "metadata": at("postgres.v1.0.0"),
                "spec": {
                    "version": "1.0.0",
                    "install": {"spec": {"deployments": []}},
                    "customresourcedefinitions": {"owned": [{"name": "postgres.example", "kind": "Postgres", "version": "v1"}]},
                },
                "status": {"phase": "Succeeded"},
            })],
            groups: vec![json!({
                "metadata": at("group"), "spec": {"serviceAccountName": "installer"}, "status": {"namespaces": [""]},
            })],
            plans: vec![json!({
                "metadata": owned,
                "status": {"phase": "Complete", "bundleLookups": [
                    {"identifier": "postgres.v1.0.0", "path": "r.example/postgres@sha256:2"},
                ]},
            })],
            sources: vec![json!({
                "metadata": {"name": "databases", "namespace": "olm"},
                "spec": {"sourceType": "grpc", "image": "r.example/databases:latest"},
            })],
            conditions: vec![json!({"metadata": at("postgres.v1.0.0"), "spec": {}})],
            catalogs: vec![serde_json::from_value(catalog).unwrap()],
            extensions: Vec::new(),
            certificates: Vec::new(),
            now: "2026-01-01T00:00:00Z".parse().unwrap(),
        }
    }

    #[test]
    fn an_image_without_a_tag_means_the_latest() {
        for (given, expected) in [
            ("r.example:5000/a/b", "r.example:5000/a/b:latest"),
            ("r.example/a:v1", "r.example/a:v1"),
            ("r.example/a@sha256:1", "r.example/a@sha256:1"),
        ] {
            assert_eq!(tagged(given), expected);
        }
    }
}
