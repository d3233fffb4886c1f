//! Operators that need each other, and definitions that several own. Pure.

use olm_api::names::{GROUP, migration};
use serde_json::Value;

use super::finding::Findings;
use crate::facts::{name, namespace};
use crate::needs::{Need, Needs, Operator, gives, group_of, groups};

const CHECK: &str = "dependency";

/// Operators that need each other move in one call. In the meantime OLM classic would install a missing one again,
/// and OLM v1 would report it.
pub(crate) fn dependencies(findings: &mut Findings<'_>) {
    let case = findings.case;
    let Some(version) = case.version() else { return };
    let operators = Operator::all(case.facts);
    let mut all = operators.iter();
    let Some(own) = all.find(|operator| std::ptr::eq(operator.version, version)) else {
        return;
    };
    let given = gives(version);
    for other in operators
        .iter()
        .filter(|other| !std::ptr::eq(other.version, version))
    {
        let of_other = format!("{}/{}", namespace(other.version), name(other.version));
        let of_both = gives(other.version);
        let mut shared = of_both.intersection(&given);
        if let Some(Need::Definition(shared)) = shared.find(|need| matches!(need, Need::Definition(_))) {
            findings.block(
                "shared-definition",
                format!("ClusterServiceVersion {of_other} owns {shared} as well"),
                "remove the other installation first",
            );
        }
        let key = other.key();
        if key
            .as_ref()
            .is_some_and(|key| findings.choices.together.contains(key))
        {
            continue;
        }
        let fix = match key {
            Some(_) => in_one_call(findings),
            None => "no Subscription has installed it: remove it, or leave both to OLM classic".to_owned(),
        };
        if let Some(need) = other.needs_of(own) {
            findings.block(
                CHECK,
                format!("ClusterServiceVersion {of_other} requires {need} of this operator"),
                fix,
            );
        } else if let Some(need) = own.needs_of(other) {
            findings.block(
                CHECK,
                format!("the operator requires {need} of ClusterServiceVersion {of_other}"),
                fix,
            );
        }
    }
    unmet(findings, &operators, version);
}

/// How to move the whole group.
fn in_one_call(findings: &Findings<'_>) -> String {
    let place = findings.case.namespace();
    let group = group_of(&groups(findings.case.facts), &findings.case.key());
    let names: Vec<&str> = group
        .iter()
        .map(|key| {
            let near = key.split_once('/').filter(|(namespace, _)| *namespace == place);
            near.map_or(key.as_str(), |(_, name)| name)
        })
        .collect();
    findings.advice(
        format!(
            "move them in one call: `olm migrate {} -n {place}`",
            names.join(" ")
        ),
        format!(
            "set annotation {} of all their Subscriptions: {}",
            migration::MIGRATE,
            group.join(", ")
        ),
    )
}

/// Requirements that no operator of OLM classic meets. A ClusterExtension may meet them or not.
fn unmet(findings: &mut Findings<'_>, operators: &[Operator<'_>], version: &Value) {
    let case = findings.case;
    let needs = Needs::of(version);
    let is_met = |package: &str| {
        let mut extensions = case.facts.extensions.iter();
        operators.iter().any(|operator| operator.is_package(package))
            || extensions.any(|extension| {
                let source = extension.spec.source.catalog.as_ref();
                source.is_some_and(|source| source.package_name == package)
            })
    };
    // The API server serves required APIs: the operator runs.
    let missing = needs.packages.iter().find(|package| !is_met(package));
    let message = match missing {
        Some(name) => {
            format!("the bundle requires package {name:?}, and no ClusterExtension of group {GROUP} has it")
        }
        None if needs.has_rule => "the bundle has a rule about other packages".to_owned(),
        None => return,
    };
    findings.ask(
        "requirements",
        message,
        "see that the ClusterExtension can be upgraded without it",
    );
}
