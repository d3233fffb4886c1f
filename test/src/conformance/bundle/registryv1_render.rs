//! `registryv1-render/*`: rules, install modes, single generators, and whole bundles.
#![expect(
    clippy::indexing_slicing,
    reason = "an absent member of a JSON value reads as null"
)]

use std::collections::{BTreeMap, BTreeSet};

use olm_bundle::render::{CertificateProvider, DeploymentConfig, Options, RenderError};
use olm_bundle::render::{certificates, definitions, deployments, manifests, permissions, webhooks};
use olm_bundle::{
    Annotations, Bundle, BundleFiles, InstallMode, InstallModes, ParseError, Rule, TargetNamespaces,
};
use serde_json::{Value, json};

use crate::conformance::Outcome;

/// Runs one case of any of the four files.
pub fn run(case: &Value) -> Outcome {
    if case.get("validator").is_some() {
        validator(case)
    } else if case.get("generator").is_some() {
        generator(case)
    } else if case.get("supported_install_modes").is_some() {
        install_modes(case)
    } else {
        convert(case)
    }
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}

fn texts(value: &Value) -> Option<Vec<String>> {
    Some(
        value
            .as_array()?
            .iter()
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect(),
    )
}

fn bundle(case: &Value) -> Result<Bundle, ParseError> {
    let bundle = &case["bundle"];
    let list = |field: &str| bundle[field].as_array().cloned().unwrap_or_default();
    let annotations = Annotations::for_package(text(bundle, "packageName"));
    Bundle::from_objects(annotations, &bundle["csv"], list("crds"), list("others"))
}

fn validator(case: &Value) -> Outcome {
    let rule = match text(case, "validator") {
        "CheckDeploymentSpecUniqueness" => Rule::DeploymentUniqueness,
        "CheckDeploymentNameIsDNS1123SubDomain" => Rule::DeploymentName,
        "CheckCRDResourceUniqueness" => Rule::DefinitionUniqueness,
        "CheckOwnedCRDExistence" => Rule::OwnedDefinitionExists,
        "CheckPackageNameNotEmpty" => Rule::PackageName,
        "CheckConversionWebhookSupport" => Rule::ConversionScope,
        "CheckWebhookDeploymentReferentialIntegrity" => Rule::WebhookDeployment,
        "CheckWebhookNameUniqueness" => Rule::WebhookUniqueness,
        "CheckWebhookNameIsDNS1123SubDomain" => Rule::WebhookName,
        "CheckConversionWebhookCRDReferenceUniqueness" => Rule::ConversionUniqueness,
        "CheckConversionWebhooksReferenceOwnedCRDs" => Rule::ConversionOwned,
        "CheckWebhookRules" => Rule::WebhookRules,
        "CheckObjectSupport" => Rule::ObjectKind,
        other => return Outcome::Fail(format!("no rule is called {other}")),
    };
    match bundle(case) {
        Ok(bundle) => {
            let actual: Vec<String> = rule
                .check(&bundle)
                .into_iter()
                .map(|finding| finding.message)
                .collect();
            Outcome::compare(
                "errors",
                &texts(&case["expect"]["errors"]).unwrap_or_default(),
                &actual,
            )
        }
        Err(error) => Outcome::Fail(error.to_string()),
    }
}

fn install_modes(case: &Value) -> Outcome {
    let modes: InstallModes = texts(&case["supported_install_modes"])
        .unwrap_or_default()
        .iter()
        .filter_map(|mode| mode.parse::<InstallMode>().ok())
        .collect();
    let targets = texts(&case["target_namespaces_after_defaulting"]);
    let actual = TargetNamespaces::choose(&modes, text(case, "install_namespace"), targets.as_deref());
    let error = actual.err().map(|error| error.to_string());
    Outcome::compare(
        "error",
        &case["expect"]["error"].as_str().map(str::to_owned),
        &error,
    )
}

