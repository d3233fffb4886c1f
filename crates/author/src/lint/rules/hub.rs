//! Requirements of operator hubs.

use std::collections::BTreeSet;

use olm_bundle::object::object_name;
use olm_bundle::object::{list, text};
use olm_fbc::check::Severity;
use olm_version::{blang, quoted};
use serde_json::Value;

use super::text::{address_fault, uri_fault};
use super::{csv, removed};
use crate::lint::manifests::{Manifests, csvs};
use crate::lint::rule_finding::{Options, RuleFinding};

const CAPABILITIES: [&str; 5] = [
    "Basic Install",
    "Seamless Upgrades",
    "Full Lifecycle",
    "Deep Insights",
    "Auto Pilot",
];

const CATEGORIES: [&str; 16] = [
    "AI/Machine Learning",
    "Application Runtime",
    "Big Data",
    "Cloud Provider",
    "Developer Tools",
    "Database",
    "Integration & Delivery",
    "Logging & Tracing",
    "Monitoring",
    "Modernization & Migration",
    "Networking",
    "OpenShift Optional",
    "Security",
    "Storage",
    "Streaming & Messaging",
    "Observability",
];

const ICONS: [&str; 4] = ["image/gif", "image/jpeg", "image/png", "image/svg+xml"];

/// Runs the checks on the ClusterServiceVersion and adds the place to each finding.
fn on_csv(manifests: &Manifests, check: impl Fn(&Value) -> Vec<RuleFinding>) -> Vec<RuleFinding> {
    csvs(manifests)
        .take(1)
        .flat_map(|(at, csv)| check(csv).into_iter().map(move |finding| finding.at(at)))
        .collect()
}

pub(super) fn validate_deprecated(manifests: &Manifests, options: &Options) -> Vec<RuleFinding> {
    let mut findings = lint(manifests, options);
    findings.extend(capabilities(manifests, options));
    findings.extend(categories(manifests, options));
    findings.push(RuleFinding::new(
        Severity::Warning,
        "DeprecatedValidator",
        Some(String::new()),
        "The \"operatorhub\" validator is deprecated; for equivalent validation use \"operatorhub/v2\", \
         \"standardcapabilities\" and \"standardcategories\" validators"
            .to_owned(),
    ));
    findings
}

pub(super) fn lint(manifests: &Manifests, options: &Options) -> Vec<RuleFinding> {
    let mut findings = on_csv(manifests, |csv| {
        let name = object_name(csv);
        let mut findings: Vec<RuleFinding> = errors(csv)
            .into_iter()
            .map(|detail| RuleFinding::csv(Severity::Error, name, detail))
            .collect();
        if csv.pointer("/spec/icon").is_none_or(Value::is_null) {
            findings.push(RuleFinding::csv(
                Severity::Warning,
                name,
                "csv.Spec.Icon not specified",
            ));
        }
        findings.extend(csv::minimum_version(csv));
        findings
    });
    findings.extend(removed::lint(manifests, options));
    findings
}

fn errors(csv: &Value) -> Vec<String> {
    let mut errors = Vec::new();
    if text(csv, "/spec/provider/name").trim().is_empty() {
        errors.push("csv.Spec.Provider.Name not specified".to_owned());
    }
    for maintainer in list(csv, "/spec/maintainers") {
        let (name, email) = (text(maintainer, "/name"), text(maintainer, "/email"));
        if name.is_empty() || email.is_empty() {
            errors.push("csv.Spec.Maintainers elements should contain both name and email".to_owned());
        }
        if let Some(fault) = address_fault(email).filter(|_| !email.is_empty()) {
            errors.push(format!(
                "csv.Spec.Maintainers email {email} is invalid: mail: {fault}"
            ));
        }
    }
    for link in list(csv, "/spec/links") {
        let (name, url) = (text(link, "/name"), text(link, "/url"));
        if name.is_empty() || url.is_empty() {
            errors.push("csv.Spec.Links elements should contain both name and url".to_owned());
        }
        if let Some(fault) = uri_fault(url).filter(|_| !url.is_empty()) {
            errors.push(format!(
                "csv.Spec.Links url {url} is invalid: parse {}: {fault}",
                quoted(url)
            ));
        }
    }
    let version = blang::parse_version(text(csv, "/spec/version")).ok();
    if version.is_none_or(|version| {
        (version.major, version.minor, version.patch) == (0, 0, 0) && version.pre.is_empty()
    }) {
        errors.push("csv.Spec.Version must be set".to_owned());
    }
    if csv.pointer("/spec/icon").is_some_and(|icon| !icon.is_null()) {
        let icons = list(csv, "/spec/icon");
        if icons.len() != 1 {
            errors.push("csv.Spec.Icon should only have one element".to_owned());
        }
        if let Some(icon) = icons.first() {
            let (data, kind) = (text(icon, "/base64data"), text(icon, "/mediatype"));
            if data.is_empty() || kind.is_empty() {
                errors.push("csv.Spec.Icon elements should contain both data and mediatype".to_owned());
            }
            if !kind.is_empty() && !ICONS.contains(&kind) {
                errors.push(format!("csv.Spec.Icon {kind} does not have a valid mediatype"));
            }
        }
    }
    errors
}

fn annotation<'a>(csv: &'a Value, key: &str) -> Option<&'a str> {
    csv.pointer("/metadata/annotations")?.get(key)?.as_str()
}

pub(super) fn capabilities(manifests: &Manifests, _: &Options) -> Vec<RuleFinding> {
    on_csv(manifests, |csv| {
        let level = annotation(csv, "capabilities").filter(|level| !CAPABILITIES.contains(level));
        level
            .map(|level| {
                let detail = format!(
                    "csv.Metadata.Annotations.Capabilities {} is not a valid capabilities level",
                    quoted(level)
                );
                RuleFinding::csv(Severity::Error, object_name(csv), detail)
            })
            .into_iter()
            .collect()
    })
}

pub(super) fn categories(manifests: &Manifests, options: &Options) -> Vec<RuleFinding> {
    let (allowed, which): (BTreeSet<&str>, &str) = match &options.categories {
        Some(categories) => (categories.iter().map(String::as_str).collect(), "custom"),
        None => (CATEGORIES.into_iter().collect(), "standard"),
    };
    on_csv(manifests, |csv| {
        let categories = annotation(csv, "categories").into_iter();
        categories
            .flat_map(|categories| categories.split(','))
            .filter(|category| !allowed.contains(category.trim()))
            .map(|category| {
                let detail = format!(
                    "csv.Metadata.Annotations[\"categories\"] value {} is not in the set of {which} categories",
                    quoted(category)
                );
                RuleFinding::csv(Severity::Error, object_name(csv), detail)
            })
            .collect()
    })
}
