//! The JSON Schema that is served, held against catalogs.

use olm_platform::listener::Limits;
use serde_json::{Value, json};

use crate::support::{request, start};

/// One of everything.
const CATALOG: &str = include_str!("../../../../test/schemathesis/catalog/catalog.yaml");

fn blobs() -> Vec<Value> {
    let blobs = olm_yaml::documents(CATALOG.as_bytes(), &olm_yaml::Limits::default());
    blobs
        .map(|blob| blob.and_then(olm_yaml::Document::into_value).unwrap())
        .collect()
}

#[tokio::test]
async fn the_json_schema_takes_catalogs_and_nothing_that_is_none() {
    let running = start(Limits::default()).await;
    let served = request(running.address, "GET", "/schemas/fbc.json", "").await;
    let schema: Value = serde_json::from_slice(&served.body).unwrap();
    jsonschema::meta::validate(&schema).unwrap_or_else(|error| panic!("{error}"));
    let validator = jsonschema::options().offline().build(&schema).unwrap();
    let faults = |blob: &Value| -> Vec<String> {
        let errors = validator.iter_errors(blob);
        errors
            .map(|error| error.instance_path().as_str().to_owned())
            .collect()
    };
    let blobs = blobs();
    for blob in &blobs {
        assert_eq!(faults(blob), [""; 0], "{blob}");
    }

    // Each change spoils an object that was good.
    let of = |schema: &str| {
        blobs
            .iter()
            .find(|blob| blob["schema"] == *schema)
            .unwrap()
            .clone()
    };
    let check = |schema: &str, place: &str, value: Option<Value>, expected: &str| {
        let mut blob = of(schema);
        let (parent, key) = place.rsplit_once('/').unwrap();
        let parent = blob.pointer_mut(parent).unwrap();
        match (parent, value) {
            (Value::Object(fields), Some(value)) => drop(fields.insert(key.to_owned(), value)),
            (Value::Object(fields), None) => drop(fields.remove(key)),
            (Value::Array(items), Some(value)) => items[key.parse::<usize>().unwrap()] = value,
            (parent, value) => panic!("{parent} {value:?}"),
        }
        let faults = faults(&blob);
        assert!(
            faults.iter().any(|fault| fault == expected),
            "{place}: {faults:?}"
        );
    };
    check("kitchen.example/recipe", "/schema", None, "");
    check("kitchen.example/recipe", "/schema", Some(json!(1)), "/schema");
    check(
        "kitchen.example/recipe",
        "/package",
        Some(json!(["kettle"])),
        "/package",
    );
    check("olm.package", "/name", Some(json!("")), "/name");
    check("olm.package", "/defaultChannel", None, "");
    check(
        "olm.package",
        "/icon/mediatype",
        Some(json!(7)),
        "/icon/mediatype",
    );
    check("olm.channel", "/package", None, "");
    check("olm.channel", "/entries", Some(json!({})), "/entries");
    check("olm.channel", "/entries/1/name", None, "/entries/1");
    check(
        "olm.channel",
        "/entries/1/replaces",
        Some(json!(true)),
        "/entries/1/replaces",
    );
    check(
        "olm.channel",
        "/entries/2/skips/0",
        Some(json!("")),
        "/entries/2/skips/0",
    );
    check("olm.bundle", "/image", Some(json!("")), "/image");
    check("olm.bundle", "/properties", Some(json!([])), "/properties");
    check(
        "olm.bundle",
        "/properties/0/value/version",
        None,
        "/properties/0/value",
    );
    check(
        "olm.bundle",
        "/properties/1/value/kind",
        Some(json!("")),
        "/properties/1/value/kind",
    );
    check(
        "olm.bundle",
        "/properties/1/value",
        Some(Value::Null),
        "/properties/1/value",
    );
    let twice = of("olm.bundle")["properties"][0].clone();
    check("olm.bundle", "/properties/1", Some(twice), "/properties");
    check("olm.deprecations", "/name", Some(json!("kettle")), "/name");
    check("olm.deprecations", "/entries", Some(json!([])), "/entries");
    check(
        "olm.deprecations",
        "/entries/0/message",
        Some(json!("")),
        "/entries/0/message",
    );
    check(
        "olm.deprecations",
        "/entries/0/reference/name",
        Some(json!("kettle")),
        "/entries/0/reference/name",
    );
    check(
        "olm.deprecations",
        "/entries/1/reference/name",
        None,
        "/entries/1/reference",
    );
    check(
        "olm.deprecations",
        "/entries/2/reference/schema",
        Some(json!("kitchen.example/recipe")),
        "/entries/2/reference/schema",
    );
}
