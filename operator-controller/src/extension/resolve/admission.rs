//! The catalogs from which an extension may get its bundle.
//!
//! The publisher of a catalog decides which objects an account installs. So an installed extension stays with its
//! catalog, unless its selector or `--default-catalogs` admits others. Other catalogs neither change nor delay it.

use std::collections::BTreeSet;

use olm_api::cluster_extension::CatalogFilter;
use olm_api::names::annotation;
use olm_api::{ClusterCatalog, ClusterObjectSet};
use olm_resolve::{PackageAnswer, Request, Selector};

use super::catalogs::{AskedCatalog, ask};
use crate::extension::context::Context;
use crate::extension::revisions::BundleIdentity;

/// The catalogs from which an extension may get its bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Admission {
    /// The catalogs that its own selector selects.
    Selected(Selector),
    /// All: nothing is installed, and there is no default.
    All,
    /// Only these.
    Only {
        /// The catalog of the installed bundle.
        home: Option<String>,
        /// All admitted catalogs.
        names: BTreeSet<String>,
    },
    /// The catalog of the installed bundle, which is not recorded: [`Admission::settled`] finds it.
    Unrecorded {
        /// Other admitted catalogs.
        defaults: BTreeSet<String>,
    },
}

impl Admission {
    /// The admission of an extension. A selector that selects everything counts as absent.
    pub(crate) fn of(
        filter: &CatalogFilter,
        installed: Option<&ClusterObjectSet>,
        defaults: &[String],
    ) -> Self {
        let given = filter.selector.as_ref().map(Selector::from);
        if let Some(given) = given.filter(|given| *given != Selector::default()) {
            return Self::Selected(given);
        }
        let mut names: BTreeSet<String> = defaults.iter().cloned().collect();
        match installed.map(|set| set.annotation(annotation::CATALOG)) {
            None if names.is_empty() => Self::All,
            None => Self::Only { home: None, names },
            Some(Some(home)) => {
                names.insert(home.to_owned());
                let home = Some(home.to_owned());
                Self::Only { home, names }
            }
            Some(None) => Self::Unrecorded { defaults: names },
        }
    }

    /// A selector of the admitted catalogs.
    pub(crate) fn selector(&self) -> Option<Selector> {
        match self {
            Self::Selected(selector) => Some(selector.clone()),
            Self::Only { names, .. } => Some(Selector::of_catalogs(names.iter().map(String::as_str))),
            Self::All | Self::Unrecorded { .. } => None,
        }
    }

    /// Finds the catalog that an earlier version of OLM did not record: the one with the installed bundle and its
    /// image, otherwise with the bundle, otherwise with its package; of several the oldest, because a catalog that is
    /// created for a takeover is newer. While an older one does not answer, it stays unknown.
    pub(crate) fn settled(self, installed: &BundleIdentity, asked: &[AskedCatalog]) -> Self {
        let Self::Unrecorded { mut defaults } = self else {
            return self;
        };
        let age = |asked: &AskedCatalog| {
            let created = asked.catalog.metadata.creation_timestamp.as_ref();
            (created.map(|time| time.0), asked.catalog.name().to_owned())
        };
        let found = asked
            .iter()
            .filter_map(|asked| Some((closeness(asked, installed)?, age(asked))))
            .min();
        let is_open = |(closeness, found): &(CatalogMatch, _)| {
            let silent = asked
                .iter()
                .filter(|asked| matches!(asked.answer, PackageAnswer::Failed(_)));
            silent
                .map(age)
                .any(|age| *closeness != CatalogMatch::Image || age < *found)
        };
        match found.filter(|found| !is_open(found)) {
            Some((_, (_, home))) => {
                defaults.insert(home.clone());
                Self::Only {
                    home: Some(home),
                    names: defaults,
                }
            }
            None => Self::Unrecorded { defaults },
        }
    }

    /// The catalog of the installed bundle, if only that one is admitted.
    fn home(&self) -> Option<&str> {
        match self {
            Self::Only { home, .. } => home.as_deref(),
            Self::Selected(_) | Self::All | Self::Unrecorded { .. } => None,
        }
    }

    /// The catalog to record for a revision that stays as it is.
    pub(crate) fn recorded(&self, newest: Option<&ClusterObjectSet>) -> String {
        let recorded = newest.and_then(|set| set.annotation(annotation::CATALOG));
        recorded.or_else(|| self.home()).unwrap_or_default().to_owned()
    }

