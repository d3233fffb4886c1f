//! The conversion webhooks of a bundle.
#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod support;

use std::collections::BTreeMap;

use olm_bundle::{Request, prepare};
use serde_json::Value;
use support::{fixture, with};

/// The rendered definition or the refusal; `client` is its own conversion webhook.
fn rendered(client: &str) -> Result<Value, String> {
    let conversion = format!(
        "  scope: Namespaced\n  conversion:\n    strategy: Webhook\n    webhook:\n      conversionReviewVersions: \
         [v1]\n      clientConfig: {client}"
    );
    let files = with(
        fixture("backup"),
        "manifests/backups.crd.yaml",
        "  scope: Namespaced",
        &conversion,
    );
    let prepared = prepare(&files, &BTreeMap::new(), &Request::new("samples"));
    let objects = prepared
        .map_err(|refusal| refusal.to_string())?
        .rendered
        .into_objects();
    let definition = objects
        .into_iter()
        .find(|object| object["kind"] == "CustomResourceDefinition");
    Ok(definition.expect("the bundle has one"))
}

#[test]
fn a_conversion_webhook_of_a_definition_is_a_service_of_the_install_namespace() {
    for written in ["namespace: elsewhere, ", "namespace: samples, ", ""] {
        let client = format!("{{service: {{{written}name: converter, path: /convert}}}}");
        let definition = rendered(&client).expect("a Service may convert");
        let service = &definition["spec"]["conversion"]["webhook"]["clientConfig"]["service"];
        assert_eq!(service["namespace"], "samples", "{written}");
        assert_eq!(service["name"], "converter");
    }
}

#[test]
fn custom_resources_are_not_converted_at_a_url() {
    let refusal = rendered("{url: 'https://collector.example/convert'}").expect_err("it is refused");
    assert!(refusal.contains("has a conversion webhook at a URL"), "{refusal}");
}
