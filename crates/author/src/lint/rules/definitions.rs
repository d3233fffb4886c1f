//! Custom resource definitions, by the rules of the API server that do not concern their schemas.

use std::collections::BTreeSet;

use olm_bundle::object::object_name;
use olm_bundle::object::{list, text};
use olm_fbc::check::Severity;
use olm_text::names::{dns1035_label_faults, subdomain_faults};
use serde_json::{Value, json};

use crate::lint::manifests::{Manifests, of_kind};
use crate::lint::rule_finding::{Options, RuleFinding};

pub(super) fn lint(manifests: &Manifests, _: &Options) -> Vec<RuleFinding> {
    of_kind(manifests, "CustomResourceDefinition")
        .flat_map(|(at, definition)| check(definition).into_iter().map(move |finding| finding.at(at)))
        .collect()
}

/// Collects faults of fields.
#[derive(Default)]
struct Faults(Vec<RuleFinding>);

impl Faults {
    fn push(&mut self, kind: &'static str, field: &str, value: String, detail: &str) {
        let detail = format!("{field}: {detail}");
        self.0.push(RuleFinding {
            field: Some(field.to_owned()),
            ..RuleFinding::new(Severity::Error, kind, Some(value), detail)
        });
    }

    /// Adds a hint to the last fault.
    fn hint(&mut self, hint: &'static str) {
        if let Some(last) = self.0.last_mut() {
            last.hint = Some(hint);
        }
    }

    fn invalid(&mut self, field: &str, value: &Value, why: &str) {
        self.push(
            "FieldValueInvalid",
            field,
            value.to_string(),
            &format!("Invalid value: {value}: {why}"),
        );
    }

    fn required(&mut self, field: &str, why: &str) {
        let why = if why.is_empty() {
            String::new()
        } else {
            format!(": {why}")
        };
        self.push(
            "FieldValueRequired",
            field,
            String::new(),
            &format!("Required value{why}"),
        );
    }

    fn forbidden(&mut self, field: &str, why: &str) {
        self.push(
            "FieldValueForbidden",
            field,
            String::new(),
            &format!("Forbidden: {why}"),
        );
    }

    /// Requires a text that is one of the known ones.
    fn one_of(&mut self, field: &str, value: &str, known: &[&str]) {
        if value.is_empty() {
            self.required(field, "");
        } else if !known.contains(&value) {
            let known: Vec<String> = known.iter().map(|known| format!("{known:?}")).collect();
            let detail = format!(
                "Unsupported value: {value:?}: supported values: {}",
                known.join(", ")
            );
            self.push("FieldValueNotSupported", field, value.to_owned(), &detail);
        }
    }

    fn label(&mut self, field: &str, value: &str) {
        let faults = dns1035_label_faults(value);
        if !faults.is_empty() {
            self.invalid(field, &json!(value), &faults.join(","));
        }
    }
}

fn check(definition: &Value) -> Vec<RuleFinding> {
    let is_beta = text(definition, "/apiVersion").ends_with("/v1beta1");
    let mut faults = Faults::default();
    name(definition, &mut faults);
    group(definition, &mut faults);
    let scope = text(definition, "/spec/scope");
    let scope = if is_beta && scope.is_empty() {
        "Namespaced"
    } else {
        scope
    };
    faults.one_of("spec.scope", scope, &["Cluster", "Namespaced"]);
    versions(definition, is_beta, &mut faults);
    names(definition, &mut faults);
    // If the older version does not specify it, fields are kept; the newer version has no such field.
    let keeps = is_beta
        && definition
            .pointer("/spec/preserveUnknownFields")
            .and_then(Value::as_bool)
            .unwrap_or(true)
        || !is_beta && definition.pointer("/spec/preserveUnknownFields") == Some(&Value::Bool(true));
    conversion(definition, is_beta, keeps, &mut faults);
    if is_beta {
        columns(
            "spec.additionalPrinterColumns",
            list(definition, "/spec/additionalPrinterColumns"),
            &mut faults,
        );
    }
    approval(definition, &mut faults);
    if keeps {
        faults.invalid(
            "spec.preserveUnknownFields",
            &Value::Bool(true),
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead",
        );
        faults.hint("set spec.preserveUnknownFields to false");
    }
    faults.0
}

