use serde_json::json;

use super::*;
use crate::facts::ClassicObjects;
use crate::facts::tests::facts;

/// The blocked checks and those to acknowledge after a change of the facts.
fn found(choices: &Choices, change: impl FnOnce(&mut ClassicObjects)) -> Vec<(&'static str, Severity)> {
    let mut facts = facts();
    change(&mut facts);
    let case = Case {
        facts: &facts,
        subscription: &facts.subscriptions[0],
    };
    check(case, "postgres", choices)
        .iter()
        .map(|finding| (finding.check, finding.severity))
        .collect()
}

#[track_caller]
fn blocks(check: &'static str, change: impl FnOnce(&mut ClassicObjects)) {
    assert_eq!(found(&Choices::default(), change), [(check, Severity::Blocks)]);
}

#[track_caller]
fn asks(check: &'static str, change: impl Fn(&mut ClassicObjects)) {
    assert_eq!(
        found(&Choices::default(), &change),
        [(check, Severity::Acknowledge)]
    );
    let choices = Choices {
        acknowledged: [check.to_owned()].into(),
        ..Choices::default()
    };
    assert_eq!(found(&choices, &change), [(check, Severity::Acknowledged)]);
    let noted = found(&Choices::default(), |facts| {
        change(facts);
        let key = format!("{}{check}", migration::ACKNOWLEDGED);
        facts.subscriptions[0]["metadata"]["annotations"] = json!({ key: "true" });
    });
    assert_eq!(noted, [(check, Severity::Acknowledged)]);
}

#[test]
fn an_operator_at_rest_can_move() {
    assert_eq!(found(&Choices::default(), |_| ()), []);
}

#[test]
fn a_subscription_that_is_not_at_rest_is_blocked() {
    blocks("deletion", |facts| {
        facts.subscriptions[0]["metadata"]["deletionTimestamp"] = json!("now");
    });
    blocks("state", |facts| {
        facts.subscriptions[0]["status"]["state"] = json!("UpgradePending");
    });
    blocks("install-plan", |facts| {
        facts.plans[0]["status"]["phase"] = json!("RequiresApproval");
    });
    let made = |facts: &mut ClassicObjects, paused: bool| {
        let spec = olm_api::cluster_extension::ClusterExtensionSpec::default();
        let mut made = olm_api::ClusterExtension::new("postgres", spec);
        let annotations = made.metadata.annotations.get_or_insert_default();
        annotations.insert(
            migration::SUBSCRIPTION.to_owned(),
            "databases/postgres".to_owned(),
        );
        annotations.insert(user::PAUSED.to_owned(), paused.to_string());
        facts.extensions.push(made);
    };
    blocks("extension", |facts| made(facts, false));
    assert_eq!(found(&Choices::default(), |facts| made(facts, true)), []);
    // A dependency that its dependent has left behind moves like others.
    let generated = found(&Choices::default(), |facts| {
        facts.subscriptions[0]["metadata"]["annotations"] = json!({"olm.generated-by": "install-1"});
    });
    assert_eq!(generated, []);
    asks("channel", |facts| {
        facts.subscriptions[0]["spec"]["channel"] = json!("");
    });
}

#[test]
fn a_version_that_is_not_well_is_blocked() {
    blocks("version", |facts| {
        facts.versions[0]["status"]["phase"] = json!("Failed");
    });
    blocks("version", |facts| {
        facts.versions[0]["spec"]["version"] = json!("");
    });
    blocks("version", |facts| {
        facts.subscriptions[0]["status"]["installedCSV"] = json!("postgres.v9");
    });
    blocks("bundle-image", |facts| {
        facts.plans[0]["status"]["bundleLookups"] = json!([]);
    });
    blocks("operator-condition", |facts| {
        facts.conditions[0]["spec"]["overrides"] = json!([{"type": "Upgradeable"}]);
    });
}

/// An operator with a webhook whose certificate is valid until that time.
fn webhook(facts: &mut ClassicObjects, kind: &str, until: &str) {
    let end: jiff::Timestamp = until.parse().unwrap();
    let rotation = end - jiff::SignedDuration::from_hours(24);
    let version = &mut facts.versions[0];
    version["spec"]["install"]["spec"]["deployments"] = json!([{"name": "postgres", "spec": {}}]);
    version["spec"]["webhookdefinitions"] = json!([{"type": kind, "deploymentName": "postgres"}]);
    version["status"]["certsRotateAt"] = json!(rotation.to_string());
}

