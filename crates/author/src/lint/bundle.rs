//! All checks of a bundle.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;

use olm_bundle::lint::violations;
use olm_bundle::{Bundle, BundleFiles, ParseError, Scopes, Support, Webhooks, parse};
use olm_fbc::check::Severity;

use super::finding::{FORMAT, Finding, INSTALL};
use super::installation::manifests_as_installed;
use super::layout::layout;
use super::manifests::{LoadFault, load};
use super::publication::publication;
use super::rule_finding::Options;
use super::rules::RuleSet;

/// All findings about a bundle, sorted by place. `labels` are those of its image.
#[must_use]
pub fn bundle(
    files: &BundleFiles,
    labels: &BTreeMap<String, String>,
    rule_sets: &BTreeSet<RuleSet>,
    options: &Options,
) -> Vec<Finding> {
    let mut found = layout(files);
    found.extend(rules(files, rule_sets, options));
    // A fault of the format is reported once, without its consequences.
    let known: BTreeSet<_> = found.iter().filter_map(|finding| finding.fault.clone()).collect();
    let is_new = |finding: &Finding| finding.fault.as_ref().is_none_or(|fault| !known.contains(fault));
    found.extend(installation(files, labels).into_iter().filter(is_new));
    found.sort();
    found.dedup_by(|left, right| left.message == right.message && left.severity == right.severity);
    found
}

/// The findings of the sets of rules.
fn rules(files: &BundleFiles, rule_sets: &BTreeSet<RuleSet>, options: &Options) -> Vec<Finding> {
    let manifests = match load(files) {
        Ok(manifests) => manifests,
        Err(faults) => {
            let unreadable = |fault: LoadFault| {
                let found = Finding::new(Severity::Error, FORMAT, fault.to_string()).in_file(fault.file());
                match (fault.file(), fault.fault()) {
                    (Some(file), Some(fault)) => found.of_fault(file, fault),
                    _ => found,
                }
            };
            return faults.into_iter().map(unreadable).collect();
        }
    };
    let mut found = Vec::new();
    for rule_set in rule_sets {
        for finding in rule_set.run(&manifests, options) {
            let object = finding.object.and_then(|at| manifests.objects.get(at));
            let text = finding.to_string();
            let message = text
                .split_once(": ")
                .map_or(text.as_str(), |(_, message)| message);
            let message = message.trim_start_matches("Value : ");
            found.push(Finding {
                line: object.map(|object| object.line),
                hint: finding.hint.map(Cow::Borrowed),
                ..Finding::new(finding.severity, rule_set.name(), message)
                    .in_file(object.map(|object| object.file.as_str()))
            });
        }
    }
    found
}

/// The obstacles to installation on clusters, or to publication in catalogs.
fn installation(files: &BundleFiles, labels: &BTreeMap<String, String>) -> Vec<Finding> {
    let mut found = manifests_as_installed(files);
    let is_error = |finding: &Finding| finding.severity == Severity::Error;
    match parse(files, labels) {
        // The findings name each of its faults.
        Err(ParseError::ClusterServiceVersion(_)) if found.iter().any(is_error) => {}
        Err(error) => {
            let fault = error.unreadable();
            let finding = Finding::new(Severity::Error, INSTALL, with_causes(&error));
            found.push(match fault {
                Some((file, fault)) => finding.of_fault(file, fault.to_string()),
                None => finding,
            });
        }
        Ok(bundle) => {
            found.extend(refused(&bundle));
            found.extend(publication(&bundle));
        }
    }
    found
}

/// The parts of a readable bundle that operator-controller rejects, and those without effect.
fn refused(bundle: &Bundle) -> Vec<Finding> {
    let error = |message: String| Finding::new(Severity::Error, INSTALL, message);
    let mut found: Vec<Finding> = violations(bundle)
        .into_iter()
        .map(|violation| error(violation.message))
        .collect();
    found.extend(bundle.all_properties().into_iter().filter_map(|property| {
        let value = property.value.to_string();
        let fault = olm_constraint::fault(&olm_fbc::Property::new(property.kind.as_str(), value))?;
        Some(error(format!(
            "invalid requirement of type {}: {fault}",
            property.kind
        )))
    }));
    let webhooks = bundle.csv().spec.webhook_definitions.iter();
    let unknown = webhooks.filter(|webhook| webhook.kind().is_none());
    found.extend(unknown.map(|webhook| {
        error(format!(
            "webhook {:?} has the unknown type {:?} and is not installed: use \
             ValidatingAdmissionWebhook, MutatingAdmissionWebhook or ConversionWebhook",
            webhook.generate_name, webhook.type_name
        ))
    }));
    let nameless = bundle
        .properties()
        .iter()
        .filter(|property| property.kind.is_empty());
    found.extend(nameless.map(|property| {
        let message = format!("a property without a type has no effect: {}", property.value);
        Finding::new(Severity::Warning, INSTALL, message)
    }));
    let support = Support {
        webhooks: Webhooks::Served,
        scopes: Scopes::Any,
        ..Support::default()
    };
    let unsupported = bundle.check_support(&support);
    found.extend(
        unsupported
            .iter()
            .map(|unsupported| Finding::new(Severity::Warning, INSTALL, unsupported.to_string())),
    );
    found
}

/// An error and its causes on one line, without causes that its text already contains.
fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        next = cause.source();
    }
    text
}
