use olm_api::cluster_extension::BundleMetadata;
use olm_api::names::annotation;

use olm_api::cluster_object_set::CollisionProtection;

use super::*;

fn bundle(version: &str) -> BundleIdentity {
    BundleIdentity {
        package: "greeter".to_owned(),
        metadata: BundleMetadata {
            name: format!("greeter.v{version}"),
            version: version.to_owned(),
            release: None,
        },
        image: format!("registry.example/greeter@sha256:{version}"),
    }
}

fn map(name: &str, value: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "n"},
        "data": {"key": value},
    })
}

fn definition(required: &[&str]) -> Value {
    let schema = json!({"type": "object", "properties": {"a": {"type": "string"}}, "required": required});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "greetings.x.io"},
        "spec": {"group": "x.io", "names": {"plural": "greetings", "kind": "Greeting"}, "versions": [
            {"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]},
    })
}

fn grant(verb: &str) -> [Value; 2] {
    let metadata = json!({"name": "r"});
    [
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": metadata,
            "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": [verb]}],
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": metadata,
            "roleRef": {"kind": "ClusterRole", "name": "r"},
            "subjects": [{"kind": "ServiceAccount", "name": "op", "namespace": "n"}],
        }),
    ]
}

fn deployment(image: &str) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "op", "namespace": "n"},
        "spec": {"template": {"spec": {"containers": [{"name": "manager", "image": image}]}}},
    })
}

fn old() -> Vec<Value> {
    let [role, binding] = grant("get");
    Vec::from([
        map("kept", "a"),
        map("changed", "a"),
        map("old", "a"),
        definition(&[]),
        role,
        binding,
        deployment("op:1"),
    ])
}

fn new() -> Vec<Value> {
    let [role, binding] = grant("list");
    Vec::from([
        map("kept", "a"),
        map("changed", "b"),
        map("new", "a"),
        definition(&["a"]),
        role,
        binding,
        deployment("op:2"),
    ])
}

struct Case {
    account: &'static str,
    wanted: BundleIdentity,
    before: Vec<Value>,
    after: Vec<Value>,
    uninstall: Uninstall,
    adopt: CollisionProtection,
}

impl Default for Case {
    fn default() -> Self {
        Self {
            account: "n/installer",
            wanted: bundle("2.0.0"),
            before: old(),
            after: new(),
            uninstall: Uninstall::Delete,
            adopt: CollisionProtection::Prevent,
        }
    }
}

fn plan(case: &Case) -> ChangePlan {
    let (before, after): (Vec<_>, Vec<_>) = (case.before.iter().collect(), case.after.iter().collect());
    ChangePlan::new(&Change {
        extension: "ext",
        account: case.account,
        installed_account: Some("n/installer"),
        installed: Some(&bundle("1.0.0")),
        wanted: &case.wanted,
        catalog: "catalog",
        passed: &["1.1.0".to_owned()],
        uninstall: case.uninstall,
        adopt: case.adopt,
        before: &before,
        after: &after,
        needs: None,
    })
}

#[test]
fn a_plan_holds_everything_that_changes() {
    let plan = plan(&Case::default());
    let shown = serde_json::to_value(&plan).unwrap();
    let at = |pointer: &str| shown.pointer(pointer).cloned().unwrap_or_default();
    assert_eq!(at("/installed/version"), "1.0.0");
    assert_eq!(at("/wanted/image"), "registry.example/greeter@sha256:2.0.0");
    assert_eq!(at("/passed"), json!(["1.1.0"]));
    let name = |name: &str| json!({"kind": "ConfigMap", "namespace": "n", "name": name});
    assert_eq!(at("/objects/added/0/id"), name("new"));
    assert_eq!(at("/objects/added/0/object/data"), json!({"key": "a"}));
    assert_eq!(at("/objects/removed"), json!([name("old")]));
    assert_eq!(
        (at("/objects/unchanged"), at("/objects/left")),
        (json!(2), json!([]))
    );
    let changed: Vec<(String, String)> = plan
        .objects
        .changed
        .iter()
        .flat_map(|object| {
            object
                .fields
                .iter()
                .map(|field| (object.id.0.name.clone(), field.path.to_string()))
        })
        .collect();
    let expected = [
        ("changed", "data.key"),
        (
            "greetings.x.io",
            "spec.versions[name=v1].schema.openAPIV3Schema.required",
        ),
        ("op", "spec.template.spec.containers[name=manager].image"),
        ("r", "rules[0].verbs[0]"),
    ];
    let mut expected = expected.map(|(name, path)| (name.to_owned(), path.to_owned()));
    let mut changed = changed;
    changed.sort();
    expected.sort();
    assert_eq!(changed, expected);
    assert_eq!(at("/rights/gained/0/rules/0/verbs"), json!(["list"]));
    assert_eq!(at("/rights/lost/0/rules/0/verbs"), json!(["get"]));
    assert_eq!(plan.definitions_class, Class::Breaking);
    assert_eq!(
        at("/images"),
        json!({"added": ["op:2"], "removed": ["op:1"], "kept": []})
    );
    assert!(!plan.is_empty());
}

#[test]
fn the_changes_lead_from_the_old_objects_to_the_new_ones() {
    let case = Case::default();
    let (before, after): (Vec<_>, Vec<_>) = (case.before.iter().collect(), case.after.iter().collect());
    assert_eq!(plan(&case).apply(&before), all_comparable(&after));
}

