use serde_json::{Value, json};

use super::*;

/// Identity of a kind for users and other programs: the plural, short names, the scope, versions.
type Row = (
    &'static str,
    &'static [&'static str],
    &'static str,
    &'static [Served],
);

/// A version: its name, whether it is stored, columns, and the required fields of the object, its spec and its status.
type Served = (&'static str, bool, &'static [&'static str], Required);

type Required = [&'static [&'static str]; 3];

const TABLE: &[Row] = &[
    (
        "catalogsources",
        &["catsrc"],
        "Namespaced",
        &[(
            "v1alpha1",
            true,
            &["Display", "Type", "Publisher", "Age"],
            [&["metadata", "spec"], &["sourceType"], &[]],
        )],
    ),
    (
        "clusterserviceversions",
        &["csv", "csvs"],
        "Namespaced",
        &[(
            "v1alpha1",
            true,
            &["Display", "Version", "Release", "Replaces", "Phase"],
            [&["metadata", "spec"], &["displayName", "install"], &[]],
        )],
    ),
    (
        "installplans",
        &["ip"],
        "Namespaced",
        &[(
            "v1alpha1",
            true,
            &["CSV", "Approval", "Approved"],
            [
                &["metadata", "spec"],
                &["approval", "approved", "clusterServiceVersionNames"],
                &["catalogSources", "phase"],
            ],
        )],
    ),
    (
        "olmconfigs",
        &[],
        "Cluster",
        &[("v1", true, &[], [&["metadata"], &[], &[]])],
    ),
    (
        "operatorconditions",
        &["condition"],
        "Namespaced",
        &[
            ("v1", false, &[], [&["metadata"], &[], &[]]),
            ("v2", true, &[], [&["metadata"], &[], &[]]),
        ],
    ),
    (
        "operatorgroups",
        &["og"],
        "Namespaced",
        &[
            ("v1", true, &[], [&["metadata"], &[], &["lastUpdated"]]),
            ("v1alpha2", false, &[], [&["metadata"], &[], &["lastUpdated"]]),
        ],
    ),
    ("operators", &[], "Cluster", &[("v1", true, &[], [&[], &[], &[]])]),
    (
        "subscriptions",
        &["sub", "subs"],
        "Namespaced",
        &[(
            "v1alpha1",
            true,
            &["Package", "Source", "Channel"],
            [
                &["metadata", "spec"],
                &["name", "source", "sourceNamespace"],
                &["lastUpdated"],
            ],
        )],
    ),
];

fn texts(value: &Value) -> Vec<&str> {
    value
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect()
}

fn definition(plural: &str) -> Value {
    let found = all()
        .into_iter()
        .find(|found| found["spec"]["names"]["plural"] == plural);
    found.unwrap_or_else(|| panic!("there is no definition of {plural}"))
}

/// The schema at a path of fields of the newest version; `[]` is an item of a list.
fn schema(plural: &str, path: &str) -> Value {
    let definition = definition(plural);
    let mut at = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    for name in path.split('.') {
        at = match name {
            "[]" => &at["items"],
            _ => &at["properties"][name],
        };
    }
    at.clone()
}

#[test]
fn kinds_have_the_names_columns_and_required_fields_of_the_reference() {
    let found: Vec<Value> = all()
        .into_iter()
        .map(|found| found["spec"]["names"]["plural"].clone())
        .collect();
    let expected: Vec<Value> = TABLE.iter().map(|row| json!(row.0)).collect();
    assert_eq!(found, expected);
    for (plural, short_names, scope, versions) in TABLE {
        let found = definition(plural);
        assert_eq!(
            found["metadata"]["name"],
            format!("{plural}.operators.coreos.com")
        );
        let spec = &found["spec"];
        assert_eq!(spec["group"], "operators.coreos.com", "{plural}");
        assert_eq!(spec["scope"], *scope, "{plural}");
        assert_eq!(texts(&spec["names"]["shortNames"]), *short_names, "{plural}");
        assert_eq!(texts(&spec["names"]["categories"]), ["olm"], "{plural}");
        let served = spec["versions"].as_array().unwrap();
        assert_eq!(served.len(), versions.len(), "{plural}");
        for (found, (name, storage, columns, required)) in served.iter().zip(*versions) {
            assert_eq!(found["name"], *name, "{plural}");
            assert_eq!(found["served"], true, "{plural} {name}");
            assert_eq!(found["storage"], *storage, "{plural} {name}");
            assert_eq!(found["subresources"], json!({"status": {}}), "{plural} {name}");
            let shown = found["additionalPrinterColumns"].as_array().into_iter().flatten();
            let shown: Vec<&str> = shown.filter_map(|column| column["name"].as_str()).collect();
            assert_eq!(shown, *columns, "{plural} {name}");
            let root = &found["schema"]["openAPIV3Schema"];
            let places = [root, &root["properties"]["spec"], &root["properties"]["status"]];
            for (place, expected) in places.into_iter().zip(required) {
                let mut found = texts(&place["required"]);
                found.sort_unstable();
                assert_eq!(found, *expected, "{plural} {name}");
            }
        }
    }
}

/// Each path of a kind has this value of a keyword.
fn check(plural: &str, expected: &[(&str, &str, Value)]) {
    for (path, keyword, value) in expected {
        assert_eq!(
            &schema(plural, path)[*keyword],
            value,
            "{plural}: {keyword} of {path}"
        );
    }
}

#[test]
fn cluster_service_versions_have_the_bounds_and_defaults_of_the_reference() {
    const PORT: &str = "spec.webhookdefinitions.[].containerPort";
    let webhooks = json!([
        "ValidatingAdmissionWebhook",
        "MutatingAdmissionWebhook",
        "ConversionWebhook"
    ]);
    let pod = |rest: &str| format!("spec.install.spec.deployments.[].spec.template.{rest}");
    check(
        "clusterserviceversions",
        &[
            ("spec.release", "maxLength", json!(20)),
            ("spec.webhookdefinitions.[].type", "enum", webhooks),
            (PORT, "default", json!(443)),
            (PORT, "minimum", json!(1)),
            (PORT, "maximum", json!(65_535)),
            ("spec.installModes.[].type", "enum", Value::Null),
            (
                &pod("spec.containers.[].ports"),
                "x-kubernetes-list-map-keys",
                json!(["containerPort", "protocol"]),
            ),
            (
                &pod("spec.containers.[].ports.[].protocol"),
                "default",
                json!("TCP"),
            ),
            (
                &pod("metadata"),
                "x-kubernetes-preserve-unknown-fields",
                json!(true),
            ),
        ],
    );
    let rules = schema("clusterserviceversions", "spec.release")["x-kubernetes-validations"].clone();
    assert_eq!(
        rules[0]["rule"],
        r"self.matches('^[0-9A-Za-z-]+(\\.[0-9A-Za-z-]+)*$')"
    );
    assert_eq!(
        rules[1]["rule"],
        "!self.split('.').exists(x, x.matches('^0[0-9]+$'))"
    );
}

#[test]
fn other_kinds_have_the_bounds_and_defaults_of_the_reference() {
    check(
        "operatorgroups",
        &[
            ("spec", "default", json!({"upgradeStrategy": "Default"})),
            ("spec.targetNamespaces", "x-kubernetes-list-type", json!("set")),
            (
                "spec.upgradeStrategy",
                "enum",
                json!(["Default", "TechPreviewUnsafeFailForward"]),
            ),
        ],
    );
    check(
        "olmconfigs",
        &[(
            "spec.features.packageServerSyncInterval",
            "pattern",
            json!(r"^([0-9]+(\.[0-9]+)?(s|m|h))+$"),
        )],
    );
    check(
        "catalogsources",
        &[
            ("spec.sourceType", "enum", Value::Null),
            (
                "spec.grpcPodConfig.securityContextConfig",
                "enum",
                json!(["legacy", "restricted"]),
            ),
            (
                "spec.grpcPodConfig.memoryTarget",
                "x-kubernetes-int-or-string",
                json!(true),
            ),
            ("spec.priority", "format", Value::Null),
            ("status.conditions", "x-kubernetes-list-map-keys", json!(["type"])),
        ],
    );
    check(
        "subscriptions",
        &[
            ("spec.installPlanApproval", "enum", Value::Null),
            ("spec.installPlanApproval", "default", Value::Null),
            (
                "status.installplan",
                "required",
                json!(["apiVersion", "kind", "name", "uuid"]),
            ),
        ],
    );
}

#[test]
fn an_administrator_need_not_say_when_an_override_was_set() {
    let required = |field: &str| {
        let schema = schema("operatorconditions", &format!("spec.{field}.[]"));
        texts(&schema["required"]).contains(&"lastTransitionTime")
    };
    assert!(required("conditions"));
    assert!(!required("overrides"));
}

/// Checks the rules of structural schemas in each node.
fn structural(path: &str, schema: &Value) {
    let node = schema
        .as_object()
        .unwrap_or_else(|| panic!("{path} is not a schema"));
    assert!(!node.contains_key("$ref"), "{path}");
    let has_type = node.contains_key("type");
    assert!(
        has_type || node.contains_key("x-kubernetes-int-or-string"),
        "{path} has no type"
    );
    let properties = schema["properties"].as_object();
    for name in texts(&schema["required"]) {
        assert!(
            properties.is_some_and(|named| named.contains_key(name)),
            "{path}.{name} is required"
        );
    }
    for key in texts(&schema["x-kubernetes-list-map-keys"]) {
        let item = &schema["items"];
        let given =
            texts(&item["required"]).contains(&key) || item["properties"][key].get("default").is_some();
        assert!(given, "{path} has items without the key {key}");
    }
    for (name, member) in properties.into_iter().flatten() {
        structural(&format!("{path}.{name}"), member);
    }
    for word in ["items", "additionalProperties"] {
        if let Some(member) = node.get(word) {
            structural(&format!("{path}.{word}"), member);
        }
    }
}

#[test]
fn schemas_are_structural() {
    for definition in all() {
        for version in definition["spec"]["versions"].as_array().unwrap() {
            let path = format!("{} {}", definition["spec"]["names"]["plural"], version["name"]);
            structural(&path, &version["schema"]["openAPIV3Schema"]);
        }
    }
}

/// The last-applied annotation of client-side `kubectl apply` holds 256 KiB.
#[test]
fn every_definition_can_be_applied() {
    for definition in all() {
        let bytes = definition.to_string().len();
        assert!(
            bytes < 200_000,
            "{}: {bytes} bytes",
            definition["metadata"]["name"]
        );
    }
}

#[test]
fn committed_files_are_the_generated_ones() {
    for file in files() {
        let path = format!(
            "{}/../../manifests/classic/crds/{}",
            env!("CARGO_MANIFEST_DIR"),
            file.name
        );
        let committed = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(committed == file.yaml, "{} differs: run `make crds`", file.name);
    }
}
