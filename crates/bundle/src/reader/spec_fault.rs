//! Faults of values of Kubernetes types.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

use k8s_openapi::api::apps::v1::DeploymentSpec;
use serde::Deserialize;
use serde_json::Value;

use super::value::{Path, Step, ValueError, read_noting};

/// A fault in the specification of a Deployment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SpecFault {
    /// A field has a value of another type, which the API server refuses.
    Wrong {
        /// The field; empty for the whole value.
        path: Path,
        /// The fault.
        why: String,
    },
    /// A field that Deployments do not have. It is left out.
    Unknown(Path),
}

impl fmt::Display for SpecFault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wrong { path, why } if path.steps().is_empty() => formatter.write_str(why),
            Self::Wrong { path, why } => write!(formatter, "{path}: {why}"),
            Self::Unknown(path) => path.fmt(formatter),
        }
    }
}

impl SpecFault {
    /// The fault of a field inside another.
    pub(crate) fn within(self, place: &Path) -> Self {
        match self {
            Self::Wrong { path, why } => Self::Wrong {
                path: path.within(place),
                why,
            },
            Self::Unknown(path) => Self::Unknown(path.within(place)),
        }
    }
}

/// The faults in the specification of a Deployment.
#[must_use]
pub fn spec_faults(spec: &Value) -> Vec<SpecFault> {
    spec_faults_of::<DeploymentSpec>(spec)
}

/// The most wrong values that are reported.
const MOST: usize = 20;

/// The faults of a value of a type.
pub(crate) fn spec_faults_of<T: for<'de> Deserialize<'de>>(value: &Value) -> Vec<SpecFault> {
    let read = |value: &Value, unknown: Option<&mut Vec<Path>>| read_noting::<T>(value, unknown).map(drop);
    find(value, &read)
}

type Read<'r> = &'r dyn Fn(&Value, Option<&mut Vec<Path>>) -> Result<(), ValueError>;

fn find(value: &Value, read: Read<'_>) -> Vec<SpecFault> {
    let mut spec_faults = Vec::new();
    let mut value = Cow::Borrowed(value);
    // The reader stops at the first wrong value. Each round removes it to find the next.
    while let Err(fault) = read(&value, None) {
        let why = fault.error.to_string();
        let why = why
            .replace("expected i32", "expected a whole number")
            .replace("expected i64", "expected a whole number");
        let is_left_out = remove(value.to_mut(), &fault.path);
        let path = fault.path;
        spec_faults.push(SpecFault::Wrong { path, why });
        if !is_left_out {
            return spec_faults;
        }
        if spec_faults.len() == MOST {
            spec_faults.push(SpecFault::Wrong {
                path: Path::default(),
                why: "and perhaps more".to_owned(),
            });
            return spec_faults;
        }
    }
    let mut unknown = Vec::new();
    if read(&value, Some(&mut unknown)).is_ok() {
        spec_faults.extend(unknown.into_iter().map(SpecFault::Unknown));
    }
    spec_faults
}

/// Removes the fields that a type does not have: the reference implementation drops them when it decodes the value, and
/// the API server rejects them in a server-side apply. A field with another fault stays.
pub(crate) fn drop_unknown<T: for<'de> Deserialize<'de>>(value: &mut Value) {
    let mut unknown = Vec::new();
    if read_noting::<T>(value, Some(&mut unknown)).is_err() {
        return;
    }
    let parts: Vec<_> = unknown
        .iter()
        .filter_map(|path| path.steps().split_last())
        .collect();
    // All elements of a list at once, because each removal moves the following ones.
    for group in parts.chunk_by(|(_, left), (_, right)| left == right) {
        let keys = group.iter().filter_map(|(last, _)| match last {
            Step::Key(name) => Some(name),
            Step::Index(_) => None,
        });
        let names: HashSet<&String> = keys.collect();
        let around = group.first().and_then(|(_, around)| at(value, around));
        if let Some(Value::Object(fields)) = around {
            fields.retain(|name, _| !names.contains(name));
        }
    }
}

