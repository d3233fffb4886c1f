//! What bundles require of the cluster, and who depends on them.

use std::collections::{BTreeMap, HashSet};

use olm_constraint::cel::Budget;
use olm_constraint::{Gvk, Requirement};
use olm_fbc::Blob;
use olm_resolve::cluster::platform::ClusterPlatform;
use olm_resolve::cluster::providers::{Offer, providers};
use olm_resolve::cluster::updates::updates;
use olm_resolve::{
    Availability, Catalog, ClusterState, Content, Dependents, Installed, Neighbour, Package, Reason, Refusal,
    ReleaseField, Request, Resolution, broken_by_removal, resolve_in,
};
use serde_json::{Value, json};

/// A package being written.
pub(crate) struct Book {
    name: &'static str,
    blobs: Vec<Value>,
}

pub(crate) fn book(name: &'static str) -> Book {
    Book {
        name,
        blobs: Vec::new(),
    }
}

impl Book {
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
pub(crate) fn installed(package: &Package, name: &str, version: &str) -> Neighbour {
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
    Neighbour {
        subject,
        requirements,
    }
}

/// A cluster being described.
#[derive(Default)]
pub(crate) struct Cluster {
    neighbours: Vec<Neighbour>,
    own: Option<Neighbour>,
    pub(crate) served: HashSet<Gvk>,
    kubernetes: Option<semver::Version>,
    architectures: Vec<String>,
    dependents: Dependents,
}

impl Cluster {
    pub(crate) fn facts(&self) -> ClusterState<'_> {
        ClusterState {
            neighbours: &self.neighbours,
            own: self.own.as_ref(),
            served: &self.served,
            platform: ClusterPlatform {
                kubernetes: self.kubernetes.as_ref(),
                architectures: &self.architectures,
            },
            dependents: self.dependents,
        }
    }

    pub(crate) fn with(mut self, neighbour: Neighbour) -> Self {
        self.neighbours.push(neighbour);
        self
    }

    pub(crate) fn owning(mut self, own: Neighbour) -> Self {
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

    /// What is refused, in words.
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
        content: Content::Package(package),
    }
}

#[test]
fn what_a_bundle_requires_is_looked_for_in_the_cluster() {
    let red = book("red")
        .bundle("1.0.0", &[requires_package("blue", ">=1.0.0")])
        .package();
    let blue = book("blue").bundle("0.9.0", &[]).bundle("1.0.0", &[]).package();
    Cluster::default().refused(
        &red,
        "red",
        &[
            "bundle \"red.v1.0.0\" cannot be installed: a requirement does not hold: package blue (>=1.0.0) is not \
             installed\n",
            "by itself as soon as",
        ],
    );
    let old = Cluster::default().with(installed(&blue, "blue", "0.9.0"));
    old.refused(&red, "red", &["is not installed, but 0.9.0 by my-blue"]);
    Cluster::default()
        .with(installed(&blue, "blue", "1.0.0"))
        .gives(&red, "red", None, "red.v1.0.0");
}

#[test]
fn an_api_may_come_from_another_extension_from_the_cluster_or_from_the_bundle_itself() {
    let red = book("red").bundle("1.0.0", &[requires("Green", "v1")]).package();
    Cluster::default().refused(&red, "red", &["API example.com/v1 Green is not provided"]);
    let green = book("green")
        .bundle("1.0.0", &[provides("Green", "v1")])
        .package();
    Cluster::default()
        .with(installed(&green, "green", "1.0.0"))
        .gives(&red, "red", None, "red.v1.0.0");
    let serving = Cluster {
        served: HashSet::from([gvk("Green", "v1")]),
        ..Cluster::default()
    };
    serving.gives(&red, "red", None, "red.v1.0.0");
    let own = book("red")
        .bundle("1.0.0", &[requires("Green", "v1"), provides("Green", "v1")])
        .package();
    Cluster::default().gives(&own, "red", None, "red.v1.0.0");
}

