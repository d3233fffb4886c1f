//! Values in the specification of a Deployment that the API server rejects although each field has its type. Covers
//! common mistakes of authors, not all checks of the server.

use std::collections::BTreeSet;

use olm_bundle::object::{list, text};
use olm_bundle::render::certificates::{APISERVER_VOLUME, WEBHOOK_VOLUME};
use olm_text::names::is_label;
use olm_version::quoted;
use serde_json::Value;

/// Whole numbers of the specification that must not be negative. OLM always sets `revisionHistoryLimit` itself.
const COUNTS: [&str; 2] = ["replicas", "minReadySeconds"];
/// The default, in seconds.
const PROGRESS_DEADLINE: i64 = 600;
/// The longest name of a container.
const MAX_NAME: usize = 63;
/// The largest number of findings about one Deployment.
const MOST: usize = 50;

/// The refused values so far.
struct RefusedValues(Vec<String>);

impl RefusedValues {
    fn add(&mut self, what: impl FnOnce() -> String) {
        if self.0.len() < MOST {
            self.0.push(what());
        } else if self.0.len() == MOST {
            self.0.push("more than that".to_owned());
        }
    }
}

/// The refused values of a specification whose fields have their types: each with its place, the value, and the
/// expected value.
pub(super) fn refused(spec: &Value) -> Vec<String> {
    let mut found = RefusedValues(Vec::new());
    let number = |field: &str| spec.get(field).and_then(Value::as_i64);
    for field in COUNTS {
        if let Some(count) = number(field).filter(|count| *count < 0) {
            found.add(|| format!("spec.{field}: {count} is below zero"));
        }
    }
    let ready = number("minReadySeconds").unwrap_or_default();
    let deadline = number("progressDeadlineSeconds").unwrap_or(PROGRESS_DEADLINE);
    if deadline <= ready {
        found.add(|| {
            format!("spec.progressDeadlineSeconds: {deadline} is not more than minReadySeconds, {ready}")
        });
    }
    let pod = spec.pointer("/template/spec").unwrap_or(&Value::Null);
    let policy = text(pod, "/restartPolicy");
    if !policy.is_empty() && policy != "Always" {
        found.add(|| {
            format!(
                "spec.template.spec.restartPolicy: {} is not \"Always\"",
                quoted(policy)
            )
        });
    }
    if list(pod, "/containers").is_empty() {
        found.add(|| "spec.template.spec.containers: missing".to_owned());
    }
    let brought = list(pod, "/volumes").iter();
    let volumes = Volumes {
        brought: brought.map(|volume| text(volume, "/name")).collect(),
        replaced: replaced(pod),
    };
    let mut names = BTreeSet::new();
    for kind in ["initContainers", "containers"] {
        for (at, container) in list(pod, &format!("/{kind}")).iter().enumerate() {
            let place = || format!("spec.template.spec.{kind}[{at}]");
            let name = text(container, "/name");
            if name.len() > MAX_NAME || !is_label(name) {
                found.add(|| {
                    format!(
                        "{}.name: {} is not 1 to {MAX_NAME} lower case letters, digits and hyphens between them",
                        place(),
                        quoted(name)
                    )
                });
            } else if !names.insert(name) {
                found.add(|| format!("{}.name: {} occurs twice", place(), quoted(name)));
            }
            of_container(container, &volumes, &place, &mut found);
        }
    }
    found.0
}

/// The volumes of a pod by name.
struct Volumes<'v> {
    brought: BTreeSet<&'v str>,
    replaced: BTreeSet<&'v str>,
}

/// The volumes that OLM replaces by certificates, with their mounts, if the API server calls the Deployment: the
/// volumes with these names, and those mounted at these paths.
fn replaced(pod: &Value) -> BTreeSet<&str> {
    let certificates = [WEBHOOK_VOLUME, APISERVER_VOLUME];
    let containers = ["/initContainers", "/containers"]
        .into_iter()
        .flat_map(|kind| list(pod, kind));
    let mounts = containers.flat_map(|container| list(container, "/volumeMounts"));
    let in_place = |mount: &&Value| {
        certificates
            .iter()
            .any(|(_, path)| text(mount, "/mountPath") == *path)
    };
    let names = mounts.filter(in_place).map(|mount| text(mount, "/name"));
    names.chain(certificates.map(|(name, _)| name)).collect()
}

fn of_container(
    container: &Value,
    volumes: &Volumes<'_>,
    place: &dyn Fn() -> String,
    found: &mut RefusedValues,
) {
    if text(container, "/image").is_empty() {
        found.add(|| format!("{}.image: missing", place()));
    }
    for kind in ["requests", "limits"] {
        let amounts = container.pointer(&format!("/resources/{kind}"));
        for (resource, amount) in amounts.and_then(Value::as_object).into_iter().flatten() {
            if is_negative(amount) {
                found.add(|| format!("{}.resources.{kind}.{resource}: {amount} is below zero", place()));
            }
        }
    }
    for (at, port) in list(container, "/ports").iter().enumerate() {
        let number = port.get("containerPort").and_then(Value::as_i64);
        if !number.is_some_and(|number| (1..=65535).contains(&number)) {
            let given = number.map_or_else(|| "nothing".to_owned(), |number| number.to_string());
            found.add(|| {
                format!(
                    "{}.ports[{at}].containerPort: {given} is not between 1 and 65535",
                    place()
                )
            });
        }
    }
    for (at, variable) in list(container, "/env").iter().enumerate() {
        if text(variable, "/name").is_empty() {
            found.add(|| format!("{}.env[{at}].name: missing", place()));
        }
    }
    of_mounts(list(container, "/volumeMounts"), volumes, place, found);
}