#[test]
fn objects_that_the_extension_leaves_are_not_removed() {
    let greeting =
        json!({"apiVersion": "x.io/v1", "kind": "Greeting", "metadata": {"name": "p", "namespace": "n"}});
    let names = |list: &[ObjectName]| -> Vec<String> { list.iter().map(|id| id.0.name.clone()).collect() };
    for (uninstall, removed, left, class) in [
        (
            Uninstall::Delete,
            &["old", "greetings.x.io", "p"][..],
            &[][..],
            Class::Breaking,
        ),
        (
            Uninstall::KeepCrds,
            &["old"],
            &["greetings.x.io", "p"],
            Class::Safe,
        ),
        (
            Uninstall::Orphan,
            &[],
            &["old", "greetings.x.io", "p"],
            Class::Safe,
        ),
    ] {
        let plan = plan(&Case {
            before: Vec::from([map("old", "a"), definition(&[]), greeting.clone()]),
            after: Vec::new(),
            uninstall,
            ..Case::default()
        });
        let found = (names(&plan.objects.removed), names(&plan.objects.left));
        assert_eq!(
            found,
            (
                removed.iter().map(ToString::to_string).collect(),
                left.iter().map(ToString::to_string).collect()
            )
        );
        assert_eq!(plan.definitions_class, class);
    }
}

#[test]
fn a_secret_is_planned_without_its_values() {
    let secret = |name: &str, value: &str| {
        json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": "n"},
            "stringData": {"password": value},
        })
    };
    let plan = plan(&Case {
        before: Vec::from([secret("a", "hunter1")]),
        after: Vec::from([secret("a", "hunter2"), secret("b", "hunter3")]),
        ..Case::default()
    });
    let text = serde_json::to_string(&plan).unwrap();
    assert!(
        !text.contains("hunter") && text.contains("stringData.password"),
        "{text}"
    );
}

#[test]
fn the_digest_stays_whatever_the_order_is_and_whatever_a_cluster_adds() {
    let expected = plan(&Case::default()).digest;
    let mut before = old();
    before.reverse();
    let mut after = new();
    after.rotate_left(3);
    for object in before.iter_mut().chain(&mut after) {
        object["status"] = json!({"phase": "Active"});
        object["metadata"]["uid"] = json!("uid");
        object["metadata"]["resourceVersion"] = json!("7");
        object["metadata"]["managedFields"] = json!([{}]);
        object["metadata"]["annotations"] = json!({annotation::LAST_APPLIED: "x"});
    }
    // Absent annotations become empty ones.
    let empty = |mut objects: Vec<Value>| {
        for object in &mut objects {
            object["metadata"]["annotations"] = json!({});
        }
        objects
    };
    let with_annotations = plan(&Case {
        before: empty(old()),
        after: empty(new()),
        ..Case::default()
    });
    let mut found = plan(&Case {
        before,
        after,
        ..Case::default()
    });
    assert_eq!(found.digest, with_annotations.digest);
    found.count(&BTreeMap::from([("greetings.x.io".to_owned(), 7)]));
    found.observed.findings.push("something".to_owned());
    found.observed.missing_rights = Some(Vec::new());
    found.passed.clear();
    assert_eq!(found.definitions.first().and_then(|one| one.objects), Some(7));
    assert_eq!(found.digest(), with_annotations.digest);
    assert_eq!(plan(&Case::default()).digest, expected);
    assert!(
        expected.starts_with("sha256:") && expected.len() == 71,
        "{expected}"
    );
}

#[test]
fn each_input_changes_the_digest() {
    type Edit<T> = (&'static str, fn(&mut T));
    let known = plan(&Case::default());
    let with = |change: fn(&mut Case)| {
        let mut case = Case::default();
        change(&mut case);
        plan(&case).digest
    };
    let cases: [Edit<Case>; 10] = [
        ("uninstall", |case| case.uninstall = Uninstall::Orphan),
        ("adopt", |case| case.adopt = CollisionProtection::None),
        ("account", |case| case.account = "n/other"),
        ("image", |case| case.wanted.image.push('0')),
        ("version", |case| case.wanted.metadata.version.push('0')),
        ("release", |case| {
            case.wanted.metadata.release = Some("1".to_owned());
        }),
        ("old object", |case| case.before[1]["data"]["key"] = json!("c")),
        ("old object gone", |case| drop(case.before.remove(0))),
        ("new object", |case| case.after[0]["data"]["key"] = json!("c")),
        ("new label", |case| {
            case.after[0]["metadata"]["labels"] = json!({"a": "b"});
        }),
    ];
    for (what, change) in cases {
        assert_ne!(with(change), known.digest, "{what}");
    }
    let edited: [Edit<ChangePlan>; 5] = [
        ("gained", |plan| plan.rights.gained.clear()),
        ("lost", |plan| plan.rights.lost.clear()),
        ("images", |plan| plan.images.added.clear()),
        ("class", |plan| plan.definitions_class = Class::Safe),
        ("content", |plan| plan.content.before.clear()),
    ];
    for (what, edit) in edited {
        let mut plan = known.clone();
        edit(&mut plan);
        assert_ne!(plan.digest(), known.digest, "{what}");
    }
}

#[test]
fn the_same_bundle_with_the_same_objects_changes_nothing() {
    let same = Case {
        wanted: bundle("1.0.0"),
        before: new(),
        ..Case::default()
    };
    assert!(plan(&same).is_empty());
    for other in [
        Case {
            wanted: bundle("2.0.0"),
            before: new(),
            ..Case::default()
        },
        Case {
            account: "n/other",
            wanted: bundle("1.0.0"),
            before: new(),
            ..Case::default()
        },
    ] {
        assert!(!plan(&other).is_empty());
    }
}
