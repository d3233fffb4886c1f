//! Requirements over existing bundles and APIs.

use std::collections::HashSet;

use olm_constraint::cel::Budget;
use olm_constraint::{
    Constraint, Gvk, MAX_SIZE, ParseError, Present, Requirement, RequirementError, Subject,
};
use olm_fbc::Property;
use serde_json::{Value, json};

fn gvk(group: &str, version: &str, kind: &str) -> Gvk {
    Gvk {
        group: group.to_owned(),
        version: version.to_owned(),
        kind: kind.to_owned(),
    }
}

fn subject(package: &str, version: &str, apis: &[(&str, &str, &str)]) -> Subject {
    let mut list =
        vec![json!({"type": "olm.package", "value": {"packageName": package, "version": version}})];
    list.extend(apis.iter().map(|(group, version, kind)| {
        json!({"type": "olm.gvk", "value": {"group": group, "version": version, "kind": kind}})
    }));
    of_properties(package, version, &list)
}

fn of_properties(package: &str, version: &str, list: &[Value]) -> Subject {
    let property = |entry: &Value| Property::new(entry["type"].as_str().unwrap(), entry["value"].to_string());
    let name = format!("my-{package}");
    Subject::new(
        name,
        package,
        version.parse().ok(),
        list.iter().map(property).collect(),
    )
}

fn with_properties(package: &str, kinds: &[&str]) -> Subject {
    let list: Vec<Value> = kinds
        .iter()
        .map(|kind| json!({"type": kind, "value": true}))
        .collect();
    of_properties(package, "1.0.0", &list)
}

fn requirement(kind: &str, value: &Value) -> Requirement {
    Requirement::of_dependency(kind, &value.to_string()).unwrap()
}

/// `ok`, or the explanation.
fn outcome(requirement: &Requirement, subjects: &[Subject]) -> String {
    let served = HashSet::new();
    let present = Present::new(subjects, &served, Budget::default());
    let explanation = requirement.explain(&present);
    assert_eq!(requirement.holds(&present), Ok(explanation.is_none()));
    explanation.map_or("ok".to_owned(), |explanation| explanation.text)
}

#[track_caller]
fn check(requirement: &Requirement, subjects: &[Subject], expected: &str) {
    assert_eq!(outcome(requirement, subjects), expected);
}

#[test]
fn a_package_range_and_an_api() {
    let prometheus = requirement(
        "olm.package",
        &json!({"packageName": "prometheus", "version": ">0.27.0"}),
    );
    for (version, expected) in [
        ("0.27.1", "ok"),
        ("1.0.0", "ok"),
        (
            "0.27.0",
            "package prometheus (>0.27.0) is not installed, but 0.27.0 by my-prometheus",
        ),
    ] {
        check(&prometheus, &[subject("prometheus", version, &[])], expected);
    }
    check(&prometheus, &[], "package prometheus (>0.27.0) is not installed");
    let etcd = json!({"group": "etcd.database.coreos.com", "kind": "EtcdCluster", "version": "v1beta2"});
    let etcd = requirement("olm.gvk", &etcd);
    let provider = subject(
        "any",
        "0.0.1",
        &[("etcd.database.coreos.com", "v1beta2", "EtcdCluster")],
    );
    check(&etcd, &[provider], "ok");
    check(
        &etcd,
        &[subject(
            "other",
            "1.0.0",
            &[("etcd.database.coreos.com", "v1", "EtcdCluster")],
        )],
        "API etcd.database.coreos.com/v1beta2 EtcdCluster is not provided",
    );
}

#[test]
fn a_version_is_a_range_of_one() {
    let exact = requirement("olm.package", &json!({"packageName": "p", "version": "0.5.2"}));
    check(&exact, &[subject("p", "0.5.2", &[])], "ok");
    for other in ["0.5.1", "0.5.3", "1.0.0"] {
        assert_ne!(outcome(&exact, &[subject("p", other, &[])]), "ok", "{other}");
    }
    let above = requirement("olm.package", &json!({"packageName": "p", "version": ">0.5.1"}));
    check(&above, &[subject("p", "0.5.2", &[])], "ok");
    assert_ne!(outcome(&above, &[subject("p", "0.5.1", &[])]), "ok");
}

