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
use olm_resolve::{Availability, Catalog, Content, Package, Request};

use crate::catalogs::Place;
use crate::extension::context::Context;

/// A catalog and its answer.
#[derive(Clone)]
pub(crate) struct Asked {
    pub(crate) catalog: Arc<ClusterCatalog>,
    labels: BTreeMap<String, String>,
    availability: Availability,
    pub(crate) answer: Answer,
}

#[derive(Clone)]
pub(crate) enum Answer {
    NotAsked,
    Absent,
    Package(Arc<Package>),
    Failed(String),
}

/// Asks all selected catalogs at the same time.
pub(crate) async fn ask(context: &Context, request: &Request<'_>) -> Vec<Asked> {
    let catalogs = context.cluster_catalogs.state();
    join_all(
        catalogs
            .into_iter()
            .map(|catalog| ask_one(context, request, catalog))
            .collect::<Vec<_>>(),
    )
    .await
}

async fn ask_one(context: &Context, request: &Request<'_>, catalog: Arc<ClusterCatalog>) -> Asked {
    let mut labels = catalog.metadata.labels.clone().unwrap_or_default();
    // Selectors match the label even before catalogd has set it.
    labels.insert(label::METADATA_NAME.to_owned(), catalog.name().to_owned());
    let availability = match catalog.spec.availability_mode {
        AvailabilityMode::Available => Availability::Available,
        AvailabilityMode::Unavailable => Availability::Unavailable,
    };
    let answer = match is_asked(&labels, availability, request) {
        Ok(true) => answer(context, &catalog, request.package).await,
        Ok(false) | Err(_) => Answer::NotAsked,
    };
    Asked {
        catalog,
        labels,
        availability,
        answer,
    }
}

async fn answer(context: &Context, catalog: &ClusterCatalog, package: &str) -> Answer {
    let place = match place(catalog) {
        Ok(place) => place,
        Err(problem) => return Answer::Failed(problem),
    };
    match context.catalogs.package(place, package).await {
        Ok(Some(package)) => Answer::Package(package),
        Ok(None) => Answer::Absent,
        Err(error) => Answer::Failed(chain(&error)),
    }
}

/// The address of a catalog, or the reason why it is not served.
pub(crate) fn place(catalog: &ClusterCatalog) -> Result<Place<'_>, String> {
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
    Ok(Place {
        name,
        base,
        reference: &image.reference,
    })
}

impl Asked {
    #[cfg(test)]
    pub(crate) fn of(catalog: ClusterCatalog, answer: Answer) -> Self {
        Self {
            catalog: Arc::new(catalog),
            labels: BTreeMap::new(),
            availability: Availability::Available,
            answer,
        }
    }

    pub(crate) fn catalog(&self) -> &ClusterCatalog {
        &self.catalog
    }

    pub(crate) fn package(&self) -> Option<&Package> {
        match &self.answer {
            Answer::Package(package) => Some(package),
            _ => None,
        }
    }

    pub(crate) fn view(&self) -> Catalog<'_> {
        Catalog {
            name: self.catalog.name(),
            priority: self.catalog.spec.priority,
            labels: &self.labels,
            availability: self.availability,
            content: match &self.answer {
                Answer::NotAsked => Content::NotAsked,
                Answer::Absent => Content::Absent,
                Answer::Package(package) => Content::Package(package),
                Answer::Failed(problem) => Content::Failed(problem),
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
    fn a_catalog_has_a_place_only_while_it_is_served() {
        let mut catalog = ClusterCatalog::new("c", ClusterCatalogSpec::default());
        assert_eq!(place(&catalog).unwrap_err(), r#"catalog "c" is not being served"#);
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
            place(&catalog).unwrap_err(),
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
            place(&catalog).unwrap(),
            Place {
                name: "c",
                base: "https://h/catalogs/c",
                reference: "r@sha256:0"
            }
        );
    }
}
