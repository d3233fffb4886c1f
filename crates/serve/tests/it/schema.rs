//! The served JSON Schema, compared with catalogs.

use jsonschema::Validator;
use olm_platform::listener::Limits;
use serde_json::{Value, json};

use crate::support::{request, start};

/// A catalog with every kind of blob.
const CATALOG: &str = include_str!("../../../../test/schemathesis/catalog/catalog.yaml");

/// The served schema, and the catalog.
struct Held {
    validator: Validator,
    blobs: Vec<Value>,
}

impl Held {
    async fn new() -> Self {
        let running = start(Limits::default()).await;
        let served = request(running.address, "GET", "/schemas/fbc.json", "").await;
        let schema: Value = serde_json::from_slice(&served.body).unwrap();
        jsonschema::meta::validate(&schema).unwrap_or_else(|error| panic!("{error}"));
        let blobs = olm_yaml::documents(CATALOG.as_bytes(), &olm_yaml::Limits::default());
        Self {
            validator: jsonschema::options().offline().build(&schema).unwrap(),
            blobs: blobs
                .map(|blob| blob.and_then(olm_yaml::Document::into_value).unwrap())
                .collect(),
        }
    }

    /// The places of the faults in an object.
    fn faults(&self, blob: &Value) -> Vec<String> {
        let errors = self.validator.iter_errors(blob);
        errors
            .map(|error| error.instance_path().as_str().to_owned())
            .collect()
    }

    fn of(&self, schema: &str) -> Value {
        let blob = self.blobs.iter().find(|blob| blob["schema"] == *schema);
        blob.unwrap().clone()
    }

    /// Checks that a valid blob becomes invalid with another value at a place, or none.
    fn check(&self, schema: &str, place: &str, value: Option<Value>, expected: &str) {
        let mut blob = self.of(schema);
        let (parent, key) = place.rsplit_once('/').unwrap();
        match (blob.pointer_mut(parent).unwrap(), value) {
            (Value::Object(fields), Some(value)) => drop(fields.insert(key.to_owned(), value)),
            (Value::Object(fields), None) => drop(fields.remove(key)),
            (Value::Array(items), Some(value)) => items[key.parse::<usize>().unwrap()] = value,
            (parent, value) => panic!("{parent} {value:?}"),
        }
        let faults = self.faults(&blob);
        assert!(
            faults.iter().any(|fault| fault == expected),
            "{place}: {faults:?}"
        );
    }
}

#[tokio::test]
async fn the_json_schema_takes_catalogs() {
    let held = Held::new().await;
    for blob in &held.blobs {
        assert_eq!(held.faults(blob), [""; 0], "{blob}");
    }
}

#[tokio::test]
async fn the_json_schema_refuses_packages_and_channels_that_are_none() {
    let held = Held::new().await;
    let other = |place: &str, value: Option<Value>, at: &str| {
        held.check("samples.example/guide", place, value, at);
    };
    other("/schema", None, "");
    other("/schema", Some(json!(1)), "/schema");
    other("/package", Some(json!(["backup"])), "/package");
    let package = |place: &str, value: Option<Value>, at: &str| held.check("olm.package", place, value, at);
    package("/name", Some(json!("")), "/name");
    package("/defaultChannel", None, "");
    package("/icon/mediatype", Some(json!(7)), "/icon/mediatype");
    let channel = |place: &str, value: Option<Value>, at: &str| held.check("olm.channel", place, value, at);
    channel("/package", None, "");
    channel("/entries", Some(json!({})), "/entries");
    channel("/entries/1/name", None, "/entries/1");
    channel("/entries/1/replaces", Some(json!(true)), "/entries/1/replaces");
    channel("/entries/2/skips/0", Some(json!("")), "/entries/2/skips/0");
}

#[tokio::test]
async fn the_json_schema_refuses_bundles_and_deprecations_that_are_none() {
    let held = Held::new().await;
    let bundle = |place: &str, value: Option<Value>, at: &str| held.check("olm.bundle", place, value, at);
    bundle("/image", Some(json!("")), "/image");
    bundle("/properties", Some(json!([])), "/properties");
    bundle("/properties/0/value/version", None, "/properties/0/value");
    let kind = "/properties/1/value/kind";
    bundle(kind, Some(json!("")), kind);
    bundle("/properties/1/value", Some(Value::Null), "/properties/1/value");
    let twice = held.of("olm.bundle")["properties"][0].clone();
    bundle("/properties/1", Some(twice), "/properties");
    let deprecations =
        |place: &str, value: Option<Value>, at: &str| held.check("olm.deprecations", place, value, at);
    deprecations("/name", Some(json!("backup")), "/name");
    deprecations("/entries", Some(json!([])), "/entries");
    deprecations("/entries/0/message", Some(json!("")), "/entries/0/message");
    let name = "/entries/0/reference/name";
    deprecations(name, Some(json!("backup")), name);
    deprecations("/entries/1/reference/name", None, "/entries/1/reference");
    let schema = "/entries/2/reference/schema";
    deprecations(schema, Some(json!("samples.example/guide")), schema);
}