    /// The reason why there are no upgrades, if the only admitted catalog does not exist.
    pub(crate) fn gone<'c>(&self, mut catalogs: impl Iterator<Item = &'c ClusterCatalog>) -> Option<String> {
        let home = self.home()?;
        let is_only = matches!(self, Self::Only { names, .. } if names.len() == 1);
        (is_only && !catalogs.any(|catalog| catalog.name() == home)).then(|| {
            format!(
                "no upgrades: catalog {home:?}, which the extension was installed from, does not exist; to upgrade from \
                 another catalog, select it by spec.source.catalog.selector"
            )
        })
    }

    /// The reason why other catalogs are not admitted, with a hint.
    pub(crate) fn hint(&self) -> Option<String> {
        match self {
            Self::Only { home: Some(home), .. } => Some(format!(
                "upgrades come from catalog {home:?} only, which the extension was installed from; to upgrade from others, \
                 select them by spec.source.catalog.selector"
            )),
            Self::Only { home: None, names } => Some(format!(
                "without spec.source.catalog.selector, only the catalogs of --default-catalogs are searched: {}",
                names.iter().cloned().collect::<Vec<_>>().join(", ")
            )),
            Self::Selected(_) | Self::All | Self::Unrecorded { .. } => None,
        }
    }
}

/// The admitted catalogs with their answers. Others are not asked.
pub(crate) async fn admitted(
    context: &Context,
    filter: &CatalogFilter,
    installed: Option<&ClusterObjectSet>,
) -> (Admission, Vec<AskedCatalog>) {
    let admission = Admission::of(filter, installed, &context.default_catalogs);
    let selector = admission.selector();
    let asked = ask(context, &Request::of(filter, selector.as_ref())).await;
    match installed.map(BundleIdentity::of) {
        Some(bundle) => (admission.settled(&bundle, &asked), asked),
        None => (admission, asked),
    }
}

/// The match of a catalog with the installed bundle, the best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum CatalogMatch {
    Image,
    Bundle,
    Package,
}

