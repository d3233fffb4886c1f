//! The Helm chart, rendered and installed by Helm itself.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use olm_test::cluster::Binaries;
use olm_test::dist::manifests::folders;
use olm_test::shared::Shared;
use olm_test::world::{Lab, repository};
use serde_json::Value;

use crate::{kustomized, objects, release};

static LAB: Shared<Lab> = Shared::new(|| Box::pin(Lab::empty()));
/// The namespace that the manifests name.
const NAMESPACE: &str = "olmv1-system";

fn chart() -> Result<PathBuf> {
    Ok(release()?.join(format!("olm-{}.tgz", env!("CARGO_PKG_VERSION"))))
}

/// Runs Helm, with the chart in place of the argument `CHART`, and returns whether it succeeded, its output and its
/// error output.
fn try_helm(lab: &Lab, arguments: &[&str]) -> Result<(bool, String, String)> {
    let chart = chart()?.display().to_string();
    let mut command: Command = lab.cluster.exec(Binaries::ensure_helm()?.path("helm"));
    command.args(
        arguments
            .iter()
            .map(|one| if *one == "CHART" { &chart } else { *one }),
    );
    for variable in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
        command.env(variable, lab.folder().join("helm"));
    }
    let output = command.output().context("cannot run helm")?;
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    Ok((
        output.status.success(),
        text(&output.stdout),
        text(&output.stderr),
    ))
}

fn helm(lab: &Lab, arguments: &[&str]) -> Result<String> {
    let (is_done, printed, said) = try_helm(lab, arguments)?;
    ensure!(is_done, "helm {}: {said}", arguments.join(" "));
    Ok(printed)
}

/// Objects by kind, namespace and name.
fn by_name(objects: Vec<Value>) -> BTreeMap<String, Value> {
    let text = |object: &Value, pointer: &str| {
        let value = object.pointer(pointer).and_then(Value::as_str);
        value.unwrap_or_default().to_owned()
    };
    objects
        .into_iter()
        .filter(|object| !object.is_null())
        .map(|object| {
            let key =
                ["/kind", "/metadata/namespace", "/metadata/name"].map(|pointer| text(&object, pointer));
            (key.join(" "), object)
        })
        .collect()
}

#[test]
fn the_chart_has_a_page_with_the_commands_of_the_docs() -> Result<()> {
    LAB.with(async |lab| {
        let readme = helm(lab, &["show", "readme", "CHART"])?;
        let docs = std::fs::read_to_string(repository().join("docs/how-to/install-olm.md"))?;
        let commands: Vec<&str> = readme
            .split("```")
            .filter_map(|part| part.strip_prefix("sh\n"))
            .collect();
        ensure!(commands.len() == 2, "{readme}");
        for command in commands {
            ensure!(docs.contains(command), "the docs say otherwise than\n{command}");
        }
        Ok(())
    })
}

#[test]
fn the_chart_has_the_objects_of_kustomize() -> Result<()> {
    LAB.with(async |lab| {
        let definitions = by_name(objects(&helm(lab, &["show", "crds", "CHART"])?)?);
        for (overlay, folder) in folders(&repository())? {
            let mut expected = by_name(objects(&kustomized(lab, &folder)?)?);
            let namespace = expected.remove(&format!("Namespace  {NAMESPACE}"));
            namespace.context("no namespace")?;
            let rendered = helm(
                lab,
                &[
                    "template",
                    "olm",
                    "CHART",
                    "-n",
                    NAMESPACE,
                    "--set",
                    &format!("overlay={overlay}"),
                    "--set",
                    "image.prefix=olmv1",
                ],
            )?;
            let mut found = by_name(objects(&rendered)?);
            found.extend(definitions.clone());
            for (name, object) in &expected {
                let same = found
                    .remove(name)
                    .with_context(|| format!("{overlay}: the chart lacks {name}"))?;
                ensure!(
                    same == *object,
                    "{overlay}: {name}\n{same:#}\ninstead of\n{object:#}"
                );
            }
            ensure!(
                found.is_empty(),
                "{overlay}: only the chart has {:?}",
                found.keys()
            );
        }
        Ok(())
    })
}

