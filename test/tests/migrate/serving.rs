//! Objects that the Go implementation of OLM classic makes for a Deployment that the API server calls, made by rules of
//! this module and not with the code under test.

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Zoned;
use olm_platform::tls::issue::{Issued, Lifetimes, Renew, issue};
use serde_json::{Value, json};

/// Field manager of webhooks, roles, Secrets and conversions, which are written by updates.
const OLM: &str = "olm";
/// Field manager of applied objects.
pub(crate) const APPLIED: &str = "olm.install";
const RBAC: &str = "rbac.authorization.k8s.io";
/// The suffix that the API server chose for the names of webhook configurations.
const RANDOM: &str = "x7k2p";

/// A Deployment with a certificate.
pub(crate) struct Serving<'a> {
    /// The name of the Deployment.
    pub(crate) deployment: &'a str,
    pub(crate) namespace: &'a str,
    /// The labels of objects of the ClusterServiceVersion.
    pub(crate) labels: &'a Value,
    /// Its owner references.
    pub(crate) owner: &'a Value,
    certificate: Issued,
}

impl<'a> Serving<'a> {
    /// A certificate of today.
    pub(crate) fn new(
        deployment: &'a str,
        namespace: &'a str,
        labels: &'a Value,
        owner: &'a Value,
    ) -> Result<Self> {
        let lifetimes = Lifetimes {
            authority: 730,
            authority_renew: 1,
            serving: 730,
            serving_renew: 1,
        };
        let host = format!("{deployment}-service.{namespace}");
        let hosts = [
            host.clone(),
            format!("{host}.svc"),
            format!("{host}.svc.cluster.local"),
        ];
        Ok(Self {
            deployment,
            namespace,
            labels,
            owner,
            certificate: issue(None, Renew::Both, &hosts, lifetimes, Zoned::now().date())?,
        })
    }

    fn authority(&self) -> String {
        STANDARD.encode(self.certificate.trusted())
    }

    /// Gives the Pods the certificate.
    pub(crate) fn mount(&self, deployment: &mut Value) {
        let template = &mut deployment["spec"]["template"];
        template["metadata"]["annotations"]["olmcahash"] = json!("0a1b2c");
        let volume = |name: &str, [certificate, key]: [&str; 2]| {
            let items = json!([{"key": "tls.crt", "path": certificate}, {"key": "tls.key", "path": key}]);
            json!({"name": name, "secret": {"secretName": self.secret(), "items": items}})
        };
        template["spec"]["volumes"] = json!([
            volume("apiservice-cert", ["apiserver.crt", "apiserver.key"]),
            volume("webhook-cert", ["tls.crt", "tls.key"]),
        ]);
        template["spec"]["containers"][0]["volumeMounts"] = json!([
            {"name": "apiservice-cert", "mountPath": "/apiserver.local.config/certificates"},
            {"name": "webhook-cert", "mountPath": "/tmp/k8s-webhook-server/serving-certs"},
        ]);
    }

    fn secret(&self) -> String {
        format!("{}-service-cert", self.deployment)
    }

    fn service(&self) -> String {
        format!("{}-service", self.deployment)
    }

