//! The first revision of a ClusterExtension, created from the objects that OLM classic installed. Pure.

use std::collections::BTreeMap;

use anyhow::{Context as _, bail};
use olm_api::cluster_object_set::{ClusterObjectSetSpec, LifecycleState};
use olm_api::names::{CLUSTER_EXTENSION, annotation, label, migration, user};
use olm_api::{ClusterExtension, ClusterObjectSet};
use olm_bundle::CertificateProvider;
use olm_plan::pack::{ContentSecret, pack};
use olm_plan::phases::{CommonMetadata, phases, probes};
use serde_json::{Value, json};

use crate::certificates;
use crate::facts::{self, Case, list, name, text};
use crate::needs::PROPERTIES;
use crate::objects::reduce::reduced;

/// The revision that holds the live objects of the operator as OLM classic rendered them, and the Secrets in the
/// namespace of the managers that it refers to.
///
/// # Errors
/// An object cannot be taken over.
pub fn revision(
    case: Case<'_>,
    extension: &ClusterExtension,
    objects: &[Value],
    system_namespace: &str,
) -> anyhow::Result<(ClusterObjectSet, Vec<ContentSecret>)> {
    let mut rendered = Vec::new();
    for live in objects {
        let named = || format!("cannot take over {} {:?}", text(live, "/kind"), name(live));
        let is_controlled = |owner: &Value| owner.get("controller") == Some(&Value::Bool(true));
        if let Some(owner) = list(live, "/metadata/ownerReferences")
            .iter()
            .find(|owner| is_controlled(owner))
        {
            bail!(
                "{}: {} {:?} controls it",
                named(),
                text(owner, "/kind"),
                text(owner, "/name")
            );
        }
        rendered.push(
            reduced(live)
                .with_context(|| format!("{}: OLM classic has written none of its fields", named()))?,
        );
    }
    let marks = CommonMetadata {
        extension: extension.name(),
        package: case.package(),
        version: case.number(),
    };
    let groups = phases(rendered, marks)?;
    let number = 1;
    let name = format!("{}-{number}", extension.name());
    let packed = pack(&name, system_namespace, &groups)?;
    let spec = ClusterObjectSetSpec {
        lifecycle_state: LifecycleState::Active,
        revision: number,
        phases: packed.phases,
        progression_probes: probes(&groups),
        ..ClusterObjectSetSpec::default()
    };
    let mut set = ClusterObjectSet::new(&name, spec);
    set.metadata.labels = Some(BTreeMap::from([
        (label::OWNER_KIND.to_owned(), CLUSTER_EXTENSION.to_owned()),
        (label::OWNER_NAME.to_owned(), extension.name().to_owned()),
    ]));
    set.metadata.annotations = Some(annotations(case, extension));
    set.metadata.owner_references = Some(vec![extension.controller_reference()]);
    Ok((set, packed.secrets))
}

/// The annotations of a revision about its bundle.
fn annotations(case: Case<'_>, extension: &ClusterExtension) -> BTreeMap<String, String> {
    let account = extension.spec.service_account.as_ref();
    let account = account.map(|account| format!("{}/{}", extension.spec.namespace, account.name));
    let config = extension
        .spec
        .config
        .as_ref()
        .and_then(|config| config.inline.as_ref());
    let noted = case
        .version()
        .and_then(|version| facts::annotation(version, PROPERTIES));
    let noted: Value = noted
        .and_then(|noted| serde_json::from_str(noted).ok())
        .unwrap_or_default();
    let properties = noted.get("properties").map(Value::to_string);
    let is_called = case
        .version()
        .is_some_and(|version| !certificates::secrets(version).is_empty());
    // The certificates of OLM classic are self-signed. An extension keeps its provider: another one would replace the
    // certificate before the webhooks and APIServices that trust it.
    let certificates = is_called.then(|| CertificateProvider::SelfSigned.to_string());
    let known = [
        (annotation::PACKAGE_NAME, Some(case.package().to_owned())),
        (annotation::BUNDLE_NAME, Some(case.installed().to_owned())),
        (annotation::BUNDLE_VERSION, Some(case.number().to_owned())),
        (
            annotation::BUNDLE_REFERENCE,
            case.bundle_image().map(str::to_owned),
        ),
        (
            annotation::CATALOG,
            case.catalog().map(|catalog| catalog.name().to_owned()),
        ),
        (annotation::SERVICE_ACCOUNT, account),
        (annotation::CONFIG_DIGEST, config.map(olm_plan::digest)),
        (annotation::PROPERTIES, properties),
        (annotation::CERTIFICATE_PROVIDER, certificates),
        (migration::SUBSCRIPTION, Some(case.key())),
        (user::PAUSED, Some("true".to_owned())),
    ];
    known
        .into_iter()
        .filter_map(|(key, value)| Some((key.to_owned(), value?)))
        .collect()
}

/// A merge patch that takes an object from OLM classic: its labels, annotations, owner and fields; `None` if it has
/// none of them. It requires the object that was read.
pub fn release(live: &Value) -> Option<Value> {
    let mut metadata = json!({
        "uid": live.pointer("/metadata/uid"), "resourceVersion": live.pointer("/metadata/resourceVersion"),
    });
    let mut is_due = false;
    for map in ["labels", "annotations"] {
        let present = live
            .pointer(&format!("/metadata/{map}"))
            .and_then(Value::as_object);
        for key in present.into_iter().flat_map(|map| map.keys()) {
            if crate::objects::reduce::is_bookkeeping(key)
                && let Some(metadata) = metadata.as_object_mut()
                && let Some(map) = metadata.entry(map).or_insert_with(|| json!({})).as_object_mut()
            {
                map.insert(key.clone(), Value::Null);
                is_due = true;
            }
        }
    }
    let kept = |path: &str, keep: fn(&Value) -> bool| {
        let all = list(live, path);
        let kept: Vec<&Value> = all.iter().filter(|entry| keep(entry)).collect();
        (kept.len() < all.len()).then(|| json!(kept))
    };
    let owners = kept("/metadata/ownerReferences", |owner| !is_version(owner));
    let fields = kept("/metadata/managedFields", |entry| {
        !crate::objects::reduce::is_of_classic(entry)
    });
    for (key, value) in [("ownerReferences", owners), ("managedFields", fields)] {
        if let (Some(value), Some(metadata)) = (value, metadata.as_object_mut()) {
            metadata.insert(key.to_owned(), value);
            is_due = true;
        }
    }
    is_due.then(|| json!({ "metadata": metadata }))
}

/// Whether an owner is a ClusterServiceVersion.
pub fn is_version(owner: &Value) -> bool {
    text(owner, "/kind") == "ClusterServiceVersion"
        && text(owner, "/apiVersion").starts_with(olm_api::names::operator_condition::GROUP)
}

/// An object without metadata and status: the content of the operator.
pub fn content_of(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(object) = object.as_object_mut() {
        object.remove("metadata");
        object.remove("status");
    }
    object
}
