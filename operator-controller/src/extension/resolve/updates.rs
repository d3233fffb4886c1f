//! Newer bundles, from the answers of the catalogs. Pure.

use olm_api::cluster_extension::BundleMetadata;
use olm_api::conditions::steady;
use olm_api::updates::{AvailableBundle, held_back};
use olm_resolve::cluster::updates::newest;
use olm_resolve::{Candidate, Catalog, ClusterState, Reason, Refusal, Request, Resolution};

use crate::extension::revisions::as_installed;

/// Newer bundles.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Updates {
    /// The chosen bundle, if it is not the installed one.
    pub next: Option<AvailableBundle>,
    /// The newest bundle, if it is newer than the installed one or, without an installed one, than `next`.
    pub newest: Option<AvailableBundle>,
    /// The reason why `newest` is not chosen.
    pub held: Option<HeldBack>,
}

/// The reason why a bundle is not chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HeldBack {
    /// One of [`held_back`]'s constants.
    pub by: &'static str,
    pub message: String,
}

impl HeldBack {
    /// A catalog is gone or does not answer.
    pub(crate) fn by_catalog(message: String) -> Self {
        Self {
            by: held_back::CATALOG,
            message,
        }
    }
}

impl From<&Refusal> for HeldBack {
    fn from(refusal: &Refusal) -> Self {
        let by = match refusal.reason() {
            Reason::Selector(_) | Reason::Catalog { .. } => held_back::CATALOG,
            Reason::NoBundle(none) if !none.contenders.is_empty() => held_back::CATALOG,
            Reason::Range { .. } => held_back::RANGE,
            Reason::Blocked { .. } => held_back::REQUIREMENT,
            Reason::NoBundle(_) | Reason::Installed(_) | Reason::Version { .. } => held_back::OTHER,
        };
        Self {
            by,
            message: steady(&refusal.reason().to_string()),
        }
    }
}

