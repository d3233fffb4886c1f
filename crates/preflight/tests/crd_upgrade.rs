//! Safe and unsafe changes of custom resource definitions.

use olm_preflight::crd_upgrade::existing::schema_checks;
use olm_preflight::crd_upgrade::migration::{Migration, migration};
use olm_preflight::crd_upgrade::{Change, Check, Policy, add, check_all, compare, settle, summary, weigh};
use serde_json::{Value, json};

/// Versions as (name, served, storage, schema).
fn definition(versions: &[(&str, bool, bool, Value)], stored: &[&str]) -> Value {
    let versions: Vec<Value> = versions
        .iter()
        .map(|(name, served, storage, schema)| {
            json!({
                "name": name,
                "served": served,
                "storage": storage,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": schema}}},
            })
        })
        .collect();
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "greetings.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "versions": versions},
        "status": {"storedVersions": stored},
    })
}

fn found(old: &Value, new: &Value) -> Vec<String> {
    compare(old, new, &Policy::default())
        .iter()
        .map(ToString::to_string)
        .collect()
}

fn check(old: &Value, new: &Value, expected: &[&str]) {
    assert_eq!(found(old, new), expected);
}

fn same() -> Value {
    json!({"type": "object"})
}

/// A version is added and becomes the stored one.
#[test]
fn a_version_may_be_added() {
    let old = definition(&[("v1alpha1", true, true, same())], &["v1alpha1"]);
    let new = definition(
        &[("v1alpha1", true, false, same()), ("v1beta1", true, true, same())],
        &[],
    );
    check(&old, &new, &[]);
}

/// A served version is removed.
#[test]
fn a_served_version_may_not_go_at_once() {
    let old = definition(
        &[("v1alpha1", true, false, same()), ("v1beta1", true, true, same())],
        &["v1beta1"],
    );
    let new = definition(&[("v1beta1", true, true, same())], &[]);
    check(
        &old,
        &new,
        &[
            "servedVersionRemoval: served versions removed : [v1alpha1]; a version must stop being served before it goes",
        ],
    );
}

/// A version that is neither served nor stored any more is removed.
#[test]
fn a_version_that_is_not_stored_any_more_may_go() {
    let versions = [
        ("v1alpha1", false, false, same()),
        ("v1beta1", true, true, same()),
    ];
    let new = definition(&[("v1beta1", true, true, same())], &[]);
    check(
        &definition(&versions, &["v1alpha1", "v1beta1"]),
        &new,
        &["storedVersionRemoval: stored versions removed : [v1alpha1]"],
    );
    check(&definition(&versions, &["v1beta1"]), &new, &[]);
}

/// Passes objects, by the version that lists them, to the checks; returns the findings.
fn looked(old: &Value, new: &Value, objects: &[(&str, Value)]) -> Vec<String> {
    let mut checks = schema_checks(old, new);
    for version in checks.versions() {
        for (_, object) in objects.iter().filter(|(listed_by, _)| *listed_by == version) {
            checks.check(&version, object);
        }
    }
    checks.findings().iter().map(ToString::to_string).collect()
}

fn object(name: &str, spec: &Value) -> Value {
    json!({"metadata": {"name": name, "namespace": "n"}, "spec": spec})
}

