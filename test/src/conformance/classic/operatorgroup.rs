//! OperatorGroups.

use jiff::Timestamp;
use olm_classic::cluster::Cluster;
use olm_classic::csv::{ClusterServiceVersion, InstallModeEntry};
use olm_classic::operator_group::apis::{definition_labels, provided_by};
use olm_classic::operator_group::copies::{copy_of, is_uncopiable};
use olm_classic::operator_group::install_modes::InstallModes;
use olm_classic::operator_group::namespaces::{added_or_removed, changed};
use olm_classic::operator_group::pass::pass;
use olm_classic::operator_group::roles::{api_roles, group_role_name};
use olm_classic::operator_group::targets::{select, webhook_selector};
use olm_classic::operator_group::{
    ApiDecision, ApiKey, ApiSet, NamespaceSet, OperatorGroup, OperatorGroupApis,
};
use serde::Deserialize as _;
use serde_json::{Value, json};

use super::super::{Outcome, expect};
use super::{cluster, compare, compare_objects, list, significant, text, texts};

/// Runs a case.
pub fn run(case: &Value) -> Outcome {
    match text(case, "kind") {
        "api_set" => api_set(case),
        "parse_annotation" => parse_annotation(case),
        "api_key" => api_key(case),
        "namespace_set" => namespace_set(case),
        "namespaces_changed" => namespaces_changed(case),
        "group_surface" => group_surface(case),
        "reconcile_provided_apis" => reconcile_provided_apis(case),
        "install_modes" => install_modes(case),
        "crd_api_labels" => crd_api_labels(case),
        "csv_api_surface" => csv_api_surface(case),
        "copied_csv" => copied_csv(case),
        "cluster_role_name" => cluster_role_name(case),
        "target_namespaces" => target_namespaces(case),
        "sync_operator_group" => sync_operator_group(case),
        "csv_cluster_roles" => csv_cluster_roles(case),
        other => Outcome::Fail(format!("cannot run cases of kind {other:?}")),
    }
}

/// `group/version/kind[/plural]`. A group may hold a slash of its own: then the rest is without a plural.
fn api(text: &str) -> ApiKey {
    let mut parts = text.splitn(4, '/').map(str::to_owned);
    let mut next = || parts.next().unwrap_or_default();
    ApiKey {
        group: next(),
        version: next(),
        kind: next(),
        plural: next(),
    }
}

fn api_text(api: &ApiKey) -> String {
    let text = format!("{}/{}/{}", api.group, api.version, api.kind);
    if api.plural.is_empty() {
        text
    } else {
        format!("{text}/{}", api.plural)
    }
}

fn apis(texts: &[String]) -> ApiSet {
    texts.iter().map(|text| api(text)).collect()
}

fn api_texts(apis: &ApiSet) -> Value {
    let mut texts: Vec<String> = apis.iter().map(api_text).collect();
    texts.sort();
    json!(texts)
}

fn sorted(case: &Value, key: &str) -> Vec<String> {
    let mut texts = texts(case.get("expect").unwrap_or(&Value::Null), key);
    texts.sort();
    texts
}

fn compare_apis(case: &Value, key: &str, actual: &ApiSet) -> Outcome {
    Outcome::compare(key, &json!(sorted(case, key)), &api_texts(actual))
}

fn api_set(case: &Value) -> Outcome {
    let first = apis(&texts(case, "a"));
    let second = apis(&texts(case, "b"));
    let mut others = vec![second.clone()];
    others.extend(list(case, "more").into_iter().map(|more| {
        let texts = more.as_array().into_iter().flatten().filter_map(Value::as_str);
        texts.map(api).collect()
    }));
    match text(case, "op") {
        "union" => compare_apis(
            case,
            "apis",
            &others.iter().fold(first, |all, set| all.union(set)),
        ),
        "intersection" => {
            let pairwise = others.iter().map(|set| first.intersection(set));
            let all = pairwise.fold(ApiSet::default(), |all, set| all.union(&set));
            compare_apis(case, "apis", &all)
        }
        "difference" => compare_apis(case, "apis", &first.difference(&second)),
        "is_subset" => compare(case, "result", &json!(first.is_subset(&second))),
        "strip_plural" => compare_apis(case, "apis", &first.without_plurals()),
        "to_annotation" => compare(case, "annotation", &json!(first.annotation())),
        other => Outcome::Fail(format!("unknown operation {other:?}")),
    }
}