#[test]
fn t_5b_01_two_requirements_may_be_met_by_two_bundles() {
    let dependent = book("app")
        .bundle(
            "1.0.0",
            &[
                requires_package("etcd", ">3.1.0"),
                requires("EtcdCluster", "v1beta2"),
            ],
        )
        .package();
    let a = book("etcd").bundle("3.2.0", &[]).package();
    let b = book("other")
        .bundle("1.0.0", &[provides("EtcdCluster", "v1beta2")])
        .package();
    Cluster::default()
        .with(installed(&a, "etcd", "3.2.0"))
        .with(installed(&b, "other", "1.0.0"))
        .gives(&dependent, "app", None, "app.v1.0.0");
    Cluster::default().with(installed(&a, "etcd", "3.2.0")).refused(
        &dependent,
        "app",
        &["EtcdCluster is not provided"],
    );
}

#[test]
fn the_newest_bundle_whose_requirements_hold_is_chosen() {
    let red = book("red")
        .bundle("1.0.0", &[])
        .bundle("2.0.0", &[requires_package("blue", ">=1.0.0")])
        .bundle("3.0.0", &[requires_package("blue", ">=2.0.0")])
        .package();
    let blue = book("blue").bundle("1.0.0", &[]).package();
    let cluster = Cluster::default().with(installed(&blue, "blue", "1.0.0"));
    cluster.gives(&red, "red", None, "red.v2.0.0");
    Cluster::default().gives(&red, "red", None, "red.v1.0.0");
    // The resolution lists those passed over, with the reason.
    cluster.resolution(&red, "red", None, |found| {
        let blocked = found.unwrap().blocked;
        assert_eq!(blocked.len(), 1);
        assert_eq!(blocked[0].bundle.name, "red.v3.0.0");
        assert!(blocked[0].blockers[0].to_string().contains("blue (>=2.0.0)"));
    });
}

#[test]
fn a_bundle_of_another_catalog_that_is_passed_over_is_named() {
    let needy = || {
        book("red")
            .bundle("2.0.0", &[requires_package("blue", ">=1.0.0")])
            .package()
    };
    let plain = |version: &str| book("red").bundle(version, &[]).package();
    let check = |newer: (&Package, i32), other: (&Package, i32), chosen: &str, held: Option<&str>| {
        let labels = BTreeMap::new();
        let catalog = |name: &'static str, (package, priority)| Catalog {
            name,
            priority,
            labels: &labels,
            availability: Availability::Available,
            content: Content::Package(package),
        };
        let request = Request {
            package: "red",
            ..Request::default()
        };
        let served = HashSet::new();
        let facts = ClusterState {
            neighbours: &[],
            own: None,
            served: &served,
            platform: ClusterPlatform::default(),
            dependents: Dependents::Protected,
        };
        let (newer, other) = (catalog("newer", newer), catalog("other", other));
        for catalogs in [[newer, other], [other, newer]] {
            let found = resolve_in(&catalogs, &request, None, &facts).unwrap();
            assert_eq!(found.bundle.name, chosen);
            let text = found.held();
            assert_eq!(text.is_some(), held.is_some(), "{text:?}");
            assert!(text.unwrap_or_default().starts_with(held.unwrap_or_default()));
        }
    };
    let held = Some("red.v2.0.0 of catalog newer is held back: a requirement does not hold: ");
    let (needy, older, newest) = (needy(), plain("1.0.0"), plain("3.0.0"));
    check((&needy, 0), (&older, 0), "red.v1.0.0", held);
    check((&needy, 1), (&older, 0), "red.v1.0.0", held);
    // It would come first, whatever its version.
    check((&needy, 1), (&newest, 0), "red.v3.0.0", held);
    // It would not be chosen anyway.
    check((&needy, 0), (&newest, 0), "red.v3.0.0", None);
    check((&needy, -1), (&older, 0), "red.v1.0.0", None);
}