#[test]
fn values_change_what_they_name() -> Result<()> {
    LAB.with(async |lab| {
        let rendered = helm(
            lab,
            &[
                "template",
                "olm",
                "CHART",
                "-n",
                "elsewhere",
                "--set",
                "overlay=default-account-guarded",
                "--set",
                "image.prefix=registry.example/mine/",
                "--set",
                "image.tag=v9",
                "--set",
                "image.pullPolicy=Always",
                "--set",
                "image.pullSecrets[0].name=pull",
                "--set",
                "catalogd.replicas=1",
                "--set",
                "operatorController.replicas=3",
                "--set",
                "operatorController.extraArgs={--concurrency=16}",
                "--set",
                "operatorController.extraEnv[0].name=HTTPS_PROXY",
                "--set",
                "operatorController.extraEnv[0].value=p",
                "--set",
                "operatorController.resources.limits.memory=1Gi",
                "--set",
                "operatorController.nodeSelector.pool=infra",
                "--set",
                "operatorController.priorityClassName=system-cluster-critical",
                "--set",
                "operatorController.podAnnotations.a=b",
                "--set",
                "operatorController.tolerations[0].operator=Exists",
            ],
        )?;
        let left = rendered.lines().find(|line| line.contains(NAMESPACE));
        ensure!(left.is_none(), "{left:?}");
        let found = by_name(objects(&rendered)?);
        let catalogd = &found["Deployment elsewhere catalogd-controller-manager"]["spec"];
        let controller = &found["Deployment elsewhere operator-controller-controller-manager"]["spec"];
        ensure!(
            catalogd["replicas"] == 1 && controller["replicas"] == 3,
            "{controller:#}"
        );
        let budgets: Vec<&String> = found
            .keys()
            .filter(|name| name.starts_with("PodDisruptionBudget"))
            .collect();
        ensure!(
            budgets == ["PodDisruptionBudget elsewhere operator-controller-controller-manager"],
            "{budgets:?}"
        );
        let pods = &controller["template"]["spec"];
        let container = &pods["containers"][0];
        ensure!(
            container["image"] == "registry.example/mine/operator-controller:v9",
            "{container:#}"
        );
        ensure!(container["imagePullPolicy"] == "Always", "{container:#}");
        let arguments = container["args"].as_array().context("no arguments")?;
        ensure!(
            arguments.len() > 4 && arguments.last() == Some(&"--concurrency=16".into()),
            "{container:#}"
        );
        ensure!(
            arguments.contains(&"--default-service-account=elsewhere/olm-default-installer".into()),
            "{container:#}"
        );
        ensure!(container["env"][0]["name"] == "HTTPS_PROXY", "{container:#}");
        ensure!(
            container["resources"]["limits"]["memory"] == "1Gi",
            "{container:#}"
        );
        ensure!(
            container["resources"]["requests"]["memory"] == "64Mi",
            "{container:#}"
        );
        ensure!(pods["imagePullSecrets"][0]["name"] == "pull", "{pods:#}");
        ensure!(pods["nodeSelector"]["pool"] == "infra", "{pods:#}");
        ensure!(pods["nodeSelector"]["kubernetes.io/os"] == "linux", "{pods:#}");
        ensure!(pods["priorityClassName"] == "system-cluster-critical", "{pods:#}");
        ensure!(pods["tolerations"][0]["operator"] == "Exists", "{pods:#}");
        ensure!(
            controller["template"]["metadata"]["annotations"]["a"] == "b",
            "{controller:#}"
        );
        Ok(())
    })
}

#[test]
fn wrong_values_are_refused() -> Result<()> {
    LAB.with(async |lab| {
        for (values, why) in [
            (
                &["image.tag=v1"][..],
                "image.prefix is empty: set it to the registry",
            ),
            (&["image.prefix=a", "overlay=other"], "overlay"),
            (&["image.prefix=a", "catalogd.replica=1"], "replica"),
        ] {
            let mut arguments = vec!["template", "olm", "CHART"];
            arguments.extend(values.iter().flat_map(|value| ["--set", value]));
            let (is_done, _, said) = try_helm(lab, &arguments)?;
            ensure!(!is_done && said.contains(why), "{values:?}: {said}");
        }
        Ok(())
    })
}

#[test]
fn helm_installs_upgrades_and_uninstalls() -> Result<()> {
    LAB.with(async |lab| {
        let begin = Instant::now();
        let said = helm(
            lab,
            &[
                "install",
                "olm",
                "CHART",
                "-n",
                NAMESPACE,
                "--create-namespace",
                "--set",
                "image.prefix=registry.example/olmv1",
                "--wait",
                "--timeout",
                "2m",
            ],
        )?;
        println!(
            "helm install: both managers available after {:.1} s",
            begin.elapsed().as_secs_f64()
        );
        ensure!(said.contains("OLM v0.1.0 is in namespace olmv1-system"), "{said}");
        lab.kubectl(&[
            "label",
            "namespace",
            NAMESPACE,
            "--overwrite",
            "pod-security.kubernetes.io/enforce=restricted",
        ])?;

        // An older definition, as Helm leaves it.
        let definition = "crd/clusterextensions.olm.operatorframework.io";
        let column = |lab: &Lab| {
            lab.kubectl(&[
                "get",
                definition,
                "-o",
                "jsonpath={.spec.versions[0].additionalPrinterColumns[0].name}",
            ])
        };
        let current = column(lab)?;
        lab.kubectl(&[
            "patch",
            definition,
            "--type=json",
            "--field-manager=helm",
            "-p",
            r#"[{"op":"replace","path":"/spec/versions/0/additionalPrinterColumns/0/name","value":"Old"}]"#,
        ])?;
        let upgrade = [
            "upgrade",
            "olm",
            "CHART",
            "-n",
            NAMESPACE,
            "--reuse-values",
            "--set",
            "catalogd.replicas=3",
            "--wait",
            "--timeout",
            "2m",
        ];
        helm(lab, &upgrade)?;
        ensure!(
            column(lab)? == "Old",
            "Helm upgrades definitions now: the docs say that it does not"
        );
        let definitions = lab.folder().join("crds.yaml");
        std::fs::write(&definitions, helm(lab, &["show", "crds", "CHART"])?)?;
        lab.kubectl(&[
            "apply",
            "--server-side",
            "--force-conflicts",
            "-f",
            &definitions.display().to_string(),
        ])?;
        ensure!(column(lab)? == current, "the definition is still old");
        let replicas = lab.kubectl(&[
            "get",
            "deployment",
            "catalogd-controller-manager",
            "-n",
            NAMESPACE,
            "-o",
            "jsonpath={.status.readyReplicas}",
        ])?;
        ensure!(replicas == "3", "{replicas}");

        helm(lab, &["uninstall", "olm", "-n", NAMESPACE, "--wait"])?;
        let left = lab.kubectl(&[
            "get",
            "deployments,clusterroles,validatingadmissionpolicies",
            "-A",
            "-l",
            "app.kubernetes.io/part-of=olm",
            "-o",
            "name",
        ])?;
        ensure!(left.is_empty(), "{left}");
        // They hold the objects of users.
        lab.kubectl(&["get", definition]).map(drop)
    })
}
