//! Fields that a kind does not have.

use std::fmt::Write as _;

use k8s_openapi::api::apps::v1::DeploymentSpec;
use serde::Deserialize;
use serde_ignored::Path;
use serde_json::Value;

use crate::decode::{Given, read};

/// Where the specification of a Deployment does not fit its kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Misfit {
    /// A field has a value of another type, which the API server refuses: the field, and what is wrong.
    Wrong(String),
    /// A field that Deployments do not have, and that is left out.
    Unknown(String),
}

impl Misfit {
    /// The same, of a field that stands within another.
    pub(crate) fn within(self, place: &str) -> Self {
        match self {
            Self::Wrong(why) if why.starts_with(['[', ':']) => Self::Wrong(format!("{place}{why}")),
            Self::Wrong(why) => Self::Wrong(format!("{place}.{why}")),
            Self::Unknown(field) if field.starts_with('[') => Self::Unknown(format!("{place}{field}")),
            Self::Unknown(field) => Self::Unknown(format!("{place}.{field}")),
        }
    }
}

/// Where the specification of a Deployment does not fit its kind; when it cannot be read, the first place alone.
#[must_use]
pub fn misfits(spec: &Value) -> Vec<Misfit> {
    misfits_of::<DeploymentSpec>(spec)
}

/// Where a value does not fit a type; when it cannot be read, the first place alone.
pub(crate) fn misfits_of<T: for<'de> Deserialize<'de>>(value: &Value) -> Vec<Misfit> {
    if let Err(fault) = read::<T>(value) {
        let why = fault.inner().to_string();
        let why = why
            .replace("expected i32", "expected a whole number")
            .replace("expected i64", "expected a whole number");
        let path = fault.path().to_string();
        let path = if path == "." { String::new() } else { path };
        return vec![Misfit::Wrong(format!("{path}: {why}"))];
    }
    let mut unknown = Vec::new();
    let note = |path: Path<'_>| unknown.push(Misfit::Unknown(written(&keys(&path))));
    let _: Result<T, _> = serde_ignored::deserialize(Given(value), note);
    unknown
}

/// Leaves out what a type has no field for: the reference decodes values into its own types, and the API server takes no
/// such field in a server-side apply. One that is wrong in another way stays as it is.
pub(crate) fn drop_unknown<T: for<'de> Deserialize<'de>>(value: &mut Value) {
    let mut unknown = Vec::new();
    let read: Result<T, _> = serde_ignored::deserialize(Given(value), |path| unknown.push(keys(&path)));
    if read.is_ok() {
        for path in &unknown {
            remove(value, path);
        }
    }
}

/// A path as errors write it.
fn written(keys: &[String]) -> String {
    let mut path = String::new();
    for key in keys {
        if key.bytes().all(|byte| byte.is_ascii_digit()) {
            let _ = write!(path, "[{key}]");
        } else {
            if !path.is_empty() {
                path.push('.');
            }
            path.push_str(key);
        }
    }
    path
}

/// The keys and indexes that lead to a field.
fn keys(path: &Path<'_>) -> Vec<String> {
    let mut keys = Vec::new();
    let mut at = path;
    loop {
        at = match at {
            Path::Root => break,
            Path::Seq { parent, index } => {
                keys.push(index.to_string());
                parent
            }
            Path::Map { parent, key } => {
                keys.push(key.clone());
                parent
            }
            Path::Some { parent } | Path::NewtypeStruct { parent } | Path::NewtypeVariant { parent } => {
                parent
            }
        };
    }
    keys.reverse();
    keys
}

fn remove(value: &mut Value, path: &[String]) {
    let Some((last, parents)) = path.split_last() else {
        return;
    };
    let mut at = Some(value);
    for key in parents {
        at = at.and_then(|value| match value {
            Value::Object(fields) => fields.get_mut(key),
            Value::Array(items) => items.get_mut(key.parse::<usize>().ok()?),
            _ => None,
        });
    }
    if let Some(Value::Object(fields)) = at {
        fields.shift_remove(last);
    }
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
        let unknown = |path: &str| Misfit::Unknown(path.to_owned());
        assert_eq!(
            misfits(&odd),
            [
                unknown("template.spec.containers[0].ports[0].targetPort"),
                unknown("template.spec.containers[0].imagePullPolice"),
                unknown("install"),
            ]
        );
        assert_eq!(misfits(&sound), []);
        let mut wrong = odd.clone();
        wrong["replicas"] = json!([]);
        let found = misfits(&wrong);
        assert!(
            matches!(found.as_slice(), [Misfit::Wrong(why)] if why.starts_with("replicas: ")),
            "{found:?}"
        );
        check(&wrong, &wrong);
        check(&Value::Null, &Value::Null);
    }
}
