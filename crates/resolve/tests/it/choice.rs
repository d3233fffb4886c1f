//! The choice between several catalogs, and reasons that exclude a bundle.

use crate::common::{TestCatalog, catalogs, entry, outcome, shelf, with};
use olm_resolve::deprecation::{Messages, messages};
use olm_resolve::fallback::{Fallback, without_catalogs};
use olm_resolve::{
    Edge, Installed, InstalledError, Reason, ReleaseField, Request, Selector, UpgradeConstraintPolicy,
};
use proptest::prelude::*;
use serde_json::json;

fn check(shelves: &[TestCatalog], request: Request<'_>, expected: &str) {
    let found = outcome(shelves, request, None)
        .unwrap_or_else(|refusal| refusal.lines().next().unwrap_or_default().to_owned());
    assert_eq!(found, expected, "{request:?}");
}

fn any() -> Request<'static> {
    Request::default()
}

#[test]
fn the_highest_priority_wins_over_the_highest_version() {
    let shelves = [
        shelf("a").bundles(&["2.0.0"]),
        shelf("b").priority(5).bundles(&["1.5.0"]),
        shelf("c").priority(-1),
    ];
    check(&shelves, any(), "foo.v1.5.0 from b");
}

#[test]
fn equal_priorities_are_ambiguous_and_only_they_are_named() {
    let shelves = [
        shelf("b").priority(5).bundles(&["1.0.0"]),
        shelf("a").priority(5).bundles(&["2.0.0"]),
        shelf("c").priority(1).bundles(&["3.0.0"]),
    ];
    let refusal = outcome(&shelves, any(), None).unwrap_err();
    let expected = [
        "found bundles for package \"foo\" in multiple catalogs with the same priority [a b]",
        "- catalog \"a\" (priority 5) offers foo.v2.0.0",
        "- catalog \"b\" (priority 5) offers foo.v1.0.0",
        "hint: select one catalog by spec.source.catalog.selector, e.g. by its label \
         olm.operatorframework.io/metadata.name, or give one ClusterCatalog a higher spec.priority",
    ];
    assert_eq!(refusal, expected.join("\n"));
}

#[test]
fn bundles_that_are_not_deprecated_win_before_the_priority_counts() {
    let shelves = [
        shelf("a")
            .priority(10)
            .bundles(&["9.0.0"])
            .deprecated(&[("olm.bundle", "foo.v9.0.0")]),
        shelf("b").bundles(&["1.0.0"]),
    ];
    check(&shelves, any(), "foo.v1.0.0 from b");
    check(&shelves[..1], any(), "foo.v9.0.0 from a");
}

#[test]
fn within_a_catalog_deprecated_bundles_come_last() {
    let deprecated = [
        ("olm.bundle", "foo.v2.0.0"),
        ("olm.channel", "foo.v1.0.0"),
        ("olm.package", ""),
    ];
    let shelves = [shelf("a")
        .bundles(&["1.0.0", "2.0.0", "1.5.0-rc.1"])
        .deprecated(&deprecated)];
    check(&shelves, any(), "foo.v1.5.0-rc.1 from a");
    check(
        &shelves,
        Request {
            version: Some("2.x"),
            ..any()
        },
        "foo.v2.0.0 from a",
    );
}

#[test]
fn the_deprecations_are_those_of_the_catalog_that_wins() {
    let shelves = [
        shelf("a")
            .priority(1)
            .bundles(&["1.0.0"])
            .deprecated(&[("olm.package", "")]),
        shelf("b").bundles(&["1.0.0"]).deprecated(&[("olm.channel", "x")]),
    ];
    with(&shelves, any(), None, |resolution| {
        let deprecations = resolution.unwrap().package.deprecations().unwrap();
        assert_eq!(deprecations.entries[0].reference.schema, "olm.package");
    });
}