fn generator(case: &Value) -> Outcome {
    let expect = &case["expect"];
    if case["bundle"].is_null() {
        // There is no bundle to pass: the types exclude this error at run time.
        return Outcome::compare("ok", &expect["ok"], &Value::Bool(false));
    }
    let actual = bundle(case)
        .map_err(|error| error.to_string())
        .and_then(|bundle| generate(case, &bundle));
    match actual {
        Err(error) => Outcome::compare("error", &text(expect, "error").to_owned(), &error),
        Ok(mut objects) => {
            let mut expected = expect["objects"].as_array().cloned().unwrap_or_default();
            let names = if case.pointer("/options/uniqueNameGenerator").is_some() {
                take_base_names(&expected, &mut objects)
            } else {
                Outcome::Pass
            };
            let namespace = case.pointer("/options/installNamespace").and_then(Value::as_str);
            deviate(expect, &mut expected, namespace.unwrap_or_default());
            names.and(|| compare_objects(expected, objects))
        }
    }
}

fn generate(case: &Value, bundle: &Bundle) -> Result<Vec<Value>, String> {
    let options = &case["options"];
    let deployment_config = options.get("deploymentConfig").unwrap_or(&Value::Null);
    let options = Options {
        install_namespace: text(options, "installNamespace").to_owned(),
        targets: TargetNamespaces::unchecked(texts(&options["targetNamespaces"]).unwrap_or_default()),
        certificates: None,
        operator_condition: None,
        roles_named_after: None,
        deployment_config: DeploymentConfig::new(deployment_config).map_err(|error| error.to_string())?,
    };
    match text(case, "generator") {
        "BundleCSVServiceAccountGenerator" => Ok(permissions::service_accounts(bundle, &options)),
        "BundleCSVPermissionsGenerator" => Ok(permissions::roles(bundle, &options)),
        "BundleCSVClusterPermissionsGenerator" => Ok(permissions::cluster_roles(bundle, &options)),
        "BundleCRDGenerator" => {
            definitions::custom_resource_definitions(bundle, &options).map_err(|error| error.to_string())
        }
        "BundleAdditionalResourcesGenerator" => {
            manifests::additional(bundle, &options).map_err(|error| error.to_string())
        }
        "BundleCSVDeploymentGenerator" => Ok(deployments::deployments(bundle, &options)),
        "BundleValidatingWebhookResourceGenerator" => Ok(webhooks::validating(bundle, &options)),
        "BundleMutatingWebhookResourceGenerator" => Ok(webhooks::mutating(bundle, &options)),
        "BundleDeploymentServiceResourceGenerator" | "BundleWebhookServiceResourceGenerator" => {
            Ok(webhooks::services(bundle, &options))
        }
        "CertProviderResourceGenerator" => Ok(certificates::objects(bundle, &options)),
        other => Err(format!("no generator is called {other}")),
    }
}

/// Roles and bindings were recorded with their base names, ours end with a hash of the permission (whole bundles have
/// recorded ones): checks that each pair has a name of that form and of its own, and gives it the base name.
fn take_base_names(expected: &[Value], actual: &mut [Value]) -> Outcome {
    let is_hash = |text: &str| {
        text.len() >= 40
            && text
                .bytes()
                .all(|byte| byte.is_ascii_digit() || byte.is_ascii_lowercase())
    };
    let mut known = BTreeSet::new();
    for (expected, actual) in expected.chunks(2).zip(actual.chunks_mut(2)) {
        let ([recorded, _], [role, binding]) = (expected, actual) else {
            return Outcome::Fail("a role without a binding".to_owned());
        };
        let base = &recorded["metadata"]["name"];
        let name = role["metadata"]["name"].clone();
        let text = name.as_str().unwrap_or_default();
        let is_hashed = text.rsplit_once('-').is_some_and(|(start, hash)| {
            is_hash(hash) && base.as_str().is_some_and(|base| base.starts_with(start))
        });
        if !is_hashed || text.len() > 63 || !known.insert(text.to_owned()) {
            return Outcome::Fail(format!("{text} is no name of {base}"));
        }
        if binding["metadata"]["name"] != name || binding["roleRef"]["name"] != name {
            return Outcome::Fail(format!("the binding of {text} binds another role"));
        }
        role["metadata"]["name"] = base.clone();
        binding["metadata"]["name"] = base.clone();
        binding["roleRef"]["name"] = base.clone();
    }
    Outcome::Pass
}

