//! APIs that newer clusters no longer serve.

use std::collections::{BTreeMap, BTreeSet};

use olm_bundle::object::object_name;
use olm_bundle::object::{list, text};
use olm_fbc::check::Severity;
use olm_version::Version;
use serde_json::Value;

use super::text::{quoted_list, tolerant_version};
use crate::lint::manifests::{Manifests, csvs, of_kind};
use crate::lint::rule_finding::{Options, RuleFinding};

/// Kinds with the names of the objects of each.
pub(super) type ObjectNamesByKind = BTreeMap<String, Vec<String>>;

/// The APIs that Kubernetes 1.22 no longer serves, except custom resource definitions.
const REMOVED_IN_22: &[(&str, &[&str])] = &[
    ("scheduling.k8s.io/v1beta1", &["PriorityClass"]),
    (
        "rbac.authorization.k8s.io/v1beta1",
        &["Role", "ClusterRoleBinding", "RoleBinding", "ClusterRole"],
    ),
    ("apiregistration.k8s.io/v1beta1", &["APIService"]),
    ("authentication.k8s.io/v1beta1", &["TokenReview"]),
    (
        "authorization.k8s.io/v1beta1",
        &[
            "LocalSubjectAccessReview",
            "SelfSubjectAccessReview",
            "SubjectAccessReview",
        ],
    ),
    (
        "admissionregistration.k8s.io/v1beta1",
        &["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"],
    ),
    ("coordination.k8s.io/v1beta1", &["Lease"]),
    ("extensions/v1beta1", &["Ingress"]),
    ("networking.k8s.io/v1beta1", &["Ingress", "IngressClass"]),
    (
        "storage.k8s.io/v1beta1",
        &["CSIDriver", "CSINode", "StorageClass", "VolumeAttachment"],
    ),
    ("certificates.k8s.io/v1beta1", &["CertificateSigningRequest"]),
];

/// The APIs that Kubernetes 1.25 no longer serves.
const REMOVED_IN_25: &[(&str, &[&str])] = &[
    ("batch/v1beta1", &["CronJob"]),
    ("discovery.k8s.io/v1beta1", &["EndpointSlice"]),
    ("events.k8s.io/v1beta1", &["Event"]),
    ("autoscaling/v2beta1", &["HorizontalPodAutoscaler"]),
    ("policy/v1beta1", &["PodDisruptionBudget", "PodSecurityPolicy"]),
    ("node.k8s.io/v1beta1", &["RuntimeClass"]),
];

/// The APIs that Kubernetes 1.26 no longer serves.
const REMOVED_IN_26: &[(&str, &[&str])] = &[("autoscaling/v2beta2", &["HorizontalPodAutoscaler"])];

pub(super) fn lint(manifests: &Manifests, options: &Options) -> Vec<RuleFinding> {
    let Some((at, csv)) = csvs(manifests).next() else {
        return Vec::new();
    };
    let name = object_name(csv);
    let mut findings = Vec::new();
    let mut find = |severity: Severity, detail: String| {
        findings.push(RuleFinding::failed(severity, name, detail).at(at));
    };
    let asked = tolerant_version(&options.kubernetes_version);
    if asked.is_none() && !options.kubernetes_version.is_empty() {
        find(
            Severity::Error,
            format!(
                "invalid value informed via the k8s key option : {}",
                options.kubernetes_version
            ),
        );
    }
    let minimum = match csv.pointer("/spec/minKubeVersion") {
        Some(Value::Number(number)) => number.to_string(),
        _ => text(csv, "/spec/minKubeVersion").to_owned(),
    };
    let least = tolerant_version(&minimum);
    if least.is_none() && !minimum.is_empty() {
        find(
            Severity::Error,
            format!(
                "unable to use csv.Spec.MinKubeVersion to verify the CRD/Webhook apis because it has an invalid value: \
                 {minimum}"
            ),
        );
    }
    let (of_25, rights) = in_25(manifests, csv);
    let removed = |severity, detail| RuleFinding::failed(severity, name, detail).at(at).hinted(MIGRATE);
    for (minor, found, inferred) in [
        (22, in_22(manifests), ObjectNamesByKind::new()),
        (25, of_25, rights),
        (26, by_table(manifests, REMOVED_IN_26), ObjectNamesByKind::new()),
    ] {
        let removal = Version::new(1, minor, 0);
        let reached = [&asked, &least]
            .into_iter()
            .flatten()
            .any(|version| version.cmp_precedence(&removal).is_ge());
        if !found.is_empty() {
            let severity = if reached {
                Severity::Error
            } else {
                Severity::Warning
            };
            findings.push(removed(severity, message(minor, &found)));
        }
        if !inferred.is_empty() {
            findings.push(removed(Severity::Warning, message(minor, &inferred)));
        }
    }
    findings
}

