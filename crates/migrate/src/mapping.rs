//! The objects that replace Subscription, OperatorGroup and CatalogSource. Pure.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use olm_api::cluster_catalog::{self, ClusterCatalogSpec, ImageSource};
use olm_api::cluster_extension::{
    CatalogFilter, ClusterExtensionSpec, ConfigType, ExtensionConfig, ServiceAccountReference, SourceConfig,
    SourceType,
};
use olm_api::names::{MAX_CATALOG_NAME, label, migration, user};
use olm_api::{ClusterCatalog, ClusterExtension};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::check::{Choices, Finding, Severity};
use crate::facts::{Case, annotation, name, namespace, tagged, text};

/// The approval that keeps a Subscription at its version.
const MANUAL: &str = "Manual";
/// Nanoseconds of a minute.
const MINUTE: i64 = 60_000_000_000;

/// The new place of one setting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Change {
    /// The setting of OLM classic.
    pub from: String,
    /// The replacement.
    pub to: String,
}

/// The ClusterExtension with this name that replaces a Subscription.
pub fn extension(
    case: Case<'_>,
    extension: &str,
    choices: &Choices,
    findings: &[Finding],
) -> ClusterExtension {
    let subscription = case.subscription;
    let channel = text(subscription, "/spec/channel");
    let is_pinned = text(subscription, "/spec/installPlanApproval") == MANUAL;
    let spec = ClusterExtensionSpec {
        namespace: case.namespace().to_owned(),
        service_account: account(case, choices).map(|name| ServiceAccountReference { name }),
        source: SourceConfig {
            source_type: SourceType::Catalog,
            catalog: Some(CatalogFilter {
                package_name: case.package().to_owned(),
                version: is_pinned.then(|| case.number().to_owned()),
                channels: [channel]
                    .iter()
                    .filter(|name| !name.is_empty())
                    .map(|name| (*name).to_owned())
                    .collect(),
                selector: Some(LabelSelector {
                    match_labels: Some(BTreeMap::from([(
                        label::METADATA_NAME.to_owned(),
                        catalog_name(case),
                    )])),
                    ..LabelSelector::default()
                }),
                ..CatalogFilter::default()
            }),
        },
        config: config(case).map(|inline| ExtensionConfig {
            config_type: ConfigType::Inline,
            inline: Some(inline),
        }),
        ..ClusterExtensionSpec::default()
    };
    let mut made = ClusterExtension::new(extension, spec);
    let backup = |object: &Value| object.get("spec").map(Value::to_string).unwrap_or_default();
    let mut annotations = BTreeMap::from([
        (migration::SUBSCRIPTION.to_owned(), case.key()),
        (migration::SUBSCRIPTION_BACKUP.to_owned(), backup(subscription)),
    ]);
    if let Some(rules) = annotation(subscription, user::SIGNATURE_POLICY) {
        annotations.insert(user::SIGNATURE_POLICY.to_owned(), rules.to_owned());
    }
    if let Some(group) = case.group() {
        annotations.insert(migration::OPERATOR_GROUP_BACKUP.to_owned(), backup(group));
    }
    for finding in findings
        .iter()
        .filter(|finding| finding.severity == Severity::Acknowledged)
    {
        annotations.insert(
            format!("{}{}", migration::ACKNOWLEDGED, finding.check),
            "true".to_owned(),
        );
    }
    made.metadata.annotations = Some(annotations);
    made
}

/// The account of the ClusterExtension, if it names one.
fn account(case: Case<'_>, choices: &Choices) -> Option<String> {
    let of_group = case.group().map(|group| text(group, "/spec/serviceAccountName"));
    let of_group = of_group.filter(|name| !name.is_empty()).map(str::to_owned);
    choices.account.clone().or(of_group)
}

