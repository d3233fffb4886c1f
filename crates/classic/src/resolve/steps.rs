//! The steps, bundle lookups and Subscription updates that install the chosen operators.

use serde_json::{Value, json};

use super::Resolved;
use super::entry::Entry;
use crate::cluster::{put, text};
use crate::install_plan::{BundleContent, Origin, Step, bundle_steps, subscription_step};
use crate::properties::write_annotation;

pub(super) fn resolved(
    namespace: &str,
    operators: Vec<Entry>,
    subscriptions: &[&Value],
    csvs: &[&Value],
) -> Result<Resolved, String> {
    let mut resolved = Resolved::default();
    for entry in &operators {
        let matching: Vec<&Value> = subscriptions
            .iter()
            .copied()
            .filter(|subscription| is_for(subscription, entry))
            .collect();
        let is_there = csvs.iter().any(|csv| {
            text(csv, "/metadata/name") == entry.name && text(csv, "/metadata/namespace") == namespace
        });
        let is_current =
            |subscription: &&Value| is_there && text(subscription, "/status/currentCSV") == entry.name;
        if !matching.is_empty() && matching.iter().all(is_current) {
            continue;
        }
        let origin = Origin {
            namespace: namespace.to_owned(),
            replaces: entry.replaces.clone(),
            catalog: entry.catalog.clone(),
            catalog_namespace: entry.catalog_namespace.clone(),
        };
        // A bundle without an image whose manifests are not here is looked up, too.
        if let Some(bundle) = entry.inline.as_ref().filter(|bundle| !bundle.csv_json.is_empty()) {
            let content = BundleContent {
                csv: bundle.csv_json.clone(),
                objects: bundle.object.clone(),
                properties: bundle.properties.clone(),
            };
            let steps = bundle_steps(&content, &origin)
                .map_err(|error| format!("failed to turn bundle into steps: {error}"))?;
            resolved.resolution.steps.extend(steps.iter().map(Step::to_value));
        } else {
            resolved.resolution.bundle_lookups.push(lookup(entry)?);
        }
        if matching.is_empty() {
            resolved
                .resolution
                .steps
                .push(subscription_step(&entry.package, &entry.channel, &entry.name, &origin).to_value());
        }
        for subscription in matching {
            if text(subscription, "/status/currentCSV") != entry.name {
                let name = text(subscription, "/metadata/name").to_owned();
                resolved.resolution.updated.insert(name, entry.name.clone());
            }
        }
    }
    resolved.operators = operators;
    Ok(resolved)
}

/// Whether a Subscription is for the package, channel and catalog of an entry.
pub(super) fn is_for(subscription: &Value, entry: &Entry) -> bool {
    let is = |pointer: &str, value: &str| text(subscription, pointer) == value;
    let is_any_catalog = is("/spec/source", "") && is("/spec/sourceNamespace", "");
    let is_of_catalog =
        is("/spec/source", &entry.catalog) && is("/spec/sourceNamespace", &entry.catalog_namespace);
    is("/spec/name", &entry.package)
        && (is("/spec/channel", "") || is("/spec/channel", &entry.channel))
        && (is_any_catalog || is_of_catalog)
}

fn lookup(entry: &Entry) -> Result<Value, String> {
    let mut lookup = json!({
        "path": entry.bundle_path,
        "identifier": entry.name,
        "catalogSourceRef": {"namespace": entry.catalog_namespace, "name": entry.catalog},
        "properties": write_annotation(&entry.properties)
            .map_err(|error| format!("failed to serialize operator properties for {:?}: {error}", entry.name))?,
        "conditions": [
            {
                "type": "BundleLookupNotPersisted", "status": "True", "reason": "BundleNotUnpacked",
                "message": "bundle contents have not yet been persisted to installplan status",
            },
            {
                "type": "BundleLookupPending", "status": "True", "reason": "JobNotStarted",
                "message": "unpack job not yet started",
            },
        ],
    });
    if !entry.replaces.is_empty() {
        put(&mut lookup, &[], "replaces", json!(entry.replaces));
    }
    Ok(lookup)
}
