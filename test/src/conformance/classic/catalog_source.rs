//! CatalogSources.

use jiff::Timestamp;
use olm_classic::catalog_source::{Images, Source, ensure, is_healthy, pass, with_image};
use serde_json::{Value, json};

use super::super::{Outcome, expect};
use super::{cluster, compare, compare_objects, significant, sort_keys, text};

/// Runs a case.
pub fn run(case: &Value) -> Outcome {
    let kind = text(case, "kind");
    if kind == "image_template" {
        return image_template(case);
    }
    let cluster = cluster(case);
    let Some(object) = cluster.get(
        "CatalogSource",
        text(case, "namespace"),
        text(case, "catalogSource"),
    ) else {
        return Outcome::Fail("the case has no CatalogSource of this name".to_owned());
    };
    let Ok(now) = text(case, "now").parse::<Timestamp>() else {
        return Outcome::Fail("the case has no time".to_owned());
    };
    let source = Source {
        object,
        cluster: &cluster,
    };
    let images = Images {
        catalog: None,
        config_map_server: "reg.example/configmap-server:1".to_owned(),
        opm: "reg.example/opm:1".to_owned(),
        utilities: "reg.example/util:1".to_owned(),
        run_as_user: Some(1001),
    };
    match kind {
        "check_registry" => match is_healthy(&source, &images) {
            Ok(found) => compare(case, "healthy", &json!(found)),
            Err(error) => compare(case, "error", &json!(error)),
        },
        "ensure_registry" if !source.has_registry() => {
            let is_none = expect(case, "reconciler").is_null() && case["expect"].get("reconciler").is_some();
            Outcome::compare("reconciler", &is_none, &true)
        }
        "ensure_registry" => {
            let ensured = ensure(&source, &images, now);
            if let Some(error) = ensured.error {
                return compare(case, "error", &json!(error));
            }
            compare(case, "address", &json!(source.address()))
                .and(|| objects(case, &ensured.written, &[ensured.dead, ensured.deleted].concat()))
                .and(|| status(case, &ensured.status))
        }
        "sync_catalog_source" => {
            let decision = pass(&source, &images, "IDLE", now);
            compare(case, "error", &json!(decision.error))
                .and(|| {
                    objects(
                        case,
                        &decision.written,
                        &[decision.dead, decision.deleted].concat(),
                    )
                })
                .and(|| status(case, &decision.status))
        }
        other => Outcome::Fail(format!("cannot run cases of kind {other:?}")),
    }
}

fn image_template(case: &Value) -> Outcome {
    let object = &case["catalogSourceObject"];
    let found = with_image(object, text(case, "serverVersion"), Timestamp::UNIX_EPOCH);
    let conditions = found
        .pointer("/status/conditions")
        .cloned()
        .unwrap_or_else(|| json!([]));
    let expected = sort_keys(&significant(expect(case, "conditions")));
    Outcome::compare("conditions", &expected, &sort_keys(&significant(&conditions)))
        .and(|| compare(case, "image", &found["spec"]["image"]))
}

/// Compares statuses; the times of a run are there or not.
fn status(case: &Value, found: &Value) -> Outcome {
    let mut expected = expect(case, "status").clone();
    let mut found = found.clone();
    for path in [
        &["latestImageRegistryPoll"][..],
        &["connectionState", "lastConnect"],
    ] {
        for status in [&mut expected, &mut found] {
            let mut here = Some(status);
            for key in path {
                here = here.and_then(|value| value.get_mut(*key));
            }
            if let Some(time) = here {
                *time = json!("<time of the run>");
            }
        }
    }
    for status in [&mut expected, &mut found] {
        let reference = status
            .get_mut("configMapReference")
            .and_then(Value::as_object_mut);
        if let Some(reference) = reference {
            reference.remove("resourceVersion");
        }
    }
    let normal = |status: &Value| sort_keys(&significant(status));
    Outcome::compare("status", &normal(&expected), &normal(&found))
}

fn objects(case: &Value, written: &[Value], deleted: &[String]) -> Outcome {
    let expected = expect(case, "objects_written")
        .as_array()
        .cloned()
        .unwrap_or_default();
    let mut generated = 0;
    let actual: Vec<Value> = written
        .iter()
        .map(|object| {
            let mut object = object.clone();
            if object["metadata"].get("name").is_none() {
                generated += 1;
                let prefix = text(&object["metadata"], "generateName").to_owned();
                object["metadata"]["name"] = json!(format!("{prefix}<generated-{generated}>"));
            }
            if object["kind"] == "Service" {
                // The typed clients of the recording add this.
                object["status"] = json!({"loadBalancer": {}});
            }
            object
        })
        .collect();
    let deleted: Vec<Value> = deleted
        .iter()
        .map(|name| json!(format!("Pod|{}|{name}", text(case, "namespace"))))
        .collect();
    let gone = expect(case, "objects_deleted")
        .as_array()
        .cloned()
        .unwrap_or_default();
    compare_objects("objects_written", &expected.iter().collect::<Vec<_>>(), &actual)
        .and(|| Outcome::compare("objects_deleted", &gone, &deleted))
}