#[test]
fn what_is_installed_is_not_left_for_an_older_version_when_a_requirement_is_gone() {
    let red = book("red")
        .bundle("1.0.0", &[])
        .bundle("2.0.0", &[requires_package("blue", ">=1.0.0")])
        .channel("stable", &["2.0.0", "1.0.0"])
        .package();
    Cluster::default().gives(&red, "red", Some("2.0.0"), "red.v2.0.0");
}

#[test]
fn what_is_not_sound_is_refused_by_name() {
    for (value, part) in [
        (
            json!({"cel": {"rule": "1"}}),
            "cel expressions must have type Bool",
        ),
        (json!({"none": {}}), "`none` is not a field of a constraint"),
        (Value::Null, "The CEL field is missing"),
    ] {
        let red = book("red").bundle("1.0.0", &[constraint(&value)]).package();
        Cluster::default().refused(&red, "red", &["its requirement olm.constraint is invalid", part]);
    }
}

#[test]
fn the_refusal_has_the_authors_message() {
    let message = "require to have \"certified\"";
    let rule =
        json!({"failureMessage": message, "cel": {"rule": "properties.exists(p, p.type == 'certified')"}});
    let red = book("red").bundle("1.0.0", &[constraint(&rule)]).package();
    Cluster::default().refused(&red, "red", &[message]);
}

#[test]
fn t_5d_01_what_others_depend_on_is_kept() {
    let a = book("a").bundle("1.0.0", &[requires("B", "v1")]).package();
    let b = book("b")
        .bundle("1.0.0", &[provides("B", "v1")])
        .bundle("2.0.0", &[provides("C", "v1")])
        .channel("stable", &["2.0.0", "1.0.0"])
        .package();
    let served = HashSet::from([gvk("B", "v1")]);
    let cluster = Cluster {
        served,
        ..Cluster::default()
    };
    let cluster = cluster
        .with(installed(&a, "a", "1.0.0"))
        .owning(installed(&b, "b", "1.0.0"));
    cluster.gives(&b, "b", Some("1.0.0"), "b.v1.0.0");
    cluster.resolution(&b, "b", Some("1.0.0"), |found| {
        let text = found.unwrap().blocked[0].blockers[0].to_string();
        assert_eq!(
            text,
            "ClusterExtension my-a would be broken: API example.com/v1 B is not provided"
        );
    });
    let broken = broken_by_removal(&cluster.facts());
    assert_eq!(broken.len(), 1, "{broken:?}");
    // The user may override it.
    let overridden = Cluster {
        dependents: Dependents::MayBreak,
        ..cluster
    };
    overridden.gives(&b, "b", Some("1.0.0"), "b.v2.0.0");
    assert!(broken_by_removal(&overridden.facts()).is_empty());
}

#[test]
fn who_is_broken_already_or_has_another_provider_holds_nobody() {
    let a = book("a")
        .bundle("1.0.0", &[requires("B", "v1"), requires("X", "v1")])
        .package();
    let b = book("b").bundle("1.0.0", &[provides("B", "v1")]).package();
    let other = book("other").bundle("1.0.0", &[provides("B", "v1")]).package();
    let cluster = Cluster::default()
        .with(installed(&a, "a", "1.0.0"))
        .with(installed(&other, "other", "1.0.0"))
        .owning(installed(&b, "b", "1.0.0"));
    assert!(broken_by_removal(&cluster.facts()).is_empty());
}

#[test]
fn a_new_bundle_may_not_be_what_another_excludes() {
    let none = json!({"not": {"constraints": [{"gvk": api("Green", "v1")}]}});
    let red = book("red").bundle("1.0.0", &[constraint(&none)]).package();
    let green = book("green")
        .bundle("1.0.0", &[provides("Green", "v1")])
        .package();
    Cluster::default().with(installed(&red, "red", "1.0.0")).refused(
        &green,
        "green",
        &["ClusterExtension my-red would be broken", "must not be there"],
    );
}

