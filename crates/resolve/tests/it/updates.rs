//! The reasons why the newest bundle is not chosen, one at a time.

use std::collections::HashSet;

use olm_api::updates::held_back;
use olm_resolve::cluster::updates::{UpdateObstacle, considered, newest};
use olm_resolve::{
    Catalog, ClusterPlatform, ClusterState, Dependents, Installed, ReleaseField, Request,
    UpgradeConstraintPolicy, resolve_in,
};
use semver::Version;
use serde_json::{Value, json};

use crate::common::{TestCatalog, catalogs, entry, shelf};

/// A function of this crate with all inputs of a resolution.
type Question<'q, T> =
    dyn Fn(&[Catalog<'_>], &Request<'_>, Option<&Installed<'_>>, &ClusterState<'_>) -> T + 'q;

/// Calls a function with the package of these catalogs, on an empty cluster.
fn ask<T>(
    shelves: &[TestCatalog],
    request: Request<'_>,
    installed: Option<&str>,
    question: &Question<'_, T>,
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
    let name = format!("foo.v{}", installed.unwrap_or_default());
    let installed = installed.map(|version| Installed {
        name: &name,
        version,
        release: None,
    });
    let (served, kubernetes) = (HashSet::new(), Version::new(1, 30, 0));
    let facts = ClusterState {
        others: &[],
        own: None,
        served: &served,
        platform: ClusterPlatform {
            kubernetes: Some(&kubernetes),
            architectures: &[],
        },
        dependents: Dependents::Protected,
    };
    question(&catalogs, &request, installed.as_ref(), &facts)
}

/// Name, catalog and first obstacle of the bundles that are newer than the installed one.
fn beyond(
    shelves: &[TestCatalog],
    request: Request<'_>,
    installed: Option<&str>,
) -> Option<(String, Option<&'static str>)> {
    ask(
        shelves,
        request,
        installed,
        &|catalogs, request, installed, facts| {
            let chosen = resolve_in(catalogs, request, installed, facts);
            let found = newest(catalogs, request, installed, facts, chosen.as_ref().ok()).unwrap()?;
            let why = found.obstacles.first().map(UpdateObstacle::held_back_by);
            Some((format!("{} of {}", found.bundle.name, found.catalog), why))
        },
    )
}

/// Every bundle, as name, catalog and the reason that excludes it.
fn every(shelves: &[TestCatalog], request: Request<'_>, installed: Option<&str>) -> Vec<String> {
    ask(
        shelves,
        request,
        installed,
        &|catalogs, request, installed, facts| {
            let chosen = resolve_in(catalogs, request, installed, facts);
            let found = considered(catalogs, request, installed, facts, chosen.as_ref().ok()).unwrap();
            let lines = found.iter().map(|one| {
                let why: Vec<&str> = one.obstacles.iter().map(UpdateObstacle::held_back_by).collect();
                let chosen = if one.is_chosen { " chosen" } else { "" };
                format!("{} of {}{chosen} {}", one.bundle.name, one.catalog, why.join(","))
            });
            lines.map(|line| line.trim_end().to_owned()).collect()
        },
    )
}

#[test]
fn every_bundle_is_listed_with_its_exclusions_newest_first() {
    let shelves = [
        two("one", &[]).priority(1),
        shelf("two")
            .bundles(&["1.2.0"])
            .channel("stable", &[replacing("1.2.0", "1.0.0")]),
    ];
    assert_eq!(
        every(&shelves, Request::default(), Some("1.0.0")),
        [
            "foo.v1.2.0 of two Catalog",
            "foo.v1.1.0 of one chosen",
            "foo.v1.0.0 of one"
        ]
    );
    assert_eq!(
        every(&shelves, range("1.0.0"), Some("1.1.0")),
        [
            "foo.v1.2.0 of two Pin,Edge",
            "foo.v1.1.0 of one Pin",
            "foo.v1.0.0 of one Edge"
        ]
    );
    // No bundle is chosen if two catalogs with the same precedence have it.
    assert_eq!(
        every(&[two("one", &[]), two("two", &[])], range("1.1.0"), None),
        [
            "foo.v1.1.0 of one",
            "foo.v1.1.0 of two",
            "foo.v1.0.0 of one Pin",
            "foo.v1.0.0 of two Pin"
        ]
    );
}

fn replacing(version: &str, before: &str) -> Value {
    json!({"name": format!("foo.v{version}"), "replaces": format!("foo.v{before}")})
}

/// Versions 1.0.0 and 1.1.0, which replaces the first; 1.1.0 has these properties, too.
fn two(name: &'static str, more: &[Value]) -> TestCatalog {
    let mut properties =
        vec![json!({"type": "olm.package", "value": {"packageName": "foo", "version": "1.1.0"}})];
    properties.extend_from_slice(more);
    shelf(name)
        .bundles(&["1.0.0"])
        .bundle("foo.v1.1.0", &json!(properties))
        .channel("stable", &[entry("foo.v1.0.0"), replacing("1.1.0", "1.0.0")])
}

fn range(version: &str) -> Request<'_> {
    Request {
        version: Some(version),
        ..Request::default()
    }
}