fn name(definition: &Value, faults: &mut Faults) {
    let name = object_name(definition);
    if name.is_empty() {
        faults.required("metadata.name", "name or generateName is required");
        return;
    }
    for fault in subdomain_faults(name) {
        faults.invalid("metadata.name", &json!(name), fault);
    }
    let wanted = format!(
        "{}.{}",
        text(definition, "/spec/names/plural"),
        text(definition, "/spec/group")
    );
    if name != wanted {
        faults.invalid(
            "metadata.name",
            &json!(name),
            "must be spec.names.plural+\".\"+spec.group",
        );
    }
}

fn group(definition: &Value, faults: &mut Faults) {
    let group = text(definition, "/spec/group");
    let wrong = subdomain_faults(group);
    if group.is_empty() {
        faults.required("spec.group", "");
    } else if !wrong.is_empty() {
        faults.invalid("spec.group", &json!(group), &wrong.join(","));
    } else if !group.contains('.') {
        faults.invalid(
            "spec.group",
            &json!(group),
            "should be a domain with at least one dot",
        );
    }
}

fn versions(definition: &Value, is_beta: bool, faults: &mut Faults) {
    let own = text(definition, "/spec/version");
    let versions = list(definition, "/spec/versions");
    let assumed = [json!({"name": own, "served": true, "storage": true})];
    let versions = if is_beta && versions.is_empty() && !own.is_empty() {
        &assumed
    } else {
        versions
    };
    let mut names = BTreeSet::new();
    let mut unique = true;
    let mut stored = 0;
    for (at, version) in versions.iter().enumerate() {
        let field = format!("spec.versions[{at}]");
        let name = text(version, "/name");
        unique &= names.insert(name);
        stored += usize::from(version.get("storage") == Some(&Value::Bool(true)));
        faults.label(&format!("{field}.name"), name);
        deprecation(&field, version, faults);
        let columns_field = format!("{field}.additionalPrinterColumns");
        columns(&columns_field, list(version, "/additionalPrinterColumns"), faults);
        subresources(
            &format!("{field}.subresources"),
            version.get("subresources"),
            faults,
        );
    }
    let all = if versions.is_empty() {
        Value::Null
    } else {
        json!(versions)
    };
    if is_beta {
        exclusive(definition, versions, faults);
    }
    if !unique {
        faults.invalid("spec.versions", &all, "must contain unique version names");
    }
    if stored != 1 {
        faults.invalid(
            "spec.versions",
            &all,
            "must have exactly one version marked as storage version",
        );
    }
    if is_beta && !own.is_empty() {
        faults_of_own_version(own, versions, faults);
    }
}

/// A deprecation warning is only allowed for a deprecated version.
fn deprecation(field: &str, version: &Value, faults: &mut Faults) {
    let Some(warning) = version
        .get("deprecationWarning")
        .filter(|warning| !warning.is_null())
    else {
        return;
    };
    let field = format!("{field}.deprecationWarning");
    if version.get("deprecated") != Some(&Value::Bool(true)) {
        faults.invalid(&field, warning, "can only be set for deprecated versions");
    }
    if warning == "" {
        faults.invalid(&field, warning, "must not be an empty string");
    }
}

fn faults_of_own_version(own: &str, versions: &[Value], faults: &mut Faults) {
    faults.label("spec.version", own);
    if versions.first().is_some_and(|first| text(first, "/name") != own) {
        faults.invalid(
            "spec.version",
            &json!(own),
            "must match the first version in spec.versions",
        );
    }
}