#[test]
fn the_cluster_has_to_be_new_enough_and_of_the_right_architecture() {
    let metadata = |value: Value| json!({"type": "olm.csv.metadata", "value": value});
    let red = book("red")
        .bundle("1.0.0", &[])
        .bundle("2.0.0", &[metadata(json!({"minKubeVersion": "1.30.0"}))])
        .bundle("3.0.0", &[metadata(json!({"minKubeVersion": "1.36"}))])
        .package();
    let at = |version: &str| Cluster {
        kubernetes: version.parse().ok(),
        ..Cluster::default()
    };
    at("1.29.9").gives(&red, "red", None, "red.v1.0.0");
    at("1.30.0-gke.100").gives(&red, "red", None, "red.v2.0.0");
    at("1.36.1+k3s1").gives(&red, "red", None, "red.v3.0.0");
    // What is not known hinders nobody.
    Cluster::default().gives(&red, "red", None, "red.v3.0.0");
    // Catalogs of the older form carry the manifests themselves.
    let manifest = "kind: ClusterServiceVersion\nspec: {minKubeVersion: 1.36.0}\n";
    let carried = olm_fbc::Property::for_object(manifest.as_bytes());
    let carried =
        json!({"type": carried.kind, "value": serde_json::from_str::<Value>(&carried.value).unwrap()});
    let old = book("red")
        .bundle("1.0.0", &[])
        .bundle("2.0.0", &[carried])
        .package();
    at("1.30.0").gives(&old, "red", None, "red.v1.0.0");
    at("1.36.0").gives(&old, "red", None, "red.v2.0.0");
    let new = book("red")
        .bundle("3.0.0", &[metadata(json!({"minKubeVersion": "1.36.0"}))])
        .package();
    at("1.30.2").refused(
        &new,
        "red",
        &["it needs Kubernetes 1.36.0 or later, and the cluster is at 1.30.2"],
    );

    let labels = json!({"labels": {"operatorframework.io/arch.arm64": "supported", "operatorframework.io/arch.amd64": "unsupported"}});
    let arm = book("red").bundle("1.0.0", &[metadata(labels)]).package();
    let nodes = |architectures: &[&str]| Cluster {
        architectures: architectures.iter().map(ToString::to_string).collect(),
        ..Cluster::default()
    };
    nodes(&["amd64", "arm64"]).gives(&arm, "red", None, "red.v1.0.0");
    nodes(&[]).gives(&arm, "red", None, "red.v1.0.0");
    // Whoever asks for it gets it.
    nodes(&["amd64"]).gives(&arm, "red", None, "red.v1.0.0");
}

#[test]
fn missing_apis_and_processors_make_a_bundle_second_choice() {
    let metadata = |value: Value| json!({"type": "olm.csv.metadata", "value": value});
    let native = |kind: &str| {
        metadata(json!({"nativeAPIs": [{"group": "example.com", "version": "v1", "kind": kind}]}))
    };
    let plain = Cluster::default();
    let serving = Cluster {
        served: HashSet::from([gvk("Native", "v1")]),
        ..Cluster::default()
    };

    let some = book("red")
        .bundle("1.0.0", &[])
        .bundle("2.0.0", &[native("Native")])
        .channel("stable", &["2.0.0", "1.0.0"])
        .package();
    serving.gives(&some, "red", None, "red.v2.0.0");
    plain.gives(&some, "red", None, "red.v1.0.0");
    plain.resolution(&some, "red", Some("1.0.0"), |found| {
        let found = found.unwrap();
        assert_eq!(found.bundle.name, "red.v1.0.0");
        assert_eq!(
            found.blocked[0].blockers[0].to_string(),
            "the cluster does not serve the API \"example.com/v1 Native\" that it needs"
        );
    });

    // Where every bundle lacks something it is as if none did: the newest, and from what is installed to the newest.
    let all = book("red")
        .bundle("1.0.0", &[native("Native")])
        .bundle("2.0.0", &[native("Native")])
        .channel("stable", &["2.0.0", "1.0.0"])
        .package();
    plain.gives(&all, "red", None, "red.v2.0.0");
    plain.gives(&all, "red", Some("1.0.0"), "red.v2.0.0");
    plain.resolution(&all, "red", None, |found| {
        assert!(found.unwrap().blocked.is_empty());
    });

    // What is forbidden is never chosen, and is listed.
    let new = metadata(json!({"minKubeVersion": "1.36.0"}));
    let mixed = book("red")
        .bundle("1.0.0", &[native("Native")])
        .bundle("2.0.0", &[new]);
    let mixed = mixed.package();
    let old = Cluster {
        kubernetes: "1.30.0".parse().ok(),
        ..Cluster::default()
    };
    old.resolution(&mixed, "red", None, |found| {
        let found = found.unwrap();
        assert_eq!(found.bundle.name, "red.v1.0.0");
        assert_eq!(found.blocked.len(), 1);
        assert_eq!(found.blocked[0].bundle.name, "red.v2.0.0");
    });
    // What is no version forbids nothing.
    let unreadable = book("red").bundle("1.0.0", &[metadata(json!({"minKubeVersion": "latest"}))]);
    old.gives(&unreadable.package(), "red", None, "red.v1.0.0");
}