fn parse_annotation(case: &Value) -> Outcome {
    let apis = ApiSet::parse(text(case, "text"));
    compare_apis(case, "apis", &apis).and(|| compare(case, "written_back", &json!(apis.annotation())))
}

fn api_key(case: &Value) -> Outcome {
    let api = api(text(case, "api"));
    let labels =
        ["admin", "edit", "view"].map(|suffix| (suffix.to_owned(), json!(api.aggregation_label(suffix))));
    compare(case, "gvk", &json!(api.gvk()))
        .and(|| compare(case, "hash", &json!(api.hash())))
        .and(|| {
            compare(
                case,
                "aggregation_labels",
                &Value::Object(labels.into_iter().collect()),
            )
        })
}

fn namespace_set(case: &Value) -> Outcome {
    let first: NamespaceSet = texts(case, "a").into_iter().collect();
    let second: NamespaceSet = texts(case, "b").into_iter().collect();
    let compare_set = |set: &NamespaceSet| {
        let names: Vec<&str> = set.iter().collect();
        Outcome::compare("namespaces", &json!(sorted(case, "namespaces")), &json!(names))
    };
    let given = text(case, "text");
    match text(case, "op") {
        "union" => compare_set(&first.union(&second)),
        "intersection" => compare_set(&first.intersection(&second)),
        "from_string" => compare_set(&NamespaceSet::parse(given)),
        "contains" => compare(case, "result", &json!(first.contains(given))),
        "is_all" => compare(case, "result", &json!(first.is_all())),
        other => Outcome::Fail(format!("unknown operation {other:?}")),
    }
}

fn namespaces_changed(case: &Value) -> Outcome {
    let current = texts(case, "current");
    let previous = texts(case, "previous");
    compare(case, "changed", &json!(changed(&current, &previous))).and(|| {
        let requeued = added_or_removed(&previous, &current);
        Outcome::compare(
            "requeued_namespaces",
            &json!(sorted(case, "requeued_namespaces")),
            &json!(requeued),
        )
    })
}

/// Reads an OperatorGroup of a case.
fn group(object: &Value) -> Result<OperatorGroup, Outcome> {
    OperatorGroup::read(object).map_err(|error| Outcome::Fail(error.to_string()))
}

fn csv(object: &Value) -> Result<ClusterServiceVersion, Outcome> {
    ClusterServiceVersion::read(object).map_err(|error| Outcome::Fail(error.to_string()))
}

fn group_surface(case: &Value) -> Outcome {
    let group = match group(&case["group"]) {
        Ok(group) => group,
        Err(outcome) => return outcome,
    };
    let apis = OperatorGroupApis::of(&group);
    let targets: Vec<&str> = apis.targets.iter().collect();
    Outcome::compare("targets", &json!(sorted(case, "targets")), &json!(targets))
        .and(|| compare_apis(case, "provided_apis", &apis.provided))
        .and(|| compare(case, "targets_annotation", &json!(group.targets_annotation())))
}