fn of_mounts(mounts: &[Value], volumes: &Volumes<'_>, place: &dyn Fn() -> String, found: &mut RefusedValues) {
    let mut paths = BTreeSet::new();
    for (at, mount) in mounts.iter().enumerate() {
        let (name, path) = (text(mount, "/name"), text(mount, "/mountPath"));
        if volumes.replaced.contains(name) {
            continue;
        }
        if !volumes.brought.contains(name) {
            found.add(|| {
                format!(
                    "{}.volumeMounts[{at}].name: there is no volume {}",
                    place(),
                    quoted(name)
                )
            });
        }
        if path.is_empty() {
            found.add(|| format!("{}.volumeMounts[{at}].mountPath: missing", place()));
        } else if !paths.insert(path) {
            found.add(|| {
                format!(
                    "{}.volumeMounts[{at}].mountPath: {} occurs twice",
                    place(),
                    quoted(path)
                )
            });
        }
    }
}

/// Whether a quantity is below zero.
fn is_negative(amount: &Value) -> bool {
    match amount {
        Value::Number(number) => number.as_f64().is_some_and(|number| number < 0.0),
        Value::String(amount) => {
            let is_counted = |one: char| ('1'..='9').contains(&one);
            let amount = amount.trim().strip_prefix('-');
            // The digits of the exponent are ignored.
            let mantissa = amount.and_then(|amount| amount.split(['e', 'E']).next());
            mantissa.is_some_and(|mantissa| mantissa.contains(is_counted))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn sound() -> Value {
        let container = |name: &str| {
            json!({
                "name": name, "image": "i", "ports": [{"containerPort": 80}], "env": [{"name": "A"}],
                "resources": {"limits": {"cpu": "-0", "memory": "-0e5"}, "requests": {"cpu": 1}},
                "volumeMounts": [
                    {"name": "v", "mountPath": "/v"},
                    {"name": "webhook-cert", "mountPath": "/certs"},
                    {"name": "cert", "mountPath": "/apiserver.local.config/certificates"},
                    {"name": "cert", "mountPath": "/elsewhere"},
                ],
            })
        };
        json!({
            "replicas": 0, "minReadySeconds": 5, "progressDeadlineSeconds": 6, "revisionHistoryLimit": -1,
            "template": {"spec": {
                "restartPolicy": "Always", "volumes": [{"name": "v"}],
                "initContainers": [container("first")], "containers": [container("main")],
            }},
        })
    }

    #[test]
    fn each_refused_value_is_reported_with_its_place() {
        let sound = sound();
        assert_eq!(refused(&sound), [""; 0]);
        let check = |place: &str, value: Value, expected: &str| {
            let mut odd = sound.clone();
            *odd.pointer_mut(place).unwrap() = value;
            assert_eq!(refused(&odd), [expected], "{place}");
        };
        check("/replicas", json!(-1), "spec.replicas: -1 is below zero");
        check(
            "/minReadySeconds",
            json!(-1),
            "spec.minReadySeconds: -1 is below zero",
        );
        check(
            "/progressDeadlineSeconds",
            json!(5),
            "spec.progressDeadlineSeconds: 5 is not more than minReadySeconds, 5",
        );
        check(
            "/template/spec/restartPolicy",
            json!("Never"),
            "spec.template.spec.restartPolicy: \"Never\" is not \"Always\"",
        );
        check(
            "/template/spec/containers",
            json!([]),
            "spec.template.spec.containers: missing",
        );
        check("/template", json!({}), "spec.template.spec.containers: missing");
        for (list, at) in [
            ("containers", "containers/0"),
            ("initContainers", "initContainers/0"),
        ] {
            let check = |field: &str, value: Value, expected: &str| {
                check(
                    &format!("/template/spec/{at}{field}"),
                    value,
                    &format!("spec.template.spec.{list}[0]{expected}"),
                );
            };
            let long = "a".repeat(64);
            for name in ["My_App", "", long.as_str()] {
                let message = format!(
                    ".name: {name:?} is not 1 to 63 lower case letters, digits and hyphens between them"
                );
                check("/name", json!(name), &message);
            }
            check("/image", json!(""), ".image: missing");
            check(
                "/resources/limits/cpu",
                json!("-500m"),
                ".resources.limits.cpu: \"-500m\" is below zero",
            );
            check(
                "/resources/requests/cpu",
                json!(-1),
                ".resources.requests.cpu: -1 is below zero",
            );
            let range = "is not between 1 and 65535";
            check(
                "/ports/0/containerPort",
                json!(80000),
                &format!(".ports[0].containerPort: 80000 {range}"),
            );
            check(
                "/ports/0",
                json!({}),
                &format!(".ports[0].containerPort: nothing {range}"),
            );
            check("/env/0/name", json!(""), ".env[0].name: missing");
            check(
                "/volumeMounts/0/name",
                json!("w"),
                ".volumeMounts[0].name: there is no volume \"w\"",
            );
            check(
                "/volumeMounts/0/mountPath",
                json!(""),
                ".volumeMounts[0].mountPath: missing",
            );
        }
    }

    #[test]
    fn duplicates_are_reported_and_of_many_the_first() {
        let mut twice = sound();
        let containers = twice["template"]["spec"]["containers"].as_array_mut().unwrap();
        let mut again = containers[0].clone();
        again["volumeMounts"] = json!([again["volumeMounts"][0], again["volumeMounts"][0]]);
        containers.push(again);
        assert_eq!(
            refused(&twice),
            [
                "spec.template.spec.containers[1].name: \"main\" occurs twice",
                "spec.template.spec.containers[1].volumeMounts[1].mountPath: \"/v\" occurs twice",
            ]
        );
        let mut many = sound();
        many["template"]["spec"]["containers"] = vec![json!({}); 100_000].into();
        assert_eq!(refused(&many).len(), 51);
    }
}