/// The configuration of the bundle: the namespace to watch, and the settings of the Subscription for the Deployments.
fn config(case: Case<'_>) -> Option<Map<String, Value>> {
    let mut config = Map::new();
    if let [target] = case.targets()[..]
        && !target.is_empty()
    {
        config.insert("watchNamespace".to_owned(), json!(target));
    }
    let deployment = case
        .subscription
        .pointer("/spec/config")
        .and_then(Value::as_object);
    if let Some(deployment) = deployment {
        let mut deployment = deployment.clone();
        deployment.remove("selector");
        if !deployment.is_empty() {
            config.insert("deploymentConfig".to_owned(), Value::Object(deployment));
        }
    }
    (!config.is_empty()).then_some(config)
}

/// The name of the ClusterCatalog: that of the one that serves the image, otherwise that of the CatalogSource.
fn catalog_name(case: Case<'_>) -> String {
    match case.catalog() {
        Some(catalog) => catalog.name().to_owned(),
        None => text(case.subscription, "/spec/source").to_owned(),
    }
}

/// The ClusterCatalog that replaces the CatalogSource; `None` if it already exists, or there is no image.
pub fn catalog(case: Case<'_>) -> Option<ClusterCatalog> {
    let source = case.source()?;
    let image = text(source, "/spec/image");
    let wanted = catalog_name(case);
    let is_short = wanted.len() <= usize::try_from(MAX_CATALOG_NAME).unwrap_or(usize::MAX);
    if case.catalog().is_some() || image.is_empty() || !is_short {
        return None;
    }
    let reference = tagged(image);
    let interval = text(source, "/spec/updateStrategy/registryPoll/interval");
    let spec = ClusterCatalogSpec {
        source: cluster_catalog::CatalogSource {
            source_type: cluster_catalog::SourceType::Image,
            image: Some(ImageSource {
                poll_interval_minutes: minutes(interval).filter(|_| !reference.contains('@')),
                reference,
            }),
        },
        priority: priority(source).unwrap_or_default(),
        ..ClusterCatalogSpec::default()
    };
    let mut made = ClusterCatalog::new(&wanted, spec);
    let origin = format!("{}/{}", namespace(source), name(source));
    let mut annotations = BTreeMap::from([(migration::CATALOG_SOURCE.to_owned(), origin)]);
    for key in [user::CATALOG_IMAGE_TEMPLATE, user::SIGNATURE_POLICY] {
        if let Some(value) = annotation(source, key) {
            annotations.insert(key.to_owned(), value.to_owned());
        }
    }
    made.metadata.annotations = Some(annotations);
    Some(made)
}

/// The priority of a CatalogSource; `None` if it is not valid for a ClusterCatalog.
fn priority(source: &Value) -> Option<i32> {
    match source.pointer("/spec/priority") {
        None | Some(Value::Null) => Some(0),
        Some(priority) => priority
            .as_i64()
            .and_then(|priority| i32::try_from(priority).ok()),
    }
}

/// The minutes of a positive duration in the format of Go, rounded up; `None` if it is invalid.
fn minutes(duration: &str) -> Option<i64> {
    let nanoseconds = olm_text::duration::parse(duration)
        .ok()
        .filter(|length| *length >= 0)?;
    let minutes = nanoseconds / MINUTE + i64::from(nanoseconds % MINUTE > 0);
    Some(minutes.clamp(1, i64::from(i32::MAX)))
}

