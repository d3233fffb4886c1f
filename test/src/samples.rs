//! The project's own sample operator `greeter` as bundles and as a catalog, in several versions with an update graph.
//!
//! `test/samples/greeter` holds the files; here the version and the images are put in.

use std::collections::BTreeMap;

use serde_json::{Value, json};

const CSV: &str = include_str!("../samples/greeter/csv.yaml");
const CRD: &str = include_str!("../samples/greeter/crd.yaml");
const ANNOTATIONS: &str = include_str!("../samples/greeter/annotations.yaml");

/// The field that version 1.1.0 adds to the custom resource.
const SALUTATION: &str = "                salutation:
                  type: string
                  description: What stands before the name; `Hello` when absent.
                  maxLength: 100";

/// The validating webhook that version 1.2.0 adds.
const WEBHOOKS: &str = "  webhookdefinitions:
    - type: ValidatingAdmissionWebhook
      generateName: greetings.samples.olm.example
      deploymentName: greeter-operator
      targetPort: 9443
      webhookPath: /validate
      admissionReviewVersions: [v1]
      sideEffects: None
      failurePolicy: Fail
      timeoutSeconds: 5
      rules:
        - apiGroups: [samples.olm.example]
          apiVersions: [v1]
          operations: [CREATE, UPDATE]
          resources: [greetings]";

/// The webhooks that version 1.3.0 adds: one sets the default salutation, one converts the older version of Greetings.
const MORE_WEBHOOKS: &str = "    - type: MutatingAdmissionWebhook
      generateName: salutations.samples.olm.example
      deploymentName: greeter-operator
      targetPort: 9443
      webhookPath: /mutate
      admissionReviewVersions: [v1]
      sideEffects: None
      failurePolicy: Fail
      timeoutSeconds: 5
      rules:
        - apiGroups: [samples.olm.example]
          apiVersions: [v1]
          operations: [CREATE, UPDATE]
          resources: [greetings]
    - type: ConversionWebhook
      generateName: versions.samples.olm.example
      deploymentName: greeter-operator
      targetPort: 9443
      webhookPath: /convert
      admissionReviewVersions: [v1]
      sideEffects: None
      conversionCRDs: [greetings.samples.olm.example]";

/// The aggregated API that version 1.3.0 adds.
const AGGREGATED: &str = "  apiservicedefinitions:
    owned:
      - name: salutations
        group: served.samples.olm.example
        version: v1
        kind: Salutation
        deploymentName: greeter-operator
        containerPort: 9443
        displayName: Salutation
        description: What the operator can say.";

/// The version of the custom resource that version 1.3.0 converts from and to.
const OLDER: &str = "    - name: v1beta1
      served: true
      storage: false
      schema:
        openAPIV3Schema:
          type: object
          properties:
            spec:
              type: object
              properties:
                who:
                  type: string
                salutation:
                  type: string
            status:
              type: object
              x-kubernetes-preserve-unknown-fields: true";

/// The image of the sample operator on a real node; a simulated one runs anything.
pub const OPERATOR_IMAGE: &str = "olmv1/sample-operator:v0.1.0";

/// The versions of the sample operator, in the order of their release.
pub const VERSIONS: &[&str] = &["1.0.0", "1.0.1", "1.1.0", "2.0.0"];

/// The version with a webhook, in the channel `checked`.
pub const WITH_WEBHOOK: &str = "1.2.0";

/// The version with every kind of webhook and an aggregated API, in the same channel.
pub const WITH_ALL_WEBHOOKS: &str = "1.3.0";

/// The versions with every kind of webhook and no aggregated API, in the channel `converted`.
pub const WITH_WEBHOOKS_ALONE: [&str; 2] = ["1.4.0", "1.4.1"];

/// The versions with an aggregated API and no webhook, in the channel `aggregated`.
pub const WITH_AGGREGATED_ALONE: [&str; 2] = ["1.5.0", "1.5.1"];

/// Whether a version has an aggregated API.
fn has_aggregated(version: &str) -> bool {
    version == WITH_ALL_WEBHOOKS || WITH_AGGREGATED_ALONE.contains(&version)
}

