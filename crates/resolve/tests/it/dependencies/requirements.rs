//! The requirements of a bundle.

use super::*;

#[test]
fn requirements_of_a_bundle_are_looked_up_in_the_cluster() {
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
            "it is installed as soon as",
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
fn two_requirements_may_be_met_by_two_bundles() {
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
    // The resolution lists the bundles that were passed over, with the reason.
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
            answer: PackageAnswer::Package(package),
        };
        let request = Request {
            package: "red",
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
    // The bundle would have precedence, whatever its version.
    check((&needy, 1), (&newest, 0), "red.v3.0.0", held);
    // The bundle would not be chosen anyway.
    check((&needy, 0), (&newest, 0), "red.v3.0.0", None);
    check((&needy, -1), (&older, 0), "red.v1.0.0", None);
}

#[test]
fn the_installed_bundle_is_not_downgraded_when_a_requirement_is_gone() {
    let red = book("red")
        .bundle("1.0.0", &[])
        .bundle("2.0.0", &[requires_package("blue", ">=1.0.0")])
        .channel("stable", &["2.0.0", "1.0.0"])
        .package();
    Cluster::default().gives(&red, "red", Some("2.0.0"), "red.v2.0.0");
}

#[test]
fn unsound_requirements_are_refused_by_name() {
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
        answer: PackageAnswer::Package(package),
    };
    let served = HashSet::new();
    let facts = ClusterState {
        others: &[],
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
            "it is outside the version range \"1.x\"",
            "it is in other channels: fast",
            edge,
            needs,
        ],
    );
    let plain = book("red")
        .bundle("1.1.0", &[])
        .channel("stable", &["1.1.0", "1.0.0"])
        .package();
    // The chosen bundle is the newest.
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