/// A stored object does not fit the new schema.
#[test]
fn an_object_that_the_new_schema_refuses_holds_the_upgrade() {
    let x = |schema: Value| one_version(json!({"type": "object", "properties": {"x": schema}}));
    let (old, new) = (x(json!({"type": "string"})), x(json!({"type": "integer"})));
    let objects = [
        ("v1", object("a", &json!({"x": "a"}))),
        ("v1", object("b", &json!({}))),
    ];
    let expected = "v1: ^.spec.x: existingObjects: 1 existing object would be invalid, since the value is of type string, \
                not integer: n/a";
    assert_eq!(looked(&old, &new, &objects), [expected]);
    assert_eq!(looked(&old, &new, &[]), [""; 0]);
    // The finding remains if the change of the schema itself is allowed, unless it is allowed, too.
    for (policy, expected) in [
        ("type=Off", Some(expected)),
        ("type=Off,existingObjects=Off", None),
    ] {
        let policy = Policy::parse(policy).unwrap();
        let mut found = check_all([&new], &policy, |_| Ok(Some(&old)));
        let mut checks = schema_checks(&old, &new);
        for (_, object) in &objects {
            checks.check("v1", object);
        }
        add(&mut found, "greetings.example.com", checks.findings(), &policy);
        let (errors, _) = weigh(found, &policy);
        let expected = expected
            .map(|expected| format!("validating upgrade for CRD \"greetings.example.com\": {expected}"));
        assert_eq!(summary(&errors, 1000), expected.unwrap_or_default());
    }
}

#[test]
fn objects_are_read_only_where_a_schema_changes_and_old_refusals_are_not_reported() {
    let short = |length: u64| json!({"type": "object", "properties": {"x": {"maxLength": length}}});
    let wide = [("v1", object("a", &json!({"x": "123456"})))];
    assert_eq!(
        looked(&one_version(short(3)), &one_version(short(2)), &wide),
        [""; 0]
    );
    assert_eq!(
        looked(&one_version(short(9)), &one_version(short(2)), &wide).len(),
        1
    );
    assert_eq!(
        schema_checks(&one_version(short(3)), &one_version(short(3))).versions(),
        [""; 0]
    );
    // A new version shows the same objects, unless a webhook converts them.
    let old = definition(&[("v1", true, true, short(9))], &["v1"]);
    let mut new = definition(
        &[("v1", true, false, short(9)), ("v2", true, true, short(2))],
        &[],
    );
    let found = looked(&old, &new, &wide);
    assert!(
        found.len() == 1 && found[0].starts_with("v1 -> v2: ^.spec.x: existingObjects: "),
        "{found:?}"
    );
    new["spec"]["conversion"] = json!({"strategy": "Webhook"});
    assert_eq!(schema_checks(&old, &new).versions(), [""; 0]);
}

#[test]
fn findings_in_many_objects_are_counted_and_skipped_rules_are_named() {
    let schema = |more: Value| {
        let mut field = json!({"type": "string"});
        field
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        one_version(json!({"type": "object", "properties": {"x": field}}))
    };
    let old = schema(json!({}));
    let new = schema(json!({"enum": ["b"], "format": "date"}));
    let mut checks = schema_checks(&old, &new);
    assert_eq!(checks.unchecked(), [""; 0]);
    (0..5).for_each(|number| checks.check("v1", &object(&format!("o{number}"), &json!({"x": "a"}))));
    let texts: Vec<String> = checks
        .findings()
        .iter()
        .map(|finding| finding.message.clone())
        .collect();
    assert_eq!(
        texts,
        [
            "5 existing objects would be invalid, since the value is none of the values that are allowed: n/o0, n/o1, \
          n/o2 and 2 more"
        ]
    );
    assert_eq!(
        checks.unchecked(),
        ["v1: new formats and rules were not evaluated on existing objects: ^.spec.x"]
    );
}

#[test]
fn objects_that_take_too_much_are_named_and_hold_nothing() {
    let list = |items: Value| {
        one_version(json!({"type": "object", "properties": {"list": {"type": "array", "items": items}}}))
    };
    let item = json!({"type": "object", "properties": {"a": {"type": "string"}}});
    let mut filled = item.clone();
    filled["properties"]["a"]["default"] = json!("x".repeat(100_000));
    let mut checks = schema_checks(&list(item), &list(filled));
    for (name, length) in [("small", 1), ("large", 100_000)] {
        checks.check("v1", &object(name, &json!({"list": vec![json!({}); length]})));
    }
    assert_eq!(checks.findings(), []);
    assert_eq!(
        checks.unchecked(),
        ["v1: objects that exceed the limits were not validated against the schema: n/large"]
    );
}

