//! Update edges between versions.

use crate::common::{TestCatalog, entry, outcome, shelf};
use olm_resolve::{Installed, ReleaseField, Request, UpgradeConstraintPolicy, skipped_versions};
use serde_json::json;

/// Checks the chosen bundle, or the first line of the refusal.
fn check(shelves: &[TestCatalog], request: Request<'_>, installed: Option<&str>, expected: &str) {
    let name = installed.map(|version| format!("foo.v{version}"));
    let installed = name.as_deref().zip(installed);
    let found = match outcome(shelves, request, installed) {
        Ok(found) => found.split(' ').next().unwrap_or_default().to_owned(),
        Err(refusal) => refusal.lines().next().unwrap_or_default().to_owned(),
    };
    assert_eq!(found, expected, "{request:?} {installed:?}");
}

fn any() -> Request<'static> {
    Request::default()
}

fn version(version: &str) -> Request<'_> {
    Request {
        version: Some(version),
        ..Request::default()
    }
}

fn forced(request: Request<'_>) -> Request<'_> {
    Request {
        policy: UpgradeConstraintPolicy::SelfCertified,
        ..request
    }
}

fn stuck(installed: &str, range: &str) -> String {
    format!(
        "error upgrading from currently installed version \"{installed}\": no bundles found for package \"foo\" \
         matching version \"{range}\""
    )
}

/// Version 3 skips 2. The range of 2 contains 1, which is in no channel.
fn skipping() -> Vec<TestCatalog> {
    vec![shelf("a").bundles(&["3.0.0", "2.0.0"]).channel(
        "stable",
        &[
            json!({"name": "foo.v3.0.0", "skips": ["foo.v2.0.0"]}),
            json!({"name": "foo.v2.0.0", "skipRange": ">=1.0.0 <2.0.0"}),
        ],
    )]
}

#[test]
fn a_skipped_bundle_is_still_a_successor() {
    check(&skipping(), any(), Some("1.0.0"), "foo.v2.0.0");
}

#[test]
fn skips_lead_on() {
    check(&skipping(), any(), Some("2.0.0"), "foo.v3.0.0");
}

#[test]
fn a_first_installation_takes_the_highest() {
    check(&skipping(), any(), None, "foo.v3.0.0");
    check(&skipping(), version("<3.0.0"), None, "foo.v2.0.0");
}

#[test]
fn of_several_successors_the_highest_is_chosen() {
    let catalog = [shelf("a").bundles(&["1.0.0", "1.0.1", "1.2.0"]).channel(
        "stable",
        &[
            entry("foo.v1.0.0"),
            json!({"name": "foo.v1.0.1", "replaces": "foo.v1.0.0"}),
            json!({"name": "foo.v1.2.0", "replaces": "foo.v1.0.1", "skipRange": ">=1.0.0 <1.2.0"}),
        ],
    )];
    check(&catalog, any(), Some("1.0.0"), "foo.v1.2.0");
}

/// A chain of `replaces`.
fn chain(versions: &[&str]) -> Vec<TestCatalog> {
    let mut entries = Vec::new();
    let mut before: Option<&str> = None;
    for version in versions {
        let replaces = before.map(|before| format!("foo.v{before}"));
        entries.push(json!({"name": format!("foo.v{version}"), "replaces": replaces}));
        before = Some(version);
    }
    vec![shelf("a").bundles(versions).channel("stable", &entries)]
}

#[test]
fn a_pinned_version_stays_until_the_pin_is_edited() {
    let catalog = chain(&["1.0.0", "1.0.1"]);
    check(&catalog, version("1.0.0"), Some("1.0.0"), "foo.v1.0.0");
    check(&catalog, version("1.0.1"), Some("1.0.0"), "foo.v1.0.1");
}

#[test]
fn without_an_edge_only_force_updates() {
    let catalog = [shelf("a")
        .bundles(&["1.11.1", "1.13.0"])
        .channel("stable", &[entry("foo.v1.11.1"), entry("foo.v1.13.0")])];
    check(
        &catalog,
        version(">1.11.1"),
        Some("1.11.1"),
        &stuck("1.11.1", ">1.11.1"),
    );
    check(
        &catalog,
        forced(version(">1.11.1")),
        Some("1.11.1"),
        "foo.v1.13.0",
    );
}

#[test]
fn a_rollback_has_to_be_forced() {
    let catalog = chain(&["1.1.0", "1.2.0"]);
    check(
        &catalog,
        version("1.1.0"),
        Some("1.2.0"),
        &stuck("1.2.0", "1.1.0"),
    );
    check(&catalog, forced(version("1.1.0")), Some("1.2.0"), "foo.v1.1.0");
}

#[test]
fn a_chain_is_walked_step_by_step() {
    let catalog = chain(&["0.1.1", "0.1.2", "0.1.3"]);
    check(&catalog, any(), Some("0.1.1"), "foo.v0.1.2");
    check(&catalog, any(), Some("0.1.2"), "foo.v0.1.3");
    check(&catalog, any(), Some("0.1.3"), "foo.v0.1.3");
}

#[test]
fn a_bad_release_is_left_by_skips() {
    let catalog = [shelf("a").bundles(&["0.9.0", "0.9.1", "0.9.2"]).channel(
        "stable",
        &[
            entry("foo.v0.9.0"),
            json!({"name": "foo.v0.9.2", "replaces": "foo.v0.9.0", "skips": ["foo.v0.9.1"]}),
        ],
    )];
    check(&catalog, any(), Some("0.9.0"), "foo.v0.9.2");
    check(&catalog, any(), Some("0.9.1"), "foo.v0.9.2");
    check(&catalog, any(), None, "foo.v0.9.2");
    check(&catalog, version("0.9.1"), None, "foo.v0.9.1");
}

#[test]
fn a_skip_range_covers_all_versions_in_it() {
    let catalog = [shelf("a").bundles(&["4.1.2"]).channel(
        "stable",
        &[json!({"name": "foo.v4.1.2", "skipRange": ">=4.1.0 <4.1.2"})],
    )];
    check(&catalog, any(), Some("4.1.0"), "foo.v4.1.2");
    check(&catalog, any(), Some("4.1.1"), "foo.v4.1.2");
    check(&catalog, any(), Some("4.1.2"), "foo.v4.1.2");
    let refused =
        "error upgrading from currently installed version \"4.0.9\": no bundles found for package \"foo\"";
    check(&catalog, any(), Some("4.0.9"), refused);
}

#[test]
fn without_an_edge_only_force_crosses_a_major_version() {
    let catalog = [shelf("a").bundles(&["1.9.0", "2.0.0"]).channel(
        "stable",
        &[
            entry("foo.v1.9.0"),
            json!({"name": "foo.v2.0.0", "replaces": "foo.v1.10.0"}),
        ],
    )];
    check(&catalog, any(), Some("1.9.0"), "foo.v1.9.0");
    check(&catalog, version(">=1.0.0"), Some("1.9.0"), "foo.v1.9.0");
    check(&catalog, forced(version(">=1.0.0")), Some("1.9.0"), "foo.v2.0.0");
}

#[test]
fn an_edge_across_a_major_version_counts() {
    for edge in [
        json!({"name": "foo.v2.0.0", "replaces": "foo.v1.9.0"}),
        json!({"name": "foo.v2.0.0", "skips": ["foo.v1.9.0"]}),
        json!({"name": "foo.v2.0.0", "skipRange": ">=1.0.0 <2.0.0"}),
    ] {
        let catalog = [shelf("a")
            .bundles(&["1.9.0", "2.0.0"])
            .channel("stable", &[entry("foo.v1.9.0"), edge])];
        check(&catalog, any(), Some("1.9.0"), "foo.v2.0.0");
        check(&catalog, version("1.x"), Some("1.9.0"), "foo.v1.9.0");
    }
}

#[test]
fn updates_come_from_the_requested_channels_only() {
    let update = json!({"name": "foo.v1.1.0", "replaces": "foo.v1.0.0"});
    let latest = vec!["latest".to_owned()];
    let request = Request {
        channels: &latest,
        ..Request::default()
    };
    let catalog = |channel: &str| {
        let mut entries = vec![entry("foo.v1.0.0")];
        let mut beta = entries.clone();
        if channel == "latest" {
            &mut entries
        } else {
            &mut beta
        }
        .push(update.clone());
        [shelf("a")
            .bundles(&["1.0.0", "1.1.0"])
            .channel("latest", &entries)
            .channel("beta", &beta)]
    };
    check(&catalog("latest"), request, Some("1.0.0"), "foo.v1.1.0");
    check(&catalog("beta"), request, Some("1.0.0"), "foo.v1.0.0");
    check(&catalog("beta"), any(), Some("1.0.0"), "foo.v1.1.0");
}

#[test]
fn an_edge_in_another_channel_does_not_lead_to_a_bundle_of_this_one() {
    let catalog = [shelf("a")
        .bundles(&["1.0.0", "2.0.0"])
        .channel("stable", &[entry("foo.v1.0.0"), entry("foo.v2.0.0")])
        .channel("beta", &[json!({"name": "foo.v2.0.0", "replaces": "foo.v1.0.0"})])];
    let stable = vec!["stable".to_owned()];
    check(
        &catalog,
        Request {
            channels: &stable,
            ..any()
        },
        Some("1.0.0"),
        "foo.v1.0.0",
    );
    check(&catalog, any(), Some("1.0.0"), "foo.v2.0.0");
}

#[test]
fn an_unreadable_skip_range_leads_nowhere_and_harms_nothing() {
    let catalog = [shelf("a").bundles(&["1.0.0", "1.1.0", "1.2.0"]).channel(
        "stable",
        &[
            entry("foo.v1.0.0"),
            json!({"name": "foo.v1.1.0", "replaces": "foo.v1.0.0"}),
            json!({"name": "foo.v1.2.0", "skipRange": "~1.0"}),
        ],
    )];
    check(&catalog, any(), Some("1.0.0"), "foo.v1.1.0");
}

#[test]
fn releases_of_one_version_follow_each_other() {
    let catalog = chain(&["1.0.0", "1.0.0+1", "1.0.0+2", "1.0.0+10"]);
    check(&catalog, any(), None, "foo.v1.0.0+10");
    check(&catalog, any(), Some("1.0.0+1"), "foo.v1.0.0+2");
    check(&catalog, version("1.0.0"), Some("1.0.0+2"), "foo.v1.0.0+10");
    check(&catalog, any(), Some("1.0.0+10"), "foo.v1.0.0+10");
}

#[test]
fn the_installed_bundle_stays_when_its_successor_is_deprecated() {
    let mut catalog = chain(&["1.0.0", "1.1.0"]);
    let last = catalog
        .remove(0)
        .deprecated(&[("olm.bundle", "foo.v1.1.0"), ("olm.channel", "stable")]);
    check(&[last], any(), Some("1.0.0"), "foo.v1.0.0");
}

#[test]
fn an_edge_that_is_added_later_leads_on() {
    let entries = |head: serde_json::Value| [entry("foo.v1.2.3"), entry("foo.v1.2.4"), head];
    let catalog = |head: serde_json::Value| {
        [shelf("a")
            .bundles(&["1.2.3", "1.2.4", "1.3.0"])
            .channel("stable", &entries(head))]
    };
    let published = catalog(json!({"name": "foo.v1.3.0", "replaces": "foo.v1.2.3"}));
    check(&published, any(), Some("1.2.4"), "foo.v1.2.4");
    let edited = catalog(json!({"name": "foo.v1.3.0", "replaces": "foo.v1.2.3", "skips": ["foo.v1.2.4"]}));
    check(&edited, any(), Some("1.2.4"), "foo.v1.3.0");
}

#[test]
fn a_bundle_is_seen_once_it_is_promoted_to_the_channel() {
    let stable = vec!["stable".to_owned()];
    let request = Request {
        channels: &stable,
        ..Request::default()
    };
    let update = json!({"name": "foo.v1.1.0", "replaces": "foo.v1.0.0"});
    let candidate = [entry("foo.v1.0.0"), update.clone()];
    let before = [shelf("a")
        .bundles(&["1.0.0", "1.1.0"])
        .channel("stable", &[entry("foo.v1.0.0")])
        .channel("candidate", &candidate)];
    check(&before, request, Some("1.0.0"), "foo.v1.0.0");
    let after = [shelf("a")
        .bundles(&["1.0.0", "1.1.0"])
        .channel("stable", &[entry("foo.v1.0.0"), update])
        .channel("candidate", &candidate)];
    check(&after, request, Some("1.0.0"), "foo.v1.1.0");
}

#[test]
fn an_update_passes_over_the_versions_between_in_its_channels() {
    let shelf = shelf("a")
        .bundles(&["1.0.0", "1.2.0", "1.1.0", "2.0.0", "1.3.0"])
        .channel(
            "stable",
            &["1.0.0", "1.1.0", "1.2.0", "2.0.0"].map(|version| entry(&format!("foo.v{version}"))),
        )
        .channel("fast", &[entry("foo.v1.3.0")]);
    let package = shelf.package(ReleaseField::Counts);
    let chosen = package
        .candidates()
        .iter()
        .find(|one| one.name == "foo.v2.0.0")
        .unwrap();
    let installed = Installed {
        name: "foo.v1.0.0",
        version: "1.0.0",
        release: None,
    };
    let stable = ["stable".to_owned()];
    for (channels, expected) in [
        (&stable[..], &["foo.v1.1.0", "foo.v1.2.0"][..]),
        (&[], &["foo.v1.1.0", "foo.v1.2.0", "foo.v1.3.0"]),
    ] {
        let request = Request {
            channels,
            ..Request::default()
        };
        let passed = skipped_versions(&package, &request, &installed, chosen).unwrap();
        let names: Vec<&str> = passed.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, expected);
    }
    let back = package.candidates().first().unwrap();
    let newest = Installed {
        version: "2.0.0",
        ..installed
    };
    assert!(
        skipped_versions(&package, &Request::default(), &newest, back)
            .unwrap()
            .is_empty()
    );
}