/// Fields that the older version allows either at the top level or for each version.
fn exclusive(definition: &Value, versions: &[Value], faults: &mut Faults) {
    for (top, of_version, what) in [
        ("validation", "schema", "schemas"),
        ("subresources", "subresources", "subresources"),
        (
            "additionalPrinterColumns",
            "additionalPrinterColumns",
            "additionalPrinterColumns",
        ),
    ] {
        let given = |value: Option<&Value>| value.is_some_and(|value| !value.is_null());
        if given(definition.pointer(&format!("/spec/{top}")))
            && versions.iter().any(|version| given(version.get(of_version)))
        {
            let why = format!("top-level and per-version {what} are mutually exclusive");
            faults.forbidden(&format!("spec.{top}"), &why);
        }
    }
}

fn subresources(field: &str, subresources: Option<&Value>, faults: &mut Faults) {
    let Some(scale) = subresources.and_then(|subresources| subresources.get("scale")) else {
        return;
    };
    let path = text(scale, "/specReplicasPath");
    let field = format!("{field}.scale.specReplicasPath");
    if path.is_empty() {
        faults.required(&field, "");
    } else if !path.starts_with(".spec.") {
        faults.invalid(&field, &json!(path), "should be a json path under .spec");
    }
}

fn columns(field: &str, columns: &[Value], faults: &mut Faults) {
    const TYPES: [&str; 5] = ["boolean", "date", "integer", "number", "string"];
    for (at, column) in columns.iter().enumerate() {
        let field = format!("{field}[{at}]");
        if text(column, "/name").is_empty() {
            faults.required(&format!("{field}.name"), "");
        }
        let kind = text(column, "/type");
        let kinds = format!("must be one of {}", TYPES.join(","));
        if kind.is_empty() {
            faults.required(&format!("{field}.type"), &kinds);
        } else if !TYPES.contains(&kind) {
            faults.invalid(&format!("{field}.type"), &json!(kind), &kinds);
        }
        if text(column, "/jsonPath").is_empty() && text(column, "/JSONPath").is_empty() {
            faults.required(&format!("{field}.JSONPath"), "");
        }
    }
}

fn names(definition: &Value, faults: &mut Faults) {
    let given = |field: &str| text(definition, &format!("/spec/names/{field}")).to_owned();
    let (plural, kind) = (given("plural"), given("kind"));
    let or = |name: String, otherwise: String| if name.is_empty() { otherwise } else { name };
    let singular = or(given("singular"), kind.to_lowercase());
    let list_kind = if kind.is_empty() {
        given("listKind")
    } else {
        or(given("listKind"), format!("{kind}List"))
    };
    let all = [
        ("plural", &plural),
        ("singular", &singular),
        ("kind", &kind),
        ("listKind", &list_kind),
    ];
    for (field, name) in all {
        let field = format!("spec.names.{field}");
        if name.is_empty() {
            faults.required(&field, "");
        } else if field.to_lowercase().ends_with("kind") {
            let wrong = dns1035_label_faults(&name.to_lowercase());
            if !wrong.is_empty() {
                let why = format!(
                    "may have mixed case, but should otherwise match: {}",
                    wrong.join(",")
                );
                faults.invalid(&field, &json!(name), &why);
            }
        } else {
            faults.label(&field, name);
        }
    }
    for field in ["shortNames", "categories"] {
        let names = list(definition, &format!("/spec/names/{field}"))
            .iter()
            .enumerate();
        for (at, name) in names {
            faults.label(
                &format!("spec.names.{field}[{at}]"),
                name.as_str().unwrap_or_default(),
            );
        }
    }
    if !kind.is_empty() && kind == list_kind {
        faults.invalid(
            "spec.names.listKind",
            &json!(list_kind),
            "kind and listKind may not be the same",
        );
    }
}