/// Our deviations, for each object.
fn deviate(expect: &Value, expected: &mut [Value], install_namespace: &str) {
    if expect["webhook_port"] == 443 {
        expected.iter_mut().for_each(default_ports);
    }
    if expect["pod_autoscaler"] == "namespaced" {
        let is_autoscaler = |object: &&mut Value| object["kind"] == "VerticalPodAutoscaler";
        for object in expected.iter_mut().filter(is_autoscaler) {
            object["metadata"]["namespace"] = install_namespace.into();
        }
    }
}

/// Expected webhooks that were recorded without a port are called at the port of their Service.
fn default_ports(object: &mut Value) {
    let mut services: Vec<&mut Value> = Vec::new();
    match object.get("kind").and_then(Value::as_str) {
        Some("ValidatingWebhookConfiguration" | "MutatingWebhookConfiguration") => {
            let webhooks = object["webhooks"].as_array_mut().into_iter().flatten();
            services.extend(webhooks.filter_map(|webhook| webhook.pointer_mut("/clientConfig/service")));
        }
        _ => services.extend(object.pointer_mut("/spec/conversion/webhook/clientConfig/service")),
    }
    for service in services {
        if service["port"].as_i64().unwrap_or_default() == 0 {
            service["port"] = 443.into();
        }
    }
}

fn convert(case: &Value) -> Outcome {
    let expect = &case["expect"];
    let files: BundleFiles = case["bundle_files"]
        .as_object()
        .into_iter()
        .flatten()
        .filter_map(|(path, content)| Some((path.clone(), content.as_str()?.as_bytes().to_vec())))
        .collect();
    let bundle = match olm_bundle::parse(&files, &BTreeMap::new()) {
        Ok(bundle) => bundle,
        Err(error) => return parse_error(expect, &files, &error),
    };
    match rendered(case, &bundle) {
        Err(error) => match expect.get("render_error").and_then(Value::as_str) {
            Some(expected) => Outcome::compare("render_error", &expected.to_owned(), &error),
            None => Outcome::Fail(format!("not rendered: {error}")),
        },
        Ok(objects) => Outcome::compare("ok", &Some(true), &expect["ok"].as_bool())
            .and(|| olm_properties(expect, &bundle))
            .and(|| object_keys(expect, &objects))
            .and(|| whole_objects(case, objects)),
    }
}

/// The number of documents of a kind in the manifests.
fn documents(files: &BundleFiles, kind: &str) -> usize {
    let manifests = files.iter().filter(|(path, _)| path.starts_with("manifests/"));
    manifests
        .flat_map(|(_, content)| olm_yaml::documents(content.as_slice(), &olm_yaml::Limits::default()))
        .filter_map(|document| document.ok()?.into_value().ok())
        .filter(|document| document["kind"] == kind)
        .count()
}

/// The text after the colon may come from Go's JSON or YAML parser.
fn parse_error(expect: &Value, files: &BundleFiles, error: &ParseError) -> Outcome {
    match error {
        ParseError::SeveralClusterServiceVersions(names) if expect["versions"] == "one" => {
            return Outcome::compare(
                "ClusterServiceVersions",
                &documents(files, "ClusterServiceVersion"),
                &names.len(),
            );
        }
        ParseError::MediaType(_) if expect["media_type"] == olm_bundle::REGISTRY_V1 => return Outcome::Pass,
        _ => {}
    }
    let Some(expected) = expect.get("parse_error").and_then(Value::as_str) else {
        return Outcome::Fail(format!("not parsed: {error}"));
    };
    let foreign = matches!(
        error,
        ParseError::PropertiesAnnotation(_)
            | ParseError::PropertiesAnnotationContent(_)
            | ParseError::Properties(_)
            | ParseError::PropertiesContent(_)
            | ParseError::Manifest { .. }
            | ParseError::Object { .. }
            | ParseError::ClusterServiceVersion(_)
            | ParseError::Annotations(_)
    );
    if !foreign {
        return Outcome::compare("parse_error", &expected.to_owned(), &error.to_string());
    }
    let actual = error.to_string();
    let head = |text: &str| text.split(": ").next().unwrap_or_default().to_owned();
    match error {
        ParseError::ClusterServiceVersion(_) | ParseError::Annotations(_) => Outcome::Pass,
        _ => Outcome::compare("parse_error", &head(expected), &head(&actual)),
    }
}

