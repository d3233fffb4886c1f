//! The provider of the certificates of webhooks and aggregated APIs, and the objects that request them.

use std::fmt;
use std::str::FromStr;

use olm_api::names::{annotation, cert_manager};
use serde_json::{Map, Value, json};

use super::Options;
use super::manifests::{child, containers_mut};
use crate::bundle::Bundle;
use crate::names::{join_name, service_name};
use crate::object::text;

/// The provider of the certificates with which an operator serves its webhooks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CertificateProvider {
    /// cert-manager.
    CertManager,
    /// The service CA operator of OpenShift.
    OpenShiftServiceCa,
    /// OLM itself, with an authority for each of the operator's Services.
    SelfSigned,
}

impl fmt::Display for CertificateProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::CertManager => "cert-manager",
            Self::OpenShiftServiceCa => "openshift-service-ca",
            Self::SelfSigned => "self-signed",
        })
    }
}

/// The text is not the name of a certificate provider.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown certificate provider {0:?} (known are cert-manager, openshift-service-ca, self-signed)")]
pub struct UnknownProvider(String);

impl FromStr for CertificateProvider {
    type Err = UnknownProvider;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let all = [Self::CertManager, Self::OpenShiftServiceCa, Self::SelfSigned];
        let found = all.into_iter().find(|provider| provider.to_string() == text);
        found.ok_or_else(|| UnknownProvider(text.to_owned()))
    }
}

/// The longest common name that cert-manager accepts, in bytes. A certificate with DNS names needs none.
const MAX_COMMON_NAME: usize = 64;
/// The volume from which webhooks read their certificate, and its mount path.
pub const WEBHOOK_VOLUME: (&str, &str) = ("webhook-cert", "/tmp/k8s-webhook-server/serving-certs");
/// The volume from which aggregated API servers read their certificate, and its mount path.
pub const APISERVER_VOLUME: (&str, &str) = ("apiservice-cert", "/apiserver.local.config/certificates");

/// The name of the certificate for a deployment's webhooks, which is also that of its Secret.
#[must_use]
pub(crate) fn certificate_name(deployment: &str) -> String {
    join_name(&service_name(deployment), "cert")
}

fn annotate(object: &mut Value, key: &str, value: String) {
    let Some(metadata) = child(object, "metadata") else {
        return;
    };
    let annotations = metadata.entry("annotations").or_insert_with(|| json!({}));
    if let Some(annotations) = annotations.as_object_mut() {
        annotations.insert(key.to_owned(), value.into());
        annotations.sort_keys();
    }
}

/// Lets the provider write its certificate authority into a webhook configuration or custom resource definition.
pub(super) fn inject_authority(
    provider: CertificateProvider,
    object: &mut Value,
    deployment: &str,
    install_namespace: &str,
) {
    match provider {
        CertificateProvider::CertManager => {
            let source = format!("{install_namespace}/{}", certificate_name(deployment));
            annotate(object, cert_manager::INJECT_CA_FROM, source);
        }
        CertificateProvider::OpenShiftServiceCa => {
            annotate(
                object,
                "service.beta.openshift.io/inject-cabundle",
                "true".to_owned(),
            );
        }
        CertificateProvider::SelfSigned => {
            let source = format!("{install_namespace}/{}", certificate_name(deployment));
            annotate(object, annotation::AUTHORITY_FROM, source);
        }
    }
}

/// Lets the provider create a certificate for a Service.
pub(super) fn annotate_service(provider: CertificateProvider, service: &mut Value, deployment: &str) {
    match provider {
        CertificateProvider::CertManager => {}
        CertificateProvider::OpenShiftServiceCa => {
            annotate(
                service,
                "service.beta.openshift.io/serving-cert-secret-name",
                certificate_name(deployment),
            );
        }
        CertificateProvider::SelfSigned => {
            annotate(
                service,
                annotation::SERVING_CERTIFICATE,
                certificate_name(deployment),
            );
        }
    }
}