#[test]
fn webhooks_are_acknowledged_as_long_as_their_certificate_is_valid() {
    const VALIDATING: &str = "ValidatingAdmissionWebhook";
    asks("webhooks", |facts| {
        webhook(facts, VALIDATING, "2026-01-31T00:00:00Z");
    });
    blocks("webhooks", |facts| {
        webhook(facts, VALIDATING, "2026-01-30T23:59:59Z");
    });
    blocks("webhooks", |facts| {
        webhook(facts, VALIDATING, "2027-01-01T00:00:00Z");
        facts.versions[0]["status"]["certsRotateAt"] = json!("");
    });
    let mut facts = facts();
    webhook(&mut facts, VALIDATING, "2027-01-01T00:00:00Z");
    let case = Case {
        facts: &facts,
        subscription: &facts.subscriptions[0],
    };
    let found = check(case, "postgres", &Choices::default());
    assert!(found[0].message.contains("valid until 2027-01-01"), "{found:?}");
    assert!(found[0].fix.ends_with("--acknowledge webhooks"), "{found:?}");
    asks("aggregated-apis", |facts| {
        webhook(facts, VALIDATING, "2026-01-31T00:00:00Z");
        facts.versions[0]["spec"]["webhookdefinitions"] = json!([]);
        facts.versions[0]["spec"]["apiservicedefinitions"] = json!({"owned": [
            {"name": "rows", "group": "served.example", "version": "v1", "kind": "Row", "deploymentName": "postgres"},
        ]});
    });
}

#[test]
fn a_conversion_is_at_risk_where_the_go_implementation_has_written() {
    let written_by = |facts: &mut ClassicObjects, manager: &str| {
        webhook(facts, "ConversionWebhook", "2027-01-01T00:00:00Z");
        facts.certificates.push(json!({"metadata": {
            "name": "postgres-service-cert", "namespace": "databases", "managedFields": [{"manager": manager}],
        }}));
    };
    asks("webhooks", |facts| {
        written_by(facts, "olm.operatorframework.io/classic");
    });
    let by_go = found(&Choices::default(), |facts| written_by(facts, "olm"));
    assert_eq!(
        by_go,
        [
            ("webhooks", Severity::Acknowledge),
            ("conversion", Severity::Acknowledge)
        ]
    );
}

#[test]
fn rights_on_classic_apis_are_acknowledged_but_for_the_own_condition() {
    let rule = |resource: &str| json!([{"rules": [{"apiGroups": ["operators.coreos.com"], "resources": [resource], "verbs": ["get"]}]}]);
    asks("classic-apis", |facts| {
        facts.versions[0]["spec"]["install"]["spec"]["clusterPermissions"] = rule("subscriptions");
    });
    let own = found(&Choices::default(), |facts| {
        facts.versions[0]["spec"]["install"]["spec"]["permissions"] = rule("operatorconditions/status");
    });
    assert_eq!(own, []);
}

/// Another operator with these CustomResourceDefinitions and its Subscription.
fn other(facts: &mut ClassicObjects, definitions: &serde_json::Value) {
    let place = |name: &str| json!({"name": name, "namespace": "tools"});
    facts.versions.push(json!({
        "metadata": place("tools.v1"), "spec": {"customresourcedefinitions": definitions},
    }));
    facts.subscriptions.push(json!({
        "metadata": place("tools"), "spec": {"name": "tools"}, "status": {"installedCSV": "tools.v1"},
    }));
}

fn requires(package: &str) -> serde_json::Value {
    let properties =
        json!({"properties": [{"type": "olm.package.required", "value": {"packageName": package}}]});
    json!({"operatorframework.io/properties": properties.to_string()})
}

#[test]
fn operators_that_need_each_other_move_in_one_call() {
    let owned = json!([{"name": "postgres.example", "kind": "Postgres", "version": "v1"}]);
    let needed = |facts: &mut ClassicObjects| other(facts, &json!({"required": owned}));
    let needing = |facts: &mut ClassicObjects| {
        facts.versions[0]["spec"]["customresourcedefinitions"]["required"] =
            json!([{"name": "tools.example"}]);
        other(facts, &json!({"owned": [{"name": "tools.example"}]}));
    };
    let needing_package = |facts: &mut ClassicObjects| {
        facts.versions[0]["metadata"]["annotations"] = requires("tools");
        other(facts, &json!({}));
    };
    let needed_package = |facts: &mut ClassicObjects| {
        other(facts, &json!({}));
        facts.versions[1]["metadata"]["annotations"] = requires("postgres");
    };
    let together = Choices {
        together: ["databases/postgres", "tools/tools"].map(str::to_owned).into(),
        ..Choices::default()
    };
    let changes: [&dyn Fn(&mut ClassicObjects); 4] = [&needed, &needing, &needing_package, &needed_package];
    for change in changes {
        blocks("dependency", change);
        assert_eq!(found(&together, change), []);
    }
    blocks("dependency", |facts| {
        needed(facts);
        facts.subscriptions.truncate(1);
    });
    blocks("shared-definition", |facts| {
        other(facts, &json!({"owned": owned}));
    });
    let mut facts = facts();
    needed(&mut facts);
    let case = Case {
        facts: &facts,
        subscription: &facts.subscriptions[0],
    };
    let found = check(case, "postgres", &Choices::default());
    assert_eq!(
        (found[0].message.as_str(), found[0].fix.as_str()),
        (
            "ClusterServiceVersion tools/tools.v1 requires postgres.example of this operator",
            "move them in one call: `olm migrate postgres tools/tools -n databases`"
        )
    );
}

