use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::json;

use super::*;
use crate::registry::{BundleMessage, PackageMessage, TypedValue};

const API: &str = r#"{"group": "g", "version": "v1", "kind": "Greeting"}"#;

/// A bundle `{package}.{version}` in the channel `c`.
fn bundle(package: &str, version: &str, replaces: &str) -> BundleMessage {
    BundleMessage {
        csv_name: format!("{package}.{version}"),
        package_name: package.to_owned(),
        channel_name: "c".to_owned(),
        version: "1.0.0".to_owned(),
        replaces: replaces.to_owned(),
        bundle_path: format!("{package}-{version}-image"),
        ..BundleMessage::default()
    }
}

fn with(mut bundle: BundleMessage, kind: &str, value: &str) -> BundleMessage {
    bundle.properties.push(TypedValue {
        kind: kind.to_owned(),
        value: value.to_owned(),
    });
    bundle
}

/// Two versions of a package.
fn healthy(package: &str) -> Vec<BundleMessage> {
    let first = format!("{package}.v1");
    vec![bundle(package, "v1", ""), bundle(package, "v2", &first)]
}

/// A Subscription that is called like its package, and has installed this version.
fn subscription(package: &str, channel: &str, installed: &str) -> Value {
    json!({
        "metadata": {"namespace": "n", "name": package},
        "spec": {"name": package, "channel": channel, "source": "a", "sourceNamespace": "olm"},
        "status": {"installedCSV": installed, "currentCSV": installed},
    })
}

fn csv(name: &str) -> Value {
    json!({
        "apiVersion": "operators.coreos.com/v1alpha1", "kind": "ClusterServiceVersion",
        "metadata": {"namespace": "n", "name": name}, "spec": {"version": "1.0.0"},
    })
}

/// Resolves with a catalog `a` of these bundles, and one `b` that cannot be read where there is an error.
fn run(
    rows: Vec<BundleMessage>,
    subscriptions: &[Value],
    csvs: &[Value],
    broken: Option<&str>,
) -> Result<Resolved, ResolveError> {
    with_request(rows, subscriptions, csvs, broken, |request| {
        resolve_available(request)
    })
}