/// Bundles that are newer than the installed one, given the chosen one. `identified` converts a bundle for the status.
/// The error is the reason why they are unknown: a catalog does not answer, or the spec is invalid.
pub(crate) fn updates(
    catalogs: &[Catalog<'_>],
    request: &Request<'_>,
    installed: Option<&BundleMetadata>,
    facts: &ClusterState<'_>,
    chosen: Result<&Resolution<'_>, &Refusal>,
    identified: impl Fn(&Candidate) -> BundleMetadata,
) -> Result<Updates, HeldBack> {
    let current = installed.map(as_installed);
    let newest = newest(catalogs, request, current.as_ref(), facts, chosen.ok());
    let newest = newest.map_err(|refusal| HeldBack::from(&refusal))?;
    let held = newest.as_ref().and_then(|newest| match newest.obstacles.first() {
        Some(first) => Some(HeldBack {
            by: first.held_back_by(),
            message: newest.to_string(),
        }),
        None => chosen.err().map(HeldBack::from),
    });
    let next = chosen.ok().map(|next| (identified(next.bundle), next.catalog));
    let next = next.filter(|(bundle, _)| installed != Some(bundle));
    Ok(Updates {
        next: next.map(|(bundle, catalog)| AvailableBundle::new(&bundle, catalog)),
        newest: newest.map(|newest| AvailableBundle::new(&identified(newest.bundle), newest.catalog)),
        held,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, HashSet};

    use olm_fbc::Blob;
    use olm_resolve::{
        Availability, ClusterPlatform, Dependents, Package, PackageAnswer, ReleaseField, resolve_in,
    };
    use serde_json::json;

    use super::*;

    fn metadata(version: &str) -> BundleMetadata {
        BundleMetadata {
            name: format!("greeter.v{version}"),
            version: version.to_owned(),
            release: None,
        }
    }

    /// The versions 1.0.0 and 1.1.0 of a package, with an edge.
    fn package() -> Package {
        let entries =
            json!([{ "name": "greeter.v1.0.0" }, { "name": "greeter.v1.1.0", "replaces": "greeter.v1.0.0" }]);
        let channel =
            json!({ "schema": "olm.channel", "package": "greeter", "name": "stable", "entries": entries });
        let bundles = ["1.0.0", "1.1.0"].map(|version| {
            let property =
                json!({ "type": "olm.package", "value": { "packageName": "greeter", "version": version } });
            json!({
                "schema": "olm.bundle", "package": "greeter", "name": format!("greeter.v{version}"), "image": "i",
                "properties": [property],
            })
        });
        let blobs = bundles.into_iter().chain([channel]).map(|blob| {
            let schema = blob["schema"].as_str().unwrap_or_default();
            Blob::from_json(schema, &blob.to_string()).unwrap()
        });
        Package::new(blobs, ReleaseField::Counts).unwrap()
    }

    /// `next/newest by`, or the name of the error.
    fn found(catalogs: &[&str], silent: &[&str], version: Option<&str>, installed: &str) -> String {
        let (package, labels) = (package(), BTreeMap::new());
        let of = |name, answer| Catalog {
            name,
            priority: 0,
            labels: &labels,
            availability: Availability::Available,
            answer,
        };
        let catalogs = catalogs
            .iter()
            .map(|name| of(name, PackageAnswer::Package(&package)));
        let silent = silent.iter().map(|name| of(name, PackageAnswer::Failed("gone")));
        let catalogs: Vec<Catalog<'_>> = catalogs.chain(silent).collect();
        let request = Request {
            package: "greeter",
            version,
            ..Request::default()
        };
        let served = HashSet::new();
        let facts = ClusterState {
            others: &[],
            own: None,
            served: &served,
            platform: ClusterPlatform::default(),
            dependents: Dependents::Protected,
        };
        let installed = (!installed.is_empty()).then(|| metadata(installed));
        let current = installed.as_ref().map(as_installed);
        let chosen = resolve_in(&catalogs, &request, current.as_ref(), &facts);
        let identified = |bundle: &Candidate| metadata(bundle.name.trim_start_matches("greeter.v"));
        let found = updates(
            &catalogs,
            &request,
            installed.as_ref(),
            &facts,
            chosen.as_ref(),
            identified,
        );
        let version =
            |bundle: Option<AvailableBundle>| bundle.map_or("-".to_owned(), |bundle| bundle.version);
        match found {
            Ok(Updates { next, newest, held }) => {
                let by = held.map_or("-", |held| held.by);
                format!("{}/{} {by}", version(next), version(newest))
            }
            Err(held) => format!("{}: {}", held.by, held.message),
        }
    }

    #[test]
    fn the_chosen_and_the_newest_bundle_follow_from_the_catalogs() {
        assert_eq!(found(&["one"], &[], None, "1.0.0"), "1.1.0/1.1.0 -");
        assert_eq!(found(&["one"], &[], None, "1.1.0"), "-/- -");
        assert_eq!(found(&["one"], &[], Some("1.0.0"), "1.0.0"), "-/1.1.0 Pin");
        assert_eq!(found(&["one"], &[], Some("3.0.0"), "1.0.0"), "-/1.1.0 Pin");
        assert_eq!(found(&["one"], &[], Some("3.0.0"), "1.1.0"), "-/- -");
        assert_eq!(found(&["one"], &[], None, ""), "1.1.0/- -");
        assert_eq!(found(&["one"], &[], Some("1.0.0"), ""), "1.0.0/1.1.0 Pin");
        assert_eq!(found(&[], &[], None, "1.0.0"), "-/- -");
        // Catalogs of equal priority tie.
        assert_eq!(found(&["one", "two"], &[], None, "1.0.0"), "-/1.1.0 Catalog");
    }

    #[test]
    fn an_unknown_update_has_a_reason() {
        let silent = found(&["one"], &["two"], None, "1.0.0");
        assert!(
            silent.starts_with("Catalog: ") && silent.contains("gone"),
            "{silent}"
        );
        let unreadable = found(&["one"], &[], Some("x.y"), "1.0.0");
        assert!(unreadable.starts_with("Range: "), "{unreadable}");
    }
}
