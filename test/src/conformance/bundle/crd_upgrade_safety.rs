//! `crd-upgrade-safety`: changes of custom resource definitions, whole and check by check.
#![expect(
    clippy::indexing_slicing,
    reason = "an absent member of a JSON value reads as null"
)]

use std::collections::BTreeSet;

use olm_preflight::crd_upgrade::{Change, Check, Policy, Unsafe, check_all, compare, compare_node};
use serde_json::Value;

use crate::conformance::Outcome;

/// Runs one case.
pub fn run(case: &Value) -> Outcome {
    match case["kind"].as_str() {
        Some("olm_preflight") => preflight(case),
        Some("crdify_default_and_olm") => whole(case),
        Some("crdify_unit") => unit(case),
        other => Outcome::Fail(format!("no case is of kind {other:?}")),
    }
}

fn texts(value: &Value) -> Vec<String> {
    value
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect()
}

/// Messages without the dumps of Go structures that some of them embed.
fn comparable(messages: &[String]) -> BTreeSet<String> {
    let head = |message: &String| {
        let end = message
            .find("unhandled changes found")
            .map(|at| at + "unhandled changes found".len());
        let end = end.or_else(|| {
            message
                .contains(": oneOf: ")
                .then(|| message.find(": ["))
                .flatten()
        });
        end.and_then(|end| message.get(..end))
            .unwrap_or(message)
            .to_owned()
    };
    messages
        .iter()
        .map(head)
        .map(|message| sorted(&message))
        .collect()
}

/// A message with a sorted list of fields: the reference implementation collects it from a set.
fn sorted(message: &str) -> String {
    let Some((start, list)) = message.split_once("new required fields: [") else {
        return message.to_owned();
    };
    let mut fields: Vec<&str> = list.trim_end_matches(']').split(' ').collect();
    fields.sort_unstable();
    format!("{start}new required fields: [{}]", fields.join(" "))
}

/// The finding that our requirements add: a version must not be removed while it is served.
fn served_version_removal(expect: &Value, old: &Value, new: &Value) -> Option<String> {
    if expect["deviation"].as_str() != Some("served-version-removal") || old.is_null() {
        return None;
    }
    let versions = |definition: &Value| {
        definition
            .pointer("/spec/versions")
            .and_then(Value::as_array)
            .cloned()
    };
    let kept: Vec<Value> = versions(new)
        .unwrap_or_default()
        .iter()
        .map(|version| version["name"].clone())
        .collect();
    let gone: Vec<String> = versions(old)?
        .iter()
        .filter(|version| version["served"] == true && !kept.contains(&version["name"]))
        .filter_map(|version| version["name"].as_str().map(str::to_owned))
        .collect();
    (!gone.is_empty()).then(|| {
        format!(
            "servedVersionRemoval: served versions removed : [{}]; a version must stop being served before it goes",
            gone.join(" ")
        )
    })
}

fn preflight(case: &Value) -> Outcome {
    let expect = &case["expect"];
    let objects = case["new_objects"].as_array().cloned().unwrap_or_default();
    let existing = Some(&case["existing_crd"]).filter(|definition| !definition.is_null());
    let found = check_all(&objects, &Policy::default(), |name| {
        match case["lookup_error"].as_str() {
            Some(error) => Err(error.to_owned()),
            None => Ok(existing.filter(|definition| definition["metadata"]["name"] == name)),
        }
    });
    let mut expected = texts(&expect["findings_unordered"]);
    for object in &objects {
        let is_definition =
            object["kind"] == "CustomResourceDefinition" && object["apiVersion"] == "apiextensions.k8s.io/v1";
        if is_definition && object["metadata"]["name"] == case["existing_crd"]["metadata"]["name"] {
            expected.extend(served_version_removal(expect, &case["existing_crd"], object));
        }
    }
    let messages: Vec<String> = found
        .iter()
        .flat_map(|unsafe_change| match unsafe_change {
            Unsafe::Change { findings, .. } => findings.iter().map(ToString::to_string).collect(),
            unknown @ Unsafe::Unknown { .. } => vec![unknown.to_string()],
        })
        .collect();
    Outcome::compare("findings", &comparable(&expected), &comparable(&messages)).and(|| {
        let start = |text: &str| text.split(": ").next().unwrap_or_default().to_owned();
        let expected_start = expect["error"].as_str().map(start);
        let actual_start = found.first().map(|first| start(&first.to_string()));
        match expected_start {
            Some(_) => Outcome::compare("error", &expected_start, &actual_start),
            None => Outcome::Pass,
        }
    })
}

fn whole(case: &Value) -> Outcome {
    let expect = &case["expect"];
    let (old, new) = (&case["old_crd"], &case["new_crd"]);
    let messages: Vec<String> = compare(old, new, &Policy::default())
        .iter()
        .map(ToString::to_string)
        .collect();
    let mut expected = texts(&expect["olm_findings_unordered"]);
    let added = served_version_removal(expect, old, new);
    let expected_ok = expect["olm_ok"].as_bool().unwrap_or_default() && added.is_none();
    expected.extend(added);
    Outcome::compare("findings", &comparable(&expected), &comparable(&messages))
        .and(|| Outcome::compare("ok", &expected_ok, &messages.is_empty()))
}

fn unit(case: &Value) -> Outcome {
    let name = case["check"].as_str().unwrap_or_default();
    let policy = policy(case, name);
    let mut messages: Vec<String> = match case["level"].as_str() {
        Some("crd") => compare(&case["old_crd"], &case["new_crd"], &policy)
            .into_iter()
            .filter(|finding| finding.check.as_str() == name)
            .map(|finding| finding.message)
            .collect(),
        _ => compare_node(&case["old_schema"], &case["new_schema"], &policy)
            .into_iter()
            .filter(|(check, _)| check.as_str() == name)
            .map(|(_, message)| message)
            .collect(),
    };
    let expect = &case["expect"];
    let mut expected = texts(&expect["messages"]);
    let flagged = Outcome::compare(
        "flagged",
        &expect["flagged"].as_bool().unwrap_or_default(),
        &!messages.is_empty(),
    );
    if ["unhandled", "oneOf", "anyOf", "allOf", "not"].contains(&name) {
        return flagged;
    }
    if ["default", "enum"].contains(&name) {
        // The table has raw text; definitions have JSON text in its place.
        for message in messages.iter_mut().chain(&mut expected) {
            *message = message.replace(['"', '\\'], "");
        }
    }
    for message in messages.iter_mut().chain(&mut expected) {
        *message = sorted(message);
    }
    messages.sort();
    expected.sort();
    flagged.and(|| Outcome::compare("messages", &expected, &messages))
}

/// The policy that reports everything except the changes that the case's settings allow.
fn policy(case: &Value, name: &str) -> Policy {
    let mut policy = Policy::everything();
    let checks = [
        Check::Enum,
        Check::Nullable,
        Check::Pattern,
        Check::OneOf,
        Check::Default,
        Check::Required,
    ];
    let Some(check) = checks.into_iter().find(|check| check.as_str() == name) else {
        return policy;
    };
    for (setting, change) in [
        ("additionPolicy", Change::Addition),
        ("removalPolicy", Change::Removal),
    ] {
        if case["settings"][setting] == "Allow" {
            policy.allowed.insert((check, change));
        }
    }
    policy
}