/// Removes a field or element. Returns whether it existed.
fn remove(value: &mut Value, path: &Path) -> bool {
    let Some((last, around)) = path.steps().split_last() else {
        return false;
    };
    let Some(around) = at(value, around) else {
        return false;
    };
    match last {
        Step::Key(name) => around
            .as_object_mut()
            .is_some_and(|fields| fields.shift_remove(name).is_some()),
        Step::Index(index) => around
            .get_mut(index)
            .is_some_and(|element| !element.take().is_null()),
    }
}

fn at<'v>(value: &'v mut Value, path: &[Step]) -> Option<&'v mut Value> {
    path.iter().try_fold(value, |at, step| match step {
        Step::Key(key) => at.get_mut(key),
        Step::Index(index) => at.get_mut(index),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_fields_that_a_deployment_does_not_have_are_left_out() {
        let sound = json!({
            "replicas": 1, "selector": {"matchLabels": {"any": "label"}},
            "strategy": {"rollingUpdate": {"maxUnavailable": "25%"}},
            "template": {
                "metadata": {"annotations": {"any": "annotation"}, "creationTimestamp": null},
                "spec": {"containers": [{
                    "name": "a", "ports": [{"containerPort": 80}], "resources": {"limits": {"cpu": "1", "any": 2}},
                    "livenessProbe": {"httpGet": {"port": "web"}}, "env": null,
                }], "nodeSelector": {"any": "label"}},
            },
        });
        let check = |spec: &Value, expected: &Value| {
            let mut found = spec.clone();
            drop_unknown::<DeploymentSpec>(&mut found);
            assert_eq!(found, *expected);
        };
        check(&sound, &sound);
        let mut odd = sound.clone();
        odd["install"] = json!({"a": 1});
        odd["template"]["spec"]["containers"][0]["imagePullPolice"] = json!("Always");
        odd["template"]["spec"]["containers"][0]["ports"][0]["targetPort"] = json!(80);
        check(&odd, &sound);
        let unknown = |fault: &SpecFault| match fault {
            SpecFault::Unknown(path) => Some(path.to_string()),
            SpecFault::Wrong { .. } => None,
        };
        let found: Vec<_> = spec_faults(&odd).iter().filter_map(unknown).collect();
        assert_eq!(
            found,
            [
                "template.spec.containers[0].ports[0].targetPort",
                "template.spec.containers[0].imagePullPolice",
                "install",
            ]
        );
        assert_eq!(spec_faults(&sound), []);
        let mut wrong = sound.clone();
        wrong["replicas"] = json!([]);
        wrong["template"]["spec"]["containers"][0]["args"] = json!([1, "two", 3]);
        wrong["template"]["spec"]["containers"][0]["resources"]["limits"] =
            json!({"cpu": "much", "any": "lots"});
        wrong["install"] = json!({"a": 1});
        let found = spec_faults(&wrong);
        let places = [
            "replicas: ",
            "template.spec.containers[0].args[0]: ",
            "template.spec.containers[0].args[2]: ",
            "template.spec.containers[0].resources.limits.cpu: \"much\" is not a quantity",
            "template.spec.containers[0].resources.limits.any: ",
        ];
        let (last, faults) = found.split_last().unwrap();
        assert_eq!(unknown(last).as_deref(), Some("install"));
        for begins in places {
            let is_it = |fault: &&SpecFault| fault.to_string().starts_with(begins);
            assert_eq!(faults.iter().filter(is_it).count(), 1, "{begins} {found:?}");
        }
        assert_eq!(faults.len(), places.len(), "{found:?}");
        let mut many = sound.clone();
        many["template"]["spec"]["containers"][0]["args"] = vec![1; 1000].into();
        assert_eq!(spec_faults(&many).len(), 21);
        let strange: serde_json::Map<String, Value> = (0..100_000)
            .map(|at| (format!("strange{at}"), json!({"a": at})))
            .collect();
        let mut many = sound.clone();
        many.as_object_mut().unwrap().extend(strange);
        check(&many, &sound);
        check(&wrong, &wrong);
        check(&Value::Null, &Value::Null);
    }
}
