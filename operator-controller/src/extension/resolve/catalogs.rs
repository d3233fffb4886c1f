//! Asks the catalogs about a package.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::future::join_all;
use olm_api::ClusterCatalog;
use olm_api::cluster_catalog::AvailabilityMode;
use olm_api::conditions::{SERVING, is_true};
use olm_api::names::label;
use olm_platform::log::chain;
use olm_resolve::catalog::is_asked;
use olm_resolve::{Availability, Catalog, Package, PackageAnswer, Request};

use crate::catalogs::CatalogAddress;
use crate::extension::context::Context;

/// A catalog and its answer.
#[derive(Clone)]
pub(crate) struct AskedCatalog {
    pub(crate) catalog: Arc<ClusterCatalog>,
    labels: BTreeMap<String, String>,
    availability: Availability,
    pub(crate) answer: CatalogAnswer,
}

/// The answer of a catalog, with the error as text.
pub(crate) type CatalogAnswer = PackageAnswer<Arc<Package>, String>;

/// Asks all selected catalogs at the same time.
pub(crate) async fn ask(context: &Context, request: &Request<'_>) -> Vec<AskedCatalog> {
    let catalogs = context.cluster_catalogs.state();
    join_all(
        catalogs
            .into_iter()
            .map(|catalog| ask_one(context, request, catalog))
            .collect::<Vec<_>>(),
    )
    .await
}

async fn ask_one(context: &Context, request: &Request<'_>, catalog: Arc<ClusterCatalog>) -> AskedCatalog {
    let mut labels = catalog.metadata.labels.clone().unwrap_or_default();
    // Selectors match the label even before catalogd has set it.
    labels.insert(label::METADATA_NAME.to_owned(), catalog.name().to_owned());
    let availability = match catalog.spec.availability_mode {
        AvailabilityMode::Available => Availability::Available,
        AvailabilityMode::Unavailable => Availability::Unavailable,
    };
    let answer = match is_asked(&labels, availability, request) {
        Ok(true) => answer(context, &catalog, request.package).await,
        Ok(false) | Err(_) => PackageAnswer::NotAsked,
    };
    AskedCatalog {
        catalog,
        labels,
        availability,
        answer,
    }
}

async fn answer(context: &Context, catalog: &ClusterCatalog, package: &str) -> CatalogAnswer {
    let address = match address(catalog) {
        Ok(address) => address,
        Err(problem) => return PackageAnswer::Failed(problem),
    };
    match context.catalogs.package(address, package).await {
        Ok(Some(package)) => PackageAnswer::Package(package),
        Ok(None) => PackageAnswer::Absent,
        Err(error) => PackageAnswer::Failed(chain(&error)),
    }
}

/// The address of a catalog, or the reason why it is not served.
pub(crate) fn address(catalog: &ClusterCatalog) -> Result<CatalogAddress<'_>, String> {
    let name = catalog.name();
    if !is_true(catalog.conditions(), SERVING) {
        return Err(format!("catalog {name:?} is not being served"));
    }
    let status = catalog.status.as_ref();
    let base = status
        .and_then(|status| status.urls.as_ref())
        .map(|urls| urls.base.as_str());
    let resolved = status.and_then(|status| status.resolved_source.as_ref());
    let base = base.ok_or_else(|| format!("catalog {name:?} has a nil status.urls value"))?;
    let resolved =
        resolved.ok_or_else(|| format!("catalog {name:?} has a nil status.resolvedSource value"))?;
    let image = resolved.image.as_ref();
    let image =
        image.ok_or_else(|| format!("catalog {name:?} has a nil status.resolvedSource.image value"))?;
    Ok(CatalogAddress {
        name,
        base,
        reference: &image.reference,
    })
}

impl AskedCatalog {
    /// Whether the catalog is selected and may have bundles that it does not show now: it does not answer, or it is set
    /// unavailable.
    pub(crate) fn is_silent(&self, request: &Request<'_>) -> bool {
        match self.availability {
            Availability::Available => matches!(self.answer, PackageAnswer::Failed(_)),
            Availability::Unavailable => {
                is_asked(&self.labels, Availability::Available, request).is_ok_and(|is_asked| is_asked)
            }
        }
    }

    #[cfg(test)]
    pub(crate) fn of(catalog: ClusterCatalog, answer: CatalogAnswer) -> Self {
        Self {
            catalog: Arc::new(catalog),
            labels: BTreeMap::new(),
            availability: Availability::Available,
            answer,
        }
    }

    pub(crate) fn package(&self) -> Option<&Package> {
        match &self.answer {
            PackageAnswer::Package(package) => Some(package),
            _ => None,
        }
    }

    pub(crate) fn view(&self) -> Catalog<'_> {
        Catalog {
            name: self.catalog.name(),
            priority: self.catalog.spec.priority,
            labels: &self.labels,
            availability: self.availability,
            answer: match &self.answer {
                PackageAnswer::NotAsked => PackageAnswer::NotAsked,
                PackageAnswer::Absent => PackageAnswer::Absent,
                PackageAnswer::Package(package) => PackageAnswer::Package(package),
                PackageAnswer::Failed(problem) => PackageAnswer::Failed(problem),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use olm_api::cluster_catalog::{
        CatalogUrls, ClusterCatalogSpec, ClusterCatalogStatus, ResolvedCatalogSource, ResolvedImageSource,
        SourceType,
    };
    use olm_api::conditions::{Report, Status, set_condition};

    use super::*;

    #[test]
    fn a_catalog_has_an_address_only_while_it_is_served() {
        let mut catalog = ClusterCatalog::new("c", ClusterCatalogSpec::default());
        assert_eq!(
            address(&catalog).unwrap_err(),
            r#"catalog "c" is not being served"#
        );
        let mut status = ClusterCatalogStatus::default();
        let report = Report {
            condition_type: SERVING,
            status: Status::True,
            reason: "Available",
            message: "",
            observed_generation: 1,
        };
        set_condition(&mut status.conditions, report, jiff::Timestamp::UNIX_EPOCH);
        catalog.status = Some(status);
        assert_eq!(
            address(&catalog).unwrap_err(),
            r#"catalog "c" has a nil status.urls value"#
        );
        if let Some(status) = &mut catalog.status {
            status.urls = Some(CatalogUrls {
                base: "https://h/catalogs/c".to_owned(),
            });
            status.resolved_source = Some(ResolvedCatalogSource {
                source_type: SourceType::Image,
                image: Some(ResolvedImageSource {
                    reference: "r@sha256:0".to_owned(),
                }),
            });
        }
        assert_eq!(
            address(&catalog).unwrap(),
            CatalogAddress {
                name: "c",
                base: "https://h/catalogs/c",
                reference: "r@sha256:0"
            }
        );
    }
}
