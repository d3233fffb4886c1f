//! The choice of a bundle's certificate provider, made for each revision. An extension keeps its provider while it is
//! available, so that a new provider on the cluster does not replace certificates.

use std::time::Instant;

use olm_api::ClusterObjectSet;
use olm_api::names::{annotation, cert_manager};
use olm_bundle::CertificateProvider;
use olm_cluster::discover::Discovery;

/// Certificate providers other than OLM.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Providers {
    pub cert_manager: bool,
    /// The service CA operator of OpenShift.
    pub service_ca: bool,
}

/// The allowed providers that the cluster has.
///
/// # Errors
/// The kinds that the cluster serves cannot be read.
pub(crate) async fn served(discovery: &Discovery, allowed: Providers) -> Result<Providers, kube::Error> {
    let has = async |allowed: bool, group: &str, kind: &str| {
        // A cached API may be gone, and nothing else refreshes it.
        Ok::<_, kube::Error>(
            allowed
                && discovery
                    .confirm(group, "v1", kind, Instant::now())
                    .await?
                    .is_some(),
        )
    };
    Ok(Providers {
        cert_manager: has(
            allowed.cert_manager,
            cert_manager::GROUP,
            cert_manager::CERTIFICATE,
        )
        .await?,
        service_ca: has(allowed.service_ca, "config.openshift.io", "ClusterVersion").await?,
    })
}

/// The provider of the newest revision, if it is available; otherwise cert-manager if installed; otherwise the service
/// CA on OpenShift; otherwise OLM.
pub(crate) fn provider(served: Providers, latest: Option<&ClusterObjectSet>) -> CertificateProvider {
    let usable = |provider: &CertificateProvider| match provider {
        CertificateProvider::CertManager => served.cert_manager,
        CertificateProvider::OpenShiftServiceCa => served.service_ca,
        CertificateProvider::SelfSigned => true,
    };
    let present = latest
        .and_then(|set| set.annotation(annotation::CERTIFICATE_PROVIDER))
        .and_then(|name| name.parse().ok());
    let others = [
        CertificateProvider::CertManager,
        CertificateProvider::OpenShiftServiceCa,
    ];
    present
        .into_iter()
        .chain(others)
        .find(usable)
        .unwrap_or(CertificateProvider::SelfSigned)
}

/// Whether OLM creates the certificates of a revision.
pub(crate) fn are_ours(set: &ClusterObjectSet) -> bool {
    let provider = set.annotation(annotation::CERTIFICATE_PROVIDER);
    provider.and_then(|name| name.parse().ok()) == Some(CertificateProvider::SelfSigned)
}

#[cfg(test)]
mod tests {
    use olm_api::cluster_object_set::ClusterObjectSetSpec;

    use super::*;

    #[test]
    fn a_provider_stays_as_long_as_it_can_be_used() {
        use CertificateProvider::{CertManager, OpenShiftServiceCa, SelfSigned};
        let check = |served: &str, latest: Option<CertificateProvider>, expected| {
            let served = Providers {
                cert_manager: served.contains("cert-manager"),
                service_ca: served.contains("service-ca"),
            };
            let mut set = ClusterObjectSet::new("e-1", ClusterObjectSetSpec::default());
            set.metadata.annotations = latest
                .map(|provider| [(annotation::CERTIFICATE_PROVIDER.to_owned(), provider.to_string())].into());
            assert_eq!(provider(served, Some(&set)), expected, "{served:?} {latest:?}");
        };
        check("", None, SelfSigned);
        check("cert-manager", None, CertManager);
        check("service-ca", None, OpenShiftServiceCa);
        check("cert-manager service-ca", None, CertManager);
        check("cert-manager", Some(SelfSigned), SelfSigned);
        check(
            "cert-manager service-ca",
            Some(OpenShiftServiceCa),
            OpenShiftServiceCa,
        );
        check("", Some(CertManager), SelfSigned);
        check("service-ca", Some(CertManager), OpenShiftServiceCa);
        assert_eq!(provider(Providers::default(), None), SelfSigned);
    }

    #[test]
    fn certificates_of_others_are_not_ours_to_make() {
        for (provider, expected) in [
            (None, false),
            (Some("cert-manager"), false),
            (Some("openshift-service-ca"), false),
            (Some("self-signed"), true),
        ] {
            let mut set = ClusterObjectSet::new("e-1", ClusterObjectSetSpec::default());
            set.metadata.annotations =
                provider.map(|name| [(annotation::CERTIFICATE_PROVIDER.to_owned(), name.to_owned())].into());
            assert_eq!(are_ours(&set), expected, "{provider:?}");
        }
    }
}