/// Does something with the request of such a resolution.
fn with_request<T>(
    rows: Vec<BundleMessage>,
    subscriptions: &[Value],
    csvs: &[Value],
    broken: Option<&str>,
    act: impl FnOnce(&Request<'_>) -> T,
) -> T {
    let packages: BTreeMap<String, PackageMessage> = rows
        .iter()
        .map(|row| (row.package_name.clone(), PackageMessage::default()))
        .collect();
    let catalog = |name: &str, content| CatalogContent {
        name: name.to_owned(),
        namespace: "olm".to_owned(),
        priority: 0,
        content,
    };
    let mut catalogs = vec![catalog("a", Ok(Arc::new(EntryIndex::new(rows, &packages))))];
    catalogs.extend(broken.map(|error| catalog("b", Err(error.to_owned()))));
    let group = json!({"metadata": {"namespace": "n", "name": "g"}});
    act(&Request {
        namespace: "n",
        global_namespace: "olm",
        operator_groups: vec![&group],
        catalogs: &catalogs,
        subscriptions: subscriptions.iter().collect(),
        csvs: csvs.iter().collect(),
    })
}

/// The Subscriptions that move, and those that are refused.
fn outcome(resolved: &Resolved) -> (Vec<&str>, Vec<&str>) {
    let resolution = &resolved.resolution;
    (
        resolution.updated.values().map(String::as_str).collect(),
        resolution.refused.keys().map(String::as_str).collect(),
    )
}

#[test]
fn a_subscription_whose_package_or_channel_is_gone_stops_only_itself() {
    for (package, channel, missing) in [
        ("gone", "c", "in package gone"),
        ("kept", "old", "in channel old of package kept"),
    ] {
        let rows = [healthy("good"), healthy("kept")].concat();
        let installed = format!("{package}.v1");
        let subscriptions = [
            subscription("good", "c", "good.v1"),
            subscription(package, channel, &installed),
        ];
        let resolved = run(rows, &subscriptions, &[csv("good.v1"), csv(&installed)], None).unwrap();
        assert_eq!(outcome(&resolved), (vec!["good.v2"], vec![package]));
        let ResolveError::NotSatisfiable(clauses) = &resolved.resolution.refused[package] else {
            panic!("{:?}", resolved.resolution.refused)
        };
        let expected =
            format!("no operators found {missing} in the catalog referenced by subscription {package}");
        assert!(clauses.contains(&expected), "{clauses:?}");
    }
}

#[test]
fn a_broken_package_stops_only_its_own_subscription() {
    let two_heads = vec![bundle("bad", "v1", ""), bundle("bad", "v2", "")];
    let cycle = vec![
        bundle("bad", "v1", "bad.v2"),
        bundle("bad", "v2", "bad.v1"),
        bundle("bad", "v3", "bad.v1"),
    ];
    let unreadable = vec![with(bundle("bad", "v1", ""), "olm.constraint", "{}")];
    for broken in [two_heads, cycle, unreadable] {
        let rows = [healthy("good"), broken].concat();
        let subscriptions = [subscription("bad", "c", ""), subscription("good", "c", "good.v1")];
        let resolved = run(rows, &subscriptions, &[csv("good.v1")], None).unwrap();
        assert_eq!(outcome(&resolved), (vec!["good.v2"], vec!["bad"]));
        let error = &resolved.resolution.refused["bad"];
        assert!(matches!(error, ResolveError::Other(_)), "{error:?}");
    }
}

#[test]
fn what_needs_a_refused_package_is_refused_with_it() {
    let needing = with(bundle("needing", "v1", ""), "olm.gvk.required", API);
    let needed = with(bundle("needed", "v1", ""), "olm.gvk", API);
    let rows = [healthy("good"), vec![needing, needed]].concat();
    let subscriptions = [
        subscription("good", "c", "good.v1"),
        subscription("needed", "absent", ""),
        subscription("needing", "c", ""),
    ];
    let resolved = run(rows, &subscriptions, &[csv("good.v1")], None).unwrap();
    assert_eq!(outcome(&resolved), (vec!["good.v2"], vec!["needed", "needing"]));
}

#[test]
fn subscriptions_that_contradict_each_other_stop_all() {
    let provides = |package: &str| with(bundle(package, "v1", ""), "olm.gvk", API);
    let rows = [healthy("good"), vec![provides("one"), provides("two")]].concat();
    let subscriptions = [
        subscription("good", "c", "good.v1"),
        subscription("one", "c", ""),
        subscription("two", "c", ""),
    ];
    let result = run(rows, &subscriptions, &[csv("good.v1")], None);
    assert!(
        matches!(result, Err(ResolveError::NotSatisfiable(_))),
        "{result:?}"
    );
}

#[test]
fn a_subscription_to_a_catalog_that_cannot_be_read_stops_only_itself() {
    let mut other = subscription("other", "c", "other.v1");
    other["spec"]["source"] = "b".into();
    let subscriptions = [subscription("good", "c", "good.v1"), other.clone()];
    let csvs = [csv("good.v1"), csv("other.v1")];
    let resolved = run(healthy("good"), &subscriptions, &csvs, Some("down")).unwrap();
    assert_eq!(outcome(&resolved), (vec!["good.v2"], vec!["other"]));
    let down = ResolveError::Other("error using catalogsource olm/b: down".to_owned());
    assert_eq!(resolved.resolution.refused["other"], down);
    // A dependency could take what the other Subscription provides.
    let needing = with(bundle("needing", "v1", ""), "olm.gvk.required", API);
    let needed = with(bundle("needed", "v1", ""), "olm.gvk", API);
    let subscriptions = [subscription("needing", "c", ""), other];
    let result = run(vec![needing, needed], &subscriptions, &csvs, Some("down"));
    assert_eq!(result.map(|resolved| resolved.operators.len()), Err(down));
}

/// The clauses of a resolution that nothing satisfies.
fn clauses(result: Result<Resolved, ResolveError>) -> Vec<String> {
    match result {
        Err(ResolveError::NotSatisfiable(clauses)) => clauses,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_subscription_that_leads_to_no_operator_is_told_what_there_is() {
    let row = |package: &str, channel: &str, catalog: &str, starting: &str| {
        let mut subscription = subscription(package, channel, "");
        subscription["spec"]["source"] = catalog.into();
        subscription["spec"]["startingCSV"] = starting.into();
        subscription
    };
    for (subscription, expected) in [
        (row("good", "c", "z", ""), "the visible catalogs are olm/a"),
        (row("goood", "c", "a", ""), "the catalog has package good"),
        (
            row("else", "c", "a", ""),
            "`kubectl get packagemanifests -n n` lists the packages",
        ),
        (row("good", "old", "a", ""), "package good has the channels c"),
        (
            row("good", "c", "a", "good.v9"),
            "the newest version in channel c is good.v2",
        ),
    ] {
        let clauses = clauses(run(healthy("good"), &[subscription], &[], None));
        assert_eq!(clauses.last().map(String::as_str), Some(expected), "{clauses:?}");
    }
}

#[test]
fn a_version_without_a_subscription_is_named_with_the_command_that_deletes_it() {
    let mut lost = csv("good.v1");
    let package = json!({"properties": [{"type": "olm.package", "value": {"packageName": "good", "version": "1.0.0"}}]});
    lost["metadata"]["annotations"] = json!({crate::names::PROPERTIES_ANNOTATION: package.to_string()});
    let rows = healthy("good").into_iter();
    let property = r#"{"packageName": "good", "version": "1.0.0"}"#;
    let rows = rows.map(|row| with(row, "olm.package", property));
    let rows: Vec<BundleMessage> = rows.collect();
    let csvs = [lost];
    let mut moving = subscription("good", "c", "");
    moving["status"]["currentCSV"] = "good.v1".into();
    let transient = clauses(run(rows.clone(), &[moving], &csvs, None));
    assert!(
        !transient.iter().any(|clause| clause.contains("kubectl")),
        "{transient:?}"
    );
    let clauses = clauses(run(rows, &[subscription("good", "c", "")], &csvs, None));
    let exists = "clusterserviceversion good.v1 exists and is not referenced by a subscription";
    assert!(clauses.iter().any(|clause| clause == exists), "{clauses:?}");
    let expected =
        "to continue, run `kubectl delete csv good.v1 -n n`: subscription good installs the operator again";
    assert_eq!(clauses.last().map(String::as_str), Some(expected));
}

#[test]
fn a_requirement_that_nothing_meets_is_told_with_the_versions_that_exist() {
    let wanted = |value: &str| with(bundle("needing", "v1", ""), "olm.package.required", value);
    for (value, expected) in [
        (
            r#"{"packageName": "good", "versionRange": ">2.0.0"}"#,
            "the visible catalogs have package good in the versions 1.0.0",
        ),
        (
            r#"{"packageName": "none", "versionRange": ">2.0.0"}"#,
            "no visible catalog has an operator with package: none and with version in range: >2.0.0",
        ),
    ] {
        let rows = [healthy("good"), vec![wanted(value)]].concat();
        let clauses = clauses(run(rows, &[subscription("needing", "c", "")], &[], None));
        assert_eq!(clauses.last().map(String::as_str), Some(expected), "{clauses:?}");
    }
}

/// Resolves without the Subscriptions that need these bundles of catalog `a`.
fn run_without(
    rows: Vec<BundleMessage>,
    subscriptions: &[Value],
    csvs: &[Value],
    broken: Option<&str>,
    failed: &[&str],
) -> Option<Resolved> {
    let bundle = |name: &&str| BundleName {
        namespace: "olm".to_owned(),
        catalog: "a".to_owned(),
        name: (*name).to_owned(),
    };
    with_request(rows, subscriptions, csvs, broken, |request| {
        let whole = resolve_available(request).unwrap();
        without_bundles(request, &whole, &failed.iter().map(bundle).collect())
    })
}

#[test]
fn a_bundle_that_cannot_be_unpacked_stops_only_what_needs_it() {
    let needing = with(bundle("needing", "v1", ""), "olm.gvk.required", API);
    let needed = with(bundle("needed", "v1", ""), "olm.gvk", API);
    let rows = || {
        [
            healthy("good"),
            healthy("bad"),
            vec![needing.clone(), needed.clone()],
        ]
        .concat()
    };
    let good = subscription("good", "c", "good.v1");
    let csvs = [csv("good.v1"), csv("bad.v1")];
    let left_out = |resolved: &Resolved| {
        let names = resolved.left_out.iter();
        let names = names.map(|(name, bundle)| format!("{name}: {}", bundle.name));
        names.collect::<Vec<_>>()
    };
    for (other, failed, expected) in [
        (subscription("bad", "c", "bad.v1"), "bad.v2", "bad: bad.v2"),
        // What is needed is a dependency.
        (
            subscription("needing", "c", ""),
            "needed.v1",
            "needing: needed.v1",
        ),
    ] {
        let subscriptions = [other.clone(), good.clone()];
        let resolved = run_without(rows(), &subscriptions, &csvs[..], None, &[failed]).unwrap();
        assert_eq!(outcome(&resolved).0, ["good.v2"]);
        assert_eq!(left_out(&resolved), [expected]);
        let lookups = resolved
            .resolution
            .bundle_lookups
            .iter()
            .map(BundleName::of_lookup);
        assert_eq!(lookups.map(|bundle| bundle.name).collect::<Vec<_>>(), ["good.v2"]);
        // Nothing is left where all need it, or nothing fails.
        for (subscriptions, failed) in [(&subscriptions[..1], vec![failed]), (&subscriptions[..], vec![])] {
            assert!(run_without(rows(), subscriptions, &csvs, None, &failed).is_none());
        }
    }
}

#[test]
fn a_bundle_that_cannot_be_unpacked_and_a_refused_subscription_stop_only_themselves() {
    let rows = [healthy("good"), healthy("bad")].concat();
    let subscriptions = [
        subscription("bad", "c", "bad.v1"),
        subscription("gone", "c", "gone.v1"),
        subscription("good", "c", "good.v1"),
    ];
    let csvs = [csv("good.v1"), csv("bad.v1"), csv("gone.v1")];
    for broken in [None, Some("down")] {
        let resolved = run_without(rows.clone(), &subscriptions, &csvs, broken, &["bad.v2"]).unwrap();
        assert_eq!(outcome(&resolved), (vec!["good.v2"], vec!["gone"]));
        assert!(resolved.left_out.contains_key("bad"), "{:?}", resolved.left_out);
    }
}

#[test]
fn the_requirements_of_a_package_hold_for_a_plan_that_is_older_than_they() {
    let mut moved = subscription("good", "later", "");
    moved["spec"]["source"] = "elsewhere".into();
    moved["status"]["currentCSV"] = "good.v3".into();
    let mut other = subscription("other", "c", "");
    other["status"]["currentCSV"] = "odd.v1".into();
    let all = [moved, other];
    let asking = |package: Option<&str>, version: &str| -> Vec<String> {
        let package = package.map(|name| json!({"type": "olm.package", "value": {"packageName": name}}));
        let properties = json!({"properties": Vec::from_iter(package)});
        let lookup = json!({"identifier": version, "properties": properties.to_string()});
        let found = asking_later(&lookup, all.iter()).into_iter();
        found.map(|found| text(found, "/spec/name").to_owned()).collect()
    };
    assert_eq!(asking(Some("good"), "good.v2"), ["good"]);
    assert_eq!(asking(Some("odd"), "odd.v1"), ["other"]);
    assert_eq!(
        asking(Some("needed"), "needed.v1"),
        Vec::<String>::new(),
        "a dependency"
    );
    assert_eq!(asking(None, "good.v2"), ["good", "other"], "the closed side");
}
