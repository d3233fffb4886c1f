//! ClusterOperators: the state of the programs of OLM for OpenShift.

use jiff::Timestamp;
use olm_api::names::property::MAX_OPENSHIFT_VERSION;
use olm_bundle::openshift::{MinorVersion, parse_maximum};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::ClusterServiceVersion;
use crate::cluster::{Cluster, annotation, items, label, object_at, text};
use crate::names;
use crate::properties::read_annotation;

/// The apiVersion of ClusterOperators.
pub const API_VERSION: &str = "config.openshift.io/v1";
/// The kind of ClusterOperators.
pub const KIND: &str = "ClusterOperator";
/// The label of a ClusterServiceVersion that a ClusterOperator is about; its value is the name of that.
const ABOUT_LABEL: &str = "olm.clusteroperator.name";

/// One condition of a ClusterOperator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    kind: &'static str,
    status: &'static str,
    reason: &'static str,
    message: String,
}

/// The content of a ClusterOperator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    conditions: Vec<Condition>,
    /// Names and versions of operands.
    versions: Vec<(String, String)>,
    /// Related objects, as group, resource, namespace and name.
    related: Vec<[String; 4]>,
}

/// A program that reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reporter {
    /// The name of the ClusterOperator.
    pub name: String,
    /// The namespace of the program.
    pub namespace: String,
    /// The release of OpenShift that it comes with; empty where it is unknown.
    pub release: String,
    /// The version of the program.
    pub version: String,
}

fn condition(kind: &'static str, status: &'static str, reason: &'static str, message: String) -> Condition {
    Condition {
        kind,
        status,
        reason,
        message,
    }
}

/// That the cluster may be updated.
pub fn always() -> Condition {
    condition("Upgradeable", "True", "", String::new())
}

/// Whether the cluster may be updated to its next minor version: not while a ClusterServiceVersion is made for older
/// ones only, or says something that cannot be read.
pub fn upgradeable(cluster: &Cluster, release: &str) -> Condition {
    let unknown = |message: String| {
        condition(
            "Upgradeable",
            "False",
            "ErrorCheckingOperatorCompatibility",
            message,
        )
    };
    let next = match MinorVersion::of_cluster(release) {
        Ok(version) => version.next(),
        Err(error) => return unknown(format!("cannot check operators: {error}. Set `RELEASE_VERSION`")),
    };
    let (mut blockers, mut faults) = (Vec::new(), Vec::new());
    let csvs = cluster.of_kind(names::CSV_KIND);
    let originals =
        csvs.filter(|csv| ClusterServiceVersion::read_without_spec(csv).is_ok_and(|csv| !csv.is_copy()));
    for csv in originals {
        let name = format!(
            "{}/{}",
            text(csv, "/metadata/namespace"),
            text(csv, "/metadata/name")
        );
        match maximum(csv) {
            Ok(Some(maximum)) if !maximum.allows(next) => {
                blockers.push(format!("- maximum supported OCP version for {name} is {maximum}"));
            }
            Ok(_) => {}
            Err(error) => faults.push(format!("- {name}: {error}")),
        }
    }
    if !faults.is_empty() {
        faults.sort();
        return unknown(format!("cannot check operators:\n{}", faults.join("\n")));
    }
    if blockers.is_empty() {
        return always();
    }
    blockers.sort();
    // Two releases follow 4.22, under two numbers.
    let major = if (next.major, next.minor) == (4, 23) {
        " or major version upgrades to 5.0"
    } else {
        ""
    };
    let message = format!(
        "ClusterServiceVersions blocking minor version upgrades to {next}{major}:\n{}",
        blockers.join("\n")
    );
    condition("Upgradeable", "False", "IncompatibleOperatorsInstalled", message)
}

/// The latest version of OpenShift that a ClusterServiceVersion is made for.
fn maximum(csv: &Value) -> Result<Option<MinorVersion>, String> {
    let properties = annotation(csv, names::PROPERTIES_ANNOTATION);
    if properties.is_empty() {
        return Ok(None);
    }
    let properties = read_annotation(properties)?.into_iter();
    let limits = properties
        .filter(|property| property.kind == MAX_OPENSHIFT_VERSION)
        .map(|property| {
            let value = RawValue::from_string(property.value).map_err(|error| error.to_string())?;
            parse_maximum(&value).map_err(|error| format!("{MAX_OPENSHIFT_VERSION}: {error}"))
        });
    let limits: Vec<MinorVersion> = limits.collect::<Result<_, String>>()?;
    Ok(limits.into_iter().max())
}

