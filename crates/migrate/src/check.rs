//! The blockers of the move of a Subscription. Pure: all findings at once, from the gathered facts.

mod called;
mod dependencies;
mod finding;

use olm_api::conditions::{self, SERVING};
use olm_api::names::{GROUP, MAX_EXTENSION_NAME, migration, operator_condition, user};
use serde_json::Value;

use self::finding::Findings;
pub use self::finding::{Choices, Finding, Request, Severity};
use crate::facts::{Case, list, name, text, within};

/// The group of PackageManifests.
const PACKAGES: &str = "packages.operators.coreos.com";

/// All findings against the move of a Subscription to a ClusterExtension called `extension`, blockers first.
pub fn check(case: Case<'_>, extension: &str, choices: &Choices) -> Vec<Finding> {
    let mut findings = Findings {
        case,
        choices,
        found: Vec::new(),
    };
    subscription(&mut findings);
    version(&mut findings);
    dependencies::dependencies(&mut findings);
    group(&mut findings);
    catalog(&mut findings);
    names(&mut findings, extension);
    let mut found = findings.found;
    found.sort_by_key(|finding| finding.severity);
    found
}

/// The Subscription, its InstallPlans and its channel.
fn subscription(findings: &mut Findings<'_>) {
    let case = findings.case;
    let object = case.subscription;
    if object.pointer("/metadata/deletionTimestamp").is_some() {
        findings.block(
            "deletion",
            "the Subscription is being deleted".to_owned(),
            "wait for its end",
        );
    }
    let state = text(object, "/status/state");
    if state != "AtLatestKnown" {
        let state = if state.is_empty() { "unknown" } else { state };
        findings.block(
            "state",
            format!("the state of the Subscription is {state}, not AtLatestKnown"),
            "finish or reject its upgrade first",
        );
    }
    for plan in within(&case.facts.plans, case.namespace()) {
        let phase = text(plan, "/status/phase");
        let is_of_it = list(plan, "/metadata/ownerReferences")
            .iter()
            .any(|owner| text(owner, "/kind") == "Subscription" && text(owner, "/name") == name(object));
        if is_of_it && !matches!(phase, "Complete" | "Failed") {
            let phase = if phase.is_empty() { "not begun" } else { phase };
            findings.block(
                "install-plan",
                format!("InstallPlan {:?} is {phase}", name(plan)),
                "approve it and wait for its end, or delete it",
            );
        }
    }
    let successor = case.successor();
    if let Some(extension) = successor.filter(|made| made.annotation(user::PAUSED) != Some("true")) {
        findings.block(
            "extension",
            format!(
                "ClusterExtension {:?} has begun to install what the Subscription installs",
                extension.name()
            ),
            findings.advice(
                format!("run `olm pause {}` and this command again", extension.name()),
                format!("run `olm pause {}`, or delete the Subscription", extension.name()),
            ),
        );
    }
    if text(object, "/spec/channel").is_empty() {
        findings.ask(
            "channel",
            "the Subscription names no channel: the ClusterExtension follows all channels".to_owned(),
            "set spec.channel of the Subscription to the default channel of the package",
        );
    }
}

/// The installed ClusterServiceVersion and its requirements on the cluster.
fn version(findings: &mut Findings<'_>) {
    let case = findings.case;
    let Some(version) = case.version() else {
        let message = match case.installed() {
            "" => "nothing is installed by the Subscription".to_owned(),
            installed => format!("ClusterServiceVersion {installed:?} does not exist"),
        };
        findings.block("version", message, "wait until OLM classic has installed it");
        return;
    };
    let phase = text(version, "/status/phase");
    if phase != "Succeeded" || version.pointer("/metadata/deletionTimestamp").is_some() {
        findings.block(
            "version",
            format!(
                "ClusterServiceVersion {:?} is in phase {phase:?}, not Succeeded",
                name(version)
            ),
            format!(
                "find the cause with `kubectl describe csv -n {} {}`",
                case.namespace(),
                name(version)
            ),
        );
    }
    if case.number().is_empty() {
        findings.block(
            "version",
            format!("ClusterServiceVersion {:?} has no version", name(version)),
            "ask the publisher of the operator for a bundle with spec.version",
        );
    }
    called::certificates(findings, version);
    if asks_for_classic(version) {
        findings.ask(
            "classic-apis",
            format!(
                "the operator has rights on {} and may look for its own Subscription",
                operator_condition::GROUP
            ),
            "ask the publisher whether it works without OLM classic",
        );
    }
    if case.bundle_image().is_none() {
        findings.block(
            "bundle-image",
            format!("no InstallPlan names the image of the bundle {:?}", name(version)),
            "only operators whose bundle is an image can move",
        );
    }
    for condition in within(&case.facts.conditions, case.namespace()) {
        if name(condition) == name(version) && !list(condition, "/spec/overrides").is_empty() {
            findings.block(
                "operator-condition",
                format!("OperatorCondition {:?} has overrides", name(condition)),
                "remove spec.overrides once they are no longer needed",
            );
        }
    }
}

