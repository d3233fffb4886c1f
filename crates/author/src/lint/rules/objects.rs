//! Objects that could harm the cluster.

use olm_bundle::object::object_name;
use olm_bundle::object::{list, text};
use olm_fbc::check::Severity;
use serde_json::Value;

use crate::lint::manifests::Manifests;
use crate::lint::rule_finding::{Options, RuleFinding};

/// The built-in security contexts of OpenShift.
const DEFAULT_CONTEXTS: [&str; 8] = [
    "privileged",
    "restricted",
    "anyuid",
    "hostaccess",
    "hostmount-anyuid",
    "hostnetwork",
    "node-exporter",
    "nonroot",
];

pub(super) fn lint(manifests: &Manifests, _: &Options) -> Vec<RuleFinding> {
    let objects = manifests.objects.iter().enumerate();
    objects
        .flat_map(|(at, object)| {
            check(&object.value)
                .into_iter()
                .map(move |finding| finding.at(at))
        })
        .collect()
}

fn check(value: &Value) -> Vec<RuleFinding> {
    let finding = |severity: Severity, about: String, detail: &str| {
        RuleFinding::new(severity, "ObjectFailedValidation", Some(about), detail.to_owned())
    };
    let kind = text(value, "/kind");
    let about = || format!("{kind} {}", object_name(value));
    let mut findings = Vec::new();
    match kind {
        "PodDisruptionBudget" => {
            let nothing = value.pointer("/spec/maxUnavailable").is_some_and(|maximum| {
                maximum.as_i64() == Some(0) || maximum.as_str().is_some_and(|text| !is_count(text))
            });
            if nothing {
                findings.push(finding(
                    Severity::Error,
                    about(),
                    "maxUnavailable field cannot be set to 0 or 0%",
                ));
            }
            if text(value, "/spec/minAvailable") == "100%" {
                findings.push(finding(
                    Severity::Error,
                    about(),
                    "minAvailable field cannot be set to 100%",
                ));
            }
        }
        "PriorityClass" if value.get("globalDefault") == Some(&Value::Bool(true)) => {
            findings.push(finding(
                Severity::Error,
                about(),
                "globalDefault field cannot be set to true",
            ));
        }
        "Role" | "ClusterRole" => {
            for (at, rule) in list(value, "/rules").iter().enumerate() {
                let about = || format!("{kind} {}, rule {at}", object_name(value));
                let shown = || {
                    let lists = [
                        "/verbs",
                        "/apiGroups",
                        "/resources",
                        "/resourceNames",
                        "/nonResourceURLs",
                    ];
                    let lists = lists.map(|pointer| {
                        let words: Vec<&str> = list(rule, pointer).iter().filter_map(Value::as_str).collect();
                        format!("[{}]", words.join(" "))
                    });
                    format!("{{{}}}", lists.join(" "))
                };
                if has(rule, "/apiGroups", &["policy"])
                    && has(rule, "/resources", &["poddisruptionbudgets"])
                    && has(rule, "/verbs", &["*", "create", "update", "patch"])
                {
                    findings.push(RuleFinding::failed(
                        Severity::Warning,
                        &shown(),
                        "RBAC includes permission to create/update poddisruptionbudgets, which could impact cluster \
                         stability",
                    ));
                }
                if has(rule, "/apiGroups", &["security.openshift.io"])
                    && has(rule, "/resources", &["securitycontextconstraints"])
                    && has(rule, "/verbs", &["*", "delete", "update", "patch"])
                    && has(rule, "/resourceNames", &DEFAULT_CONTEXTS)
                {
                    findings.push(finding(
                        Severity::Error,
                        about(),
                        "RBAC includes permission to modify default securitycontextconstraints, which could impact \
                         cluster stability",
                    ));
                }
            }
        }
        _ => {}
    }
    findings
}

/// Whether a percentage such as `25%` allows any Pod to be unavailable. The reference implementation treats every
/// percentage as zero.
fn is_count(text: &str) -> bool {
    text.trim_end_matches('%')
        .parse::<u32>()
        .is_ok_and(|count| count > 0)
}

fn has(rule: &Value, pointer: &str, wanted: &[&str]) -> bool {
    list(rule, pointer)
        .iter()
        .filter_map(Value::as_str)
        .any(|found| wanted.contains(&found))
}