fn reconcile_provided_apis(case: &Value) -> Outcome {
    let add = apis(&texts(case, "add"));
    let apis = |object: &Value| group(object).map(|group| OperatorGroupApis::of(&group));
    let others: Result<Vec<OperatorGroupApis>, Outcome> =
        list(case, "others").into_iter().map(apis).collect();
    let (own, others) = match (apis(&case["group"]), others) {
        (Ok(own), Ok(others)) => (own, others),
        (Err(outcome), _) | (_, Err(outcome)) => return outcome,
    };
    let intersecting: Vec<&str> = own
        .intersecting(&others)
        .into_iter()
        .map(|other| other.identifier.as_str())
        .collect();
    let decision = own.decide(&add, &others);
    let name = match decision {
        ApiDecision::Remove => "RemoveAPIs",
        ApiDecision::Add => "AddAPIs",
        ApiDecision::Conflict => "APIConflict",
        ApiDecision::Keep => "NoAPIConflict",
    };
    compare(case, "intersecting_groups", &json!(intersecting))
        .and(|| compare(case, "result", &json!(name)))
        .and(|| compare(case, "annotation", &json!(own.annotation_after(decision, &add))))
}

fn install_modes(case: &Value) -> Outcome {
    let declared: Result<Vec<InstallModeEntry>, _> = list(case, "installModes")
        .into_iter()
        .map(InstallModeEntry::deserialize)
        .collect();
    let declared = match declared {
        Ok(declared) => declared,
        Err(error) => return Outcome::Fail(error.to_string()),
    };
    let failed = |stage: &str, error: String| {
        compare(case, "ok", &json!(false))
            .and(|| compare(case, "stage", &json!(stage)))
            .and(|| compare(case, "error", &json!(error)))
    };
    let modes = match InstallModes::new(&declared) {
        Ok(modes) => modes,
        Err(error) => return failed("modes", error.to_string()),
    };
    match modes.supports(text(case, "operatorNamespace"), &texts(case, "targetNamespaces")) {
        Ok(()) => compare(case, "ok", &json!(true)),
        Err(error) => failed("supports", error.to_string()),
    }
}

fn crd_api_labels(case: &Value) -> Outcome {
    let labels = definition_labels(&case["crd"]);
    compare(case, "label_sets", &json!(labels))
}

fn csv_api_surface(case: &Value) -> Outcome {
    let csv = match csv(&case["csvObject"]) {
        Ok(csv) => csv,
        Err(outcome) => return outcome,
    };
    match provided_by(&csv) {
        Ok(provided) => compare(case, "ok", &json!(true))
            .and(|| compare_apis(case, "provided", &provided))
            // Required APIs derive nothing, and the ClusterServiceVersion gets no labels.
            .and(|| compare(case, "required", &json!([])))
            .and(|| compare(case, "labels_applied_by_sync", &Value::Null))
            .and(|| {
                compare(
                    case,
                    "labels",
                    &json!([provided.without_plurals().provider_labels()]),
                )
            }),
        Err(error) => {
            compare(case, "ok", &json!(false)).and(|| compare(case, "error", &json!(error.to_string())))
        }
    }
}

fn copied_csv(case: &Value) -> Outcome {
    let object = &case["csvObject"];
    let csv = match csv(object) {
        Ok(csv) => csv,
        Err(outcome) => return outcome,
    };
    let copy = copy_of(object);
    compare_objects(
        "copy",
        &[expect(case, "copy")],
        std::slice::from_ref(&copy.object),
    )
    .and(|| compare(case, "spec_hash", &json!(copy.content_hash)))
    .and(|| compare(case, "status_hash", &json!(copy.status_hash)))
    .and(|| compare(case, "uncopiable", &json!(is_uncopiable(&csv))))
    .and(|| compare(case, "source_is_copy", &json!(csv.is_copy())))
}

fn cluster_role_name(case: &Value) -> Outcome {
    let metadata = &case["group"]["metadata"];
    let name = |suffix| group_role_name(text(metadata, "namespace"), text(metadata, "name"), suffix);
    let names = json!({"admin": name("admin"), "edit": name("edit"), "view": name("view")});
    compare(case, "names", &names)
}