/// The providers of `example.com/v1 Green`, as `CATALOG PACKAGE CHANNEL BUNDLE`, best first.
fn proposed(offers: &[Offer<'_>], own_catalog: &str) -> Vec<String> {
    let green = Requirement::of_dependency("olm.gvk", &api("Green", "v1").to_string()).unwrap();
    let served = HashSet::new();
    let nothing = olm_constraint::Present::new([], &served, Budget::default());
    let explanation = green.explain(&nothing).unwrap();
    providers(
        explanation.wanted[0],
        offers,
        Some(own_catalog),
        &Cluster::default().facts(),
        &mut Budget::default(),
    )
    .into_iter()
    .map(|found| {
        let newest = if found.is_newest { "" } else { " not newest" };
        format!(
            "{} {} {} {}{newest}",
            found.catalog, found.package, found.channel, found.bundle.name
        )
    })
    .collect()
}

fn offer<'a>(catalog: &'a str, priority: i32, name: &'a str, package: &'a Package) -> Offer<'a> {
    Offer {
        catalog,
        priority,
        name,
        package,
        default_channel: Some("stable"),
    }
}

#[test]
fn t_5a_01_and_02_priority_counts_after_the_dependents_own_catalog() {
    let green = book("green")
        .bundle("1.0.0", &[provides("Green", "v1")])
        .channel("stable", &["1.0.0"])
        .package();
    let offers = [
        offer("other", 0, "green", &green),
        offer("my-operators", 100, "green", &green),
    ];
    assert_eq!(
        proposed(&offers, "third")[0],
        "my-operators green stable green.v1.0.0"
    );
    assert_eq!(proposed(&offers, "other")[0], "other green stable green.v1.0.0");
}

#[test]
fn t_5a_03_the_default_channel_comes_first_then_the_alphabet() {
    let all = ["1.0.0"];
    let bundle = |book: Book| book.bundle("1.0.0", &[provides("Green", "v1")]);
    let everywhere = bundle(book("green"))
        .channel("fast", &all)
        .channel("alpha", &all)
        .channel("stable", &all);
    let everywhere = everywhere.package();
    assert_eq!(
        proposed(&[offer("c", 0, "green", &everywhere)], "c"),
        ["c green stable green.v1.0.0"]
    );
    let elsewhere = bundle(book("green"))
        .bundle("0.1.0", &[])
        .channel("stable", &["0.1.0"])
        .channel("fast", &all)
        .channel("alpha", &all)
        .package();
    assert_eq!(
        proposed(&[offer("c", 0, "green", &elsewhere)], "c"),
        ["c green alpha green.v1.0.0"]
    );
    let fast = bundle(book("green"))
        .bundle("0.1.0", &[])
        .channel("alpha", &["0.1.0"])
        .channel("fast", &all)
        .package();
    assert_eq!(
        proposed(&[offer("c", 0, "green", &fast)], "c"),
        ["c green fast green.v1.0.0"]
    );
}