#[test]
fn a_rule_is_satisfied_by_one_bundle() {
    let rule = |rule: &str, message: &str| {
        requirement(
            "olm.constraint",
            &json!({"failureMessage": message, "cel": {"rule": rule}}),
        )
    };
    let certified = r#"properties.exists(p, p.type == "certified")"#;
    let one = rule(certified, r#"require to have "certified""#);
    check(&one, &[with_properties("a", &["certified"])], "ok");
    let [other, none] = [&["stable"][..], &[]].map(|kinds| with_properties("a", kinds));
    for subjects in [vec![other], vec![none], vec![]] {
        let text = outcome(&one, &subjects);
        assert!(text.starts_with(r#"require to have "certified": "#), "{text}");
    }
    let both = rule(
        &format!(r#"{certified} && properties.exists(p, p.type == "stable")"#),
        r#"require to have "certified" and "stable" properties"#,
    );
    check(&both, &[with_properties("a", &["certified", "stable"])], "ok");
    let [a, b] = [
        with_properties("a", &["certified"]),
        with_properties("b", &["stable"]),
    ];
    for subjects in [vec![a.clone()], vec![b.clone()], vec![a, b]] {
        let text = outcome(&both, &subjects);
        assert!(
            text.starts_with(r#"require to have "certified" and "stable" properties: "#),
            "{text}"
        );
    }
}

#[test]
fn all_is_a_conjunction_over_the_set() {
    let red = requirement(
        "olm.constraint",
        &json!({"failureMessage": "All are required for Red because...", "all": {"constraints": [
            {"failureMessage": "Package blue is needed for...", "package": {"name": "blue", "versionRange": ">=1.0.0"}},
            {"failureMessage": "GVK Green/v1 is needed for...",
             "gvk": {"group": "greens.example.com", "version": "v1", "kind": "Green"}},
        ]}}),
    );
    let green = subject("green", "1.0.0", &[("greens.example.com", "v1", "Green")]);
    check(&red, &[subject("blue", "1.0.0", &[]), green.clone()], "ok");
    check(
        &red,
        &[subject("blue", "0.9.0", &[]), green],
        "All are required for Red because...: Package blue is needed for...: package blue (>=1.0.0) is not installed, \
         but 0.9.0 by my-blue",
    );
    check(
        &red,
        &[subject("blue", "1.0.0", &[])],
        "All are required for Red because...: GVK Green/v1 is needed for...: API greens.example.com/v1 Green is not \
         provided",
    );
}

#[test]
fn any_is_a_disjunction() {
    let blue =
        |version: &str| json!({"gvk": {"group": "blues.example.com", "version": version, "kind": "Blue"}});
    let any = requirement(
        "olm.constraint",
        &json!({"failureMessage": "Any are required for Red because...",
            "any": {"constraints": [blue("v1beta1"), blue("v1beta2"), blue("v1")]}}),
    );
    check(
        &any,
        &[subject(
            "blue",
            "1.0.0",
            &[("blues.example.com", "v1beta2", "Blue")],
        )],
        "ok",
    );
    let text = outcome(
        &any,
        &[subject("blue", "1.0.0", &[("blues.example.com", "v2", "Blue")])],
    );
    assert!(
        text.starts_with("Any are required for Red because...: one of ("),
        "{text}"
    );
}

#[test]
fn not_excludes_present_bundles_and_literal_text_is_no_constraint() {
    let all = json!({"constraints": [
        {"package": {"name": "blue", "versionRange": ">=1.0.0"}},
        {"failureMessage": "Cannot be required for Red because...", "not": {"constraints": [
            {"gvk": {"group": "greens.example.com", "version": "v1alpha1", "kind": "greens"}},
        ]}},
    ]});
    let without = requirement("olm.constraint", &json!({"all": all}));
    let blue = subject("blue", "1.0.0", &[]);
    check(&without, std::slice::from_ref(&blue), "ok");
    check(
        &without,
        &[
            blue,
            subject("green", "1.0.0", &[("greens.example.com", "v1alpha1", "greens")]),
        ],
        "Cannot be required for Red because...: API greens.example.com/v1alpha1 greens must not be there, and is \
         provided by green my-green",
    );
    // The key `all` beside `value`: the value itself is null.
    let literal = Requirement::of_dependency("olm.constraint", "null");
    assert_eq!(literal.unwrap_err(), RequirementError::Nothing);
}

#[test]
fn compounds_nest() {
    let option = |range: &str, version: &str| {
        json!({"all": {"constraints": [
            {"package": {"name": "blue", "versionRange": range}},
            {"gvk": {"group": "blues.example.com", "version": version, "kind": "Blue"}},
        ]}})
    };
    let nested = requirement(
        "olm.constraint",
        &json!({"any": {"constraints": [option(">=1.0.0", "v1"), option("<1.0.0", "v1beta1")]}}),
    );
    let blue = |version: &str, api: &str| [subject("blue", version, &[("blues.example.com", api, "Blue")])];
    check(&nested, &blue("1.2.0", "v1"), "ok");
    check(&nested, &blue("0.9.0", "v1beta1"), "ok");
    assert_ne!(outcome(&nested, &blue("1.2.0", "v1beta1")), "ok");
}

#[test]
fn a_constraint_has_at_most_64_kib() {
    let text = |length: usize| {
        let frame = r#"{"failureMessage":"","gvk":{"version":"v1","kind":"K"}}"#.len();
        let message = "m".repeat(length - frame);
        format!(r#"{{"failureMessage":"{message}","gvk":{{"version":"v1","kind":"K"}}}}"#)
    };
    assert_eq!(text(MAX_SIZE).len(), 65_536);
    assert!(Requirement::of_dependency("olm.constraint", &text(MAX_SIZE)).is_ok());
    assert_eq!(
        Requirement::of_dependency("olm.constraint", &text(MAX_SIZE + 1)).unwrap_err(),
        RequirementError::Constraint(ParseError::TooLong)
    );
}

#[test]
fn a_constraint_has_exactly_one_key_and_nothing_unknown() {
    for (value, part) in [
        (json!({}), "The CEL field is missing"),
        (json!({"failureMessage": "m"}), "The CEL field is missing"),
        (
            json!({"gvk": {"version": "v1", "kind": "K"}, "package": {"name": "p", "version": "1.0.0"}}),
            "not package and gvk",
        ),
        (json!({"all": {"constraints": []}}), "all lists no constraints"),
        (json!({"not": {}}), "not lists no constraints"),
        (json!({"cel": {"rule": ""}}), "The CEL expression is missing"),
        (
            json!({"cel": {"rule": "1"}}),
            "Invalid CEL expression: cel expressions must have type Bool",
        ),
        (json!({"package": {"name": "p"}}), "Package version is empty"),
        (
            json!({"package": {"name": "p", "version": "^1"}}),
            "Invalid semver format version",
        ),
        (
            json!({"gvk": {"group": "g", "version": "v1"}}),
            "API Kind is empty",
        ),
        (
            json!({"none": {"constraints": []}}),
            "`none` is not a field of a constraint",
        ),
        (
            json!({"all": {"constraints": [{"gvk": {"plural": "x"}}]}}),
            "plural` is not a field of a constraint",
        ),
        (json!([]), "must be an object"),
    ] {
        let error = Requirement::of_dependency("olm.constraint", &value.to_string())
            .unwrap_err()
            .to_string();
        assert!(error.contains(part), "{value}: {error}");
    }
    for (kind, value, expected) in [
        ("olm.labels", "{}", "couldn't parse dependency of type olm.labels"),
        ("olm.label", "{}", "Label information is missing"),
        ("olm.label", r#""x""#, "Label information is missing"),
        ("olm.label", r#"{"label": ""}"#, "Label information is missing"),
    ] {
        let error = Requirement::of_dependency(kind, value).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
}

#[test]
fn a_label_is_asked_of_others() {
    let label = |text: &str| json!({"label": text}).to_string();
    let having = |value: String| {
        let properties = vec![Property::new("olm.label", value)];
        Subject::new("my-p", "p", None, properties)
    };
    // Any value of a label is treated as text.
    for text in ["blue", r#"a "quoted" \ one"#, "line\nand \u{1F980} \u{7}"] {
        let needs = Requirement::of_dependency("olm.label", &label(text)).unwrap();
        check(&needs, &[having(label(text))], "ok");
        for others in [
            vec![],
            vec![having(label("other"))],
            vec![having("\"blue\"".to_owned())],
        ] {
            assert!(outcome(&needs, &others).contains("is not installed"), "{text}");
        }
    }
}

#[test]
fn keys_have_any_letter_case_and_packages_either_spelling() {
    for text in [
        r#"{"PACKAGE": {"name": "p", "versionRange": "1.0.0"}}"#,
        r#"{"package": {"packageName": "p", "version": "1.0.0"}}"#,
        r#"{"package": {"packageName": "p", "versionRange": "1.0.0"}} trailing"#,
    ] {
        let package = Constraint::parse(text).unwrap().package.unwrap();
        assert_eq!(
            (package.package_name.as_str(), package.version_range.as_str()),
            ("p", "1.0.0"),
            "{text}"
        );
    }
}

#[test]
fn a_rule_that_cannot_be_decided_holds_neither_way() {
    let many = format!("[{}1]", "1, ".repeat(999));
    let rule = json!({"cel": {"rule": format!("{many}.all(a, {many}.all(b, a == b))")}});
    for value in [rule.clone(), json!({"not": {"constraints": [rule]}})] {
        let requirement = requirement("olm.constraint", &value);
        let served = HashSet::new();
        let there = [subject("p", "1.0.0", &[])];
        let present = Present::new(&there, &served, Budget::new(1000));
        assert!(requirement.holds(&present).is_err());
        let text = requirement.explain(&present).unwrap().text;
        assert!(text.contains("too many steps"), "{text}");
    }
}

#[test]
fn apis_of_the_cluster_count_like_those_of_bundles() {
    let served = HashSet::from([gvk("g", "v1", "K")]);
    let present = Present::new([], &served, Budget::default());
    let wants = requirement("olm.gvk", &json!({"group": "g", "version": "v1", "kind": "K"}));
    assert_eq!(wants.holds(&present), Ok(true));
    let excludes = json!({"not": {"constraints": [{"gvk": {"group": "g", "version": "v1", "kind": "K"}}]}});
    let text = requirement("olm.constraint", &excludes)
        .explain(&present)
        .unwrap()
        .text;
    assert!(text.contains("the cluster"), "{text}");
}