impl Reporter {
    /// The report of a program that runs. `resources` are kinds of the API group that it is about.
    pub fn of_program(&self, upgradeable: Condition, resources: &[&str]) -> Report {
        let deployed = format!("Deployed {}", self.version);
        let conditions = vec![
            condition("Degraded", "False", "", String::new()),
            condition("Available", "True", "", String::new()),
            condition("Progressing", "False", "", deployed),
            upgradeable,
        ];
        let kinds = resources
            .iter()
            .map(|resource| related(names::GROUP, resource, "", ""));
        Report {
            conditions,
            versions: self.versions(&self.version),
            related: std::iter::once(self.own_namespace()).chain(kinds).collect(),
        }
    }

    /// The report on the ClusterServiceVersion that a ClusterOperator is about.
    pub fn of_version(&self, cluster: &Cluster) -> Report {
        let mut csvs = cluster.of_kind(names::CSV_KIND);
        let found = csvs.find(|csv| label(csv, ABOUT_LABEL) == self.name);
        let Some(csv) = found else {
            let gone = "ClusterServiceVersion of the operator does not exist".to_owned();
            return Report {
                conditions: vec![
                    condition("Degraded", "False", "", String::new()),
                    condition("Available", "False", "ClusterServiceVersionDeleted", gone),
                    condition(
                        "Progressing",
                        "True",
                        "",
                        format!("Working toward {}", self.version),
                    ),
                    always(),
                ],
                versions: Vec::new(),
                related: vec![self.own_namespace()],
            };
        };
        let (namespace, name) = (text(csv, "/metadata/namespace"), text(csv, "/metadata/name"));
        let (phase, version) = (text(csv, "/status/phase"), text(csv, "/spec/version"));
        let seen = format!("ClusterServiceVersion {namespace}/{name} observed in phase {phase}");
        let has_succeeded = phase == "Succeeded";
        let available = if has_succeeded {
            condition("Available", "True", "ClusterServiceVersionSucceeded", seen)
        } else {
            condition("Available", "False", "ClusterServiceVersionNotSucceeded", seen)
        };
        let progressing = match phase {
            "Succeeded" => condition("Progressing", "False", "", format!("Deployed version {version}")),
            "Failed" => condition("Progressing", "False", "", format!("Failed to deploy {version}")),
            _ => condition("Progressing", "True", "", format!("Working toward {version}")),
        };
        let degraded = if phase == "Failed" { "True" } else { "False" };
        Report {
            conditions: vec![
                condition("Degraded", degraded, "", String::new()),
                available,
                progressing,
                always(),
            ],
            versions: if has_succeeded {
                self.versions(version)
            } else {
                Vec::new()
            },
            related: vec![
                self.own_namespace(),
                related(names::GROUP, "clusterserviceversions", namespace, name),
            ],
        }
    }

    fn versions(&self, own: &str) -> Vec<(String, String)> {
        let release = ("operator".to_owned(), self.release.clone());
        let own = (self.name.clone(), own.to_owned());
        [release, own]
            .into_iter()
            .filter(|(_, version)| !version.is_empty())
            .collect()
    }

    fn own_namespace(&self) -> [String; 4] {
        related("", "namespaces", "", &self.namespace)
    }
}

fn related(group: &str, resource: &str, namespace: &str, name: &str) -> [String; 4] {
    [group, resource, namespace, name].map(str::to_owned)
}