fn closeness(asked: &AskedCatalog, installed: &BundleIdentity) -> Option<CatalogMatch> {
    let mut bundles = asked.package()?.candidates().iter();
    let listed = bundles.find(|bundle| bundle.name == installed.metadata.name);
    Some(match listed {
        Some(bundle) if bundle.image == installed.image => CatalogMatch::Image,
        Some(_) => CatalogMatch::Bundle,
        None => CatalogMatch::Package,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use jiff::Timestamp;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use olm_api::LabelSelector;
    use olm_api::cluster_catalog::ClusterCatalogSpec;
    use olm_api::names::label;
    use olm_fbc::Blob;
    use olm_resolve::{Package, ReleaseField};
    use serde_json::json;

    use super::*;
    use crate::extension::resolve::catalogs::CatalogAnswer;
    use crate::extension::revisions::tests::revision;

    fn installed(catalog: Option<&str>) -> ClusterObjectSet {
        let mut set = (*revision(1, &[])).clone();
        if let Some(catalog) = catalog {
            let annotations = set.metadata.annotations.get_or_insert_default();
            annotations.insert(annotation::CATALOG.to_owned(), catalog.to_owned());
        }
        set
    }

    fn only(home: Option<&str>, names: &[&str]) -> Admission {
        Admission::Only {
            home: home.map(str::to_owned),
            names: names.iter().map(|name| (*name).to_owned()).collect(),
        }
    }

    #[test]
    fn a_catalog_is_admitted_by_the_selector_the_default_or_the_installation() {
        let check = |selector: Option<LabelSelector>, catalog: Option<Option<&str>>, defaults: &[&str]| {
            let filter = CatalogFilter {
                selector,
                ..CatalogFilter::default()
            };
            let defaults: Vec<String> = defaults.iter().map(|name| (*name).to_owned()).collect();
            Admission::of(&filter, catalog.map(installed).as_ref(), &defaults)
        };
        let named = LabelSelector {
            match_labels: Some([("a".to_owned(), "b".to_owned())].into()),
            ..LabelSelector::default()
        };
        let empty = Some(LabelSelector::default());
        let chosen = check(Some(named), Some(Some("home")), &["default"]);
        assert!(matches!(chosen, Admission::Selected(_)), "{chosen:?}");
        assert_eq!(check(None, None, &[]), Admission::All);
        assert_eq!(check(empty.clone(), None, &[]), Admission::All);
        assert_eq!(check(None, None, &["default"]), only(None, &["default"]));
        assert_eq!(
            check(empty, Some(Some("home")), &[]),
            only(Some("home"), &["home"])
        );
        let both = only(Some("home"), &["default", "home"]);
        assert_eq!(check(None, Some(Some("home")), &["default"]), both);
        let selects = |name: &str| {
            let labels = [(label::METADATA_NAME.to_owned(), name.to_owned())].into();
            both.selector().is_some_and(|selector| selector.matches(&labels))
        };
        assert!(selects("home") && selects("default") && !selects("other"));
        let unrecorded = check(None, Some(None), &[]);
        assert!(
            matches!(unrecorded, Admission::Unrecorded { .. }),
            "{unrecorded:?}"
        );
    }

    /// A catalog that was made at a second, with a bundle of this name and image.
    fn with_bundle(name: &str, second: i64, bundle: &str, image: &str) -> AskedCatalog {
        let blobs = [
            json!({ "schema": "olm.package", "name": "pkg", "defaultChannel": "stable" }),
            json!({
                "schema": "olm.bundle", "package": "pkg", "name": bundle, "image": image,
                "properties": [{ "type": "olm.package", "value": { "packageName": "pkg", "version": "1.0.0" } }],
            }),
        ];
        let blobs = blobs.map(|blob| {
            let schema = blob["schema"].as_str().unwrap_or_default();
            Blob::from_json(schema, &blob.to_string()).unwrap()
        });
        let package = Package::new(blobs, ReleaseField::Counts).unwrap();
        answered(name, second, PackageAnswer::Package(Arc::new(package)))
    }

    fn answered(name: &str, second: i64, answer: CatalogAnswer) -> AskedCatalog {
        let mut catalog = ClusterCatalog::new(name, ClusterCatalogSpec::default());
        catalog.metadata.creation_timestamp = Some(Time(Timestamp::from_second(second).unwrap()));
        AskedCatalog::of(catalog, answer)
    }

    #[test]
    fn the_catalog_of_an_earlier_version_is_the_oldest_that_fits_best() {
        let set = revision(1, &[]);
        let bundle = BundleIdentity::of(&set);
        let (name, image) = (bundle.metadata.name.as_str(), bundle.image.as_str());
        let check = |asked: &[AskedCatalog], expected: Option<&str>| {
            let unrecorded = Admission::Unrecorded {
                defaults: BTreeSet::new(),
            };
            let settled = unrecorded.settled(&bundle, asked);
            assert_eq!(settled.home(), expected, "{settled:?}");
        };
        let same = |catalog: &str, second| with_bundle(catalog, second, name, image);
        let fake = |catalog: &str, second| with_bundle(catalog, second, name, "evil.example/image");
        let other = |catalog: &str, second| with_bundle(catalog, second, "pkg.v9", "evil.example/image");
        let failed =
            |catalog: &str, second| answered(catalog, second, PackageAnswer::Failed("gone".to_owned()));
        check(&[same("a-newer", 9), same("older", 1)], Some("older"));
        check(&[fake("older", 1), same("newer", 9)], Some("newer"));
        check(&[other("older", 1), fake("newer", 9)], Some("newer"));
        check(&[other("newer", 9), other("older", 1)], Some("older"));
        check(
            &[answered("older", 1, PackageAnswer::Absent), other("newer", 9)],
            Some("newer"),
        );
        // A catalog that does not answer may be the right one, if it is older or would match better.
        check(&[failed("newer", 9), same("older", 1)], Some("older"));
        check(&[failed("older", 1), same("newer", 9)], None);
        check(&[failed("newer", 9), other("older", 1)], None);
        check(&[], None);
    }

    #[test]
    fn only_the_missing_catalog_of_the_installation_is_reported() {
        let broken = ClusterCatalog::new("broken", ClusterCatalogSpec::default());
        let home = ClusterCatalog::new("home", ClusterCatalogSpec::default());
        let gone = |names: &[&str], catalogs: &[&ClusterCatalog]| {
            only(Some("home"), names).gone(catalogs.iter().copied())
        };
        assert_eq!(gone(&["home"], &[&home, &broken]), None);
        assert_eq!(gone(&["broken", "home"], &[&broken]), None);
        let message = gone(&["home"], &[&broken]).unwrap();
        assert!(message.starts_with("no upgrades: catalog \"home\""), "{message}");
        assert_eq!(Admission::All.gone([&broken].into_iter()), None);
    }
}