/// The removal of a version, step by step.
#[test]
fn a_version_retires_in_steps() {
    let first = definition(&[("v1alpha1", true, true, same())], &["v1alpha1"]);
    let second = definition(
        &[
            ("v1alpha1", false, false, same()),
            ("v1beta1", true, true, same()),
        ],
        &["v1alpha1", "v1beta1"],
    );
    check(&first, &second, &[]);
    let third = definition(&[("v1beta1", true, true, same())], &[]);
    let Migration::Possible(rewrite) = migration(&second, &third) else {
        panic!("objects can be stored in the version that stays");
    };
    assert_eq!(
        (rewrite.served.as_str(), rewrite.kept.as_slice()),
        ("v1beta1", &["v1beta1".to_owned()][..])
    );
    let mut found = check_all([&third], &Policy::default(), |_| Ok(Some(&second)));
    assert_eq!(found.len(), 1);
    settle(&mut found, "greetings.example.com", Check::StoredVersionRemoval);
    assert_eq!(found, []);
    let migrated = definition(
        &[
            ("v1alpha1", false, false, same()),
            ("v1beta1", true, true, same()),
        ],
        &["v1beta1"],
    );
    check(&migrated, &third, &[]);
    assert_eq!(migration(&migrated, &third), Migration::Needless);
}

fn one_version(schema: Value) -> Value {
    definition(&[("v1", true, true, schema)], &["v1"])
}

#[test]
fn stricter_fields_are_reported_with_their_path() {
    let field = |schema: Value| one_version(json!({"type": "object", "properties": {"f": schema}}));
    let check = |old: Value, new: Value, expected: &[&str]| {
        let expected: Vec<String> = expected
            .iter()
            .map(|text| format!("v1: ^.spec.f: {text}"))
            .collect();
        assert_eq!(found(&field(old), &field(new)), expected);
    };
    check(
        json!({"type": "string"}),
        json!({"type": "string", "maxLength": 3, "description": "short"}),
        &["maxLength: maximum constraint added when there was none previously : 3"],
    );
    check(json!({"minimum": 1}), json!({"minimum": 1.0}), &[]);
    check(
        json!({"minimum": 1}),
        json!({"minimum": 1.5}),
        &["minimum: minimum increased : 1 -> 1.5"],
    );
    check(
        json!({"enum": ["a", "b"]}),
        json!({"enum": ["b", "c"]}),
        &["enum: allowed enum values removed : [\"a\"]"],
    );
    check(json!({"enum": ["a"]}), json!({"enum": ["b", "a"]}), &[]);
    check(
        json!({"required": ["a"]}),
        json!({"required": ["c", "b", "a"]}),
        &["required: new required fields: [b c]"],
    );
    check(
        json!({"default": {"a": null}}),
        json!({"default": {}}),
        &["default: default value changed : \"{\\\"a\\\":null}\" -> \"{}\""],
    );
    check(
        json!({"format": "date", "uniqueItems": false}),
        json!({"format": "date-time"}),
        &["unhandled: unhandled changes found (Format \"date\" -> \"date-time\")"],
    );
    check(
        json!({"x-kubernetes-preserve-unknown-fields": true}),
        json!({"x-kubernetes-preserve-unknown-fields": false}),
        &["unhandled: unhandled changes found (XPreserveUnknownFields &true -> &false)"],
    );
    check(
        json!({"maximum": 3_000_000}),
        json!({"maximum": 2_000_000.0}),
        &["maximum: maximum decreased : 3e+06 -> 2e+06"],
    );
    check(
        json!({"default": {"b": 1.0, "a": [2]}, "enum": [1.0, {"b": 1, "a": 2}]}),
        json!({"default": {"a": [2.0], "b": 1}, "enum": [1, {"a": 2, "b": 1}]}),
        &[],
    );
    // `not: {}` excludes everything, `not: null` nothing.
    check(
        json!({}),
        json!({"not": {}}),
        &["unhandled: unhandled changes found (Not nil -> {})"],
    );
    check(json!({}), json!({"not": null}), &[]);
    // The API server drops unknown fields.
    check(
        json!({"additionalProperties": {"type": "string"}}),
        json!({"additionalProperties": {"type": "string", "x-colour": "red"}}),
        &[],
    );
    // The value is the default.
    check(
        json!({"type": "array"}),
        json!({"type": "array", "x-kubernetes-list-type": "atomic"}),
        &[],
    );
    check(json!({"x-kubernetes-map-type": "granular"}), json!({}), &[]);
    check(
        json!({"anyOf": [{"type": "string", "description": "a"}]}),
        json!({"anyOf": [{"type": "string"}]}),
        &[],
    );
}