#[test]
fn a_requirement_that_nothing_meets_is_acknowledged() {
    asks("requirements", |facts| {
        facts.versions[0]["metadata"]["annotations"] = requires("tools");
    });
    let met = found(&Choices::default(), |facts| {
        facts.versions[0]["metadata"]["annotations"] = requires("tools");
        let mut made =
            olm_api::ClusterExtension::new("t", olm_api::cluster_extension::ClusterExtensionSpec::default());
        made.spec.source.catalog = Some(olm_api::cluster_extension::CatalogFilter {
            package_name: "tools".to_owned(),
            ..olm_api::cluster_extension::CatalogFilter::default()
        });
        facts.extensions.push(made);
    });
    assert_eq!(met, []);
}

#[test]
fn the_operator_group_is_the_only_one_and_has_one_target_or_all() {
    blocks("operator-group", |facts| facts.groups.clear());
    blocks("operator-group", |facts| {
        facts.groups.push(facts.groups[0].clone());
    });
    blocks("install-mode", |facts| {
        facts.groups[0]["status"]["namespaces"] = json!(["a", "b"]);
    });
    blocks("install-mode", |facts| {
        facts.groups[0]["status"]["namespaces"] = json!(["elsewhere"]);
    });
    let no_account = |facts: &mut ClassicObjects| facts.groups[0]["spec"]["serviceAccountName"] = json!("");
    asks("service-account", no_account);
    let choices = Choices {
        account: Some("installer".to_owned()),
        ..Choices::default()
    };
    assert_eq!(found(&choices, no_account), []);
}

#[test]
fn the_catalog_must_be_there_as_an_image_and_served() {
    blocks("catalog-source", |facts| facts.sources.clear());
    blocks("catalog-source", |facts| {
        facts.sources[0]["spec"]["sourceType"] = json!("configmap");
    });
    blocks("catalog", |facts| facts.catalogs.clear());
    blocks("catalog", |facts| facts.catalogs[0].status = None);
    let by_digest = found(&Choices::default(), |facts| {
        facts.sources[0]["spec"]["image"] = json!("r.example/databases@sha256:1");
    });
    assert_eq!(by_digest, []);
}

#[test]
fn name_and_package_are_free_or_of_the_subscription() {
    let extension = |name: &str, package: &str| {
        let mut made =
            olm_api::ClusterExtension::new(name, olm_api::cluster_extension::ClusterExtensionSpec::default());
        made.spec.source.catalog = Some(olm_api::cluster_extension::CatalogFilter {
            package_name: package.to_owned(),
            ..olm_api::cluster_extension::CatalogFilter::default()
        });
        made
    };
    blocks("name", |facts| {
        facts.extensions.push(extension("postgres", "caches"));
    });
    blocks("package", |facts| {
        facts.extensions.push(extension("mine", "postgres"));
    });
    let own = found(&Choices::default(), |facts| {
        let mut own = extension("postgres", "postgres");
        own.metadata.annotations = Some(
            [
                (migration::SUBSCRIPTION, "databases/postgres"),
                (user::PAUSED, "true"),
            ]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into(),
        );
        facts.extensions.push(own);
    });
    assert_eq!(own, []);
    let facts = facts();
    let case = Case {
        facts: &facts,
        subscription: &facts.subscriptions[0],
    };
    let long = check(case, &"p".repeat(53), &Choices::default());
    assert_eq!(long[0].check, "name");
}

#[test]
fn all_findings_come_at_once_and_what_blocks_comes_first() {
    let all = found(&Choices::default(), |facts| {
        facts.subscriptions[0]["spec"]["channel"] = json!("");
        facts.subscriptions[0]["status"]["state"] = json!("UpgradePending");
        facts.catalogs.clear();
    });
    assert_eq!(
        all,
        [
            ("state", Severity::Blocks),
            ("catalog", Severity::Blocks),
            ("channel", Severity::Acknowledge),
        ]
    );
}