    /// Service, Secret, roles and webhook configurations, each with its writer. As after an earlier installation, the
    /// Role has no owner.
    pub(crate) fn parts(&self, version: &Value) -> Result<Vec<(Value, &'static str)>> {
        let (secret, service, place) = (self.secret(), self.service(), self.namespace);
        let managed = json!({"olm.managed": "true"});
        let at = |name: &str| json!({"name": name, "namespace": place, "labels": managed, "ownerReferences": self.owner});
        let role = |kind: &str, name: &str| json!({"apiGroup": RBAC, "kind": kind, "name": name});
        let subjects = json!([{"kind": "ServiceAccount", "name": self.deployment, "namespace": place}]);
        let rbac = format!("{RBAC}/v1");
        let encoded = |text: &str| STANDARD.encode(text);
        let strategy = &version["spec"]["install"]["spec"]["deployments"][0];
        let mut parts = vec![
            (
                json!({
                    "apiVersion": "v1", "kind": "Service", "metadata": at(&service),
                    "spec": {
                        "ports": [{"name": "443", "port": 443, "targetPort": 9443}],
                        "selector": strategy["spec"]["selector"]["matchLabels"],
                    },
                }),
                APPLIED,
            ),
            (
                json!({
                    "apiVersion": "v1", "kind": "Secret", "metadata": at(&secret), "type": "kubernetes.io/tls",
                    "data": {
                        "tls.crt": encoded(self.certificate.certificate()),
                        "tls.key": encoded(self.certificate.key()), "olmCAKey": self.authority(),
                    },
                }),
                OLM,
            ),
            (
                json!({
                    "apiVersion": rbac, "kind": "Role",
                    "metadata": {"name": secret, "namespace": place, "labels": managed},
                    "rules": [
                        {"verbs": ["get"], "apiGroups": [""], "resources": ["secrets"], "resourceNames": [secret]},
                    ],
                }),
                OLM,
            ),
            (
                json!({
                    "apiVersion": rbac, "kind": "RoleBinding", "metadata": at(&secret), "subjects": subjects,
                    "roleRef": role("Role", &secret),
                }),
                OLM,
            ),
            (
                json!({
                    "apiVersion": rbac, "kind": "ClusterRoleBinding",
                    "metadata": {"name": format!("{service}-system:auth-delegator"), "labels": self.labels},
                    "subjects": subjects, "roleRef": role("ClusterRole", "system:auth-delegator"),
                }),
                APPLIED,
            ),
            (
                json!({
                    "apiVersion": rbac, "kind": "RoleBinding",
                    "metadata": {
                        "name": format!("{service}-auth-reader"), "namespace": "kube-system", "labels": managed,
                    },
                    "subjects": subjects, "roleRef": role("Role", "extension-apiserver-authentication-reader"),
                }),
                APPLIED,
            ),
        ];
        for definition in version["spec"]["webhookdefinitions"]
            .as_array()
            .context("the version has webhooks")?
        {
            let kind = match definition["type"].as_str().unwrap_or_default() {
                "ValidatingAdmissionWebhook" => "ValidatingWebhookConfiguration",
                "MutatingAdmissionWebhook" => "MutatingWebhookConfiguration",
                _ => continue,
            };
            parts.push((self.configuration(kind, definition), OLM));
        }
        Ok(parts)
    }

    fn configuration(&self, kind: &str, definition: &Value) -> Value {
        let name = definition["generateName"].as_str().unwrap_or_default();
        let mut labels = self.labels.clone();
        labels["olm.webhook-description-generate-name"] = json!(name);
        labels["olm.webhook-description-hash"] = json!("4Bf7");
        let mut entry = json!({"name": name, "clientConfig": self.client(definition)});
        for key in [
            "rules",
            "failurePolicy",
            "sideEffects",
            "timeoutSeconds",
            "admissionReviewVersions",
        ] {
            entry[key] = definition[key].clone();
        }
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
            "metadata": {"name": format!("{name}-{RANDOM}"), "labels": labels}, "webhooks": [entry],
        })
    }

    fn client(&self, definition: &Value) -> Value {
        json!({
            "caBundle": self.authority(),
            "service": {
                "name": self.service(), "namespace": self.namespace, "port": 443,
                "path": definition["webhookPath"],
            },
        })
    }

    /// The patch of the CustomResourceDefinition that is converted.
    pub(crate) fn conversion(&self) -> Value {
        let definition = json!({"webhookPath": "/convert"});
        json!({"spec": {"conversion": {
            "strategy": "Webhook",
            "webhook": {"clientConfig": self.client(&definition), "conversionReviewVersions": ["v1"]},
        }}})
    }
}