/// Whether a version has every kind of webhook.
fn has_all_webhooks(version: &str) -> bool {
    version == WITH_ALL_WEBHOOKS || WITH_WEBHOOKS_ALONE.contains(&version)
}

/// A bundle as files: path below the bundle's root → content. `operator_image` is the image of its Deployment.
pub fn bundle(version: &str, operator_image: &str) -> BTreeMap<String, Vec<u8>> {
    let block = |wanted: bool, text: &str| {
        if wanted {
            format!("{text}\n")
        } else {
            String::new()
        }
    };
    let has_all = has_all_webhooks(version);
    let webhooks = block(has_all || version == WITH_WEBHOOK, WEBHOOKS)
        + &block(has_all, MORE_WEBHOOKS)
        + &block(has_aggregated(version), AGGREGATED);
    let crd = CRD
        .replace("@SALUTATION@\n", &block(!version.starts_with("1.0."), SALUTATION))
        .replace("@OLDER@\n", &block(has_all, OLDER));
    let csv = CSV
        .replace("@WEBHOOKS@\n", &webhooks)
        // A conversion webhook serves all namespaces.
        .replace("@NARROW@", if has_all { "false" } else { "true" })
        .replace("@VERSION@", version)
        .replace("@IMAGE@", operator_image);
    BTreeMap::from([
        (
            "manifests/greeter.clusterserviceversion.yaml".to_owned(),
            csv.into_bytes(),
        ),
        (
            "manifests/samples.olm.example_greetings.yaml".to_owned(),
            crd.into_bytes(),
        ),
        (
            "metadata/annotations.yaml".to_owned(),
            ANNOTATIONS.as_bytes().to_vec(),
        ),
    ])
}

/// The bundle of [`bundle`] as another operator's, of another API group, so that both can be installed.
pub fn renamed_bundle(package: &str, version: &str, operator_image: &str) -> BTreeMap<String, Vec<u8>> {
    bundle(version, operator_image)
        .into_iter()
        .map(|(path, content)| {
            let content = renamed(package, &String::from_utf8_lossy(&content));
            (renamed(package, &path), content.into_bytes())
        })
        .collect()
}

/// A text about the sample operator as one about another: its package is `package`, its API group
/// `PACKAGE.olm.example`.
pub fn renamed(package: &str, text: &str) -> String {
    if package == "greeter" {
        return text.to_owned();
    }
    text.replace("greeter", package)
        .replace("samples.olm.example", &format!("{package}.olm.example"))
}

/// An update graph: channel → entries (version, the version it replaces, the versions it skips).
const CHANNELS: &[(&str, &[Entry])] = &[
    (
        "stable",
        &[
            Entry {
                version: "1.0.0",
                replaces: None,
                skips: &[],
            },
            Entry {
                version: "1.0.1",
                replaces: Some("1.0.0"),
                skips: &[],
            },
            Entry {
                version: "1.1.0",
                replaces: Some("1.0.1"),
                skips: &["1.0.0"],
            },
        ],
    ),
    (
        "checked",
        &[
            Entry {
                version: "1.1.0",
                replaces: None,
                skips: &[],
            },
            Entry {
                version: WITH_WEBHOOK,
                replaces: Some("1.1.0"),
                skips: &[],
            },
            Entry {
                version: WITH_ALL_WEBHOOKS,
                replaces: Some(WITH_WEBHOOK),
                skips: &["1.1.0"],
            },
        ],
    ),
    (
        "converted",
        &[
            Entry {
                version: WITH_WEBHOOKS_ALONE[0],
                replaces: None,
                skips: &[],
            },
            Entry {
                version: WITH_WEBHOOKS_ALONE[1],
                replaces: Some(WITH_WEBHOOKS_ALONE[0]),
                skips: &[],
            },
        ],
    ),
    (
        "aggregated",
        &[
            Entry {
                version: WITH_AGGREGATED_ALONE[0],
                replaces: None,
                skips: &[],
            },
            Entry {
                version: WITH_AGGREGATED_ALONE[1],
                replaces: Some(WITH_AGGREGATED_ALONE[0]),
                skips: &[],
            },
        ],
    ),
    // Only extensions with this channel get the next major version.
    (
        "candidate",
        &[
            Entry {
                version: "1.1.0",
                replaces: None,
                skips: &[],
            },
            Entry {
                version: "2.0.0",
                replaces: Some("1.1.0"),
                skips: &[],
            },
        ],
    ),
];