#[test]
fn a_replaced_alternative_is_no_second_fault() {
    let field = |alternatives: Value| one_version(json!({"properties": {"f": {"oneOf": alternatives}}}));
    check(
        &field(json!([{"type": "string"}, {"type": "integer"}])),
        &field(json!([{"type": "string"}, {"type": "number"}])),
        &[
            "v1: ^.spec.f: oneOf: allowed oneOf schemas removed: [{\"type\":\"integer\"}]",
            "v1: ^.spec.f.oneOf[1]: type: type changed : \"integer\" -> \"number\"",
        ],
    );
}

#[test]
fn fields_that_go_are_named_with_everything_below_them() {
    let old = one_version(json!({"properties": {"items": {"items": {"type": "string"}}}}));
    check(
        &old,
        &one_version(json!({})),
        &[
            "existingFieldRemoval: removed field : v1.^.spec.items",
            "existingFieldRemoval: removed field : v1.^.spec.items.items",
            "v1: ^.spec.items.items: type: type changed : \"string\" -> \"\"",
        ],
    );
}

#[test]
fn a_version_that_loses_its_schema_loses_its_fields() {
    let old = one_version(json!({"type": "object"}));
    let mut new = old.clone();
    new["spec"]["versions"][0]
        .as_object_mut()
        .unwrap()
        .remove("schema");
    check(
        &old,
        &new,
        &[
            "existingFieldRemoval: removed field : v1.^",
            "existingFieldRemoval: removed field : v1.^.spec",
            "v1: ^: type: type changed : \"object\" -> \"\"",
            "v1: ^.spec: type: type changed : \"object\" -> \"\"",
        ],
    );
    check(&new, &old, &[]);
}

#[test]
fn versions_served_side_by_side_are_compared_unless_a_webhook_converts() {
    let text = || json!({"properties": {"f": {"type": "string"}}});
    let number = || json!({"properties": {"f": {"type": "integer"}}});
    let old = definition(&[("v1", true, true, text())], &["v1"]);
    let mut new = definition(&[("v2", true, false, number()), ("v1", true, true, text())], &[]);
    let clash = "v1 -> v2: ^.spec.f: type: type changed : \"string\" -> \"integer\"";
    check(&old, &new, &[clash]);
    // A fault of the old version is not reported again.
    check(&new, &new, &[]);
    new["spec"]["conversion"] = json!({"strategy": "Webhook"});
    check(&old, &new, &[]);
}

#[test]
fn a_policy_turns_checks_off_and_lets_changes_pass() {
    let old = one_version(json!({"nullable": true, "pattern": "a", "description": "x"}));
    let new = one_version(json!({"pattern": "b", "description": "y"}));
    let with = |policy: &Policy| {
        compare(&old, &new, policy)
            .into_iter()
            .map(|finding| finding.check)
            .collect::<Vec<_>>()
    };
    assert_eq!(with(&Policy::default()), [Check::Pattern, Check::Nullable]);
    assert_eq!(
        with(&Policy::everything()),
        [Check::Pattern, Check::Nullable, Check::Description]
    );
    let mut lenient = Policy::default();
    lenient.off.insert(Check::Pattern);
    lenient.allowed.insert((Check::Nullable, Change::Removal));
    assert_eq!(with(&lenient), []);
}

