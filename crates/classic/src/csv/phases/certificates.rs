//! When the serving certificates of a ClusterServiceVersion are due.

use jiff::Timestamp;

use super::Pass;
use crate::cluster::text;
use crate::install::serving::{called, secret_due, secret_name};
use crate::names;

/// Whether a certificate is missing, or due by the status or by itself.
pub(super) fn are_due(pass: &Pass<'_>) -> bool {
    let serving = called(&pass.csv);
    let rotation = pass.csv.status.certs_rotate_at.as_deref();
    let rotation = rotation.and_then(|time| time.parse::<Timestamp>().ok());
    let is_over = |time: Option<Timestamp>| time.is_some_and(|time| time <= pass.now);
    let is_missing = |deployment: &&str| {
        let found = pass
            .facts
            .cluster
            .get(names::SECRET_KIND, pass.namespace(), &secret_name(deployment));
        found.is_none_or(|found| {
            ["olmCAKey", "tls.crt"]
                .iter()
                .any(|key| text(found, &format!("/data/{key}")).is_empty())
                || is_over(secret_due(found, pass.issuer))
        })
    };
    !serving.is_empty() && (serving.iter().any(is_missing) || is_over(rotation))
}

/// Whether the Deployments can be told what they are to be: each that serves has its certificate.
pub(super) fn are_there(pass: &Pass<'_>) -> bool {
    called(&pass.csv).iter().all(|deployment| {
        let cluster = pass.facts.cluster;
        cluster
            .get(names::SECRET_KIND, pass.namespace(), &secret_name(deployment))
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
