//! Catalogs for tests, built with few calls.

use std::collections::BTreeMap;

use olm_fbc::Blob;
use olm_resolve::{
    Availability, Catalog, Installed, Package, PackageAnswer, Refusal, ReleaseField, Request, Resolution,
    resolve,
};
use serde_json::{Value, json};

/// A catalog being written.
pub(crate) struct TestCatalog {
    name: &'static str,
    priority: i32,
    labels: BTreeMap<String, String>,
    availability: Availability,
    blobs: Vec<Value>,
    answer: ShelfAnswer,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ShelfAnswer {
    Package,
    Absent,
    Fault(&'static str),
}

/// An empty catalog of priority 0.
pub(crate) fn shelf(name: &'static str) -> TestCatalog {
    let label = "olm.operatorframework.io/metadata.name".to_owned();
    TestCatalog {
        name,
        priority: 0,
        labels: BTreeMap::from([(label, name.to_owned())]),
        availability: Availability::Available,
        blobs: Vec::new(),
        answer: ShelfAnswer::Package,
    }
}

/// A channel entry without edges.
pub(crate) fn entry(name: &str) -> Value {
    json!({ "name": name })
}

impl TestCatalog {
    pub(crate) fn priority(mut self, priority: i32) -> Self {
        self.priority = priority;
        self
    }

    pub(crate) fn label(mut self, key: &str, value: &str) -> Self {
        self.labels.insert(key.to_owned(), value.to_owned());
        self
    }

    pub(crate) fn switched_off(mut self) -> Self {
        self.availability = Availability::Unavailable;
        self
    }

    pub(crate) fn silent(mut self, fault: &'static str) -> Self {
        self.answer = ShelfAnswer::Fault(fault);
        self
    }

    pub(crate) fn without_package(mut self) -> Self {
        self.answer = ShelfAnswer::Absent;
        self
    }

    /// Bundles `foo.vVERSION`, one for each version.
    pub(crate) fn bundles(mut self, versions: &[&str]) -> Self {
        for version in versions {
            let value = json!({"packageName": "foo", "version": version});
            self = self.bundle(
                &format!("foo.v{version}"),
                &json!([{"type": "olm.package", "value": value}]),
            );
        }
        self
    }

    pub(crate) fn bundle(mut self, name: &str, properties: &Value) -> Self {
        let image = format!("registry.example/{name}");
        self.blobs.push(json!({
            "schema": "olm.bundle", "name": name, "package": "foo", "image": image, "properties": properties,
        }));
        self
    }

    pub(crate) fn channel(mut self, name: &str, entries: &[Value]) -> Self {
        self.blobs
            .push(json!({"schema": "olm.channel", "name": name, "package": "foo", "entries": entries}));
        self
    }

    /// A deprecation of each reference, whose message is the reference's name.
    pub(crate) fn deprecated(mut self, references: &[(&str, &str)]) -> Self {
        let entries = references
            .iter()
            .map(|(schema, name)| json!({"reference": {"schema": schema, "name": name}, "message": format!("leave {name}")}))
            .collect::<Vec<_>>();
        self.blobs
            .push(json!({"schema": "olm.deprecations", "package": "foo", "entries": entries}));
        self
    }

    pub(crate) fn package(&self, releases: ReleaseField) -> Package {
        let blobs = self.blobs.iter().map(|blob| {
            let schema = blob["schema"].as_str().expect("schema");
            Blob::from_json(schema, &blob.to_string()).expect("blob")
        });
        Package::new(blobs, releases).unwrap()
    }
}

/// Resolves, and shows the outcome: the chosen bundle and its catalog, or the refusal.
pub(crate) fn outcome(
    shelves: &[TestCatalog],
    request: Request<'_>,
    installed: Option<(&str, &str)>,
) -> Result<String, String> {
    with(shelves, request, installed, |resolution| {
        resolution
            .map(|resolution| format!("{} from {}", resolution.bundle.name, resolution.catalog))
            .map_err(|refusal| refusal.to_string())
    })
}

/// Resolves and passes the outcome to a function.
pub(crate) fn with<T>(
    shelves: &[TestCatalog],
    request: Request<'_>,
    installed: Option<(&str, &str)>,
    see: impl FnOnce(Result<Resolution<'_>, Refusal>) -> T,
) -> T {
    let packages: Vec<_> = shelves
        .iter()
        .map(|shelf| shelf.package(ReleaseField::Counts))
        .collect();
    let catalogs = catalogs(shelves, &packages);
    let request = Request {
        package: "foo",
        ..request
    };
    let installed = installed.map(|(name, version)| Installed {
        name,
        version,
        release: None,
    });
    see(resolve(&catalogs, &request, installed.as_ref()))
}

/// The catalogs in the form for the resolver.
pub(crate) fn catalogs<'a>(shelves: &'a [TestCatalog], packages: &'a [Package]) -> Vec<Catalog<'a>> {
    shelves
        .iter()
        .zip(packages)
        .map(|(shelf, package)| Catalog {
            name: shelf.name,
            priority: shelf.priority,
            labels: &shelf.labels,
            availability: shelf.availability,
            answer: match shelf.answer {
                ShelfAnswer::Package => PackageAnswer::Package(package),
                ShelfAnswer::Absent => PackageAnswer::Absent,
                ShelfAnswer::Fault(fault) => PackageAnswer::Failed(fault),
            },
        })
        .collect()
}