#[test]
fn every_definition_among_the_objects_is_checked() {
    let old = one_version(json!({"type": "string"}));
    let new = one_version(json!({"type": "integer"}));
    let mut unknown = new.clone();
    unknown["metadata"]["name"] = json!("backups.example.com");
    let mut fresh = new.clone();
    fresh["metadata"]["name"] = json!("memcacheds.example.com");
    let other =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "greetings.example.com"}});
    let found = check_all(
        &[other, new, unknown, fresh],
        &Policy::default(),
        |name| match name {
            "greetings.example.com" => Ok(Some(&old)),
            "backups.example.com" => Err("forbidden".to_owned()),
            _ => Ok(None),
        },
    );
    let texts: Vec<String> = found.iter().map(ToString::to_string).collect();
    assert_eq!(
        texts,
        [
            "validating upgrade for CRD \"greetings.example.com\": v1: ^.spec: type: type changed : \"string\" -> \
             \"integer\"",
            "getting existing resource for CRD \"backups.example.com\": forbidden",
        ]
    );
}

#[test]
fn a_warning_does_not_stop_a_change_and_a_long_report_is_counted() {
    let old = one_version(json!({"nullable": true, "pattern": "a"}));
    let new = one_version(json!({"pattern": "b"}));
    let policy = Policy::parse("pattern=Warn").unwrap();
    let found = check_all(std::slice::from_ref(&new), &policy, |_| Ok(Some(&old)));
    let whole = summary(&found, 1000);
    assert_eq!(
        whole,
        "validating upgrade for CRD \"greetings.example.com\": v1: ^.spec: pattern: pattern changed : \"a\" -> \"b\"\n\
         v1: ^.spec: nullable: nullable removed : true -> false"
    );
    let short = summary(&found, 100);
    assert_eq!(short.lines().last(), Some("and 1 more"), "{short}");
    let (errors, warnings) = weigh(found, &policy);
    assert!(summary(&errors, 1000).contains("nullable") && !summary(&errors, 1000).contains("pattern"));
    assert!(summary(&warnings, 1000).contains("pattern") && !summary(&warnings, 1000).contains("nullable"));
}

mod properties {
    use super::*;
    use proptest::prelude::*;

    const KEYWORDS: &[&str] = &[
        "type",
        "properties",
        "items",
        "additionalProperties",
        "oneOf",
        "anyOf",
        "enum",
        "default",
        "required",
        "minimum",
        "maxLength",
        "nullable",
        "pattern",
        "description",
        "format",
        "x-kubernetes-list-type",
    ];

    fn schema() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            (0..9_i64).prop_map(Value::from),
            "[a-z]{0,3}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 48, 6, move |inner| {
            let fields = prop::collection::vec((prop::sample::select(KEYWORDS), inner.clone()), 0..6);
            prop_oneof![
                prop::collection::vec(inner, 0..4).prop_map(Value::from),
                fields.prop_map(|fields| fields
                    .into_iter()
                    .map(|(key, value)| (key.to_owned(), value))
                    .collect()),
            ]
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn nothing_is_reported_of_a_definition_that_stays(schema in schema()) {
            let definition = one_version(schema);
            prop_assert_eq!(compare(&definition, &definition, &Policy::everything()), []);
        }

        #[test]
        fn any_two_schemas_are_compared_in_one_order(old in schema(), new in schema()) {
            let (old, new) = (one_version(old), one_version(new));
            prop_assert_eq!(found(&old, &new), found(&old, &new));
        }
    }
}