/// The ClusterOperator with this content. Conditions of other kinds stay; the time of one moves with its status.
/// Nothing where it has the content already.
pub fn reported(found: Option<&Value>, name: &str, report: &Report, now: Timestamp) -> Option<Value> {
    let mut wanted = found.cloned().unwrap_or_else(
        || json!({"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": name}, "spec": {}}),
    );
    let mut conditions: Vec<Value> = items(&wanted, "/status/conditions").cloned().collect();
    for said in &report.conditions {
        let Condition {
            kind,
            status,
            reason,
            message,
        } = said;
        let position = conditions.iter().position(|known| text(known, "/type") == *kind);
        let known = position.and_then(|position| conditions.get(position));
        let since = known.filter(|known| text(known, "/status") == *status);
        let since = since.map_or_else(
            || format!("{now:.0}"),
            |known| text(known, "/lastTransitionTime").to_owned(),
        );
        let mut new = json!({"type": kind, "status": status, "lastTransitionTime": since});
        if let Some(new) = new.as_object_mut() {
            let filled = [("reason", *reason), ("message", message)];
            let filled = filled.into_iter().filter(|(_, text)| !text.is_empty());
            new.extend(filled.map(|(key, text)| (key.to_owned(), text.into())));
        }
        match position.and_then(|position| conditions.get_mut(position)) {
            Some(known) => *known = new,
            None => conditions.push(new),
        }
    }
    let versions = report
        .versions
        .iter()
        .map(|(name, version)| json!({"name": name, "version": version}));
    let related = report.related.iter().map(|[group, resource, namespace, name]| {
        let mut object = json!({"group": group, "resource": resource, "name": name});
        if let (false, Some(object)) = (namespace.is_empty(), object.as_object_mut()) {
            object.insert("namespace".to_owned(), namespace.as_str().into());
        }
        object
    });
    let (versions, related): (Value, Value) = (versions.collect(), related.collect());
    let status = object_at(&mut wanted, &["status"])?;
    status.insert("conditions".to_owned(), conditions.into());
    // Without a version of its own, the report keeps the one that was deployed before.
    if versions.as_array().is_some_and(|versions| !versions.is_empty()) {
        status.insert("versions".to_owned(), versions);
    }
    status.insert("relatedObjects".to_owned(), related);
    (found != Some(&wanted)).then_some(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn csv(name: &str, properties: &str, phase: &str) -> Value {
        json!({
            "kind": names::CSV_KIND,
            "metadata": {
                "namespace": "n", "name": name, "labels": {ABOUT_LABEL: name},
                "annotations": {names::PROPERTIES_ANNOTATION: properties},
            },
            "spec": {"version": "1.2.3"}, "status": {"phase": phase},
        })
    }

    fn reporter(name: &str) -> Reporter {
        Reporter {
            name: name.to_owned(),
            namespace: "olm".to_owned(),
            release: "4.18.3".to_owned(),
            version: "0.1.0".to_owned(),
        }
    }

    #[test]
    fn operators_for_older_releases_hold_the_update() {
        let check = |properties: &[&str], release: &str, reason: &str, part: &str| {
            let named = properties.iter().enumerate();
            let cluster: Cluster = named
                .map(|(number, text)| csv(&format!("c{number}"), text, "Succeeded"))
                .collect();
            let found = upgradeable(&cluster, release);
            assert_eq!(found.reason, reason, "{found:?}");
            assert!(found.message.contains(part), "{found:?}");
        };
        let limit = |version: &str| {
            format!(r#"{{"properties":[{{"type":"olm.maxOpenShiftVersion","value":{version}}}]}}"#)
        };
        check(&["", &limit("\"4.19\"")], "4.18.0", "", "");
        check(
            &[&limit("\"4.18\""), &limit("4.10")],
            "4.18.0",
            "IncompatibleOperatorsInstalled",
            "upgrades to 4.19:\n- maximum supported OCP version for n/c0 is 4.18\n- maximum supported OCP version for n/c1 is 4.10",
        );
        let both = "upgrades to 4.23 or major version upgrades to 5.0:";
        check(
            &[&limit("\"4.22\"")],
            "4.22.1",
            "IncompatibleOperatorsInstalled",
            both,
        );
        check(
            &[&limit("true")],
            "4.18.0",
            "ErrorCheckingOperatorCompatibility",
            "- n/c0: olm.maxOpenShiftVersion",
        );
        check(&[], "", "ErrorCheckingOperatorCompatibility", "RELEASE_VERSION");
    }

    #[test]
    fn a_report_that_says_the_same_is_not_written_again() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let reporter = reporter("c");
        let report = reporter.of_program(always(), &["subscriptions"]);
        let first = reported(None, "c", &report, at(1)).unwrap();
        assert_eq!(reported(Some(&first), "c", &report, at(2)), None);
        assert_eq!(
            first["status"]["versions"],
            json!([{"name": "operator", "version": "4.18.3"}, {"name": "c", "version": "0.1.0"}])
        );
        let cluster: Cluster = [csv("c", "", "Installing")].into_iter().collect();
        let second = reported(Some(&first), "c", &reporter.of_version(&cluster), at(3)).unwrap();
        let condition = |kind: &str| {
            let found = items(&second, "/status/conditions").find(|found| text(found, "/type") == kind);
            found.cloned().unwrap_or_default()
        };
        assert_eq!(
            condition("Available")["reason"],
            "ClusterServiceVersionNotSucceeded"
        );
        assert_eq!(
            condition("Available")["lastTransitionTime"],
            "1970-01-01T00:00:03Z"
        );
        assert_eq!(
            condition("Degraded")["lastTransitionTime"],
            "1970-01-01T00:00:01Z"
        );
        assert_eq!(condition("Progressing")["message"], "Working toward 1.2.3");
        assert_eq!(second["status"]["versions"], first["status"]["versions"]);
        let gone = reporter.of_version(&Cluster::default());
        let third = reported(Some(&second), "c", &gone, at(4)).unwrap();
        assert_eq!(
            third["status"]["conditions"][1]["reason"],
            "ClusterServiceVersionDeleted"
        );
    }
}