struct Entry {
    version: &'static str,
    replaces: Option<&'static str>,
    skips: &'static [&'static str],
}

/// The catalog of the given versions as JSON blobs, one a line; `bundle_image` returns the image of a version.
pub fn catalog(versions: &[&str], bundle_image: impl Fn(&str) -> String) -> String {
    let name = |version: &str| format!("greeter.v{version}");
    let mut blobs = vec![json!({
        "schema": "olm.package",
        "name": "greeter",
        "defaultChannel": "stable",
        "description": "Greets whoever a Greeting names.",
    })];
    for (channel, entries) in CHANNELS {
        let entries: Vec<_> = entries
            .iter()
            .filter(|entry| versions.contains(&entry.version))
            .map(|entry| {
                let mut blob = json!({ "name": name(entry.version) });
                if let Some(replaces) = entry.replaces {
                    blob["replaces"] = json!(name(replaces));
                }
                if !entry.skips.is_empty() {
                    blob["skips"] = entry.skips.iter().map(|skipped| name(skipped)).collect();
                }
                blob
            })
            .collect();
        if !entries.is_empty() {
            blobs.push(
                json!({ "schema": "olm.channel", "package": "greeter", "name": channel, "entries": entries }),
            );
        }
    }
    for version in versions {
        blobs.push(json!({
            "schema": "olm.bundle",
            "package": "greeter",
            "name": name(version),
            "image": bundle_image(version),
            "properties": [
                { "type": "olm.package", "value": { "packageName": "greeter", "version": version } },
                { "type": "olm.gvk", "value": { "group": "samples.olm.example", "kind": "Greeting", "version": "v1" } },
                { "type": "olm.csv.metadata", "value": described(version) },
            ],
        }));
    }
    let mut lines: Vec<String> = blobs.iter().map(ToString::to_string).collect();
    lines.push(String::new());
    lines.join("\n")
}

/// The operator in the words of its author, as `opm render` takes them from the ClusterServiceVersion.
fn described(version: &str) -> Value {
    let narrow = !has_all_webhooks(version);
    json!({
        "displayName": "Greeter",
        "description": "Keeps a ConfigMap with a greeting for every Greeting.",
        "provider": { "name": "OLM v1" },
        "maturity": "stable",
        "installModes": [
            { "type": "OwnNamespace", "supported": narrow },
            { "type": "SingleNamespace", "supported": narrow },
            { "type": "MultiNamespace", "supported": false },
            { "type": "AllNamespaces", "supported": true },
        ],
        "crdDescriptions": { "owned": [
            { "name": "greetings.samples.olm.example", "version": "v1", "kind": "Greeting", "displayName": "Greeting" },
        ] },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_placeholder_is_filled() {
        let hooked = [&WITH_WEBHOOK, &WITH_ALL_WEBHOOKS]
            .into_iter()
            .chain(&WITH_WEBHOOKS_ALONE)
            .chain(&WITH_AGGREGATED_ALONE);
        for version in VERSIONS.iter().chain(hooked) {
            for (path, content) in bundle(version, "registry.example/operator:1") {
                let text = String::from_utf8(content).unwrap();
                assert!(
                    !text.contains('@'),
                    "{path} of {version} still holds a placeholder: {text}"
                );
            }
        }
    }

    #[test]
    fn a_version_that_is_not_published_stands_nowhere_in_the_catalog() {
        let text = catalog(&["1.0.0", "1.0.1"], |v| format!("registry.example/greeter:{v}"));
        assert!(text.contains("registry.example/greeter:1.0.1"), "{text}");
        assert!(
            !text.contains("greeter.v1.1.0") && !text.contains("greeter.v2.0.0"),
            "{text}"
        );
    }
}