#[test]
fn t_5a_04_and_05_the_head_comes_first_and_a_bundle_counts_once() {
    let green = book("green")
        .bundle("1.2.0", &[provides("Green", "v1")])
        .bundle("1.3.0", &[provides("Green", "v1")])
        .channel("stable", &["1.3.0", "1.2.0"])
        .channel("fast", &["1.3.0", "1.2.0"])
        .package();
    assert_eq!(
        proposed(&[offer("c", 0, "green", &green)], "c"),
        ["c green stable green.v1.3.0"]
    );
    let retired = book("green")
        .bundle("1.2.0", &[provides("Green", "v1")])
        .bundle("1.3.0", &[provides("Green", "v2")])
        .channel("stable", &["1.3.0", "1.2.0"])
        .package();
    let found = proposed(&[offer("c", 0, "green", &retired)], "c");
    assert_eq!(found, ["c green stable green.v1.2.0 not newest"]);
}

#[test]
fn the_newest_bundle_says_everything_that_stands_in_its_way() {
    let red = book("red")
        .bundle("1.0.0", &[])
        .bundle("1.1.0", &[])
        .bundle("2.0.0", &[requires_package("blue", ">=1.0.0")])
        .channel("stable", &["1.1.0", "1.0.0"])
        .channel("fast", &["2.0.0"])
        .package();
    let labels = BTreeMap::new();
    let catalog = |name: &'static str, package, priority| Catalog {
        name,
        priority,
        labels: &labels,
        availability: Availability::Available,
        content: Content::Package(package),
    };
    let served = HashSet::new();
    let facts = ClusterState {
        neighbours: &[],
        own: None,
        served: &served,
        platform: ClusterPlatform::default(),
        dependents: Dependents::Protected,
    };
    let check = |catalogs: &[Catalog<'_>],
                 version: Option<&str>,
                 channels: &[&str],
                 chosen: Option<&str>,
                 why: &[&str]| {
        let channels: Vec<String> = channels.iter().map(|name| (*name).to_owned()).collect();
        let request = Request {
            package: "red",
            version,
            channels: &channels,
            ..Request::default()
        };
        let installed = Installed {
            name: "red.v1.0.0",
            version: "1.0.0",
            release: None,
        };
        let found = updates(catalogs, &request, Some(&installed), &facts).unwrap();
        let got = found
            .chosen
            .as_ref()
            .ok()
            .map(|chosen| chosen.bundle.name.as_str());
        assert_eq!(got, chosen);
        let obstacles = found.newest.map(|newest| newest.obstacles).unwrap_or_default();
        let texts: Vec<String> = obstacles.iter().map(ToString::to_string).collect();
        assert_eq!(texts.len(), why.len(), "{texts:?}");
        for (text, why) in texts.iter().zip(why) {
            assert!(text.contains(why), "{why:?} in {texts:?}");
        }
    };
    let one = [catalog("one", &red, 0)];
    let edge = "no update edge leads to it from red.v1.0.0";
    let needs = "a requirement does not hold: ";
    check(&one, None, &[], Some("red.v1.1.0"), &[edge, needs]);
    check(
        &one,
        Some("1.x"),
        &["stable"],
        Some("red.v1.1.0"),
        &[
            "it is in other channels: fast",
            "it is outside the version range \"1.x\"",
            edge,
            needs,
        ],
    );
    let plain = book("red")
        .bundle("1.1.0", &[])
        .channel("stable", &["1.1.0", "1.0.0"])
        .package();
    // What is chosen is the newest.
    check(&[catalog("one", &plain, 0)], None, &[], Some("red.v1.1.0"), &[]);
    let newer = book("red")
        .bundle("1.2.0", &[])
        .channel("stable", &["1.2.0", "1.0.0"])
        .package();
    check(
        &[catalog("one", &plain, 1), catalog("two", &newer, 0)],
        None,
        &[],
        Some("red.v1.1.0"),
        &["catalog one comes first"],
    );
}
