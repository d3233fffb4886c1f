//! Recommendations.

use std::collections::BTreeSet;

use olm_bundle::object::object_name;
use olm_bundle::object::{list, text};
use olm_fbc::check::Severity;
use olm_version::blang;
use serde_json::Value;

use super::text::quoted_list;
use crate::lint::manifests::{Manifests, csvs};
use crate::lint::rule_finding::{Options, RuleFinding};

pub(super) fn lint(manifests: &Manifests, _: &Options) -> Vec<RuleFinding> {
    let Some((at, csv)) = csvs(manifests).next() else {
        return Vec::new();
    };
    let name = object_name(csv);
    let mut findings = Vec::new();
    if csv
        .pointer("/spec/install/spec/deployments")
        .is_none_or(Value::is_null)
    {
        let detail = "unable to find a deployment to install in the CSV";
        findings.push(RuleFinding::failed(Severity::Error, name, detail).at(at));
    }
    let warning = |detail: String| RuleFinding::failed(Severity::Warning, name, detail).at(at);
    let requests = resource_requests(csv).into_iter().map(warning);
    findings.extend(
        requests.map(|finding| finding.hinted("set resources.requests.cpu and .memory of the container")),
    );
    findings.extend(descriptions(csv).into_iter().map(warning));
    let channels = channels(manifests).into_iter().map(warning);
    findings.extend(channels.map(|finding| finding.hinted("name channels candidate-…, fast-… or stable-…")));
    findings.extend(creates_definitions(csv).into_iter().map(warning));
    findings.extend(bundle_name(name).into_iter().map(warning));
    findings
}

fn resource_requests(csv: &Value) -> Vec<String> {
    let deployments = list(csv, "/spec/install/spec/deployments").iter();
    let containers = deployments.flat_map(|deployment| list(deployment, "/spec/template/spec/containers"));
    containers
        .filter(|container| container.pointer("/resources/requests").is_none_or(Value::is_null))
        .map(|container| {
            format!(
                "unable to find the resource requests for the container: ({}). It is recommended to ensure the resource \
                 request for CPU and Memory. Be aware that for some clusters configurations it is required to specify \
                 requests or limits for those values. Otherwise, the system or quota may reject Pod creation. More info: \
                 https://master.sdk.operatorframework.io/docs/best-practices/managing-resources/",
                text(container, "/name")
            )
        })
        .collect()
}

fn descriptions(csv: &Value) -> Vec<String> {
    let of = |relation: &str| -> Vec<String> {
        let definitions = list(csv, &format!("/spec/customresourcedefinitions/{relation}")).iter();
        definitions
            .filter(|definition| text(definition, "/description").is_empty())
            .map(|definition| {
                let name = text(definition, "/name");
                format!("{relation} CRD {name:?} has an empty description")
            })
            .collect()
    };
    [of("owned"), of("required")].concat()
}

fn channels(manifests: &Manifests) -> Option<String> {
    let named = manifests.channels.iter().chain([&manifests.default_channel]);
    let odd: BTreeSet<String> = named
        .map(|channel| channel.trim())
        .filter(|channel| !channel.is_empty())
        .filter(|channel| {
            !["candidate", "stable", "fast"]
                .iter()
                .any(|prefix| channel.starts_with(prefix))
        })
        .map(str::to_owned)
        .collect();
    let odd: Vec<String> = odd.into_iter().collect();
    (!odd.is_empty()).then(|| {
        format!(
            "channel(s) {} are not following the recommended naming convention: \
             https://olm.operatorframework.io/docs/best-practices/channel-naming",
            quoted_list(&odd)
        )
    })
}

fn creates_definitions(csv: &Value) -> Option<String> {
    let permissions = ["permissions", "clusterPermissions"]
        .into_iter()
        .flat_map(|field| list(csv, &format!("/spec/install/spec/{field}")));
    let has = |rule: &Value, pointer: &str, wanted: &[&str]| {
        let mut found = list(rule, pointer).iter().filter_map(Value::as_str);
        found.any(|found| wanted.contains(&found))
    };
    let creates = permissions
        .flat_map(|permission| list(permission, "/rules"))
        .any(|rule| {
            has(rule, "/apiGroups", &["apiextensions.k8s.io"])
                && has(rule, "/resources", &["customresourcedefinitions", "*", "[*]"])
                && has(rule, "/verbs", &["create", "*", "[*]", "patch"])
        });
    creates.then(|| {
        "CSV contains permissions to create CRD. An Operator shouldn't deploy or manage other operators (such patterns \
         are known as meta or super operators or include CRDs in its Operands). It's the Operator Lifecycle Manager's job \
         to manage the deployment and lifecycle of operators.  Please, review the design of your solution and if you \
         should not be using Dependency Resolution from OLM instead. More info: \
         https://sdk.operatorframework.io/docs/best-practices/common-recommendation/"
            .to_owned()
    })
}

fn bundle_name(name: &str) -> Vec<String> {
    let mut warnings = Vec::new();
    if version_at_the_end(name).is_none_or(|version| blang::parse_version(version).is_err()) {
        warnings.push(format!(
            "csv.metadata.Name {name} is not following the versioning convention (MAJOR.MINOR.PATCH e.g 0.0.1): \
             https://semver.org/"
        ));
    }
    if name.split(".v").count() != 2 {
        warnings.push(format!(
            "csv.metadata.Name {name} is not following the recommended naming convention: <operator-name>.v<semver> e.g. \
             memcached-operator.v0.0.1"
        ));
    }
    warnings
}

/// The longest end of the text in the form of a version: three numbers, then an optional pre-release and build.
fn version_at_the_end(text: &str) -> Option<&str> {
    let identifier = |part: &str| {
        !part.is_empty()
            && part
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    let number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let looks_like_one = |text: &str| {
        let (text, build) = match text.split_once('+') {
            Some((text, build)) => (text, Some(build)),
            None => (text, None),
        };
        let (core, pre) = match text.split_once('-') {
            Some((core, pre)) => (core, Some(pre)),
            None => (text, None),
        };
        let parts: Vec<&str> = core.split('.').collect();
        parts.len() == 3
            && parts.into_iter().all(number)
            && pre.is_none_or(|pre| pre.split('.').all(identifier))
            && build.is_none_or(identifier)
    };
    text.char_indices()
        .filter(|(_, letter)| letter.is_ascii_digit())
        .filter_map(|(at, _)| text.get(at..))
        .take(256)
        .find(|end| looks_like_one(end))
}

#[cfg(test)]
mod tests {
    use super::bundle_name;

    #[test]
    fn names_end_with_a_version_behind_a_v() {
        for (name, expected) in [
            ("a.v1.2.3", 0),
            ("a.v1.2.3-rc.1", 0),
            ("a.v1.2.3+build", 0),
            ("a-1.2.3", 1),
            ("a.v1.2", 1),
            ("a.v01.2.3", 1),
            ("a", 2),
        ] {
            assert_eq!(bundle_name(name).len(), expected, "{name}");
        }
    }
}