#[test]
fn each_reason_has_its_word() {
    let any = Request::default();
    let check = |shelves: &[TestCatalog], request: Request<'_>, expected: &str| {
        let found = beyond(shelves, request, Some("1.0.0"));
        let (_, why) = found.expect("something is newer");
        assert_eq!(why, Some(expected), "{request:?}");
    };
    let plain = || two("one", &[]);
    for (version, expected) in [
        ("1.0.0", held_back::PIN),
        ("=1.0.0", held_back::PIN),
        ("1.0.x", held_back::RANGE),
        ("<1.1", held_back::RANGE),
    ] {
        check(&[plain()], range(version), expected);
    }
    let candidate = shelf("one")
        .bundles(&["1.0.0", "1.1.0-rc.1"])
        .channel("stable", &[entry("foo.v1.0.0"), replacing("1.1.0-rc.1", "1.0.0")]);
    check(&[candidate], range(">=1.0.0"), held_back::PRERELEASE);
    let apart = shelf("one")
        .bundles(&["1.0.0", "1.1.0"])
        .channel("stable", &[entry("foo.v1.0.0")])
        .channel("fast", &[replacing("1.1.0", "1.0.0")]);
    let channels = ["stable".to_owned()];
    let stable = Request {
        channels: &channels,
        ..any
    };
    check(&[apart], stable, held_back::CHANNEL);
    let without_edge = shelf("one")
        .bundles(&["1.0.0", "1.1.0"])
        .channel("stable", &[entry("foo.v1.0.0"), entry("foo.v1.1.0")]);
    check(&[without_edge], any, held_back::EDGE);
    let needy =
        json!({"type": "olm.package.required", "value": {"packageName": "bar", "versionRange": "1.x"}});
    check(&[two("one", &[needy])], any, held_back::REQUIREMENT);
    let modern = json!({"type": "olm.csv.metadata", "value": {"minKubeVersion": "1.31.0"}});
    check(
        &[two("one", std::slice::from_ref(&modern))],
        any,
        held_back::PLATFORM,
    );
    let deprecated = plain().deprecated(&[("olm.bundle", "foo.v1.1.0")]);
    check(&[deprecated], any, held_back::DEPRECATED);
    let preferred = two("one", &[]).priority(1);
    let newer = shelf("two")
        .bundles(&["1.2.0"])
        .channel("stable", &[replacing("1.2.0", "1.0.0")]);
    check(&[preferred, newer], any, held_back::CATALOG);
    // A bundle that the request excludes is not checked against the cluster, whose state may change unnoticed.
    check(&[two("one", &[modern])], range("1.0.x"), held_back::RANGE);
}

#[test]
fn chosen_and_older_bundles_are_not_held_back() {
    let one = || two("one", &[]);
    let newest = || "foo.v1.1.0 of one".to_owned();
    assert_eq!(
        beyond(&[one()], Request::default(), Some("1.0.0")),
        Some((newest(), None))
    );
    assert_eq!(beyond(&[one()], Request::default(), Some("1.1.0")), None);
    assert_eq!(beyond(&[one()], Request::default(), Some("2.0.0")), None);
    // A downgrade: the installed bundle is the newest.
    let back = Request {
        policy: UpgradeConstraintPolicy::SelfCertified,
        ..range("1.0.0")
    };
    assert_eq!(beyond(&[one()], back, Some("1.1.0")), None);
    // Nothing is installed: bundles that are newer than the chosen one.
    assert_eq!(beyond(&[one()], Request::default(), None), None);
    assert_eq!(
        beyond(&[one()], range("1.0.0"), None),
        Some((newest(), Some(held_back::PIN)))
    );
    // Nothing is chosen because several catalogs tie.
    let both = [one(), two("two", &[])];
    assert_eq!(
        beyond(&both, Request::default(), Some("1.0.0")),
        Some((newest(), None))
    );
}
