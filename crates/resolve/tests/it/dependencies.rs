//! Requirements of bundles, and their dependents.

mod dependents;
mod platforms;
mod providers;
mod requirements;

use std::collections::{BTreeMap, HashSet};

use olm_constraint::cel::Budget;
use olm_constraint::{Gvk, Requirement};
use olm_fbc::Blob;
use olm_resolve::cluster::platform::ClusterPlatform;
use olm_resolve::cluster::providers::{ProviderCandidate, providers};
use olm_resolve::cluster::updates::updates;
use olm_resolve::{
    Availability, Catalog, ClusterState, Dependents, Installed, InstalledExtension, Package, PackageAnswer,
    Reason, Refusal, ReleaseField, Request, Resolution, broken_by_removal, resolve_in,
};
use serde_json::{Value, json};

/// A package being written.
pub(crate) struct TestPackage {
    name: &'static str,
    blobs: Vec<Value>,
}

pub(crate) fn book(name: &'static str) -> TestPackage {
    TestPackage {
        name,
        blobs: Vec::new(),
    }
}

impl TestPackage {
    /// The bundle `NAME.vVERSION` with these properties beside `olm.package`.
    pub(crate) fn bundle(mut self, version: &str, more: &[Value]) -> Self {
        let (package, name) = (self.name, format!("{}.v{version}", self.name));
        let mut properties =
            vec![json!({"type": "olm.package", "value": {"packageName": package, "version": version}})];
        properties.extend_from_slice(more);
        self.blobs
            .push(json!({"schema": "olm.bundle", "name": name, "package": package,
            "image": format!("registry.example/{name}"), "properties": properties}));
        self
    }

    /// A channel of these versions, newest first, each replacing the next.
    pub(crate) fn channel(mut self, name: &str, versions: &[&str]) -> Self {
        let package = self.name;
        let bundle = |version: &&str| format!("{package}.v{version}");
        let entries: Vec<Value> = versions
            .iter()
            .enumerate()
            .map(|(index, version)| json!({"name": bundle(version), "replaces": versions.get(index + 1).map(bundle)}))
            .collect();
        self.blobs
            .push(json!({"schema": "olm.channel", "name": name, "package": package, "entries": entries}));
        self
    }

    pub(crate) fn package(&self) -> Package {
        let blobs = self
            .blobs
            .iter()
            .map(|blob| Blob::from_json(blob["schema"].as_str().unwrap(), &blob.to_string()).unwrap());
        Package::new(blobs, ReleaseField::Counts).unwrap()
    }
}

pub(crate) fn gvk(kind: &str, version: &str) -> Gvk {
    Gvk {
        group: "example.com".to_owned(),
        version: version.to_owned(),
        kind: kind.to_owned(),
    }
}

fn api(kind: &str, version: &str) -> Value {
    json!({"group": "example.com", "version": version, "kind": kind})
}

pub(crate) fn provides(kind: &str, version: &str) -> Value {
    json!({"type": "olm.gvk", "value": api(kind, version)})
}

pub(crate) fn requires(kind: &str, version: &str) -> Value {
    json!({"type": "olm.gvk.required", "value": api(kind, version)})
}

pub(crate) fn requires_package(name: &str, range: &str) -> Value {
    json!({"type": "olm.package.required", "value": {"packageName": name, "versionRange": range}})
}

pub(crate) fn constraint(value: &Value) -> Value {
    json!({"type": "olm.constraint", "value": value})
}

/// ClusterExtension `my-NAME` with a bundle of a package installed.
pub(crate) fn installed(package: &Package, name: &str, version: &str) -> InstalledExtension {
    let bundle = format!("{name}.v{version}");
    let candidate = package
        .candidates()
        .iter()
        .find(|candidate| candidate.name == bundle)
        .unwrap();
    let mut subject = candidate.subject().clone();
    subject.name = format!("my-{name}");
    let requirements: Vec<Requirement> = candidate
        .requirements
        .iter()
        .map(|declared| declared.read().unwrap().clone())
        .collect();
    InstalledExtension {
        subject,
        requirements,
    }
}

/// A cluster being described.
#[derive(Default)]
pub(crate) struct Cluster {
    others: Vec<InstalledExtension>,
    own: Option<InstalledExtension>,
    pub(crate) served: HashSet<Gvk>,
    kubernetes: Option<semver::Version>,
    architectures: Vec<String>,
    dependents: Dependents,
}

impl Cluster {
    pub(crate) fn facts(&self) -> ClusterState<'_> {
        ClusterState {
            others: &self.others,
            own: self.own.as_ref(),
            served: &self.served,
            platform: ClusterPlatform {
                kubernetes: self.kubernetes.as_ref(),
                architectures: &self.architectures,
            },
            dependents: self.dependents,
        }
    }

    pub(crate) fn with(mut self, other: InstalledExtension) -> Self {
        self.others.push(other);
        self
    }

    pub(crate) fn owning(mut self, own: InstalledExtension) -> Self {
        self.own = Some(own);
        self
    }

    fn outcome(&self, package: &Package, name: &str, at: Option<&str>) -> Result<String, Refusal> {
        self.resolution(package, name, at, |found| {
            found.map(|found| found.bundle.name.clone())
        })
    }

    fn resolution<T>(
        &self,
        package: &Package,
        name: &str,
        at: Option<&str>,
        see: impl FnOnce(Result<Resolution<'_>, Refusal>) -> T,
    ) -> T {
        let labels = BTreeMap::new();
        let request = Request {
            package: name,
            ..Request::default()
        };
        let bundle = at.map(|version| format!("{name}.v{version}"));
        let installed = at.zip(bundle.as_deref()).map(|(version, name)| Installed {
            name,
            version,
            release: None,
        });
        see(resolve_in(
            &[catalog(package, &labels)],
            &request,
            installed.as_ref(),
            &self.facts(),
        ))
    }

    /// Checks that the bundle is refused with these parts in the text.
    #[track_caller]
    fn refused(&self, package: &Package, name: &str, parts: &[&str]) {
        let refusal = self.outcome(package, name, None).unwrap_err();
        assert!(matches!(refusal.reason(), Reason::Blocked { .. }), "{refusal}");
        for part in parts {
            assert!(refusal.to_string().contains(part), "{part:?} in {refusal}");
        }
    }

    #[track_caller]
    pub(crate) fn gives(&self, package: &Package, name: &str, at: Option<&str>, expected: &str) {
        let found = self.outcome(package, name, at);
        assert_eq!(found.as_deref().map_err(ToString::to_string), Ok(expected));
    }
}

pub(crate) fn catalog<'a>(package: &'a Package, labels: &'a BTreeMap<String, String>) -> Catalog<'a> {
    Catalog {
        name: "a",
        priority: 0,
        labels,
        availability: Availability::Available,
        answer: PackageAnswer::Package(package),
    }
}