#[test]
fn selectors_and_availability_decide_which_catalogs_count() {
    let shelves = || {
        [
            shelf("a").bundles(&["3.0.0"]).label("tier", "gold"),
            shelf("b").bundles(&["2.0.0"]).label("tier", "iron"),
            shelf("c")
                .bundles(&["4.0.0"])
                .label("tier", "gold")
                .switched_off(),
            shelf("d").silent("down").label("tier", "none"),
        ]
    };
    for (selector, expected) in [
        (json!({"matchLabels": {"tier": "gold"}}), "foo.v3.0.0 from a"),
        (
            json!({"matchLabels": {"olm.operatorframework.io/metadata.name": "b"}}),
            "foo.v2.0.0 from b",
        ),
        (
            json!({"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["gold", "none"]}]}),
            "foo.v2.0.0 from b",
        ),
        (
            json!({"matchExpressions": [
                {"key": "tier", "operator": "In", "values": ["gold", "iron"]},
                {"key": "tier", "operator": "Exists"},
                {"key": "other", "operator": "DoesNotExist"},
            ]}),
            "found bundles for package \"foo\" in multiple catalogs with the same priority [a b]",
        ),
        (
            json!({"matchLabels": {"tier": "wood"}}),
            "no bundles found for package \"foo\"",
        ),
        (
            json!({}),
            "error walking catalogs: error getting package \"foo\" from catalog \"d\": down",
        ),
        (
            json!({"matchExpressions": [{"key": "tier", "operator": "Near"}]}),
            "desired catalog selector is invalid: \"Near\" is not a valid label selector operator",
        ),
        (
            json!({"matchExpressions": [{"key": "tier", "operator": "In"}]}),
            "desired catalog selector is invalid: values: Invalid value: null: for 'in', 'notin' operators, values \
             set can't be empty",
        ),
    ] {
        let selector: Selector = serde_json::from_value(selector).unwrap();
        check(
            &shelves(),
            Request {
                selector: Some(&selector),
                ..any()
            },
            expected,
        );
    }
}

#[test]
fn a_bundle_without_a_readable_version_is_the_last_resort() {
    let bad = json!([{"type": "olm.package", "value": {"packageName": "foo", "version": "1.0"}}]);
    let shelves = [shelf("a").bundle("foo.bad", &bad).bundles(&["0.1.0-alpha"])];
    check(&shelves, any(), "foo.v0.1.0-alpha from a");
    let alone = [shelf("a").bundle("foo.bad", &bad)];
    check(
        &alone,
        any(),
        "error getting resolved bundle version for bundle \"foo.bad\": No Major.Minor.Patch elements found",
    );
    check(
        &alone,
        Request {
            version: Some("*"),
            ..any()
        },
        "no bundles found for package \"foo\" matching version \"*\"",
    );
    check(
        &[shelf("a").bundle("foo", &json!([]))],
        any(),
        "error getting resolved bundle version for bundle \"foo\": no package property found in bundle \"foo\"",
    );
}

#[test]
fn the_release_field_counts_where_it_is_given() {
    let bundle = |release: serde_json::Value| {
        let mut value = json!({"packageName": "foo", "version": "1.0.0+7"});
        value["release"] = release;
        let shelf = shelf("a").bundle("foo", &json!([{"type": "olm.package", "value": value}]));
        let show = |releases| {
            let package = shelf.package(releases);
            let version = package.candidates()[0].version.clone().unwrap();
            (
                version.version.to_string(),
                version.release.map(|release| release.to_string()),
            )
        };
        (show(ReleaseField::Counts), show(ReleaseField::Ignored))
    };
    let split = ("1.0.0".to_owned(), Some("7".to_owned()));
    assert_eq!(
        bundle(json!("2")),
        (("1.0.0+7".to_owned(), Some("2".to_owned())), split.clone())
    );
    assert_eq!(
        bundle(json!("")),
        (("1.0.0+7".to_owned(), Some(String::new())), split.clone())
    );
    assert_eq!(bundle(json!(null)), (split.clone(), split));
}

#[test]
fn a_resolution_says_where_the_bundle_stands() {
    let shelves = [shelf("a")
        .bundles(&["1.0.0", "1.1.0"])
        .channel(
            "stable",
            &[
                entry("foo.v1.0.0"),
                json!({"name": "foo.v1.1.0", "replaces": "foo.v1.0.0"}),
            ],
        )
        .channel("fast", &[json!({"name": "foo.v1.1.0", "skipRange": "<1.1.0"})])
        .channel("old", &[entry("foo.v1.0.0")])];
    with(&shelves, any(), Some(("foo.v1.0.0", "1.0.0")), |resolution| {
        let resolution = resolution.unwrap();
        assert_eq!(resolution.channels, ["stable", "fast"]);
        assert_eq!(resolution.edge, Some(Edge::Replaces));
        assert_eq!(resolution.bundle.image, "registry.example/foo.v1.1.0");
    });
    with(
        &shelves,
        Request {
            version: Some("1.0.0"),
            ..any()
        },
        Some(("foo.v1.0.0", "1.0.0")),
        |resolution| {
            assert_eq!(resolution.unwrap().edge, Some(Edge::Current));
        },
    );
    let forced = Request {
        policy: UpgradeConstraintPolicy::SelfCertified,
        ..any()
    };
    with(&shelves, forced, Some(("foo.v1.0.0", "1.0.0")), |resolution| {
        assert_eq!(resolution.unwrap().edge, None);
    });
}

#[test]
fn the_installed_bundle_is_kept_while_no_catalog_answers() {
    let check = |shelves: &[TestCatalog], version: Option<&str>, expected: Fallback| {
        let packages: Vec<_> = shelves
            .iter()
            .map(|shelf| shelf.package(ReleaseField::Counts))
            .collect();
        let request = Request {
            package: "foo",
            version,
            ..any()
        };
        let installed = Installed {
            name: "foo.v1.2.0",
            version: "1.2.0",
            release: None,
        };
        let found = without_catalogs(&catalogs(shelves, &packages), &request, &installed);
        assert_eq!(found, expected, "{version:?}");
    };
    for version in [None, Some("1.2.0"), Some("1.x"), Some(">=1.0 <2")] {
        check(&[], version, Fallback::KeepInstalled);
        check(&[shelf("a").silent("down")], version, Fallback::KeepInstalled);
        check(
            &[shelf("a").bundles(&["1.0.0"]).switched_off()],
            version,
            Fallback::KeepInstalled,
        );
        check(&[shelf("a").without_package()], version, Fallback::CatalogsAnswer);
        check(
            &[shelf("a").silent("down"), shelf("b").bundles(&["1.0.0"])],
            version,
            Fallback::CatalogsAnswer,
        );
    }
    check(&[], Some("1.3.x"), Fallback::AnotherVersion);
    check(&[], Some("nonsense"), Fallback::AnotherVersion);
}

#[test]
fn an_unreadable_installed_version_is_named() {
    let shelves = [shelf("a").bundles(&["1.0.0"])];
    with(&shelves, any(), Some(("foo.v1", "v1")), |resolution| {
        let refusal = resolution.unwrap_err();
        assert!(matches!(refusal.reason(), Reason::Installed(_)));
        assert_eq!(
            refusal.to_string(),
            "error walking catalogs: error finding upgrade edges: failed to get version and release of installed \
             bundle: error parsing version \"v1\": No Major.Minor.Patch elements found"
        );
    });
    let apart = Installed {
        name: "foo.v1.0.0",
        version: "1.0.0",
        release: Some("a_b"),
    };
    let reason = Reason::Installed(InstalledError::Apart(apart.version_release().unwrap_err()));
    assert_eq!(
        reason.to_string(),
        "error walking catalogs: error finding upgrade edges: failed to parse installed bundle version and release: \
         error parsing release \"a_b\": invalid release \"a_b\": segment 0: Invalid character(s) found in prerelease \
         \"a_b\""
    );
    let forced = Request {
        policy: UpgradeConstraintPolicy::SelfCertified,
        ..any()
    };
    with(&shelves, forced, Some(("foo.v1", "v1")), |resolution| {
        assert!(resolution.is_ok());
    });
}

#[test]
fn package_channel_and_bundle_are_deprecated_apart() {
    let shelf = shelf("a")
        .channel("alpha", &[entry("foo.v1.68.0")])
        .channel("stable", &[entry("foo.v1.72.0")])
        .deprecated(&[
            ("olm.package", ""),
            ("olm.channel", "alpha"),
            ("olm.bundle", "foo.v1.68.0"),
        ]);
    let package = shelf.package(ReleaseField::Counts);
    let find = |channels: &[&str], bundle: Option<&str>| {
        let channels: Vec<String> = channels.iter().map(|name| (*name).to_owned()).collect();
        messages(&package, &channels, bundle)
    };
    let text = |name: &str| vec![format!("leave {name}")];
    assert_eq!(
        find(&["alpha"], Some("foo.v1.68.0")),
        Messages {
            package: text(""),
            channels: text("alpha"),
            bundle: text("foo.v1.68.0")
        }
    );
    assert_eq!(
        find(&["stable"], Some("foo.v1.72.0")),
        Messages {
            package: text(""),
            ..Messages::default()
        }
    );
    assert_eq!(find(&["alpha"], None).all().count(), 2);
    // No channel is named: no bundle is installed, or only a deprecated channel has it.
    assert_eq!(find(&[], None).channels, Vec::<String>::new());
    assert_eq!(find(&[], Some("foo.v1.68.0")).channels, text("alpha"));
    assert_eq!(find(&[], Some("foo.v1.72.0")).channels, Vec::<String>::new());
}

#[test]
fn a_deprecated_channel_does_not_concern_a_bundle_that_another_channel_has_too() {
    let find = |deprecated: &[(&str, &str)], channels: &[&str], bundle: Option<&str>| {
        let shelf = shelf("a")
            .channel("alpha", &[entry("foo.v1.0.0")])
            .channel("stable", &[entry("foo.v1.0.0"), entry("foo.v1.1.0")])
            .deprecated(deprecated);
        let channels: Vec<String> = channels.iter().map(|name| (*name).to_owned()).collect();
        messages(&shelf.package(ReleaseField::Counts), &channels, bundle).channels
    };
    let (alpha, stable) = (("olm.channel", "alpha"), ("olm.channel", "stable"));
    let none = Vec::<String>::new();
    let both = ["leave alpha", "leave stable"];
    assert_eq!(find(&[alpha], &[], Some("foo.v1.0.0")), none);
    assert_eq!(find(&[alpha], &[], None), none);
    // A named channel counts as followed.
    assert_eq!(find(&[alpha], &["alpha"], Some("foo.v1.0.0")), ["leave alpha"]);
    assert_eq!(
        find(&[alpha], &["alpha", "stable"], Some("foo.v1.0.0")),
        ["leave alpha"]
    );
    assert_eq!(find(&[alpha], &["stable"], Some("foo.v1.0.0")), none);
    // No channel is left that is not deprecated.
    assert_eq!(find(&[alpha, stable], &[], Some("foo.v1.0.0")), both);
    assert_eq!(find(&[alpha, stable], &[], Some("foo.v1.1.0")), ["leave stable"]);
    // The catalog no longer has the installed bundle.
    assert_eq!(find(&[alpha], &[], Some("foo.v0.9.0")), none);
    assert_eq!(find(&[alpha, stable], &[], Some("foo.v0.9.0")), both);
}

proptest! {
    #[test]
    fn the_order_of_catalogs_does_not_matter(
        contents in proptest::collection::vec((0..3_i32, 1..4_u64, prop::bool::ANY), 0..4),
        turn in 0..4_usize,
        version in prop::sample::select(vec![None, Some("1.2.0"), Some(">=1.2"), Some("9")]),
        is_installed in prop::bool::ANY,
    ) {
        let names = ["a", "b", "c", "d"];
        let mut shelves: Vec<TestCatalog> = contents
            .iter()
            .zip(names)
            .map(|((priority, minor, deprecated), name)| {
                let version = format!("1.{minor}.0");
                let shelf = shelf(name).priority(*priority).bundles(&[&version]);
                if *deprecated { shelf.deprecated(&[("olm.bundle", &format!("foo.v{version}"))]) } else { shelf }
            })
            .collect();
        let range = Request { version, ..any() };
        let installed = Some(("foo.v1.0.0", "1.0.0")).filter(|_| is_installed);
        let before = outcome(&shelves, range, installed);
        let length = shelves.len().max(1);
        shelves.rotate_left(turn % length);
        prop_assert_eq!(before, outcome(&shelves, range, installed));
    }
}