/// Adds the certificate's Secret to a pod that serves webhooks or aggregated APIs, and mounts it into the containers in
/// these lists. It replaces volumes and mounts of the bundle at the same places.
pub(super) fn mount_certificates(pod: &mut Map<String, Value>, deployment: &str, lists: &[&str]) {
    let replaced = replaced_volumes(pod, lists);
    let secret = certificate_name(deployment);
    let volumes = pod.entry("volumes").or_insert_with(|| json!([]));
    if let Some(volumes) = volumes.as_array_mut() {
        volumes.retain(|volume| !named_one_of(volume, &replaced));
        volumes.push(secret_volume(WEBHOOK_VOLUME.0, &secret, ["tls.crt", "tls.key"]));
        volumes.push(secret_volume(
            APISERVER_VOLUME.0,
            &secret,
            ["apiserver.crt", "apiserver.key"],
        ));
    }
    for list in lists {
        for container in containers_mut(pod, list) {
            let mounts = container.entry("volumeMounts").or_insert_with(|| json!([]));
            let Some(mounts) = mounts.as_array_mut() else {
                continue;
            };
            mounts.retain(|mount| !named_one_of(mount, &replaced));
            for (name, path) in [WEBHOOK_VOLUME, APISERVER_VOLUME] {
                mounts.push(json!({"name": name, "mountPath": path}));
            }
        }
    }
    // A mount of a removed volume would make the pod invalid. The mounts of certificates are added again.
    let kept = [WEBHOOK_VOLUME.0, APISERVER_VOLUME.0];
    let gone: Vec<String> = replaced
        .into_iter()
        .filter(|name| !kept.contains(&name.as_str()))
        .collect();
    for container in containers_mut(pod, "initContainers") {
        if let Some(mounts) = container.get_mut("volumeMounts").and_then(Value::as_array_mut) {
            for mount in mounts.iter_mut().filter(|mount| named_one_of(mount, &gone)) {
                let path = mount.get("mountPath").and_then(Value::as_str);
                let volume = [WEBHOOK_VOLUME, APISERVER_VOLUME]
                    .into_iter()
                    .find(|(_, at)| Some(*at) == path);
                if let Some((name, path)) = volume {
                    *mount = json!({"name": name, "mountPath": path});
                }
            }
            mounts.retain(|mount| !named_one_of(mount, &gone));
        }
    }
}

fn named_one_of(value: &Value, names: &[String]) -> bool {
    names.iter().any(|name| name == text(value, "/name"))
}

/// The names of the two volumes, and of every volume that a container in these lists mounts at one of their paths.
fn replaced_volumes(pod: &Map<String, Value>, lists: &[&str]) -> Vec<String> {
    let mut names: Vec<String> = [WEBHOOK_VOLUME.0, APISERVER_VOLUME.0].map(str::to_owned).to_vec();
    let containers = lists.iter().filter_map(|list| pod.get(*list)?.as_array());
    let mounts = containers
        .flatten()
        .filter_map(|container| container.get("volumeMounts").and_then(Value::as_array))
        .flatten();
    for mount in mounts {
        if [WEBHOOK_VOLUME.1, APISERVER_VOLUME.1].contains(&text(mount, "/mountPath")) {
            names.push(text(mount, "/name").to_owned());
        }
    }
    names
}

fn secret_volume(name: &str, secret: &str, [certificate, key]: [&str; 2]) -> Value {
    json!({
        "name": name,
        "secret": {
            "secretName": secret,
            "items": [{"key": "tls.crt", "path": certificate}, {"key": "tls.key", "path": key}],
        },
    })
}

/// The objects of the provider: for cert-manager an Issuer and a Certificate for each deployment that the API server
/// calls.
#[must_use]
pub fn objects(bundle: &Bundle, options: &Options) -> Vec<Value> {
    match options.certificates {
        Some(CertificateProvider::CertManager) => {}
        Some(CertificateProvider::OpenShiftServiceCa | CertificateProvider::SelfSigned) | None => {
            return Vec::new();
        }
    }
    let deployments = bundle.csv.deployments().iter();
    deployments
        .filter(|deployment| bundle.csv.is_called(&deployment.name))
        .flat_map(|deployment| issued(&deployment.name, &options.install_namespace))
        .collect()
}

fn issued(deployment: &str, namespace: &str) -> [Value; 2] {
    let certificate = certificate_name(deployment);
    let issuer = join_name(&certificate, "selfsigned-issuer");
    let host = format!("{}.{namespace}", service_name(deployment));
    let common_name = (host.len() <= MAX_COMMON_NAME).then_some(&host);
    let mut made = [
        json!({
            "apiVersion": cert_manager::API_VERSION,
            "kind": cert_manager::ISSUER,
            "metadata": {"name": issuer, "namespace": namespace},
            "spec": {"selfSigned": {}},
        }),
        json!({
            "apiVersion": cert_manager::API_VERSION,
            "kind": cert_manager::CERTIFICATE,
            "metadata": {"name": certificate, "namespace": namespace},
            "spec": {
                "commonName": common_name,
                "dnsNames": [host, format!("{host}.svc"), format!("{host}.svc.cluster.local")],
                // Two years, renewed a day before the end.
                "duration": "17520h0m0s",
                "renewBefore": "24h0m0s",
                "issuerRef": {"name": issuer},
                "secretName": certificate,
                "usages": ["server auth"],
            },
        }),
    ];
    for object in &mut made {
        if let Some(spec) = child(object, "spec") {
            spec.retain(|_, value| !value.is_null());
        }
    }
    made
}
