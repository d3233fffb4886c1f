use serde_json::json;

use super::*;
use crate::facts::ClassicObjects;
use crate::facts::tests::facts;

fn made(change: impl FnOnce(&mut ClassicObjects)) -> (Value, Option<Value>, Vec<String>) {
    let mut facts = facts();
    change(&mut facts);
    let case = Case {
        facts: &facts,
        subscription: &facts.subscriptions[0],
    };
    let made = extension(case, "postgres", &Choices::default(), &[]);
    let changes = changes(case, &made);
    let catalog = catalog(case).map(|catalog| serde_json::to_value(catalog).unwrap());
    let lines = changes
        .iter()
        .map(|change| format!("{} -> {}", change.from, change.to))
        .collect();
    (serde_json::to_value(made).unwrap(), catalog, lines)
}

#[test]
fn a_subscription_becomes_an_extension_of_the_same_package_channel_and_catalog() {
    let (extension, catalog, changes) = made(|_| ());
    assert_eq!(
        extension["spec"],
        json!({
            "namespace": "databases", "serviceAccount": {"name": "installer"},
            "source": {"sourceType": "Catalog", "catalog": {
                "packageName": "postgres", "channels": ["stable"], "upgradeConstraintPolicy": "CatalogProvided",
                "selector": {"matchLabels": {"olm.operatorframework.io/metadata.name": "databasesware"}},
            }},
        })
    );
    let annotations = &extension["metadata"]["annotations"];
    assert_eq!(
        annotations["olm.operatorframework.io/migrated-from-subscription"],
        "databases/postgres"
    );
    let backup: Value = serde_json::from_str(
        annotations["olm.operatorframework.io/migration-subscription-backup"]
            .as_str()
            .unwrap(),
    )
    .unwrap();
    assert_eq!(backup["channel"], "stable");
    assert_eq!(catalog, None);
    assert!(
        changes.contains(&"OperatorGroup group targets [] -> no watchNamespace: all namespaces".to_owned())
    );
}

#[test]
fn approval_targets_and_configuration_are_kept_and_what_is_dropped_is_said() {
    let (extension, _, changes) = made(|facts| {
        let spec = &mut facts.subscriptions[0]["spec"];
        spec["installPlanApproval"] = json!("Manual");
        spec["startingCSV"] = json!("postgres.v0");
        spec["config"] = json!({"selector": {}, "nodeSelector": {"a": "b"}});
        facts.groups[0]["status"]["namespaces"] = json!(["databases"]);
    });
    assert_eq!(extension["spec"]["source"]["catalog"]["version"], "1.0.0");
    assert_eq!(
        extension["spec"]["config"],
        json!({"configType": "Inline", "inline": {
            "watchNamespace": "databases", "deploymentConfig": {"nodeSelector": {"a": "b"}},
        }})
    );
    for line in [
        "spec.installPlanApproval Manual -> spec.source.catalog.version 1.0.0: pinned",
        "spec.config.selector -> dropped: OLM classic ignores it",
        "spec.startingCSV postgres.v0 -> dropped: a version is installed",
        "OperatorGroup group targets [databases] -> spec.config.inline.watchNamespace databases",
    ] {
        assert!(
            changes.iter().any(|change| change == line),
            "{line}: {changes:#?}"
        );
    }
}

#[test]
fn a_catalog_source_without_a_catalog_becomes_one() {
    let (extension, catalog, changes) = made(|facts| {
        facts.catalogs.clear();
        facts.sources[0]["spec"]["priority"] = json!(-100);
        facts.sources[0]["spec"]["secrets"] = json!(["s"]);
        facts.sources[0]["spec"]["updateStrategy"] = json!({"registryPoll": {"interval": "1h30m"}});
    });
    let catalog = catalog.unwrap();
    assert_eq!(catalog["metadata"]["name"], "databases");
    assert_eq!(
        catalog["metadata"]["annotations"]["olm.operatorframework.io/migrated-from-catalogsource"],
        "olm/databases"
    );
    assert_eq!(catalog["spec"]["priority"], -100);
    assert_eq!(
        catalog["spec"]["source"]["image"],
        json!({"ref": "r.example/databases:latest", "pollIntervalMinutes": 90})
    );
    assert_eq!(
        extension["spec"]["source"]["catalog"]["selector"]["matchLabels"]["olm.operatorframework.io/metadata.name"],
        "databases"
    );
    assert!(
        changes
            .iter()
            .any(|change| change.starts_with("CatalogSource olm/databases spec.secrets -> dropped"))
    );
    let (_, catalog, changes) = made(|facts| {
        facts.catalogs.clear();
        facts.sources[0]["spec"]["image"] = json!("r.example/databases@sha256:9");
        facts.sources[0]["spec"]["priority"] = json!(1_i64 << 40);
        facts.sources[0]["spec"]["updateStrategy"] = json!({"registryPoll": {"interval": "10m"}});
    });
    assert_eq!(
        catalog.unwrap()["spec"]["source"]["image"],
        json!({"ref": "r.example/databases@sha256:9"})
    );
    for dropped in ["spec.priority -> dropped", "registryPoll.interval 10m -> dropped"] {
        assert!(
            changes.iter().any(|change| change.contains(dropped)),
            "{changes:#?}"
        );
    }
}

#[test]
fn durations_become_whole_minutes() {
    for (given, expected) in [
        ("10m", Some(10)),
        ("45s", Some(1)),
        ("1h0m1s", Some(61)),
        ("1.5h", Some(90)),
        ("90000ms", Some(2)),
        ("10", None),
        ("m", None),
        ("10d", None),
        ("", None),
    ] {
        assert_eq!(minutes(given), expected, "{given}");
    }
}

#[test]
fn rules_for_signatures_are_kept() {
    let key = user::SIGNATURE_POLICY;
    let (extension, catalog, _) = made(|facts| {
        facts.catalogs.clear();
        facts.subscriptions[0]["metadata"]["annotations"] = json!({key: "[1]"});
        facts.sources[0]["metadata"]["annotations"] = json!({key: "[2]"});
    });
    assert_eq!(extension["metadata"]["annotations"][key], "[1]");
    assert_eq!(catalog.unwrap()["metadata"]["annotations"][key], "[2]");
}
