//! When the serving certificates of a ClusterServiceVersion are due.

use std::collections::BTreeSet;

use jiff::Timestamp;

use super::Pass;
use crate::cluster::text;
use crate::names;

/// The Deployments that serve an aggregated API or a webhook.
fn serving<'a>(pass: &'a Pass<'_>) -> BTreeSet<&'a str> {
    let services = pass.csv.spec.api_service_definitions.owned.iter();
    let services = services.map(|owned| owned.deployment_name.as_str());
    let webhooks = pass.csv.spec.webhook_definitions.iter();
    let webhooks = webhooks.map(|webhook| text(webhook, "/deploymentName"));
    services.chain(webhooks).collect()
}

/// The Secret with the certificate of a Deployment.
pub(super) fn secret(deployment: &str) -> String {
    format!("{deployment}-service-cert")
}

/// Whether a certificate is missing, or due by the status.
pub(super) fn are_due(pass: &Pass<'_>) -> bool {
    let serving = serving(pass);
    let rotation = pass.csv.status.certs_rotate_at.as_deref();
    let rotation = rotation.and_then(|time| time.parse::<Timestamp>().ok());
    let is_missing = |deployment: &&str| {
        let found = pass
            .facts
            .cluster
            .get(names::SECRET_KIND, pass.namespace(), &secret(deployment));
        found.is_none_or(|found| {
            ["olmCAKey", "tls.crt"]
                .iter()
                .any(|key| text(found, &format!("/data/{key}")).is_empty())
        })
    };
    !serving.is_empty()
        && (serving.iter().any(is_missing) || rotation.is_some_and(|rotation| rotation <= pass.now))
}

/// Whether the Deployments can be told what they are to be: each that serves has its certificate.
pub(super) fn are_there(pass: &Pass<'_>) -> bool {
    serving(pass).iter().all(|deployment| {
        let cluster = pass.facts.cluster;
        cluster
            .get(names::SECRET_KIND, pass.namespace(), &secret(deployment))
            .is_some()
            && pass
                .csv
                .spec
                .install
                .spec
                .deployments
                .iter()
                .any(|entry| entry.name == *deployment)
    })
}
