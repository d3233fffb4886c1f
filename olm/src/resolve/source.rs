//! The content of catalogs about packages, in the form for resolution.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::ControlFlow;

use anyhow::Context as _;
use olm_fbc::{Blob, SCHEMA_PACKAGE};
use olm_resolve::{Availability, Catalog, Package, PackageAnswer, PackageBuilder, ReleaseField};

use crate::input::CatalogFiles;
use crate::source::{faults_shown, unreadable};

/// The part of a catalog about the package.
pub(crate) struct Source {
    pub(crate) name: String,
    pub(crate) priority: i32,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) package: Option<Package>,
    /// The names of all packages.
    pub(crate) names: BTreeSet<String>,
}

impl Source {
    /// A catalog without packages.
    pub(crate) fn empty(name: String, priority: i32) -> Self {
        Self {
            labels: BTreeMap::from([(olm_api::names::label::METADATA_NAME.to_owned(), name.clone())]),
            name,
            priority,
            package: None,
            names: BTreeSet::new(),
        }
    }

    /// The content of a catalog about a package; `origin` names the place of the files.
    pub(crate) fn read(
        files: &CatalogFiles,
        name: String,
        priority: i32,
        origin: &str,
        of: &str,
    ) -> anyhow::Result<Self> {
        let read = package(files, origin, of);
        let (package, names) = read.with_context(|| format!("cannot read the catalog {origin:?}"))?;
        Ok(Self {
            package,
            names,
            ..Self::empty(name, priority)
        })
    }

    /// The catalog in the form for resolution.
    pub(crate) fn view(&self) -> Catalog<'_> {
        Catalog {
            name: &self.name,
            priority: self.priority,
            labels: &self.labels,
            availability: Availability::Available,
            answer: self
                .package
                .as_ref()
                .map_or(PackageAnswer::Absent, PackageAnswer::Package),
        }
    }
}

/// The content of the catalog about the package, as operator-controller would request it, and the names of all
/// packages.
pub(super) fn package(
    files: &CatalogFiles,
    source: &str,
    package: &str,
) -> anyhow::Result<(Option<Package>, BTreeSet<String>)> {
    let (mut packages, names) = packages(files, source, |name| name == package)?;
    Ok((packages.remove(package), names))
}

/// The same of all packages that are wanted.
pub(super) fn packages(
    files: &CatalogFiles,
    source: &str,
    is_wanted: impl Fn(&str) -> bool,
) -> anyhow::Result<(HashMap<String, Package>, BTreeSet<String>)> {
    let (mut builders, mut names) = (HashMap::<String, PackageBuilder>::new(), BTreeSet::new());
    files.read(source, |file, meta| {
        let meta = match meta {
            Ok(meta) => meta,
            Err(error) => return ControlFlow::Break(unreadable(source, file, &error)),
        };
        if is_wanted(&meta.package) && !meta.schema.is_empty() {
            let blob = Blob::from_json(&meta.schema, meta.json());
            let added = blob.map_err(anyhow::Error::new).and_then(|blob| {
                let builder = builders.entry(meta.package.clone());
                let builder = builder.or_insert_with(|| PackageBuilder::new(ReleaseField::Counts));
                Ok(builder.add(blob)?)
            });
            if let Err(error) = added {
                let error = error.context(format!("{file}:{}", meta.position));
                return ControlFlow::Break(error.context(faults_shown(source)));
            }
        }
        if meta.schema == SCHEMA_PACKAGE {
            names.insert(meta.name);
        }
        ControlFlow::Continue(())
    })?;
    let finished = builders.into_iter();
    let packages = finished.filter_map(|(name, builder)| Some((name, builder.finish()?)));
    Ok((packages.collect(), names))
}
