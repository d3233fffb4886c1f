//! Whether the signature policies accept the bundle image of the installed version. The version stays in any case.

use std::collections::BTreeMap;

use jiff::Timestamp;
use olm_api::conditions::{VERIFIED, steady};
use olm_api::verified::status_and_reason;
use serde_json::{Value, json};

use super::collection::generation;
use super::{INSTALL_PLAN_KIND, condition, set, stamp, unset};
use crate::cluster::{Cluster, annotation, items, put, text};
use crate::names;
use crate::resolve::CatalogContent;

/// The bundle image of an installed version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstalledImage {
    /// The image as its catalog names it.
    pub reference: String,
    /// The image by digest, if the InstallPlan noted it.
    pub pinned: Option<String>,
    /// The CatalogSource that it came from, by namespace and name.
    pub catalog: (String, String),
}

/// The bundle image of the installed version of a Subscription: that of its newest InstallPlan, or that of the catalog
/// where no such plan is left. `None` without an installed version, and for a bundle without an image.
pub fn installed_image(
    subscription: &Value,
    cluster: &Cluster,
    catalogs: &[CatalogContent],
) -> Option<InstalledImage> {
    let installed = text(subscription, "/status/installedCSV");
    if installed.is_empty() {
        return None;
    }
    let plans = cluster.in_namespace(INSTALL_PLAN_KIND, text(subscription, "/metadata/namespace"));
    let found = plans.filter_map(|plan| {
        let mut lookups = items(plan, "/status/bundleLookups");
        Some((
            plan,
            lookups.find(|lookup| text(lookup, "/identifier") == installed)?,
        ))
    });
    match found.max_by_key(|(plan, _)| generation(plan)) {
        Some((plan, lookup)) => of_plan(plan, lookup),
        None => of_catalog(subscription, installed, catalogs),
    }
}

fn of_plan(plan: &Value, lookup: &Value) -> Option<InstalledImage> {
    let of = |pointer: &str| text(lookup, pointer).to_owned();
    let reference = of("/path");
    let pinned = annotation(plan, names::BUNDLE_IMAGES_ANNOTATION);
    let mut pinned: BTreeMap<String, String> = serde_json::from_str(pinned).unwrap_or_default();
    (!reference.is_empty()).then(|| InstalledImage {
        pinned: pinned.remove(&reference),
        reference,
        catalog: (of("/catalogSourceRef/namespace"), of("/catalogSourceRef/name")),
    })
}

fn of_catalog(subscription: &Value, installed: &str, catalogs: &[CatalogContent]) -> Option<InstalledImage> {
    let of = |pointer: &str| text(subscription, pointer);
    let (place, name) = (of("/spec/sourceNamespace"), of("/spec/source"));
    let mut catalogs = catalogs.iter();
    let catalog = catalogs.find(|catalog| catalog.namespace == place && catalog.name == name)?;
    let mut entries = catalog.content.as_ref().ok()?.of_package(of("/spec/name"));
    let entry = entries.find(|entry| entry.name == installed && !entry.bundle_path.is_empty())?;
    Some(InstalledImage {
        reference: entry.bundle_path.clone(),
        pinned: None,
        catalog: (place.to_owned(), name.to_owned()),
    })
}

/// The Subscription with the condition about the image of its installed version; nothing where it has that already. The
/// verdict is whether the policies accept the image, none when that is not known, and a message. Without a verdict,
/// because no rule asks for a signature, there is no condition.
pub fn with_verified(
    subscription: &Value,
    verdict: Option<(Option<bool>, &str)>,
    now: Timestamp,
) -> Option<Value> {
    let mut subscription = subscription.clone();
    let time = format!("{now:.0}");
    let is_changed = match verdict {
        Some((accepted, message)) => {
            let (status, reason) = status_and_reason(accepted);
            let mut wanted = condition(VERIFIED, reason, &steady(message));
            put(&mut wanted, &[], "status", json!(status.as_str()));
            set(&mut subscription, wanted, &time)
        }
        None => unset(&mut subscription, &[VERIFIED]),
    };
    is_changed.then(|| {
        stamp(&mut subscription, &time);
        subscription
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::registry::{BundleMessage, PackageMessage};
    use crate::resolve::EntryIndex;

    fn plan(generation: i64, version: &str, digest: &str) -> Value {
        let path = format!("r.example/{version}:latest");
        let images = json!({path.as_str(): digest}).to_string();
        json!({
            "kind": INSTALL_PLAN_KIND,
            "metadata": {
                "namespace": "n", "name": format!("install-{generation}"),
                "annotations": {names::BUNDLE_IMAGES_ANNOTATION: images},
            },
            "spec": {"generation": generation},
            "status": {"bundleLookups": [{
                "identifier": version, "path": path, "catalogSourceRef": {"namespace": "olm", "name": "c"},
            }]},
        })
    }

    fn subscription(installed: &str) -> Value {
        json!({
            "metadata": {"namespace": "n", "name": "s"},
            "spec": {"name": "a", "source": "c", "sourceNamespace": "olm"},
            "status": {"installedCSV": installed},
        })
    }

    #[test]
    fn the_image_of_the_installed_version_is_that_of_its_newest_plan_or_of_the_catalog() {
        let cluster: Cluster = [
            plan(1, "a.v1", "first"),
            plan(3, "a.v1", "again"),
            plan(2, "a.v2", "other"),
        ]
        .into_iter()
        .collect();
        let bundle = BundleMessage {
            csv_name: "a.v0".to_owned(),
            package_name: "a".to_owned(),
            bundle_path: "r.example/a.v0:latest".to_owned(),
            ..BundleMessage::default()
        };
        let packages = BTreeMap::from([("a".to_owned(), PackageMessage::default())]);
        let catalog = CatalogContent {
            name: "c".to_owned(),
            namespace: "olm".to_owned(),
            priority: 0,
            content: Ok(Arc::new(EntryIndex::new(vec![bundle], &packages))),
        };
        for (installed, expected) in [
            ("a.v1", Some(("r.example/a.v1:latest", Some("again")))),
            ("a.v2", Some(("r.example/a.v2:latest", Some("other")))),
            ("a.v0", Some(("r.example/a.v0:latest", None))),
            ("a.v9", None),
            ("", None),
        ] {
            let found = installed_image(&subscription(installed), &cluster, std::slice::from_ref(&catalog));
            let expected = expected.map(|(reference, pinned)| InstalledImage {
                reference: reference.to_owned(),
                pinned: pinned.map(str::to_owned),
                catalog: ("olm".to_owned(), "c".to_owned()),
            });
            assert_eq!(found, expected, "{installed}");
        }
    }

    #[test]
    fn the_condition_says_what_the_policies_say_and_goes_with_their_rule() {
        let mut known = subscription("a.v1");
        for (verdict, expected) in [
            (Some((Some(true), "signed")), json!(["True", "Signed", "signed"])),
            (Some((Some(false), "no")), json!(["False", "PolicyRefuses", "no"])),
            (Some((None, "lost")), json!(["Unknown", "Unverifiable", "lost"])),
            (None, Value::Null),
        ] {
            known = with_verified(&known, verdict, Timestamp::UNIX_EPOCH).unwrap();
            let found = known["status"]["conditions"].get(0);
            let found = found.map(|found| json!([found["status"], found["reason"], found["message"]]));
            assert_eq!(found.unwrap_or_default(), expected);
            assert_eq!(with_verified(&known, verdict, Timestamp::UNIX_EPOCH), None);
        }
    }
}