fn conversion(definition: &Value, is_beta: bool, keeps: bool, faults: &mut Faults) {
    let Some(conversion) = definition
        .pointer("/spec/conversion")
        .filter(|value| !value.is_null())
    else {
        return;
    };
    let strategy = text(conversion, "/strategy");
    if strategy != "None" && keeps {
        faults.invalid(
            "spec.conversion.strategy",
            &json!(strategy),
            "must be None if spec.preserveUnknownFields is true",
        );
    }
    faults.one_of("spec.conversion.strategy", strategy, &["None", "Webhook"]);
    // The newer version has both fields one level deeper.
    let webhook = if is_beta {
        conversion
    } else {
        conversion.get("webhook").unwrap_or(&Value::Null)
    };
    let client = webhook
        .get(if is_beta {
            "webhookClientConfig"
        } else {
            "clientConfig"
        })
        .filter(|value| !value.is_null());
    let reviews = list(webhook, "/conversionReviewVersions");
    let (client_field, reviews_field) = (
        "spec.conversion.webhookClientConfig",
        "spec.conversion.conversionReviewVersions",
    );
    if strategy != "Webhook" {
        let why = "should not be set when strategy is not set to Webhook";
        if client.is_some() {
            faults.forbidden(client_field, why);
        }
        if !reviews.is_empty() {
            faults.forbidden(reviews_field, why);
        }
        return;
    }
    match client {
        None => faults.required(client_field, "required when strategy is set to Webhook"),
        Some(client) => client_config(client_field, client, faults),
    }
    let assumed = is_beta && webhook.get("conversionReviewVersions").is_none_or(Value::is_null);
    if !assumed {
        review_versions(reviews_field, reviews, faults);
    }
}

fn client_config(field: &str, client: &Value, faults: &mut Faults) {
    let service = client.get("service").filter(|service| !service.is_null());
    match (text(client, "/url"), service) {
        ("", Some(service)) => {
            for (pointer, name) in [("/name", "name"), ("/namespace", "namespace")] {
                if text(service, pointer).is_empty() {
                    faults.required(&format!("{field}.service.{name}"), "");
                }
            }
            let path = text(service, "/path");
            if !path.is_empty() && !path.starts_with('/') {
                faults.invalid(
                    &format!("{field}.service.path"),
                    &json!(path),
                    "must start with a '/'",
                );
            }
        }
        ("", None) | (_, Some(_)) => faults.required(field, "exactly one of url or service is required"),
        (url, None) if !url.starts_with("https://") => {
            faults.invalid(
                &format!("{field}.url"),
                &json!(url),
                "'https' is the only allowed URL scheme",
            );
        }
        _ => {}
    }
}

fn review_versions(field: &str, versions: &[Value], faults: &mut Faults) {
    if versions.is_empty() {
        faults.required(field, "");
        return;
    }
    let mut seen = BTreeSet::new();
    for (at, version) in versions.iter().enumerate() {
        let version = version.as_str().unwrap_or_default();
        let field = format!("{field}[{at}]");
        if !seen.insert(version) {
            faults.invalid(&field, &json!(version), "duplicate version");
        }
        faults.label(&field, version);
    }
    if !seen.contains("v1") && !seen.contains("v1beta1") {
        faults.invalid(
            field,
            &json!(versions),
            "must include at least one of v1, v1beta1",
        );
    }
}

/// Groups of the Kubernetes community need its approval.
fn approval(definition: &Value, faults: &mut Faults) {
    let group = text(definition, "/spec/group");
    let protected = ["k8s.io", "kubernetes.io"]
        .iter()
        .any(|domain| group == *domain || group.ends_with(&format!(".{domain}")));
    let annotations = definition.pointer("/metadata/annotations");
    let approved =
        annotations.is_some_and(|annotations| annotations.get("api-approved.kubernetes.io").is_some());
    if protected && !approved {
        faults.required(
            "metadata.annotations[api-approved.kubernetes.io]",
            "protected groups must have approval annotation \"api-approved.kubernetes.io\", see \
             https://github.com/kubernetes/enhancements/pull/1111",
        );
    }
}
