//! The text of a refusal.

use crate::common::{TestCatalog, entry, outcome, shelf, with};
use olm_resolve::refusal::MAX_LENGTH;
use olm_resolve::{Refusal, Request, Selector};
use serde_json::json;

fn check(shelves: &[TestCatalog], request: Request<'_>, installed: Option<(&str, &str)>, expected: &[&str]) {
    let refusal = outcome(shelves, request, installed).unwrap_err();
    assert_eq!(refusal.lines().collect::<Vec<_>>(), expected);
}

#[test]
fn every_bundle_is_accounted_for() {
    let channels = vec!["stable".to_owned(), "nope".to_owned()];
    let shelves = [
        shelf("a")
            .bundles(&["1.0.0", "1.1.0", "1.2.0", "1.3.0", "1.4.0", "3.0.0-rc.1", "3.0.0"])
            .channel(
                "stable",
                &["1.0.0", "1.1.0", "1.2.0", "1.3.0", "1.4.0", "3.0.0-rc.1"]
                    .map(|v| entry(&format!("foo.v{v}"))),
            )
            .channel("beta", &[entry("foo.v3.0.0")]),
        shelf("b").without_package(),
        shelf("c").switched_off(),
        shelf("d").label("tier", "none"),
    ];
    let selector: Selector =
        serde_json::from_value(json!({"matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]}))
            .unwrap();
    let request = Request {
        version: Some(">=2"),
        channels: &channels,
        selector: Some(&selector),
        ..Request::default()
    };
    check(
        &shelves,
        request,
        None,
        &[
            "no bundles found for package \"foo\" matching version \">=2\" in channels [stable nope]",
            "- catalog \"a\" (priority 0): 5 bundles (foo.v1.4.0, foo.v1.3.0, foo.v1.2.0 and 2 more) outside the version \
         range; 1 bundle (foo.v3.0.0-rc.1) pre-releases, which the version range does not admit; 1 bundle \
         (foo.v3.0.0) not in the requested channels",
            "- catalog \"b\" does not have the package",
            "- catalog \"c\" is not used: its availabilityMode is Unavailable",
            "- not selected: 1 catalog (\"d\")",
            "hint: channel \"nope\" does not exist; the catalogs have 2 channels (\"beta\", \"stable\")",
            "hint: foo.v3.0.0 fits the version range, but is in another channel: add \"beta\" to spec.source.catalog.channels",
            "hint: to admit pre-releases such as foo.v3.0.0-rc.1 name one in spec.source.catalog.version, e.g. >=1.2.3-0",
        ],
    );
}

#[test]
fn a_missing_edge_is_named_with_the_ways_out() {
    let shelves = [shelf("a").bundles(&["1.0.0", "1.1.0", "2.0.0"]).channel(
        "stable",
        &[
            entry("foo.v1.0.0"),
            json!({"name": "foo.v1.1.0", "replaces": "foo.v1.0.0"}),
            json!({"name": "foo.v2.0.0", "replaces": "foo.v1.1.0"}),
        ],
    )];
    let request = Request {
        version: Some("2.0.0"),
        ..Request::default()
    };
    check(
        &shelves,
        request,
        Some(("foo.v1.0.0", "1.0.0")),
        &[
            "error upgrading from currently installed version \"1.0.0\": no bundles found for package \"foo\" matching \
         version \"2.0.0\"",
            "- catalog \"a\" (priority 0): 2 bundles (foo.v1.1.0, foo.v1.0.0) outside the version range; 1 bundle \
         (foo.v2.0.0) not an update of the installed bundle",
            "hint: from foo.v1.0.0 the catalogs lead to 1 bundle (foo.v1.1.0)",
            "hint: no update edge leads to foo.v2.0.0 from foo.v1.0.0 (replaces, skips or skipRange): choose another \
         version, or force it with spec.source.catalog.upgradeConstraintPolicy: SelfCertified, which is untested and can lose data",
        ],
    );
}

#[test]
fn a_version_in_another_channel_only_is_listed_with_its_channels() {
    let entries = |versions: &[&str]| -> Vec<_> {
        let names = versions.iter().map(|version| format!("foo.v{version}"));
        names.map(|name| entry(&name)).collect()
    };
    let shelves = [shelf("a")
        .bundles(&["1.0.0", "1.1.0", "2.0.0", "2.1.0", "3.0.0"])
        .channel("stable", &entries(&["1.0.0", "1.1.0"]))
        .channel("fast", &entries(&["1.1.0", "2.0.0", "2.1.0"]))
        .channel("beta", &entries(&["2.1.0"]))];
    let hints = |version: &str, channel: &str, installed: Option<(&str, &str)>| -> Vec<String> {
        let channels = [channel.to_owned()];
        let request = Request {
            version: Some(version),
            channels: &channels,
            ..Request::default()
        };
        let refusal = outcome(&shelves, request, installed).unwrap_err();
        let hints = refusal.lines().filter_map(|line| line.strip_prefix("hint: "));
        hints.map(str::to_owned).collect()
    };
    let check = |version: &str, channel: &str, installed: Option<(&str, &str)>, expected: &[&str]| {
        assert_eq!(
            hints(version, channel, installed),
            expected,
            "{version} {channel}"
        );
    };
    check(
        "2.x",
        "stable",
        None,
        &[
            "foo.v2.1.0 fits the version range, but is in another channel: add \"fast\" or \"beta\" to \
             spec.source.catalog.channels",
        ],
    );
    check(
        "9.x",
        "stable",
        None,
        &["the highest version outside the range \"9.x\" is that of foo.v1.1.0"],
    );
    // In no channel at all, and without an edge: another channel would not help.
    check(
        "3.x",
        "stable",
        None,
        &["the highest version outside the range \"3.x\" is that of foo.v1.1.0"],
    );
    check(
        "2.x",
        "stable",
        Some(("foo.v1.0.0", "1.0.0")),
        &["the highest version outside the range \"2.x\" is that of foo.v1.1.0"],
    );
    check(
        "1.0.0",
        "Fats",
        None,
        &[
            "channel \"Fats\" does not exist; did you mean \"fast\"?",
            "foo.v1.0.0 fits the version range, but is in another channel: add \"stable\" to spec.source.catalog.channels",
        ],
    );
}

#[test]
fn a_version_in_another_channel_is_reached_by_one_in_between() {
    let after = |version: &str, before: &str| json!({"name": format!("foo.v{version}"), "replaces": format!("foo.v{before}")});
    let shelves = [shelf("a")
        .bundles(&["1.0.1", "1.1.0", "2.0.0"])
        .channel("stable", &[entry("foo.v1.0.1"), after("1.1.0", "1.0.1")])
        .channel("candidate", &[entry("foo.v1.1.0"), after("2.0.0", "1.1.0")])];
    let request = Request {
        version: Some("2.x"),
        channels: &["stable".to_owned()],
        ..Request::default()
    };
    let refusal = outcome(&shelves, request, Some(("foo.v1.0.1", "1.0.1"))).unwrap_err();
    assert!(
        refusal.ends_with("\nhint: foo.v2.0.0 is in channel \"candidate\"; first go to foo.v1.1.0"),
        "{refusal}"
    );
}

#[test]
fn a_package_that_no_catalog_has_may_be_misspelled() {
    let check = |shelves: &[TestCatalog], names: &[(&str, &str)], expected: &[&str]| {
        let hints = with(shelves, Request::default(), None, |resolution| {
            let mut refusal = resolution.unwrap_err();
            refusal.suggest(names.iter().copied());
            let hints = |refusal: &Refusal| refusal.hints().map(str::to_owned).collect::<Vec<_>>();
            [hints(&refusal), hints(&refusal.on_command_line())].concat()
        });
        assert_eq!(hints, expected);
    };
    let absent = [shelf("a").without_package()];
    check(
        &absent,
        &[("b", "Foo"), ("a", "fooo"), ("a", "Foo"), ("a", "foo")],
        &[
            "did you mean \"Foo\" of catalog \"a\"? spec.source.catalog.packageName cannot be changed: delete this \
             ClusterExtension, which has nothing installed, and create it again",
            "did you mean \"Foo\" of catalog \"a\"?",
        ],
    );
    check(
        &absent,
        &[("a", "other")],
        &[
            "check spec.source.catalog.packageName and spec.source.catalog.selector, and that the ClusterCatalog with the \
             package is there (`kubectl get clustercatalogs`)",
            "check the name of the package: `olm search`, for a source with `--catalog SOURCE`, shows what the catalogs have",
        ],
    );
    let shelf = shelf("a").channel("stable", &[]);
    check(&[shelf], &[("a", "fooo")], &[]);
}

#[test]
fn nothing_to_choose_from_is_said_in_plain_words() {
    check(
        &[],
        Request::default(),
        None,
        &[
            "no bundles found for package \"foo\"",
            "hint: create a ClusterCatalog: the cluster has none",
        ],
    );
    check(
        &[shelf("a").without_package()],
        Request::default(),
        None,
        &[
            "no bundles found for package \"foo\"",
            "- catalog \"a\" does not have the package",
            "hint: check spec.source.catalog.packageName and spec.source.catalog.selector, and that the ClusterCatalog with \
             the package is there (`kubectl get clustercatalogs`)",
        ],
    );
    check(
        &[shelf("a").without_package()],
        Request::default(),
        Some(("foo.v1.0.0", "1.0.0")),
        &[
            "error upgrading from currently installed version \"1.0.0\": no bundles found for package \"foo\"",
            "- catalog \"a\" does not have the package",
            "hint: a catalog had the package when it was installed: its ClusterCatalog was deleted, has lost the package, or is \
             not selected by spec.source.catalog.selector; `kubectl get clustercatalogs` shows which there are",
        ],
    );
    check(
        &[shelf("a").channel("stable", &[])],
        Request::default(),
        None,
        &[
            "no bundles found for package \"foo\"",
            "- catalog \"a\" (priority 0): no bundles of the package",
        ],
    );
    let request = Request {
        version: Some("latest"),
        ..Request::default()
    };
    check(
        &[],
        request,
        None,
        &[
            "desired version range \"latest\" is invalid: improper constraint: \"latest\"",
            "hint: correct spec.source.catalog.version; examples: 1.2.3, 1.x, >=1.2 <2, ~1.4 || ^2.1",
        ],
    );
}

#[test]
fn every_silent_catalog_is_named() {
    check(
        &[
            shelf("b").silent("connection refused"),
            shelf("a").silent("not being served"),
            shelf("c"),
            shelf("d").silent("catalog \"d\" is not being served"),
        ],
        Request::default(),
        None,
        &[
            "error walking catalogs: error getting package \"foo\" from catalog \"a\": not being served",
            "- catalog \"b\" does not answer either: connection refused",
            "- catalog \"d\" is not being served",
            "hint: `kubectl describe clustercatalog a` says why; wait until it is served, or leave it out by \
             spec.source.catalog.selector or by availabilityMode: Unavailable of the ClusterCatalog",
            "hint: to continue without, for every extension: kubectl patch clustercatalog a b d --type merge \
             -p '{\"spec\":{\"availabilityMode\":\"Unavailable\"}}'",
        ],
    );
}

#[test]
fn the_command_that_leaves_catalogs_out_is_never_cut() {
    let check = |names: &[String], expected: &[&str]| {
        let shelves: Vec<TestCatalog> = names
            .iter()
            .map(|name| shelf(name.clone().leak()).silent("broken"))
            .collect();
        let refusal = outcome(&shelves, Request::default(), None).unwrap_err();
        let command = refusal
            .lines()
            .find_map(|line| line.split_once("kubectl patch clustercatalog "))
            .map(|(_, command)| command)
            .unwrap();
        let (named, rest) = command.split_once(" --type merge").unwrap();
        assert_eq!(named.split(' ').collect::<Vec<_>>(), expected);
        assert!(rest.ends_with("\"Unavailable\"}}'"), "{rest}");
    };
    let long = |letter: &str| letter.repeat(150);
    check(&["a".to_owned(), "b".to_owned()], &["a", "b"]);
    check(&[long("a"), long("b")], &[&long("a")]);
    check(&["c".repeat(253)], &[&"c".repeat(253)]);
}

#[test]
fn a_refusal_stays_short_and_on_its_lines() {
    let name = format!("foo\n{}", "x".repeat(5000));
    let bad = json!([{"type": "olm.package", "value": {"packageName": "foo", "version": "1.0.0"}}]);
    let shelves: Vec<TestCatalog> = (0..100).map(|_| shelf("a").bundle(&name, &bad)).collect();
    let request = Request {
        version: Some("2.0.0"),
        ..Request::default()
    };
    let refusal = outcome(&shelves, request, None).unwrap_err();
    assert!(refusal.len() <= MAX_LENGTH, "{}", refusal.len());
    assert!(
        refusal
            .lines()
            .all(|line| line.starts_with("no bundles") || line.starts_with(['-', '(', 'h'])),
        "{refusal}"
    );
    assert!(refusal.contains("(more left out)"));
    let channels: Vec<String> = (0..1000).map(|n| format!("channel-{n}")).collect();
    let refusal = outcome(
        &shelves,
        Request {
            channels: &channels,
            ..request
        },
        None,
    )
    .unwrap_err();
    assert!(refusal.len() <= MAX_LENGTH, "{}", refusal.len());
}