/// The new place of each setting, including settings without a replacement.
pub fn changes(case: Case<'_>, made: &ClusterExtension) -> Vec<Change> {
    let mut changes = Vec::new();
    let mut add = |from: String, to: String| changes.push(Change { from, to });
    let subscription = case.subscription;
    let filter = made.spec.source.catalog.clone().unwrap_or_default();
    add(
        format!("spec.name {}", case.package()),
        format!("spec.source.catalog.packageName {}", filter.package_name),
    );
    match filter.channels.first() {
        Some(channel) => add(
            format!("spec.channel {channel}"),
            format!("spec.source.catalog.channels [{channel}]"),
        ),
        None => add("spec.channel (none)".to_owned(), "all channels".to_owned()),
    }
    if let Some(version) = &filter.version {
        add(
            format!("spec.installPlanApproval {MANUAL}"),
            format!("spec.source.catalog.version {version}: pinned"),
        );
    }
    add(
        format!("spec.source {}", text(subscription, "/spec/source")),
        format!(
            "spec.source.catalog.selector: ClusterCatalog {}",
            catalog_name(case)
        ),
    );
    if made
        .spec
        .config
        .as_ref()
        .and_then(|config| config.inline.as_ref()?.get("deploymentConfig"))
        .is_some()
    {
        add(
            "spec.config".to_owned(),
            "spec.config.inline.deploymentConfig".to_owned(),
        );
    }
    if subscription.pointer("/spec/config/selector").is_some() {
        add(
            "spec.config.selector".to_owned(),
            "dropped: OLM classic ignores it".to_owned(),
        );
    }
    let starting = text(subscription, "/spec/startingCSV");
    if !starting.is_empty() {
        add(
            format!("spec.startingCSV {starting}"),
            "dropped: a version is installed".to_owned(),
        );
    }
    if let Some(group) = case.group() {
        let targets = case.targets();
        let to = match targets[..] {
            [""] => "no watchNamespace: all namespaces".to_owned(),
            [target] => format!("spec.config.inline.watchNamespace {target}"),
            _ => "not possible: several namespaces".to_owned(),
        };
        add(
            format!("OperatorGroup {} targets [{}]", name(group), targets.join(", ")),
            to,
        );
        let account = text(group, "/spec/serviceAccountName");
        if !account.is_empty() {
            add(
                format!("OperatorGroup {} spec.serviceAccountName {account}", name(group)),
                match &made.spec.service_account {
                    Some(account) => format!("spec.serviceAccount.name {}", account.name),
                    None => "dropped".to_owned(),
                },
            );
        }
        if text(group, "/spec/upgradeStrategy") == "TechPreviewUnsafeFailForward" {
            add(
                format!("OperatorGroup {} spec.upgradeStrategy", name(group)),
                "dropped: a failed revision is always followed by the next one".to_owned(),
            );
        }
    }
    if let Some(source) = case.source().filter(|_| case.catalog().is_none()) {
        catalog_changes(source, &mut add);
    }
    changes
}

/// The new places of the settings of a CatalogSource without a ClusterCatalog.
fn catalog_changes(source: &Value, add: &mut impl FnMut(String, String)) {
    let of = format!("CatalogSource {}/{}", namespace(source), name(source));
    add(
        format!("{of} spec.image"),
        format!(
            "ClusterCatalog spec.source.image.ref {}",
            tagged(text(source, "/spec/image"))
        ),
    );
    if priority(source).is_none() {
        add(
            format!("{of} spec.priority"),
            "dropped: it does not fit 32 bits".to_owned(),
        );
    }
    let interval = text(source, "/spec/updateStrategy/registryPoll/interval");
    if !interval.is_empty() {
        let to = match minutes(interval) {
            _ if text(source, "/spec/image").contains('@') => "dropped: a digest does not change".to_owned(),
            Some(minutes) => format!("ClusterCatalog spec.source.image.pollIntervalMinutes {minutes}"),
            None => "dropped: it is not a duration".to_owned(),
        };
        add(format!("{of} registryPoll.interval {interval}"), to);
    }
    for (key, to) in [
        (
            "secrets",
            "dropped: catalogd uses the pull secrets of its own configuration",
        ),
        ("grpcPodConfig", "dropped: no Pod serves the catalog alone"),
        ("displayName", "dropped"),
        ("publisher", "dropped"),
    ] {
        if source.pointer(&format!("/spec/{key}")).is_some() {
            add(format!("{of} spec.{key}"), to.to_owned());
        }
    }
}

#[cfg(test)]
mod tests;
