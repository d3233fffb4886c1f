//! The content of the manifests themselves.

use anyhow::{Context as _, Result, ensure};
use olm_test::world::{Lab, binary, repository};
use serde_json::Value;

use crate::LAB;

fn rendered(lab: &Lab, folder: &str) -> Result<Vec<Value>> {
    let folder = repository().join(folder).display().to_string();
    let text = lab.kubectl(&["kustomize", &folder])?;
    olm_yaml::documents(text.as_bytes(), &olm_yaml::Limits::default())
        .map(|document| Ok(document?.into_value()?))
        .collect()
}

/// Whether every label of a selector is on the Pods.
fn selects(selector: &Value, pods: &Value) -> bool {
    let labels = selector.as_object();
    labels.is_some_and(|labels| labels.iter().all(|(key, value)| pods.get(key) == Some(value)))
}

#[test]
fn pods_have_bounds_and_the_labels_that_others_select_them_by() -> Result<()> {
    LAB.with(async |lab| {
        for overlay in [
            "base",
            "overlays/restricted",
            "overlays/default-account",
            "overlays/cert-manager",
            "overlays/openshift",
        ] {
            let objects = rendered(lab, &format!("manifests/{overlay}"))?;
            for name in ["catalogd", "operator-controller"] {
                let find = |kind: &str| {
                    objects.iter().find(|object| {
                        object["kind"] == kind
                            && object["metadata"]["labels"]["app.kubernetes.io/name"] == name
                    })
                };
                let deployment =
                    find("Deployment").with_context(|| format!("{overlay}: {name} has no Deployment"))?;
                let template = &deployment["spec"]["template"];
                let labels = &template["metadata"]["labels"];
                ensure!(labels["app.kubernetes.io/name"] == name, "{overlay}: {labels}");
                for (kind, selector) in [
                    ("Deployment", "/spec/selector/matchLabels"),
                    ("Service", "/spec/selector"),
                    ("NetworkPolicy", "/spec/podSelector/matchLabels"),
                    ("PodDisruptionBudget", "/spec/selector/matchLabels"),
                ] {
                    let object = find(kind).with_context(|| format!("{overlay}: {name} has no {kind}"))?;
                    let selector = object.pointer(selector).context("no selector")?;
                    ensure!(
                        selects(selector, labels),
                        "{overlay}: {kind} {name} selects {selector}"
                    );
                }
                let spread = template["spec"]["topologySpreadConstraints"].as_array();
                ensure!(
                    spread.is_some_and(|spread| spread
                        .iter()
                        .any(|one| selects(&one["labelSelector"]["matchLabels"], labels))),
                    "{overlay}: the replicas of {name} are not spread over nodes: {spread:?}"
                );
                let families = &find("Service").context("no Service")?["spec"]["ipFamilyPolicy"];
                ensure!(
                    families == "PreferDualStack",
                    "{overlay}: the Service of {name} asks for {families}"
                );
                let policy = find("NetworkPolicy").context("no policy")?["spec"]["ingress"].to_string();
                ensure!(
                    !policy.contains("8081"),
                    "{overlay}: the health port is open to Pods: {policy}"
                );
                for container in template["spec"]["containers"]
                    .as_array()
                    .context("no containers")?
                {
                    let arguments = container["args"].as_array().context("no arguments")?;
                    let run = std::process::Command::new(binary(name)?)
                        .args(arguments.iter().filter_map(Value::as_str))
                        .arg("version")
                        .output()?;
                    let said = String::from_utf8_lossy(&run.stderr);
                    ensure!(
                        run.status.success(),
                        "{overlay}: {name} refuses its arguments: {said}"
                    );
                    let limits = &container["resources"]["limits"];
                    ensure!(limits["memory"].is_string(), "{overlay}: {name}: {limits}");
                }
                for volume in template["spec"]["volumes"].as_array().context("no volumes")? {
                    if let Some(folder) = volume.get("emptyDir") {
                        ensure!(folder["sizeLimit"].is_string(), "{overlay}: {name}: {volume}");
                    }
                }
            }
        }
        Ok(())
    })
}
