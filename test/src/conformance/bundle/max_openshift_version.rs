//! Values of `olm.maxOpenShiftVersion`, their effect on the cluster's next minor version, and the condition that the
//! gate sets.

use olm_api::cluster_object_set::LifecycleState;
use olm_bundle::openshift::{MinorVersion, parse_maximum};
use operator_controller::openshift::verdict::{InstalledRevision, Rollout, verdict};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::conformance::Outcome;

/// Runs one case.
pub fn run(case: &Value) -> Outcome {
    let expect = &case["expect"];
    let text = |key: &str| case[key].as_str().unwrap_or_default();
    match text("kind") {
        "parse_value" => {
            let version = RawValue::from_string(text("value_json").to_owned())
                .ok()
                .and_then(|raw| parse_maximum(&raw).ok())
                .map(|version| format!("{version}.0"));
            parsed(&expected(expect, text("value_json")), version.as_deref())
        }
        "cluster_version" => {
            let version = MinorVersion::of_cluster(text("cluster")).ok();
            parsed_cluster(expect, version)
        }
        "next_minor" => match MinorVersion::of_cluster(text("cluster")) {
            Ok(version) => Outcome::compare(
                "next",
                &expect.as_str().unwrap_or_default().to_owned(),
                &version.next().to_string(),
            ),
            Err(error) => Outcome::Fail(error.to_string()),
        },
        "upgradeable" => {
            let raw = RawValue::from_string(format!("{:?}", text("max")));
            let maximum = raw.ok().and_then(|raw| parse_maximum(&raw).ok());
            match (maximum, MinorVersion::of_cluster(text("cluster"))) {
                (Some(maximum), Ok(cluster)) => Outcome::compare(
                    "upgradeable",
                    &expect.as_bool(),
                    &Some(maximum.allows(cluster.next())),
                ),
                other => Outcome::Fail(format!("cannot read the versions: {other:?}")),
            }
        }
        "controller" => controller(case),
        other => Outcome::Fail(format!("unknown kind {other:?}")),
    }
}

/// A deviation: a string of three numbers is read, and the third does not count.
fn expected(recorded: &Value, value: &str) -> Value {
    let with_patch = || {
        let text: String = serde_json::from_str(value).ok()?;
        let numbers: Vec<&str> = text.trim().split('.').collect();
        let all = numbers
            .iter()
            .all(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()));
        match (all, numbers.as_slice()) {
            (true, [major, minor, patch]) => {
                patch.parse::<u64>().ok()?;
                Some((major.parse::<u64>().ok()?, minor.parse::<u64>().ok()?))
            }
            _ => None,
        }
    };
    match (recorded["patch"] == "read").then(with_patch).flatten() {
        Some((major, minor)) => serde_json::json!({"ok": true, "version": format!("{major}.{minor}.0")}),
        None => recorded.clone(),
    }
}

fn parsed(expect: &Value, version: Option<&str>) -> Outcome {
    Outcome::compare("accepted", &expect["ok"].as_bool(), &Some(version.is_some())).and(|| {
        match expect["version"].as_str() {
            Some(expected) => Outcome::compare("version", &Some(expected), &version),
            None => Outcome::Pass,
        }
    })
}

fn parsed_cluster(expect: &Value, version: Option<MinorVersion>) -> Outcome {
    Outcome::compare("accepted", &expect["ok"].as_bool(), &Some(version.is_some())).and(|| match version {
        Some(version) => Outcome::compare(
            "minor",
            &expect["minor"].as_str(),
            &Some(format!("{version}.0").as_str()),
        )
        .and(|| {
            Outcome::compare(
                "next",
                &expect["next"].as_str(),
                &Some(version.next().to_string().as_str()),
            )
        }),
        None => Outcome::Pass,
    })
}

/// The reference implementation reads object sets or releases, depending on its runtime, with the same facts about a
/// bundle. It reports under a condition type of an intermediate object; ours is on the ClusterOperator itself.
fn controller(case: &Value) -> Outcome {
    let list = |key: &str| case[key].as_array().map(Vec::as_slice).unwrap_or_default();
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let extensions: Vec<&str> = list("cluster_extensions")
        .iter()
        .filter_map(Value::as_str)
        .collect();
    let sets = list("object_sets").iter().map(|set| InstalledRevision {
        extension: text(&set["owner"]).unwrap_or_default(),
        bundle: text(&set["bundle"]).unwrap_or_default(),
        number: set["revision"].as_i64().unwrap_or_default(),
        state: if set["lifecycleState"] == "Active" {
            LifecycleState::Active
        } else {
            LifecycleState::Archived
        },
        rollout: Rollout::UnderWay,
        properties: text(&set["olm_properties_annotation"]),
        further: None,
    });
    let releases = list("helm_releases").iter().map(|release| InstalledRevision {
        extension: text(&release["release"]).unwrap_or_default(),
        bundle: text(&release["bundle"]).unwrap_or_default(),
        number: 1,
        state: LifecycleState::Active,
        rollout: Rollout::Complete,
        properties: text(&release["olm_properties_annotation"]),
        further: None,
    });
    let revisions: Vec<InstalledRevision> = if case["runtime"] == "helm" {
        releases.collect()
    } else {
        sets.collect()
    };
    let revisions: Vec<InstalledRevision> = revisions
        .into_iter()
        .filter(|r| extensions.contains(&r.extension.as_str()))
        .collect();
    let cluster = match MinorVersion::of_cluster(case["cluster_version"].as_str().unwrap_or_default()) {
        Ok(cluster) => cluster,
        Err(error) => return Outcome::Fail(error.to_string()),
    };
    let verdict = verdict(cluster, &revisions);
    let expect = &case["expect"];
    Outcome::compare(
        "status",
        &expect["status"].as_str(),
        &Some(verdict.status.as_str()),
    )
    .and(|| match expect["reason"].as_str() {
        Some("") | None => Outcome::Pass,
        reason => Outcome::compare("reason", &reason, &Some(verdict.reason)),
    })
    .and(|| match expect["message_contains"].as_str() {
        Some(part) if !verdict.message.contains(part) => Outcome::Fail(format!(
            "message: expected a text with {part:?}, got {:?}",
            verdict.message
        )),
        _ => Outcome::Pass,
    })
}