/// Whether the operator has rights on objects of OLM classic other than its own condition.
fn asks_for_classic(version: &Value) -> bool {
    let groups = ["permissions", "clusterPermissions"];
    groups
        .iter()
        .flat_map(|key| list(version, &format!("/spec/install/spec/{key}")))
        .flat_map(|permission| list(permission, "/rules"))
        .any(|rule| {
            let is = |pointer: &str, wanted: &[&str]| {
                list(rule, pointer)
                    .iter()
                    .any(|entry| entry.as_str().is_some_and(|entry| wanted.contains(&entry)))
            };
            let only_conditions = list(rule, "/resources")
                .iter()
                .filter_map(Value::as_str)
                .all(|resource| resource.starts_with(operator_condition::PLURAL));
            is("/apiGroups", &[operator_condition::GROUP, PACKAGES]) && !only_conditions
        })
}

/// The OperatorGroup.
fn group(findings: &mut Findings<'_>) {
    let case = findings.case;
    let Some(group) = case.group() else {
        let count = within(&case.facts.groups, case.namespace()).count();
        findings.block(
            "operator-group",
            format!(
                "namespace {:?} has {count} OperatorGroups, not one",
                case.namespace()
            ),
            "keep the one that the operator was installed with",
        );
        return;
    };
    let targets = case.targets();
    if targets.len() > 1 {
        findings.block(
            "install-mode",
            format!(
                "the operator watches {} namespaces, a ClusterExtension one or all",
                targets.len()
            ),
            format!(
                "set spec.targetNamespaces of OperatorGroup {:?} to one namespace, or to none for all",
                name(group)
            ),
        );
    }
    if let [target] = targets[..]
        && !target.is_empty()
        && target != case.namespace()
    {
        findings.block(
            "install-mode",
            format!("the operator watches namespace {target:?}, where OLM classic keeps copies of its roles"),
            "leave it to OLM classic, or let it watch its own namespace or all",
        );
    }
    let is_named = findings.choices.account.is_some() || !text(group, "/spec/serviceAccountName").is_empty();
    if !is_named && findings.choices.request == Request::Annotation {
        findings.block(
            "service-account",
            format!(
                "OLM classic installs under an account of another namespace, which a ClusterExtension cannot name, and \
                 OperatorGroup {:?} names none",
                name(group)
            ),
            format!(
                "create an account with the rights of the operator in namespace {:?}, and name it in \
                 spec.serviceAccountName of the OperatorGroup",
                case.namespace()
            ),
        );
    } else if !is_named {
        findings.ask(
            "service-account",
            "OperatorGroup and command line name no account, so the ClusterExtension has none: it is blocked unless \
             operator-controller has a default account"
                .to_owned(),
            "name an account with --service-account",
        );
    }
}

/// The CatalogSource and the ClusterCatalog that replaces it.
fn catalog(findings: &mut Findings<'_>) {
    let case = findings.case;
    let wanted = format!(
        "{}/{}",
        text(case.subscription, "/spec/sourceNamespace"),
        text(case.subscription, "/spec/source")
    );
    let Some(source) = case.source() else {
        findings.block(
            "catalog-source",
            format!("CatalogSource {wanted} does not exist"),
            "create it again, or let the Subscription name another one",
        );
        return;
    };
    if text(source, "/spec/sourceType") != "grpc" || text(source, "/spec/image").is_empty() {
        findings.block(
            "catalog-source",
            format!("CatalogSource {wanted} has no image"),
            "publish the catalog as an image",
        );
        return;
    }
    let Some(catalog) = case.catalog() else {
        findings.block(
            "catalog",
            format!(
                "no ClusterCatalog has the image {:?} of CatalogSource {wanted}",
                text(source, "/spec/image")
            ),
            findings.advice(
                "apply the ClusterCatalog that -o yaml prints, and wait until it is served".to_owned(),
                "create a ClusterCatalog with this image, and wait until it is served".to_owned(),
            ),
        );
        return;
    };
    if !conditions::is_true(catalog.conditions(), SERVING) {
        findings.block(
            "catalog",
            format!("ClusterCatalog {:?} is not served", catalog.name()),
            format!(
                "find the cause with `kubectl describe clustercatalog {}`",
                catalog.name()
            ),
        );
    }
}

/// Whether name and package are free.
fn names(findings: &mut Findings<'_>, extension: &str) {
    let case = findings.case;
    if extension.len() > usize::try_from(MAX_EXTENSION_NAME).unwrap_or(usize::MAX) {
        findings.block(
            "name",
            format!("the name {extension:?} is longer than {MAX_EXTENSION_NAME} characters"),
            findings.advice(
                "set --extension to a shorter one".to_owned(),
                "move it with `olm migrate --extension`".to_owned(),
            ),
        );
    }
    for other in &case.facts.extensions {
        if other.annotation(migration::SUBSCRIPTION) == Some(case.key().as_str()) {
            continue;
        }
        if other.name() == extension {
            findings.block(
                "name",
                format!(
                    "there is a ClusterExtension {extension:?}, which was not made from this Subscription"
                ),
                findings.advice(
                    "set --extension to another name".to_owned(),
                    "move it with `olm migrate --extension`".to_owned(),
                ),
            );
        }
        let source = other.spec.source.catalog.as_ref();
        if source.is_some_and(|source| source.package_name == case.package()) {
            findings.block(
                "package",
                format!(
                    "ClusterExtension {:?} of group {GROUP} has the package {:?}",
                    other.name(),
                    case.package()
                ),
                "remove one of both installations",
            );
        }
    }
}

#[cfg(test)]
mod tests;