/// The remedy for objects of a version that newer clusters do not serve.
pub(super) const MIGRATE: &str = "publish the objects in the version that newer clusters serve";

fn message(minor: u64, found: &ObjectNamesByKind) -> String {
    format!(
        "this bundle is using APIs which were deprecated and removed in v1.{minor}. More info: \
         https://kubernetes.io/docs/reference/using-api/deprecation-guide/#v1-{minor}. Migrate the API(s) for {}",
        listed(found)
    )
}

/// Kinds with their objects: `CRD: (["a" "b"]),Role: (["c"])`.
pub(super) fn listed(found: &ObjectNamesByKind) -> String {
    let kinds: Vec<String> = found
        .iter()
        .map(|(kind, names)| format!("{kind}: ({})", quoted_list(names)))
        .collect();
    kinds.join(",")
}

fn by_table(manifests: &Manifests, table: &[(&str, &[&str])]) -> ObjectNamesByKind {
    let mut found = ObjectNamesByKind::new();
    for object in &manifests.objects {
        let (version, kind) = (text(&object.value, "/apiVersion"), text(&object.value, "/kind"));
        if is_in(table, version, kind) {
            let names = found.entry(kind.to_owned()).or_default();
            names.push(object_name(&object.value).to_owned());
        }
    }
    found
}

fn is_in(table: &[(&str, &[&str])], version: &str, kind: &str) -> bool {
    table
        .iter()
        .any(|(removed, kinds)| *removed == version && kinds.contains(&kind))
}

/// The objects that Kubernetes 1.22 no longer serves.
pub(super) fn in_22(manifests: &Manifests) -> ObjectNamesByKind {
    let mut found = by_table(manifests, REMOVED_IN_22);
    let definitions: Vec<String> = of_kind(manifests, "CustomResourceDefinition")
        .filter(|(_, definition)| text(definition, "/apiVersion") == "apiextensions.k8s.io/v1beta1")
        .map(|(_, definition)| object_name(definition).to_owned())
        .collect();
    if !definitions.is_empty() {
        found.insert("CRD".to_owned(), definitions);
    }
    found
}

/// The APIs that Kubernetes 1.25 no longer serves: in objects, in resources that the ClusterServiceVersion names, and
/// in rights that imply their use.
fn in_25(manifests: &Manifests, csv: &Value) -> (ObjectNamesByKind, ObjectNamesByKind) {
    let mut found = by_table(manifests, REMOVED_IN_25);
    let mut named: BTreeSet<String> = BTreeSet::new();
    for (relation, shown) in [("owned", "Owned"), ("required", "Required")] {
        let definitions = list(csv, &format!("/spec/customresourcedefinitions/{relation}"));
        for (at, definition) in definitions.iter().enumerate() {
            for (resource_at, resource) in list(definition, "/resources").iter().enumerate() {
                let kind = text(resource, "/kind");
                named.insert(format!("{}s", kind.to_lowercase()));
                if is_in(REMOVED_IN_25, text(resource, "/version"), kind) {
                    found.entry(kind.to_owned()).or_default().push(format!(
                        "ClusterServiceVersion.Spec.CustomResourceDefinitions.{shown}[{at}].Resource[{resource_at}]"
                    ));
                }
            }
        }
    }
    let mut rights = ObjectNamesByKind::new();
    let resource = "podsecuritypolicies";
    for (field, shown) in [
        ("clusterPermissions", "ClusterPermissions"),
        ("permissions", "Permissions"),
    ] {
        let permissions = list(csv, &format!("/spec/install/spec/{field}"));
        for (at, permission) in permissions.iter().enumerate() {
            for (rule_at, rule) in list(permission, "/rules").iter().enumerate() {
                let count = |pointer: &str, wanted: &str| {
                    let values = list(rule, pointer).iter().filter_map(Value::as_str);
                    values.filter(|value| *value == wanted).count()
                };
                let used = count("/apiGroups", "policy") * count("/resources", resource);
                if used > 0 && !named.contains(resource) {
                    rights.entry(resource.to_owned()).or_default().push(format!(
                        "ClusterServiceVersion.Spec.InstallStrategy.StrategySpec.{shown}[{at}].Rules[{rule_at}]"
                    ));
                }
            }
        }
    }
    (found, rights)
}
