//! Searches for packages of a catalog that meet a requirement, or have a similar name. They run only while something is
//! missing.

use std::collections::BTreeSet;

use olm_api::serving::MetasQuery;
use olm_constraint::cel::Budget;
use olm_constraint::{SimpleRequirement, Subject};
use olm_fbc::meta::has_too_many_values;
use olm_fbc::similar::distance;
use olm_fbc::{Bundle, Package, SCHEMA_BUNDLE, SCHEMA_PACKAGE};
use reqwest::StatusCode;
use serde::Deserialize;

use super::client::{CatalogAddress, Catalogs, CatalogsError, lines};

/// The most packages of one catalog that a message names.
const MOST_PACKAGES: usize = 20;
/// The most cached searches.
const MOST_SEARCHES: usize = 200;

#[derive(Deserialize)]
struct BlobHead<'a> {
    #[serde(borrow, default)]
    schema: std::borrow::Cow<'a, str>,
    #[serde(borrow, default)]
    name: std::borrow::Cow<'a, str>,
}

impl Catalogs {
    /// The packages with a bundle that meets a requirement, by name. The answer is cached by content.
    ///
    /// # Errors
    /// When the catalog does not answer.
    pub(crate) async fn providing(
        &self,
        address: CatalogAddress<'_>,
        wanted: &SimpleRequirement,
    ) -> Result<Vec<String>, CatalogsError> {
        if let SimpleRequirement::Package { name, .. } = wanted {
            return Ok(vec![name.clone()]);
        }
        let key = format!("{}\n{}\n{wanted}", address.name, address.reference);
        if let Some(found) = self.remembered(&key) {
            return Ok(found);
        }
        // Every provider of an API contains its kind.
        let word = match wanted {
            SimpleRequirement::Api(api) => api.kind.clone(),
            _ => String::new(),
        };
        let mut budget = Budget::default();
        let mut found = BTreeSet::new();
        self.each(address, SCHEMA_BUNDLE, None, |line| {
            if found.len() >= MOST_PACKAGES || !line.contains(&word) {
                return;
            }
            let Ok(bundle) = Bundle::from_json(line) else {
                return;
            };
            if found.contains(&bundle.package) {
                return;
            }
            let version = olm_resolve::recorded_version(&version_of(&bundle));
            let subject = Subject::new(
                &bundle.name,
                &bundle.package,
                version,
                bundle.properties.into_vec(),
            );
            if wanted.is_provided_by(&subject, &mut budget) == Ok(true) {
                found.insert(bundle.package);
            }
        })
        .await?;
        let found: Vec<String> = found.into_iter().collect();
        self.remember(key, &found);
        Ok(found)
    }

    /// The package with the most similar name, if one is similar enough. The answer is cached by content.
    ///
    /// # Errors
    /// When the catalog does not answer.
    pub(crate) async fn similar_package(
        &self,
        address: CatalogAddress<'_>,
        package: &str,
    ) -> Result<Option<String>, CatalogsError> {
        let key = format!("{}\n{}\nlike {package}", address.name, address.reference);
        if let Some(found) = self.remembered(&key) {
            return Ok(found.into_iter().next());
        }
        let mut best: Option<(usize, String)> = None;
        self.each(address, SCHEMA_PACKAGE, None, |line| {
            let head: Option<BlobHead<'_>> = serde_json::from_str(line).ok();
            let name = head.map(|head| head.name.into_owned()).unwrap_or_default();
            if let Some(distance) = distance(package, &name) {
                let found = (distance, name);
                if best.as_ref().is_none_or(|best| found < *best) {
                    best = Some(found);
                }
            }
        })
        .await?;
        let found = best.map(|(_, name)| name);
        self.remember(key, found.as_slice());
        Ok(found)
    }

    fn remembered(&self, key: &str) -> Option<Vec<String>> {
        let known = self.searches.lock();
        known.get(key).cloned()
    }

    fn remember(&self, key: String, found: &[String]) {
        let mut known = self.searches.lock();
        if known.len() >= MOST_SEARCHES {
            known.clear();
        }
        known.insert(key, found.to_vec());
    }

    /// The default channel of a package.
    ///
    /// # Errors
    /// When the catalog does not answer.
    pub(crate) async fn default_channel(
        &self,
        address: CatalogAddress<'_>,
        package: &str,
    ) -> Result<Option<String>, CatalogsError> {
        let mut found = None;
        self.each(address, SCHEMA_PACKAGE, Some(package), |line| {
            if let Ok(package) = Package::from_json(line) {
                found = Some(package.default_channel);
            }
        })
        .await?;
        Ok(found.filter(|channel| !channel.is_empty()))
    }

    /// Passes every blob of a schema on, or only the one with a name.
    async fn each(
        &self,
        address: CatalogAddress<'_>,
        schema: &str,
        name: Option<&str>,
        mut take: impl FnMut(&str),
    ) -> Result<(), CatalogsError> {
        let query = MetasQuery {
            schema: Some(schema),
            name,
            ..MetasQuery::default()
        };
        let response = self.query(address, &query, None).await?;
        let status = response.status();
        if status != StatusCode::OK {
            return Err(self.unexpected(address, status));
        }
        lines(response, None, |line| {
            let Ok(text) = std::str::from_utf8(line) else {
                return Ok(());
            };
            if has_too_many_values(line) {
                return Ok(());
            }
            let head: Option<BlobHead<'_>> = serde_json::from_str(text).ok();
            if head.is_some_and(|head| head.schema == schema && name.is_none_or(|name| head.name == name)) {
                take(text);
            }
            Ok(())
        })
        .await
    }
}

fn version_of(bundle: &Bundle) -> String {
    let mut properties = bundle.properties.iter();
    let package = properties.find(|property| property.kind == olm_fbc::property::TYPE_PACKAGE);
    package
        .and_then(|property| property.package().ok())
        .map(|package| package.version)
        .unwrap_or_default()
}