fn rendered(case: &Value, bundle: &Bundle) -> Result<Vec<Value>, String> {
    let provider = match text(case, "cert_provider") {
        "cert-manager" => Some(CertificateProvider::CertManager),
        "openshift-service-ca" => Some(CertificateProvider::OpenShiftServiceCa),
        "self-signed" => Some(CertificateProvider::SelfSigned),
        _ => None,
    };
    let config = DeploymentConfig::new(&case["deployment_config"]).map_err(|error| error.to_string())?;
    let targets = texts(&case["watch_namespaces"]);
    olm_bundle::render_for(
        bundle,
        text(case, "install_namespace"),
        targets.as_deref(),
        provider,
        None,
        None,
        config,
    )
    .map(olm_bundle::Rendered::into_objects)
    .map_err(|error: RenderError| error.to_string())
}

fn olm_properties(expect: &Value, bundle: &Bundle) -> Outcome {
    let Some(expected) = expect.get("csv_olm_properties") else {
        return Outcome::Pass;
    };
    let actual: Value = bundle
        .properties_text()
        .and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or_default();
    Outcome::compare("csv_olm_properties", expected, &actual)
}

fn key(object: &Value) -> [String; 3] {
    let field = |pointer: &str| {
        object
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    [
        field("/kind"),
        field("/metadata/namespace"),
        field("/metadata/name"),
    ]
}

fn object_keys(expect: &Value, objects: &[Value]) -> Outcome {
    let Some(keys) = expect.get("object_keys").and_then(Value::as_array) else {
        return Outcome::Pass;
    };
    let mut expected: Vec<Vec<String>> = keys.iter().filter_map(texts).collect();
    let mut actual: Vec<Vec<String>> = objects.iter().map(|object| key(object).to_vec()).collect();
    expected.sort();
    actual.sort();
    if expect["equal_objects"] == "once" {
        expected.dedup();
    }
    Outcome::compare("object_keys", &expected, &actual)
}

fn whole_objects(case: &Value, mut objects: Vec<Value>) -> Outcome {
    let expect = &case["expect"];
    let mut expected = match (&expect["objects"], &expect["objects_except_crds"]) {
        (Value::Array(expected), _) => expected.clone(),
        (_, Value::Array(expected)) => {
            objects.retain(|object| object["kind"] != "CustomResourceDefinition");
            expected.clone()
        }
        _ => return Outcome::Pass,
    };
    deviate(expect, &mut expected, text(case, "install_namespace"));
    if expect["equal_objects"] == "once" {
        let mut seen: Vec<Value> = Vec::new();
        expected.retain(|object| {
            let is_new = !seen.contains(object);
            seen.push(object.clone());
            is_new
        });
    }
    compare_objects(expected, objects)
}

/// Compares objects by name, without the values that Go writes for unset fields.
fn compare_objects(expected: Vec<Value>, actual: Vec<Value>) -> Outcome {
    let sorted = |mut objects: Vec<Value>| {
        objects.iter_mut().for_each(drop_zero_values);
        objects.sort_by_key(key);
        objects
    };
    let (expected, actual) = (sorted(expected), sorted(actual));
    for (expected, actual) in expected.iter().zip(&actual) {
        if expected != actual {
            return Outcome::compare("object", &expected.to_string(), &actual.to_string());
        }
    }
    Outcome::compare("number of objects", &expected.len(), &actual.len())
}

/// Removes nulls and empty mappings and lists from mappings, innermost first, and the empty value of a variable.
fn drop_zero_values(value: &mut Value) {
    match value {
        Value::Object(map) => {
            if map.len() == 2 && map.contains_key("name") && map.get("value") == Some(&json!("")) {
                map.shift_remove("value");
            }
            // The status of a definition that was never stored contains only zero values.
            if map.get("status").is_some_and(is_zero) {
                map.shift_remove("status");
            }
            map.values_mut().for_each(drop_zero_values);
            map.retain(|_, value| match value {
                Value::Null => false,
                Value::Object(map) => !map.is_empty(),
                Value::Array(items) => !items.is_empty(),
                Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
            });
            map.sort_keys();
        }
        Value::Array(items) => items.iter_mut().for_each(drop_zero_values),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.iter().all(is_zero),
        Value::Object(map) => map.values().all(is_zero),
    }
}