fn target_namespaces(case: &Value) -> Outcome {
    let cluster = cluster(case);
    let found = cluster.get(
        "OperatorGroup",
        text(case, "namespace"),
        text(case, "operatorGroup"),
    );
    let Some(object) = found else {
        return Outcome::Fail("the case has no OperatorGroup of this name".to_owned());
    };
    let group = match group(object) {
        Ok(group) => group,
        Err(outcome) => return outcome,
    };
    let selected = select(&group, &cluster);
    let selector = webhook_selector(&group, object);
    match (selected, selector) {
        (Ok(namespaces), Ok(selector)) => compare(case, "ok", &json!(true))
            .and(|| {
                Outcome::compare(
                    "namespaces_unordered",
                    &json!(sorted(case, "namespaces_unordered")),
                    &json!(namespaces),
                )
            })
            .and(|| compare(case, "webhook_selector", &json!(selector))),
        (Err(error), _) | (_, Err(error)) => {
            compare(case, "ok", &json!(false)).and(|| compare(case, "error", &json!(error.to_string())))
        }
    }
}

fn sync_operator_group(case: &Value) -> Outcome {
    // Times are not compared.
    let now = Timestamp::UNIX_EPOCH;
    let outcome = pass(
        text(case, "namespace"),
        text(case, "operatorGroup"),
        &cluster(case),
        now,
    );
    let expected = list(case.get("expect").unwrap_or(&Value::Null), "objects_written");
    let written: Vec<Value> = outcome
        .written
        .iter()
        .map(|object| as_recorded(object, &expected))
        .collect();
    let error = outcome.error.map(|error| error.to_string());
    compare_objects("objects_written", &expected, &written).and(|| compare(case, "error", &json!(error)))
}

/// An OperatorGroup without the reference to its account if the recorded one has lost it. The reference implementation
/// drops the reference when the namespaces change and restores it in the next pass. Installations with that account
/// fail in between. Ours keeps the reference.
fn as_recorded(object: &Value, expected: &[&Value]) -> Value {
    let mut object = object.clone();
    let has_lost = object["kind"] == "OperatorGroup"
        && expected.iter().any(|recorded| {
            recorded["kind"] == "OperatorGroup"
                && recorded["metadata"]["name"] == object["metadata"]["name"]
                && recorded["status"]["serviceAccountRef"].is_null()
                && recorded["status"]["namespaces"] == object["status"]["namespaces"]
        });
    if has_lost && let Some(status) = object["status"].as_object_mut() {
        status.remove("serviceAccountRef");
    }
    object
}

fn csv_cluster_roles(case: &Value) -> Outcome {
    let cluster: Cluster = cluster(case);
    let found = cluster.get(
        "ClusterServiceVersion",
        text(case, "namespace"),
        text(case, "csv"),
    );
    let csv = match found.map(csv) {
        Some(Ok(csv)) => csv,
        Some(Err(outcome)) => return outcome,
        None => return Outcome::Fail("the case has no ClusterServiceVersion of this name".to_owned()),
    };
    let roles = api_roles(&csv, &cluster);
    let expected = list(case.get("expect").unwrap_or(&Value::Null), "objects_written");
    let expected: Vec<Value> = expected.into_iter().map(with_kind).collect();
    let expected: Vec<&Value> = expected.iter().collect();
    let error = roles.error.map(|error| error.to_string());
    compare_objects("objects_written", &expected, &roles.written)
        .and(|| compare(case, "ok", &json!(error.is_none())))
        .and(|| compare(case, "error", &json!(error)))
}

/// A recorded role with the kind of its owner in the spelling of the API. The reference implementation writes
/// `customresourcedefinition`, which the garbage collector does not find.
pub(super) fn with_kind(role: &Value) -> Value {
    let mut role = significant(role);
    let owners = role
        .pointer_mut("/metadata/ownerReferences")
        .and_then(Value::as_array_mut);
    for owner in owners.into_iter().flatten() {
        if owner["kind"] == "customresourcedefinition" {
            owner["kind"] = json!("CustomResourceDefinition");
        }
    }
    role
}
